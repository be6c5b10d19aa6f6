//! Whose a host is, and whose are the wildcards above it, whatever dialect claims them.
//!
//! A host belongs to the namespace of the oldest object that claims it. A wildcard of another
//! namespace that ends TLS keeps the HTTPS of the hosts below it that have no certificate of their
//! own: nobody answers in its name by its certificate unless its owner says so. It does so where it
//! is older than the host: a younger wildcard takes no HTTPS from a host that was there before.

use std::sync::Arc;

use myriad_api::{Meta, ObjectKey, ObjectKind};
use myriad_model::{Host, Name, host::Pattern};

use crate::HostSharing;
use crate::engine::{Reader, Shared};
use crate::host::Claims;
use crate::ingress::{self, Claimant};
use crate::istio;

/// The entry of `--wildcard-sharing` and its annotation that stands for every namespace.
pub const EVERYBODY: &str = "*";

/// An object's claim to a host. The smallest wins: the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    created: i64,
    /// The object.
    pub key: ObjectKey,
}

/// The end of TLS at a listener for all names below a wildcard, be it at whom handshakes are
/// handed on to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shade {
    /// The listener.
    pub listener: Name,
    /// The wildcard.
    pub pattern: Host,
    /// The claim of the object whose certificate is shown.
    pub claim: Claim,
    /// The namespaces that may answer by it, beside its own.
    pub admitted: Vec<Box<str>>,
    /// Whether handshakes go on as they come, so that no certificate is shown here.
    pub is_passing: bool,
}

/// What the wildcards above a host do with its handshakes, once for each listener.
#[derive(Debug, Default)]
pub struct Above {
    /// The ends of TLS that hold for it.
    pub shades: Vec<Shade>,
    /// Those of others that came after it, and that it has to be kept from.
    pub younger: Vec<Shade>,
}

impl Claim {
    /// The claim of an object.
    pub fn of(meta: &Meta) -> Self {
        Claim {
            created: meta.created,
            key: meta.key.clone(),
        }
    }

    /// Whether an object is younger than this one.
    pub fn is_before(&self, meta: &Meta) -> bool {
        self.age() < Claim::of(meta).age()
    }

    /// By what claims are compared.
    pub fn age(&self) -> (i64, &str, &str, u8) {
        let kind = self.key.kind as u8;
        (self.created, self.key.namespace(), self.key.name(), kind)
    }

    /// Whether objects of a namespace have the host.
    pub fn is_of(&self, namespace: &str) -> bool {
        self.key.namespace() == namespace
    }
}

impl Shade {
    /// Whether it is older than the claim to a host.
    pub fn is_before(&self, owner: Option<&Claim>) -> bool {
        owner.is_none_or(|owner| self.claim.age() < owner.age())
    }

    /// Whether objects of a namespace may answer in it.
    pub fn admits(&self, namespace: &str) -> bool {
        let mut admitted = self.admitted.iter();
        self.claim.is_of(namespace)
            || admitted.any(|known| **known == *EVERYBODY || **known == *namespace)
    }
}

/// The oldest claim to a host; none where hosts are shared.
pub fn owner(
    reader: &mut Reader<'_>,
    host: &Host,
    claimants: &[Claimant],
    claims: &Claims,
) -> Option<Claim> {
    if reader.settings().host_sharing == HostSharing::Cluster {
        return None;
    }
    let mains = claimants.iter().filter(|known| !known.is_canary());
    let mut all: Vec<Claim> = mains.map(|known| Claim::of(&known.ingress.meta)).collect();
    all.extend(istio::claims_to(reader, host, claims));
    if let Some(twin) = twin(host) {
        // Two spellings of one wildcard: of one label in an Ingress, of any number in Istio.
        let claims = reader.claims_above(&twin);
        all.extend(istio::claims_to(reader, &twin, &claims));
    }
    all.into_iter().min_by(|a, b| a.age().cmp(&b.age()))
}

/// The narrowest wildcard above a host that ends TLS for it, at each listener but its own, where
/// TLS is ended for the host itself; and those that are too young to.
pub fn shades(
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
    for pattern in above(host) {
        for shade in ends_of(reader, shared, &pattern) {
            let listener = &shade.listener;
            let is_at = |known: &Shade| known.listener == *listener;
            if own.contains(listener) || found.shades.iter().any(is_at) {
                continue;
            }
            if is_younger(reader, shared, &shade, (claims, owner)) {
                if !found.younger.iter().any(is_at) {
                    found.younger.push(shade);
                }
            } else {
                found.shades.push(shade);
            }
        }
    }
    found
}

/// Whether a wildcard of another namespace came after a host and has no say on its HTTPS: neither
/// the operator nor the owner of the host lets it, and it would take something from the host.
fn is_younger(
    reader: &mut Reader<'_>,
    shared: &Shared,
    shade: &Shade,
    (claims, owner): (&Claims, Option<&Claim>),
) -> bool {
    let Some(owner) = owner else {
        return false;
    };
    let namespace = owner.key.namespace();
    let is_let = reader.settings().wildcard_sharing.contains(namespace);
    if shade.claim.is_of(namespace) || is_let || shade.claim.age() < owner.age() {
        return false;
    }
    if !shade.admits(namespace) {
        return true;
    }
    // What is shared with the namespace adds HTTPS to a host that has none without it.
    if !shade.is_passing && !has_default(reader, shared, &shade.listener) {
        return false;
    }
    let key = &shade.claim.key;
    let named = istio::named_by_owner(reader, claims, Some(owner));
    key.kind != ObjectKind::IstioGateway || !named.contains(key.id())
}

/// Whether a listener shows the default certificate for names that no domain covers.
pub fn has_default(reader: &Reader<'_>, shared: &Shared, listener: &Name) -> bool {
    shared.default_certificate.is_some()
        && *listener == shared.tls_listeners[0]
        && reader.view().is_ingress()
}

/// The listeners where TLS is ended for a wildcard, or handshakes are handed on, with the object
/// that says so.
fn ends_of(reader: &mut Reader<'_>, shared: &Shared, pattern: &Host) -> Vec<Shade> {
    let claims = reader.claims_above(pattern);
    if claims.ingresses.is_empty() && claims.gateways.is_empty() && claims.services.is_empty() {
        return Vec::new();
    }
    let mut claimants = match pattern.pattern() {
        // TLS is never ended by an Ingress for names that nobody claims.
        Pattern::Any => Vec::new(),
        _ => ingress::gather(reader, &claims.ingresses),
    };
    let owner = match pattern.pattern() {
        Pattern::Any => None,
        _ => owner(reader, pattern, &claimants, &claims),
    };
    claimants.retain(|known| owner.as_ref().is_none_or(|it| it.is_of(known.namespace())));
    let mut found: Vec<Shade> = Vec::new();
    if let Some(known) = ingress::tls_claimant(pattern, &claimants) {
        found.extend(shared.tls_listeners.iter().map(|listener| Shade {
            listener: listener.clone(),
            pattern: pattern.clone(),
            claim: Claim::of(&known.ingress.meta),
            admitted: known.options.wildcard_sharing.to_vec(),
            is_passing: false,
        }));
    }
    for site in istio::own_sites(reader, pattern, &claims, owner.as_ref()) {
        let ends = istio::tls_ends(reader, &site, pattern).into_iter();
        found.extend(ends.map(|end| Shade {
            listener: end.listener,
            pattern: pattern.clone(),
            claim: Claim::of(&site.meta),
            admitted: end.admitted,
            is_passing: end.is_passing,
        }));
    }
    for (service, listeners) in istio::passed_on(reader, pattern, &claims, owner.as_ref()) {
        for listener in listeners {
            // A Gateway for the wildcard says who else may answer there.
            if !found.iter().any(|known| known.listener == listener) {
                found.push(Shade {
                    listener,
                    pattern: pattern.clone(),
                    claim: Claim::of(&service.meta),
                    admitted: Vec::new(),
                    is_passing: true,
                });
            }
        }
    }
    found.sort_by(|a, b| a.claim.age().cmp(&b.claim.age()));
    for shade in &mut found {
        let everywhere = reader.settings().wildcard_sharing.iter();
        let everywhere = everywhere.map(|namespace| Box::<str>::from(namespace.as_str()));
        shade.admitted.extend(everywhere);
    }
    found
}

/// The wildcards that cover a host, without itself, the narrowest first.
fn above(host: &Host) -> Vec<Host> {
    let mut found = Vec::new();
    if let Pattern::Exact(name) = host.pattern()
        && let Some((_, parent)) = name.split_once('.')
    {
        found.extend(Host::parse(&format!("*.{parent}")));
    }
    found.extend(istio::broader(host));
    found
}

/// The wildcard of any number of labels that is written alike.
pub fn twin(host: &Host) -> Option<Host> {
    match host.pattern() {
        Pattern::OneLabel(suffix) => Host::parse(&format!("**{suffix}")).ok(),
        _ => None,
    }
}

/// The name under which hosts ask for the claims to a wildcard; none for a host that is none.
pub fn suffix_of(pattern: &Host) -> Option<&str> {
    match pattern.pattern() {
        Pattern::Any => Some(""),
        Pattern::OneLabel(suffix) | Pattern::AnyLabels(suffix) => Some(suffix),
        Pattern::Exact(_) => None,
    }
}

/// The listeners among some that are open to a namespace.
pub fn open_to(listeners: &Arc<[Name]>, shades: &[Shade], namespace: &str) -> Arc<[Name]> {
    let is_open = |listener: &Name| {
        let mut shades = shades.iter();
        !shades.any(|shade| shade.listener == *listener && !shade.admits(namespace))
    };
    match listeners.iter().all(is_open) {
        true => listeners.clone(),
        false => listeners.iter().filter(|it| is_open(it)).cloned().collect(),
    }
}
