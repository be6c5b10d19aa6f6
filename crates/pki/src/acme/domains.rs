//! The budgets of registered domains at one authority: new orders for each, whoever's they are.
//! Where namespaces wait for the same domain, they take turns.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::budget::Budget;
use super::{Millis, Suffixes};

/// The most namespaces that have turns at one domain; others wait by chance.
const TURNS_MAX: usize = 64;

/// The domains for which something was ordered of late.
#[derive(Debug)]
pub(super) struct DomainBudgets {
    /// The budget of one for which nothing was.
    whole: Budget,
    suffixes: Suffixes,
    rows: HashMap<Box<str>, DomainRow>,
    /// When all of them are whole again, at the latest.
    whole_at: Millis,
}

#[derive(Debug)]
struct DomainRow {
    budget: Budget,
    /// The namespaces that wait, as their turns come.
    turns: VecDeque<Box<str>>,
}

impl DomainBudgets {
    /// For domains that have this budget each, and are registered below these suffixes.
    pub(super) fn new(whole: Budget, suffixes: Suffixes) -> Self {
        DomainBudgets {
            whole,
            suffixes,
            rows: HashMap::new(),
            whole_at: Millis::MIN,
        }
    }

    /// The moment until which an order of a namespace has to wait for a domain, and for which; none
    /// where it does not. It has a turn from now on.
    pub(super) fn wait(
        &mut self,
        names: &[Box<str>],
        namespace: &str,
        now: Millis,
    ) -> Option<(Millis, Box<str>)> {
        let mut last: Option<(Millis, Box<str>)> = None;
        for domain in self.domains_of(names) {
            let row = self.rows.get_mut(&*domain);
            let Some(until) = row.and_then(|row| row.wait(namespace, now)) else {
                continue;
            };
            if last.as_ref().is_none_or(|(latest, _)| *latest < until) {
                last = Some((until, domain.into()));
            }
        }
        last
    }

    /// Whether an order of a namespace has to wait for none of its domains.
    pub(super) fn admits(&self, names: &[Box<str>], namespace: &str, now: Millis) -> bool {
        let domains = self.domains_of(names);
        domains.iter().all(|domain| {
            let row = self.rows.get(&**domain);
            row.is_none_or(|row| row.free_for(namespace, now) <= now)
        })
    }

    /// Counts an order of a namespace, and returns when the budgets of its domains are whole again.
    pub(super) fn spend(
        &mut self,
        names: &[Box<str>],
        namespace: &str,
        now: Millis,
    ) -> BTreeMap<Box<str>, Millis> {
        let mut spent = BTreeMap::new();
        for domain in self.domains_of(names) {
            let whole_at = self.change(&domain, now, |row| {
                // Whoever had the turn and has let it pass has none any more.
                row.turns.pop_front();
                row.turns.retain(|it| **it != *namespace);
                row.budget.spend(now);
            });
            spent.insert(domain.into(), whole_at);
        }
        spent
    }

    /// Counts an order that was placed at a moment before.
    pub(super) fn note(&mut self, names: &[Box<str>], at: Millis, now: Millis) {
        for domain in self.domains_of(names) {
            self.change(&domain, now, |row| row.budget.spend_at(at, now));
        }
    }

    /// Takes in what was kept of a domain, which may have been told by another list of suffixes.
    pub(super) fn restore(&mut self, domain: &str, whole_at: Millis, now: Millis) {
        if whole_at > now {
            let suffixes = self.suffixes.clone();
            let domain = suffixes.registered_domain(domain);
            self.change(&domain, now, |row| row.budget.restore(whole_at, now));
        }
    }

    /// Takes back what an order has spent that nobody took.
    pub(super) fn give_back(&mut self, names: &[Box<str>]) {
        for domain in self.domains_of(names) {
            if let Some(row) = self.rows.get_mut(&*domain) {
                row.budget.give_back();
            }
        }
    }

    /// The clock was set back by so much, to this moment.
    pub(super) fn turn_back(&mut self, back: Millis, now: Millis) {
        for row in self.rows.values_mut() {
            row.budget.turn_back(back, now);
        }
        if self.whole_at > now {
            self.whole_at = self.whole_at.saturating_sub(back);
        }
    }

    /// When all of them are whole again, at the latest.
    pub(super) fn whole_at(&self) -> Millis {
        self.whole_at
    }

    /// The span that their budgets are for.
    pub(super) fn span(&self) -> Millis {
        self.whole.span()
    }

    /// The registered domains of names, each once.
    fn domains_of<'a>(&self, names: &'a [Box<str>]) -> BTreeSet<Cow<'a, str>> {
        let domains = names.iter();
        domains
            .map(|name| self.suffixes.registered_domain(name))
            .collect()
    }

    /// Changes a domain, and returns when its budget is whole again.
    fn change(&mut self, domain: &str, now: Millis, change: impl FnOnce(&mut DomainRow)) -> Millis {
        if !self.rows.contains_key(domain) {
            // Whoever has all of its budget needs no row; amortised over the rows that came.
            if self.rows.len().is_power_of_two() {
                self.rows.retain(|_, row| !row.budget.is_whole(now));
            }
            let row = DomainRow {
                budget: self.whole,
                turns: VecDeque::new(),
            };
            self.rows.insert(domain.into(), row);
        }
        let Some(row) = self.rows.get_mut(domain) else {
            return now;
        };
        change(row);
        let whole_at = row.budget.whole_at();
        self.whole_at = self.whole_at.max(whole_at);
        whole_at
    }
}

impl DomainRow {
    /// The moment from which on an order of a namespace may be placed.
    fn free_for(&self, namespace: &str, now: Millis) -> Millis {
        let (free_at, second) = (self.budget.free_at(), self.budget.second_free_at());
        // One that is free is kept for whoever has the turn, until the next one is free as well.
        let is_others = self.turns.front().is_some_and(|it| **it != *namespace);
        match is_others && free_at <= now {
            true => second,
            false => free_at,
        }
    }

    /// Until when a namespace has to wait, whose turn comes later.
    fn wait(&mut self, namespace: &str, now: Millis) -> Option<Millis> {
        let until = self.free_for(namespace, now);
        if until <= now {
            return None;
        }
        if self.turns.len() < TURNS_MAX && !self.turns.iter().any(|it| **it == *namespace) {
            self.turns.push_back(namespace.into());
        }
        Some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::{DomainBudgets, TURNS_MAX};
    use crate::acme::{Budget, Suffixes};

    const NAME: [&str; 1] = ["www.shop.example"];

    #[test]
    fn namespaces_that_wait_for_one_domain_take_turns_and_one_that_waits_alone_has_all() {
        let names: [Box<str>; 1] = NAME.map(Box::from);
        let mut domains = DomainBudgets::new(Budget::new(4, 4_000), Suffixes::default());
        for _ in 0..4 {
            assert_eq!(domains.wait(&names, "many", 0), None);
            domains.spend(&names, "many", 0);
        }
        // It waits, and so does another one behind it.
        let first = domains.wait(&names, "many", 1);
        assert_eq!(first, Some((1_000, "shop.example".into())));
        assert_eq!(domains.wait(&names, "few", 2).map(|it| it.0), Some(1_000));
        assert_eq!(
            domains.wait(&names, "few", 1_000).map(|it| it.0),
            Some(2_000)
        );
        assert_eq!(domains.wait(&names, "many", 1_000), None);
        domains.spend(&names, "many", 1_000);
        assert_eq!(
            domains.wait(&names, "many", 1_000).map(|it| it.0),
            Some(2_000)
        );
        // The other's turn has come, and it is not there for a while.
        assert_eq!(
            domains.wait(&names, "many", 2_500).map(|it| it.0),
            Some(3_000)
        );
        assert_eq!(domains.wait(&names, "few", 2_500), None);
        domains.spend(&names, "few", 2_500);
        // One that lets its turn pass keeps it from others for no longer than that.
        assert_eq!(
            domains.wait(&names, "gone", 2_500).map(|it| it.0),
            Some(3_000)
        );
        domains.spend(&names, "many", 3_000);
        assert_eq!(
            domains.wait(&names, "many", 4_000).map(|it| it.0),
            Some(5_000)
        );
        assert_eq!(domains.wait(&names, "many", 5_000), None);
        domains.spend(&names, "many", 5_000);
        assert_eq!(domains.wait(&names, "many", 5_000), None, "it is alone");
    }

    #[test]
    fn customers_of_a_platform_that_is_a_suffix_have_a_budget_each() {
        let suffixes = Suffixes::parse("app.example").unwrap();
        let names = ["x.one.app.example", "y.one.app.example", "two.app.example"];
        let names: [[Box<str>; 1]; 3] = names.map(|name| [name.into()]);
        for (suffixes, waits) in [(suffixes, [true, false]), (Suffixes::default(), [true; 2])] {
            let mut domains = DomainBudgets::new(Budget::new(1, 1_000), suffixes);
            domains.spend(&names[0], "shop", 0);
            let found = [&names[1], &names[2]].map(|it| domains.wait(it, "shop", 1).is_some());
            assert_eq!(found, waits);
        }
    }

    #[test]
    fn what_was_kept_of_a_domain_counts_where_another_list_tells_it() {
        let names: [[Box<str>; 1]; 2] = [["x.one.app.example".into()], ["a.shop.example".into()]];
        let waits = |suffixes: Suffixes| {
            let mut domains = DomainBudgets::new(Budget::new(1, 1_000), suffixes);
            domains.restore("one.app.example", 1_000, 1);
            domains.restore("shop.example", 1_000, 1);
            names.each_ref().map(|it| {
                let is_admitted = domains.admits(it, "shop", 1);
                assert_eq!(domains.wait(it, "shop", 1).is_none(), is_admitted);
                !is_admitted
            })
        };
        assert_eq!(waits(Suffixes::parse("app.example").unwrap()), [true; 2]);
        // The list is gone, so that the platform is one domain.
        assert_eq!(waits(Suffixes::default()), [true; 2]);
    }

    #[test]
    fn of_namespaces_without_end_few_have_turns_and_domains_that_are_whole_are_forgotten() {
        let names: [Box<str>; 1] = NAME.map(Box::from);
        let mut domains = DomainBudgets::new(Budget::new(1, 1_000), Suffixes::default());
        domains.spend(&names, "shop", 0);
        for number in 0..10_000 {
            domains.wait(&names, &format!("n{number}"), 0);
        }
        assert_eq!(domains.rows["shop.example"].turns.len(), TURNS_MAX);
        for number in 0..10_000 {
            let name: [Box<str>; 1] = [format!("{number}.example").into()];
            domains.spend(&name, "shop", number * 1_000);
        }
        assert!(domains.rows.len() <= 2, "{}", domains.rows.len());
        assert_eq!(domains.whole_at(), 9_999_000 + 1_000);
    }
}
