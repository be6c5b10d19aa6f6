//! The property by which requests are equal, where an upstream sends equal ones to the same
//! endpoint.

use std::net::IpAddr;

use myriad_model::{Balancer, HashBalancer, HashCookie, HashPart, HashSource};

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
    rule: &HashBalancer,
    head: &Head<'_>,
    visit: &DownstreamConnection,
    trusted_hops: usize,
    dice: &Rng,
) -> Sameness {
    if !rule.parts.is_empty() {
        return Sameness {
            hash: of_parts(&rule.parts, head, visit, trusted_hops),
            set_cookie: None,
        };
    }
    let hash = match &rule.source {
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
        Balancer::Hash(rule) if rule.parts.is_empty() && rule.source == HashSource::SourceIp => {
            Some(of_address(visit.client.ip().into()))
        }
        _ => None,
    }
}

/// The hash of all parts in their order; `None` where the request has none of them.
fn of_parts(
    parts: &[HashPart],
    head: &Head<'_>,
    visit: &DownstreamConnection,
    trusted_hops: usize,
) -> Option<u64> {
    let hash = |part: &HashPart| match part {
        HashPart::Target => {
            let query = head.query.map(str::as_bytes);
            Some(joined(
                hash_stable(head.path.as_bytes()),
                query.map(hash_stable),
            ))
        }
        HashPart::Host => Some(hash_stable(head.host.as_bytes())),
        HashPart::SourceIp => {
            let address = client::address(head, visit.client.ip(), trusted_hops);
            Some(of_address(address))
        }
        HashPart::Header(name) => of_header(head, name),
        HashPart::Cookie(name) => cookie(head, name).map(|value| hash_stable(unquoted(value))),
        HashPart::Query(name) => query_value(head.query.unwrap_or_default(), name)
            .map(|value| hash_stable(value.as_bytes())),
    };
    let mut has_any = false;
    let all = parts.iter().fold(0, |all, part| {
        let found = hash(part);
        has_any |= found.is_some();
        joined(all, found)
    });
    has_any.then_some(all)
}

/// The hash of one and another, which may not be there.
fn joined(one: u64, other: Option<u64>) -> u64 {
    let mut bytes = [0; 17];
    let (first, rest) = bytes.split_at_mut(8);
    first.copy_from_slice(&one.to_le_bytes());
    if let (Some(other), [mark, rest @ ..]) = (other, rest) {
        *mark = 1;
        rest.copy_from_slice(&other.to_le_bytes());
    }
    hash_stable(&bytes)
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

    use myriad_model::{HashBalancer, HashCookie, HashPart, HashSource, HashTable};

    use super::{Sameness, of};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::random::rng::Rng;
    use crate::route::downstream_connection::DownstreamConnection;

    fn look(source: &HashSource, target: &str, fields: &str, client: u8) -> Sameness {
        look_at(source, &[], target, fields, client)
    }

    fn look_at(
        source: &HashSource,
        parts: &[HashPart],
        target: &str,
        fields: &str,
        client: u8,
    ) -> Sameness {
        let rule = HashBalancer {
            source: source.clone(),
            parts: parts.into(),
            table: HashTable::Ring(64),
        };
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let visit = DownstreamConnection::new("http".into(), ([192, 0, 2, client], 1).into(), 80);
        of(&rule, &head, &visit, 0, &Rng::new(7))
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
    fn parts_make_requests_equal_together() {
        let source = HashSource::SourceIp;
        let hash = |parts: &[HashPart], target: &str, fields: &str, client| {
            look_at(&source, parts, target, fields, client).hash
        };
        let target = [HashPart::Target];
        assert_eq!(hash(&target, "/a?q", "", 1), hash(&target, "/a?q", "", 2));
        assert_ne!(hash(&target, "/a?q", "", 1), hash(&target, "/a", "", 1));
        let both = [
            HashPart::Header("x-user".into()),
            HashPart::Query("q".into()),
        ];
        let fields = "X-User: a\r\n";
        assert_eq!(
            hash(&both, "/?q=1", fields, 1),
            hash(&both, "/b?q=1", fields, 2)
        );
        assert_ne!(
            hash(&both, "/?q=1", fields, 1),
            hash(&both, "/?q=2", fields, 1)
        );
        assert_ne!(hash(&both, "/", fields, 1), hash(&both, "/?q=a", "", 1));
        assert_eq!(hash(&both, "/", "", 1), None);
        let all = [
            HashPart::Host,
            HashPart::SourceIp,
            HashPart::Cookie("c".into()),
        ];
        let cookie = "Cookie: b=1; c=2\r\n";
        assert_eq!(hash(&all, "/", cookie, 1), hash(&all, "/x", cookie, 1));
        assert_ne!(hash(&all, "/", cookie, 1), hash(&all, "/", "", 1));
        assert_ne!(hash(&all, "/", cookie, 1), hash(&all, "/", cookie, 2));
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
