//! Where objects were read from.

use std::sync::{Arc, PoisonError, RwLock};

use myriad_api::{ObjectKey, Place};

use super::index::Index;

/// Finds the place of an object. Cheap to clone; sees what its directory sees.
#[derive(Clone)]
pub struct Locator {
    index: Arc<RwLock<Index>>,
}

impl Locator {
    pub(super) fn new(index: &Arc<RwLock<Index>>) -> Locator {
        Locator {
            index: index.clone(),
        }
    }

    /// The file and the line on which the document of the object in effect begins. The file is
    /// named as the user named the directory, with the way below it appended. While the
    /// directory reads a file, this waits.
    pub fn locate(&self, key: &ObjectKey) -> Option<Place> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index.locate(key)
    }
}
