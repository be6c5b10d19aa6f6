//! Lists of objects that each host, path or port asks for: what is looked at is the sum of what is
//! written, and no product of it.

use myriad_model::Action;
use myriad_translate::{Bounds, Engine, Settings, Work};

use crate::world;

/// A text of many entries, as YAML writes a list.
fn list(count: usize, entry: impl Fn(usize) -> String) -> String {
    let entries: Vec<String> = (0..count).map(entry).collect();
    format!("[{}]", entries.join(", "))
}

fn istio(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{namespace: shop, name: \
         {name}}}\nspec: {{{spec}}}\n"
    )
}

/// A Gateway whose one server has so many hosts.
fn gateway(hosts: usize) -> String {
    let hosts = list(hosts, |at| format!("h{at}.example"));
    let server = format!("{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: {hosts}}}");
    istio("Gateway", "edge", &format!("servers: [{server}]"))
}

/// A VirtualService with these rules on so many hosts.
fn service(hosts: usize, rest: &str) -> String {
    let hosts = list(hosts, |at| format!("h{at}.example"));
    istio(
        "VirtualService",
        "v",
        &format!("hosts: {hosts}, gateways: [edge], {rest}"),
    )
}

fn put(engine: &mut Engine, objects: &[String]) -> Work {
    let objects = world::changes(&objects.join("---\n"));
    engine.apply(objects, world::NOW).work
}

/// The work for these objects at once.
fn work(objects: &[String]) -> Work {
    put(&mut world::engine(Settings::default()), objects)
}

/// How many findings are of a field of an object.
fn told(engine: &Engine, field: &str) -> usize {
    let findings = engine.findings();
    findings.filter(|it| *it.field == *field).count()
}

/// A slice of a Service that lists one of its ports alone.
fn slice(at: usize, address: usize) -> String {
    let endpoints = list(5, |number| {
        format!("{{addresses: [10.{at}.{address}.{number}]}}")
    });
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: shop, name: \
         many-{at}, labels: {{kubernetes.io/service-name: many}}}}\naddressType: IPv4\nports: \
         [{{name: p0, port: 9000}}]\nendpoints: {endpoints}\n"
    )
}

/// The work for an Ingress with a path to each of so many ports of a Service, and for one of its
/// slices that changes.
fn measure_ports(ports: usize) -> [Work; 2] {
    let listed = list(ports, |at| format!("{{name: p{at}, port: {}}}", 1_000 + at));
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: many}}\nspec: {{ports: \
         {listed}}}\n"
    );
    let paths = list(ports, |at| {
        let backend = format!(
            "{{service: {{name: many, port: {{number: {}}}}}}}",
            1_000 + at
        );
        format!("{{path: /{at}, pathType: Prefix, backend: {backend}}}")
    });
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: shop, name: \
         i}}\nspec: {{rules: [{{host: a.example, http: {{paths: {paths}}}}}]}}\n"
    );
    let mut engine = world::engine(Settings::default());
    let slices = (0..3).map(|at| slice(at, 0));
    let all: Vec<String> = slices.chain([service, ingress]).collect();
    let first = put(&mut engine, &all);
    [first, put(&mut engine, &[slice(1, 1)])]
}

#[test]
fn a_service_of_many_ports_is_opened_once_for_all_paths_and_ports() {
    let (few, many) = (measure_ports(100), measure_ports(200));
    for (few, many) in few.into_iter().zip(many) {
        assert_eq!(many.entries_visited - few.entries_visited, 100);
    }
    // Every upstream of the Service runs, and none but that of the port reads an endpoint.
    assert_eq!(many[1].units_translated, 200);
}

/// The work for so many hosts that lead to a host of four ServiceEntries with so many ports.
fn measure_entries(hosts: usize, ports: usize) -> Work {
    let entries = (0..4).map(|at| {
        let ports = list(ports, |port| {
            let number = 1_000 + port;
            format!("{{number: {number}, name: p{number}, protocol: HTTP}}")
        });
        istio(
            "ServiceEntry",
            &format!("e{at}"),
            &format!("hosts: [x.ext], resolution: DNS, ports: {ports}"),
        )
    });
    let rule = "http: [{route: [{destination: {host: x.ext, port: {number: 1001}}}]}]";
    let rest = [gateway(hosts), service(hosts, rule)];
    let all: Vec<String> = entries.chain(rest).collect();
    work(&all)
}

#[test]
fn ports_of_service_entries_are_looked_at_once_for_all_hosts() {
    let visited = |hosts, ports| measure_entries(hosts, ports).entries_visited;
    assert_eq!(visited(20, 100), visited(60, 100));
    let step = visited(20, 200) - visited(20, 100);
    assert_eq!(visited(20, 300) - visited(20, 200), step);
    // For the hosts together, and for the upstream.
    assert_eq!(step, 2 * 4 * 100);
}

/// The work for an Ingress to each of so many ports of a Service whose DestinationRule sets
/// something for as many.
fn measure_settings(ports: usize) -> Work {
    let settings = list(ports, |at| {
        format!(
            "{{port: {{number: {}}}, loadBalancer: {{simple: RANDOM}}}}",
            1_000 + at
        )
    });
    let entry_ports = list(ports, |at| {
        let number = 1_000 + at;
        format!("{{number: {number}, name: p{number}, protocol: HTTP}}")
    });
    let rules = list(ports, |at| {
        let to = format!("{{host: x.ext, port: {{number: {}}}}}", 1_000 + at);
        format!("{{match: [{{uri: {{exact: /{at}}}}}], route: [{{destination: {to}}}]}}")
    });
    work(&[
        istio(
            "ServiceEntry",
            "e",
            &format!("hosts: [x.ext], resolution: DNS, ports: {entry_ports}"),
        ),
        istio(
            "DestinationRule",
            "d",
            &format!("host: x.ext, trafficPolicy: {{portLevelSettings: {settings}}}"),
        ),
        gateway(1),
        service(1, &format!("http: {rules}")),
    ])
}

#[test]
fn settings_of_single_ports_are_looked_at_once_for_all_ports() {
    let visited = |ports| measure_settings(ports).entries_visited;
    let step = visited(200) - visited(100);
    assert_eq!(visited(300) - visited(200), step);
}

/// The work for a Service of so many endpoints that are all of one Pod, where the labels of Pods
/// matter.
fn measure_pods(endpoints: usize) -> Work {
    let endpoints = list(endpoints, |at| {
        format!(
            "{{addresses: [10.2.{}.{}], targetRef: {{kind: Pod, name: p}}}}",
            at / 250,
            at % 250
        )
    });
    let slice = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{namespace: shop, name: \
         s-1, labels: {{kubernetes.io/service-name: s}}}}\naddressType: IPv4\nports: [{{name: p, \
         port: 9000}}]\nendpoints: {endpoints}\n"
    );
    let labels = (0..100).map(|at| format!("l{at}: x"));
    let labels: Vec<String> = labels.collect();
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: shop, name: p, labels: {{{}}}}}\n",
        labels.join(", ")
    );
    let backing = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: s}\nspec: \
                   {ports: [{name: p, port: 80}]}\n";
    let mut engine = world::engine(Settings {
        sidecars: true,
        ..Settings::default()
    });
    let rule = "http: [{route: [{destination: {host: s}}]}]";
    let all = [slice, pod, backing.to_owned(), gateway(1), service(1, rule)];
    put(&mut engine, &all)
}

#[test]
fn a_pod_behind_many_endpoints_is_opened_once() {
    let visited = |endpoints| measure_pods(endpoints).entries_visited;
    // Each endpoint is unpacked, and looked at for the port.
    assert_eq!(visited(100) - visited(50), 2 * 50);
}

#[test]
fn namespaces_beyond_those_that_an_object_is_exported_to_are_told() {
    for (count, is_seen) in [(255, true), (256, false)] {
        let mut exported: Vec<&str> = vec!["x"; count];
        exported.push("'*'");
        let exported = exported.join(", ");
        let rest = format!("exportTo: [{exported}], http: [{{directResponse: {{status: 200}}}}]");
        let mut engine = world::engine(Settings::default());
        put(&mut engine, &[gateway(1), service(1, &rest)]);
        assert_eq!(routes(&engine, |_| true) > 0, is_seen);
        assert_eq!(told(&engine, "spec.exportTo[256]") == 0, is_seen);
    }
}

/// How many routes there are whose action fits.
fn routes(engine: &Engine, fits: impl Fn(&Action) -> bool) -> usize {
    let routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    routes.filter(|route| fits(route.action)).count()
}

#[test]
fn a_match_with_too_many_gateways_is_closed_for_all_of_them() {
    let is_closed = |action: &Action| matches!(action, Action::Forward(to) if to.is_empty());
    for (count, closed) in [(256, 0), (257, 1)] {
        let mut gateways = vec!["x"; count - 1];
        gateways.push("other/edge");
        let rule = format!(
            "http: [{{match: [{{gateways: [{}]}}], directResponse: {{status: 200}}}}, \
             {{directResponse: {{status: 201}}}}]",
            gateways.join(", ")
        );
        let mut engine = world::engine(Settings::default());
        put(&mut engine, &[gateway(1), service(1, &rule)]);
        // Within the bound it is for another Gateway alone, and has no route here.
        assert_eq!(routes(&engine, is_closed), closed);
        assert_eq!(routes(&engine, |_| true), 1 + closed);
        assert_eq!(told(&engine, "spec.http[0].match[0].gateways"), closed);
    }
}

#[test]
fn a_gateway_by_a_name_that_none_has_is_told() {
    let long = "x".repeat(508);
    let rest = format!("hosts: [h0.example], gateways: [edge, {long}], http: [{{}}]");
    let mut engine = world::engine(Settings::default());
    put(
        &mut engine,
        &[gateway(1), istio("VirtualService", "v", &rest)],
    );
    assert_eq!(told(&engine, "spec.gateways[1]"), 1);
}

/// How many stream routes there are for handshakes by so many names, each in a rule of its own.
fn passed(names: usize, routes: u64) -> (usize, usize) {
    let hosts = list(names, |at| format!("h{at}.example"));
    let server = format!(
        "{{port: {{number: 443, name: t, protocol: TLS}}, tls: {{mode: PASSTHROUGH}}, hosts: \
         {hosts}}}"
    );
    let rules = list(names, |at| {
        format!(
            "{{match: [{{sniHosts: [h{at}.example]}}, {{sniHosts: ['*.example'], \
             destinationSubnets: [10.0.0.{at}]}}], route: [{{destination: {{host: x}}}}]}}"
        )
    });
    let spec = format!("hosts: ['*.example'], gateways: [edge], tls: {rules}");
    let mut engine = world::engine(Settings {
        bounds: Bounds {
            routes,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    let edge = istio("Gateway", "edge", &format!("servers: [{server}]"));
    put(&mut engine, &[edge, istio("VirtualService", "v", &spec)]);
    let all = engine.snapshot().iter();
    let streams = all.filter(|sealed| sealed.stream_route().is_some());
    let findings = engine.findings();
    let told = findings.filter(|it| it.remedy.contains("name those hosts"));
    (streams.count(), told.count())
}

#[test]
fn what_rules_for_tls_say_on_hosts_below_a_wildcard_is_bounded_where_routes_are() {
    // On each host its own rule, and the second match of each.
    let (all, told) = passed(20, 0);
    assert!((all >= 20 * 21) && told == 0, "{all}, {told}");
    let (some, told) = passed(20, 250_000);
    assert_eq!((some, told), (all, 0));
    // The rules themselves count for 1,300, of which those by addresses are all but 20.
    let (few, told) = passed(20, 1_350);
    assert!(few <= 20 * 5 && told > 0, "{few}, {told}");
}

#[test]
fn what_a_wildcard_says_is_less_the_more_hosts_there_are_below_it() {
    let matches = list(40, |at| format!("{{uri: {{exact: /{at}}}}}"));
    let rule = format!(
        "hosts: ['*.example'], gateways: [edge], http: [{{match: {matches}, \
                        directResponse: {{status: 200}}}}]"
    );
    let told = |hosts: usize| {
        let mut engine = world::engine(Settings {
            bounds: Bounds {
                routes: 500,
                ..Bounds::default()
            },
            ..Settings::default()
        });
        put(
            &mut engine,
            &[gateway(hosts), istio("VirtualService", "v", &rule)],
        );
        let before = told(&engine, "spec.http[0]");
        // What differs with the hosts of the Gateway reaches those that were there.
        put(&mut engine, &[gateway(2 * hosts)]);
        [before, told(&engine, "spec.http[0]")]
    };
    // 64,000 bytes for all of them; 40 matches of 64 bytes each, and their paths.
    assert_eq!(told(8), [0, 0]);
    assert_eq!(told(16), [0, 1]);
    assert_eq!(told(32), [1, 1]);
}

/// The work for so many Ingresses on a host that have a path of it asked, and for one with so many
/// paths, half of them regexes.
fn measure_questions(askers: usize, paths: usize) -> Work {
    let ingress = |name: &str, annotations: &str, paths: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{namespace: shop, name: \
             {name}, annotations: {{{annotations}}}}}\nspec: {{rules: [{{host: a.example, http: \
             {{paths: {paths}}}}}]}}\n"
        )
    };
    let backend = "backend: {service: {name: web, port: {number: 80}}}";
    let asking = |at: usize| {
        let url = format!("myriad.dev/auth-url: \"http://$host/asked{at}/x\"");
        let path = format!("[{{path: /own{at}, pathType: Prefix, {backend}}}]");
        ingress(&format!("asker-{at}"), &url, &path)
    };
    let of_both = list(paths, |at| match at % 2 {
        0 => format!("{{path: /p{at}, pathType: Prefix, {backend}}}"),
        _ => format!("{{path: \"/r{at}/[0-9]+\", pathType: Prefix, {backend}}}"),
    });
    let root = format!("[{{path: /, pathType: Prefix, {backend}}}]");
    let service = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: \
                   {ports: [{port: 80}]}\n";
    let others = [
        service.to_owned(),
        ingress("many", "myriad.dev/use-regex: \"true\"", &of_both),
        ingress("root", "", &root),
    ];
    let all: Vec<String> = (0..askers).map(asking).chain(others).collect();
    let mut engine = world::engine(Settings::default());
    let work = put(&mut engine, &all);
    // All of them are answered by the root.
    assert_eq!(
        told(&engine, "metadata.annotations[myriad.dev/auth-url]"),
        0
    );
    work
}

#[test]
fn questions_to_a_host_itself_walk_its_paths_once() {
    let few = measure_questions(50, 100).entries_visited;
    assert_eq!(measure_questions(100, 100).entries_visited - few, 50);
    assert_eq!(measure_questions(50, 200).entries_visited - few, 100);
}
