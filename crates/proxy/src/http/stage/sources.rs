//! The client addresses that a route admits. Where an authentication suffices instead, an address
//! that is refused leaves it to that, and one that is admitted makes it unnecessary.

use myriad_model::reach::readings_of;
use myriad_model::{Policy, SourceRanges};

use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, RequestState, Scene};
use crate::codec::client::ClientAddress;
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::policy::client;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let policy = request.taken()?.route.policy;
    admit(policy, request.head.get(), scene)?;
    Ok(Flow::Continue)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let (policy, head) = (taken.route.policy, request.head.get());
    if !policy.weighs_sources() {
        return StageVerdict::Silent;
    }
    let client = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    let weighed = weigh(policy, client);
    let text = told(policy, client, weighed);
    match weighed {
        SourceVerdict::Admitted if policy.is_satisfied_by_any() => {
            StageVerdict::Passes(format!("{text}, and need not be authenticated"))
        }
        SourceVerdict::Admitted | SourceVerdict::Unlisted => StageVerdict::Passes(text),
        SourceVerdict::Refused if policy.is_satisfied_by_any() => {
            StageVerdict::Passes(format!("{text}, unless it is authenticated"))
        }
        SourceVerdict::Refused => DryRunEnd::refused(FailureKind::Forbidden, text),
    }
}

/// The verdict of a route's addresses on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceVerdict {
    /// It is among those that are admitted.
    Admitted,
    /// It is among those that are denied, or not among those that are admitted.
    Refused,
    /// Nobody speaks of it.
    Unlisted,
}

/// Whether a route admits the client of a request by its address, or leaves that to an
/// authentication.
///
/// # Errors
/// That it does neither.
pub(super) fn admit(
    policy: &Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Result<(), FailureKind> {
    if !policy.weighs_sources() || policy.is_satisfied_by_any() {
        return Ok(());
    }
    let client = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    match weigh(policy, client) {
        SourceVerdict::Admitted | SourceVerdict::Unlisted => Ok(()),
        SourceVerdict::Refused => Err(FailureKind::Forbidden),
    }
}

/// Whether the address that a request comes from suffices, so that nobody need be authenticated.
pub(super) fn suffices(policy: &Policy, head: &Head<'_>, scene: &Scene<'_>) -> bool {
    let client = || client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    policy.is_satisfied_by_any() && weigh(policy, client()) == SourceVerdict::Admitted
}

/// The verdict of a route's addresses on a client. One that is not known may be any of those that
/// are denied, and one that holds another is denied as both, but admitted as itself alone.
fn weigh(policy: &Policy, client: ClientAddress) -> SourceVerdict {
    let (allowed, denied) = (&policy.sources_allowed, &policy.sources_denied);
    let is_in = |client| readings_of(client).any(|ip| denied.contains(ip));
    let is_denied = client.known().map_or(!denied.is_empty(), is_in);
    match (is_denied, client::is_allowed(allowed, client)) {
        (true, _) | (false, false) => SourceVerdict::Refused,
        (false, true) if allowed.is_empty() => SourceVerdict::Unlisted,
        (false, true) => SourceVerdict::Admitted,
    }
}

fn told(policy: &Policy, client: ClientAddress, weighed: SourceVerdict) -> String {
    let allowed = listed(&policy.sources_allowed);
    let denied = listed(&policy.sources_denied);
    match (weighed, client::is_allowed(&policy.sources_allowed, client)) {
        (SourceVerdict::Admitted, _) => format!("{client} is one of the clients in {allowed}"),
        (SourceVerdict::Unlisted, _) => format!("{client} is none of the clients in {denied}"),
        (SourceVerdict::Refused, false) => {
            format!("only clients in {allowed} are admitted, and {client} is not among them")
        }
        (SourceVerdict::Refused, true) => {
            let is = match client {
                ClientAddress::Known(_) => "is",
                ClientAddress::Unknown => "may be",
            };
            format!("clients in {denied} are refused, and {client} {is} one of them")
        }
    }
}

fn listed(nets: &SourceRanges) -> String {
    nets.texts().collect::<Vec<&str>>().join(", ")
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use myriad_model::{Policy, SourceRanges};

    use super::{SourceVerdict, weigh};
    use crate::codec::client::ClientAddress;

    #[test]
    fn a_client_is_admitted_refused_or_not_spoken_of() {
        let weighed = |allowed: &[&str], denied: &[&str], client: &str| {
            let nets = |nets: &[&str]| -> SourceRanges {
                let nets = nets.iter().map(|net| net.parse::<IpNet>().unwrap());
                nets.collect()
            };
            let policy = Policy {
                sources_allowed: nets(allowed),
                sources_denied: nets(denied),
                ..Policy::default()
            };
            weigh(&policy, ClientAddress::parse(client.as_bytes()))
        };
        let (inside, one): (&[&str], &[&str]) = (&["192.0.2.0/24"], &["192.0.2.9/32"]);
        let none: &[&str] = &[];
        for (allowed, denied, client, wanted) in [
            (none, none, "192.0.2.9", SourceVerdict::Unlisted),
            (none, none, "unknown", SourceVerdict::Unlisted),
            (inside, none, "192.0.2.9", SourceVerdict::Admitted),
            (inside, none, "192.0.3.1", SourceVerdict::Refused),
            (inside, none, "unknown", SourceVerdict::Refused),
            (inside, one, "192.0.2.9", SourceVerdict::Refused),
            (inside, one, "192.0.2.8", SourceVerdict::Admitted),
            (none, one, "192.0.2.9", SourceVerdict::Refused),
            (none, one, "::ffff:192.0.2.9", SourceVerdict::Refused),
            (none, one, "::192.0.2.9", SourceVerdict::Refused),
            (none, one, "64:ff9b::192.0.2.9", SourceVerdict::Refused),
            (none, one, "64:ff9b::192.0.2.8", SourceVerdict::Unlisted),
            (inside, none, "64:ff9b::192.0.2.9", SourceVerdict::Refused),
            (inside, none, "::ffff:192.0.2.9", SourceVerdict::Admitted),
            (none, one, "192.0.2.8", SourceVerdict::Unlisted),
            (none, one, "unknown", SourceVerdict::Refused),
        ] {
            let told = format!("{client} by {allowed:?} and {denied:?}");
            assert_eq!(weighed(allowed, denied, client), wanted, "{told}");
        }
    }
}
