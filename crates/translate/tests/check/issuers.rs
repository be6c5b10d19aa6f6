//! Issuers: whose they are, what a change of one costs, and what nobody is shown.

use myriad_api::Change;
use myriad_translate::{CertManager, Engine, Settings};

use crate::goldens::BASE;
use crate::world;

/// An engine with a Service that knows no other issuers than those that objects make.
fn engine(cert_manager: CertManager) -> Engine {
    let mut engine = world::engine(Settings {
        issuers: Some([].into()),
        cert_manager,
        ..Settings::default()
    });
    put(&mut engine, BASE);
    engine
}

fn issuer(namespace: &str, name: &str, directory: &str) -> String {
    format!(
        "apiVersion: myriad.dev/v1alpha1\nkind: Issuer\n\
         metadata: {{namespace: {namespace}, name: {name}}}\n\
         spec: {{acme: {{directories: [{{url: {directory}}}]}}}}\n---\n"
    )
}

fn ingress(name: &str, annotation: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{namespace: shop, name: {name}, annotations: {{{annotation}}}}}\n\
         spec:\n  tls: [{{hosts: [{name}.example], secretName: {name}}}]\n  \
         rules: [{{host: {name}.example, http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}}}]\n---\n"
    )
}

fn put(engine: &mut Engine, text: &str) -> u64 {
    engine
        .apply(world::changes(text), world::NOW)
        .work
        .units_translated
}

/// The wishes, as the host and the issuer.
fn wishes(engine: &Engine) -> Vec<String> {
    let wishes = engine.wishes();
    wishes
        .map(|it| format!("{} of {}", it.host, it.issuer))
        .collect()
}

fn is_told(engine: &Engine, part: &str) -> bool {
    engine.findings().any(|it| it.to_string().contains(part))
}

#[test]
fn an_issuer_of_another_namespace_is_never_used() {
    let mut engine = engine(CertManager::Absent);
    put(&mut engine, &issuer("blog", "le", "letsencrypt"));
    for annotation in [
        "myriad.dev/issuer: le",
        "myriad.dev/issuer: blog/le",
        "cert-manager.io/issuer: le",
        "cert-manager.io/issuer: blog/le",
        "cert-manager.io/issuer: ../blog/le",
        "cert-manager.io/cluster-issuer: le",
        "cert-manager.io/cluster-issuer: blog/le",
    ] {
        put(&mut engine, &ingress("a", annotation));
        assert_eq!(wishes(&engine), [""; 0], "{annotation}");
        assert!(is_told(&engine, "Ingress shop/a"), "{annotation}");
    }
    // The same names, once there is one beside the Ingress.
    put(&mut engine, &ingress("a", "myriad.dev/issuer: le"));
    put(&mut engine, &issuer("shop", "le", "letsencrypt"));
    assert_eq!(wishes(&engine), ["a.example of shop/le"]);
    assert!(!is_told(&engine, "Ingress shop/a"));
    put(&mut engine, "remove Issuer shop/le\n");
    assert_eq!(wishes(&engine), [""; 0]);
    assert!(is_told(&engine, "names issuer le, which is not there"));
}

#[test]
fn a_change_of_what_an_issuer_says_costs_no_more_than_itself() {
    let mut engine = engine(CertManager::Absent);
    put(&mut engine, &issuer("shop", "le", "letsencrypt"));
    for number in 0..50 {
        let name = format!("h{number}");
        put(&mut engine, &ingress(&name, "myriad.dev/issuer: le"));
    }
    assert_eq!(engine.wishes().count(), 50);
    assert_eq!(
        put(&mut engine, &issuer("shop", "le", "letsencrypt-staging")),
        1
    );
    // One that nobody names, beside and elsewhere.
    assert_eq!(put(&mut engine, &issuer("shop", "other", "letsencrypt")), 1);
    assert_eq!(put(&mut engine, &issuer("blog", "le", "letsencrypt")), 1);
    assert_eq!(engine.wishes().count(), 50);
}

#[test]
fn a_key_is_read_again_when_its_secret_changes_and_shown_to_nobody() {
    let mut engine = engine(CertManager::Absent);
    let bound = "letsencrypt, externalAccountBinding: \
                 {keyID: kid, keySecretRef: {name: eab}}";
    put(&mut engine, &issuer("shop", "le", bound));
    assert!(is_told(
        &engine,
        "names Secret shop/eab, which is not there"
    ));
    let secret = |kind: &str, key: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{namespace: shop, name: eab}}\n\
             type: {kind}\nstringData: {{key: {key}}}\n"
        )
    };
    put(&mut engine, &secret("Opaque", "aHVzaGh1c2g"));
    assert!(is_told(&engine, "or is none for issuers"));
    // Of a Secret that changes, its certificate and the issuer are looked at.
    put(&mut engine, &secret("myriad.dev/issuer", "aHVzaGh1c2g"));
    assert!(!is_told(&engine, "Issuer shop/le"));
    let key = |engine: &Engine| {
        let issuer = engine.issuers().next().expect("an issuer");
        let terms = issuer.terms.as_ref().expect("terms");
        let (_, key) = terms.authorities[0].binding.as_ref().expect("a binding");
        assert!(!format!("{issuer:?}").contains("104"), "{issuer:?}");
        key.expose().to_vec()
    };
    assert_eq!(key(&engine), b"hushhush");
    let change = engine.apply(
        world::changes(&secret("myriad.dev/issuer", "aHVzaA")),
        world::NOW,
    );
    assert_eq!(
        (change.issuers.added.len(), change.issuers.removed.len()),
        (1, 1)
    );
    assert_eq!(key(&engine), b"hush");
    put(&mut engine, &secret("myriad.dev/issuer", "\"!!\""));
    assert!(is_told(&engine, "is no key in base64url"));
    assert!(!engine.findings().any(|it| it.to_string().contains("!!")));
}

#[test]
fn hints_for_cert_manager_hold_while_it_is_absent_and_concern_nobody_else() {
    let mut engine = engine(CertManager::Unknown);
    put(&mut engine, &issuer("shop", "le", "letsencrypt"));
    put(&mut engine, &ingress("a", "cert-manager.io/issuer: le"));
    put(&mut engine, &ingress("b", "myriad.dev/issuer: le"));
    assert_eq!(wishes(&engine), ["b.example of shop/le"]);
    engine.set_cert_manager(CertManager::Absent);
    let outcome = engine.apply(Vec::<Change>::new(), world::NOW);
    // The host that reads the hint, and no other.
    assert_eq!(outcome.work.units_translated, 1);
    let both = ["a.example of shop/le", "b.example of shop/le"];
    assert_eq!(wishes(&engine), both);
    engine.set_cert_manager(CertManager::Absent);
    assert!(!engine.has_postponed());
    engine.set_cert_manager(CertManager::Present);
    engine.apply(Vec::<Change>::new(), world::NOW);
    assert_eq!(wishes(&engine), ["b.example of shop/le"]);
    assert!(is_told(&engine, "names Secret shop/a, which is not there"));
}

/// An Ingress for one host, whose certificate is wanted in a Secret of its own name.
fn ingress_for(name: &str, host: &str) -> String {
    let text = ingress(name, "myriad.dev/issuer: le");
    text.replace(&format!("{name}.example"), &format!("\"{host}\""))
}

/// A Secret that the issuer has provided, with a certificate for these names.
fn provided(name: &str, certificate: &str, key: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\n\
         metadata: {{namespace: shop, name: {name}, annotations: {{myriad.dev/issuer: shop/le}}}}\n\
         type: kubernetes.io/tls\n\
         stringData:\n  tls.crt: <certificate {certificate}>\n  tls.key: <key {key}>\n---\n"
    )
}

#[test]
fn a_wildcard_that_is_provided_costs_the_hosts_below_it_once_and_no_other() {
    const BELOW: u64 = 20;
    let wild = "*.shop.example";
    let mut engine = engine(CertManager::Absent);
    put(&mut engine, &issuer("shop", "le", "letsencrypt"));
    for number in 0..BELOW {
        let host = format!("h{number}.shop.example");
        put(&mut engine, &ingress_for(&format!("h{number}"), &host));
        let elsewhere = format!("e{number}");
        put(&mut engine, &ingress(&elsewhere, "myriad.dev/issuer: le"));
    }
    put(&mut engine, &ingress_for("wild", wild));
    let count = |engine: &Engine| engine.wishes().count() as u64;
    assert_eq!(count(&engine), 2 * BELOW + 1);

    // Its certificate, its host, and those that wait for one of their own.
    let work = put(&mut engine, &provided("wild", wild, wild));
    assert!(work <= BELOW + 2, "{work}");
    assert_eq!(count(&engine), BELOW + 1);
    assert!(is_told(&engine, "which is not there and is not ordered"));
    let renewed = provided("wild", &format!("{wild} ending"), wild);
    assert_eq!(put(&mut engine, &renewed), 1);

    // One whose own is there is shown that, and it is renewed.
    let own = provided("h0", "h0.shop.example", "h0.shop.example");
    let work = put(&mut engine, &own);
    assert!(work <= 2, "{work}");
    assert!(wishes(&engine).contains(&"h0.shop.example of shop/le".to_owned()));
    put(&mut engine, "remove Secret shop/h0\n");
    assert_eq!(count(&engine), BELOW + 1);

    // Nobody renews what nobody wants.
    put(&mut engine, "remove Ingress shop/wild\n");
    assert_eq!(count(&engine), 2 * BELOW);
    assert!(!is_told(&engine, "is not ordered"));
}

#[test]
fn a_second_certificate_is_wanted_where_the_issuer_says_so_and_the_first_is_there() {
    let mut engine = engine(CertManager::Absent);
    let both = "letsencrypt}], keyType: ecdsa-and-rsa, challenge: http-01}}\n---\n";
    let pair = |text: &str| text.replace("letsencrypt}]}}\n---\n", both);
    let one = issuer("shop", "le", "letsencrypt");
    put(&mut engine, &one);
    for number in 0..10 {
        let name = format!("h{number}");
        put(&mut engine, &ingress(&name, "myriad.dev/issuer: le"));
    }
    put(&mut engine, &ingress("other", "myriad.dev/no-such: x"));
    let seconds = |engine: &Engine| {
        let seconds = engine.wishes().filter(|wish| wish.is_second);
        seconds
            .map(|it| it.secret.to_string())
            .collect::<Vec<String>>()
    };
    // The issuer, the Ingresses that name it, and their hosts.
    assert_eq!(put(&mut engine, &pair(&one)), 21);
    assert_eq!(seconds(&engine), [""; 0]);
    put(&mut engine, &provided("h0", "h0.example", "h0.example"));
    assert_eq!(seconds(&engine), ["shop/h0-rsa"]);
    let second = provided("h0-rsa", "rsa:h0.example", "rsa:h0.example");
    put(&mut engine, &second);
    assert_eq!(seconds(&engine), ["shop/h0-rsa"]);
    // Either is renewed as one changed resource.
    for (name, names) in [("h0", "h0.example"), ("h0-rsa", "rsa:h0.example")] {
        let renewed = provided(name, &format!("{names} ending"), names);
        let outcome = engine.apply(world::changes(&renewed), world::NOW);
        let work = (outcome.work.units_translated, outcome.delta.len());
        assert_eq!(work, (1, 1), "{name}");
        assert!(is_told(
            &engine,
            &format!("Secret shop/{name}: data[tls.crt]")
        ));
    }
    assert_eq!(put(&mut engine, &one), 21);
    assert_eq!(seconds(&engine), [""; 0]);
}

#[test]
fn names_on_demand_are_asked_about_by_the_default_issuer_of_all_alone() {
    let mut engine = engine(CertManager::Absent);
    let issuer = |kind: &str, metadata: &str, ask: &str| {
        format!(
            "apiVersion: myriad.dev/v1alpha1\nkind: {kind}\nmetadata: {{{metadata}}}\n\
             spec: {{acme: {{directories: [{{url: letsencrypt}}]}}, onDemand: {{ask: '{ask}'}}}}\n\
             ---\n"
        )
    };
    let asks = |engine: &Engine| -> Vec<String> {
        let usable = engine.issuers().filter_map(|it| it.terms.as_ref().ok());
        usable
            .filter_map(|it| it.ask.as_deref().map(str::to_owned))
            .collect()
    };
    let url = "http://ask.shops:8080/check";
    put(&mut engine, &issuer("ClusterIssuer", "name: default", url));
    assert_eq!(asks(&engine), [url]);
    for metadata in ["name: le", "name: default, namespace: shop"] {
        let kind = match metadata.contains("shop") {
            true => "Issuer",
            false => "ClusterIssuer",
        };
        put(&mut engine, &issuer(kind, metadata, url));
    }
    assert_eq!(asks(&engine), [url]);
    for object in ["ClusterIssuer le", "Issuer shop/default"] {
        let told = format!("{object}: spec.onDemand: is for the ClusterIssuer default alone");
        assert!(is_told(&engine, &told), "{object}");
    }
    for url in [
        "ask.shops",
        "ftp://ask.shops/",
        "http://ask.shops/#x",
        "http://a@b/",
    ] {
        put(&mut engine, &issuer("ClusterIssuer", "name: default", url));
        assert_eq!(asks(&engine), [""; 0], "{url}");
        assert!(is_told(&engine, "spec.onDemand.ask: is no URL"), "{url}");
    }
}
