//! Steps from one snapshot to the next, worked out once for all streams that take them.
//!
//! Most streams of a view are at the same snapshot, so that a change means the same to all of
//! them: the first one compares and encodes, and the others send the same bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use myriad_model::{Digest, Position, Snapshot};
use prost::Message as _;

use super::frames;
use super::plan::Plan;
use crate::metrics::ServerCounters;
use crate::wire::{self, from_server};

/// The most steps that are kept: streams that are slow take steps of their own.
const STEPS_MAX: usize = 16;
/// The most bytes that all but the newest of them may have.
const STEPS_BYTES_MAX: usize = 4 << 20;

/// The last steps of one view. Streams of one view share them; whose views differ must not, since
/// that would only push out what others need.
#[derive(Default)]
pub struct Steps {
    kept: Mutex<VecDeque<Arc<Step>>>,
}

/// One commit that leads from one snapshot to another.
pub(super) struct Step {
    from: Digest,
    to: Digest,
    position: Position,
    /// Encoded messages, of which the last is the commit.
    pub(super) frames: Vec<Bytes>,
    pub(super) resources: u64,
    pub(super) removals: u64,
}

/// How a stream comes from one snapshot to another.
pub(super) enum Way {
    /// One commit, which is shared with other streams.
    Short(Arc<Step>),
    /// Several commits, of this stream alone.
    Long(Box<Plan>),
}

impl Steps {
    /// The way from one snapshot to another.
    pub(super) fn find(&self, from: &Snapshot, to: &Snapshot, counters: &ServerCounters) -> Way {
        // Others wait for the one who works it out, instead of doing the same.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(step) = kept.iter().find(|it| it.leads(from, to)) {
            counters.steps_shared.inc();
            return Way::Short(step.clone());
        }
        let mut plan = Plan::new(from.clone(), to.clone());
        counters.nodes_visited.inc_by(plan.nodes_visited());
        if !plan.is_short() {
            return Way::Long(Box::new(plan));
        }
        let step = Arc::new(Step::new(from, &mut plan, counters));
        counters.steps_made.inc();
        kept.push_front(step.clone());
        let mut bytes = 0;
        let fitting = kept.iter().skip(1).take(STEPS_MAX - 1).take_while(|it| {
            bytes += it.frames.iter().map(Bytes::len).sum::<usize>();
            bytes <= STEPS_BYTES_MAX
        });
        let fitting = 1 + fitting.count();
        kept.truncate(fitting);
        Way::Short(step)
    }

    /// How many steps are kept, and of how many bytes.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, usize) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.iter().flat_map(|it| &it.frames).map(Bytes::len);
        (kept.len(), bytes.sum())
    }
}

impl Step {
    fn new(from: &Snapshot, plan: &mut Plan, counters: &ServerCounters) -> Self {
        let (changes, _) = plan.take();
        let mut messages = VecDeque::new();
        let oversized = frames::write(&changes, &[], &mut messages);
        counters.oversized.inc_by(oversized);
        let to = plan.target();
        messages.push_back(wire::from_server(from_server::Body::Commit(wire::Commit {
            position: wire::position_message(to.position()),
            root: wire::digest_bytes(to.digest()),
            confirmed: false,
        })));
        let added = changes.iter().filter(|it| it.new.is_some()).count();
        Step {
            from: from.digest(),
            to: to.digest(),
            position: to.position().clone(),
            frames: messages
                .iter()
                .map(|it| it.encode_to_vec().into())
                .collect(),
            resources: added as u64,
            removals: (changes.len() - added) as u64,
        }
    }

    fn leads(&self, from: &Snapshot, to: &Snapshot) -> bool {
        self.from == from.digest() && self.to == to.digest() && self.position == *to.position()
    }
}
