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

use super::{KeptRoot, ROOTS_MAX, Succession};
use crate::authority::Authority;
use crate::identity::Identity;
use crate::mesh::{Credential, MeshAuthority, Request};

const NOW: i64 = 1_800_000_000;
const STEP: i64 = 300;
const OVERLAP: Duration = Duration::from_secs(1_800);
const LIFETIME: Duration = Duration::from_secs(3_600);

/// The life of certificates of workloads, of which a third is longer than the overlap.
const WORKLOAD_LIFETIME: Duration = Duration::from_secs(7_200);

fn authority(now: i64) -> MeshAuthority {
    MeshAuthority::of_root(&Authority::new("mesh", now).unwrap()).unwrap()
}

/// One with this authority, the first that there is.
fn first(authority: MeshAuthority, overlap: Duration) -> Succession {
    let mut succession = Succession::new(overlap, LIFETIME);
    succession.learn(None, NOW);
    succession.see(authority, NOW);
    succession
}

/// A process that starts with what is kept, and finds this authority.
fn restart(kept: &[KeptRoot], found: &Authority, now: i64) -> Succession {
    let mut succession = Succession::new(OVERLAP, LIFETIME);
    succession.learn(Some(kept), now);
    succession.see(MeshAuthority::of_root(found).unwrap(), now);
    succession
}

/// Whether an authority of this root signs.
fn signs(succession: &Succession, root: &Authority) -> bool {
    let like = MeshAuthority::of_root(root).unwrap();
    succession.signer().is_some_and(|it| it.is_like(&like))
}

/// The beginning and end of a root, both since [`NOW`] unless the former is that of the first one.
fn times(succession: &Succession, root: &Authority) -> Option<(i64, Option<i64>)> {
    let kept = succession.kept().into_iter();
    let mut kept = kept.filter(|it| it.certificate() == root.certificate());
    let kept = kept.next()?;
    let since = match kept.since() {
        0 => i64::MIN,
        since => since - NOW,
    };
    Some((since, kept.until().map(|it| it - NOW)))
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
            credential: credential(number, succession, NOW).expect("somebody signs"),
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
        // A certificate that nobody renews goes on.
        if self.credential.signed.renewal(number as u32 * 333) <= now
            && let Some(renewed) = credential(number, succession, now)
        {
            self.credential = renewed;
        }
    }
}

fn credential(number: usize, succession: &Succession, now: i64) -> Option<Credential> {
    let identity = Identity::new("cluster.local", "shop", &format!("w{number}")).unwrap();
    let request = Request::new().unwrap();
    let signed = succession.signer()?;
    let signed = signed.sign(&request.der, &identity, now, WORKLOAD_LIFETIME);
    let credential = request.complete(signed.unwrap().chain).unwrap();
    assert_eq!(credential.identity, identity);
    Some(credential)
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
/// their handshakes failed. The controller restarts before these steps, with what is kept or not.
fn exchange(overlap: Duration, restarts: &[i64], is_kept: bool) -> usize {
    let mut succession = Succession::new(overlap, WORKLOAD_LIFETIME);
    succession.learn(None, NOW);
    succession.see(authority(NOW), NOW);
    let former: Vec<_> = succession.roots().cloned().collect();
    let delays = [0, STEP, 5 * STEP];
    let workloads = delays.iter().enumerate();
    let mut workloads: Vec<Workload> = workloads
        .map(|(number, delay)| Workload::new(number, &succession, *delay))
        .collect();
    let second = Authority::new("mesh", NOW).unwrap();
    let mut failed = 0;
    for step in 1..60 {
        let now = NOW + step * STEP;
        if restarts.contains(&step) {
            let kept = succession.kept();
            succession = Succession::new(overlap, WORKLOAD_LIFETIME);
            succession.learn(is_kept.then_some(&*kept), now);
        }
        match step >= 12 {
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
        assert!(!workload.roots.contains(&former[0]));
    }
    failed
}

#[test]
fn no_handshake_fails_while_one_root_follows_another() {
    assert_eq!(exchange(OVERLAP, &[], true), 0);
}

#[test]
fn no_handshake_fails_whenever_controllers_restart_meanwhile() {
    let all: Vec<i64> = (12..60).collect();
    for restarts in [&[12][..], &[15], &[18, 19], &[26], &all] {
        assert_eq!(exchange(OVERLAP, restarts, true), 0, "{restarts:?}");
    }
}

#[test]
fn without_what_is_kept_or_without_an_overlap_some_would_fail() {
    assert!(exchange(Duration::ZERO, &[], true) > 0);
    assert!(exchange(OVERLAP, &[15], false) > 0);
}

#[test]
fn an_authority_of_a_root_that_is_known_signs_at_once() {
    let root = Authority::new("mesh", NOW).unwrap();
    let mut succession = first(MeshAuthority::of_root(&root).unwrap(), OVERLAP);
    assert!(!succession.see(MeshAuthority::of_root(&root).unwrap(), NOW));
    assert_eq!(succession.waits(NOW), None);
    assert!(succession.see(authority(NOW), NOW));
    assert_eq!(succession.waits(NOW), Some(1_800));
    assert!(signs(&succession, &root));
    // Its people have taken it back.
    assert!(!succession.see(MeshAuthority::of_root(&root).unwrap(), NOW + 1));
    assert_eq!(succession.waits(NOW), None);
    assert_eq!(succession.roots().count(), 2);
    assert!(succession.step(NOW + 2 + 3_600 + 300));
    assert_eq!(succession.roots().count(), 1);
}

#[test]
fn roots_that_come_and_go_stay_a_short_list_with_those_that_sign() {
    let mut succession = first(authority(NOW), OVERLAP);
    let signer = succession.roots().next().unwrap().clone();
    for second in 1..60 {
        let newest = authority(NOW);
        let root = newest.roots()[0].clone();
        succession.see(newest, NOW + second);
        let roots: Vec<_> = succession.roots().cloned().collect();
        assert!(roots.len() <= ROOTS_MAX && roots.contains(&root) && roots.contains(&signer));
    }
}

/// Two authorities, the second of which has been told for ten minutes, and what is kept of both.
fn ten_minutes() -> (Authority, Authority, Vec<KeptRoot>) {
    let roots = [(); 2].map(|()| Authority::new("mesh", NOW).unwrap());
    let [former, newest] = roots;
    let mut succession = first(MeshAuthority::of_root(&former).unwrap(), OVERLAP);
    succession.see(MeshAuthority::of_root(&newest).unwrap(), NOW);
    succession.step(NOW + 600);
    let kept = succession.kept();
    (former, newest, kept)
}

#[test]
fn a_restart_in_the_overlap_trusts_both_and_signs_with_neither_before_its_end() {
    let (former, newest, kept) = ten_minutes();
    let mut succession = restart(&kept, &newest, NOW + 600);
    assert_eq!(succession.roots().count(), 2);
    assert!(succession.signer().is_none());
    assert_eq!(succession.waits(NOW + 600), Some(1_200));
    // The former has no end yet, since others may sign with it until the newest does.
    assert_eq!(times(&succession, &former), Some((i64::MIN, None)));
    assert_eq!(times(&succession, &newest), Some((0, None)));
    // Another restart changes neither time.
    let mut again = restart(&succession.kept(), &newest, NOW + 900);
    assert_eq!(again.kept(), succession.kept());
    for succession in [&mut succession, &mut again] {
        succession.step(NOW + 1_799);
        assert!(succession.signer().is_none());
        succession.step(NOW + 1_800);
        assert!(signs(succession, &newest));
        assert_eq!(times(succession, &former), Some((i64::MIN, Some(5_700))));
        assert!(!succession.step(NOW + 5_699));
        assert!(succession.step(NOW + 5_700), "the former has ended");
        assert_eq!(times(succession, &former), None);
    }
    // Where its people have put the former back, it goes on at once.
    let succession = restart(&kept, &former, NOW + 600);
    assert!(signs(&succession, &former));
    assert_eq!(succession.roots().count(), 2);
}

#[test]
fn a_restart_after_the_overlap_signs_at_once_and_trusts_the_former_until_its_end() {
    let (former, newest, kept) = ten_minutes();
    let mut before = restart(&kept, &newest, NOW + 600);
    before.step(NOW + 1_800);
    let succession = restart(&before.kept(), &newest, NOW + 3_000);
    assert!(signs(&succession, &newest));
    assert_eq!(times(&succession, &former), Some((i64::MIN, Some(5_700))));
    let succession = restart(&succession.kept(), &newest, NOW + 5_700);
    assert!(signs(&succession, &newest));
    assert_eq!(times(&succession, &former), None);
}

#[test]
fn an_authority_that_came_while_nobody_ran_is_told_first() {
    let roots = [(); 2].map(|()| Authority::new("mesh", NOW).unwrap());
    let [former, newest] = roots;
    let kept = first(MeshAuthority::of_root(&former).unwrap(), OVERLAP).kept();
    let mut succession = restart(&kept, &newest, NOW + 90_000);
    assert!(succession.signer().is_none());
    assert_eq!(succession.waits(NOW + 90_000), Some(1_800));
    assert_eq!(times(&succession, &newest), Some((90_000, None)));
    succession.step(NOW + 91_800);
    assert!(signs(&succession, &newest));
    let until = 91_800 + 3_600 + 300;
    assert_eq!(times(&succession, &former), Some((i64::MIN, Some(until))));
}

#[test]
fn only_where_nothing_was_ever_kept_the_first_authority_signs_at_once() {
    let root = Authority::new("mesh", NOW).unwrap();
    // Something was kept, and cannot be read.
    let mut succession = restart(&[], &root, NOW);
    assert!(succession.signer().is_none());
    succession.step(NOW + 1_800);
    assert!(signs(&succession, &root));
    let succession = first(MeshAuthority::of_root(&root).unwrap(), OVERLAP);
    // A moment later another process knows that nobody has to be told.
    let succession = restart(&succession.kept(), &root, NOW + 1);
    assert!(signs(&succession, &root));
}

#[test]
fn a_clock_that_was_put_back_shortens_nothing() {
    let (former, newest, kept) = ten_minutes();
    let succession = restart(&kept, &newest, NOW - 50_000);
    assert_eq!(times(&succession, &newest), Some((-50_000, None)));
    assert_eq!(succession.waits(NOW - 50_000), Some(1_800));
    assert_eq!(times(&succession, &former), Some((i64::MIN, None)));
    // An end that is far ahead is no later than what can have been signed.
    let far = KeptRoot::new(former.certificate(), 0, Some(i64::MAX)).unwrap();
    let succession = restart(&[far], &newest, NOW);
    let until = 6 * 86_400 + 300;
    assert_eq!(times(&succession, &former), Some((i64::MIN, Some(until))));
    // One that knows the root believes nobody who says that it begins later than now.
    let mut running = restart(&kept, &newest, NOW + 600);
    let ahead = KeptRoot::new(newest.certificate(), NOW + 700, None).unwrap();
    running.learn(Some(&[ahead]), NOW + 630);
    running.step(NOW + 630);
    assert_eq!(running.waits(NOW + 630), Some(1_170));
}

#[test]
fn no_beginning_is_believed_that_is_before_the_last_look() {
    let roots = [(); 2].map(|()| Authority::new("mesh", NOW).unwrap());
    let [former, newest] = roots;
    let mut succession = first(MeshAuthority::of_root(&former).unwrap(), OVERLAP);
    succession.step(NOW + 30);
    // Written by somebody whose clock is behind by a day.
    let behind = KeptRoot::new(newest.certificate(), NOW - 86_400, None).unwrap();
    for now in [NOW + 60, NOW + 90] {
        succession.learn(Some(std::slice::from_ref(&behind)), now);
        succession.see(MeshAuthority::of_root(&newest).unwrap(), now);
        assert_eq!(times(&succession, &newest), Some((30, None)));
    }
}

#[test]
fn replicas_come_to_the_same_times_and_then_write_no_more() {
    let (former, newest, _) = ten_minutes();
    let start = || first(MeshAuthority::of_root(&former).unwrap(), OVERLAP);
    let mut replicas = [start(), start(), start()];
    let mut kept = replicas[0].kept();
    let mut written = 0;
    for look in 1_i64..200 {
        for (number, replica) in replicas.iter_mut().enumerate() {
            // They look one after another, and the clock of the last one is ahead by a minute.
            let now = NOW + look * 30 + [0, 7, 81][number];
            replica.learn(Some(&kept), now);
            match look > 3 {
                true => replica.see(MeshAuthority::of_root(&newest).unwrap(), now),
                false => replica.step(now),
            };
            let wanted = replica.kept();
            written += usize::from(wanted != kept);
            kept = wanted;
        }
    }
    assert!(written < 24, "{written}");
    for replica in &replicas {
        assert!(signs(replica, &newest));
        assert_eq!(times(replica, &former), None);
        assert_eq!(replica.kept(), kept);
    }
}

#[test]
fn seventeen_roots_are_sixteen_with_those_that_are_named() {
    let found = Authority::new("mesh", NOW).unwrap();
    let others = (0..ROOTS_MAX as i64).map(|at| {
        let other = Authority::new("mesh", NOW).unwrap();
        KeptRoot::new(other.certificate(), NOW - 9_000, Some(NOW + 100 + at)).unwrap()
    });
    let mut kept: Vec<_> = others.collect();
    kept.push(KeptRoot::new(found.certificate(), NOW - 9_000, None).unwrap());
    let succession = restart(&kept, &found, NOW);
    assert_eq!(succession.roots().count(), ROOTS_MAX);
    assert!(signs(&succession, &found));
    assert!(!succession.kept().contains(&kept[0]), "it ends first");
    assert!(succession.kept().contains(&kept[1]));
}

#[test]
fn what_is_no_certificate_or_no_time_is_no_kept_root() {
    let root = Authority::new("mesh", NOW).unwrap();
    let der = root.certificate();
    assert!(KeptRoot::new(der, 0, None).is_some());
    for (bytes, since, until) in [
        (&b""[..], 0, None),
        (b"garbage", 0, None),
        (&der[..der.len() - 1], 0, None),
        (&[der, &b"more"[..]].concat(), 0, None),
        (der, -1, None),
        (der, 0, Some(-1)),
    ] {
        assert_eq!(KeptRoot::new(bytes, since, until), None);
    }
    // One that has ended is not trusted, whatever it says of its beginning.
    let ended = KeptRoot::new(der, i64::MAX, Some(NOW)).unwrap();
    let succession = restart(&[ended], &Authority::new("mesh", NOW).unwrap(), NOW);
    assert_eq!(succession.roots().count(), 1);
}
