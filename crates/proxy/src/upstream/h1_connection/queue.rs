//! Requests that wait for a connection of an upstream that bears only so many, and who has one.

use std::future::poll_fn;
use std::sync::Arc;

use super::{H1Connection, H1Pool, Waiting};
use crate::balance::line::LinePlace;
use crate::balance::usage::{HeldUsage, Usage, UsageKind};
use crate::upstream::dial::Dial;
use crate::upstream::local_usage::LocalUsageKind;

/// A connection for a request, or the place for a new one.
pub(super) enum FoundConnection {
    Waiting(H1Connection),
    Place(Option<HeldUsage>),
}

impl H1Pool {
    /// A connection that waits, or else a place for a new one, if need be that of one that waits.
    pub(super) fn find(&self, dial: &Dial<'_>, may_reuse: bool) -> Option<FoundConnection> {
        if may_reuse && let Some(connection) = self.take(dial) {
            return Some(FoundConnection::Waiting(connection));
        }
        if let Some(held) = self.admit(dial) {
            return Some(FoundConnection::Place(held));
        }
        let usage = &dial.upstream.usage;
        while let Some(held) = self.evict(usage) {
            // The bound may be less than it was.
            if usage.count(UsageKind::Connections) <= usage.connections_max() {
                return Some(FoundConnection::Place(Some(held)));
            }
        }
        None
    }

    /// Waits in line until there is a connection, or a place for one.
    pub(super) async fn wait_in_line(&self, dial: &Dial<'_>, may_reuse: bool) -> FoundConnection {
        let usage = &dial.upstream.usage;
        let _queued = self.usages.take(usage, LocalUsageKind::Queued);
        let mut place = LinePlace::new(&usage.line, self.worker);
        let found = loop {
            place.look();
            if let Some(found) = self.find(dial, may_reuse) {
                break found;
            }
            poll_fn(|context| place.poll_told(context)).await;
        };
        drop(place);
        // It may have been told of another one than it has found.
        match &found {
            FoundConnection::Waiting(_)
                if usage.count(UsageKind::Connections) < usage.connections_max() =>
            {
                usage.line.tell(None);
            }
            FoundConnection::Place(_) if self.usages.count(usage, LocalUsageKind::Idle) > 0 => {
                usage.line.tell(Some(self.worker));
            }
            FoundConnection::Waiting(_) | FoundConnection::Place(_) => {}
        }
        found
    }

    /// The upstream of which a request of this worker waits for what a connection leaves: first
    /// the one in which it is counted, since all endpoints of that may have its place.
    pub(super) fn waited_for(
        &self,
        connection: &H1Connection,
        dial: &Dial<'_>,
    ) -> Option<Arc<Usage>> {
        let held = connection.held.as_ref().map(HeldUsage::usage);
        let mut both = held.into_iter().chain([&dial.upstream.usage]);
        let waits = |usage: &&Arc<Usage>| self.usages.count(usage, LocalUsageKind::Queued) > 0;
        both.find(waits).cloned()
    }

    /// Whether a request that waits at another worker needs the place of a connection.
    pub(super) fn is_wanted_elsewhere(&self, connection: &H1Connection) -> bool {
        let usage = connection.held.as_ref().map(HeldUsage::usage);
        usage.is_some_and(|usage| {
            let is_wanted = usage.count(UsageKind::Pending) > 0;
            is_wanted && self.usages.count(usage, LocalUsageKind::Queued) == 0
        })
    }

    /// Drops a connection that waits in a place that another one needs: for another endpoint of
    /// the upstream, say. The place, where there is one.
    fn evict(&self, usage: &Arc<Usage>) -> Option<HeldUsage> {
        if self.usages.count(usage, LocalUsageKind::Idle) == 0 {
            return None;
        }
        let is_its_own = |waiting: &Waiting| {
            let held = waiting.connection.held.as_ref();
            held.is_some_and(|held| Arc::ptr_eq(held.usage(), usage))
        };
        let mut shelves = self.shelves.shelves.borrow_mut();
        for shelf in shelves.values_mut() {
            if let Some(index) = shelf.waiting.iter().position(is_its_own) {
                let mut waiting = shelf.waiting.remove(index)?;
                self.forget(1);
                return waiting.connection.take_held();
            }
        }
        None
    }
}
