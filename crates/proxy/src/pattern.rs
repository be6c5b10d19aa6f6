//! Regexes, matched within bounds of memory and of work.
//!
//! A pattern is compiled once per process, whoever has it. It matches with the scratch memory of
//! its thread, which is bounded whatever is matched, and pays for each step from the budget of the
//! request. No structure grows with the number of patterns times their states: patterns are tried
//! one by one, and a hint says which need not be tried at all.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod compile;
mod hint;
mod scratch;
mod simulate;
mod store;
mod table;

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use myriad_base::clock;
use myriad_base::log::suppressed::Topic;
use myriad_model::PathRewrite;

use compile::Program;
pub use hint::Hint;
pub use scratch::{Candidates, SCRATCH_BYTES_MAX, memory_usage as scratch_bytes, with_candidates};
pub use store::{PatternTotals, held, register};
use table::DfaTable;

/// The most instructions of one compiled pattern. Translation refuses what is larger, so this only
/// protects against a translation with other limits.
pub const INSTRUCTIONS_MAX: usize = 1 << 15;

/// The most steps that a request may spend on regexes, by states visited, one byte or character at
/// a time, and on conditions, by what they look at.
pub const STEPS_MAX: u32 = 1 << 17;

/// The groups that a template may refer to, and the whole match.
pub const GROUPS: usize = PathRewrite::GROUPS_MAX + 1;

/// A regex is not valid, or too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regex {0:?} is not valid or too large")]
pub struct BadRegex(pub Box<str>);

/// The shortest time between two lines of the log about hosts that take too many steps, in seconds.
const LOG_INTERVAL: i64 = 10;

/// The steps that a request has left for regexes and conditions. Once it is spent, whatever is
/// asked of a pattern says no, and nothing that was decided with it may be obeyed.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Cell<u32>,
    /// The number of what is tried, so that a log can name it.
    tried: Cell<u32>,
}

/// The beginnings and ends in bytes of a match's groups. The first is the whole match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups([Option<(u32, u32)>; GROUPS]);

/// A compiled regex.
pub struct Pattern {
    program: Program,
    /// A table that is quicker for text in ASCII, where it is small.
    table: Option<Box<DfaTable>>,
    hint: Hint,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            left: Cell::new(STEPS_MAX),
            tried: Cell::new(0),
        }
    }
}

impl Budget {
    /// Takes steps; false where there are not enough left, and then there are none any more.
    pub fn take(&self, steps: usize) -> bool {
        let left = u32::try_from(steps).map_or(0, |steps| self.left.get().saturating_sub(steps));
        self.left.set(left);
        left > 0
    }

    /// Leaves nothing.
    pub fn spend(&self) {
        self.left.set(0);
    }

    /// Notes the number of what is tried next.
    pub fn note(&self, number: u32) {
        self.tried.set(number);
    }

    /// The number of what was tried last.
    pub fn tried(&self) -> u32 {
        self.tried.get()
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// The steps that were taken so far.
    pub fn taken(&self) -> u32 {
        STEPS_MAX - self.left.get()
    }
}

/// Says in the log, now and then, which route was tried when the steps of a request were spent.
pub fn tell_spent(host: &dyn Display, route: &dyn Display) {
    static SAID: AtomicI64 = AtomicI64::new(i64::MIN);
    let now = clock::unix_seconds();
    let is_due = |said: i64| now.saturating_sub(said) >= LOG_INTERVAL || now < said;
    let next = SAID.fetch_update(Relaxed, Relaxed, |said| is_due(said).then_some(now));
    if next.is_err() {
        Topic::Regex.suppress();
        return;
    }
    tracing::warn!(
        %host,
        %route,
        steps = STEPS_MAX,
        "the regexes and conditions of a host take more steps than a request may; \
         write simpler or fewer ones"
    );
}

impl Groups {
    /// The bytes of a group; `None` where it took no part.
    pub fn get(&self, group: usize) -> Option<std::ops::Range<usize>> {
        let (start, end) = (*self.0.get(group)?)?;
        Some(start as usize..end as usize)
    }
}

impl Pattern {
    /// Compiles a regex, or finds it where somebody has it already.
    ///
    /// # Errors
    /// When it is not valid, or too large.
    pub fn new(pattern: &str) -> Result<Arc<Pattern>, BadRegex> {
        store::find_or_compile(pattern)
    }

    /// Compiles a regex that has to match a whole value.
    ///
    /// # Errors
    /// When it is not valid, or too large.
    pub fn whole(pattern: &str) -> Result<Arc<Pattern>, BadRegex> {
        let whole = format!("(?:{pattern})\\z");
        Pattern::new(&whole).map_err(|_| BadRegex(pattern.into()))
    }

    /// Compiles a regex that matches wherever it does.
    ///
    /// # Errors
    /// When it is not valid, or too large.
    pub fn anywhere(pattern: &str) -> Result<Arc<Pattern>, BadRegex> {
        let anywhere = format!("(?s:.)*?(?:{pattern})");
        Pattern::new(&anywhere).map_err(|_| BadRegex(pattern.into()))
    }

    /// Whether it matches at the start of a text.
    pub fn is_match(&self, text: &[u8], budget: &Budget) -> bool {
        self.end(text, true, budget).is_some()
    }

    /// The end in bytes of the match at the start of a text.
    pub fn match_end(&self, text: &[u8], budget: &Budget) -> Option<usize> {
        self.end(text, false, budget)
    }

    /// The groups of the match at the start of a text.
    pub fn groups(&self, text: &[u8], budget: &Budget) -> Option<Groups> {
        simulate::groups(&self.program, text, 0, true, budget)
    }

    /// The groups of the first match from a place on.
    pub fn find(&self, text: &[u8], from: usize, budget: &Budget) -> Option<Groups> {
        simulate::groups(&self.program, text, from, false, budget)
    }

    /// The parts that a text must have, for the pattern to be tried at all.
    pub fn hint(&self) -> &Hint {
        &self.hint
    }

    /// The memory that it takes in bytes, without scratch.
    pub fn memory_usage(&self) -> usize {
        self.bytes
    }

    fn end(&self, text: &[u8], is_any: bool, budget: &Budget) -> Option<usize> {
        match &self.table {
            Some(table) if text.is_ascii() => table.match_end(text, is_any, budget),
            _ => simulate::match_end(&self.program, text, is_any, budget),
        }
    }
}

#[cfg(test)]
mod tests;
