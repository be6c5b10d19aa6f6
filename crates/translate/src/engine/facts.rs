//! Facts: the parts of objects that units read, and which of them a change touches.
//!
//! A fact is finer than an object wherever many units read little of one: a thousand hosts read
//! one port of one Service, and none of them runs again when another port is added.

use std::hash::{BuildHasher, Hash, RandomState};

use myriad_api::istio::{DestinationRule, Gateway, Labels, ServiceEntry, Sidecar};
use myriad_api::{
    BackendPort, IngressClass, Object, ObjectKey, ObjectKind, SecretProblem, Service, TrustDer,
};

use super::views::Views;
use crate::certificate::{self, Names};
use crate::istio::{PortKey, RuleChange};
use crate::output::Unit;
use crate::ownership::suffix_of;
use crate::{Settings, ingress, istio, upstream};

/// Something that a unit may read, and under which objects are found.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Fact<'a> {
    /// A whole object, by kind and `namespace/name`.
    Object(ObjectKind, &'a str),
    /// What number a port of a Service has, if it has that port, and who sees the Service.
    ServicePort(&'a str, &'a BackendPort),
    /// Whether a Service is there, who sees it, and whether it is an alias of an outside host.
    ServiceShape(&'a str),
    /// A Service and its EndpointSlices.
    Endpoints(&'a str),
    /// The controller of an IngressClass.
    Class(&'a str),
    /// Whether an IngressClass of ours is the default.
    DefaultClass,
    /// Whether an Istio Gateway is there and of this role.
    Gateway(&'a str),
    /// The servers of an Istio Gateway that name a host.
    Server(&'a str, &'a str),
    /// The claims to the wildcards with a suffix, and who ends TLS for them.
    Above(&'a str),
    /// The authorities in a Secret.
    Trust(&'a str),
    /// Whether there are authorities in a Secret.
    TrustThere(&'a str),
    /// What is spoken on a port.
    Speech(&'a PortKey),
    /// The Gateway that has a port.
    PortOwner(&'a PortKey),
    /// The VirtualServices that are bound to an Istio Gateway and name a host.
    Bound(&'a str, &'a str),
    /// What DestinationRules say of a host, or of all hosts below a wildcard.
    Rules(&'a str),
    /// Which subsets they define.
    Subsets(&'a str),
    /// The DestinationRules of a namespace for a host or wildcard are found under it.
    RulesIn(&'a str, &'a str),
    /// The ServiceEntries that name a host.
    Entries(&'a str),
    /// Whose they are, and the ports that they list.
    EntryShapes(&'a str),
    /// The WorkloadEntries and Pods of a namespace that have a label.
    Workloads(&'a str, &'a str, &'a str),
    /// The Telemetries of a namespace.
    Telemetries(&'a str),
    /// Whether Sidecars leave open what is for nobody who is known: who reads it is asked again
    /// for the views that a changed one is for.
    Policies,
    /// The Sidecars of a namespace.
    Sidecars(&'a str),
    /// The PeerAuthentications of a namespace.
    Peers(&'a str),
    /// The Services of a namespace that select by a label first.
    Selecting(&'a str, &'a str, &'a str),
}

/// Hashes facts. The seed is random, so that nobody can write objects whose facts collide;
/// a collision could only make a unit run for nothing.
pub struct FactHasher(RandomState);

impl FactHasher {
    /// A hasher with a seed of its own.
    pub fn new() -> Self {
        FactHasher(RandomState::new())
    }

    /// The hash of a fact, or of anything else that stands in an index of the engine.
    pub fn hash(&self, value: impl Hash) -> u64 {
        self.0.hash_one(value)
    }
}

/// What a changed object touches.
#[derive(Default)]
pub struct Touched {
    /// Facts, whose readers run again.
    pub facts: Vec<u64>,
    /// The unit that bears the object's name and reads it whole, which needs no fact to say so.
    pub unit: Option<Unit>,
    /// The same for what the object is to sidecars.
    pub reachable: Option<Unit>,
    /// Whether those who need that unit run again too.
    pub needers: bool,
}

/// What differs between an object and its successor, either of which may be absent.
pub fn touched(
    hasher: &FactHasher,
    old: Option<&Object>,
    new: Option<&Object>,
    (settings, views): (&Settings, &Views),
) -> Touched {
    let is_ours = |class: &IngressClass| class.controller == settings.controller_name;
    let mut touched = Touched::default();
    let Some(key) = new.or(old).map(Object::key) else {
        return touched;
    };
    let id = key.id();
    let facts = &mut touched.facts;
    match key.kind {
        ObjectKind::Ingress => touched.unit = Some(Unit::Ingress(id.clone())),
        ObjectKind::ConfigMap => {
            touched.unit = Some(Unit::ConfigMap(id.clone()));
            facts.push(hasher.hash(Fact::Object(key.kind, id)));
        }
        ObjectKind::Secret => {
            touched.unit = Some(Unit::Certificate(id.clone()));
            // Names are only read where they may be the same: that takes a parse of a certificate.
            touched.needers = match (old, new) {
                (Some(_), Some(_)) => names(old) != names(new),
                _ => old.is_some() != new.is_some(),
            };
            touch_secret(hasher, key, (old, new), facts);
        }
        ObjectKind::IngressClass => {
            facts.push(hasher.hash(Fact::Class(id)));
            let is_default =
                |class: Option<&IngressClass>| class.is_some_and(|c| is_ours(c) && is_default(c));
            if is_default(as_class(old)) != is_default(as_class(new)) {
                facts.push(hasher.hash(Fact::DefaultClass));
            }
        }
        ObjectKind::Service => {
            let (old, new) = (as_service(old), as_service(new));
            facts.push(hasher.hash(Fact::Endpoints(id)));
            let shape = |service: Option<&Service>| service.map(|s| s.external_name.is_some());
            if shape(old) != shape(new) {
                facts.push(hasher.hash(Fact::ServiceShape(id)));
            }
            for port in upstream::ports_changed(old, new) {
                facts.push(hasher.hash(Fact::ServicePort(id, &port)));
            }
            touch_exports(hasher, id, (old, new), facts);
            if settings.sidecars {
                let known = [old, new].into_iter().flatten();
                facts.extend(known.filter_map(|service| selecting(hasher, service)));
                touched.reachable = Some(Unit::Reachable(key.clone()));
            }
        }
        ObjectKind::EndpointSlice => {
            let (old, new) = (service_of(old), service_of(new));
            facts.extend(old.as_deref().map(|id| hasher.hash(Fact::Endpoints(id))));
            facts.extend(new.as_deref().map(|id| hasher.hash(Fact::Endpoints(id))));
        }
        _ => touch_istio(hasher, key, (old, new), (settings, views), &mut touched),
    }
    touch_claims(hasher, old, new, &mut touched.facts);
    touched.facts.sort_unstable();
    touched.facts.dedup();
    touched
}

/// What is read of a Service where other namespaces see it than before. Who reads a port that is
/// listed reads that too, and who found none reads the shape.
fn touch_exports(
    hasher: &FactHasher,
    id: &str,
    (old, new): (Option<&Service>, Option<&Service>),
    facts: &mut Vec<u64>,
) {
    if old.map(istio::mesh::exports) == new.map(istio::mesh::exports) {
        return;
    }
    facts.push(hasher.hash(Fact::ServiceShape(id)));
    for service in [old, new].into_iter().flatten() {
        let ports = service.ports.iter();
        let ports = ports.map(|port| BackendPort::Number(port.port));
        facts.extend(ports.map(|port| hasher.hash(Fact::ServicePort(id, &port))));
    }
}

/// What is read of a Secret beside its certificate.
fn touch_secret(
    hasher: &FactHasher,
    key: &ObjectKey,
    (old, new): (Option<&Object>, Option<&Object>),
    facts: &mut Vec<u64>,
) {
    let id = key.id();
    if old.is_some() != new.is_some() {
        facts.push(hasher.hash(Fact::Object(key.kind, id)));
    }
    let (old, new) = (trust_of(old), trust_of(new));
    if old != new {
        facts.push(hasher.hash(Fact::Trust(id)));
    }
    if old.is_some() != new.is_some() {
        facts.push(hasher.hash(Fact::TrustThere(id)));
    }
}

/// The same for Istio's kinds.
fn touch_istio(
    hasher: &FactHasher,
    key: &ObjectKey,
    (old, new): (Option<&Object>, Option<&Object>),
    (settings, views): (&Settings, &Views),
    touched: &mut Touched,
) {
    let id = key.id();
    match key.kind {
        ObjectKind::Ingress
        | ObjectKind::ConfigMap
        | ObjectKind::IngressClass
        | ObjectKind::Service
        | ObjectKind::EndpointSlice
        | ObjectKind::Secret => {}
        ObjectKind::Pod => touch_upstreams(hasher, old, new, settings, &mut touched.facts),
        ObjectKind::IstioGateway => {
            touched.unit = Some(Unit::Gateway(id.clone()));
            let (old, new) = (as_gateway(old), as_gateway(new));
            let (hosts, is_other) = istio::servers_changed(old, new, views);
            touched.facts.extend(
                hosts
                    .iter()
                    .map(|host| hasher.hash(Fact::Server(id, host.as_str()))),
            );
            if is_other {
                touched.facts.push(hasher.hash(Fact::Gateway(id)));
            }
        }
        ObjectKind::VirtualService => {
            touched.unit = Some(Unit::VirtualService(id.clone()));
            touched.facts.push(hasher.hash(Fact::Object(key.kind, id)));
            let known = [old, new].into_iter().flatten();
            touched
                .facts
                .extend(known.flat_map(|object| bound_facts(hasher, object)));
        }
        ObjectKind::AuthorizationPolicy | ObjectKind::RequestAuthentication => {
            touched.unit = Some(Unit::Guard(key.clone()));
        }
        ObjectKind::DestinationRule | ObjectKind::ServiceEntry | ObjectKind::WorkloadEntry => {
            touched.unit = Some(Unit::Refused(key.clone()));
            if settings.sidecars && key.kind == ObjectKind::ServiceEntry {
                touched.reachable = Some(Unit::Reachable(key.clone()));
            }
            touch_upstreams(hasher, old, new, settings, &mut touched.facts);
        }
        ObjectKind::Telemetry => {
            touched.unit = Some(Unit::Refused(key.clone()));
            let fact = hasher.hash(Fact::Telemetries(key.namespace()));
            touched.facts.push(fact);
        }
        ObjectKind::Sidecar => {
            touched.unit = Some(Unit::Refused(key.clone()));
            touch_scopes(hasher, old, new, &mut touched.facts);
        }
        ObjectKind::PeerAuthentication => {
            touched.unit = Some(Unit::Refused(key.clone()));
            touched
                .facts
                .push(hasher.hash(Fact::Peers(key.namespace())));
        }
        ObjectKind::ProxyConfig | ObjectKind::EnvoyFilter | ObjectKind::WasmPlugin => {
            touched.unit = Some(Unit::Refused(key.clone()))
        }
    }
}

/// The claims to wildcards that an object makes before and after, where hosts below read other
/// things of it. Claims that come and go are noted where hosts are needed.
fn touch_claims(
    hasher: &FactHasher,
    old: Option<&Object>,
    new: Option<&Object>,
    facts: &mut Vec<u64>,
) {
    let wildcards = match (old, new) {
        (Some(Object::Ingress(old)), Some(Object::Ingress(new)))
            if ingress::is_shade_changed(old, new) =>
        {
            ingress::wildcards(new)
        }
        (Some(Object::VirtualService(old)), Some(Object::VirtualService(new)))
            if (old.meta.created, &old.spec.gateways, &old.spec.tls)
                != (new.meta.created, &new.spec.gateways, &new.spec.tls) =>
        {
            istio::wildcards(new)
        }
        _ => return,
    };
    let suffixes = wildcards.iter().filter_map(suffix_of);
    facts.extend(suffixes.map(|suffix| hasher.hash(Fact::Above(suffix))));
}

/// The same for Sidecars.
fn touch_scopes(
    hasher: &FactHasher,
    old: Option<&Object>,
    new: Option<&Object>,
    facts: &mut Vec<u64>,
) {
    let (old, new) = (as_sidecar(old), as_sidecar(new));
    for sidecar in [old, new].into_iter().flatten() {
        let namespace = sidecar.meta.key.namespace();
        facts.push(hasher.hash(Fact::Sidecars(namespace)));
    }
}

/// The same for the kinds that say where hosts are and how they are reached.
fn touch_upstreams(
    hasher: &FactHasher,
    old: Option<&Object>,
    new: Option<&Object>,
    settings: &Settings,
    facts: &mut Vec<u64>,
) {
    for object in [old, new].into_iter().flatten() {
        match object {
            Object::DestinationRule(rule) => {
                let is_shape = istio::rule_change(as_rule(old), as_rule(new)) == RuleChange::Shape;
                for pattern in rule_patterns(rule, settings) {
                    facts.push(hasher.hash(Fact::Rules(&pattern)));
                    facts.extend(is_shape.then(|| hasher.hash(Fact::Subsets(&pattern))));
                }
            }
            Object::ServiceEntry(entry) => {
                let is_same = istio::is_shape_same(as_entry(old), as_entry(new));
                for host in &entry.spec.hosts {
                    let host = host.to_ascii_lowercase();
                    facts.push(hasher.hash(Fact::Entries(&host)));
                    facts.extend((!is_same).then(|| hasher.hash(Fact::EntryShapes(&host))));
                }
            }
            Object::Pod(pod) => {
                if pod_labels(old) != pod_labels(new) {
                    let key = &pod.meta.key;
                    facts.push(hasher.hash(Fact::Object(key.kind, key.id())));
                }
                facts.extend(label_facts(hasher, object));
            }
            _ => facts.extend(label_facts(hasher, object)),
        }
    }
}

/// The names of the facts that a DestinationRule is of.
fn rule_patterns(rule: &DestinationRule, settings: &Settings) -> Vec<String> {
    let domain = &settings.cluster_domain;
    let pattern = istio::rule_host(&rule.spec.host, rule.meta.key.namespace(), domain);
    let all = istio::cluster_suffix(domain);
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
pub fn found_under(hasher: &FactHasher, object: &Object) -> Vec<u64> {
    match object {
        Object::DestinationRule(rule) => {
            let host = rule.spec.host.to_ascii_lowercase();
            vec![hasher.hash(Fact::RulesIn(rule.meta.key.namespace(), &host))]
        }
        Object::ServiceEntry(entry) => {
            let hosts = entry.spec.hosts.iter();
            let mut facts: Vec<u64> = hosts
                .map(|host| hasher.hash(Fact::Entries(&host.to_ascii_lowercase())))
                .collect();
            facts.sort_unstable();
            facts.dedup();
            facts
        }
        Object::WorkloadEntry(_) | Object::Pod(_) => label_facts(hasher, object),
        Object::Sidecar(sidecar) => {
            vec![hasher.hash(Fact::Sidecars(sidecar.meta.key.namespace()))]
        }
        Object::PeerAuthentication(peers) => {
            vec![hasher.hash(Fact::Peers(peers.meta.key.namespace()))]
        }
        Object::Service(service) => selecting(hasher, service).into_iter().collect(),
        Object::Telemetry(telemetry) => {
            let namespace = telemetry.meta.key.namespace();
            vec![hasher.hash(Fact::Telemetries(namespace))]
        }
        _ => bound_facts(hasher, object),
    }
}

/// The label by which a Service is found that selects workloads.
fn selecting(hasher: &FactHasher, service: &Service) -> Option<u64> {
    let (key, value) = service.selector.first()?;
    let namespace = service.meta.key.namespace();
    Some(hasher.hash(Fact::Selecting(namespace, key, value)))
}

/// The labels by which a workload is found.
fn label_facts(hasher: &FactHasher, object: &Object) -> Vec<u64> {
    let labels = match object {
        Object::WorkloadEntry(entry) => &entry.spec.labels,
        Object::Pod(pod) => &pod.labels,
        _ => return Vec::new(),
    };
    let namespace = object.key().namespace();
    let facts = labels.iter();
    facts
        .map(|(key, value)| hasher.hash(Fact::Workloads(namespace, key, value)))
        .collect()
}

/// The Gateways and hosts under which a VirtualService is found.
pub fn bound_facts(hasher: &FactHasher, object: &Object) -> Vec<u64> {
    let Object::VirtualService(service) = object else {
        return Vec::new();
    };
    let pairs = istio::bound(service).into_iter();
    pairs
        .map(|(gateway, host)| hasher.hash(Fact::Bound(&gateway, host.as_str())))
        .collect()
}

/// Whether a class carries the mark of the default class.
pub fn is_default(class: &IngressClass) -> bool {
    class
        .meta
        .annotation("ingressclass.kubernetes.io/is-default-class")
        == Some("true")
}

/// The `namespace/name` of the Service of an EndpointSlice.
pub fn service_of(object: Option<&Object>) -> Option<String> {
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

/// The authorities of a Secret, or why they cannot be read; none where there are none.
pub fn trust_of(object: Option<&Object>) -> Option<Result<&TrustDer, &SecretProblem>> {
    match object {
        Some(Object::Secret(secret)) => match &secret.trust {
            Ok(trust) => trust.as_deref().map(Ok),
            Err(problem) => Some(Err(problem)),
        },
        _ => None,
    }
}

fn as_gateway(object: Option<&Object>) -> Option<&Gateway> {
    match object {
        Some(Object::IstioGateway(gateway)) => Some(gateway),
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

fn as_sidecar(object: Option<&Object>) -> Option<&Sidecar> {
    match object {
        Some(Object::Sidecar(sidecar)) => Some(sidecar),
        _ => None,
    }
}

fn pod_labels(object: Option<&Object>) -> Option<&Labels> {
    match object {
        Some(Object::Pod(pod)) => Some(&pod.labels),
        _ => None,
    }
}

fn as_class(object: Option<&Object>) -> Option<&IngressClass> {
    match object {
        Some(Object::IngressClass(class)) => Some(class),
        _ => None,
    }
}

fn as_service(object: Option<&Object>) -> Option<&Service> {
    match object {
        Some(Object::Service(service)) => Some(service),
        _ => None,
    }
}
