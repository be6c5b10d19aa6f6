//! Ranges of client addresses, as lists that many routes share.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;

/// Ranges of client addresses: sorted, and none within another. A clone is the same allocation;
/// the hash and the text of a list are made once.
#[derive(Clone, Default)]
pub struct SourceRanges(Option<Arc<List>>);

/// A list that is not empty.
struct List {
    ranges: Box<[IpNet]>,
    hash: u64,
    /// The ranges in CIDR notation, separated by commas.
    text: OnceLock<Box<str>>,
}

impl SourceRanges {
    /// The ranges that cover what these cover.
    pub fn new(mut ranges: Vec<IpNet>) -> Self {
        for range in &mut ranges {
            *range = range.trunc();
        }
        ranges.sort_unstable_by_key(|range| (range.addr(), range.prefix_len()));
        // What is within another stands right behind it.
        ranges.dedup_by(|later, kept| kept.contains(&*later));
        if ranges.is_empty() {
            return SourceRanges(None);
        }
        let mut hasher = DefaultHasher::new();
        ranges.hash(&mut hasher);
        SourceRanges(Some(Arc::new(List {
            ranges: ranges.into(),
            hash: hasher.finish(),
            text: OnceLock::new(),
        })))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// All of them, sorted.
    pub fn as_slice(&self) -> &[IpNet] {
        self.0.as_ref().map_or(&[][..], |list| &list.ranges)
    }

    /// All of them in CIDR notation, sorted by their addresses.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|list| list.text().split(','))
    }

    /// Whether an address is in one of them. Of ranges that do not overlap only the last that
    /// begins at or before the address can have it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ranges = self.as_slice();
        let behind = ranges.partition_point(|range| range.addr() <= address);
        let last = behind.checked_sub(1).and_then(|at| ranges.get(at));
        last.is_some_and(|range| range.contains(&address))
    }

    /// Whether both are the same allocation.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl List {
    fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let texts: Vec<String> = self.ranges.iter().map(ToString::to_string).collect();
            texts.join(",").into()
        })
    }
}

impl FromIterator<IpNet> for SourceRanges {
    fn from_iter<I: IntoIterator<Item = IpNet>>(ranges: I) -> Self {
        SourceRanges::new(ranges.into_iter().collect())
    }
}

impl<const N: usize> From<[IpNet; N]> for SourceRanges {
    fn from(ranges: [IpNet; N]) -> Self {
        SourceRanges::new(ranges.into())
    }
}

impl PartialEq for SourceRanges {
    fn eq(&self, other: &Self) -> bool {
        let hash = |ranges: &Self| ranges.0.as_ref().map_or(0, |list| list.hash);
        let is_alike = || hash(self) == hash(other) && self.as_slice() == other.as_slice();
        self.is_shared_with(other) || is_alike()
    }
}

impl Eq for SourceRanges {}

impl Hash for SourceRanges {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.as_ref().map_or(0, |list| list.hash));
    }
}

impl fmt::Debug for SourceRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};
    use std::net::IpAddr;

    use ipnet::IpNet;

    use super::SourceRanges;

    fn ranges(texts: &[&str]) -> SourceRanges {
        texts
            .iter()
            .map(|text| text.parse::<IpNet>().unwrap())
            .collect()
    }

    #[test]
    fn lists_that_cover_the_same_are_the_same() {
        let one = ranges(&["fd00::/8", "10.1.0.0/16", "10.0.0.7/8", "192.0.2.1/32"]);
        let other = ranges(&["192.0.2.1/32", "10.0.0.0/8", "fd00::/8", "10.0.0.0/8"]);
        let seed = RandomState::new();
        assert_eq!(one, other);
        assert_eq!(seed.hash_one(&one), seed.hash_one(&other));
        let texts: Vec<&str> = one.texts().collect();
        assert_eq!(texts, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]);
        assert!(!one.is_shared_with(&other) && one.is_shared_with(&one.clone()));
        assert_ne!(one, ranges(&["10.0.0.0/8"]));
        assert_eq!(SourceRanges::default(), ranges(&[]));
        assert_eq!(SourceRanges::default().texts().count(), 0);
    }

    #[test]
    fn an_address_is_found_as_by_looking_at_every_range() {
        let texts = [
            "10.0.0.0/8",
            "10.128.0.0/9",
            "10.255.255.255/32",
            "11.0.0.0/32",
            "192.0.2.128/25",
            "0.0.0.0/32",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "::/128",
            "ffff::/16",
        ];
        let nets: Vec<IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let all = ranges(&texts);
        for address in [
            "0.0.0.0",
            "0.0.0.1",
            "9.255.255.255",
            "10.0.0.0",
            "10.127.0.1",
            "10.200.0.1",
            "10.255.255.255",
            "11.0.0.0",
            "11.0.0.1",
            "192.0.2.127",
            "192.0.2.128",
            "192.0.2.255",
            "255.255.255.255",
            "::",
            "::1",
            "2001:db7:ffff::",
            "2001:db8::",
            "2001:db8:1::1",
            "2001:db8:ffff::1",
            "2001:db9::",
            "ffff:ffff::",
        ] {
            let address: IpAddr = address.parse().unwrap();
            let is_in = nets.iter().any(|net| net.contains(&address));
            assert_eq!(all.contains(address), is_in, "{address}");
        }
        assert!(!SourceRanges::default().contains("10.0.0.1".parse().unwrap()));
    }
}
