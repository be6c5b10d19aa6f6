//! One host as Gateways, ListenerSets and routes see it.
//!
//! A Gateway or a ListenerSet claims the hosts of its listeners, and by a route that enters there
//! also those of the route, as young as the younger of both. All routes that one object lets in are
//! on the host together, of whatever namespaces they are.

use std::collections::BTreeMap;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::host::Pattern;
use myriad_model::{Host, Name};

use super::allowed;
use super::entity::{host_of, terminates};
use super::entries::{self, EnteredListener};
use super::ports::{self, Placement};
use super::standing::{self, GatewayStanding, Mode};
use crate::dialect::istio::End;
use crate::engine::{PortSpeech, Reader};
use crate::resolve::names::{each_broader, written};
use crate::resolve::{Above, Claim, Claims, Deed, EVERYBODY, Namespaces};
use crate::settings::Settings;

/// The most objects with listeners for one host that are looked at, the oldest of each namespace
/// first, so that nobody hides those of another by many. There are so many for hosts that nobody
/// names, and hardly for any other: of each namespace that is had by one Gateway at each socket.
const ENTITIES_READ_MAX: usize = 256;

/// A Gateway or a ListenerSet on a host.
#[derive(Clone, Debug)]
pub(crate) struct Entrant {
    /// The object.
    pub standing: GatewayStanding,
    /// Its claim to the host.
    pub claim: Claim,
    /// The listeners by which the host is entered, each once.
    pub entries: Vec<HostListener>,
}

/// A listener by which a host is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostListener {
    /// The place of the listener in its object.
    pub at: usize,
    /// The socket.
    pub socket: Name,
    /// The words on the wire.
    pub speech: PortSpeech,
    /// The host of the listener: this one or a broader one.
    pub cover: Host,
}

impl Entrant {
    /// Whether the proxies of the view are those of all.
    fn is_shared(&self) -> bool {
        self.standing.mode == Mode::Shared
    }
}

/// The Gateways and ListenerSets on a host that the proxies of the view serve, the oldest first,
/// and whether routes may enter it by more than were looked at.
pub(crate) fn gather(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
) -> (Vec<Entrant>, bool) {
    let mut found: Vec<Entrant> = Vec::new();
    for key in oldest_entities(reader, host, claims) {
        let Ok(standing) = standing::of(reader, &key) else {
            continue;
        };
        if !standing.is_served(reader) {
            continue;
        }
        let listeners = standing.entity.listeners().iter().enumerate();
        let own = listeners.filter(|(_, it)| host_of(it).as_ref() == Ok(host));
        let places = own.filter_map(|(at, _)| {
            let place = ports::find(reader, &standing, at).ok()?;
            is_named(&place).then(|| entry(at, place))
        });
        let entries: Vec<HostListener> = places.collect();
        if !entries.is_empty() {
            let claim = reader.claim(standing.entity.meta(), host);
            found.push(Entrant {
                standing,
                claim,
                entries,
            });
        }
    }
    let mut may_be_more = false;
    if !claims.routes.is_empty() {
        let (entered, is_cut) = entries::find(reader, host, claims);
        may_be_more = is_cut;
        for entered in entered {
            add(&mut found, entered);
        }
    }
    found.sort_by(|a, b| a.claim.age().cmp(&b.claim.age()));
    (found, may_be_more)
}

/// The objects with listeners that have the oldest claims to a host, of namespaces in turns. The
/// oldest of each namespace goes first, so that no guess at who has the host leaves its owner out,
/// and then those whose namespace may well have it. Of those for hosts that nobody names the ones
/// that may answer for them go first.
fn oldest_entities(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Vec<ObjectKey> {
    let keys = &claims.entities;
    if keys.len() <= ENTITIES_READ_MAX {
        return keys.to_vec();
    }
    let is_any = host.pattern() == Pattern::Any;
    let likely = match is_any {
        true => Vec::new(),
        false => likely_owners(reader, host, claims),
    };
    let mut counts: BTreeMap<Box<str>, usize> = BTreeMap::new();
    let claims = by_age(reader, host, keys).into_iter().map(|claim| {
        let namespace = claim.key.namespace();
        let count = counts.entry(namespace.into()).or_default();
        *count += 1;
        let is_behind = match is_any {
            true => !may_be_unnamed(reader, namespace),
            false => !likely.iter().any(|it| **it == *namespace),
        };
        // Few namespaces may have what nobody names, and claims of all others are in vain.
        let is_further = !is_any && *count > 1;
        ((is_further, is_behind, *count), claim)
    });
    let mut claims: Vec<((bool, bool, usize), Claim)> = claims.collect();
    // Those of one place stay by age.
    claims.sort_by_key(|(place, _)| *place);
    claims.truncate(ENTITIES_READ_MAX);
    claims.into_iter().map(|(_, claim)| claim.key).collect()
}

/// The namespaces that may well have a host: the one that has proven it, that of the oldest claim,
/// and that of the oldest which is not by a route: a claim of a route may be in vain.
fn likely_owners(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Vec<Box<str>> {
    let proven = match reader.settings().host_proof {
        Some(_) => reader.proven_by(host),
        None => None,
    };
    let oldest = entries::oldest(reader, host, claims, |_| true);
    let other = entries::oldest(reader, host, claims, |kind| !entries::is_route(kind));
    let oldest = [oldest, other].into_iter().flatten();
    let oldest = oldest.map(|claim| claim.key.namespace().into());
    proven.into_iter().chain(oldest).collect()
}

/// The claims of objects to a host, the oldest first.
fn by_age(reader: &Reader<'_>, host: &Host, keys: &[ObjectKey]) -> Vec<Claim> {
    let keys = keys.iter();
    let claims = keys.filter_map(|key| reader.claim_of(key.kind, key.id(), host));
    let mut claims: Vec<Claim> = claims.collect();
    claims.sort_unstable_by(|a, b| a.age().cmp(&b.age()));
    claims
}

/// The finding about the oldest of the objects with listeners for a host that are beyond the bound.
pub(crate) fn overlooked(reader: &mut Reader<'_>, host: &Host) -> Option<Finding> {
    let claims = reader.claims();
    let keys = &claims.entities;
    let count = keys.len().checked_sub(ENTITIES_READ_MAX)?;
    let read = oldest_entities(reader, host, &claims);
    let claims = by_age(reader, host, keys).into_iter();
    let first = claims
        .map(|claim| claim.key)
        .find(|key| !read.contains(key))?;
    // An error, so that it is told before all those about hosts that nobody names.
    Some(Finding::new(
        Severity::Error,
        &first,
        "spec.listeners",
        format!(
            "is the oldest of {count} objects beyond the {ENTITIES_READ_MAX} that may have \
             listeners for {}, so it does not answer for it",
            written(host)
        ),
        "name hosts at listeners",
    ))
}

/// Adds a listener by which routes enter a host to its object.
fn add(found: &mut Vec<Entrant>, entered: EnteredListener) {
    let EnteredListener {
        standing,
        claim,
        at,
        place,
    } = entered;
    let entry = entry(at, place);
    let key = standing.entity.key();
    let known = found.iter_mut().find(|it| it.standing.entity.key() == key);
    match known {
        Some(known) => {
            if claim.is_before(&known.claim) {
                known.claim = claim;
            }
            if !known.entries.contains(&entry) {
                known.entries.push(entry);
            }
        }
        None => found.push(Entrant {
            standing,
            claim,
            entries: vec![entry],
        }),
    }
}

fn entry(at: usize, place: Placement) -> HostListener {
    HostListener {
        at,
        socket: place.socket.name(),
        speech: place.speech,
        cover: place.host,
    }
}

/// Whether what comes to a listener has names.
fn is_named(place: &Placement) -> bool {
    matches!(place.speech, PortSpeech::Http | PortSpeech::Tls)
}

/// The oldest claim among objects on a host. Hosts that nobody names are nobody's.
pub(crate) fn oldest_claim<'a>(
    host: &Host,
    entrants: impl Iterator<Item = &'a Entrant>,
) -> Option<Claim> {
    let claims = entrants.map(|entrant| &entrant.claim);
    let oldest = claims.min_by(|a, b| a.age().cmp(&b.age()));
    oldest.filter(|_| host.pattern() != Pattern::Any).cloned()
}

/// Takes out the objects of others than the owner of a host, and returns their claims.
pub(crate) fn leave_strangers(
    host: &Host,
    owner: &Claim,
    entrants: &mut Vec<Entrant>,
) -> Vec<Claim> {
    if host.pattern() == Pattern::Any {
        return Vec::new();
    }
    let is_stranger = |it: &mut Entrant| !owner.is_of(it.claim.key.namespace());
    let strangers = entrants.extract_if(.., is_stranger);
    strangers.map(|entrant| entrant.claim).collect()
}

/// Takes the sockets by which a host is entered out of those where others must not answer for it:
/// what answers there is known by the part of the socket.
pub(crate) fn leave_entered(entrants: &[Entrant], above: &mut Above) {
    let entries = entrants.iter().flat_map(|entrant| &entrant.entries);
    let sockets: Vec<&Name> = entries.map(|entry| &entry.socket).collect();
    above
        .strangers
        .retain(|shade| !sockets.contains(&&shade.listener));
    above.astray.retain(|listener| !sockets.contains(&listener));
}

/// The sockets where TLS comes to listeners that name exactly this host.
pub(crate) fn tls_sockets(host: &Host, entrants: &[Entrant]) -> Vec<Name> {
    let entries = entrants.iter().flat_map(|entrant| &entrant.entries);
    let own = entries.filter(|entry| entry.speech == PortSpeech::Tls && entry.cover == *host);
    own.map(|entry| entry.socket.clone()).collect()
}

/// The deeds of objects for the hosts below a wildcard.
pub(crate) fn deeds(
    reader: &mut Reader<'_>,
    host: &Host,
    entrants: &[Entrant],
) -> Vec<(Claim, End)> {
    let mut found = Vec::new();
    for entrant in entrants {
        if host.pattern() == Pattern::Any && !answers_unnamed(reader, entrant) {
            continue;
        }
        for entry in &entrant.entries {
            let Some(listener) = entrant.standing.entity.listeners().get(entry.at) else {
                continue;
            };
            let mut deeds: Vec<(Deed, bool)> = Vec::new();
            if entry.speech == PortSpeech::Tls && entry.cover == *host {
                let deed = match terminates(listener) {
                    true => Deed::EndsTls,
                    false => Deed::PassesOn,
                };
                deeds.push((deed, allowed::is_for_all(listener)));
            }
            if *listener.protocol != *"TLS" {
                deeds.push((Deed::Answers, true));
            }
            let ends = deeds.into_iter().map(|(deed, is_for_all)| End {
                listener: entry.socket.clone(),
                admitted: match is_for_all {
                    true => [Box::<str>::from(EVERYBODY)].into_iter().collect(),
                    false => Namespaces::default(),
                },
                deed,
                is_borrowed: false,
            });
            found.extend(ends.map(|end| (entrant.claim.clone(), end)));
        }
    }
    found
}

/// Whether an object may answer for hosts that nobody names: its proxies are its own, or its
/// namespace is one that may.
pub(crate) fn answers_unnamed(reader: &Reader<'_>, entrant: &Entrant) -> bool {
    !entrant.is_shared() || may_be_unnamed(reader, entrant.claim.key.namespace())
}

/// Whether objects of a namespace may answer for hosts that nobody names, at proxies that are those
/// of all.
pub(super) fn may_be_unnamed(reader: &Reader<'_>, namespace: &str) -> bool {
    reader.view().is_of(namespace) || is_unnamed_admitted(reader.settings(), namespace)
}

/// Whether the settings let objects of a namespace answer for hosts that nobody names.
pub(super) fn is_unnamed_admitted(settings: &Settings, namespace: &str) -> bool {
    settings.catch_all_namespaces.admits(namespace) && settings.may_claim(namespace, &Host::any())
}

/// Whether a listener for a broader host needs a domain of the host itself: the broader one is not
/// its own, or what stands between them is another's.
pub(crate) fn needs_domain(
    reader: &mut Reader<'_>,
    host: &Host,
    (entrant, entry): (&Entrant, &HostListener),
    is_below_others: bool,
) -> bool {
    if entry.cover == *host {
        return true;
    }
    if !entrant.is_shared() || is_governed(reader, host, entrant, entry) {
        return false;
    }
    let is_unnamed = entry.cover.pattern() == Pattern::Any && !answers_unnamed(reader, entrant);
    is_below_others
        || is_unnamed
        || !ports::has_shared(reader, &entrant.standing, &entry.socket, &entry.cover)
}

/// Whether another listener of the same Gateway stands between a listener and a host, whose routes
/// alone answer for it then. That of others for the host itself does not have it, and one for a
/// wildcard takes no host that is older.
fn is_governed(
    reader: &mut Reader<'_>,
    host: &Host,
    entrant: &Entrant,
    entry: &HostListener,
) -> bool {
    let listeners = entrant.standing.entity.listeners();
    let Some(port) = listeners.get(entry.at).map(|listener| listener.port) else {
        return false;
    };
    let above = each_broader(host).take_while(|it| *it != entry.cover);
    let between: Vec<Host> = std::iter::once(host.clone()).chain(above).collect();
    let mut is_governed = false;
    for pattern in &between {
        let place = ((port, entry.speech as u8), pattern);
        let since = (pattern != host).then(|| entrant.claim.since());
        is_governed |= ports::governs(reader, &entrant.standing, place, since);
    }
    is_governed
}

/// The finding about a listener for hosts that nobody names, which may not answer for them.
pub(crate) fn no_catch_all(entrant: &Entrant, entry: &HostListener) -> Finding {
    let key = &entrant.claim.key;
    Finding::new(
        Severity::Warning,
        key,
        format!("spec.listeners[{}].hostname", entry.at),
        format!(
            "names no host, and --catch-all-namespaces does not list namespace {}: it answers for \
             the hosts that routes name alone",
            key.namespace()
        ),
        "name a host, list the namespace, or let routes name theirs",
    )
}

/// The finding about a route for hosts that nobody names, at a listener of another namespace whose
/// proxies are those of all, which may not answer for them.
pub(super) fn no_catch_all_by(key: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Warning,
        key,
        "spec.hostnames",
        format!(
            "names no host at a listener without one, and --catch-all-namespaces does not list \
             namespace {}: it has no effect there",
            key.namespace()
        ),
        "name hosts, or list the namespace",
    )
}
