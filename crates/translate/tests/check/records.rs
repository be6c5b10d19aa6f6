//! Records of DNS that prove two hosts: for whose certificates an issuer for all sets them.

use myriad_translate::{Engine, Settings};

use crate::goldens::BASE;
use crate::world;

/// Who has two hosts of one record, and certificates of whom they want: namespace, year, host, and
/// whether TLS ends there.
type Claimed<'a> = (&'a str, u32, &'a str, bool);

/// An engine whose issuer `default` proves all names by DNS, or wildcards alone.
fn engine(settings: &str, is_in_dns: bool) -> Engine {
    let dns_issuers = is_in_dns.then(|| "default".into());
    let mut engine = world::engine(Settings {
        issuers: Some(["default".into()].into()),
        dns_issuers: dns_issuers.into_iter().collect(),
        ..world::settings(settings)
    });
    put(&mut engine, BASE);
    engine
}

fn put(engine: &mut Engine, text: &str) {
    engine.apply(world::changes(text), world::NOW);
}

fn ingress((namespace, year, host, ends_tls): Claimed<'_>, issuer: &str) -> String {
    let tls = match ends_tls {
        true => format!("  tls: [{{hosts: [\"{host}\"], secretName: own}}]\n"),
        false => String::new(),
    };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z, \
         annotations: {{myriad.dev/issuer: {issuer}}}}}\n\
         spec:\n{tls}  rules:\n  - host: \"{host}\"\n    http: {{paths: [{{path: /, \
         pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}\n---\n"
    )
}

/// A Gateway of Istio's API at the proxies with a label.
fn gateway(namespace: &str, year: u32, host: &str, label: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Gateway\n\
         metadata: {{namespace: {namespace}, name: web, \
         creationTimestamp: {year}-01-01T00:00:00Z, annotations: {{myriad.dev/issuer: default}}}}\n\
         spec:\n  selector: {{istio: {label}}}\n  servers:\n  \
         - {{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [\"{host}\"], \
         tls: {{mode: SIMPLE, credentialName: own}}}}\n---\n"
    )
}

/// The namespaces and hosts of the certificates that are to be obtained.
fn wishes(engine: &Engine) -> Vec<String> {
    let wishes = engine.wishes();
    let wishes = wishes.map(|it| format!("{} {}", it.object.namespace(), it.host));
    wishes.collect()
}

fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}

const NAME: Claimed<'static> = ("shop", 2024, "a.test", true);
const WILDCARD: Claimed<'static> = ("blog", 2025, "*.a.test", true);

#[test]
fn a_name_and_the_wildcard_below_it_go_to_the_namespace_of_the_older_one() {
    let (name, wildcard) = (ingress(NAME, "default"), ingress(WILDCARD, "default"));
    // Whoever comes first, and both at once.
    let both = format!("{name}{wildcard}");
    for texts in [
        vec![&*name, &*wildcard],
        vec![&*wildcard, &*name],
        vec![&*both],
    ] {
        let mut engine = engine("", true);
        for text in &texts {
            put(&mut engine, text);
        }
        assert_eq!(wishes(&engine), ["shop a.test"], "{texts:?}");
        let refused = "Ingress blog/web: spec.tls: names issuer default, which obtains no \
                       certificate for *.a.test";
        assert_eq!(told(&engine, refused), 1);
        assert_eq!(
            told(&engine, "list *.a.test for the namespace in --tenants"),
            1
        );
        // Once nobody else has the name, and once somebody has it again.
        put(&mut engine, "remove Ingress shop/web\n");
        assert_eq!(wishes(&engine), ["blog *.a.test"]);
        assert_eq!(told(&engine, "obtains no certificate"), 0);
        put(&mut engine, &name);
        assert_eq!(wishes(&engine), ["shop a.test"]);
    }
}

#[test]
fn an_older_wildcard_has_the_record_where_a_name_is_proven_by_it_too() {
    let older = ("blog", 2023, "*.a.test", true);
    for (is_in_dns, wanted) in [
        (true, &["blog *.a.test"][..]),
        // A name that is proven at the gateway leads to it.
        (false, &["blog *.a.test", "shop a.test"][..]),
    ] {
        let mut engine = engine("", is_in_dns);
        put(&mut engine, &ingress(NAME, "default"));
        put(&mut engine, &ingress(older, "default"));
        let mut found = wishes(&engine);
        found.sort();
        assert_eq!(found, wanted, "{is_in_dns}");
    }
}

#[test]
fn a_name_counts_though_nobody_wants_a_certificate_for_it() {
    for plain in [("shop", 2024, "a.test", false), NAME] {
        let mut engine = engine("", true);
        put(&mut engine, &ingress(WILDCARD, "default"));
        assert_eq!(wishes(&engine), ["blog *.a.test"]);
        put(&mut engine, &ingress(plain, "none"));
        assert_eq!(wishes(&engine), [""; 0]);
        put(&mut engine, "remove Ingress shop/web\n");
        assert_eq!(wishes(&engine), ["blog *.a.test"]);
    }
}

#[test]
fn a_list_of_hosts_or_an_issuer_of_its_own_gives_a_namespace_what_it_asks_for() {
    let own = "apiVersion: myriad.dev/v1alpha1\nkind: Issuer\n\
               metadata: {namespace: blog, name: le}\n\
               spec: {acme: {directories: [{url: letsencrypt}]}}\n---\n";
    let mut engine = engine("", true);
    put(&mut engine, &ingress(NAME, "default"));
    put(&mut engine, own);
    put(&mut engine, &ingress(WILDCARD, "le"));
    assert_eq!(wishes(&engine).len(), 2);
    put(&mut engine, &ingress(WILDCARD, "default"));
    assert_eq!(wishes(&engine), ["shop a.test"]);
    // What the operator lists goes before what is older.
    let mut engine = self::engine("# with tenants=blog *.a.test", true);
    put(&mut engine, &ingress(NAME, "default"));
    put(&mut engine, &ingress(WILDCARD, "default"));
    assert_eq!(wishes(&engine), ["blog *.a.test"]);
    let mut engine = self::engine("# with tenants=blog *.a.test;shop a.test", true);
    put(&mut engine, &ingress(NAME, "default"));
    put(&mut engine, &ingress(WILDCARD, "default"));
    assert_eq!(wishes(&engine).len(), 2);
    // Where hosts are everybody's, so are records.
    let mut engine = self::engine("# with host-sharing=cluster", true);
    put(&mut engine, &ingress(NAME, "default"));
    put(&mut engine, &ingress(WILDCARD, "default"));
    assert_eq!(wishes(&engine).len(), 2);
}

#[test]
fn below_an_older_wildcard_that_lets_nobody_in_no_record_is_set_for_others() {
    let wildcard = ("shop", 2024, "*.a.test", true);
    let below = ingress(("blog", 2025, "b.a.test", true), "default");
    for (is_in_dns, is_granted) in [(true, false), (false, true)] {
        let mut engine = engine("", is_in_dns);
        put(&mut engine, &ingress(wildcard, "none"));
        put(&mut engine, &below);
        let refused = "*.a.test of the older Ingress shop/web does not let it in";
        assert_eq!(told(&engine, refused), usize::from(!is_granted));
        assert_eq!(wishes(&engine).len(), usize::from(is_granted));
    }
    let mut engine = engine("", true);
    put(&mut engine, &below);
    assert_eq!(wishes(&engine), ["blog b.a.test"]);
    put(&mut engine, &ingress(wildcard, "none"));
    assert_eq!(wishes(&engine), [""; 0]);
    let shared = ingress(wildcard, "none, myriad.dev/wildcard-sharing: blog");
    put(&mut engine, &shared);
    assert_eq!(wishes(&engine), ["blog b.a.test"]);
    // A younger one keeps nothing from anybody.
    put(
        &mut engine,
        &ingress(("shop", 2026, "*.a.test", true), "none"),
    );
    assert_eq!(wishes(&engine), ["blog b.a.test"]);
}

#[test]
fn a_host_that_an_older_object_has_at_one_gateway_is_proven_for_nobody_at_another() {
    let view = "# with view=second blog istio=second";
    let theirs = ingress(NAME, "none");
    let younger = gateway("blog", 2025, "a.test", "second");
    for texts in [[&theirs, &younger], [&younger, &theirs]] {
        let mut engine = engine(view, true);
        for text in texts {
            put(&mut engine, text);
        }
        assert_eq!(wishes(&engine), [""; 0]);
        assert_eq!(
            told(&engine, "namespace shop has a.test at another gateway"),
            1
        );
        put(&mut engine, "remove Ingress shop/web\n");
        assert_eq!(wishes(&engine), ["blog a.test"]);
    }
    let mut engine = engine(view, true);
    put(&mut engine, &theirs);
    put(&mut engine, &gateway("blog", 2023, "a.test", "second"));
    assert_eq!(wishes(&engine), ["blog a.test"]);
}
