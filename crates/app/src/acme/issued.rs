//! Certificates that issuers have provided in a cluster, as its watch sees them: from the watch to
//! whoever renews them. One that somebody deletes or edits by hand is noticed by this.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_api::{Batch, Change, Object, ObjectKind, Secret};
use myriad_pki::acme::{HeldCertificate, NAMES_MAX};
use tokio::sync::Notify;

use super::secret::held_in;

/// The most bytes of a directory that is believed: of a URL, and of the name of its issuer.
const DIRECTORY_BYTES_MAX: usize = 4 << 10;

/// The certificates of now, and which of them have changed. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Issued {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

/// Certificates by their Secrets; none for one that is not there, or cannot be read.
pub(super) type IssuedNews = Vec<(Arc<str>, Option<Arc<HeldCertificate>>)>;

#[derive(Default)]
struct State {
    by_secret: BTreeMap<Arc<str>, Arc<HeldCertificate>>,
    /// The Secrets that have changed since they were told of, where somebody is told.
    changed: HashSet<Arc<str>>,
    is_told: bool,
}

impl Issued {
    /// Takes in what the watch has seen.
    pub fn look(&self, batch: &Batch) {
        let mut state = self.lock();
        let mut has_news = false;
        for change in &batch.changes {
            has_news |= match change {
                Change::Put(Object::Secret(secret)) => state.put(secret),
                Change::Remove(key) if key.kind == ObjectKind::Secret => state.remove(key.id()),
                _ => false,
            };
        }
        drop(state);
        if has_news {
            self.news.notify_one();
        }
    }

    /// Takes in a certificate that no watch of objects sees, or that it is gone.
    pub(super) fn note(&self, id: &Arc<str>, held: Option<HeldCertificate>) {
        let has_news = match held {
            Some(held) => self.lock().insert(id, held),
            None => self.lock().remove(id),
        };
        if has_news {
            self.news.notify_one();
        }
    }

    /// All of them; from now on it is told what changes.
    pub(super) fn begin(&self) -> Vec<(Arc<str>, Arc<HeldCertificate>)> {
        let mut state = self.lock();
        state.is_told = true;
        state.changed.clear();
        let all = state.by_secret.iter();
        all.map(|(id, held)| (id.clone(), held.clone())).collect()
    }

    /// Nobody is told any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_told = false;
        state.changed = HashSet::new();
    }

    /// Waits for changes and takes them. Dropping the future loses nothing. For one task at a time.
    pub(super) async fn next(&self) -> IssuedNews {
        loop {
            self.news.notified().await;
            let mut state = self.lock();
            let changed = std::mem::take(&mut state.changed).into_iter();
            let news = changed.map(|id| {
                let held = state.by_secret.get(&id).cloned();
                (id, held)
            });
            let news: IssuedNews = news.collect();
            if !news.is_empty() {
                return news;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, secret: &Secret) -> bool {
        let id = secret.meta.key.id();
        // One of more names was ordered by nobody, and whoever writes it shall not have them kept.
        let held = held_in(secret).filter(|held| held.names.len() <= NAMES_MAX);
        let Some(mut held) = held else {
            return self.remove(id);
        };
        held.names.shrink_to_fit();
        let directory = held.directory.take();
        held.directory = directory.filter(|it| it.len() <= DIRECTORY_BYTES_MAX);
        self.insert(id, held)
    }

    fn insert(&mut self, id: &Arc<str>, held: HeldCertificate) -> bool {
        if self.by_secret.get(id).is_some_and(|known| **known == held) {
            return false;
        }
        self.by_secret.insert(id.clone(), Arc::new(held));
        self.note(id)
    }

    fn remove(&mut self, id: &Arc<str>) -> bool {
        self.by_secret.remove(id).is_some() && self.note(id)
    }

    fn note(&mut self, id: &Arc<str>) -> bool {
        if self.is_told {
            self.changed.insert(id.clone());
        }
        self.is_told
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};
    use myriad_pki::acme::{IssuedChain, NAMES_MAX, OrderStage};

    use super::Issued;
    use crate::acme::{secret, testing};

    /// A Secret that the issuer has provided, or somebody else.
    fn secret_of(id: &str, issued: &IssuedChain, is_ours: bool) -> Change {
        let order = testing::order(id, OrderStage::Placing);
        let mut written = secret::written(&order, issued);
        if !is_ours {
            written["metadata"]["annotations"] = serde_json::json!({});
        }
        let object = Object::from_json(ObjectKind::Secret, &written.to_string());
        Change::Put(object.unwrap())
    }

    fn gone(id: &str) -> Change {
        Change::Remove(ObjectKey::from_id(ObjectKind::Secret, id.into()))
    }

    fn look(issued: &Issued, changes: Vec<Change>) {
        issued.look(&Batch {
            changes,
            ..Batch::default()
        });
    }

    #[tokio::test]
    async fn certificates_of_issuers_alone_are_known_and_their_changes_told() {
        let issued = Issued::default();
        let first = testing::issued(&["a.example"]);
        let second = testing::issued(&["a.example", "b.example"]);
        look(
            &issued,
            vec![
                secret_of("shop/web", &first, true),
                secret_of("shop/own", &first, false),
            ],
        );
        let known = issued.begin();
        assert_eq!(known.len(), 1);
        assert_eq!(
            (&*known[0].0, &known[0].1.names),
            ("shop/web", &first.held.names)
        );

        // The same again is no news; another one is, and so is none.
        look(&issued, vec![secret_of("shop/web", &first, true)]);
        look(&issued, vec![secret_of("shop/web", &second, true)]);
        let news = issued.next().await;
        assert_eq!(news.len(), 1);
        assert_eq!(news[0].1.as_ref().unwrap().names, second.held.names);
        look(&issued, vec![gone("shop/web"), gone("shop/other")]);
        assert_eq!(issued.next().await, [("shop/web".into(), None)]);

        // One that somebody else has written over is none of an issuer any more.
        look(&issued, vec![secret_of("shop/web", &first, true)]);
        look(&issued, vec![secret_of("shop/web", &first, false)]);
        assert_eq!(issued.next().await, [("shop/web".into(), None)]);

        // One of more names than an order has is none, and so is one that had fewer before.
        let names: Vec<String> = (0..=NAMES_MAX).map(|it| format!("n{it}.example")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let most = testing::issued(&names[1..]);
        look(&issued, vec![secret_of("shop/web", &most, true)]);
        let news = issued.next().await;
        assert_eq!(news[0].1.as_ref().unwrap().names.len(), NAMES_MAX);
        let more = testing::issued(&names);
        look(&issued, vec![secret_of("shop/web", &more, true)]);
        assert_eq!(issued.next().await, [("shop/web".into(), None)]);

        // Nothing piles up where nobody is told.
        issued.end();
        for _ in 0..10 {
            look(&issued, vec![secret_of("shop/web", &first, true)]);
            look(&issued, vec![gone("shop/web")]);
        }
        assert!(issued.lock().changed.is_empty());
        assert!(issued.begin().is_empty());
    }
}
