//! Hosts with a certificate of ECDSA and one of RSA, and clients that can verify one of them alone.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::world::{eventually, eventually_within};
use myriad_e2e::{Backend, CertificateAuthority, Site, World};
use tokio::process::Command;

use super::commands::myriad;

/// How long certificates may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

const ECDSA: &str = "ECDSA+SHA256";
const RSA: &str = "rsa_pss_rsae_sha256:RSA+SHA256";

/// The kind of signature by which openssl knows a server, of those that it can verify; none where
/// there is no handshake.
async fn signature(world: &World, version: &str, able: &str) -> Option<&'static str> {
    let connect = world.https().to_string();
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &connect, "-servername", "a.test"])
        .args([version, "-sigalgs", able])
        .stdin(Stdio::null())
        .output();
    let output = output.await;
    let output = output.expect("openssl is installed; `cargo xtask test` sees to it");
    let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    let line = text
        .lines()
        .find(|it| it.starts_with("peer signature type"))?;
    match (line.contains("ecdsa"), line.contains("rsa")) {
        (true, _) => Some("ECDSA"),
        (false, true) => Some("RSA"),
        (false, false) => panic!("{line}"),
    }
}

fn secret(name: &str, pair: &Pair) -> String {
    let (certificate, key) = (
        STANDARD.encode(&pair.certificate),
        STANDARD.encode(&pair.key),
    );
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\n\
         type: kubernetes.io/tls\ndata: {{tls.crt: {certificate}, tls.key: {key}}}\n"
    )
}

#[tokio::test]
async fn an_ingress_with_two_entries_for_a_host_serves_clients_of_either_algorithm() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    // The one that most clients are shown stands last.
    let rsa = authority.issue_rsa(&["a.test"]);
    let ecdsa = authority.issue(&["a.test"]);
    let site = Site::new("a.test").to(backend.address()).tls(&rsa).yaml();
    let (one, two) = ("secretName: a-test\n", "secretName: second\n");
    assert_eq!(site.matches(one).count(), 1, "{site}");
    let site = site.replace(one, &format!("{one}  - hosts: ['a.test']\n    {two}"));
    let with = |second: &Pair| site.clone() + &secret("second", second);
    let other = authority.issue_rsa(&["a.test"]);
    let world = World::serve_with(authority, &[("a.yaml", with(&ecdsa))], &[]).await;
    for version in ["-tls1_2", "-tls1_3"] {
        let all = format!("{RSA}:{ECDSA}");
        for (able, wanted) in [(ECDSA, "ECDSA"), (RSA, "RSA"), (&*all, "ECDSA")] {
            let found = signature(&world, version, able).await;
            assert_eq!(found, Some(wanted), "{version} {able}");
        }
    }
    assert_eq!(world.get("https://a.test/").await.status, 200);
    assert_eq!(world.findings().await, Vec::<String>::new());
    for (command, asked, told) in [
        (
            "explain",
            &["https://a.test/"][..],
            &[
                "Secret default/second for a.test",
                "or else      Secret default/a-test",
            ][..],
        ),
        (
            "status",
            &["ingress", "default/a-test"],
            &["HTTPS by Secret default/second and default/a-test"],
        ),
    ] {
        let admin = format!("--admin={}", world.admin_address());
        let output = myriad().arg(command).args(asked).arg(admin).output().await;
        let output = output.expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stdout);
        for part in told {
            assert!(text.contains(part), "{part:?} not in {text}");
        }
    }

    // With the second of the same algorithm, the first is shown, and people are told.
    world.write("a.yaml", &with(&other));
    let told = eventually(async || {
        let mut findings = world.findings().await.into_iter();
        findings.find(|it| it.contains("is without effect for a.test"))
    });
    let told = told.await.expect("a finding");
    for part in ["\"Ingress default/a-test\"", "\"spec.tls[1].secretName\""] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(signature(&world, "-tls1_3", ECDSA).await, None);
    assert_eq!(signature(&world, "-tls1_3", RSA).await, Some("RSA"));
    world.stop().await;
}

#[tokio::test]
async fn an_issuer_of_two_certificates_obtains_both_and_keeps_them() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let ca = CertificateAuthority::start();
        let backend = Backend::start("a").await;
        let site = Site::new("a.test").to(backend.address());
        let files = [("a.yaml", site.issued_by("default").yaml())];
        let challenge = format!("--acme-challenge={challenge}");
        let mut arguments = ca.arguments(&ca.state());
        arguments.extend([challenge, "--acme-key=ecdsa-and-rsa".to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let world = World::serve_with(Authority::new(), &files, &arguments).await;
        let both = eventually_within(PATIENCE, async || {
            let ecdsa = signature(&world, "-tls1_3", ECDSA).await;
            let rsa = signature(&world, "-tls1_2", RSA).await;
            (ecdsa == Some("ECDSA") && rsa == Some("RSA")).then_some(())
        });
        both.await.expect("it has both");
        assert_eq!(ca.issued(), 2);
        assert_eq!(world.findings().await, Vec::<String>::new());
        for name in ["a-test", "a-test-rsa"] {
            let file = ca.state().join(format!("certificates/default+{name}.json"));
            assert!(file.is_file(), "{name}");
        }
        world.stop().await;

        // What is kept is served again, and nothing is ordered for it.
        let world = World::serve_with(Authority::new(), &files, &arguments).await;
        assert_eq!(signature(&world, "-tls1_2", RSA).await, Some("RSA"));
        assert_eq!(signature(&world, "-tls1_3", ECDSA).await, Some("ECDSA"));
        assert_eq!(ca.issued(), 2);
        world.stop().await;
    }
}
