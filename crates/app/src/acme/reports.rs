//! How it is with issuers, for people: from whoever obtains certificates to whoever shows that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_api::ObjectKey;
use tokio::sync::Notify;

/// How it is with an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerReport {
    /// Whether certificates are obtained of it.
    pub is_ready: bool,
    /// One word for why.
    pub reason: &'static str,
    /// The same in a sentence, with the words of an authority where it has said some.
    pub message: String,
}

/// Reports that wait to be shown, at most one for each issuer. Cheap to clone; clones are one list.
#[derive(Clone, Default)]
pub struct IssuerReports {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<ObjectKey, IssuerReport>,
    /// The issuer that had its turn last.
    last: Option<ObjectKey>,
}

impl IssuerReports {
    /// The newest report of an issuer takes the place of one that waits.
    pub(super) fn set(&self, object: &ObjectKey, report: IssuerReport) {
        self.lock().waiting.insert(object.clone(), report);
        self.news.notify_one();
    }

    /// Nothing is to be shown of an issuer that is gone.
    pub(super) fn forget(&self, object: &ObjectKey) {
        self.lock().waiting.remove(object);
    }

    /// Waits for a report and takes it; issuers have turns. Dropping the future loses nothing. For
    /// one task at a time.
    pub async fn next(&self) -> (ObjectKey, IssuerReport) {
        loop {
            if let Some(next) = self.lock().pop() {
                return next;
            }
            self.news.notified().await;
        }
    }

    /// A report that could not be shown waits for its next turn, unless there is a newer one.
    pub fn put_back(&self, object: ObjectKey, report: IssuerReport) {
        self.lock().waiting.entry(object).or_insert(report);
        self.news.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pop(&mut self) -> Option<(ObjectKey, IssuerReport)> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.waiting.range((after, Bound::Unbounded));
        let next = later.next().or_else(|| self.waiting.first_key_value());
        let key = next.map(|(key, _)| key.clone())?;
        self.last = Some(key.clone());
        self.waiting.remove_entry(&key)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};

    use super::{IssuerReport, IssuerReports};

    fn report(message: &str) -> IssuerReport {
        IssuerReport {
            is_ready: false,
            reason: "Refused",
            message: message.to_owned(),
        }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Issuer, "shop", name)
    }

    #[tokio::test]
    async fn issuers_have_turns_and_the_newest_report_of_each_is_shown() {
        let reports = IssuerReports::default();
        for message in ["old", "new"] {
            reports.set(&key("a"), report(message));
        }
        reports.set(&key("b"), report("b"));
        assert_eq!(reports.next().await, (key("a"), report("new")));
        // One that is reported on time and again waits for the others.
        reports.set(&key("a"), report("again"));
        reports.put_back(key("a"), report("new"));
        assert_eq!(reports.next().await, (key("b"), report("b")));
        assert_eq!(reports.next().await, (key("a"), report("again")));
        reports.set(&key("c"), report("c"));
        reports.forget(&key("c"));
        tokio::select! {
            biased;
            next = reports.next() => panic!("{next:?}"),
            () = std::future::ready(()) => {}
        }
    }
}
