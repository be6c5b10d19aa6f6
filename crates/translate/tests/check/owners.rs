//! Hosts and addresses of Services in the mesh: what a VirtualService or a ServiceEntry says of
//! them holds if it is of the Service's namespace, the caller's or the root namespace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use myriad_api::Change;
use myriad_model::{ListenerProtocol, Snapshot, Value};
use myriad_translate::Engine;

use crate::{render, world};

/// A caller of namespace `blog`.
const SETTINGS: &str = "# with view=caller blog app=blog sidecar\n# with root-namespace=ops\n";

/// The Service that all are after, and one in each namespace to lead its callers to.
const SERVICES: &str = "\
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart, creationTimestamp: 2025-01-01T00:00:00Z}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: own}
spec: {clusterIP: 10.96.0.20, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: blog, name: own}
spec: {clusterIP: 10.96.0.21, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: ops, name: own}
spec: {clusterIP: 10.96.0.22, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: aaa, name: own}
spec: {clusterIP: 10.96.0.23, ports: [{name: http, port: 80}, {name: tcp, port: 9000}]}
---
";

/// The address of the first.
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));

/// The namespaces that write, of which the last is neither the owner's, the caller's nor the root.
const WRITERS: [&str; 4] = ["shop", "blog", "ops", "aaa"];

/// The resources of the caller and all findings, of objects that come in two batches.
fn told(first: &str, second: &str) -> (Snapshot, String, String) {
    let mut engine = world::engine(world::settings(SETTINGS));
    engine.apply(world::changes(first), world::NOW);
    engine.apply(world::changes(second), world::NOW);
    let snapshot = engine.snapshot_of("caller").expect("the view is there");
    let text = render::resources(&snapshot);
    (snapshot, text, findings(&engine))
}

fn findings(engine: &Engine) -> String {
    render::findings(engine.findings())
}

/// The same beside the Services, which may as well come later.
fn beside_services(objects: &str) -> (Snapshot, String, String) {
    let (snapshot, text, findings) = told(SERVICES, objects);
    let (_, later_text, later_findings) = told(objects, SERVICES);
    assert_eq!((&text, &findings), (&later_text, &later_findings));
    (snapshot, text, findings)
}

/// A VirtualService of a namespace that leads all that it has to the namespace's own Service.
fn virtual_service(namespace: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{namespace: \
         {namespace}, name: vs, creationTimestamp: 2020-01-01T00:00:00Z}}\nspec:\n  hosts: \
         ['{host}']\n  http: [{{route: [{{destination: {{host: own, port: {{number: \
         80}}}}}}]}}]\n  tcp: [{{route: [{{destination: {{host: own, port: {{number: \
         9000}}}}}}]}}]\n"
    )
}

/// A ServiceEntry of a namespace, older than all Services, with ports that the Service has (80 and
/// 9000) and others (81 and 9001).
fn service_entry(namespace: &str, host: &str, addresses: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: \
         {namespace}, name: se, creationTimestamp: 2020-01-01T00:00:00Z}}\nspec:\n  hosts: \
         ['{host}']\n  addresses: [{addresses}]\n  resolution: STATIC\n  endpoints: [{{address: \
         10.66.66.66}}]\n  ports:\n  - {{number: 80, name: a, protocol: HTTP}}\n  - {{number: 81, \
         name: b, protocol: HTTP}}\n  - {{number: 9000, name: c, protocol: TCP}}\n  - {{number: \
         9001, name: d, protocol: TCP}}\n"
    )
}

/// A Service without an address, with one endpoint at port 9000, which is its Pod.
fn headless(namespace: &str, name: &str, endpoint: &str) -> String {
    headless_at(namespace, name, "tcp", 9000, endpoint) + &pod(namespace, name, endpoint)
}

/// A Service without an address, with one endpoint that it says is its Pod.
fn headless_at(namespace: &str, name: &str, port: &str, number: u16, endpoint: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: {name}, \
         creationTimestamp: 2025-01-01T00:00:00Z}}\nspec: {{clusterIP: None, ports: [{{name: \
         {port}, port: {number}}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: \
         EndpointSlice\nmetadata: {{namespace: {namespace}, name: {name}-1, labels: \
         {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: {port}, \
         port: {number}}}]\nendpoints: [{{addresses: [{endpoint}], targetRef: {{kind: Pod, name: \
         {name}-0}}}}]\n---\n"
    )
}

fn pod(namespace: &str, name: &str, address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{namespace: {namespace}, name: {name}-0}}\nstatus: \
         {{podIP: {address}}}\n---\n"
    )
}

#[test]
fn rules_for_the_host_of_a_service_are_its_owners_the_callers_or_the_operators() {
    let hosts = [
        "cart.shop.svc.cluster.local",
        "*.shop.svc.cluster.local",
        "*.cluster.local",
        "*",
    ];
    for writer in WRITERS {
        for host in hosts {
            let (_, text, findings) = beside_services(&virtual_service(writer, host));
            let is_admitted = writer != "aaa";
            let of_rules = format!("{writer}/vs/cart.shop.svc.cluster.local");
            for name in [
                format!("\nroute {of_rules}:80/"),
                format!("\nstream_route {of_rules}:9000/"),
            ] {
                assert_eq!(text.contains(&name), is_admitted, "{writer} {host}\n{text}");
            }
            let own = "route mesh/cart.shop.svc.cluster.local:80\n  below / -> shop/cart:80 on";
            assert_eq!(text.contains(own), !is_admitted, "{writer} {host}\n{text}");
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            match writer {
                "aaa" => assert!(told, "{host}: {findings}"),
                "ops" => assert!(!told, "{host}: {findings}"),
                _ => {}
            }
        }
    }
}

#[test]
fn rules_that_are_exported_to_their_own_namespace_alone_need_no_finding() {
    let rules = virtual_service("aaa", "cart.shop.svc.cluster.local") + "  exportTo: ['.']\n";
    let (_, text, findings) = beside_services(&rules);
    assert!(!text.contains("aaa/vs/"), "{text}");
    assert_eq!(findings, "");
}

#[test]
fn names_of_a_service_are_its_owners_the_callers_or_the_operators_and_the_service_goes_first() {
    // Whether the namespace of the Service has a say, and whether the Service itself has the name.
    let hosts = [
        ("cart.shop.svc.cluster.local", true, true),
        ("cart.shop.svc", true, true),
        ("cart.shop", true, true),
        ("a.cart.shop", true, false),
        ("*.cart.shop", true, false),
        ("*.shop.svc.cluster.local", true, false),
        ("*.svc.cluster.local", false, false),
        ("cart", false, false),
    ];
    for writer in WRITERS {
        for (host, is_owned, is_whole) in hosts {
            let (_, text, findings) = beside_services(&service_entry(writer, host, ""));
            let is_admitted = writer != "aaa" && (is_owned || writer != "shop");
            // Bytes without an address are nowhere for callers of others.
            let is_raw = is_admitted && writer != "shop";
            let has = |port: u16| text.contains(&format!(" mesh/{writer}/se/{host}:{port}\n"));
            let wanted = [is_admitted && !is_whole, is_admitted];
            assert_eq!([has(80), has(81)], wanted, "{writer} {host}\n{text}");
            let wanted = [is_raw && !is_whole, is_raw];
            assert_eq!([has(9000), has(9001)], wanted, "{writer} {host}\n{text}");
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            assert_eq!(told, !is_admitted, "{writer} {host}: {findings}");
        }
    }
}

#[test]
fn hosts_that_no_service_has_are_whose_service_entry_names_them() {
    for host in ["api.example.com", "*.example.com", "other.shop"] {
        for writer in ["blog", "aaa"] {
            let (_, text, findings) = beside_services(&service_entry(writer, host, ""));
            for (port, is_named) in [(80, true), (81, true), (9000, false), (9001, false)] {
                let name = format!(" mesh/{writer}/se/{host}:{port}\n");
                let wanted = is_named || writer == "blog";
                assert_eq!(text.contains(&name), wanted, "{host}\n{text}");
            }
            assert_eq!(findings, "");
        }
    }
}

#[test]
fn names_of_everybody_and_addresses_are_the_callers_or_the_operators() {
    let hosts = [
        "*",
        "*.com",
        "*.shop",
        "*.local",
        "*.cluster.local",
        "metadata.google.internal",
        "*.google.internal",
        "169.254.169.254",
        "203.0.113.6",
    ];
    for writer in WRITERS {
        for host in hosts {
            let (_, text, findings) = beside_services(&service_entry(writer, host, ""));
            let is_admitted = writer == "blog" || writer == "ops";
            for port in [80, 81] {
                let name = format!(" mesh/{writer}/se/{host}:{port}\n");
                assert_eq!(text.contains(&name), is_admitted, "{writer} {host}\n{text}");
            }
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            assert_eq!(told, !is_admitted, "{writer} {host}: {findings}");
        }
        // Addresses are no hosts of requests either.
        let entry = service_entry(writer, "x.example", "203.0.113.6");
        let (snapshot, text, _) = beside_services(&entry);
        let route = format!("route mesh/{writer}/se/x.example:80\n");
        assert!(text.contains(&route), "{text}");
        let mut routes = snapshot.iter().flat_map(|sealed| sealed.routes());
        let is_host = |text: &str| text == "203.0.113.6";
        let is_asked = routes.any(|it| it.hosts.iter().any(|host| is_host(host.as_str())));
        let is_admitted = writer == "blog" || writer == "ops";
        assert_eq!(is_asked, is_admitted, "{writer}\n{text}");
    }
}

#[test]
fn whoever_declares_a_name_has_it_for_its_callers_whoever_is_older() {
    let older = service_entry("aaa", "api.bank.example", "");
    let route = "\nroute mesh/aaa/se/api.bank.example:80\n";
    let mine = |namespace: &str, host: &str, exports: &str| {
        let entry = service_entry(namespace, host, "");
        let younger = (
            "name: se, creationTimestamp: 2020",
            "name: my, creationTimestamp: 2025",
        );
        entry.replace(younger.0, younger.1) + &format!("  exportTo: ['{exports}']\n---\n")
    };
    let cases = [
        ("blog", "api.bank.example", ".", true),
        ("blog", "*.bank.example", ".", true),
        ("blog", "*.example", ".", true),
        ("ops", "*.bank.example", "*", true),
        // Not for the caller, or another name, or all.
        ("ops", "*.bank.example", ".", false),
        ("shop", "*.bank.example", ".", false),
        ("blog", "pay.bank.example", ".", false),
        ("blog", "*", ".", false),
    ];
    for (namespace, host, exports, is_had) in cases {
        let both = mine(namespace, host, exports) + &older;
        let (_, text, findings) = beside_services(&both);
        assert_eq!(text.contains(route), !is_had, "{namespace} {host}\n{text}");
        let own = format!("\nroute mesh/{namespace}/my/{host}:80\n");
        let is_seen = namespace == "blog" || exports == "*";
        assert_eq!(text.contains(&own), is_seen, "{namespace} {host}\n{text}");
        assert!(!findings.contains("callers outside"), "{findings}");
        // It is asked again when the other one comes or goes.
        let mut engine = world::engine(world::settings(SETTINGS));
        let text = |engine: &Engine| render::resources(&engine.snapshot_of("caller").unwrap());
        engine.apply(world::changes(&older), world::NOW);
        assert!(text(&engine).contains(route));
        engine.apply(world::changes(&mine(namespace, host, exports)), world::NOW);
        assert_eq!(text(&engine).contains(route), !is_had, "{namespace} {host}");
        let gone = format!("remove ServiceEntry {namespace}/my\n");
        engine.apply(world::changes(&gone), world::NOW);
        assert!(text(&engine).contains(route), "{namespace} {host}");
    }
}

#[test]
fn addresses_of_a_service_are_its_owners_the_callers_or_the_operators_and_the_service_goes_first() {
    for writer in WRITERS {
        for address in ["10.96.0.10", "10.96.0.10/32", "'::ffff:10.96.0.10'"] {
            let entry = service_entry(writer, "x.example", address);
            let (_, text, findings) = beside_services(&entry);
            let is_admitted = writer != "aaa";
            let has = |port: u16| {
                let name = format!("\nstream_route mesh/{writer}/se/x.example:{port}\n");
                text.contains(&name)
            };
            let wanted = [false, is_admitted];
            assert_eq!([has(9000), has(9001)], wanted, "{writer} {address}\n{text}");
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            assert_eq!(told, !is_admitted, "{writer} {address}: {findings}");
        }
        let (_, text, _) = beside_services(&service_entry(writer, "10.96.0.10", ""));
        let name = format!("\nroute mesh/{writer}/se/10.96.0.10:81\n");
        assert_eq!(text.contains(&name), writer != "aaa", "{writer}\n{text}");
    }
}

/// The stream route that takes a connection of the caller, as proxies find it: on the listener of
/// the address, or else on that of the port.
fn taker(snapshot: &Snapshot, address: &str, port: u16) -> Option<String> {
    let address: IpAddr = address.parse().unwrap();
    let resources = || snapshot.iter().filter_map(|it| Some((it, it.resource()?)));
    let own = format!("outbound/{}", SocketAddr::new(address, port));
    let mut listeners = resources().filter(|(_, it)| matches!(it.value, Value::Listener(_)));
    let listener = match listeners.any(|(sealed, _)| sealed.name().as_str() == own) {
        true => own,
        false => format!("outbound/any:{port}"),
    };
    let takes = resources().filter_map(|(sealed, resource)| {
        let Value::StreamRoute(stream_route) = &resource.value else {
            return None;
        };
        let mut listeners = stream_route.listeners.iter();
        let mut blocks = stream_route.destinations.iter();
        let is_on = listeners.any(|name| name.as_str() == listener);
        let is_for = stream_route.destinations.is_empty() || blocks.any(|it| it.contains(&address));
        let takes = is_on && is_for && stream_route.hosts.is_empty();
        takes.then(|| (stream_route.rank, sealed.name().to_string()))
    });
    takes.min().map(|(_, name)| name)
}

/// Whether a ServiceEntry of a namespace takes a connection.
fn is_led(snapshot: &Snapshot, writer: &str, address: &str, port: u16) -> bool {
    let name = format!("mesh/{writer}/se/x.example:{port}");
    taker(snapshot, address, port) == Some(name)
}

#[test]
fn a_block_has_no_effect_where_services_stand_but_for_callers_of_its_namespace() {
    // Blocks, an address in each that no Service is near, and whether a stranger may speak of them.
    let blocks = [
        ("10.96.0.0/16", "10.96.200.1", true),
        ("10.96.0.8/29", "10.96.0.11", true),
        ("10.96.0.10/31", "10.96.0.11", true),
        ("10.0.0.0/8", "10.20.0.1", false),
        ("10.96.0.0/12", "10.97.0.1", false),
        ("0.0.0.0/0", "192.0.2.1", false),
        ("169.254.0.0/16", "169.254.169.254", false),
        ("169.254.169.254/32", "169.254.169.254", false),
        ("127.0.0.0/24", "127.0.0.1", false),
    ];
    for writer in WRITERS {
        for (block, free, is_bounded) in blocks {
            let entry = service_entry(writer, "x.example", block);
            let entry = entry.replace("name: a, protocol: HTTP", "name: a, protocol: TCP");
            let (snapshot, text, findings) = beside_services(&entry);
            // The caller's and the operator's, but not the owner's of one Service among several.
            let is_admitted = writer == "blog" || writer == "ops";
            let led = |address: &str, port: u16| is_led(&snapshot, writer, address, port);
            for port in [80, 9001] {
                let covers = block.parse::<IpNet>().unwrap().contains(&SERVICE);
                let wanted = is_admitted && covers;
                assert_eq!(led("10.96.0.10", port), wanted, "{block}\n{text}");
                let wanted = is_admitted || is_bounded;
                assert_eq!(led(free, port), wanted, "{writer} {block} {port}\n{text}");
            }
            // At the ports that it has, the Service goes first for all.
            let first = taker(&snapshot, "10.96.0.10", 9000);
            let own = "mesh/cart.shop.svc.cluster.local:9000";
            assert_eq!(first.as_deref(), Some(own), "{writer} {block}\n{text}");
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            assert_eq!(told, !is_admitted, "{writer} {block}: {findings}");
        }
    }
}

#[test]
fn who_writes_no_address_of_bytes_means_none_but_for_callers_of_its_namespace() {
    for writer in WRITERS {
        let (snapshot, text, findings) = beside_services(&service_entry(writer, "x.example", ""));
        let is_admitted = writer == "blog" || writer == "ops";
        let led = |address: &str| is_led(&snapshot, writer, address, 9001);
        for address in ["10.96.0.10", "10.20.0.1", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(led(address), is_admitted, "{writer} {address}\n{text}");
        }
        assert_eq!(findings, "");
    }
}

#[test]
fn a_rule_takes_no_more_than_the_addresses_of_its_service_entry() {
    for addresses in ["192.0.2.0/24", "10.96.0.0/16", ""] {
        let entry = service_entry("aaa", "x.example", addresses);
        let rules = virtual_service("aaa", "x.example");
        let matched = "tcp: [{match: [{destinationSubnets: ['10.96.0.10/32']}], route:";
        let rules = rules.replace("tcp: [{route:", matched);
        let (snapshot, text, _) = beside_services(&format!("{entry}---\n{rules}"));
        let taken = taker(&snapshot, "10.96.0.10", 9001);
        let is_strangers = taken.is_some_and(|name| name.contains("aaa/"));
        assert!(!is_strangers, "{addresses}\n{text}");
    }
}

#[test]
fn a_block_is_asked_about_again_when_its_first_service_comes_or_its_last_one_goes() {
    let mut engine = world::engine(world::settings(SETTINGS));
    let entry = service_entry("aaa", "x.example", "10.96.0.0/16");
    engine.apply(world::changes(&entry), world::NOW);
    let led = |engine: &Engine| {
        let snapshot = engine.snapshot_of("caller").expect("the view is there");
        is_led(&snapshot, "aaa", "10.96.0.10", 9001)
    };
    let service = |number: usize| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: s{number}}}\n\
             spec: {{clusterIP: 10.96.0.{number}, ports: [{{name: tcp, port: 9000}}]}}\n"
        )
    };
    let remove = |number: usize| world::changes(&format!("remove Service shop/s{number}"));
    let looked = |engine: &mut Engine, changes: Vec<Change>| {
        engine.apply(changes, world::NOW).work.units_translated
    };
    assert!(led(&engine));
    let first = looked(&mut engine, world::changes(&service(10)));
    assert!(!led(&engine));
    // Others beside it concern the block no more.
    for number in 20..40 {
        let later = looked(&mut engine, world::changes(&service(number)));
        assert!(later < first, "{later} units, {first} for the first one");
    }
    for number in [10].into_iter().chain(20..40) {
        assert!(!led(&engine), "{number}");
        looked(&mut engine, remove(number));
    }
    assert!(led(&engine));
}

#[test]
fn an_address_of_a_stranger_stands_behind_endpoints_of_services() {
    let led_at = |writer: &str, listener: &str| {
        let entry = service_entry(writer, "x.example", "192.0.2.1");
        let (_, text, _) = beside_services(&entry);
        let end = format!("-> entry/{writer}/x.example:9001*1 on [{listener}]");
        assert!(text.contains(&end), "{text}");
    };
    led_at("aaa", "outbound/any:9001");
    led_at("blog", "outbound/192.0.2.1:9001");
    led_at("ops", "outbound/192.0.2.1:9001");
}

#[test]
fn a_service_without_an_address_goes_before_older_service_entries_and_their_rules() {
    let objects = [
        headless("shop", "db", "10.8.0.11"),
        service_entry("aaa", "x.example", "10.8.0.11"),
        "---\n".to_owned(),
        virtual_service("aaa", "x.example"),
    ];
    let (snapshot, ..) = beside_services(&objects.concat());
    let ranked = snapshot.iter().filter_map(|sealed| {
        let Value::StreamRoute(stream_route) = &sealed.resource()?.value else {
            return None;
        };
        let mut listeners = stream_route.listeners.iter();
        let is_at = listeners.any(|name| name.as_str() == "outbound/any:9000");
        is_at.then(|| (stream_route.rank, sealed.name().to_string()))
    });
    let mut ranked: Vec<(u64, String)> = ranked.collect();
    ranked.sort();
    let names: Vec<&str> = ranked.iter().map(|(_, name)| &**name).collect();
    let wanted = [
        "mesh/db.shop.svc.cluster.local:9000",
        "aaa/vs/aaa/se/x.example:9000/tcp0.0",
        "mesh/aaa/se/x.example:9000",
        "elsewhere/outbound/any:9000",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn a_rule_takes_connections_to_endpoints_of_its_own_service_alone() {
    let led = |subnet: &str| {
        let rules = virtual_service("aaa", "db.aaa.svc.cluster.local");
        let matched = format!("tcp: [{{match: [{{destinationSubnets: ['{subnet}']}}], route:");
        let rules = rules.replace("tcp: [{route:", &matched);
        let objects = headless("aaa", "db", "10.8.0.66") + &rules;
        beside_services(&objects).1
    };
    let name = "stream_route aaa/vs/db.aaa.svc.cluster.local:9000/tcp0.0";
    for subnet in ["10.8.0.0/16", "0.0.0.0/0"] {
        let text = led(subnet);
        let whole = format!("{name}\n  every connection to 10.8.0.66/32 -> aaa/own:9000*1 on");
        assert!(text.contains(&whole), "{text}");
    }
    for subnet in ["10.8.0.11/32", "10.96.0.0/12"] {
        let text = led(subnet);
        assert!(!text.contains(name), "{text}");
    }
}

#[test]
fn a_service_that_is_not_exported_is_no_destination_of_strangers() {
    let hidden = |namespaces: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: hidden, \
             annotations: {{networking.istio.io/exportTo: '{namespaces}'}}}}\nspec: {{clusterIP: \
             10.96.0.30, ports: [{{name: http, port: 80}}, {{name: tcp, port: 9000}}]}}\n---\n"
        )
    };
    let rules = virtual_service("blog", "own.blog.svc.cluster.local");
    let rules = rules.replace("host: own,", "host: hidden.shop.svc.cluster.local,");
    let (_, text, findings) = beside_services(&(hidden(".") + &rules));
    assert!(!text.contains("shop/hidden"), "{text}");
    assert!(
        findings.contains("is not exported to namespace blog"),
        "{findings}"
    );
    let (_, text, findings) = beside_services(&(hidden("blog") + &rules));
    assert!(text.contains("upstream shop/hidden:80 "), "{text}");
    assert_eq!(findings, "");
}

/// The resources that a gateway makes of the objects, and its findings, where Services are exported
/// as said.
fn at_gateway(exports: &str, objects: &str) -> (String, String) {
    let settings = format!("# with root-namespace=ops\n{exports}");
    let mut engine = world::engine(world::settings(&settings));
    engine.apply(world::changes(objects), world::NOW);
    (render::resources(engine.snapshot()), findings(&engine))
}

#[test]
fn by_named_exports_no_route_of_others_leads_to_a_service_that_is_lent_to_nobody() {
    let service = |annotation: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: admin, annotations: \
             {{{annotation}}}}}\nspec: {{clusterIP: 10.96.0.31, ports: [{{name: http, port: \
             80}}]}}\n---\n"
        )
    };
    let routed = |namespace: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{namespace: \
             {namespace}, name: edge}}\nspec: {{selector: {{istio: ingressgateway}}, servers: \
             [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: \
             [own.example]}}]}}\n---\napiVersion: networking.istio.io/v1\nkind: \
             VirtualService\nmetadata: {{namespace: {namespace}, name: around}}\nspec: {{hosts: \
             [own.example], gateways: [edge], http: [{{route: [{{destination: {{host: \
             admin.shop.svc.cluster.local, port: {{number: 80}}}}}}]}}]}}\n"
        )
    };
    let named = "# with service-exports=named\n";
    let lends = |to: &str| format!("networking.istio.io/exportTo: '{to}'");
    for (exports, annotation, namespace, is_led) in [
        ("", String::new(), "blog", true),
        (named, String::new(), "blog", false),
        (named, lends("."), "blog", false),
        (named, lends(".,news"), "blog", false),
        (named, lends(".,blog"), "blog", true),
        (named, lends("*"), "blog", true),
        (named, String::new(), "shop", true),
        (named, String::new(), "ops", true),
    ] {
        let objects = service(&annotation) + &routed(namespace);
        let (text, findings) = at_gateway(exports, &objects);
        let case = format!("{exports} {annotation} {namespace}\n{text}{findings}");
        assert_eq!(text.contains("upstream shop/admin:80 "), is_led, "{case}");
        assert_eq!(findings.contains("is not exported to"), !is_led, "{case}");
    }
    // At sidecars whoever is called is known as before.
    let sidecar = SETTINGS.to_owned() + named;
    let mut engine = world::engine(world::settings(&sidecar));
    engine.apply(world::changes(&service("")), world::NOW);
    let snapshot = engine.snapshot_of("caller").expect("the view is there");
    let text = render::resources(&snapshot);
    assert!(text.contains("upstream shop/admin:80 "), "{text}");
}

#[test]
fn endpoints_of_a_strangers_service_are_pods_of_its_namespace() {
    // An object of the writer that lists an endpoint of the victim's, older than the victim.
    let grab = |writer: &str| {
        let rules = virtual_service(writer, &format!("grab.{writer}.svc.cluster.local"));
        headless_at(writer, "grab", "tcp", 9000, "10.8.0.20") + &rules + "---\n"
    };
    let name = |writer: &str| format!("{writer}/vs/grab.{writer}.svc.cluster.local:9000/tcp0.0");
    let victim = headless("shop", "db", "10.8.0.20");
    let own = Some("mesh/db.shop.svc.cluster.local:9000".to_owned());
    for writer in ["aaa", "blog", "ops"] {
        let (snapshot, text, _) = beside_services(&(grab(writer) + &victim));
        let wanted = match writer {
            "aaa" => own.clone(),
            _ => Some(name(writer)),
        };
        assert_eq!(taker(&snapshot, "10.8.0.20", 9000), wanted, "{text}");
        // Nor does it take what nobody declares.
        let (snapshot, text, _) = beside_services(&grab(writer));
        let is_taken = taker(&snapshot, "10.8.0.20", 9000) == Some(name(writer));
        assert_eq!(is_taken, writer != "aaa", "{text}");
    }
    // Where it is its own Pod, it has it; a Service that is led by nobody goes before.
    let own_pod = grab("aaa") + &pod("aaa", "grab", "10.8.0.20");
    let (snapshot, text, _) = beside_services(&own_pod);
    assert_eq!(
        taker(&snapshot, "10.8.0.20", 9000),
        Some(name("aaa")),
        "{text}"
    );
    let (snapshot, text, _) = beside_services(&(own_pod + &victim));
    assert_eq!(taker(&snapshot, "10.8.0.20", 9000), own, "{text}");
}

#[test]
fn an_endpoint_is_asked_about_again_when_its_pod_has_its_address() {
    let mut engine = world::engine(world::settings(SETTINGS));
    let of_service = headless_at("shop", "db", "tcp", 9000, "10.8.0.11");
    engine.apply(world::changes(&of_service), world::NOW);
    let is_led = |engine: &Engine| {
        let snapshot = engine.snapshot_of("caller").expect("the view is there");
        let own = "mesh/db.shop.svc.cluster.local:9000";
        taker(&snapshot, "10.8.0.11", 9000).as_deref() == Some(own)
    };
    assert!(!is_led(&engine));
    for (address, wanted) in [("10.8.0.12", false), ("10.8.0.11", true)] {
        engine.apply(world::changes(&pod("shop", "db", address)), world::NOW);
        assert_eq!(is_led(&engine), wanted, "{address}");
    }
    engine.apply(world::changes("remove Pod shop/db-0\n"), world::NOW);
    assert!(!is_led(&engine));
}

/// The protocol of a listener of the caller.
fn spoken(snapshot: &Snapshot, listener: &str) -> Option<ListenerProtocol> {
    let mut found = snapshot.iter().filter(|it| it.name().as_str() == listener);
    found.find_map(|sealed| match &sealed.resource()?.value {
        Value::Listener(listener) => Some(listener.protocol),
        _ => None,
    })
}

#[test]
fn a_port_of_a_stranger_changes_nothing_for_other_addresses() {
    let ports = [443, 3306, 5432, 9042];
    let any = |port: u16| format!("outbound/any:{port}");
    let victim = headless_at("shop", "db", "tcp", 3306, "10.8.0.20");
    let victim = victim + &pod("shop", "db", "10.8.0.20");
    for writer in ["aaa", "blog", "ops"] {
        let listed: Vec<String> = ports
            .iter()
            .map(|port| format!("{{name: http-{port}, port: {port}}}"))
            .collect();
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {writer}, name: h}}\nspec: \
             {{clusterIP: 10.96.0.67, ports: [{}]}}\n---\n",
            listed.join(", ")
        );
        let listed: Vec<String> = ports
            .iter()
            .map(|port| format!("{{name: p{port}, number: {port}, protocol: HTTP}}"))
            .collect();
        let entry = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{namespace: \
             {writer}, name: se}}\nspec: {{hosts: [x.aaa.example], resolution: STATIC, endpoints: \
             [{{address: 10.66.66.66}}], ports: [{}]}}\n---\n",
            listed.join(", ")
        );
        let tls = entry.replace("HTTP", "TLS").replace("443", "9443");
        for object in [&service, &entry, &tls] {
            let (snapshot, text, _) = beside_services(&(object.clone() + &victim));
            let wanted = match writer {
                "aaa" => Some(ListenerProtocol::Tcp),
                _ => Some(ListenerProtocol::Detected),
            };
            assert_eq!(spoken(&snapshot, &any(3306)), wanted, "{writer}\n{text}");
            let is_made = spoken(&snapshot, &any(9042)).is_some();
            assert_eq!(is_made, writer != "aaa", "{writer}\n{text}");
        }
        // The Service is reached at its own address, whatever the request asks for.
        let (snapshot, text, _) = beside_services(&service);
        let own = "outbound/10.96.0.67:5432";
        let is_there = spoken(&snapshot, own) == Some(ListenerProtocol::Http);
        assert_eq!(is_there, writer == "aaa", "{text}");
        let route = format!("route mesh/h.{writer}.svc.cluster.local:5432\n");
        assert!(text.contains(&route), "{text}");
    }
}

#[test]
fn requests_to_pods_of_a_stranger_go_on_as_bytes_where_http_is_not_expected() {
    let of = |writer: &str, port: u16| {
        let service = headless_at(writer, "h", "http", port, "10.8.0.66");
        let (snapshot, text, _) = beside_services(&(service + &pod(writer, "h", "10.8.0.66")));
        let is_bytes = taker(&snapshot, "10.8.0.66", port)
            == Some(format!("mesh/h.{writer}.svc.cluster.local:{port}"));
        let protocol = spoken(&snapshot, &format!("outbound/any:{port}"));
        (is_bytes, protocol, text)
    };
    for port in [5432, 9042] {
        let (is_bytes, protocol, text) = of("aaa", port);
        assert!(is_bytes, "{text}");
        assert_eq!(protocol, Some(ListenerProtocol::Tcp), "{text}");
        let (is_bytes, protocol, text) = of("blog", port);
        assert!(!is_bytes, "{text}");
        assert_eq!(protocol, Some(ListenerProtocol::Http), "{text}");
    }
    // Where nobody else speaks HTTP, bytes pass beside it; the caller's own Services do at 80.
    let (is_bytes, protocol, text) = of("aaa", 8080);
    assert!(is_bytes, "to its Pods at least: {text}");
    assert_eq!(protocol, Some(ListenerProtocol::Detected), "{text}");
    let (_, protocol, text) = of("aaa", 80);
    assert_eq!(protocol, Some(ListenerProtocol::Http), "{text}");
}

/// Whether HTTP is looked for at the addresses of Services alone on a listener of the caller.
fn detects_hosts(snapshot: &Snapshot, listener: &str) -> bool {
    let mut found = snapshot.iter().filter(|it| it.name().as_str() == listener);
    let found = found.find_map(|sealed| match &sealed.resource()?.value {
        Value::Listener(listener) => Some(listener.capture?.detects_hosts),
        _ => None,
    });
    found.expect("the listener is there")
}

/// Whether routes of requests know an address or a name as their host.
fn is_host(snapshot: &Snapshot, host: &str) -> bool {
    let hosts = |value: &Value| match value {
        Value::Route(route) => route.hosts.iter().map(ToString::to_string).collect(),
        Value::Routes(block) => block.hosts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let mut values = snapshot.iter().filter_map(|sealed| sealed.resource());
    values.any(|resource| hosts(&resource.value).iter().any(|it| it == host))
}

#[test]
fn http_of_a_stranger_is_looked_for_at_his_own_addresses_alone() {
    let victim = headless_at("shop", "db", "tcp", 8080, "10.8.0.20");
    let victim = victim + &pod("shop", "db", "10.8.0.20");
    for (writer, is_strangers) in [("aaa", true), ("blog", false), ("ops", false)] {
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {writer}, name: h}}\nspec: \
             {{clusterIPs: [10.96.0.67, 'fd00::67'], clusterIP: 10.96.0.67, ports: [{{name: http, \
             port: 8080}}]}}\n---\n"
        );
        let pods = headless_at(writer, "p", "http", 8080, "10.8.0.66");
        let pods = pods + &pod(writer, "p", "10.8.0.66");
        let (snapshot, text, _) = beside_services(&(service + &pods + &victim));
        assert_eq!(
            spoken(&snapshot, "outbound/any:8080"),
            Some(ListenerProtocol::Detected)
        );
        assert_eq!(
            detects_hosts(&snapshot, "outbound/any:8080"),
            is_strangers,
            "{writer}\n{text}"
        );
        // The addresses of the Service are hosts of its routes, by which proxies know them.
        for address in ["10.96.0.67", "[fd00::67]"] {
            assert!(is_host(&snapshot, address), "{address}\n{text}");
        }
        // Bytes to Pods go where their addresses are.
        assert_eq!(
            taker(&snapshot, "10.8.0.20", 8080).as_deref(),
            Some("mesh/db.shop.svc.cluster.local:8080")
        );
        let is_bytes = taker(&snapshot, "10.8.0.66", 8080)
            == Some(format!("mesh/p.{writer}.svc.cluster.local:8080"));
        assert_eq!(is_bytes, is_strangers, "{writer}\n{text}");
    }
}

#[test]
fn a_name_of_a_stranger_stands_behind_addresses_that_others_have() {
    let victim = headless_at("shop", "es", "tls", 443, "10.8.0.22");
    let victim = victim + &pod("shop", "es", "10.8.0.22");
    for (writer, is_strangers) in [("aaa", true), ("blog", false), ("ops", false)] {
        let entry = service_entry(writer, "foreign.example", "").replace(
            "{number: 80, name: a, protocol: HTTP}",
            "{number: 443, name: a, protocol: TLS}",
        );
        let (snapshot, text, _) = beside_services(&(victim.clone() + &entry));
        let of = |name: &str| {
            let mut found = snapshot.iter().filter(|it| it.name().as_str() == name);
            let found = found.find_map(|sealed| match &sealed.resource()?.value {
                Value::StreamRoute(stream_route) => Some((**stream_route).clone()),
                _ => None,
            });
            found.unwrap_or_else(|| panic!("{name} is there\n{text}"))
        };
        let named = of(&format!("mesh/{writer}/se/foreign.example:443"));
        let addressed = of("mesh/es.shop.svc.cluster.local:443");
        assert_eq!(named.hosts.len(), 1);
        assert!(!addressed.destinations.is_empty());
        assert_eq!(named.behind > addressed.rank, is_strangers, "{text}");
        // Of two strangers nobody has the other's names for a block of addresses.
        assert!(named.behind == 0 || named.behind <= named.rank, "{text}");
    }
}

#[test]
fn a_service_of_tls_without_an_address_is_told_by_its_names_before_those_of_others() {
    let service = headless_at("shop", "es", "tls", 443, "10.8.0.22");
    let objects = [
        service,
        pod("shop", "es", "10.8.0.22"),
        service_entry("aaa", "*.other.example", "").replace(
            "{number: 80, name: a, protocol: HTTP}",
            "{number: 443, name: a, protocol: TLS}",
        ),
    ];
    let (snapshot, text, _) = beside_services(&objects.concat());
    let named = "stream_route mesh/es.shop.svc.cluster.local:443/names\n";
    let (_, rest) = text.split_once(named).expect(&text);
    let line = rest.lines().next().unwrap_or_default();
    for name in ["es.shop", "es.shop.svc.cluster.local", "**.es.shop"] {
        assert!(line.contains(name), "{line}");
    }
    assert!(line.contains("10.8.0.22/32"), "{line}");
    assert_eq!(
        taker(&snapshot, "10.8.0.22", 443).as_deref(),
        Some("mesh/es.shop.svc.cluster.local:443")
    );
}
