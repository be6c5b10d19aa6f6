//! Ways to do TLS, and the verification of endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use myriad_base::clock;
use myriad_base::tls::Judge as _;
use myriad_model::{MeshTls, UpstreamTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme, crypto};

use super::{CONFIGS_MAX, ClientConfigs, ClientTls, Credentials, Named, trusting};
use crate::net::wanted_names::WantedNames;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Verifies as the library does, and counts how often.
#[derive(Debug)]
struct Counting(Arc<WebPkiServerVerifier>, AtomicUsize);

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0
            .verify_server_cert(leaf, issuers, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn authority() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn leaf(by: &Issuer, names: &[&str]) -> CertificateDer<'static> {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let params = CertificateParams::new(names).unwrap();
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, by).unwrap().der().clone()
}

/// A certificate beside the first that has ended takes part in nothing here.
#[test]
fn a_session_is_believed_for_as_long_as_the_chain_that_began_it() {
    let root = authority();
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
    let counting = Arc::new(Counting(builder.build().unwrap(), AtomicUsize::new(0)));
    let sessions: Arc<dyn ClientSessionStore> = Arc::new(ClientSessionMemoryCache::new(1));
    let way = |is_verified: bool| ClientTls {
        config: trusting().unwrap(),
        verifier: counting.clone(),
        sessions: is_verified.then(|| sessions.clone()),
    };
    let ending = |year: i32| {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &root).unwrap().der().clone()
    };
    let (ended, lasting) = (ending(2020), ending(2120));
    let name = ServerName::try_from("a.example").unwrap();
    let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
    let now = UnixTime::since_unix_epoch(now);
    for (shown, is_verified, is_believed, count) in [
        (vec![lasting.clone()], true, true, 0),
        (vec![lasting.clone(), lasting.clone()], true, true, 0),
        (vec![lasting.clone(), ended.clone()], true, true, 1),
        (vec![ended.clone()], true, false, 1),
        (vec![ended.clone(), lasting], true, false, 1),
        (Vec::new(), true, false, 0),
        (vec![ended], false, true, 0),
    ] {
        let before = counting.1.load(Ordering::Relaxed);
        let believes = way(is_verified).believes(&name, &shown, now);
        let verified = counting.1.load(Ordering::Relaxed) - before;
        let length = shown.len();
        assert_eq!((believes, verified), (is_believed, count), "{length}");
    }
}

/// A tenant writes as many lists of names as there may be ways, and more.
#[test]
fn ways_have_one_bound_and_who_has_most_loses_the_oldest() {
    let configs = ClientConfigs::default();
    let credentials = Credentials::default();
    let get = |namespace: u64, name: &str| {
        let tls = UpstreamTls {
            server_name: "".into(),
            verify: true,
            trust: None,
            certificate: None,
            subject_alt_names: [name.into()].into(),
            mesh: MeshTls::None,
        };
        configs
            .get(&tls, false, false, (namespace, &credentials))
            .unwrap()
    };
    let honest = get(1, "honest.example");
    let first = get(2, "0.example");
    for number in 1..CONFIGS_MAX + 10 {
        get(2, &format!("{number}.example"));
    }
    let known = configs.known.borrow();
    let in_lines: usize = known.lines.values().map(|it| it.len()).sum();
    assert_eq!((known.ways.len(), in_lines), (CONFIGS_MAX, CONFIGS_MAX));
    drop(known);
    assert!(Arc::ptr_eq(&honest, &get(1, "honest.example")));
    assert!(!Arc::ptr_eq(&first, &get(2, "0.example")));
}

/// A chain was verified again for each name that was listed.
#[test]
fn a_chain_is_verified_once_however_many_names_are_listed() {
    let (root, other) = (authority(), authority());
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let roots = Arc::new(roots);
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let builder = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
    let counting = Arc::new(Counting(builder.build().unwrap(), AtomicUsize::new(0)));
    let mut list: Vec<Box<str>> = (0..255)
        .map(|number| format!("{number}.a.example").into())
        .collect();
    list.push("10.0.0.1".into());
    let named = Named {
        chain: counting.clone(),
        roots,
        has_crls: false,
        names: WantedNames::new(&list),
        is_mesh: false,
        trust_domains: Arc::default(),
        algorithms: provider.signature_verification_algorithms.all,
    };
    let now = Duration::from_secs(clock::unix_seconds().unsigned_abs());
    let now = UnixTime::since_unix_epoch(now);
    for (leaf, is_believed, count) in [
        (leaf(&root, &["254.A.example"]), true, 1),
        (leaf(&root, &["other.example", "*.a.example"]), true, 1),
        (leaf(&root, &["10.0.0.1"]), true, 1),
        (leaf(&other, &["7.a.example", "8.a.example"]), false, 1),
        (leaf(&root, &["other.example", "256.a.example"]), false, 0),
        (leaf(&root, &["10.0.0.2"]), false, 0),
        (leaf(&root, &[]), false, 0),
    ] {
        let before = counting.1.load(Ordering::Relaxed);
        let judged = named.judge(&leaf, &[], &[], now);
        let verified = counting.1.load(Ordering::Relaxed) - before;
        assert_eq!(
            (judged.is_ok(), verified),
            (is_believed, count),
            "{judged:?}"
        );
    }
}
