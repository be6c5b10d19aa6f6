//! The wildcards above a host, and which of them may answer for it.
//!
//! The claimant of a host has it alone: a wildcard of another namespace answers for it, in
//! handshakes or requests, only where it was there before the host, or where the operator or the
//! owner of the host says so. What is older keeps the HTTPS of the hosts below it that have no
//! certificate of their own: nobody answers in its name by its certificate unless its owner says
//! so. A certificate beside the gateway's workload counts as that of another namespace only where
//! it is lent to it: it may well be the wildcard's. What claims no host at all, a server or rule
//! for `*`, never answers for one that is claimed. Routes of Gateway API at a listener of another
//! namespace answer beside whatever else does there, and nobody tells them apart: a listener
//! answers for the host where all of them may. The same goes for handshakes that rules of a
//! VirtualService hand on where the Gateway of another namespace lets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::ObjectKind;
use myriad_model::{Host, Name, host::Pattern};

use super::wildcard;
use crate::dialect::istio;
use crate::engine::{Reader, Shared};
use crate::resolve::{Above, Claim, Claims, Deed, Found, Shade, names};
use crate::settings::CatchAll;

/// A host, and on whose behalf wildcards are weighed.
struct Below<'a> {
    owner: Option<&'a Claim>,
    /// The Gateways that VirtualServices of the owner name.
    named: Vec<Arc<str>>,
}

/// The ends of TLS for a host itself.
pub(crate) struct Ends<'a> {
    /// The Gateways that matter to it.
    pub sites: &'a [istio::Site],
    /// The listeners where an Ingress does.
    pub by_ingress: &'a [Name],
    /// The listeners where objects of Gateway API do.
    pub by_gateway: Vec<Name>,
}

/// The claims that would be answered at each listener, by wildcard, the narrowest first.
type Answering<'a> = BTreeMap<(&'a Name, Deed), Vec<Vec<&'a Shade>>>;

/// The effects of the wildcards above a host, but for handshakes at its own listeners, where TLS is
/// ended for the host itself.
pub(crate) fn find(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    (claims, owner): (&Claims, Option<&Claim>),
    ends: &Ends<'_>,
) -> Above {
    let mut found = Above::default();
    if wildcard::are_all_shared(reader.settings()) {
        return found;
    }
    let below = Below {
        owner,
        named: istio::named_by_owner(reader, claims, owner),
    };
    let patterns = wildcards_above(host);
    let patterns = patterns.iter();
    let patterns: Vec<Arc<Found>> = patterns
        .filter_map(|pattern| wildcard::read(reader, shared, pattern))
        .collect();
    let holders = holders(&patterns);
    let is_keeper = |it: &&&Shade| owner.is_some_and(|owner| it.keeps_from(owner));
    let keepers = holders.iter().filter(is_keeper);
    found.keepers = keepers.map(|it| (*it).clone()).collect();
    let mut own = istio::tls_listeners(reader, host, ends.sites, &found);
    own.extend(ends.by_ingress.iter().chain(&ends.by_gateway).cloned());
    let mut answering = Answering::new();
    for shade in patterns.iter().flat_map(|found| &*found.deeds) {
        let is_at = |known: &Shade| known.listener == shade.listener;
        // What guests do is done beside what their listener does for the same wildcard.
        let is_before =
            |known: &Shade| is_at(known) && !(shade.is_of_guest && known.pattern == shade.pattern);
        if shade.deed.is_within() {
            let place = (&shade.listener, shade.deed);
            let by_pattern = answering.entry(place).or_default();
            let last = by_pattern.last().and_then(|last| last.first());
            if last.is_none_or(|last| last.pattern != shade.pattern) {
                by_pattern.push(Vec::new());
            }
            if let Some(last) = by_pattern.last_mut() {
                last.push(shade);
            }
        } else if own.contains(&shade.listener)
            || found.shades.iter().any(is_before)
            || shade.is_kept_by(&holders)
        {
            continue;
        } else if below.lets(reader, shade) {
            if !shade.is_of_guest {
                found.shades.push(shade.clone());
            }
        } else if !found.strangers.iter().any(is_at) {
            found.strangers.push(shade.clone());
        }
    }
    for ((listener, deed), by_pattern) in answering {
        let place = (listener, deed, own.contains(listener));
        below.judge_answers(reader, place, &by_pattern, &mut found);
    }
    found
}

/// The oldest at each listener that takes handshakes for the names below each wildcard, the
/// broadest wildcard first.
fn holders(patterns: &[Arc<Found>]) -> Vec<&Shade> {
    let mut holders: Vec<&Shade> = Vec::new();
    let deeds = patterns.iter().rev().flat_map(|found| &*found.deeds);
    for shade in deeds.filter(|shade| !shade.deed.is_within() && !shade.is_of_guest) {
        let is_same = |it: &&Shade| it.listener == shade.listener && it.pattern == shade.pattern;
        if !holders.iter().any(is_same) && !shade.is_kept_by(&holders) {
            holders.push(shade);
        }
    }
    holders
}

impl Below<'_> {
    /// Notes what becomes of requests, or streams, at a listener, which the narrowest wildcard
    /// answers that does so there. Where it may not, a broader one that may would have answered
    /// without it; what is sent to HTTPS is so still.
    fn judge_answers(
        &self,
        reader: &Reader<'_>,
        (listener, deed, is_own): (&Name, Deed, bool),
        by_pattern: &[Vec<&Shade>],
        found: &mut Above,
    ) {
        let mut shades = found.shades.iter();
        let over = shades.find(|shade| shade.listener == *listener);
        let is_answered = |answering: &&Vec<&Shade>| {
            let answering: &[&Shade] = answering;
            self.is_answered(reader, answering, over, is_own)
        };
        let mut answered = by_pattern.iter().enumerate();
        let answered = answered.find(|(_, answering)| is_answered(answering));
        if by_pattern.is_empty() || answered.is_some_and(|(at, _)| at == 0) {
            return;
        }
        if deed == Deed::Streams {
            // A domain of the host goes before the streams of broader ones.
            found
                .astray_streams
                .extend((!is_own).then(|| listener.clone()));
            return;
        }
        let broader = answered.into_iter().flat_map(|(_, answering)| answering);
        let mut redirecting = broader.filter(|it| it.is_redirect() && self.lets(reader, it));
        let gateway = redirecting.next().map(|it| it.claim.key.id().clone());
        found.astray.push(listener.clone());
        found
            .redirected
            .extend(gateway.map(|gateway| (listener.clone(), gateway)));
    }

    /// Whether requests may be answered by what does so at a listener: by some of it where names
    /// are claimed, by all of it where nobody claims them, and by all guests. Where TLS ends for
    /// the host itself, nobody answers under its certificate for being older.
    fn is_answered(
        &self,
        reader: &Reader<'_>,
        answering: &[&Shade],
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
        let is_unclaimed = |shade: &&Shade| shade.pattern.pattern() == Pattern::Any;
        let is_of_all = answering.first().is_some_and(is_unclaimed);
        let mut guests = answering.iter().filter(|shade| shade.is_of_guest);
        if !guests.all(|shade| is_let(shade)) {
            return false;
        }
        let mut others = answering.iter().filter(|shade| !shade.is_of_guest);
        match is_of_all {
            true => others.all(|shade| is_let(shade)),
            false => others.any(|shade| is_let(shade)),
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
