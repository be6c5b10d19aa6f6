//! The authorities that orders are placed at, or were of late: which can be asked for something,
//! and which can be forgotten.
//!
//! - Whoever looks for the next step finds an authority that has one by its moment, however many
//!   there are.
//! - One that no issuer names any more stays while anything is under way there and until its budget
//!   is whole again: an issuer that goes and comes back has had what it has had. Of those that stay
//!   for their budgets alone there are at most [`LEFT_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::acme::budget::Budget;
use crate::acme::directory::{AuthorityState, Standing};
use crate::acme::{AcmeIssuer, Millis, Suffixes};

/// The most authorities that are remembered for their budgets alone; those that are whole first go
/// first.
pub(super) const LEFT_MAX: usize = 1_024;

/// The authorities, by the URLs of their directories.
pub(super) struct Authorities {
    /// Requests to one at a time.
    steps_max: usize,
    /// Orders of one that are placed and not over.
    open_max: usize,
    /// The whole budget of one, and that of a registered domain there.
    budgets: (Budget, Budget),
    /// The suffixes below which names are registered.
    pub(super) suffixes: Suffixes,
    rows: BTreeMap<Arc<str>, AuthorityState>,
    /// Authorities that something waits for, by when they can be asked.
    ready: BTreeSet<(Millis, Arc<str>)>,
    /// Authorities that can be forgotten, by when.
    left: BTreeSet<(Millis, Arc<str>)>,
}

impl Authorities {
    /// A list without authorities, each of which may have so many requests at a time, so many
    /// orders, and these budgets.
    pub(super) fn new((steps_max, open_max): (usize, usize), budgets: (Budget, Budget)) -> Self {
        Authorities {
            steps_max,
            open_max,
            budgets,
            suffixes: Suffixes::default(),
            rows: BTreeMap::new(),
            ready: BTreeSet::new(),
            left: BTreeSet::new(),
        }
    }

    /// One of them, if it is known.
    pub(super) fn get(&self, url: &str) -> Option<&AuthorityState> {
        self.rows.get(url)
    }

    /// Changes one of them, which begins as one that was never asked for anything.
    pub(super) fn change<R>(
        &mut self,
        url: &str,
        now: Millis,
        change: impl FnOnce(&mut AuthorityState) -> R,
    ) -> R {
        let known = self.rows.get_key_value(url).map(|(url, _)| url.clone());
        let url = known.unwrap_or_else(|| url.into());
        let (steps_max, budgets) = (self.steps_max, self.budgets);
        let row = self.rows.entry(url.clone());
        let begin = || AuthorityState::new(steps_max, budgets, self.suffixes.clone());
        let row = row.or_insert_with(begin);
        let result = change(row);
        let standing = row.standing_now(self.open_max);
        let before = std::mem::replace(&mut row.standing, standing);
        if before != standing {
            match before {
                Standing::Kept => false,
                Standing::Ready(due) => self.ready.remove(&(due, url.clone())),
                Standing::Left(whole_at) => self.left.remove(&(whole_at, url.clone())),
            };
            match standing {
                Standing::Kept => false,
                Standing::Ready(due) => self.ready.insert((due, url)),
                Standing::Left(whole_at) => self.left.insert((whole_at, url)),
            };
        }
        self.forget(now);
        result
    }

    /// Counts an issuer in the place of the one before.
    pub(super) fn name(
        &mut self,
        before: Option<&AcmeIssuer>,
        after: Option<&AcmeIssuer>,
        now: Millis,
    ) {
        for directory in after.iter().flat_map(|issuer| &issuer.directories) {
            self.change(&directory.url, now, |it| it.named += 1);
        }
        for directory in before.iter().flat_map(|issuer| &issuer.directories) {
            let leave = |it: &mut AuthorityState| it.named = it.named.saturating_sub(1);
            self.change(&directory.url, now, leave);
        }
    }

    /// One that can be asked for something now.
    pub(super) fn ready(&self, now: Millis) -> Option<Arc<str>> {
        let (due, url) = self.ready.first()?;
        (*due <= now).then(|| url.clone())
    }

    /// When the next one can be asked for something though nothing else happens before.
    pub(super) fn due(&self) -> Option<Millis> {
        self.ready.first().map(|(due, _)| *due)
    }

    /// The clock was set back by so much, to this moment.
    pub(super) fn turn_back(&mut self, back: Millis, now: Millis) {
        let urls: Vec<Arc<str>> = self.rows.keys().cloned().collect();
        for url in urls {
            self.change(&url, now, |it| it.turn_back(back, now));
        }
    }

    /// Forgets those whose budgets are whole, and those that are too many.
    pub(super) fn forget(&mut self, now: Millis) {
        while let Some((whole_at, _)) = self.left.first() {
            if *whole_at > now && self.left.len() <= LEFT_MAX {
                return;
            }
            if let Some((_, url)) = self.left.pop_first() {
                self.rows.remove(&url);
            }
        }
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &AuthorityState> {
        self.rows.values()
    }
}
