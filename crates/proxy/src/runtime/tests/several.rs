//! Domains with two certificates: each client is shown the one that it can verify.

use std::sync::Arc;

use bytes::Bytes;
use myriad_model::{
    Certificate, Domain, KeyEncoding, Kind, PrivateKey, TlsSettings, TlsVersion, Value,
};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme, SupportedProtocolVersion,
};

use super::world::{Backend, World, certificate, domain, route};

const HOST: &str = "a.example";

const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const RSA: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
];

const NEITHER: &[SignatureScheme] = &[SignatureScheme::ED25519];

/// Clients that name RSA first, as old ones do.
const BOTH: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
];

/// A verifier that trusts any certificate whose signatures are of some schemes.
#[derive(Debug)]
struct Able(&'static [SignatureScheme]);

impl ServerCertVerifier for Able {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.to_vec()
    }
}

/// A client of some versions and schemes, which is what its provider says besides.
fn client(
    versions: &[&'static SupportedProtocolVersion],
    schemes: &'static [SignatureScheme],
    provider: CryptoProvider,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let builder = builder.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(Able(schemes)));
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8);
    Arc::new(config)
}

fn usual() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

fn rsa() -> Certificate {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let leaf = params.self_signed(&key).unwrap();
    Certificate {
        chain: [Bytes::from(leaf.der().to_vec())].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from(key.serialize_der())),
    }
}

/// A world whose host has a certificate of ECDSA and one of RSA, and the leaves of both.
async fn world(tls: TlsSettings) -> (World, [Bytes; 2]) {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    let both = [certificate(&[HOST]), rsa()];
    let leaves = [both[0].chain[0].clone(), both[1].chain[0].clone()];
    let [ecdsa, rsa] = both.map(|it| Value::Certificate(Box::new(it)));
    let domain = Domain {
        alternatives: ["rsa".into()].into(),
        ..domain(HOST, Some("ecdsa"), tls)
    };
    let domain = Value::Domain(Box::new(domain));
    world.put_all(vec![("ecdsa", ecdsa), ("rsa", rsa), (HOST, domain)]);
    (world, leaves)
}

/// The leaf that a client is shown, and whether its session was resumed; none where there is no
/// handshake.
async fn shown(world: &World, config: &Arc<ClientConfig>) -> Option<(Bytes, HandshakeKind)> {
    let mut client = world.tls_client_with(HOST, config).await.ok()?;
    client
        .send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"))
        .await;
    let (head, _) = client.response().await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let session = client.stream.get_ref().1;
    let leaf = session.peer_certificates()?.first()?;
    Some((
        Bytes::copy_from_slice(leaf.as_ref()),
        session.handshake_kind()?,
    ))
}

async fn leaf(world: &World, config: &Arc<ClientConfig>) -> Option<Bytes> {
    shown(world, config).await.map(|(leaf, _)| leaf)
}

#[tokio::test]
async fn a_client_is_shown_ecdsa_where_it_can_verify_it_and_else_rsa() {
    let (world, [ecdsa, rsa]) = world(TlsSettings::default()).await;
    for version in [&TLS12, &TLS13] {
        for (schemes, wanted) in [
            (ECDSA, Some(&ecdsa)),
            (RSA, Some(&rsa)),
            (BOTH, Some(&ecdsa)),
            (NEITHER, None),
        ] {
            let found = leaf(&world, &client(&[version], schemes, usual())).await;
            assert_eq!(found.as_ref(), wanted, "{version:?} {schemes:?}");
        }
    }
}

#[tokio::test]
async fn before_tls_1_3_suites_and_curves_say_what_a_client_can_verify() {
    let (world, [ecdsa, rsa]) = world(TlsSettings::default()).await;
    let of_rsa = || CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256],
        ..usual()
    };
    let old = client(&[&TLS12], BOTH, of_rsa());
    assert_eq!(leaf(&world, &old).await.as_ref(), Some(&rsa));
    let curved = |version: &'static SupportedProtocolVersion,
                  groups: Vec<&'static dyn SupportedKxGroup>| {
        let mut provider = usual();
        // Suites of TLS 1.3 are offered by whoever speaks it.
        provider.cipher_suites.retain(|it| it.version() == version);
        provider.kx_groups = groups;
        client(&[version], BOTH, provider)
    };
    for (version, groups, wanted) in [
        (&TLS12, vec![kx_group::X25519], &rsa),
        (&TLS12, vec![kx_group::X25519, kx_group::SECP256R1], &ecdsa),
        // Curves are for the exchange of keys alone.
        (&TLS13, vec![kx_group::X25519], &ecdsa),
    ] {
        let found = leaf(&world, &curved(version, groups)).await;
        assert_eq!(found.as_ref(), Some(wanted), "{version:?}");
    }
}

#[tokio::test]
async fn suites_of_a_version_that_is_not_spoken_say_nothing() {
    let old = TlsSettings {
        version_max: TlsVersion::V12,
        ..TlsSettings::default()
    };
    let (world, [_, rsa]) = world(old).await;
    let provider = CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        ..usual()
    };
    let new = client(&[&TLS13, &TLS12], BOTH, provider);
    assert_eq!(leaf(&world, &new).await, Some(rsa));
}

#[tokio::test]
async fn sessions_are_resumed_whichever_certificate_they_were_made_with() {
    let (world, [ecdsa, rsa]) = world(TlsSettings::default()).await;
    for version in [&TLS12, &TLS13] {
        for (schemes, wanted) in [(ECDSA, &ecdsa), (RSA, &rsa)] {
            let config = client(&[version], schemes, usual());
            for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
                let (leaf, found) = shown(&world, &config).await.expect("a handshake");
                assert_eq!((&leaf, found), (wanted, kind), "{version:?} {schemes:?}");
            }
        }
    }
}

#[tokio::test]
async fn one_of_two_that_is_missing_leaves_the_other_and_each_is_renewed_by_itself() {
    let (mut world, [ecdsa, old]) = world(TlsSettings::default()).await;
    let [of_ecdsa, of_rsa] = [ECDSA, RSA].map(|schemes| client(&[&TLS13], schemes, usual()));
    let of_both = client(&[&TLS13], BOTH, usual());
    let renewed = rsa();
    let new = renewed.chain[0].clone();
    assert_eq!(leaf(&world, &of_rsa).await, Some(old));
    world.put("rsa", Value::Certificate(Box::new(renewed)));
    // A client that resumes a session would be shown none.
    let fresh = client(&[&TLS13], RSA, usual());
    assert_eq!(leaf(&world, &fresh).await, Some(new.clone()));
    world.remove(Kind::Certificate, "rsa");
    let fresh = client(&[&TLS13], RSA, usual());
    assert_eq!(leaf(&world, &fresh).await, None);
    assert_eq!(leaf(&world, &of_both).await, Some(ecdsa));
    let again = rsa();
    let last = again.chain[0].clone();
    world.put("rsa", Value::Certificate(Box::new(again)));
    world.remove(Kind::Certificate, "ecdsa");
    assert_eq!(leaf(&world, &of_ecdsa).await, None);
    let fresh = client(&[&TLS13], BOTH, usual());
    assert_eq!(leaf(&world, &fresh).await, Some(last));
}
