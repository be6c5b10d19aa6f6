//! The views that a server serves: what equal proxies see, each with its own newest snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};

use myriad_base::clock;
use myriad_model::{Digest, Moment, Snapshot};
use tokio::sync::watch;

use crate::metrics::ServerCounters;
use crate::server::{Shelf, Steps};

/// The most views of one server.
pub const VIEWS_MAX: usize = 1 << 16;

/// All views by name. Cheap to clone; they may come and go while a server runs.
///
/// Snapshots share what they have in common, and a view without streams costs one of them and
/// some hundred bytes.
#[derive(Clone, Default)]
pub struct Views {
    all: Arc<RwLock<Named>>,
    reached: Reached,
    /// The steps of all views that are kept.
    shelf: Arc<Shelf>,
}

/// The moment up to which every view is as its newest snapshot says. It is written once for all of
/// them, after the snapshots, and is read before one: what is read then is at least as new.
#[derive(Clone, Default)]
struct Reached(Arc<RwLock<Moment>>);

type Named = BTreeMap<Arc<str>, Arc<View>>;

/// There are [`VIEWS_MAX`] views already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {VIEWS_MAX} views already")]
pub struct TooManyViews;

/// One view.
pub(super) struct View {
    newest: watch::Receiver<Snapshot>,
    reached: Reached,
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
        let views = Views::new();
        views.insert(&mut views.write(), name, newest);
        views
    }

    /// Adds a view, or replaces it for streams that are opened from now on. `newest` must come
    /// from behind the sync gate; the streams of a view end when its sender is dropped.
    ///
    /// # Errors
    /// There are too many.
    pub fn put(&self, name: &str, newest: watch::Receiver<Snapshot>) -> Result<(), TooManyViews> {
        let mut all = self.write();
        if all.len() >= VIEWS_MAX && !all.contains_key(name) {
            return Err(TooManyViews);
        }
        self.insert(&mut all, name, newest);
        Ok(())
    }

    fn insert(&self, all: &mut Named, name: &str, newest: watch::Receiver<Snapshot>) {
        let touched = newest.borrow().digest();
        let view = View {
            newest,
            reached: self.reached.clone(),
            steps: Arc::new(Steps::on(self.shelf.clone())),
            touched: Mutex::new(touched),
        };
        all.insert(name.into(), Arc::new(view));
    }

    /// Removes a view for streams that are opened from now on.
    pub fn remove(&self, name: &str) {
        self.write().remove(name);
    }

    /// Notes that all views are at this moment, those included of which no newer snapshot was sent.
    /// To be called once those that changed were, before any of a later moment is. Wakes nobody.
    pub fn advance(&self, moment: &Moment) {
        self.reached.set(moment);
    }

    /// The newest snapshot of a view.
    pub fn newest(&self, name: &str) -> Option<Snapshot> {
        let view = self.find(name)?;
        Some(view.newest())
    }

    /// Lets go of what streams shared and none is likely to want any more. To be called about once
    /// a second.
    pub fn sweep(&self) {
        self.shelf.sweep(clock::now());
    }

    fn write(&self) -> RwLockWriteGuard<'_, Named> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<View>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).cloned()
    }
}

impl Reached {
    fn get(&self) -> Moment {
        let moment = self.0.read().unwrap_or_else(PoisonError::into_inner);
        moment.clone()
    }

    fn set(&self, moment: &Moment) {
        let mut reached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        reached.clone_from(moment);
    }
}

impl View {
    /// The snapshots of the view, for a stream to wait on.
    pub(super) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.newest.clone()
    }

    /// The newest snapshot, for a stream that nothing has woken.
    pub(super) fn newest(&self) -> Snapshot {
        self.read(|| self.newest.borrow().clone())
    }

    /// The newest snapshot, as it is read, at the moment that all views are at.
    fn read(&self, newest: impl FnOnce() -> Snapshot) -> Snapshot {
        let reached = self.reached.get();
        newest().as_of(&reached)
    }

    /// The newest snapshot for a stream that was woken, or opened.
    pub(super) fn wake(
        &self,
        watched: &mut watch::Receiver<Snapshot>,
        counters: &ServerCounters,
    ) -> Snapshot {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.read(|| watched.borrow_and_update().clone());
        if *touched != newest.digest() {
            *touched = newest.digest();
            counters.views_touched.inc();
        }
        newest
    }
}
