//! Explanations of the rules between a listener and a route: policies, tokens, providers, limits,
//! streams.

use std::time::Duration;

use myriad_api::{Change, ObjectKind};
use myriad_model::{CheckProtocol, Form, Provider, Sealer, Writer};
use myriad_translate::{Engine, MeshProvider, Settings};
use serde_json::{Value, json};

use super::{Explanation, Question, answer, gather, ingress, object, rule, service};

const ISSUER: &str = "https://issuer.test";

/// An object of Istio's in a namespace of its own, or in that of the gateway.
fn istio(kind: ObjectKind, name: &str, spec: Value) -> Change {
    let (version, namespace) = match kind {
        ObjectKind::AuthorizationPolicy | ObjectKind::RequestAuthentication => {
            ("security.istio.io/v1", "istio-system")
        }
        _ => ("networking.istio.io/v1", "shop"),
    };
    let value = json!({
        "apiVersion": version,
        "kind": kind.as_str(),
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    });
    object(kind, value)
}

/// A policy of the main gateway.
fn policy(name: &str, mut spec: Value) -> Change {
    spec["selector"] = json!({"matchLabels": {"istio": "ingressgateway"}});
    istio(ObjectKind::AuthorizationPolicy, name, spec)
}

/// Tokens of an issuer whose keys are fetched, and have not been.
fn tokens() -> Change {
    let spec = json!({
        "selector": {"matchLabels": {"istio": "ingressgateway"}},
        "jwtRules": [{"issuer": ISSUER, "jwksUri": "https://issuer.test/keys"}],
    });
    istio(ObjectKind::RequestAuthentication, "tokens", spec)
}

/// An Ingress for `www.shop.test` that leads to two endpoints.
fn shop(annotations: Value) -> Vec<Change> {
    let rules = json!({"rules": [rule("www.shop.test", "/", "cart")]});
    let mut changes = vec![ingress("front", annotations, rules)];
    changes.extend(service("cart", &["10.0.0.1", "10.0.0.2"]));
    changes
}

/// The explanation of a request, with a provider `check` at a Service of that name.
fn explain_of(question: &Question, changes: Vec<Change>) -> Explanation {
    let provider = MeshProvider {
        name: "check".into(),
        service: "check.shop.svc.cluster.local".into(),
        port: 80,
        provider: Provider {
            upstream: "".into(),
            protocol: CheckProtocol::Grpc,
            timeout: Duration::from_secs(1),
            fail_open: false,
            error_status: 503,
            body: None,
            authority: "check".into(),
            reroutes: false,
            told: Box::default(),
        },
    };
    let settings = Settings {
        providers: vec![provider],
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, Writer::new(Sealer::new([3; 32], Form::Value)));
    engine.apply(changes, 0);
    let scene = gather::gather(engine.snapshot(), &question.names());
    answer::explain(&scene, question, &|_| Vec::new())
}

fn question(url: &str) -> Question {
    Question::new(url, "GET", &[]).expect("a question")
}

fn of_client(url: &str, client: &str, claims: &str) -> Question {
    let question = question(url).of_client(client, "", claims);
    question.expect("a question of a client")
}

fn says(seen: &Explanation, stage: &str, text: &str) {
    let mut stages = seen.stages.iter();
    let is_there = stages.any(|part| part.stage == stage && part.text.contains(text));
    assert!(is_there, "{stage}: {text:?} is not in\n{seen}");
}

fn with(mut changes: Vec<Change>, more: impl IntoIterator<Item = Change>) -> Vec<Change> {
    changes.extend(more);
    changes
}

const URL: &str = "http://www.shop.test/admin";

/// A user `ann`.
fn users() -> Change {
    let users = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "shop", "name": "users"},
        "type": "Opaque",
        "stringData": {"auth": "ann:{PLAIN}hush"},
    });
    object(ObjectKind::Secret, users)
}

#[test]
fn a_password_is_asked_for_and_never_told() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/auth-type": "basic",
        "nginx.ingress.kubernetes.io/auth-secret": "users",
        "nginx.ingress.kubernetes.io/auth-realm": "Staff",
    });
    let changes = || with(shop(annotations.clone()), [users()]);
    let seen = explain_of(&question(URL), changes());
    assert_eq!(seen.status, Some(401), "{seen}");
    says(
        &seen,
        "password",
        "401: a password of the users of shop/users",
    );
    says(&seen, "password", "\"Staff\"");
    let header = "Authorization: Basic YW5uOmh1c2g=".to_owned();
    let with_password = Question::new(URL, "GET", &[header]).expect("a question");
    let seen = explain_of(&with_password, changes());
    assert!(seen.is_served, "{seen}");
    says(&seen, "password", "the password of \"ann\" is verified");
    assert!(!seen.to_string().contains("hush"), "{seen}");
    // Without the Secret nothing is open.
    let seen = explain_of(&question(URL), shop(annotations.clone()));
    assert_eq!(seen.status, Some(503), "{seen}");
}

#[test]
fn a_certificate_is_asked_for_and_plain_text_has_none() {
    let annotations = |need: &str| {
        json!({
            "nginx.ingress.kubernetes.io/auth-tls-secret": "shop/ca",
            "nginx.ingress.kubernetes.io/auth-tls-verify-client": need,
        })
    };
    // An authority that nobody can read verifies nobody, and is one all the same.
    let ca = || {
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let ca = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": "shop", "name": "ca"},
            "type": "Opaque",
            "stringData": {"ca.crt": pem},
        });
        object(ObjectKind::Secret, ca)
    };
    let seen = explain_of(&question(URL), with(shop(annotations("on")), [ca()]));
    assert_eq!((seen.is_served, seen.status), (false, Some(400)), "{seen}");
    let wanted = "400: a client certificate by shop/ca is needed";
    says(&seen, "client certificate", wanted);
    let seen = explain_of(&question(URL), with(shop(annotations("optional")), [ca()]));
    assert!(seen.is_served, "{seen}");
    says(&seen, "client certificate", "and needs none");
    // Without the Secret nothing is open.
    let seen = explain_of(&question(URL), shop(annotations("optional")));
    assert_eq!(seen.status, Some(503), "{seen}");

    let spec = json!({
        "tls": [{"hosts": ["www.shop.test"], "secretName": "own"}],
        "rules": [rule("www.shop.test", "/", "cart")],
    });
    let changes = vec![ingress("front", annotations("on"), spec), ca()];
    let seen = explain_of(&question("https://www.shop.test/"), changes);
    let wanted = "Secret shop/ca is missing, or holds no authorities";
    assert!(seen.answer.contains(wanted), "{seen}");
}

#[test]
fn a_policy_that_denies_is_named_and_the_request_is_not_served() {
    let deny = || {
        let rules = json!([{"to": [{"operation": {"paths": ["/admin"]}}]}]);
        policy("no-admin", json!({"action": "DENY", "rules": rules}))
    };
    let seen = explain_of(&question(URL), with(shop(json!({})), [deny()]));
    assert!(!seen.is_served, "{seen}");
    assert_eq!(seen.status, Some(403));
    let object = "403: denied by AuthorizationPolicy istio-system/no-admin";
    assert!(seen.answer.starts_with(object), "{seen}");
    says(&seen, "authorization", object);
    let other = question("http://www.shop.test/cart");
    let seen = explain_of(&other, with(shop(json!({})), [deny()]));
    assert!(seen.is_served, "{seen}");
    assert_eq!(seen.answer, "is sent to one of 2 endpoints");
}

#[test]
fn a_policy_that_allows_is_weighed_for_the_client_that_is_given() {
    let allow = || {
        let rules = json!([{"from": [{"source": {"ipBlocks": ["192.0.2.0/24"]}}]}]);
        policy("office", json!({"rules": rules}))
    };
    let changes = || with(shop(json!({})), [allow()]);
    let seen = explain_of(&question(URL), changes());
    assert_eq!((seen.is_served, seen.status), (false, Some(403)), "{seen}");
    let wanted = "allowed by none of AuthorizationPolicy istio-system/office, for a client at \
                  127.0.0.1";
    says(&seen, "authorization", wanted);
    let seen = explain_of(&of_client(URL, "192.0.2.9", ""), changes());
    assert!(seen.is_served, "{seen}");
    says(&seen, "authorization", "allowed by AuthorizationPolicy");
}

#[test]
fn a_request_without_the_token_that_a_policy_wants_is_refused() {
    let allow = || {
        let rules =
            json!([{"from": [{"source": {"requestPrincipals": [format!("{ISSUER}/me")]}}]}]);
        policy("known", json!({"rules": rules}))
    };
    let changes = || with(shop(json!({})), [tokens(), allow()]);
    let seen = explain_of(&question(URL), changes());
    assert_eq!((seen.is_served, seen.status), (false, Some(403)), "{seen}");
    says(&seen, "tokens", "has no token of https://issuer.test");
    says(&seen, "authorization", "403: allowed by none");
    let claims = json!({"iss": ISSUER, "sub": "me"}).to_string();
    let seen = explain_of(&of_client(URL, "", &claims), changes());
    assert!(seen.is_served, "{seen}");
    says(&seen, "tokens", "count as verified");
    let headers = ["Authorization: Bearer a.b.c".to_owned()];
    let question = Question::new(URL, "GET", &headers).expect("a question");
    let seen = explain_of(&question, changes());
    assert_eq!((seen.is_served, seen.status), (false, Some(401)), "{seen}");
    says(
        &seen,
        "tokens",
        "the keys of https://issuer.test are not here",
    );
}

#[test]
fn a_provider_that_is_asked_is_named_and_one_that_is_missing_refuses() {
    let asks = |provider: &str| {
        let spec = json!({
            "action": "CUSTOM",
            "provider": {"name": provider},
            "rules": [{"to": [{"operation": {"paths": ["/admin*"]}}]}],
        });
        policy("outside", spec)
    };
    let there = with(shop(json!({})), service("check", &["10.0.0.9"]));
    let seen = explain_of(&question(URL), with(there, [asks("check")]));
    assert!(seen.is_served, "{seen}");
    says(
        &seen,
        "outside authorization",
        "asks provider check at shop/check:80",
    );
    let seen = explain_of(&question(URL), with(shop(json!({})), [asks("check")]));
    assert_eq!((seen.is_served, seen.status), (false, Some(503)), "{seen}");
    says(&seen, "outside authorization", "is missing");
}

#[test]
fn limits_of_a_route_are_told_and_source_ranges_are_weighed() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/limit-connections": "3",
        "nginx.ingress.kubernetes.io/limit-rps": "5",
        "nginx.ingress.kubernetes.io/whitelist-source-range": "192.0.2.0/24",
    });
    let seen = explain_of(&question(URL), shop(annotations.clone()));
    assert_eq!((seen.is_served, seen.status), (false, Some(403)), "{seen}");
    says(
        &seen,
        "source ranges",
        "only clients in 192.0.2.0/24 are admitted",
    );
    let seen = explain_of(&of_client(URL, "192.0.2.9", ""), shop(annotations));
    assert!(seen.is_served, "{seen}");
    says(
        &seen,
        "rate limit",
        "may be limited to 5 per second and client",
    );
    says(
        &seen,
        "rate limit",
        "may be limited to 3 at the same time of a client: 503 beyond",
    );
}

#[test]
fn clients_that_are_denied_are_told_of_whatever_admits_them() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/denylist-source-range": "192.0.2.9",
        "nginx.ingress.kubernetes.io/satisfy": "any",
        "nginx.ingress.kubernetes.io/whitelist-source-range": "192.0.2.0/24",
    });
    let seen = explain_of(&of_client(URL, "192.0.2.9", ""), shop(annotations.clone()));
    assert_eq!((seen.is_served, seen.status), (false, Some(403)), "{seen}");
    says(
        &seen,
        "source ranges",
        "clients in 192.0.2.9/32 are refused, and 192.0.2.9 is one of them",
    );
    let seen = explain_of(&of_client(URL, "192.0.2.8", ""), shop(annotations));
    assert!(seen.is_served, "{seen}");
}

#[test]
fn an_address_that_does_for_a_password_is_told() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/auth-type": "basic",
        "nginx.ingress.kubernetes.io/auth-secret": "users",
        "nginx.ingress.kubernetes.io/satisfy": "any",
        "nginx.ingress.kubernetes.io/whitelist-source-range": "192.0.2.0/24",
    });
    let changes = || with(shop(annotations.clone()), [users()]);
    let seen = explain_of(&of_client(URL, "192.0.2.8", ""), changes());
    assert!(seen.is_served, "{seen}");
    says(&seen, "source ranges", "and need not be authenticated");
    says(&seen, "password", "the address suffices");
    let seen = explain_of(&of_client(URL, "198.51.100.1", ""), changes());
    assert_eq!(seen.status, Some(401), "{seen}");
    says(&seen, "source ranges", "unless it is authenticated");
    says(&seen, "password", "401: a password of the users");
}

#[test]
fn what_browsers_are_told_is_told_with_what_it_takes() {
    let spec = json!({
        "tls": [{"hosts": ["www.shop.test"], "secretName": "own"}],
        "rules": [rule("www.shop.test", "/", "cart")],
    });
    let annotations = json!({
        "myriad.dev/hsts": "max-age=600",
        "nginx.ingress.kubernetes.io/ssl-redirect": "false",
    });
    let changes = with(
        vec![ingress("front", annotations, spec)],
        service("cart", &["10.0.0.1"]),
    );
    let seen = explain_of(&question(URL), changes);
    assert!(seen.is_served, "{seen}");
    says(&seen, "HSTS", "browsers are told nothing: that takes HTTPS");
}

#[test]
fn what_is_put_on_responses_is_told() {
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": "fields"},
        "data": {"X-A": "a", "X-B": "", "X-C": "c"},
    });
    let annotations = json!({
        "nginx.ingress.kubernetes.io/affinity": "cookie",
        "nginx.ingress.kubernetes.io/custom-headers": "shop/fields",
        "nginx.ingress.kubernetes.io/session-cookie-change-on-failure": "false",
    });
    let map = object(ObjectKind::ConfigMap, map);
    let seen = explain_of(&question(URL), with(shop(annotations), [map]));
    assert!(seen.is_served, "{seen}");
    says(&seen, "response headers", "sets x-a, x-c, removes x-b");
    let kept = "cookie INGRESSCOOKIE keeps the client on its endpoint, and comes back to it";
    says(&seen, "session cookie", kept);
}

#[test]
fn what_is_balanced_by_hash_is_told() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/upstream-hash-by": "$request_uri",
    });
    let seen = explain_of(&question(URL), shop(annotations));
    assert!(seen.is_served, "{seen}");
    assert!(
        seen.answer.ends_with("and equal requests to the same"),
        "{seen}"
    );
}

#[test]
fn where_copies_go_and_whose_pages_take_the_place_of_errors_is_told() {
    let annotations = json!({
        "nginx.ingress.kubernetes.io/custom-http-errors": "404,503",
        "nginx.ingress.kubernetes.io/default-backend": "cart",
        "nginx.ingress.kubernetes.io/mirror-target": "http://cart$request_uri",
    });
    let seen = explain_of(&question(URL), shop(annotations));
    assert!(seen.is_served, "{seen}");
    for text in ["; copies go to ", "take the place of [404, 503]"] {
        assert!(seen.answer.contains(text), "{seen}");
    }
}

#[test]
fn the_service_that_an_ingress_has_asked_is_told() {
    let annotations = |url: &str| {
        json!({
            "nginx.ingress.kubernetes.io/auth-url": url,
            "nginx.ingress.kubernetes.io/auth-signin": "https://$host/start",
        })
    };
    let seen = explain_of(
        &question(URL),
        shop(annotations("http://cart/check?a=$host")),
    );
    assert!(seen.is_served, "{seen}");
    says(
        &seen,
        "outside authentication",
        "asks shop/cart:80 by GET /check?a=www.shop.test",
    );
    says(
        &seen,
        "outside authentication",
        "redirected to https://www.shop.test/start?rd=http",
    );
    let seen = explain_of(&question(URL), shop(annotations("http://nobody/")));
    assert!(!seen.is_served, "{seen}");
}

#[test]
fn a_handshake_that_is_handed_on_ends_the_questions() {
    let changes = || {
        let mut changes = vec![
            istio(
                ObjectKind::IstioGateway,
                "edge",
                json!({
                    "selector": {"istio": "ingressgateway"},
                    "servers": [{
                        "port": {"number": 443, "name": "tls", "protocol": "TLS"},
                        "hosts": ["db.shop.test"],
                        "tls": {"mode": "PASSTHROUGH"},
                    }],
                }),
            ),
            istio(
                ObjectKind::VirtualService,
                "db",
                json!({
                    "hosts": ["db.shop.test"],
                    "gateways": ["edge"],
                    "tls": [{
                        "match": [{"sniHosts": ["db.shop.test"]}],
                        "route": [{"destination": {"host": "cart", "port": {"number": 80}}}],
                    }],
                }),
            ),
        ];
        changes.extend(service("cart", &["10.0.0.1"]));
        changes
    };
    let seen = explain_of(&question("https://db.shop.test/"), changes());
    assert!(seen.is_served, "{seen}");
    assert_eq!(seen.answer, "TLS is handed on to one of 1 endpoints");
    says(&seen, "stream", "VirtualService shop/db");
    let named = question("https://10.9.8.7/").of_client("", "db.shop.test", "");
    let seen = explain_of(&named.expect("a question"), changes());
    assert_eq!(seen.answer, "TLS is handed on to one of 1 endpoints");
    let rules = json!([{"from": [{"source": {"ipBlocks": ["127.0.0.1"]}}]}]);
    let deny = policy("no-loopback", json!({"action": "DENY", "rules": rules}));
    let seen = explain_of(&question("https://db.shop.test/"), with(changes(), [deny]));
    assert!(!seen.is_served, "{seen}");
    assert!(seen.answer.contains("a policy does not admit it"), "{seen}");
}

#[test]
fn mutual_tls_of_the_mesh_is_explained_where_the_identity_is() {
    let gateway = istio(
        ObjectKind::IstioGateway,
        "edge",
        json!({
            "selector": {"istio": "ingressgateway"},
            "servers": [{
                "port": {"number": 443, "name": "tls", "protocol": "TLS"},
                "hosts": ["*.shop.test"],
                "tls": {"mode": "ISTIO_MUTUAL"},
            }],
        }),
    );
    let settings = Settings {
        sidecars: true,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, Writer::new(Sealer::new([3; 32], Form::Value)));
    engine.apply(vec![gateway], 0);
    let question = question("https://db.shop.test/");
    let scene = gather::gather(engine.snapshot(), &question.names());
    let seen = answer::explain(&scene, &question, &|_| Vec::new());
    assert!(seen.answer.contains("identity in the mesh"), "{seen}");
}

#[test]
fn what_no_client_is_is_refused() {
    for (client, sni, claims) in [
        ("here", "", ""),
        ("", "192.0.2.1", ""),
        ("", "", "[]"),
        ("", "", "{"),
    ] {
        let asked = question(URL).of_client(client, sni, claims);
        assert!(asked.is_err(), "{client} {sni} {claims}");
    }
}
