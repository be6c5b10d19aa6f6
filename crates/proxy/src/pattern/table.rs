//! Tables: small patterns as automata over bytes in ASCII, one step per byte.
//!
//! Making one takes a bounded number of steps, which are counted: whatever takes more has no table,
//! and is matched by following its states. So does whatever looks at words or lines.

use std::collections::HashMap;
use std::rc::Rc;

use regex_automata::util::look::Look;

use super::Budget;
use super::compile::{Instruction, Program};

/// The most instructions of a pattern that a table is made for.
const INSTRUCTIONS_MAX: usize = 256;

/// The largest table in bytes.
const BYTES_MAX: usize = 8 << 10;

/// The most steps that making one may take, some 100 microseconds. Patterns of paths as people
/// write them take a tenth of it. Translation charges as many for each.
pub(super) const MAKING_STEPS_MAX: usize = 1 << 15;

/// The steps of a look for a state that has the same places.
const LOOK_STEPS: usize = 8;

/// The letters in ASCII.
const LETTERS: usize = 128;

/// The state that nothing leads out of, and its number.
const DEAD: u16 = 0;

/// The bit of a state to which a text may lead that matches, whatever follows it.
const ANYWHERE: u16 = 1 << 15;

/// The bit of a state to which a text may lead that matches where it ends there.
const AT_END: u16 = 1 << 14;

/// The bits of a state that are the place of its row.
const ROW: u16 = AT_END - 1;

const _: () = assert!(BYTES_MAX / size_of::<u16>() <= ROW as usize);

/// An automaton that reads text in ASCII.
pub(super) struct DfaTable {
    /// The class of each letter.
    classes: [u8; LETTERS],
    /// Rows of the states that follow each state by each class. A state is the place of its row,
    /// with bits that say whether a text matches.
    next: Box<[u16]>,
    start: u16,
}

/// Whether a text matches that led to a state.
#[derive(Clone, Copy)]
enum Ending {
    Never,
    /// Where it ends there.
    AtEnd,
    /// Whatever follows it.
    Anywhere,
}

/// The making of a table: a state for each list of places that a text may lead to, in the order of
/// preference.
struct Maker<'a> {
    program: &'a Program,
    classes: [u8; LETTERS],
    /// A letter of each class.
    letters: Vec<char>,
    /// The states by their places, and their places by number.
    known: HashMap<Rc<[u16]>, u16>,
    states: Vec<Rc<[u16]>>,
    next: Vec<u16>,
    endings: Vec<Ending>,
    /// The places that are being gathered.
    places: Vec<u16>,
    /// The round in which each instruction was visited last.
    visited: Vec<u32>,
    round: u32,
    stack: Vec<u16>,
    steps: usize,
}

impl DfaTable {
    /// The table of a pattern, where it has a small one that takes few steps to make. `steps` says
    /// how many were taken, whether there is one or not.
    pub(super) fn new(program: &Program, steps: &mut usize) -> Option<DfaTable> {
        let is_followed = |instruction: &Instruction| match instruction {
            Instruction::Look(look, _) => matches!(look, Look::Start | Look::End),
            _ => true,
        };
        let instructions = &program.instructions;
        if instructions.len() > INSTRUCTIONS_MAX || !instructions.iter().all(is_followed) {
            return None;
        }
        let mut maker = Maker::new(program);
        let start = maker.run();
        *steps = maker.steps;
        let next = maker.next.iter().map(|number| maker.state(*number));
        Some(DfaTable {
            start: maker.state(start?)?,
            next: next.collect::<Option<Box<[u16]>>>()?,
            classes: maker.classes,
        })
    }

    /// The end in bytes of the match at the start of a text in ASCII. `is_any` takes a shorter
    /// one as well.
    pub(super) fn match_end(&self, text: &[u8], is_any: bool, budget: &Budget) -> Option<usize> {
        let (mut state, mut found) = (self.start, None);
        for (at, byte) in text.iter().enumerate() {
            if state & ANYWHERE != 0 {
                found = Some(at);
            }
            state = self.follow(state, *byte);
            if state == DEAD || (is_any && found.is_some()) {
                let is_paid = budget.take(at + 1);
                return found.filter(|_| is_paid);
            }
        }
        if state & AT_END != 0 {
            found = Some(text.len());
        }
        let is_paid = budget.take(text.len() + 1);
        found.filter(|_| is_paid)
    }

    /// The memory that it takes in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        memory(self.next.len())
    }

    fn follow(&self, state: u16, byte: u8) -> u16 {
        let class = self.classes.get(usize::from(byte)).copied();
        let at = usize::from(state & ROW) + usize::from(class.unwrap_or_default());
        self.next.get(at).copied().unwrap_or(DEAD)
    }
}

impl<'a> Maker<'a> {
    fn new(program: &'a Program) -> Self {
        Maker {
            program,
            classes: [0; LETTERS],
            letters: Vec::new(),
            known: HashMap::new(),
            states: Vec::new(),
            next: Vec::new(),
            endings: Vec::new(),
            places: Vec::new(),
            visited: vec![0; program.instructions.len()],
            round: 0,
            stack: Vec::new(),
            steps: 0,
        }
    }

    /// Makes all states, and returns the number of the first; none where that is too much.
    fn run(&mut self) -> Option<u16> {
        self.divide()?;
        // The first is dead.
        self.gather();
        self.add()?;
        self.gather();
        self.enter(self.program.start, true)?;
        let start = self.number()?;
        let mut done = 0;
        while let Some(state) = self.states.get(done).cloned() {
            done += 1;
            for class in 0..self.letters.len() {
                let letter = *self.letters.get(class)?;
                let next = self.follow(&state, letter)?;
                self.next.push(next);
            }
        }
        Some(start)
    }

    /// Divides letters into classes that no instruction tells apart.
    fn divide(&mut self) -> Option<()> {
        let mut chars = 0_u128;
        for instruction in self.program.instructions.iter() {
            if let Instruction::Char(letter, _) = instruction
                && letter.is_ascii()
            {
                chars |= 1_u128 << u32::from(*letter);
            }
        }
        let chars = (0..LETTERS).map(|letter| chars & (1_u128 << letter));
        let chars = chars.filter(|letter| *letter != 0);
        let mut classes = vec![u128::MAX];
        for letters in self.program.ascii_classes().chain(chars) {
            // They are looked at much more quickly than instructions.
            self.take(classes.len() / 4 + 1)?;
            for at in 0..classes.len() {
                let class = classes.get_mut(at)?;
                let (within, beside) = (*class & letters, *class & !letters);
                if within != 0 && beside != 0 {
                    *class = within;
                    classes.push(beside);
                }
            }
        }
        for (number, class) in classes.into_iter().enumerate() {
            let number = u8::try_from(number).ok()?;
            let mut left = class;
            self.letters.push(char::from_u32(left.trailing_zeros())?);
            while left != 0 {
                let letter = left.trailing_zeros() as usize;
                *self.classes.get_mut(letter)? = number;
                left &= left - 1;
            }
        }
        Some(())
    }

    /// The number of the state that follows one by a letter.
    fn follow(&mut self, state: &[u16], letter: char) -> Option<u16> {
        self.gather();
        for place in state {
            self.take(1)?;
            let next = match self.instruction(*place) {
                Instruction::Char(wanted, next) if wanted == letter => next,
                Instruction::Class(class, next) if self.program.is_of(class, letter) => next,
                _ => continue,
            };
            self.enter(next, false)?;
        }
        self.number()
    }

    /// Adds the places of an instruction, and of all that follow it without a letter.
    fn enter(&mut self, instruction: u16, is_start: bool) -> Option<()> {
        self.stack.clear();
        self.stack.push(instruction);
        while let Some(place) = self.stack.pop() {
            if !self.visit(place)? {
                continue;
            }
            match self.instruction(place) {
                Instruction::Split(first, second) => self.stack.extend([second, first]),
                Instruction::Save(_, next) => self.stack.push(next),
                Instruction::Look(Look::Start, next) if is_start => self.stack.push(next),
                Instruction::Char(..)
                | Instruction::Class(..)
                | Instruction::Match
                | Instruction::Look(Look::End, _) => self.places.push(place),
                Instruction::Look(..) | Instruction::Fail => {}
            }
        }
        Some(())
    }

    /// The number of the state of the places that were gathered.
    fn number(&mut self) -> Option<u16> {
        if self.places.is_empty() {
            return Some(DEAD);
        }
        self.take(LOOK_STEPS + self.places.len())?;
        let mut places = self.places.iter();
        // Those behind it are not preferred.
        let last = places.position(|place| matches!(self.instruction(*place), Instruction::Match));
        if let Some(last) = last {
            self.places.truncate(last + 1);
        }
        match self.known.get(&*self.places) {
            Some(known) => Some(*known),
            None => self.add(),
        }
    }

    /// Adds the state of the places that were gathered.
    fn add(&mut self) -> Option<u16> {
        let number = u16::try_from(self.states.len()).ok()?;
        if memory((self.states.len() + 1) * self.letters.len()) > BYTES_MAX {
            return None;
        }
        let places = Rc::<[u16]>::from(&*self.places);
        let ending = self.ending(&places)?;
        self.endings.push(ending);
        self.known.insert(places.clone(), number);
        self.states.push(places);
        Some(number)
    }

    /// Whether a text matches that led to these places. None where that depends on what was before.
    fn ending(&mut self, places: &[u16]) -> Option<Ending> {
        self.gather();
        self.stack.clear();
        for place in places {
            match self.instruction(*place) {
                Instruction::Match => return Some(Ending::Anywhere),
                Instruction::Look(Look::End, next) => self.stack.push(next),
                _ => {}
            }
        }
        while let Some(place) = self.stack.pop() {
            if !self.visit(place)? {
                continue;
            }
            match self.instruction(place) {
                Instruction::Match => return Some(Ending::AtEnd),
                Instruction::Split(first, second) => self.stack.extend([second, first]),
                Instruction::Save(_, next) | Instruction::Look(Look::End, next) => {
                    self.stack.push(next);
                }
                // Only a text that is empty begins where it ends.
                Instruction::Look(..) => return None,
                Instruction::Char(..) | Instruction::Class(..) | Instruction::Fail => {}
            }
        }
        Some(Ending::Never)
    }

    /// The state of a number, as a table has it.
    fn state(&self, number: u16) -> Option<u16> {
        let row = u16::try_from(usize::from(number) * self.letters.len()).ok()?;
        let bits = match self.endings.get(usize::from(number))? {
            Ending::Never => 0,
            Ending::AtEnd => AT_END,
            Ending::Anywhere => ANYWHERE | AT_END,
        };
        Some(row | bits)
    }

    /// Begins to gather places.
    fn gather(&mut self) {
        self.places.clear();
        self.round += 1;
    }

    /// Whether an instruction is visited for the first time in this round.
    fn visit(&mut self, place: u16) -> Option<bool> {
        self.take(1)?;
        let visited = self.visited.get_mut(usize::from(place))?;
        Some(std::mem::replace(visited, self.round) != self.round)
    }

    /// Takes steps; none where there are not enough left.
    fn take(&mut self, steps: usize) -> Option<()> {
        let steps = self.steps + steps;
        if steps > MAKING_STEPS_MAX {
            return None;
        }
        self.steps = steps;
        Some(())
    }

    fn instruction(&self, place: u16) -> Instruction {
        let instruction = self.program.instructions.get(usize::from(place));
        instruction.copied().unwrap_or(Instruction::Fail)
    }
}

/// The memory in bytes of a table whose rows have so many entries.
fn memory(entries: usize) -> usize {
    size_of::<DfaTable>() + entries * size_of::<u16>()
}
