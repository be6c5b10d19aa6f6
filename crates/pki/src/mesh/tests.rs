//! Workloads are given the identity that they have, and peers verify it as TLS does.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::WorkloadNames;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType,
};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{CredentialError, MeshAuthority, MeshAuthorityError, Request, SignError, Texts};
use crate::authority::Authority;
use crate::identity::Identity;

const NOW: i64 = 1_800_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// A signing request whose signature algorithm does not tell its curve.
const P384_WITH_SHA256: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIH3MH8CAQAwADB2MBAGByqGSM49AgEGBSuBBAAiA2IABLKZ+lQRc9jUYdDKAzhV
usCwWBBmyNAGTAMXqTEHmDqoDbUkvk6vE7RgeoUkYElJV4yzuTvXjj7hfUQ3a3xe
yh6KoD3hufBfQymk70ONCkpzDfrJnUZDsQSTeQIFwxyGfKAAMAoGCCqGSM49BAMC
A2gAMGUCMQDeBqxDec6VMa+dFA0lghHDl+ur4jD7ycAn//c2hIe7o3kyppwX+sUy
V+Pfaxxd1XQCMDM35sDXIkcjcG01kdpcJ711wevXoeRIgeT2Xu32vg9AUZHtYeuk
Vy1a+nFGwnP+DA==
-----END CERTIFICATE REQUEST-----";

const RSA_1024: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBPzCBqQIBADAAMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDFX2YkdnRa
KtjTXxGeuo+reWbnlrv7/88YxpWBftCqmzYBjWpGJI4muQ6BBLsj+ea8UZpvPI7A
vekSpLPOwKoCz7Kur8SdNtyJtikQaiWmeGpI073Mf/vxoIGFvFD22F03X5B0bgb+
tMXTx6czXV6lCoXPgN79KZVA6/XiWlYTUwIDAQABoAAwDQYJKoZIhvcNAQELBQAD
gYEAkc3KAjGKlCqv5ewGYOVSJRpstZjyamtbBcgVp8K8faRfOCJ9aUgxR4hkLu3D
w9csdfI0Hy+XxnWeWGOYiwqOr1MIbIr9coQLV2CXMFHIPz89afyd74tC7fvPt5/U
3uQcInsIqAFvDAQCpfsE+FkqgPgLUuGJ8T6JqfGlNUCx6RY=
-----END CERTIFICATE REQUEST-----";

fn identity() -> Identity {
    Identity::new("cluster.local", "shop", "cart").unwrap()
}

fn is_trusted(roots: &[CertificateDer<'static>], chain: &[CertificateDer<'_>], now: i64) -> bool {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(store.into(), provider);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unsigned_abs()));
    let (leaf, rest) = chain.split_first().unwrap();
    let verified = verifier
        .build()
        .unwrap()
        .verify_client_cert(leaf, rest, now);
    verified.is_ok()
}

/// The URIs in a certificate, and whether they are critical.
fn uris(certificate: &[u8]) -> (Vec<String>, bool) {
    let (_, parsed) = X509Certificate::from_der(certificate).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    let uris = names.value.general_names.iter().map(|it| match it {
        GeneralName::URI(uri) => (*uri).to_owned(),
        other => panic!("{other:?}"),
    });
    (uris.collect(), names.critical)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = time::OffsetDateTime::from_unix_timestamp(NOW - 1_000).unwrap();
    params.not_after = params.not_before + 30 * DAY;
    params
}

/// A root, an intermediate of it, and an authority of that: the texts of a Secret.
fn three_deep() -> Texts {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let root = CertifiedIssuer::self_signed(authority_params("root"), key()).unwrap();
    let middle = CertifiedIssuer::signed_by(authority_params("middle"), key(), &root).unwrap();
    let own_key = key();
    let own = authority_params("own")
        .signed_by(&own_key, &middle)
        .unwrap();
    let texts = [
        ("ca-cert.pem", own.pem()),
        ("ca-key.pem", own_key.serialize_pem()),
        ("cert-chain.pem", own.pem() + &middle.pem()),
        ("root-cert.pem", root.pem()),
    ];
    texts.map(|(key, text)| (key.to_owned(), text)).into()
}

#[test]
fn a_certificate_says_the_identity_that_was_proven_and_nothing_that_was_asked_for() {
    let root = Authority::new("mesh", NOW).unwrap();
    let mesh = MeshAuthority::of_root(&root).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut asked = CertificateParams::new(["victim.example".to_owned()]).unwrap();
    let foreign = "spiffe://cluster.local/ns/kube-system/sa/admin";
    asked.subject_alt_names = vec![SanType::URI(foreign.try_into().unwrap())];
    asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let request = asked.serialize_request(&key).unwrap();
    let signed = mesh.sign(request.der(), &identity(), NOW, DAY).unwrap();
    assert_eq!(signed.chain.len(), 1);
    let leaf = &signed.chain[0];
    assert_eq!(uris(leaf), (vec![identity().uri().to_owned()], true));
    let (_, parsed) = X509Certificate::from_der(leaf).unwrap();
    assert!(!parsed.is_ca());
    assert_eq!(parsed.subject().iter().count(), 0);
    assert!(is_trusted(mesh.roots(), &signed.chain, NOW));
    assert!(is_trusted(mesh.roots(), &signed.chain, NOW - 200));
    assert!(!is_trusted(mesh.roots(), &signed.chain, signed.until + 1));
    let other = Authority::new("mesh", NOW).unwrap();
    let others = [other.certificate().clone()];
    assert!(!is_trusted(&others, &signed.chain, NOW));
}

#[test]
fn a_certificate_says_what_its_workload_is_called_to_those_who_ask() {
    let mesh = MeshAuthority::of_root(&Authority::new("mesh", NOW).unwrap()).unwrap();
    let names = WorkloadNames {
        workload: "cart-v1".into(),
        ..WorkloadNames::default()
    };
    let request = Request::new().unwrap();
    let signed = mesh.sign_named(&request.der, &identity(), Some(&names), NOW, DAY);
    let signed = signed.unwrap();
    assert!(is_trusted(mesh.roots(), &signed.chain, NOW));
    let (_, parsed) = X509Certificate::from_der(&signed.chain[0]).unwrap();
    let mut extensions = parsed.extensions().iter();
    let extension = extensions.find(|it| it.oid.iter().is_some_and(|it| it.eq(WorkloadNames::OID)));
    let extension = extension.expect("the names");
    assert!(!extension.critical);
    assert_eq!(WorkloadNames::from_der(extension.value), Some(names));
    assert_eq!(
        uris(&signed.chain[0]),
        (vec![identity().uri().to_owned()], true)
    );
}

#[test]
fn an_intermediate_signs_and_peers_need_the_root_alone() {
    let mesh = MeshAuthority::from_texts(&three_deep()).unwrap();
    let request = Request::new().unwrap();
    let signed = mesh.sign(&request.der, &identity(), NOW, DAY).unwrap();
    assert_eq!((signed.chain.len(), mesh.roots().len()), (3, 1));
    assert!(is_trusted(mesh.roots(), &signed.chain, NOW));
    assert!(!is_trusted(mesh.roots(), &signed.chain[..2], NOW));
}

#[test]
fn a_certificate_never_outlives_its_authority() {
    let mesh = MeshAuthority::from_texts(&three_deep()).unwrap();
    let request = Request::new().unwrap();
    let sign = |now| mesh.sign(&request.der, &identity(), now, 365 * DAY);
    assert_eq!(sign(NOW).unwrap().until, mesh.until());
    assert_eq!(sign(mesh.until() - 59), Err(SignError::Expired));
    assert_eq!(sign(mesh.until() + 1), Err(SignError::Expired));
}

#[test]
fn keys_of_every_kind_that_is_spoken_are_signed_and_others_are_not() {
    let mesh = MeshAuthority::of_root(&Authority::new("mesh", NOW).unwrap()).unwrap();
    let sign = |der: &[u8]| mesh.sign(der, &identity(), NOW, DAY);
    for algorithm in [
        &PKCS_ECDSA_P256_SHA256,
        &PKCS_ECDSA_P384_SHA384,
        &PKCS_ED25519,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = CertificateParams::default()
            .serialize_request(&key)
            .unwrap();
        let signed = sign(request.der()).unwrap();
        assert!(
            is_trusted(mesh.roots(), &signed.chain, NOW),
            "{algorithm:?}"
        );
    }
    for weak in [P384_WITH_SHA256, RSA_1024] {
        let request = CertificateSigningRequestDer::from_pem_slice(weak.as_bytes());
        assert_eq!(sign(&request.unwrap()), Err(SignError::Key));
    }
    let good = Request::new().unwrap().der;
    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(sign(&forged), Err(SignError::Request));
    assert_eq!(sign(&good[..good.len() - 1]), Err(SignError::Request));
    assert_eq!(sign(&vec![0x30; 20_000]), Err(SignError::Request));
    assert_eq!(sign(b""), Err(SignError::Request));
}

#[test]
fn renewal_is_due_at_two_thirds_and_spread_over_a_tenth_before() {
    let mesh = MeshAuthority::of_root(&Authority::new("mesh", NOW).unwrap()).unwrap();
    let request = Request::new().unwrap();
    let signed = mesh.sign(&request.der, &identity(), NOW, DAY).unwrap();
    assert_eq!(signed.until - NOW, 86_400);
    assert_eq!(signed.renewal(0) - NOW, 57_600);
    assert_eq!(signed.renewal(500) - NOW, 57_600 - 4_320);
    let all = (0..5_000).map(|draw| signed.renewal(draw) - NOW);
    assert!(
        all.clone()
            .all(|it| (57_600 - 8_640..=57_600).contains(&it))
    );
}

#[test]
fn a_secret_that_is_no_authority_says_which_key_is_wrong() {
    let read = |change: &dyn Fn(&mut Texts)| {
        let mut texts = three_deep();
        change(&mut texts);
        MeshAuthority::from_texts(&texts).err().unwrap()
    };
    let put = |key: &'static str, text: String| {
        move |texts: &mut Texts| drop(texts.insert(key.to_owned(), text.clone()))
    };
    let other = three_deep();
    type Wrong = MeshAuthorityError;
    let missing = read(&|texts| drop(texts.remove("root-cert.pem")));
    assert_eq!(missing, Wrong::Missing("root-cert.pem"));
    let garbage = read(&put("ca-cert.pem", "none".to_owned()));
    assert_eq!(garbage, Wrong::Unreadable("ca-cert.pem"));
    let misfit = read(&put("ca-key.pem", other["ca-key.pem"].clone()));
    assert_eq!(misfit, Wrong::Key);
    let gap = read(&put("cert-chain.pem", other["cert-chain.pem"].clone()));
    assert_eq!(gap, Wrong::Gap("cert-chain.pem"));
    let stranger = read(&put("root-cert.pem", other["root-cert.pem"].clone()));
    assert_eq!(stranger, Wrong::Gap("root-cert.pem"));
    let many = read(&put("root-cert.pem", other["root-cert.pem"].repeat(9)));
    assert_eq!(many, Wrong::TooMany("root-cert.pem"));
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::default().self_signed(&key).unwrap();
    let texts = [
        ("tls.crt", leaf.pem()),
        ("tls.key", key.serialize_pem()),
        ("ca.crt", leaf.pem()),
    ];
    let texts = texts.map(|(key, text)| (key.to_owned(), text)).into();
    let error = MeshAuthority::from_texts(&texts).err().unwrap();
    assert_eq!(error, Wrong::NoAuthority("tls.crt"));
}

#[test]
fn what_signed_itself_needs_neither_a_chain_nor_roots() {
    let root = Authority::new("mesh", NOW).unwrap();
    let texts = [
        ("ca-cert.pem", root.certificate_pem()),
        ("ca-key.pem", root.expose_key_pem()),
        ("cert-chain.pem", ""),
        ("root-cert.pem", ""),
    ];
    let texts = texts.map(|(key, text)| (key.to_owned(), text.to_owned()));
    let texts = Texts::from(texts);
    assert!(MeshAuthority::is_in(&texts));
    let mesh = MeshAuthority::from_texts(&texts).unwrap();
    assert_eq!(mesh.roots(), [root.certificate().clone()]);
    assert_eq!(mesh.anchors(), mesh.roots());
    let mut texts = three_deep();
    texts.insert("root-cert.pem".to_owned(), String::new());
    let error = MeshAuthority::from_texts(&texts).err().unwrap();
    assert_eq!(error, MeshAuthorityError::Missing("root-cert.pem"));
    assert_eq!(error.key(), Some("root-cert.pem"));
}

#[test]
fn a_chain_completes_the_request_that_it_was_signed_for_and_no_other() {
    let mesh = MeshAuthority::from_texts(&three_deep()).unwrap();
    let request = Request::new().unwrap();
    let signed = mesh.sign(&request.der, &identity(), NOW, DAY).unwrap();
    let other = Request::new().unwrap().complete(signed.chain.clone());
    assert_eq!(other.err(), Some(CredentialError::Key));
    let empty = Request::new().unwrap().complete(Vec::new());
    assert_eq!(empty.err(), Some(CredentialError::Unreadable));
    let garbage = vec![CertificateDer::from(vec![1])];
    let garbage = Request::new().unwrap().complete(garbage);
    assert_eq!(garbage.err(), Some(CredentialError::Unreadable));
    let credential = request.complete(signed.chain.clone()).unwrap();
    assert_eq!(credential.identity, identity());
    assert_eq!(credential.signed, signed);
}

#[test]
fn a_key_is_never_printed() {
    let root = Authority::new("mesh", NOW).unwrap();
    let mesh = MeshAuthority::of_root(&root).unwrap();
    let request = Request::new().unwrap();
    let signed = mesh.sign(&request.der, &identity(), NOW, DAY).unwrap();
    let printed = format!("{mesh:?} {request:?} {signed:?}");
    let line = root.expose_key_pem().lines().nth(1).unwrap();
    assert!(!printed.contains(line) && !printed.contains(&format!("{:?}", request.key)));
}

#[test]
fn what_a_certificate_may_be_used_for_is_both_ends_of_tls() {
    let mesh = MeshAuthority::of_root(&Authority::new("mesh", NOW).unwrap()).unwrap();
    let request = Request::new().unwrap();
    let signed = mesh.sign(&request.der, &identity(), NOW, DAY).unwrap();
    let (_, leaf) = X509Certificate::from_der(&signed.chain[0]).unwrap();
    let usage = leaf.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && usage.client_auth && !usage.any);
    let extensions = leaf.extensions().iter().map(|it| it.parsed_extension());
    let has_issuer =
        |it: &ParsedExtension<'_>| matches!(it, ParsedExtension::AuthorityKeyIdentifier(_));
    assert!(extensions.into_iter().any(has_issuer));
}
