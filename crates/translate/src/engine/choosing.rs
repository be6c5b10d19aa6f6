//! Selectors that choose workloads by all of their labels, so that a workload that changes concerns
//! those which choose it, and not all that ask for one of its labels.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use myriad_api::Object;
use myriad_api::istio::Labels;

use super::Engine;
use crate::store::{Fact, FactHasher, Stored};

/// A namespace, and a label there: the first one of selectors.
type First = (Box<str>, Box<str>, Box<str>);

/// All selectors of objects that choose workloads of their namespaces.
#[derive(Default)]
pub struct Choosing(BTreeMap<First, Row>);

/// The selectors with one first label.
#[derive(Default)]
struct Row {
    /// How many objects have each.
    selectors: HashMap<Labels, usize>,
    /// How many workloads have that label.
    looked_at: u64,
}

/// The workloads of a namespace that have all of these labels.
#[derive(Hash)]
pub(crate) struct ChosenFact<'a>(pub &'a str, pub &'a Labels);

impl Fact for ChosenFact<'_> {
    const FAMILY: u8 = 8;
}

/// How many workloads of a namespace have a label, as [`Choosing::told`] tells it.
#[derive(Hash)]
pub(crate) struct LookedAtFact<'a>(pub &'a str, pub &'a str, pub &'a str);

impl Fact for LookedAtFact<'_> {
    const FAMILY: u8 = 9;
}

impl Choosing {
    /// How many workloads of a namespace have the first label of a selector that an object has,
    /// rounded up to a power of two: who reads it runs again when they are twice as many, and not
    /// for each that comes.
    pub fn told(&self, namespace: &str, (key, value): (&str, &str)) -> u64 {
        let row = self.0.get(&first(namespace, key, value));
        row.map_or(0, |row| told(row.looked_at))
    }

    /// Notes that an object of a namespace has a selector; `count` tells how many workloads have
    /// its first label.
    fn insert(&mut self, namespace: &str, selector: &Labels, count: impl FnOnce() -> usize) {
        let Some((key, value)) = selector.first() else {
            return;
        };
        let row = self.0.entry(first(namespace, key, value)).or_default();
        if row.selectors.is_empty() {
            row.looked_at = count() as u64;
        }
        *row.selectors.entry(selector.clone()).or_default() += 1;
    }

    /// Notes that one has it no more.
    fn remove(&mut self, namespace: &str, selector: &Labels) {
        let Some((key, value)) = selector.first() else {
            return;
        };
        let key = first(namespace, key, value);
        let Some(row) = self.0.get_mut(&key) else {
            return;
        };
        if let Some(count) = row.selectors.get_mut(selector) {
            *count -= 1;
            if *count == 0 {
                row.selectors.remove(selector);
            }
        }
        if row.selectors.is_empty() {
            self.0.remove(&key);
        }
    }

    /// Adds what differs for those who choose a workload of a namespace, by its labels before and
    /// after.
    fn replace(
        &mut self,
        hasher: &FactHasher,
        namespace: &str,
        (old, new): (Option<&Labels>, Option<&Labels>),
        facts: &mut Vec<u64>,
    ) {
        if self.0.is_empty() {
            return;
        }
        let has = |labels: Option<&Labels>, key: &str, value: &str| {
            let own = labels.and_then(|labels| labels.get(key));
            own.is_some_and(|own| **own == *value)
        };
        for labels in [old, new].into_iter().flatten() {
            for (key, value) in labels.iter() {
                let Some(row) = self.0.get_mut(&first(namespace, key, value)) else {
                    continue;
                };
                let chosen = row.selectors.keys().filter(|selector| {
                    let mut wanted = selector.iter();
                    wanted.all(|(key, value)| has(Some(labels), key, value))
                });
                facts.extend(chosen.map(|it| hasher.fact(ChosenFact(namespace, it))));
                let (was, is) = (has(old, key, value), has(new, key, value));
                if was == is {
                    continue;
                }
                let before = told(row.looked_at);
                row.looked_at = match is {
                    true => row.looked_at + 1,
                    false => row.looked_at.saturating_sub(1),
                };
                if told(row.looked_at) != before {
                    facts.push(hasher.fact(LookedAtFact(namespace, key, value)));
                }
            }
        }
    }
}

impl Engine {
    /// Notes which workloads a changed object chooses, and adds what differs for those who choose
    /// it.
    pub(super) fn note_chosen(
        &mut self,
        (before, after): (Option<&Object>, Option<&Object>),
        facts: &mut Vec<u64>,
    ) {
        let rules = &self.rules.choice;
        if let Some(object) = after
            && let Some(selector) = (rules.selector)(object)
        {
            let namespace = object.key().namespace();
            let (objects, hasher) = (&self.objects, &self.hasher);
            let count = || (rules.count)(Stored::new(objects, hasher), namespace, selector);
            self.choosing.insert(namespace, selector, count);
        }
        if let Some(object) = before
            && let Some(selector) = (rules.selector)(object)
        {
            let namespace = object.key().namespace();
            self.choosing.remove(namespace, selector);
        }
        let [old, new] = [before, after].map(|object| object.and_then(rules.labels));
        if let Some(object) = after.or(before) {
            let namespace = object.key().namespace();
            self.choosing
                .replace(&self.hasher, namespace, (old, new), facts);
        }
    }
}

fn first(namespace: &str, key: &str, value: &str) -> First {
    (namespace.into(), key.into(), value.into())
}

fn told(count: u64) -> u64 {
    match count {
        0 => 0,
        count => count.checked_next_power_of_two().unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::Labels;

    use super::{Choosing, ChosenFact, LookedAtFact};
    use crate::store::FactHasher;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        pairs.collect()
    }

    #[test]
    fn a_workload_concerns_those_who_choose_it_before_or_after() {
        let hasher = FactHasher::new();
        let mut choosing = Choosing::default();
        let pay = labels(&[("app", "shop"), ("name", "pay")]);
        let read = labels(&[("app", "shop"), ("name", "read")]);
        for selector in [&pay, &read, &read] {
            choosing.insert("a", selector, || 4);
        }
        let mut replace = |old: Option<&Labels>, new: Option<&Labels>| {
            let mut facts = Vec::new();
            choosing.replace(&hasher, "a", (old, new), &mut facts);
            facts.sort_unstable();
            facts.dedup();
            facts
        };
        let chosen = |selector: &Labels| hasher.fact(ChosenFact("a", selector));
        let looked_at = hasher.fact(LookedAtFact("a", "app", "shop"));
        let sorted = |mut facts: Vec<u64>| {
            facts.sort_unstable();
            facts
        };
        assert_eq!(replace(Some(&pay), Some(&pay)), [chosen(&pay)]);
        assert_eq!(
            replace(Some(&pay), Some(&read)),
            sorted(vec![chosen(&pay), chosen(&read)])
        );
        let other = labels(&[("app", "shop"), ("name", "other")]);
        assert_eq!(replace(None, Some(&other)), [looked_at], "a fifth");
        assert!(replace(None, Some(&labels(&[("name", "pay")]))).is_empty());
        assert_eq!(replace(Some(&other), None), [looked_at]);
        assert_eq!(choosing.told("a", ("app", "shop")), 4);
        choosing.remove("a", &read);
        choosing.remove("a", &pay);
        assert_eq!(choosing.told("a", ("app", "shop")), 4);
        choosing.remove("a", &read);
        assert!(choosing.0.is_empty());
    }
}
