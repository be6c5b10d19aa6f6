//! The flows of one receiver: by client, and in the order in which they have to go for others.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use foldhash::quality::RandomState;

use super::flow::DatagramFlow;
use crate::admission::networks::Neighbours;
use crate::admission::silent::source_of;

/// How many flows are looked at, of which one has to go: those whose endpoints have answered lately
/// stay for once.
const LOOKS_MAX: usize = 4;

/// The flows of one receiver.
#[derive(Default)]
pub(super) struct Flows {
    by_client: HashMap<SocketAddr, Rc<DatagramFlow>, RandomState>,
    order: Neighbours<Rc<DatagramFlow>>,
    /// The number of the newest.
    newest: u64,
}

impl Flows {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    /// The flow of a client's port.
    pub(super) fn get(&self, client: SocketAddr) -> Option<Rc<DatagramFlow>> {
        self.by_client.get(&client).cloned()
    }

    /// Every one.
    pub(super) fn all(&self) -> Vec<Rc<DatagramFlow>> {
        self.by_client.values().cloned().collect()
    }

    /// Puts one in, whose client has none.
    pub(super) fn enter(&mut self, flow: Rc<DatagramFlow>) {
        self.line_up(flow.clone());
        self.by_client.insert(flow.client(), flow);
    }

    /// Takes one out, if it is in.
    pub(super) fn leave(&mut self, flow: &DatagramFlow) {
        if self.order.leave(flow.number.get()).is_some() {
            self.by_client.remove(&flow.client());
        }
    }

    /// Takes out the one that has to go for another: the oldest of the source that has most, unless
    /// its endpoint has answered lately; none without any.
    pub(super) fn evict(&mut self) -> Option<Rc<DatagramFlow>> {
        for _ in 1..LOOKS_MAX {
            let flow = self.order.evict()?;
            if !flow.take_answered() {
                self.by_client.remove(&flow.client());
                return Some(flow);
            }
            self.line_up(flow);
        }
        let flow = self.order.evict()?;
        self.by_client.remove(&flow.client());
        Some(flow)
    }

    /// Lets all end after no more than this much silence.
    pub(super) fn shorten(&self, idle_timeout: Duration) {
        for flow in self.by_client.values() {
            flow.shorten(idle_timeout);
        }
    }

    /// Puts one behind all others of its source.
    fn line_up(&mut self, flow: Rc<DatagramFlow>) {
        self.newest += 1;
        flow.number.set(self.newest);
        let source = source_of(flow.client().ip());
        self.order.enter(self.newest, source, flow);
    }
}

#[cfg(test)]
mod tests;
