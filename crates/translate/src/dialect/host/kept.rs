//! A host that is kept from wildcards of others: a domain and a route of its own stand before what
//! they would do with its handshakes and requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{
    Action, Domain, Draft, Host, Label, Name, Origin, OriginKind, PathMatch, Policy, Resource,
    Respond, Route, StreamRoute, Value, host::Pattern,
};

use crate::dialect::ingress::{self, Claimant};
use crate::dialect::istio;
use crate::engine::{Output, Reader, Shared};
use crate::resolve::{self, Above, Claim, Shade};

/// The rank of the route that closes: behind every rule.
const CLOSING_RANK: u64 = u64::MAX;

/// The answer of a host that no object leads anywhere.
const NOT_FOUND: u16 = 404;

/// Adds what the host would have without wildcards that may not answer for it: on the listeners
/// that everybody has, and on those where the host has something.
pub(super) fn add(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (owner, claimants): (&Claim, &[Claimant]),
    above: &Above,
    output: &mut Output,
) {
    for stranger in &above.strangers {
        if is_its_own(shared, output, host, &stranger.listener) {
            let whose = (owner, claimants);
            keep_handshakes(reader, shared, host, whose, (above, stranger), output);
        }
    }
    let mut closed: Vec<Name> = Vec::new();
    for listener in &above.astray {
        if is_its_own(shared, output, host, listener) && !is_routed(output, host, listener) {
            closed.push(listener.clone());
        }
    }
    if !closed.is_empty() {
        closed.sort_unstable();
        redirect(reader, host, above, &closed, output);
        close(host, owner, closed, output);
    }
    close_streams(shared, host, owner, above, output);
}

/// Adds the stream route that leads nowhere, where a wildcard would hand on what comes out of TLS
/// and must not: no route is asked there. A domain of the host goes before such a wildcard.
fn close_streams(shared: &Shared, host: &Host, owner: &Claim, above: &Above, output: &mut Output) {
    let mut listeners = above.astray_streams.clone();
    listeners.retain(|listener| {
        is_its_own(shared, output, host, listener) && !istio::has_domain(output, listener)
    });
    if listeners.is_empty() {
        return;
    }
    listeners.sort_unstable();
    let stream_route = StreamRoute {
        listeners: listeners.into(),
        hosts: [host.clone()].into(),
        rank: CLOSING_RANK,
        terminate: true,
        ..istio::stream::blank()
    };
    let resource = Resource {
        origin: origin(&owner.key),
        value: Value::StreamRoute(Box::new(stream_route)),
    };
    let name = Name::new(format!("{}/{host}/kept+tls", owner.key.id()));
    output.resources.push((name, resource));
}

/// Adds, where a wildcard may not answer handshakes, the domain of an older one that is open to the
/// host, or the default certificate where the host has routes there, or nothing, so that they get
/// an alert.
fn keep_handshakes(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (owner, claimants): (&Claim, &[Claimant]),
    (above, stranger): (&Above, &Shade),
    output: &mut Output,
) {
    let listener = &stranger.listener;
    if istio::has_domain(output, listener) || is_passed(output, host, listener) {
        return;
    }
    let mut shades = above.shades.iter();
    let holder = shades.find(|shade| shade.listener == *listener);
    let is_open = holder.is_none_or(|shade| shade.admits(owner.key.namespace()));
    if let Some(shade) = holder.filter(|_| is_open)
        && istio::inherit(reader, shared, host, shade, output)
    {
        return;
    }
    let is_default = holder.is_none()
        && resolve::has_default(reader, shared, listener)
        && is_routed(output, host, listener);
    push_domain(shared, host, owner, (listener, is_default), output);
    // Of what nobody claims its own object is told; and where it was told that its HTTPS belongs
    // to an older one, nothing has changed.
    if is_open && stranger.pattern.pattern() != Pattern::Any {
        let field = field_of(owner, claimants, host);
        let finding = kept(&owner.key, field, host, (stranger, is_default));
        output.findings.push(finding);
    }
}

/// Adds the routes by which older wildcards send requests to HTTPS, where others stand between them
/// and the host.
fn redirect(reader: &Reader<'_>, host: &Host, above: &Above, closed: &[Name], output: &mut Output) {
    let mut by_gateway: BTreeMap<&Arc<str>, Vec<Name>> = BTreeMap::new();
    for (listener, gateway) in &above.redirected {
        if closed.contains(listener) {
            by_gateway
                .entry(gateway)
                .or_default()
                .push(listener.clone());
        }
    }
    for (gateway, mut listeners) in by_gateway {
        listeners.sort_unstable();
        let whole = ("kept+to-https", listeners);
        istio::redirect_to_tls(reader, host, gateway, whole, output);
    }
}

/// Adds the route that answers where no rule of the host does and a wildcard must not.
fn close(host: &Host, owner: &Claim, listeners: Vec<Name>, output: &mut Output) {
    let route = Route {
        listeners: listeners.into(),
        hosts: [host.clone()].into(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: CLOSING_RANK,
        action: Action::Respond(Box::new(Respond {
            status: NOT_FOUND,
            body: Arc::default(),
        })),
        policy: Arc::new(Policy::default()),
    };
    let draft = Draft {
        origin: origin(&owner.key),
        label: Label::Whole("closed".into()),
        rule: 0,
        matched: 0,
        route,
    };
    let prefix = format!("{}/{host}/", owner.key.id());
    output.routes.add(prefix, origin(&owner.key), draft);
}

/// Whether a listener is one that everybody has, or the host has something there. Other ports are
/// of those who open them.
fn is_its_own(shared: &Shared, output: &Output, host: &Host, listener: &Name) -> bool {
    shared.listeners.contains(listener)
        || istio::has_domain(output, listener)
        || is_passed(output, host, listener)
        || is_routed(output, host, listener)
}

fn push_domain(
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
        section: None,
        by_name: false,
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
        ObjectKind::Gateway => OriginKind::KubernetesGateway,
        ObjectKind::ListenerSet => OriginKind::ListenerSet,
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
        Value::StreamRoute(stream_route) => {
            !stream_route.terminate
                && stream_route.hosts.contains(host)
                && stream_route.listeners.contains(listener)
        }
        _ => false,
    })
}

/// Whether requests for a host find a route of its own on a listener.
pub(super) fn is_routed(output: &Output, host: &Host, listener: &Name) -> bool {
    let mut routes = output.routes.iter().map(|draft| &draft.route);
    routes.any(|route| route.hosts.contains(host) && route.listeners.contains(listener))
}

/// The field by which the owner of a host claims it.
fn field_of(owner: &Claim, claimants: &[Claimant], host: &Host) -> String {
    let mut claimants = claimants.iter();
    let known = claimants.find(|known| known.ingress.meta.key == owner.key);
    match (known, owner.key.kind) {
        (Some(known), _) => ingress::field_of(&known.ingress, host),
        (None, ObjectKind::IstioGateway) => "spec.servers".to_owned(),
        (None, ObjectKind::Gateway | ObjectKind::ListenerSet) => "spec.listeners".to_owned(),
        (None, _) => "spec.hosts".to_owned(),
    }
}

fn kept(
    key: &ObjectKey,
    field: String,
    host: &Host,
    (stranger, is_default): (&Shade, bool),
) -> Finding {
    let (pattern, wildcard) = (stranger.written(), &stranger.claim.key);
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
