//! Limits of how often requests are served.

use std::time::Duration;

use crate::SourceRanges;

/// How often requests are served; those beyond get 429. Each proxy counts for itself, all of its
/// workers together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// The name of the count: limits of one name are one count, whatever routes they are on.
    pub name: Box<str>,
    /// How many requests in each interval; at least 1.
    pub requests: u32,
    /// The interval, from a second to a day.
    pub interval: Duration,
    /// How many requests more may come at once; they are paid back at the same rate.
    pub burst: u32,
    /// Whether each client address counts for itself.
    pub is_per_client: bool,
    /// Client addresses that are not counted.
    pub exempt: SourceRanges,
    /// Whether it is about requests that are served at the same time, whatever the interval is;
    /// those beyond get 503. A proxy that does not know of it reads the rate.
    pub is_at_once: bool,
}

impl RateLimit {
    /// The most limits of one policy.
    pub const PER_POLICY_MAX: usize = 8;
    /// The most requests in an interval, and the most at once beyond them.
    pub const REQUESTS_MAX: u32 = 10_000_000;
    /// The longest interval.
    pub const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
}
