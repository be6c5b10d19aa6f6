//! The whole life of a cluster's roots, with replicas and proxies that notice late.

use std::collections::VecDeque;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{RootCertStore, crypto::aws_lc_rs};

use super::{OVERLAP, Roots, RootsError, Step, Texts};
use crate::authority::AUTHORITY_LIFETIME;
use crate::{Authority, Leaf};

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86_400;
const HALF: i64 = AUTHORITY_LIFETIME.as_secs() as i64 / 2;
const LEAF_LIFETIME: Duration = Duration::from_secs(DAY as u64);
const VERSION_KEY: &str = "version.key";

fn is_trusted(bundle: &str, leaf: &Leaf, now: i64) -> bool {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = aws_lc_rs::default_provider().into();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
    let name = ServerName::try_from("localhost").unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.unsigned_abs()));
    let verifier = verifier.build().unwrap();
    let verified = verifier.verify_server_cert(&leaf.chain[0], &[], &name, &[], now);
    verified.is_ok()
}

fn issue(authority: &Authority, now: i64) -> Leaf {
    let names = ["localhost".to_owned()];
    authority.issue(&names, now, LEAF_LIFETIME).unwrap()
}

fn kept(roots: &Roots) -> Texts {
    let mut texts = Texts::from([(VERSION_KEY.to_owned(), "k".to_owned())]);
    roots.expose_into(&mut texts);
    texts
}

/// Does all steps that are due, through what is kept.
fn run(roots: &mut Roots, now: i64) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = roots.step(now).unwrap() {
        steps.push(step);
        let texts = kept(roots);
        assert_eq!(texts[VERSION_KEY], "k");
        *roots = Roots::from_texts(&texts).unwrap();
        assert_eq!(kept(roots), texts);
    }
    steps
}

#[test]
fn one_authority_follows_another_step_by_step() {
    let overlap = OVERLAP.as_secs() as i64;
    let mut roots = Roots::new(NOW).unwrap();
    let count = |roots: &Roots| roots.bundle().matches("BEGIN").count();
    let first = roots.current().certificate_pem().to_owned();
    assert_eq!(run(&mut roots, NOW), []);
    assert_eq!(run(&mut roots, NOW + HALF - DAY), []);
    let due = NOW + HALF;
    assert_eq!(run(&mut roots, due), [Step::Made, Step::Published]);
    assert_eq!(count(&roots), 2);
    assert_eq!(roots.current().certificate_pem(), first);
    assert_eq!(run(&mut roots, due + overlap - 1), []);
    assert_eq!(run(&mut roots, due + overlap), [Step::Promoted]);
    assert_ne!(roots.current().certificate_pem(), first);
    assert_eq!(count(&roots), 2);
    assert!(roots.bundle().ends_with(&first));
    assert_eq!(run(&mut roots, due + 2 * overlap - 1), []);
    assert_eq!(run(&mut roots, due + 2 * overlap), [Step::Dropped]);
    assert_eq!(count(&roots), 1);
    assert!(!kept(&roots).contains_key("previous.crt"));
    assert_eq!(run(&mut roots, due + HALF - DAY), []);
    let later = run(&mut roots, due + HALF + DAY);
    assert_eq!(later, [Step::Made, Step::Published]);
}

#[test]
fn a_clock_far_ahead_does_not_stop_what_others_do_and_shortens_no_overlap() {
    let year = 365 * DAY;
    let mut roots = Roots::new(NOW).unwrap();
    let wrong = NOW + 6 * year;
    assert_eq!(run(&mut roots, wrong), [Step::Made, Step::Published]);
    assert_eq!(run(&mut roots, NOW), [Step::Made, Step::Published]);
    assert_eq!(run(&mut roots, NOW + DAY), []);
    assert_eq!(run(&mut roots, NOW + 7 * DAY), [Step::Promoted]);
    assert!(is_trusted(
        &roots.bundle(),
        &issue(roots.current(), NOW),
        NOW
    ));
}

#[test]
fn what_was_kept_before_there_was_a_next_is_read_and_what_is_broken_is_not() {
    let roots = Roots::new(NOW).unwrap();
    let mut texts = kept(&roots);
    assert!(Roots::from_texts(&texts).is_ok());
    texts.insert("next.crt".to_owned(), texts["ca.crt"].clone());
    let error = Roots::from_texts(&texts).unwrap_err();
    assert!(matches!(error, RootsError::Missing("next.key")), "{error}");
    texts.insert("next.key".to_owned(), texts["ca.key"].clone());
    texts.insert("next.published".to_owned(), "soon".to_owned());
    let error = Roots::from_texts(&texts).unwrap_err();
    assert!(matches!(error, RootsError::Time(_)), "{error}");
    texts.remove("ca.key");
    assert!(Roots::from_texts(&texts).is_err());
    let line = roots.current().expose_key_pem().lines().nth(1).unwrap();
    assert!(!format!("{roots:?} {error:?}").contains(line));
}

/// A small generator, so that a seed gives one run wherever it is tried again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as i64) % bound
    }
}

/// The state that all replicas share: a Secret with a version, and what proxies mount, with a
/// delay.
struct Cluster {
    secret: (u64, Texts),
    bundle: String,
    /// The texts that were published and when, oldest first.
    history: VecDeque<(i64, String)>,
}

impl Cluster {
    fn publish(&mut self, bundle: String, now: i64) {
        if self.bundle != bundle {
            self.bundle.clone_from(&bundle);
            self.history.push_back((now, bundle));
        }
    }

    /// The text that a proxy reads whose node is `late` seconds behind.
    fn mounted(&self, now: i64, late: i64) -> &str {
        let seen = |(at, _): &&(i64, String)| *at <= now - late;
        let newest = self.history.iter().rev().find(seen);
        &newest.or(self.history.front()).unwrap().1
    }
}

/// A controller: what it signs with, and what it shows.
struct Replica {
    authority: Authority,
    leaf: Leaf,
}

impl Replica {
    /// Reads, publishes and does what is due; sometimes another one is faster, or it is stopped
    /// in the midst of it.
    fn look(&mut self, cluster: &mut Cluster, random: &mut Random, now: i64) {
        for _ in 0..8 {
            let (version, mut texts) = cluster.secret.clone();
            let mut roots = Roots::from_texts(&texts).unwrap();
            cluster.publish(roots.bundle(), now);
            if random.below(6) == 0 {
                return;
            }
            let step = roots.step(now).unwrap();
            if step.is_some() {
                if random.below(4) == 0 {
                    cluster.secret.0 += 1;
                }
                if cluster.secret.0 == version {
                    roots.expose_into(&mut texts);
                    cluster.secret = (version + 1, texts);
                }
                continue;
            }
            let current = roots.current();
            if current.certificate_pem() != self.authority.certificate_pem() {
                let key = current.expose_key_pem();
                self.authority = Authority::from_pem(current.certificate_pem(), key).unwrap();
                self.leaf = issue(&self.authority, now);
            }
            return;
        }
    }
}

#[test]
fn over_a_whole_life_every_proxy_trusts_every_replica_at_every_hour() {
    for seed in 1..=6 {
        eprintln!("MYRIAD_SEED={seed}");
        let mut random = Random(seed);
        let roots = Roots::new(NOW).unwrap();
        let mut cluster = Cluster {
            secret: (1, kept(&roots)),
            bundle: String::new(),
            history: VecDeque::new(),
        };
        cluster.publish(roots.bundle(), NOW);
        let replica = |_| {
            let current = roots.current();
            let (pem, key) = (current.certificate_pem(), current.expose_key_pem());
            let authority = Authority::from_pem(pem, key).unwrap();
            let leaf = issue(&authority, NOW);
            Replica { authority, leaf }
        };
        let mut replicas: Vec<Replica> = (0..3).map(replica).collect();
        let mut now = NOW;
        let end = NOW + 2 * HALF + 60 * DAY;
        while now < end {
            // Years in which nothing is due are passed in strides; the turns hour by hour.
            let age = (now - NOW) % HALF;
            let is_turn = !(40 * DAY..HALF - 20 * DAY).contains(&age);
            now += if is_turn { 3 * 3_600 } else { 10 * DAY };
            for replica in &mut replicas {
                // Some replica may not look for half a day.
                if random.below(4) == 0 || !is_turn {
                    replica.look(&mut cluster, &mut random, now);
                }
                if now + DAY / 3 >= replica.leaf.until {
                    replica.leaf = issue(&replica.authority, now);
                }
                let late = random.below(2 * DAY);
                let mounted = cluster.mounted(now, late);
                assert!(
                    is_trusted(mounted, &replica.leaf, now),
                    "day {}",
                    (now - NOW) / DAY
                );
            }
            assert!(cluster.bundle.matches("BEGIN").count() <= 3);
        }
        let first = roots.current().certificate_pem();
        assert!(!cluster.bundle.contains(first), "it was replaced");
        assert_eq!(cluster.secret.1[VERSION_KEY], "k");
        let bundles = cluster.history.len();
        assert!((7..=9).contains(&bundles), "{bundles} bundles in two turns");
    }
}
