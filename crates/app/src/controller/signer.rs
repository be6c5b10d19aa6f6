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
use myriad_pki::{KeptRoot, MeshAuthority, Succession};
use myriad_sync::{Anchors, Identity, NotSigned, Sign};
use tokio::sync::watch;

use super::pods::KnownPods;

/// How often the authority and what is kept are read, so that what others write is noticed.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// When a proxy shall ask again while nobody can sign.
const RETRY_AFTER: Duration = Duration::from_secs(15);

/// The longest time that a proxy is kept waiting for a root to be known: another replica, or an
/// authority that is put back, may sign before.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The terms of signatures: trust domains and lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The trust domain of every identity.
    pub trust_domain: String,
    /// Other trust domains whose identities are taken for those of this one.
    pub aliases: Vec<String>,
    /// How long a certificate holds.
    pub lifetime: Duration,
    /// How long a root is told by all controllers before anything is signed with it.
    pub overlap: Duration,
}

/// Signs while there is an authority. Cheap to clone.
#[derive(Clone)]
pub struct Signer(Arc<Shared>);

struct Shared {
    terms: Terms,
    state: Mutex<State>,
    anchors: watch::Sender<Option<Arc<Anchors>>>,
    until: Gauge,
    /// The names of each Pod's workload.
    pods: KnownPods,
}

struct State {
    succession: Succession,
    /// Whether others know what is trusted here. Before that nobody is told and nothing is signed.
    is_kept: bool,
}

impl Terms {
    /// The succession by these terms. Controllers look one after another, so the first one that
    /// tells a root tells it for longer than the last one.
    fn succession(&self) -> Succession {
        Succession::new(self.overlap + LOOK_INTERVAL, self.lifetime)
    }
}

impl Signer {
    /// A signer without an authority.
    pub fn new(terms: Terms, pods: KnownPods, metrics: &Metrics) -> Signer {
        let until = Gauge::default();
        let help = "When the authority of the mesh ends, in seconds since the epoch; 0 for none";
        metrics.register("mesh_authority_until_seconds", help, until.clone());
        let state = State {
            succession: terms.succession(),
            is_kept: false,
        };
        Signer(Arc::new(Shared {
            terms,
            state: Mutex::new(state),
            anchors: watch::channel(None).0,
            until,
            pods,
        }))
    }

    /// Takes in what is kept, none if nothing ever was, and the authority that is found now, and
    /// returns what is to be kept. The authority signs as soon as what it signs is trusted.
    pub fn learn(&self, kept: Option<&[KeptRoot]>, newest: Option<MeshAuthority>) -> Vec<KeptRoot> {
        let mut state = self.lock();
        if !state.is_kept {
            // What was concluded before may rest on what others had not written yet.
            state.succession = self.0.terms.succession();
        }
        state.succession.learn(kept, clock::unix_seconds());
        self.advance(&mut state, newest);
        state.succession.kept()
    }

    /// Takes in the authority that is found now, while nobody can say what is kept. Nothing
    /// begins in this way.
    pub fn see(&self, newest: Option<MeshAuthority>) {
        let mut state = self.lock();
        if state.is_kept {
            self.advance(&mut state, newest);
        }
    }

    /// Tells and signs from now on: what [`learn`](Self::learn) has returned is kept.
    pub fn begin(&self) {
        let mut state = self.lock();
        let has_roots = state.succession.roots().next().is_some();
        state.is_kept |= has_roots;
        self.tell(&state);
    }

    /// Whether it tells proxies what to trust.
    pub fn has_begun(&self) -> bool {
        self.lock().is_kept
    }

    /// Whether nobody signs before the root of the authority is known.
    pub fn waits(&self) -> bool {
        let state = self.lock();
        let waits = state.succession.waits(clock::unix_seconds());
        state.succession.signer().is_none() && waits.is_some()
    }

    fn advance(&self, state: &mut State, newest: Option<MeshAuthority>) {
        let now = clock::unix_seconds();
        match newest {
            Some(newest) => state.succession.see(newest, now),
            None => state.succession.step(now),
        };
        self.tell(state);
    }

    /// Tells proxies what to trust, before anything else is signed: the caller holds the lock.
    fn tell(&self, state: &State) {
        if !state.is_kept {
            return;
        }
        let signer = state.succession.signer();
        self.0.until.set(signer.map_or(0, MeshAuthority::until));
        let Terms {
            trust_domain,
            aliases,
            ..
        } = &self.0.terms;
        let roots = state.succession.roots();
        let roots = roots.map(|it| Bytes::copy_from_slice(it));
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
    fn names(&self, identity: &Identity) -> Option<Arc<WorkloadNames>> {
        let mut parts = identity.subject.split('/');
        let (namespace, _, pod) = (parts.next()?, parts.next()?, parts.next()?);
        self.0.pods.names(namespace, pod)
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
        let state = self.lock();
        let (now, lifetime) = (clock::unix_seconds(), self.0.terms.lifetime);
        let Some(signer) = state.succession.signer().filter(|_| state.is_kept) else {
            let (reason, retry_after) = refusal(&state, now);
            return Err(not(reason, retry_after));
        };
        let signed = signer.sign_named(request, &workload, names, now, lifetime);
        let signed = signed.map_err(|error| not(error.to_string(), RETRY_AFTER))?;
        let chain = signed.chain.iter().map(|it| Bytes::copy_from_slice(it));
        Ok(chain.collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why nobody signs, and when it is worth asking again.
fn refusal(state: &State, now: i64) -> (String, Duration) {
    let left = state.succession.waits(now).filter(|_| state.is_kept);
    let Some(left) = left.and_then(|it| u64::try_from(it).ok()) else {
        let reason = "there is no authority of the mesh yet".to_owned();
        return (reason, RETRY_AFTER);
    };
    let reason = format!(
        "the root of the authority of the mesh is new, and has to be known everywhere before \
         anything is signed with it: in {left} s"
    );
    let wait = Duration::from_secs(left.max(1));
    (reason, wait.min(WAIT_MAX))
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
            let names = self.names(identity);
            self.sign_now(identity, names.as_deref(), request)
        })
    }
}

#[cfg(test)]
mod tests;
