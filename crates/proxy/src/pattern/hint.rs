//! Hints: letters that a text must have, for a pattern to be tried at all.
//!
//! They are compared without regard to case, with patterns that regard it as well: a hint may say
//! yes too often, and never no.

use memchr::memmem::Finder;
use regex_syntax::hir::{Capture, Class, Hir, HirKind};

/// The most letters of a hint.
const LETTERS_MAX: usize = 64;

/// The fewest letters within a text that are worth a look.
const WITHIN_MIN: usize = 3;

/// The parts that a text must have. They are written as [`fold`] writes text.
#[derive(Debug, Default)]
pub struct Hint {
    /// The text that it begins with.
    prefix: Box<str>,
    /// A text that it has somewhere.
    within: Option<Box<Finder<'static>>>,
}

/// The runs of letters that a pattern must have.
#[derive(Default)]
struct Runs {
    prefix: Option<String>,
    longest: String,
    run: String,
}

impl Hint {
    /// The hint of a pattern which is matched from the start of a text.
    pub fn new(hir: &Hir) -> Hint {
        let mut runs = Runs::default();
        runs.read(hir);
        runs.end();
        let within = Some(runs.longest).filter(|run| run.len() >= WITHIN_MIN);
        Hint {
            prefix: runs.prefix.unwrap_or_default().into(),
            within: within.map(|run| Box::new(Finder::new(&run).into_owned())),
        }
    }

    /// The text that it must begin with, at most 64 bytes.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a text, as [`fold`] writes it, has what it must have beside the prefix.
    pub fn admits(&self, folded: &str) -> bool {
        let within = self.within.as_ref();
        within.is_none_or(|within| within.find(folded.as_bytes()).is_some())
    }

    /// The memory that it takes beside itself in bytes.
    pub fn memory_usage(&self) -> usize {
        let within = self.within.as_ref();
        let within = within.map_or(0, |it| size_of_val(&**it) + it.needle().len());
        self.prefix.len() + within
    }
}

/// Writes a text in lower case, as far as letters of ASCII are concerned, and those two which are
/// such letters in another case.
pub(super) fn fold(text: &str, folded: &mut String) {
    folded.extend(text.chars().map(fold_letter));
}

fn fold_letter(letter: char) -> char {
    match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    }
}

impl Runs {
    fn read(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => {
                for byte in &literal.0 {
                    match byte.is_ascii() {
                        true => self.run.push(char::from(byte.to_ascii_lowercase())),
                        false => self.end(),
                    }
                }
            }
            HirKind::Class(class) => match letter(class) {
                Some(letter) => self.run.push(letter),
                None => self.end(),
            },
            HirKind::Capture(Capture { sub, .. }) => self.read(sub),
            HirKind::Concat(parts) => parts.iter().for_each(|part| self.read(part)),
            HirKind::Repetition(repetition) => {
                // What is there at least once may be there more often, and then what is before
                // and behind it do not meet.
                self.end();
                if repetition.min > 0 {
                    self.read(&repetition.sub);
                    self.end();
                }
            }
            HirKind::Alternation(_) => self.end(),
        }
    }

    /// Ends a run: the first one is the prefix.
    fn end(&mut self) {
        let mut run = std::mem::take(&mut self.run);
        run.truncate(LETTERS_MAX);
        if self.prefix.is_none() {
            self.prefix = Some(run);
        } else if run.len() > self.longest.len() {
            self.longest = run;
        }
    }
}

/// The letter that a class is, in lower case, where it is one letter in either case.
fn letter(class: &Class) -> Option<char> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let mut ranges = class.ranges().iter();
    let is_one_each = ranges.clone().all(|range| range.start() == range.end());
    let first = fold_letter(ranges.next()?.start());
    let is_one = is_one_each && ranges.all(|range| fold_letter(range.start()) == first);
    (is_one && first.is_ascii()).then_some(first)
}
