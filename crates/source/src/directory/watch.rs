//! Watches directories through inotify: one instance, one watch per directory, none per file.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::name;
use super::tree::Elsewhere;

/// The most events that are taken at once; the kernel's queue holds as many by default.
const EVENTS_MAX: usize = 16_384;
const BUFFER_BYTES: usize = 64 << 10;

/// An event of the watched tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Something happened to an entry of a watched directory.
    Entry {
        directory: Arc<str>,
        name: Box<str>,
        kind: EntryEvent,
        is_directory: bool,
    },
    /// Events were lost.
    Overflow,
    /// The root, or a link on the way to it, is now another or gone.
    Root,
}

/// A change of an entry. Moves carry the number that both of their ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryEvent {
    Created,
    Written,
    MovedFrom(u32),
    MovedTo(u32),
    Deleted,
    Attributes,
}

/// The watched directories.
pub(crate) struct DirectoryWatch {
    fd: AsyncFd<OwnedFd>,
    root: Arc<str>,
    /// One directory has several paths where links lead to it.
    paths: HashMap<i32, Vec<Arc<str>>>,
    descriptors: BTreeMap<Arc<str>, i32>,
    /// How many directories of each owner there are.
    counts: HashMap<Arc<str>, usize>,
    /// Directories outside the tree in which one name decides where the root is.
    anchors: Vec<(i32, Box<str>)>,
    buffer: Box<[MaybeUninit<u8>]>,
}

struct RawEvent {
    descriptor: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Box<str>,
}

impl DirectoryWatch {
    /// Begins to watch nothing. Needs a runtime with IO.
    pub(crate) fn new(root: &Arc<str>) -> io::Result<DirectoryWatch> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "an OwnedFd stays open and the same, which is all that its unsafe successor \
                      asks for"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(DirectoryWatch {
            fd,
            root: root.clone(),
            paths: HashMap::new(),
            descriptors: BTreeMap::new(),
            counts: HashMap::new(),
            anchors: Vec::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES].into(),
        })
    }

    /// Watches a directory, which may have been another one under the same path before.
    pub(crate) fn add(&mut self, directory: &Arc<str>) -> io::Result<()> {
        let mut flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        if *directory == self.root {
            flags |= WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        }
        let descriptor = match inotify::add_watch(&self.fd, &**directory, flags) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                self.detach(directory);
                return Err(error.into());
            }
        };
        if self.descriptors.get(directory) != Some(&descriptor) {
            self.detach(directory);
            self.descriptors.insert(directory.clone(), descriptor);
            let owner = self.owner(directory);
            *self.counts.entry(owner).or_default() += 1;
            self.paths
                .entry(descriptor)
                .or_default()
                .push(directory.clone());
        }
        Ok(())
    }

    /// Watches a directory that was found below `start`. Returns whether a link may lead there: not
    /// where its owner has the same directory outside of `start`.
    pub(crate) fn enter(&mut self, directory: &Arc<str>, start: &str) -> io::Result<bool> {
        self.add(directory)?;
        let descriptor = self.descriptors.get(directory);
        let paths = descriptor.and_then(|descriptor| self.paths.get(descriptor));
        let owner = self.owner(directory);
        let mut others = paths.into_iter().flatten();
        let is_elsewhere = others.any(|other| {
            let is_walked = **other == *start || name::is_below(other, start);
            !is_walked && self.owner(other) == owner
        });
        Ok(!is_elsewhere)
    }

    /// How many directories there are that are neither at a path nor below.
    pub(crate) fn count_elsewhere(&self, path: &str) -> Elsewhere {
        let of_owner = self.counts.get(&self.owner(path)).copied();
        let walked = self.at(path).count();
        Elsewhere {
            of_owner: of_owner.unwrap_or_default().saturating_sub(walked),
            of_all: self.descriptors.len().saturating_sub(walked),
        }
    }

    /// The owners of watched directories.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Arc<str>> {
        self.counts.keys()
    }

    /// Whether the path is a watched directory.
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.descriptors.contains_key(path)
    }

    /// Ends the watches at and below a path that are not to be kept.
    pub(crate) fn retain(&mut self, path: &str, keep: impl Fn(&Arc<str>) -> bool) {
        let ended: Vec<_> = self
            .at(path)
            .filter(|known| !keep(known))
            .cloned()
            .collect();
        for directory in ended {
            self.detach(&directory);
        }
    }

    /// The watched directories at and below a path.
    fn at(&self, path: &str) -> impl Iterator<Item = &Arc<str>> {
        let from = (Bound::Included(path), Bound::Unbounded);
        self.descriptors
            .range::<str, _>(from)
            .map(|(known, _)| known)
            .take_while(move |known| known.starts_with(path))
            .filter(move |known| ***known == *path || name::is_below(known, path))
    }

    fn owner(&self, directory: &str) -> Arc<str> {
        name::owner(&self.root, directory, true)
    }

    /// Counts one directory less among those of an owner that are watched.
    fn discount(&mut self, directory: &str) {
        let owner = self.owner(directory);
        if let Some(count) = self.counts.get_mut(&owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&owner);
            }
        }
    }

    /// Watches what decides where the root is: links on the way to it, or, where it is missing,
    /// the directory in which it will appear.
    pub(crate) fn anchor(&mut self) {
        for (descriptor, _) in std::mem::take(&mut self.anchors) {
            if !self.paths.contains_key(&descriptor) {
                // It may be gone already, and then so is its watch.
                let _ = inotify::remove_watch(&self.fd, descriptor);
            }
        }
        let flags = WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD;
        for (directory, name) in anchors(Path::new(&*self.root)) {
            if let Ok(descriptor) = inotify::add_watch(&self.fd, &directory, flags) {
                self.anchors.push((descriptor, name));
            }
        }
    }

    /// Waits until there are events.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.fd.readable().await?.retain_ready();
        Ok(())
    }

    /// The events that are there.
    pub(crate) fn drain(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        while events.len() < EVENTS_MAX {
            let raw = match self.read() {
                Ok(raw) => raw,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for event in raw {
                self.translate(event, &mut events);
            }
        }
        Ok(events)
    }

    fn read(&mut self) -> io::Result<Vec<RawEvent>> {
        let DirectoryWatch { fd, buffer, .. } = self;
        let noticed = fd.try_io(Interest::READABLE, |fd| read_events(fd, buffer));
        match noticed {
            // There may be events that the runtime has not noticed yet.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                read_events(fd.get_ref(), buffer)
            }
            noticed => noticed,
        }
    }

    fn translate(&mut self, raw: RawEvent, events: &mut Vec<Event>) {
        if raw.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            events.push(Event::Overflow);
            return;
        }
        let is_anchor = |(anchor, name): &(i32, Box<str>)| {
            *anchor == raw.descriptor && *name == raw.name && !raw.name.is_empty()
        };
        if self.anchors.iter().any(is_anchor) {
            events.push(Event::Root);
        }
        if raw.flags.contains(ReadFlags::IGNORED) {
            for path in self.paths.remove(&raw.descriptor).unwrap_or_default() {
                if self.descriptors.get(&path) == Some(&raw.descriptor) {
                    self.descriptors.remove(&path);
                    self.discount(&path);
                }
            }
            return;
        }
        let Some(paths) = self.paths.get(&raw.descriptor) else {
            return;
        };
        if raw
            .flags
            .intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF)
        {
            if paths.contains(&self.root) {
                events.push(Event::Root);
            }
            return;
        }
        let Some(kind) = EntryEvent::read(&raw) else {
            return;
        };
        let is_directory = raw.flags.contains(ReadFlags::ISDIR);
        events.extend(paths.iter().map(|directory| Event::Entry {
            directory: directory.clone(),
            name: raw.name.clone(),
            kind,
            is_directory,
        }));
    }

    fn detach(&mut self, directory: &Arc<str>) {
        let Some(descriptor) = self.descriptors.remove(directory) else {
            return;
        };
        self.discount(directory);
        let Some(paths) = self.paths.get_mut(&descriptor) else {
            return;
        };
        paths.retain(|path| path != directory);
        if paths.is_empty() {
            self.paths.remove(&descriptor);
            // It may be gone already, and then so is its watch.
            let _ = inotify::remove_watch(&self.fd, descriptor);
        }
    }
}

impl EntryEvent {
    fn read(raw: &RawEvent) -> Option<EntryEvent> {
        if raw.name.is_empty() {
            return None;
        }
        let kinds = [
            (ReadFlags::CLOSE_WRITE, EntryEvent::Written),
            (ReadFlags::MOVED_TO, EntryEvent::MovedTo(raw.cookie)),
            (ReadFlags::MOVED_FROM, EntryEvent::MovedFrom(raw.cookie)),
            (ReadFlags::CREATE, EntryEvent::Created),
            (ReadFlags::DELETE, EntryEvent::Deleted),
            (ReadFlags::ATTRIB, EntryEvent::Attributes),
        ];
        let kind = kinds
            .into_iter()
            .find(|(flag, _)| raw.flags.contains(*flag));
        kind.map(|(_, kind)| kind)
    }
}

/// The events of one read of the queue.
fn read_events(fd: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> io::Result<Vec<RawEvent>> {
    let mut events = Vec::new();
    let mut reader = Reader::new(fd, buffer);
    loop {
        match reader.next() {
            Ok(event) => events.push(RawEvent {
                descriptor: event.wd(),
                flags: event.events(),
                cookie: event.cookie(),
                name: event
                    .file_name()
                    .map(CStr::to_string_lossy)
                    .unwrap_or_default()
                    .into(),
            }),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if reader.is_buffer_empty() {
            return Ok(events);
        }
    }
}

/// For each part of the way to the root that is a link, the directory it stands in and its name;
/// and the same for the first part that is missing.
fn anchors(root: &Path) -> Vec<(PathBuf, Box<str>)> {
    let mut found = Vec::new();
    let Ok(absolute) = std::path::absolute(root) else {
        return found;
    };
    let mut way = PathBuf::new();
    for part in absolute.components() {
        let above = way.clone();
        way.push(part);
        let Component::Normal(name) = part else {
            continue;
        };
        let is_missing = match std::fs::symlink_metadata(&way) {
            Ok(metadata) if metadata.is_symlink() => false,
            Ok(_) => continue,
            Err(_) => true,
        };
        found.push((above, name.to_string_lossy().into()));
        if is_missing {
            break;
        }
    }
    found
}
