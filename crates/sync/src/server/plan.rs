//! The order in which a difference is sent.

use myriad_model::{
    COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Change, Changes, Kind, Position, Snapshot,
};

/// What is referred to goes first, so that nothing refers to what is not there yet. Removals take
/// the opposite way, and come last.
const ORDER: [Kind; 6] = [
    Kind::Endpoints,
    Kind::Upstream,
    Kind::Certificate,
    Kind::Listener,
    Kind::Domain,
    Kind::Route,
];

/// The way from what a proxy has to one newer snapshot, cut into commits.
///
/// A difference that fits into one commit is sorted. A larger one is read once per step of the
/// order, so that it needs no memory but the two trees, which share what they have in common.
pub(super) struct Plan {
    base: Snapshot,
    target: Snapshot,
    rest: Rest,
    nodes_visited: u64,
}

enum Rest {
    Short(Vec<Change>),
    Long {
        step: usize,
        changes: Changes,
        /// Read already, but too large for the commit before.
        next: Option<Change>,
    },
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
            Rest::Long {
                step: 0,
                changes: base.diff(&target),
                next: None,
            }
        };
        Plan {
            base,
            target,
            rest,
            nodes_visited,
        }
    }

    /// The position of the snapshot that the plan leads to.
    pub(super) fn position(&self) -> &Position {
        self.target.position()
    }

    pub(super) fn nodes_visited(&self) -> u64 {
        match &self.rest {
            Rest::Short(_) => self.nodes_visited,
            Rest::Long { changes, .. } => self.nodes_visited + changes.nodes_visited(),
        }
    }

    /// The changes of the next commit, and whether it is the last.
    pub(super) fn take(&mut self) -> (Vec<Change>, bool) {
        if let Rest::Short(changes) = &mut self.rest {
            return (std::mem::take(changes), true);
        }
        let mut taken = Vec::new();
        let mut load = Load::default();
        while let Some(change) = self.next_of_long() {
            if !load.add(&change) {
                self.put_back(change);
                return (taken, false);
            }
            taken.push(change);
        }
        (taken, true)
    }

    /// The next change of a long difference; none once every step has been read.
    fn next_of_long(&mut self) -> Option<Change> {
        let Rest::Long {
            step: at,
            changes,
            next,
        } = &mut self.rest
        else {
            return None;
        };
        if next.is_some() {
            return next.take();
        }
        while *at < STEPS {
            let mut found = None;
            if has_step(*at, &self.base, &self.target) {
                found = changes.find(|change| step(change) == *at);
            }
            if found.is_some() {
                return found;
            }
            *at += 1;
            self.nodes_visited += changes.nodes_visited();
            *changes = self.base.diff(&self.target);
        }
        None
    }

    fn put_back(&mut self, change: Change) {
        if let Rest::Long { next, .. } = &mut self.rest {
            *next = Some(change);
        }
    }
}

const STEPS: usize = 2 * ORDER.len();

/// When a change is sent, from 0.
fn step(change: &Change) -> usize {
    let at = ORDER.iter().position(|kind| *kind == change.key.kind);
    let at = at.unwrap_or_default();
    match change.new {
        Some(_) => at,
        None => STEPS - 1 - at,
    }
}

/// Whether there may be a change of this step, so that an empty step costs no reading.
fn has_step(at: usize, base: &Snapshot, target: &Snapshot) -> bool {
    let count = |side: &Snapshot, at: usize| ORDER.get(at).map_or(0, |kind| side.count(*kind));
    count(target, at) > 0 || count(base, (STEPS - 1).saturating_sub(at)) > 0
}
