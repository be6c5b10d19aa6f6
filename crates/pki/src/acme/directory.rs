//! How it is with one authority: what it may still be asked for, and whether it answers.

use super::Millis;
use super::budget::Budget;
use super::domains::DomainBudgets;
use super::open::OpenOrders;
use super::spent::SpentBudget;
use super::suffixes::Suffixes;
use super::turns::{Line, Places, Waiting};

/// One authority.
#[derive(Debug)]
pub(super) struct AuthorityState {
    /// Orders that are to be placed.
    pub(super) placing: Line,
    /// Steps of orders that are placed.
    pub(super) steps: Places,
    /// Orders that it may still be asked for.
    pub(super) budget: Budget,
    /// The part of them that each registered domain may have.
    pub(super) domains: DomainBudgets,
    /// Until when orders are counted in the budgets by what was kept of those.
    pub(super) noted_at: Millis,
    /// Orders that are placed and not over.
    pub(super) open: OpenOrders,
    /// How often it was in trouble, one time behind the other.
    pub(super) troubles: u32,
    /// When it may be asked again.
    pub(super) not_before: Millis,
    /// How many issuers name it, each as often as it does.
    pub(super) named: usize,
    /// Whether its last place was for a step of an order that is placed.
    was_step: bool,
    /// How it stood when it was last arranged among the others.
    pub(super) standing: Standing,
}

/// How an authority stands among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has work under way, or an issuer that names it.
    #[default]
    Kept,
    /// Something waits that it can be asked for at this moment.
    Ready(Millis),
    /// Nobody names it and nothing is under way, so that it can be forgotten at this moment.
    Left(Millis),
}

impl AuthorityState {
    /// One that was never asked for anything, with its budget and that of a domain which is
    /// registered below these suffixes.
    pub(super) fn new(
        steps_max: usize,
        (budget, of_domain): (Budget, Budget),
        suffixes: Suffixes,
    ) -> Self {
        AuthorityState {
            placing: Line::default(),
            steps: Places::new(steps_max),
            budget,
            domains: DomainBudgets::new(of_domain, suffixes),
            noted_at: Millis::MIN,
            open: OpenOrders::default(),
            troubles: 0,
            not_before: Millis::MIN,
            named: 0,
            was_step: false,
            standing: Standing::default(),
        }
    }

    /// The next certificate that there is a place for, and whether it is one whose order is to be
    /// placed. Those have every other turn, however many steps others wait for.
    pub(super) fn pop(&mut self, open_max: usize, now: Millis) -> Option<(Waiting, bool)> {
        let step = |it: &mut Self| it.steps.pop().map(|waiting| (waiting, false));
        let place = |it: &mut Self| Some((it.pop_placing(open_max, now)?, true));
        let popped = match self.was_step {
            true => place(self).or_else(|| step(self)),
            false => step(self).or_else(|| place(self)),
        };
        self.was_step = popped.as_ref().is_some_and(|(_, is_placing)| !is_placing);
        popped
    }

    /// Counts an order that is placed now, for a certificate of a namespace; in the budgets of its
    /// domains where it counts there. Returns what is spent with it.
    pub(super) fn spend(
        &mut self,
        (names, is_counted): (&[Box<str>], bool),
        namespace: &str,
        now: Millis,
    ) -> SpentBudget {
        self.budget.spend(now);
        let counted = match is_counted {
            true => names,
            false => &[],
        };
        self.count(counted, namespace, now)
    }

    /// Counts an order in the budgets of its domains alone. Returns what is spent with it.
    pub(super) fn count(
        &mut self,
        names: &[Box<str>],
        namespace: &str,
        now: Millis,
    ) -> SpentBudget {
        SpentBudget {
            directory: Box::default(),
            noted_at: now,
            whole_at: self.budget.whole_at(),
            domains: self.domains.spend(names, namespace, now),
        }
    }

    /// Counts an order that was placed before, where that is not too long ago to matter.
    pub(super) fn note(&mut self, names: &[Box<str>], at: Millis, now: Millis) {
        // A clock that was fast has said so of one in the future.
        let at = at.min(now);
        let is_recent = |span: Millis| now.saturating_sub(span) <= at;
        if is_recent(self.budget.span()) {
            self.budget.spend_at(at, now);
        }
        if is_recent(self.domains.span()) {
            self.domains.note(names, at, now);
        }
    }

    /// Takes in what was kept of its budgets.
    pub(super) fn restore(&mut self, spent: &SpentBudget, now: Millis) {
        self.noted_at = self.noted_at.max(spent.noted_at.min(now));
        self.budget.restore(spent.whole_at, now);
        for (domain, whole_at) in &spent.domains {
            self.domains.restore(domain, *whole_at, now);
        }
    }

    /// The clock was set back by so much, to this moment.
    pub(super) fn turn_back(&mut self, back: Millis, now: Millis) {
        self.budget.turn_back(back, now);
        self.domains.turn_back(back, now);
        if self.not_before > now {
            self.not_before = self.not_before.saturating_sub(back);
        }
    }

    /// How it stands now.
    pub(super) fn standing_now(&self, open_max: usize) -> Standing {
        let is_waited_for = !self.placing.is_empty() || self.steps.is_waited_for();
        let is_at_work = is_waited_for || self.open.count() > 0 || self.steps.is_taken();
        match self.due(open_max) {
            Some(due) => Standing::Ready(due),
            None if self.named > 0 || is_at_work => Standing::Kept,
            None => {
                let whole_at = self.budget.whole_at().max(self.domains.whole_at());
                Standing::Left(whole_at.max(self.not_before))
            }
        }
    }

    /// The next order to be placed, where it may be asked for one.
    fn pop_placing(&mut self, open_max: usize, now: Millis) -> Option<Waiting> {
        if self.budget.free_at() > now || self.is_full(open_max) {
            return None;
        }
        let (steps, open) = (&self.steps, &self.open);
        // Few hold so much of either that they may have none.
        let admits =
            |_: usize, namespace: &str| steps.admits(namespace) && open.admits(namespace, open_max);
        self.placing.pop(steps.may_have_failed(), &admits)
    }

    /// Whether it can be asked for no order, whoever's it is.
    fn is_full(&self, open_max: usize) -> bool {
        self.steps.is_full() || self.open.count() >= open_max
    }

    /// When it can next be asked for something though nothing else happens before.
    fn due(&self, open_max: usize) -> Option<Millis> {
        let may_have_failed = self.steps.may_have_failed();
        let admits = |_: usize, namespace: &str| {
            self.steps.admits(namespace) && self.open.admits(namespace, open_max)
        };
        let can_place = !self.is_full(open_max) && self.placing.has_next(may_have_failed, &admits);
        let place = can_place.then(|| self.budget.free_at());
        let step = self.steps.has_next().then_some(Millis::MIN);
        let first = place.into_iter().chain(step).min()?;
        Some(first.max(self.not_before))
    }
}
