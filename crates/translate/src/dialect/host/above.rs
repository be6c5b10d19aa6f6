//! The wildcards above a host, and which of them may answer for it.
//!
//! The claimant of a host has it alone: a wildcard of another namespace answers for it, in
//! handshakes or requests, only where it was there before the host, or where the operator or the
//! owner of the host says so. What is older keeps the HTTPS of the hosts below it that have no
//! certificate of their own: nobody answers in its name by its certificate unless its owner says
//! so. What claims no host at all, a server or rule for `*`, never answers for one that is claimed.

use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::{Host, Name, host::Pattern};

use super::ownership::owner;
use crate::dialect::{ingress, istio};
use crate::engine::{Reader, Shared};
use crate::resolve::{Above, Claim, Claims, Deed, EVERYBODY, Shade, names};
use crate::settings::{CatchAll, HostSharing};

/// A host, and on whose behalf wildcards are weighed.
struct Below<'a> {
    owner: Option<&'a Claim>,
    /// The Gateways that VirtualServices of the owner name.
    named: Vec<Arc<str>>,
}

/// What the wildcards above a host do, but for handshakes at its own listeners, where TLS is ended
/// for the host itself.
pub fn find(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (claims, owner): (&Claims, Option<&Claim>),
    own: &[Name],
) -> Above {
    let settings = reader.settings();
    let is_shared = settings.host_sharing == HostSharing::Cluster;
    let mut found = Above::default();
    if is_shared || settings.wildcard_sharing.contains(EVERYBODY) {
        return found;
    }
    let below = Below {
        owner,
        named: istio::named_by_owner(reader, claims, owner),
    };
    let mut answers: Vec<(Name, Deed, Vec<Shade>)> = Vec::new();
    for pattern in wildcards_above(host) {
        let before = answers.len();
        for shade in deeds(reader, shared, &pattern) {
            let is_at = |known: &Shade| known.listener == shade.listener;
            if shade.deed.is_within() {
                let mut known = answers.iter();
                match known.position(|it| it.0 == shade.listener && it.1 == shade.deed) {
                    // A narrower one answers there.
                    Some(at) if at < before => {}
                    Some(at) => answers[at].2.push(shade),
                    None => answers.push((shade.listener.clone(), shade.deed, vec![shade])),
                }
            } else if own.contains(&shade.listener) || found.shades.iter().any(is_at) {
                continue;
            } else if below.lets(reader, &shade) {
                found.shades.push(shade);
            } else if !found.strangers.iter().any(is_at) {
                found.strangers.push(shade);
            }
        }
    }
    for (listener, deed, answering) in answers {
        let mut shades = found.shades.iter();
        let over = shades.find(|shade| shade.listener == listener);
        let is_own = own.contains(&listener);
        if below.is_answered(reader, &answering, over, is_own) {
            continue;
        }
        match deed {
            // A domain of the host goes before the streams of broader ones.
            Deed::Streams if is_own => {}
            Deed::Streams => found.astray_streams.push(listener),
            _ => found.astray.push(listener),
        }
    }
    found
}

impl Below<'_> {
    /// Whether requests may be answered by what does so at a listener: by some of it where names
    /// are claimed, by all of it where nobody claims them. Where TLS ends for the host itself,
    /// nobody answers under its certificate for being older.
    fn is_answered(
        &self,
        reader: &Reader<'_>,
        answering: &[Shade],
        over: Option<&Shade>,
        is_own: bool,
    ) -> bool {
        let is_let = |shade: &Shade| {
            let is_of_holder =
                over.is_some_and(|over| over.claim.is_of(shade.claim.key.namespace()));
            is_of_holder
                || match is_own {
                    true => self.lets_whatever_age(reader, shade),
                    false => self.lets(reader, shade),
                }
        };
        let mut answering = answering.iter();
        match answering.as_slice() {
            [first, ..] if first.pattern.pattern() == Pattern::Any => answering.all(is_let),
            _ => answering.any(is_let),
        }
    }

    /// Whether a wildcard may answer for the host.
    fn lets(&self, reader: &Reader<'_>, shade: &Shade) -> bool {
        let is_claim = shade.pattern.pattern() != Pattern::Any;
        (is_claim && shade.is_before(self.owner)) || self.lets_whatever_age(reader, shade)
    }

    /// Whether the operator or the owner of the host lets a wildcard answer for it.
    fn lets_whatever_age(&self, reader: &Reader<'_>, shade: &Shade) -> bool {
        let Some(owner) = self.owner else {
            return true;
        };
        let namespace = owner.key.namespace();
        let key = &shade.claim.key;
        let is_named = key.kind == ObjectKind::IstioGateway && self.named.contains(key.id());
        shade.claim.is_of(namespace)
            || is_named
            || reader.settings().wildcard_sharing.contains(namespace)
            || (is_trusted(reader, key.namespace()) && shade.admits(namespace))
    }
}

/// Whether a namespace is the operator's: it may answer for hosts that nobody names because the
/// settings name it, or because the gateway itself stands there.
fn is_trusted(reader: &Reader<'_>, namespace: &str) -> bool {
    let is_listed = match &reader.settings().catch_all_namespaces {
        CatchAll::All => false,
        CatchAll::Only(known) => known.contains(namespace),
    };
    is_listed || reader.view().is_of(namespace)
}

/// What is done for the names below a wildcard, at each listener, the oldest first.
fn deeds(reader: &mut Reader<'_>, shared: &Shared, pattern: &Host) -> Vec<Shade> {
    let claims = reader.claims_above(pattern);
    if claims.ingresses.is_empty() && claims.gateways.is_empty() && claims.services.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<Shade> = Vec::new();
    let owner = match pattern.pattern() {
        Pattern::Any => {
            of_default_backends(reader, shared, pattern, &claims, &mut found);
            None
        }
        _ => of_ingresses(reader, shared, pattern, &claims, &mut found),
    };
    let sites = istio::own_sites(reader, pattern, &claims, owner.as_ref());
    for gateway in &sites {
        let ends = istio::deeds_of_gateway(reader, gateway, pattern).into_iter();
        let claim = reader.claim(&gateway.meta, pattern);
        found.extend(ends.map(|end| shade(pattern, claim.clone(), end)));
    }
    let whose = (owner.as_ref(), &*sites);
    for service in istio::services_of(reader, &claims, whose) {
        let claim = istio::claim_of_service(reader, pattern, &service);
        for end in istio::deeds_of_service(reader, &service, pattern) {
            // A Gateway for the wildcard says who else may answer there.
            let is_there =
                |known: &Shade| known.listener == end.listener && !known.deed.is_within();
            if end.deed.is_within() || !found.iter().any(is_there) {
                found.push(shade(pattern, claim.clone(), end));
            }
        }
    }
    let ends = istio::deeds_of_broader(reader, pattern, whose).into_iter();
    found.extend(ends.map(|(claim, end)| shade(pattern, claim, end)));
    found.sort_by(|a, b| a.claim.age().cmp(&b.claim.age()));
    for shade in &mut found {
        let everywhere = reader.settings().wildcard_sharing.iter();
        let everywhere = everywhere.map(|namespace| Box::<str>::from(namespace.as_str()));
        shade.admitted.extend(everywhere);
    }
    found
}

fn shade(pattern: &Host, claim: Claim, end: istio::End) -> Shade {
    Shade {
        listener: end.listener,
        pattern: pattern.clone(),
        claim,
        admitted: end.admitted,
        deed: end.deed,
    }
}

/// The deeds of Ingresses for a wildcard, and whose it is.
fn of_ingresses(
    reader: &mut Reader<'_>,
    shared: &Shared,
    pattern: &Host,
    claims: &Claims,
    found: &mut Vec<Shade>,
) -> Option<Claim> {
    let mut claimants = ingress::gather(reader, &claims.ingresses);
    let owner = owner(reader, pattern, &claimants, claims);
    claimants.retain(|known| owner.as_ref().is_none_or(|it| it.is_of(known.namespace())));
    let mut add = |known: &ingress::Claimant, deed, listeners: &[Name]| {
        let claim = reader.claim(&known.ingress.meta, pattern);
        found.extend(listeners.iter().map(|listener| Shade {
            listener: listener.clone(),
            pattern: pattern.clone(),
            claim: claim.clone(),
            admitted: known.options.wildcard_sharing.to_vec(),
            deed,
        }));
    };
    if let Some(known) = ingress::tls_claimant(pattern, &claimants) {
        add(known, Deed::EndsTls, &shared.tls_listeners);
    }
    if let Some(oldest) = claimants.first() {
        add(oldest, Deed::Answers, &shared.listeners);
    }
    owner
}

/// The deeds of Ingresses for names that nobody claims, once for each namespace: TLS is never ended
/// by them. There may be as many as Ingresses, so none of them is read.
fn of_default_backends(
    reader: &Reader<'_>,
    shared: &Shared,
    pattern: &Host,
    claims: &Claims,
    found: &mut Vec<Shade>,
) {
    let catch_all = &reader.settings().catch_all_namespaces;
    let keys = claims.ingresses.iter();
    let keys = keys.map(|id| ObjectKey::from_id(ObjectKind::Ingress, id.clone()));
    let mut keys: Vec<ObjectKey> = keys
        .filter(|key| catch_all.admits(key.namespace()))
        .collect();
    keys.sort_unstable_by(|a, b| a.id().cmp(b.id()));
    keys.dedup_by(|a, b| a.namespace() == b.namespace());
    for key in keys {
        // Their age says nothing, since they claim no host.
        let claim = Claim::unnamed(key);
        found.extend(shared.listeners.iter().map(|listener| Shade {
            listener: listener.clone(),
            pattern: pattern.clone(),
            claim: claim.clone(),
            admitted: vec![EVERYBODY.into()],
            deed: Deed::Answers,
        }));
    }
}

/// The wildcards that cover a host, without itself, the narrowest first.
fn wildcards_above(host: &Host) -> Vec<Host> {
    let mut found = Vec::new();
    if let Pattern::Exact(name) = host.pattern()
        && let Some((_, parent)) = name.split_once('.')
    {
        found.extend(Host::parse(&format!("*.{parent}")));
    }
    found.extend(names::broader(host));
    found
}
