//! The findings of a look at the disk, beside what is known.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::Arc;

use super::check::trouble;
use super::file::Stamp;
use super::index::Index;
use super::name;
use super::parsed::{Content, Parsed};
use super::slice::{FILE_BYTES, Slice};
use super::tree::Listing;

/// The findings of a look at the disk.
#[derive(Default)]
pub(super) struct Seen {
    /// Files that are to be read.
    pub(super) dirty: Vec<Arc<str>>,
    /// Files that are gone. They come last, for their objects may be in others now.
    pub(super) gone: Vec<Arc<str>>,
    /// Parts that need no reading: problems of directories, and their ends.
    pub(super) parsed: Vec<Parsed>,
    /// The owners that are to be surveyed, where the root alone was looked at.
    pub(super) owners: BTreeSet<Arc<str>>,
    /// Whether all of it took place at one moment, as where a link was swapped.
    pub(super) is_one_batch: bool,
}

impl Seen {
    pub(super) fn extend(&mut self, other: Seen) {
        self.dirty.extend(other.dirty);
        self.gone.extend(other.gone);
        self.parsed.extend(other.parsed);
        self.owners.extend(other.owners);
        self.is_one_batch |= other.is_one_batch;
    }
}

/// The files that a walk has found beside those that are known, the former of which are dirty where
/// their stamps differ.
pub(super) struct Comparison {
    start: Arc<str>,
    listing: Listing,
    troubled: HashSet<Arc<str>>,
    /// The known files that have not been compared, the first one last.
    known: Vec<Arc<str>>,
    pub(super) seen: Seen,
}

impl Comparison {
    pub(super) fn new(
        start: Arc<str>,
        mut listing: Listing,
        known: Vec<Arc<str>>,
        mut seen: Seen,
    ) -> Comparison {
        let troubles = std::mem::take(&mut listing.troubles);
        let troubled = troubles.iter().map(|(path, _)| path.clone()).collect();
        let parsed = troubles.into_iter();
        seen.parsed
            .extend(parsed.map(|(path, problem)| trouble(path, problem)));
        Comparison {
            start,
            listing,
            troubled,
            known,
            seen,
        }
    }

    /// The path that it began at.
    pub(super) fn start(&self) -> &Arc<str> {
        &self.start
    }

    /// Compares files until the slice is over. Returns whether all have been compared.
    pub(super) fn step(&mut self, slice: &mut Slice<'_>, index: &Index) -> bool {
        while !slice.is_over() {
            if let Some(known) = self.known.pop() {
                self.take_known(known);
            } else if let Some(path) = self.listing.files.pop_first() {
                let metadata = fs::metadata(&*path).ok();
                let stamp = metadata.map(|metadata| Stamp::of(&metadata));
                if stamp.is_none() || stamp != index.stamp(&path) {
                    self.seen.dirty.push(path);
                }
            } else {
                return true;
            }
            slice.take(FILE_BYTES);
        }
        self.known.is_empty() && self.listing.files.is_empty()
    }

    fn take_known(&mut self, known: Arc<str>) {
        let listing = &self.listing;
        let above = |directory: &Arc<str>| name::is_below(&known, directory);
        if listing.files.contains(&known)
            || self.troubled.contains(&known)
            || listing.unlisted.iter().any(above)
        {
            return;
        }
        if known == self.start || !name::holds_objects(name::last_part(&known)) {
            // It stood for the problem of a directory.
            let (stamp, content) = (Stamp::default(), Content::Gone);
            self.seen.parsed.push(Parsed {
                path: known,
                stamp,
                content,
            });
        } else {
            self.seen.gone.push(known);
        }
    }
}
