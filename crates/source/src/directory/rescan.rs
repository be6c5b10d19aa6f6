//! Compares what is on disk with what is known, without reading what was not touched.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError};

use super::Directory;
use super::check::trouble;
use super::file::Stamp;
use super::index::Index;
use super::name;
use super::parsed::{Content, Parsed};
use super::queue::{Facts, Look};
use super::tree;
use super::watch::DirectoryWatch;

/// The findings of a look at the disk.
#[derive(Default)]
pub(super) struct Seen {
    /// Files that are to be read.
    pub(super) dirty: Vec<Arc<str>>,
    /// Files that are gone. They come last, for their objects may be in others now.
    pub(super) gone: Vec<Arc<str>>,
    /// Parts that need no reading: problems of directories, and their ends.
    pub(super) parsed: Vec<Parsed>,
    /// Whether all of it took place at one moment, as where a link was swapped.
    pub(super) is_one_batch: bool,
}

/// Facts from the disk and from what is known.
pub(super) struct DiskFacts<'a> {
    pub(super) index: &'a Index,
    pub(super) watch: &'a DirectoryWatch,
}

/// Facts for events that need none.
pub(super) struct NoFacts;

impl Seen {
    pub(super) fn extend(&mut self, other: Seen) {
        self.dirty.extend(other.dirty);
        self.gone.extend(other.gone);
        self.parsed.extend(other.parsed);
        self.is_one_batch |= other.is_one_batch;
    }
}

impl Directory {
    /// Looks at one path, whatever it is now.
    pub(super) fn examine(&mut self, path: &Arc<str>) -> Seen {
        if self.only.as_ref().is_some_and(|only| only != path) {
            return Seen::default();
        }
        let metadata = fs::metadata(&**path);
        if metadata.is_ok_and(|metadata| metadata.is_dir()) {
            let is_link = fs::symlink_metadata(&**path).is_ok_and(|found| found.is_symlink());
            if !is_link || !tree::is_cycle(&self.root, path) {
                let mut seen = self.rescan(path);
                seen.is_one_batch = is_link;
                return seen;
            }
        }
        self.watch.retain(path, &[]);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut dirty = index.files_at(path);
        if dirty.first() != Some(path) && name::holds_objects(name::last_part(path)) {
            dirty.insert(0, path.clone());
        }
        Seen {
            dirty,
            ..Seen::default()
        }
    }

    /// Lists a directory and all below it. A file is dirty where its stamp differs.
    pub(super) fn rescan(&mut self, start: &Arc<str>) -> Seen {
        if let Some(only) = self.only.clone() {
            return self.rescan_only(only);
        }
        let watch = &mut self.watch;
        let mut listing = tree::list(&self.root, start, &self.limits, &mut |directory| {
            watch.add(directory)
        });
        listing.directories.sort();
        // The watch of a directory that cannot be listed now may show when it can again.
        let mut kept = listing.directories.clone();
        kept.extend(listing.unlisted.iter().cloned());
        kept.sort();
        watch.retain(start, &kept);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut seen = Seen::default();
        let troubled: HashSet<_> = listing
            .troubles
            .iter()
            .map(|(path, _)| path.clone())
            .collect();
        for known in index.files_at(start) {
            let is_listed = listing.files.binary_search(&known).is_ok();
            let above = |directory: &Arc<str>| name::is_below(&known, directory);
            if !is_listed && !troubled.contains(&known) && !listing.unlisted.iter().any(above) {
                if known == *start || !name::holds_objects(name::last_part(&known)) {
                    // It stood for the problem of a directory.
                    let (stamp, content) = (Stamp::default(), Content::Gone);
                    seen.parsed.push(Parsed {
                        path: known,
                        stamp,
                        content,
                    });
                } else {
                    seen.gone.push(known);
                }
            }
        }
        for path in listing.files {
            let stamp = fs::metadata(&*path)
                .ok()
                .map(|metadata| Stamp::of(&metadata));
            if stamp.is_none() || stamp != index.stamp(&path) {
                seen.dirty.push(path);
            }
        }
        let troubles = listing.troubles.into_iter();
        seen.parsed
            .extend(troubles.map(|(path, problem)| trouble(path, problem)));
        seen
    }
}

impl Directory {
    /// Looks at the one file that is read, and watches its directory, which may be another one.
    fn rescan_only(&mut self, file: Arc<str>) -> Seen {
        let root = self.root.clone();
        if let Err(error) = self.watch.add(&root) {
            tracing::warn!(directory = %root, %error, "is not watched");
        }
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut seen = Seen::default();
        let stamp = fs::metadata(&*file)
            .ok()
            .map(|metadata| Stamp::of(&metadata));
        match (stamp, index.stamp(&file)) {
            (None, None) => {}
            (None, Some(_)) => seen.gone.push(file),
            (stamp, known) if stamp == known => {}
            _ => seen.dirty.push(file),
        }
        seen
    }
}

impl Facts for DiskFacts<'_> {
    fn look(&self, path: &str) -> Look {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => match fs::metadata(path) {
                Ok(target) if target.is_dir() => Look::DirectoryLink,
                _ => Look::Complete,
            },
            // A second name for a file that is complete under its first.
            Ok(metadata) if metadata.is_file() && metadata.nlink() < 2 => Look::Growing,
            Ok(_) => Look::Complete,
            Err(_) => Look::Gone,
        }
    }

    fn knows_directory(&self, path: &str) -> bool {
        self.watch.knows(path)
    }

    fn is_troubled(&self, path: &str) -> bool {
        self.index.is_troubled(path)
    }
}

impl Facts for NoFacts {
    fn look(&self, _: &str) -> Look {
        Look::Gone
    }

    fn knows_directory(&self, _: &str) -> bool {
        false
    }

    fn is_troubled(&self, _: &str) -> bool {
        false
    }
}
