//! TLSRoutes, TCPRoutes and UDPRoutes of Gateways.

use std::time::Duration;

use myriad_model::StreamRoute;
use myriad_translate::Engine;

use crate::world;

const BASE: &str = "\
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: ours}, spec: \
{controllerName: myriad.dev/gateway-controller}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: dns}, spec: {ports: \
[{name: tcp, port: 53, protocol: TCP}, {name: udp, port: 53, protocol: UDP}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: dns-a, \
labels: {kubernetes.io/service-name: dns}}, addressType: IPv4, ports: [{name: tcp, port: 1053, \
protocol: TCP}, {name: udp, port: 2053, protocol: UDP}], endpoints: [{addresses: [10.0.0.1], \
conditions: {ready: true}}]}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: own}, type: kubernetes.io/tls, \
stringData: {tls.crt: <certificate own.example>, tls.key: <key own.example>}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: \
edge}, spec: {gatewayClassName: ours, listeners: [\
{name: tcp, port: 9053, protocol: TCP}, \
{name: udp, port: 9053, protocol: UDP}, \
{name: pass, port: 9443, protocol: TLS, hostname: '*.pass.example', tls: {mode: Passthrough}}, \
{name: end, port: 9443, protocol: TLS, hostname: own.example, tls: {certificateRefs: \
[{name: own}]}}]}}";

fn engine(objects: &[String]) -> Engine {
    let mut engine = world::engine(world::settings("# with gateway-ports=9000-9999"));
    engine.apply(world::changes(BASE), world::NOW);
    let changes = objects.iter().flat_map(|text| world::changes(text));
    engine.apply(changes.collect(), world::NOW);
    engine
}

fn route(kind: &str, (name, second): (&str, u32), hosts: &str, backends: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: {kind}, metadata: {{namespace: \
         shop, name: {name}, creationTimestamp: '2026-01-01T00:00:{second:02}Z'}}, spec: \
         {{parentRefs: [{{name: edge}}], {hosts} rules: [{{backendRefs: [{backends}]}}]}}}}"
    )
}

/// All stream routes with their names, in order, without those that close what no route takes.
fn streams(engine: &Engine) -> Vec<(String, StreamRoute)> {
    let snapshot = engine.snapshot();
    let found = snapshot.iter().filter_map(|it| {
        let stream_route = it.stream_route()?.clone();
        let is_closed = it.name().as_str().ends_with("/closed");
        (!is_closed).then_some((it.name().to_string(), stream_route))
    });
    let mut found: Vec<(String, StreamRoute)> = found.collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn listeners(route: &StreamRoute) -> Vec<&str> {
    route.listeners.iter().map(|it| it.as_str()).collect()
}

fn shares(route: &StreamRoute) -> Vec<(&str, u32)> {
    let shares = route.upstreams.iter();
    shares.map(|it| (it.upstream.as_str(), it.weight)).collect()
}

/// The addresses of the endpoints of an upstream.
fn endpoints(engine: &Engine, upstream: &str) -> Vec<String> {
    let snapshot = engine.snapshot();
    let mut all = snapshot.iter();
    let found = all.find(|it| it.endpoints().is_some() && it.name().as_str() == upstream);
    let found = found.and_then(|it| it.endpoints());
    let found = found.unwrap_or_else(|| panic!("no endpoints of {upstream}"));
    let addresses = found.endpoints.iter().map(|it| it.address.to_string());
    addresses.collect()
}

#[test]
fn a_port_leads_to_no_route_that_its_listener_has_ceased_to_take_however_little_time_there_is() {
    let mut engine = engine(&[route("TCPRoute", ("t", 1), "", "{name: dns, port: 53}")]);
    assert_eq!(streams(&engine).len(), 1);
    let gateway = BASE.split("\n---\n").last().expect("the Gateway");
    let open = "{name: tcp, port: 9053, protocol: TCP}";
    let closed = "{name: tcp, port: 9053, protocol: TCP, allowedRoutes: {namespaces: {from: \
                  Selector, selector: {matchLabels: {none: here}}}}}";
    for (listener, count) in [(closed, 0), (open, 1)] {
        for change in world::changes(&gateway.replace(open, listener)) {
            engine.take_in(change, world::NOW);
        }
        engine.apply_taken_in_while(world::NOW, &mut || false);
        assert!(engine.has_postponed(), "the route itself");
        assert!(streams(&engine).len() <= count);
        while engine.has_postponed() {
            engine.work_off(world::NOW, &mut || false, &|_| true);
        }
        assert_eq!(streams(&engine).len(), count);
    }
}

#[test]
fn a_port_has_the_connections_and_the_datagrams_of_two_routes() {
    let engine = engine(&[
        route("TCPRoute", ("t", 1), "", "{name: dns, port: 53}"),
        route("UDPRoute", ("u", 1), "", "{name: dns, port: 53}"),
    ]);
    let found = streams(&engine);
    let [(tcp, of_tcp), (udp, of_udp)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(tcp, "tcp/shop/t,port-9053/0");
    assert_eq!(udp, "udp/shop/u,port-9053-udp/0");
    assert_eq!(listeners(of_tcp), ["port-9053"]);
    assert_eq!(listeners(of_udp), ["port-9053-udp"]);
    assert_eq!(shares(of_tcp), [("shop/dns:53", 1)]);
    assert_eq!(shares(of_udp), [("shop/dns:53+udp", 1)]);
    assert_eq!(of_tcp.idle_timeout, Duration::from_secs(3_600));
    assert_eq!(of_udp.idle_timeout, Duration::ZERO);
    assert!(of_tcp.hosts.is_empty() && !of_tcp.terminate && !of_udp.terminate);
    assert_eq!(endpoints(&engine, "shop/dns:53"), ["10.0.0.1:1053"]);
    assert_eq!(endpoints(&engine, "shop/dns:53+udp"), ["10.0.0.1:2053"]);
}

#[test]
fn the_oldest_route_has_a_port() {
    let engine = engine(&[
        route("TCPRoute", ("a", 2), "", "{name: dns, port: 53}"),
        route(
            "TCPRoute",
            ("b", 1),
            "",
            "{name: dns, port: 53, weight: 3}, {name: no, port: 1}",
        ),
    ]);
    let found = streams(&engine);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "tcp/shop/b,port-9053/0");
    // The share of what is not there is closed.
    assert_eq!(shares(&found[0].1), [("shop/dns:53", 3), ("nowhere", 1)]);
}

#[test]
fn handshakes_are_passed_on_or_end_as_the_listener_has_it() {
    let hosts = "hostnames: [a.pass.example, own.example],";
    let engine = engine(&[route("TLSRoute", ("r", 1), hosts, "{name: dns, port: 53}")]);
    let found = streams(&engine);
    let [(end, of_end), (pass, of_pass)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(end, "tls/shop/r,gateway/shop/edge/end/0+tls");
    assert_eq!(pass, "tls/shop/r,gateway/shop/edge/pass/0");
    assert_eq!((of_end.terminate, of_pass.terminate), (true, false));
    assert_eq!(listeners(of_end), ["gateway/shop/edge/end"]);
    assert_eq!(listeners(of_pass), ["gateway/shop/edge/pass"]);
    let hosts = |route: &StreamRoute| -> Vec<String> {
        let hosts = route.hosts.iter();
        hosts.map(|host| host.as_str().to_owned()).collect()
    };
    assert_eq!(hosts(of_end), ["own.example"]);
    assert_eq!(hosts(of_pass), ["a.pass.example"]);
}

#[test]
fn a_policy_secures_what_comes_out_of_tls_and_nothing_that_is_passed_on() {
    let hosts = "hostnames: [a.pass.example, own.example],";
    let policy = "{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: \
                  {namespace: shop, name: p}, spec: {targetRefs: [{group: '', kind: Service, \
                  name: dns}], validation: {hostname: dns.internal, wellKnownCACertificates: \
                  System}}}";
    let engine = engine(&[
        policy.to_owned(),
        route("TLSRoute", ("r", 1), hosts, "{name: dns, port: 53}"),
        route("TCPRoute", ("t", 1), "", "{name: dns, port: 53}"),
        route("UDPRoute", ("u", 1), "", "{name: dns, port: 53}"),
    ]);
    let found = streams(&engine);
    let upstreams: Vec<&str> = found.iter().map(|it| shares(&it.1)[0].0).collect();
    assert_eq!(
        upstreams,
        [
            "shop/dns:53+tls=p",
            "shop/dns:53+tls=p",
            "shop/dns:53",
            "shop/dns:53+udp"
        ]
    );
}
