//! Walks through the directories and files below a directory, some entries at a time.
//!
//! Owners take turns, and each has a part of what the tree may have, so that none keeps another's
//! files from being found. Directories come before links to directories, and behind links no
//! owner is shown a directory twice: so neither cycles nor fans of links multiply anything.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Limits;
use super::file::explain;
use super::name;
use super::problem::Problem;
use super::slice::Slice;

/// How deep directories are followed, links to directories included.
const DEPTH_MAX: usize = 32;

/// An owner has at most this part of the directories and files of the tree.
const OWNER_PART: usize = 4;

/// The most problems of an owner that are told.
const TROUBLES_MAX: usize = 100;

/// The entries of an owner that are looked at in a turn.
const TURN_ENTRIES: usize = 64;

/// The bytes of a slice that each of them counts for.
const ENTRY_BYTES: usize = 64;

/// Where links do not lead, since the kernel's own files are without number.
const KERNEL_FILES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The entries that were found. All paths are as the root was given, with the way below it
/// appended.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) directories: Vec<Arc<str>>,
    /// The files that may hold objects.
    pub(crate) files: BTreeSet<Arc<str>>,
    /// Directories that could not be listed or watched, and names that could not be read.
    pub(crate) troubles: Vec<(Arc<str>, Problem)>,
    /// Directories of whose entries nothing is known: absence in them means nothing.
    pub(crate) unlisted: Vec<Arc<str>>,
    /// The owners in the root, where these are not walked through.
    pub(crate) owners: BTreeSet<Arc<str>>,
}

/// Called with every directory before its entries are listed, so that whoever watches it misses
/// none. Says whether a link may lead there: not where its owner has the directory elsewhere.
pub(crate) type Enter<'a> = dyn FnMut(&Arc<str>) -> io::Result<bool> + 'a;

/// Lists all of a root.
pub(crate) fn list(root: &Arc<str>, limits: &Limits, enter: &mut Enter<'_>) -> Listing {
    let mut walk = Walk::new(root, root, limits, Elsewhere::default());
    while !walk.step(&mut Slice::new(usize::MAX, &|| Duration::ZERO), enter) {}
    walk.into_listing()
}

/// The device and the inode of a directory.
type Identity = (u64, u64);

/// How many directories are known that a walk does not come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elsewhere {
    pub(crate) of_owner: usize,
    pub(crate) of_all: usize,
}

/// A walk under way.
pub(crate) struct Walk {
    root: Arc<str>,
    start: Arc<str>,
    limits: Limits,
    is_shallow: bool,
    /// How many directories there are that are not walked through.
    elsewhere: usize,
    /// The root and what is above it.
    above: HashSet<Identity>,
    /// The root without links on the way to it.
    real_root: Option<PathBuf>,
    /// The owners with something left to look at, the next one first.
    owners: VecDeque<Owner>,
    listing: Listing,
}

/// The part of a walk that is an owner's.
struct Owner {
    path: Arc<str>,
    /// Directories that are still to be listed.
    open: Vec<Found>,
    /// Links to directories, which are followed once there are no others.
    links: BTreeMap<Arc<str>, usize>,
    reading: Option<Opened>,
    seen: HashSet<Identity>,
    directories: usize,
    files: usize,
    troubles: usize,
}

/// A directory that was found.
struct Found {
    path: Arc<str>,
    depth: usize,
    /// Whether it is a link, or lies behind one.
    is_linked: bool,
}

/// A directory that is being listed.
struct Opened {
    found: Found,
    entries: ReadDir,
}

impl Walk {
    /// A walk from `start`, which is `root` or lies below it.
    pub(crate) fn new(
        root: &Arc<str>,
        start: &Arc<str>,
        limits: &Limits,
        elsewhere: Elsewhere,
    ) -> Walk {
        let real_root = fs::canonicalize(&**root).ok();
        let above = real_root.iter().flat_map(|real| real.ancestors());
        let above = above.filter_map(|path| fs::metadata(path).ok());
        let slashes = |path: &str| path.matches('/').count();
        let depth = slashes(start).saturating_sub(slashes(root));
        let mut owner = Owner::new(name::owner(root, start, true));
        owner.directories = elsewhere.of_owner;
        let is_link = fs::symlink_metadata(&**start).is_ok_and(|found| found.is_symlink());
        owner.add(start.clone(), depth, is_link && start != root, false);
        Walk {
            root: root.clone(),
            start: start.clone(),
            limits: limits.clone(),
            is_shallow: false,
            elsewhere: elsewhere.of_all,
            above: above.map(|metadata| identity(&metadata)).collect(),
            real_root,
            owners: VecDeque::from([owner]),
            listing: Listing::default(),
        }
    }

    /// A walk through the root itself, which only tells of its owners.
    pub(crate) fn shallow(root: &Arc<str>, limits: &Limits) -> Walk {
        Walk {
            is_shallow: true,
            ..Walk::new(root, root, limits, Elsewhere::default())
        }
    }

    /// Where it began.
    pub(crate) fn start(&self) -> &Arc<str> {
        &self.start
    }

    /// Whether it looks at the root's own entries alone.
    pub(crate) fn is_shallow(&self) -> bool {
        self.is_shallow
    }

    /// Looks at entries until the slice is over, some of each owner in turn. Returns whether all
    /// has been looked at.
    pub(crate) fn step(&mut self, slice: &mut Slice<'_>, enter: &mut Enter<'_>) -> bool {
        while !slice.is_over() {
            let Some(mut owner) = self.owners.pop_front() else {
                return true;
            };
            let has_more = self.take_turn(&mut owner, enter);
            slice.take(TURN_ENTRIES * ENTRY_BYTES);
            if has_more {
                self.owners.push_back(owner);
            }
        }
        self.owners.is_empty()
    }

    /// The entries that were found.
    pub(crate) fn into_listing(self) -> Listing {
        self.listing
    }

    /// Looks at some entries of an owner. Returns whether there are more.
    fn take_turn(&mut self, owner: &mut Owner, enter: &mut Enter<'_>) -> bool {
        for _ in 0..TURN_ENTRIES {
            let Some(reading) = &mut owner.reading else {
                let Some(found) = owner.take_next() else {
                    return false;
                };
                let most = self.limits.directories_max;
                if self.is_full(owner, owner.directories, most) || self.directories() >= most {
                    return self.end(owner);
                }
                self.open(owner, found, enter);
                continue;
            };
            let (directory, depth) = (reading.found.path.clone(), reading.found.depth);
            let is_linked = reading.found.is_linked;
            match reading.entries.next() {
                None => owner.reading = None,
                Some(Ok(entry)) => {
                    if !self.take(owner, &directory, (depth, is_linked), &entry) {
                        return self.end(owner);
                    }
                }
                Some(Err(error)) => {
                    owner.reading = None;
                    self.skip(owner, directory, explain(&error));
                }
            }
        }
        true
    }

    /// Begins to list a directory, if it may be.
    fn open(&mut self, owner: &mut Owner, found: Found, enter: &mut Enter<'_>) {
        let directory = found.path.clone();
        let identity = fs::metadata(&*directory).ok().map(|found| identity(&found));
        if found.is_linked
            && let Some(identity) = identity
            && let Some(problem) = self.refuse(owner, &directory, identity)
        {
            self.trouble(owner, directory, problem);
            return;
        }
        let entered = enter(&directory);
        if found.is_linked && matches!(entered, Ok(false)) {
            self.trouble(owner, directory, read_already());
            return;
        }
        let entries = match fs::read_dir(&*directory) {
            Ok(entries) => entries,
            // It went away; if it was a directory of ours, its own event says so.
            Err(error) if is_gone(&error) && directory != self.root => return,
            Err(error) => {
                self.skip(owner, directory, explain(&error));
                return;
            }
        };
        if let Err(error) = entered {
            self.trouble(owner, directory.clone(), not_watched(&error));
        }
        owner.seen.extend(identity);
        owner.directories += 1;
        self.listing.directories.push(directory);
        owner.reading = Some(Opened { found, entries });
    }

    /// The reason why a directory that is a link, or lies behind one, is not listed.
    fn refuse(&self, owner: &Owner, directory: &Arc<str>, found: Identity) -> Option<Problem> {
        let remedy = "remove the link";
        if self.above.contains(&found) {
            let message = "is a link to a directory above itself";
            return Some(Problem::new(message, remedy));
        }
        if owner.seen.contains(&found) {
            return Some(read_already());
        }
        let is_link = fs::symlink_metadata(&**directory).is_ok_and(|found| found.is_symlink());
        let target = fs::canonicalize(&**directory).ok().filter(|_| is_link)?;
        if KERNEL_FILES.iter().any(|files| target.starts_with(files)) {
            let message = "is a link to files of the kernel, which are not read";
            return Some(Problem::new(message, remedy));
        }
        // Links in the root are the operator's, and lead anywhere.
        if *directory == owner.path {
            return None;
        }
        let is_inside = |real: &Path| target.starts_with(real);
        let is_ours = self.real_root.as_deref().is_some_and(is_inside)
            || fs::canonicalize(&*owner.path).is_ok_and(|real| is_inside(&real));
        (!is_ours).then(|| {
            let message = "is a link out of the directory that is served, which is not followed";
            Problem::new(
                message,
                "link to the directory from the root, or move it there",
            )
        })
    }

    /// Takes note of an entry. Returns whether its owner may have it.
    fn take(
        &mut self,
        owner: &mut Owner,
        directory: &Arc<str>,
        (depth, is_linked): (usize, bool),
        entry: &DirEntry,
    ) -> bool {
        let file_name = entry.file_name();
        let lossy = file_name.to_string_lossy();
        if name::is_hidden(&lossy) {
            return true;
        }
        let Ok(mut kind) = entry.file_type() else {
            return true;
        };
        let is_link = kind.is_symlink();
        if is_link && let Ok(target) = fs::metadata(Path::new(directory.as_ref()).join(&file_name))
        {
            kind = target.file_type();
        }
        if !kind.is_dir() && !name::holds_objects(&lossy) {
            return true;
        }
        let path = name::join(directory, &lossy);
        if file_name.to_str().is_none() {
            let remedy = "rename it";
            self.skip(
                owner,
                path,
                Problem::new("has a name that is not UTF-8", remedy),
            );
        } else if !kind.is_dir() {
            if self.is_full(owner, owner.files, self.limits.files_max)
                || self.listing.files.len() >= self.limits.files_max
            {
                return false;
            }
            owner.files += 1;
            self.listing.files.insert(path);
        } else if depth >= DEPTH_MAX {
            let remedy = "move its files up";
            self.skip(
                owner,
                path,
                Problem::new("lies too deep to be read", remedy),
            );
        } else if owner.path != self.root {
            owner.add(path, depth + 1, is_link, is_linked);
        } else if self.is_shallow {
            self.listing.owners.insert(path);
        } else {
            let mut next = Owner::new(path.clone());
            next.add(path, depth + 1, is_link, is_linked);
            self.owners.push_back(next);
        }
        true
    }

    fn directories(&self) -> usize {
        self.elsewhere + self.listing.directories.len()
    }

    /// Whether an owner has its part of so many.
    fn is_full(&self, owner: &Owner, has: usize, all: usize) -> bool {
        owner.path != self.root && has >= owner_part(all)
    }

    /// Ends the part of an owner that has what it may have, or all if the tree has.
    fn end(&mut self, owner: &mut Owner) -> bool {
        let is_all = self.directories() >= self.limits.directories_max
            || self.listing.files.len() >= self.limits.files_max;
        let (path, problem) = match is_all || owner.path == self.root {
            true => {
                self.owners.clear();
                (self.root.clone(), too_many(&self.limits))
            }
            false => (owner.path.clone(), too_many_of_one(&self.limits)),
        };
        owner.reading = None;
        self.listing.troubles.push((path.clone(), problem));
        self.listing.unlisted.push(path);
        false
    }

    fn skip(&mut self, owner: &mut Owner, path: Arc<str>, problem: Problem) {
        if owner.troubles < TROUBLES_MAX {
            self.listing.unlisted.push(path.clone());
        }
        self.trouble(owner, path, problem);
    }

    fn trouble(&mut self, owner: &mut Owner, path: Arc<str>, problem: Problem) {
        if owner.troubles < TROUBLES_MAX {
            self.listing.troubles.push((path, problem));
        } else if owner.troubles == TROUBLES_MAX {
            let message = format!(
                "has more than {TROUBLES_MAX} directories, links and names that are not read"
            );
            let problem = Problem::new(message, "correct the first ones, then look again");
            self.listing.troubles.push((owner.path.clone(), problem));
            self.listing.unlisted.push(owner.path.clone());
        }
        owner.troubles += 1;
    }
}

impl Owner {
    fn new(path: Arc<str>) -> Owner {
        Owner {
            path,
            open: Vec::new(),
            links: BTreeMap::new(),
            reading: None,
            seen: HashSet::new(),
            directories: 0,
            files: 0,
            troubles: 0,
        }
    }

    fn add(&mut self, path: Arc<str>, depth: usize, is_link: bool, is_linked: bool) {
        if is_link {
            self.links.insert(path, depth);
        } else {
            self.open.push(Found {
                path,
                depth,
                is_linked,
            });
        }
    }

    /// The directory that is to be listed next.
    fn take_next(&mut self) -> Option<Found> {
        self.open.pop().or_else(|| {
            let (path, depth) = self.links.pop_first()?;
            Some(Found {
                path,
                depth,
                is_linked: true,
            })
        })
    }
}

/// The most of something that one owner has.
pub(crate) fn owner_part(all: usize) -> usize {
    (all / OWNER_PART).max(1)
}

/// The problem of a root that holds more than is read.
pub(crate) fn too_many(limits: &Limits) -> Problem {
    let message = format!(
        "has more than {} files or {} directories; the rest is not read",
        limits.files_max, limits.directories_max
    );
    Problem::new(
        message,
        "put less into the directory, or several objects into a file",
    )
}

/// The problem of a directory in the root that holds more than its part.
pub(crate) fn too_many_of_one(limits: &Limits) -> Problem {
    let message = format!(
        "has more than {} files or {} directories, the part of one directory in the root; the \
         rest is not read",
        owner_part(limits.files_max),
        owner_part(limits.directories_max)
    );
    Problem::new(
        message,
        "divide it into several directories of the root, or put several objects into a file",
    )
}

fn read_already() -> Problem {
    let message = "is a link to a directory that is read already, so it is not followed";
    Problem::new(message, "remove the link")
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn not_watched(error: &io::Error) -> Problem {
    let message = format!("is not watched, so that changes in it are not seen: {error}");
    Problem::new(
        message,
        "raise the limit fs.inotify.max_user_watches of the system",
    )
}
