//! The weights of Istio's objects in their namespaces.

use std::sync::Arc;

use ipnet::IpNet;
use myriad_api::Object;
use myriad_api::istio::destination_rule::TrafficPolicy;
use myriad_api::istio::destination_rule::balancer::{LoadBalancer, RingHash};
use myriad_api::istio::destination_rule::connection::{ClientTls, ClientTlsMode};
use myriad_api::istio::virtual_service::{HttpMatch, HttpRoute, TcpMatch, TcpRoute, TlsRoute};
use myriad_api::istio::{
    DestinationRule, DestinationRuleSpec, IstioObject, ServiceEntry, ServiceEntrySpec, SpecProblem,
    StringMatch, VirtualService,
};
use myriad_model::HashTable;

use super::texts;
use crate::regex;
use crate::resolve::table_of;
use crate::settings::{Bounds, Holding, REDUCED_POINTS, ROW_TEXT_BYTES, first_names, text_rows};

/// A rule with rings of [`REDUCED_POINTS`] points in place of its hash tables.
pub(crate) fn reduce_rule(rule: &DestinationRule) -> Object {
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

/// The rest that is kept of an object of Istio's API that takes more memory than its namespace may
/// hold, and whether it takes its place: a policy that nobody can read refuses everything, and a
/// DestinationRule that verifies by what nobody has closes its host. None for kinds whose memory is
/// not bounded.
pub(crate) fn hollow(object: &Object) -> Option<(Object, bool)> {
    fn blank<S: Default>(object: &IstioObject<S>) -> Arc<IstioObject<S>> {
        Arc::new(IstioObject::hollow(&object.meta, S::default()))
    }
    fn unread<S>(object: &IstioObject<Result<S, SpecProblem>>) -> ReadResult<S> {
        let problem = SpecProblem {
            field: "spec".into(),
            message: "is not kept, since it takes more memory than its namespace may have".into(),
        };
        Arc::new(IstioObject::hollow(&object.meta, Err(problem)))
    }
    Some(match object {
        Object::IstioGateway(it) => (Object::IstioGateway(blank(it)), false),
        Object::VirtualService(it) => (Object::VirtualService(blank(it)), false),
        Object::DestinationRule(it) => (Object::DestinationRule(Arc::new(close(it))), true),
        Object::ServiceEntry(it) => (Object::ServiceEntry(blank(it)), false),
        Object::WorkloadEntry(it) => (Object::WorkloadEntry(blank(it)), false),
        Object::Sidecar(it) => (Object::Sidecar(blank(it)), false),
        Object::RequestAuthentication(it) => (Object::RequestAuthentication(unread(it)), true),
        Object::PeerAuthentication(it) => (Object::PeerAuthentication(unread(it)), true),
        Object::AuthorizationPolicy(it) => (Object::AuthorizationPolicy(unread(it)), true),
        Object::Telemetry(it) => (Object::Telemetry(blank(it)), false),
        Object::ProxyConfig(it) => (Object::ProxyConfig(blank(it)), false),
        Object::EnvoyFilter(it) => (Object::EnvoyFilter(blank(it)), false),
        Object::WasmPlugin(it) => (Object::WasmPlugin(blank(it)), false),
        Object::Ingress(_)
        | Object::IngressClass(_)
        | Object::Service(_)
        | Object::EndpointSlice(_)
        | Object::Secret(_)
        | Object::Pod(_)
        | Object::ConfigMap(_)
        | Object::Order(_)
        | Object::OnDemand(_)
        | Object::HostProof(_)
        | Object::Issuer(_)
        | Object::GatewayClass(_)
        | Object::Gateway(_)
        | Object::ListenerSet(_)
        | Object::HttpRoute(_)
        | Object::GrpcRoute(_)
        | Object::TlsRoute(_)
        | Object::TcpRoute(_)
        | Object::UdpRoute(_)
        | Object::BackendTlsPolicy(_)
        | Object::ReferenceGrant(_)
        | Object::Namespace(_) => return None,
    })
}

/// A policy whose spec may not be readable.
type ReadResult<S> = Arc<IstioObject<Result<S, SpecProblem>>>;

/// A DestinationRule that closes the host of another one: it asks for a client's certificate that
/// it does not name.
fn close(rule: &DestinationRule) -> DestinationRule {
    let tls = ClientTls {
        mode: ClientTlsMode::Mutual,
        ..ClientTls::default()
    };
    let policy = TrafficPolicy {
        tls: Some(Box::new(tls)),
        ..TrafficPolicy::default()
    };
    let spec = DestinationRuleSpec {
        host: rule.spec.host.clone(),
        traffic_policy: Some(Box::new(policy)),
        export_to: first_names(&rule.spec.export_to).into(),
        ..DestinationRuleSpec::default()
    };
    IstioObject::hollow(&rule.meta, spec)
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

/// The rows that a rule which delegates counts for at least: those of its delegate are not known
/// before it is followed.
const DELEGATED_ROWS: usize = 64;

/// The rows that the delegates of a VirtualService may have on a host however little it counts for.
const DELEGATED_ROWS_LEAST: usize = 256;

/// The bytes of texts that they may have however little it counts for: a KiB for each row of
/// [`DELEGATED_ROWS`].
const DELEGATED_BYTES_LEAST: usize = DELEGATED_ROWS << 10;

/// The rows that a match by addresses counts for at least, and a block of addresses: each
/// connection is compared with such matches one by one.
const ADDRESSED_ROWS: usize = 64;

/// The rows and texts that the delegates of a VirtualService may still have on a host.
pub(crate) struct DelegatedLeft {
    /// Rows.
    pub rows: usize,
    /// Bytes of texts, once for each row that has them.
    pub bytes: usize,
    /// The bytes that there were at first.
    pub bytes_max: usize,
}

impl DelegatedLeft {
    /// All that the delegates of a VirtualService may have together on a host: as much as its
    /// rules that delegate count for. Texts are bounded where rows are.
    pub(crate) fn of(service: &VirtualService, bounds: &Bounds) -> Self {
        let rules = service.spec.http.iter();
        let rules = rules.filter(|route| route.rare().delegate.is_some());
        let counted: usize = rules.map(rows_of).sum();
        let bytes_max = match bounds.get(Holding::Routes) {
            Some(_) => (counted * ROW_TEXT_BYTES).max(DELEGATED_BYTES_LEAST),
            None => usize::MAX,
        };
        DelegatedLeft {
            rows: counted.max(DELEGATED_ROWS_LEAST),
            bytes: bytes_max,
            bytes_max,
        }
    }
}

/// The rows that a rule counts for on each host.
fn rows_of(route: &HttpRoute) -> usize {
    let least = match route.rare().delegate.is_some() {
        true => DELEGATED_ROWS,
        false => 1,
    };
    let own = texts::of_rule(route);
    let of_match = |matched: &HttpMatch| 1 + text_rows(own + texts::of_match(matched));
    let rows: usize = route.matches.iter().map(of_match).sum();
    rows.max(1 + text_rows(own)).max(least)
}

/// The rows of a rule for TLS of so many hosts: each name that it takes is one of a host, also
/// where a host covers many.
fn rows_of_tls(route: &TlsRoute, hosts: usize) -> usize {
    let rows = route.matches.iter().map(|matched| {
        let least = least_rows(!matched.destination_subnets.is_empty());
        let of_each = least + text_rows(texts::of_tls(matched, &route.route));
        of_each.saturating_mul(matched.sni_hosts.len().max(hosts))
    });
    rows.fold(0, usize::saturating_add).max(hosts)
}

/// The rows that a match of streams counts for at least.
fn least_rows(is_addressed: bool) -> usize {
    if is_addressed { ADDRESSED_ROWS } else { 1 }
}

fn rows_of_tcp(route: &TcpRoute) -> usize {
    let of_match = |matched: &TcpMatch| {
        let is_any = matched.destination_subnets.is_empty() && matched.source_subnet.is_empty();
        least_rows(!is_any) + text_rows(texts::of_tcp(matched, &route.route))
    };
    let rows: usize = route.matches.iter().map(of_match).sum();
    rows.max(1 + text_rows(texts::of_shares(&route.route)))
}

/// Each match is a row on each host, and more where it says much.
pub(crate) fn of_service(service: &VirtualService) -> u64 {
    let spec = &service.spec;
    let of_http = spec.http.iter().map(rows_of);
    let of_tcp = spec.tcp.iter().map(rows_of_tcp);
    let rows: usize = of_http.chain(of_tcp).sum();
    let hosts = spec.hosts.len().max(1);
    let of_tls = spec.tls.iter().map(|route| rows_of_tls(route, hosts));
    let rows = rows.saturating_mul(hosts);
    let rows = of_tls.fold(rows, usize::saturating_add);
    // A host costs something to serve though no rule does.
    let rows = rows.max(hosts) as u64;
    // Hosts share a regex.
    rows.saturating_add(regex_rows(service))
}

/// The rows that the regexes of a VirtualService count for.
pub(crate) fn regex_rows(service: &VirtualService) -> u64 {
    regex::rows(service.spec.http.iter().flat_map(regexes))
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

/// The hosts that a Gateway names, or the rules for TLS of a VirtualService: each of them repeats
/// what VirtualServices for wildcards say.
pub(crate) fn hosts(object: &Object) -> u64 {
    match object {
        Object::IstioGateway(gateway) => {
            let servers = gateway.spec.servers.iter();
            servers.map(|server| server.hosts.len() as u64).sum()
        }
        Object::VirtualService(service) => {
            let rules = service.spec.tls.iter();
            let matches = rules.flat_map(|rule| rule.matches.iter());
            matches.map(|matched| matched.sni_hosts.len() as u64).sum()
        }
        _ => 0,
    }
}

/// The endpoints of an entry, or its addresses where these are more: each port of each host has
/// all of them.
pub(crate) fn of_entry(entry: &ServiceEntry) -> u64 {
    places_of(&entry.spec)
}

fn places_of(spec: &ServiceEntrySpec) -> u64 {
    let addresses = spec.addresses.iter().map(|text| rows_of_address(text));
    let addresses = addresses.fold(0, u64::saturating_add);
    let each = addresses.max(spec.endpoints.len() as u64).max(1);
    let ports = spec.ports.len().max(1) as u64;
    let of_hosts = each.saturating_mul(spec.hosts.len() as u64);
    of_hosts.max(addresses).saturating_mul(ports)
}

/// The endpoints that an address of an entry counts for: each connection at its ports is compared
/// with a block.
fn rows_of_address(text: &str) -> u64 {
    let block = text.parse::<IpNet>();
    let is_block = block.is_ok_and(|block| block.prefix_len() < block.max_prefix_len());
    least_rows(is_block) as u64
}

/// The slots of a rule, for the host as a whole and for each subset; those of one port of its
/// Services.
pub(crate) fn of_rule(rule: &DestinationRule, slots_max: u32) -> u64 {
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

#[cfg(test)]
mod tests {
    use myriad_api::istio::ServiceEntrySpec;
    use myriad_api::istio::service_entry::EntryPort;
    use myriad_api::istio::virtual_service::{TcpMatch, TcpRoute, TlsMatch, TlsRoute};

    use super::{ADDRESSED_ROWS, places_of, rows_of_tcp, rows_of_tls};

    #[test]
    fn blocks_of_an_entry_that_connections_are_compared_with_count_for_more() {
        let names = |texts: &[&str]| -> Box<[Box<str>]> {
            texts.iter().map(|text| Box::from(*text)).collect()
        };
        let entry = |hosts: &[&str], addresses: &[&str], ports: usize| ServiceEntrySpec {
            hosts: names(hosts),
            addresses: names(addresses),
            ports: vec![EntryPort::default(); ports].into(),
            ..ServiceEntrySpec::default()
        };
        let block = ADDRESSED_ROWS as u64;
        let cases: [(&[&str], &[&str], usize, u64); 7] = [
            (&["a.example"], &[], 1, 1),
            (&["a.example"], &["192.0.2.1", "192.0.2.2"], 1, 2),
            (&["a.example"], &["192.0.2.0/24"], 1, block),
            (&["a.example"], &["192.0.2.1/32", "::1"], 1, 2),
            (&["a.example"], &["2001:db8::/32", "::1"], 1, block + 1),
            (&["a.example", "b.example"], &["192.0.2.0/24"], 3, 6 * block),
            (&[], &["192.0.2.0/24"], 2, 2 * block),
        ];
        for (hosts, addresses, ports, weight) in cases {
            let counted = places_of(&entry(hosts, addresses, ports));
            assert_eq!(counted, weight, "{hosts:?} {addresses:?} {ports}");
        }
    }

    #[test]
    fn matches_that_connections_are_compared_with_one_by_one_count_for_more() {
        let texts = |text: &str| -> Box<[Box<str>]> { [Box::<str>::from(text)].into() };
        let subnets = || texts("10.0.0.0/8");
        let any = || TcpMatch::default();
        let to = || TcpMatch {
            destination_subnets: subnets(),
            ..TcpMatch::default()
        };
        let from = || TcpMatch {
            source_subnet: "10.0.0.0/8".into(),
            ..TcpMatch::default()
        };
        for (matches, rows) in [
            (vec![], 1),
            (vec![any(), any()], 2),
            (vec![any(), to()], 1 + ADDRESSED_ROWS),
            (vec![to(), from()], 2 * ADDRESSED_ROWS),
        ] {
            let route = TcpRoute {
                matches: matches.into(),
                ..TcpRoute::default()
            };
            assert_eq!(rows_of_tcp(&route), rows);
        }
        for (destination_subnets, rows) in [(Box::default(), 3), (subnets(), 3 * ADDRESSED_ROWS)] {
            let matched = TlsMatch {
                sni_hosts: texts("a.example"),
                destination_subnets,
                ..TlsMatch::default()
            };
            let route = TlsRoute {
                matches: [matched].into(),
                ..TlsRoute::default()
            };
            assert_eq!(rows_of_tls(&route, 3), rows);
        }
    }
}
