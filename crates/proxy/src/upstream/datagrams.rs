//! Sockets that datagrams of one flow are exchanged with an endpoint by.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::dial::{may_connect, source};
use crate::balance::Endpoint;
use crate::failure::FailureKind;
use crate::local::Local;

/// Opens a socket by which an endpoint alone is heard, from a port of its own. Nothing is sent.
///
/// # Errors
/// Nobody may be connected to at its address, it expects more than datagrams as they come, there is
/// no room for a further socket, or the endpoint cannot be reached.
pub fn open(target: &Endpoint, local: &Local) -> Result<UdpSocket, FailureKind> {
    let manner = &target.manner;
    if manner.tls.is_some() {
        return Err(FailureKind::UpstreamTls);
    }
    let source = source(target);
    // An endpoint that is told of its clients by a header would take each datagram for one.
    let is_told = manner.proxy_protocol.is_some();
    if is_told || !may_connect(target, source, local.names.border()) {
        return Err(FailureKind::EndpointRefused);
    }
    connect(target.address, source).map_err(|error| match is_own_lack(&error) {
        true => FailureKind::NoPort,
        false => FailureKind::ConnectFailed,
    })
}

/// Whether an endpoint has said that nobody receives there.
pub fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Ready once the endpoint of a socket has said that nobody receives there. Whoever polls for what
/// it sends is not woken by that.
pub async fn refusal(socket: Rc<UdpSocket>) {
    let refused = socket.async_io(Interest::ERROR, || match socket.take_error()? {
        Some(error) if is_refused(&error) => Ok(()),
        // That a datagram was too long for the way, say, tells nothing of the endpoint.
        _ => Err(io::ErrorKind::WouldBlock.into()),
    });
    // A socket that cannot be asked is of no more use.
    let _ = refused.await;
}

fn connect(address: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect(&address.into())?;
    // From the endpoint's own port on this machine it would hear itself.
    if socket.local_addr()?.as_socket() == Some(address) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    UdpSocket::from_std(socket.into())
}

/// Whether there is no port, descriptor or memory for a further socket, which says nothing of the
/// endpoint.
fn is_own_lack(error: &io::Error) -> bool {
    let lacks = [
        Errno::AGAIN,
        Errno::ADDRINUSE,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
    ];
    let raw = error.raw_os_error();
    raw.is_some_and(|raw| lacks.iter().any(|lack| lack.raw_os_error() == raw))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::rc::Rc;
    use std::time::Duration;

    use rustix::io::Errno;
    use tokio::net::UdpSocket;

    use super::{connect, is_own_lack, is_refused, refusal};

    #[tokio::test]
    async fn nobody_but_the_endpoint_is_heard() {
        let endpoint = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = endpoint.local_addr().unwrap();
        let socket = connect(address, None).unwrap();
        let own = socket.local_addr().unwrap();
        stranger.send_to(b"stranger", own).await.unwrap();
        endpoint.send_to(b"endpoint", own).await.unwrap();
        let mut bytes = [0; 16];
        let length = socket.recv(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..length], b"endpoint");
        let more = tokio::time::timeout(Duration::from_millis(50), socket.recv(&mut bytes));
        assert!(more.await.is_err());
    }

    #[tokio::test]
    async fn an_endpoint_that_does_not_receive_says_so() {
        let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let socket = connect(address, Some([127, 0, 0, 1].into())).unwrap();
        socket.send(b"x").await.unwrap();
        let refused = socket.recv(&mut [0; 16]).await.unwrap_err();
        assert!(is_refused(&refused), "{refused}");
    }

    #[tokio::test]
    async fn an_endpoint_refuses_once_it_does_not_receive_any_more() {
        let endpoint = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = endpoint.local_addr().unwrap();
        let socket = Rc::new(connect(address, None).unwrap());
        let mut refused = Box::pin(refusal(socket.clone()));
        socket.send(b"x").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), refused.as_mut());
        assert!(early.await.is_err());
        drop(endpoint);
        socket.send(b"x").await.unwrap();
        let late = tokio::time::timeout(Duration::from_secs(10), refused);
        late.await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_not_of_this_machine_opens_nothing() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let failed = connect(address, Some([192, 0, 2, 1].into())).unwrap_err();
        assert!(!is_own_lack(&failed));
    }

    #[test]
    fn what_this_machine_lacks_is_told_from_what_is_the_endpoints() {
        let is_own = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            is_own_lack(&error)
        };
        assert!(is_own(Errno::AGAIN) && is_own(Errno::ADDRINUSE) && is_own(Errno::MFILE));
        assert!(!is_own(Errno::CONNREFUSED) && !is_own(Errno::NETUNREACH));
    }
}
