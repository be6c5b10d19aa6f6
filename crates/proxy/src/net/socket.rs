//! Sockets that clients are served by: opened by the control thread, one per worker, on an address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that wait for a worker; the kernel caps it further by `somaxconn`.
pub(crate) const BACKLOG: i32 = 4_096;

/// The most bytes that the kernel takes for a client beyond what it has sent: without a bound it
/// keeps megabytes for each that does not read, which no budget of the process knows of.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// The bytes of datagrams that may wait for a worker, as far as `rmem_max` admits it: what comes
/// while it serves others would be lost otherwise.
const WAITING_BYTES: usize = 1 << 20;

/// The kind of what comes by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Connections, of TCP.
    Connections,
    /// Datagrams, of UDP.
    Datagrams,
}

/// Opens `count` sockets on one address, between which the kernel spreads clients. Port 0 lets the
/// system choose a port, the same for all.
///
/// # Errors
/// When the address cannot be had.
pub(crate) fn open(
    transport: Transport,
    address: SocketAddr,
    count: usize,
) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    // The first is bound alone: another process on the address is an error that people want to
    // see, not a partner that takes half of the connections. It is never given back, since a
    // process that is being started may still hold what we have closed.
    let first = bind(transport, address, false)?;
    first.set_reuse_port(true)?;
    begin(transport, &first)?;
    let bound = first.local_addr()?.as_socket();
    let bound = bound.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut sockets = vec![first.into()];
    for _ in 1..count.max(1) {
        sockets.push(open_one(transport, bound)?);
    }
    Ok((bound, sockets))
}

/// Adds to sockets that another process had, so that there are at least `count`. Those that cannot
/// be added are missed by nobody but the workers that would have had them.
pub(crate) fn open_further(
    transport: Transport,
    address: SocketAddr,
    mut sockets: Vec<OwnedFd>,
    count: usize,
) -> Vec<OwnedFd> {
    while sockets.len() < count {
        match open_one(transport, address) {
            Ok(socket) => sockets.push(socket),
            Err(error) => {
                tracing::warn!(%address, %error, "a worker has no socket of its own");
                break;
            }
        }
    }
    sockets
}

/// Whether an address could be had now.
pub(crate) fn is_free(transport: Transport, address: SocketAddr) -> bool {
    bind(transport, address, false).is_ok()
}

fn open_one(transport: Transport, address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = bind(transport, address, true)?;
    begin(transport, &socket)?;
    Ok(socket.into())
}

/// Lets clients come.
fn begin(transport: Transport, socket: &Socket) -> io::Result<()> {
    match transport {
        Transport::Connections => socket.listen(BACKLOG),
        Transport::Datagrams => Ok(()),
    }
}

fn bind(transport: Transport, address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Transport::Connections => (Type::STREAM, Protocol::TCP),
        Transport::Datagrams => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // `[::]` serves both families, as people expect of "all addresses".
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    match transport {
        Transport::Connections => {
            socket.set_reuse_address(true)?;
            // Accepted connections inherit both, which saves a call for each.
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        }
        // With `SO_REUSEADDR` any other process would share an address that sends datagrams.
        // What the system does not grant of memory is no reason not to serve.
        Transport::Datagrams => {
            let _ = socket.set_recv_buffer_size(WAITING_BYTES);
        }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, UdpSocket};
    use std::os::fd::OwnedFd;

    use super::Transport::{Connections, Datagrams};
    use super::{UNSENT_BYTES_MAX, bind, is_free, open, open_further};

    fn local(socket: &OwnedFd) -> SocketAddr {
        let address = socket2::SockRef::from(socket).local_addr().unwrap();
        address.as_socket().unwrap()
    }

    #[test]
    fn the_kernel_keeps_little_for_a_client_that_does_not_read() {
        let (address, sockets) = open(Connections, "127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let listening: Vec<_> = sockets.into_iter().map(TcpListener::from).collect();
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
    fn an_address_that_somebody_else_has_is_an_error() {
        for transport in [Connections, Datagrams] {
            let (address, _held) = open(transport, "127.0.0.1:0".parse().unwrap(), 2).unwrap();
            assert!(open(transport, address, 1).is_err(), "{transport:?}");
            assert!(!is_free(transport, address));
        }
    }

    #[test]
    fn connections_and_datagrams_do_not_meet() {
        let (address, _held) = open(Connections, "127.0.0.1:0".parse().unwrap(), 1).unwrap();
        assert!(is_free(Datagrams, address));
    }

    #[test]
    fn whoever_would_share_datagrams_is_told_that_the_address_is_taken() {
        let (address, _held) = open(Datagrams, "127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
        let other = other.unwrap();
        other.set_reuse_address(true).unwrap();
        assert!(other.bind(&address.into()).is_err());
    }

    #[test]
    fn processes_that_are_being_started_take_no_address() {
        // Each holds every socket of this process for a moment, also those that it has closed.
        let start = || drop(std::process::Command::new("true").status());
        let starting = std::thread::spawn(move || (0..500).for_each(|_| start()));
        while !starting.is_finished() {
            let reserved = bind(Connections, "127.0.0.1:0".parse().unwrap(), true).unwrap();
            let address = reserved.local_addr().unwrap().as_socket().unwrap();
            open(Connections, address, 2).unwrap();
        }
        starting.join().unwrap();
    }

    #[test]
    fn all_sockets_share_the_port_that_the_system_chose() {
        for transport in [Connections, Datagrams] {
            let (address, sockets) = open(transport, "127.0.0.1:0".parse().unwrap(), 3).unwrap();
            assert_ne!(address.port(), 0);
            let further = open_further(transport, address, sockets, 5);
            assert_eq!(further.len(), 5);
            for socket in further {
                assert_eq!(local(&socket), address);
            }
        }
    }

    /// The first is bound before it shares its port.
    #[test]
    fn clients_are_spread_over_all_sockets_of_an_address() {
        let (address, sockets) = open(Datagrams, "127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let sockets: Vec<_> = sockets.into_iter().map(UdpSocket::from).collect();
        for _ in 0..64 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"x", address).unwrap();
        }
        let mut bytes = [0; 8];
        let counts = sockets
            .iter()
            .map(|socket| std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count());
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts.iter().sum::<usize>(), 64);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    }
}
