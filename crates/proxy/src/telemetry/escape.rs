//! Letters that a line of a log never has as they are.

/// Whether a letter would end a line, order a terminal about, or show a text in another order than
/// it has: control characters, separators of lines and paragraphs, and marks of direction. They are
/// the same that lines of findings do not have.
pub(super) fn is_escaped(letter: char) -> bool {
    let is_mark = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || is_mark
}
