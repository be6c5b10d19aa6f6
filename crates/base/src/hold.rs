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
    /// Whether somebody says so who is believed, and not the proxy of any Pod.
    pub is_proven: bool,
}

/// All that waits in a process. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Holds {
    shared: Arc<Shared>,
}

struct Shared {
    limits: HoldLimits,
    held: Mutex<BTreeMap<String, Waiting>>,
    confirmed: watch::Sender<u64>,
    holders: Gauge,
    unproven: Gauge,
    lost: Gauge,
    confirmations: Counter,
}

/// The loss that waits at one holder.
#[derive(Clone, Copy)]
struct Waiting {
    loss: Loss,
    since_unix: i64,
    is_proven: bool,
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
                unproven: Gauge::default(),
                lost: Gauge::default(),
                confirmations: Counter::default(),
            }),
        }
    }

    /// Shows what waits among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        let shared = &self.shared;
        let help = "Watches and gateways with removals that wait for `myriad confirm`";
        metrics.register("removals_holders", help, shared.holders.clone());
        let help = "Sidecars that say that removals wait there, of which nothing is proven";
        metrics.register("removals_unproven", help, shared.unproven.clone());
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
        self.note(holder, loss, true);
    }

    /// Says what waits at a holder by the word of whoever may run a Pod: it is listed and
    /// confirmed like the rest, raises no alarm, and is no part of the other counts.
    pub fn set_unproven(&self, holder: &str, loss: Option<Loss>) {
        self.note(holder, loss, false);
    }

    fn note(&self, holder: &str, loss: Option<Loss>, is_proven: bool) {
        let mut held = self.lock();
        let has_room = held.len() < HOLDERS_MAX;
        match (loss, held.get_mut(holder)) {
            (Some(loss), Some(known)) => known.loss = loss,
            (Some(loss), None) if has_room => {
                if is_proven {
                    tracing::warn!(
                        holder,
                        "the removal of {loss} is held: confirm it by `myriad confirm` if it is \
                         meant"
                    );
                }
                let since_unix = clock::unix_seconds();
                let waiting = Waiting {
                    loss,
                    since_unix,
                    is_proven,
                };
                held.insert(holder.to_owned(), waiting);
                if !is_proven {
                    self.shared.unproven.inc();
                }
            }
            (None, Some(_)) => {
                let gone = held.remove(holder);
                if gone.is_some_and(|gone| !gone.is_proven) {
                    self.shared.unproven.dec();
                }
            }
            (None, None) | (Some(_), None) => return,
        }
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let proven = count(held.len()) - self.shared.unproven.get();
        self.shared.holders.set(proven);
        let lost = loss.filter(|_| is_proven);
        let lost = lost.map_or(0, |loss| count(loss.lost));
        let before = self.shared.lost.get();
        self.shared
            .lost
            .set(if proven == 0 { 0 } else { before.max(lost) });
    }

    /// All that waits, by holder; what is not proven comes last.
    pub fn held(&self) -> Vec<Held> {
        let held = self.lock();
        let all = held.iter().map(|(holder, waiting)| Held {
            holder: holder.clone(),
            loss: waiting.loss,
            since_unix: waiting.since_unix,
            is_proven: waiting.is_proven,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|held| !held.is_proven);
        all
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.shared
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{HoldLimits, Holds, Loss};
    use crate::metrics::Metrics;

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

    #[test]
    fn what_is_not_proven_is_listed_last_and_confirmed_but_counts_for_itself() {
        let holds = Holds::new(HoldLimits::default());
        let metrics = Metrics::new();
        holds.register(&metrics);
        let counts = || {
            let text = metrics.encode();
            ["holders", "held", "unproven"].map(|name| {
                let name = format!("myriad_removals_{name} ");
                let mut lines = text.lines();
                let value = lines.find_map(|line| line.strip_prefix(&name));
                value.unwrap().parse::<usize>().unwrap()
            })
        };
        holds.set_unproven("a sidecar", Some(loss(199_999, 200_000)));
        holds.set_unproven("a sidecar", Some(loss(199_998, 200_000)));
        assert_eq!(counts(), [0, 0, 1]);
        assert_eq!(holds.confirm().len(), 1);
        holds.set("the gateway", Some(loss(60, 100)));
        assert_eq!(counts(), [1, 60, 1]);
        let proven = holds.held().into_iter().map(|held| held.is_proven);
        assert_eq!(proven.collect::<Vec<_>>(), [true, false]);
        holds.set("the gateway", None);
        assert_eq!(counts(), [0, 0, 1]);
        holds.set_unproven("a sidecar", None);
        assert_eq!(counts(), [0, 0, 0]);
    }
}
