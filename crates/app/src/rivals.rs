//! Hosts that several namespaces claim: from the control loop, which is told by translation, to
//! whoever asks DNS whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_model::Host;
use myriad_translate::{Difference, Rival};
use tokio::sync::Notify;

/// The hosts of now, and which of them have changed. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Rivals {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// The namespaces that claim each host. Gateways may differ in who has it.
    by_host: BTreeMap<Host, BTreeSet<(Box<str>, bool)>>,
    changed: BTreeSet<Host>,
}

/// A host and the namespaces that claim it; of one that nobody disputes any more there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispute {
    /// The host.
    pub host: Host,
    /// The namespaces that have it, at some gateway.
    pub holders: BTreeSet<Box<str>>,
    /// The namespaces that do not, at some gateway.
    pub others: BTreeSet<Box<str>>,
}

impl Rivals {
    /// Takes in what has changed.
    pub fn change(&self, rivals: Difference<Rival>) {
        if rivals.is_empty() {
            return;
        }
        let mut state = self.lock();
        for rival in rivals.removed {
            if let Some(known) = state.by_host.get_mut(&rival.host) {
                known.remove(&(rival.namespace.clone(), rival.holds));
                if known.is_empty() {
                    state.by_host.remove(&rival.host);
                }
            }
            state.changed.insert(rival.host.clone());
        }
        for rival in rivals.added {
            state.changed.insert(rival.host.clone());
            let known = state.by_host.entry(rival.host.clone()).or_default();
            known.insert((rival.namespace.clone(), rival.holds));
        }
        drop(state);
        self.news.notify_one();
    }

    /// Waits for news and takes them. Dropping the future loses nothing. For one task at a time.
    pub async fn next(&self) -> Vec<Dispute> {
        loop {
            self.news.notified().await;
            let news = self.take();
            if !news.is_empty() {
                return news;
            }
        }
    }

    fn take(&self) -> Vec<Dispute> {
        let mut state = self.lock();
        let changed = std::mem::take(&mut state.changed);
        let disputes = changed.into_iter().map(|host| {
            let known = state.by_host.get(&host).into_iter().flatten();
            let (mut holders, mut others) = (BTreeSet::new(), BTreeSet::new());
            for (namespace, holds) in known {
                let list = if *holds { &mut holders } else { &mut others };
                list.insert(namespace.clone());
            }
            Dispute {
                host,
                holders,
                others,
            }
        });
        disputes.collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dispute {
    /// Whether objects of a namespace claim the host.
    pub fn has(&self, namespace: &str) -> bool {
        self.holders.contains(namespace) || self.others.contains(namespace)
    }

    /// Whether nobody disputes the host any more.
    pub fn is_over(&self) -> bool {
        self.holders.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::Host;
    use myriad_translate::{Difference, Rival};

    use super::{Dispute, Rivals};

    fn rival(host: &str, namespace: &str, holds: bool) -> Arc<Rival> {
        Arc::new(Rival {
            host: Host::parse(host).unwrap(),
            namespace: namespace.into(),
            holds,
        })
    }

    #[tokio::test]
    async fn a_host_is_told_of_with_all_who_claim_it_until_nobody_disputes_it() {
        let rivals = Rivals::default();
        rivals.change(Difference {
            added: vec![
                rival("a.test", "blog", false),
                rival("a.test", "shop", true),
                rival("b.test", "shop", true),
            ],
            removed: Vec::new(),
        });
        let news = rivals.next().await;
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(news[0].holders.contains("shop") && news[0].others.contains("blog"));
        // Who has it now had it not before.
        rivals.change(Difference {
            added: vec![
                rival("a.test", "blog", true),
                rival("a.test", "shop", false),
            ],
            removed: vec![
                rival("a.test", "blog", false),
                rival("a.test", "shop", true),
            ],
        });
        let news = rivals.next().await;
        let [
            Dispute {
                holders, others, ..
            },
        ] = &*news
        else {
            panic!("{news:?}")
        };
        assert!(holders.contains("blog") && others.contains("shop"));
        assert!(news[0].has("shop") && !news[0].has("docs"));
        rivals.change(Difference {
            added: Vec::new(),
            removed: vec![
                rival("a.test", "blog", true),
                rival("a.test", "shop", false),
            ],
        });
        assert!(rivals.next().await[0].is_over());
    }
}
