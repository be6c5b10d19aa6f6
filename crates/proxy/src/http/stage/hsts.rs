//! The stage that tells browsers that have come by HTTPS to come by nothing else (RFC 6797). They
//! remember it for as long as the field says, so it is told only where HTTPS will go on working.

use std::net::IpAddr;

use myriad_model::reach::is_loopback_name;

use super::dry_run::StageVerdict;
use super::{Flow, RequestState, Scene, TakenRoute};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::http::write::HSTS;
use crate::policy::client;

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let told = told(request.taken()?, request.head.get(), scene);
    if let Some(value) = told {
        request.additions.push((HSTS, value.as_bytes().into()));
    }
    Ok(Flow::Continue)
}

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    if taken.route.policy.hsts.is_empty() {
        return StageVerdict::Silent;
    }
    StageVerdict::Passes(match told(taken, request.head.get(), scene) {
        Some(value) => {
            format!("browsers are told to come by HTTPS alone ({value}), unless the endpoint does")
        }
        None => "browsers are told nothing: that takes HTTPS, with a certificate of the host's own"
            .to_owned(),
    })
}

/// The field's value for browsers, where they are to be told.
fn told<'a>(taken: TakenRoute<'a>, head: &Head<'_>, scene: &Scene<'_>) -> Option<&'a str> {
    let value = &*taken.route.policy.hsts;
    let is_told = !value.is_empty() && is_name(&head.host) && is_own(head, scene);
    is_told.then_some(value)
}

/// Whether a host has a name that means the same to everybody.
fn is_name(host: &str) -> bool {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    !host.is_empty() && !is_address && !is_loopback_name(host)
}

/// Whether the client speaks TLS, with a certificate that the host has for itself: where it got
/// that of last resort, another one may not be had.
fn is_own(head: &Head<'_>, scene: &Scene<'_>) -> bool {
    let Scene { tables, visit, .. } = *scene;
    let secured = visit.secured.as_ref();
    let Some(secured) = secured.filter(|it| it.by_domain && !it.is_mesh) else {
        return false;
    };
    let named = secured.sni.as_deref();
    let domain = named.and_then(|name| tables.domain(&visit.listener, name));
    domain.is_some_and(|domain| domain.certificate.is_some())
        && secured.covers(&head.host)
        && client::is_secure(head, visit, scene.trusted_hops)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn addresses_and_this_machine_are_no_names() {
        assert!(is_name("a.example") && is_name("localhost.example"));
        for host in ["", "192.0.2.1", "[2001:db8::1]", "localhost", "a.localhost"] {
            assert!(!is_name(host), "{host}");
        }
    }
}
