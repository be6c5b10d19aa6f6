//! The identity that a proxy has in its mesh: asked for, renewed in time, and kept for as long as
//! it holds where nobody renews it. The key is made here and goes nowhere, not even to disk.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_base::clock;
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_base::readiness::{Condition, Readiness};
use myriad_model::{Certificate, KeyEncoding, PrivateKey, Trust, Users};
use myriad_pki::{Credential, Request};
use myriad_sync::{Anchors, Issued, NotSigned};
use rustls::pki_types::CertificateDer;

/// The waits after a request that was refused, unless the controller asks for more.
static WAITS: Waits = Waits {
    first: Duration::from_secs(1)..=Duration::from_millis(1_500),
    second: Duration::from_secs(2)..=Duration::from_secs(3),
    max: Duration::from_secs(60)..=Duration::from_secs(90),
};

/// The shortest time between a certificate and the next request, however soon it ends.
const INTERVAL_MIN: Duration = Duration::from_secs(15);

/// How long after it was due a renewal is missed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often is looked whether the certificate has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The certificate that a proxy shows to peers, and the roots to verify them by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub certificate: Certificate,
    pub roots: Trust,
    /// The trust domains whose workloads are believed.
    pub trust_domains: Arc<[Box<str>]>,
}

/// The identity of this proxy, or the want of one.
pub(super) struct OwnIdentity {
    anchors: Option<Anchors>,
    /// The request that has no answer yet. The end of a stream leaves it so.
    open: Option<Request>,
    held: Option<Held>,
    /// Before this time nothing is asked for, in seconds since the epoch.
    not_before: i64,
    backoff: Backoff,
    /// The condition that is met with the first certificate.
    ready: Option<Condition>,
    validity: Arc<Validity>,
    renewals: Counter,
    until: Gauge,
}

struct Held {
    certificate: Certificate,
    from: i64,
    renewal: i64,
}

/// Whether there is an identity that holds.
pub(super) struct Validity {
    /// The end of the certificate, in seconds since the epoch; 0 before there is any.
    until: AtomicI64,
    /// When the next one is due, likewise; 0 where that was said to be missed.
    due: AtomicI64,
    /// Whether it is missed.
    overdue: Gauge,
}

impl OwnIdentity {
    /// The place of an identity that is yet to come. A sidecar awaits its first one: its workload
    /// must not start without. A gateway does not, since most of what it serves needs none. Neither
    /// stops being ready when one ends: what needs it fails, and the rest does not.
    pub(super) fn new(is_sidecar: bool, readiness: &Readiness, metrics: &Metrics) -> OwnIdentity {
        let (until, renewals, overdue) = (Gauge::default(), Counter::default(), Gauge::default());
        let help = "Whether the certificate of the mesh is due for renewal and nobody has signed";
        metrics.register("mesh_renewal_overdue", help, overdue.clone());
        let help = "When the certificate of the mesh ends, in seconds since the epoch; 0 for none";
        metrics.register("mesh_certificate_until_seconds", help, until.clone());
        let help = "Certificates of the mesh that were taken into use";
        metrics.register("mesh_certificates_taken", help, renewals.clone());
        OwnIdentity {
            anchors: None,
            open: None,
            held: None,
            not_before: i64::MIN,
            backoff: Backoff::new(&WAITS, random_seed()),
            ready: is_sidecar.then(|| readiness.require("an identity of the mesh")),
            validity: Arc::new(Validity {
                until: AtomicI64::new(0),
                due: AtomicI64::new(0),
                overdue,
            }),
            renewals,
            until,
        }
    }

    /// Whether it holds, to be watched where no controller is followed too.
    pub(super) fn validity(&self) -> Arc<Validity> {
        self.validity.clone()
    }

    /// The mesh is known by these now.
    pub(super) fn anchored(&mut self, anchors: Anchors) -> Option<Given> {
        if self.anchors.as_ref() == Some(&anchors) {
            return None;
        }
        self.anchors = Some(anchors);
        self.given()
    }

    /// A request, if one is due.
    pub(super) fn request(&mut self, now: i64) -> Option<Bytes> {
        let is_due = match &self.held {
            None => true,
            // A clock that was put back has not come to its beginning yet.
            Some(held) => now >= held.renewal || now < held.from,
        };
        if !is_due || now < self.not_before {
            return None;
        }
        match Request::new() {
            Ok(request) => {
                let der = Bytes::copy_from_slice(&request.der);
                self.open = Some(request);
                Some(der)
            }
            Err(error) => {
                tracing::error!(%error, "no key of the mesh can be made");
                self.wait(Duration::ZERO, now);
                None
            }
        }
    }

    /// Takes the answer to the request, and returns the new certificate if there is one.
    pub(super) fn signed(&mut self, outcome: Result<Issued, NotSigned>, now: i64) -> Option<Given> {
        let request = self.open.take()?;
        let issued = match outcome {
            Ok(issued) => issued,
            Err(NotSigned {
                reason,
                retry_after,
            }) => {
                tracing::warn!(reason, "no identity of the mesh was given");
                self.wait(retry_after, now);
                return None;
            }
        };
        let chain = issued.chain.iter();
        let chain = chain.map(|it| CertificateDer::from(it.to_vec()));
        let credential = match request.complete(chain.collect()) {
            Ok(credential) if credential.signed.until > now => credential,
            Ok(Credential { signed, .. }) => {
                let until = signed.until;
                tracing::error!(until, "the identity that was given has ended by this clock");
                self.wait(Duration::ZERO, now);
                return None;
            }
            Err(error) => {
                tracing::error!(%error, "the identity that was given is of no use");
                self.wait(Duration::ZERO, now);
                return None;
            }
        };
        self.take(credential, issued, now);
        self.given()
    }

    fn take(&mut self, credential: Credential, issued: Issued, now: i64) {
        let Credential {
            signed,
            key,
            identity,
        } = credential;
        tracing::info!(%identity, until = signed.until, "this proxy has an identity of the mesh");
        let key = Bytes::copy_from_slice(key.secret_der());
        let renewal = signed.renewal(random_seed() as u32);
        self.held = Some(Held {
            certificate: Certificate {
                chain: issued.chain.into(),
                key: PrivateKey::new(KeyEncoding::Pkcs8, key),
            },
            from: signed.from,
            renewal,
        });
        self.anchors = Some(issued.anchors);
        self.backoff.reset();
        self.not_before = now.saturating_add(seconds(INTERVAL_MIN));
        self.renewals.inc();
        self.until.set(signed.until);
        self.validity.until.store(signed.until, Relaxed);
        self.validity.due.store(renewal, Relaxed);
        self.validity.overdue.set(0);
        if let Some(ready) = &self.ready {
            ready.meet();
        }
    }

    fn given(&self) -> Option<Given> {
        let (held, anchors) = (self.held.as_ref()?, self.anchors.as_ref()?);
        Some(Given {
            certificate: held.certificate.clone(),
            roots: Trust {
                roots: anchors.roots.clone().into(),
                crls: Box::default(),
                users: Users::default(),
            },
            trust_domains: anchors
                .trust_domains
                .iter()
                .map(|it| (&**it).into())
                .collect(),
        })
    }

    /// Asks no sooner than this, and less and less often.
    fn wait(&mut self, at_least: Duration, now: i64) {
        let wait = self.backoff.fail_for(at_least);
        self.not_before = now.saturating_add(seconds(wait).max(1));
    }
}

impl Validity {
    /// Says for ever when an identity ends.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let now = clock::unix_seconds();
            if self.is_missed(now) {
                let until = self.until.load(Relaxed);
                tracing::warn!(
                    until,
                    "nobody renews the identity of the mesh, which still holds"
                );
            }
            if self.has_ended(now) {
                tracing::error!("the identity of the mesh has ended, and nobody renewed it");
            }
        }
    }

    /// Whether the renewal was found to be missed since it was asked last.
    fn is_missed(&self, now: i64) -> bool {
        let due = self.due.load(Relaxed);
        let is_missed = due != 0 && now >= due.saturating_add(seconds(PATIENCE));
        // One that came in between goes on.
        let exchange = || self.due.compare_exchange(due, 0, Relaxed, Relaxed);
        let is_new = is_missed && exchange().is_ok();
        if is_new {
            self.overdue.set(1);
        }
        is_new
    }

    /// Whether it has ended since it was asked last.
    fn has_ended(&self, now: i64) -> bool {
        let until = self.until.load(Relaxed);
        let is_over = until != 0 && now >= until;
        // One that was renewed in between goes on.
        let exchange = || self.until.compare_exchange(until, 0, Relaxed, Relaxed);
        is_over && exchange().is_ok()
    }
}

/// Any number.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use myriad_base::metrics::Metrics;
    use myriad_base::readiness::Readiness;
    use myriad_pki::{Authority, Identity, MeshAuthority};
    use myriad_sync::{Anchors, Issued, NotSigned};

    use super::{Given, OwnIdentity};

    const NOW: i64 = 1_800_000_000;
    const DAY: Duration = Duration::from_secs(86_400);

    struct Scene {
        own: OwnIdentity,
        readiness: Readiness,
        authority: MeshAuthority,
    }

    fn scene() -> Scene {
        let readiness = Readiness::new();
        Scene {
            own: OwnIdentity::new(true, &readiness, &Metrics::new()),
            readiness,
            authority: MeshAuthority::of_root(&Authority::new("mesh", NOW).unwrap()).unwrap(),
        }
    }

    impl Scene {
        fn anchors(&self) -> Anchors {
            let roots = self.authority.roots().iter();
            Anchors {
                roots: roots.map(|it| Bytes::copy_from_slice(it)).collect(),
                trust_domains: vec!["cluster.local".to_owned()],
            }
        }

        fn sign(&self, request: &[u8], now: i64) -> Result<Issued, NotSigned> {
            let identity = Identity::new("cluster.local", "shop", "cart").unwrap();
            let signed = self.authority.sign(request, &identity, now, DAY).unwrap();
            let chain = signed.chain.iter();
            Ok(Issued {
                chain: chain.map(|it| Bytes::copy_from_slice(it)).collect(),
                anchors: self.anchors(),
            })
        }

        fn obtain(&mut self, now: i64) -> Given {
            let request = self.own.request(now).expect("one is due");
            let outcome = self.sign(&request, now);
            self.own.signed(outcome, now).expect("an identity")
        }
    }

    fn refusal(seconds: u64) -> Result<Issued, NotSigned> {
        Err(NotSigned {
            reason: "there is no authority".to_owned(),
            retry_after: Duration::from_secs(seconds),
        })
    }

    #[test]
    fn a_proxy_is_ready_with_its_first_identity_and_renews_it_before_it_ends() {
        let mut scene = scene();
        assert_eq!(scene.readiness.pending(), ["an identity of the mesh"]);
        let first = scene.obtain(NOW);
        assert!(scene.readiness.pending().is_empty());
        assert_eq!(&*first.roots.roots, scene.anchors().roots);
        assert_eq!(scene.own.request(NOW + 1), None);
        assert_eq!(scene.own.request(NOW + 86_400 / 2), None);
        let second = scene.obtain(NOW + 57_600);
        assert_ne!(
            second.certificate.key, first.certificate.key,
            "a key is used once"
        );
        assert_eq!(scene.own.renewals.get(), 2);
    }

    #[test]
    fn while_nobody_signs_the_last_one_is_kept_until_it_ends() {
        let mut scene = scene();
        scene.obtain(NOW);
        let validity = scene.own.validity();
        assert!(!validity.is_missed(NOW + 48_000), "it is not due");
        let (mut now, mut asked, mut missed) = (NOW + 57_600, 0, 0);
        while now < NOW + 86_400 {
            if scene.own.request(now).is_some() {
                asked += 1;
                assert_eq!(scene.own.signed(refusal(0), now), None);
            }
            assert!(!validity.has_ended(now));
            missed += i32::from(validity.is_missed(now));
            now += 1;
        }
        assert_eq!((missed, validity.overdue.get()), (1, 1), "it is said once");
        // Once a minute or a little less often, but for the first few.
        assert!((320..=500).contains(&asked), "{asked}");
        assert!(validity.has_ended(now));
        assert!(!validity.has_ended(now), "it is said once");
        assert!(scene.readiness.pending().is_empty(), "the rest goes on");
        let now = now + 200;
        scene.obtain(now);
        assert_eq!(validity.overdue.get(), 0);
        assert!(!validity.has_ended(now));
    }

    #[test]
    fn a_gateway_awaits_no_identity() {
        let readiness = Readiness::new();
        let _own = OwnIdentity::new(false, &readiness, &Metrics::new());
        assert!(readiness.pending().is_empty());
    }

    #[test]
    fn who_is_told_to_wait_waits_and_a_stream_that_ended_is_no_refusal() {
        let mut scene = scene();
        assert!(scene.own.request(NOW).is_some());
        assert!(scene.own.request(NOW).is_some(), "another stream");
        assert_eq!(scene.own.signed(refusal(120), NOW), None);
        assert_eq!(scene.own.request(NOW + 119), None);
        assert!(scene.own.request(NOW + 122).is_some());
    }

    #[test]
    fn other_roots_are_taken_at_once_and_the_same_ones_change_nothing() {
        let mut scene = scene();
        let mut anchors = scene.anchors();
        assert_eq!(
            scene.own.anchored(anchors.clone()),
            None,
            "no certificate yet"
        );
        let given = scene.obtain(NOW);
        assert_eq!(scene.own.anchored(anchors.clone()), None);
        anchors.roots.push(Bytes::from_static(b"next"));
        let changed = scene.own.anchored(anchors.clone()).unwrap();
        assert_eq!(changed.certificate, given.certificate);
        assert_eq!(&*changed.roots.roots, anchors.roots);
    }

    #[test]
    fn what_was_not_asked_for_or_has_ended_is_not_taken() {
        let mut scene = scene();
        let stranger = myriad_pki::Request::new().unwrap();
        let outcome = scene.sign(&stranger.der, NOW);
        assert!(scene.own.request(NOW).is_some());
        assert_eq!(scene.own.signed(outcome, NOW), None);
        let now = NOW + 10;
        let request = scene.own.request(now).unwrap();
        let outcome = scene.sign(&request, now);
        assert_eq!(scene.own.signed(outcome, now + 90_000), None);
        assert!(!scene.readiness.pending().is_empty());
        assert_eq!(scene.own.signed(refusal(0), now), None, "nothing is open");
    }

    #[test]
    fn a_clock_that_was_put_back_leads_to_another_certificate() {
        let mut scene = scene();
        scene.obtain(NOW);
        // Five minutes are nothing.
        assert_eq!(scene.own.request(NOW + 20 - 300), None);
        scene.own.not_before = i64::MIN;
        assert!(scene.own.request(NOW - 301).is_some());
    }
}
