//! How far the proxies of one kind have got: the operator's, or those of namespaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The proxies of one kind.
#[derive(Default)]
pub(super) struct Crowd {
    /// How many of them that are behind have reached which commit.
    pub(super) reached: BTreeMap<u64, usize>,
    pub(super) in_step: InStep,
}

/// The proxies that serve all there is for them, by view. They have reached every commit that does
/// not change their view, so that one costs the proxies of the views that it changes.
#[derive(Default)]
pub(super) struct InStep {
    streams: HashMap<Arc<str>, BTreeSet<u64>>,
    count: usize,
}

impl Crowd {
    /// The commit that all have reached who have reached any, where there are so many.
    pub(super) fn least(&self, newest: u64) -> Option<u64> {
        let behind = self.reached.range(1..).next().map(|(number, _)| *number);
        behind.or((self.in_step.count > 0).then_some(newest))
    }

    /// How many have reached the newest commit.
    pub(super) fn count_in_step(&self, newest: u64) -> usize {
        let reached = self.reached.get(&newest).copied();
        self.in_step.count + reached.unwrap_or(0)
    }

    /// How many have reached any commit.
    pub(super) fn count_ready(&self) -> usize {
        let behind = self.reached.range(1..).map(|(_, count)| count);
        self.in_step.count + behind.sum::<usize>()
    }

    /// Whether any has reached a commit.
    pub(super) fn is_ready(&self) -> bool {
        self.in_step.count > 0 || self.reached.range(1..).next().is_some()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.reached.is_empty() && self.in_step.count == 0
    }

    /// One that is behind has reached a commit.
    pub(super) fn count(&mut self, number: u64) {
        *self.reached.entry(number).or_default() += 1;
    }

    /// One that was behind has reached another commit, or is gone.
    pub(super) fn leave(&mut self, number: u64) {
        if let Some(count) = self.reached.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.reached.remove(&number);
            }
        }
    }
}

impl InStep {
    pub(super) fn insert(&mut self, view: &Arc<str>, stream: u64) {
        let streams = self.streams.entry(view.clone()).or_default();
        self.count += usize::from(streams.insert(stream));
    }

    pub(super) fn remove(&mut self, view: &str, stream: u64) {
        if let Some(streams) = self.streams.get_mut(view) {
            self.count -= usize::from(streams.remove(&stream));
            if streams.is_empty() {
                self.streams.remove(view);
            }
        }
    }

    /// Takes out all proxies of a view.
    pub(super) fn take(&mut self, view: &str) -> BTreeSet<u64> {
        let streams = self.streams.remove(view).unwrap_or_default();
        self.count -= streams.len();
        streams
    }
}
