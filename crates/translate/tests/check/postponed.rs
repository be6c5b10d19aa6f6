//! An object that others refer to changes at the cost of its own namespace alone.

use std::fmt::Write as _;

use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_translate::{Engine, Outcome, Settings};

use crate::world;

/// How many hosts of one namespace name a Service of another.
const HOSTS: usize = 500;

/// The most units that objects of other namespaces wake in one batch.
const WOKEN_MAX: u64 = 64;

/// A Gateway and a VirtualService of many hosts, which leads to a Service that is not there.
fn referring(namespace: &str) -> Vec<Change> {
    let hosts: Vec<String> = (0..HOSTS)
        .map(|number| format!("h{number}.{namespace}.test"))
        .collect();
    world::changes(&format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: {namespace}, \
         name: g}}\nspec:\n  selector: {{istio: ingressgateway}}\n  servers:\n  - port: {{number: \
         80, name: http, protocol: HTTP}}\n    hosts: ['*.{namespace}.test']\n---\n\
         apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
         {namespace}, name: v}}\nspec:\n  gateways: [g]\n  hosts: [{}]\n  http:\n  - route: \
         [{{destination: {{host: web.shop.svc.cluster.local, port: {{number: 80}}}}}}]\n",
        hosts.join(", ")
    ))
}

fn service() -> Vec<Change> {
    world::changes(
        "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec:\n  ports: \
         [{port: 80, targetPort: 8080, name: http}]\n",
    )
}

fn engine() -> Engine {
    let mut engine = world::engine(Settings::default());
    engine.apply(Vec::new(), world::NOW);
    for namespace in ["first", "second"] {
        engine.apply(referring(namespace), world::NOW);
    }
    engine
}

/// Applies changes as whoever runs batches one after the other does.
fn apply_taken_in(engine: &mut Engine, changes: Vec<Change>) -> Outcome {
    for change in changes {
        engine.take_in(change, world::NOW);
    }
    engine.apply_taken_in(world::NOW)
}

#[test]
fn a_service_that_hosts_of_others_name_appears_at_once_and_they_follow_in_turns() {
    let mut engine = engine();
    let outcome = apply_taken_in(&mut engine, service());
    let units = outcome.work.units_translated;
    assert!((WOKEN_MAX..WOKEN_MAX + 8).contains(&units), "{units}");
    assert!(engine.has_postponed());
    // Whoever comes now does not run what is postponed.
    let own = "apiVersion: v1\nkind: Service\nmetadata: {namespace: other, name: web}\nspec: \
               {ports: [{port: 80}]}\n";
    let outcome = apply_taken_in(&mut engine, world::changes(own));
    assert_eq!(outcome.work.units_translated, 0);
    let mut turns = 0;
    while engine.has_postponed() {
        let mut left = 16;
        let mut has_time = || {
            left -= 1;
            left > 0
        };
        let ran = engine.work_off(world::NOW, &mut has_time, &|_| true);
        let (_, outcome) = ran.expect("a turn");
        assert!(outcome.work.units_translated <= 16);
        turns += 1;
    }
    let left = 2 * HOSTS - WOKEN_MAX as usize;
    assert!((left / 16..=left / 16 + 2).contains(&turns), "{turns}");
    // All is as if it had been translated at once.
    let mut whole = self::engine();
    whole.apply(service(), world::NOW);
    whole.apply(world::changes(own), world::NOW);
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
}

#[test]
fn what_is_of_the_same_namespace_is_never_postponed() {
    let mut engine = world::engine(Settings::default());
    engine.apply(Vec::new(), world::NOW);
    engine.apply(referring("shop"), world::NOW);
    let outcome = apply_taken_in(&mut engine, service());
    assert!(outcome.work.units_translated >= HOSTS as u64);
    assert!(!engine.has_postponed());
}

/// Applies changes with time for so many hosts.
fn apply_with_time(engine: &mut Engine, changes: Vec<Change>, mut hosts: usize) -> Outcome {
    for change in changes {
        engine.take_in(change, world::NOW);
    }
    let mut has_time = || {
        let has_time = hosts > 0;
        hosts = hosts.saturating_sub(1);
        has_time
    };
    engine.apply_taken_in_while(world::NOW, &mut has_time)
}

#[test]
fn hosts_that_a_batch_has_no_time_for_follow_in_turns_of_their_namespaces() {
    let mut engine = world::engine(Settings::default());
    engine.apply(service(), world::NOW);
    let outcome = apply_with_time(&mut engine, referring("first"), 10);
    // The Gateway, the VirtualService, ten hosts and what they need.
    assert!(outcome.work.units_translated < 20, "{:?}", outcome.work);
    let outcome = apply_with_time(&mut engine, referring("second"), 0);
    assert!(outcome.work.units_translated < 10, "{:?}", outcome.work);
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["first", "second"]);
    // One that may not run is passed by, and the other has its turn alone.
    let mut of_second = 0;
    while let Some((namespace, _)) =
        engine.work_off(world::NOW, &mut || true, &|namespace| namespace != "first")
    {
        assert_eq!(&*namespace, "second");
        of_second += 1;
    }
    assert_eq!(of_second, HOSTS.div_ceil(16));
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["first"]);
    // Without time each turn is one host.
    let mut turns = 0;
    while let Some((_, outcome)) = engine.work_off(world::NOW, &mut || false, &|_| true) {
        assert!(outcome.work.units_translated <= 2);
        turns += 1;
    }
    // Those of the first batch that had time, but for the one that found it gone.
    assert_eq!(turns, HOSTS - 9);
    let mut whole = world::engine(Settings::default());
    whole.apply(service(), world::NOW);
    for namespace in ["first", "second"] {
        whole.apply(referring(namespace), world::NOW);
    }
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
    // Hosts that go are taken out in turns as well.
    let key = |kind, name: &str| Change::Remove(ObjectKey::new(kind, "first", name));
    let gone = vec![
        key(ObjectKind::VirtualService, "v"),
        key(ObjectKind::IstioGateway, "g"),
    ];
    apply_with_time(&mut engine, gone.clone(), 10);
    assert!(engine.has_postponed());
    while engine
        .work_off(world::NOW, &mut || false, &|_| true)
        .is_some()
    {}
    whole.apply(gone, world::NOW);
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
    assert_eq!(engine.usage(), whole.usage());
}

#[test]
fn upstreams_follow_their_own_endpoints_however_many_change() {
    let slices = |port: u16| {
        let slice = |number: usize| {
            format!(
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: \
                 shop, name: s{number}-x, labels: {{kubernetes.io/service-name: s{number}}}}}\n\
                 addressType: IPv4\nports: [{{port: {port}}}]\nendpoints: [{{addresses: \
                 [10.0.0.1]}}]\n"
            )
        };
        world::changes(&(0..100).map(slice).collect::<String>())
    };
    let path = |number: usize| {
        format!(
            "{{path: /{number}, pathType: Prefix, backend: {{service: {{name: s{number}, port: \
             {{number: 80}}}}}}}}"
        )
    };
    let paths: Vec<String> = (0..100).map(path).collect();
    let mut objects = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: shop, name: \
         i}}\nspec:\n  rules: [{{host: a.test, http: {{paths: [{}]}}}}]\n",
        paths.join(", ")
    );
    for number in 0..100 {
        objects += &format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: \
             s{number}}}\nspec: {{ports: [{{port: 80}}]}}\n"
        );
    }
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(&objects), world::NOW);
    engine.apply(slices(80), world::NOW);
    let outcome = apply_taken_in(&mut engine, slices(81));
    assert_eq!(outcome.work.resources_changed, 100);
    assert!(!engine.has_postponed());
}

/// An Ingress with a path for each port of a Service.
fn ports(paths: usize) -> String {
    let path = |number: usize| {
        format!(
            "{{path: /{number}, pathType: Prefix, backend: {{service: {{name: web, port: {{number: \
             {}}}}}}}}}",
            1_000 + number
        )
    };
    let listed = (0..paths).map(|number| format!("{{name: p{number}, port: {}}}", 1_000 + number));
    let (paths, listed): (Vec<_>, Vec<_>) = ((0..paths).map(path).collect(), listed.collect());
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: shop, name: \
         i}}\nspec:\n  rules: [{{host: a.test, http: {{paths: [{}]}}}}]\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: web}}\n\
         spec: {{ports: [{}]}}\n",
        paths.join(", "),
        listed.join(", ")
    )
}

/// A slice of the same Service with these endpoints.
fn slice_of_ports(ports: usize, name: usize, endpoints: &str) -> Vec<Change> {
    let ports = (0..ports).map(|number| format!("{{name: p{number}, port: {}}}", 2_000 + number));
    world::changes(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: shop, name: \
         web-{name}, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: \
         [{}]\nendpoints: [{endpoints}]\n",
        ports.collect::<Vec<_>>().join(", ")
    ))
}

#[test]
fn upstreams_that_a_batch_has_no_time_for_follow_in_turns() {
    const PORTS: usize = 50;
    let mut engine = world::engine(Settings::default());
    engine.apply(slice_of_ports(PORTS, 0, ""), world::NOW);
    // What a host refers to is there with it, however late it is.
    let outcome = apply_with_time(&mut engine, world::changes(&ports(PORTS)), 1);
    assert!(outcome.work.units_translated > PORTS as u64);
    assert!(!engine.has_postponed());
    let change = slice_of_ports(PORTS, 0, "{addresses: [10.0.0.1]}");
    let outcome = apply_with_time(&mut engine, change.clone(), 10);
    assert_eq!(outcome.work.units_translated, 10);
    assert_eq!(engine.postponed().collect::<Vec<_>>(), ["shop"]);
    let mut turns = 0;
    while engine
        .work_off(world::NOW, &mut || true, &|_| true)
        .is_some()
    {
        turns += 1;
    }
    assert_eq!(turns, (PORTS - 10).div_ceil(16));
    let mut whole = world::engine(Settings::default());
    whole.apply(world::changes(&ports(PORTS)), world::NOW);
    whole.apply(change, world::NOW);
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
}

#[test]
fn slices_without_endpoints_are_not_opened() {
    let work = |slices: usize| {
        let mut engine = world::engine(Settings::default());
        engine.apply(world::changes(&ports(50)), world::NOW);
        for number in 0..slices {
            engine.apply(slice_of_ports(50, number, ""), world::NOW);
        }
        let again = ports(50).replace("name: i}", "name: i, annotations: {a.test/b: c}}");
        let again = again.replace("port: 1049}", "port: 1050}");
        engine.apply(world::changes(&again), world::NOW).work
    };
    let (few, many) = (work(1), work(20));
    assert_eq!(many.objects_visited, few.objects_visited);
    // The heads are walked once for all.
    let of_heads = (20 - 1) * 51;
    assert!(
        many.entries_visited <= few.entries_visited + 2 * of_heads,
        "{many:?} {few:?}"
    );
}

#[test]
fn a_whole_batch_leaves_nothing() {
    let mut engine = engine();
    apply_taken_in(&mut engine, service());
    let outcome = engine.apply(Vec::new(), world::NOW);
    let left = 2 * HOSTS as u64 - WOKEN_MAX;
    assert!(outcome.work.units_translated >= left);
    assert!(!engine.has_postponed());
}

/// The steps of compiling regexes that proxies are led to at once, beyond which hosts wait.
const REGEX_STEPS_MAX: u64 = 1 << 24;

/// A Gateway, and a VirtualService of 200 regexes that are dear to compile for each of so many
/// hosts.
fn of_regexes(hosts: usize) -> Vec<Change> {
    let mut text =
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: dear, \
                    name: g}\nspec:\n  selector: {istio: ingressgateway}\n  servers:\n  - port: \
                    {number: 80, name: http, protocol: HTTP}\n    hosts: ['*.dear.test']\n"
            .to_owned();
    let dear = "(?:a?b?)*|".repeat(20);
    for host in 0..hosts {
        write!(
            text,
            "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: \
             {{namespace: dear, name: v{host}}}\nspec:\n  gateways: [g]\n  hosts: \
             [h{host}.dear.test]\n  http:\n  - route: [{{destination: {{host: web, port: \
             {{number: 80}}}}}}]\n    match:\n"
        )
        .unwrap();
        for number in 0..200 {
            writeln!(
                text,
                "    - uri: {{regex: \"/{host}/{number}/(?:{dear})\"}}"
            )
            .unwrap();
        }
    }
    world::changes(&text)
}

#[test]
fn hosts_of_regexes_that_are_dear_to_compile_follow_in_slices() {
    let mut engine = world::engine(Settings::default());
    engine.apply(Vec::new(), world::NOW);
    let first = apply_taken_in(&mut engine, of_regexes(5)).work.regex_steps;
    assert!(first >= REGEX_STEPS_MAX && engine.has_postponed());
    let mut slices = vec![first];
    while let Some((namespace, outcome)) = engine.work_off(world::NOW, &mut || true, &|_| true) {
        assert_eq!(&*namespace, "dear");
        slices.push(outcome.work.regex_steps);
    }
    let mut whole = world::engine(Settings::default());
    whole.apply(of_regexes(5), world::NOW);
    assert_eq!(engine.snapshot().digest(), whole.snapshot().digest());
    // Each regex takes at most what its table may, its text and its instructions.
    let of_host = 200 * (32_768 + 18_000);
    let most = slices.iter().max().copied();
    assert!(most.unwrap_or_default() < REGEX_STEPS_MAX + of_host);
    let all: u64 = slices.iter().sum();
    assert!((5 * 200 * 32_768..=5 * of_host).contains(&all), "{all}");
    // Nothing else leads to any.
    let work = apply_taken_in(&mut engine, service()).work;
    assert_eq!(work.regex_steps, 0);
}
