//! Proofs that are decided and yet to be written: each write has all proofs, so that those which
//! change again and again, and those of a namespace with very many, wait for a beat together.
//!
//! The last decision is what is written, however often it changed until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::Host;
use myriad_pki::acme::{Budget, Millis};

/// How long after its last change that was to be written a host waits for the next, twice as long
/// each time, and at most.
pub(super) const FLAP_PAUSE: Duration = Duration::from_secs(30);
pub(super) const FLAP_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// How long after its last change nothing stands against a host any more.
pub(super) const FLAP_FORGOTTEN: Duration = Duration::from_secs(2 * 60 * 60);

/// The most hosts whose changes are remembered; the oldest go.
pub(super) const FLAPS_MAX: usize = 8_192;

/// How many changes of a namespace are written at once in a span; further ones wait for the beat.
pub(super) const PROMPT_CHANGES: u32 = 32;
const PROMPT_SPAN: Millis = 32 * 60_000;

/// The pause between two writes of what waits.
pub(super) const BEAT: Duration = Duration::from_secs(60);

/// The proofs that are to be kept, or forgotten.
pub(super) struct DecidedProofs {
    by_host: BTreeMap<Host, DecidedProof>,
    /// When each is to be written.
    due: BTreeSet<(Instant, Host)>,
    flaps: BTreeMap<Host, Flap>,
    /// The hosts whose changes are remembered, by the last of them.
    flapped: BTreeSet<(Instant, Host)>,
    /// The budgets of namespaces for what is written at once, as far as they are not whole.
    prompt: BTreeMap<Box<str>, Budget>,
    start: Instant,
}

/// A proof that is decided.
struct DecidedProof {
    /// The namespace that has proven the host; none where nobody has any more.
    namespace: Option<Box<str>>,
}

/// The changes of one host.
struct Flap {
    last: Instant,
    pause: Duration,
}

impl DecidedProofs {
    /// No decisions, where nobody has changed anything.
    pub(super) fn new(now: Instant) -> DecidedProofs {
        DecidedProofs {
            by_host: BTreeMap::new(),
            due: BTreeSet::new(),
            flaps: BTreeMap::new(),
            flapped: BTreeSet::new(),
            prompt: BTreeMap::new(),
            start: now,
        }
    }

    /// The namespace that has proven a host by what is decided, or by what is kept.
    pub(super) fn proven<'a>(&'a self, host: &Host, kept: Option<&'a str>) -> Option<&'a str> {
        match self.by_host.get(host) {
            Some(decided) => decided.namespace.as_deref(),
            None => kept,
        }
    }

    /// Decides who has proven a host, which is charged to a namespace. What was decided before, and
    /// is yet to be written, is forgotten, but not when that was to be.
    pub(super) fn decide(
        &mut self,
        host: &Host,
        namespace: Option<Box<str>>,
        charged: &str,
        now: Instant,
    ) {
        if let Some(decided) = self.by_host.get_mut(host) {
            decided.namespace = namespace;
            return;
        }
        let due = self.due_of(host, charged, now);
        self.due.insert((due, host.clone()));
        self.by_host
            .insert(host.clone(), DecidedProof { namespace });
    }

    /// When a change of a host may be written that is decided now.
    fn due_of(&mut self, host: &Host, charged: &str, now: Instant) -> Instant {
        let free = self.note(host, now);
        let since = now.saturating_duration_since(self.start).as_millis();
        let millis = Millis::try_from(since).unwrap_or(Millis::MAX);
        let known = self.prompt.get(charged).copied();
        let mut prompt = known.unwrap_or_else(|| Budget::new(PROMPT_CHANGES, PROMPT_SPAN));
        if free <= now && prompt.free_at() <= millis {
            prompt.spend(millis);
            let is_new = self.prompt.insert(charged.into(), prompt).is_none();
            // Whoever has all of its budget needs no row; amortised over the rows that came.
            if is_new && self.prompt.len().is_power_of_two() {
                self.prompt.retain(|_, budget| !budget.is_whole(millis));
            }
            return now;
        }
        self.beat_after(free.max(now))
    }

    /// Remembers a change of a host. Returns when it is free to have it.
    fn note(&mut self, host: &Host, now: Instant) -> Instant {
        let known = self.flaps.remove(host);
        if let Some(flap) = &known {
            self.flapped.remove(&(flap.last, host.clone()));
        }
        let fresh = known.filter(|flap| now.saturating_duration_since(flap.last) < FLAP_FORGOTTEN);
        let (free, pause) = match fresh {
            Some(flap) => (flap.last + flap.pause, (flap.pause * 2).min(FLAP_PAUSE_MAX)),
            None => (now, FLAP_PAUSE),
        };
        while self.flaps.len() >= FLAPS_MAX {
            let Some((_, oldest)) = self.flapped.pop_first() else {
                break;
            };
            self.flaps.remove(&oldest);
        }
        // It counts from when it is written. Who leads anew has not written all that was decided.
        let free = free.min(now + FLAP_PAUSE_MAX);
        let last = free.max(now);
        self.flapped.insert((last, host.clone()));
        self.flaps.insert(host.clone(), Flap { last, pause });
        free
    }

    /// The first beat after a moment, which is the same for all who wait.
    fn beat_after(&self, moment: Instant) -> Instant {
        let beat = BEAT.as_secs();
        let since = moment.saturating_duration_since(self.start).as_secs();
        self.start + Duration::from_secs((since / beat + 1) * beat)
    }

    /// When there is something to write; none where nothing is decided.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The decisions that may be written now.
    pub(super) fn ready(&self, now: Instant) -> impl Iterator<Item = (&Host, Option<&str>)> {
        let ready = self.due.iter().take_while(move |(due, _)| *due <= now);
        ready.filter_map(move |(_, host)| {
            let decided = self.by_host.get(host)?;
            Some((host, decided.namespace.as_deref()))
        })
    }

    /// Takes out the decisions that were ready at a moment: they are written.
    pub(super) fn written(&mut self, now: Instant) {
        while let Some((due, host)) = self.due.pop_first() {
            if due > now {
                self.due.insert((due, host));
                return;
            }
            self.by_host.remove(&host);
        }
    }

    /// Forgets what was decided: another process decides. What has changed lately is remembered.
    pub(super) fn clear(&mut self) {
        self.by_host.clear();
        self.due.clear();
    }
}

#[cfg(test)]
mod tests;
