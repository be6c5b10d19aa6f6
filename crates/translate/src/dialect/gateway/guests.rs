//! Routes at listeners of other namespaces than their own, and the wildcards that they have there.
//!
//! A listener that takes routes of others is often the operator's, who may answer for every host.
//! The author of a route there is not the operator: for what is below a wildcard, or for hosts that
//! nobody names, it answers in the name of its own namespace. It says so by claims to seats of the
//! listener, so that the unit of the wildcard opens no route: one has the namespaces, where all
//! routes of one of them are one claim, and one the routes of each by age.

use std::sync::Arc;

use myriad_api::gateway::Listener;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::{Host, host::Pattern};

use super::attach::Attached;
use super::entity::host_of;
use super::facts::GatewayFact;
use super::host::{Entrant, answers_unnamed, is_unnamed_admitted};
use super::route::RouteObject;
use super::standing::Mode;
use crate::dialect::istio::End;
use crate::engine::{Reader, Stake, StakeClaim};
use crate::resolve::{Claim, Deed, EVERYBODY, suffix_of};

/// The most namespaces with routes for a wildcard at listeners of others that are read, each
/// counted at each listener. Where there are more, somebody unknown is among them.
const GUESTS_READ_MAX: usize = 64;

/// The claims of a route that it has wildcards at a listener of another namespace, whose proxies
/// are those of all.
pub(super) fn stakes(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    attached: &Attached,
) -> Vec<Stake> {
    let standing = &attached.standing;
    let Some(listener) = attached.listener() else {
        return Vec::new();
    };
    if standing.mode != Mode::Shared || !standing.is_of_another(route.key().namespace()) {
        return Vec::new();
    }
    let Ok(own) = host_of(listener) else {
        return Vec::new();
    };
    let key = route.key();
    let namespace = key.namespace();
    // Who may not answer for hosts that nobody names has no rows for them.
    let is_unnamed = is_unnamed_admitted(reader.settings(), namespace);
    let of = standing.entity.key();
    let mut stakes = Vec::new();
    for (pattern, since) in attached.aged_hosts() {
        let is_meant = match pattern.pattern() {
            Pattern::Any => is_unnamed,
            _ => suffix_of(pattern).is_some(),
        };
        if !is_meant {
            continue;
        }
        let of_listener = reader.noted_api_claim(standing.entity.meta(), &own).since();
        let by_age = StakeClaim {
            order: 0,
            created: of_listener.max(since),
            id: key.id().clone(),
            value: key.kind as u32,
        };
        let once = StakeClaim {
            order: 0,
            created: 0,
            id: namespace.into(),
            value: 0,
        };
        let seats = [("", once), (namespace, by_age)];
        stakes.extend(seats.map(|(whose, claim)| Stake {
            seat: seat(reader, (of, listener), pattern, whose),
            claim,
        }));
    }
    stakes
}

/// The deeds of routes at listeners of other namespaces for the hosts below a wildcard, once for
/// each of their namespaces.
pub(crate) fn deeds(
    reader: &mut Reader<'_>,
    pattern: &Host,
    entrants: &[Entrant],
) -> Vec<(Claim, End)> {
    let mut found = Vec::new();
    let mut left = GUESTS_READ_MAX;
    for entrant in entrants {
        let standing = &entrant.standing;
        let is_any = pattern.pattern() == Pattern::Any;
        if standing.mode != Mode::Shared || is_any && !answers_unnamed(reader, entrant) {
            continue;
        }
        for entry in &entrant.entries {
            let Some(listener) = standing.entity.listeners().get(entry.at) else {
                continue;
            };
            let place = (standing.entity.key(), listener);
            let deed = match *listener.protocol == *"TLS" {
                true => Deed::PassesOn,
                false => Deed::Answers,
            };
            let claims = claims(reader, place, pattern, &mut left).into_iter();
            found.extend(claims.map(|claim| {
                let end = End {
                    listener: entry.socket.clone(),
                    // As what a listener answers: that of the operator's own is let by it.
                    admitted: [Box::<str>::from(EVERYBODY)].into_iter().collect(),
                    deed,
                    is_borrowed: false,
                };
                (claim, end)
            }));
        }
    }
    found
}

/// The claims of the namespaces whose routes have a wildcard at a listener of another one: each as
/// old as the oldest of its routes. That of somebody unknown stands for those that are not read.
fn claims(
    reader: &mut Reader<'_>,
    (of, listener): (&ObjectKey, &Listener),
    pattern: &Host,
    left: &mut usize,
) -> Vec<Claim> {
    let all = seat(reader, (of, listener), pattern, "");
    let namespaces = reader.first_claims(all, *left + 1);
    let is_more = namespaces.len() > *left;
    let mut claims = Vec::new();
    for namespace in namespaces.iter().take(*left) {
        let own = seat(reader, (of, listener), pattern, &namespace.id);
        let oldest = reader.seat(own);
        claims.extend(oldest.and_then(claim_of));
    }
    *left = left.saturating_sub(namespaces.len());
    claims.extend(is_more.then(unknown));
    claims
}

/// The claim of a route, by its claim to a seat.
fn claim_of(stake: StakeClaim) -> Option<Claim> {
    let mut kinds = [
        ObjectKind::HttpRoute,
        ObjectKind::GrpcRoute,
        ObjectKind::TlsRoute,
    ]
    .into_iter();
    let kind = kinds.find(|kind| *kind as u32 == stake.value)?;
    let key = ObjectKey::from_id(kind, stake.id);
    Some(Claim::unnamed(key).no_earlier(stake.created))
}

/// The claim of nobody's route, younger than any.
fn unknown() -> Claim {
    let id: Arc<str> = "/others".into();
    Claim::unnamed(ObjectKey::from_id(ObjectKind::HttpRoute, id)).no_earlier(i64::MAX)
}

/// The seat of the namespaces with routes for a wildcard at a listener, or of the routes of one.
fn seat(
    reader: &Reader<'_>,
    (of, listener): (&ObjectKey, &Listener),
    pattern: &Host,
    whose: &str,
) -> u64 {
    let of: (ObjectKind, &str) = (of.kind, of.id());
    reader.hash(GatewayFact::GuestSeat(
        of,
        &listener.name,
        pattern.as_str(),
        whose,
    ))
}
