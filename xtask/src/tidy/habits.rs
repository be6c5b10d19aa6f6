//! Habits of text: notes with an issue, clean line ends, doc lines that begin with the thing, and
//! how a crate introduces itself.

use crate::survey::{self, Survey};
use crate::tidy::sizes;
use crate::violation::Violation;

/// Notes to oneself, which are forgotten unless an issue remembers them. Written in two parts,
/// so that this file is not its own offender.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// Words that no doc line opens with: they leave out the thing that the line is about.
const RIDDLES: [&str; 4] = ["What", "Those", "Whom", "Whoever"];

/// The sentences that each crate opens with, in this order.
const SENTENCES: [&str; 3] = ["**Does**", "**Knows**", "**Never**"];

/// Checks any text file.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let rust = path.ends_with(".rs");
    if is_long_checked(path) && !survey::is_generated(text) {
        found.extend(sizes::long_lines(path, text));
    }
    for (index, line) in text.lines().enumerate() {
        let mut add = |rule, what: String, remedy| {
            found.push(Violation {
                path: path.to_owned(),
                line: index + 1,
                rule,
                what,
                remedy,
            });
        };
        if let Some(note) = note_without_issue(line) {
            let what = format!("`{note}` without the issue that remembers it");
            add("note", what, "do it now, or name the issue as `#7`");
        }
        if line.ends_with([' ', '\t', '\r']) {
            let what = "space at the end of the line".to_owned();
            add("trailing-space", what, "remove it");
        }
        if rust && line.contains('\t') {
            add("tab", "a tab".to_owned(), "run `cargo fmt`, or write \\t");
        }
        if rust && let Some(word) = riddle(line) {
            let what = format!("a doc line that opens with `{word}`");
            add("riddle", what, "begin with the thing, and say what it is");
        }
    }
    found
}

/// Each library opens with the three sentences that say what it does, knows and never does.
pub(super) fn check_headers(survey: &Survey) -> Vec<Violation> {
    let libraries = survey.rust.iter().filter(|file| is_library(&file.path));
    let missing = libraries.filter(|file| !has_sentences(&file.text));
    let violations = missing.map(|file| Violation {
        path: file.path.clone(),
        line: 1,
        rule: "header",
        what: format!("does not open with `//!` and {}", SENTENCES.join(", ")),
        remedy: "write the three sentences before the first item, in this order",
    });
    violations.collect()
}

/// Rust files are measured with the other sizes.
fn is_long_checked(path: &str) -> bool {
    path.ends_with(".proto") || path.ends_with(".sh") || path.ends_with("/run")
}

fn is_library(path: &str) -> bool {
    let inner = path.strip_prefix("crates/");
    let folder = inner.and_then(|path| path.strip_suffix("/src/lib.rs"));
    folder.is_some_and(|folder| !folder.contains('/'))
}

fn has_sentences(text: &str) -> bool {
    let header = text.lines().take_while(|line| line.starts_with("//!"));
    let header: String = header.collect();
    let mut rest = header.as_str();
    SENTENCES.iter().all(|sentence| {
        let position = rest.find(sentence);
        rest = position.map_or("", |at| &rest[at..]);
        position.is_some()
    })
}

/// The first note in a line after which no `#` with a number follows.
fn note_without_issue(line: &str) -> Option<&'static str> {
    NOTES.into_iter().find(|note| {
        let mut places = line.match_indices(note);
        places.any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = &line[at + note.len()..];
            let whole = !before.is_some_and(is_word) && !after.chars().next().is_some_and(is_word);
            whole && !names_issue(after)
        })
    })
}

/// The word that a doc line opens with, if it is one of [`RIDDLES`].
fn riddle(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    let text = text.trim_start();
    RIDDLES.into_iter().find(|word| {
        let rest = text.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(is_word))
    })
}

fn names_issue(text: &str) -> bool {
    let mut places = text.match_indices('#');
    places.any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
