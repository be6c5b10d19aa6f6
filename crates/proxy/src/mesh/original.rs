//! The original destination of a captured connection.

use std::net::SocketAddr;

use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::TcpStream;

/// The address that a connection was meant for before network rules led it here; `None` where it
/// was meant for the proxy's own socket, or nobody knows. Passing one of those on would lead it
/// back here for ever.
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
