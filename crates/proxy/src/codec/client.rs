//! The address of a client, as far as it can be told.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// An address, an IPv4 one never in the form of IPv6.
    Known(IpAddr),
    /// A proxy that is trusted told something that is no address of anybody. Nothing stands in for
    /// it: the proxy's own address is one that lists tend to allow.
    Unknown,
}

impl ClientAddress {
    /// The address in an entry of `X-Forwarded-For`: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
    /// `[2001:db8::1]` or `[2001:db8::1]:80`.
    pub fn parse(entry: &[u8]) -> Self {
        let text = std::str::from_utf8(entry).unwrap_or_default();
        let text = text.trim_matches([' ', '\t']);
        let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address = match bare {
            Some(bare) => bare.parse().ok().map(IpAddr::V6),
            None => text.parse().ok().or_else(|| {
                let with_port = text.parse::<SocketAddr>().ok();
                with_port.map(|address| address.ip())
            }),
        };
        address.map_or(ClientAddress::Unknown, ClientAddress::from)
    }

    /// The address, where it is known.
    pub fn known(self) -> Option<IpAddr> {
        match self {
            ClientAddress::Known(address) => Some(address),
            ClientAddress::Unknown => None,
        }
    }
}

impl From<IpAddr> for ClientAddress {
    /// The client of an address; the unspecified one is nobody's.
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_unspecified() => ClientAddress::Unknown,
            address => ClientAddress::Known(address),
        }
    }
}

impl fmt::Display for ClientAddress {
    /// The address, or `unknown`, the identifier that RFC 7239 has for it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Known(address) => address.fmt(out),
            ClientAddress::Unknown => out.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientAddress;

    #[test]
    fn addresses_are_read_with_and_without_a_port_and_nothing_else_is_one() {
        for (entry, address) in [
            (&b"192.0.2.1"[..], "192.0.2.1"),
            (b" \t192.0.2.1 ", "192.0.2.1"),
            (b"192.0.2.1:65535", "192.0.2.1"),
            (b"2001:DB8::1", "2001:db8::1"),
            (b"[2001:db8::1]", "2001:db8::1"),
            (b"[2001:db8::1]:80", "2001:db8::1"),
            (b"::ffff:192.0.2.1", "192.0.2.1"),
            (b"[::ffff:192.0.2.1]:80", "192.0.2.1"),
            (b"0.0.0.0", "unknown"),
            (b"[::]:80", "unknown"),
            (b"::ffff:0.0.0.0", "unknown"),
            (b"", "unknown"),
            (b"unknown", "unknown"),
            (b"_hidden", "unknown"),
            (b"\xff", "unknown"),
            (b"192.0.2.1\xff", "unknown"),
            (b"192.0.2", "unknown"),
            (b"192.0.2.1:", "unknown"),
            (b"192.0.2.1:65536", "unknown"),
            (b"[192.0.2.1]", "unknown"),
            (b"[2001:db8::1", "unknown"),
            (b"10.0.0.1 192.0.2.1", "unknown"),
        ] {
            let read = ClientAddress::parse(entry);
            assert_eq!(read.to_string(), address, "{}", entry.escape_ascii());
        }
    }
}
