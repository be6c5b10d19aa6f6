//! Where objects were read from.

use std::sync::{Arc, PoisonError, RwLock};

use myriad_api::{ObjectKey, Place};

use super::file::{Disk, FileState, Files};
use super::index::Index;
use super::lines::FieldLines;
use super::split::{split_json, split_yaml};
use super::{Counters, Limits, name};

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

    /// A locator of fields. It reads files again, so it is for people who wait, such as those of
    /// `check`.
    pub fn fields(&self) -> FieldLocator {
        FieldLocator {
            locator: self.clone(),
            limits: Limits::default(),
            counters: Counters::default(),
            last: None,
        }
    }
}

/// Finds the lines of fields. The document that was asked about last is kept, so fields are best
/// asked for in the order of their objects' places.
pub struct FieldLocator {
    locator: Locator,
    limits: Limits,
    counters: Counters,
    last: Option<(Place, FieldLines)>,
}

impl FieldLocator {
    /// The file and the line of a field of the object in effect, or of the nearest field around
    /// it that is written; the first line of the document where that was not found again.
    pub fn locate(&mut self, key: &ObjectKey, field: &str) -> Option<Place> {
        let document = self.locator.locate(key)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != document) {
            let lines = self.read(&document).unwrap_or_default();
            self.last = Some((document.clone(), lines));
        }
        let (_, lines) = self.last.as_ref()?;
        let line = lines.find(key, field);
        Some(Place {
            line: document.line.saturating_add(line.saturating_sub(1)),
            file: document.file,
        })
    }

    fn read(&self, document: &Place) -> Option<FieldLines> {
        let mut disk = Disk {
            limits: &self.limits,
            counters: &self.counters,
        };
        let FileState::Text(_, text) = disk.read(&document.file) else {
            return None;
        };
        let pieces = match name::is_json(&document.file) {
            true => split_json(&text).0,
            false => split_yaml(&text),
        };
        let mut pieces = pieces.iter();
        let piece = pieces.find(|piece| piece.line == document.line)?;
        Some(FieldLines::of(piece.text))
    }
}
