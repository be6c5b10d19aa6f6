//! Work per change, counted at two sizes: it may not depend on the number of domains.

use std::sync::Arc;

use myriad_api::istio::Labels;
use myriad_api::{
    BackendPort, Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Ingress,
    IngressBackend, IngressPath, IngressRule, IngressTls, Meta, Object, ObjectKey, ObjectKind,
    PathType, Secret, Service, ServicePort,
};
use myriad_translate::{Engine, Settings, Work};

use crate::world;

/// An Ingress, a Service, an EndpointSlice and a Secret for one domain.
fn domain(number: usize, port: u16, pair: &Secret) -> Vec<Object> {
    let name = format!("d{number:07}");
    let meta = |kind| Meta::new(ObjectKey::new(kind, "scale", &name));
    let host: Box<str> = format!("{name}.example.com").into();
    let ingress = Ingress {
        meta: meta(ObjectKind::Ingress),
        class_name: None,
        default_backend: None,
        tls: [IngressTls {
            hosts: [host.clone()].into(),
            secret_name: Some(name.as_str().into()),
        }]
        .into(),
        rules: [IngressRule {
            host: Some(host),
            paths: [IngressPath {
                path: Some("/".into()),
                path_type: PathType::Prefix,
                backend: IngressBackend::Service {
                    name: name.as_str().into(),
                    port: BackendPort::Number(80),
                },
            }]
            .into(),
        }]
        .into(),
    };
    let service = service(meta(ObjectKind::Service));
    let slice = slice(meta(ObjectKind::EndpointSlice), &name, port);
    let secret = Secret {
        meta: meta(ObjectKind::Secret),
        ..pair.clone()
    };
    vec![
        Object::Ingress(Arc::new(ingress)),
        Object::Service(Arc::new(service)),
        Object::EndpointSlice(Arc::new(slice)),
        Object::Secret(Arc::new(secret)),
    ]
}

/// One endpoint of a Service.
pub(crate) fn slice(meta: Meta, service: &str, port: u16) -> EndpointSlice {
    EndpointSlice {
        meta,
        service: Some(service.into()),
        endpoints: [Endpoint {
            address: Some([10, 0, 0, 1].into()),
            pod: None,
            zone: None,
            conditions: Conditions {
                ready: true,
                serving: true,
                terminating: false,
            },
        }]
        .into(),
        ports: [EndpointPort {
            name: "http".into(),
            port: Some(port),
            protocol: None,
        }]
        .into(),
    }
}

/// A Service with one port.
pub(crate) fn service(meta: Meta) -> Service {
    Service {
        meta,
        external_name: None,
        selector: Labels::default(),
        ports: [ServicePort {
            name: "http".into(),
            port: 80,
            target_port: None,
            app_protocol: None,
            protocol: None,
        }]
        .into(),
        addresses: Box::default(),
        is_headless: false,
    }
}

pub(crate) fn put(engine: &mut Engine, objects: Vec<Object>) -> Work {
    let changes = objects.into_iter().map(Change::Put).collect();
    engine.apply(changes, world::NOW).work
}

/// The work of an addition, a change of endpoints, a renewal and a removal beside `n` domains.
fn measure(n: usize) -> [Work; 4] {
    let mut engine = world::engine(Settings::default());
    let pair = world::secret("<certificate *.example.com>", "<key *.example.com>", None);
    let renewed = world::secret(
        "<certificate *.example.com ending>",
        "<key *.example.com>",
        None,
    );
    for number in 0..n {
        put(&mut engine, domain(number, 80, &pair));
    }
    let added = put(&mut engine, domain(n / 2 * 10 + 5_000_000, 80, &pair));
    let moved = put(&mut engine, domain(n / 3, 81, &pair));
    let renewal = put(&mut engine, domain(n / 4, 80, &renewed));
    let removals = domain(n / 5, 80, &pair)
        .into_iter()
        .map(|object| Change::Remove(object.key().clone()));
    let removed = engine.apply(removals.collect(), world::NOW).work;
    [added, moved, renewal, removed]
}

#[test]
fn work_per_change_does_not_depend_on_the_number_of_domains() {
    let (few, many) = (measure(200), measure(2_000));
    assert_eq!(few, many);
    let [added, moved, renewal, removed] = few.map(|work| work.units_translated);
    assert_eq!([added, moved, renewal, removed], [4, 1, 1, 0]);
}

/// The work of one more server in a Gateway of `n`, and of one more VirtualService for it.
fn measure_gateway(n: usize) -> [u64; 2] {
    let gateway = |servers: usize| {
        let servers: String = (0..servers)
            .map(|number| {
                format!(
                    "  - {{port: {{number: 80, name: p{number}, protocol: HTTP}}, hosts: \
                     [d{number}.example.com]}}\n"
                )
            })
            .collect();
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: scale, \
             name: edge}}\nspec:\n  servers:\n{servers}"
        ))
    };
    let service = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
             scale, name: d{number}}}\nspec:\n  hosts: [d{number}.example.com]\n  gateways: \
             [edge]\n  http: [{{directResponse: {{status: 200}}}}]\n"
        ))
    };
    let mut engine = world::engine(Settings::default());
    let mut first: Vec<Object> = (0..n).map(service).collect();
    first.push(gateway(n));
    put(&mut engine, first);
    let server = put(&mut engine, vec![gateway(n + 1)]).units_translated;
    [server, put(&mut engine, vec![service(n)]).units_translated]
}

#[test]
fn a_server_of_a_gateway_costs_its_own_host_whatever_the_gateway_has() {
    let (few, many) = (measure_gateway(20), measure_gateway(200));
    assert_eq!(few, many);
    // The Gateway and the host; the VirtualService and the host.
    assert_eq!(few, [2, 2]);
}

/// The work of one changed rule among `n` that lead to one Service.
fn measure_routes(n: usize) -> [u64; 3] {
    let gateway = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: \
                   scale, name: edge}\nspec: {servers: [{port: {number: 80, name: http, \
                   protocol: HTTP}, hosts: [a.example]}]}\n";
    let service = |rewritten: &str| {
        let routes: String = (0..n)
            .map(|number| {
                let uri = if number == n / 2 { rewritten } else { "/" };
                format!(
                    "  - {{match: [{{uri: {{exact: /{number}}}}}], rewrite: {{uri: {uri}}}, \
                     route: [{{destination: {{host: d0000000}}}}]}}\n"
                )
            })
            .collect();
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
             scale, name: v}}\nspec:\n  hosts: [a.example]\n  gateways: [edge]\n  http:\n{routes}"
        ))
    };
    let pair = world::secret("<certificate *.example.com>", "<key *.example.com>", None);
    let mut engine = world::engine(Settings::default());
    let mut first = domain(0, 80, &pair);
    first.extend([world::object(gateway), service("/")]);
    put(&mut engine, first);
    let work = put(&mut engine, vec![service("/else")]);
    [
        work.units_translated,
        work.objects_visited,
        work.resources_changed,
    ]
}

#[test]
fn a_rule_reads_as_many_objects_however_many_rules_there_are() {
    let (few, many) = (measure_routes(20), measure_routes(200));
    assert_eq!(few, many);
    // The VirtualService and the host, of which one route is another.
    assert_eq!([few[0], few[2]], [2, 1]);
}

/// The work of one changed DestinationRule, Pod and ServiceEntry among `n` of each.
fn measure_rules(n: usize) -> [u64; 4] {
    let text = |number: usize, settings: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{namespace: \
             scale, name: d{number:07}}}\nspec: {{host: d{number:07}, trafficPolicy: \
             {{{settings}}}, subsets: [{{name: s, labels: {{a: b}}}}]}}\n"
        )
    };
    let entry = |number: usize, address: &str| {
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: \
             scale, name: d{number}}}\nspec: {{hosts: [out{number}.example], ports: [{{number: \
             80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{{address: \
             {address}}}]}}\n"
        ))
    };
    let routes: String = (0..n)
        .map(|number| {
            format!(
                "  - {{match: [{{uri: {{prefix: /{number}}}}}], route: [{{destination: {{host: \
                 out{number}.example}}}}]}}\n"
            )
        })
        .collect();
    let gateway = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {namespace: \
                   scale, name: edge}\nspec: {servers: [{port: {number: 80, name: http, \
                   protocol: HTTP}, hosts: [a.example]}]}\n";
    let service = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: scale, \
         name: v}}\nspec:\n  hosts: [a.example]\n  gateways: [edge]\n  http:\n{routes}"
    );
    let pair = world::secret("<certificate *.example.com>", "<key *.example.com>", None);
    let mut engine = world::engine(Settings::default());
    for number in 0..n {
        let mut objects = domain(number, 80, &pair);
        objects.push(world::object(&text(number, "")));
        objects.push(entry(number, "10.0.0.1"));
        put(&mut engine, objects);
    }
    put(
        &mut engine,
        vec![world::object(gateway), world::object(&service)],
    );
    let settings = "loadBalancer: {simple: RANDOM}";
    let rule = put(&mut engine, vec![world::object(&text(n / 2, settings))]);
    let moved = put(&mut engine, vec![entry(n / 2, "10.0.0.2")]);
    let wild = text(n, settings).replace("host: d", "host: '*.other.example', x: d");
    let wild = put(&mut engine, vec![world::object(&wild)]);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {namespace: scale, name: p, labels: {a: b}}\n";
    let pod = put(&mut engine, vec![world::object(pod)]);
    [rule, moved, wild, pod].map(|work| work.units_translated)
}

#[test]
fn a_destination_rule_costs_the_upstreams_of_its_own_host() {
    let (few, many) = (measure_rules(20), measure_rules(200));
    assert_eq!(few, many);
    // Each object itself, but for the Pod, and the upstream of what it names.
    assert_eq!(few, [2, 2, 1, 0]);
}

/// The cost of so many hosts together, in objects that are visited and in facts and needs that are
/// held, below a wildcard with `each` Gateways and as many VirtualServices on all of them.
fn measure_below(hosts: usize, each: usize) -> [u64; 2] {
    let gateway = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: above, \
             name: g{number}}}\nspec:\n  servers:\n  - {{port: {{number: 80, name: p, protocol: \
             HTTP}}, hosts: ['*.example']}}\n  - {{port: {{number: 443, name: t, protocol: \
             HTTPS}}, hosts: ['*.example', '*.other'], tls: {{mode: SIMPLE, credentialName: s}}}}\n"
        ))
    };
    let gateways: Vec<String> = (0..each).map(|number| format!("g{number}")).collect();
    let gateways = gateways.join(", ");
    let service = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
             above, name: v{number}}}\nspec:\n  hosts: ['*.example', 'v{number}.other']\n  \
             gateways: [{gateways}]\n  http: [{{directResponse: {{status: 200}}}}]\n"
        ))
    };
    let host = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: below, name: \
             i{number}}}\nspec:\n  rules:\n  - {{host: h{number}.example, http: {{paths: [{{path: \
             /, pathType: Prefix, backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}}}\n"
        ))
    };
    let mut engine = world::engine(Settings::default());
    let above = (0..each).flat_map(|number| [gateway(number), service(number)]);
    put(&mut engine, above.collect());
    let before = engine.usage().links;
    let work = put(&mut engine, (0..hosts).map(host).collect());
    let links = engine.usage().links - before;
    [work.objects_visited, links as u64]
}

#[test]
fn what_is_above_a_host_is_read_once_for_all_hosts_below() {
    let of_a_host = |each: usize| {
        let (few, many) = (measure_below(10, each), measure_below(30, each));
        [many[0] - few[0], many[1] - few[1]].map(|cost| cost / 20)
    };
    assert_eq!(of_a_host(2), of_a_host(12));
}

#[test]
fn hosts_run_when_what_is_above_them_means_something_else_to_them() {
    let gateway = |host: &str, credential: &str| {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: above, \
             name: g, creationTimestamp: 2026-01-01T00:00:00Z}}\nspec: {{servers: [{{port: \
             {{number: 443, name: t, protocol: HTTPS}}, hosts: ['{host}'], tls: {{mode: SIMPLE, \
             credentialName: {credential}}}}}]}}\n"
        );
        vec![world::object(&text)]
    };
    let host = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: below, name: \
             i{number}}}\nspec: {{rules: [{{host: h{number}.example}}]}}\n"
        ))
    };
    let mut engine = world::engine(Settings::default());
    put(&mut engine, (0..10).map(host).collect());
    put(&mut engine, gateway("*.example", "s"));
    // The certificate is another, which is nothing to the hosts; then fewer are let in.
    let same = put(&mut engine, gateway("*.example", "t")).units_translated;
    let other = put(&mut engine, gateway("./*.example", "t")).units_translated;
    assert!(same < 10, "{same} units ran");
    assert!(other >= 10, "{other} units ran");
}

#[test]
fn the_certificate_of_a_younger_wildcard_is_nothing_to_the_hosts_of_others() {
    let wildcard = |secret: &str| {
        let text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: above, name: \
             w, creationTimestamp: 2026-01-01T00:00:00Z}}\nspec: {{tls: [{{hosts: ['*.example'], \
             secretName: {secret}}}], rules: [{{host: '*.example'}}]}}\n"
        );
        vec![world::object(&text)]
    };
    let host = |number: usize| {
        world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: below, name: \
             i{number}, creationTimestamp: 2025-01-01T00:00:00Z}}\nspec: {{rules: [{{host: \
             h{number}.example}}]}}\n"
        ))
    };
    let mut engine = world::engine(Settings::default());
    put(&mut engine, (0..10).map(host).collect());
    let first = put(&mut engine, wildcard("s")).units_translated;
    let other = put(&mut engine, wildcard("t")).units_translated;
    assert!(first >= 10, "{first} units ran");
    // The Ingress, its host and the Secret that it names now.
    assert!(other <= 3, "{other} units ran");
}

/// The objects, and the servers that are looked at like such, for so many hosts of a VirtualService
/// that enter by a Gateway with so many servers that are alike.
fn measure_alike(hosts: usize, servers: usize) -> u64 {
    let servers = "  - {port: {number: 80, name: p, protocol: HTTP}, hosts: ['*/*.example', \
                   '*.x.example']}\n"
        .repeat(servers);
    let gateway = format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: scale, name: \
         edge}}\nspec:\n  servers:\n{servers}"
    );
    let hosts: Vec<String> = (0..hosts).map(|at| format!("h{at}.x.example")).collect();
    let service = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: scale, \
         name: v}}\nspec:\n  hosts: [{}]\n  gateways: [edge]\n  http: [{{directResponse: \
         {{status: 200}}}}]\n",
        hosts.join(", ")
    );
    let mut engine = world::engine(Settings::default());
    let objects = vec![world::object(&gateway), world::object(&service)];
    put(&mut engine, objects).objects_visited
}

#[test]
fn servers_that_are_alike_are_looked_at_once_for_all_hosts() {
    let of_a_host = |servers: usize| {
        let (few, many) = (measure_alike(10, servers), measure_alike(30, servers));
        (many - few) / 20
    };
    assert_eq!(of_a_host(20), of_a_host(200));
}
