//! Matching by following all states at once, from character to character.
//!
//! Each state is visited at most once per character, so that no text takes more steps than states
//! times characters; and each visit is paid for.

use regex_automata::util::look::LookMatcher;

use super::compile::{Instruction, Program};
use super::scratch::{self, Frame, NOWHERE, SLOTS, Scratch, States};
use super::{Budget, Groups};

/// One search.
struct Search<'a> {
    program: &'a Program,
    text: &'a [u8],
    from: usize,
    is_anchored: bool,
    /// Whether any match will do, however short.
    is_any: bool,
    has_groups: bool,
    budget: &'a Budget,
}

/// The end in bytes of the match at the start of a text.
pub(super) fn match_end(
    program: &Program,
    text: &[u8],
    is_any: bool,
    budget: &Budget,
) -> Option<usize> {
    let search = Search {
        program,
        text,
        from: 0,
        is_anchored: true,
        is_any,
        has_groups: false,
        budget,
    };
    Some(search.run()?.0)
}

/// The groups of the first match from a place on, or of the one there.
pub(super) fn groups(
    program: &Program,
    text: &[u8],
    from: usize,
    is_anchored: bool,
    budget: &Budget,
) -> Option<Groups> {
    let search = Search {
        program,
        text,
        from,
        is_anchored,
        is_any: false,
        has_groups: true,
        budget,
    };
    let (end, [start, slots @ ..]) = search.run()?;
    let mut groups = Groups::default();
    let mut found = groups.0.iter_mut();
    *found.next()? = Some((start, end as u32));
    // The slot of the whole match's end is not used.
    let (pairs, _) = slots.get(1..)?.as_chunks::<2>();
    for (group, [start, end]) in found.zip(pairs) {
        *group = (*start != NOWHERE && *end != NOWHERE).then_some((*start, *end));
    }
    Some(groups)
}

impl Search<'_> {
    /// The end of the match and the places of its groups.
    fn run(&self) -> Option<(usize, [u32; SLOTS])> {
        let states = self.program.instructions.len();
        let found = scratch::with(states, self.has_groups, |scratch| self.follow(scratch));
        // Whatever there is no room for is not followed, and nobody may take that for a no.
        found.unwrap_or_else(|| {
            self.budget.spend();
            None
        })
    }

    fn follow(&self, scratch: &mut Scratch) -> Option<(usize, [u32; SLOTS])> {
        let Scratch { now, then, stack } = scratch;
        let mut found = None;
        let mut at = self.from;
        loop {
            let may_begin = found.is_none() && (at == self.from || !self.is_anchored);
            if may_begin {
                let mut slots = [NOWHERE; SLOTS];
                slots[0] = at as u32;
                self.enter(self.program.start, at, &mut slots, now, stack)?;
            } else if now.is_empty() {
                break;
            }
            let (letter, width) = decode(self.text, at);
            then.clear();
            let mut rank = 0;
            while let Some(state) = now.get(rank) {
                rank += 1;
                let next = match self.instruction(state) {
                    Instruction::Char(wanted, next) if letter == Some(wanted) => next,
                    Instruction::Class(class, next)
                        if letter.is_some_and(|it| self.program.is_of(class, it)) =>
                    {
                        next
                    }
                    Instruction::Match => {
                        let slots = now.slots(state).first_chunk().copied();
                        found = Some((at, slots.unwrap_or([NOWHERE; SLOTS])));
                        if self.is_any {
                            return found;
                        }
                        // Those behind it are not preferred.
                        break;
                    }
                    _ => continue,
                };
                let known = now.slots(state).first_chunk().copied();
                let mut slots = known.unwrap_or([NOWHERE; SLOTS]);
                self.enter(next, at + width, &mut slots, then, stack)?;
            }
            if width == 0 {
                break;
            }
            at += width;
            std::mem::swap(now, then);
        }
        found
    }

    /// Adds a state, and all that follow it without a character. None once the budget is spent.
    fn enter(
        &self,
        state: u16,
        at: usize,
        slots: &mut [u32; SLOTS],
        states: &mut States,
        stack: &mut Vec<Frame>,
    ) -> Option<()> {
        stack.clear();
        stack.push(Frame::Go(state));
        while let Some(frame) = stack.pop() {
            let mut state = match frame {
                Frame::Go(state) => state,
                Frame::Restore(slot, place) => {
                    if let Some(slot) = slots.get_mut(usize::from(slot)) {
                        *slot = place;
                    }
                    continue;
                }
            };
            while states.insert(state) {
                if !self.budget.take(1) {
                    return None;
                }
                state = match self.instruction(state) {
                    Instruction::Split(first, second) => {
                        stack.push(Frame::Go(second));
                        first
                    }
                    Instruction::Save(slot, next) => {
                        let known = slots.get_mut(usize::from(slot));
                        if let Some(known) = known.filter(|_| self.has_groups) {
                            stack.push(Frame::Restore(slot, *known));
                            *known = at as u32;
                        }
                        next
                    }
                    Instruction::Look(look, next) => {
                        if !LookMatcher::new().matches(look, self.text, at) {
                            break;
                        }
                        next
                    }
                    Instruction::Char(..) | Instruction::Class(..) | Instruction::Match => {
                        if self.has_groups {
                            states.remember(state, slots);
                        }
                        break;
                    }
                    Instruction::Fail => break,
                };
            }
        }
        Some(())
    }

    fn instruction(&self, state: u16) -> Instruction {
        let instructions = &self.program.instructions;
        let known = instructions.get(usize::from(state));
        known.copied().unwrap_or(Instruction::Fail)
    }
}

/// The character at a place and its length in bytes: none where there is none, and a length of 1
/// where it is no UTF-8.
fn decode(text: &[u8], at: usize) -> (Option<char>, usize) {
    let Some(rest) = text.get(at..) else {
        return (None, 0);
    };
    match rest {
        [] => (None, 0),
        [byte, ..] if byte.is_ascii() => (Some(char::from(*byte)), 1),
        [..] => {
            let chunk = rest
                .get(..rest.len().min(4))
                .and_then(|it| it.utf8_chunks().next());
            let letter = chunk.and_then(|chunk| chunk.valid().chars().next());
            (letter, letter.map_or(1, char::len_utf8))
        }
    }
}
