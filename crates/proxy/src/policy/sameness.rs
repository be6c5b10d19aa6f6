//! The property by which requests are equal, where an upstream sends equal ones to the same
//! endpoint.

use std::net::IpAddr;

use myriad_model::{Balancer, HashCookie, HashSource};

use super::client;
use crate::codec::client::ClientAddress;
use crate::codec::head::Head;
use crate::random::hash::hash_stable;
use crate::random::rng::Rng;
use crate::route::condition::{cookie, query_value};
use crate::route::downstream_connection::DownstreamConnection;
use crate::upstream::entry::UpstreamEntry;

/// The properties of a request that may make it equal to others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sameness {
    /// The hash of what makes it equal to others; `None` where it has nothing of that kind.
    pub hash: Option<u64>,
    /// The cookie that is made for a client without one.
    pub set_cookie: Option<Box<[u8]>>,
}

/// Looks for what makes a request equal to others.
pub fn of(
    source: &HashSource,
    head: &Head<'_>,
    visit: &DownstreamConnection,
    trusted_hops: usize,
    dice: &Rng,
) -> Sameness {
    let hash = match source {
        HashSource::Header(name) => of_header(head, name),
        HashSource::Query(name) => query_value(head.query.unwrap_or_default(), name)
            .map(|value| hash_stable(value.as_bytes())),
        HashSource::SourceIp => {
            let address = client::address(head, visit.client.ip(), trusted_hops);
            Some(of_address(address))
        }
        HashSource::Cookie(rule) => match cookie(head, &rule.name) {
            Some(value) => Some(hash_stable(unquoted(value))),
            None => return fresh(rule, dice),
        },
    };
    Sameness {
        hash,
        set_cookie: None,
    }
}

/// The hash of what makes a stream equal to others: nothing but its client's address is known.
pub fn of_stream(upstream: &UpstreamEntry, visit: &DownstreamConnection) -> Option<u64> {
    match &upstream.options()?.balancer {
        Balancer::Hash(rule) if rule.source == HashSource::SourceIp => {
            Some(of_address(visit.client.ip().into()))
        }
        _ => None,
    }
}

/// All clients that are not known are one.
fn of_address(address: ClientAddress) -> u64 {
    match address {
        ClientAddress::Known(IpAddr::V4(ip)) => hash_stable(&ip.octets()),
        ClientAddress::Known(IpAddr::V6(ip)) => hash_stable(&ip.octets()),
        ClientAddress::Unknown => hash_stable(&[]),
    }
}

/// The hash of all values of a name, in whatever order they came.
fn of_header(head: &Head<'_>, name: &str) -> Option<u64> {
    if name == "host" || name == ":authority" {
        return Some(hash_stable(head.authority.as_bytes()));
    }
    let fields = head.fields.iter();
    let values = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
    values
        .map(|field| hash_stable(field.value))
        .reduce(u64::wrapping_add)
}

fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"");
    inner
        .and_then(|inner| inner.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// A client without a cookie gets one, where the rule makes them, and goes where it leads.
fn fresh(rule: &HashCookie, dice: &Rng) -> Sameness {
    use std::fmt::Write as _;
    let Some(age) = rule.age else {
        return Sameness::default();
    };
    let value = format!("{:016x}", dice.roll());
    let hash = Some(hash_stable(value.as_bytes()));
    let mut text = format!("{}={value}", rule.name);
    // Writing into a String cannot fail.
    if !age.is_zero() {
        let _ = write!(text, "; Max-Age={}", age.as_secs());
    }
    if !rule.path.is_empty() {
        let _ = write!(text, "; Path={}", rule.path);
    }
    for (name, value) in &rule.attributes {
        let _ = match value.is_empty() {
            true => write!(text, "; {name}"),
            false => write!(text, "; {name}={value}"),
        };
    }
    text.push_str("; HttpOnly");
    Sameness {
        hash,
        set_cookie: Some(text.into_bytes().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::{HashCookie, HashSource};

    use super::{Sameness, of};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::random::rng::Rng;
    use crate::route::downstream_connection::DownstreamConnection;

    fn look(source: &HashSource, target: &str, fields: &str, client: u8) -> Sameness {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let visit = DownstreamConnection::new("http".into(), ([192, 0, 2, client], 1).into(), 80);
        of(source, &head, &visit, 0, &Rng::new(7))
    }

    #[test]
    fn equal_requests_have_equal_hashes_and_others_do_not() {
        let header = HashSource::Header("x-user".into());
        let hash = |fields| look(&header, "/", fields, 1).hash;
        assert_eq!(hash("X-User: a\r\n"), hash("x-user: a\r\nx-b: c\r\n"));
        assert_ne!(hash("x-user: a\r\n"), hash("x-user: b\r\n"));
        assert_eq!(hash(""), None);
        let query = HashSource::Query("q".into());
        let hash = |target| look(&query, target, "", 1).hash;
        assert_eq!(hash("/a?q=1"), hash("/b?z=2&q=1"));
        assert_ne!(hash("/a?q=1"), hash("/a?q=2"));
        assert_eq!(hash("/a"), None);
        let source = HashSource::SourceIp;
        assert_eq!(look(&source, "/", "", 1), look(&source, "/a", "", 1));
        assert_ne!(look(&source, "/", "", 1), look(&source, "/", "", 2));
    }

    #[test]
    fn a_cookie_that_was_made_leads_to_where_it_was_made_for() {
        let rule = |age| {
            HashSource::Cookie(Box::new(HashCookie {
                name: "user".into(),
                path: "/p".into(),
                age,
                attributes: [("SameSite".into(), "Lax".into())].into(),
            }))
        };
        let made = look(&rule(Some(Duration::from_secs(60))), "/", "", 1);
        let text = String::from_utf8(made.set_cookie.unwrap().into_vec()).unwrap();
        assert!(
            text.ends_with("; Max-Age=60; Path=/p; SameSite=Lax; HttpOnly"),
            "{text}"
        );
        let pair = text.split(';').next().unwrap();
        let fields = format!("Cookie: a=b; {pair}\r\n");
        let back = look(&rule(Some(Duration::from_secs(60))), "/", &fields, 9);
        assert_eq!((back.hash, back.set_cookie), (made.hash, None));
        assert_eq!(look(&rule(None), "/", "", 1), Sameness::default());
        let session = look(&rule(Some(Duration::ZERO)), "/", "", 1)
            .set_cookie
            .unwrap();
        assert!(!String::from_utf8_lossy(&session).contains("Max-Age"));
    }
}
