//! Hosts that the proxies of a cluster tell, since clients ask for them and no object names them:
//! the place where the streams of proxies meet whoever obtains certificates.
//!
//! All of it is bounded by what stands in Secrets, by what streams may have without an answer, and
//! for uses that are yet to be noted by a number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_pki::acme::Millis;
use myriad_proxy::Demand;
use myriad_sync::{DemandedHost, Obtain};
use tokio::sync::watch;

use crate::acme::issued::Issued;
use crate::acme::store::{KeptOnDemand, today};

/// How long a proxy waits for an answer: longer than its handshakes do.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The most uses that are yet to be noted.
const USES_MAX: usize = 8_192;

/// The most wishes that are gone and yet to be looked at.
const GONE_MAX: usize = 4_096;

/// The hosts, and what is known of them. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Demands(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The hosts that proxies wait for, whose streams are sources.
    told: Demand,
    /// The hosts that any replica wishes a certificate for, while this process leads.
    wished: Demand,
    is_open: watch::Sender<bool>,
    state: Mutex<State>,
    /// Changes with the wishes.
    changes: watch::Sender<u64>,
    issued: Issued,
}

#[derive(Default)]
struct State {
    /// The certificates that are there, by host.
    certificates: HashMap<Arc<str>, KnownOnDemand>,
    /// The hosts whose use today is yet to be noted.
    uses: BTreeSet<Arc<str>>,
    /// The wishes that are there, by the name of their Secret.
    wishes: BTreeMap<Arc<str>, Wished>,
    /// The hosts whose wishes are gone, since that was looked at.
    gone: BTreeSet<Arc<str>>,
}

/// A certificate that is there.
struct KnownOnDemand {
    until: Millis,
    used_on: i64,
}

/// A wish as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::acme) struct Wished {
    /// The name of its Secret.
    pub name: Arc<str>,
    /// The version of that.
    pub version: Box<str>,
    /// The host.
    pub host: Arc<str>,
}

impl Demands {
    /// Knows of nothing; registers the metrics that show hosts.
    pub fn new(metrics: &Metrics) -> Demands {
        Demands(Arc::new(Inner {
            told: Demand::new(metrics).for_clients_elsewhere(),
            wished: Demand::default().for_clients_elsewhere(),
            ..Inner::default()
        }))
    }

    /// The certificates that the watches of objects see, and these.
    pub fn issued(&self) -> &Issued {
        &self.0.issued
    }

    /// The hosts that proxies wait for.
    pub(in crate::acme) fn told(&self) -> &Demand {
        &self.0.told
    }

    /// The hosts that any replica wishes a certificate for.
    pub(in crate::acme) fn wished(&self) -> &Demand {
        &self.0.wished
    }

    /// Lets proxies tell hosts from now on, or none.
    pub(super) fn set_open(&self, is_open: bool) {
        self.0.is_open.send_if_modified(|before| {
            let is_other = *before != is_open;
            *before = is_open;
            is_other
        });
    }

    /// Whether the certificate of a host is there.
    pub(super) fn has(&self, host: &str) -> bool {
        let now = Millis::try_from(clock::since_epoch().as_millis()).unwrap_or(Millis::MAX);
        let state = self.lock();
        let known = state.certificates.get(host);
        known.is_some_and(|known| known.until > now)
    }

    /// A certificate is there, and whoever waits for it goes on.
    pub(super) fn put(&self, kept: &KeptOnDemand) {
        let known = KnownOnDemand {
            until: kept.held.until,
            used_on: kept.used_on,
        };
        let former = self.lock().certificates.insert(kept.host.clone(), known);
        if former.is_none_or(|former| former.used_on < kept.used_on) {
            self.0.wished.tell_used(&kept.host);
        }
        self.0.told.settle(&kept.host);
        self.0.wished.settle(&kept.host);
    }

    /// A certificate is gone.
    pub(super) fn remove(&self, host: &str) {
        let mut state = self.lock();
        state.certificates.remove(host);
        state.uses.remove(host);
    }

    /// The hosts whose certificates were used since a day.
    pub(super) fn used_since(&self, day: i64) -> Vec<Arc<str>> {
        let state = self.lock();
        let used = state.certificates.iter();
        let used = used.filter(|(_, known)| known.used_on >= day);
        used.map(|(host, _)| host.clone()).collect()
    }

    /// A certificate is used, which is noted once on each day.
    pub(super) fn note_use(&self, host: &Arc<str>) {
        let today = today();
        let mut state = self.lock();
        let known = state.certificates.get(host);
        if known.is_some_and(|known| known.used_on < today) && state.uses.len() < USES_MAX {
            state.uses.insert(host.clone());
        }
    }

    /// Takes hosts whose use is to be noted.
    pub(super) fn take_uses(&self, count: usize) -> Vec<Arc<str>> {
        let mut state = self.lock();
        std::iter::from_fn(|| state.uses.pop_first())
            .take(count)
            .collect()
    }

    /// A wish is there.
    pub(super) fn put_wish(&self, wish: Wished) {
        let mut state = self.lock();
        state.gone.remove(&wish.host);
        state.wishes.insert(wish.name.clone(), wish);
        drop(state);
        self.tell_change();
    }

    /// A wish is gone.
    pub(super) fn remove_wish(&self, name: &str) {
        let mut state = self.lock();
        if let Some(wish) = state.wishes.remove(name)
            && state.gone.len() < GONE_MAX
        {
            state.gone.insert(wish.host);
        }
        drop(state);
        self.tell_change();
    }

    fn tell_change(&self) {
        self.0.changes.send_modify(|number| {
            *number = number.wrapping_add(1);
        });
    }

    /// Changes whenever wishes do.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The first wishes of all, at most so many.
    pub(super) fn wishes(&self, count: usize) -> Vec<Wished> {
        self.lock().wishes.values().take(count).cloned().collect()
    }

    /// How many wishes there are.
    pub(super) fn wishes_count(&self) -> usize {
        self.lock().wishes.len()
    }

    /// Whether there is a wish, by the name of its Secret.
    pub(super) fn is_wished(&self, name: &str) -> bool {
        self.lock().wishes.contains_key(name)
    }

    /// Takes the hosts whose wishes are gone.
    pub(super) fn take_gone(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.lock().gone)
    }

    async fn answer(&self, host: &str, stream: u64) -> Duration {
        if self.has(host) {
            return Duration::ZERO;
        }
        let asked = self.0.told.ask(host, stream);
        let answer = tokio::time::timeout(ANSWER_MAX, asked).await;
        answer.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Obtain for Demands {
    fn is_open(&self) -> watch::Receiver<bool> {
        self.0.is_open.subscribe()
    }

    fn demand(
        &self,
        stream: u64,
        demanded: DemandedHost,
    ) -> Pin<Box<dyn Future<Output = Duration> + Send>> {
        if demanded.is_used {
            self.note_use(&demanded.host);
            return Box::pin(std::future::ready(Duration::ZERO));
        }
        let demands = self.clone();
        Box::pin(async move { demands.answer(&demanded.host, stream).await })
    }
}
