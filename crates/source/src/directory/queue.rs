//! Decides from events what to read and when, without IO: time and facts come in.
//!
//! A path is dirty once it was written and closed or moved into place. What disappears is held
//! for a moment, since many programs replace a file by first taking the old one away, and until
//! the new one is closed the file is not read: so no half of it is ever in effect.
//!
//! Work comes in the order of its events. Where something takes long to read, the work of its
//! owner behind it waits in a lane of its own ([`Lanes`]), and that of others goes on. So it is
//! where an owner has very much of it.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::Instant;

use super::lanes::Lanes;
use super::name;
use super::watch::{EntryEvent, Event};

/// The most pieces of work of one owner in a row, while there is more behind them.
const RUN_MAX: usize = 256;

/// The most pieces of work that go to lanes before one of a lane is done.
const MOVES_MAX: usize = 1_024;

/// Something to look at. The paths of one piece of work end in one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A path, or the two ends of a move.
    Paths(Vec<Arc<str>>),
    /// Everything in a directory whose `..data` link was swapped.
    Links(Arc<str>),
    /// A file that holds what another one let go.
    Rival(Arc<str>),
    /// The whole tree, of which each owner is surveyed for itself.
    Everything,
    /// An owner, in the survey of the whole tree with this number.
    Survey(Arc<str>, u64),
}

/// Facts about the disk that an event does not tell.
pub(crate) trait Facts {
    /// The kind of entry at a path that was created or moved there.
    fn look(&self, path: &str) -> Look;
    /// Whether the path is a directory, or a link to one, that was listed.
    fn knows_directory(&self, path: &str) -> bool;
    /// Whether the file could not be read when it was tried last.
    fn is_troubled(&self, path: &str) -> bool;
}

/// The kind of entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A directory, a link, or one more name of a file: complete from the first moment.
    Complete,
    /// A link to a directory.
    DirectoryLink,
    /// A regular file that someone is about to write.
    Growing,
    /// Nothing any more.
    Gone,
}

/// Work that waits. It is bounded by the files and directories there are, as each path stands in
/// it once; and whoever loses events looks at everything instead.
pub(crate) struct Queue {
    removal_hold: Duration,
    root: Arc<str>,
    ready: VecDeque<(Ticket, Work)>,
    /// The work that waits for other work of the same owner.
    lanes: Lanes<(Ticket, Work)>,
    /// The number of the piece of work in `ready` that looks at a path; in others it is void.
    waiting: HashMap<Arc<str>, Ticket>,
    last_ticket: Ticket,
    /// The owner of the last pieces of work from `ready`, and how many there were in a row.
    run: Option<(Arc<str>, usize)>,
    held: HashMap<Arc<str>, Held>,
    /// Ends of holds, in the order of time; entries that `held` does not confirm are void.
    ends: VecDeque<(Instant, Arc<str>)>,
    /// The held origin of a move by the move's number.
    origins: HashMap<u32, Arc<str>>,
}

type Ticket = u64;

struct Held {
    end: Instant,
    cookie: Option<u32>,
}

impl Queue {
    pub(crate) fn new(removal_hold: Duration, root: &Arc<str>) -> Queue {
        Queue {
            removal_hold,
            root: root.clone(),
            ready: VecDeque::new(),
            lanes: Lanes::default(),
            waiting: HashMap::new(),
            last_ticket: 0,
            run: None,
            held: HashMap::new(),
            ends: VecDeque::new(),
            origins: HashMap::new(),
        }
    }

    /// Takes an event.
    pub(crate) fn take(&mut self, event: Event, now: Instant, facts: &dyn Facts) {
        match event {
            Event::Overflow | Event::Root => self.look_at_everything(),
            Event::Entry {
                directory,
                name,
                kind,
                ..
            } if *name == *name::DATA_LINK => {
                let path = name::join(&directory, &name);
                match kind {
                    EntryEvent::Created | EntryEvent::MovedTo(_) => {
                        self.unhold(&path);
                        self.push_links(directory);
                    }
                    EntryEvent::Deleted | EntryEvent::MovedFrom(_) => {
                        self.hold(path, None, now);
                    }
                    EntryEvent::Written | EntryEvent::Attributes => {}
                }
            }
            Event::Entry {
                directory,
                name,
                kind,
                is_directory,
            } => {
                if !name::is_hidden(&name) {
                    let path = name::join(&directory, &name);
                    let is_ours = is_directory || name::holds_objects(&name);
                    self.take_entry(path, kind, is_ours, now, facts);
                }
            }
        }
    }

    /// Adds a path as a piece of work of its own.
    pub(crate) fn push(&mut self, path: Arc<str>) {
        if !self.waiting.contains_key(&path) {
            self.push_paths(vec![path]);
        }
    }

    /// Adds a file to be read since another one let go what it holds.
    pub(crate) fn push_rival(&mut self, path: Arc<str>) {
        self.ready.push_back((0, Work::Rival(path)));
    }

    /// Adds an owner to be surveyed, or what was one.
    pub(crate) fn push_survey(&mut self, owner: Arc<str>, number: u64) {
        self.ready.push_back((0, Work::Survey(owner, number)));
    }

    /// The owners of a piece of work: for each path the entry of the root that is a directory and
    /// that it lies in, and the root for its own files. All belongs to nobody.
    pub(crate) fn owners(&self, work: &Work) -> Vec<Arc<str>> {
        let owner = |path: &str, is_directory| name::owner(&self.root, path, is_directory);
        let mut owners: Vec<Arc<str>> = match work {
            Work::Paths(paths) => {
                let is_directory = |path: &str| !name::holds_objects(name::last_part(path));
                let owners = paths.iter().map(|path| owner(path, is_directory(path)));
                owners.collect()
            }
            Work::Links(directory) => vec![owner(directory, true)],
            Work::Rival(path) => vec![owner(path, false)],
            Work::Survey(owner, _) => vec![owner.clone()],
            Work::Everything => Vec::new(),
        };
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Lets other work of these owners wait from now on.
    pub(crate) fn block(&mut self, owners: &[Arc<str>]) {
        self.lanes.block(owners);
    }

    /// Lets work of these owners go on.
    pub(crate) fn release(&mut self, owners: &[Arc<str>]) {
        self.lanes.release(owners);
    }

    /// The next piece of work of an owner that may go on.
    pub(crate) fn pop(&mut self) -> Option<Work> {
        while let Some((ticket, work)) = self.pop_any() {
            match work {
                Work::Paths(mut paths) => {
                    paths.retain(|path| self.waiting.get(path) == Some(&ticket));
                    for path in &paths {
                        self.waiting.remove(path);
                    }
                    if !paths.is_empty() {
                        return Some(Work::Paths(paths));
                    }
                }
                other => return Some(other),
            }
        }
        None
    }

    /// The next place in the queue of an owner that may go on. Lanes and all other work take turns.
    fn pop_any(&mut self) -> Option<(Ticket, Work)> {
        loop {
            if let Some((lane, next)) = self.lanes.pop(self.ready.is_empty()) {
                let owners = self.owners(&next.1);
                let mut others = owners.into_iter().filter(|owner| *owner != lane);
                match others.find(|owner| self.lanes.is_blocked(owner)) {
                    Some(other) => self.lanes.push(&other, next),
                    None => return Some(next),
                }
                continue;
            }
            let mut has_moved = false;
            for _ in 0..MOVES_MAX {
                let Some(next) = self.ready.pop_front() else {
                    break;
                };
                let owners = self.owners(&next.1);
                let mut lanes = owners.iter().filter(|owner| self.lanes.has(owner));
                match lanes.next().cloned().or_else(|| self.end_run(&owners)) {
                    Some(owner) => self.lanes.push(&owner, next),
                    None => return Some(next),
                }
                has_moved = true;
            }
            if !has_moved {
                return None;
            }
        }
    }

    /// Counts the pieces of work of one owner that follow each other. Returns the owner if those
    /// behind are to have a lane, so that others go on.
    fn end_run(&mut self, owners: &[Arc<str>]) -> Option<Arc<str>> {
        let [owner] = owners else {
            self.run = None;
            return None;
        };
        match &mut self.run {
            Some((last, count)) if *last == *owner => {
                *count += 1;
                if *count <= RUN_MAX || self.ready.is_empty() {
                    return None;
                }
                self.run = None;
                Some(owner.clone())
            }
            run => {
                *run = Some((owner.clone(), 1));
                None
            }
        }
    }

    /// When the first held path is due.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        while let Some((end, path)) = self.ends.front() {
            if self.held.get(path).is_some_and(|held| held.end == *end) {
                return Some(*end);
            }
            self.ends.pop_front();
        }
        None
    }

    /// Releases what was held until now.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|end| end <= now) {
            let Some((_, path)) = self.ends.pop_front() else {
                return;
            };
            self.unhold(&path);
            match path
                .strip_suffix(name::DATA_LINK)
                .and_then(|path| path.strip_suffix('/'))
            {
                Some(directory) => self.push_links(directory.into()),
                None => self.push(path),
            }
        }
    }

    fn take_entry(
        &mut self,
        path: Arc<str>,
        kind: EntryEvent,
        is_ours: bool,
        now: Instant,
        facts: &dyn Facts,
    ) {
        match kind {
            EntryEvent::Written if is_ours => {
                self.unhold(&path);
                self.push(path);
            }
            EntryEvent::Created => match facts.look(&path) {
                Look::Complete if is_ours => {
                    self.unhold(&path);
                    self.push(path);
                }
                Look::DirectoryLink => {
                    self.unhold(&path);
                    self.push(path);
                }
                Look::Growing => {
                    // Whatever was to be read here is about to be replaced.
                    self.unhold(&path);
                    self.waiting.remove(&path);
                }
                Look::Complete | Look::Gone => {}
            },
            EntryEvent::MovedTo(cookie) => {
                if !is_ours && facts.look(&path) != Look::DirectoryLink {
                    // A backup was made; the file itself is on hold until its successor is
                    // written, or until it turns out that there is none.
                    return;
                }
                self.unhold(&path);
                match self.origins.get(&cookie).cloned() {
                    Some(origin) => {
                        self.unhold(&origin);
                        self.push_paths(vec![origin, path]);
                    }
                    None => self.push(path),
                }
            }
            EntryEvent::MovedFrom(cookie) if is_ours || is_known(&path, facts) => {
                self.hold(path, Some(cookie), now);
            }
            EntryEvent::Deleted if is_ours || is_known(&path, facts) => {
                self.hold(path, None, now);
            }
            EntryEvent::Attributes if facts.is_troubled(&path) => self.push(path),
            _ => {}
        }
    }

    fn look_at_everything(&mut self) {
        // Whoever looks at files does not see what others let go.
        let is_rival = |(_, work): &(Ticket, Work)| matches!(work, Work::Rival(_));
        self.ready.retain(is_rival);
        self.lanes.retain(is_rival);
        self.waiting.clear();
        self.held.clear();
        self.ends.clear();
        self.origins.clear();
        self.ready.push_back((0, Work::Everything));
    }

    fn push_links(&mut self, directory: Arc<str>) {
        let work = Work::Links(directory);
        // Swaps of the same directory are rarely more than one in the queue.
        if !self.ready.iter().any(|(_, ready)| *ready == work) {
            self.ready.push_back((0, work));
        }
    }

    fn push_paths(&mut self, paths: Vec<Arc<str>>) {
        self.last_ticket += 1;
        for path in &paths {
            self.waiting.insert(path.clone(), self.last_ticket);
        }
        self.ready.push_back((self.last_ticket, Work::Paths(paths)));
    }

    fn hold(&mut self, path: Arc<str>, cookie: Option<u32>, now: Instant) {
        self.waiting.remove(&path);
        self.unhold(&path);
        let end = now + self.removal_hold;
        if let Some(cookie) = cookie {
            self.origins.insert(cookie, path.clone());
        }
        self.held.insert(path.clone(), Held { end, cookie });
        self.ends.push_back((end, path));
    }

    fn unhold(&mut self, path: &Arc<str>) {
        if let Some(held) = self.held.remove(path)
            && let Some(cookie) = held.cookie
        {
            self.origins.remove(&cookie);
        }
    }
}

/// Whether the path is a directory that was listed, or a link to one that has a finding.
fn is_known(path: &str, facts: &dyn Facts) -> bool {
    facts.knows_directory(path) || facts.is_troubled(path)
}
