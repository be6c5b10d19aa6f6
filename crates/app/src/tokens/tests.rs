//! Service account tokens, good and bad.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};

use super::{Identity, Refused, Tokens};
use crate::dedicated::DedicatedGateways;

const NOW: i64 = 1_800_000_000;

/// The key of RFC 8037, appendix A, and one of a kind that verifies nothing.
const PUBLISHED: &[u8] = br#"{"keys":[
    {"kty":"oct","kid":"secret","k":"AA"},
    {"kty":"OKP","crv":"Ed25519","kid":"ours",
     "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// The private part of the key.
const PRIVATE: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

/// The first bytes of a private key of Ed25519 in PKCS#8 (RFC 8410, section 7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn token(header: &Value, claims: &Value) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let mut der = PKCS8.to_vec();
    der.extend(URL_SAFE_NO_PAD.decode(PRIVATE).unwrap());
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(der)).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
    let signature = signer.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn header() -> Value {
    json!({"alg": "EdDSA", "kid": "ours"})
}

fn claims() -> Value {
    json!({
        "aud": ["myriad"],
        "exp": NOW + 600,
        "nbf": NOW - 10,
        "kubernetes.io": {
            "namespace": "edge",
            "serviceaccount": {"name": "proxy"},
            "pod": {"name": "proxy-1", "uid": "u1"},
        },
    })
}

fn tokens(admits_sidecars: bool) -> Tokens {
    let account = ("edge".to_owned(), "proxy".to_owned());
    let tokens = Tokens::new([(account, Arc::from("gateways"))].into(), admits_sidecars);
    tokens.set_keys(PUBLISHED).unwrap();
    tokens
}

/// The claims with one of them replaced, or taken away.
fn with(name: &str, value: Option<Value>) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().unwrap();
    members.remove(name);
    members.extend(value.map(|value| (name.to_owned(), value)));
    claims
}

#[test]
fn a_proxy_is_who_its_token_says() {
    let found = tokens(false).check_at(&token(&header(), &claims()), NOW);
    let wanted = Identity {
        namespace: "edge".to_owned(),
        account: "proxy".to_owned(),
        pod: "proxy-1".to_owned(),
        pod_uid: "u1".to_owned(),
        view: Some("gateways".into()),
        is_operators: true,
    };
    assert_eq!(found, Ok(wanted));
}

#[test]
fn pods_of_one_name_have_seats_of_their_own() {
    let seat = |pod: Value| {
        let bound = json!({
            "namespace": "edge",
            "serviceaccount": {"name": "proxy"},
            "pod": pod,
        });
        let claims = with("kubernetes.io", Some(bound));
        let found = tokens(false).check_at(&token(&header(), &claims), NOW);
        found.unwrap().seat()
    };
    let first = seat(json!({"name": "proxy-1", "uid": "u1"}));
    assert_eq!(first, seat(json!({"name": "proxy-1", "uid": "u1"})));
    assert_ne!(first, seat(json!({"name": "proxy-1", "uid": "u2"})));
    assert_eq!(&*seat(json!({"name": "proxy-1"})), "proxy-1");
    assert_eq!(&*seat(Value::Null), "", "it is bound to none");
}

#[test]
fn the_account_of_a_gateway_sees_its_view_while_it_is_there_and_is_not_the_operators() {
    let dedicated = DedicatedGateways::default();
    let tokens = tokens(false).with_dedicated(dedicated.clone());
    let claims = |namespace: &str, account: &str| {
        let bound = json!({
            "namespace": namespace,
            "serviceaccount": {"name": account},
            "pod": {"name": "any"},
        });
        token(&header(), &with("kubernetes.io", Some(bound)))
    };
    let admitted = |namespace: &str, account: &str| {
        let found = tokens.check_at(&claims(namespace, account), NOW);
        found.map(|it| (it.view, it.is_operators))
    };
    let refused = |account: &str| Err(Refused::Account(account.to_owned()));
    assert_eq!(admitted("shop", "web-myriad"), refused("shop/web-myriad"));
    dedicated.put(&"shop/web".into()).unwrap();
    let view = Some("gateway/shop/web".into());
    assert_eq!(admitted("shop", "web-myriad"), Ok((view, false)));
    assert_eq!(admitted("blog", "web-myriad"), refused("blog/web-myriad"));
    // A Gateway whose account the operator has named takes nothing from that.
    dedicated.put(&"edge/proxy".into()).unwrap();
    assert_eq!(
        admitted("edge", "proxy"),
        Ok((Some("gateways".into()), true))
    );
    dedicated.remove("shop/web").unwrap();
    assert_eq!(admitted("shop", "web-myriad"), refused("shop/web-myriad"));
}

#[test]
fn a_token_is_for_us_and_of_its_time() {
    for (claim, value, is_good) in [
        ("aud", Some(json!("myriad")), true),
        ("aud", Some(json!(["api", "myriad"])), true),
        ("aud", Some(json!(["api"])), false),
        ("aud", Some(json!("myriad/")), false),
        ("aud", Some(json!([["myriad"]])), false),
        ("aud", None, false),
        ("exp", Some(json!(NOW - 59)), true),
        ("exp", Some(json!(NOW - 60)), false),
        ("exp", Some(json!("never")), false),
        ("exp", Some(Value::Null), false),
        ("exp", None, false),
        ("nbf", Some(json!(NOW + 60)), true),
        ("nbf", Some(json!(NOW + 61)), false),
        ("nbf", None, true),
        ("kubernetes.io", Some(json!({"namespace": "edge"})), false),
        ("kubernetes.io", None, false),
    ] {
        let token = token(&header(), &with(claim, value.clone()));
        let found = tokens(false).check_at(&token, NOW);
        match is_good {
            true => assert!(found.is_ok(), "{claim} {value:?}: {found:?}"),
            false => assert!(
                matches!(found, Err(Refused::Invalid(_))),
                "{claim} {value:?}: {found:?}"
            ),
        }
    }
}

#[test]
fn a_token_that_no_published_key_made_is_refused() {
    let tokens = tokens(false);
    let good = token(&header(), &claims());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (head, _) = message.split_once('.').unwrap();
    let other = encode(&with("exp", Some(json!(NOW + 9_000))));
    let invalid = |token: &str| matches!(tokens.check_at(token, NOW), Err(Refused::Invalid(_)));
    assert!(invalid(&format!("{head}.{other}.{signature}")));
    assert!(invalid(&format!("{message}.")));
    // A key is for the algorithm of its kind alone.
    for algorithm in ["RS256", "ES256", "ES384", "PS256", "ES512"] {
        let header = json!({"alg": algorithm, "kid": "ours"});
        assert!(invalid(&token(&header, &claims())), "{algorithm}");
    }
    for header in [
        json!({"alg": "none", "kid": "ours"}),
        json!({"alg": "HS256", "kid": "secret"}),
        json!({"kid": "ours"}),
        json!({"alg": "EdDSA", "kid": "ours", "crit": ["b64"], "b64": false}),
    ] {
        let found = tokens.check_at(&token(&header, &claims()), NOW);
        assert_eq!(found, Err(Refused::Unreadable), "{header}");
    }
    let long = format!("{good}{}", "A".repeat(16 << 10));
    for text in ["", "a.b.c", message, &long] {
        let found = tokens.check_at(text, NOW);
        assert_eq!(found, Err(Refused::Unreadable), "{text:.60}");
    }
}

#[tokio::test]
async fn a_key_that_is_not_known_makes_the_keys_stale() {
    let tokens = tokens(false);
    for header in [
        json!({"alg": "EdDSA"}),
        json!({"alg": "EdDSA", "kid": "next"}),
        json!({"alg": "EdDSA", "kid": "secret"}),
    ] {
        let found = tokens.check_at(&token(&header, &claims()), NOW);
        assert_eq!(found, Err(Refused::UnknownKey), "{header}");
        tokens.stale.notified().await;
    }
    // A set that cannot be used leaves the former one in place.
    assert!(tokens.set_keys(br#"{"keys":[]}"#).is_err());
    assert!(tokens.set_keys(b"{").is_err());
    assert!(tokens.check_at(&token(&header(), &claims()), NOW).is_ok());
}

#[test]
fn other_accounts_are_admitted_where_there_may_be_sidecars_and_their_pod_is_named() {
    let bound = |pod: Option<Value>| {
        let mut bound = json!({"namespace": "shop", "serviceaccount": {"name": "cart"}});
        let members = bound.as_object_mut().unwrap();
        members.extend(pod.map(|pod| ("pod".to_owned(), pod)));
        token(&header(), &with("kubernetes.io", Some(bound)))
    };
    let pod = bound(Some(json!({"name": "cart-1"})));
    let refused = Err(Refused::Account("shop/cart".to_owned()));
    assert_eq!(tokens(false).check_at(&pod, NOW), refused);
    assert_eq!(tokens(true).check_at(&bound(None), NOW), refused);
    let found = tokens(true).check_at(&pod, NOW).unwrap();
    assert_eq!((&*found.pod, found.view), ("cart-1", None));
}
