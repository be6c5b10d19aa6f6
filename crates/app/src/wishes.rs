//! Certificates that are wanted of issuers, and the issuers that objects make: from the control
//! loop, which is told by translation, to whoever obtains them.

mod issuers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_api::ObjectKey;
use myriad_translate::{Difference, StatedIssuer, Wish};
use tokio::sync::Notify;

use issuers::Issuers;
pub use issuers::{ISSUERS_MAX, IssuerNews};

/// The wishes of now, and which of them have changed. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Wishes {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    by_secret: BTreeMap<Arc<str>, BTreeSet<Arc<Wish>>>,
    changed: BTreeSet<Arc<str>>,
    issuers: Issuers,
    /// Whether the first list is complete, so that what is not wanted is known.
    is_complete: bool,
}

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// The names that it is to cover, sorted.
    pub names: Vec<Box<str>>,
    /// The issuer; where objects name several, the first in order.
    pub issuer: Box<str>,
    /// The objects that ask for it.
    pub objects: Vec<ObjectKey>,
}

/// News of wishes and issuers.
#[derive(Debug, Default)]
pub struct ChangedWishes {
    /// Issuers by the names that wishes have for them, which are to be known before what is wanted
    /// of them.
    pub issuers: Vec<(Box<str>, IssuerNews)>,
    /// Secrets as `namespace/name`, and what is wanted in each; none for nothing any more.
    pub changed: Vec<(Arc<str>, Option<WantedCertificate>)>,
    /// Whether the first list is complete.
    pub is_complete: bool,
}

impl Wishes {
    /// Takes in what has changed.
    pub fn change(&self, wishes: Difference<Wish>, issuers: Difference<StatedIssuer>) {
        if wishes.is_empty() && issuers.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.issuers.change(issuers);
        for wish in wishes.removed {
            if let Some(wishes) = state.by_secret.get_mut(&wish.secret) {
                wishes.remove(&wish);
                if wishes.is_empty() {
                    state.by_secret.remove(&wish.secret);
                }
            }
            state.changed.insert(wish.secret.clone());
        }
        for wish in wishes.added {
            state.changed.insert(wish.secret.clone());
            let wishes = state.by_secret.entry(wish.secret.clone()).or_default();
            wishes.insert(wish);
        }
        drop(state);
        self.news.notify_one();
    }

    /// The first list is complete.
    pub fn complete(&self) {
        self.lock().is_complete = true;
        self.news.notify_one();
    }

    /// Everything that there is is told again, to one who knows nothing of it.
    pub fn restate(&self) {
        let mut state = self.lock();
        state.issuers.restate();
        state.changed = state.by_secret.keys().cloned().collect();
        drop(state);
        self.news.notify_one();
    }

    /// The certificate that is wanted in a Secret.
    pub fn wanted(&self, secret: &str) -> Option<WantedCertificate> {
        WantedCertificate::of(self.lock().by_secret.get(secret)?)
    }

    /// Waits for news and takes them. Dropping the future loses nothing. For one task at a time.
    pub async fn next(&self) -> ChangedWishes {
        loop {
            self.news.notified().await;
            let news = self.take();
            if !news.issuers.is_empty() || !news.changed.is_empty() || news.is_complete {
                return news;
            }
        }
    }

    /// Waits until an object makes an issuer. For the task that waits for news.
    pub async fn any_issuer(&self) {
        while !self.lock().issuers.is_any() {
            self.news.notified().await;
        }
        // They are yet to be taken.
        self.news.notify_one();
    }

    fn take(&self) -> ChangedWishes {
        let mut state = self.lock();
        let issuers = state.issuers.take();
        let changed = std::mem::take(&mut state.changed);
        let wanted = |secret: Arc<str>| {
            let wishes = state.by_secret.get(&secret);
            let wanted = wishes.and_then(WantedCertificate::of);
            (secret, wanted)
        };
        ChangedWishes {
            issuers,
            changed: changed.into_iter().map(wanted).collect(),
            is_complete: state.is_complete,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WantedCertificate {
    fn of(wishes: &BTreeSet<Arc<Wish>>) -> Option<WantedCertificate> {
        let issuer = wishes.iter().map(|wish| &wish.issuer).min()?.clone();
        let names = wishes.iter().map(|wish| wish.host.as_str().into());
        let objects = wishes.iter().map(|wish| wish.object.clone());
        let (names, objects): (BTreeSet<Box<str>>, BTreeSet<ObjectKey>) =
            (names.collect(), objects.collect());
        Some(WantedCertificate {
            names: names.into_iter().collect(),
            issuer,
            objects: objects.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_model::Host;
    use myriad_translate::{Difference, StatedIssuer, Wish};

    use super::{IssuerNews, Wishes};

    fn wish(secret: &str, host: &str) -> Arc<Wish> {
        Arc::new(Wish {
            secret: secret.into(),
            host: Host::parse(host).unwrap(),
            issuer: "default".into(),
            object: ObjectKey::new(ObjectKind::Ingress, "shop", "web"),
        })
    }

    #[tokio::test]
    async fn the_hosts_of_a_secret_are_one_certificate_until_none_is_left() {
        let wishes = Wishes::default();
        let (a, b) = (wish("shop/web", "a.example"), wish("shop/web", "b.example"));
        let added = Difference {
            added: vec![b.clone(), a.clone(), wish("shop/other", "c.example")],
            removed: Vec::new(),
        };
        wishes.change(added, Difference::default());
        let news = wishes.next().await;
        assert!(!news.is_complete);
        assert_eq!(news.changed.len(), 2);
        let (secret, wanted) = &news.changed[1];
        let wanted = wanted.as_ref().unwrap();
        assert_eq!((&**secret, wanted.names.len()), ("shop/web", 2));
        assert_eq!(&*wanted.names[0], "a.example");
        assert_eq!(wanted.objects.len(), 1);

        wishes.complete();
        let removed = Difference {
            added: Vec::new(),
            removed: vec![a, b],
        };
        wishes.change(removed, Difference::default());
        let news = wishes.next().await;
        assert!(news.is_complete);
        assert_eq!(news.changed, [("shop/web".into(), None)]);
        assert_eq!(wishes.wanted("shop/web"), None);

        // One who begins later hears of what is left, and of nothing else.
        wishes.restate();
        let news = wishes.next().await;
        assert_eq!(news.changed.len(), 1);
        assert_eq!(news.changed[0].1, wishes.wanted("shop/other"));
    }

    #[tokio::test]
    async fn whoever_waits_for_an_issuer_leaves_the_news_of_it() {
        let wishes = Wishes::default();
        let issuer = StatedIssuer {
            name: "shop/le".into(),
            object: ObjectKey::new(ObjectKind::Issuer, "shop", "le"),
            created: 0,
            terms: Err("broken".into()),
        };
        let waits = wishes.any_issuer();
        let issuer = Arc::new(issuer);
        let added = Difference {
            added: vec![issuer.clone()],
            removed: Vec::new(),
        };
        wishes.change(Difference::default(), added);
        waits.await;
        let news = wishes.next().await;
        assert_eq!(news.issuers, [("shop/le".into(), IssuerNews::Used(issuer))]);
        assert!(news.changed.is_empty() && !news.is_complete);
    }
}
