//! Since when objects claim hosts: who had one first keeps it from an older object that is edited
//! to claim it.

use std::collections::BTreeSet;

use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_model::Host;
use myriad_translate::{Bounds, ClaimsChange, Engine, LateClaims, Settings, Work};

use crate::goldens::BASE;
use crate::world;

fn engine() -> Engine {
    engine_with(Settings::default())
}

/// An engine that has seen its first list.
fn engine_with(settings: Settings) -> Engine {
    let mut engine = world::engine(Settings {
        late_claims: true,
        ..settings
    });
    engine.apply(world::changes(BASE), world::NOW);
    engine
}

/// An Ingress that is as old as the year says.
fn ingress(namespace: &str, year: u32, hosts: &[&str]) -> String {
    let rules = hosts.iter().map(|host| {
        format!(
            "  - host: \"{host}\"\n    http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}\n"
        )
    });
    let rules: String = rules.collect();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  rules:\n{rules}"
    )
}

fn gateway(namespace: &str, year: u32, hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\n\
         metadata: {{namespace: {namespace}, name: edge, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  \
         selector: {{istio: ingressgateway}}\n  servers:\n  \
         - {{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [{hosts}]}}\n"
    )
}

fn service(namespace: &str, year: u32, hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  \
         hosts: [{hosts}]\n  gateways: [edge]\n  \
         http: [{{route: [{{destination: {{host: web, port: {{number: 80}}}}}}]}}]\n"
    )
}

fn apply(engine: &mut Engine, text: &str, later: i64) {
    engine.apply(world::changes(text), world::NOW + later);
}

/// The namespaces whose objects have routes for a host.
fn served_by(engine: &Engine, host: &str) -> BTreeSet<String> {
    let host = Host::parse(host).expect("a host");
    let routes = engine.snapshot().iter().filter_map(|sealed| {
        let route = sealed.routes().next()?;
        let origin = sealed.resource()?.origin.id.clone();
        route.hosts.contains(&host).then_some(origin)
    });
    routes
        .map(|id| id.split('/').next().unwrap_or_default().to_owned())
        .collect()
}

fn only(namespace: &str) -> BTreeSet<String> {
    BTreeSet::from([namespace.to_owned()])
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

#[test]
fn an_old_ingress_takes_no_host_by_an_edit() {
    let mut engine = engine();
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
    let edited = ingress("shop", 2024, &["a.test", "b.test"]);
    apply(&mut engine, &edited, 2);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    assert_eq!(
        told(&engine, "Ingress shop/web: spec.rules[1].host: is without"),
        1
    );

    // Another edit makes it no older, and it takes what is left.
    apply(&mut engine, &edited.replace("path: /,", "path: /x,"), 3);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    apply(&mut engine, "remove Ingress blog/web", 4);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    // Who comes behind it now is younger.
    let late = ingress("blog", 2026, &["c.test", "b.test"]);
    apply(&mut engine, &ingress("blog", 2026, &["c.test"]), 5);
    apply(&mut engine, &late, 6);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
}

#[test]
fn without_the_setting_the_older_object_has_the_host() {
    let mut engine = world::engine(Settings::default());
    apply(&mut engine, BASE, 0);
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
    apply(&mut engine, &ingress("shop", 2024, &["b.test"]), 2);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    assert_eq!(engine.late_claims(), ClaimsChange::default());
}

#[test]
fn who_leaves_a_host_and_comes_back_is_younger() {
    let mut engine = engine();
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["a.test"]), 1);
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    apply(&mut engine, &ingress("shop", 2024, &["b.test"]), 2);
    assert_eq!(served_by(&engine, "a.test"), only("blog"));
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 3);
    assert_eq!(served_by(&engine, "a.test"), only("blog"));
    let noted = engine.late_claims().objects;
    let [LateClaims { claims, left, .. }] = &noted[..] else {
        panic!("{noted:?}");
    };
    assert_eq!((claims.len(), left.len()), (1, 1), "{noted:?}");

    // One that is made anew is as old as that.
    apply(&mut engine, "remove Ingress shop/web", 4);
    apply(&mut engine, &ingress("shop", 2025, &["a.test"]), 5);
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn one_made_anew_between_two_looks_is_as_old_as_its_creation() {
    let mut engine = engine();
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 0);
    apply(&mut engine, &ingress("shop", 2025, &["b.test"]), 1);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn a_class_that_was_not_served_and_a_canary_make_no_old_claim() {
    let classed = |class: &str| {
        let text = ingress("shop", 2024, &["a.test"]);
        text.replace("spec:\n", &format!("spec:\n  ingressClassName: {class}\n"))
    };
    let noted = |name: &str| {
        let text = ingress("shop", 2024, &["a.test"]);
        let annotation = format!("name: web, annotations: {{{name}: \"true\"}}");
        text.replace("name: web, cr", &format!("{annotation}, cr"))
    };
    let canary = noted("nginx.ingress.kubernetes.io/canary");
    assert_ne!(canary, ingress("shop", 2024, &["a.test"]));
    for (before, after) in [
        (classed("else"), classed("myriad")),
        (canary, ingress("shop", 2024, &["a.test"])),
    ] {
        let mut engine = engine();
        apply(&mut engine, &before, 0);
        apply(&mut engine, &ingress("blog", 2026, &["a.test"]), 1);
        assert_eq!(served_by(&engine, "a.test"), only("blog"), "{before}");
        apply(&mut engine, &after, 2);
        assert_eq!(served_by(&engine, "a.test"), only("blog"), "{after}");
    }
    // A claim that has its effect stays as old as it is in whatever form the class is written.
    let mut engine = engine();
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["a.test"]), 1);
    apply(&mut engine, &classed("myriad"), 2);
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn an_old_gateway_and_an_old_virtual_service_take_no_host_by_an_edit() {
    let mut engine = engine();
    let old = [
        gateway("shop", 2024, "a.test"),
        service("shop", 2024, "a.test"),
    ];
    apply(&mut engine, &old.join("---\n"), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    apply(&mut engine, &gateway("shop", 2024, "a.test, b.test"), 2);
    apply(&mut engine, &service("shop", 2024, "a.test, b.test"), 3);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
}

#[test]
fn a_gateway_that_is_made_later_wakes_no_old_virtual_service() {
    let mut engine = engine();
    apply(&mut engine, &service("shop", 2024, "b.test"), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
    apply(&mut engine, &gateway("shop", 2027, "b.test"), 2);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    // By a Gateway that does not name it, it has come to the host since then.
    apply(&mut engine, "remove Gateway shop/edge", 3);
    apply(&mut engine, &gateway("shop", 2025, "'*.test'"), 4);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    // One that names it claims it itself.
    apply(&mut engine, "remove Gateway shop/edge", 5);
    apply(&mut engine, &gateway("shop", 2025, "b.test"), 6);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
}

#[test]
fn what_could_not_be_read_before_takes_no_host_by_an_edit() {
    for could_be in [true, false] {
        let mut engine = engine();
        if !could_be {
            apply(&mut engine, "remove Ingress shop/web", 0);
        }
        apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
        apply(
            &mut engine,
            &ingress("shop", 2024, &["b.test", "c.test"]),
            2,
        );
        let owner = if could_be { "shop" } else { "blog" };
        assert_eq!(served_by(&engine, "b.test"), only(owner));
        assert_eq!(served_by(&engine, "c.test"), only("shop"));
        // What others did not have it has since its creation.
        apply(&mut engine, &ingress("docs", 2025, &["c.test"]), 3);
        assert_eq!(served_by(&engine, "c.test"), only("shop"));
    }
}

#[test]
fn what_was_for_another_gateway_has_a_host_since_it_is_for_this_one() {
    let side = |text: &str| text.replace("ingressgateway", "side");
    let old = [
        gateway("shop", 2024, "b.test"),
        service("shop", 2024, "b.test"),
    ];
    let with_both = || {
        let views = vec![world::view("side two istio=side")];
        let mut engine = engine_with(Settings {
            views,
            ..Settings::default()
        });
        apply(&mut engine, &side(&old.join("---\n")), 0);
        apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
        assert_eq!(served_by(&engine, "b.test"), only("blog"));
        engine
    };
    let mut engine = with_both();
    apply(&mut engine, &old[0], 2);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    // A VirtualService at a Gateway of this one that lets it in.
    let mut engine = with_both();
    let here = gateway("shop", 2024, "'*.test'").replace("name: edge", "name: here");
    apply(&mut engine, &here, 2);
    apply(&mut engine, &old[1].replace("[edge]", "[here]"), 3);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    // One that is for this one as before has the host as before.
    let mut engine = self::engine();
    apply(&mut engine, &old.join("---\n"), 0);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 1);
    let all = old[0].replace("{istio: ingressgateway}", "{}");
    apply(&mut engine, &all, 2);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
}

#[test]
fn who_comes_to_a_further_gateway_loses_nothing_where_it_was() {
    let mut engine = engine_with(Settings {
        views: vec![world::view("side two istio=side")],
        ..Settings::default()
    });
    let of = |namespace, year| {
        let db = "  - {port: {number: 5432, name: db, protocol: TCP}, hosts: ['*']}\n";
        let gateway = gateway(namespace, year, "b.test") + db;
        (gateway, service(namespace, year, "b.test"))
    };
    for (namespace, year) in [("shop", 2024), ("blog", 2026)] {
        let (gateway, service) = of(namespace, year);
        apply(&mut engine, &[gateway, service].join("---\n"), 0);
    }
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    let (gateway, _) = of("shop", 2024);
    let all = gateway.replace("{istio: ingressgateway}", "{}");
    apply(&mut engine, &all, 1);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn an_old_virtual_service_takes_no_host_by_an_edit_of_its_gateway() {
    let closed = gateway("shop", 2024, "'elsewhere/*.test'");
    let opened = gateway("shop", 2024, "'./*.test'");
    let old = service("shop", 2024, "b.test");
    let mut engine = engine();
    for text in [&closed, &old, &ingress("blog", 2026, &["b.test"])] {
        apply(&mut engine, text, 0);
    }
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    for text in [&opened, &closed, &opened] {
        apply(&mut engine, text, 1);
        assert_eq!(served_by(&engine, "b.test"), only("blog"));
    }
    // What the owner leaves it may have, and has again where it is kept out for a moment.
    apply(&mut engine, "remove Ingress blog/web", 2);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    apply(&mut engine, &ingress("blog", 2040, &["b.test"]), 3);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
    apply(&mut engine, &closed, 4);
    assert_eq!(served_by(&engine, "b.test"), only("blog"));
    apply(&mut engine, &opened, 5);
    assert_eq!(served_by(&engine, "b.test"), only("shop"));
}

#[test]
fn a_wildcard_that_came_later_keeps_no_https_from_an_older_host() {
    let tls = "  tls: [{hosts: [\"*.example.org\"], secretName: tls}]\n  rules:\n";
    let wildcard = ingress("shop", 2024, &["*.example.org"]).replace("  rules:\n", tls);
    let by = |is_late: bool| {
        let mut engine = engine();
        if is_late {
            apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
        } else {
            apply(&mut engine, &wildcard, 0);
        }
        apply(&mut engine, &ingress("blog", 2026, &["x.example.org"]), 1);
        apply(&mut engine, &wildcard, 2);
        told(&engine, "is served over plain HTTP only")
    };
    assert_eq!((by(true), by(false)), (0, 1));
}

#[test]
fn what_was_noted_holds_after_a_restart_and_for_that_creation_alone() {
    let mut engine = engine();
    let objects = [
        ingress("shop", 2024, &["a.test", "b.test"]),
        ingress("blog", 2026, &["b.test"]),
    ];
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &objects[1], 1);
    apply(&mut engine, &objects[0], 2);
    let noted = engine.late_claims();
    assert_eq!(noted.objects.len(), 1);

    let restarted = |noted: ClaimsChange, objects: &str| {
        let mut engine = world::engine(Settings {
            late_claims: true,
            ..Settings::default()
        });
        engine.learn(noted);
        apply(&mut engine, &[BASE, objects].join("\n---\n"), 9);
        engine
    };
    let both = objects.join("---\n");
    let again = restarted(noted.clone(), &both);
    assert_eq!(served_by(&again, "b.test"), only("blog"));
    assert_eq!(again.late_claims(), noted);
    assert_eq!(again.snapshot().digest(), engine.snapshot().digest());
    let forgetful = restarted(ClaimsChange::default(), &both);
    assert_eq!(served_by(&forgetful, "b.test"), only("shop"));
    let anew = restarted(noted, &both.replace("2024-", "2025-"));
    assert_eq!(served_by(&anew, "b.test"), only("shop"));
    assert_eq!(anew.usage().late_claims, 0);
}

#[test]
fn what_another_one_has_seen_holds_before_what_is_seen_here() {
    let shop = ingress("shop", 2024, &["a.test"]);
    let both = ingress("shop", 2024, &["a.test", "b.test"]);
    let mut leading = engine();
    apply(&mut leading, &shop, 0);
    apply(&mut leading, &both, 2);
    let noted = leading.late_claims();

    // This one saw another edit first, so that it had the host for somebody else.
    let blog = ingress("blog", 2023, &["c.test"]);
    let blog_late = ingress("blog", 2023, &["c.test", "b.test"]);
    for is_before in [true, false] {
        let mut engine = engine();
        apply(&mut engine, &[shop.clone(), blog.clone()].join("---\n"), 0);
        apply(&mut engine, &blog_late, 3);
        if is_before {
            engine.learn(noted.clone());
        }
        apply(&mut engine, &both, 4);
        if !is_before {
            assert_eq!(served_by(&engine, "b.test"), only("blog"));
            engine.learn(noted.clone());
            engine.apply(Vec::new(), world::NOW + 5);
        }
        assert_eq!(served_by(&engine, "b.test"), only("shop"), "{is_before}");
        // It does not forget what it has seen itself.
        assert_eq!(engine.usage().late_claims, 2);
    }
}

#[test]
fn a_namespace_beyond_the_bound_claims_after_everybody_else() {
    let mut engine = engine_with(Settings {
        bounds: Bounds {
            late_claims: 2,
            ..Bounds::default()
        },
        ..Settings::default()
    });
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    apply(&mut engine, &ingress("blog", 2026, &["a.test"]), 1);
    apply(
        &mut engine,
        &ingress("shop", 2024, &["a.test", "b.test", "c.test"]),
        2,
    );
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    let hosts = ["a.test", "b.test", "c.test", "d.test"];
    apply(&mut engine, &ingress("shop", 2024, &hosts), 3);
    assert_eq!(served_by(&engine, "a.test"), only("blog"));
    assert_eq!(
        served_by(&engine, "b.test"),
        only("shop"),
        "nobody else has it"
    );
    assert_eq!(told(&engine, "raise --bound late-claims=2"), 1);
    let noted = engine.late_claims();
    assert!(noted.objects.is_empty(), "{noted:?}");
    assert_eq!(noted.beyond.len(), 1);
    assert_eq!(engine.usage().late_claims, 0);
}

#[test]
fn what_is_told_of_claims_adds_up() {
    let mut engine = engine();
    apply(&mut engine, &ingress("shop", 2024, &["a.test"]), 0);
    let text = ingress("shop", 2024, &["a.test", "b.test"]);
    let told = engine.apply(world::changes(&text), world::NOW + 1).claims;
    assert_eq!(told, engine.late_claims());
    let again = engine.apply(world::changes(&text), world::NOW + 2).claims;
    assert!(again.is_empty());
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "web");
    let gone = engine.apply(vec![Change::Remove(key.clone())], world::NOW + 3);
    let [told] = &gone.claims.objects[..] else {
        panic!("{:?}", gone.claims);
    };
    assert_eq!((&told.key, told.is_empty()), (&key, true));
}

/// The work of one late claim among so many hosts that came late.
fn work_at(count: usize) -> Work {
    let mut engine = engine();
    for number in 0..count {
        let name = format!("name: web{number}");
        let host = format!("h{number}.test");
        let before =
            ingress("shop", 2024, &["a.test"]).replace("name: web,", &(name.clone() + ","));
        apply(&mut engine, &before, 0);
        let after = ingress("shop", 2024, &["a.test", &host]);
        apply(&mut engine, &after.replace("name: web,", &(name + ",")), 1);
    }
    assert_eq!(engine.usage().late_claims, count);
    apply(&mut engine, &ingress("blog", 2026, &["b.test"]), 2);
    apply(&mut engine, &ingress("docs", 2024, &["c.test"]), 3);
    let text = ingress("docs", 2024, &["c.test", "b.test"]);
    engine.apply(world::changes(&text), world::NOW + 4).work
}

#[test]
fn a_late_claim_costs_its_own_hosts() {
    assert_eq!(work_at(2), work_at(40));
}

/// So many objects like one, each of its own name.
fn copies(object: &str, count: usize) -> String {
    let copy = |number: usize| {
        let name = format!("name: web{number}, creationTimestamp");
        object.replace("name: web, creationTimestamp", &name)
    };
    let copies: Vec<String> = (0..count).map(copy).collect();
    copies.join("---\n")
}

/// The work of a change of the owner of `a.example`, where so many Ingresses like one claim it too.
fn work_beside(loser: &str, count: usize) -> Work {
    let mut engine = engine();
    let owner = ingress("shop", 2020, &["a.example"]);
    apply(&mut engine, &owner, 0);
    apply(&mut engine, &copies(loser, count), 1);
    let edited = owner.replace("path: /,", "path: /b,");
    let outcome = engine.apply(world::changes(&edited), world::NOW + 2);
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
    assert_eq!(served_by(&engine, "a.example"), only("shop"));
    assert_eq!(told(&engine, "is without effect: host"), count.min(16));
    assert_eq!(told(&engine, "34 more objects"), usize::from(count == 50));
    outcome.work
}

#[test]
fn ingresses_that_claim_a_host_in_vain_cost_its_owner_nothing() {
    let younger = ingress("blog", 2021, &["a.example"]);
    let canary = "Z, annotations: {nginx.ingress.kubernetes.io/canary: 'true'}}";
    let older_canary = ingress("blog", 2019, &["a.example"]).replacen("Z}", canary, 1);
    for loser in [younger, older_canary] {
        let alone = work_beside(&loser, 0);
        assert!(alone.objects_visited > 0);
        for count in [1, 50] {
            assert_eq!(work_beside(&loser, count), alone, "{count} beside it");
        }
    }
}

#[test]
fn virtual_services_that_claim_a_host_in_vain_cost_its_owner_nothing() {
    let work_beside = |count: usize| {
        let mut engine = engine();
        let owner = service("shop", 2020, "a.example");
        let objects = [
            gateway("shop", 2020, "a.example"),
            gateway("blog", 2021, "\"*.example\""),
            owner.clone(),
        ];
        apply(&mut engine, &objects.join("---\n"), 0);
        let loser = service("blog", 2022, "a.example");
        apply(&mut engine, &copies(&loser, count), 1);
        let edited = owner.replace("[{route", "[{match: [{uri: {prefix: /b}}], route");
        let outcome = engine.apply(world::changes(&edited), world::NOW + 2);
        assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
        assert_eq!(served_by(&engine, "a.example"), only("shop"));
        let of_each = told(&engine, "is without effect on a.example");
        assert_eq!(of_each, count.min(16));
        assert_eq!(told(&engine, "34 more objects"), usize::from(count == 50));
        outcome.work
    };
    assert_eq!(work_beside(1), work_beside(50));
}
