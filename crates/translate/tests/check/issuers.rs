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
