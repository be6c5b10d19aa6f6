//! Pieces of work whose files are read in slices. A long file lets others have their turn between
//! two slices, and takes effect as a whole once all of it has been read.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use myriad_base::clock::Instant;

use super::draft::Draft;
use super::file::{Disk, Files};
use super::index::Index;
use super::parsed::Parsed;
use super::{Counters, Limits, tree};

/// The bytes of new documents that are read in one slice; of a longer document all.
pub(super) const SLICE_BYTES: usize = 64 << 10;

/// The bytes of a text that count for as much as one that is read, where it is taken apart.
const APART_BYTES: usize = 16;

/// The bytes that each file counts for.
const FILE_BYTES: usize = 64;

/// A piece of work whose files are being read.
pub(super) struct Job {
    /// The owners whose other work waits for it.
    pub(super) owners: Vec<Arc<str>>,
    /// Parts that need no reading.
    parsed: Vec<Parsed>,
    /// The files, in the order in which they take effect.
    paths: Vec<Arc<str>>,
    /// The first of the files; all but the last are read.
    drafts: Vec<Draft>,
    /// How many of them are of files that were not known.
    new_files: usize,
    /// When the events were noticed that it follows from.
    pub(super) noticed: Option<Instant>,
}

/// The knowledge by which files are read.
pub(super) struct Knowledge<'a> {
    pub(super) root: &'a Arc<str>,
    pub(super) index: &'a RwLock<Index>,
    pub(super) limits: &'a Limits,
    pub(super) counters: &'a Counters,
}

impl Job {
    /// A job of which nothing has been read.
    pub(super) fn new(owners: Vec<Arc<str>>, parsed: Vec<Parsed>, mut paths: Vec<Arc<str>>) -> Job {
        let mut seen = HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        Job {
            owners,
            parsed,
            paths,
            drafts: Vec::new(),
            new_files: 0,
            noticed: None,
        }
    }

    /// Reads one slice. Returns whether all has been read.
    pub(super) fn step(&mut self, known: &Knowledge<'_>) -> bool {
        let mut room = SLICE_BYTES;
        while room > 0 {
            if let Some(draft) = self.drafts.last_mut().filter(|draft| !draft.is_read()) {
                let read = draft.read(room, known.limits, known.counters);
                room = room.saturating_sub(read);
                continue;
            }
            let Some(path) = self.paths.get(self.drafts.len()) else {
                return true;
            };
            let draft = known.draft(path, &mut self.new_files);
            room = room.saturating_sub(FILE_BYTES + draft.text_bytes() / APART_BYTES);
            self.drafts.push(draft);
        }
        let is_last = self.drafts.len() == self.paths.len();
        is_last && self.drafts.last().is_none_or(Draft::is_read)
    }

    /// Whether what was read still stands beside what is known now. Otherwise the files from the
    /// first one on that does not are to be read again.
    pub(super) fn is_current(&mut self, known: &Knowledge<'_>) -> bool {
        let index = known.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut drafts = self.drafts.iter();
        match drafts.position(|draft| draft.is_stale(&index.known(draft.path()))) {
            Some(first) => {
                self.drafts.truncate(first);
                false
            }
            None => true,
        }
    }

    /// Forgets what was read, so that nothing but paths is held.
    pub(super) fn forget(&mut self) {
        self.drafts = Vec::new();
        self.new_files = 0;
    }

    /// All that it brings.
    pub(super) fn into_parsed(self) -> impl Iterator<Item = Parsed> {
        let drafts = self.drafts.into_iter().map(Draft::into_parsed);
        self.parsed.into_iter().chain(drafts)
    }
}

impl Knowledge<'_> {
    /// The file at a path, taken apart. `new_files` counts those that are not known.
    fn draft(&self, path: &Arc<str>, new_files: &mut usize) -> Draft {
        let known = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            if index.stamp(path).is_none() {
                if index.len() + *new_files >= self.limits.files_max {
                    return Draft::of_problem(self.root.clone(), tree::too_many(self.limits));
                }
                *new_files += 1;
            }
            index.known(path)
        };
        let mut disk = Disk {
            limits: self.limits,
            counters: self.counters,
        };
        Draft::new(path, disk.read(path), &known, self.limits)
    }
}
