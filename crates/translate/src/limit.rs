//! Rate limits as people write them: `100/s burst 200 per client`.
//!
//! ```text
//! limits = limit { "," limit }                  at most eight
//! limit  = number "/" ("s" | "m" | "h") [ "burst" number ] { "per" ("client" | "host" | "route") }
//! ```
//!
//! The burst is how many requests may come at once; without it, as many as in one interval. A rate
//! that is written on an object is one count for all of the object, unless `per` divides it.

use std::time::Duration;

use myriad_model::{RateLimit, SourceRanges};

/// The advice to people who write a limit.
pub(crate) const EXPECTED: &str = "write such as \
    \"100/s burst 200 per client\": a number per s, m or h, \
    then burst, then per client, host or route; several separated by commas";

/// One limit as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenLimit {
    requests: u32,
    interval: Duration,
    burst: u32,
    is_per_client: bool,
    is_per_host: bool,
    is_per_route: bool,
}

impl WrittenLimit {
    /// Whether hosts or routes of an object count for themselves.
    pub(crate) fn is_divided(&self) -> bool {
        self.is_per_host || self.is_per_route
    }

    /// The limit for a route of an object on a host.
    pub(crate) fn limit(&self, object: &str, host: &str, route: &str) -> RateLimit {
        let mut name = object.to_owned();
        for part in [
            self.is_per_host.then_some(host),
            self.is_per_route.then_some(route),
        ]
        .into_iter()
        .flatten()
        {
            name.push('/');
            name.push_str(part);
        }
        RateLimit {
            name: name.into(),
            requests: self.requests,
            interval: self.interval,
            burst: self.burst,
            is_per_client: self.is_per_client,
            exempt: SourceRanges::default(),
            is_at_once: false,
        }
    }
}

/// The longest text of limits: each route of each host reads it.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Reads limits; none where any of them is not understood.
pub(crate) fn parse(text: &str) -> Option<Box<[WrittenLimit]>> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let limits: Box<[WrittenLimit]> = text.split(',').map(one).collect::<Option<_>>()?;
    (limits.len() <= RateLimit::PER_POLICY_MAX).then_some(limits)
}

fn one(text: &str) -> Option<WrittenLimit> {
    let mut words = text.split_ascii_whitespace();
    let (number, unit) = words.next()?.split_once('/')?;
    let requests = count(number)?;
    let interval = Duration::from_secs(match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    });
    let mut written = WrittenLimit {
        requests,
        interval,
        burst: requests - 1,
        is_per_client: false,
        is_per_host: false,
        is_per_route: false,
    };
    let mut may_burst = true;
    while let Some(word) = words.next() {
        let flag = match (word, words.next()?) {
            ("burst", number) if may_burst => {
                may_burst = false;
                written.burst = count(number)? - 1;
                continue;
            }
            ("per", "client") => &mut written.is_per_client,
            ("per", "host") => &mut written.is_per_host,
            ("per", "route") => &mut written.is_per_route,
            _ => return None,
        };
        if std::mem::replace(flag, true) {
            return None;
        }
        may_burst = false;
    }
    Some(written)
}

/// A number from 1 that the model can carry.
fn count(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number)?;
    (1..=RateLimit::REQUESTS_MAX)
        .contains(&number)
        .then_some(number)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn limits_are_read_to_the_letter() {
        let limits = parse("100/s burst 200 per client, 1000/h per host per route").unwrap();
        let [first, second] = [0, 1].map(|at| limits[at].limit("Ingress/ns/a", "h", "/a"));
        assert_eq!((first.requests, first.burst), (100, 199));
        assert!(first.is_per_client && &*first.name == "Ingress/ns/a");
        assert_eq!(second.interval, Duration::from_secs(3_600));
        assert_eq!((&*second.name, second.burst), ("Ingress/ns/a/h//a", 999));
        for text in [
            "",
            "100",
            "0/s",
            "+1/s",
            "1/d",
            "1/s burst",
            "1/s burst 0",
            "1/s per client burst 2",
            "1/s per client per client",
            "1/s per country",
            "1/s,",
            "99999999999/s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
