//! The election without IO.

#[cfg(test)]
mod tests;

use std::time::Duration;

use myriad_base::clock::Instant;

use crate::kubernetes::client::CallError;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The holder; empty when it was given back.
    pub(super) holder: Box<str>,
    /// The longest silence of the holder before others take it.
    pub(super) duration: Duration,
    /// How often the holder changed.
    pub(super) transitions: u32,
    /// The resourceVersion.
    pub(super) version: Box<str>,
}

/// A Lease as it is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// The holder from now on; empty gives it back.
    pub(super) holder: String,
    /// The longest silence of the holder before others take it.
    pub(super) duration: Duration,
    /// How often the holder changed.
    pub(super) transitions: u32,
    /// The resourceVersion that it replaces; none creates it.
    pub(super) version: Option<Box<str>>,
    /// Whether the holder changes.
    pub(super) is_acquired: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Write(Write),
    Wait(Duration),
}

/// The knowledge of one process about the Lease.
pub(super) struct Core {
    identity: String,
    duration: Duration,
    /// The record that was read or written last, and when that version was first seen.
    observed: Option<(Record, Instant)>,
    /// When the last renewal that came through was sent.
    renewed_at: Option<Instant>,
    wait_until: Option<Instant>,
    next: Step,
}

impl Core {
    /// A state before anything is known.
    pub(super) fn new(identity: String, duration: Duration) -> Self {
        Core {
            identity,
            duration,
            observed: None,
            renewed_at: None,
            wait_until: None,
            next: Step::Read,
        }
    }

    /// Until when this process leads, unless it renews; none when another one does.
    pub(super) fn leads_until(&self) -> Option<Instant> {
        self.renewed_at.map(|at| at + self.duration * 2 / 3)
    }

    /// The next step now.
    pub(super) fn step(&self, now: Instant) -> Step {
        match self.wait_until {
            Some(until) if now < until => Step::Wait(until - now),
            _ => self.next.clone(),
        }
    }

    /// The Lease was read, or does not exist, or could not be read.
    pub(super) fn read(&mut self, now: Instant, read: Result<Option<Record>, ()>) {
        let record = match read {
            Ok(record) => record,
            Err(()) => return self.retry(now),
        };
        let Some(record) = record else {
            self.observed = None;
            self.renewed_at = None;
            return self.write_next(None, 0, true);
        };
        let is_new = match &self.observed {
            Some((known, _)) => known.version != record.version,
            None => true,
        };
        if is_new {
            self.observed = Some((record.clone(), now));
        }
        let since = self.observed.as_ref().map_or(now, |(_, since)| *since);
        if *record.holder == *self.identity {
            return self.write_next(Some(record.version), record.transitions, false);
        }
        self.renewed_at = None;
        let patience = self.duration.max(record.duration);
        let free_at = since + patience;
        if record.holder.is_empty() || now >= free_at {
            let transitions = record.transitions.saturating_add(1);
            return self.write_next(Some(record.version), transitions, true);
        }
        self.next = Step::Read;
        self.wait_until = Some(free_at.min(now + self.duration / 3));
    }

    /// The answer to a write that was sent at `sent_at`.
    pub(super) fn wrote(
        &mut self,
        sent_at: Instant,
        now: Instant,
        written: Result<Record, CallError>,
    ) {
        match written {
            Ok(record) if *record.holder == *self.identity => {
                self.renewed_at = Some(sent_at);
                let (version, transitions) = (record.version.clone(), record.transitions);
                self.observed = Some((record, now));
                self.write_next(Some(version), transitions, false);
                self.wait_until = Some(sent_at + self.duration / 3);
            }
            // Somebody else was faster, or the Lease was deleted: look at once.
            Ok(_) | Err(CallError::Conflict | CallError::NotFound) => {
                self.next = Step::Read;
                self.wait_until = None;
            }
            // It may have come through or not; what is there now says.
            Err(_) => self.retry(now),
        }
    }

    /// Gives the Lease back, if it is ours.
    pub(super) fn release(&mut self, now: Instant) -> Option<Write> {
        let leads = self.leads_until().is_some_and(|until| now < until);
        let (record, _) = self.observed.take().filter(|_| leads)?;
        self.renewed_at = None;
        Some(Write {
            holder: String::new(),
            duration: self.duration,
            transitions: record.transitions,
            version: Some(record.version),
            is_acquired: false,
        })
    }

    fn retry(&mut self, now: Instant) {
        self.next = Step::Read;
        self.wait_until = Some(now + self.duration / 10);
    }

    fn write_next(&mut self, version: Option<Box<str>>, transitions: u32, is_acquired: bool) {
        self.wait_until = None;
        self.next = Step::Write(Write {
            holder: self.identity.clone(),
            duration: self.duration,
            transitions,
            version,
            is_acquired,
        });
    }
}
