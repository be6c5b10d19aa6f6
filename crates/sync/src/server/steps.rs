//! Steps from one snapshot to the next, worked out once for all streams that take them.
//!
//! Most streams of a view are at the same snapshot, so that a change means the same to all of
//! them: the first one compares and encodes, and the others send the same bytes.
//!
//! A difference that is too long for one commit is a course of several steps. The first stream that
//! gets to the end of it makes the next one, and those behind it take what is there: proxies that
//! come back together with nothing cost one walk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;
use myriad_model::{Change, Digest, Position, Snapshot};
use prost::Message as _;

use super::frames::Draft;
use super::plan::Plan;
use crate::metrics::ServerCounters;
use crate::wire::{self, from_server};

/// The most steps of one view that are kept: streams that are slow take steps of their own.
const STEPS_MAX: usize = 16;
/// The most bytes that all but the newest of them may have.
const STEPS_BYTES_MAX: usize = 4 << 20;
/// The most bytes that the steps of all views may have, but for the newest.
pub(crate) const SHELF_BYTES_MAX: usize = 64 << 20;
/// The most bytes that the steps of one view, and those of all, may have beside a new one of a
/// sidecar, be they kept or held by streams that have yet to send them: who takes nothing would
/// hold one of its own. Beyond, it goes a way of its own, on which frames are encoded one by one.
pub(crate) const VIEW_BYTES_MAX: usize = 96 << 20;
const LIVE_BYTES_MAX: usize = 256 << 20;
/// How much more there may be before a namespace has but one stream on a way of its own.
const WAYS_BYTES_MAX: usize = 64 << 20;
/// The most that a change takes on a way of its own while it waits to be acknowledged: itself, and
/// its part of a tree that is shared with nobody.
const OWN_CHANGE_BYTES: usize = 200;
/// The most courses of one view that go on at once, and the most of their steps that are kept.
const COURSES_MAX: usize = 4;
const COURSE_STEPS_MAX: usize = 64;
/// How long a step is kept. Streams that follow take it within a moment; the first of a view, which
/// is all that it has, is for proxies that start together.
pub(crate) const STEP_AGE_MAX: Duration = Duration::from_secs(30);

/// The last steps of one view. Streams of one view share them; whose views differ must not, since
/// that would only push out what others need.
#[derive(Default)]
pub struct Steps {
    taken: Mutex<Taken>,
    shelf: Arc<Shelf>,
    live: LiveBytes,
}

/// How many bytes there are in the frames of steps, whoever has them, and in what streams have yet
/// to send on ways of their own.
#[derive(Clone, Default)]
struct LiveBytes {
    of_view: Arc<AtomicUsize>,
    of_all: Arc<AtomicUsize>,
}

/// Bytes that count for as long as anybody has them.
struct CountedBytes {
    bytes: Vec<u8>,
    _count: LiveCount,
}

/// A number of bytes that count for as long as it lives.
pub(super) struct LiveCount {
    bytes: usize,
    live: LiveBytes,
}

/// The steps that streams of one view took.
#[derive(Default)]
struct Taken {
    known: VecDeque<Known>,
    courses: VecDeque<Course>,
}

/// A long difference, as far as any stream has got.
struct Course {
    at: Snapshot,
    plan: Plan,
    /// When the last step was made.
    since: Instant,
}

/// The steps that are kept, of all views: bounded by their bytes and by their age together.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: Mutex<Kept>,
    /// See [`LiveBytes::of_all`].
    live: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Kept {
    /// The steps, the oldest first, by when they were made.
    steps: BTreeMap<u64, (Instant, Arc<Step>)>,
    bytes: usize,
    /// The number of the next.
    next: u64,
}

/// A step of a view, for as long as it is kept.
struct Known {
    number: u64,
    step: Weak<Step>,
}

/// One commit that leads from one snapshot to another, or towards it.
pub(super) struct Step {
    from: Digest,
    to: Digest,
    position: Position,
    /// Of a step of a course: the snapshot after it, and the one that the course leads to.
    pub(super) course: Option<(Snapshot, Snapshot)>,
    /// Encoded messages, of which the last is the commit.
    pub(super) frames: Vec<Bytes>,
    pub(super) resources: u64,
    pub(super) removals: u64,
}

/// How a stream comes from one snapshot to another.
pub(super) enum Way {
    /// One commit, which is shared with other streams, and after which there may be others.
    Shared(Arc<Step>),
    /// Several commits, of this stream alone.
    Own(Box<Plan>),
}

impl Steps {
    /// The steps of one view, none yet, that are kept beside those of others.
    pub(crate) fn on(shelf: Arc<Shelf>) -> Self {
        Steps {
            taken: Mutex::default(),
            live: LiveBytes {
                of_view: Arc::default(),
                of_all: shelf.live.clone(),
            },
            shelf,
        }
    }

    /// The way from one snapshot to another, whose oldest change was noticed then, for a gateway or
    /// for a sidecar; who finds a step that is there already takes what that one says.
    pub(super) fn find(
        &self,
        (from, to): (&Snapshot, &Snapshot),
        is_gateway: bool,
        noticed_micros: u64,
        now: Instant,
        counters: &ServerCounters,
    ) -> Way {
        // Others wait for the one who works it out, instead of doing the same.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.shelf.sweep(now);
        let mut kept = taken.known.iter().filter_map(|it| it.step.upgrade());
        if let Some(step) = kept.find(|it| it.leads(from, to)) {
            counters.steps_shared.inc();
            return Way::Shared(step);
        }
        let is_full = !is_gateway && self.live.is_full();
        let is_over = |course: &Course| now.saturating_duration_since(course.since) > STEP_AGE_MAX;
        taken.courses.retain(|course| !is_over(course));
        let mut courses = taken.courses.iter();
        let known = courses.position(|course| course.is_taken_by(from, to));
        let known = known.filter(|_| !is_full);
        let mut course = match known.and_then(|at| taken.courses.remove(at)) {
            Some(course) => course,
            None => {
                let plan = Plan::new(from.clone(), to.clone());
                counters.nodes_visited.inc_by(plan.nodes_visited());
                let is_crowded = !plan.is_short() && taken.courses.len() >= COURSES_MAX;
                // Whoever holds no more than a frame holds what any stream does.
                if is_crowded || (is_full && !plan.is_small()) {
                    return Way::Own(Box::new(plan));
                }
                let (at, since) = (from.clone(), now);
                Course { at, plan, since }
            }
        };
        let (step, is_last) = course.step(now, &self.live, (noticed_micros, counters));
        let step = Arc::new(step);
        counters.steps_made.inc();
        if !is_last {
            taken.courses.push_back(course);
        }
        let crowded_out = self.keep(&mut taken.known, &step, now);
        counters.steps_crowded_out.inc_by(crowded_out);
        Way::Shared(step)
    }

    /// Counts what a commit of so many changes holds on a way of its own.
    pub(super) fn hold_own(&self, changes: usize) -> LiveCount {
        self.live.hold(changes * OWN_CHANGE_BYTES)
    }

    /// Whether there is so much that ways of their own have to be few.
    pub(super) fn is_crowded(&self) -> bool {
        self.live.of_all.load(Relaxed) > LIVE_BYTES_MAX + WAYS_BYTES_MAX
    }

    /// How many bytes count for this view.
    #[cfg(test)]
    pub(crate) fn live_bytes(&self) -> usize {
        self.live.of_view.load(Relaxed)
    }

    /// Keeps a step, and lets those go that are too many then. Returns how many of any view were
    /// let go before their time.
    fn keep(&self, known: &mut VecDeque<Known>, step: &Arc<Step>, now: Instant) -> u64 {
        let (number, crowded_out) = self.shelf.put(step.clone(), now);
        let step = Arc::downgrade(step);
        known.push_front(Known { number, step });
        let (mut bytes, mut short, mut of_courses) = (0, 0, 0);
        let mut is_newest = true;
        known.retain(|it| {
            let Some(step) = it.step.upgrade() else {
                return false;
            };
            let stays = if step.course.is_some() {
                of_courses += 1;
                of_courses <= COURSE_STEPS_MAX
            } else {
                short += 1;
                bytes += if is_newest { 0 } else { step.bytes() };
                short <= STEPS_MAX && bytes <= STEPS_BYTES_MAX
            };
            is_newest = false;
            if !stays {
                self.shelf.remove(it.number);
            }
            stays
        });
        crowded_out
    }

    /// How many steps are kept, and of how many bytes.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = taken
            .known
            .iter()
            .filter_map(|it| Some(it.step.upgrade()?.bytes()));
        (bytes.clone().count(), bytes.sum())
    }
}

impl LiveBytes {
    /// Counts bytes until the last who has them lets them go.
    fn count(&self, bytes: Vec<u8>) -> Bytes {
        let count = self.hold(bytes.len());
        Bytes::from_owner(CountedBytes {
            bytes,
            _count: count,
        })
    }

    /// Counts so many bytes.
    fn hold(&self, bytes: usize) -> LiveCount {
        for live in [&self.of_view, &self.of_all] {
            live.fetch_add(bytes, Relaxed);
        }
        let live = self.clone();
        LiveCount { bytes, live }
    }

    fn is_full(&self) -> bool {
        let is_over = |live: &AtomicUsize, max| live.load(Relaxed) > max;
        is_over(&self.of_view, VIEW_BYTES_MAX) || is_over(&self.of_all, LIVE_BYTES_MAX)
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for LiveCount {
    fn drop(&mut self) {
        for live in [&self.live.of_view, &self.live.of_all] {
            live.fetch_sub(self.bytes, Relaxed);
        }
    }
}

impl Shelf {
    /// Lets the steps go whose time is over.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut kept = self.lock();
        while let Some(oldest) = kept.steps.first_entry() {
            if now.saturating_duration_since(oldest.get().0) < STEP_AGE_MAX {
                break;
            }
            let number = *oldest.key();
            kept.remove(number);
        }
    }

    /// Keeps a step, under the number that is returned. With it how many were let go for it.
    fn put(&self, step: Arc<Step>, now: Instant) -> (u64, u64) {
        let mut kept = self.lock();
        let number = kept.next;
        kept.next += 1;
        let mut crowded_out = 0;
        // Its own bytes do not count, so that what is larger than all is shared as well.
        while kept.bytes > SHELF_BYTES_MAX
            && let Some(oldest) = kept.steps.first_key_value().map(|(number, _)| *number)
        {
            kept.remove(oldest);
            crowded_out += 1;
        }
        kept.bytes += step.bytes();
        kept.steps.insert(number, (now, step));
        (number, crowded_out)
    }

    fn remove(&self, number: u64) {
        self.lock().remove(number);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many steps are kept, and of how many bytes.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        let kept = self.lock();
        let bytes = kept.steps.values().map(|(_, step)| step.bytes()).sum();
        assert_eq!(kept.bytes, bytes);
        (kept.steps.len(), bytes)
    }
}

impl Kept {
    fn remove(&mut self, number: u64) {
        if let Some((_, step)) = self.steps.remove(&number) {
            self.bytes -= step.bytes();
        }
    }
}

impl Course {
    /// Whether a stream that has a snapshot can go on here to come to another. One that has nothing
    /// may come to an older one first.
    fn is_taken_by(&self, from: &Snapshot, to: &Snapshot) -> bool {
        self.at.digest() == from.digest() && leads_to(self.plan.target(), (from, to))
    }

    /// The next step, and whether it is the last.
    fn step(
        &mut self,
        now: Instant,
        live: &LiveBytes,
        (noticed_micros, counters): (u64, &ServerCounters),
    ) -> (Step, bool) {
        self.since = now;
        let visited = self.plan.nodes_visited();
        let (changes, is_last) = self.plan.take();
        counters
            .nodes_visited
            .inc_by(self.plan.nodes_visited() - visited);
        let (from, is_short) = (self.at.digest(), self.plan.is_short());
        let goal = self.plan.target();
        if is_last {
            self.at = goal.clone();
        } else {
            self.at.set_position(goal.position().clone());
            changes.iter().for_each(|change| self.at.apply(change));
        }
        let course = (!is_short).then(|| (self.at.clone(), goal.clone()));
        (
            Step::new(
                (from, &self.at),
                changes,
                course,
                live,
                (noticed_micros, counters),
            ),
            is_last,
        )
    }
}

/// Whether a way to a snapshot is one for who has something and shall come to another. Whoever has
/// nothing may come to an older one first: it is told of what is newer right after.
fn leads_to(goal: &Snapshot, (from, to): (&Snapshot, &Snapshot)) -> bool {
    from.is_empty() || (goal.digest() == to.digest() && goal.position() == to.position())
}

impl Step {
    fn new(
        (from, to): (Digest, &Snapshot),
        changes: Vec<Change>,
        course: Option<(Snapshot, Snapshot)>,
        live: &LiveBytes,
        (noticed_micros, counters): (u64, &ServerCounters),
    ) -> Self {
        let count = changes.len();
        let added = changes.iter().filter(|it| it.new.is_some()).count();
        let mut draft = Draft::new(changes, Vec::new());
        let mut frames = Vec::new();
        while let Some(message) = draft.next_frame() {
            frames.push(live.count(message.encode_to_vec()));
        }
        counters.oversized.inc_by(draft.oversized());
        let commit = wire::from_server(from_server::Body::Commit(wire::Commit {
            position: wire::position_message(to.position()),
            root: wire::digest_bytes(to.digest()),
            confirmed: false,
            noticed_micros,
        }));
        frames.push(live.count(commit.encode_to_vec()));
        Step {
            from,
            to: to.digest(),
            position: to.position().clone(),
            course,
            frames,
            resources: added as u64,
            removals: (count - added) as u64,
        }
    }

    fn bytes(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }

    fn leads(&self, from: &Snapshot, to: &Snapshot) -> bool {
        self.from == from.digest()
            && match &self.course {
                Some((_, goal)) => leads_to(goal, (from, to)),
                None => self.to == to.digest() && self.position == *to.position(),
            }
    }
}
