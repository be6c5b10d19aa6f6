//! Where objects were read from.

use std::collections::HashMap;
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
            file: None,
            last: None,
        }
    }
}

/// Finds the lines of fields. The file and the document that were asked about last are kept, so
/// fields are best asked for in the order of their objects' places.
pub struct FieldLocator {
    locator: Locator,
    limits: Limits,
    counters: Counters,
    file: Option<Documents>,
    last: Option<(Place, FieldLines)>,
}

/// The documents of one file, by the lines on which they begin.
struct Documents {
    file: Arc<str>,
    texts: HashMap<u32, Box<str>>,
}

impl FieldLocator {
    /// The file and the line of a field of the object in effect, or of the nearest field around
    /// it that is written; the first line of the document where that was not found again.
    pub fn locate(&mut self, key: &ObjectKey, field: &str) -> Option<Place> {
        let document = self.locator.locate(key)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != document) {
            let text = self.documents(&document.file).get(&document.line);
            let lines = text.map_or_else(FieldLines::default, |text| FieldLines::of(text));
            self.last = Some((document.clone(), lines));
        }
        let (_, lines) = self.last.as_ref()?;
        let line = lines.find(key, field);
        Some(Place {
            line: document.line.saturating_add(line.saturating_sub(1)),
            file: document.file,
        })
    }

    /// The documents of a file, which is read and divided once for all that are asked about one
    /// after the other.
    fn documents(&mut self, file: &Arc<str>) -> &HashMap<u32, Box<str>> {
        let known = self.file.take().filter(|known| known.file == *file);
        let documents = known.unwrap_or_else(|| Documents {
            file: file.clone(),
            texts: self.read(file),
        });
        &self.file.insert(documents).texts
    }

    fn read(&self, file: &str) -> HashMap<u32, Box<str>> {
        let mut disk = Disk {
            limits: &self.limits,
            counters: &self.counters,
        };
        let FileState::Text(_, text) = disk.read(file) else {
            return HashMap::new();
        };
        let pieces = match name::is_json(file) {
            true => split_json(&text).0,
            false => split_yaml(&text),
        };
        let mut texts = HashMap::with_capacity(pieces.len());
        for piece in pieces {
            // Of those that begin on one line, the first counts.
            texts.entry(piece.line).or_insert_with(|| piece.text.into());
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};

    use super::super::{Limits, load};

    #[test]
    fn a_file_is_read_once_for_the_fields_of_all_its_documents() {
        let folder = tempfile::tempdir().unwrap();
        let document = |name: String| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: n\nspec: \
                 {{}}\n---\n"
            )
        };
        for file in ["a.yaml", "b.yaml"] {
            let texts: String = (0..200)
                .map(|at| document(format!("{file}.{at}")))
                .collect();
            std::fs::write(folder.path().join(file), texts).unwrap();
        }
        let loaded = load(&[folder.path().to_owned()], &Limits::default()).unwrap();
        let mut fields = loaded.locator.fields();
        for file in ["a.yaml", "b.yaml"] {
            for at in 0..200 {
                let name = format!("{file}.{at}");
                let key = ObjectKey::new(ObjectKind::Service, "n", &name);
                let place = fields.locate(&key, "spec.ports").unwrap();
                assert!(place.file.ends_with(file), "{place:?}");
                assert_eq!(place.line, 7 * at + 6, "{name}");
            }
        }
        assert_eq!(fields.counters.files_read.get(), 2);
    }
}
