//! The steps that reading a regex takes, by its parts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_syntax::ast::{
    self, Ast, ClassPerlKind, ClassSetBinaryOp, ClassSetBinaryOpKind, ClassSetItem,
    ClassUnicodeKind, Flag, Flags, RepetitionKind, RepetitionRange, Visitor, visit,
};
use regex_syntax::hir::{Class, ClassUnicodeRange, HirKind};

use super::PROXY_READ_STEPS_MAX;

/// The steps of a byte of text, for its place in the tree.
const BYTE_STEPS: u64 = 8;

/// The steps of a letter that is looked up in the table of cases.
const LETTER_STEPS: u64 = 8;

/// The letters behind the table of cases that are passed in one step.
const PASSED_LETTERS: u64 = 2;

/// The steps of a letter of either case in a class that ignores case, beside those of looking it
/// up: what it stands for is added and sorted in.
const CASED_STEPS: u64 = 8;

/// The steps of a range that takes part in a set.
const RANGE_STEPS: u64 = 4;

/// The ranges of a class that move in one step when one is put among them.
const MOVED_RANGES: u64 = 16;

/// How often the ranges of a class are made of which a value is given, such as of an age: it is
/// put together from others.
const VALUE_TURNS: u64 = 64;

/// One behind the last letter.
const LETTERS: u64 = 0x11_0000;

/// Counting has come beyond what anybody reads.
struct Beyond;

/// The most that a class may hold while it is read.
#[derive(Clone, Copy)]
struct Set {
    ranges: u64,
    /// The steps of following its letters: all those of ranges that have one of either case.
    followed: u64,
    /// The letters of either case.
    cased: u64,
    /// Whether it has all letters in either case already, so that nobody looks again.
    is_folded: bool,
}

/// The form that a part takes, as far as it is looked at again by what is around it.
#[derive(Clone, Copy)]
struct Shape {
    /// Parts of a sequence that it is.
    elements: u64,
    /// Alternatives that it is.
    branches: u64,
    /// Ranges of classes that alternatives are joined to, where they are or end in classes.
    ranges: u64,
}

/// Walks over the parts as they are read.
struct Counter {
    steps: u64,
    ignores_case: bool,
    /// Whether case was ignored before each of the groups that are open.
    outer: Vec<bool>,
    sets: Vec<Set>,
    shapes: Vec<Shape>,
    /// Classes by their names, so that each is looked up once.
    named: BTreeMap<String, Set>,
}

/// Letters that are of either case, sorted: the first and last of each range, and how many are
/// before.
static CASED: LazyLock<Box<[(u64, u64, u64)]>> = LazyLock::new(|| {
    let text = r"[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]";
    let ranges = with_ranges(text, |ranges| {
        let bounds = ranges.iter();
        let bounds = bounds.map(|it| (u64::from(u32::from(it.start())), end_of(it)));
        bounds.collect::<Vec<_>>()
    });
    // Where nobody knows, each letter may be one.
    let ranges = ranges.unwrap_or_else(|| vec![(0, LETTERS - 1)]);
    let mut before = 0;
    let ranges = ranges.into_iter().map(|(first, last)| {
        let range = (first, last, before);
        before += last - first + 1;
        range
    });
    ranges.collect()
});

/// The classes that have a letter of their own: words, digits and spaces, and what is none.
static PERL: LazyLock<[Set; 6]> = LazyLock::new(|| {
    let texts = [r"\w", r"\W", r"\d", r"\D", r"\s", r"\S"];
    texts.map(|text| measured(text).unwrap_or(Set::EMPTY))
});

/// The steps that reading it takes at most, or some that are beyond what anybody reads.
pub(super) fn count(text: &str, ast: &Ast) -> u64 {
    let mut counter = Counter {
        steps: (text.len() as u64).saturating_mul(BYTE_STEPS),
        ignores_case: false,
        outer: Vec::new(),
        sets: Vec::new(),
        shapes: Vec::new(),
        named: BTreeMap::new(),
    };
    // Beyond is what the count says by then.
    let _ = visit(ast, &mut counter);
    counter.steps
}

/// Looks at the ranges of a text that is a class.
fn with_ranges<T>(text: &str, look: impl FnOnce(&[ClassUnicodeRange]) -> T) -> Option<T> {
    let hir = regex_syntax::parse(text).ok()?;
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(look(class.ranges())),
        _ => None,
    }
}

fn measured(text: &str) -> Option<Set> {
    with_ranges(text, |ranges| {
        let mut set = Set::EMPTY;
        for range in ranges {
            set.add(u64::from(u32::from(range.start())), end_of(range));
        }
        set
    })
}

fn end_of(range: &ClassUnicodeRange) -> u64 {
    u64::from(u32::from(range.end()))
}

/// How many letters of either case are before one.
fn cased_before(letter: u64) -> u64 {
    let after = CASED.partition_point(|(first, ..)| *first < letter);
    let range = after.checked_sub(1).and_then(|at| CASED.get(at));
    range.map_or(0, |(first, last, before)| {
        before + (last + 1).min(letter) - first
    })
}

/// The steps of following all letters from one to another.
fn followed(first: u64, last: u64) -> u64 {
    let end = CASED.last().map_or(LETTERS, |(_, last, _)| last + 1);
    let letters = (last + 1).saturating_sub(first);
    let near = letters.min(end.saturating_sub(first));
    near * LETTER_STEPS + (letters - near) / PASSED_LETTERS
}

/// The steps of following every letter there is.
fn followed_max() -> u64 {
    followed(0, LETTERS - 1)
}

impl Set {
    const EMPTY: Set = Set {
        ranges: 0,
        followed: 0,
        cased: 0,
        is_folded: true,
    };

    /// Adds the letters from one to another.
    fn add(&mut self, first: u64, last: u64) {
        let cased = cased_before(last + 1).saturating_sub(cased_before(first));
        let followed = if cased > 0 { followed(first, last) } else { 0 };
        self.ranges += 1;
        self.followed = (self.followed + followed).min(followed_max());
        self.cased = (self.cased + cased).min(cased_before(LETTERS));
        self.is_folded = false;
    }

    /// Adds all of another.
    fn join(&mut self, other: Set) {
        self.ranges += other.ranges;
        self.followed = (self.followed + other.followed).min(followed_max());
        self.cased = (self.cased + other.cased).min(cased_before(LETTERS));
        self.is_folded = self.is_folded && other.is_folded;
    }
}

impl Shape {
    const EMPTY: Shape = Shape {
        elements: 0,
        branches: 1,
        ranges: 0,
    };

    /// One part that is no class.
    const PART: Shape = Shape::class(0);

    const fn class(ranges: u64) -> Shape {
        Shape {
            elements: 1,
            branches: 1,
            ranges,
        }
    }
}

impl Counter {
    fn pay(&mut self, steps: u64) -> Result<(), Beyond> {
        self.steps = self.steps.saturating_add(steps);
        match self.steps > PROXY_READ_STEPS_MAX {
            true => Err(Beyond),
            false => Ok(()),
        }
    }

    /// Adds the other case of each letter.
    fn fold(&mut self, set: &mut Set) -> Result<(), Beyond> {
        if set.is_folded || !self.ignores_case {
            return Ok(());
        }
        self.pay(set.followed + set.cased * CASED_STEPS + set.ranges * RANGE_STEPS)?;
        set.ranges += set.cased;
        set.followed = (set.followed + set.cased * LETTER_STEPS).min(followed_max());
        set.cased = (set.cased * 2).min(cased_before(LETTERS));
        set.is_folded = true;
        Ok(())
    }

    fn fold_and_negate(&mut self, set: &mut Set, is_negated: bool) -> Result<(), Beyond> {
        self.fold(set)?;
        self.pay(set.ranges)?;
        if is_negated {
            set.ranges += 1;
            set.followed = followed_max();
            set.cased = cased_before(LETTERS);
        }
        Ok(())
    }

    /// The set that is being read.
    fn pop_set(&mut self) -> Set {
        self.sets.pop().unwrap_or(Set::EMPTY)
    }

    fn join(&mut self, other: Set) -> Result<(), Beyond> {
        let mut set = self.pop_set();
        self.pay((set.ranges + other.ranges) * RANGE_STEPS)?;
        set.join(other);
        self.sets.push(set);
        Ok(())
    }

    fn add(&mut self, first: char, last: char) -> Result<(), Beyond> {
        let mut set = self.pop_set();
        self.pay(RANGE_STEPS + set.ranges / MOVED_RANGES)?;
        set.add(u64::from(u32::from(first)), u64::from(u32::from(last)));
        self.sets.push(set);
        Ok(())
    }

    fn perl(&mut self, class: &ast::ClassPerl) -> Result<Set, Beyond> {
        let at = match (&class.kind, class.negated) {
            (ClassPerlKind::Word, false) => 0,
            (ClassPerlKind::Word, true) => 1,
            (ClassPerlKind::Digit, false) => 2,
            (ClassPerlKind::Digit, true) => 3,
            (ClassPerlKind::Space, false) => 4,
            (ClassPerlKind::Space, true) => 5,
        };
        let set = PERL.get(at).copied().unwrap_or(Set::EMPTY);
        self.pay(set.ranges * RANGE_STEPS)?;
        Ok(set)
    }

    fn unicode(&mut self, class: &ast::ClassUnicode) -> Result<Set, Beyond> {
        let (text, turns) = match &class.kind {
            ClassUnicodeKind::OneLetter(letter) => (format!("\\p{{{letter}}}"), 1),
            ClassUnicodeKind::Named(name) => (format!("\\p{{{name}}}"), 1),
            ClassUnicodeKind::NamedValue { name, value, .. } => {
                (format!("\\p{{{name}={value}}}"), VALUE_TURNS)
            }
        };
        let known = self.named.get(&text).copied();
        // What has no such name is refused when it is read.
        let mut set = known.unwrap_or_else(|| measured(&text).unwrap_or(Set::EMPTY));
        self.named.insert(text, set);
        self.pay(set.ranges * RANGE_STEPS * turns)?;
        self.fold_and_negate(&mut set, class.is_negated())?;
        Ok(set)
    }

    fn ascii(&mut self, class: &ast::ClassAscii) -> Result<Set, Beyond> {
        let mut set = Set::EMPTY;
        set.add(0, 0x7f);
        set.ranges = 6;
        self.fold_and_negate(&mut set, class.negated)?;
        Ok(set)
    }

    fn set_flags(&mut self, flags: &Flags) {
        if let Some(ignores_case) = flags.flag_state(Flag::CaseInsensitive) {
            self.ignores_case = ignores_case;
        }
    }

    /// The last of the shapes, as many as there are parts.
    fn pop_shapes(&mut self, parts: usize) -> Vec<Shape> {
        let from = self.shapes.len().saturating_sub(parts);
        self.shapes.split_off(from)
    }

    fn pop_shape(&mut self) -> Shape {
        self.shapes.pop().unwrap_or(Shape::EMPTY)
    }

    /// A sequence takes in the sequences that it consists of.
    fn concat(&mut self, parts: usize) -> Result<Shape, Beyond> {
        let parts = self.pop_shapes(parts);
        let elements: u64 = parts.iter().map(|part| part.elements).sum();
        self.pay(elements)?;
        let last = parts.iter().rev().find(|part| part.elements > 0);
        let last = last.copied().unwrap_or(Shape::EMPTY);
        Ok(Shape { elements, ..last })
    }

    /// Alternatives that are classes, or are once what they have in common is taken out before
    /// them, are joined one by one.
    fn alternation(&mut self, parts: usize) -> Result<Shape, Beyond> {
        let mut all = Shape {
            elements: 1,
            branches: 0,
            ranges: 0,
        };
        for part in self.pop_shapes(parts) {
            all.elements = all.elements.max(part.elements);
            all.branches += part.branches;
            all.ranges += part.ranges;
            self.pay(part.branches.saturating_mul(1 + all.ranges * RANGE_STEPS))?;
        }
        self.pay(all.elements)?;
        Ok(all)
    }

    fn shape(&mut self, ast: &Ast) -> Result<Shape, Beyond> {
        Ok(match ast {
            Ast::Empty(_) | Ast::Flags(_) => Shape::EMPTY,
            Ast::Literal(literal) => {
                let letter = u64::from(u32::from(literal.c));
                let is_cased = cased_before(letter + 1) > cased_before(letter);
                let is_folded = self.ignores_case && is_cased;
                self.pay(if is_folded { 2 * CASED_STEPS } else { 0 })?;
                Shape::class(if is_folded { 2 } else { 1 })
            }
            Ast::Dot(_) => Shape::class(2),
            Ast::Assertion(_) => Shape::PART,
            Ast::ClassPerl(class) => Shape::class(self.perl(class)?.ranges),
            Ast::ClassUnicode(class) => Shape::class(self.unicode(class)?.ranges),
            Ast::ClassBracketed(class) => {
                let mut set = self.pop_set();
                self.fold_and_negate(&mut set, class.negated)?;
                Shape::class(set.ranges)
            }
            Ast::Repetition(repetition) => {
                let inner = self.pop_shape();
                let is_once = matches!(
                    repetition.op.kind,
                    RepetitionKind::Range(
                        RepetitionRange::Exactly(1) | RepetitionRange::Bounded(1, 1)
                    )
                );
                if is_once { inner } else { Shape::PART }
            }
            Ast::Group(group) => {
                let inner = self.pop_shape();
                self.ignores_case = self.outer.pop().unwrap_or(false);
                if group.is_capturing() {
                    Shape::PART
                } else {
                    inner
                }
            }
            Ast::Concat(concat) => self.concat(concat.asts.len())?,
            Ast::Alternation(alternation) => self.alternation(alternation.asts.len())?,
        })
    }
}

impl Visitor for &mut Counter {
    type Output = ();
    type Err = Beyond;

    fn finish(self) -> Result<(), Beyond> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Beyond> {
        match ast {
            Ast::ClassBracketed(_) => self.sets.push(Set::EMPTY),
            Ast::Group(group) => {
                self.outer.push(self.ignores_case);
                if let Some(flags) = group.flags() {
                    self.set_flags(flags);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Beyond> {
        if let Ast::Flags(flags) = ast {
            self.set_flags(&flags.flags);
        }
        let shape = self.shape(ast)?;
        self.shapes.push(shape);
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Beyond> {
        if let ClassSetItem::Bracketed(_) = item {
            self.sets.push(Set::EMPTY);
        }
        Ok(())
    }

    fn visit_class_set_item_post(&mut self, item: &ClassSetItem) -> Result<(), Beyond> {
        match item {
            // The parts of a union were visited.
            ClassSetItem::Empty(_) | ClassSetItem::Union(_) => Ok(()),
            ClassSetItem::Literal(literal) => self.add(literal.c, literal.c),
            ClassSetItem::Range(range) => self.add(range.start.c, range.end.c),
            ClassSetItem::Ascii(class) => {
                let set = self.ascii(class)?;
                self.join(set)
            }
            ClassSetItem::Unicode(class) => {
                let set = self.unicode(class)?;
                self.join(set)
            }
            ClassSetItem::Perl(class) => {
                let set = self.perl(class)?;
                self.join(set)
            }
            ClassSetItem::Bracketed(class) => {
                let mut set = self.pop_set();
                self.fold_and_negate(&mut set, class.negated)?;
                self.join(set)
            }
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), Beyond> {
        self.sets.push(Set::EMPTY);
        Ok(())
    }

    fn visit_class_set_binary_op_in(&mut self, _: &ClassSetBinaryOp) -> Result<(), Beyond> {
        self.sets.push(Set::EMPTY);
        Ok(())
    }

    fn visit_class_set_binary_op_post(&mut self, op: &ClassSetBinaryOp) -> Result<(), Beyond> {
        let (mut right, mut left) = (self.pop_set(), self.pop_set());
        self.fold(&mut right)?;
        self.fold(&mut left)?;
        let ranges = left.ranges + right.ranges;
        let (turns, followed, cased) = match op.kind {
            ClassSetBinaryOpKind::Intersection => (
                1,
                left.followed.min(right.followed),
                left.cased.min(right.cased),
            ),
            ClassSetBinaryOpKind::Difference => (1, left.followed, left.cased),
            ClassSetBinaryOpKind::SymmetricDifference => {
                let cased = (left.cased + right.cased).min(cased_before(LETTERS));
                let followed = (left.followed + right.followed).min(followed_max());
                (3, followed, cased)
            }
        };
        self.pay(ranges * RANGE_STEPS * turns)?;
        let is_folded = left.is_folded && right.is_folded;
        self.join(Set {
            ranges,
            followed,
            cased,
            is_folded,
        })
    }
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::{CASED, LETTERS, cased_before, followed, followed_max};

    #[test]
    fn letters_outside_the_table_have_no_other_case() {
        let rest = r"[^\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]";
        let hir = regex_syntax::parse(rest).unwrap();
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else {
            panic!("{hir:?}");
        };
        let mut folded = class.clone();
        folded.case_fold_simple();
        assert_eq!(&folded, class);
        let rest: u64 = class.iter().map(|range| range.len() as u64).sum();
        assert_eq!(cased_before(LETTERS), LETTERS - rest);
    }

    #[test]
    fn letters_of_either_case_are_counted() {
        let between = |first: char, last: char| {
            cased_before(u64::from(u32::from(last)) + 1) - cased_before(u64::from(u32::from(first)))
        };
        assert_eq!(between('a', 'z'), 26);
        assert_eq!(between('!', '~'), 52);
        assert_eq!(between('0', '9'), 0);
        assert_eq!(between('一', '龥'), 0);
        assert_eq!(cased_before(0), 0);
        // What follows the table is passed quickly.
        let end = CASED.last().unwrap().1;
        assert_eq!(followed(0, end), 8 * (end + 1));
        assert_eq!(followed_max(), 8 * (end + 1) + (LETTERS - 1 - end) / 2);
    }
}
