//! Tables: small patterns as automata over bytes in ASCII, one step per byte.

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind,
    Look, Repetition,
};

use super::Budget;
use super::compile::Program;

/// The most instructions of a pattern that a table is made for.
const INSTRUCTIONS_MAX: usize = 256;

/// The largest table in bytes.
const BYTES_MAX: usize = 8 << 10;

/// The most memory in bytes that making one may take.
const MAKING_BYTES_MAX: usize = 64 << 10;

/// An automaton that reads text in ASCII.
pub(super) struct DfaTable {
    automaton: dense::DFA<Vec<u32>>,
}

impl DfaTable {
    /// The table of a pattern, where it has a small one.
    pub(super) fn new(hir: &Hir, program: &Program) -> Option<DfaTable> {
        if program.instructions.len() > INSTRUCTIONS_MAX {
            return None;
        }
        let config = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MAKING_BYTES_MAX));
        let mut compiler = thompson::Compiler::new();
        let nfa = compiler
            .configure(config)
            .build_from_hir(&ascii(hir))
            .ok()?;
        let config = dense::Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(Some(BYTES_MAX))
            .determinize_size_limit(Some(MAKING_BYTES_MAX));
        let mut builder = dense::Builder::new();
        let automaton = builder.configure(config).build_from_nfa(&nfa).ok()?;
        Some(DfaTable { automaton })
    }

    /// The end in bytes of the match at the start of a text in ASCII. `is_any` takes a shorter
    /// one as well.
    pub(super) fn match_end(&self, text: &[u8], is_any: bool, budget: &Budget) -> Option<usize> {
        let automaton = &self.automaton;
        let config = start::Config::new().anchored(Anchored::Yes);
        let mut state = automaton.start_state(&config).ok()?;
        let mut found = None;
        for (at, byte) in text.iter().enumerate() {
            state = automaton.next_state(state, *byte);
            if !automaton.is_special_state(state) {
                continue;
            }
            // A match is known one byte late.
            if automaton.is_match_state(state) {
                found = Some(at);
            }
            if automaton.is_dead_state(state) || (is_any && found.is_some()) {
                let is_paid = budget.take(at + 1);
                return found.filter(|_| is_paid);
            }
        }
        if automaton.is_match_state(automaton.next_eoi_state(state)) {
            found = Some(text.len());
        }
        let is_paid = budget.take(text.len() + 1);
        found.filter(|_| is_paid)
    }

    /// The memory that it takes in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        size_of::<DfaTable>() + self.automaton.memory_usage()
    }
}

/// The pattern that matches the same text, as far as that is in ASCII.
fn ascii(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.is_ascii() => Hir::literal(literal.0.clone()),
        HirKind::Literal(_) => Hir::fail(),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges = class
                .ranges()
                .iter()
                .filter(|range| range.start().is_ascii());
            let cut = |range: &ClassUnicodeRange| {
                ClassUnicodeRange::new(range.start(), range.end().min('\x7f'))
            };
            Hir::class(Class::Unicode(ClassUnicode::new(ranges.map(cut))))
        }
        HirKind::Class(Class::Bytes(class)) => {
            let ranges = class
                .ranges()
                .iter()
                .filter(|range| range.start().is_ascii());
            let cut = |range: &ClassBytesRange| {
                ClassBytesRange::new(range.start(), range.end().min(0x7f))
            };
            Hir::class(Class::Bytes(ClassBytes::new(ranges.map(cut))))
        }
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            look => *look,
        }),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(ascii(&repetition.sub)),
            ..*repetition
        }),
        HirKind::Capture(Capture { sub, .. }) => ascii(sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(ascii).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(ascii).collect()),
    }
}
