//! Workloads that talk to one another over TLS, by a clock of the test, while the authority that
//! signs for them is exchanged.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::{ROOTS_MAX, Succession};
use crate::authority::Authority;
use crate::identity::Identity;
use crate::mesh::{Credential, MeshAuthority, Request};

const NOW: i64 = 1_800_000_000;
const STEP: i64 = 300;
const OVERLAP: Duration = Duration::from_secs(1_800);
const LIFETIME: Duration = Duration::from_secs(3_600);

fn authority(now: i64) -> MeshAuthority {
    MeshAuthority::of_root(&Authority::new("mesh", now).unwrap()).unwrap()
}

/// A workload, and what it has been told so far.
struct Workload {
    credential: Credential,
    roots: Vec<CertificateDer<'static>>,
    /// How late it hears of anything.
    delay: i64,
    heard: Vec<(i64, Vec<CertificateDer<'static>>)>,
}

impl Workload {
    fn new(number: usize, succession: &Succession, delay: i64) -> Workload {
        Workload {
            credential: credential(number, succession, NOW),
            roots: succession.roots().cloned().collect(),
            delay,
            heard: Vec::new(),
        }
    }

    fn live(&mut self, number: usize, succession: &Succession, now: i64) {
        self.heard
            .push((now + self.delay, succession.roots().cloned().collect()));
        while self.heard.first().is_some_and(|(at, _)| *at <= now) {
            self.roots = self.heard.remove(0).1;
        }
        if self.credential.signed.renewal(number as u32 * 333) <= now {
            self.credential = credential(number, succession, now);
        }
    }
}

fn credential(number: usize, succession: &Succession, now: i64) -> Credential {
    let identity = Identity::new("cluster.local", "shop", &format!("w{number}")).unwrap();
    let request = Request::new().unwrap();
    let signed = succession
        .signer()
        .sign(&request.der, &identity, now, LIFETIME)
        .unwrap();
    let credential = request.complete(signed.chain).unwrap();
    assert_eq!(credential.identity, identity);
    credential
}

#[derive(Debug)]
struct Clock(i64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = Duration::from_secs(self.0.unsigned_abs());
        Some(UnixTime::since_unix_epoch(seconds))
    }
}

/// Verifies the chain of a server as that of a client is: identities are no names of DNS.
#[derive(Debug)]
struct Peers(Arc<dyn ClientCertVerifier>);

impl ServerCertVerifier for Peers {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_client_cert(leaf, chain, now);
        verified.map(|_| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn verifier(workload: &Workload) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    for root in &workload.roots {
        roots.add(root.clone()).unwrap();
    }
    let roots = Arc::new(roots);
    WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .unwrap()
}

fn shown(workload: &Workload) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let Credential { signed, key, .. } = &workload.credential;
    (signed.chain.clone(), key.clone_key())
}

/// Mutual TLS between two workloads, in memory.
fn meet(client: &Workload, server: &Workload, now: i64) -> Result<(), Error> {
    let clock = Arc::new(Clock(now));
    let (chain, key) = shown(server);
    let config = ServerConfig::builder_with_details(provider(), clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier(server))
        .with_single_cert(chain, key)?;
    let mut accepted = ServerConnection::new(Arc::new(config))?;
    let (chain, key) = shown(client);
    let config = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Peers(verifier(client))))
        .with_client_auth_cert(chain, key)?;
    let name = ServerName::try_from("peer").unwrap();
    let mut dialled = ClientConnection::new(Arc::new(config), name)?;
    while dialled.is_handshaking() || accepted.is_handshaking() {
        let mut bytes = Vec::new();
        dialled.write_tls(&mut bytes).unwrap();
        accepted.read_tls(&mut &*bytes).unwrap();
        accepted.process_new_packets()?;
        let mut bytes = Vec::new();
        accepted.write_tls(&mut bytes).unwrap();
        dialled.read_tls(&mut &*bytes).unwrap();
        dialled.process_new_packets()?;
    }
    Ok(())
}

/// Exchanges the authority under workloads that all talk to one another, and returns how many of
/// their handshakes failed.
fn exchange(overlap: Duration) -> usize {
    let mut succession = Succession::new(authority(NOW), overlap, LIFETIME);
    let first = succession.signer().roots().to_vec();
    let delays = [0, STEP, 5 * STEP];
    let workloads = delays.iter().enumerate();
    let mut workloads: Vec<Workload> = workloads
        .map(|(number, delay)| Workload::new(number, &succession, *delay))
        .collect();
    let second = Authority::new("mesh", NOW).unwrap();
    let mut failed = 0;
    for step in 1..48 {
        let now = NOW + step * STEP;
        match step >= 6 {
            true => succession.see(MeshAuthority::of_root(&second).unwrap(), now),
            false => succession.step(now),
        };
        for (number, workload) in workloads.iter_mut().enumerate() {
            workload.live(number, &succession, now);
        }
        for client in &workloads {
            for server in &workloads {
                failed += usize::from(meet(client, server, now).is_err());
            }
        }
    }
    // In the end nobody trusts the first one any more.
    for workload in &workloads {
        assert_eq!(workload.roots, [second.certificate().clone()]);
        assert!(!workload.roots.contains(&first[0]));
    }
    failed
}

#[test]
fn no_handshake_fails_while_one_root_follows_another() {
    assert_eq!(exchange(OVERLAP), 0);
}

#[test]
fn without_a_time_in_which_both_are_told_some_would_fail() {
    assert!(exchange(Duration::ZERO) > 0);
}

#[test]
fn an_authority_of_a_root_that_is_known_signs_at_once() {
    let root = Authority::new("mesh", NOW).unwrap();
    let first = MeshAuthority::of_root(&root).unwrap();
    let mut succession = Succession::new(first, OVERLAP, LIFETIME);
    assert!(!succession.see(MeshAuthority::of_root(&root).unwrap(), NOW));
    assert!(!succession.is_changing());
    assert!(succession.see(authority(NOW), NOW));
    assert!(succession.is_changing());
    assert!(
        succession
            .signer()
            .is_like(&MeshAuthority::of_root(&root).unwrap())
    );
    // Its people have taken it back.
    assert!(!succession.see(MeshAuthority::of_root(&root).unwrap(), NOW + 1));
    assert!(!succession.is_changing());
    assert_eq!(succession.roots().count(), 2);
    assert!(succession.step(NOW + 2 + 3_600 + 300));
    assert_eq!(succession.roots().count(), 1);
}

#[test]
fn roots_that_come_and_go_stay_a_short_list_with_those_that_sign() {
    let mut succession = Succession::new(authority(NOW), OVERLAP, LIFETIME);
    let signer = succession.signer().roots()[0].clone();
    for second in 1..60 {
        let newest = authority(NOW);
        let root = newest.roots()[0].clone();
        succession.see(newest, NOW + second);
        let roots: Vec<_> = succession.roots().cloned().collect();
        assert!(roots.len() <= ROOTS_MAX && roots.contains(&root) && roots.contains(&signer));
    }
}
