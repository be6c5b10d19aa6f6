//! Since when VirtualServices claim what they are led to.

use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::Host;

use super::{binding, entrance, touch};
use crate::engine::Reader;
use crate::resolve::Claim;
use crate::resolve::names::{self, broader};

/// An age, as [`Claim::time`] has it.
pub(super) type Time = (i64, bool, i64);

/// The claim of a VirtualService, which has a host no longer than the Gateways by which it enters
/// cover it: a tenant could keep an old one and make its Gateway later. Gateways beside their
/// workload are the operator's, who may make them anew.
pub(crate) fn claim_of_service(
    reader: &mut Reader<'_>,
    host: &Host,
    service: &VirtualService,
) -> Claim {
    let claim = reader.claim(&service.meta, host);
    if !reader.settings().late_claims {
        return claim;
    }
    let own = service.meta.key.namespace();
    let mut patterns = vec![host.clone()];
    patterns.extend(broader(host));
    let mut oldest: Option<Claim> = None;
    for text in binding::gateways(service) {
        let Some(id) = names::gateway(text, own) else {
            continue;
        };
        for pattern in &patterns {
            let Some(gateway) = reader.servers(&id, pattern) else {
                continue;
            };
            if entrance::for_host(reader, &gateway, pattern, Some(own)).is_empty() {
                continue;
            }
            if reader.view().is_of(gateway.meta.key.namespace()) {
                return claim;
            }
            let covered = reader.claim(&gateway.meta, pattern);
            oldest = match oldest {
                Some(known) if known.is_before(&covered) => Some(known),
                _ => Some(covered),
            };
        }
    }
    match oldest {
        Some(covered) => claim.by(&covered),
        None => claim,
    }
}

/// The finding about a VirtualService with more matches of plain connections, by each of its
/// Gateways, than can be noted.
pub(super) fn judge(reader: &Reader<'_>, service: &VirtualService) -> Option<Finding> {
    let is_beyond = reader.settings().late_claims && touch::has_many_streams(service);
    is_beyond.then(|| {
        Finding::new(
            Severity::Warning,
            &service.meta.key,
            "spec.tcp",
            format!(
                "has more matches than {} for the number of its Gateways, so it leads plain TCP of \
                 ports after all VirtualServices of others",
                touch::STREAM_PAIRS_MAX
            ),
            "write fewer matches, or divide them among several VirtualServices",
        )
    })
}

/// The age of a VirtualService, whose claim to the host is of an age, at a port of a Gateway: that
/// age, or that of its first rule for plain connections there, where that came later; none where it
/// has no rule for them.
pub(super) fn time_at(
    reader: &Reader<'_>,
    (service, time): (&VirtualService, Time),
    (gateway, port): (&Arc<str>, u16),
) -> Option<Time> {
    let own = service.meta.key.namespace();
    let mut first: Option<Time> = None;
    for number in [0, port] {
        let mut matches = touch::stream_matches(service);
        if !matches.any(|(to, at)| at == number && touch::is_taken(to, own, gateway)) {
            continue;
        }
        let late = reader.stream_since(service, gateway, number);
        let late = late.map(|late| (late, true, service.meta.created));
        let of_rule = late.map_or(time, |late| late.max(time));
        first = Some(first.map_or(of_rule, |first| first.min(of_rule)));
    }
    first
}
