//! Tokens of every algorithm, good and bad.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use myriad_model::{
    AccessCheck, AccessPolicy, Authenticate, ClaimHeader, Form, Name, Origin, Resource, SealedArc,
    Sealer, TokenIssuer, TokenKeys, Value as ModelValue,
};
use proptest::prelude::*;

use super::{BadToken, HeadMemory, Remembered, authenticate, change, read};
use crate::codec::head;
use crate::limits::Limits;
use crate::pattern::{Budget, STEPS_MAX};
use crate::route::access_policies::AccessPolicies;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::keys::{Algorithm, KeySet, SIGNATURE_STEPS};

const NOW: i64 = 1_800_000_000;

type Sign = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// Something that signs, and its public key as a member of a key set.
struct Signer {
    algorithm: &'static str,
    key: String,
    sign: Sign,
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn ecdsa(name: &'static str, curve: &str, algorithm: &'static EcdsaSigningAlgorithm) -> Signer {
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let point = pair.public_key().as_ref()[1..].to_vec();
    let (x, y) = point.split_at(point.len() / 2);
    Signer {
        algorithm: name,
        key: format!(
            r#"{{"kty":"EC","crv":"{curve}","kid":"{name}","x":"{}","y":"{}"}}"#,
            encode(x),
            encode(y)
        ),
        sign: Box::new(move |message| {
            let made = pair.sign(&SystemRandom::new(), message).unwrap();
            made.as_ref().to_vec()
        }),
    }
}

fn es256() -> Signer {
    ecdsa("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING)
}

fn eddsa() -> Signer {
    let pair = Ed25519KeyPair::generate().unwrap();
    let key = encode(pair.public_key().as_ref());
    Signer {
        algorithm: "EdDSA",
        key: format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"EdDSA","x":"{key}"}}"#),
        sign: Box::new(move |message| pair.sign(message).as_ref().to_vec()),
    }
}

fn rsa(name: &'static str, encoding: &'static dyn aws_lc_rs::signature::RsaEncoding) -> Signer {
    let pair = RsaKeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    let modulus = pair
        .public_key()
        .modulus()
        .big_endian_without_leading_zero();
    let key = encode(modulus);
    Signer {
        algorithm: name,
        key: format!(r#"{{"kty":"RSA","alg":"{name}","kid":"{name}","n":"{key}","e":"AQAB"}}"#),
        sign: Box::new(move |message| {
            let mut made = vec![0; pair.public_modulus_len()];
            pair.sign(encoding, &SystemRandom::new(), message, &mut made)
                .unwrap();
            made
        }),
    }
}

impl Signer {
    fn set(&self) -> String {
        format!(r#"{{"keys":[{{"kty":"oct","k":"AA"}},{}]}}"#, self.key)
    }

    fn token_by(&self, algorithm: &str, id: &str, claims: &str) -> String {
        let header = format!(r#"{{"alg":"{algorithm}","kid":"{id}"}}"#);
        let message = format!(
            "{}.{}",
            encode(header.as_bytes()),
            encode(claims.as_bytes())
        );
        let signature = encode(&(self.sign)(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn token(&self, claims: &str) -> String {
        self.token_by(self.algorithm, self.algorithm, claims)
    }

    fn issuer(&self) -> TokenIssuer {
        TokenIssuer {
            issuer: "me".into(),
            audiences: Box::default(),
            keys: TokenKeys::Inline(Bytes::from(self.set())),
            headers: [("authorization".into(), "Bearer ".into())].into(),
            params: ["access_token".into()].into(),
            cookies: Box::default(),
            is_forwarded: false,
            payload_header: Box::default(),
            claim_headers: Box::default(),
            word_claims: Box::default(),
        }
    }
}

fn access_policies(issuers: Vec<TokenIssuer>) -> AccessPolicies {
    let resource = Resource {
        origin: Origin::settings(),
        value: ModelValue::AccessPolicy(Box::new(AccessPolicy {
            listeners: [].into(),
            check: AccessCheck::Authenticate(Authenticate {
                issuers: issuers.into(),
            }),
        })),
    };
    let name = Name::from("tokens");
    let sealed = Sealer::new([1; 32], Form::Value).seal(name.clone(), resource);
    AccessPolicies::default().with(&name, Some(&SealedArc::new(sealed)))
}

/// The principal of a request with these fields, by an issuer.
fn principal(
    issuers: Vec<TokenIssuer>,
    target: &str,
    fields: &str,
) -> Result<Option<String>, BadToken> {
    let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let access_policies = access_policies(issuers);
    let remembered = Remembered::default();
    // Twice, since what is remembered must be judged like what is not.
    let first = authenticate(
        &access_policies,
        &visit,
        &head,
        &remembered,
        NOW,
        &Budget::default(),
    );
    let first = first.map(|it| it.map(|it| it.said().principal().unwrap_or_default().to_owned()));
    let second = authenticate(
        &access_policies,
        &visit,
        &head,
        &remembered,
        NOW,
        &Budget::default(),
    );
    let second = second.map(|it| it.map(|it| it.said().principal().unwrap_or_default().to_owned()));
    assert_eq!(first, second);
    first
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

const GOOD: &str = r#"{"iss":"me","sub":"ann","exp":1800000600}"#;

#[test]
fn each_algorithm_is_verified_by_its_own_key_and_no_other() {
    let signers = [
        es256(),
        ecdsa("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ecdsa("ES512", "P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
        eddsa(),
        rsa("RS256", &RSA_PKCS1_SHA256),
        rsa("PS256", &RSA_PSS_SHA256),
    ];
    for (at, signer) in signers.iter().enumerate() {
        let fields = bearer(&signer.token(GOOD));
        for (other_at, other) in signers.iter().enumerate() {
            let found = principal(vec![other.issuer()], "/", &fields);
            let wanted = match at == other_at {
                true => Ok(Some("me/ann".to_owned())),
                false => Err(BadToken),
            };
            assert_eq!(found, wanted, "{} {}", signer.algorithm, other.algorithm);
        }
    }
}

#[test]
fn a_token_is_of_its_issuer_audience_and_time() {
    let signer = es256();
    for (claims, is_good) in [
        (GOOD, true),
        (r#"{"iss":"me","sub":"ann"}"#, true),
        (r#"{"iss":"you","sub":"ann"}"#, false),
        (r#"{"sub":"ann"}"#, false),
        // A minute is forgiven either way.
        (r#"{"iss":"me","sub":"ann","exp":1799999941}"#, true),
        (r#"{"iss":"me","sub":"ann","exp":1799999940}"#, false),
        (r#"{"iss":"me","sub":"ann","nbf":1800000060}"#, true),
        (r#"{"iss":"me","sub":"ann","nbf":1800000061}"#, false),
        (r#"{"iss":"me","sub":"ann","exp":"never"}"#, false),
        (r#"[]"#, false),
    ] {
        let found = principal(vec![signer.issuer()], "/", &bearer(&signer.token(claims)));
        assert_eq!(found.is_ok(), is_good, "{claims}");
    }
    for (audience, is_good) in [
        (r#""shop""#, true),
        (r#""shop/""#, true),
        (r#"["other","shop"]"#, true),
        (r#""other""#, false),
        ("7", false),
    ] {
        let mut issuer = signer.issuer();
        issuer.audiences = ["shop".into()].into();
        let claims = format!(r#"{{"iss":"me","sub":"ann","aud":{audience}}}"#);
        let found = principal(vec![issuer], "/", &bearer(&signer.token(&claims)));
        assert_eq!(found.is_ok(), is_good, "{audience}");
    }
}

#[test]
fn no_token_is_admitted_and_a_damaged_one_is_not() {
    let signer = es256();
    let issuers = || vec![signer.issuer()];
    assert_eq!(principal(issuers(), "/", ""), Ok(None));
    let basic = "Authorization: Basic YTpi\r\n";
    assert_eq!(principal(issuers(), "/", basic), Ok(None));
    let good = signer.token(GOOD);
    let (head, signature) = good.rsplit_once('.').unwrap();
    let none = format!(
        "{}.{}.",
        encode(br#"{"alg":"none"}"#),
        encode(GOOD.as_bytes())
    );
    let crit = encode(br#"{"alg":"ES256","crit":["b64"],"b64":false}"#);
    for bad in [
        format!("{head}."),
        head.to_owned(),
        format!("{head}x.{signature}"),
        none,
        format!("{crit}.{}.{signature}", encode(GOOD.as_bytes())),
        signer.token_by("HS256", "ES256", GOOD),
        signer.token_by("ES256", "unknown", GOOD),
        "a.b.c".to_owned(),
        "x".repeat(20_000),
    ] {
        let found = principal(issuers(), "/", &bearer(&bad));
        assert_eq!(found, Err(BadToken), "{bad}");
    }
}

#[test]
fn tokens_are_found_where_an_issuer_has_them() {
    let signer = es256();
    let good = signer.token(GOOD);
    let mut issuer = signer.issuer();
    issuer.headers = [("x-token".into(), Box::default())].into();
    issuer.cookies = ["session".into()].into();
    let found = |target: &str, fields: &str| principal(vec![issuer.clone()], target, fields);
    let ann = || Ok(Some("me/ann".to_owned()));
    assert_eq!(found("/", &format!("X-Token: {good}\r\n")), ann());
    assert_eq!(found(&format!("/?a=b&access_token={good}"), ""), ann());
    assert_eq!(
        found("/", &format!("Cookie: a=b; session={good}\r\n")),
        ann()
    );
    assert_eq!(found("/", &bearer(&good)), Ok(None));
}

#[test]
fn a_valid_token_lets_no_forged_one_through() {
    let signer = es256();
    let good = signer.token(GOOD);
    let forged = format!(
        "{}.{}.",
        encode(br#"{"alg":"none"}"#),
        encode(br#"{"iss":"me","sub":"root"}"#)
    );
    let mut issuer = signer.issuer();
    issuer.cookies = ["session".into()].into();
    let param = |token: &str| format!("/?a=b&access_token={token}");
    let escaped = |token: &str| format!("/?access%5ftoken={token}");
    let behind = |token: &str| format!("/?a=b;x;access_token={token}&c=d");
    let cookie = |token: &str| format!("Cookie: session={token}\r\n");
    let twice = |first: &str, second: &str| bearer(first) + &bearer(second);
    let ann = || Ok(Some("me/ann".to_owned()));
    let root = "/".to_owned();
    for (target, fields, wanted) in [
        (root.clone(), bearer(&good) + &cookie(&good), ann()),
        (param(&good), bearer(&good) + &cookie(&good), ann()),
        (escaped(&good), String::new(), ann()),
        (behind(&good), String::new(), ann()),
        (root.clone(), twice(&good, &good), ann()),
        // An empty cookie is no token.
        (root.clone(), bearer(&good) + &cookie(""), ann()),
        (
            root.clone(),
            bearer(&forged) + &cookie(&good),
            Err(BadToken),
        ),
        (
            root.clone(),
            bearer(&good) + &cookie(&forged),
            Err(BadToken),
        ),
        (
            root.clone(),
            bearer(&good) + &format!("Cookie: session\t={forged}\r\n"),
            Err(BadToken),
        ),
        (param(&good), bearer(&forged), Err(BadToken)),
        (param(&forged), bearer(&good), Err(BadToken)),
        (escaped(&forged), bearer(&good), Err(BadToken)),
        // For some servers a semicolon ends a parameter, and for others it is one of its letters.
        (behind(&forged), bearer(&good), Err(BadToken)),
        (param(&good) + ";x=y", bearer(&good), Err(BadToken)),
        (
            param(&good) + "&access_token=" + &forged,
            String::new(),
            Err(BadToken),
        ),
        (root.clone(), twice(&good, &forged), Err(BadToken)),
        (root.clone(), twice(&forged, &good), Err(BadToken)),
        (
            root,
            cookie(&good) + &format!("Authorization: Bearer\t{forged}\r\n"),
            Err(BadToken),
        ),
    ] {
        let found = principal(vec![issuer.clone()], &target, &fields);
        assert_eq!(found, wanted, "{target} {fields}");
    }
    // No request makes the proxy verify tokens without end, and none passes unverified.
    let many = |count| principal(vec![issuer.clone()], "/", &bearer(&good).repeat(count));
    assert_eq!(many(16), ann());
    assert_eq!(many(17), Err(BadToken));
}

#[test]
fn a_token_needs_one_of_the_issuers_that_look_where_it_is() {
    let (first, second) = (es256(), eddsa());
    let issuers = || vec![first.issuer(), second.issuer()];
    let bob = second.token(r#"{"iss":"me","sub":"bob"}"#);
    let found = principal(issuers(), "/", &bearer(&bob));
    assert_eq!(found, Ok(Some("me/bob".to_owned())));
    // The first issuer decides, wherever its token is.
    let target = format!("/?access_token={}", first.token(GOOD));
    let found = principal(issuers(), &target, &bearer(&bob));
    assert_eq!(found, Ok(Some("me/ann".to_owned())));
    // What no issuer looks at is no token.
    let mut narrow = first.issuer();
    narrow.params = Box::default();
    let found = principal(
        vec![narrow],
        "/?access_token=x",
        &bearer(&first.token(GOOD)),
    );
    assert_eq!(found, Ok(Some("me/ann".to_owned())));
}

#[test]
fn all_tokens_that_are_not_passed_on_are_taken_out() {
    let (first, second) = (es256(), eddsa());
    let shown = |is_forwarded| {
        let mut keeping = second.issuer();
        keeping.is_forwarded = is_forwarded;
        let access_policies = access_policies(vec![first.issuer(), keeping]);
        let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
        let text = format!(
            "GET /?a=b&access_token={0}&c;access_token={0};d HTTP/1.1\r\nHost: a\r\n{1}\r\n",
            first.token(GOOD),
            bearer(&second.token(GOOD))
        );
        let mut room = HeadMemory::default();
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let found = authenticate(
            &access_policies,
            &visit,
            &head,
            &Remembered::default(),
            NOW,
            &Budget::default(),
        );
        let verified = found.unwrap().unwrap();
        let changed = change(&access_policies, &visit, &head, Some(&verified), &mut room).unwrap();
        let mut fields = changed.fields.iter();
        let is_kept = fields.any(|field| field.name.eq_ignore_ascii_case("authorization"));
        (changed.query.unwrap_or_default().to_owned(), is_kept)
    };
    assert_eq!(shown(false), ("a=b&c;d".to_owned(), false));
    assert_eq!(shown(true), ("a=b&c;d".to_owned(), true));
}

#[test]
fn only_a_verified_token_fills_its_fields_and_it_goes_no_further() {
    let signer = es256();
    let mut issuer = signer.issuer();
    issuer.payload_header = "x-payload".into();
    issuer.claim_headers = [("x-sub", "sub"), ("x-age", "age")]
        .map(|(header, claim)| ClaimHeader {
            header: header.into(),
            claim: [claim.into()].into(),
        })
        .into();
    let access_policies = access_policies(vec![issuer]);
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let token = signer.token(r#"{"iss":"me","sub":"ann","age":7}"#);
    let show = |fields: &str| {
        let text = format!("GET /?a=b HTTP/1.1\r\nHost: a\r\nConnection: x-sub\r\n{fields}\r\n");
        let mut room = HeadMemory::default();
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let found = authenticate(
            &access_policies,
            &visit,
            &head,
            &Remembered::default(),
            NOW,
            &Budget::default(),
        );
        let verified = found.unwrap_or_default();
        let changed = change(
            &access_policies,
            &visit,
            &head,
            verified.as_ref(),
            &mut room,
        )
        .unwrap();
        let fields = changed
            .fields
            .iter()
            .filter(|it| it.name.contains("x-") || it.name.contains('_'));
        let fields: Vec<String> = fields
            .map(|it| format!("{}={}", it.name, String::from_utf8_lossy(it.value)))
            .collect();
        fields.join(" ")
    };
    // Who is not known must not say who it is.
    assert_eq!(show("x-sub: eve\r\nx-payload: e30\r\n"), "");
    // Nor in a spelling that servers take for it.
    assert_eq!(show("x_sub: eve\r\nX-sub: eve\r\nX_Payload: e30\r\n"), "");
    let shown = show(&format!("{}x-sub: eve\r\n", bearer(&token)));
    assert!(shown.ends_with("x-sub=ann x-age=7"), "{shown}");
    assert!(!shown.contains("eve"), "{shown}");
}

#[test]
fn keys_of_another_set_are_not_taken_for_those_that_verified_before() {
    let (first, second) = (es256(), es256());
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let text = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        bearer(&first.token(GOOD))
    );
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let remembered = Remembered::default();
    let before = access_policies(vec![first.issuer()]);
    assert!(authenticate(&before, &visit, &head, &remembered, NOW, &Budget::default()).is_ok());
    let after = access_policies(vec![second.issuer()]);
    assert!(authenticate(&after, &visit, &head, &remembered, NOW, &Budget::default()).is_err());
    // Time passes for what is remembered too.
    assert!(
        authenticate(
            &before,
            &visit,
            &head,
            &remembered,
            NOW + 3_600,
            &Budget::default()
        )
        .is_err()
    );
}

/// Forged tokens and many keys cost no more than the budget, and the same forged token once.
#[test]
fn signatures_take_steps_and_a_refused_token_is_not_tried_again() {
    let (forger, signer) = (es256(), es256());
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let access_policies = access_policies(vec![signer.issuer()]);
    let remembered = Remembered::default();
    let steps = |tokens: &[String]| {
        let tokens: Vec<String> = tokens
            .iter()
            .map(|it| format!("access_token={it}"))
            .collect();
        let text = format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", tokens.join("&"));
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let budget = Budget::default();
        let found = authenticate(&access_policies, &visit, &head, &remembered, NOW, &budget);
        assert!(found.is_err());
        budget.taken() as usize
    };
    let forge = |number: usize| forger.token(&format!(r#"{{"iss":"me","sub":"{number}"}}"#));
    let forged: Vec<String> = (0..18).map(forge).collect();
    assert_eq!(steps(&forged[..1]), SIGNATURE_STEPS);
    assert_eq!(steps(&forged[..1]), 0);
    assert_eq!(steps(&forged[..2]), SIGNATURE_STEPS);
    assert_eq!(steps(&forged[2..]), STEPS_MAX as usize);
}

/// They took as many by a curve of 521 bits as by one of 256, which is several times as quick.
#[test]
fn signatures_take_steps_by_their_algorithm_and_the_length_of_the_key() {
    let tried = |signer: &Signer| {
        let keys = KeySet::read(signer.set().as_bytes()).unwrap();
        let budget = Budget::default();
        let by = (Algorithm::of(signer.algorithm).unwrap(), None);
        assert!(!keys.verifies(by, b"forged", &[0; 64], &budget));
        budget.taken() as usize
    };
    let of_curve = |name, curve, algorithm| tried(&ecdsa(name, curve, algorithm));
    let p384 = of_curve("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING);
    let p521 = of_curve("ES512", "P-521", &ECDSA_P521_SHA512_FIXED_SIGNING);
    let of_others = [tried(&es256()), tried(&eddsa())];
    assert_eq!(of_others, [SIGNATURE_STEPS; 2]);
    assert_eq!([p384, p521], [3, 5].map(|times| times * SIGNATURE_STEPS));
    let of_length = |bytes: usize| {
        let modulus = encode(&vec![0xff; bytes]);
        tried(&Signer {
            algorithm: "PS512",
            key: format!(r#"{{"kty":"RSA","n":"{modulus}","e":"AQAB"}}"#),
            sign: Box::new(<[u8]>::to_vec),
        })
    };
    let of_bits = [2_048, 4_096, 6_144, 8_192, 16_384].map(|bits| of_length(bits / 8));
    let quarters = [4, 4, 9, 16, 16];
    assert_eq!(of_bits, quarters.map(|it| it * SIGNATURE_STEPS / 4));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_of_tokens_panic(parts in prop::collection::vec(".{0,40}", 0..5)) {
        let keys = KeySet::default();
        prop_assert!(read(&parts.join("."), &keys).is_none());
    }

    #[test]
    fn no_header_and_payload_make_it_panic(header in ".{0,60}", payload in any::<Vec<u8>>()) {
        let signer = eddsa();
        let keys = KeySet::read(signer.set().as_bytes()).unwrap();
        for header in [header.as_str(), r#"{"alg":"EdDSA"}"#] {
            let message = format!("{}.{}", encode(header.as_bytes()), encode(&payload));
            let signature = encode(&(signer.sign)(message.as_bytes()));
            let _ = read(&format!("{message}.{signature}"), &keys);
        }
    }

    #[test]
    fn no_key_set_makes_its_reader_panic(json in any::<Vec<u8>>(), x in ".{0,60}") {
        let _ = KeySet::read(&json);
let set = format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","x":"{x}"}}]}}"#);
        let _ = KeySet::read(set.as_bytes());
    }
}
