//! The part of a name that somebody has registered.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// Labels below which people register names in two-letter domains, as in `co.uk`.
const SECOND: [&str; 12] = [
    "ac", "co", "com", "edu", "gob", "gov", "gv", "ltd", "ne", "net", "or", "org",
];

/// The domain that a name was registered as, by its shape: two labels, or three where the one in
/// the middle is that of a registry. Authorities count certificates by it. They know a list of all
/// registries, which [`Suffixes`](super::Suffixes) can have; without it whoever is counted more
/// strictly here waits longer, and never asks for more. An address counts for itself, and in IPv6
/// for its network of 64 bits.
pub(super) fn registered_domain(name: &str) -> Cow<'_, str> {
    registered_by(name, by_shape)
}

/// The same, by another way of telling it of names of DNS.
pub(super) fn registered_by<'a>(
    name: &'a str,
    by: impl FnOnce(&'a str) -> &'a str,
) -> Cow<'a, str> {
    match name.parse() {
        Ok(IpAddr::V4(_)) => name.into(),
        Ok(IpAddr::V6(address)) => network(address).to_string().into(),
        Err(_) => by(name.strip_prefix("*.").unwrap_or(name)).into(),
    }
}

fn by_shape(name: &str) -> &str {
    let mut dots = name.rmatch_indices('.').map(|(at, _)| at);
    let (Some(last), Some(second)) = (dots.next(), dots.next()) else {
        return name;
    };
    let (top, middle) = (&name[last + 1..], &name[second + 1..last]);
    if top.len() == 2 && SECOND.contains(&middle) {
        return dots.next().map_or(name, |third| &name[third + 1..]);
    }
    &name[second + 1..]
}

fn network(address: Ipv6Addr) -> Ipv6Addr {
    let [a, b, c, d, ..] = address.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::registered_domain;

    #[test]
    fn a_name_is_counted_by_what_was_registered() {
        for (name, registered) in [
            ("a.example", "a.example"),
            ("www.shop.example", "shop.example"),
            ("*.shop.example", "shop.example"),
            ("x.y.shop.co.uk", "shop.co.uk"),
            ("shop.co.uk", "shop.co.uk"),
            ("co.uk", "co.uk"),
            ("www.t.co", "t.co"),
            ("localhost", "localhost"),
            ("", ""),
            // Neighbours by their digits are strangers.
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ] {
            assert_eq!(registered_domain(name), registered, "{name}");
        }
    }
}
