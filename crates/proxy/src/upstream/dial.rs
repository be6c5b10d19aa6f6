//! What a connection to an endpoint is wanted for, and how it begins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Keepalive, Limits, ProxyProtocol, SealedArc};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

use super::entry::UpstreamEntry;
use crate::balance::Target;

/// What a connection is wanted for.
#[derive(Clone, Copy)]
pub struct Dial<'a> {
    /// Where to.
    pub target: &'a Arc<Target>,
    /// Whose endpoint it is.
    pub upstream: &'a UpstreamEntry,
    /// What a TLS handshake names where the upstream names nothing.
    pub host: &'a str,
    /// What a TLS handshake needs beside the upstream.
    pub credentials: &'a Credentials,
    /// Whether bytes are handed on by it, and no requests; TLS of the mesh tells the endpoint.
    pub is_stream: bool,
    /// On whose behalf, where the endpoint is told.
    pub ends: Ends,
    /// The longest to connect.
    pub timeout: Duration,
    /// The longest to wait until the upstream bears one more connection.
    pub patience: Duration,
}

/// Resources that a TLS handshake needs. Whoever makes a plan looks them up, so that one that is
/// missing is an answer and not a handshake without.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Whom to believe; none for the system's roots.
    pub trust: Option<SealedArc>,
    /// What is shown; none for nothing.
    pub certificate: Option<SealedArc>,
    /// The trust domains whose workloads are believed, where TLS is the mesh's.
    pub trust_domains: Option<Arc<[Box<str>]>>,
}

/// The two ends of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// Where it connected to.
    pub server: SocketAddr,
}

impl Ends {
    /// The ends of a connection whose own address nobody asked the kernel for.
    pub fn of(client: SocketAddr, port: u16) -> Self {
        let ip = match client.ip().to_canonical() {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u16; 8]),
        };
        let server = SocketAddr::new(ip, port);
        Ends { client, server }
    }
}

impl<'a> Dial<'a> {
    /// What is refused or closed beyond some number, where the upstream says so.
    pub fn limits(&self) -> Option<&'a Limits> {
        self.upstream.limits()
    }

    /// The longest to connect, as the upstream says, or else its route.
    pub fn connect_timeout(&self) -> Duration {
        let own = self.limits().map(|limits| limits.connect_timeout);
        own.filter(|own| !own.is_zero()).unwrap_or(self.timeout)
    }
}

/// Connects to an endpoint, from the address that its upstream says.
///
/// # Errors
/// Those of the socket.
pub async fn connect(target: &Target) -> io::Result<TcpStream> {
    let address = target.address;
    let source = target.manner.source;
    // An address of one family says nothing of the other.
    let Some(source) = source.filter(|source| source.is_ipv4() == address.is_ipv4()) else {
        return TcpStream::connect(address).await;
    };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Without it every port would serve one connection only, whatever endpoint it leads to.
    socket.set_reuseaddr(true)?;
    socket.bind((source, 0).into())?;
    socket.connect(address).await
}

/// Sets up a socket that has just connected.
pub fn settle(tcp: &TcpStream, keepalive: Option<Keepalive>) {
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

/// The header that a connection begins with (the PROXY protocol, versions 1 and 2).
pub fn header(version: ProxyProtocol, ends: Ends) -> Vec<u8> {
    let client = (ends.client.ip().to_canonical(), ends.client.port());
    let server = (ends.server.ip().to_canonical(), ends.server.port());
    match version {
        ProxyProtocol::V1 => {
            let family = if client.0.is_ipv4() { "TCP4" } else { "TCP6" };
            let ((from, from_port), (to, to_port)) = (client, server);
            format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
        ProxyProtocol::V2 => {
            let mut out = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
            match (client.0, server.0) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    out.extend([0x11, 0, 12]);
                    out.extend(from.octets());
                    out.extend(to.octets());
                }
                (from, to) => {
                    let wide = |ip: IpAddr| match ip {
                        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                        IpAddr::V6(ip) => ip,
                    };
                    out.extend([0x21, 0, 36]);
                    out.extend(wide(from).octets());
                    out.extend(wide(to).octets());
                }
            }
            out.extend(client.1.to_be_bytes());
            out.extend(server.1.to_be_bytes());
            out
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::ProxyProtocol;

    use super::{Ends, header};

    #[test]
    fn headers_tell_both_ends() {
        let ends = Ends {
            client: "192.0.2.1:5000".parse().unwrap(),
            server: "192.0.2.9:443".parse().unwrap(),
        };
        assert_eq!(
            header(ProxyProtocol::V1, ends),
            b"PROXY TCP4 192.0.2.1 192.0.2.9 5000 443\r\n"
        );
        assert_eq!(
            header(ProxyProtocol::V2, ends),
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x09\x13\x88\x01\xbb"
        );
        let ends = Ends::of("[2001:db8::1]:5000".parse().unwrap(), 80);
        assert_eq!(
            header(ProxyProtocol::V1, ends),
            b"PROXY TCP6 2001:db8::1 :: 5000 80\r\n"
        );
        assert_eq!(header(ProxyProtocol::V2, ends).len(), 16 + 36);
    }
}
