//! Certificates that are wanted of issuers: from the control loop, which is told by translation, to
//! whoever obtains them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_api::ObjectKey;
use myriad_translate::{Difference, Wish};
use tokio::sync::Notify;

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

/// News of wishes.
#[derive(Debug, Default)]
pub struct ChangedWishes {
    /// Secrets as `namespace/name`, and what is wanted in each; none for nothing any more.
    pub changed: Vec<(Arc<str>, Option<WantedCertificate>)>,
    /// Whether the first list is complete.
    pub is_complete: bool,
}

impl Wishes {
    /// Takes in what has changed.
    pub fn change(&self, difference: Difference<Wish>) {
        if difference.is_empty() {
            return;
        }
        let mut state = self.lock();
        for wish in difference.removed {
            if let Some(wishes) = state.by_secret.get_mut(&wish.secret) {
                wishes.remove(&wish);
                if wishes.is_empty() {
                    state.by_secret.remove(&wish.secret);
                }
            }
            state.changed.insert(wish.secret.clone());
        }
        for wish in difference.added {
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

    /// Waits for news and takes them. Dropping the future loses nothing. For one task at a time.
    pub async fn next(&self) -> ChangedWishes {
        loop {
            self.news.notified().await;
            let news = self.take();
            if !news.changed.is_empty() || news.is_complete {
                return news;
            }
        }
    }

    fn take(&self) -> ChangedWishes {
        let mut state = self.lock();
        let changed = std::mem::take(&mut state.changed);
        let wanted = |secret: Arc<str>| {
            let wishes = state.by_secret.get(&secret);
            let wanted = wishes.and_then(WantedCertificate::of);
            (secret, wanted)
        };
        ChangedWishes {
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
    use myriad_translate::{Difference, Wish};

    use super::Wishes;

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
        wishes.change(Difference {
            added: vec![b.clone(), a.clone(), wish("shop/other", "c.example")],
            removed: Vec::new(),
        });
        let news = wishes.next().await;
        assert!(!news.is_complete);
        assert_eq!(news.changed.len(), 2);
        let (secret, wanted) = &news.changed[1];
        let wanted = wanted.as_ref().unwrap();
        assert_eq!((&**secret, wanted.names.len()), ("shop/web", 2));
        assert_eq!(&*wanted.names[0], "a.example");
        assert_eq!(wanted.objects.len(), 1);

        wishes.complete();
        wishes.change(Difference {
            added: Vec::new(),
            removed: vec![a, b],
        });
        let news = wishes.next().await;
        assert!(news.is_complete);
        assert_eq!(news.changed, [("shop/web".into(), None)]);
    }
}
