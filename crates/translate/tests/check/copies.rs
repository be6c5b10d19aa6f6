//! Copies of endpoints: what the subsets of a namespace have together, and what its selectors find.

use std::collections::BTreeMap;

use myriad_api::Change;
use myriad_model::{Balancer, HashTable};
use myriad_translate::{Bounds, Engine, Settings};
use proptest::prelude::*;

use crate::properties::run_any;
use crate::world;

/// How many hosts the Gateway has.
const HOSTS: usize = 40;

fn engine(copies: u64) -> Engine {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            endpoint_copies: copies,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let hosts = list(HOSTS, |host| format!("h{host}.example"));
    let server = format!("{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [{hosts}]}}");
    let gateway = object(
        "networking.istio.io/v1",
        "Gateway",
        "name: edge",
        &format!("spec: {{servers: [{server}]}}"),
    );
    engine.apply(world::changes(&gateway), world::NOW);
    engine
}

fn list(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect::<Vec<_>>().join(", ")
}

fn object(version: &str, kind: &str, meta: &str, rest: &str) -> String {
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{namespace: shop, {meta}}}\n{rest}\n")
}

/// A Service of so many endpoints, the older the smaller its number.
fn service(number: usize, endpoints: usize) -> String {
    let created = format!("2026-01-{:02}T{:02}:00:00Z", number / 24 + 1, number % 24);
    let endpoints = list(endpoints, |at| {
        format!(
            "{{addresses: [10.{number}.0.{}], targetRef: {{kind: Pod, name: p}}}}",
            at + 1
        )
    });
    let objects = [
        object(
            "v1",
            "Service",
            &format!("name: m{number}, creationTimestamp: {created}"),
            "spec: {ports: [{name: http, port: 80}]}",
        ),
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            &format!("name: m{number}-1, labels: {{kubernetes.io/service-name: m{number}}}"),
            &format!(
                "addressType: IPv4\nports: [{{name: http, port: 9000}}]\nendpoints: [{endpoints}]"
            ),
        ),
    ];
    objects.join("---\n")
}

/// Subsets of a Service, each of which has all endpoints.
fn subsets(number: usize, count: usize) -> String {
    let subsets = list(count, |at| format!("{{name: s{at}, labels: {{a: b}}}}"));
    object(
        "networking.istio.io/v1",
        "DestinationRule",
        &format!("name: m{number}"),
        &format!("spec: {{host: m{number}, subsets: [{subsets}]}}"),
    )
}

/// A route of a host to each subset of a Service.
fn routes(host: usize, number: usize, count: usize) -> String {
    let rules = list(count, |at| {
        format!(
            "{{match: [{{uri: {{prefix: /{at}}}}}], \
             route: [{{destination: {{host: m{number}, subset: s{at}}}}}]}}"
        )
    });
    object(
        "networking.istio.io/v1",
        "VirtualService",
        &format!("name: h{host}"),
        &format!("spec: {{hosts: [h{host}.example], gateways: [edge], http: [{rules}]}}"),
    )
}

/// The Pod behind every endpoint.
fn pod() -> String {
    object("v1", "Pod", "name: p, labels: {a: b}", "spec: {}")
}

/// A host with a Service of its own, and so many subsets of it.
fn host(number: usize, endpoints: usize, count: usize) -> String {
    let objects = [
        service(number, endpoints),
        subsets(number, count),
        routes(number, number, count),
    ];
    objects.join("---\n")
}

/// The endpoints of each upstream that has any.
fn rows(engine: &Engine) -> BTreeMap<String, usize> {
    let snapshot = engine.snapshot();
    let all = snapshot.iter().filter_map(|sealed| {
        let endpoints = sealed.endpoints()?.endpoints.len();
        Some((sealed.name().as_str().to_owned(), endpoints))
    });
    all.filter(|(_, endpoints)| *endpoints > 0).collect()
}

fn sum(engine: &Engine) -> usize {
    rows(engine).values().sum()
}

fn findings(engine: &Engine) -> Vec<String> {
    engine.findings().map(ToString::to_string).collect()
}

fn beyond(engine: &Engine) -> Vec<String> {
    let all = findings(engine).into_iter();
    all.filter(|it| it.contains("--bound endpoint-copies="))
        .collect()
}

#[test]
fn forty_hosts_with_subsets_have_what_is_bounded() {
    let all: Vec<String> = (0..HOSTS).map(|number| host(number, 5, 4)).collect();
    let all = format!("{}---\n{}", all.join("---\n"), pod());
    let mut free = engine(0);
    free.apply(world::changes(&all), world::NOW);
    assert_eq!((sum(&free), beyond(&free).len()), (800, 0));
    let mut bounded = engine(200);
    bounded.apply(world::changes(&all), world::NOW);
    assert_eq!((sum(&bounded), beyond(&bounded).len()), (200, 120));
    // The oldest stay.
    assert!(rows(&bounded).contains_key("shop/m9:80@s3"));
    assert!(!rows(&bounded).contains_key("shop/m10:80@s0"));
}

#[test]
fn the_bound_is_of_one_namespace() {
    let mut engine = engine(20);
    let all = [host(0, 5, 4), host(1, 5, 1), pod()].join("---\n");
    engine.apply(world::changes(&all), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (20, 1));
    let other = format!("{}---\n{}", host(1, 5, 4), pod());
    let other = other.replace("namespace: shop", "namespace: blog");
    let other = other.replace("gateways: [edge]", "gateways: [shop/edge]");
    let other = other.replace("h1.example", "h2.example");
    engine.apply(world::changes(&other), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (40, 1));
}

#[test]
fn one_more_subset_loses_and_older_ones_stay() {
    let mut engine = engine(20);
    let all = [host(0, 5, 2), host(1, 5, 2), pod()].join("---\n");
    engine.apply(world::changes(&all), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (20, 0));
    let before = rows(&engine);
    engine.apply(world::changes(&host(2, 5, 1)), world::NOW);
    assert_eq!(rows(&engine), before);
    assert_eq!(
        beyond(&engine),
        [
            "error: Service shop/m2: spec.ports: would bring namespace shop beyond 20 endpoints \
          in subsets, by upstream-hash-by and by selectors, or texts of DestinationRules, so \
          subset s0 of port 80 has none, and its routes answer 503; remove subsets, selectors and \
          long texts of DestinationRules that nobody needs, or raise \
          --bound endpoint-copies=20"
        ]
    );
    // One more of the oldest takes the place of the youngest that stays.
    engine.apply(world::changes(&host(0, 5, 3)), world::NOW);
    let left: Vec<String> = rows(&engine).into_keys().collect();
    let expected = ["m0:80@s0", "m0:80@s1", "m0:80@s2", "m1:80@s0"];
    assert_eq!(left, expected.map(|name| format!("shop/{name}")));
    assert_eq!(beyond(&engine).len(), 2);
    // An endpoint that comes counts as well, and what nobody uses does not.
    engine.apply(world::changes(&service(0, 6)), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (18, 3));
    let gone = "remove VirtualService shop/h0\n";
    engine.apply(world::changes(gone), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (15, 0));
}

#[test]
fn hosts_that_share_a_service_share_its_subsets() {
    let mut engine = engine(40);
    let shared = (0..HOSTS).map(|host| routes(host, 0, 8));
    let all = [service(0, 5), subsets(0, 8), pod()].into_iter();
    let all: Vec<String> = all.chain(shared).collect();
    let all = world::changes(&all.join("---\n"));
    engine.apply(all, world::NOW);
    assert_eq!((rows(&engine).len(), sum(&engine)), (8, 40));
    assert_eq!(beyond(&engine), Vec::<String>::new());
    // One endpoint more is one more in each subset.
    let more = world::changes(&service(0, 6));
    engine.apply(more, world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (36, 2));
}

#[test]
fn what_ingresses_hash_by_is_a_copy_each() {
    let mut engine = engine(10);
    let ingress = |number: usize, by: &str| {
        let meta = format!(
            "name: i{number}, annotations: {{nginx.ingress.kubernetes.io/upstream-hash-by: '{by}'}}"
        );
        let backend = "{service: {name: m0, port: {number: 80}}}";
        let paths = format!("[{{path: /, pathType: Prefix, backend: {backend}}}]");
        object(
            "networking.k8s.io/v1",
            "Ingress",
            &meta,
            &format!("spec: {{rules: [{{host: i{number}.example, http: {{paths: {paths}}}}}]}}"),
        )
    };
    // Text between variables makes no other copy.
    let all = ["$request_uri", "a$request_uri", "$host", "$arg_a"];
    let all = all.iter().enumerate().map(|(at, by)| ingress(at, by));
    let all: Vec<String> = all.chain([service(0, 5), pod()]).collect();
    engine.apply(world::changes(&all.join("---\n")), world::NOW);
    assert_eq!((rows(&engine).len(), sum(&engine)), (2, 10));
    assert_eq!(beyond(&engine).len(), 1);
}

#[test]
fn ports_of_one_name_are_copies() {
    let mut engine = engine(10);
    let ports = list(4, |at| format!("{{name: http, port: {}}}", 80 + at));
    let all = service(0, 5).replace("[{name: http, port: 80}]", &format!("[{ports}]"));
    let paths = list(4, |at| {
        let backend = format!("{{service: {{name: m0, port: {{number: {}}}}}}}", 80 + at);
        format!("{{path: /{at}, pathType: Prefix, backend: {backend}}}")
    });
    let ingress = object(
        "networking.k8s.io/v1",
        "Ingress",
        "name: i",
        &format!("spec: {{rules: [{{host: i.example, http: {{paths: [{paths}]}}}}]}}"),
    );
    let all = [all, ingress].join("---\n");
    engine.apply(world::changes(&all), world::NOW);
    // The first is what the slice counts for, and two more are ten.
    let left: Vec<String> = rows(&engine).into_keys().collect();
    assert_eq!(left, ["shop/m0:80", "shop/m0:81", "shop/m0:82"]);
    assert_eq!(beyond(&engine).len(), 1);
}

#[test]
fn long_texts_of_a_rule_count_for_each_port_and_subset() {
    // 20 names of 76 bytes with what divides them: 1,600 bytes, and five rows beyond 512 bytes.
    let names = list(20, |at| {
        format!("{}.example", format!("{at:02}").repeat(34))
    });
    let tls = format!("trafficPolicy: {{tls: {{mode: SIMPLE, subjectAltNames: [{names}]}}}}");
    let rule = |namespace: &str| {
        let rule = object(
            "networking.istio.io/v1",
            "DestinationRule",
            "name: texts",
            &format!("spec: {{host: m0.shop.svc.cluster.local, {tls}, exportTo: ['*']}}"),
        );
        rule.replace("namespace: shop", &format!("namespace: {namespace}"))
    };
    let ports = list(4, |at| format!("{{name: http-{at}, port: {}}}", 80 + at));
    let service = service(0, 0).replace("[{name: http, port: 80}]", &format!("[{ports}]"));
    let rules = list(4, |at| {
        let destination = format!("{{host: m0, port: {{number: {}}}}}", 80 + at);
        format!("{{match: [{{uri: {{prefix: /{at}}}}}], route: [{{destination: {destination}}}]}}")
    });
    let routes = object(
        "networking.istio.io/v1",
        "VirtualService",
        "name: h0",
        &format!("spec: {{hosts: [h0.example], gateways: [edge], http: [{rules}]}}"),
    );
    let all = [service, routes].join("---\n");
    let with = |rule: &str, copies: u64| {
        let mut engine = engine(copies);
        engine.apply(world::changes(&all), world::NOW);
        engine.apply(world::changes(rule), world::NOW);
        beyond(&engine).len()
    };
    assert_eq!([with(&rule("shop"), 20), with(&rule("shop"), 19)], [0, 1]);
    // What does not hold there is not counted.
    assert_eq!(with(&rule("blog"), 19), 0);
    // It is as if the rule had always been there, and nothing is left of it once it is gone.
    let mut engine = engine(19);
    engine.apply(world::changes(&rule("shop")), world::NOW);
    engine.apply(world::changes(&all), world::NOW);
    assert_eq!(beyond(&engine).len(), 1);
    engine.apply(
        world::changes("remove DestinationRule shop/texts\n"),
        world::NOW,
    );
    assert_eq!(beyond(&engine).len(), 0);
}

#[test]
fn a_selector_counts_for_what_it_looks_at() {
    let workloads = (0..4).map(|number| {
        object(
            "networking.istio.io/v1",
            "WorkloadEntry",
            &format!("name: w{number}"),
            &format!("spec: {{address: 192.0.2.{number}, labels: {{app: vm}}}}"),
        )
    });
    let more = list(16, |at| format!("more-{at}: none"));
    let entry = |selector: &str| {
        object(
            "networking.istio.io/v1",
            "ServiceEntry",
            "name: e",
            &format!(
                "spec: {{hosts: [e.example], ports: [{{number: 80, name: http, protocol: HTTP}}], \
                 resolution: STATIC, workloadSelector: {{labels: {{{selector}}}}}}}"
            ),
        )
    };
    let route = object(
        "networking.istio.io/v1",
        "VirtualService",
        "name: h0",
        "spec: {hosts: [h0.example], gateways: [edge], http: [{route: [{destination: {host: \
         e.example}}]}]}",
    );
    let all: Vec<String> = workloads.chain([route]).collect();
    let with = |selector: &str, copies: u64| {
        let mut engine = engine(copies);
        engine.apply(world::changes(&all.join("---\n")), world::NOW);
        engine.apply(world::changes(&entry(selector)), world::NOW);
        (sum(&engine), beyond(&engine).len())
    };
    assert_eq!(with("app: vm", 4), (4, 0));
    // Nobody is found, and to look is work as well: twice as much with so many labels.
    assert_eq!(with("app: vm, tier: none", 3), (0, 1));
    assert_eq!(with(&format!("app: vm, {more}"), 7), (0, 1));
    assert_eq!(with(&format!("app: vm, {more}"), 8), (0, 0));
}

#[test]
fn rules_are_looked_for_once_for_all_ports_and_subsets() {
    let work = |ports: usize| {
        let mut engine = engine(0);
        let rules = (0..50).map(|at| {
            object(
                "networking.istio.io/v1",
                "DestinationRule",
                &format!("name: r{at}"),
                "spec: {host: m0.shop.svc.cluster.local}",
            )
        });
        let listed = list(ports, |at| {
            format!("{{name: http-{at}, port: {}}}", 80 + at)
        });
        let service = service(0, 1).replace("[{name: http, port: 80}]", &format!("[{listed}]"));
        let routes = list(ports, |at| {
            let destination = format!("{{host: m0, port: {{number: {}}}}}", 80 + at);
            format!(
                "{{match: [{{uri: {{prefix: /{at}}}}}], route: [{{destination: {destination}}}]}}"
            )
        });
        let routes = object(
            "networking.istio.io/v1",
            "VirtualService",
            "name: h0",
            &format!("spec: {{hosts: [h0.example], gateways: [edge], http: [{routes}]}}"),
        );
        let all: Vec<String> = rules.chain([service, routes]).collect();
        engine.apply(world::changes(&all.join("---\n")), world::NOW);
        let edited = object(
            "networking.istio.io/v1",
            "DestinationRule",
            "name: r7",
            "spec: {host: m0.shop.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: \
             {maxConnections: 7}}}}",
        );
        engine.apply(world::changes(&edited), world::NOW).work
    };
    let (few, many) = (work(2), work(30));
    assert_eq!(many.units_translated, few.units_translated + 28);
    // Each upstream opens its Service and a slice, and no rule.
    assert!(
        many.objects_visited <= few.objects_visited + 28 * 6,
        "{many:?} {few:?}"
    );
}

/// The points of the rings of all upstreams, and what is told of them.
fn rings(engine: &Engine) -> (Vec<u32>, usize) {
    let snapshot = engine.snapshot();
    let upstreams = snapshot.iter().filter_map(|sealed| sealed.upstream());
    let rings = upstreams.filter_map(|upstream| match &upstream.options.as_ref()?.balancer {
        Balancer::Hash(hash) => match hash.table {
            HashTable::Ring(points) => Some(points),
            HashTable::Maglev(_) => None,
        },
        _ => None,
    });
    let mut rings: Vec<u32> = rings.collect();
    rings.sort_unstable();
    let told = findings(engine).into_iter();
    let told = told.filter(|it| it.contains("--bound hash-slots="));
    (rings, told.count())
}

#[test]
fn rings_that_ingresses_want_are_counted_in_slots() {
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            hash_slots: 2 * 1_024,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let ingress = |number: usize, by: &str| {
        let meta = format!(
            "name: i{number}, annotations: {{nginx.ingress.kubernetes.io/upstream-hash-by: '{by}'}}"
        );
        let backend = "{service: {name: m0, port: {number: 80}}}";
        let paths = format!("[{{path: /, pathType: Prefix, backend: {backend}}}]");
        object(
            "networking.k8s.io/v1",
            "Ingress",
            &meta,
            &format!("spec: {{rules: [{{host: i{number}.example, http: {{paths: {paths}}}}}]}}"),
        )
    };
    // Hosts that want the same share a ring.
    let all = ["$host", "$host", "$request_uri", "$arg_a"];
    let all = all.iter().enumerate().map(|(at, by)| ingress(at, by));
    let all: Vec<String> = all.chain([service(0, 1)]).collect();
    engine.apply(world::changes(&all.join("---\n")), world::NOW);
    assert_eq!(rings(&engine), (vec![64, 1_024, 1_024], 1));
    engine.apply(world::changes("remove Ingress shop/i2\n"), world::NOW);
    assert_eq!(rings(&engine), (vec![1_024, 1_024], 0));
}

#[test]
fn workloads_count_for_each_port_that_selects_them() {
    let mut engine = engine(9);
    let workloads = (0..4).map(|number| {
        object(
            "networking.istio.io/v1",
            "WorkloadEntry",
            &format!("name: w{number}"),
            &format!("spec: {{address: 192.0.2.{number}, labels: {{app: vm}}}}"),
        )
    });
    let entries = (0..3).map(|number| {
        object(
            "networking.istio.io/v1",
            "ServiceEntry",
            &format!(
                "name: e{number}, creationTimestamp: 2026-01-0{}T00:00:00Z",
                number + 1
            ),
            &format!(
                "spec: {{hosts: [e{number}.example], resolution: STATIC, ports: [{{number: 80, \
                 name: http, protocol: HTTP}}], workloadSelector: {{labels: {{app: vm}}}}}}"
            ),
        )
    });
    let routes = (0..3).map(|number| {
        object(
            "networking.istio.io/v1",
            "VirtualService",
            &format!("name: h{number}"),
            &format!(
                "spec: {{hosts: [h{number}.example], gateways: [edge], http: [{{route: \
                 [{{destination: {{host: e{number}.example}}}}]}}]}}"
            ),
        )
    });
    let all: Vec<String> = workloads.chain(entries).chain(routes).collect();
    engine.apply(world::changes(&all.join("---\n")), world::NOW);
    assert_eq!(sum(&engine), 8);
    let told = beyond(&engine);
    assert_eq!(told.len(), 1);
    let told = told.first().map_or("", String::as_str);
    assert!(told.contains("ServiceEntry shop/e2") && told.contains("so port 80 has none"));
    // Three count as four, and two as two.
    engine.apply(world::changes("remove WorkloadEntry shop/w3\n"), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (6, 1));
    engine.apply(world::changes("remove WorkloadEntry shop/w2\n"), world::NOW);
    assert_eq!((sum(&engine), beyond(&engine).len()), (6, 0));
}

/// The state of a host: its number, how many endpoints it has, and how many subsets, of which none
/// is no host.
type Step = (usize, usize, usize);

fn changes((number, endpoints, count): Step) -> Vec<Change> {
    match count {
        0 => world::changes(&format!("remove VirtualService shop/h{number}\n")),
        _ => world::changes(&host(number, endpoints, count)),
    }
}

#[test]
fn what_stays_is_the_same_from_scratch() {
    let step = (0..4_usize, 0..5_usize, 0..4_usize);
    let batch = prop::collection::vec(step, 1..3);
    run_any(prop::collection::vec(batch, 1..6), |batches| {
        let mut incremental = engine(12);
        incremental.apply(world::changes(&pod()), world::NOW);
        let mut last = BTreeMap::new();
        for batch in &batches {
            let put = batch.iter().flat_map(|step| changes(*step));
            incremental.apply(put.collect(), world::NOW);
            last.extend(batch.iter().map(|step| (step.0, *step)));
            prop_assert!(sum(&incremental) <= 12);
        }
        let mut fresh = engine(12);
        fresh.apply(world::changes(&pod()), world::NOW);
        // Objects of a host without routes stay, and nobody reads them.
        let all = last.values().filter(|step| step.2 > 0);
        let put = all.flat_map(|step| changes(*step));
        fresh.apply(put.collect(), world::NOW);
        prop_assert_eq!(rows(&incremental), rows(&fresh));
        prop_assert_eq!(beyond(&incremental), beyond(&fresh));
        let (incremental, fresh) = (incremental.snapshot(), fresh.snapshot());
        prop_assert_eq!(incremental.digest(), fresh.digest());
        Ok(())
    });
}
