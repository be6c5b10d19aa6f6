//! Who asks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::net::field::{Known, members};
use crate::net::head::Head;

/// The client's address: the peer, or what the outermost of `trusted_hops` proxies in front of
/// this one said that its peer was.
pub fn address(head: &Head<'_>, peer: IpAddr, trusted_hops: usize) -> IpAddr {
    if trusted_hops == 0 {
        return peer.to_canonical();
    }
    let fields = head.fields.iter();
    let told: Vec<&str> = fields
        .filter(|field| field.known == Known::ForwardedFor)
        .flat_map(|field| members(field.value))
        .collect();
    let outermost = told.len().saturating_sub(trusted_hops);
    told.get(outermost)
        .and_then(|text| text.parse::<IpAddr>().ok())
        .unwrap_or(peer)
        .to_canonical()
}

/// Whether an address is among those allowed; an empty list allows all.
pub fn is_allowed(allowed: &[IpNet], client: IpAddr) -> bool {
    allowed.is_empty() || allowed.iter().any(|net| net.contains(&client))
}

#[cfg(test)]
mod tests {
    use super::{address, is_allowed};
    use crate::net::{head, limits::Limits};

    #[test]
    fn only_trusted_proxies_are_believed() {
        let text = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n\
                    X-Forwarded-For: 192.0.2.3\r\n\r\n";
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let peer = [198, 51, 100, 1].into();
        for (hops, client) in [
            (0, "198.51.100.1"),
            (1, "192.0.2.3"),
            (2, "192.0.2.2"),
            (3, "192.0.2.1"),
            (9, "192.0.2.1"),
        ] {
            assert_eq!(address(&head, peer, hops).to_string(), client);
        }
    }

    #[test]
    fn addresses_are_allowed_by_net_in_either_family() {
        let allowed = [
            "192.0.2.0/24".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ];
        assert!(is_allowed(&allowed, "192.0.2.9".parse().unwrap()));
        assert!(is_allowed(&allowed, "2001:db8::1".parse().unwrap()));
        assert!(!is_allowed(&allowed, "192.0.3.1".parse().unwrap()));
        assert!(is_allowed(&[], "192.0.3.1".parse().unwrap()));
    }
}
