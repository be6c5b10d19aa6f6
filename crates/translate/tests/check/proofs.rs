//! Hosts that several namespaces claim: which of them has one by a proof, and which are told of.

use std::collections::BTreeSet;

use myriad_model::Host;
use myriad_translate::{Engine, Outcome, Rival, Settings};

use crate::goldens::BASE;
use crate::world;

fn engine(is_proven: bool) -> Engine {
    let mut engine = world::engine(Settings {
        host_proof: is_proven.then(|| "edge.example".into()),
        late_claims: true,
        ..Settings::default()
    });
    apply(&mut engine, BASE);
    engine
}

fn apply(engine: &mut Engine, text: &str) -> Outcome {
    engine.apply(world::changes(text), world::NOW)
}

/// An Ingress that is as old as the year says.
fn ingress(namespace: &str, year: u32, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  rules:\n  \
         - host: \"{host}\"\n    http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}\n"
    )
}

/// A VirtualService that enters by the operator's Gateway.
fn service(namespace: &str, year: u32, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z}}\nspec:\n  \
         hosts: [\"{host}\"]\n  gateways: [istio-system/edge]\n  \
         http: [{{route: [{{destination: {{host: web, port: {{number: 80}}}}}}]}}]\n"
    )
}

/// The operator's Gateway for some hosts, which lets everybody in.
fn gateway(hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\n\
         metadata: {{namespace: istio-system, name: edge, \
         creationTimestamp: 2019-01-01T00:00:00Z}}\nspec:\n  \
         selector: {{istio: ingressgateway}}\n  servers:\n  \
         - {{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [\"{hosts}\"]}}\n"
    )
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

fn rivals(engine: &Engine) -> Vec<String> {
    let shown = engine.rivals().map(|rival| {
        let Rival {
            host,
            namespace,
            holds,
        } = rival;
        format!("{host} {namespace} {holds}")
    });
    shown.collect()
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

#[test]
fn an_ingress_that_is_made_anew_loses_its_host_unless_its_namespace_has_proven_it() {
    for is_proven in [false, true] {
        let mut engine = engine(is_proven);
        apply(&mut engine, &ingress("shop", 2024, "a.test"));
        apply(&mut engine, &ingress("blog", 2025, "a.test"));
        assert_eq!(served_by(&engine, "a.test"), only("shop"));
        apply(&mut engine, "proven a.test shop\n");
        apply(&mut engine, "remove Ingress shop/web\n");
        let meanwhile = match is_proven {
            true => BTreeSet::new(),
            false => only("blog"),
        };
        assert_eq!(served_by(&engine, "a.test"), meanwhile);
        apply(&mut engine, &ingress("shop", 2026, "a.test"));
        let now = if is_proven { "shop" } else { "blog" };
        assert_eq!(served_by(&engine, "a.test"), only(now));
    }
}

#[test]
fn whoever_proves_a_host_takes_it_and_gives_it_back_with_the_proof() {
    let mut engine = engine(true);
    apply(&mut engine, &ingress("shop", 2024, "a.test"));
    apply(&mut engine, &ingress("blog", 2025, "a.test"));
    let record = "set the TXT record _myriad-host.a.test to \
                  \"installation=edge.example;namespace=blog\"";
    assert_eq!(told(&engine, record), 1);
    let outcome = apply(&mut engine, "proven a.test blog\n");
    assert_eq!(served_by(&engine, "a.test"), only("blog"));
    assert_eq!(rivals(&engine), ["a.test blog true", "a.test shop false"]);
    assert_eq!(outcome.rivals.added.len(), 2, "both have changed");
    assert_eq!(outcome.rivals.removed.len(), 2);
    assert_eq!(told(&engine, record), 0);
    assert_eq!(told(&engine, "installation=edge.example;namespace=shop"), 1);
    apply(&mut engine, "remove HostProof a.test\n");
    assert_eq!(served_by(&engine, "a.test"), only("shop"));
    // Of a host that one namespace alone claims nobody is asked.
    apply(&mut engine, "remove Ingress blog/web\n");
    assert!(rivals(&engine).is_empty());
}

#[test]
fn a_host_that_is_kept_for_who_does_not_claim_it_is_told_of_who_does() {
    let mut engine = engine(true);
    apply(&mut engine, "proven a.test shop\n");
    apply(&mut engine, &ingress("blog", 2025, "a.test"));
    assert!(served_by(&engine, "a.test").is_empty());
    assert_eq!(rivals(&engine), ["a.test blog false"]);
    assert_eq!(told(&engine, "belongs to namespace shop by its proof"), 1);
}

#[test]
fn a_proof_is_nothing_for_a_namespace_that_may_not_have_the_host() {
    let mut engine = world::engine(Settings {
        host_proof: Some("edge.example".into()),
        tenants: world::tenants("shop b.test"),
        ..Settings::default()
    });
    apply(&mut engine, BASE);
    apply(&mut engine, "proven a.test shop\n");
    apply(&mut engine, &ingress("shop", 2024, "a.test"));
    apply(&mut engine, &ingress("blog", 2025, "a.test"));
    assert_eq!(served_by(&engine, "a.test"), only("blog"));
}

#[test]
fn of_two_virtual_services_that_enter_by_one_gateway_the_proven_one_has_the_host() {
    for hosts in ["*/a.test", "*/*.test"] {
        let mut engine = engine(true);
        apply(&mut engine, &gateway(hosts));
        apply(&mut engine, &service("shop", 2024, "a.test"));
        assert!(rivals(&engine).is_empty(), "{:?}", rivals(&engine));
        apply(&mut engine, &service("blog", 2025, "a.test"));
        assert_eq!(served_by(&engine, "a.test"), only("shop"), "{hosts}");
        assert_eq!(rivals(&engine), ["a.test blog false", "a.test shop true"]);
        apply(&mut engine, "proven a.test blog\n");
        assert_eq!(served_by(&engine, "a.test"), only("blog"), "{hosts}");
        assert_eq!(rivals(&engine), ["a.test blog true", "a.test shop false"]);
    }
}

#[test]
fn both_spellings_of_a_wildcard_are_had_by_who_has_proven_it() {
    let mut engine = engine(true);
    apply(&mut engine, &gateway("*/*.test"));
    apply(&mut engine, &service("shop", 2024, "*.test"));
    apply(&mut engine, &ingress("blog", 2025, "*.test"));
    assert!(served_by(&engine, "*.test").is_empty());
    apply(&mut engine, "proven *.test blog\n");
    assert_eq!(served_by(&engine, "*.test"), only("blog"));
}

#[test]
fn without_the_setting_nobody_is_told_of_rivals() {
    let mut engine = engine(false);
    apply(&mut engine, &ingress("shop", 2024, "a.test"));
    let outcome = apply(&mut engine, &ingress("blog", 2025, "a.test"));
    assert!(outcome.rivals.is_empty() && rivals(&engine).is_empty());
}

#[test]
fn a_proof_runs_its_host_and_whoever_loses_it_and_nothing_else() {
    let work_at = |others: usize| {
        let mut engine = engine(true);
        for number in 0..others {
            for (namespace, year) in [("shop", 2024), ("blog", 2025)] {
                let other = ingress(namespace, year, &format!("h{number}.test"));
                let other = other.replace("name: web, c", &format!("name: web{number}, c"));
                apply(&mut engine, &other);
            }
        }
        apply(&mut engine, &ingress("shop", 2024, "a.test"));
        apply(&mut engine, &ingress("blog", 2025, "a.test"));
        let first = apply(&mut engine, "proven a.test shop\n");
        assert!(first.delta.is_empty(), "it has the host already");
        assert_eq!(first.work.units_translated, 1, "the host");
        // The same once more is no change.
        let again = apply(&mut engine, "proven a.test shop\n");
        assert_eq!(again.work.units_translated, 0);
        // A host that nobody claims has no unit.
        let nobody = apply(&mut engine, "proven nobody.test shop\n");
        assert_eq!(nobody.work.units_translated, 0);
        apply(&mut engine, "proven a.test blog\n").work
    };
    let few = work_at(2);
    // The host, the Ingress that loses it, and the upstream of the one that gets it.
    assert!((2..=5).contains(&few.units_translated), "{few:?}");
    assert_eq!(few, work_at(40));
}
