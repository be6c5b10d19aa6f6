//! The endpoints of all domains: two addresses, told apart by their status. And a service that is
//! asked for each request, and lets everything pass.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The length of every body.
pub const BODY_BYTES: usize = 1_024;

/// What the first and the second endpoint answer with.
pub const STATUSES: [u16; 2] = [200, 203];

/// The answer to what is not for `/`.
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// The answer of the service that is asked.
const LET_PASS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The longest request head; the generator's are a tenth of it.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Starts both endpoints of this address on one thread, which ends with the process.
///
/// # Errors
/// No port or no thread is to be had.
pub fn start(address: IpAddr) -> anyhow::Result<[SocketAddr; 2]> {
    let listeners = [listen(address)?, listen(address)?];
    let addresses = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new().name("backend".to_owned());
    thread.spawn(move || {
        let [first, second] = listeners;
        let unseen = Arc::default;
        runtime.block_on(async {
            tokio::try_join!(accept(first, 0, unseen()), accept(second, 1, unseen()))
        })
    })?;
    Ok(addresses)
}

/// Answers on this listener as the first endpoint does, on a thread of its own, which ends with
/// the process. Says whether a request came that bore the identity of its caller.
///
/// # Errors
/// No thread is to be had.
pub fn serve(listener: std::net::TcpListener) -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_identified = Arc::new(AtomicBool::new(false));
    let seen = is_identified.clone();
    let thread = std::thread::Builder::new().name("server".to_owned());
    thread.spawn(move || runtime.block_on(accept(listener, 0, seen)))?;
    Ok(is_identified)
}

/// Starts a service that answers every request with 200 and nothing, on a thread of its own, which
/// ends with the process.
///
/// # Errors
/// No port or no thread is to be had.
pub fn start_authorizer(address: IpAddr) -> anyhow::Result<SocketAddr> {
    let listener = listen(address)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = std::thread::Builder::new().name("authorizer".to_owned());
    thread.spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                tokio::spawn(answer(stream, LET_PASS.into(), "GET /", Arc::default()));
            }
            #[expect(unreachable_code, reason = "the type of the errors above")]
            Ok::<(), io::Error>(())
        })
    })?;
    Ok(bound)
}

fn listen(address: IpAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(
    listener: std::net::TcpListener,
    which: usize,
    seen: Arc<AtomicBool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let status = STATUSES[which];
    let head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let mut response = head.into_bytes();
    response.resize(response.len() + BODY_BYTES, b'x');
    let response: Arc<[u8]> = response.into();
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, response.clone(), "GET / ", seen.clone()));
    }
}

/// Answers requests without body that start like this, as the load generator and the prober send
/// them. A request for another path shows that a proxy did not rewrite it.
async fn answer(
    mut stream: TcpStream,
    response: Arc<[u8]>,
    start: &'static str,
    seen: Arc<AtomicBool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        while let Some(end) = find_end(&buffer[..filled]) {
            let is_known = buffer.starts_with(start.as_bytes());
            if !seen.load(Ordering::Relaxed) && has_identity(&buffer[..end]) {
                seen.store(true, Ordering::Relaxed);
            }
            let answer = if is_known { &*response } else { NOT_FOUND };
            stream.write_all(answer).await?;
            buffer.copy_within(end..filled, 0);
            filled -= end;
        }
    }
}

/// Whether proxies say by whom a request comes.
fn has_identity(head: &[u8]) -> bool {
    let name = b"URI=spiffe://";
    head.windows(name.len()).any(|window| window == name)
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    at.map(|at| at + 4)
}
