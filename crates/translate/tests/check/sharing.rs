//! Equal parts are stored once, and what people can write a lot of stays bounded.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind, Secret};
use myriad_model::{Action, Certificate, Domain, Policy, RouteView};
use myriad_translate::{Engine, Settings};

use crate::goldens::BASE;
use crate::world;

/// Two Ingresses with a host, an annotation and a certificate each, behind one issuer.
fn two_domains() -> Engine {
    let mut engine = world::engine(Settings::default());
    for name in ["a", "b"] {
        let ingress = world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
             annotations: {{myriad.dev/proxy-read-timeout: \"7\"}}\nspec:\n  \
             tls: [{{hosts: [{name}.example], secretName: {name}}}]\n  \
             rules: [{{host: {name}.example, http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}}}]\n"
        ));
        let secret = Secret {
            meta: Meta::new(ObjectKey::new(ObjectKind::Secret, "default", name)),
            ..world::secret(
                "<certificate *.example>",
                "<key *.example>",
                Some(world::issuer()),
            )
        };
        let secret = Object::Secret(Arc::new(secret));
        engine.apply(vec![Change::Put(ingress), Change::Put(secret)], world::NOW);
    }
    engine
}

fn pair<'a, T>(
    engine: &'a Engine,
    pick: impl Fn(&'a myriad_model::Sealed) -> Option<&'a T>,
) -> [&'a T; 2] {
    let found: Vec<&T> = engine
        .snapshot()
        .iter()
        .filter_map(|sealed| pick(sealed))
        .collect();
    found.try_into().ok().expect("two of a kind")
}

#[test]
fn equal_parts_of_two_domains_are_one_in_memory() {
    let engine = two_domains();
    let [one, other]: [&Domain; 2] = pair(&engine, |sealed| sealed.domain());
    assert!(Arc::ptr_eq(&one.listeners, &other.listeners));
    assert!(Arc::ptr_eq(&one.tls, &other.tls));
    let routes = engine.snapshot().iter().flat_map(|sealed| sealed.routes());
    let [one, other] = routes.collect::<Vec<_>>().try_into().expect("two routes");
    assert!(Arc::ptr_eq(one.listeners, other.listeners));
    assert!(Arc::ptr_eq(one.policy, other.policy));
    let [one, other]: [&Certificate; 2] = pair(&engine, |sealed| sealed.certificate());
    assert_eq!(one.chain[1].as_ptr(), other.chain[1].as_ptr(), "the issuer");
    assert_ne!(one.chain[0].as_ptr(), other.chain[0].as_ptr(), "the leaf");
    assert_eq!(engine.usage().interned, 2);
}

/// How many allocations there are of the actions and policies of the routes of these objects, and
/// how many routes.
fn allocations(objects: &str) -> [usize; 2] {
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    let before = engine.usage().interned;
    engine.apply(world::changes(objects), world::NOW);
    let routes: Vec<RouteView<'_>> = engine
        .snapshot()
        .iter()
        .flat_map(|sealed| sealed.routes())
        .collect();
    let of_action = routes.iter().map(|route| match route.action {
        Action::Respond(fixed) => fixed.body.as_ptr() as usize,
        Action::Redirect(redirect) => Arc::as_ptr(redirect) as usize,
        Action::Forward(upstreams) => upstreams.as_ptr() as usize,
    });
    let of_policy = routes
        .iter()
        .map(|route| Arc::as_ptr(route.policy) as usize);
    let different: BTreeSet<usize> = of_action.chain(of_policy).collect();
    let count = routes.len();
    // Nothing is kept of what is gone.
    let keys: Vec<Change> = world::changes(objects)
        .iter()
        .map(|change| Change::Remove(change.key().clone()))
        .collect();
    engine.apply(keys, world::NOW);
    assert_eq!(engine.usage().interned, before);
    [different.len(), count]
}

/// A Gateway for all hosts, and a VirtualService on 50 of them with this rule.
fn on_fifty_hosts(rule: &str) -> String {
    let hosts: Vec<String> = (0..50).map(|at| format!("h{at}.example")).collect();
    let hosts = hosts.join(", ");
    format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{namespace: shop, name: edge}}
spec: {{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: ['*']}}]}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{namespace: shop, name: v}}
spec: {{hosts: [{hosts}], gateways: [edge], http: [{rule}]}}
"
    )
}

#[test]
fn what_an_object_repeats_on_each_host_is_held_once() {
    let long = "x".repeat(4_000);
    let headers = format!("{{request: {{set: {{a: {long}}}}}}}");
    for rule in [
        format!("{{directResponse: {{status: 200, body: {{string: {long}}}}}}}"),
        format!("{{redirect: {{uri: /{long}}}}}"),
        format!("{{route: [{{destination: {{host: web}}, headers: {headers}}}]}}"),
    ] {
        // The action and the policy.
        assert_eq!(allocations(&on_fifty_hosts(&rule)), [2, 50], "{rule}");
    }
}

#[test]
fn what_blocks_of_many_hosts_repeat_is_held_once() {
    let long = "x".repeat(1_000);
    let rules = format!(
        "{{match: [{{uri: {{exact: /a}}}}], redirect: {{uri: /{long}}}}}, {{directResponse: \
         {{status: 200, body: {{string: {long}}}}}}}"
    );
    // Two actions and the policy.
    assert_eq!(allocations(&on_fifty_hosts(&rules)), [3, 100]);
}

#[test]
fn the_hosts_of_an_ingress_have_one_list_of_networks() {
    let paths = "{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}";
    // A cookie holds where the path is, so that policies differ.
    let rules: String = (0..50)
        .map(|at| {
            let paths = paths.replace("path: /,", &format!("path: /{at},"));
            format!("  - {{host: h{at}.example, http: {{paths: [{paths}]}}}}\n")
        })
        .collect();
    let networks: Vec<String> = (0..200).map(|at| format!("10.0.{at}.0/24")).collect();
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  namespace: shop
  name: i
  annotations:
    myriad.dev/affinity: cookie
    myriad.dev/whitelist-source-range: {}
spec:
  rules:
{rules}",
        networks.join(",")
    );
    let mut engine = world::engine(Settings::default());
    engine.apply(world::changes(BASE), world::NOW);
    engine.apply(world::changes(&ingress), world::NOW);
    let routes = engine.snapshot().iter().flat_map(|it| it.routes());
    let policies: Vec<&Arc<Policy>> = routes.map(|route| route.policy).collect();
    let [first, rest @ ..] = &policies[..] else {
        panic!("no routes");
    };
    assert_eq!((rest.len(), first.sources_allowed.len()), (49, 200));
    for policy in rest {
        assert!(!Arc::ptr_eq(first, policy));
        let (one, other) = (&first.sources_allowed, &policy.sources_allowed);
        assert!(one.is_shared_with(other));
    }
}

#[test]
fn ten_thousand_errors_are_few_findings_and_leave_the_neighbours_alone() {
    let mut engine = two_domains();
    let before = engine.snapshot().clone();
    let rules: String = (0..10_000)
        .map(|n| format!("  - host: bad..{n}\n"))
        .collect();
    let broken = world::object(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: broken}}\n\
         spec:\n  defaultBackend: {{service: {{name: x, port: {{number: 80}}}}}}\n  rules:\n{rules}"
    ));
    let outcome = engine.apply(vec![Change::Put(broken)], world::NOW);
    assert_eq!(outcome.findings.added.len(), 100);
    assert_eq!(engine.snapshot().digest(), before.digest());
}

#[test]
fn an_ingress_of_a_thousand_hosts_is_translated_host_by_host() {
    let mut engine = world::engine(Settings::default());
    let text = |name: &str| {
        let rules: String = (0..1_000)
            .map(|n| format!("  - host: h{n}.example\n"))
            .collect();
        let backend = "{service: {name: x, port: {number: 80}}}";
        world::object(&format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\n\
             spec:\n  defaultBackend: {backend}\n  rules:\n{rules}"
        ))
    };
    let outcome = engine.apply(vec![Change::Put(text("a"))], world::NOW);
    assert_eq!(outcome.work.units_translated, 1_001);
    assert_eq!(outcome.work.resources_changed, 1_002);
    // Of a thousand hosts that miss one Service there is one finding.
    assert_eq!(outcome.findings.added.len(), 1);
}
