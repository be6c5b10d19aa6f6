//! Objects that are to be read again, although they have not changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_api::ObjectKey;
use tokio::sync::Notify;

/// The keys of objects that somebody let go and wants to have again, each once. Cheap to clone;
/// clones are one list.
#[derive(Clone, Default)]
pub struct Wanted {
    keys: Arc<Mutex<BTreeSet<ObjectKey>>>,
    news: Arc<Notify>,
}

impl Wanted {
    /// Asks for objects.
    pub fn add(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        let mut waiting = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(keys);
        if !waiting.is_empty() {
            self.news.notify_one();
        }
    }

    /// Takes all that is asked for, and waits until something is. Dropping the future loses
    /// nothing. For one task at a time.
    pub async fn next(&self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = {
                let mut waiting = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *waiting)
            };
            if !keys.is_empty() {
                return keys;
            }
            self.news.notified().await;
        }
    }
}
