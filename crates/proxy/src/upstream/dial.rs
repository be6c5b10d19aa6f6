//! The purpose of a connection to an endpoint, and how it begins.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Keepalive, Limits, SealedArc, Version};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use super::crowds::{Crowds, is_taken, none_is_free};
use super::endpoint_stream::reset_when_dropped;
use super::entry::UpstreamEntry;
use super::ports::PortDraw;
use crate::admission::silent::source_of;
use crate::balance::Endpoint;
use crate::codec::proxy_header::Ends;
use crate::failure::FailureKind;
use crate::local::Local;
use crate::net::allowance::Allowance;
use crate::net::border::Border;
use crate::net::server_trust::ServerTrust;
use crate::telemetry::count::Count;

/// The purpose of a connection to an endpoint.
#[derive(Clone, Copy)]
pub struct Dial<'a> {
    /// The endpoint to connect to.
    pub target: &'a Arc<Endpoint>,
    /// The upstream of the endpoint.
    pub upstream: &'a UpstreamEntry,
    /// The name that a TLS handshake asks for where the upstream sets none.
    pub host: &'a str,
    /// The resources that a TLS handshake needs beside the upstream.
    pub credentials: &'a Credentials,
    /// Whether bytes are handed on by it, and no requests; TLS of the mesh tells the endpoint.
    pub is_stream: bool,
    /// Whether another protocol shall take the place of HTTP, which not every endpoint offers.
    pub is_upgrade: bool,
    /// The client and the listener on whose behalf it is made, where the endpoint is told.
    pub ends: Ends,
    /// The longest time to connect.
    pub timeout: Duration,
    /// The longest wait until the upstream bears one more connection.
    pub patience: Duration,
}

/// Resources that a TLS handshake needs. The plan of a request looks them up, so that one that is
/// missing is an answer and not a handshake without.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The authorities that the endpoint is verified against; `None` for the system's roots.
    pub trust: Option<Arc<ServerTrust>>,
    /// The certificate that is presented; `None` for none.
    pub certificate: Option<SealedArc>,
    /// The trust domains whose workloads are believed, where TLS is the mesh's.
    pub trust_domains: Option<Arc<[Box<str>]>>,
}

impl Credentials {
    /// The versions of the trust and of the certificate.
    pub fn versions(&self) -> (Option<Version>, Option<Version>) {
        let trust = self.trust.as_ref().map(|trust| trust.version());
        let certificate = self.certificate.as_ref();
        (trust, certificate.map(|sealed| sealed.version()))
    }
}

impl<'a> Dial<'a> {
    /// The limits of the upstream, where it has any.
    pub fn limits(&self) -> Option<&'a Limits> {
        self.upstream.limits()
    }

    /// The longest to connect, as the upstream says, or else its route.
    pub fn connect_timeout(&self) -> Duration {
        let own = self.limits().map(|limits| limits.connect_timeout);
        own.filter(|own| !own.is_zero()).unwrap_or(self.timeout)
    }
}

/// A connection that has begun, from a port of its own. The endpoint has yet to answer.
pub(super) struct Connecting(TcpStream);

/// Begins a connection to an endpoint where it may be one, in turn where no port is free. That is
/// waited for as long as is left for ports, and says nothing of the endpoint.
///
/// # Errors
/// Nobody may be connected to at its address, no port became free, or its socket does not open.
pub(super) async fn begin(
    dial: &Dial<'_>,
    local: &Local,
    crowds: &Crowds,
    ports: &mut Allowance,
) -> Result<Connecting, FailureKind> {
    let (address, source) = (dial.target.address, source(dial.target));
    if !may_connect(dial.target, source, local.names.border()) {
        return Err(FailureKind::EndpointRefused);
    }
    let opened = match crowds.has(address) {
        true => Err(none_is_free()),
        false => open(address, source, PortDraw::new(&local.dice)),
    };
    let opened = match opened {
        Err(error) if is_taken(&error) => {
            local.counts.add(Count::UpstreamCrowded);
            let asker = source_of(dial.ends.client.ip());
            let attempt = || open(address, source, PortDraw::of_crowd(&local.dice));
            // Boxed, because hardly any connection ever waits here.
            Box::pin(begin_in_line(crowds, (address, asker), attempt, ports)).await
        }
        opened => opened,
    };
    match opened {
        Ok(tcp) => Ok(Connecting(tcp)),
        Err(error) if is_taken(&error) => Err(FailureKind::NoPort),
        Err(_) => Err(FailureKind::ConnectFailed),
    }
}

/// Begins a connection in the turn of who asks for it, for as long as is left for ports.
async fn begin_in_line<T>(
    crowds: &Crowds,
    (address, asker): (SocketAddr, u64),
    attempt: impl FnMut() -> io::Result<T>,
    ports: &mut Allowance,
) -> io::Result<T> {
    let waited = ports.wait(crowds.begin(address, asker, attempt)).await;
    waited.unwrap_or_else(|_| Err(none_is_free()))
}

/// Waits until an endpoint has answered.
///
/// # Errors
/// It refuses, it cannot be reached, or nobody may be connected to at its address any more.
pub(super) async fn finish(
    dial: &Dial<'_>,
    local: &Local,
    connecting: Connecting,
) -> Result<TcpStream, FailureKind> {
    let tcp = established(connecting.0).await;
    let tcp = tcp.map_err(|_| FailureKind::ConnectFailed)?;
    // A listener may have come meanwhile.
    let border = local.names.border();
    match border.is_own(dial.target.address, || tcp.local_addr().ok()) {
        true => Err(FailureKind::EndpointRefused),
        false => Ok(tcp),
    }
}

/// Whether an endpoint may be connected to from an address. What has one of its own is the workload
/// beside this proxy.
pub(super) fn may_connect(target: &Endpoint, source: Option<IpAddr>, border: &Border) -> bool {
    let is_admitted = target.manner.source.is_some() || border.admits(target.address);
    is_admitted && !border.leads_back(target.address, source)
}

/// The address that an endpoint's upstream connects from, where it says so. One of one family says
/// nothing of the other.
pub(super) fn source(target: &Endpoint) -> Option<IpAddr> {
    let is_ipv4 = target.address.is_ipv4();
    target.manner.source.filter(|it| it.is_ipv4() == is_ipv4)
}

/// Begins a connection, from an address where one is said, and from the first of the ports that is
/// free. Where it is no port that is missing but an address, no further one is tried.
fn open(
    address: SocketAddr,
    source: Option<IpAddr>,
    ports: impl Iterator<Item = u16>,
) -> io::Result<TcpStream> {
    // The kernel puts the address in place of this that leads there.
    let source = source.unwrap_or(match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    });
    let mut failed = none_is_free();
    let mut may_lack_address = true;
    // From its own port a socket on this machine would connect to itself.
    for port in ports.filter(|port| *port != address.port()) {
        match open_from((source, port).into(), address) {
            Err(error) if is_taken(&error) => failed = error,
            opened => return opened,
        }
        if failed.kind() == io::ErrorKind::AddrNotAvailable
            && std::mem::take(&mut may_lack_address)
            && lacks_address(source, address)
        {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
    }
    Err(failed)
}

/// Whether this machine has no address that leads to another, or not the one that was said. The
/// kernel says so in the words in which it says that a port is taken; so it is asked for a socket
/// that no connection takes a port from. Nothing is sent.
fn lacks_address(source: IpAddr, address: SocketAddr) -> bool {
    let asked = UdpSocket::bind((source, 0)).and_then(|socket| socket.connect(address));
    asked.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Begins a connection from a port: the kernel says at once whether that is free.
fn open_from(source: SocketAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    // Without it every port would serve one connection only, whatever endpoint it leads to.
    socket.set_reuse_address(true)?;
    socket.bind(&source.into())?;
    let is_begun =
        |error: &io::Error| error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error());
    match socket.connect(&address.into()) {
        Err(error) if !is_begun(&error) => Err(error),
        _ => TcpStream::from_std(socket.into()),
    }
}

/// Waits until a connection that has begun is there.
async fn established(tcp: TcpStream) -> io::Result<TcpStream> {
    tcp.writable().await?;
    match tcp.take_error()? {
        Some(error) => Err(error),
        None => Ok(tcp),
    }
}

/// Sets up a socket that has just connected.
pub fn settle(tcp: &TcpStream, keepalive: Option<Keepalive>) {
    reset_when_dropped(tcp);
    // Without it small requests would wait for acknowledgements; with an error they do.
    let _ = tcp.set_nodelay(true);
    let Some(keepalive) = keepalive else {
        return;
    };
    let mut probes = TcpKeepalive::new();
    if !keepalive.time.is_zero() {
        probes = probes.with_time(keepalive.time);
    }
    if !keepalive.interval.is_zero() {
        probes = probes.with_interval(keepalive.interval);
    }
    if keepalive.probes > 0 {
        probes = probes.with_retries(keepalive.probes);
    }
    // A system that cannot is as good as one that was not asked.
    let _ = SockRef::from(tcp).set_tcp_keepalive(&probes);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Allowance, Crowds, PortDraw, begin_in_line, established, none_is_free, open};
    use crate::net::deadline::TICK;
    use crate::random::rng::Rng;

    /// A connection to an endpoint that has answered.
    async fn connected(
        address: SocketAddr,
        source: Option<IpAddr>,
        ports: impl Iterator<Item = u16>,
    ) -> std::io::Result<TcpStream> {
        established(open(address, source, ports)?).await
    }

    #[tokio::test]
    async fn connections_come_from_ports_that_were_drawn_and_pass_over_those_that_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dice = Rng::new(address.port().into());
        let known = connected(address, None, PortDraw::new(&dice))
            .await
            .unwrap();
        let known = (known.local_addr().unwrap().port(), known);
        let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = elsewhere.local_addr().unwrap();
        // A port from which another endpoint is connected to is free for this one.
        let free = connected(other, None, PortDraw::new(&dice)).await.unwrap();
        let free = (free.local_addr().unwrap().port(), free);
        // One that the endpoint has, one that it is connected to from, and one that is neither.
        let ports = [address.port(), known.0, other.port(), free.0];
        let opened = connected(address, None, ports.into_iter()).await.unwrap();
        assert_eq!(opened.local_addr().unwrap().port(), free.0);
        // Each port may lead to several endpoints, and to each of them once.
        let taken = connected(address, None, ports.into_iter()).await;
        assert_eq!(
            taken.unwrap_err().kind(),
            std::io::ErrorKind::AddrNotAvailable
        );
    }

    #[tokio::test]
    async fn where_an_address_is_missing_no_further_port_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dice = Rng::new(1);
        let mut draw = PortDraw::new(&dice);
        // An address that no machine has.
        let source = Some([192, 0, 2, 1].into());
        let failed = connected(address, source, draw.by_ref()).await.unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::NetworkUnreachable);
        assert_eq!(draw.count(), super::super::ports::TRIES_MAX as usize - 1);
    }

    #[tokio::test]
    async fn where_nobody_listens_no_further_port_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let dice = Rng::new(1);
        let mut draw = PortDraw::new(&dice);
        let refused = connected(address, None, draw.by_ref()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(draw.count(), super::super::ports::TRIES_MAX as usize - 1);
    }

    /// An endpoint that answers nobody: nobody takes the connections that it has, and it has no
    /// room for more.
    async fn full() -> (Socket, SocketAddr, Vec<TcpStream>) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let (dice, mut held) = (Rng::new(7), Vec::new());
        loop {
            let tcp = open(address, None, PortDraw::new(&dice)).unwrap();
            let waited = tokio::time::timeout(Duration::from_millis(200), tcp.writable()).await;
            held.push(tcp);
            if waited.is_err() {
                return (listener, address, held);
            }
            assert!(held.len() < 100, "it has room for everybody");
        }
    }

    /// A connection that one was opened in place of had all of the time once more.
    #[tokio::test]
    async fn a_port_is_waited_for_no_longer_however_often_one_is_needed() {
        let (crowds, tries) = (Crowds::default(), Cell::new(0));
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        // Longer than it takes until one is looked for again.
        let mut ports = Allowance::new(3 * TICK);
        for has_time in [true, false] {
            tries.set(0);
            let none = || {
                tries.set(tries.get() + 1);
                Err::<(), _>(none_is_free())
            };
            let begun = begin_in_line(&crowds, (address, 1), none, &mut ports).await;
            assert!(begun.is_err());
            assert_eq!(tries.get() > 1, has_time, "{}", tries.get());
        }
        let begun = begin_in_line(&crowds, (address, 1), || Ok(7), &mut ports).await;
        assert_eq!(begun.unwrap(), 7, "one that is free is there already");
    }

    /// The next in line looked for a port only once the endpoint had answered the one before.
    #[tokio::test]
    async fn whoever_waits_for_an_endpoint_has_left_its_turn_to_the_next() {
        let (_listener, address, _held) = full().await;
        let (crowds, dice, free) = (Crowds::default(), Rng::new(3), Cell::new(false));
        let (dice, free) = (&dice, &free);
        let begin = |asker| {
            crowds.begin(address, asker, move || match free.get() {
                true => open(address, None, PortDraw::of_crowd(dice)),
                false => {
                    free.set(true);
                    Err(none_is_free())
                }
            })
        };
        let both = async { tokio::join!(begin(1), begin(2)) };
        let both = tokio::time::timeout(Duration::from_secs(10), both).await;
        let (first, second) = both.unwrap();
        for tcp in [first.unwrap(), second.unwrap()] {
            assert!(
                tcp.try_write(b"x").is_err(),
                "the endpoint has not answered"
            );
        }
        assert!(!crowds.has(address), "and nobody waits in line any more");
    }
}
