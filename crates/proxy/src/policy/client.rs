//! The client of a request: its address, and the scheme that it speaks.
//!
//! Proxies in front tell both, each by an entry at the right end of a list; what is left of the
//! entries of those that are trusted was written by anybody.

use std::net::IpAddr;

use myriad_model::SourceRanges;

use crate::codec::client::ClientAddress;
use crate::codec::field::KnownField;
use crate::codec::head::Head;
use crate::route::downstream_connection::DownstreamConnection;

/// The client's address: the peer's, or what the outermost of `trusted_hops` proxies in front of
/// this one said that its peer was. A list with fewer entries than hops was made by those of the
/// proxies that are nearest; its first entry then is what the outermost of them said.
pub fn address(head: &Head<'_>, peer: IpAddr, trusted_hops: usize) -> ClientAddress {
    let entry = deciding(head, KnownField::ForwardedFor, trusted_hops);
    entry.map_or_else(|| peer.into(), ClientAddress::parse)
}

/// The scheme that the client speaks by what `X-Forwarded-Proto` says, believed like
/// [`address`]; none where no proxy that is trusted says one. Who is of this proxy's mesh is
/// believed in this as one more proxy in front: it is where the scheme of the first client is
/// known.
pub fn forwarded_scheme(
    head: &Head<'_>,
    visit: &DownstreamConnection,
    trusted_hops: usize,
) -> Option<&'static str> {
    let hops = match visit.is_of_mesh() {
        true => trusted_hops.max(1),
        false => trusted_hops,
    };
    let entry = deciding(head, KnownField::ForwardedProto, hops)?.trim_ascii();
    let is_any = |names: [&str; 2]| {
        names
            .iter()
            .any(|it| entry.eq_ignore_ascii_case(it.as_bytes()))
    };
    if is_any(["https", "wss"]) {
        return Some("https");
    }
    is_any(["http", "ws"]).then_some("http")
}

/// Whether whoever sent a request may tell endpoints of the way that it came by other fields than
/// those that the proxy writes itself: a proxy that is trusted, or somebody of this proxy's mesh.
pub fn may_tell(visit: &DownstreamConnection, trusted_hops: usize) -> bool {
    trusted_hops > 0 || visit.is_of_mesh()
}

/// Whether the client speaks TLS, with this proxy or with one in front that is trusted.
pub fn is_secure(head: &Head<'_>, visit: &DownstreamConnection, trusted_hops: usize) -> bool {
    let forwarded = forwarded_scheme(head, visit, trusted_hops);
    forwarded.map_or(visit.secured.is_some(), |scheme| scheme == "https")
}

/// Whether an address is among those allowed; an empty list allows all, and others nobody whose
/// address is not known.
pub fn is_allowed(allowed: &SourceRanges, client: ClientAddress) -> bool {
    let is_in = |client| allowed.contains(client);
    allowed.is_empty() || client.known().is_some_and(is_in)
}

/// The entry of the outermost proxy that is trusted, in a list that may stand in several fields.
fn deciding<'a>(head: &Head<'a>, known: KnownField, trusted_hops: usize) -> Option<&'a [u8]> {
    let fields = head.fields.iter().rev();
    let entries = fields
        .filter(|field| field.known == known)
        .flat_map(|field| field.value.rsplit(|byte| *byte == b','));
    entries.take(trusted_hops).last()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::{address, forwarded_scheme, is_allowed};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::route::downstream_connection::DownstreamConnection;

    fn address_of(fields: &[u8], hops: usize) -> String {
        let text = [b"GET / HTTP/1.1\r\nHost: h\r\n", fields, b"\r\n"].concat();
        let head = head::parse(&text, &Limits::default()).unwrap();
        address(&head, [198, 51, 100, 1].into(), hops).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let fields = b"X-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nX-Forwarded-For: 192.0.2.3\r\n";
        for (hops, client) in [
            (0, "198.51.100.1"),
            (1, "192.0.2.3"),
            (2, "192.0.2.2"),
            (3, "192.0.2.1"),
            (9, "192.0.2.1"),
        ] {
            assert_eq!(address_of(fields, hops), client);
        }
        assert_eq!(address_of(b"", 2), "198.51.100.1", "nobody told anything");
    }

    #[test]
    fn what_stands_left_of_the_deciding_entry_changes_nothing() {
        for left in [
            &b"\xff"[..],
            b"unknown",
            b"",
            b"192.0.2.9, \xff\xfe,,",
            b"10.0.0.1",
        ] {
            let in_one = [b"X-Forwarded-For: ", left, b", 192.0.2.7\r\n"].concat();
            let in_two = [
                b"X-Forwarded-For: ",
                left,
                b"\r\nX-Forwarded-For: 192.0.2.7:4711\r\n",
            ]
            .concat();
            for fields in [in_one, in_two] {
                let told = fields.escape_ascii();
                assert_eq!(address_of(&fields, 1), "192.0.2.7", "{told}");
            }
        }
    }

    #[test]
    fn a_deciding_entry_that_is_no_address_leaves_the_client_unknown() {
        for entry in [&b"\xff"[..], b"unknown", b"192.0.2.1 10.0.0.1", b"", b"h:1"] {
            let fields = [b"X-Forwarded-For: 192.0.2.1, ", entry, b"\r\n"].concat();
            let told = fields.escape_ascii();
            assert_eq!(address_of(&fields, 1), "unknown", "{told}");
            assert_eq!(address_of(&fields, 2), "192.0.2.1", "{told}");
        }
    }

    #[test]
    fn addresses_are_allowed_by_net_in_either_family() {
        let allowed = [
            "192.0.2.0/24".parse().unwrap(),
            "2001:db8::/32".parse().unwrap(),
        ];
        let is_allowed = |allowed: &[IpNet], entry: &[u8]| {
            let allowed = allowed.iter().copied().collect();
            is_allowed(&allowed, crate::codec::client::ClientAddress::parse(entry))
        };
        assert!(is_allowed(&allowed, b"192.0.2.9"));
        assert!(is_allowed(&allowed, b"2001:db8::1"));
        assert!(!is_allowed(&allowed, b"192.0.3.1"));
        assert!(!is_allowed(&allowed, b"unknown"));
        assert!(!is_allowed(&["0.0.0.0/0".parse().unwrap()], b"unknown"));
        assert!(is_allowed(&[], b"192.0.3.1"));
        assert!(is_allowed(&[], b"unknown"));
    }

    #[test]
    fn the_scheme_is_that_of_the_deciding_hop() {
        let mut visit = DownstreamConnection::new("l".into(), ([198, 51, 100, 1], 4711).into(), 80);
        let scheme_by = |visit: &DownstreamConnection, value: &str, hops| {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: {value}\r\n\r\n");
            let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            forwarded_scheme(&head, visit, hops)
        };
        let scheme_of = |value, hops| scheme_by(&visit, value, hops);
        assert_eq!(scheme_of("https", 0), None);
        assert_eq!(scheme_of("HTTPS", 1), Some("https"));
        assert_eq!(scheme_of("https", 2), Some("https"));
        assert_eq!(scheme_of("https, http", 1), Some("http"));
        assert_eq!(scheme_of("https, http", 2), Some("https"));
        assert_eq!(scheme_of("wss", 1), Some("https"));
        assert_eq!(scheme_of("https http", 1), None);
        assert_eq!(scheme_of("gopher", 1), None);
        visit.is_captured = true;
        assert_eq!(scheme_by(&visit, "http, https", 0), Some("https"));
        assert_eq!(scheme_by(&visit, "https, http", 2), Some("https"));
        visit.is_inbound = true;
        assert_eq!(scheme_by(&visit, "https", 0), None, "plain text");
    }
}
