//! What one namespace may make proxies hold: what objects count for, and what becomes of those
//! beyond.
//!
//! A bound holds for what stands in objects, and not for what follows from them, so that it is
//! known before anything is translated, and a change costs what changes. Of a namespace beyond a
//! bound the oldest objects stay: those whose sum, by age and then by name, is within it.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::istio::destination_rule::TrafficPolicy;
use myriad_api::istio::destination_rule::balancer::{LoadBalancer, RingHash};
use myriad_api::istio::virtual_service::HttpRoute;
use myriad_api::istio::{DestinationRule, ServiceEntry, StringMatch, VirtualService};
use myriad_api::{EndpointSlice, Finding, Ingress, Object, ObjectKind, PathType, Severity};
use myriad_model::HashTable;

use crate::ingress::{self, looks_like_regex};
use crate::istio::table_of;
use crate::regex;

/// The end of the name of an annotation that has a regex.
const CANARY_PATTERN: &str = "/canary-by-header-pattern";

/// The points on the rings of a DestinationRule beyond the bound of its namespace.
const REDUCED_POINTS: u32 = 64;

/// The bytes of a compiled regex that count as one route.
const ROW_BYTES: u64 = 1 << 10;

/// What a namespace is bounded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holding {
    /// Rows of route tables: paths of Ingresses, and matches of VirtualServices on each host; for
    /// a regex one more for each [`ROW_BYTES`] that it may take once it is compiled.
    Routes,
    /// Addresses with a port of EndpointSlices, of ServiceEntries for each of their hosts, and of
    /// WorkloadEntries.
    Endpoints,
    /// Secrets.
    Certificates,
    /// Points of hash rings and places of Maglev tables in DestinationRules.
    HashSlots,
}

/// What one namespace may hold, and one upstream. Zero is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// See [`Holding::Routes`].
    pub routes: u64,
    /// See [`Holding::Endpoints`].
    pub endpoints: u64,
    /// See [`Holding::Certificates`].
    pub certificates: u64,
    /// See [`Holding::HashSlots`].
    pub hash_slots: u64,
    /// The slots that one upstream may have, 2 to [`HashTable::SIZE_MAX`].
    pub upstream_hash_slots: u32,
    /// The subsets that a host may have.
    pub host_subsets: u64,
    /// The endpoints that the subsets of a host may have together, where they are more than eight
    /// times those of the host.
    pub subset_endpoints: u64,
}

impl Default for Bounds {
    /// Those of who writes for himself.
    fn default() -> Self {
        Bounds {
            routes: 0,
            endpoints: 0,
            certificates: 0,
            hash_slots: 4 << 20,
            upstream_hash_slots: 65_537,
            host_subsets: 256,
            subset_endpoints: 65_536,
        }
    }
}

impl Bounds {
    /// Those of namespaces of different people.
    pub fn of_tenants() -> Self {
        Bounds {
            routes: 250_000,
            endpoints: 250_000,
            certificates: 150_000,
            ..Bounds::default()
        }
    }

    /// The subsets that a host may have.
    pub fn subsets_max(&self) -> usize {
        let bound = usize::try_from(self.host_subsets).unwrap_or(usize::MAX);
        match bound {
            0 => usize::MAX,
            bound => bound,
        }
    }

    /// What a namespace may hold; none where it is not bounded.
    pub fn get(&self, holding: Holding) -> Option<u64> {
        let bound = match holding {
            Holding::Routes => self.routes,
            Holding::Endpoints => self.endpoints,
            Holding::Certificates => self.certificates,
            Holding::HashSlots => self.hash_slots,
        };
        Some(bound).filter(|bound| *bound > 0)
    }

    /// What an object counts for; none where it is not bounded.
    pub fn weigh(&self, object: &Object) -> Option<(Holding, u64)> {
        let holding = Holding::of(object.key().kind)?;
        self.get(holding)?;
        let weight = match object {
            Object::Ingress(ingress) => of_ingress(ingress),
            Object::VirtualService(service) => of_service(service),
            Object::EndpointSlice(slice) => of_slice(slice),
            Object::ServiceEntry(entry) => of_entry(entry),
            Object::DestinationRule(rule) => of_rule(rule, self.upstream_hash_slots),
            _ => 1,
        };
        (weight > 0).then_some((holding, weight))
    }

    /// What people are told of an object beyond the bound of its namespace. `ignored` are the
    /// annotations that are ignored on request.
    pub fn finding(&self, object: &Object, ignored: &BTreeSet<String>) -> Option<Finding> {
        let key = object.key();
        let holding = Holding::of(key.kind)?;
        let bound = self.get(holding)?;
        let (name, what) = (holding.name(), holding.words());
        let namespace = key.namespace();
        let (field, becomes) = match holding {
            Holding::HashSlots => (
                "spec.trafficPolicy.loadBalancer.consistentHash",
                format!("so its hash tables are rings of {REDUCED_POINTS} points"),
            ),
            _ if reduce(object, ignored).is_some() => (
                "",
                "so it has no effect; since it restricts access, the paths of older Ingresses of \
                 the namespace on its hosts answer 503"
                    .to_owned(),
            ),
            _ => ("", "so it is as if it were not there".to_owned()),
        };
        Some(Finding::new(
            Severity::Error,
            key,
            field,
            format!("would bring namespace {namespace} beyond {bound} {what}, {becomes}"),
            format!("remove other objects of the namespace, or raise --bound {name}={bound}"),
        ))
    }
}

impl Holding {
    /// What objects of a kind count for.
    pub const fn of(kind: ObjectKind) -> Option<Holding> {
        match kind {
            ObjectKind::Ingress | ObjectKind::VirtualService => Some(Holding::Routes),
            ObjectKind::EndpointSlice | ObjectKind::ServiceEntry | ObjectKind::WorkloadEntry => {
                Some(Holding::Endpoints)
            }
            ObjectKind::Secret => Some(Holding::Certificates),
            ObjectKind::DestinationRule => Some(Holding::HashSlots),
            _ => None,
        }
    }

    /// The name that its bound is set by.
    pub const fn name(self) -> &'static str {
        match self {
            Holding::Routes => "routes",
            Holding::Endpoints => "endpoints",
            Holding::Certificates => "certificates",
            Holding::HashSlots => "hash-slots",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Holding::Routes => "routes",
            Holding::Endpoints => "endpoints",
            Holding::Certificates => "certificates or authorities",
            Holding::HashSlots => "slots of hash tables",
        }
    }
}

/// What stands in the place of an object beyond a bound; none where nothing does. A DestinationRule
/// stays, since it may say how endpoints are verified, and of an Ingress that restricts access so
/// much that what it restricts is not open.
pub fn reduce(object: &Object, ignored: &BTreeSet<String>) -> Option<Object> {
    match object {
        Object::DestinationRule(rule) => Some(reduce_rule(rule)),
        Object::Ingress(ingress) => {
            let closing = ingress::closing(ingress, ignored)?;
            Some(Object::Ingress(Arc::new(closing)))
        }
        _ => None,
    }
}

fn reduce_rule(rule: &DestinationRule) -> Object {
    let mut rule = rule.clone();
    let subsets = rule.spec.subsets.iter_mut();
    let policies = subsets.filter_map(|subset| subset.traffic_policy.as_deref_mut());
    for policy in policies.chain(rule.spec.traffic_policy.as_deref_mut()) {
        let ports = policy.port_level_settings.iter_mut();
        let balancers = ports.filter_map(|port| port.load_balancer.as_deref_mut());
        balancers
            .chain(policy.load_balancer.as_deref_mut())
            .for_each(shrink);
    }
    Object::DestinationRule(Arc::new(rule))
}

fn shrink(balancer: &mut LoadBalancer) {
    if let Some(hash) = &mut balancer.consistent_hash {
        hash.maglev = None;
        hash.minimum_ring_size = 0;
        hash.ring_hash = Some(RingHash {
            minimum_ring_size: u64::from(REDUCED_POINTS),
        });
    }
}

fn of_ingress(ingress: &Ingress) -> u64 {
    let paths = ingress.rules.iter().map(|rule| rule.paths.len().max(1));
    let default = usize::from(ingress.default_backend.is_some());
    let written = ingress.rules.iter().flat_map(|rule| &rule.paths);
    let written = written.filter(|path| path.path_type != PathType::Exact);
    let of_paths = written.filter_map(|path| path.path.as_deref());
    let annotations = ingress.meta.annotations.iter();
    let of_canary = annotations.filter(|(name, _)| name.ends_with(CANARY_PATTERN));
    let regexes = of_paths
        .filter(|path| looks_like_regex(path))
        .chain(of_canary.map(|(_, pattern)| &**pattern));
    of_regexes(regexes).saturating_add((paths.sum::<usize>() + default) as u64)
}

fn of_regexes<'a>(patterns: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = patterns.filter_map(regex::bytes);
    let rows = bytes.map(|bytes| bytes.div_ceil(ROW_BYTES));
    rows.fold(0, u64::saturating_add)
}

/// Each match is a row on each host.
fn of_service(service: &VirtualService) -> u64 {
    let spec = &service.spec;
    let of_http = spec.http.iter().map(|route| route.matches.len().max(1));
    let of_tls = spec.tls.iter().map(|route| route.matches.len().max(1));
    let of_tcp = spec.tcp.iter().map(|route| route.matches.len().max(1));
    let rows: usize = of_http.chain(of_tls).chain(of_tcp).sum();
    let rows = (rows as u64).saturating_mul(spec.hosts.len().max(1) as u64);
    // Hosts share a regex.
    rows.saturating_add(of_regexes(spec.http.iter().flat_map(regexes)))
}

fn regexes(route: &HttpRoute) -> impl Iterator<Item = &str> {
    let tests = route.matches.iter().flat_map(|matched| {
        let rare = matched.rare();
        let single = [&matched.uri, &rare.scheme, &rare.method, &rare.authority];
        let maps = [&matched.headers, &rare.query_params, &rare.without_headers];
        let of_maps = maps.into_iter().flat_map(|map| map.iter());
        let of_maps = of_maps.map(|(_, test)| test);
        single.into_iter().flatten().chain(of_maps)
    });
    let cors = route.rare().cors_policy.iter();
    let tests = tests.chain(cors.flat_map(|cors| &cors.allow_origins));
    let of_tests = tests.filter_map(|test| match test {
        StringMatch::Regex(pattern) => Some(&**pattern),
        _ => None,
    });
    let rewrite = route.rewrite.as_ref();
    let substituted = rewrite.and_then(|rewrite| rewrite.uri_regex_rewrite.as_ref());
    of_tests.chain(substituted.map(|rule| &*rule.pattern))
}

fn of_slice(slice: &EndpointSlice) -> u64 {
    slice.endpoints.len() as u64 * slice.ports.len().max(1) as u64
}

fn of_entry(entry: &ServiceEntry) -> u64 {
    let spec = &entry.spec;
    // Each host has all endpoints.
    let of_hosts = spec.endpoints.len().max(1).saturating_mul(spec.hosts.len());
    let addresses = of_hosts.max(spec.addresses.len()) as u64;
    addresses.saturating_mul(spec.ports.len().max(1) as u64)
}

/// The slots of a rule, for the host as a whole and for each subset; those of one port of its
/// Services.
fn of_rule(rule: &DestinationRule, slots_max: u32) -> u64 {
    let top = rule.spec.traffic_policy.as_deref();
    let own = |policy: Option<&TrafficPolicy>| of_policy(policy, slots_max);
    let of_subsets = rule.spec.subsets.iter().map(|subset| {
        let policy = subset.traffic_policy.as_deref();
        let has_own = policy.is_some_and(|policy| policy.load_balancer.is_some());
        match has_own {
            true => own(policy),
            false => own(policy).saturating_add(own(top)),
        }
    });
    of_subsets.fold(own(top), u64::saturating_add)
}

fn of_policy(policy: Option<&TrafficPolicy>, slots_max: u32) -> u64 {
    let Some(policy) = policy else { return 0 };
    let ports = policy.port_level_settings.iter();
    let balancers = ports.filter_map(|port| port.load_balancer.as_deref());
    let balancers = balancers.chain(policy.load_balancer.as_deref());
    balancers
        .filter_map(|balancer| balancer.consistent_hash.as_ref())
        .filter_map(|hash| table_of(hash, slots_max))
        .map(|table| match table {
            HashTable::Ring(slots) | HashTable::Maglev(slots) => u64::from(slots),
        })
        .sum()
}
