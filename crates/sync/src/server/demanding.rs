//! The hosts that one proxy tells: few at a time without an answer, and handed on no faster than
//! there is use for, however many it tells.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::is_demandable;

use crate::demand::{self, DEMAND_BURST, DEMAND_INTERVAL, DEMANDS_OPEN_MAX, DemandedHost};
use crate::metrics::ServerCounters;
use crate::wire::{self, FromServer, SessionError, from_server};

/// The hosts of one stream.
#[derive(Default)]
pub(super) struct Demanding {
    /// Whether the proxy tells hosts, if it may.
    is_wanted: bool,
    /// Whether somebody obtains certificates; none where it is not for this proxy to know.
    is_open: Option<bool>,
    /// The answer to that which the proxy was told last.
    told: Option<bool>,
    /// The hosts that are yet to be handed on.
    waiting: VecDeque<DemandedHost>,
    /// How many hosts have no answer.
    open: usize,
    answers: VecDeque<wire::DemandAnswer>,
    /// The time up to which what may be handed on is used up.
    used_until: Option<Instant>,
    /// Whether the first of those that wait was counted as one that comes too soon.
    is_counted: bool,
}

impl Demanding {
    /// The proxy tells hosts, or does not.
    pub(super) fn greeted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// Somebody obtains certificates, or nobody does.
    pub(super) fn set_open(&mut self, is_open: bool) {
        self.is_open = Some(is_open);
    }

    pub(super) fn receive(&mut self, told: wire::Demand) -> Result<(), SessionError> {
        if self.told.is_none() {
            return Err(SessionError::Unexpected("host in demand"));
        }
        if self.open >= DEMANDS_OPEN_MAX {
            return Err(SessionError::TooMany("hosts in demand"));
        }
        if !is_demandable(&told.host) {
            return Err(SessionError::Invalid("host in demand"));
        }
        self.open += 1;
        self.waiting.push_back(DemandedHost {
            host: told.host.into(),
            is_used: told.used,
        });
        Ok(())
    }

    /// The next host that may be handed on now.
    pub(super) fn take(&mut self, now: Instant, counters: &ServerCounters) -> Option<DemandedHost> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.due().is_some_and(|due| due > now) {
            let is_counted = std::mem::replace(&mut self.is_counted, true);
            counters.demands_delayed.inc_by(u64::from(!is_counted));
            return None;
        }
        self.is_counted = false;
        let used = self.used_until.map_or(now, |until| until.max(now));
        self.used_until = Some(used + DEMAND_INTERVAL);
        counters.demands.inc();
        self.waiting.pop_front()
    }

    /// When the next may be handed on; none where any may.
    fn due(&self) -> Option<Instant> {
        let burst = DEMAND_INTERVAL * (DEMAND_BURST - 1);
        self.used_until?.checked_sub(burst)
    }

    /// When to look again for one that may be handed on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.waiting.is_empty() {
            true => None,
            false => self.due(),
        }
    }

    /// Answers one host that was handed on.
    pub(super) fn answer(&mut self, host: &Arc<str>, refused_for: Duration) {
        if self.open == self.answers.len() + self.waiting.len() {
            return;
        }
        self.answers.push_back(wire::DemandAnswer {
            host: host.to_string(),
            refused_for: demand::millis(refused_for),
        });
    }

    /// The next message to the proxy.
    pub(super) fn poll(&mut self) -> Option<FromServer> {
        if let Some(is_open) = self.is_open
            && self.is_wanted
            && self.told.unwrap_or(false) != is_open
        {
            self.told = Some(is_open);
            let state = wire::DemandState { open: is_open };
            return Some(wire::from_server(from_server::Body::DemandState(state)));
        }
        let answer = self.answers.pop_front()?;
        self.open -= 1;
        Some(wire::from_server(from_server::Body::DemandAnswer(answer)))
    }
}
