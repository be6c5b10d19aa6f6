//! TLSRoutes, TCPRoutes and UDPRoutes, as stream routes.
//!
//! Their rules match nothing, so that of several the first takes all. The share of a backend that
//! is none is closed: proxies do that where an upstream is not there, and drop what is a datagram.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::gateway::{BackendRef, StreamRule};
use myriad_api::{Finding, ObjectKey, Severity, finding};
use myriad_model::{Name, Resource, StreamRoute, Value, WeightedUpstream};

use super::backend::{self, BackendAsker};
use super::backend_problem::{BackendProblem, BackendUse};
use super::judgement::Judgement;
use super::tenants::{RouteObject, RouteTenant};
use crate::engine::{Output, Reader, Unit};

/// The longest silence of a connection, as of those that Istio's rules lead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The longest time to connect, as there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of an upstream that is not there.
const NOWHERE: &str = "nowhere";

/// The bits of the age of a route in its rank, and of what stands below it, as Istio's have it.
const AGE_BITS: (u32, u32) = (34, 30);

/// Finds the backend of a reference.
type FindBackend<'a> = &'a mut dyn FnMut(&BackendRef) -> Result<Arc<str>, BackendProblem>;

/// The place of a stream route.
struct StreamPlace {
    /// The listeners or their parts, sorted.
    listeners: Arc<[Name]>,
    /// The use of backends there.
    used: BackendUse,
    /// The end of its name.
    end: &'static str,
}

/// Adds the stream routes of a TLSRoute: of the parts of sockets where TLS ends, and of the others.
pub(crate) fn build(reader: &mut Reader<'_>, tenant: &RouteTenant, output: &mut Output) {
    let both = [
        (false, BackendUse::Passthrough, "0"),
        (true, BackendUse::Stream, "0+tls"),
    ];
    for (terminates, used, end) in both {
        let sections = tenant.sections.iter();
        let sections = sections.filter(|section| section.terminates == terminates);
        let listeners: Arc<[Name]> = sections.map(|section| section.name.clone()).collect();
        if !listeners.is_empty() {
            let place = StreamPlace {
                listeners,
                used,
                end,
            };
            add(reader, tenant, place, output);
        }
    }
}

/// Adds the stream route of a TCPRoute or a UDPRoute that has all that comes to a socket.
pub(crate) fn build_port(
    reader: &mut Reader<'_>,
    socket: &Name,
    tenant: &RouteTenant,
    output: &mut Output,
) {
    let place = StreamPlace {
        listeners: [socket.clone()].into(),
        used: used_by(&tenant.route),
        end: "0",
    };
    add(reader, tenant, place, output);
}

/// Says what is wrong with the rules of a route, whoever its parents are.
pub(crate) fn judge(reader: &mut Reader<'_>, route: &RouteObject) -> Judgement {
    let (key, used) = (route.key(), used_by(route));
    judge_rules(key, (rules_of(route), used), &mut |backend: &BackendRef| {
        let found = backend::resolve(reader, key, backend, used, BackendAsker::default());
        found.map(|found| found.upstream)
    })
}

fn add(reader: &mut Reader<'_>, tenant: &RouteTenant, place: StreamPlace, output: &mut Output) {
    let key = tenant.route.key();
    let asking = BackendAsker {
        gateway: tenant.gateway.as_ref(),
        mesh: None,
    };
    let shares = shares(rules_of(&tenant.route), &mut |backend: &BackendRef| {
        let found = backend::resolve(reader, key, backend, place.used, asking);
        found.map(|found| found.upstream)
    });
    let sent = shares.iter().map(|share| &share.upstream);
    let sent = sent.filter(|upstream| upstream.as_str() != NOWHERE);
    let needs = sent.map(|upstream| Unit::upstream(upstream.as_str().into()));
    output.needs.extend(needs);
    let idle_timeout = match place.used {
        BackendUse::Datagram => Duration::ZERO,
        _ => IDLE_TIMEOUT,
    };
    let stream_route = StreamRoute {
        listeners: place.listeners,
        hosts: tenant.hosts.to_vec().into(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: rank(tenant.route.meta().created),
        behind: 0,
        terminate: place.used == BackendUse::Stream && !tenant.hosts.is_empty(),
        upstreams: shares,
        idle_timeout,
        connect_timeout: CONNECT_TIMEOUT,
    };
    let resource = Resource {
        origin: tenant.route.origin(),
        value: Value::StreamRoute(Box::new(stream_route)),
    };
    let name = format!("{}{}", tenant.prefix(), place.end);
    output.resources.push((Name::new(name), resource));
}

/// The rules of a route of connections or datagrams.
fn rules_of(route: &RouteObject) -> &[StreamRule] {
    match route {
        RouteObject::Tls(route) => &route.spec.rules,
        RouteObject::Tcp(route) => &route.spec.rules,
        RouteObject::Udp(route) => &route.spec.rules,
        RouteObject::Http(_) | RouteObject::Grpc(_) => &[],
    }
}

/// The use that a route has for backends, wherever TLS ends.
fn used_by(route: &RouteObject) -> BackendUse {
    match route {
        RouteObject::Udp(_) => BackendUse::Datagram,
        RouteObject::Tls(_) => BackendUse::Passthrough,
        _ => BackendUse::Stream,
    }
}

/// The rank of a route by its age: the oldest goes first, and then names say.
fn rank(created: i64) -> u64 {
    let (age, below) = AGE_BITS;
    created.clamp(0, (1 << age) - 1).unsigned_abs() << below
}

/// The shares of the backends of the rule that takes all. One of none is no share.
fn shares(rules: &[StreamRule], find: FindBackend<'_>) -> Box<[WeightedUpstream]> {
    let backends = rules.first().map_or(&[][..], |rule| &rule.backends);
    let weighed = backends.iter().filter(|backend| backend.weight() > 0);
    let shares = weighed.map(|backend| WeightedUpstream {
        upstream: find(backend).map_or_else(|_| Name::new(NOWHERE), Name::new),
        weight: backend.weight(),
        headers: None,
        filters: None,
    });
    shares.collect()
}

/// Judges the rules of a route by how its backends are used.
fn judge_rules(
    key: &ObjectKey,
    (rules, used): (&[StreamRule], BackendUse),
    find: FindBackend<'_>,
) -> Judgement {
    let mut judgement = Judgement::default();
    for number in 1..rules.len() {
        let field = format!("spec.rules[{number}]");
        let message = "stands behind a rule that takes all, so it is dropped";
        let text = format!("Dropped Rule {number}: {field} {message}");
        judgement.dropped.push(text);
        let remedy = "write one rule, or a route of its own for each";
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        judgement.findings.push(finding);
    }
    let (what, fate) = match used {
        BackendUse::Datagram => ("datagrams", "dropped"),
        _ => ("connections", "closed"),
    };
    let backends = rules.first().map_or(&[][..], |rule| &rule.backends);
    for (at, backend) in backends.iter().enumerate() {
        let Err(problem) = find(backend) else {
            continue;
        };
        let field = format!("spec.rules[0].backendRefs[{at}]");
        let named = describe(backend, key.namespace());
        let why = problem.message();
        let message = format!("names {named}, which {why}: its share of {what} is {fate}");
        let text = finding::cut(format!("{field} {message}"));
        judgement.unresolved.get_or_insert((problem, text));
        let remedy = problem.remedy();
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        judgement.findings.push(finding);
    }
    if backends.iter().all(|backend| backend.weight() == 0) {
        judgement.findings.push(Finding::new(
            Severity::Warning,
            key,
            "spec.rules[0].backendRefs",
            format!("name no backend with a weight, so all {what} are {fate}"),
            "name a backend",
        ));
    }
    judgement
}

/// A backend as it is named in an object of a namespace.
fn describe(backend: &BackendRef, own: &str) -> String {
    let namespace = backend.namespace.as_deref().unwrap_or(own);
    let port = backend
        .port
        .map_or_else(String::new, |port| format!(":{port}"));
    format!("{} {namespace}/{}{port}", backend.kind(), backend.name)
}

#[cfg(test)]
mod tests;
