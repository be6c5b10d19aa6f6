//! The way from what a proxy has to one newer snapshot, cut into commits.

use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};

use myriad_model::{
    COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Change, Changes, Key, Position, Snapshot,
};

use super::order::{STEPS, count_max, is_grouped, step};
use crate::wire::FRAME_BYTES_MAX;

/// About how many changes of a long difference are held at once, in order to put those of one
/// group together; some 3 MiB.
const PASS_CHANGES: usize = 1 << 16;

/// The most changes of which a stream may hold some of its own without a place for that.
pub(super) const SMALL_CHANGES_MAX: usize = 128;

/// A difference that fits into one commit is sorted. A larger one is read once per step of the
/// order, so that it needs no memory but the two trees, which share what they have in common, and
/// [`PASS_CHANGES`].
pub(super) struct Plan {
    base: Snapshot,
    target: Snapshot,
    rest: Rest,
    nodes_visited: u64,
}

enum Rest {
    Short(Vec<Change>),
    Long(Long),
}

struct Long {
    step: usize,
    /// The place that the reading of the whole difference has reached.
    changes: Changes,
    /// How often a step of groups has been read, each time for other groups.
    pass: usize,
    /// Changes that were read already: the rest of a pass, or too large for the commit before.
    read: VecDeque<Change>,
}

/// Counts what goes into a commit.
#[derive(Default)]
struct Load {
    count: usize,
    bytes: usize,
}

impl Load {
    /// Whether the change still fits. The first one always does.
    fn add(&mut self, change: &Change) -> bool {
        let bytes = change.new.as_ref().map_or(0, |new| new.bytes_encoded());
        let fits = self.count == 0
            || (self.count < COMMIT_RESOURCES_MAX && self.bytes + bytes <= COMMIT_BYTES_MAX);
        if fits {
            self.count += 1;
            self.bytes += bytes;
        }
        fits
    }
}

impl Plan {
    pub(super) fn new(base: Snapshot, target: Snapshot) -> Self {
        let mut changes = base.diff(&target);
        let mut found = Vec::new();
        let mut load = Load::default();
        let fits = changes.by_ref().all(|change| {
            let fits = load.add(&change);
            found.push(change);
            fits
        });
        let nodes_visited = changes.nodes_visited();
        let rest = if fits {
            found.sort_by_key(step);
            Rest::Short(found)
        } else {
            Rest::Long(Long {
                step: 0,
                changes: base.diff(&target),
                pass: 0,
                read: VecDeque::new(),
            })
        };
        Plan {
            base,
            target,
            rest,
            nodes_visited,
        }
    }

    /// Whether one commit takes it all.
    pub(super) fn is_short(&self) -> bool {
        matches!(self.rest, Rest::Short(_))
    }

    /// Whether it is a few changes, and one frame takes them all.
    pub(super) fn is_small(&self) -> bool {
        let Rest::Short(changes) = &self.rest else {
            return false;
        };
        if changes.len() > SMALL_CHANGES_MAX {
            return false;
        }
        let new = changes.iter().filter_map(|change| change.new.as_ref());
        new.map(|new| new.bytes_encoded()).sum::<usize>() <= FRAME_BYTES_MAX
    }

    /// The snapshot that the plan leads to.
    pub(super) fn target(&self) -> &Snapshot {
        &self.target
    }

    /// The position of the snapshot that the plan leads to.
    pub(super) fn position(&self) -> &Position {
        self.target.position()
    }

    pub(super) fn nodes_visited(&self) -> u64 {
        match &self.rest {
            Rest::Short(_) => self.nodes_visited,
            Rest::Long(long) => self.nodes_visited + long.changes.nodes_visited(),
        }
    }

    /// The changes of the next commit, and whether it is the last. The cut is between two groups,
    /// unless one alone is larger than a commit.
    pub(super) fn take(&mut self) -> (Vec<Change>, bool) {
        if let Rest::Short(changes) = &mut self.rest {
            return (std::mem::take(changes), true);
        }
        let mut taken = Vec::new();
        let mut load = Load::default();
        while let Some(change) = self.next_of_long() {
            if !load.add(&change) {
                let rest = split_group(&mut taken, &change);
                self.put_back(change);
                rest.into_iter().rev().for_each(|it| self.put_back(it));
                return (taken, false);
            }
            taken.push(change);
        }
        (taken, true)
    }

    /// The next change of a long difference; none once every step has been read.
    fn next_of_long(&mut self) -> Option<Change> {
        let Rest::Long(long) = &mut self.rest else {
            return None;
        };
        while long.step < STEPS {
            if let Some(change) = long.read.pop_front() {
                return Some(change);
            }
            let at = long.step;
            let count = count_max(at, &self.base, &self.target);
            let passes = match is_grouped(at) {
                true => count.div_ceil(PASS_CHANGES),
                false => count.min(1),
            };
            if long.pass < passes && is_grouped(at) {
                long.read_pass(passes);
                long.pass += 1;
            } else if long.pass < passes {
                let found = long.changes.find(|change| step(change) == at);
                if found.is_some() {
                    return found;
                }
                long.pass += 1;
            } else {
                (long.step, long.pass) = (at + 1, 0);
                continue;
            }
            self.nodes_visited += long.changes.nodes_visited();
            long.changes = self.base.diff(&self.target);
        }
        long.read.pop_front()
    }

    fn put_back(&mut self, change: Change) {
        if let Rest::Long(long) = &mut self.rest {
            long.read.push_front(change);
        }
    }
}

impl Long {
    /// Reads the changes of the groups that are due, and puts each group together.
    fn read_pass(&mut self, passes: usize) {
        let (at, pass) = (self.step, self.pass);
        let is_due = |change: &Change| step(change) == at && pass_of(&change.key, passes) == pass;
        let mut read: Vec<Change> = self.changes.by_ref().filter(is_due).collect();
        read.sort_by(|a, b| (a.key.group(), &a.key).cmp(&(b.key.group(), &b.key)));
        self.read = read.into();
    }
}

/// Takes from the end what is in one group with `next`; nothing if that would leave nothing.
fn split_group(taken: &mut Vec<Change>, next: &Change) -> Vec<Change> {
    let is_same = |it: &Change| step(it) == step(next) && it.key.group() == next.key.group();
    match taken.iter().rposition(|it| !is_same(it)) {
        Some(last) => taken.split_off(last + 1),
        None => Vec::new(),
    }
}

fn pass_of(key: &Key, passes: usize) -> usize {
    let mut hasher = std::hash::DefaultHasher::new();
    key.group().hash(&mut hasher);
    (hasher.finish() % passes.max(1) as u64) as usize
}
