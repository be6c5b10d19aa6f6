//! The words of an expression.

use std::fmt;

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Names joined by dots.
    Name(String),
    /// A name behind a bracket and a dot.
    Method(String),
    /// A text, without its quotes.
    Text(String),
    /// A whole number.
    Number(i64),
    /// An operator, bracket or comma.
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(text) | Token::Method(text) => f.write_str(text),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Number(number) => write!(f, "{number}"),
            Token::Sign(sign) => f.write_str(sign),
        }
    }
}

/// The longer ones go first.
const SIGNS: [&str; 16] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ",", "?", ":",
];

/// Cuts an expression into words.
///
/// # Errors
/// A part of the text is no token.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '"' | '\'' => quoted(rest, first)?,
            '0'..='9' | '-' => number(rest)?,
            'a'..='z' | 'A'..='Z' | '_' => name(rest),
            '.' => {
                let (token, length) = name(rest.get(1..).unwrap_or_default());
                match token {
                    Token::Name(name) if !name.is_empty() => (Token::Method(name), length + 1),
                    _ => return Err("has a dot without a name".to_owned()),
                }
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => return Err(format!("has {first:?}, which is not understood")),
            },
        };
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

fn name(rest: &str) -> (Token, usize) {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    let text = rest.get(..length).unwrap_or_default();
    (Token::Name(text.to_owned()), length)
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '-' | '.');
    let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
    let text = rest.get(..length).unwrap_or_default();
    let number = text
        .parse()
        .map_err(|_| format!("has {text}, which is no whole number"))?;
    // Numbers without sign bear a letter.
    let is_unsigned = rest.get(length..).is_some_and(|rest| rest.starts_with('u'));
    Ok((Token::Number(number), length + usize::from(is_unsigned)))
}

fn quoted(rest: &str, quote: char) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            letter if letter == quote => return Ok((Token::Text(text), at + 1)),
            '\\' => match letters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, it @ ('\\' | '\'' | '"' | '?' | '`'))) => text.push(it),
                _ => return Err("has an escape that is not understood".to_owned()),
            },
            letter => text.push(letter),
        }
    }
    Err("has a text without end".to_owned())
}
