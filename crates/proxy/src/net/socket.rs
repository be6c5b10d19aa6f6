//! Listening sockets: opened by the control thread, one per worker, on one address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that wait for a worker; the kernel caps it further by `somaxconn`.
const BACKLOG: i32 = 4_096;

/// The most bytes that the kernel takes for a client beyond what it has sent: without a bound it
/// keeps megabytes for each that does not read, which no budget of the process knows of.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Opens `count` listening sockets on one address, between which the kernel spreads new
/// connections. Port 0 lets the system choose a port, the same for all.
///
/// # Errors
/// When the address cannot be listened on.
pub(crate) fn listen(
    address: SocketAddr,
    count: usize,
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    // The first is bound alone: another process on the address is an error that people want to
    // see, not a partner that takes half of the connections. It is never given back, since a
    // process that is being started may still hold what we have closed.
    let first = bind(address, false)?;
    first.set_reuse_port(true)?;
    first.listen(BACKLOG)?;
    let first = TcpListener::from(first);
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count.max(1) {
        let socket = bind(bound, true)?;
        socket.listen(BACKLOG)?;
        sockets.push(socket.into());
    }
    Ok((bound, sockets))
}

/// Adds to sockets that another process listened on, so that there are at least `count`. Those
/// that cannot be added are missed by nobody but the workers that would have had them.
pub(crate) fn listen_further(
    address: SocketAddr,
    mut sockets: Vec<TcpListener>,
    count: usize,
) -> Vec<TcpListener> {
    while sockets.len() < count {
        let opened = bind(address, true).and_then(|socket| {
            socket.listen(BACKLOG)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => sockets.push(socket.into()),
            Err(error) => {
                tracing::warn!(%address, %error, "a worker has no socket of its own");
                break;
            }
        }
    }
    sockets
}

/// Whether an address could be listened on now.
pub(crate) fn is_free(address: SocketAddr) -> bool {
    bind(address, false).is_ok()
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // `[::]` serves both families, as people expect of "all addresses".
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // Accepted connections inherit both, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::{UNSENT_BYTES_MAX, bind, listen};

    #[test]
    fn the_kernel_keeps_little_for_a_client_that_does_not_read() {
        let (address, listening) = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let accepted = listening.iter().find_map(|socket| {
            loop {
                match socket.accept() {
                    Ok((stream, _)) => break Some(stream),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        std::thread::yield_now();
                    }
                    Err(_) => break None,
                }
            }
        });
        let accepted = socket2::SockRef::from(&accepted.unwrap()).tcp_notsent_lowat();
        assert_eq!(accepted.unwrap(), UNSENT_BYTES_MAX);
    }

    #[test]
    fn an_address_that_somebody_else_listens_on_is_an_error() {
        let (address, _held) = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        assert!(listen(address, 1).is_err());
    }

    #[test]
    fn processes_that_are_being_started_take_no_address() {
        // Each holds every socket of this process for a moment, also those that it has closed.
        let start = || drop(std::process::Command::new("true").status());
        let starting = std::thread::spawn(move || (0..500).for_each(|_| start()));
        while !starting.is_finished() {
            let reserved = bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
            let address = reserved.local_addr().unwrap().as_socket().unwrap();
            listen(address, 2).unwrap();
        }
        starting.join().unwrap();
    }

    #[test]
    fn all_sockets_share_the_port_that_the_system_chose() {
        let (address, sockets) = listen("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert_ne!(address.port(), 0);
        for socket in sockets {
            assert_eq!(socket.local_addr().unwrap(), address);
        }
    }
}
