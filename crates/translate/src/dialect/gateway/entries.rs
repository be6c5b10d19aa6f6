//! The listeners by which routes enter hosts that those do not name.
//!
//! A route says where it enters, by claims to seats of the host, so that the unit of the host opens
//! no route, of which anybody may have very many that name it. One seat has them by age: whose the
//! host is the oldest tell. Another one has those of each namespace, where all routes of a listener
//! are one claim, so that many of them leave out none of the owner's listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::Host;

use super::attach::Attached;
use super::facts::GatewayFact;
use super::hostname::covers;
use super::ports::{self, Placement};
use super::route::RouteObject;
use super::standing::{self, GatewayStanding};
use crate::engine::{Claimed, PortSpeech, Reader, Stake, StakeClaim, Unit};
use crate::resolve::{Claim, Claims};

/// The most claims of routes to a host that are read, the oldest first: nobody need know all of
/// them to know whose it is.
const CLAIMS_READ_MAX: usize = 64;

/// The most listeners of one namespace, or of all that matter together, that are read beyond them.
const LISTENERS_READ_MAX: usize = 256;

/// A listener by which a host is entered that it does not name.
pub(crate) struct EnteredListener {
    /// The object.
    pub standing: GatewayStanding,
    /// Its claim to the host by what enters there: since then, or later.
    pub claim: Claim,
    /// The place of the listener in it.
    pub at: usize,
    /// Its socket, and the host that it names.
    pub place: Placement,
}

/// The claims of a route that it enters a host at a listener for a broader one.
pub(crate) fn stakes(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    attached: &Attached,
    (own, host): (&Host, &Host),
) -> Vec<Stake> {
    let Some(listener) = attached.listener() else {
        return Vec::new();
    };
    let meta = attached.standing.entity.meta();
    let of_route = reader.noted_api_claim(route.meta(), host);
    let claim = reader.noted_api_claim(meta, own).by(&of_route);
    let since = entered_since(reader, route, (host, meta.key.namespace()));
    let claim = claim.no_earlier(since.unwrap_or(i64::MIN));
    let id: Arc<str> = format!("{},{}", meta.key.id(), listener.name).into();
    let by_age = StakeClaim {
        order: 0,
        created: claim.since(),
        id,
        value: meta.key.kind as u32,
    };
    let once = StakeClaim {
        created: 0,
        ..by_age.clone()
    };
    let of_all = reader.hash(GatewayFact::EnteredSeat(host.as_str()));
    let of_namespace = GatewayFact::EntrySeat(host.as_str(), meta.key.namespace());
    let of_namespace = reader.hash(of_namespace);
    [(of_all, by_age), (of_namespace, once)]
        .map(|(seat, claim)| Stake { seat, claim })
        .into()
}

/// Since when a route enters a host by the objects of a namespace, where that is not for as long as
/// it claims the host. The caller noted that it reads for how long.
fn entered_since(
    reader: &Reader<'_>,
    route: &RouteObject,
    (host, by): (&Host, &str),
) -> Option<i64> {
    if !reader.is_late(route.key()) {
        return None;
    }
    let entered = Claimed::Entered(host.clone(), by.into());
    reader.claimed_since(route.meta(), &entered)
}

/// The listeners by which routes enter a host on the proxies of the view, though they do not name
/// it: those of the oldest claims, and where there are more, those of whoever may have the host.
/// Also whether as many claims were read as are at most, so that there may be listeners of others.
pub(crate) fn find(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
) -> (Vec<EnteredListener>, bool) {
    let seat = reader.hash(GatewayFact::EnteredSeat(host.as_str()));
    let entering = reader.first_claims(seat, CLAIMS_READ_MAX);
    let mut found = Found::default();
    for claim in &entering {
        found.add(reader, host, claim);
    }
    let last = entering.get(CLAIMS_READ_MAX - 1);
    if let Some(last) = last {
        let since = last.created.saturating_add(1);
        add_rest(reader, (host, claims), since, &mut found);
    }
    (found.listeners, last.is_some())
}

/// The oldest claim to a host of objects of some kinds, as far as that is known without opening
/// them. An Ingress that takes a share of what others serve owns nothing.
pub(super) fn oldest(
    reader: &Reader<'_>,
    host: &Host,
    claims: &Claims,
    is_meant: impl Fn(ObjectKind) -> bool,
) -> Option<Claim> {
    let owns_none = |kind: ObjectKind, id: &Arc<str>| {
        kind == ObjectKind::Ingress && reader.owns_none(&Unit::ingress(id.clone()))
    };
    let meant = claims.ids().filter(|(kind, _)| is_meant(*kind));
    let owning = meant.filter(|&(kind, id)| !owns_none(kind, id));
    let claims = owning.filter_map(|(kind, id)| reader.claim_of(kind, id, host));
    claims.min_by(|a, b| a.age().cmp(&b.age()))
}

/// Whether claims of a kind are by routes.
pub(super) fn is_route(kind: ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::HttpRoute | ObjectKind::GrpcRoute | ObjectKind::TlsRoute
    )
}

/// The listeners that were looked at, each by its oldest claim.
#[derive(Default)]
struct Found {
    known: BTreeSet<(Arc<str>, u32)>,
    listeners: Vec<EnteredListener>,
}

impl Found {
    /// Adds the listener of a claim, which is younger than those before.
    fn add(&mut self, reader: &mut Reader<'_>, host: &Host, claim: &StakeClaim) {
        if self.known.insert((claim.id.clone(), claim.value)) {
            self.listeners.extend(open(reader, host, claim));
        }
    }
}

/// Adds the listeners that are known by no claim which was read: those of the namespace that has
/// proven the host to be its own, of that with the oldest claim by something else than a route, and
/// then of the others whose claims were, the oldest first. Their claims are younger than the last
/// of those.
fn add_rest(
    reader: &mut Reader<'_>,
    (host, claims): (&Host, &Claims),
    since: i64,
    found: &mut Found,
) {
    let proven = match reader.settings().host_proof {
        Some(_) => reader.proven_by(host),
        None => None,
    };
    let namespace_of = |claim: &Claim| Box::<str>::from(claim.key.namespace());
    let oldest = oldest(reader, host, claims, |kind| !is_route(kind));
    let oldest = oldest.as_ref().map(namespace_of);
    let known: Vec<Box<str>> = proven
        .into_iter()
        .chain(oldest)
        .chain(found.listeners.iter().map(|it| namespace_of(&it.claim)))
        .collect();
    let mut asked = BTreeSet::new();
    let mut left = LISTENERS_READ_MAX;
    for namespace in &known {
        if !asked.insert(&**namespace) {
            continue;
        }
        let seat = reader.hash(GatewayFact::EntrySeat(host.as_str(), namespace));
        let claims = reader.first_claims(seat, left);
        left = left.saturating_sub(claims.len());
        for claim in claims {
            let later = StakeClaim {
                created: since,
                ..claim
            };
            found.add(reader, host, &later);
        }
    }
}

/// The listener of a claim, where it still may have the host.
fn open(reader: &mut Reader<'_>, host: &Host, claim: &StakeClaim) -> Option<EnteredListener> {
    let mut kinds = [ObjectKind::Gateway, ObjectKind::ListenerSet].into_iter();
    let kind = kinds.find(|kind| *kind as u32 == claim.value)?;
    let (id, name) = claim.id.split_once(',')?;
    reader.read(GatewayFact::Listener(kind, id, name));
    let standing = standing::of(reader, &ObjectKey::from_id(kind, id.into())).ok()?;
    if !standing.is_served(reader) || !standing.may_claim(reader, host) {
        return None;
    }
    let mut listeners = standing.entity.listeners().iter();
    let at = listeners.position(|listener| *listener.name == *name)?;
    let place = ports::find(reader, &standing, at).ok()?;
    let is_named = matches!(place.speech, PortSpeech::Http | PortSpeech::Tls);
    if !is_named || place.host == *host || !covers(&place.host, host) {
        return None;
    }
    let meta = standing.entity.meta();
    let own = reader.noted_api_claim(meta, &place.host);
    Some(EnteredListener {
        claim: own.no_earlier(claim.created),
        standing,
        at,
        place,
    })
}
