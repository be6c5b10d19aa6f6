//! Clients that are asked for certificates.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock;
use myriad_model::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authorize, CertificateDemand, CertificateNeed, CipherSuite, ClientAuth, ClientAuthMode, Kind,
    TlsSettings, TlsVersion, Trust, Users, Value,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};

use super::world::{Backend, World, certificate, domain, route, trust, trusting, with_policy};

const WORKLOAD: &str = "spiffe://mesh/ns/a/sa/b";

struct Authority(Issuer<'static, KeyPair>, Bytes);

impl Authority {
    fn new() -> Self {
        Authority::named("rcgen self signed cert")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        let der = Bytes::from(own.der().to_vec());
        Authority(Issuer::new(params, key), der)
    }

    /// A configuration that shows a certificate of this authority for the workload.
    fn client(&self) -> Arc<ClientConfig> {
        self.client_of(&[&TLS12, &TLS13])
    }

    /// A client that speaks these versions alone.
    fn client_of(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let params = CertificateParams::new(Vec::new()).unwrap();
        self.client_with(params, versions)
    }

    /// A client whose certificate ends so many seconds after the epoch.
    fn client_until(
        &self,
        end: i64,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(end.unsigned_abs());
        self.client_with(params, &[version])
    }

    fn client_with(
        &self,
        mut params: CertificateParams,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let uri = SanType::URI(WORKLOAD.try_into().unwrap());
        params.subject_alt_names.push(uri);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let chain = vec![CertificateDer::from(leaf.der().to_vec())];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(trust())
            .with_client_auth_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}

/// A world whose `a.example` asks clients, and tells what the endpoint saw.
async fn world(authority: &Authority, auth: ClientAuth) -> World {
    world_of([authority.1.clone()].into(), auth).await
}

/// A world with any authorities.
async fn world_of(roots: Box<[Bytes]>, auth: ClientAuth) -> World {
    let backend = Backend::answering(|head| {
        let told = head.lines().filter(|line| {
            line.starts_with("x-forwarded-client-cert") || line.starts_with("ssl-client-")
        });
        let told = told.collect::<Vec<&str>>().join("\n");
        let told = if told.is_empty() { "nothing" } else { &told };
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{told}",
            told.len()
        )
    })
    .await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    let mut asking = domain("a.example", Some("cert"), TlsSettings::default());
    asking.client_auth = Some(Arc::new(auth));
    let open = domain("b.example", Some("cert"), TlsSettings::default());
    let own = certificate(&["a.example", "b.example"]);
    let crls = Box::default();
    world.put_all(vec![
        ("cert", Value::Certificate(Box::new(own))),
        (
            "ca",
            Value::Trust(Box::new(Trust {
                roots,
                crls,
                users: Users::default(),
            })),
        ),
        ("a.example", Value::Domain(Box::new(asking))),
        ("b.example", Value::Domain(Box::new(open))),
    ]);
    world
}

fn auth(mode: ClientAuthMode, names: &[&str]) -> ClientAuth {
    ClientAuth {
        trust: "ca".into(),
        mode,
        subject_alt_names: names.iter().map(|name| (*name).into()).collect(),
        key_hashes: Box::default(),
        certificate_hashes: Box::default(),
        depth: 0,
    }
}

/// Status and body of a request for a host by a handshake for `a.example`; none where that or
/// what follows it fails.
async fn ask(world: &World, config: &Arc<ClientConfig>, host: &str) -> Option<(String, String)> {
    ask_by(world, config, "a.example", host).await
}

/// The same by a handshake for any name.
#[expect(clippy::disallowed_methods, reason = "bounded by `take`")]
async fn ask_by(
    world: &World,
    config: &Arc<ClientConfig>,
    name: &str,
    host: &str,
) -> Option<(String, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut client = world.tls_client_with(name, config).await.ok()?;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Client-Cert: Hash=forged\r\n\
         SSL-Client-Verify: forged\r\nConnection: close\r\n\r\n"
    );
    client.stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = Vec::new();
    // In TLS 1.3 a client learns of an alert only when it reads.
    let mut answer = client.stream.take(64 << 10);
    answer.read_to_end(&mut text).await.ok()?;
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head[9..12].to_owned(), body.to_owned()))
}

#[tokio::test]
async fn a_certificate_is_required_verified_and_told() {
    let authority = Authority::new();
    let world = world(&authority, auth(ClientAuthMode::Required, &[WORKLOAD])).await;
    let (status, told) = ask(&world, &authority.client(), "a.example").await.unwrap();
    assert_eq!(status, "200");
    let is_told = told.contains("Hash=") && told.contains(&format!(";URI={WORKLOAD}"));
    assert!(is_told && !told.contains("forged"), "{told}");
    assert!(
        ask(&world, &trusting(), "a.example").await.is_none(),
        "without"
    );
    let other = Authority::new().client();
    assert!(
        ask(&world, &other, "a.example").await.is_none(),
        "of another authority"
    );
}

/// A client came back for as long as it liked, by a session that its certificate had begun.
#[tokio::test]
async fn no_session_is_resumed_once_the_certificate_that_began_it_has_ended() {
    let authority = Authority::new();
    let resumed = "handshakes_total{outcome=\"resumed\"} 2\n";
    let mut cases = Vec::new();
    for mode in [ClientAuthMode::Required, ClientAuthMode::Optional] {
        for version in [&TLS12, &TLS13] {
            let case = format!("{mode:?} {version:?}");
            let world = world(&authority, auth(mode, &[])).await;
            let lasting = authority.client_of(&[version]);
            for _ in 0..3 {
                let (status, _) = ask(&world, &lasting, "a.example").await.expect(&case);
                assert_eq!(status, "200", "{case}");
            }
            world.counts(resumed).await;
            let end = clock::unix_seconds() + 3;
            let client = authority.client_until(end, version);
            let (status, _) = ask(&world, &client, "a.example").await.expect(&case);
            assert_eq!(status, "200", "{case}");
            cases.push((case, world, client, end));
        }
    }
    for (case, world, client, end) in cases {
        while clock::unix_seconds() <= end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let late = ask(&world, &client, "a.example").await;
        assert!(late.is_none(), "{case}: {late:?}");
        world.counts(resumed).await;
    }
}

/// Names of a certificate beyond those that are read were compared with each that is wanted.
#[tokio::test]
async fn a_certificate_of_too_many_names_is_not_one_that_is_asked_for_by_name() {
    let authority = Authority::new();
    let world = world(&authority, auth(ClientAuthMode::Required, &[WORKLOAD])).await;
    let of = |count: u32| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let address = |number: u32| SanType::IpAddress(Ipv4Addr::from(number).into());
        params.subject_alt_names = (1..count).map(address).collect();
        authority.client_with(params, &[&TLS13])
    };
    let (status, _) = ask(&world, &of(1_024), "a.example").await.unwrap();
    assert_eq!(status, "200");
    assert!(ask(&world, &of(1_025), "a.example").await.is_none());
}

/// Authorities with names of about 300 bytes each, none of which anybody is verified by.
fn long_named(count: usize) -> Vec<Bytes> {
    let key = KeyPair::generate().unwrap();
    let make = |number: usize| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("{number:0300}");
        params.distinguished_name.push(DnType::CommonName, name);
        Bytes::from(params.self_signed(&key).unwrap().der().to_vec())
    };
    (0..count).map(make).collect()
}

/// More than a message holds ended the process.
#[tokio::test]
async fn authorities_with_more_names_than_a_message_holds_verify_all_the_same() {
    let authority = Authority::new();
    let other = Authority::new();
    // Two bounds: that of hints, and that of a message.
    for count in [80, 300] {
        let mut roots = long_named(count);
        roots.push(authority.1.clone());
        for mode in [ClientAuthMode::Optional, ClientAuthMode::Required] {
            let world = world_of(roots.clone().into(), auth(mode, &[])).await;
            for version in [&TLS12, &TLS13] {
                let known = ask(&world, &authority.client_of(&[version]), "a.example").await;
                let case = format!("{count} {mode:?} {version:?}");
                let (status, told) = known.expect(&case);
                assert_eq!(status, "200", "{case}");
                assert!(told.contains(&format!(";URI={WORKLOAD}")), "{case}: {told}");
                let of_other = ask(&world, &other.client_of(&[version]), "a.example").await;
                assert!(of_other.is_none(), "{case}: {of_other:?}");
            }
            let stranger = ask(&world, &trusting(), "a.example").await;
            assert_eq!(stranger.is_some(), mode == ClientAuthMode::Optional);
        }
    }
}

/// A policy on the identity in the clients' certificates.
fn access_policy(action: AccessAction, form: AccessMatcher) -> Value {
    let test = AccessTest {
        subject: AccessSubject::Principal,
        any: [form].into(),
        none: Box::default(),
    };
    let rule = AccessRule {
        from: [[test].into()].into(),
        ..AccessRule::default()
    };
    Value::AccessPolicy(Box::new(AccessPolicy {
        listeners: Default::default(),
        check: AccessCheck::Authorize(Authorize {
            action,
            is_dry_run: false,
            rules: [rule].into(),
        }),
    }))
}

#[tokio::test]
async fn policies_see_the_identity_in_the_certificate_and_none_where_there_is_none() {
    let authority = Authority::new();
    let mut world = world(&authority, auth(ClientAuthMode::Optional, &[])).await;
    let (known, stranger) = (authority.client(), trusting());
    let own = || AccessMatcher::Exact("mesh/ns/a/sa/b".into());
    let cases = [
        (AccessAction::Allow, own(), ["200", "403"]),
        (AccessAction::Deny, own(), ["403", "200"]),
        (
            AccessAction::Allow,
            AccessMatcher::Exact("mesh/ns/a/sa/c".into()),
            ["403", "403"],
        ),
    ];
    for (action, form, expected) in cases {
        world.put("g", access_policy(action.clone(), form));
        for (client, expected) in [&known, &stranger].into_iter().zip(expected) {
            let (status, _) = ask(&world, client, "a.example").await.unwrap();
            assert_eq!(status, expected, "{action:?}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_wanted_fails_even_where_none_is_needed() {
    let authority = Authority::new();
    let world = world(
        &authority,
        auth(ClientAuthMode::Optional, &["spiffe://other"]),
    )
    .await;
    let (status, told) = ask(&world, &trusting(), "a.example").await.unwrap();
    assert_eq!((&*status, &*told), ("200", "nothing"));
    assert!(
        ask(&world, &authority.client(), "a.example")
            .await
            .is_none()
    );
}

#[tokio::test]
async fn nobody_is_verified_without_authorities_and_no_other_policy_is_reached() {
    let authority = Authority::new();
    let mut world = world(&authority, auth(ClientAuthMode::Required, &[])).await;
    let client = authority.client();
    let (status, _) = ask(&world, &client, "b.example").await.unwrap();
    assert_eq!(status, "421");
    assert_eq!(ask(&world, &client, "a.example").await.unwrap().0, "200");
    world.remove(Kind::Trust, "ca");
    assert!(ask(&world, &client, "a.example").await.is_none());
}

/// A world whose `a.example` leaves certificates to its route, which demands this.
async fn judging(authority: &Authority, change: impl FnOnce(&mut CertificateDemand)) -> World {
    let auth = ClientAuth {
        depth: 1,
        ..auth(ClientAuthMode::Shown, &[])
    };
    let mut demand = CertificateDemand {
        trust: "ca".into(),
        need: CertificateNeed::Verified,
        subject: Box::default(),
        error_page: Box::default(),
        is_passed_on: false,
        spares_plain_text: false,
    };
    change(&mut demand);
    let mut world = world(authority, auth).await;
    let route = with_policy(route("a.example", "/", "u"), |policy| {
        policy.client_certificate = Some(Box::new(demand));
    });
    world.put_route("judged", route);
    world
}

const PLAIN: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_route_judges_the_certificate_and_tells_its_endpoint() {
    let authority = Authority::new();
    let world = judging(&authority, |demand| demand.is_passed_on = true).await;
    for version in [&TLS12, &TLS13] {
        let known = authority.client_of(&[version]);
        // The second time by a session that is resumed.
        for _ in 0..2 {
            let (status, told) = ask(&world, &known, "a.example").await.unwrap();
            assert_eq!(status, "200", "{told}");
            for wanted in [
                "ssl-client-verify: SUCCESS",
                "ssl-client-subject-dn: CN=rcgen self signed cert",
                "ssl-client-issuer-dn: CN=rcgen self signed cert",
                "ssl-client-cert: -----BEGIN%20CERTIFICATE-----%0A",
                &format!(";URI={WORKLOAD}"),
            ] {
                assert!(told.contains(wanted), "{wanted}: {told}");
            }
            assert!(!told.contains("forged"), "{told}");
        }
        let other = Authority::new().client_of(&[version]);
        for refused in [trusting(), other] {
            let (status, body) = ask(&world, &refused, "a.example").await.unwrap();
            assert_eq!(status, "400");
            assert!(body.contains("client certificate needed"), "{body}");
        }
    }
    assert!(world.ask(PLAIN).await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn no_connection_for_another_host_gets_past_a_route_that_judges() {
    let authority = Authority::new();
    let mut world = judging(&authority, |_| {}).await;
    let known = authority.client();
    for (name, host, expected) in [
        ("a.example", "a.example", "200"),
        ("b.example", "a.example", "421"),
        ("a.example", "b.example", "421"),
    ] {
        let (status, _) = ask_by(&world, &known, name, host).await.unwrap();
        assert_eq!(status, expected, "{host} by {name}");
    }
    // Whoever has shown something to other authorities is a stranger to these.
    let other = Authority::new();
    let trust = Trust {
        roots: [other.1.clone()].into(),
        crls: Box::default(),
        users: Users::default(),
    };
    world.put("ca", Value::Trust(Box::new(trust)));
    let (status, _) = ask(&world, &known, "a.example").await.unwrap();
    assert_eq!(status, "400");
    let (status, _) = ask(&world, &other.client(), "a.example").await.unwrap();
    assert_eq!(status, "200");
    // Without authorities there is no handshake, and nobody gets past in plain text either.
    world.remove(Kind::Trust, "ca");
    assert!(ask(&world, &other.client(), "a.example").await.is_none());
    assert!(world.ask(PLAIN).await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn a_certificate_that_was_not_verified_is_nobodys_identity() {
    let authority = Authority::new();
    for (need, expected) in [
        (CertificateNeed::VerifiedIfAny, ["200", "200", "400"]),
        (CertificateNeed::AnyAuthority, ["200", "200", "200"]),
    ] {
        let mut world = judging(&authority, |demand| demand.need = need).await;
        let clients = [
            (authority.client(), "SUCCESS"),
            (trusting(), "NONE"),
            (Authority::named("another").client(), "FAILED:"),
        ];
        for ((client, word), expected) in clients.iter().zip(expected) {
            let (status, told) = ask(&world, client, "a.example").await.unwrap();
            assert_eq!(status, expected, "{need:?} {word}");
            let verify = format!("ssl-client-verify: {word}");
            assert!(status == "400" || told.contains(&verify), "{told}");
            let is_named = told.contains("x-forwarded-client-cert");
            assert_eq!(is_named, *word == "SUCCESS", "{told}");
        }
        assert!(world.ask(PLAIN).await.contains("ssl-client-verify: NONE"));
        // It has the name of the workload that is admitted.
        let own = AccessMatcher::Exact("mesh/ns/a/sa/b".into());
        world.put("g", access_policy(AccessAction::Allow, own));
        for ((client, _), expected) in clients.iter().zip(["200", "403", "403"]) {
            let (status, _) = ask(&world, client, "a.example").await.unwrap();
            assert_eq!(status, expected, "{need:?}");
        }
    }
}

#[tokio::test]
async fn subjects_are_compared_and_those_without_a_certificate_sent_away() {
    let authority = Authority::new();
    for (subject, expected) in [("CN=(rcgen|x)", "200"), ("CN=x", "403")] {
        let world = judging(&authority, |demand| demand.subject = subject.into()).await;
        let (status, _) = ask(&world, &authority.client(), "a.example").await.unwrap();
        assert_eq!(status, expected, "{subject}");
    }
    let page = "https://help.example/";
    let world = judging(&authority, |demand| demand.error_page = page.into()).await;
    let (status, _) = ask(&world, &trusting(), "a.example").await.unwrap();
    assert_eq!(status, "302");
    let answer = world.ask(PLAIN).await;
    assert!(
        answer.contains("location: https://help.example/"),
        "{answer}"
    );
    assert_eq!(
        ask(&world, &authority.client(), "a.example")
            .await
            .unwrap()
            .0,
        "200"
    );
}

#[tokio::test]
async fn only_the_suites_of_a_domain_are_spoken() {
    let mut world = World::start();
    let settings = TlsSettings {
        version_max: TlsVersion::V12,
        cipher_suites: [CipherSuite::EcdheEcdsaAes256GcmSha384].into(),
        ..TlsSettings::default()
    };
    world.put_domain("a.example", &["a.example"], settings);
    let client = world.tls_client("a.example").await.unwrap();
    let suite = client.stream.get_ref().1.negotiated_cipher_suite().unwrap();
    assert_eq!(u16::from(suite.suite()), 0xc02c);
}
