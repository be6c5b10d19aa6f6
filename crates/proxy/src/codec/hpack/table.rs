//! The fields that a head may name by a number: those that everybody knows, and those that a
//! connection has sent lately (RFC 7541, sections 2.3 and 4).

use std::collections::VecDeque;

use super::FIELD_BYTES;
use crate::codec::field::is_lower_case_of;

/// The most that a connection may have us keep, as RFC 7541 counts it. It is what clients take
/// for granted before anybody tells them, and nobody is told.
pub const TABLE_BYTES_MAX: usize = 4_096;

/// How many fields everybody knows.
const STATIC_COUNT: usize = STATIC.len();

/// The number of `set-cookie`.
pub(super) const SET_COOKIE: usize = 55;

/// Appendix A of RFC 7541; the first has the number 1.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The fields that a connection has sent lately, the newest first.
#[derive(Debug)]
pub(super) struct HpackTable {
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
}

/// A name, and a value behind it.
#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name_end: usize,
}

impl Default for HpackTable {
    fn default() -> Self {
        HpackTable {
            entries: VecDeque::new(),
            size: 0,
            max: TABLE_BYTES_MAX,
        }
    }
}

impl HpackTable {
    /// The field of a number.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - STATIC_COUNT)?;
        entry.bytes.split_at_checked(entry.name_end)
    }

    /// Keeps a field, whose value is behind its name, and forgets the oldest for it.
    pub(super) fn insert(&mut self, bytes: &[u8], name_end: usize) {
        let size = bytes.len() + FIELD_BYTES;
        self.shrink(self.max.saturating_sub(size));
        if size <= self.max {
            self.size += size;
            let bytes = bytes.into();
            self.entries.push_front(Entry { bytes, name_end });
        }
    }

    /// How many bytes of memory it takes, about.
    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.size
    }

    /// Keeps at most so much from here on.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
        self.shrink(max);
    }

    fn shrink(&mut self, max: usize) {
        while self.size > max
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.bytes.len() + FIELD_BYTES;
        }
    }
}

/// The number of a name of responses that everybody knows, in any case; the least, where it has
/// several.
pub(super) fn name_index(name: &str) -> Option<usize> {
    // By length first: most names are told apart without being compared.
    let candidates: &[usize] = match name.len() {
        3 => &[21, 60],
        4 => &[33, 34, 45, 59],
        5 => &[22],
        6 => &[54],
        7 => &[36, 52],
        8 => &[46],
        10 => &[SET_COOKIE],
        11 => &[53],
        12 => &[31],
        13 => &[18, 24, 30, 44],
        14 => &[28],
        16 => &[26, 27, 29, 61],
        18 => &[48],
        19 => &[25],
        25 => &[56],
        27 => &[20],
        _ => &[],
    };
    let is_it = |index: &usize| {
        let known = STATIC.get(index - 1);
        known.is_some_and(|(known, _)| is_lower_case_of(known, name))
    };
    candidates.iter().copied().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::{HpackTable, STATIC, name_index};

    #[test]
    fn names_of_responses_have_their_number() {
        const REQUESTS: [&str; 15] = [
            "accept-charset",
            "accept-encoding",
            "accept-language",
            "accept",
            "authorization",
            "cookie",
            "expect",
            "from",
            "host",
            "max-forwards",
            "proxy-authorization",
            "referer",
            "transfer-encoding",
            "user-agent",
            "range",
        ];
        for (index, (name, _)) in STATIC.iter().enumerate() {
            let is_of_response =
                !name.starts_with(':') && !name.starts_with("if-") && !REQUESTS.contains(name);
            let expected = is_of_response.then_some(index + 1);
            assert_eq!(name_index(&name.to_uppercase()), expected, "{name}");
        }
        assert_eq!(name_index("dates"), None);
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_what_is_too_long_forgets_all() {
        let mut table = HpackTable::default();
        table.set_max(100);
        table.insert(b"aone", 1);
        table.insert(b"btwo", 1);
        assert_eq!(table.get(62), Some((&b"b"[..], &b"two"[..])));
        assert_eq!(table.get(63), Some((&b"a"[..], &b"one"[..])));
        table.insert(b"cthree", 1);
        assert_eq!(table.get(63), Some((&b"b"[..], &b"two"[..])));
        assert_eq!(table.get(64), None);
        table.insert(&[b'x'; 69], 1);
        assert_eq!(table.get(62), None);
        table.insert(b"aone", 1);
        table.set_max(0);
        assert_eq!((table.get(62), table.size), (None, 0));
        assert_eq!(table.get(0), None);
        assert_eq!(table.get(61).unwrap().0, b"www-authenticate");
    }
}
