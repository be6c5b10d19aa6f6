//! Regexes that people write: which of them hold, and how many a host may have.
//!
//! The bounds are the same for every dialect.

use std::collections::BTreeSet;

use myriad_model::{PathMatch, PathRewrite, Policy, Test, ValueMatch};
use regex_automata::PatternID;
use regex_automata::nfa::thompson::{Compiler, Config, NFA};
use regex_syntax::hir::{Hir, HirKind};

/// The most memory in bytes that one regex may take when it is compiled.
pub const BYTES_MAX: usize = 256 << 10;

/// The most different regexes of one host, unless the settings say otherwise.
pub const PER_HOST_MAX: usize = 256;

/// The most memory in bytes that a regex takes beside its text, instructions and table.
const FIXED_BYTES: u64 = 512;

/// The most instructions of a regex that has a table, and the largest table in bytes.
const TABLE_INSTRUCTIONS_MAX: u64 = 256;
const TABLE_BYTES_MAX: u64 = 8 << 10;

/// The different regexes of one host so far.
pub struct Regexes {
    known: BTreeSet<Box<str>>,
    max: usize,
}

/// More regexes than a host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany(pub usize);

impl Regexes {
    /// None so far.
    pub fn new(max: usize) -> Self {
        let known = BTreeSet::new();
        Regexes { known, max }
    }

    /// Counts one that is in a field.
    ///
    /// # Errors
    /// It is one too many, and none of those that hold.
    pub fn admit(&mut self, pattern: &str) -> Result<(), TooMany> {
        if self.known.contains(pattern) {
            return Ok(());
        }
        if self.known.len() >= self.max {
            return Err(TooMany(self.max));
        }
        self.known.insert(pattern.into());
        Ok(())
    }

    /// Counts all that a route would have.
    ///
    /// # Errors
    /// One of them is too many.
    pub fn admit_all(
        &mut self,
        path: &PathMatch,
        conditions: &[ValueMatch],
        policy: &Policy,
    ) -> Result<(), TooMany> {
        if let PathMatch::Regex(pattern) = path {
            self.admit(pattern)?;
        }
        for condition in conditions {
            if let Test::Regex(pattern) = &condition.test {
                self.admit(pattern)?;
            }
        }
        let rewrite = policy.rewrite.as_ref();
        if let Some(PathRewrite::Substitution { regex, .. }) =
            rewrite.and_then(|rewrite| rewrite.path.as_ref())
        {
            self.admit(regex)?;
        }
        let cors = policy.cors.iter();
        let mut origins = cors.flat_map(|cors| &cors.origin_patterns);
        origins.try_for_each(|pattern| self.admit(pattern))
    }
}

/// The most memory in bytes that a proxy takes for a regex, known without compiling it: eight for
/// each instruction, and a small table over ASCII where there are few. None where it is no regex.
pub fn bytes(pattern: &str) -> Option<u64> {
    let instructions = instructions(&regex_syntax::parse(pattern).ok()?);
    let table = match instructions <= TABLE_INSTRUCTIONS_MAX {
        true => TABLE_BYTES_MAX,
        false => 0,
    };
    let fixed = FIXED_BYTES.saturating_add(pattern.len() as u64 + table);
    Some(instructions.saturating_mul(8).saturating_add(fixed))
}

/// The instructions of a regex, of which a repetition has as many as it has turns.
fn instructions(hir: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(instructions).fold(0, u64::saturating_add);
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Capture(capture) => instructions(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) => sum(parts),
        HirKind::Alternation(parts) => sum(parts).saturating_add(parts.len() as u64),
        HirKind::Repetition(repetition) => {
            let turns = u64::from(repetition.max.unwrap_or(repetition.min).max(1));
            let turn = instructions(&repetition.sub).saturating_add(1);
            turn.saturating_mul(turns).saturating_add(1)
        }
    }
}

/// Whether the proxy can compile a regex.
pub fn compiles(pattern: &str) -> bool {
    compile(pattern).is_some()
}

/// The number of groups of a regex; none where the proxy cannot compile it.
pub fn groups(pattern: &str) -> Option<usize> {
    let groups = compile(pattern)?.group_info().group_len(PatternID::ZERO);
    Some(groups.saturating_sub(1))
}

fn compile(pattern: &str) -> Option<NFA> {
    let config = Config::new().nfa_size_limit(Some(BYTES_MAX));
    Compiler::new().configure(config).build(pattern).ok()
}

#[cfg(test)]
mod tests {
    use super::{Regexes, TooMany, bytes, compiles, groups};

    #[test]
    fn what_needs_backtracking_is_no_regex() {
        assert!(compiles("/v[0-9]+/.*"));
        assert!(!compiles("(?=a)") && !compiles("(a)\\1") && !compiles("("));
        assert!(!compiles("/(\\w{500}){500}"));
        assert_eq!(groups("/(a)(?:b)(c)"), Some(2));
    }

    #[test]
    fn what_a_regex_takes_is_known_without_compiling_it() {
        let instructions = |pattern| super::instructions(&regex_syntax::parse(pattern).unwrap());
        assert_eq!(instructions("abc"), 3);
        assert_eq!(instructions("(a)|b[0-9]"), 3 + 2 + 2);
        assert_eq!(instructions("(?:ab){3}"), 3 * 3 + 1);
        // Many times many is much, and no overflow.
        assert!(instructions("(((a{1000}){1000}){1000}){1000}") > 1 << 39);
        assert_eq!(bytes("("), None);
        assert!(bytes("(a{1,200}){1,3}b").unwrap() < 16 << 10);
    }

    #[test]
    fn equal_regexes_count_once() {
        let mut regexes = Regexes::new(2);
        for pattern in ["a", "b", "a", "b"] {
            assert_eq!(regexes.admit(pattern), Ok(()));
        }
        assert_eq!(regexes.admit("c"), Err(TooMany(2)));
        assert_eq!(regexes.admit("a"), Ok(()));
    }
}
