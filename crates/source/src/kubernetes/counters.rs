//! The counters of a cluster's watches, by kind.

use myriad_api::ObjectKind;
use myriad_base::clock;
use myriad_base::metrics::{Counter, Family, Gauge, Metrics};

use super::core::{Failure, Request};

/// The label that says which kind.
type Kind = [(&'static str, &'static str); 1];

/// How much the watches have done. Cheap to clone; clones count together. There is one line per
/// kind, however many namespaces are watched.
#[derive(Clone, Debug, Default)]
pub struct WatchCounters {
    /// Objects that were added, modified or deleted, the first ones included.
    pub events: Family<Kind, Counter>,
    /// Bookmarks: what a watch without events lives on.
    pub bookmarks: Family<Kind, Counter>,
    /// Watches that were begun, each where the one before had ended or with a list.
    pub watches: Family<Kind, Counter>,
    /// Lists that were begun, streamed or in pages.
    pub lists: Family<Kind, Counter>,
    /// Requests that failed, broke off or fell silent.
    pub failures: Family<Kind, Counter>,
    /// Watches and lists whose version the server did not remember any more (410).
    pub gone: Family<Kind, Counter>,
    /// How often an older state of the cluster was found to have been put back.
    pub restored: Family<Kind, Counter>,
    /// When the last event or bookmark came, in seconds since 1970: a watch that is behind is one
    /// whose time lies back by more than a minute.
    pub heard: Family<Kind, Gauge>,
}

impl WatchCounters {
    /// Shows the counters among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        let counters = [
            ("events", "Objects that the API server sent", &self.events),
            ("bookmarks", "Bookmarks of watches", &self.bookmarks),
            ("watches", "Watches that were begun", &self.watches),
            ("lists", "Lists that were begun", &self.lists),
            ("watch_failures", "Requests that failed", &self.failures),
            ("watch_gone", "Versions no longer remembered", &self.gone),
            ("restored", "Older states found put back", &self.restored),
        ];
        for (name, help, counter) in counters {
            metrics.register(&format!("kubernetes_{name}"), help, counter.clone());
        }
        let help = "When the API server last sent something, since 1970";
        let name = "kubernetes_heard_timestamp_seconds";
        metrics.register(name, help, self.heard.clone());
    }

    pub(super) fn ask(&self, kind: ObjectKind, request: &Request) {
        match request {
            Request::Stream | Request::Page { token: None, .. } => add(&self.lists, kind),
            Request::Watch(_) => add(&self.watches, kind),
            Request::Page { .. } | Request::Probe | Request::Check { .. } => {}
        }
    }

    pub(super) fn take(&self, kind: ObjectKind, event_type: &str) {
        match event_type {
            "BOOKMARK" => add(&self.bookmarks, kind),
            "ERROR" => return,
            _ => add(&self.events, kind),
        }
        self.heard
            .get_or_create(&label(kind))
            .set(clock::unix_seconds());
    }

    pub(super) fn fail(&self, kind: ObjectKind, failure: &Failure) {
        add(&self.failures, kind);
        if *failure == Failure::Gone {
            add(&self.gone, kind);
        }
    }

    pub(super) fn note_restored(&self, kind: ObjectKind) {
        add(&self.restored, kind);
    }

    /// How often something was counted of a kind.
    #[cfg(test)]
    pub(super) fn get(family: &Family<Kind, Counter>, kind: ObjectKind) -> u64 {
        family.get_or_create(&label(kind)).get()
    }
}

fn add(family: &Family<Kind, Counter>, kind: ObjectKind) {
    family.get_or_create(&label(kind)).inc();
}

fn label(kind: ObjectKind) -> Kind {
    [("kind", kind.full_name())]
}
