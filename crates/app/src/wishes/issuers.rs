//! The issuers that objects make: which of them are used, and which have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_translate::{Difference, StatedIssuer};

/// The name of the issuer that the settings make.
pub const ISSUER: &str = "default";

/// The most issuers that are used. Those for all namespaces go first, since the operator writes
/// them, and then the oldest.
pub const ISSUERS_MAX: usize = 1_024;

/// The fate of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerNews {
    /// It is used as it says, or says that it cannot be.
    Used(Arc<StatedIssuer>),
    /// It is more than there may be, and not used.
    Beyond(ObjectKey),
    /// It is not there any more.
    Gone,
}

/// The place of an issuer: whether it is of a namespace, its age, and its name.
type IssuerRank = (bool, i64, Box<str>);

/// All issuers.
#[derive(Default)]
pub(super) struct Issuers {
    used: BTreeMap<IssuerRank, Arc<StatedIssuer>>,
    /// The issuers that are more than there may be: all are behind those that are used.
    beyond: BTreeMap<IssuerRank, Arc<StatedIssuer>>,
    ranks: BTreeMap<Box<str>, IssuerRank>,
    /// The names of those that are others than they were told of.
    changed: BTreeSet<Box<str>>,
}

impl Issuers {
    /// Takes in what has changed. What is removed and added under one name is another issuer.
    pub(super) fn change(&mut self, difference: Difference<StatedIssuer>) {
        for issuer in difference.removed {
            self.remove(&issuer.name);
        }
        for issuer in difference.added {
            self.add(issuer);
        }
    }

    /// Whether there is any.
    pub(super) fn is_any(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// The URL that is asked about names on demand, where an issuer says so.
    pub(super) fn ask(&self) -> Option<Arc<str>> {
        let used = self.used.get(self.ranks.get(ISSUER)?)?;
        let terms = used.terms.as_ref().ok()?;
        terms.ask.as_deref().map(Arc::from)
    }

    /// All that there are are news.
    pub(super) fn restate(&mut self) {
        self.changed = self.ranks.keys().cloned().collect();
    }

    /// Takes the news.
    pub(super) fn take(&mut self) -> Vec<(Box<str>, IssuerNews)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let news = changed.map(|name| {
            let news = self.news_of(&name);
            (name, news)
        });
        news.collect()
    }

    fn news_of(&self, name: &str) -> IssuerNews {
        let Some(rank) = self.ranks.get(name) else {
            return IssuerNews::Gone;
        };
        match (self.used.get(rank), self.beyond.get(rank)) {
            (Some(used), _) => IssuerNews::Used(used.clone()),
            (None, Some(beyond)) => IssuerNews::Beyond(beyond.object.clone()),
            (None, None) => IssuerNews::Gone,
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(rank) = self.ranks.remove(name) else {
            return;
        };
        self.changed.insert(name.into());
        if self.used.remove(&rank).is_none() {
            self.beyond.remove(&rank);
        } else if let Some((next, issuer)) = self.beyond.pop_first() {
            self.changed.insert(issuer.name.clone());
            self.used.insert(next, issuer);
        }
    }

    fn add(&mut self, issuer: Arc<StatedIssuer>) {
        let is_of_namespace = !issuer.object.namespace().is_empty();
        let rank = (is_of_namespace, issuer.created, issuer.name.clone());
        self.remove(&issuer.name);
        self.changed.insert(issuer.name.clone());
        self.ranks.insert(issuer.name.clone(), rank.clone());
        self.used.insert(rank, issuer);
        if self.used.len() > ISSUERS_MAX
            && let Some((last, issuer)) = self.used.pop_last()
        {
            self.changed.insert(issuer.name.clone());
            self.beyond.insert(last, issuer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_translate::{Difference, StatedIssuer};

    use super::{ISSUERS_MAX, IssuerNews, Issuers};

    fn issuer(namespace: &str, number: usize) -> Arc<StatedIssuer> {
        let kind = match namespace {
            "" => ObjectKind::ClusterIssuer,
            _ => ObjectKind::Issuer,
        };
        let object = ObjectKey::new(kind, namespace, &format!("i{number}"));
        Arc::new(StatedIssuer {
            name: object.to_string().into(),
            object,
            created: i64::try_from(number).unwrap(),
            terms: Err("".into()),
        })
    }

    fn added(issuers: Vec<Arc<StatedIssuer>>) -> Difference<StatedIssuer> {
        Difference {
            added: issuers,
            removed: Vec::new(),
        }
    }

    fn removed(issuer: Arc<StatedIssuer>) -> Difference<StatedIssuer> {
        Difference {
            added: Vec::new(),
            removed: vec![issuer],
        }
    }

    #[test]
    fn the_oldest_issuers_are_used_and_those_for_all_namespaces_before_them() {
        let mut issuers = Issuers::default();
        issuers.change(added(
            (0..=ISSUERS_MAX).map(|it| issuer("shop", it)).collect(),
        ));
        let news = issuers.take();
        assert_eq!(news.len(), ISSUERS_MAX + 1);
        let is_beyond = |news: &IssuerNews| matches!(news, IssuerNews::Beyond(_));
        let beyond = news.iter().filter(|(_, news)| is_beyond(news));
        let beyond: Vec<&str> = beyond.map(|(name, _)| &**name).collect();
        assert_eq!(beyond, [format!("Issuer shop/i{ISSUERS_MAX}")]);

        // The youngest of all is used before any of a namespace, whose youngest gives way.
        issuers.change(added(vec![issuer("", 5_000)]));
        let news = issuers.take();
        let last = format!("Issuer shop/i{}", ISSUERS_MAX - 1);
        assert_eq!(
            news,
            [
                (
                    "ClusterIssuer i5000".into(),
                    IssuerNews::Used(issuer("", 5_000))
                ),
                (
                    last.as_str().into(),
                    IssuerNews::Beyond(issuer("shop", ISSUERS_MAX - 1).object.clone())
                ),
            ]
        );
        // One that goes lets the next one in, and nobody else hears of it.
        issuers.change(removed(issuer("shop", 7)));
        let news = issuers.take();
        assert_eq!(news.len(), 2);
        assert!(news.contains(&("Issuer shop/i7".into(), IssuerNews::Gone)));
        let next = IssuerNews::Used(issuer("shop", ISSUERS_MAX - 1));
        assert!(news.contains(&(last.as_str().into(), next)));
        assert_eq!(issuers.used.len(), ISSUERS_MAX);
        assert_eq!(issuers.beyond.len(), 1);
    }

    #[test]
    fn one_that_says_something_else_is_told_of_once() {
        let mut issuers = Issuers::default();
        issuers.change(added(vec![issuer("shop", 1)]));
        issuers.take();
        let mut other = StatedIssuer::clone(&issuer("shop", 1));
        other.terms = Err("broken".into());
        let other = Arc::new(other);
        issuers.change(Difference {
            added: vec![other.clone()],
            removed: vec![issuer("shop", 1)],
        });
        let news = issuers.take();
        assert_eq!(news, [("Issuer shop/i1".into(), IssuerNews::Used(other))]);
        assert!(issuers.take().is_empty() && issuers.is_any());
        // Somebody who begins later hears of all.
        issuers.restate();
        assert_eq!(issuers.take(), news);
    }
}
