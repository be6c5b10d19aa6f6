//! Answers to the challenges of certificate authorities: they are given whatever else a host has.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use myriad_model::{
    ChallengeAnswer, ChallengeForm, Host, Kind, Policy, TlsRedirect, TlsSettings, Value,
};
use rustls::ClientConfig;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::world::{Backend, World, route, trusting, trusting_config, with_policy};

const PATH: &str = "/.well-known/acme-challenge";

fn answer(host: &str, form: ChallengeForm, token: &str) -> Value {
    Value::ChallengeAnswer(Box::new(ChallengeAnswer {
        host: Host::of_name(host).unwrap(),
        form,
        token: token.into(),
        text: format!("{token}.thumbprint").into(),
    }))
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn a_token_of_ours_is_answered_before_anything_and_others_by_the_routes_of_the_host() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let redirected = with_policy(route("a.example", "/", "u"), |policy: &mut Policy| {
        policy.tls_redirect = Some(TlsRedirect {
            status: 308,
            port: 443,
            except_prefix: "".into(),
        });
    });
    world.put_route("r", redirected);
    world.put_route("b", route("b.example", "/", "u"));
    world.put("o", answer("a.example", ChallengeForm::Http, "tok-1"));

    let told = world.ask(&get("a.example", &format!("{PATH}/tok-1"))).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    assert!(told.ends_with("\r\n\r\ntok-1.thumbprint"), "{told}");
    assert!(told.contains("application/octet-stream"), "{told}");
    // Another port in the field is the same host; a host that nobody serves has answers too.
    let told = world
        .ask(&get("A.example:8080", &format!("{PATH}/tok-1")))
        .await;
    assert!(told.ends_with("tok-1.thumbprint"), "{told}");
    world.put("n", answer("new.example", ChallengeForm::Http, "tok-2"));
    let told = world
        .ask(&get("new.example", &format!("{PATH}/tok-2")))
        .await;
    assert!(told.ends_with("tok-2.thumbprint"), "{told}");

    // So has an address of IPv6, in whatever form a client writes it.
    world.put("v6", answer("2001:db8::7", ChallengeForm::Http, "tok-6"));
    for host in ["[2001:db8::7]", "[2001:DB8:0::7]:8080"] {
        let told = world.ask(&get(host, &format!("{PATH}/tok-6"))).await;
        assert!(told.ends_with("tok-6.thumbprint"), "{host}: {told}");
    }

    // The host, the token, the path and the method are those that were told of.
    for (host, path) in [
        ("b.example", format!("{PATH}/tok-1")),
        ("b.example", format!("{PATH}/tok-3")),
        ("b.example", format!("{PATH}/{}", "x".repeat(4_000))),
    ] {
        let told = world.ask(&get(host, &path)).await;
        assert!(told.ends_with("hello"), "{told}");
    }
    for path in [
        format!("{PATH}/"),
        format!("{PATH}/tok-1/"),
        "/tok-1".to_owned(),
    ] {
        let told = world.ask(&get("a.example", &path)).await;
        assert!(told.starts_with("HTTP/1.1 308"), "{path}: {told}");
    }
    let post = get("a.example", &format!("{PATH}/tok-1")).replace("GET", "POST");
    assert!(world.ask(&post).await.starts_with("HTTP/1.1 308"));

    world.remove(Kind::ChallengeAnswer, "o");
    let told = world.ask(&get("a.example", &format!("{PATH}/tok-1"))).await;
    assert!(told.starts_with("HTTP/1.1 308"), "{told}");
}

fn asking(protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = trusting_config();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    Arc::new(config)
}

#[tokio::test]
async fn a_handshake_of_an_authority_sees_the_answer_and_every_other_the_domain() {
    let mut world = World::start();
    let own = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put("o", answer("a.example", ChallengeForm::TlsAlpn, "tok"));
    world.put("n", answer("new.example", ChallengeForm::TlsAlpn, "tok"));
    for name in ["a.example", "new.example"] {
        let client = world.tls_client_with(name, &asking(&[b"acme-tls/1"])).await;
        let client = client.unwrap();
        let session = client.stream.get_ref().1;
        assert_eq!(session.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        let shown = &session.peer_certificates().unwrap()[0];
        let (_, leaf) = X509Certificate::from_der(shown).unwrap();
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
        // RFC 8737, section 3: a critical extension with the hash as an octet string.
        let found = leaf.iter_extensions();
        let mut found = found.filter(|it| it.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = found.next().unwrap();
        let hash = digest(&SHA256, b"tok.thumbprint");
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32], hash.as_ref()].concat());
    }
    // Whoever offers more than that protocol is no authority.
    for protocols in [&[&b"acme-tls/1"[..], b"h2"][..], &[b"h2"], &[]] {
        let client = world.tls_client_with("a.example", &asking(protocols)).await;
        let client = client.unwrap();
        let shown = client.stream.get_ref().1.peer_certificates().unwrap();
        assert_eq!(shown[0].as_ref(), &*own);
    }
    // A host without an answer has nothing to say to an authority.
    world.remove(Kind::ChallengeAnswer, "o");
    let refused = world
        .tls_client_with("a.example", &asking(&[b"acme-tls/1"]))
        .await;
    assert!(refused.is_err());
    assert!(
        world
            .tls_client_with("a.example", &trusting())
            .await
            .is_ok()
    );
}
