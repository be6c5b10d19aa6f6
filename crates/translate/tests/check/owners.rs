//! Hosts and addresses of Services in the mesh: what a VirtualService or a ServiceEntry says of
//! them holds if it is of the Service's namespace, the caller's or the root namespace.

use myriad_model::{Snapshot, Value};
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

/// A Service without an address, with one endpoint at port 9000.
fn headless(namespace: &str, name: &str, endpoint: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: {name}, \
         creationTimestamp: 2025-01-01T00:00:00Z}}\nspec: {{clusterIP: None, ports: [{{name: tcp, \
         port: 9000}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: \
         {{namespace: {namespace}, name: {name}-1, labels: {{kubernetes.io/service-name: \
         {name}}}}}\naddressType: IPv4\nports: [{{name: tcp, port: 9000}}]\nendpoints: \
         [{{addresses: [{endpoint}]}}]\n---\n"
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
            let has = |port: u16| text.contains(&format!(" mesh/{writer}/se/{host}:{port}\n"));
            let wanted = [is_admitted && !is_whole, is_admitted];
            assert_eq!([has(80), has(81)], wanted, "{writer} {host}\n{text}");
            assert_eq!([has(9000), has(9001)], wanted, "{writer} {host}\n{text}");
            let told = findings.contains(&format!("callers outside of namespace {writer}"));
            assert_eq!(told, !is_admitted, "{writer} {host}: {findings}");
        }
    }
}

#[test]
fn hosts_that_no_service_has_are_whose_service_entry_names_them() {
    for host in ["api.example.com", "*.example.com", "other.shop", "*.shop"] {
        let (_, text, findings) = beside_services(&service_entry("aaa", host, ""));
        for port in [80, 81, 9000, 9001] {
            let name = format!(" mesh/aaa/se/{host}:{port}\n");
            assert!(text.contains(&name), "{host}\n{text}");
        }
        assert_eq!(findings, "");
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
        service_entry("aaa", "x.example", ""),
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
