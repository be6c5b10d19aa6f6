//! The bounds of what one namespace may make proxies hold.

use myriad_model::HashTable;
use myriad_translate::Bounds;

use crate::cli::bounds::RawBounds;

/// The smallest table that an upstream may be bounded to, and the largest.
const UPSTREAM_SLOTS: std::ops::RangeInclusive<u32> = 64..=HashTable::SIZE_MAX;

/// The part of the control thread's time that one costly namespace may have, in percent.
const CONTROL_SHARE: u32 = 20;

/// The part of the control thread's time that one costly namespace may have, in percent; 0 is no
/// bound. What is wrong with it is told by [`read`].
pub(super) fn control_share(raw: &RawBounds) -> u32 {
    let bounds = raw.bounds.iter().filter_map(|text| text.split_once('='));
    let named = bounds.filter(|(name, _)| name.trim() == "control-share");
    let mut read = named.filter_map(|(_, number)| percent(number).ok());
    read.next_back().unwrap_or(CONTROL_SHARE)
}

fn percent(number: &str) -> Result<u32, String> {
    let percent = number.trim().parse::<u32>().ok();
    let percent = percent.filter(|percent| *percent <= 100);
    percent.ok_or_else(|| "is not 0 to 100".to_owned())
}

/// Checks settings, which take the place of these, one by one.
pub(super) fn read(raw: &RawBounds, defaults: Bounds, problems: &mut Vec<String>) -> Bounds {
    let mut bounds = defaults;
    for text in raw.bounds.iter().filter(|text| !text.is_empty()) {
        if let Err(problem) = set(&mut bounds, text) {
            problems.push(format!("--bound {text:?}: {problem}"));
        }
    }
    bounds
}

fn set(bounds: &mut Bounds, text: &str) -> Result<(), String> {
    let (name, number) = text.split_once('=').ok_or("is not NAME=NUMBER")?;
    let number = number.trim();
    let read = |number: &str| number.parse::<u64>().map_err(|_| "is no number".to_owned());
    match name.trim() {
        "routes" => bounds.routes = read(number)?,
        "endpoints" => bounds.endpoints = read(number)?,
        "certificates" => bounds.certificates = read(number)?,
        "hash-slots" => bounds.hash_slots = read(number)?,
        "object-bytes" => bounds.object_bytes = read(number)?,
        "finding-bytes" => bounds.finding_bytes = read(number)?,
        "hosts" => bounds.hosts = read(number)?,
        "regex-kib" => bounds.regex_kib = read(number)?,
        "issuers" => bounds.issuers = read(number)?,
        "ports" => bounds.ports = read(number)?,
        "host-subsets" => bounds.host_subsets = read(number)?,
        "subset-endpoints" => bounds.subset_endpoints = read(number)?,
        "endpoint-copies" => bounds.endpoint_copies = read(number)?,
        "late-claims" => bounds.late_claims = read(number)?,
        "views" => bounds.views = read(number)?,
        // It bounds no objects; `control_share` reads it.
        "control-share" => {
            percent(number)?;
        }
        "upstream-hash-slots" => {
            let slots = match read(number)? {
                0 => Some(HashTable::SIZE_MAX),
                slots => u32::try_from(slots).ok(),
            };
            let slots = slots.filter(|slots| UPSTREAM_SLOTS.contains(slots));
            let (min, max) = (UPSTREAM_SLOTS.start(), UPSTREAM_SLOTS.end());
            bounds.upstream_hash_slots =
                slots.ok_or_else(|| format!("is not 0, or {min} to {max}"))?;
        }
        _ => {
            return Err(
                "is none of hosts, routes, endpoints, certificates, regex-kib, object-bytes, \
                 finding-bytes, issuers, ports, hash-slots, upstream-hash-slots, host-subsets, \
                 subset-endpoints, endpoint-copies, late-claims, views and control-share"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use myriad_translate::Bounds;

    use super::{control_share, read};
    use crate::cli::bounds::RawBounds;

    fn bounds(written: &[&str]) -> (Bounds, Vec<String>) {
        let mut problems = Vec::new();
        let raw = RawBounds {
            bounds: written.iter().map(|text| (*text).to_owned()).collect(),
            tenants: None,
        };
        let bounds = read(&raw, Bounds::of_tenants(), &mut problems);
        (bounds, problems)
    }

    #[test]
    fn a_bound_takes_the_place_of_its_default_alone() {
        let set = [
            "routes=0",
            "upstream-hash-slots=0",
            "host-subsets=9",
            "subset-endpoints=0",
            "endpoint-copies=7",
            "late-claims=5",
            "views=4",
            "object-bytes=8",
            "finding-bytes=9",
            "hosts=3",
            "regex-kib=6",
            "issuers=2",
            "ports=1",
        ];
        let (read, problems) = bounds(&set);
        let expected = Bounds {
            routes: 0,
            upstream_hash_slots: 1 << 20,
            host_subsets: 9,
            subset_endpoints: 0,
            endpoint_copies: 7,
            late_claims: 5,
            views: 4,
            object_bytes: 8,
            finding_bytes: 9,
            hosts: 3,
            regex_kib: 6,
            issuers: 2,
            ports: 1,
            ..Bounds::of_tenants()
        };
        assert_eq!((read, problems), (expected, Vec::new()));
    }

    #[test]
    fn a_share_of_the_control_thread_is_in_percent() {
        let share = |written: &[&str]| {
            control_share(&RawBounds {
                bounds: written.iter().map(|text| (*text).to_owned()).collect(),
                tenants: None,
            })
        };
        assert_eq!(share(&["routes=0"]), 20);
        assert_eq!(share(&["control-share=50", "control-share = 0"]), 0);
        assert_eq!(share(&["control-share=101"]), 20);
        let (read, problems) = bounds(&["control-share=50"]);
        assert_eq!((read, problems), (Bounds::of_tenants(), Vec::new()));
    }

    #[test]
    fn what_is_no_bound_is_named() {
        let wrong = [
            "routes",
            "routes=-1",
            "paths=3",
            "upstream-hash-slots=1",
            "control-share=101",
            "control-share=a",
        ];
        let (read, problems) = bounds(&wrong);
        assert_eq!((read, problems.len()), (Bounds::of_tenants(), wrong.len()));
    }
}
