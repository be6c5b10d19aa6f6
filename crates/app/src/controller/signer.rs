//! Signs certificates of the mesh for the proxies that ask for them, each for the service account
//! that its token proves and for nobody else.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock;
use myriad_base::metrics::{Gauge, Metrics};
use myriad_model::WorkloadNames;
use myriad_pki::{MeshAuthority, Succession};
use myriad_sync::{Anchors, Identity, NotSigned, Sign};
use tokio::sync::{mpsc, oneshot, watch};

use crate::control::Event as ControlEvent;

/// When a proxy shall ask again while nobody can sign.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// The terms of signatures: trust domains and lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The trust domain of every identity.
    pub trust_domain: String,
    /// Other trust domains whose identities are taken for those of this one.
    pub aliases: Vec<String>,
    /// How long a certificate holds.
    pub lifetime: Duration,
    /// How long a root is told before anything is signed with it.
    pub overlap: Duration,
}

/// Signs while there is an authority. Cheap to clone.
#[derive(Clone)]
pub struct Signer(Arc<Shared>);

struct Shared {
    terms: Terms,
    succession: Mutex<Option<Succession>>,
    anchors: watch::Sender<Option<Arc<Anchors>>>,
    until: Gauge,
    /// The control loop, which knows the names of each Pod's workload.
    inbox: mpsc::Sender<ControlEvent>,
}

impl Signer {
    /// A signer without an authority.
    pub fn new(terms: Terms, inbox: mpsc::Sender<ControlEvent>, metrics: &Metrics) -> Signer {
        let until = Gauge::default();
        let help = "When the authority of the mesh ends, in seconds since the epoch; 0 for none";
        metrics.register("mesh_authority_until_seconds", help, until.clone());
        Signer(Arc::new(Shared {
            terms,
            succession: Mutex::new(None),
            anchors: watch::channel(None).0,
            until,
            inbox,
        }))
    }

    /// This is the authority that is kept now. It signs as soon as what it signs is trusted.
    pub fn see(&self, newest: MeshAuthority) {
        let now = clock::unix_seconds();
        let mut succession = self.lock();
        match &mut *succession {
            Some(known) => drop(known.see(newest, now)),
            None => {
                let Terms {
                    overlap, lifetime, ..
                } = self.0.terms;
                *succession = Some(Succession::new(newest, overlap, lifetime));
            }
        }
        self.tell(succession.as_ref());
    }

    /// Does what is due by the clock.
    pub fn step(&self) {
        let mut succession = self.lock();
        let Some(known) = &mut *succession else {
            return;
        };
        known.step(clock::unix_seconds());
        self.tell(succession.as_ref());
    }

    /// Tells proxies what to trust, before anything else is signed: the caller holds the lock.
    fn tell(&self, succession: Option<&Succession>) {
        let Some(succession) = succession else {
            return;
        };
        self.0.until.set(succession.signer().until());
        let Terms {
            trust_domain,
            aliases,
            ..
        } = &self.0.terms;
        let roots = succession.roots().map(|it| Bytes::copy_from_slice(it));
        let domains = std::iter::once(trust_domain).chain(aliases);
        let anchors = Anchors {
            roots: roots.collect(),
            trust_domains: domains.cloned().collect(),
        };
        self.0.anchors.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&anchors);
            *known = Some(Arc::new(anchors));
            is_new
        });
    }

    /// The names of a Pod's workload; `None` where nobody knows the Pod.
    async fn names(&self, identity: &Identity) -> Option<WorkloadNames> {
        let mut parts = identity.subject.split('/');
        let (namespace, _, pod) = (parts.next()?, parts.next()?, parts.next()?);
        let (answer, answered) = oneshot::channel();
        let asked = ControlEvent::Named(format!("{namespace}/{pod}"), answer);
        // A control loop that has ended answers nobody.
        let _ = self.0.inbox.send(asked).await;
        answered.await.ok().flatten()
    }

    fn sign_now(
        &self,
        identity: &Identity,
        names: Option<&WorkloadNames>,
        request: &[u8],
    ) -> Result<Vec<Bytes>, NotSigned> {
        let not = |reason: String, retry_after| NotSigned {
            reason,
            retry_after,
        };
        let mut parts = identity.subject.split('/');
        let (Some(namespace), Some(account)) = (parts.next(), parts.next()) else {
            let reason = "the token is not of a service account".to_owned();
            return Err(not(reason, RETRY_AFTER));
        };
        let domain = &self.0.terms.trust_domain;
        let workload = myriad_pki::Identity::new(domain, namespace, account);
        let workload = workload.map_err(|error| not(error.to_string(), RETRY_AFTER))?;
        let succession = self.lock();
        let Some(succession) = &*succession else {
            let reason = "there is no authority of the mesh yet".to_owned();
            return Err(not(reason, RETRY_AFTER));
        };
        let (now, lifetime) = (clock::unix_seconds(), self.0.terms.lifetime);
        let signer = succession.signer();
        let signed = signer.sign_named(request, &workload, names, now, lifetime);
        let signed = signed.map_err(|error| not(error.to_string(), RETRY_AFTER))?;
        let chain = signed.chain.iter().map(|it| Bytes::copy_from_slice(it));
        Ok(chain.collect())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Succession>> {
        let succession = self.0.succession.lock();
        succession.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sign for Signer {
    fn anchors(&self) -> watch::Receiver<Option<Arc<Anchors>>> {
        self.0.anchors.subscribe()
    }

    fn sign<'a>(
        &'a self,
        identity: &'a Identity,
        request: &'a [u8],
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Bytes>, NotSigned>> + Send + 'a>> {
        Box::pin(async move {
            let names = self.names(identity).await;
            self.sign_now(identity, names.as_ref(), request)
        })
    }
}

#[cfg(test)]
mod tests;
