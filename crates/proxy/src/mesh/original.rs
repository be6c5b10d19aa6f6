//! The original destination of a captured connection.

use std::net::{IpAddr, SocketAddr};

use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::TcpStream;

/// The address that a connection was meant for before network rules led it here; `None` where it
/// was meant for the proxy's own socket, for loopback though it came by a link, or nobody knows.
/// Passing one for the proxy's own socket on would lead it back here for ever.
///
/// `own_ports` are those of the sockets that captured connections come by.
pub fn original(tcp: &TcpStream, own_ports: &[u16]) -> Option<SocketAddr> {
    let local = canonical(tcp.local_addr().ok()?);
    let told = match local {
        SocketAddr::V4(_) => ip_original_dst(tcp).map(SocketAddr::V4),
        SocketAddr::V6(_) => ipv6_original_dst(tcp).map(SocketAddr::V6),
    };
    // The kernel tells nothing of a connection that no rule has led anywhere.
    let original = canonical(told.unwrap_or(local));
    is_elsewhere(original, local, own_ports).then_some(original)
}

fn is_elsewhere(original: SocketAddr, local: SocketAddr, own_ports: &[u16]) -> bool {
    // The kernel drops what comes to loopback from a link, unless a rule has led it here before it
    // looked: it must not reach what the workload has for itself.
    let is_only_inside = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    if is_only_inside(original.ip()) && !is_only_inside(local.ip()) {
        return false;
    }
    let is_here = original.ip() == local.ip() || original.ip().is_loopback();
    !(is_here && own_ports.contains(&original.port()))
}

/// The address without the scope and the flow of IPv6, and IPv4 as itself.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::{is_elsewhere, original};

    #[test]
    fn what_is_meant_for_the_proxy_itself_leads_nowhere() {
        let here = |original: &str, local: &str| {
            let parse = |text: &str| text.parse().unwrap();
            !is_elsewhere(parse(original), parse(local), &[15_001, 15_006])
        };
        assert!(here("127.0.0.1:15001", "127.0.0.1:15001"));
        assert!(here("10.0.0.5:15006", "10.0.0.5:15006"));
        assert!(here("10.0.0.5:15001", "10.0.0.5:15006"));
        assert!(here("127.0.0.1:15006", "127.0.0.1:15001"));
        assert!(!here("10.0.0.6:15006", "127.0.0.1:15001"));
        assert!(!here("10.0.0.5:8080", "10.0.0.5:15006"));
        assert!(!here("127.0.0.1:8080", "127.0.0.1:15001"));
    }

    #[test]
    fn nobody_on_a_link_reaches_loopback() {
        for meant in ["127.0.0.1:6379", "127.1.2.3:80", "0.0.0.0:6379"] {
            let local = "10.0.0.5:15006".parse().unwrap();
            assert!(!is_elsewhere(meant.parse().unwrap(), local, &[]), "{meant}");
        }
        for meant in ["[::1]:6379", "[::]:6379"] {
            let local = "[2001:db8::5]:15006".parse().unwrap();
            assert!(!is_elsewhere(meant.parse().unwrap(), local, &[]), "{meant}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_no_rule_has_led_was_meant_for_its_own_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        assert_eq!(original(&tcp, &[]), Some(address));
        assert_eq!(original(&tcp, &[address.port()]), None);
    }
}
