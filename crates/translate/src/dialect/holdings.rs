//! The weights of objects in their namespaces, and the treatment of those beyond a bound.
//!
//! A bound holds for what stands in objects, and not for what follows from them, so that it is
//! known before anything is translated, and a change costs what changes. Of a namespace beyond a
//! bound the oldest objects stay: those whose sum, by age and then by name, is within it.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::config_map::HeaderFields;
use myriad_api::istio::{Labels, SpecProblem};
use myriad_api::{
    ConfigMap, EndpointSlice, Finding, Ingress, Issuer, Meta, Object, ObjectKey, ObjectKind, Pod,
    Secret, Service, Severity,
};

use super::istio::{self, weight};
use super::{gateway, ingress};
use crate::engine::{Amounts, Beyond, Output, Reader, Stays, Unit, UnitKind, Viewers};
use crate::settings::{Bounds, CERTIFICATE_BYTES, Holding, REDUCED_POINTS, Settings};
use crate::store::AtRest;
use crate::view::{VIEW_LABEL_BYTES_MAX, VIEW_LABELS_MAX};

/// The bytes that each user of a Secret counts for beside the name and the hash: about what the two
/// texts take in a list.
const USER_BYTES: usize = 64;

/// The end of the annotation of an Ingress that has further names of its hosts.
const ALIASES: &str = "/server-alias";

/// The bytes of an object that is packed which count for nothing. Most take less, and of these
/// none needs an entry in a ledger that counts towards another bound.
const FREE_BYTES: u64 = 2 << 10;

/// The bytes that a small object counts for where it may count towards no other bound: about what
/// it takes with its places in indexes. By default a namespace may have 262,144 of them.
const LEAST_BYTES: u64 = 1 << 10;

/// The ports of a Service that count for nothing. Most have no more.
const FREE_PORTS: usize = 4;

/// The routes that each further port of a Service counts for: with its upstream and with what it
/// is to each sidecar it takes as much memory as these do.
const PORT_ROUTES: u64 = 4;

/// The labels of a Pod, and their bytes, that count for nothing beside the Pod. Most have no more.
const FREE_LABELS: usize = 32;
const FREE_LABEL_BYTES: usize = 1 << 10;

/// The bytes that each further label counts for beside its text: about what it takes in the view of
/// the Pod's sidecar, which has a copy of all of them, and in what finds it by them.
const LABEL_BYTES: u64 = 400;

/// How often the text of such a label stands there.
const LABEL_COPIES: u64 = 3;

/// The labels of the name of a host that count for nothing. Most have no more.
const FREE_NAME_LABELS: usize = 8;

/// The bytes that each further one counts for: about what is kept of the wildcard that ends there,
/// which is read, and claimed by listeners with TLS.
const NAME_LABEL_BYTES: u64 = 128;

/// An object that is more than its namespace may hold.
pub(crate) static BEYOND: UnitKind = UnitKind {
    stays: |_, _| Stays::WhileBeyond,
    viewers: |_, _| Viewers::Gateways,
    ..UnitKind::needed("beyond", 24)
};

impl Unit {
    /// An object that is more than its namespace may hold.
    pub fn beyond(key: &ObjectKey) -> Unit {
        Unit::of_object(&BEYOND, key)
    }
}

/// Tells that an object is more than its namespace may hold.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let key = unit.object_key();
    let beyond = key
        .as_ref()
        .and_then(|key| Some((key, reader.beyond(key)?)));
    let settings = reader.settings();
    let finding = beyond.and_then(|(key, beyond)| finding(settings, key, beyond));
    Output {
        findings: finding.into_iter().collect(),
        ..Output::default()
    }
}

impl Bounds {
    /// The amounts that an object counts for, where they are bounded.
    pub(crate) fn weigh(&self, object: &Object) -> Amounts {
        let mut amounts = Amounts::default();
        let holdings = Holding::of(object.key().kind).iter();
        let bounded = holdings.filter(|holding| self.get(**holding).is_some());
        for (slot, holding) in amounts.iter_mut().zip(bounded) {
            let amount = self.amount(*holding, object);
            *slot = (amount > 0).then_some((*holding, amount));
        }
        amounts
    }

    fn amount(&self, holding: Holding, object: &Object) -> u64 {
        match object {
            _ if holding == Holding::ObjectBytes => memory_of(object),
            _ if holding == Holding::Hosts => hosts(object),
            _ if holding == Holding::RegexKib => regex_kib(object),
            _ if holding == Holding::Ports => ports(object),
            Object::Ingress(ingress) => ingress::weigh(ingress),
            Object::VirtualService(service) => weight::of_service(service),
            Object::IstioGateway(_) => weight::hosts(object),
            Object::Service(service) => of_ports(service),
            Object::EndpointSlice(slice) => of_slice(slice),
            Object::ServiceEntry(entry) => weight::of_entry(entry),
            Object::DestinationRule(rule) => weight::of_rule(rule, self.upstream_hash_slots),
            Object::Secret(secret) => of_secret(secret),
            Object::Gateway(_)
            | Object::ListenerSet(_)
            | Object::HttpRoute(_)
            | Object::GrpcRoute(_)
            | Object::TlsRoute(_)
            | Object::TcpRoute(_)
            | Object::UdpRoute(_) => gateway::weight::rows(object),
            _ => 1,
        }
    }
}

/// The finding about an object beyond a bound of its namespace.
fn finding(settings: &Settings, key: &ObjectKey, beyond: &Beyond) -> Option<Finding> {
    let holding = beyond.holding;
    let namespace = key.namespace();
    let bound = settings.bounds_of(namespace).get(holding)?;
    let what = holding.words();
    let (field, becomes) = match holding {
        Holding::HashSlots => (
            "spec.trafficPolicy.loadBalancer.consistentHash",
            format!("so its hash tables are rings of {REDUCED_POINTS} points"),
        ),
        Holding::ObjectBytes if beyond.is_reduced && key.kind != ObjectKind::Ingress => {
            ("", closes(key.kind).to_owned())
        }
        _ if beyond.is_reduced => (
            "",
            "so it has no effect; since it restricts access, the paths of older Ingresses of \
             the namespace on its hosts answer 503"
                .to_owned(),
        ),
        _ => ("", "so it is as if it were not there".to_owned()),
    };
    let raise = settings.raise(namespace, holding, bound);
    Some(Finding::new(
        Severity::Error,
        key,
        field,
        format!("would bring namespace {namespace} beyond {bound} {what}, {becomes}"),
        format!("remove other objects of the namespace, or raise {raise}"),
    ))
}

/// The finding about a namespace of which more is found than the bytes that are told.
pub(crate) fn crowded(namespace: &str, bound: u64) -> Finding {
    let key = ObjectKey::new(ObjectKind::Namespace, "", namespace);
    Finding::new(
        Severity::Error,
        &key,
        "",
        format!("has findings that are not told, since others of it take {bound} bytes"),
        format!("mend those that are told, or raise --bound finding-bytes={bound}"),
    )
}

impl Holding {
    /// The holdings that objects of a kind count towards; memory goes first.
    pub const fn of(kind: ObjectKind) -> &'static [Holding] {
        match kind {
            ObjectKind::Ingress
            | ObjectKind::VirtualService
            | ObjectKind::HttpRoute
            | ObjectKind::GrpcRoute => &[
                Holding::ObjectBytes,
                Holding::Routes,
                Holding::Hosts,
                Holding::RegexKib,
            ],
            ObjectKind::IstioGateway | ObjectKind::Gateway | ObjectKind::ListenerSet => &[
                Holding::ObjectBytes,
                Holding::Routes,
                Holding::Hosts,
                Holding::Ports,
            ],
            ObjectKind::TlsRoute | ObjectKind::TcpRoute | ObjectKind::UdpRoute => {
                &[Holding::ObjectBytes, Holding::Routes, Holding::Hosts]
            }
            ObjectKind::EndpointSlice | ObjectKind::ServiceEntry | ObjectKind::WorkloadEntry => {
                &[Holding::ObjectBytes, Holding::Endpoints]
            }
            ObjectKind::Service => &[Holding::ObjectBytes, Holding::Routes],
            ObjectKind::Secret => &[Holding::Certificates],
            ObjectKind::DestinationRule => &[Holding::ObjectBytes, Holding::HashSlots],
            ObjectKind::Sidecar
            | ObjectKind::RequestAuthentication
            | ObjectKind::PeerAuthentication
            | ObjectKind::AuthorizationPolicy
            | ObjectKind::Telemetry
            | ObjectKind::ProxyConfig
            | ObjectKind::EnvoyFilter
            | ObjectKind::WasmPlugin
            | ObjectKind::Pod
            | ObjectKind::ConfigMap
            | ObjectKind::BackendTlsPolicy
            | ObjectKind::ReferenceGrant => &[Holding::ObjectBytes],
            ObjectKind::Issuer => &[Holding::ObjectBytes, Holding::Issuers],
            // How many orders, certificates on demand and proofs there are is bounded where they
            // are made, and how many issuers where they are used: of these the operator's go
            // first. Who makes what is of the whole cluster is its operator.
            ObjectKind::IngressClass
            | ObjectKind::Order
            | ObjectKind::OnDemand
            | ObjectKind::HostProof
            | ObjectKind::ClusterIssuer
            | ObjectKind::GatewayClass
            | ObjectKind::Namespace => &[],
        }
    }
}

/// The fate of an object that restricts or verifies something and takes too much memory.
fn closes(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::DestinationRule => {
            "so it is not kept; since it may say how endpoints are verified, requests to its host \
             get 503"
        }
        _ => {
            "so it is not kept; since it may restrict access, it refuses all that the workloads of \
             its namespace are asked"
        }
    }
}

/// The object that takes the place of one beyond a bound; none where nothing does. A
/// DestinationRule stays, since it may say how endpoints are verified; of an Ingress that restricts
/// access enough stays to keep its paths from being open.
pub(crate) fn reduce(object: &Object, ignored: &BTreeSet<String>) -> Option<Object> {
    match object {
        Object::DestinationRule(rule) => Some(weight::reduce_rule(rule)),
        Object::Ingress(ingress) => {
            let closing = ingress::closing(ingress, ignored)?;
            Some(Object::Ingress(Arc::new(closing)))
        }
        _ => None,
    }
}

/// The hosts that an object claims by what it says alone.
fn hosts(object: &Object) -> u64 {
    match object {
        Object::Ingress(ingress) => ingress::hosts(ingress),
        Object::IstioGateway(_) | Object::VirtualService(_) => istio::hosts(object),
        _ => gateway::units::hosts(object),
    }
}

/// The ports that an object names beside those that are there without it.
fn ports(object: &Object) -> u64 {
    let mut ports: BTreeSet<(u16, bool)> = match object {
        Object::IstioGateway(gateway) => {
            let servers = gateway.spec.servers.iter();
            servers.map(|server| (server.port.number, false)).collect()
        }
        _ => gateway::units::port_numbers(object),
    };
    ports.retain(|port| !matches!(port, (80 | 443, false)));
    ports.len() as u64
}

/// The KiB that the regexes of an object may take.
fn regex_kib(object: &Object) -> u64 {
    match object {
        Object::Ingress(ingress) => ingress::regex_rows(ingress),
        Object::VirtualService(service) => weight::regex_rows(service),
        _ => gateway::weight::regex_rows(object),
    }
}

/// The rest that is kept of an object that takes more memory than its namespace may hold, and
/// whether it takes its place: of an Ingress that restricts access what keeps its paths from being
/// open.
pub(crate) fn hollow(object: &Object, ignored: &BTreeSet<String>) -> Option<(Object, bool)> {
    Some(match object {
        Object::Ingress(ingress) => {
            let closing = ingress::closing(ingress, ignored);
            let is_closing = closing.is_some();
            let rest = closing.unwrap_or_else(|| Ingress {
                meta: blank(&ingress.meta),
                class_name: None,
                default_backend: None,
                tls: Box::default(),
                rules: Box::default(),
            });
            (Object::Ingress(Arc::new(rest)), is_closing)
        }
        Object::Service(service) => {
            let rest = Service {
                meta: blank(&service.meta),
                external_name: None,
                selector: Labels::default(),
                ports: Box::default(),
                addresses: Box::default(),
                is_headless: false,
            };
            (Object::Service(Arc::new(rest)), false)
        }
        Object::EndpointSlice(slice) => {
            let rest = EndpointSlice {
                meta: blank(&slice.meta),
                service: None,
                endpoints: Box::default(),
                ports: Box::default(),
            };
            (Object::EndpointSlice(Arc::new(rest)), false)
        }
        Object::ConfigMap(map) => {
            let rest = ConfigMap {
                meta: blank(&map.meta),
                data: Box::default(),
                fields: HeaderFields::default(),
                trust: Ok(None),
            };
            (Object::ConfigMap(Arc::new(rest)), false)
        }
        Object::Pod(pod) => {
            let rest = Pod {
                meta: blank(&pod.meta),
                uid: None,
                labels: Labels::default(),
                address: None,
                account: None,
                owner: None,
                is_ready: false,
            };
            (Object::Pod(Arc::new(rest)), false)
        }
        Object::Issuer(issuer) => (Object::Issuer(Arc::new(hollow_issuer(issuer))), false),
        _ => return gateway::weight::hollow(object).or_else(|| weight::hollow(object)),
    })
}

/// An issuer of which only its name is kept: it cannot be used, and says so.
fn hollow_issuer(issuer: &Issuer) -> Issuer {
    let problem = SpecProblem {
        field: "spec".into(),
        message: "is not kept".into(),
    };
    Issuer {
        meta: blank(&issuer.meta),
        controller: issuer.controller.clone(),
        spec: Err(problem),
        notes: Box::default(),
        bytes: 0,
    }
}

/// The metadata of an object without its annotations.
fn blank(meta: &Meta) -> Meta {
    Meta {
        annotations: Box::default(),
        ..meta.clone()
    }
}

/// The bytes of memory that an object counts for.
fn memory_of(object: &Object) -> u64 {
    let bytes = match object.bytes() {
        0 => (AtRest::bytes_of(object) as u64).saturating_sub(FREE_BYTES),
        bytes => u64::from(bytes),
    };
    match object {
        // They count in routes and endpoints for one, however small they are.
        Object::EndpointSlice(_) | Object::WorkloadEntry(_) => bytes,
        Object::Ingress(_) => bytes + of_long_names(object),
        Object::Pod(pod) => bytes.max(LEAST_BYTES) + copies_of_labels(pod),
        _ => {
            let of_api =
                gateway::weight::status_bytes(object) + gateway::weight::place_bytes(object);
            bytes.max(LEAST_BYTES) + of_api + of_long_names(object)
        }
    }
}

/// The bytes that names of hosts with very many labels count for; none of routes for requests,
/// which count for their places.
fn of_long_names(object: &Object) -> u64 {
    let mut labels = 0;
    let mut add = |name: &str| {
        labels += name.split('.').count().saturating_sub(FREE_NAME_LABELS) as u64;
    };
    match object {
        Object::Ingress(ingress) => {
            let of_tls = ingress.tls.iter().flat_map(|it| it.hosts.iter());
            let of_rules = ingress.rules.iter().filter_map(|it| it.host.as_ref());
            of_tls.chain(of_rules).for_each(|name| add(name));
            let annotations = ingress.meta.annotations.iter();
            let aliases = annotations.filter(|(key, _)| key.ends_with(ALIASES));
            let aliases = aliases.flat_map(|(_, value)| value.split(','));
            aliases.for_each(add);
        }
        Object::IstioGateway(gateway) => {
            let servers = gateway.spec.servers.iter();
            let names = servers.flat_map(|it| it.hosts.iter());
            names.for_each(|name| add(name));
        }
        Object::VirtualService(service) => {
            let rules = service.spec.tls.iter();
            let matches = rules.flat_map(|it| it.matches.iter());
            let names = matches.flat_map(|it| it.sni_hosts.iter());
            let names = names.chain(&service.spec.hosts);
            names.for_each(|name| add(name));
        }
        Object::TlsRoute(route) => route.spec.hostnames.iter().for_each(|name| add(name)),
        _ => gateway::units::listener_names(object).for_each(add),
    }
    labels * NAME_LABEL_BYTES
}

/// The bytes of the copies that the view of a Pod's sidecar has of its labels.
fn copies_of_labels(pod: &Pod) -> u64 {
    let labels = pod.labels.iter();
    let bytes: usize = labels.map(|(key, value)| key.len() + value.len()).sum();
    // There is no view of such a Pod.
    if pod.labels.len() > VIEW_LABELS_MAX || bytes > VIEW_LABEL_BYTES_MAX {
        return 0;
    }
    let count = pod.labels.len().saturating_sub(FREE_LABELS) as u64;
    let bytes = bytes.saturating_sub(FREE_LABEL_BYTES) as u64;
    count * LABEL_BYTES + bytes * LABEL_COPIES
}

/// Each port stands in every sidecar that may reach its Service, of whatever namespace.
fn of_ports(service: &Service) -> u64 {
    let counted = service.ports.len().saturating_sub(FREE_PORTS);
    counted as u64 * PORT_ROUTES
}

/// Each endpoint has all ports, and ports are there without any endpoint.
fn of_slice(slice: &EndpointSlice) -> u64 {
    slice.endpoints.len().max(1) as u64 * slice.ports.len().max(1) as u64
}

/// A Secret counts for what is kept of it: a chain with its key, authorities, users, or values for
/// issuers.
fn of_secret(secret: &Secret) -> u64 {
    let annotations = secret.meta.annotations.iter();
    let mut bytes: usize = annotations
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if let Ok(pair) = &secret.tls {
        bytes += pair.key.expose().len();
        bytes += pair.chain.iter().map(|it| it.len()).sum::<usize>();
    }
    if let Ok(Some(trust)) = &secret.trust {
        let certificates = trust.roots.iter().chain(trust.crls.iter());
        bytes += certificates.map(|it| it.len()).sum::<usize>();
        let users = trust.users.expose().iter();
        bytes += users
            .map(|(name, hash)| USER_BYTES + name.len() + hash.len())
            .sum::<usize>();
    }
    bytes += secret.keys.as_ref().map_or(0, |keys| keys.bytes());
    (bytes as u64).div_ceil(CERTIFICATE_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use myriad_api::secret::{Users, UsersForm};
    use myriad_api::{Meta, ObjectKey, ObjectKind, Secret, SecretProblem, TrustDer};

    use super::of_secret;

    #[test]
    fn a_secret_counts_for_what_is_kept_of_it() {
        let weight = |users: usize| {
            let user = |number: usize| -> (Box<str>, Box<str>) {
                (format!("{number:04}").into(), "x".repeat(60).into())
            };
            let trust = TrustDer {
                roots: Box::default(),
                crls: Box::default(),
                users: Users::new(UsersForm::File, (0..users).map(user).collect()),
            };
            of_secret(&Secret {
                meta: Meta::new(ObjectKey::new(ObjectKind::Secret, "shop", "users")),
                secret_type: "Opaque".into(),
                tls: Err(SecretProblem::OtherType),
                trust: Ok(Some(Box::new(trust))),
                keys: None,
            })
        };
        // 64 bytes for each user, and as many beside them.
        for (users, weight_of_them) in [(0, 1), (32, 1), (33, 2), (10_000, 313)] {
            assert_eq!(weight(users), weight_of_them, "{users}");
        }
    }
}
