//! A host that is kept from younger wildcards of others: a domain of its own stands before theirs.

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Domain, Host, Name, Origin, OriginKind, Resource, Value};

use crate::engine::{Reader, Shared};
use crate::ingress::{self, Claimant};
use crate::istio;
use crate::output::Output;
use crate::ownership::{self, Above, Claim, Shade};

/// Adds, for each listener where a younger wildcard would answer, what the host had without it:
/// the domain of an older one that is open to it, or the default certificate where the host has
/// routes there, or nothing, so that handshakes get an alert.
pub fn add(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (owner, claimants): (&Claim, &[Claimant]),
    above: &Above,
    output: &mut Output,
) {
    let namespace = owner.key.namespace();
    for younger in &above.younger {
        let listener = &younger.listener;
        if istio::has_domain(output, listener) || is_passed(output, host, listener) {
            continue;
        }
        let mut shades = above.shades.iter();
        let older = shades.find(|shade| shade.listener == *listener);
        let is_open = older.is_none_or(|shade| shade.admits(namespace));
        if let Some(shade) = older.filter(|_| is_open)
            && istio::inherit(reader, shared, host, shade, output)
        {
            continue;
        }
        let is_default = older.is_none()
            && ownership::has_default(reader, shared, listener)
            && is_routed(output, host, listener);
        push(shared, host, owner, (listener, is_default), output);
        // Otherwise it was told already that its HTTPS belongs to an older one.
        if is_open {
            let field = field_of(owner, claimants, host);
            let finding = kept(&owner.key, field, host, (younger, is_default));
            output.findings.push(finding);
        }
    }
}

fn push(
    shared: &Shared,
    host: &Host,
    owner: &Claim,
    (listener, is_default): (&Name, bool),
    output: &mut Output,
) {
    let is_usual = *listener == shared.tls_listeners[0];
    let name = match is_usual {
        true => Name::new(host.text().clone()),
        false => Name::new(format!("{host}@{listener}")),
    };
    let listeners = match is_usual {
        true => shared.tls_listeners.clone(),
        false => [listener.clone()].into(),
    };
    let closed = || Name::new(format!("{}/{}", owner.key.id(), istio::CLOSED));
    let domain = Domain {
        listeners,
        host: host.clone(),
        certificate: (!is_default).then(closed),
        alternatives: Box::default(),
        tls: shared.tls.clone(),
        client_auth: None,
        mesh: false,
    };
    let resource = Resource {
        origin: origin(&owner.key),
        value: Value::Domain(Box::new(domain)),
    };
    output.resources.push((name, resource));
}

fn origin(key: &ObjectKey) -> Origin {
    let kind = match key.kind {
        ObjectKind::Ingress => OriginKind::Ingress,
        ObjectKind::IstioGateway => OriginKind::Gateway,
        _ => OriginKind::VirtualService,
    };
    Origin {
        kind,
        id: key.id().clone(),
    }
}

/// Whether handshakes for a host go on as they come.
fn is_passed(output: &Output, host: &Host, listener: &Name) -> bool {
    let mut resources = output.resources.iter();
    resources.any(|(_, resource)| match &resource.value {
        Value::Passage(passage) => {
            !passage.terminate
                && passage.hosts.contains(host)
                && passage.listeners.contains(listener)
        }
        _ => false,
    })
}

/// Whether requests for a host find a route of its own on a listener.
fn is_routed(output: &Output, host: &Host, listener: &Name) -> bool {
    let mut resources = output.resources.iter();
    resources.any(|(_, resource)| match &resource.value {
        Value::Route(route) => route.hosts.contains(host) && route.listeners.contains(listener),
        _ => false,
    })
}

/// The field by which the owner of a host claims it.
fn field_of(owner: &Claim, claimants: &[Claimant], host: &Host) -> String {
    let mut claimants = claimants.iter();
    let known = claimants.find(|known| known.ingress.meta.key == owner.key);
    match (known, owner.key.kind) {
        (Some(known), _) => ingress::field_of(&known.ingress, host),
        (None, ObjectKind::IstioGateway) => "spec.servers".to_owned(),
        (None, _) => "spec.hosts".to_owned(),
    }
}

fn kept(
    key: &ObjectKey,
    field: String,
    host: &Host,
    (younger, is_default): (&Shade, bool),
) -> Finding {
    let (pattern, wildcard) = (&younger.pattern, &younger.claim.key);
    let (severity, message) = match is_default {
        true => (
            Severity::Info,
            format!(
                "keeps the HTTPS of {host} by the default certificate: {pattern} of the younger \
                 {wildcard} has none of it"
            ),
        ),
        false => (
            Severity::Warning,
            format!(
                "answers no handshake for {host}, which has no certificate: {pattern} of the \
                 younger {wildcard} has none of it"
            ),
        ),
    };
    let remedy = "name a certificate for the host";
    Finding::new(severity, key, field, message, remedy)
}
