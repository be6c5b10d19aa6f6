//! Certificates that are wanted of issuers, and the issuers that objects make: from the control
//! loop, which is told by translation, to whoever obtains them.

mod asked;
mod issuers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_translate::{Difference, StatedIssuer, Wish};
use tokio::sync::{Notify, watch};

use asked::Asked;
pub use asked::WantedCertificate;
use issuers::Issuers;
pub use issuers::{ISSUER, ISSUERS_MAX, IssuerNews};

/// The most Secrets that are told of at once, and about the most names of theirs; the others
/// follow.
const NEWS_MAX: usize = 4_096;

/// The wishes of now, and which of them have changed. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct Wishes {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
    /// The URL that is asked about names on demand, where an issuer says so.
    ask: Arc<watch::Sender<Option<Arc<str>>>>,
}

#[derive(Default)]
struct State {
    by_secret: BTreeMap<Arc<str>, Asked>,
    changed: BTreeSet<Arc<str>>,
    issuers: Issuers,
    /// Whether the first list is complete, so that what is not wanted is known.
    is_complete: bool,
}

/// News of wishes and issuers.
#[derive(Debug, Default)]
pub struct ChangedWishes {
    /// Issuers by the names that wishes have for them, which are to be known before what is wanted
    /// of them.
    pub issuers: Vec<(Box<str>, IssuerNews)>,
    /// Secrets as `namespace/name`, and what is wanted in each; none for nothing any more.
    pub changed: Vec<(Arc<str>, Option<WantedCertificate>)>,
    /// Whether the first list is complete, and all of it told.
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
        let ask = state.issuers.ask();
        self.ask.send_if_modified(|before| {
            let is_other = *before != ask;
            *before = ask;
            is_other
        });
        for wish in wishes.removed {
            if let Some(asked) = state.by_secret.get_mut(&wish.secret) {
                asked.remove(&wish);
                if asked.is_empty() {
                    state.by_secret.remove(&wish.secret);
                }
            }
            state.changed.insert(wish.secret.clone());
        }
        for wish in wishes.added {
            state.changed.insert(wish.secret.clone());
            let asked = state.by_secret.entry(wish.secret.clone()).or_default();
            asked.insert(wish);
        }
        drop(state);
        self.news.notify_one();
    }

    /// The URL that is asked about names on demand, where an issuer says so.
    pub fn asked(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.ask.subscribe()
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
        self.lock().by_secret.get(secret)?.wanted()
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
        let (mut changed, mut names) = (Vec::new(), 0);
        // Whoever waits for the lock waits for so much.
        while names < NEWS_MAX
            && let Some(secret) = state.changed.pop_first()
        {
            let wanted = state.by_secret.get(&secret).and_then(Asked::wanted);
            names += wanted.as_ref().map_or(1, |it| it.names.len().max(1));
            changed.push((secret, wanted));
        }
        if !state.changed.is_empty() {
            self.news.notify_one();
        }
        ChangedWishes {
            issuers,
            changed,
            is_complete: state.is_complete && state.changed.is_empty(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_model::Host;
    use myriad_pki::acme::NAMES_MAX;
    use myriad_translate::{Difference, StatedIssuer, Wish};

    use super::{IssuerNews, NEWS_MAX, Wishes};

    fn wish(secret: &str, host: &str) -> Arc<Wish> {
        Arc::new(Wish {
            secret: secret.into(),
            host: Host::of_name(host).unwrap(),
            issuer: "default".into(),
            object: ObjectKey::new(ObjectKind::Ingress, "shop", "web"),
            is_second: false,
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

    #[test]
    fn what_a_wildcard_of_the_same_certificate_covers_is_no_name_of_its_own() {
        let wishes = Wishes::default();
        let hosts = ["a.shop.example", "*.shop.example", "shop.example"];
        let hosts = hosts.iter().chain(&["x.a.shop.example", "*.a.example"]);
        let second = Wish::clone(&wish("shop/web", "b.shop.example"));
        let second = Arc::new(Wish {
            is_second: true,
            ..second
        });
        let mut added: Vec<Arc<Wish>> = hosts.map(|host| wish("shop/web", host)).collect();
        added.push(second);
        let removed = Vec::new();
        wishes.change(Difference { added, removed }, Difference::default());
        let wanted = wishes.wanted("shop/web").unwrap();
        let names: Vec<&str> = wanted.names.iter().map(|name| &**name).collect();
        let wild = ["*.a.example", "*.shop.example"];
        assert_eq!(
            names,
            [&wild[..], &["shop.example", "x.a.shop.example"]].concat()
        );
        assert!(wanted.is_second);
    }

    #[test]
    fn an_address_of_ipv6_is_wanted_as_certificates_name_it() {
        let wishes = Wishes::default();
        let added = Difference {
            added: vec![wish("shop/web", "2001:DB8::7")],
            removed: Vec::new(),
        };
        wishes.change(added, Difference::default());
        let wanted = wishes.wanted("shop/web").unwrap();
        assert_eq!(wanted.names, ["2001:db8::7".into()]);
    }

    #[tokio::test]
    async fn very_many_are_told_a_part_at_a_time_and_the_list_is_complete_with_the_last() {
        let wishes = Wishes::default();
        let count = 2 * NEWS_MAX + 5;
        let added = (0..count).map(|number| wish(&format!("shop/{number}"), "a.example"));
        let added = Difference {
            added: added.collect(),
            removed: Vec::new(),
        };
        wishes.change(added, Difference::default());
        wishes.complete();
        for told in [NEWS_MAX, NEWS_MAX, 5] {
            let news = wishes.next().await;
            assert_eq!(news.changed.len(), told);
            assert_eq!(news.is_complete, told == 5);
        }
    }

    #[tokio::test]
    async fn secrets_with_many_names_are_told_fewer_at_a_time() {
        let wishes = Wishes::default();
        let secrets = 0..100;
        let added = secrets.flat_map(|secret| {
            let secret = format!("shop/{secret}");
            (0..NAMES_MAX).map(move |host| wish(&secret, &format!("h{host}.example")))
        });
        let added: Vec<Arc<Wish>> = added.collect();
        let removed = Vec::new();
        wishes.change(Difference { added, removed }, Difference::default());
        let (mut told, mut rounds) = (0, 0);
        while told < 100 {
            let news = wishes.next().await;
            let wanted = news.changed.iter().filter_map(|(_, it)| it.as_ref());
            let names: usize = wanted.map(|it| it.names.len()).sum();
            assert!(names < NEWS_MAX + NAMES_MAX, "{names}");
            told += news.changed.len();
            rounds += 1;
        }
        assert_eq!((told, rounds), (100, 3));
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
