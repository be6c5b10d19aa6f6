//! Rate limits of a VirtualService: an annotation, since Istio's API has no field for them.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::{Host, RateLimit};

use super::delegate::Rule;
use crate::limit::{self, WrittenLimit};

/// The annotation.
const KEY: &str = "myriad.dev/rate-limit";

/// The limits of the routes of a rule.
pub(super) fn of_rule(host: &Host, rule: &Rule) -> Box<[RateLimit]> {
    let written = read(&rule.service).flatten().unwrap_or_default();
    let object = format!("VirtualService/{}", rule.service.meta.key.id());
    let route = rule.at.to_string();
    let limit = |it: &WrittenLimit| it.limit(&object, host.as_str(), &route);
    written.iter().map(limit).collect()
}

/// Whether limits were meant that nobody can read: then nothing is served.
pub(super) fn is_closed(rule: &Rule) -> bool {
    read(&rule.service) == Some(None)
}

/// The problem of the limits of a VirtualService.
pub(super) fn judge(service: &VirtualService) -> Option<Finding> {
    let is_closed = read(service) == Some(None);
    is_closed.then(|| {
        Finding::new(
            Severity::Error,
            &service.meta.key,
            format!("metadata.annotations[{KEY}]"),
            "is not understood, so every rule answers 503",
            limit::EXPECTED,
        )
    })
}

/// The limits; none inside where they cannot be read.
fn read(service: &VirtualService) -> Option<Option<Box<[WrittenLimit]>>> {
    service.meta.annotation(KEY).map(limit::parse)
}
