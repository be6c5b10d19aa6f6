//! When issuers are asked for their accounts, before anybody wants a certificate of them, so that
//! each shows whether it can be used. It has no clock and asks nobody.
//!
//! - At most so many are asked at a time, and of one namespace one, so that authorities that do not
//!   answer hold up no issuer of another namespace.
//! - Those of one namespace are asked once in a while, however often they are edited or made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use myriad_base::backoff::Waits;
use myriad_pki::acme::Millis;

/// The most issuers that are asked at a time.
const RUNNING_MAX: usize = 8;

/// The shortest time between two tries of issuers of one namespace.
const PAUSE: Millis = 10_000;

/// The waits of an issuer that fails.
static WAITS: Waits = Waits {
    first: seconds(10, 15),
    second: seconds(30, 60),
    max: seconds(900, 1_200),
};

const fn seconds(low: u64, high: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(low)..=Duration::from_secs(high)
}

/// The issuers that are to be asked.
#[derive(Default)]
pub(super) struct Registrar {
    entries: BTreeMap<Box<str>, Registration>,
    due: BTreeSet<(Millis, Box<str>)>,
    /// The namespaces that were asked of late.
    lanes: BTreeMap<Box<str>, RegistrarLane>,
    running: usize,
    seed: u64,
}

#[derive(Default)]
struct Registration {
    /// When it is asked; none while it is being asked, and once it has answered.
    due: Option<Millis>,
    failures: u32,
    is_running: bool,
    /// Whether it says something else since it is being asked.
    is_stale: bool,
}

struct RegistrarLane {
    is_running: bool,
    not_before: Millis,
}

impl Registrar {
    /// A registrar without issuers. Waits are drawn by the seed.
    pub(super) fn new(seed: u64) -> Self {
        Registrar {
            seed,
            ..Registrar::default()
        }
    }

    /// An issuer is new, or says something else.
    pub(super) fn want(&mut self, name: &str, now: Millis) {
        let entry = self.entries.entry(name.into()).or_default();
        entry.failures = 0;
        match entry.is_running {
            true => entry.is_stale = true,
            false => self.schedule(name, now),
        }
    }

    /// An issuer is gone.
    pub(super) fn forget(&mut self, name: &str) {
        let entry = self.entries.remove(name);
        if let Some(due) = entry.and_then(|entry| entry.due) {
            self.due.remove(&(due, name.into()));
        }
    }

    /// The next issuer that may be asked now. [`Registrar::done`] has to follow.
    pub(super) fn next(&mut self, now: Millis) -> Option<Box<str>> {
        if self.running >= RUNNING_MAX {
            return None;
        }
        let mut due = self.due.iter().take_while(|(due, _)| *due <= now);
        let is_free = |name: &str| {
            let lane = self.lanes.get(lane(name));
            lane.is_none_or(|lane| !lane.is_running && lane.not_before <= now)
        };
        let place = due.find(|(_, name)| is_free(name))?.clone();
        self.due.remove(&place);
        let (_, name) = place;
        let taken = RegistrarLane {
            is_running: true,
            not_before: now.saturating_add(PAUSE),
        };
        self.lanes.insert(lane(&name).into(), taken);
        self.running += 1;
        if let Some(entry) = self.entries.get_mut(&name) {
            (entry.due, entry.is_running) = (None, true);
        }
        Some(name)
    }

    /// An issuer was asked; where it failed, it is asked again after a while.
    pub(super) fn done(&mut self, name: &str, has_failed: bool, now: Millis) {
        self.running = self.running.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(lane(name)) {
            lane.is_running = false;
        }
        // Of the others nothing follows any more.
        self.lanes
            .retain(|_, lane| lane.is_running || lane.not_before > now);
        let random = self.random();
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        // It was made anew while the one before was being asked.
        if !std::mem::take(&mut entry.is_running) {
            return;
        }
        let due = if std::mem::take(&mut entry.is_stale) {
            now
        } else if has_failed {
            let wait = WAITS.after(entry.failures, Duration::ZERO, random);
            entry.failures = entry.failures.saturating_add(1);
            now.saturating_add(Millis::try_from(wait.as_millis()).unwrap_or(Millis::MAX))
        } else {
            return;
        };
        self.schedule(name, due);
    }

    /// When the next one may be asked though nobody answers before.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = self.due.iter().filter_map(|(due, name)| {
            let Some(lane) = self.lanes.get(lane(name)) else {
                return Some(*due);
            };
            (!lane.is_running).then(|| lane.not_before.max(*due))
        });
        due.min().filter(|_| self.running < RUNNING_MAX)
    }

    fn schedule(&mut self, name: &str, due: Millis) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if let Some(before) = entry.due.replace(due) {
            self.due.remove(&(before, name.into()));
        }
        self.due.insert((due, name.into()));
    }

    fn random(&mut self) -> u32 {
        let next = self.seed.wrapping_mul(6_364_136_223_846_793_005);
        self.seed = next.wrapping_add(1);
        (self.seed >> 32) as u32
    }
}

/// The name by which issuers share a place: their namespace, or for all namespaces their own name.
fn lane(name: &str) -> &str {
    name.split_once('/')
        .map_or(name, |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, RUNNING_MAX, Registrar};

    #[test]
    fn one_of_a_namespace_is_asked_at_a_time_and_the_others_go_on() {
        let mut registrar = Registrar::new(1);
        for name in ["dead/a", "dead/b", "dead/c", "le", "shop/a"] {
            registrar.want(name, 0);
        }
        let mut asked = Vec::new();
        while let Some(name) = registrar.next(0) {
            asked.push(name);
        }
        assert_eq!(asked, ["dead/a", "le", "shop/a"].map(Box::from));
        assert_eq!(registrar.due(), None);
        registrar.done("le", false, 5);
        assert_eq!(registrar.next(5), None);
        registrar.done("dead/a", true, 30_000);
        assert_eq!(registrar.next(30_000).as_deref(), Some("dead/b"));
        // Those of its namespace wait for it.
        assert_eq!(registrar.due(), None);
        registrar.done("dead/b", false, 30_001);
        assert_eq!(registrar.due(), Some(30_000 + PAUSE));
    }

    #[test]
    fn so_many_are_asked_at_a_time() {
        let mut registrar = Registrar::new(1);
        for number in 0..20 {
            registrar.want(&format!("n{number}/a"), 0);
        }
        let asked = std::iter::from_fn(|| registrar.next(0)).count();
        assert_eq!(asked, RUNNING_MAX);
    }

    #[test]
    fn one_that_is_edited_time_and_again_is_asked_once_in_a_while() {
        let mut registrar = Registrar::new(1);
        let mut asked = 0;
        // A minute, in which somebody edits it every 10 ms.
        for now in (0..60_000).step_by(10) {
            registrar.want("shop/a", now);
            if registrar.next(now).is_some() {
                asked += 1;
                registrar.done("shop/a", false, now);
            }
        }
        assert_eq!(asked, 60_000 / PAUSE);
    }

    #[test]
    fn waits_grow_and_end_with_an_edit_and_nothing_is_left_of_one_that_goes() {
        let mut registrar = Registrar::new(1);
        registrar.want("shop/a", 0);
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..4 {
            assert_eq!(registrar.next(now).as_deref(), Some("shop/a"));
            registrar.done("shop/a", true, now);
            let due = registrar.due().expect("it is asked again");
            waits.push(due - now);
            now = due;
        }
        assert!(waits.is_sorted() && waits[3] >= 120_000, "{waits:?}");
        assert!(registrar.next(now).is_some());
        // An edit meanwhile counts, though it answers well.
        registrar.want("shop/a", now);
        registrar.done("shop/a", false, now);
        assert_eq!(registrar.due(), Some(now + PAUSE));
        registrar.forget("shop/a");
        assert_eq!((registrar.due(), registrar.entries.len()), (None, 0));
        // One that is made anew waits as long.
        registrar.want("shop/a", now);
        assert_eq!(registrar.next(now), None);
        now += PAUSE;
        assert!(registrar.next(now).is_some());
        registrar.forget("shop/a");
        registrar.done("shop/a", true, now);
        assert_eq!((registrar.due(), registrar.running), (None, 0));
        registrar.done("none/a", true, now + PAUSE);
        assert!(registrar.lanes.is_empty());
    }
}
