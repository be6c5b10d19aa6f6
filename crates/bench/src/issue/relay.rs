//! One address in front of several controllers, as a Service is: whoever connects reaches one that
//! accepts.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

/// Passes connections on until the runtime ends.
///
/// # Errors
/// The address is taken.
pub(super) fn start(
    runtime: &Handle,
    address: SocketAddr,
    targets: Vec<SocketAddr>,
) -> anyhow::Result<()> {
    let listener = runtime.block_on(TcpListener::bind(address));
    let listener = listener.with_context(|| format!("the relay at {address}"))?;
    runtime.spawn(async move {
        for turn in 0.. {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            tokio::spawn(pass_on(stream, targets.clone(), turn));
        }
    });
    Ok(())
}

/// Passes one connection on to the first that accepts, from the one whose turn it is.
async fn pass_on(mut stream: TcpStream, targets: Vec<SocketAddr>, turn: usize) {
    let count = targets.len();
    for target in targets.iter().cycle().skip(turn % count.max(1)).take(count) {
        if let Ok(mut other) = TcpStream::connect(target).await {
            // Either end may end it.
            let _ = copy_bidirectional(&mut stream, &mut other).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn one_that_is_gone_is_passed_over() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [relay, gone] = free.map(|listener| listener.local_addr().unwrap());
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let targets = vec![gone, there.local_addr().unwrap()];
        super::start(runtime.handle(), relay, targets).unwrap();
        for _ in 0..2 {
            let mut client = TcpStream::connect(relay).unwrap();
            let (mut server, _) = there.accept().unwrap();
            client.write_all(b"x").unwrap();
            let mut byte = [0];
            server.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        }
    }
}
