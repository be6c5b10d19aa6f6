//! Facts about what every dialect refers to, and which of them a change touches.
//!
//! A fact is finer than an object wherever many units read little of one: a thousand hosts read
//! one port of one Service, and none of them runs again when another port is added.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::net::IpAddr;

use myriad_api::istio::{DestinationRule, Labels, ServiceEntry};
use myriad_api::secret::UsersForm;
use myriad_api::{
    BackendPort, IssuerKeys, Object, ObjectKey, ObjectKind, SecretProblem, Service, TlsPair,
    TrustDer,
};
use myriad_model::Host;

use super::authority_names::of_config_map;
use super::certificate::{self, Names};
use super::exports::exports;
use super::lent::{issuer_of, lent_to};
use super::names::rule_host;
use super::rule_facts::{RuleChange, cluster_suffix, rule_change};
use super::service_entry::is_shape_same;
use super::{trust, upstream};
use crate::engine::{Scene, States, Touched, Unit};
use crate::settings::{SELECTOR_LABELS_MAX, Settings};
use crate::store::{Fact, FactHasher, Stored, object_fact};

/// Something that a unit may read of a Service, a ServiceEntry, a rule for them or a Secret.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum SharedFact<'a> {
    /// The number of a Service's port, if it has that port, and who sees the Service.
    ServicePort(&'a str, &'a BackendPort),
    /// Whether a Service is there, who sees it, and whether it is an alias of an outside host.
    ServiceShape(&'a str),
    /// Whether a Service is exported to a namespace, or to all by `*`, as it is written.
    ExportedTo(&'a str, &'a str),
    /// A Service without its EndpointSlices.
    Service(&'a str),
    /// A Service and its EndpointSlices.
    Endpoints(&'a str),
    /// An EndpointSlice, for who remembers what it said.
    Slice(&'a str),
    /// The claims to the wildcards with a suffix, and who ends TLS for them.
    Above(&'a str),
    /// The namespace that has a host: a seat, for those whose record of DNS is also another one's.
    Had(&'a str),
    /// The authorities or users in a Secret.
    Trust(&'a str),
    /// Which of them there are.
    TrustThere(&'a str),
    /// The namespaces whose objects may use a Secret.
    LentTo(&'a str),
    /// The certificate and the key in a Secret, for who tells what is wrong with them.
    Pair(&'a str),
    /// The values for issuers in a Secret.
    Keys(&'a str),
    /// The DestinationRules for a host, or for all hosts below a wildcard.
    Rules(&'a str),
    /// Which subsets they define.
    Subsets(&'a str),
    /// The DestinationRules of a namespace for a host or wildcard are found under it.
    RulesIn(&'a str, &'a str),
    /// The ServiceEntries that name a host.
    Entries(&'a str),
    /// Their namespaces, and the ports that they list.
    EntryShapes(&'a str),
    /// The seat of the ServiceEntries for a name that others than their namespaces see.
    EntrySeat(&'a str),
    /// The WorkloadEntries of a namespace that have a label.
    Workloads(&'a str, &'a str, &'a str),
    /// The Pods of a namespace that have a label are found under it. Nobody reads it: Pods come,
    /// become ready and go all the time, and share labels. A Service follows its EndpointSlices,
    /// and a ServiceEntry is told of the Pods that its whole selector finds.
    Pods(&'a str, &'a str, &'a str),
}

impl Fact for SharedFact<'_> {
    const FAMILY: u8 = 3;
}

/// Adds what differs between an object and its successor, either of which may be absent.
pub(crate) fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    let (hasher, id) = (scene.hasher, key.id());
    let (old, new) = states;
    let facts = &mut touched.facts;
    match key.kind {
        ObjectKind::Secret => {
            touched.unit = Some(Unit::certificate(id.clone()));
            // Names are only read where they may be the same: that takes a parse of a certificate.
            touched.needers = match (old, new) {
                (Some(_), Some(_)) => issuer_of(old) != issuer_of(new) || names(old) != names(new),
                _ => old.is_some() != new.is_some(),
            };
            touch_secret(hasher, key, states, facts);
        }
        ObjectKind::ConfigMap => {
            let trust = |object: Option<&Object>| match object {
                Some(Object::ConfigMap(map)) => Some((map.meta.created, map.trust.clone())),
                _ => None,
            };
            if trust(old) != trust(new) {
                let id = of_config_map(key.namespace(), key.name());
                facts.push(hasher.fact(SharedFact::Trust(&id)));
            }
        }
        ObjectKind::HostProof => {
            touched.unit = Host::of_name(key.name()).ok().map(Unit::host_of);
            facts.push(object_fact(hasher, key.kind, id));
        }
        ObjectKind::Service => {
            let (old, new) = (as_service(old), as_service(new));
            facts.push(hasher.fact(SharedFact::Service(id)));
            facts.push(hasher.fact(SharedFact::Endpoints(id)));
            let shape = |service: Option<&Service>| service.map(|s| s.external_name.is_some());
            if shape(old) != shape(new) {
                facts.push(hasher.fact(SharedFact::ServiceShape(id)));
            }
            for port in upstream::ports_changed(old, new) {
                facts.push(hasher.fact(SharedFact::ServicePort(id, &port)));
            }
            touch_exports(hasher, id, (old, new), facts);
        }
        ObjectKind::EndpointSlice => {
            facts.push(hasher.fact(SharedFact::Slice(id)));
            for service in [old, new].into_iter().filter_map(service_of) {
                facts.push(hasher.fact(SharedFact::Endpoints(&service)));
            }
        }
        _ => touch_upstreams(hasher, states, scene.settings, facts),
    }
}

/// Adds the facts that differ where a Service is exported to other namespaces than before. Whoever
/// reads a port that is listed reads that too, and whoever found none reads the shape. Whoever
/// asks for one namespace first runs for that alone.
fn touch_exports(
    hasher: &FactHasher,
    id: &str,
    (old, new): (Option<&Service>, Option<&Service>),
    facts: &mut Vec<u64>,
) {
    if old.map(exports) == new.map(exports) {
        return;
    }
    facts.push(hasher.fact(SharedFact::ServiceShape(id)));
    for service in [old, new].into_iter().flatten() {
        let ports = service.ports.iter();
        let ports = ports.map(|port| BackendPort::Number(port.port));
        facts.extend(ports.map(|port| hasher.fact(SharedFact::ServicePort(id, &port))));
    }
    let named = |service: Option<&Service>| -> BTreeSet<Box<str>> {
        service
            .map(exports)
            .unwrap_or_default()
            .into_iter()
            .collect()
    };
    let (old, new) = (named(old), named(new));
    let others = old.symmetric_difference(&new);
    facts.extend(others.map(|to| hasher.fact(SharedFact::ExportedTo(id, to))));
}

/// Adds the facts about a Secret beside its certificate.
fn touch_secret(
    hasher: &FactHasher,
    key: &ObjectKey,
    (old, new): States<'_>,
    facts: &mut Vec<u64>,
) {
    let id = key.id();
    if old.is_some() != new.is_some() {
        facts.push(object_fact(hasher, key.kind, id));
    }
    if lent_to(old) != lent_to(new) {
        facts.push(hasher.fact(SharedFact::LentTo(id)));
    }
    if pair_of(old) != pair_of(new) {
        facts.push(hasher.fact(SharedFact::Pair(id)));
    }
    if keys_of(old) != keys_of(new) {
        facts.push(hasher.fact(SharedFact::Keys(id)));
    }
    let aged = |object: Option<&Object>| {
        let created = object.map_or(0, |object| object.meta().created);
        trust_of(object).is_some().then_some(created)
    };
    if trust_of(old) != trust_of(new) || aged(old) != aged(new) {
        facts.push(hasher.fact(SharedFact::Trust(id)));
        if held(old) != held(new) {
            facts.push(hasher.fact(SharedFact::TrustThere(id)));
        }
    }
}

/// The same for the kinds that say where hosts are and how they are reached.
fn touch_upstreams(
    hasher: &FactHasher,
    (old, new): States<'_>,
    settings: &Settings,
    facts: &mut Vec<u64>,
) {
    for object in [old, new].into_iter().flatten() {
        match object {
            Object::DestinationRule(rule) => {
                let is_shape = rule_change(as_rule(old), as_rule(new)) == RuleChange::Shape;
                for pattern in rule_patterns(rule, settings) {
                    facts.push(hasher.fact(SharedFact::Rules(&pattern)));
                    facts.extend(is_shape.then(|| hasher.fact(SharedFact::Subsets(&pattern))));
                }
            }
            Object::ServiceEntry(entry) => {
                let is_same = is_shape_same(as_entry(old), as_entry(new));
                for host in &entry.spec.hosts {
                    let host = host.to_ascii_lowercase();
                    facts.push(hasher.fact(SharedFact::Entries(&host)));
                    let shapes = || hasher.fact(SharedFact::EntryShapes(&host));
                    facts.extend((!is_same).then(shapes));
                }
            }
            Object::Pod(pod) => {
                if read_of_pod(old) != read_of_pod(new) {
                    let key = &pod.meta.key;
                    facts.push(object_fact(hasher, key.kind, key.id()));
                }
            }
            _ => add_labels(hasher, object, &mut |fact| facts.push(fact)),
        }
    }
}

/// The names of the facts that a DestinationRule is of.
fn rule_patterns(rule: &DestinationRule, settings: &Settings) -> Vec<String> {
    let domain = &settings.cluster_domain;
    let pattern = rule_host(&rule.spec.host, rule.meta.key.namespace(), domain);
    let all = cluster_suffix(domain);
    // Services read one fact for all wildcards that cover every one of them.
    let covers_all = match pattern.strip_prefix('*') {
        Some("") => true,
        Some(rest) => all.ends_with(rest),
        None => false,
    };
    let mut patterns = vec![pattern];
    if covers_all {
        patterns.push(format!("*.{all}"));
    }
    patterns
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    match object {
        Object::EndpointSlice(_) => {
            if let Some(service) = service_of(Some(object)) {
                add(hasher.fact(SharedFact::Endpoints(&service)));
            }
        }
        Object::DestinationRule(rule) => {
            let host = rule.spec.host.to_ascii_lowercase();
            add(hasher.fact(SharedFact::RulesIn(rule.meta.key.namespace(), &host)));
        }
        Object::ServiceEntry(entry) => {
            let hosts = entry.spec.hosts.iter();
            let mut facts: Vec<u64> = hosts
                .map(|host| hasher.fact(SharedFact::Entries(&host.to_ascii_lowercase())))
                .collect();
            facts.sort_unstable();
            facts.dedup();
            facts.into_iter().for_each(add);
        }
        _ => add_labels(hasher, object, add),
    }
}

/// The labels by which a workload is found.
fn add_labels(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    let namespace = object.key().namespace();
    match object {
        Object::WorkloadEntry(entry) => {
            for (key, value) in entry.spec.labels.iter() {
                add(hasher.fact(SharedFact::Workloads(namespace, key, value)));
            }
        }
        Object::Pod(pod) => {
            for (key, value) in pod.labels.iter() {
                add(hasher.fact(SharedFact::Pods(namespace, key, value)));
            }
        }
        _ => {}
    }
}

/// The selector of an object that chooses workloads by all of their labels.
pub(crate) fn selector(object: &Object) -> Option<&Labels> {
    match object {
        Object::ServiceEntry(entry) => {
            let selector = entry.spec.workload_selector.as_ref()?;
            Some(&selector.labels).filter(|labels| labels.len() <= SELECTOR_LABELS_MAX)
        }
        _ => None,
    }
}

/// The labels of an object that such a selector may choose.
pub(crate) fn labels(object: &Object) -> Option<&Labels> {
    match object {
        Object::WorkloadEntry(entry) => Some(&entry.spec.labels),
        Object::Pod(pod) => Some(&pod.labels),
        _ => None,
    }
}

/// The number of workloads of a namespace that have the first label of a selector.
pub(crate) fn count_first(stored: Stored<'_>, namespace: &str, selector: &Labels) -> usize {
    let Some((key, value)) = selector.first() else {
        return 0;
    };
    let facts = [
        SharedFact::Workloads(namespace, key, value),
        SharedFact::Pods(namespace, key, value),
    ];
    let counts = facts.map(|fact| stored.count(stored.hasher().fact(fact)));
    counts.iter().sum()
}

/// The fact that hosts below a wildcard read, by its suffix.
pub(crate) fn above(hasher: &FactHasher, suffix: &str) -> u64 {
    hasher.fact(SharedFact::Above(suffix))
}

/// The `namespace/name` of the Service of an EndpointSlice.
pub(crate) fn service_of(object: Option<&Object>) -> Option<String> {
    let Some(Object::EndpointSlice(slice)) = object else {
        return None;
    };
    let service = slice.service.as_deref()?;
    Some(format!("{}/{service}", slice.meta.key.namespace()))
}

fn names(object: Option<&Object>) -> Option<Names> {
    match object {
        Some(Object::Secret(secret)) => Some(certificate::names(secret)),
        _ => None,
    }
}

/// The content of a Secret that others are verified by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretContent {
    /// Authorities, that can be read or not.
    Authorities,
    /// Users, some of whom can be verified.
    Users(UsersForm),
    /// Users, none of whom can be.
    NoUser,
}

/// The content of a Secret that others are verified by; none where there is none.
pub(crate) fn held(object: Option<&Object>) -> Option<SecretContent> {
    Some(match trust_of(object)? {
        Ok(held) if held.roots.is_empty() => match trust::are_usable(&held.users) {
            true => SecretContent::Users(held.users.form),
            false => SecretContent::NoUser,
        },
        Ok(_) | Err(_) => SecretContent::Authorities,
    })
}

/// The certificate and the key in a Secret, or why there are none.
fn pair_of(object: Option<&Object>) -> Option<&Result<TlsPair, SecretProblem>> {
    match object {
        Some(Object::Secret(secret)) => Some(&secret.tls),
        _ => None,
    }
}

/// The values for issuers in a Secret.
fn keys_of(object: Option<&Object>) -> Option<&IssuerKeys> {
    match object {
        Some(Object::Secret(secret)) => secret.keys.as_deref(),
        _ => None,
    }
}

/// The authorities or users of a Secret, or why they cannot be read; none where there are none.
pub(crate) fn trust_of(object: Option<&Object>) -> Option<Result<&TrustDer, &SecretProblem>> {
    match object {
        Some(Object::Secret(secret)) => match &secret.trust {
            Ok(trust) => trust.as_deref().map(Ok),
            Err(problem) => Some(Err(problem)),
        },
        _ => None,
    }
}

fn as_rule(object: Option<&Object>) -> Option<&DestinationRule> {
    match object {
        Some(Object::DestinationRule(rule)) => Some(rule),
        _ => None,
    }
}

fn as_entry(object: Option<&Object>) -> Option<&ServiceEntry> {
    match object {
        Some(Object::ServiceEntry(entry)) => Some(entry),
        _ => None,
    }
}

/// All that is read of a Pod by its name.
fn read_of_pod(object: Option<&Object>) -> Option<(&Labels, Option<&str>, Option<IpAddr>)> {
    match object {
        Some(Object::Pod(pod)) => Some((&pod.labels, pod.account.as_deref(), pod.address)),
        _ => None,
    }
}

fn as_service(object: Option<&Object>) -> Option<&Service> {
    match object {
        Some(Object::Service(service)) => Some(service),
        _ => None,
    }
}
