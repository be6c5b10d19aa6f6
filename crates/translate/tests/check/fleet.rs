//! Work for many sidecars, counted at two sizes: what one view or one Service costs may not depend
//! on how many there are.

use myriad_api::Change;
use myriad_translate::{Engine, Settings, Work};

use crate::world;

/// Services of each namespace.
const SERVICES: usize = 5;

/// Sidecars of each namespace, whose labels differ.
const SIDECARS: usize = 10;

/// The boundary that keeps the namespaces apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// A Sidecar for each, with `./*`.
    Imports,
    /// Services say so, by `exportTo`.
    Exports,
}

/// The cost of each change: a view what it sees, and that is translated already but for what it
/// accepts itself; a change the ten views that see it, for which it is translated once. Each
/// Service has two ports.
const EXPECTED: [&str; 6] = [
    "view: 1 units, 30 views asked, 44 resources",
    "removed view: 0 units, 29 views asked, 0 resources",
    "endpoint: 2 units, 20 views asked, 20 resources",
    "port: 6 units, 51 views asked, 86 resources",
    "new service: 6 units, 51 views asked, 76 resources",
    "rule: 3 units, 21 views asked, 20 resources",
];

fn service(namespace: usize, number: usize, scope: Scope, port: u16) -> String {
    let exported = match scope {
        Scope::Imports => "",
        Scope::Exports => ", annotations: {networking.istio.io/exportTo: .}",
    };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: ns{namespace}, name: \
         s{number}{exported}}}\nspec:\n  clusterIP: 10.{}.{}.{}\n  selector: {{app: s{number}}}\n  \
         ports: [{{name: http, port: 80, targetPort: 8080}}, {{name: tcp, port: {port}}}]\n",
        namespace / 200,
        namespace % 200,
        number + 1
    )
}

fn slice(namespace: usize, number: usize, last: u8) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: \
         {{namespace: ns{namespace}, name: s{number}, labels: {{kubernetes.io/service-name: \
         s{number}}}}}\nports: [{{name: http, port: 8080}}, {{name: tcp, port: 9000}}]\nendpoints: \
         [{{addresses: [10.9.0.{last}], conditions: {{ready: true}}}}]\n"
    )
}

fn sidecar(namespace: usize, hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{namespace: ns{namespace}, \
         name: default}}\nspec: {{egress: [{{hosts: [{hosts}]}}]}}\n"
    )
}

fn policy(namespace: usize) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{namespace: \
         ns{namespace}, name: all}}\nspec: {{rules: [{{}}]}}\n"
    )
}

fn put(engine: &mut Engine, text: &str) -> Work {
    let change = Change::Put(world::object(text));
    engine.apply(vec![change], world::NOW).work
}

fn view(engine: &mut Engine, namespace: usize, number: usize) -> Work {
    let text = format!("ns{namespace}/w{number} ns{namespace} app=s{number},n={number} sidecar");
    engine.put_view(world::view(&text)).unwrap();
    engine.apply(Vec::new(), world::NOW).work
}

fn fleet(namespaces: usize, scope: Scope) -> Engine {
    let mut engine = world::engine(Settings {
        sidecars: true,
        root_namespace: Some("root".into()),
        ..Settings::default()
    });
    let mut changes = Vec::new();
    for namespace in 0..namespaces {
        let services = (0..SERVICES).map(|number| service(namespace, number, scope, 9000));
        let slices = (0..SERVICES).map(|number| slice(namespace, number, 1));
        let mut texts: Vec<String> = services.chain(slices).collect();
        texts.push(policy(namespace));
        if scope == Scope::Imports {
            texts.push(sidecar(namespace, "./*"));
        }
        changes.extend(texts.iter().map(|text| Change::Put(world::object(text))));
    }
    engine.apply(changes, world::NOW);
    for namespace in 0..namespaces {
        for number in 0..SIDECARS {
            view(&mut engine, namespace, number);
        }
    }
    engine
}

/// The work of a view that comes and goes, of an endpoint, a Service, a rule, and of what keeps
/// a namespace apart from the others.
fn measure(namespaces: usize, scope: Scope) -> Vec<(&'static str, Work)> {
    let mut engine = fleet(namespaces, scope);
    let mut measured = Vec::new();
    measured.push(("view", view(&mut engine, 3, SIDECARS)));
    assert!(engine.remove_view(&format!("ns3/w{SIDECARS}")));
    let removed = engine.apply(Vec::new(), world::NOW).work;
    measured.push(("removed view", removed));
    measured.push(("endpoint", put(&mut engine, &slice(4, 1, 2))));
    measured.push(("port", put(&mut engine, &service(4, 1, scope, 9001))));
    measured.push(("new service", put(&mut engine, &service(4, 9, scope, 9000))));
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {namespace: \
                ns5, name: s1}\nspec: {host: s1, trafficPolicy: {loadBalancer: {simple: \
                RANDOM}}}\n";
    measured.push(("rule", put(&mut engine, rule)));
    if scope == Scope::Imports {
        // They are the first that reach Services of strangers on the listeners that all share.
        measured.push(("wider scope", put(&mut engine, &sidecar(6, "./*, ns7/*"))));
        measured.push(("narrow scope", put(&mut engine, &sidecar(6, "./*"))));
    }
    measured
}

fn count(measured: &[(&str, Work)]) -> Vec<String> {
    let lines = measured.iter().map(|(what, work)| {
        format!(
            "{what}: {} units, {} views asked, {} resources",
            work.units_translated, work.views_asked, work.resources_changed
        )
    });
    lines.collect()
}

#[test]
fn a_view_costs_what_it_imports_and_a_change_whom_it_is_for() {
    let (few, many) = (measure(10, Scope::Imports), measure(100, Scope::Imports));
    assert_eq!(few, many);
    let scopes = [
        "wider scope: 23 units, 386 views asked, 350 resources",
        "narrow scope: 16 units, 371 views asked, 350 resources",
    ];
    let expected: Vec<&str> = EXPECTED.into_iter().chain(scopes).collect();
    assert_eq!(count(&few), expected);
}

#[test]
fn a_view_costs_what_is_exported_to_it() {
    let (few, many) = (measure(10, Scope::Exports), measure(100, Scope::Exports));
    assert_eq!(few, many);
    assert_eq!(count(&few), EXPECTED);
}

#[test]
fn a_thousand_sidecars_are_told_what_each_would_be_told_alone() {
    let many = fleet(100, Scope::Imports);
    let mut alone = fleet(0, Scope::Imports);
    for namespace in 40..42 {
        for number in 0..SERVICES {
            put(
                &mut alone,
                &service(namespace, number, Scope::Imports, 9000),
            );
            put(&mut alone, &slice(namespace, number, 1));
        }
        put(&mut alone, &policy(namespace));
        put(&mut alone, &sidecar(namespace, "./*"));
    }
    view(&mut alone, 41, 7);
    let [many, alone] = [&many, &alone].map(|it| it.snapshot_of("ns41/w7").unwrap().digest());
    assert_eq!(many, alone);
}

#[test]
fn a_scope_that_hides_all_and_shows_one_again_leaves_what_a_fresh_engine_has() {
    let hosts = ["./*", "other/*", "./s1.ns3.svc.cluster.local", "./*"];
    let made = |scopes: &[&str]| {
        let mut engine = fleet(5, Scope::Imports);
        view(&mut engine, 3, SIDECARS);
        for hosts in scopes {
            put(&mut engine, &sidecar(3, &format!("\"{hosts}\"")));
        }
        engine.snapshot_of("ns3/w1").unwrap().digest()
    };
    for last in 0..hosts.len() {
        assert_eq!(made(&hosts[..=last]), made(&hosts[last..=last]), "{last}");
    }
}

#[test]
fn a_pod_that_becomes_ready_costs_its_own_service_however_many_share_its_labels() {
    let service = |number: usize| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: s{number}}}\nspec:\n\
             \x20\x20clusterIP: 10.{}.{}.1\n  selector: {{app.kubernetes.io/instance: shop, \
             app.kubernetes.io/name: s{number}}}\n  ports: [{{name: http, port: 80}}]\n",
            number / 200,
            number % 200,
        )
    };
    let pod = |number: usize, ready: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: shop\n  name: p{number}\n  labels: \
             {{app.kubernetes.io/instance: shop, app.kubernetes.io/name: s{number}}}\nstatus: \
             {{podIP: 10.9.{}.{}, conditions: [{{type: Ready, status: \"{ready}\"}}]}}\n",
            number / 200,
            number % 200,
        )
    };
    let slice = |address: &str| {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: \
             {{namespace: shop, name: s0, labels: {{kubernetes.io/service-name: s0}}}}\nports: \
             [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [{address}], targetRef: \
             {{kind: Pod, namespace: shop, name: p0}}}}]\n"
        )
    };
    let measure = |services: usize| {
        let mut engine = world::engine(Settings {
            sidecars: true,
            ..Settings::default()
        });
        let texts = (0..services).flat_map(|it| [service(it), pod(it, "False")]);
        let texts = texts.map(|text| Change::Put(world::object(&text)));
        engine.apply(texts.collect(), world::NOW);
        let client = world::view("client shop app=client sidecar");
        engine.put_view(client).unwrap();
        engine.apply(Vec::new(), world::NOW);
        let ready = put(&mut engine, &pod(0, "True"));
        let listed = put(&mut engine, &slice("10.9.0.0"));
        [ready, listed].map(|work| (work.units_translated, work.objects_visited))
    };
    for services in [1, 100, 1_000] {
        assert_eq!(measure(services), [(0, 0), (1, 3)], "{services} Services");
    }
}
