//! Acknowledgements of proxies, and how much of what they say is passed on.
//!
//! A gateway is the operator's. Whoever may run a Pod may have a sidecar say what it likes, so
//! that of its receipts a few count, and only such as name what it was sent in the very commit.

use myriad_model::{COMMIT_RESOURCES_MAX, Form, Sealer, Snapshot};

use super::{Receipt, Report, ServerSession};
use crate::wire::{self, SessionError};

/// The most receipts of one acknowledgement of a sidecar that are passed on; others are counted.
pub(crate) const SIDECAR_RECEIPTS_MAX: usize = 16;

/// Resyncs without a commit in step between them, after which the session ends.
const MISMATCHES_MAX: u32 = 3;

/// The most resyncs of one stream of a sidecar in all: each may compare all that there is.
pub(crate) const RESYNCS_MAX: u32 = 16;

/// The most comparisons of one stream that end before everything was looked at.
const CUTS_MAX: u32 = 16;

impl ServerSession {
    /// Takes an acknowledgement.
    pub(super) fn receive_ack(&mut self, ack: wire::Ack) -> Result<Report, SessionError> {
        let is_sent = self.outbox.is_empty();
        let awaited = self.awaited.take().filter(|_| is_sent);
        let awaited = awaited.ok_or(SessionError::Unexpected("acknowledgement"))?;
        self.waits_since = None;
        if ack.receipts.len() > wire::RECEIPTS_MAX {
            return Err(SessionError::TooMany("receipts"));
        }
        let position = wire::position(ack.position)?;
        let (receipts, receipts_omitted) = self.receive_receipts(ack.receipts)?;
        let omitted = receipts_omitted.saturating_add(ack.receipts_omitted);
        let mut root = wire::digest(&ack.root)?;
        self.hold.hear(ack.held);
        if root == awaited {
            self.mismatches = 0;
            self.is_cut = false;
            if self.plan.is_none() && self.goal.is_none() {
                self.lag.arrive();
            }
            if self.hold.is_ours() {
                // What waits here is no part of what was sent.
                root = self.sent.digest();
            }
        } else if !self.is_cut {
            self.counters.mismatches.inc();
            self.mismatches += 1;
            self.resyncs += 1;
            let are_too_many = !self.share.is_gateway() && self.resyncs > RESYNCS_MAX;
            if self.mismatches > MISMATCHES_MAX || are_too_many {
                return Err(SessionError::NeverInStep);
            }
            self.walk();
        } else if self.plan.is_none() && self.strangers.is_empty() {
            // What was found is sent and removed, and there is more.
            if self.cuts > CUTS_MAX {
                return Err(SessionError::NeverInStep);
            }
            self.walk();
        }
        drop(self.own.take());
        if self.plan.is_none() {
            self.share.end_way();
        }
        Ok(Report::Acked {
            position,
            root,
            is_in_step: self.is_in_step(),
            receipts,
            receipts_omitted: omitted.min(COMMIT_RESOURCES_MAX as u64),
        })
    }

    /// Notes what a sidecar had before the commit that is about to be sent.
    pub(super) fn note_before(&mut self) {
        self.before = (!self.share.is_gateway()).then(|| self.sent.clone());
    }

    /// The receipts that are passed on, and how many others there were that could have been.
    fn receive_receipts(
        &mut self,
        receipts: Vec<wire::Receipt>,
    ) -> Result<(Vec<Receipt>, u64), SessionError> {
        let before = self.before.take();
        let receipt = |it: wire::Receipt| {
            Ok(Receipt {
                key: wire::key(it.kind, &it.name)?,
                version: wire::version(&it.version)?,
                reason: wire::cut_text(&it.reason),
            })
        };
        let receipts = receipts.into_iter().map(receipt);
        let mut receipts = receipts.collect::<Result<Vec<_>, SessionError>>()?;
        if self.share.is_gateway() || receipts.is_empty() {
            return Ok((receipts, 0));
        }
        let sealer = Sealer::new(self.key, Form::Encoded);
        let has = |snapshot: &Snapshot, it: &Receipt| {
            let known = snapshot.get(sealer.slot(&it.key), &it.key);
            known.is_some_and(|known| known.version() == it.version)
        };
        let is_of_commit = |it: &Receipt| {
            let before = before.as_ref();
            before.is_some_and(|before| !has(before, it)) && has(&self.sent, it)
        };
        receipts.retain(is_of_commit);
        let omitted = receipts.len().saturating_sub(SIDECAR_RECEIPTS_MAX);
        receipts.truncate(SIDECAR_RECEIPTS_MAX);
        Ok((receipts, omitted as u64))
    }
}
