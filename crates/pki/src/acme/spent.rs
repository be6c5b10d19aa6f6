//! The budgets of an authority as they are kept over a restart: by whoever orders, and never in a
//! place where others write.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Millis;

/// The most registered domains of which it is kept how much they have spent: those that have spent
/// the most.
const KEPT_DOMAINS_MAX: usize = 512;

/// The spent part of the budgets of an authority, which grows with each order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentBudget {
    /// The directory of the authority.
    pub directory: Box<str>,
    /// When the last order was placed that is counted.
    pub noted_at: Millis,
    /// When the budget of orders is whole again.
    pub whole_at: Millis,
    /// When those of registered domains are.
    #[serde(default)]
    pub domains: BTreeMap<Box<str>, Millis>,
}

impl SpentBudget {
    /// Takes in what was spent by further orders at the authority, in whatever order it comes.
    /// Whether it is more than before.
    pub fn merge(&mut self, more: &SpentBudget) -> bool {
        let before = self.clone();
        self.noted_at = self.noted_at.max(more.noted_at);
        self.whole_at = self.whole_at.max(more.whole_at);
        for (domain, whole_at) in &more.domains {
            let known = self.domains.entry(domain.clone()).or_insert(*whole_at);
            *known = (*known).max(*whole_at);
        }
        let noted_at = self.noted_at;
        self.domains.retain(|_, whole_at| *whole_at > noted_at);
        self.forget_least();
        *self != before
    }

    /// Whether all budgets are whole again.
    pub fn is_whole(&self, now: Millis) -> bool {
        self.whole_at <= now && self.domains.values().all(|whole_at| *whole_at <= now)
    }

    /// The text that is kept.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The budgets that are kept in a text.
    ///
    /// # Errors
    /// It is of another form.
    pub fn from_text(text: &str) -> Result<SpentBudget, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Forgets the domains that have spent the least, where there are too many.
    fn forget_least(&mut self) {
        let excess = self.domains.len().saturating_sub(KEPT_DOMAINS_MAX);
        if excess == 0 {
            return;
        }
        let by_spent = self.domains.iter().map(|(name, at)| (*at, name.clone()));
        let mut by_spent: Vec<(Millis, Box<str>)> = by_spent.collect();
        by_spent.sort_unstable();
        for (_, domain) in by_spent.iter().take(excess) {
            self.domains.remove(domain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_DOMAINS_MAX, SpentBudget};
    use crate::acme::Millis;

    fn spent(noted_at: Millis, domains: &[(&str, Millis)]) -> SpentBudget {
        let domains = domains.iter().map(|(name, at)| (Box::from(*name), *at));
        SpentBudget {
            directory: "https://ca.example/dir".into(),
            noted_at,
            whole_at: noted_at + 10,
            domains: domains.collect(),
        }
    }

    #[test]
    fn what_orders_have_spent_is_the_same_in_whatever_order_it_comes() {
        let parts = [
            spent(1, &[("a.example", 50)]),
            spent(2, &[("a.example", 60), ("b.example", 70)]),
            spent(3, &[("c.example", 40)]),
        ];
        let mut one = parts[0].clone();
        assert!(one.merge(&parts[1]) && one.merge(&parts[2]));
        assert!(!one.merge(&parts[1]), "it is known");
        let mut other = parts[2].clone();
        assert!(other.merge(&parts[1]));
        assert!(!other.merge(&parts[0]));
        assert_eq!(one, other);
        let kept = [("a.example", 60), ("b.example", 70), ("c.example", 40)];
        assert_eq!(one, spent(3, &kept));
        assert_eq!(SpentBudget::from_text(&one.text()).unwrap(), one);
        assert!(SpentBudget::from_text("{}").is_err());
        assert!(!one.is_whole(69) && one.is_whole(70));
    }

    #[test]
    fn of_domains_without_end_those_are_kept_that_have_spent_most() {
        let mut kept = spent(0, &[]);
        for number in 0..2_000 {
            kept.merge(&spent(1, &[(&format!("{number}.example"), 100 + number)]));
        }
        assert_eq!(kept.domains.len(), KEPT_DOMAINS_MAX);
        assert!(kept.domains.values().all(|at| *at >= 100 + 2_000 - 512));
        // Those that are whole again are the first to go.
        kept.merge(&spent(5_000, &[]));
        assert!(kept.domains.is_empty());
        assert!(kept.text().len() < 200);
    }
}
