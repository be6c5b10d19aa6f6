//! How often the paths of an Ingress are served.

use std::time::Duration;

use myriad_api::Meta;
use myriad_model::RateLimit;

use super::Options;
use super::sheet::Sheet;
use crate::limit::{self, WrittenLimit};

/// The factor by which ingress-nginx multiplies a rate to have its burst.
const BURST_MULTIPLIER: u32 = 5;

/// The limit of requests of a client at the same time, which ingress-nginx calls its connections.
const CONNECTIONS: &str = "limit-connections";

/// Reads limits. One that cannot be read closes what it was to protect.
pub(super) fn read(meta: &Meta, sheet: &mut Sheet<'_>, options: &mut Options) {
    let object = format!("Ingress/{}", meta.key.id());
    let number = "write a number from 1";
    let former = sheet.networks("limit-whitelist", false);
    let exempt = sheet.networks("limit-allowlist", false);
    let exempt = exempt.or(former).unwrap_or_default();
    let multiplier = sheet.read_closing("limit-burst-multiplier", number, count);
    let mut limits = Vec::new();
    for (name, interval) in [("limit-rps", 1), ("limit-rpm", 60)] {
        let Some(requests) = sheet.read_closing(name, number, count) else {
            continue;
        };
        let burst = requests.saturating_mul(multiplier.unwrap_or(BURST_MULTIPLIER));
        limits.push(RateLimit {
            name: format!("{object}/{name}").into(),
            requests,
            interval: Duration::from_secs(interval),
            burst: burst.min(RateLimit::REQUESTS_MAX),
            is_per_client: true,
            exempt: exempt.clone(),
            is_at_once: false,
        });
    }
    if let Some(requests) = sheet.read_closing(CONNECTIONS, number, count) {
        limits.push(RateLimit {
            name: format!("{object}/{CONNECTIONS}").into(),
            requests,
            // A rate that is none, for proxies that know of rates alone.
            interval: Duration::from_secs(1),
            burst: RateLimit::REQUESTS_MAX,
            is_per_client: true,
            exempt,
            is_at_once: true,
        });
    }
    // An Ingress is one count: its hosts and paths have their options in common.
    let whole = |text| limit::parse(text).filter(|all| !all.iter().any(WrittenLimit::is_divided));
    let expected = "write such as \"100/s burst 200 per client\"; an Ingress is one count";
    let own = sheet.read_closing("rate-limit", expected, whole);
    limits.extend(own.iter().flatten().map(|own| own.limit(&object, "", "")));
    limits.truncate(RateLimit::PER_POLICY_MAX);
    options.rate_limits = limits.into();
}

fn count(text: &str) -> Option<u32> {
    let number = text.parse().ok()?;
    (1..=RateLimit::REQUESTS_MAX)
        .contains(&number)
        .then_some(number)
}
