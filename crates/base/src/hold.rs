//! Holds: removals that nobody has asked for and that would take much wait, until a person confirms
//! them or a time has passed.
//!
//! A watch or proxy that finds such removals judges them by the same [`HoldLimits`], and says in
//! [`Holds`] what waits.
//!
//! One confirmation is for all that waits in the process at that moment, and for nothing
//! that comes later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock;
use crate::metrics::{Counter, Gauge, Metrics};

/// The most holders that are remembered by name; the sum counts no more than those.
const HOLDERS_MAX: usize = 65_536;

/// How much may go without a question, and how long more than that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// Losses are held if they are more than this part, in percent; 100 holds nothing.
    pub percent: u32,
    /// It has to be more than this many as well.
    pub count: usize,
    /// After which time it takes effect by itself; none for a person's word.
    pub time: Option<Duration>,
}

/// Something that would go: so many of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The things that are counted, as people read them after a number: `domains`.
    pub what: &'static str,
    /// How many would go.
    pub lost: usize,
    /// How many there are.
    pub of: usize,
}

/// One holder, and what waits there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holder: a watch of objects, or a proxy.
    pub holder: String,
    /// The things that would go.
    pub loss: Loss,
    /// Since when it waits, in seconds since the epoch.
    pub since_unix: i64,
}

/// All that waits in a process. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Holds {
    shared: Arc<Shared>,
}

struct Shared {
    limits: HoldLimits,
    held: Mutex<BTreeMap<String, (Loss, i64)>>,
    confirmed: watch::Sender<u64>,
    holders: Gauge,
    lost: Gauge,
    confirmations: Counter,
}

impl HoldLimits {
    /// Limits by which nothing is ever held.
    pub const NONE: HoldLimits = HoldLimits {
        percent: 100,
        count: usize::MAX,
        time: None,
    };

    /// Whether so much is held.
    pub fn are_exceeded_by(&self, loss: Loss) -> bool {
        let (lost, of) = (loss.lost as u128, loss.of as u128);
        loss.lost > self.count && lost * 100 > of * u128::from(self.percent)
    }
}

impl Default for HoldLimits {
    fn default() -> Self {
        HoldLimits {
            percent: 20,
            count: 50,
            time: None,
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {}", self.lost, self.of, self.what)
    }
}

impl std::fmt::Debug for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holds")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl Holds {
    /// Nothing waits yet.
    pub fn new(limits: HoldLimits) -> Self {
        Holds {
            shared: Arc::new(Shared {
                limits,
                held: Mutex::default(),
                confirmed: watch::Sender::new(0),
                holders: Gauge::default(),
                lost: Gauge::default(),
                confirmations: Counter::default(),
            }),
        }
    }

    /// Shows what waits among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        let shared = &self.shared;
        let help = "Watches and proxies with removals that wait for `myriad confirm`";
        metrics.register("removals_holders", help, shared.holders.clone());
        let help = "The most domains, routes or objects whose removal waits at one holder";
        metrics.register("removals_held", help, shared.lost.clone());
        let help = "Times that held removals were confirmed";
        metrics.register("removals_confirmed", help, shared.confirmations.clone());
    }

    /// The limits that everybody judges by.
    pub fn limits(&self) -> HoldLimits {
        self.shared.limits
    }

    /// Says what waits at a holder; nothing, if none is given.
    pub fn set(&self, holder: &str, loss: Option<Loss>) {
        let mut held = self.lock();
        let has_room = held.len() < HOLDERS_MAX;
        match (loss, held.get_mut(holder)) {
            (Some(loss), Some((known, _))) => *known = loss,
            (Some(loss), None) if has_room => {
                tracing::warn!(
                    holder,
                    "the removal of {loss} is held: confirm it by `myriad confirm` if it is meant"
                );
                held.insert(holder.to_owned(), (loss, clock::unix_seconds()));
            }
            (None, Some(_)) => drop(held.remove(holder)),
            (None, None) | (Some(_), None) => return,
        }
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.shared.holders.set(count(held.len()));
        let lost = loss.map_or(0, |loss| count(loss.lost));
        let before = self.shared.lost.get();
        self.shared
            .lost
            .set(if held.is_empty() { 0 } else { before.max(lost) });
    }

    /// All that waits, by holder.
    pub fn held(&self) -> Vec<Held> {
        let held = self.lock();
        let all = held.iter().map(|(holder, (loss, since_unix))| Held {
            holder: holder.clone(),
            loss: *loss,
            since_unix: *since_unix,
        });
        all.collect()
    }

    /// Confirms all that waits now, and returns it.
    pub fn confirm(&self) -> Vec<Held> {
        let held = self.held();
        if !held.is_empty() {
            self.shared.confirmations.inc();
            self.shared.confirmed.send_modify(|times| *times += 1);
        }
        held
    }

    /// Changes whenever what waits was confirmed.
    pub fn confirmations(&self) -> watch::Receiver<u64> {
        self.shared.confirmed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Loss, i64)>> {
        self.shared
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{HoldLimits, Holds, Loss};

    fn loss(lost: usize, of: usize) -> Loss {
        let what = "domains";
        Loss { what, lost, of }
    }

    #[test]
    fn what_is_held_is_much_by_part_and_by_number() {
        let limits = HoldLimits::default();
        for (lost, of, is_held) in [
            (50, 50, false),
            (51, 51, true),
            (51, 255, false),
            (51, 254, true),
            (19_999, 20_000, true),
            (4_000, 20_000, false),
            (0, 0, false),
        ] {
            let is = limits.are_exceeded_by(loss(lost, of));
            assert_eq!(is, is_held, "{lost} of {of}");
        }
        assert!(!HoldLimits::NONE.are_exceeded_by(loss(usize::MAX, usize::MAX)));
    }

    #[test]
    fn a_confirmation_is_for_what_waits_and_for_nothing_later() {
        let holds = Holds::new(HoldLimits::default());
        let confirmations = holds.confirmations();
        assert!(holds.confirm().is_empty());
        assert!(!confirmations.has_changed().unwrap());
        holds.set("a", Some(loss(60, 100)));
        holds.set("a", Some(loss(70, 100)));
        assert_eq!(holds.confirm().len(), 1);
        assert!(confirmations.has_changed().unwrap());
        holds.set("a", None);
        assert!(holds.held().is_empty());
    }
}
