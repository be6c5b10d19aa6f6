//! The memory of every file, without IO: enough to recognise a change, to say which file
//! an object comes from, and to give way when the same object stands in two files.
//!
//! Of an object only its key is kept, and the hash of the bytes that it was read from. A key is
//! *owned* by one file, the one whose path sorts first among those that claim it, and by the
//! first document in it that gives the key; the claims of others are *rivals*. When the owner
//! lets go, the first rival is read again, since its object was not kept. Until that is done the
//! key has no owner and its object stays in effect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;
use std::ops::Bound;
use std::sync::Arc;

use myriad_api::{ObjectKey, Place};

use super::document::Hash;
use super::file::Stamp;
use super::name;
use super::parsed::Known;
use super::problem::Problem;

mod findings;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use session::Session;

/// All files and the keys they give.
#[derive(Default)]
pub(crate) struct Index {
    files: Vec<Option<File>>,
    free: Vec<FileId>,
    paths: BTreeMap<Arc<str>, FileId>,
    owners: HashMap<ObjectKey, Owner>,
    /// Files that claim a key which another one owns. Few keys have any.
    rivals: HashMap<ObjectKey, BTreeSet<FileId>>,
    /// Keys whose objects are to be read again as if they had changed.
    let_go: BTreeSet<ObjectKey>,
    /// Keys without an owner whose objects are in effect until a file that claims them was read,
    /// by the path of that file.
    awaited: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

/// The place of a file in [`Index::files`].
type FileId = u32;

/// The document whose object is in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    file: FileId,
    document: u32,
}

struct File {
    path: Arc<str>,
    stamp: Stamp,
    documents: Box<[Document]>,
    /// Set while the file as a whole cannot be used; its documents are then the last good ones.
    trouble: Option<Box<Problem>>,
    /// The hash of the findings in the last report about the file; none where it had none.
    reported: Option<NonZero<u64>>,
}

/// The memory of a document.
#[derive(Clone)]
struct Document {
    hash: Hash,
    line: u32,
    /// No longer in the file, but in effect because something else in the file is broken.
    is_kept: bool,
    holds: Holds,
}

#[derive(Clone)]
enum Holds {
    Nothing,
    One(ObjectKey),
    Mixed(Box<Mixed>),
}

/// A list, or a document that cannot be read.
#[derive(Clone, Default)]
struct Mixed {
    items: Vec<(ObjectKey, Hash)>,
    problems: Vec<Problem>,
    /// How many problems were not kept, because the file has so many.
    dropped: u32,
}

impl Index {
    /// The documents of a file that need not be read again: those that are in effect as they
    /// are. One that is not in effect has to be, since its object may be wanted now.
    pub(crate) fn known(&self, path: &str) -> Known {
        let mut known = Known::new();
        let Some((id, file)) = self.find(path) else {
            return known;
        };
        for (index, document) in file.documents.iter().enumerate() {
            let owns = |key: &ObjectKey| {
                self.owners.get(key) == Some(&Owner::new(id, index)) && !self.let_go.contains(key)
            };
            let is_complete = match &document.holds {
                Holds::Mixed(mixed) => mixed.dropped == 0,
                _ => true,
            };
            if is_complete && document.holds.keys().all(owns) {
                known.insert(document.hash, index);
            }
        }
        known
    }

    /// Where the object in effect under a key was read from.
    pub(crate) fn locate(&self, key: &ObjectKey) -> Option<Place> {
        let owner = self.owners.get(key)?;
        let file = self.file(owner.file)?;
        let document = file.documents.get(owner.document as usize)?;
        Some(Place {
            file: file.path.clone(),
            line: document.line,
        })
    }

    /// The file that the object in effect under a key was read from.
    pub(crate) fn file_of(&self, key: &ObjectKey) -> Option<Arc<str>> {
        let owner = self.owners.get(key)?;
        Some(self.file(owner.file)?.path.clone())
    }

    /// Lets the object in effect under a key count as changed when its file is read next.
    pub(crate) fn let_go(&mut self, key: ObjectKey) {
        self.let_go.insert(key);
    }

    /// The state in which a file was read last.
    pub(crate) fn stamp(&self, path: &str) -> Option<Stamp> {
        self.find(path).map(|(_, file)| file.stamp)
    }

    /// Whether the file as a whole could not be used when it was read last.
    pub(crate) fn is_troubled(&self, path: &str) -> bool {
        self.find(path)
            .is_some_and(|(_, file)| file.trouble.is_some())
    }

    /// The known files at and below a path, in order.
    pub(crate) fn files_at(&self, path: &str) -> Vec<Arc<str>> {
        // Names with a byte below `/` sort between a directory and its entries.
        let from = self
            .paths
            .range::<str, _>((Bound::Included(path), Bound::Unbounded));
        from.map(|(known, _)| known)
            .take_while(|known| known.starts_with(path))
            .filter(|known| ***known == *path || name::is_below(known, path))
            .cloned()
            .collect()
    }

    /// The known files in a root itself, and the owners of those below it.
    pub(crate) fn level(&self, root: &Arc<str>) -> (Vec<Arc<str>>, BTreeSet<Arc<str>>) {
        let (mut files, mut owners) = (Vec::new(), BTreeSet::new());
        let mut from = root.to_string();
        loop {
            let behind = (Bound::Included(&*from), Bound::Unbounded);
            let next = self.paths.range::<str, _>(behind).next();
            let Some((path, _)) = next.filter(|(path, _)| path.starts_with(&**root)) else {
                return (files, owners);
            };
            let owner = name::owner(root, path, false);
            let is_ours = *path == *root || name::is_below(path, root);
            from.clear();
            if is_ours && owner != *root {
                // What is below it sorts between these, as `0` is the byte behind `/`.
                from.push_str(&owner);
                from.push('0');
                owners.insert(owner);
            } else {
                from.push_str(path);
                from.push('\0');
                files.extend(is_ours.then(|| path.clone()));
            }
        }
    }

    /// How many files are known below a directory, counted up to so many.
    pub(crate) fn count_below(&self, directory: &Arc<str>, most: usize) -> usize {
        let below = name::join(directory, "");
        let from = (Bound::Included(&*below), Bound::Unbounded);
        let known = self.paths.range::<str, _>(from).map(|(path, _)| path);
        let known = known.take_while(|path| path.starts_with(&*below));
        known.take(most).count()
    }

    /// How many files are known.
    pub(crate) fn len(&self) -> usize {
        self.paths.len()
    }

    fn find(&self, path: &str) -> Option<(FileId, &File)> {
        let id = *self.paths.get(path)?;
        Some((id, self.file(id)?))
    }

    fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(id as usize)?.as_ref()
    }

    fn file_mut(&mut self, id: FileId) -> Option<&mut File> {
        self.files.get_mut(id as usize)?.as_mut()
    }

    /// The file under a path, which from now on is known.
    fn ensure(&mut self, path: &Arc<str>) -> FileId {
        if let Some(id) = self.paths.get(path) {
            return *id;
        }
        let file = File {
            path: path.clone(),
            stamp: Stamp::default(),
            documents: Box::default(),
            trouble: None,
            reported: None,
        };
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.files.push(None);
                u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX)
            }
        };
        if let Some(slot) = self.files.get_mut(id as usize) {
            *slot = Some(file);
        }
        self.paths.insert(path.clone(), id);
        id
    }

    fn forget(&mut self, id: FileId) -> Option<File> {
        let file = self.files.get_mut(id as usize)?.take()?;
        self.paths.remove(&file.path);
        self.free.push(id);
        Some(file)
    }

    /// The file that may claim a key next: of those that claim it the one whose path sorts first.
    fn first_rival(&self, key: &ObjectKey) -> Option<(FileId, &Arc<str>)> {
        let ids = self.rivals.get(key)?.iter();
        ids.filter_map(|id| Some((*id, &self.file(*id)?.path)))
            .min_by(|(_, a), (_, b)| a.cmp(b))
    }
}

impl Owner {
    fn new(file: FileId, document: usize) -> Owner {
        Owner {
            file,
            document: u32::try_from(document).unwrap_or(u32::MAX),
        }
    }
}

impl Holds {
    fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        let (one, items) = match self {
            Holds::Nothing => (None, [].as_slice()),
            Holds::One(key) => (Some(key), [].as_slice()),
            Holds::Mixed(mixed) => (None, mixed.items.as_slice()),
        };
        one.into_iter().chain(items.iter().map(|(key, _)| key))
    }

    fn is_broken(&self) -> bool {
        matches!(self, Holds::Mixed(mixed) if !mixed.problems.is_empty() || mixed.dropped > 0)
    }
}
