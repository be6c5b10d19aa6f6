//! Pieces of work that are done in slices. Many directories, and a long or costly file, let others
//! have their turn between two slices; a file takes effect as a whole once all of it has been read.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use myriad_base::clock::Instant;

use super::comparison::{Comparison, Seen};
use super::draft::Draft;
use super::file::{Disk, Files};
use super::index::Index;
use super::parsed::Parsed;
use super::slice::{FILE_BYTES, Slice};
use super::tree::{self, Walk};
use super::{Counters, Limits, name};

/// The bytes of a text that count for as much as one that is read, where it is taken apart.
const APART_BYTES: usize = 16;

/// The extent of what a piece of work looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Some paths.
    Paths,
    /// An owner, in the survey with this number.
    Survey(u64),
    /// The root itself, whose owners are surveyed then.
    Everything,
}

/// A piece of work under way.
pub(super) struct Job {
    /// The owners whose other work waits for it.
    pub(super) owners: Vec<Arc<str>>,
    pub(super) scope: Scope,
    /// The directories that are still to be walked through.
    pub(super) starts: VecDeque<Arc<str>>,
    pub(super) walk: Option<Walk>,
    pub(super) comparison: Option<Comparison>,
    /// The findings so far, until all directories have been looked at.
    pub(super) seen: Seen,
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
    /// A job of which nothing has been done.
    pub(super) fn new(owners: Vec<Arc<str>>, scope: Scope) -> Job {
        Job {
            owners,
            scope,
            starts: VecDeque::new(),
            walk: None,
            comparison: None,
            seen: Seen::default(),
            parsed: Vec::new(),
            paths: Vec::new(),
            drafts: Vec::new(),
            new_files: 0,
            noticed: None,
        }
    }

    /// Adds parts that need no reading, and files to be read.
    pub(super) fn add(&mut self, parsed: Vec<Parsed>, mut paths: Vec<Arc<str>>) {
        let mut seen = HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        self.parsed.extend(parsed);
        self.paths.extend(paths);
    }

    /// Reads files until the slice is over. Returns whether all has been read.
    pub(super) fn step(&mut self, known: &Knowledge<'_>, slice: &mut Slice<'_>) -> bool {
        while !slice.is_over() {
            if let Some(draft) = self.drafts.last_mut().filter(|draft| !draft.is_read()) {
                draft.read(slice, known.limits, known.counters);
                continue;
            }
            let Some(path) = self.paths.get(self.drafts.len()) else {
                return true;
            };
            let draft = known.draft(path, &mut self.new_files);
            slice.take(FILE_BYTES + draft.text_bytes() / APART_BYTES);
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

    /// Forgets what was read or walked through, so that nothing but paths is held.
    pub(super) fn forget(&mut self) {
        let walked = self.walk.take().map(|walk| walk.start().clone());
        let compared = self.comparison.take();
        let compared = compared.map(|comparison| comparison.start().clone());
        if let Some(start) = walked.or(compared) {
            self.starts.push_front(start);
        }
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
                let total = index.len() + *new_files;
                if total >= self.limits.files_max {
                    return Draft::of_problem(self.root.clone(), tree::too_many(self.limits));
                }
                let part = tree::owner_part(self.limits.files_max);
                let owner = name::owner(self.root, path, false);
                // Nobody has more than all have together, so it is counted only beyond that.
                if total >= part
                    && owner != *self.root
                    && index.count_below(&owner, part) + *new_files >= part
                {
                    return Draft::of_problem(owner, tree::too_many_of_one(self.limits));
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
