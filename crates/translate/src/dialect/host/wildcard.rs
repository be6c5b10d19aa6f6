//! Deeds for the names below a wildcard, and its certificate, found once for all hosts below it.
//!
//! A wildcard may have many Gateways, VirtualServices and hosts below it. The unit of the wildcard
//! reads all of those objects and tells the hosts when they mean something else; a host reads what
//! they meant when that unit ran last. So neither the time nor the facts of a host grow with the
//! objects above it, and nobody but the owner of those objects is charged for reading them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::{Host, Name, host::Pattern};

use super::ownership::owner;
use crate::dialect::{gateway, ingress, istio};
use crate::engine::{Meaning, Noted, Output, Reader, Shared, Told, Unit};
use crate::resolve::{
    Claim, Claims, Deed, EVERYBODY, Found, Namespaces, Provided, Shade, suffix_of,
};
use crate::settings::{HostSharing, Settings};

/// Whether no wildcard keeps anything from the hosts of others, or takes anything.
pub(super) fn are_all_shared(settings: &Settings) -> bool {
    let is_shared = settings.host_sharing == HostSharing::Cluster;
    is_shared || settings.wildcard_sharing.contains(EVERYBODY)
}

/// The deeds for the names below a wildcard, as a host below it reads them; none where there are
/// none in any view.
pub(super) fn read(reader: &mut Reader<'_>, shared: &Shared, pattern: &Host) -> Option<Arc<Found>> {
    reader.note_above(pattern);
    let found = match reader.meaning::<Found>(&Unit::host_of(pattern.clone())) {
        Told::Nothing => return None,
        Told::Here(found) => found,
        Told::Elsewhere => {
            // Where its unit did not run it has no rules that hand handshakes on.
            let none = istio::Passers::new();
            let (deeds, noted) = reader.apart(|reader| deeds(reader, shared, pattern, &none));
            Arc::new(found(deeds, noted, None))
        }
    };
    reader.note_asked(&found.asked);
    Some(found)
}

/// The meaning of a wildcard to the hosts below it, of which this is the output. It reads whatever
/// they would read.
pub(super) fn meaning(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    output: &Output,
) -> Option<Meaning> {
    suffix_of(host)?;
    let provided = provided(reader, host, output);
    let are_shared = are_all_shared(reader.settings());
    if are_shared && provided.is_none() {
        return None;
    }
    let (deeds, noted) = reader.apart(|reader| match are_shared {
        true => Vec::new(),
        false => deeds(reader, shared, host, &istio::passers(output, host)),
    });
    reader.note_all(&noted);
    let hash = match deeds.is_empty() && provided.is_none() {
        true => 0,
        false => reader.stored().hasher().hash((&deeds, &provided)),
    };
    let value = Arc::new(found(deeds, noted, provided));
    Some(Meaning { hash, value })
}

fn found(deeds: Vec<Shade>, noted: Noted, provided: Option<Provided>) -> Found {
    Found {
        deeds: deeds.into(),
        provided,
        asked: noted.asked_alone(),
    }
}

/// The certificate of a wildcard that an issuer has provided for an Ingress: it is there, it covers
/// the hosts below, and it is renewed.
fn provided(reader: &mut Reader<'_>, host: &Host, output: &Output) -> Option<Provided> {
    let wishes = output.wishes.iter();
    let mut wishes = wishes.filter(|it| it.object.kind == ObjectKind::Ingress);
    let first = wishes.clone().find(|wish| !wish.is_second)?;
    let names = reader.secret_names(&first.secret)?;
    names.cover(host).then(|| Provided {
        secret: first.secret.clone(),
        second: wishes
            .find(|wish| wish.is_second)
            .map(|wish| wish.secret.clone()),
        issuer: first.issuer.clone(),
    })
}

/// Deeds as they are gathered: of those that nobody tells apart, the oldest.
#[derive(Default)]
struct Gathered {
    shades: Vec<Shade>,
    places: HashMap<Likeness, usize>,
    /// The listeners where handshakes are taken, with the namespaces whose objects do so.
    taken: HashMap<Name, HashSet<Box<str>>>,
}

/// The key by which deeds are told apart: listener, deed, owner, who may answer there too, and
/// whether they are those of guests.
type Likeness = (Name, Deed, Arc<str>, Namespaces, bool);

impl Gathered {
    fn add(&mut self, shade: Shade) {
        let key = &shade.claim.key;
        // A Gateway may be let in by its name.
        let whose = match key.kind {
            ObjectKind::IstioGateway => key.id().clone(),
            _ => key.namespace().into(),
        };
        if !shade.deed.is_within() && !shade.is_of_guest {
            let taken = self.taken.entry(shade.listener.clone()).or_default();
            taken.insert(key.namespace().into());
        }
        let (listener, admitted) = (shade.listener.clone(), shade.admitted.clone());
        let likeness = (listener, shade.deed, whose, admitted, shade.is_of_guest);
        match self.places.entry(likeness) {
            Entry::Vacant(place) => {
                place.insert(self.shades.len());
                self.shades.push(shade);
            }
            Entry::Occupied(place) => {
                let known = &mut self.shades[*place.get()];
                if shade.claim.is_before(&known.claim) {
                    *known = shade;
                }
            }
        }
    }

    /// Adds the deed of a VirtualService. Where a Gateway for the wildcard takes handshakes it says
    /// who else may answer there; what rules of other namespaces hand on they hand on as guests.
    fn add_of_service(&mut self, shade: Shade, passers: &istio::Passers) {
        let taken = self.taken.get(&shade.listener);
        let Some(namespaces) = taken.filter(|_| !shade.deed.is_within()) else {
            self.add(shade);
            return;
        };
        let key = &shade.claim.key;
        let passer = (key.id().clone(), shade.listener.clone());
        let is_guest = shade.deed == Deed::PassesOn
            && !namespaces.contains(key.namespace())
            && passers.contains(&passer);
        if is_guest {
            self.add(Shade {
                is_of_guest: true,
                // That of the operator is let by it, as what answers is.
                admitted: [Box::<str>::from(EVERYBODY)].into_iter().collect(),
                ..shade
            });
        }
    }
}

/// The deeds for the names below a wildcard, at each listener, the oldest first.
fn deeds(
    reader: &mut Reader<'_>,
    shared: &Shared,
    pattern: &Host,
    passers: &istio::Passers,
) -> Vec<Shade> {
    let claims = reader.claims_above(pattern);
    let is_istio = !claims.gateways.is_empty() || !claims.services.is_empty();
    if claims.ingresses.is_empty() && !is_istio && !claims.are_of_api() {
        return Vec::new();
    }
    let (mut entrants, _) = gateway::gather(reader, pattern, &claims);
    let mut found = Gathered::default();
    let owner = match pattern.pattern() {
        Pattern::Any => {
            of_default_backends(reader, shared, pattern, &claims, &mut found);
            None
        }
        _ => of_ingresses(reader, shared, pattern, (&claims, &*entrants), &mut found),
    };
    if let Some(owner) = &owner {
        drop(gateway::leave_strangers(pattern, owner, &mut entrants));
    }
    for (claim, end) in gateway::deeds(reader, pattern, &entrants) {
        found.add(shade(pattern, (claim, owner.as_ref()), end));
    }
    for (claim, end) in gateway::deeds_of_guests(reader, pattern, &entrants) {
        found.add(Shade {
            is_of_guest: true,
            ..shade(pattern, (claim, owner.as_ref()), end)
        });
    }
    let sites = istio::own_sites(reader, pattern, &claims, owner.as_ref());
    for gateway in &sites {
        let claim = reader.claim(&gateway.meta, pattern);
        for end in istio::deeds_of_gateway(reader, gateway, pattern) {
            found.add(shade(pattern, (claim.clone(), owner.as_ref()), end));
        }
    }
    let whose = (owner.as_ref(), &*sites);
    let services = istio::services_of(reader, &claims, whose).into_iter();
    let mut services: Vec<_> = services
        .map(|service| {
            let claim = istio::claim_of_service(reader, pattern, &service);
            (claim, service)
        })
        .collect();
    services.sort_by(|(a, _), (b, _)| a.age().cmp(&b.age()));
    let mut ways = istio::Ways::default();
    for (claim, service) in services {
        for end in istio::deeds_of_service(reader, &mut ways, &service, pattern) {
            let shade = shade(pattern, (claim.clone(), owner.as_ref()), end);
            found.add_of_service(shade, passers);
        }
    }
    for (claim, end) in istio::deeds_of_broader(reader, pattern, whose) {
        let shade = shade(pattern, (claim, owner.as_ref()), end);
        found.add_of_service(shade, passers);
    }
    let mut found = found.shades;
    found.sort_by(|a, b| a.claim.age().cmp(&b.claim.age()));
    let everywhere = &reader.settings().wildcard_sharing;
    for shade in found.iter_mut().filter(|_| !everywhere.is_empty()) {
        let everywhere = everywhere.iter();
        let everywhere = everywhere.map(|namespace| Box::<str>::from(namespace.as_str()));
        shade.admitted = shade.admitted.and(everywhere);
    }
    found
}

fn shade(pattern: &Host, (claim, owner): (Claim, Option<&Claim>), end: istio::End) -> Shade {
    let borrower = end.is_borrowed.then(|| owner.unwrap_or(&claim).clone());
    Shade {
        borrower,
        listener: end.listener,
        pattern: pattern.clone(),
        claim,
        admitted: end.admitted,
        deed: end.deed,
        is_of_guest: false,
    }
}

/// The deeds of Ingresses for a wildcard, and whose it is.
fn of_ingresses(
    reader: &mut Reader<'_>,
    shared: &Shared,
    pattern: &Host,
    (claims, entrants): (&Claims, &[gateway::Entrant]),
    found: &mut Gathered,
) -> Option<Claim> {
    let mut contenders = ingress::contenders(reader, pattern, &claims.ingresses);
    let owner = owner(reader, pattern, &contenders, (claims, entrants));
    if let Some(owner) = &owner {
        drop(ingress::leave_strangers(owner, &mut contenders));
    }
    let claimants = ingress::gather(reader, &contenders);
    let mut add = |known: &ingress::Claimant, deed, listeners: &[Name]| {
        let claim = reader.claim(&known.ingress.meta, pattern);
        for listener in listeners {
            found.add(Shade {
                listener: listener.clone(),
                pattern: pattern.clone(),
                claim: claim.clone(),
                admitted: known.options.wildcard_sharing.clone(),
                deed,
                borrower: None,
                is_of_guest: false,
            });
        }
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
    found: &mut Gathered,
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
        for listener in shared.listeners.iter() {
            found.add(Shade {
                listener: listener.clone(),
                pattern: pattern.clone(),
                claim: claim.clone(),
                admitted: [Box::<str>::from(EVERYBODY)].into_iter().collect(),
                deed: Deed::Answers,
                borrower: None,
                is_of_guest: false,
            });
        }
    }
}
