//! The debts of namespaces: how long changes of one wait for what its last ones cost, so that
//! those of others go first.
//!
//! A batch that takes the control thread for a moment is nobody's debt. A heavy one is that of its
//! namespace, if it holds no other; where it holds several, nobody is charged, and for a while each
//! of them is translated alone, so that the next heavy batch has one namespace. Light ones that a
//! namespace has for itself are added up: together they are its debt once they take more than its
//! share of some seconds and others wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use myriad_base::clock::Instant;

/// The processor time from which on a batch is heavy.
pub(super) const HEAVY_MIN: Duration = Duration::from_millis(100);

/// The longest that a namespace waits for one batch, unless the batch took very long.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// How many times as long as its batch took a namespace may wait in any case, so that it has no
/// more than its share by batches of a quarter of a minute.
const WAIT_FACTOR_MAX: u32 = 4;

/// How long light batches are added up at most.
const SUMMED_FOR: Duration = Duration::from_secs(10);

/// How much longer than it waits a namespace is translated alone.
const ALONE_FOR: Duration = Duration::from_secs(10);

/// How long ago others changed something at most, for one namespace to wait for them.
const ACTIVE_FOR: Duration = Duration::from_secs(60);

/// The most namespaces that are remembered. Beyond it the ones go that cost least.
pub(super) const DEBTORS_MAX: usize = 1_024;

/// The way in which it is the turn of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// In one batch with all others.
    Together,
    /// In a batch of its own.
    Alone,
    /// Not before this moment.
    Deferred(Instant),
}

/// The cost of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bill {
    /// The number of its changes.
    pub changes: usize,
    /// Its processor time.
    pub cost: Duration,
}

impl Bill {
    /// The most changes that are not heavy at the same price; at least 1.
    fn light_changes(self) -> usize {
        let price = self.cost.as_nanos() / self.changes.max(1) as u128;
        let count = HEAVY_MIN.as_nanos() / price.max(1);
        usize::try_from(count).unwrap_or(usize::MAX).max(1)
    }
}

/// The wait that a heavy batch leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Debt {
    /// The namespace that waits.
    pub namespace: Box<str>,
    /// The processor time of its batch.
    pub cost: Duration,
    /// How long its next changes wait, from the end of the batch.
    pub wait: Duration,
}

/// The debts of all namespaces.
pub(super) struct Debts {
    /// The part of the time that one namespace may have, in percent: 1 to 100.
    share: u32,
    /// Namespaces that never owe anything.
    operators: BTreeSet<Box<str>>,
    accounts: BTreeMap<Box<str>, Account>,
    /// The light batches of namespaces that are not charged; no more than [`DEBTORS_MAX`].
    lights: BTreeMap<Box<str>, LightSum>,
    /// The namespace that began to wait last, and when.
    latest: Option<(Box<str>, Instant)>,
    /// When another than that one last did.
    other: Option<Instant>,
}

/// The light batches of a namespace since some moment.
struct LightSum {
    bill: Bill,
    since: Instant,
}

/// The account of a namespace that had a part in a heavy batch.
struct Account {
    /// The processor time of its last heavy batch; 0 as long as none was its own.
    cost: Duration,
    /// Until when its changes wait.
    waits_until: Instant,
    /// Until when they go alone.
    alone_until: Instant,
    /// The most changes of its next batch.
    changes_max: usize,
}

impl Debts {
    /// No debts. `share` is in percent; 0 is no bound. The namespace of objects without one is
    /// among the operators.
    pub(super) fn new(share: u32, mut operators: BTreeSet<Box<str>>) -> Debts {
        operators.insert("".into());
        Debts {
            share: match share {
                1..=100 => share,
                _ => 100,
            },
            operators,
            accounts: BTreeMap::new(),
            lights: BTreeMap::new(),
            latest: None,
            other: None,
        }
    }

    /// Notes that something of a namespace begins to wait for its turn.
    pub(super) fn see(&mut self, namespace: &str, now: Instant) {
        match &mut self.latest {
            Some((known, at)) if **known == *namespace => *at = now,
            latest => {
                let before = latest.replace((namespace.into(), now));
                self.other = before.map(|(_, at)| at);
            }
        }
    }

    /// The way in which it is a namespace's turn now.
    pub(super) fn turn(&self, namespace: &str, now: Instant) -> Turn {
        match self.accounts.get(namespace) {
            Some(account) if account.waits_until > now => Turn::Deferred(account.waits_until),
            Some(account) if account.alone_until > now => Turn::Alone,
            _ => Turn::Together,
        }
    }

    /// The most changes of a namespace in its next batch.
    pub(super) fn changes_max(&self, namespace: &str) -> usize {
        let account = self.accounts.get(namespace);
        account.map_or(usize::MAX, |account| account.changes_max)
    }

    /// Charges a namespace a batch that it had for itself and that ended `now`. It owes nothing
    /// while nobody else changes anything, unless `others_wait`; nor for light batches, unless they
    /// do.
    pub(super) fn charge(
        &mut self,
        namespace: Box<str>,
        bill: Bill,
        now: Instant,
        others_wait: bool,
    ) -> Option<Debt> {
        if self.operators.contains(&namespace) {
            return None;
        }
        let bill = match self.wait(bill.cost) {
            Some(_) => bill,
            None => {
                if let Some(account) = self.accounts.get_mut(&namespace) {
                    account.changes_max = account.changes_max.saturating_mul(2);
                }
                self.add_up(&namespace, (bill, others_wait), now)?
            }
        };
        let wait = self.wait(bill.cost)?;
        let has_others = others_wait || self.has_others(&namespace, now);
        let owed = if has_others { wait } else { Duration::ZERO };
        let waits_until = now + owed;
        let account = Account {
            cost: bill.cost,
            waits_until,
            alone_until: waits_until + wait + ALONE_FOR,
            changes_max: bill.light_changes(),
        };
        self.accounts.insert(namespace.clone(), account);
        self.prune(now);
        has_others.then_some(Debt {
            namespace,
            cost: bill.cost,
            wait,
        })
    }

    /// Adds up the light batches of a namespace. Returns what is charged of them: its share of the
    /// time, once they are as much and others wait. What held nobody up is nobody's debt.
    fn add_up(
        &mut self,
        namespace: &str,
        (bill, others_wait): (Bill, bool),
        now: Instant,
    ) -> Option<Bill> {
        let is_over = |sum: &LightSum| now.saturating_duration_since(sum.since) > SUMMED_FOR;
        let known = self.lights.remove(namespace).filter(|sum| !is_over(sum));
        let mut sum = known.unwrap_or(LightSum {
            bill: Bill {
                changes: 0,
                cost: Duration::ZERO,
            },
            since: now,
        });
        sum.bill.changes = sum.bill.changes.saturating_add(bill.changes);
        sum.bill.cost += bill.cost;
        let share = (SUMMED_FOR * self.share / 100).max(HEAVY_MIN);
        if sum.bill.cost >= share && others_wait {
            sum.bill.cost = share;
            return Some(sum.bill);
        }
        if self.lights.len() >= DEBTORS_MAX {
            self.lights.retain(|_, sum| !is_over(sum));
        }
        if self.lights.len() < DEBTORS_MAX {
            self.lights.insert(namespace.into(), sum);
        }
        None
    }

    /// Lets namespaces that shared a batch go alone for a while, if it was heavy; returns whether
    /// it was. The while is longer than a debt for it would be: whoever shares on purpose gains
    /// nothing by it.
    pub(super) fn suspect(&mut self, namespaces: Vec<Box<str>>, bill: Bill, now: Instant) -> bool {
        let Some(wait) = self.wait(bill.cost) else {
            return false;
        };
        let alone_until = now + wait + ALONE_FOR;
        let changes_max = bill.light_changes();
        for namespace in namespaces {
            if self.operators.contains(&namespace) {
                continue;
            }
            let account = self.accounts.entry(namespace).or_insert(Account {
                cost: Duration::ZERO,
                waits_until: now,
                alone_until,
                changes_max,
            });
            account.alone_until = account.alone_until.max(alone_until);
            account.changes_max = account.changes_max.min(changes_max);
        }
        self.prune(now);
        true
    }

    /// How long a namespace waits for what a batch cost; `None` if nobody does.
    fn wait(&self, cost: Duration) -> Option<Duration> {
        let wait = cost.saturating_mul(100 - self.share) / self.share;
        let max = WAIT_MAX.max(cost.saturating_mul(WAIT_FACTOR_MAX));
        (cost >= HEAVY_MIN && !wait.is_zero()).then_some(wait.min(max))
    }

    /// Whether another namespace has changed anything of late.
    fn has_others(&self, namespace: &str, now: Instant) -> bool {
        let last = match &self.latest {
            Some((latest, at)) if **latest != *namespace => Some(*at),
            _ => self.other,
        };
        last.is_some_and(|at| now.saturating_duration_since(at) <= ACTIVE_FOR)
    }

    /// Forgets what is over, and the smallest where there are too many.
    fn prune(&mut self, now: Instant) {
        self.accounts.retain(|_, account| account.alone_until > now);
        if self.accounts.len() <= DEBTORS_MAX {
            return;
        }
        let accounts = self.accounts.iter();
        let costs = accounts.map(|(namespace, account)| (account.cost, namespace.clone()));
        let mut costs: Vec<(Duration, Box<str>)> = costs.collect();
        costs.sort_unstable();
        for (_, namespace) in costs.iter().take(costs.len() - DEBTORS_MAX) {
            self.accounts.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use myriad_base::clock;

    use super::{
        ACTIVE_FOR, ALONE_FOR, Bill, DEBTORS_MAX, Debts, HEAVY_MIN, SUMMED_FOR, Turn, WAIT_MAX,
    };

    const HEAVY: Duration = Duration::from_secs(3);

    /// The cost of a batch of one change.
    fn bill(cost: Duration) -> Bill {
        Bill { changes: 1, cost }
    }

    fn debts(share: u32) -> Debts {
        Debts::new(share, BTreeSet::from([Box::from("gateway")]))
    }

    #[test]
    fn a_heavy_batch_is_waited_for_as_long_as_the_share_says() {
        for (share, wait) in [(20, Some(12)), (50, Some(3)), (1, Some(60)), (100, None)] {
            let (mut debts, now) = (debts(share), clock::now());
            let debt = debts.charge("a".into(), bill(HEAVY), now, true);
            let wait = wait.map(Duration::from_secs);
            assert_eq!(debt.map(|debt| debt.wait), wait, "{share}");
            let deferred = wait.map_or(Turn::Together, |wait| Turn::Deferred(now + wait));
            assert_eq!(debts.turn("a", now), deferred, "{share}");
        }
        let unbounded = debts(0).charge("a".into(), bill(WAIT_MAX), clock::now(), true);
        assert_eq!(unbounded, None);
    }

    #[test]
    fn a_batch_of_more_than_a_quarter_of_a_minute_is_waited_for_as_any_other() {
        for (share, cost, wait) in [(20, 15, 60), (20, 20, 80), (1, 10, 60), (1, 20, 80)] {
            let [cost, wait] = [cost, wait].map(Duration::from_secs);
            let debt = debts(share).charge("a".into(), bill(cost), clock::now(), true);
            assert_eq!(debt.map(|debt| debt.wait), Some(wait), "{share} {cost:?}");
        }
    }

    #[test]
    fn after_a_heavy_batch_come_light_ones() {
        let (mut debts, now) = (debts(20), clock::now());
        let (changes, cost) = (60, HEAVY);
        debts.suspect(vec!["b".into()], Bill { changes, cost }, now);
        // 50 ms each.
        assert_eq!(debts.changes_max("b"), 2);
        // Also where nobody else is there yet to wait for it.
        assert_eq!(
            debts.charge("a".into(), Bill { changes, cost }, now, false),
            None
        );
        assert_eq!(debts.changes_max("a"), 2);
        for light in [4, 8, 16] {
            debts.charge("a".into(), bill(Duration::from_millis(1)), now, true);
            assert_eq!(debts.changes_max("a"), light);
        }
        debts.charge("a".into(), bill(HEAVY), now, true);
        assert_eq!(debts.changes_max("a"), 1);
        assert_eq!(debts.changes_max("c"), usize::MAX);
    }

    #[test]
    fn a_debt_is_forgotten_by_time() {
        let (mut debts, now) = (debts(20), clock::now());
        debts.charge("a".into(), bill(HEAVY), now, true);
        let until = now + 4 * HEAVY;
        assert_eq!(debts.turn("a", until), Turn::Alone);
        let until = until + 4 * HEAVY + ALONE_FOR;
        assert_eq!(debts.turn("a", until), Turn::Together);
        debts.charge("b".into(), bill(HEAVY), until, true);
        assert_eq!(debts.accounts.len(), 1);
    }

    #[test]
    fn what_is_light_and_what_operators_do_is_nobodys_debt() {
        let (mut debts, now) = (debts(20), clock::now());
        let light = HEAVY_MIN - Duration::from_millis(1);
        assert_eq!(debts.charge("a".into(), bill(light), now, true), None);
        for namespace in ["", "gateway"] {
            assert_eq!(debts.charge(namespace.into(), bill(HEAVY), now, true), None);
            debts.suspect(vec![namespace.into()], bill(HEAVY), now);
            assert_eq!(debts.turn(namespace, now), Turn::Together);
        }
        assert!(debts.accounts.is_empty());
    }

    #[test]
    fn light_batches_add_up_to_the_share_of_a_namespace_where_others_wait() {
        let (mut debts, now) = (debts(20), clock::now());
        let light = bill(Duration::from_millis(50));
        // Less than two seconds of ten.
        for _ in 0..39 {
            assert_eq!(debts.charge("a".into(), light, now, true), None);
        }
        let others = debts.charge("b".into(), light, now, true);
        assert_eq!((others, debts.turn("a", now)), (None, Turn::Together));
        let debt = debts.charge("a".into(), light, now, true).expect("a debt");
        let share = Duration::from_secs(2);
        assert_eq!((debt.cost, debt.wait), (share, 4 * share));
        assert_eq!(debts.turn("a", now), Turn::Deferred(now + 4 * share));
        assert_eq!(debts.changes_max("a"), 2);
        // It begins anew, and what is long ago counts for nothing.
        for number in 0..200 {
            let now = now + Duration::from_millis(300) * number;
            assert_eq!(debts.charge("a".into(), light, now, true), None);
        }
        // What held nobody up is charged as soon as it does, as far as its share.
        let later = now + SUMMED_FOR * 20;
        for _ in 0..100 {
            assert_eq!(debts.charge("c".into(), light, later, false), None);
        }
        let debt = debts.charge("c".into(), light, later, true);
        assert_eq!(debt.map(|debt| debt.cost), Some(share));
        for _ in 0..100 {
            assert_eq!(debts.charge("gateway".into(), light, later, true), None);
        }
        assert!(debts.lights.is_empty() || !debts.lights.contains_key("gateway"));
    }

    #[test]
    fn no_more_namespaces_are_added_up_than_are_remembered() {
        let (mut debts, now) = (debts(20), clock::now());
        for number in 0..2 * DEBTORS_MAX {
            debts.charge(format!("n{number}").into(), bill(HEAVY_MIN / 2), now, true);
        }
        assert_eq!(debts.lights.len(), DEBTORS_MAX);
        let later = now + 2 * SUMMED_FOR;
        debts.charge("last".into(), bill(HEAVY_MIN / 2), later, true);
        assert_eq!(debts.lights.len(), 1);
    }

    #[test]
    fn nobody_waits_where_nobody_else_changes_anything() {
        let (mut debts, now) = (debts(20), clock::now());
        debts.see("b", now);
        let later = now + ACTIVE_FOR + Duration::from_secs(1);
        debts.see("a", later);
        debts.see("a", later);
        assert_eq!(debts.charge("a".into(), bill(HEAVY), later, false), None);
        assert!(debts.charge("a".into(), bill(HEAVY), later, true).is_some());
        assert!(
            debts
                .charge("b".into(), bill(HEAVY), later, false)
                .is_some()
        );
        debts.see("b", later);
        debts.see("a", later);
        assert!(
            debts
                .charge("a".into(), bill(HEAVY), later, false)
                .is_some()
        );
    }

    #[test]
    fn of_too_many_debts_the_smallest_go() {
        let (mut debts, now) = (debts(20), clock::now());
        let names: Vec<Box<str>> = (0..2 * DEBTORS_MAX)
            .map(|it| format!("n{it}").into())
            .collect();
        debts.suspect(names, bill(HEAVY), now);
        assert_eq!(debts.accounts.len(), DEBTORS_MAX);
        for number in 0..DEBTORS_MAX {
            let cost = HEAVY + Duration::from_millis(number as u64);
            debts.charge(format!("d{number}").into(), bill(cost), now, true);
        }
        assert_eq!(debts.accounts.len(), DEBTORS_MAX);
        assert!(debts.accounts.keys().all(|name| name.starts_with('d')));
        debts.charge("last".into(), bill(2 * HEAVY), now, true);
        assert_eq!(debts.accounts.len(), DEBTORS_MAX);
        assert_eq!(debts.turn("d0", now), Turn::Together);
        assert_ne!(debts.turn("last", now), Turn::Together);
    }
}
