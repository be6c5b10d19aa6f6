//! The cost of reading a regex, known before its classes are written out.
//!
//! A class that ignores case is followed letter by letter, and sets of classes are made range by
//! range, so a few bytes of text may take milliseconds to read. The text is taken apart first,
//! which takes no more than it is long; what follows is counted on its parts, by an upper bound.

mod cost;

use regex_syntax::ast::Ast;
use regex_syntax::ast::parse::Parser;
use regex_syntax::hir::Hir;
use regex_syntax::hir::translate::Translator;

/// The most steps that a regex may take to be read, some 10 milliseconds: eight for a letter of a
/// class that ignores case, where letters around it have one, and four for a range of a class.
pub const READ_STEPS_MAX: u64 = 4_000_000;

/// The most steps that a proxy takes to read a regex: more than translation lets it have, for what
/// it puts around a text.
pub const PROXY_READ_STEPS_MAX: u64 = 2 * READ_STEPS_MAX;

/// A regex that was taken apart, and is not read yet.
#[derive(Clone, Debug)]
pub struct RegexText<'a> {
    text: &'a str,
    ast: Ast,
    steps: u64,
}

/// The reason that a regex is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegexFault {
    /// Not the syntax.
    #[error("is no regex")]
    Syntax,
    /// More steps than it may take.
    #[error("takes too many steps to read")]
    Costly,
}

impl<'a> RegexText<'a> {
    /// Takes a text apart, and counts what reading it costs.
    ///
    /// # Errors
    /// The text is no regex.
    pub fn new(text: &'a str) -> Result<Self, RegexFault> {
        let ast = Parser::new().parse(text);
        let ast = ast.map_err(|_| RegexFault::Syntax)?;
        let steps = cost::count(text, &ast);
        Ok(RegexText { text, ast, steps })
    }

    /// The steps that reading it takes at most; beyond [`PROXY_READ_STEPS_MAX`], some number that
    /// is beyond it too.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Reads it.
    ///
    /// # Errors
    /// It takes more than `steps_max`, or names what there is not.
    pub fn read(&self, steps_max: u64) -> Result<Hir, RegexFault> {
        if self.steps > steps_max {
            return Err(RegexFault::Costly);
        }
        let read = Translator::new().translate(self.text, &self.ast);
        read.map_err(|_| RegexFault::Syntax)
    }
}

#[cfg(test)]
mod tests {
    use super::{PROXY_READ_STEPS_MAX, READ_STEPS_MAX, RegexFault, RegexText};

    fn steps(text: &str) -> u64 {
        RegexText::new(text).unwrap().steps()
    }

    #[test]
    fn what_people_write_is_far_below_the_bound() {
        for text in [
            "(?i)/(api|v[0-9]+)/[a-z0-9_-]+",
            "(?i)[^/]+",
            "(?i)/.*/(.*)",
            "\\w+",
            "(?i)\\w+/\\d+/\\s*",
            "(?i)\\p{L}+/\\p{Greek}",
            "(?i)/[\\w.-]+/[\\w.-]+/[^\\W_]+",
            "(?i)[^\\x00-\\x7F]",
            "(?i)/foo(/|$)(.*)",
        ] {
            assert!(steps(text) < READ_STEPS_MAX / 10, "{text} {}", steps(text));
            let read = RegexText::new(text).unwrap().read(READ_STEPS_MAX);
            assert_eq!(read, Ok(regex_syntax::parse(text).unwrap()), "{text}");
        }
        // All letters in either case: a million and some.
        assert!((1_000_000..READ_STEPS_MAX / 2).contains(&steps("(?i)[\\s\\S]*")));
        let words: Vec<_> = (0..300).map(|at| format!("word{at}")).collect();
        assert!(steps(&format!("(?i)/(?:{})", words.join("|"))) < READ_STEPS_MAX);
    }

    #[test]
    fn what_costs_much_is_not_read() {
        let nested = |class: &str, depth: usize| {
            let (open, close) = (format!("[{class}&&").repeat(depth), "]".repeat(depth));
            format!("(?i){open}{class}{close}")
        };
        let letters = ('\u{400}'..='\u{52f}').map(|letter| format!("{letter}|"));
        for text in [
            "(?i)[!-\u{1E943}]".repeat(5),
            format!("(?i){}", "[!-\u{1E943}]".repeat(5)),
            "(?i:[!-\u{1E943}][!-\u{1E943}])".repeat(3),
            "(?i)\\p{Any}".repeat(4),
            "(?i)[[^a]b]".repeat(4),
            "\\w".repeat(8_000),
            "[\\w]".repeat(3_000),
            nested("\\w", 100),
            format!("(?i){}", letters.collect::<String>().repeat(4)),
            format!("{}x{}", "(?:".repeat(100), "|\\w|ab)".repeat(100)),
        ] {
            assert!(steps(&text) > READ_STEPS_MAX, "{text} {}", steps(&text));
            let read = RegexText::new(&text).unwrap().read(READ_STEPS_MAX);
            assert_eq!(read, Err(RegexFault::Costly));
        }
        // Counting ends where even a proxy would not read.
        let full = steps("(?i)[!-\u{1E943}]");
        let counted = steps(&"(?i)[!-\u{1E943}]".repeat(500));
        assert!(counted <= PROXY_READ_STEPS_MAX + 2 * full);
    }

    #[test]
    fn case_is_that_of_the_flags_where_a_class_stands() {
        let class = "[!-\u{1E943}]";
        let folded = steps(&format!("(?i){class}"));
        for (text, is_folded) in [
            (format!("(?i)a(?-i){class}"), false),
            (format!("(?i:a){class}"), false),
            (format!("((?i)a){class}"), false),
            (format!("(?i)(?:a){class}"), true),
            (format!("(?-i:(?i:{class}))"), true),
            (format!("(?s-i){class}"), false),
            (class.to_owned(), false),
        ] {
            assert_eq!(steps(&text) > folded / 2, is_folded, "{text}");
        }
    }

    #[test]
    fn what_is_no_regex_is_not_counted() {
        for text in ["(", "(?=a)", "(a)\\1", "[b-a]"] {
            assert_eq!(RegexText::new(text).unwrap_err(), RegexFault::Syntax);
        }
        // The names of classes are looked up when it is read.
        let unknown = RegexText::new("\\p{Nobody}").unwrap();
        assert_eq!(unknown.read(READ_STEPS_MAX), Err(RegexFault::Syntax));
    }
}
