//! Regexes that people write: which of them hold, and how many a host may have.
//!
//! The bounds are the same for every dialect.

mod known;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::LazyLock;

use known::Known;
use myriad_model::{
    PathMatch, PathRewrite, Policy, READ_STEPS_MAX, RegexFault, RegexText, Test, ValueMatch,
};
use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind, Repetition};

/// The most memory in bytes that the instructions of one regex may take when it is compiled.
pub(crate) const BYTES_MAX: usize = 256 << 10;

/// The most instructions of a regex: some fewer than a proxy takes, for what it puts around a text.
const INSTRUCTIONS_MAX: u64 = BYTES_MAX as u64 / INSTRUCTION_BYTES - 64;

/// The longest text of a regex in bytes. Reading a longer one takes memory before it is known how
/// large it is: two letters may stand for a class of 6 KiB.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;

/// The most different regexes of one host, unless the settings say otherwise.
pub(crate) const PER_HOST_MAX: usize = 256;

/// The most memory in bytes that a regex takes beside its text, instructions, classes and table.
const FIXED_BYTES: u64 = 512;

/// The memory of an instruction in bytes.
const INSTRUCTION_BYTES: u64 = 8;

/// The most memory in bytes that a class of characters takes beside its ranges, and for each of
/// them.
const CLASS_BYTES: u64 = 128;
const RANGE_BYTES: u64 = 16;

/// The most instructions of a regex that has a table, and the largest table in bytes.
const TABLE_INSTRUCTIONS_MAX: u64 = 256;
const TABLE_BYTES_MAX: u64 = 8 << 10;

/// The most steps that a proxy takes to make a table, some 3 nanoseconds each.
const TABLE_STEPS_MAX: u64 = 1 << 15;

/// The steps of a proxy for each byte of a text and each instruction, beyond those of classes and
/// of the table.
const TEXT_STEPS: u64 = 64;
const INSTRUCTION_STEPS: u64 = 8;

/// The bytes of a compiled regex that count as one route.
const ROW_BYTES: u64 = 1 << 10;

/// The steps of reading a regex that count as one route, some 10 microseconds, beyond those that
/// the rest of it counts for.
const ROW_STEPS: u64 = 1 << 12;
const FREE_STEPS: u64 = 1 << 14;

/// The most steps that are taken to weigh an object, and some for the regex that passes them.
const WEIGHED_STEPS_MAX: u64 = 128 << 20;

/// The routes that a regex counts for which is not read any more: so many that few of them are
/// within what a namespace may hold, since those are read when the host is translated.
const UNREAD_ROWS: u64 = 10_000;

/// The steps of a byte of a text that proves to be no regex, or one that is not read.
const REFUSED_STEPS: u64 = 64;

/// The reason to refuse a regex that takes more than [`READ_STEPS_MAX`]: the end of a sentence
/// about it.
pub(crate) const COSTLY: &str = "is a regex whose classes take more than 4000000 steps to read";

/// The remedy for [`COSTLY`].
pub(crate) const COSTLY_REMEDY: &str = "write smaller classes: of 4000000 steps each letter takes \
                                        8 in one that ignores case, and each range 4";

/// All that is known of a regex once it was read.
struct Facts {
    fault: Option<RegexFault>,
    /// The steps that it took.
    steps: u64,
    bytes: u64,
    instructions: u64,
    start: Box<str>,
    /// The number of its groups; none where it does not compile.
    groups: Option<usize>,
}

thread_local! {
    /// Regexes that were read: an object is weighed before and after each change of it, and asks
    /// several things of each of its own.
    static KNOWN: RefCell<Known<Facts>> = RefCell::default();

    #[cfg(test)]
    static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The different regexes of one host so far.
pub(crate) struct Regexes {
    known: BTreeSet<Box<str>>,
    max: usize,
}

/// More regexes than a host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany(pub usize);

impl Regexes {
    /// An empty set, for at most so many.
    pub(crate) fn new(max: usize) -> Self {
        let known = BTreeSet::new();
        Regexes { known, max }
    }

    /// Counts one that is in a field.
    ///
    /// # Errors
    /// It is one too many, and none of those that hold.
    pub(crate) fn admit(&mut self, pattern: &str) -> Result<(), TooMany> {
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
    pub(crate) fn admit_all(
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

/// The routes that patterns count for, once they are compiled and by what reading them takes.
/// Where they take much, the rest counts for as much as may be, and is not read.
pub(crate) fn rows(patterns: impl Iterator<Item = impl AsRef<str>>) -> u64 {
    let (mut rows, mut steps) = (0_u64, 0_u64);
    for pattern in patterns {
        let of_pattern = match steps > WEIGHED_STEPS_MAX {
            true => UNREAD_ROWS,
            false => {
                let facts = look(pattern.as_ref());
                steps = steps.saturating_add(facts.steps);
                facts.rows()
            }
        };
        rows = rows.saturating_add(of_pattern);
    }
    rows
}

/// The most steps that a proxy takes to compile a regex that it does not hold yet, some 3
/// nanoseconds each, known without compiling it.
pub(crate) fn compile_steps(pattern: &str) -> u64 {
    let facts = look(pattern);
    if facts.fault.is_some() {
        return 0;
    }
    let of_table = match facts.instructions <= TABLE_INSTRUCTIONS_MAX {
        true => TABLE_STEPS_MAX,
        false => 0,
    };
    let of_text = pattern.len() as u64 * TEXT_STEPS;
    let of_program = facts.instructions.saturating_mul(INSTRUCTION_STEPS);
    let steps = facts.steps.saturating_add(of_program);
    steps.saturating_add(of_text + of_table)
}

/// The most memory in bytes that a proxy takes for a regex once it is compiled, known without
/// compiling it: its instructions, its classes of characters, and a small table over ASCII where
/// there are few instructions. None where it is no regex, or one that is not read.
pub fn bytes(pattern: &str) -> Option<u64> {
    let facts = read(pattern);
    facts.fault.is_none().then_some(facts.bytes)
}

/// Whether a proxy can follow the groups of a regex, as far as it can compile it.
pub(crate) fn has_groups_followed(pattern: &str) -> bool {
    look(pattern).instructions <= PathRewrite::INSTRUCTIONS_MAX as u64
}

/// How all paths begin that a regex takes; at least `/`. Where it does not regard case, in that
/// in which it is written.
pub(crate) fn literal_start(pattern: &str) -> String {
    let facts = look(pattern);
    match facts.start.starts_with('/') {
        true => facts.start.to_string(),
        false => "/".to_owned(),
    }
}

/// Whether a regex is refused because of what reading it takes, so that [`COSTLY`] says why.
pub(crate) fn is_costly(pattern: &str) -> bool {
    look(pattern).fault == Some(RegexFault::Costly)
}

/// Whether a text is a regex that is read, though perhaps none that compiles.
pub(crate) fn is_read(pattern: &str) -> bool {
    look(pattern).fault.is_none()
}

/// Whether the proxy can compile a regex.
pub(crate) fn compiles(pattern: &str) -> bool {
    groups(pattern).is_some()
}

/// The number of groups of a regex; `None` where the proxy cannot compile it.
pub(crate) fn groups(pattern: &str) -> Option<usize> {
    look(pattern).groups
}

/// All that is known of a regex, which is read where it is not known.
fn look(pattern: &str) -> Rc<Facts> {
    if let Some(known) = KNOWN.with_borrow_mut(|known| known.get(pattern)) {
        return known;
    }
    let facts = Rc::new(read(pattern));
    // What is too long was not read, and need not be remembered.
    if pattern.len() <= TEXT_BYTES_MAX {
        let remembered = Rc::clone(&facts);
        KNOWN.with_borrow_mut(|known| known.insert(pattern.into(), remembered));
    }
    facts
}

/// Reads a regex, where that does not take too much.
fn read(pattern: &str) -> Facts {
    if pattern.len() > TEXT_BYTES_MAX {
        return Facts::refused(RegexFault::Syntax, 0);
    }
    #[cfg(test)]
    READS.with(|reads| reads.set(reads.get() + 1));
    let text = RegexText::new(pattern);
    let read = text.and_then(|text| Ok((text.read(READ_STEPS_MAX)?, text.steps())));
    match read {
        Ok((hir, steps)) => Facts::of(pattern, &hir, steps),
        Err(fault) => Facts::refused(fault, pattern.len()),
    }
}

impl Facts {
    fn of(pattern: &str, hir: &Hir, steps: u64) -> Facts {
        let instructions = program(hir);
        let table = match instructions <= TABLE_INSTRUCTIONS_MAX {
            true => TABLE_BYTES_MAX,
            false => 0,
        };
        let fixed = FIXED_BYTES + pattern.len() as u64 + table;
        let program = instructions.saturating_mul(INSTRUCTION_BYTES);
        let mut start = String::new();
        add_start(hir, &mut start);
        Facts {
            fault: None,
            steps,
            bytes: program.saturating_add(fixed + class_bytes(hir)),
            instructions,
            start: start.into(),
            groups: (instructions <= INSTRUCTIONS_MAX)
                .then(|| hir.properties().explicit_captures_len()),
        }
    }

    fn refused(fault: RegexFault, bytes: usize) -> Facts {
        Facts {
            fault: Some(fault),
            steps: (bytes as u64).saturating_mul(REFUSED_STEPS),
            bytes: 0,
            instructions: 0,
            start: Box::default(),
            groups: None,
        }
    }

    /// The routes that it counts for.
    fn rows(&self) -> u64 {
        match self.fault {
            Some(_) => 0,
            None => {
                let steps = self.steps.saturating_sub(FREE_STEPS);
                self.bytes.div_ceil(ROW_BYTES) + steps / ROW_STEPS
            }
        }
    }
}

/// Adds how all texts begin that a part of a regex takes; false where that is not all of them.
fn add_start(hir: &Hir, start: &mut String) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => true,
        HirKind::Literal(literal) => match str::from_utf8(&literal.0) {
            Ok(text) => {
                start.push_str(text);
                true
            }
            Err(_) => false,
        },
        HirKind::Capture(capture) => add_start(&capture.sub, start),
        HirKind::Concat(parts) => parts.iter().all(|part| add_start(part, start)),
        HirKind::Class(_) | HirKind::Alternation(_) | HirKind::Repetition(_) => false,
    }
}

/// The instructions that a proxy compiles a regex to, with the one for its end.
fn program(hir: &Hir) -> u64 {
    instructions(hir).saturating_add(1)
}

/// The instructions of a part of a regex, of which a repetition has as many as it has turns.
fn instructions(hir: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(instructions).fold(0, u64::saturating_add);
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => {
            let text = str::from_utf8(&literal.0);
            text.map_or(literal.0.len(), |text| text.chars().count()) as u64
        }
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Capture(capture) => {
            let is_followed = capture.index as usize <= PathRewrite::GROUPS_MAX;
            instructions(&capture.sub).saturating_add(if is_followed { 2 } else { 0 })
        }
        HirKind::Concat(parts) => sum(parts),
        HirKind::Alternation(parts) => {
            let others = parts.len().saturating_sub(1);
            sum(parts).saturating_add(others as u64)
        }
        HirKind::Repetition(repetition) => repeated(repetition),
    }
}

/// Each turn that need not be is one of two ways.
fn repeated(repetition: &Repetition) -> u64 {
    let turn = instructions(&repetition.sub);
    let optional = turn.saturating_add(1);
    let min = u64::from(repetition.min);
    match repetition.max {
        Some(max) => {
            let max = u64::from(max).saturating_sub(min);
            let required = turn.saturating_mul(min);
            optional.saturating_mul(max).saturating_add(required)
        }
        None if min > 0 => optional.saturating_add(turn.saturating_mul(min - 1)),
        None if repetition.sub.properties().minimum_len() == Some(0) => optional.saturating_add(1),
        None => optional,
    }
}

/// The memory in bytes of the different classes of a regex, beside those that everybody has: a
/// process holds each once.
fn class_bytes(hir: &Hir) -> u64 {
    let mut classes = BTreeSet::new();
    add_classes(hir, &mut classes);
    let ranges = classes.iter().map(|ranges| ranges.len() as u64);
    ranges
        .map(|ranges| CLASS_BYTES + ranges * RANGE_BYTES)
        .sum()
}

fn add_classes<'a>(hir: &'a Hir, classes: &mut BTreeSet<&'a [ClassUnicodeRange]>) {
    /// Classes that all patterns share, which are not counted.
    static COMMON: LazyLock<Vec<Hir>> = LazyLock::new(|| {
        let written = [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "."];
        let read = |class: &&str| regex_syntax::parse(class).ok();
        written.iter().filter_map(read).collect()
    });
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            if !COMMON.contains(hir) {
                classes.insert(class.ranges());
            }
        }
        // They are of ASCII, and hardly larger than what refers to them.
        HirKind::Class(Class::Bytes(_)) => {}
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => {}
        HirKind::Capture(capture) => add_classes(&capture.sub, classes),
        HirKind::Repetition(repetition) => add_classes(&repetition.sub, classes),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().for_each(|part| add_classes(part, classes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        COSTLY, COSTLY_REMEDY, READ_STEPS_MAX, READS, Regexes, TEXT_BYTES_MAX, TooMany,
        UNREAD_ROWS, bytes, compile_steps, compiles, groups, has_groups_followed, is_costly,
        literal_start, rows,
    };

    #[test]
    fn what_needs_backtracking_is_no_regex() {
        assert!(compiles("/v[0-9]+/.*"));
        assert!(!compiles("(?=a)") && !compiles("(a)\\1") && !compiles("("));
        assert!(compiles("/\\w{500}") && !compiles("/(\\w{500}){500}"));
        assert_eq!(groups("/(a)(?:b)(c)"), Some(2));
    }

    #[test]
    fn what_a_regex_takes_is_known_without_compiling_it() {
        let instructions =
            |pattern: &str| super::instructions(&regex_syntax::parse(pattern).unwrap());
        assert_eq!(instructions("abc"), 3);
        assert_eq!(instructions("äbc"), 3);
        assert_eq!(instructions("(a)|b[0-9]"), 3 + 2 + 1);
        assert_eq!(instructions("(?:ab){3}"), 3 * 2);
        assert_eq!(instructions("a{2,5}"), 2 + 3 * 2);
        assert_eq!(instructions("a+"), 2);
        assert_eq!(instructions("(?:a?)*"), 2 + 2);
        assert_eq!(instructions("(?:ab){2,}"), 2 * 2 + 1);
        // Only groups that a template can name are followed.
        assert_eq!(instructions(&"(a)".repeat(12)), 12 + 9 * 2);
        // Many times many is much, and no overflow.
        assert!(instructions("(((a{1000}){1000}){1000}){1000}") > 1 << 39);
        assert_eq!(bytes("("), None);
        assert!(bytes("(a{1,200}){1,3}b").unwrap() < 16 << 10);
        // Some 770 ranges of its own, however often it stands there; \w everybody has.
        assert!(bytes("[\\w-]+/[\\w-]+").unwrap() > bytes("\\w+/\\w+").unwrap() + (12 << 10));
        assert!(bytes("[\\w-]+/[\\w-]+").unwrap() < 24 << 10);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_read() {
        let long = "\\w".repeat(TEXT_BYTES_MAX / 2 + 1);
        assert!(bytes(&long).is_none() && !compiles(&long));
    }

    /// All letters that a table of cases has, between ASCII and its last.
    const LARGE: &str = "[!-\u{1E943}]";

    #[test]
    fn what_takes_too_much_to_read_is_refused() {
        for pattern in [
            format!("(?i)/{}", LARGE.repeat(500)),
            format!("/(?i:{})", LARGE.repeat(500)),
            "(?i)\\P{Lu}\\p{Any}".repeat(200),
            "\\w".repeat(TEXT_BYTES_MAX / 2),
        ] {
            assert!(is_costly(&pattern), "{pattern}");
            assert!(!compiles(&pattern) && groups(&pattern).is_none());
            assert!(bytes(&pattern).is_none() && rows([&pattern].into_iter()) == 0);
            assert!(has_groups_followed(&pattern));
            assert_eq!(literal_start(&pattern), "/");
        }
        for pattern in [
            "(?i)/(api|v[0-9]+)/[a-z0-9_-]+",
            "(?i)[^/]+",
            "(?i)/a[\\s\\S]*",
            "(?i)\\p{L}+",
            "\\w+",
        ] {
            assert!(compiles(pattern) && !is_costly(pattern), "{pattern}");
        }
        assert!(!is_costly("(") && !is_costly(&"a".repeat(TEXT_BYTES_MAX + 1)));
        assert!(
            [COSTLY, COSTLY_REMEDY]
                .iter()
                .all(|text| text.contains(&READ_STEPS_MAX.to_string()))
        );
    }

    #[test]
    fn what_it_takes_to_read_a_regex_counts_as_routes() {
        let count = |pattern: &str| rows([pattern].into_iter());
        assert_eq!(count("(?i)/shop-1/([^/]*)/.*"), 10);
        assert_eq!(count("(?i)/u1/(\\w+)/(\\w+)/edit"), 10);
        assert_eq!(count("\\w+"), 9);
        assert!(count(&format!("(?i){LARGE}")) > 200);
        // What is beyond all that an object may take is not read.
        let large = |number: u64| format!("(?i)/{number}{}", LARGE.repeat(3));
        let before = READS.get();
        let all = rows((0..1_000).map(large));
        let read = (READS.get() - before) as u64;
        assert!((40..50).contains(&read), "{read}");
        assert!(all >= (1_000 - read) * UNREAD_ROWS);
        assert!(count(&large(0)) <= UNREAD_ROWS);
    }

    #[test]
    fn what_it_takes_to_compile_a_regex_is_known_without_compiling_it() {
        // A dear one: reading it takes next to nothing, and its table all that it may.
        let dear = format!("(?:{})", "(?:a?b?)*|".repeat(23));
        assert!((225..250).contains(&dear.len()));
        assert!((48_000..60_000).contains(&compile_steps(&dear)));
        assert!((33_000..45_000).contains(&compile_steps("/u1/([a-z]+)/edit")));
        // One without a table.
        assert!((2_000..4_000).contains(&compile_steps("a{257}")));
        // Classes count as they are read.
        assert!(compile_steps(&format!("(?i){LARGE}")) > 500_000);
        assert_eq!(compile_steps("("), 0);
    }

    #[test]
    fn a_regex_is_read_once() {
        let before = READS.get();
        for _ in 0..3 {
            rows(["(?i)/once/(a)"; 2].into_iter());
            assert!(has_groups_followed("(?i)/once/(a)"));
            assert_eq!(literal_start("(?i)/once/(a)"), "/");
        }
        for _ in 0..3 {
            assert!(compiles("(?i)/once/(a)") && groups("(?i)/once/(a)") == Some(1));
        }
        assert_eq!(READS.get(), before + 1);
        for _ in 0..3 {
            assert!(compiles("/other") && !compiles("/other("));
            rows(["/other", "/other("].into_iter());
        }
        assert_eq!(READS.get(), before + 3);
    }

    #[test]
    fn groups_are_followed_in_regexes_of_bounded_size() {
        // The end, the group, and the letters.
        assert!(has_groups_followed("(a{1635})"));
        assert!(!has_groups_followed("(a{1636})"));
        // What is no regex is refused elsewhere.
        assert!(has_groups_followed("("));
    }

    #[test]
    fn a_regex_begins_as_all_that_it_takes() {
        for (pattern, start) in [
            ("/admin/.*", "/admin/"),
            ("/admin", "/admin"),
            ("/admins?/", "/admin"),
            ("/v1+", "/v"),
            ("/a{0}b", "/b"),
            ("/a|/b", "/"),
            ("/a/(b|c)", "/a/"),
            ("^/(a)\\.b/", "/a.b/"),
            ("(?i)/admin", "/"),
            (".*", "/"),
        ] {
            assert_eq!(literal_start(pattern), start, "{pattern}");
        }
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
