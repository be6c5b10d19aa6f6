//! The views that a server serves: what equal proxies see, each with its own newest snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use myriad_model::{Digest, Snapshot};
use tokio::sync::watch;

use crate::metrics::ServerCounters;
use crate::server::Steps;

/// The most views of one server.
pub const VIEWS_MAX: usize = 1 << 16;

/// All views by name. Cheap to clone; they may come and go while a server runs.
///
/// Snapshots share what they have in common, and a view without streams costs one of them and
/// some hundred bytes.
#[derive(Clone, Default)]
pub struct Views {
    all: Arc<RwLock<BTreeMap<Arc<str>, Arc<View>>>>,
}

/// There are [`VIEWS_MAX`] views already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {VIEWS_MAX} views already")]
pub struct TooManyViews;

/// One view.
pub(super) struct View {
    newest: watch::Receiver<Snapshot>,
    pub(super) steps: Arc<Steps>,
    /// The newest that any stream was woken for.
    touched: Mutex<Digest>,
}

impl Views {
    /// No view at all.
    pub fn new() -> Self {
        Views::default()
    }

    /// One view.
    pub fn one(name: &str, newest: watch::Receiver<Snapshot>) -> Self {
        let view = View::new(newest);
        Views {
            all: Arc::new(RwLock::new([(name.into(), view)].into())),
        }
    }

    /// Adds a view, or replaces it for streams that are opened from now on. `newest` must come
    /// from behind the sync gate; the streams of a view end when its sender is dropped.
    ///
    /// # Errors
    /// There are too many.
    pub fn put(&self, name: &str, newest: watch::Receiver<Snapshot>) -> Result<(), TooManyViews> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= VIEWS_MAX && !all.contains_key(name) {
            return Err(TooManyViews);
        }
        all.insert(name.into(), View::new(newest));
        Ok(())
    }

    /// Removes a view for streams that are opened from now on.
    pub fn remove(&self, name: &str) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(name);
    }

    /// The newest snapshot of a view.
    pub fn newest(&self, name: &str) -> Option<Snapshot> {
        let view = self.find(name)?;
        let newest = view.newest.borrow();
        Some(newest.clone())
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<View>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned()
    }
}

impl View {
    fn new(newest: watch::Receiver<Snapshot>) -> Arc<Self> {
        let touched = newest.borrow().digest();
        Arc::new(View {
            newest,
            steps: Arc::default(),
            touched: Mutex::new(touched),
        })
    }

    /// The snapshots of the view, for a stream to wait on.
    pub(super) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.newest.clone()
    }

    /// The newest snapshot for a stream that was woken, or opened.
    pub(super) fn wake(
        &self,
        watched: &mut watch::Receiver<Snapshot>,
        counters: &ServerCounters,
    ) -> Snapshot {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = watched.borrow_and_update().clone();
        if *touched != newest.digest() {
            *touched = newest.digest();
            counters.views_touched.inc();
        }
        newest
    }
}
