//! One watch without IO: what came from the server in, changes and the next request out.
//!
//! - A list is authoritative: what it shows replaces what was known, even where that was newer,
//!   since a consistent list is only older when the history of the cluster was put back.
//! - Absence counts at the end of a completed list and at no other time.
//! - Within a connection the resourceVersion of each object decides what is newer, so that
//!   duplicate and reordered events change nothing.

mod exchange;
mod failing;
mod findings;
mod hold;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, Object, ObjectKey};
use myriad_base::backoff::Backoff;
use myriad_base::clock::Instant;
use myriad_base::hold::Loss;

pub(super) use self::exchange::{Failure, Limits, Output, Request, Scope};
use self::findings::Findings;
use self::hold::{Hold, Way};
use super::backoff::backoff;
use super::item::{Bookmark, ObjectHead};

/// Deleted objects whose versions are remembered, so that a late event does not revive one.
const BURIED_MAX: usize = 4_096;

/// Checks without an answer after which everything is listed anew instead.
const CHECKS_MAX: u32 = 3;

/// A watch that ends in order after this long was a healthy one, even if nothing happened.
const HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// The memory of an object: the key's text is shared with whoever keeps the object.
struct Known {
    version: u64,
    hash: u64,
    /// The list that showed it last, or during which an event did.
    pass: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// A list is to begin.
    Unlisted,
    /// The server does not have the kind; when it does, a list is to begin.
    Absent,
    Streaming,
    Paging {
        token: Option<Arc<str>>,
        version: u64,
    },
    Probing,
    Checking,
    /// The version is that from which the watch began.
    Watching(u64),
}

/// The last thing that was seen to happen.
struct Latest {
    id: Arc<str>,
    version: u64,
    hash: u64,
    is_deletion: bool,
}

/// The state of one watch.
pub(super) struct Core {
    scope: Scope,
    known: HashMap<Arc<str>, Known>,
    /// The removed objects of this connection, oldest first in the queue.
    buried: HashMap<Arc<str>, u64>,
    burials: VecDeque<Arc<str>>,
    pass: u32,
    phase: Phase,
    can_stream: bool,
    page_objects: u32,
    version: u64,
    /// The newest event of this connection and of the list that it began with.
    latest: Option<Latest>,
    /// Checks in a row that got no answer.
    unchecked: u32,
    is_listed: bool,
    /// The objects that the last list did not show and that are kept.
    hold: Hold,
    infers: bool,
    backoff: Backoff,
    asked_at: Option<Instant>,
    findings: Findings,
    changes: Vec<Change>,
    /// The writers of objects among them, where that is known.
    writers: Vec<(ObjectKey, Arc<str>)>,
    was_listed: bool,
    /// Whether the version has moved without a change.
    has_moved: bool,
}

impl Core {
    /// A watch that has seen nothing.
    pub(super) fn new(scope: Scope, limits: Limits, seed: u64) -> Self {
        let findings = Findings::new(&scope);
        Core {
            scope,
            known: HashMap::new(),
            buried: HashMap::new(),
            burials: VecDeque::new(),
            pass: 0,
            phase: Phase::Unlisted,
            can_stream: true,
            page_objects: limits.page_objects.max(1),
            version: 0,
            latest: None,
            unchecked: 0,
            is_listed: false,
            hold: Hold::new(limits),
            infers: false,
            backoff: backoff(seed),
            asked_at: None,
            findings,
            changes: Vec::new(),
            writers: Vec::new(),
            was_listed: false,
            has_moved: false,
        }
    }

    /// The scope of the watch.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether the next request begins a list.
    pub(super) fn begins_list(&self) -> bool {
        matches!(self.phase, Phase::Unlisted | Phase::Absent)
    }

    /// The server does not have the kind: that is a complete list without objects, and those that
    /// were known are held like those of any kind that is suddenly empty.
    pub(super) fn set_absent(&mut self, now: Instant) {
        if self.phase != Phase::Absent {
            self.begin_list();
            self.complete(self.version, now);
            self.phase = Phase::Absent;
        }
    }

    /// The server does not say whether it has the kind. Nobody knows then what is there, so that
    /// this is no list: policies that restrict might be among it.
    pub(super) fn set_hidden(&mut self, failure: &Failure) {
        self.findings.set_trouble(failure, self.is_listed);
    }

    /// The server has the kind in this version; another one than before is listed anew.
    pub(super) fn set_version(&mut self, api_version: &'static str) {
        if self.scope.api_version != api_version {
            self.scope.api_version = api_version;
            self.phase = Phase::Unlisted;
        }
    }

    /// Objects are read otherwise than before, so all of them are listed anew.
    pub(super) fn list_anew(&mut self) {
        if self.phase != Phase::Absent {
            self.phase = Phase::Unlisted;
        }
    }

    /// Whether all that the server has of the kind was seen.
    pub(super) fn is_whole(&self) -> bool {
        self.is_listed && self.is_list_whole()
    }

    /// The next request to the server. To be called once before every request.
    pub(super) fn request(&mut self, now: Instant) -> Request {
        self.asked_at = Some(now);
        if self.begins_list() {
            self.begin_list();
        }
        match &self.phase {
            Phase::Unlisted | Phase::Absent | Phase::Streaming => Request::Stream,
            Phase::Paging { token, .. } => Request::Page {
                limit: self.page_objects,
                token: token.clone(),
            },
            Phase::Probing => Request::Probe,
            Phase::Checking => match &self.latest {
                Some(latest) => Request::Check {
                    id: latest.id.clone(),
                    version: self.version,
                },
                None => Request::Probe,
            },
            Phase::Watching(_) => {
                self.phase = Phase::Watching(self.version);
                Request::Watch(self.version)
            }
        }
    }

    /// An object in a list, or one that was added or modified. It is decoded only if it is new
    /// or has new content; one that cannot be decoded keeps the effect of its last good content, or
    /// is told to be absent where it has none, and one that says nothing to anybody counts as
    /// absent. Returns whether one that is known was written, and nothing of it that is decoded:
    /// its status may be another.
    pub(super) fn put(
        &mut self,
        head: ObjectHead,
        decode: impl FnOnce() -> Result<Object, String>,
    ) -> bool {
        self.progress();
        if self
            .buried
            .get(&head.id)
            .is_some_and(|version| *version >= head.version)
        {
            return false;
        }
        let is_listing = self.is_listing();
        let (pass, mut is_written) = (self.pass, false);
        if let Some(known) = self.known.get_mut(&head.id) {
            // Also true of an object that is held: the list before this event did not show it.
            let is_first_sight = known.pass != pass;
            if !is_first_sight && head.version <= known.version {
                return false;
            }
            known.pass = pass;
            is_written = std::mem::replace(&mut known.version, head.version) != head.version;
        }
        self.version = advance(is_listing, self.version, head.version);
        self.note(&head, false);
        let known = self.known.get_mut(&head.id);
        let former = known.map(|known| std::mem::replace(&mut known.hash, head.hash));
        if former == Some(head.hash) {
            return is_written;
        }
        let known = Known {
            version: head.version,
            hash: head.hash,
            pass,
        };
        match decode() {
            Ok(object) => {
                self.findings.forget(&head.id);
                let key = object.key().clone();
                self.known.entry(key.id().clone()).or_insert(known);
                if !object.is_blank() {
                    self.changes.push(Change::Put(object));
                } else if former.is_some() {
                    self.changes.push(Change::Remove(key));
                }
            }
            Err(problem) => {
                self.findings.set(self.scope.kind, &head.id, problem);
                // Nobody had it, and nobody is to take it for new once it can be read.
                if former.is_none() {
                    let key = ObjectKey::from_id(self.scope.kind, head.id.clone());
                    self.changes.push(Change::Remove(key));
                }
                self.known.entry(head.id).or_insert(known);
            }
        }
        false
    }

    /// Notes who wrote the object that was put last, if that is this one and was no part of a list.
    pub(super) fn attribute(&mut self, id: &str, writer: impl FnOnce() -> Option<Arc<str>>) {
        if self.is_listing() {
            return;
        }
        if let Some(Change::Put(object)) = self.changes.last()
            && **object.key().id() == *id
            && let Some(writer) = writer()
        {
            self.writers.push((object.key().clone(), writer));
        }
    }

    /// An object as it is now, which is to be put as if it had changed. One that was deleted, or
    /// changed since, has been put already.
    pub(super) fn put_again(
        &mut self,
        head: &ObjectHead,
        decode: impl FnOnce() -> Result<Object, String>,
    ) {
        let Some(known) = self.known.get_mut(&head.id) else {
            return;
        };
        if known.version > head.version {
            return;
        }
        (known.version, known.hash) = (head.version, head.hash);
        match decode() {
            Ok(object) => self.changes.push(Change::Put(object)),
            Err(problem) => self.findings.set(self.scope.kind, &head.id, problem),
        }
    }

    /// An object whose head cannot be read.
    pub(super) fn note_unreadable(&mut self, problem: String) {
        self.findings.set_unnamed(problem);
    }

    /// An object that was deleted.
    pub(super) fn delete(&mut self, head: &ObjectHead) {
        self.progress();
        let is_listing = self.is_listing();
        if let Some(known) = self.known.get(&head.id) {
            let is_first_sight = known.pass != self.pass;
            if !is_first_sight && head.version < known.version {
                return;
            }
        }
        self.version = advance(is_listing, self.version, head.version);
        self.note(head, true);
        self.bury(head);
        if self.known.remove(&head.id).is_some() {
            self.remove(head.id.clone());
        }
    }

    /// A bookmark of a watch.
    pub(super) fn bookmark(&mut self, bookmark: Bookmark, now: Instant) {
        self.progress();
        match self.phase {
            Phase::Streaming if bookmark.ends_list => self.complete(bookmark.version, now),
            // The server is behind what it had told before: an older state was put back.
            Phase::Watching(from) if bookmark.version < from => self.phase = Phase::Unlisted,
            Phase::Watching(_) if bookmark.version > self.version => {
                self.version = bookmark.version;
                self.has_moved = true;
            }
            Phase::Watching(_) => {}
            Phase::Unlisted
            | Phase::Absent
            | Phase::Streaming
            | Phase::Paging { .. }
            | Phase::Probing
            | Phase::Checking => {}
        }
    }

    /// The end of a page, after its objects.
    pub(super) fn end_page(&mut self, version: u64, token: Option<Arc<str>>, now: Instant) {
        let Phase::Paging { version: first, .. } = self.phase else {
            return;
        };
        // All pages show the state of the first one.
        let version = if first == 0 {
            version
        } else {
            first.min(version)
        };
        match token {
            Some(token) => {
                let token = Some(token);
                self.phase = Phase::Paging { token, version };
            }
            None => self.complete(version, now),
        }
    }

    /// The answer to a probe. Returns whether an older state was put back.
    pub(super) fn end_probe(&mut self, version: u64) -> bool {
        if self.phase != Phase::Probing {
            return false;
        }
        self.phase = match &self.latest {
            _ if version < self.version => Phase::Unlisted,
            Some(_) => Phase::Checking,
            None => Phase::Watching(self.version),
        };
        self.phase == Phase::Unlisted
    }

    /// The answer to a check: the object, if it was there. What has happened does not change, so
    /// any other answer comes from a history that went another way: an older state was put back,
    /// and has climbed past ours since. Returns whether that is so.
    pub(super) fn end_check(&mut self, shown: Option<&ObjectHead>) -> bool {
        let (Phase::Checking, Some(latest)) = (&self.phase, &self.latest) else {
            return false;
        };
        let expected = (!latest.is_deletion).then_some((latest.version, latest.hash));
        let is_other = shown.map(|head| (head.version, head.hash)) != expected;
        self.unchecked = 0;
        self.phase = match is_other {
            true => Phase::Unlisted,
            false => Phase::Watching(self.version),
        };
        is_other
    }

    /// Another watch found that an older state was put back. What is known is to be replaced by
    /// a list; until that is complete it stays. Returns whether a list has to begin: one that is
    /// under way is of the new state already.
    pub(super) fn distrust(&mut self) -> bool {
        if !self.is_listing() {
            self.phase = Phase::Unlisted;
        }
        self.phase == Phase::Unlisted
    }

    /// Whether the watch is over because a list has to follow.
    pub(super) fn is_watch_over(&self) -> bool {
        !matches!(self.phase, Phase::Streaming | Phase::Watching(_))
    }

    /// The server ended a watch in order. Returns how long to wait.
    pub(super) fn end_watch(&mut self, now: Instant) -> Duration {
        if self.phase == Phase::Streaming {
            return self.fail(Failure::Lost("the list broke off".to_owned()));
        }
        let lasted = self.asked_at.map(|at| now.saturating_duration_since(at));
        if lasted.is_some_and(|lasted| lasted >= HEALTHY_AFTER) {
            self.backoff.reset();
            return Duration::ZERO;
        }
        self.backoff.fail()
    }

    /// When [`Core::tick`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.hold.deadline().filter(|_| self.is_list_whole())
    }

    /// Lets the time pass: removals that were held back for long enough take effect.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|until| until <= now) {
            let way = self.hold.tick(now);
            self.remove_absent(way);
        }
    }

    /// The removals that are held back until they are confirmed.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// The removals that are held back were confirmed.
    pub(super) fn confirm(&mut self) {
        let way = self.hold.confirm(self.is_list_whole());
        self.remove_absent(way);
    }

    /// Hands on what has changed since the last call, if anything has.
    pub(super) fn take(&mut self) -> Option<Output> {
        let report = self.findings.take();
        let has_news = self.is_listed != self.was_listed || self.has_moved;
        if self.changes.is_empty() && report.is_none() && !has_news {
            return None;
        }
        (self.was_listed, self.has_moved) = (self.is_listed, false);
        Some(Output {
            changes: std::mem::take(&mut self.changes),
            report,
            version: self.version,
            is_listed: self.is_listed,
            infers: std::mem::take(&mut self.infers),
            writers: std::mem::take(&mut self.writers),
        })
    }

    fn begin_list(&mut self) {
        (self.latest, self.unchecked) = (None, 0);
        self.pass = self.pass.wrapping_add(1);
        self.buried.clear();
        self.burials.clear();
        self.findings.forget_unnamed();
        self.phase = if self.can_stream {
            Phase::Streaming
        } else {
            Phase::Paging {
                token: None,
                version: 0,
            }
        };
    }

    /// The list is complete: from here on absence counts.
    fn complete(&mut self, version: u64, now: Instant) {
        self.version = version;
        self.phase = Phase::Watching(version);
        self.findings.clear_trouble();
        let pass = self.pass;
        let known = self.known.values();
        let loss = Loss {
            what: "objects",
            lost: known.filter(|known| known.pass != pass).count(),
            of: self.known.len(),
        };
        // Before a first list nobody was told of anything.
        let way = match std::mem::replace(&mut self.is_listed, true) {
            true => self.hold.judge(loss, now),
            false => Way::Meant,
        };
        self.remove_absent(way);
    }

    /// Removes what the last list did not show and no event since, unless it is kept.
    fn remove_absent(&mut self, way: Way) {
        self.findings.set_held(self.hold.held());
        if way == Way::Kept {
            return;
        }
        let pass = self.pass;
        let absent = self.known.extract_if(|_, known| known.pass != pass);
        let mut ids: Vec<Arc<str>> = absent.map(|(id, _)| id).collect();
        self.infers |= way == Way::Inferred && !ids.is_empty();
        ids.sort_unstable();
        for id in ids {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: Arc<str>) {
        self.findings.forget(&id);
        let key = ObjectKey::from_id(self.scope.kind, id);
        self.changes.push(Change::Remove(key));
    }

    fn note(&mut self, head: &ObjectHead, is_deletion: bool) {
        let latest = self.latest.as_ref();
        if latest.is_none_or(|latest| latest.version < head.version) {
            self.latest = Some(Latest {
                id: head.id.clone(),
                version: head.version,
                hash: head.hash,
                is_deletion,
            });
        }
    }

    fn bury(&mut self, head: &ObjectHead) {
        let former = self.buried.insert(head.id.clone(), head.version);
        if let Some(former) = former {
            let latest = former.max(head.version);
            self.buried.insert(head.id.clone(), latest);
            return;
        }
        self.burials.push_back(head.id.clone());
        if self.burials.len() > BURIED_MAX
            && let Some(oldest) = self.burials.pop_front()
        {
            self.buried.remove(&oldest);
        }
    }

    /// Whether a list is under way.
    pub(super) fn is_listing(&self) -> bool {
        matches!(self.phase, Phase::Streaming | Phase::Paging { .. })
    }

    /// Whether the last list that was begun is complete. While one is under way, or has broken
    /// off, most objects have not been shown, and that means nothing.
    fn is_list_whole(&self) -> bool {
        matches!(
            self.phase,
            Phase::Absent | Phase::Watching(_) | Phase::Probing | Phase::Checking
        )
    }

    /// Something came over a watch, so the server is there.
    fn progress(&mut self) {
        if matches!(self.phase, Phase::Watching(_)) {
            self.backoff.reset();
            self.findings.clear_trouble();
        }
    }
}

/// The version up to which everything is contained: an object of a list says nothing about it.
fn advance(is_listing: bool, version: u64, seen: u64) -> u64 {
    if is_listing {
        version
    } else {
        version.max(seen)
    }
}
