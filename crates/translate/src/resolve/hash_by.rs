//! The parts of a request that make it equal to others, as written with the variables of nginx.

use std::fmt::Write as _;

use myriad_model::{Balancer, HashBalancer, HashPart, HashSource, HashTable};

/// The points of a ring.
const RING_SIZE: u32 = 1024;

/// The longest text.
const TEXT_BYTES_MAX: usize = 512;

/// Reads such as `$host${request_uri}`; none where there is no variable, or one that is not known.
/// Text between them makes no requests equal that would not be.
pub(crate) fn read(text: &str) -> Option<Box<[HashPart]>> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once('$') {
        let (name, after) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let end = behind.find(|next: char| !is_of_name(next));
                behind.split_at(end.unwrap_or(behind.len()))
            }
        };
        parts.push(part(name)?);
        rest = after;
    }
    let is_bounded = (1..=HashPart::COUNT_MAX).contains(&parts.len());
    is_bounded.then(|| parts.into())
}

/// The parts in a form that [`read`] reads, without text between them.
pub(crate) fn text(parts: &[HashPart]) -> String {
    let mut text = String::new();
    for part in parts {
        // Writing into a String cannot fail.
        let _ = match part {
            HashPart::Target => write!(text, "$request_uri"),
            HashPart::Host => write!(text, "$host"),
            HashPart::SourceIp => write!(text, "$remote_addr"),
            HashPart::Header(name) => write!(text, "$http_{}", name.replace('-', "_")),
            HashPart::Cookie(name) => write!(text, "$cookie_{name}"),
            HashPart::Query(name) => write!(text, "$arg_{name}"),
        };
    }
    text
}

/// The points of the ring of a balancer that goes by a text, where there may be so many.
pub(crate) fn slots(text: &str, slots_max: u32) -> Option<u32> {
    read(text).map(|_| RING_SIZE.min(slots_max).max(1))
}

/// The balancer that goes by a text, with at most so many points; none where the text is empty.
pub(crate) fn balancer(text: &str, slots_max: u32) -> Option<Balancer> {
    let parts = read(text)?;
    Some(Balancer::Hash(Box::new(HashBalancer {
        // For proxies that do not know of parts.
        source: HashSource::SourceIp,
        parts,
        table: HashTable::Ring(slots(text, slots_max)?),
    })))
}

fn part(name: &str) -> Option<HashPart> {
    if !name.chars().all(is_of_name) {
        return None;
    }
    let rest = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    match name {
        "request_uri" => return Some(HashPart::Target),
        "host" | "http_host" => return Some(HashPart::Host),
        "remote_addr" | "binary_remote_addr" => return Some(HashPart::SourceIp),
        _ => {}
    }
    if let Some(header) = rest("http_") {
        let header = header.to_ascii_lowercase().replace('_', "-");
        return Some(HashPart::Header(header.into()));
    }
    if let Some(cookie) = rest("cookie_") {
        return Some(HashPart::Cookie(cookie.into()));
    }
    Some(HashPart::Query(rest("arg_")?.into()))
}

fn is_of_name(next: char) -> bool {
    next.is_ascii_alphanumeric() || next == '_'
}

#[cfg(test)]
mod tests {
    use super::{TEXT_BYTES_MAX, read, text};

    #[test]
    fn variables_are_read_and_what_stands_between_them_is_not() {
        for (written, known) in [
            ("$request_uri", Some("$request_uri")),
            ("${request_uri}-text-$host", Some("$request_uri$host")),
            ("$binary_remote_addr", Some("$remote_addr")),
            ("$http_X_User$cookie_Id", Some("$http_x_user$cookie_Id")),
            ("a$arg_id", Some("$arg_id")),
            ("", None),
            ("text", None),
            ("$", None),
            ("$$host", None),
            ("${host", None),
            ("${arg_a@b}", None),
            ("$http_", None),
            ("$scheme", None),
        ] {
            let read_text = read(written).map(|parts| text(&parts));
            assert_eq!(read_text.as_deref(), known, "{written}");
            if let Some(known) = known {
                assert_eq!(read(known), read(written));
            }
        }
    }

    #[test]
    fn what_is_hashed_has_bounds() {
        assert!(read(&"$host".repeat(8)).is_some());
        assert!(read(&"$host".repeat(9)).is_none());
        let long = format!("$host{}", "-".repeat(TEXT_BYTES_MAX));
        assert!(read(&long).is_none());
    }
}
