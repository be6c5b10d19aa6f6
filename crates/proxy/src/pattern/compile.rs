//! Programs: a pattern as instructions over characters.
//!
//! An instruction is eight bytes, and a class of characters is held once per process, so that
//! `\w` costs one instruction, not the hundreds of states of its bytes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use regex_automata::util::look::Look;
use regex_syntax::hir::{Capture, Class, Hir, HirKind, Repetition};

use super::{GROUPS, INSTRUCTIONS_MAX};

/// Below this many shared classes, those that nobody has any more are not looked for.
const SWEEP_MIN: usize = 64;

/// One instruction, and those that may follow by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// Takes one character.
    Char(char, u16),
    /// Takes one character of a class, by its number.
    Class(u16, u16),
    /// Goes on in two ways, the first of which is preferred.
    Split(u16, u16),
    /// Remembers the place, in a slot.
    Save(u8, u16),
    /// Goes on where the place is of a kind.
    Look(Look, u16),
    /// The end.
    Match,
    /// Another end: nothing fits.
    Fail,
}

/// A class of characters.
#[derive(Debug)]
pub(super) struct Letters {
    /// A bit for each character in ASCII.
    ascii: u128,
    /// The others, sorted.
    ranges: Box<[(char, char)]>,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    /// All instructions.
    pub instructions: Box<[Instruction]>,
    /// The first to be done.
    pub start: u16,
    classes: Box<[Arc<Letters>]>,
}

/// A pattern is too large.
pub(super) struct TooLarge;

#[derive(Default)]
struct Compiler {
    instructions: Vec<Instruction>,
    classes: Vec<Arc<Letters>>,
}

/// Classes that patterns share, for as long as one has them. At most twice as many as are in use,
/// or [`SWEEP_MIN`].
#[derive(Default)]
struct SharedClasses {
    known: HashMap<Box<[(char, char)]>, Weak<Letters>>,
    sweep_at: usize,
}

impl Program {
    /// Compiles a pattern that was parsed.
    ///
    /// # Errors
    /// More than [`INSTRUCTIONS_MAX`].
    pub(super) fn new(hir: &Hir) -> Result<Program, TooLarge> {
        let mut compiler = Compiler::default();
        let end = compiler.push(Instruction::Match)?;
        let start = compiler.compile(hir, end)?;
        Ok(Program {
            instructions: compiler.instructions.into(),
            classes: compiler.classes.into(),
            start,
        })
    }

    /// Whether a character is of a class.
    pub(super) fn is_of(&self, class: u16, letter: char) -> bool {
        let class = self.classes.get(usize::from(class));
        class.is_some_and(|class| class.has(letter))
    }

    /// The letters in ASCII of each of its classes, a bit for each.
    pub(super) fn ascii_classes(&self) -> impl Iterator<Item = u128> {
        self.classes.iter().map(|class| class.ascii)
    }

    /// The memory that it takes in bytes, without classes, which are shared.
    pub(super) fn memory_usage(&self) -> usize {
        size_of_val(&*self.instructions) + size_of_val(&*self.classes)
    }
}

impl Letters {
    fn new(all: &[(char, char)]) -> Letters {
        let mut ascii = 0;
        let mut ranges = Vec::new();
        for (first, last) in all {
            let mut letter = u32::from(*first);
            while letter < 128 && letter <= u32::from(*last) {
                ascii |= 1_u128 << letter;
                letter += 1;
            }
            if u32::from(*last) >= 128 {
                ranges.push(((*first).max('\u{80}'), *last));
            }
        }
        let ranges = ranges.into();
        Letters { ascii, ranges }
    }

    fn has(&self, letter: char) -> bool {
        if letter.is_ascii() {
            return self.ascii >> u32::from(letter) & 1 == 1;
        }
        let after = self.ranges.partition_point(|(first, _)| *first <= letter);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|(_, last)| letter <= *last)
    }
}

impl Compiler {
    /// Instructions are written from the end, so that each knows which one follows.
    fn compile(&mut self, hir: &Hir, next: u16) -> Result<u16, TooLarge> {
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                // Patterns that match what is no UTF-8 are not parsed.
                let text = str::from_utf8(&literal.0).map_err(|_| TooLarge)?;
                let mut letters = text.chars().rev();
                letters.try_fold(next, |next, letter| {
                    self.push(Instruction::Char(letter, next))
                })
            }
            HirKind::Class(class) => self.class(class, next),
            HirKind::Look(look) => {
                let look = Look::from_repr(look.as_repr()).ok_or(TooLarge)?;
                self.push(Instruction::Look(look, next))
            }
            HirKind::Repetition(repetition) => self.repetition(repetition, next),
            HirKind::Capture(Capture { index, sub, .. }) => match *index as usize {
                group if group < GROUPS => {
                    let slot = (group * 2) as u8;
                    let end = self.push(Instruction::Save(slot + 1, next))?;
                    let inner = self.compile(sub, end)?;
                    self.push(Instruction::Save(slot, inner))
                }
                _ => self.compile(sub, next),
            },
            HirKind::Concat(parts) => {
                let mut parts = parts.iter().rev();
                parts.try_fold(next, |next, part| self.compile(part, next))
            }
            HirKind::Alternation(parts) => {
                let mut parts = parts.iter().rev();
                let Some(last) = parts.next() else {
                    return self.push(Instruction::Fail);
                };
                let last = self.compile(last, next)?;
                parts.try_fold(last, |others, part| {
                    let first = self.compile(part, next)?;
                    self.push(Instruction::Split(first, others))
                })
            }
        }
    }

    fn class(&mut self, class: &Class, next: u16) -> Result<u16, TooLarge> {
        let ranges: Box<[(char, char)]> = match class {
            Class::Unicode(class) => {
                let ranges = class.ranges().iter();
                ranges.map(|it| (it.start(), it.end())).collect()
            }
            Class::Bytes(class) => {
                let ranges = class.ranges().iter();
                let to_chars = |it: &regex_syntax::hir::ClassBytesRange| {
                    (char::from(it.start()), char::from(it.end()))
                };
                ranges.map(to_chars).collect()
            }
        };
        match *ranges {
            [] => return self.push(Instruction::Fail),
            [(first, last)] if first == last => {
                return self.push(Instruction::Char(first, next));
            }
            _ => {}
        }
        let class = shared(ranges);
        let mut known = self.classes.iter();
        let number = match known.position(|known| Arc::ptr_eq(known, &class)) {
            Some(number) => number,
            None => {
                self.classes.push(class);
                self.classes.len() - 1
            }
        };
        let number = u16::try_from(number).map_err(|_| TooLarge)?;
        self.push(Instruction::Class(number, next))
    }

    fn repetition(&mut self, repetition: &Repetition, next: u16) -> Result<u16, TooLarge> {
        let Repetition {
            min,
            max,
            greedy,
            ref sub,
        } = *repetition;
        let (mut entry, copies) = match max {
            None if min == 0 => (self.repeat_any(sub, greedy, next)?, 0),
            None => (self.repeat_some(sub, greedy, next)?, min - 1),
            Some(max) => {
                let mut entry = next;
                for _ in min..max {
                    let inner = self.compile(sub, entry)?;
                    entry = self.split(greedy, inner, next)?;
                }
                (entry, min)
            }
        };
        for _ in 0..copies {
            entry = self.compile(sub, entry)?;
        }
        Ok(entry)
    }

    fn repeat_any(&mut self, sub: &Hir, greedy: bool, next: u16) -> Result<u16, TooLarge> {
        if sub.properties().minimum_len() == Some(0) {
            // What may be empty would end its repetition there, so that what goes on by the other
            // way is not preferred as it should be.
            let some = self.repeat_some(sub, greedy, next)?;
            return self.split(greedy, some, next);
        }
        let again = self.split(greedy, next, next)?;
        let inner = self.compile(sub, again)?;
        self.patch(again, greedy, inner, next);
        Ok(again)
    }

    fn repeat_some(&mut self, sub: &Hir, greedy: bool, next: u16) -> Result<u16, TooLarge> {
        let again = self.split(greedy, next, next)?;
        let inner = self.compile(sub, again)?;
        self.patch(again, greedy, inner, next);
        Ok(inner)
    }

    fn split(&mut self, greedy: bool, inner: u16, next: u16) -> Result<u16, TooLarge> {
        self.push(split(greedy, inner, next))
    }

    fn patch(&mut self, at: u16, greedy: bool, inner: u16, next: u16) {
        if let Some(instruction) = self.instructions.get_mut(usize::from(at)) {
            *instruction = split(greedy, inner, next);
        }
    }

    fn push(&mut self, instruction: Instruction) -> Result<u16, TooLarge> {
        let number = self.instructions.len();
        if number >= INSTRUCTIONS_MAX {
            return Err(TooLarge);
        }
        self.instructions.push(instruction);
        u16::try_from(number).map_err(|_| TooLarge)
    }
}

fn split(greedy: bool, inner: u16, next: u16) -> Instruction {
    match greedy {
        true => Instruction::Split(inner, next),
        false => Instruction::Split(next, inner),
    }
}

fn shared(ranges: Box<[(char, char)]>) -> Arc<Letters> {
    static KNOWN: LazyLock<Mutex<SharedClasses>> = LazyLock::new(Mutex::default);
    let mut shared = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(letters) = shared.known.get(&ranges).and_then(Weak::upgrade) {
        return letters;
    }
    if shared.known.len() >= shared.sweep_at {
        shared.known.retain(|_, letters| letters.strong_count() > 0);
        shared.sweep_at = (shared.known.len() * 2).max(SWEEP_MIN);
    }
    let letters = Arc::new(Letters::new(&ranges));
    shared.known.insert(ranges, Arc::downgrade(&letters));
    letters
}
