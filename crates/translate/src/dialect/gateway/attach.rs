//! The listeners that a route is attached to.
//!
//! A route names its parents, and a listener says which routes it takes: by kind, by namespace and
//! by host. Whether the listener itself has an effect does not matter. Of an HTTPRoute and a
//! GRPCRoute with hosts in common at a listener the older one is attached, and the other is not. As
//! attached routes alone stand in the way of others, who is depends on older routes alone.

use std::iter;
use std::sync::Arc;

use myriad_api::gateway::http_route::PARENTS_MAX;
use myriad_api::gateway::{Listener, ParentReference};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::Host;

use super::allowed::{kinds, takes_routes_of};
use super::entity::{host_of, hostname};
use super::facts::GatewayFact;
use super::hostname::{covers, intersect};
use super::places::{self, DEFAULT_GATEWAYS_MAX};
use super::route::{RouteObject, entity_of, service_of};
use super::standing::{self, GatewayStanding, Unserved};
use crate::engine::{Reader, Stake, StakeClaim};
use crate::resolve::names::each_broader;
use crate::settings::Settings;

/// A listener that takes a route.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// The object that the listener is of.
    pub standing: GatewayStanding,
    /// The place of the listener in it.
    pub at: usize,
    /// The hosts that the route has there; none where its kind has none.
    pub hosts: Vec<Host>,
    /// Since when it has each of them, where there is another kind that may have them, or where the
    /// listener is another namespace's.
    since: Vec<i64>,
}

/// The answer of a parent to a route.
#[derive(Clone, Debug)]
pub(crate) enum ParentAnswer {
    /// It is none of ours.
    Foreign,
    /// It is a Service, by `namespace/name`.
    Service(Arc<str>),
    /// It does not take the route: the reason and the message of a condition.
    Refused(&'static str, String),
    /// Listeners of it take the route, at least one.
    Taken(Vec<Attached>),
}

/// A parent of a route, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    /// The parent as it is named.
    pub parent: ParentReference,
    /// The answer.
    pub answer: ParentAnswer,
    /// The hosts that the route would have at listeners of it, which are another namespace's, and
    /// that its own may not claim; sorted, each once.
    pub kept: Vec<Host>,
}

/// A route that asks its parents, one after the other.
struct Asking<'a> {
    route: &'a RouteObject,
    /// The hosts that it names, read once for all listeners.
    named: Vec<Host>,
    /// Since when it names each of them, once that is asked for.
    since: Option<Vec<i64>>,
    /// How many places it may have.
    places: usize,
    /// How many of them are left to it.
    left: usize,
    /// The hosts that its namespace may not claim, at listeners of the parent that is asked.
    kept: Vec<Host>,
}

/// That a route has more places than are left to it.
struct NoneLeft;

impl Attached {
    /// The listener.
    pub(crate) fn listener(&self) -> Option<&Listener> {
        self.standing.entity.listeners().get(self.at)
    }

    /// The hosts that the route has there, with since when; none where that matters to nobody.
    pub(super) fn aged_hosts(&self) -> impl Iterator<Item = (&Host, i64)> {
        self.hosts.iter().zip(self.since.iter().copied())
    }

    /// The kind and the `namespace/name` of the object.
    fn entity(&self) -> (ObjectKind, &str) {
        let key = self.standing.entity.key();
        (key.kind, key.id())
    }
}

/// The answers of all parents of a route, in their order. Gateways that take routes without a
/// parent come last, where the route asks for them.
pub(crate) fn attach(reader: &mut Reader<'_>, route: &RouteObject) -> Vec<Attachment> {
    let (parents, _) = parents_of(reader, route);
    let places = places::most(reader.settings(), route);
    let mut asking = Asking {
        route,
        named: hosts_of(route).0,
        since: None,
        places,
        left: places,
        kept: Vec::new(),
    };
    let parents = parents.into_iter();
    parents.map(|parent| asking.ask(reader, parent)).collect()
}

/// The parents of a route, and whether there are default Gateways for which it has no place any
/// more. Others than those of its own namespace are the operator's: whoever writes one anywhere
/// does not get the routes of everybody.
fn parents_of(reader: &mut Reader<'_>, route: &RouteObject) -> (Vec<ParentReference>, bool) {
    let mut parents = route.parents().to_vec();
    if !route.uses_defaults() {
        return (parents, false);
    }
    let own = route.key().namespace();
    let named = parents.iter();
    let named: Vec<ObjectKey> = named.filter_map(|it| entity_of(it, own)).collect();
    let operators = reader.settings().default_gateway_namespaces.iter();
    let operators = operators.map(String::as_str).filter(|it| *it != own);
    let mut is_more = false;
    let max = PARENTS_MAX.min(parents.len() + DEFAULT_GATEWAYS_MAX);
    for namespace in iter::once(own).chain(operators) {
        // So many that there is one that has no place, whichever of them are named.
        for key in reader.default_gateways(namespace, PARENTS_MAX + 1) {
            if named.contains(&key) {
                continue;
            }
            if parents.len() >= max {
                is_more = true;
                break;
            }
            parents.push(ParentReference {
                namespace: Some(key.namespace().into()),
                name: key.name().into(),
                ..ParentReference::default()
            });
        }
    }
    (parents, is_more)
}

/// The finding about default Gateways for which a route has no place any more.
pub(crate) fn beyond(reader: &mut Reader<'_>, route: &RouteObject) -> Option<Finding> {
    let (_, is_more) = parents_of(reader, route);
    is_more.then(|| {
        Finding::new(
            Severity::Error,
            route.key(),
            "spec.useDefaultGateways",
            format!(
                "is for the oldest default Gateways alone: a route has at most \
                 {DEFAULT_GATEWAYS_MAX} of them, and {PARENTS_MAX} parents with them"
            ),
            "name its parents, or let fewer Gateways have defaultScope All",
        )
    })
}

/// The hosts that a route names, and findings about those that are none.
pub(crate) fn hosts_of(route: &RouteObject) -> (Vec<Host>, Vec<Finding>) {
    let (mut hosts, mut findings) = (Vec::new(), Vec::new());
    for (at, text) in route.hostnames().iter().enumerate() {
        match hostname(text) {
            Ok(host) => hosts.push(host),
            Err(error) => findings.push(Finding::new(
                Severity::Error,
                route.key(),
                format!("spec.hostnames[{at}]"),
                format!("{error}, so it has no effect"),
                "write a DNS name such as a.example.com or *.example.com",
            )),
        }
    }
    (hosts, findings)
}

impl Asking<'_> {
    fn ask(&mut self, reader: &mut Reader<'_>, parent: ParentReference) -> Attachment {
        let own = self.route.key().namespace();
        let answer = match (entity_of(&parent, own), service_of(&parent, own)) {
            (Some(key), _) => match self.ask_entity(reader, &parent, &key) {
                Ok(taken) => ParentAnswer::Taken(taken),
                Err(answer) => answer,
            },
            (None, Some(service)) => ParentAnswer::Service(service),
            (None, None) => ParentAnswer::Foreign,
        };
        let mut kept = std::mem::take(&mut self.kept);
        kept.sort_unstable();
        kept.dedup();
        Attachment {
            parent,
            answer,
            kept,
        }
    }

    /// The listeners of a Gateway or a ListenerSet that take the route.
    ///
    /// # Errors
    /// The answer where there are none.
    fn ask_entity(
        &mut self,
        reader: &mut Reader<'_>,
        parent: &ParentReference,
        key: &ObjectKey,
    ) -> Result<Vec<Attached>, ParentAnswer> {
        let route = self.route;
        let (standing, mut allowed) = meant(reader, parent, key)?;
        let listeners = standing.entity.listeners();
        allowed.retain(|at| {
            let listener = listeners.get(*at);
            listener.is_some_and(|listener| is_allowed(reader, listener, key, route))
        });
        if allowed.is_empty() {
            let message = format!(
                "no listener of {key} takes {}s of its namespace",
                route.kind()
            );
            return Err(refuse("NotAllowedByListeners", message));
        }
        let found = self.with_hosts(reader, &standing, allowed);
        let mut attached = found
            .map_err(|NoneLeft| refuse("UnsupportedValue", places::refusal(key, self.places)))?;
        if attached.is_empty() && !self.kept.is_empty() {
            let namespace = route.key().namespace();
            let message = format!(
                "--tenants keeps the hosts of the route at {key} from namespace {namespace}"
            );
            return Err(refuse("NotAllowedByListeners", message));
        }
        if attached.is_empty() {
            let message = format!("no listener of {key} has a host of the route");
            return Err(refuse("NoMatchingListenerHostname", message));
        }
        if route.rival().is_some() || standing.is_of_another(route.key().namespace()) {
            // Connections and datagrams of a port have no hosts.
            for place in attached.iter_mut().filter(|it| !it.hosts.is_empty()) {
                place.since = self.had_since(reader, place);
            }
        }
        attached.retain(|it| !is_kept_out(reader, route, it));
        if attached.is_empty() {
            let message = format!("an older route of another kind has its hosts at {key}");
            return Err(refuse("NotAllowedByListeners", message));
        }
        Ok(attached)
    }

    /// The listeners among some where the route has hosts.
    ///
    /// # Errors
    /// These are more than are left to the route. It has none at further parents then.
    fn with_hosts(
        &mut self,
        reader: &Reader<'_>,
        standing: &GatewayStanding,
        allowed: Vec<usize>,
    ) -> Result<Vec<Attached>, NoneLeft> {
        let listeners = standing.entity.listeners();
        let mut attached = Vec::new();
        for at in allowed {
            let listener = listeners.get(at);
            let found = listener.and_then(|it| common_hosts(self.route, it, &self.named));
            let Some((own, mut hosts)) = found else {
                continue;
            };
            let places = hosts.iter().map(|host| match self.route.rival() {
                Some(_) => 1 + levels(&own, host),
                None => 1,
            });
            let places: usize = places.sum();
            let left = self.left.checked_sub(places.max(1));
            self.left = left.unwrap_or(0);
            left.ok_or(NoneLeft)?;
            if !self.keep_claimable(reader.settings(), standing, &mut hosts) {
                continue;
            }
            attached.push(Attached {
                standing: standing.clone(),
                at,
                hosts,
                since: Vec::new(),
            });
        }
        Ok(attached)
    }

    /// Takes out what the namespace of the route may not claim of its hosts at a listener of an
    /// object of another namespace, whoever may have them there. Returns whether it is attached
    /// still.
    fn keep_claimable(
        &mut self,
        settings: &Settings,
        standing: &GatewayStanding,
        hosts: &mut Vec<Host>,
    ) -> bool {
        let route = self.route;
        if hosts.is_empty() || !standing.is_of_another(route.key().namespace()) {
            return true;
        }
        let namespace = route.key().namespace();
        let kept = hosts.extract_if(.., |host| !settings.may_claim(namespace, host));
        self.kept.extend(kept);
        !hosts.is_empty()
    }

    /// Since when the route has each of its hosts at a listener: as the oldest of those that it
    /// names does which makes it so. One that comes to a host by an edit has it since then.
    fn had_since(&mut self, reader: &mut Reader<'_>, place: &Attached) -> Vec<i64> {
        let (meta, named) = (self.route.meta(), &self.named);
        if self.route.hostnames().is_empty() {
            let since = reader.noted_api_claim(meta, &Host::any()).since();
            return vec![since; place.hosts.len()];
        }
        let since = self.since.get_or_insert_with(|| {
            let named = named.iter();
            let since = named.map(|host| reader.noted_api_claim(meta, host).since());
            since.collect()
        });
        let own = place.listener().and_then(|listener| host_of(listener).ok());
        let at = |host: &Host| {
            let known = named.iter().zip(since.iter());
            let makes = |named: &Host| {
                let common = own.as_ref().and_then(|own| intersect(own, named));
                common.as_ref() == Some(host)
            };
            let known = known.filter(|(named, _)| makes(named));
            known.map(|(_, since)| *since).min()
        };
        let hosts = place.hosts.iter();
        hosts.map(|host| at(host).unwrap_or(meta.created)).collect()
    }
}

/// An object with listeners, and the places of those that a parent means.
///
/// # Errors
/// The answer where there are none.
fn meant(
    reader: &mut Reader<'_>,
    parent: &ParentReference,
    key: &ObjectKey,
) -> Result<(GatewayStanding, Vec<usize>), ParentAnswer> {
    match parent.section_name.as_deref() {
        Some(name) => reader.read(GatewayFact::Listener(key.kind, key.id(), name)),
        None => reader.read(GatewayFact::Listeners(key.kind, key.id())),
    };
    let standing = standing::of(reader, key).map_err(|why| match why {
        Unserved::Foreign => ParentAnswer::Foreign,
        Unserved::Parameters(_) => refuse("NoMatchingParent", format!("{key} is not accepted")),
        Unserved::NotAllowed => {
            let message = format!("{key} is not accepted, since its Gateway does not take it");
            refuse("NoMatchingParent", message)
        }
    })?;
    let is_meant = |listener: &Listener| {
        let section = parent.section_name.as_deref();
        section.is_none_or(|name| *listener.name == *name)
            && parent.port.is_none_or(|port| listener.port == port)
    };
    let listeners = standing.entity.listeners().iter().enumerate();
    let meant = listeners.filter(|(_, listener)| is_meant(listener));
    let meant: Vec<usize> = meant.map(|(at, _)| at).collect();
    match meant.is_empty() {
        true => {
            let message = format!("{key} has no listener of this name or port");
            Err(refuse("NoMatchingParent", message))
        }
        false => Ok((standing, meant)),
    }
}

/// Whether a listener of an object takes routes of a kind and namespace.
fn is_allowed(
    reader: &mut Reader<'_>,
    listener: &Listener,
    of: &ObjectKey,
    route: &RouteObject,
) -> bool {
    kinds(listener).0.contains(&route.key().kind)
        && takes_routes_of(reader, listener, of, route.key().namespace())
}

fn refuse(reason: &'static str, message: String) -> ParentAnswer {
    ParentAnswer::Refused(reason, message)
}

/// The host of a listener, and the hosts that a route has there; `None` where it has none there.
fn common_hosts(
    route: &RouteObject,
    listener: &Listener,
    named: &[Host],
) -> Option<(Host, Vec<Host>)> {
    if matches!(route, RouteObject::Tcp(_) | RouteObject::Udp(_)) {
        return Some((Host::any(), Vec::new()));
    }
    let own = host_of(listener).ok()?;
    if route.hostnames().is_empty() {
        return Some((own.clone(), vec![own]));
    }
    let common = named.iter().filter_map(|host| intersect(&own, host));
    let mut hosts: Vec<Host> = common.collect();
    hosts.sort_unstable();
    hosts.dedup();
    (!hosts.is_empty()).then_some((own, hosts))
}

/// How many wildcards are above a host up to that of a listener, which is one of them, at most.
fn levels(own: &Host, host: &Host) -> usize {
    let dots = |host: &Host| host.as_str().matches('.').count();
    match own == host {
        true => 0,
        false => 1 + dots(host).saturating_sub(dots(own)),
    }
}

/// The wildcards above a host at a listener. No route has a broader host there than the listener.
fn above<'a>(own: &'a Host, host: &'a Host) -> impl Iterator<Item = Host> + use<'a> {
    each_broader(host).take_while(move |pattern| covers(own, pattern))
}

/// Whether an older route of the other kind for requests is attached to a listener with a host of a
/// route, or a wildcard above or a host below it.
fn is_kept_out(reader: &mut Reader<'_>, route: &RouteObject, place: &Attached) -> bool {
    let (Some(rival), Some(listener)) = (route.rival(), place.listener()) else {
        return false;
    };
    let Ok(own) = host_of(listener) else {
        return false;
    };
    let key = route.key();
    let (of, name) = (place.entity(), &*listener.name);
    let mut is_lost = false;
    for (host, since) in place.hosts.iter().zip(&place.since) {
        let age = (*since, &**key.id(), key.kind as u32);
        let above: Vec<Host> = above(&own, host).collect();
        let above = above.iter().map(Host::as_str);
        let above = above.map(|pattern| GatewayFact::KindSeat(rival, of, name, pattern));
        let below = GatewayFact::KindBelow(rival, of, name, host.as_str());
        // Every seat is asked for, so that what is read depends on nothing that is not.
        for fact in above.chain([below]) {
            let seat = reader.hash(fact);
            let oldest = reader.seat(seat);
            is_lost |= oldest.is_some_and(|it| (it.created, &*it.id, it.value) < age);
        }
    }
    is_lost
}

/// The claim of a route to seats, since its creation.
pub(super) fn claim_of(route: &RouteObject) -> StakeClaim {
    StakeClaim {
        order: 0,
        created: route.meta().created,
        id: route.key().id().clone(),
        value: route.key().kind as u32,
    }
}

/// The claims of a route to seats, by the answers of its parents. One of which no rule has an
/// effect is refused, and keeps no other kind out.
pub(crate) fn stakes(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    attachments: &[Attachment],
    is_refused: bool,
) -> Vec<Stake> {
    let kind = route.key().kind;
    let claim = claim_of(route);
    let mut stakes = Vec::new();
    for attachment in attachments {
        let taken = match &attachment.answer {
            ParentAnswer::Taken(taken) => &taken[..],
            _ => &[],
        };
        for place in taken {
            let Some(listener) = place.listener() else {
                continue;
            };
            let (of, name) = (place.entity(), &*listener.name);
            let attached = GatewayFact::Attached(of.0, of.1, name);
            let stream = GatewayFact::StreamSeat(of.0, of.1, name);
            let streams = place.hosts.is_empty().then_some(stream);
            for fact in [Some(attached), streams].into_iter().flatten() {
                stakes.push(Stake {
                    seat: reader.hash(fact),
                    claim: claim.clone(),
                });
            }
            if !route.is_of_requests() || is_refused {
                continue;
            }
            let Ok(own) = host_of(listener) else {
                continue;
            };
            for (host, since) in place.hosts.iter().zip(&place.since) {
                let claim = StakeClaim {
                    created: *since,
                    ..claim.clone()
                };
                let above: Vec<Host> = above(&own, host).collect();
                let patterns = above.iter().map(Host::as_str).chain([host.as_str()]);
                let below = patterns.map(|it| GatewayFact::KindBelow(kind, of, name, it));
                let own = GatewayFact::KindSeat(kind, of, name, host.as_str());
                for fact in below.chain([own]) {
                    stakes.push(Stake {
                        seat: reader.hash(fact),
                        claim: claim.clone(),
                    });
                }
            }
        }
    }
    stakes
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::{above, levels};

    #[test]
    fn the_wildcards_above_a_host_end_with_that_of_its_listener() {
        for (own, host, expected) in [
            ("*", "a.b.c", "**.b.c **.c *"),
            ("*", "c", "*"),
            ("*", "*", ""),
            ("**.c", "a.b.c", "**.b.c **.c"),
            ("**.c", "a.c", "**.c"),
            ("**.c", "**.b.c", "**.c"),
            ("**.c", "**.c", ""),
            ("a.c", "a.c", ""),
        ] {
            let [own, host] = [own, host].map(|text| Host::parse(text).expect("a host"));
            let found: Vec<String> = above(&own, &host).map(|it| it.to_string()).collect();
            assert_eq!(found.join(" "), expected, "{host} at {own}");
            assert!(levels(&own, &host) >= found.len(), "{host} at {own}");
        }
    }
}
