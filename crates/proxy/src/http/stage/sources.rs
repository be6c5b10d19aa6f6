//! The client addresses that a route admits.

use ipnet::IpNet;
use myriad_model::Policy;

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
    let policy = &request.taken()?.route.policy;
    admit(policy, request.head.get(), scene)?;
    Ok(Flow::Continue)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let (policy, head) = (&taken.route.policy, request.head.get());
    if !policy.weighs_sources() {
        return StageVerdict::Silent;
    }
    let client = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    if is_denied(&policy.sources_denied, client) {
        let nets = listed(&policy.sources_denied);
        let is = match client {
            ClientAddress::Known(_) => "is",
            ClientAddress::Unknown => "may be",
        };
        let text = format!("clients in {nets} are refused, and {client} {is} one of them");
        return DryRunEnd::refused(FailureKind::Forbidden, text);
    }
    let nets = listed(&policy.sources_allowed);
    match admit(policy, head, scene) {
        Ok(()) if nets.is_empty() => {
            let nets = listed(&policy.sources_denied);
            StageVerdict::Passes(format!("{client} is none of the clients in {nets}"))
        }
        Ok(()) => StageVerdict::Passes(format!("{client} is one of the clients in {nets}")),
        Err(kind) => DryRunEnd::refused(
            kind,
            format_args!("only clients in {nets} are admitted, and {client} is not among them"),
        ),
    }
}

/// Whether a route admits the client of a request.
///
/// # Errors
/// That it does not.
pub(super) fn admit(
    policy: &Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Result<(), FailureKind> {
    if !policy.weighs_sources() {
        return Ok(());
    }
    let address = client::address(head, scene.visit.client.ip(), scene.trusted_hops);
    let is_denied = is_denied(&policy.sources_denied, address);
    match !is_denied && client::is_allowed(&policy.sources_allowed, address) {
        true => Ok(()),
        false => Err(FailureKind::Forbidden),
    }
}

/// Whether an address is among those denied; one that is not known may be any of them.
fn is_denied(denied: &[IpNet], client: ClientAddress) -> bool {
    let is_in = |client| denied.iter().any(|net| net.contains(&client));
    client.known().map_or(!denied.is_empty(), is_in)
}

fn listed(nets: &[IpNet]) -> String {
    let nets = nets.iter().map(ToString::to_string);
    nets.collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::is_denied;
    use crate::codec::client::ClientAddress;

    #[test]
    fn an_address_that_is_not_known_may_be_one_that_is_denied() {
        let denied = ["192.0.2.0/24".parse().unwrap()];
        let is_denied = |denied: &[_], entry: &[u8]| is_denied(denied, ClientAddress::parse(entry));
        assert!(is_denied(&denied, b"192.0.2.9"));
        assert!(is_denied(&denied, b"::ffff:192.0.2.9"));
        assert!(!is_denied(&denied, b"192.0.3.1"));
        assert!(is_denied(&denied, b"unknown"));
        assert!(!is_denied(&[], b"unknown") && !is_denied(&[], b"192.0.2.9"));
    }
}
