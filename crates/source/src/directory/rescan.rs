//! Compares what is on disk with what is known, without reading what was not touched.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::Directory;
use super::comparison::{Comparison, Seen};
use super::file::Stamp;
use super::index::Index;
use super::job::{Job, Scope};
use super::name;
use super::queue::{Facts, Look};
use super::slice::Slice;
use super::tree::Walk;
use super::watch::DirectoryWatch;

/// Facts from the disk and from what is known.
pub(super) struct DiskFacts<'a> {
    pub(super) index: &'a Index,
    pub(super) watch: &'a DirectoryWatch,
}

/// Facts for events that need none.
pub(super) struct NoFacts;

impl Directory {
    /// Looks at one path, whatever it is now. Returns whether it is a directory, which is to be
    /// walked through.
    pub(super) fn examine(&mut self, path: &Arc<str>, seen: &mut Seen) -> bool {
        if self.only.as_ref().is_some_and(|only| only != path) {
            return false;
        }
        let metadata = fs::metadata(&**path);
        if self.only.is_none() && metadata.is_ok_and(|metadata| metadata.is_dir()) {
            seen.is_one_batch |=
                fs::symlink_metadata(&**path).is_ok_and(|found| found.is_symlink());
            return true;
        }
        self.watch.retain(path, |_| false);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut dirty = index.files_at(path);
        if dirty.first() != Some(path) && name::holds_objects(name::last_part(path)) {
            dirty.insert(0, path.clone());
        }
        seen.dirty.extend(dirty);
        false
    }

    /// Walks through the directories of a job, and compares what is there with what is known, until
    /// the slice is over. Returns whether all has been looked at.
    pub(super) fn look_around(&mut self, job: &mut Job, slice: &mut Slice<'_>) -> bool {
        loop {
            if let Some(comparison) = &mut job.comparison {
                let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
                if !comparison.step(slice, &index) {
                    return false;
                }
            }
            if let Some(comparison) = job.comparison.take() {
                job.seen.extend(comparison.seen);
            }
            if let Some(walk) = &mut job.walk {
                let (start, watch) = (walk.start().clone(), &mut self.watch);
                if !walk.step(slice, &mut |directory| watch.enter(directory, &start)) {
                    return false;
                }
            }
            if let Some(walk) = job.walk.take() {
                job.comparison = Some(self.compare(walk));
                continue;
            }
            let Some(start) = job.starts.pop_front() else {
                return true;
            };
            job.walk = Some(match job.scope {
                Scope::Everything => Walk::shallow(&self.root, &self.limits),
                _ => {
                    let elsewhere = self.watch.count_elsewhere(&start);
                    Walk::new(&self.root, &start, &self.limits, elsewhere)
                }
            });
        }
    }

    /// Ends the watches of directories that are gone, and begins to compare files.
    fn compare(&mut self, walk: Walk) -> Comparison {
        let (start, is_shallow) = (walk.start().clone(), walk.is_shallow());
        let listing = walk.into_listing();
        if !is_shallow {
            // The watch of a directory that cannot be listed now may show when it can again.
            let kept = listing.directories.iter().chain(&listing.unlisted);
            let kept: HashSet<_> = kept.collect();
            // While the root was walked through, others may have come upon more of it.
            let is_root = start == self.root;
            self.watch.retain(&start, |path| {
                kept.contains(path) || is_root && Path::new(&**path).is_dir()
            });
        }
        let mut seen = Seen::default();
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = match is_shallow {
            false => index.files_at(&start),
            // Of a root that cannot be listed nothing is known.
            true if listing.unlisted.contains(&start) => Vec::new(),
            true => {
                let (files, owners) = index.level(&self.root);
                // Those that hold no objects stand for the problems of owners.
                let is_file =
                    |path: &Arc<str>| *path == start || name::holds_objects(name::last_part(path));
                let (files, troubled) = files.into_iter().partition::<Vec<_>, _>(is_file);
                seen.owners.extend(owners.into_iter().chain(troubled));
                seen.owners.extend(self.watch.owners().cloned());
                seen.owners.remove(&start);
                files
            }
        };
        seen.owners.extend(listing.owners.iter().cloned());
        known.retain(|known| !listing.owners.contains(known));
        known.reverse();
        Comparison::new(start, listing, known, seen)
    }
}

impl Directory {
    /// Looks at the one file that is read, and watches its directory, which may be another one.
    pub(super) fn rescan_only(&mut self) -> Seen {
        let Some(file) = self.only.clone() else {
            return Seen::default();
        };
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
