//! Streams whose plans are made late, since the namespace that serves their host has had its turn.
//! The head of such a stream is kept, and counts as held for that namespace; the other streams of
//! the connection go on.

use std::future::poll_fn;
use std::task::Poll;

use super::streams::Handle;
use super::{Active, Begun, PlannedStream, plan_or_refuse, serve_stream};
use crate::admission::planning::{Asker, PlanWait};
use crate::admission::spaces::spots;
use crate::codec::hpack::Section;
use crate::failure::FailureKind;

/// A stream that waits for its plan.
pub(super) struct LateStream {
    active: Active,
    handle: Handle,
    section: Section,
    is_end: bool,
    namespace: u64,
    asker: Asker,
}

impl LateStream {
    /// A stream with a head that may be all of its request, for a namespace.
    pub(super) fn new(
        (active, mut handle): (Active, Handle),
        (section, is_end): (Section, bool),
        namespace: u64,
        asker: Asker,
    ) -> Self {
        handle.belong(spots(namespace));
        handle.hold(section.memory(), 0);
        LateStream {
            active,
            handle,
            section,
            is_end,
            namespace,
            asker,
        }
    }

    /// Serves it once it is its turn.
    pub(super) async fn serve(self: Box<Self>) {
        let begun = self.begin().await;
        Box::pin(serve_stream(begun)).await;
    }

    async fn begin(mut self: Box<Self>) -> Begun {
        let shared = self.active.shared.clone();
        let turns = &shared.worker.local.fairness.plans;
        let mut wait = PlanWait::default();
        let (namespace, asker) = (self.namespace, self.asker);
        let is_there = poll_fn(|context| {
            if self.handle.poll_gone(context).is_ready() {
                return Poll::Ready(false);
            }
            let polled = turns.poll_namespace(namespace, asker, &mut wait, context);
            polled.map(|()| true)
        });
        let stream = match is_there.await {
            // Nothing is done for a client that has gone meanwhile.
            false => PlannedStream::failed(&shared, FailureKind::ClientGone),
            true => {
                let stream = plan_or_refuse(&shared, &self.section, self.is_end, None);
                // Once it was called it waits for nobody.
                stream.unwrap_or_else(|_| PlannedStream::failed(&shared, FailureKind::Overloaded))
            }
        };
        let LateStream { active, handle, .. } = *self;
        Begun::new(active, handle, stream)
    }
}
