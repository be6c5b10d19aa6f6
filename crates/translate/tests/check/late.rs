//! Since when objects claim ports, plain connections and names, and what wakes or is seen while it
//! comes and goes: who had something first keeps it.

use std::collections::BTreeSet;

use myriad_model::{Kind, ListenerProtocol, Value};
use myriad_translate::{Bounds, ClaimsChange, Engine, Settings};

use crate::goldens::BASE;
use crate::world;

fn settings() -> Settings {
    Settings {
        late_claims: true,
        ..Settings::default()
    }
}

/// An engine that has seen its first list.
fn engine_with(settings: Settings) -> Engine {
    let mut engine = world::engine(settings);
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

fn engine() -> Engine {
    engine_with(settings())
}

/// An engine that starts later, knows what others have noted, and lists these objects.
fn started(settings: Settings, noted: ClaimsChange, objects: &[&str]) -> Engine {
    let mut engine = world::engine(settings);
    engine.learn(noted);
    let texts = [&[BASE][..], objects].concat();
    apply(&mut engine, &texts, 60);
    engine
}

fn apply(engine: &mut Engine, texts: &[&str], later: i64) {
    engine.apply(world::changes(&texts.join("\n---\n")), world::NOW + later);
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

/// The metadata of an object that is as old as the year says.
fn meta(id: &str, year: u32) -> String {
    let (namespace, name) = id.split_once('/').expect("NAMESPACE/NAME");
    format!(
        "metadata: {{namespace: {namespace}, name: {name}, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\n"
    )
}

/// An Istio Gateway with servers, each as `PORT PROTOCOL HOST`.
fn gateway(id: &str, year: u32, servers: &[&str]) -> String {
    let servers = servers.iter().map(|server| {
        let mut words = server.split(' ');
        let mut word = || words.next().expect("PORT PROTOCOL HOST");
        let (port, protocol, host) = (word(), word(), word());
        format!(
            "  - {{port: {{number: {port}, name: p{port}, protocol: {protocol}}}, \
             hosts: [\"{host}\"]}}\n"
        )
    });
    let servers: String = servers.collect();
    let meta = meta(id, year);
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\n{meta}spec:\n  \
         selector: {{istio: ingressgateway}}\n  servers:\n{servers}"
    )
}

/// A VirtualService for plain connections at ports of Gateways.
fn stream(id: &str, year: u32, gateways: &str, ports: &[u16]) -> String {
    let rules = ports.iter().map(|port| {
        format!(
            "  - {{match: [{{port: {port}}}], \
             route: [{{destination: {{host: web, port: {{number: 80}}}}}}]}}\n"
        )
    });
    let rules: String = rules.collect();
    let meta = meta(id, year);
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n{meta}spec:\n  \
         hosts: [\"*\"]\n  gateways: [{gateways}]\n  tcp:\n{rules}"
    )
}

/// A VirtualService for HTTP of a host.
fn service(id: &str, year: u32, host: &str, destination: &str) -> String {
    let meta = meta(id, year);
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n{meta}spec:\n  \
         hosts: [\"{host}\"]\n  gateways: [edge]\n  \
         http: [{{route: [{{destination: {{host: {destination}}}}}]}}]\n"
    )
}

fn ingress(id: &str, year: u32, hosts: &[&str]) -> String {
    let rules = hosts.iter().map(|host| {
        format!(
            "  - host: \"{host}\"\n    http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}\n"
        )
    });
    let rules: String = rules.collect();
    let meta = meta(id, year);
    format!("apiVersion: networking.k8s.io/v1\nkind: Ingress\n{meta}spec:\n  rules:\n{rules}")
}

/// A ServiceEntry of a host that is exported to these namespaces.
fn entry(id: &str, year: u32, host: &str, to: &str) -> String {
    let meta = meta(id, year);
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n{meta}spec:\n  \
         hosts: [{host}]\n  exportTo: [{to}]\n  \
         ports: [{{number: 80, name: http, protocol: HTTP}}]\n  \
         resolution: STATIC\n  endpoints: [{{address: 192.0.2.1}}]\n"
    )
}

/// The object that has a port, and what is spoken there.
fn port(engine: &Engine, number: u16) -> Option<(String, ListenerProtocol)> {
    let name = format!("port-{number}");
    let snapshot = engine.snapshot();
    let mut found = snapshot.iter().filter_map(|sealed| {
        let resource = sealed.resource()?;
        match &resource.value {
            Value::Listener(listener) if *sealed.name().as_str() == *name => {
                Some((resource.origin.id.to_string(), listener.protocol))
            }
            _ => None,
        }
    });
    found.next()
}

fn has(engine: &Engine, number: u16, id: &str, protocol: ListenerProtocol) {
    assert_eq!(
        port(engine, number),
        Some((id.to_owned(), protocol)),
        "{number}"
    );
}

/// The VirtualServices by which the connections of a port are led, the first one first.
fn led(engine: &Engine, number: u16) -> Vec<String> {
    let name = format!("port-{number}");
    let mut found = BTreeSet::new();
    for sealed in engine.snapshot().iter() {
        let Some(resource) = sealed.resource() else {
            continue;
        };
        if let Value::StreamRoute(it) = &resource.value
            && it
                .listeners
                .iter()
                .any(|listener| *listener.as_str() == *name)
        {
            found.insert((it.rank, resource.origin.id.to_string()));
        }
    }
    found.into_iter().map(|(_, id)| id).collect()
}

/// The objects that have routes for a host.
fn serving(engine: &Engine, host: &str) -> BTreeSet<String> {
    let snapshot = engine.snapshot();
    let routes = snapshot.iter().filter_map(|sealed| {
        let route = sealed.routes().next()?;
        let is_of = route.hosts.iter().any(|it| it.as_str() == host);
        is_of.then(|| sealed.resource().map(|it| it.origin.id.to_string()))?
    });
    routes.collect()
}

fn only(id: &str) -> BTreeSet<String> {
    BTreeSet::from([id.to_owned()])
}

/// The names of the upstreams that ServiceEntries make.
fn entries(engine: &Engine) -> Vec<String> {
    let all = engine.snapshot().iter();
    let upstreams = all.filter(|sealed| sealed.key().kind == Kind::Upstream);
    let names = upstreams.map(|sealed| sealed.name().as_str().to_owned());
    names.filter(|name| name.starts_with("entry/")).collect()
}

/// A tenant with ports of TCP and of HTTP, and another one whose Gateway is older.
fn two_tenants() -> [String; 4] {
    [
        gateway("shop/edge", 2024, &["80 HTTP a.test"]),
        gateway("blog/db", 2025, &["5432 TCP *"]),
        stream("blog/db", 2025, "db", &[5432]),
        gateway("blog/edge", 2025, &["5433 HTTP b.test"]),
    ]
}

#[test]
fn an_old_gateway_takes_no_port_by_an_edit() {
    let mut engine = engine();
    let objects = two_tenants();
    let texts = objects.each_ref().map(String::as_str);
    apply(&mut engine, &texts, 0);
    let servers = ["80 HTTP a.test", "5432 TCP *", "5433 TCP *"];
    let edited = gateway("shop/edge", 2024, &servers);
    let younger = stream("shop/db", 2026, "edge", &[5432, 5433]);
    apply(&mut engine, &[&edited, &younger], 1);
    let victims = |engine: &Engine| {
        has(engine, 5432, "blog/db", ListenerProtocol::Tcp);
        has(engine, 5433, "blog/edge", ListenerProtocol::Http);
        assert_eq!(led(engine, 5432), ["blog/db"]);
    };
    victims(&engine);
    assert_eq!(
        told(
            &engine,
            "Gateway shop/edge: spec.servers[2].port.number: is 5433"
        ),
        1
    );

    // Nor in an engine that starts later, where it is told; and who says nothing gives it away.
    let noted = engine.late_claims();
    let all = [&edited, &younger, &objects[1], &objects[2], &objects[3]];
    let all = all.map(String::as_str);
    let again = started(settings(), noted.clone(), &all);
    victims(&again);
    assert_eq!(again.late_claims(), noted);
    assert_eq!(again.snapshot().digest(), engine.snapshot().digest());
    let forgetful = started(settings(), ClaimsChange::default(), &all);
    has(&forgetful, 5433, "shop/edge", ListenerProtocol::Tcp);

    // It is a claim all the same, and now the older one.
    apply(&mut engine, &["remove Gateway blog/edge"], 2);
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
    assert_eq!(led(&engine, 5433), ["shop/db"]);
    apply(
        &mut engine,
        &[&gateway("blog/edge", 2025, &["5434 HTTP b.test"])],
        3,
    );
    apply(&mut engine, &[&objects[3]], 4);
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
}

#[test]
fn what_another_one_has_seen_of_a_port_holds_at_once() {
    let servers = ["80 HTTP a.test", "5433 TCP *"];
    let edited = gateway("shop/edge", 2024, &servers);
    let mut leading = engine();
    let objects = two_tenants();
    apply(&mut leading, &objects.each_ref().map(String::as_str), 0);
    apply(&mut leading, &[&edited], 1);
    // This one has seen the newer version alone.
    let mut engine = engine();
    apply(&mut engine, &[&edited, &objects[3]], 0);
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
    engine.learn(leading.late_claims());
    engine.apply(Vec::new(), world::NOW + 2);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
    engine.overrun("blog");
    engine.apply(Vec::new(), world::NOW + 3);
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
}

#[test]
fn a_gateway_that_was_for_others_has_a_port_since_it_is_for_these() {
    let own = gateway("shop/edge", 2024, &["5432 TCP *", "5433 TCP *"]);
    let others = own.replace("ingressgateway", "elsewhere");
    let mut engine = engine();
    apply(&mut engine, &[&others], 0);
    let [_, db, _, edge] = two_tenants();
    apply(&mut engine, &[&db, &edge], 1);
    apply(&mut engine, &[&own], 2);
    has(&engine, 5432, "blog/db", ListenerProtocol::Tcp);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
    // One that is for these as before keeps its ports, however its selector is written.
    let mut engine = self::engine();
    apply(&mut engine, &[&own, &db, &edge], 0);
    apply(
        &mut engine,
        &[&own.replace("{istio: ingressgateway}", "{}")],
        1,
    );
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
}

#[test]
fn a_server_none_of_whose_hosts_may_be_claimed_has_no_port() {
    let none = "shop -;blog b.test;unlisted nothing";
    let mut engine = engine_with(Settings {
        tenants: world::tenants(none),
        ..settings()
    });
    let old = gateway("shop/edge", 2024, &["5433 TCP not.mine.test"]);
    let young = gateway("blog/edge", 2025, &["5433 HTTP b.test"]);
    apply(&mut engine, &[&old, &young], 0);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
    // It is older than the other, if the operator lets it in.
    engine.set_tenants(world::tenants("shop not.mine.test;blog b.test"));
    engine.apply(Vec::new(), world::NOW + 1);
    has(&engine, 5433, "shop/edge", ListenerProtocol::Tcp);
    engine.set_tenants(world::tenants(none));
    engine.apply(Vec::new(), world::NOW + 2);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
}

#[test]
fn a_namespace_has_no_more_ports_than_its_bound_says() {
    let mut engine = engine_with(Settings {
        bounds: Bounds {
            ports: 3,
            ..Bounds::default()
        },
        ..settings()
    });
    let some = gateway(
        "shop/some",
        2024,
        &["80 HTTP a.test", "5432 TCP *", "443 TLS a.test"],
    );
    let many = ["5433 TCP *", "5434 TCP *", "5435 TCP *"];
    let many = gateway("shop/many", 2025, &many);
    apply(&mut engine, &[&some, &many], 0);
    assert!(port(&engine, 5432).is_some() && port(&engine, 5433).is_none());
    let beyond = "Gateway shop/many: would bring namespace shop beyond 3 ports of Gateways";
    assert_eq!(told(&engine, beyond), 1);
    assert_eq!(told(&engine, "raise --bound ports=3"), 1);
    apply(&mut engine, &["remove Gateway shop/some"], 1);
    assert!(port(&engine, 5432).is_none() && port(&engine, 5435).is_some());
    assert_eq!(told(&engine, beyond), 0);
}

#[test]
fn an_old_virtual_service_takes_no_plain_connections_by_an_edit() {
    let shared = gateway("istio-system/shared", 2023, &["5432 TCP *"]);
    let own = gateway("shop/edge", 2024, &["5433 TCP *", "80 HTTP a.test"]);
    let theirs = stream("blog/db", 2025, "istio-system/shared", &[5432]);
    let before = [
        // It was for another host, at another Gateway.
        service("shop/db", 2024, "a.test", "web"),
        // It was for all hosts at another Gateway, and led what came to its port.
        stream("shop/db", 2024, "edge", &[5433]),
        // It named the Gateway, and another port.
        stream(
            "shop/db",
            2024,
            "\"edge\", \"istio-system/shared\"",
            &[5433],
        ),
    ];
    let after = stream(
        "shop/db",
        2024,
        "\"edge\", \"istio-system/shared\"",
        &[5433, 5432],
    );
    for before in before {
        let mut engine = engine();
        apply(&mut engine, &[&shared, &own, &theirs, &before], 0);
        assert_eq!(led(&engine, 5432), ["blog/db"], "{before}");
        apply(&mut engine, &[&after], 1);
        assert_eq!(led(&engine, 5432), ["blog/db"], "{before}");
        assert_eq!(led(&engine, 5433), ["shop/db"], "{before}");
        let again = started(
            settings(),
            engine.late_claims(),
            &[&shared, &own, &theirs, &after],
        );
        assert_eq!(led(&again, 5432), ["blog/db"], "{before}");
        assert_eq!(again.snapshot().digest(), engine.snapshot().digest());
        apply(&mut engine, &["remove VirtualService blog/db"], 2);
        assert_eq!(led(&engine, 5432), ["shop/db"], "{before}");
    }
    // A rule for every port was there for this one too.
    let mut engine = engine();
    let all = after.replace("match: [{port: 5432}], ", "");
    apply(&mut engine, &[&shared, &own, &theirs, &all], 0);
    assert_eq!(led(&engine, 5432), ["shop/db"]);
    apply(&mut engine, &[&after], 1);
    assert_eq!(led(&engine, 5432), ["shop/db"]);
}

#[test]
fn a_claim_that_slept_beyond_a_bound_wakes_as_the_youngest() {
    let quota = "shop hosts=3";
    let engine = |quota: &str| {
        engine_with(Settings {
            tenants: world::tenants(quota),
            ..settings()
        })
    };
    let filler = ingress("shop/filler", 2023, &["f1.test", "f2.test", "f3.test"]);
    let sleeper = ingress("shop/sleeper", 2024, &["live.test", "free.test"]);
    let theirs = ingress("blog/web", 2026, &["live.test"]);
    let asleep = || {
        let mut engine = engine(quota);
        apply(&mut engine, &[&filler, &sleeper], 0);
        assert_eq!(serving(&engine, "live.test"), BTreeSet::new());
        apply(&mut engine, &[&theirs], 1);
        assert_eq!(serving(&engine, "live.test"), only("blog/web"));
        engine
    };
    let check = |engine: &Engine| {
        assert_eq!(serving(engine, "live.test"), only("blog/web"));
        assert_eq!(serving(engine, "free.test"), only("shop/sleeper"));
        let lost = "Ingress shop/sleeper: spec.rules[0].host: is without effect";
        assert_eq!(told(engine, lost), 1);
        assert_eq!(engine.usage().late_claims, 1, "of what nobody else has");
    };
    // Another one goes, is smaller, or more is admitted.
    let mut one = asleep();
    apply(&mut one, &["remove Ingress shop/filler"], 2);
    check(&one);
    let again = started(
        Settings {
            tenants: world::tenants(quota),
            ..settings()
        },
        one.late_claims(),
        &[&sleeper, &theirs],
    );
    check(&again);
    let mut one = asleep();
    apply(&mut one, &[&ingress("shop/filler", 2023, &["f1.test"])], 2);
    check(&one);
    let mut one = asleep();
    one.set_tenants(world::tenants("shop hosts=9"));
    one.apply(Vec::new(), world::NOW + 2);
    check(&one);
    // What it never had to leave is as old as it is.
    let mut one = engine("shop hosts=2");
    apply(&mut one, &[&sleeper, &theirs], 0);
    assert_eq!(serving(&one, "live.test"), only("shop/sleeper"));
    apply(&mut one, &[&ingress("shop/young", 2025, &["f1.test"])], 1);
    apply(&mut one, &["remove Ingress shop/young"], 2);
    assert_eq!(serving(&one, "live.test"), only("shop/sleeper"));
    assert_eq!(one.usage().late_claims, 0);
}

#[test]
fn what_goes_beyond_and_comes_back_in_one_batch_is_as_old_as_before() {
    let mut engine = engine_with(Settings {
        tenants: world::tenants("shop hosts=2"),
        ..settings()
    });
    let own = ingress("shop/web", 2024, &["live.test"]);
    let theirs = ingress("blog/web", 2026, &["live.test"]);
    let older = ingress("shop/older", 2022, &["f1.test"]);
    apply(&mut engine, &[&own, &theirs, &older], 0);
    assert_eq!(serving(&engine, "live.test"), only("shop/web"));
    let oldest = ingress("shop/oldest", 2021, &["f2.test"]);
    apply(&mut engine, &[&oldest, "remove Ingress shop/older"], 1);
    assert_eq!(serving(&engine, "live.test"), only("shop/web"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn a_gateway_that_slept_beyond_a_bound_takes_no_port() {
    let mut engine = engine_with(Settings {
        tenants: world::tenants("shop ports=1"),
        ..settings()
    });
    let filler = gateway("shop/filler", 2023, &["5430 TCP *"]);
    let sleeper = gateway("shop/sleeper", 2024, &["5433 TCP *"]);
    let theirs = gateway("blog/edge", 2026, &["5433 HTTP b.test"]);
    apply(&mut engine, &[&filler, &sleeper, &theirs], 0);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
    apply(&mut engine, &["remove Gateway shop/filler"], 1);
    has(&engine, 5433, "blog/edge", ListenerProtocol::Http);
}

#[test]
fn an_old_service_entry_takes_no_name_by_an_edit() {
    let all = "\"*\"";
    let before = [
        entry("blog/e", 2024, "mine.test", all),
        entry("blog/e", 2024, "api.partner.test", "\".\""),
    ];
    let after = entry("blog/e", 2024, "api.partner.test", all);
    let platform = entry("platform/e", 2025, "api.partner.test", all);
    let served = [
        gateway("shop/edge", 2025, &["80 HTTP a.test"]),
        service("shop/web", 2025, "a.test", "api.partner.test"),
    ];
    let lost = "ServiceEntry blog/e: spec.hosts[0]: has no effect on requests of other \
                namespaces to api.partner.test, which belongs to namespace platform by";
    let platforms = ["entry/platform/api.partner.test:80"];
    for before in before {
        let mut engine = engine();
        apply(
            &mut engine,
            &[&served[0], &served[1], &before, &platform],
            0,
        );
        assert_eq!(entries(&engine), platforms, "{before}");
        apply(&mut engine, &[&after], 1);
        assert_eq!(entries(&engine), platforms, "{before}");
        assert_eq!(told(&engine, lost), 1);
        let objects = [&served[0], &served[1], &platform, &after].map(String::as_str);
        let again = started(settings(), engine.late_claims(), &objects);
        assert_eq!(entries(&again), platforms, "{before}");
        assert_eq!(told(&again, lost), 1);
        // Whoever has seen the newer version alone is told.
        let mut forgetful = started(settings(), ClaimsChange::default(), &objects);
        assert_eq!(entries(&forgetful), ["entry/blog/api.partner.test:80"]);
        assert_eq!(
            told(
                &forgetful,
                "ServiceEntry platform/e: spec.hosts[0]: has no effect"
            ),
            1
        );
        forgetful.learn(engine.late_claims());
        forgetful.apply(Vec::new(), world::NOW + 70);
        assert_eq!(entries(&forgetful), platforms, "{before}");
        assert_eq!(
            (
                told(&forgetful, lost),
                told(&forgetful, "ServiceEntry platform/e: spec")
            ),
            (1, 0)
        );
        apply(&mut engine, &["remove ServiceEntry platform/e"], 2);
        assert_eq!(entries(&engine), ["entry/blog/api.partner.test:80"]);
        assert_eq!(told(&engine, lost), 0);
    }
    // One that fewer see is no newer.
    let mut engine = engine();
    apply(&mut engine, &[&served[0], &served[1], &after, &platform], 0);
    let fewer = entry("blog/e", 2024, "api.partner.test", "shop");
    apply(&mut engine, &[&fewer], 1);
    assert_eq!(entries(&engine), ["entry/blog/api.partner.test:80"]);
}

#[test]
fn a_claim_that_comes_and_goes_is_none_of_old_to_who_starts_meanwhile() {
    let mut engine = engine();
    let home = ingress("shop/web", 2024, &["a.test"]);
    let both = ingress("shop/web", 2024, &["a.test", "live.test"]);
    let theirs = ingress("blog/web", 2026, &["live.test"]);
    apply(&mut engine, &[&home, &theirs], 0);
    for later in [1, 2, 3] {
        apply(&mut engine, &[&both], 2 * later);
        apply(&mut engine, &[&home], 2 * later + 1);
    }
    let noted = engine.late_claims();
    assert_eq!(engine.usage().late_claims, 0, "it claims nothing late now");
    // Whoever lists it in the moment in which it is there.
    let other = started(settings(), noted.clone(), &[&both, &theirs]);
    assert_eq!(serving(&other, "live.test"), only("blog/web"));
    assert_eq!(other.usage().late_claims, 1);
    let forgetful = started(settings(), ClaimsChange::default(), &[&both, &theirs]);
    assert_eq!(serving(&forgetful, "live.test"), only("shop/web"));
    // Whoever reads what is noted once more between the list and its end.
    let mut late = world::engine(settings());
    late.load(world::changes(&[BASE, &both, &theirs].join("\n---\n")));
    late.learn(noted.clone());
    late.apply(Vec::new(), world::NOW + 60);
    assert_eq!(serving(&late, "live.test"), only("blog/web"));
    // Whoever lists it in the moment in which it is not.
    let other = started(settings(), noted.clone(), &[&home, &theirs]);
    assert_eq!(other.late_claims(), noted);
    // It is forgotten after a while.
    engine.apply(Vec::new(), world::NOW + 700);
    assert_eq!(engine.late_claims(), ClaimsChange::default());
}

#[test]
fn what_was_left_here_is_not_made_older_by_who_has_not_seen_it() {
    let mut engine = engine();
    let home = ingress("shop/web", 2024, &["a.test"]);
    let both = ingress("shop/web", 2024, &["a.test", "live.test"]);
    apply(&mut engine, &[&home], 0);
    apply(&mut engine, &[&both], 1);
    let noted = engine.late_claims();
    apply(&mut engine, &[&home], 2);
    // Somebody comes to the host meanwhile, and after that the text of a minute ago.
    let theirs = ingress("blog/web", 2026, &["live.test"]);
    let theirs = theirs.replace("2026-01-01T00:00:00Z", "2027-01-15T08:00:04Z");
    apply(&mut engine, &[&theirs], 5);
    engine.learn(noted);
    apply(&mut engine, &[&both], 6);
    assert_eq!(serving(&engine, "live.test"), only("blog/web"));
}
