//! Scalars whose meaning is the same in every version of YAML.

/// Writes a plain scalar: null, a word for true or false, a whole number, or a text.
pub(super) fn plain(text: &str, json: &mut String) -> Option<()> {
    let first = *text.as_bytes().first()?;
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if text == "~" || is(&["null"]) {
        json.push_str("null");
    } else if is(&["true"]) {
        json.push_str("true");
    } else if is(&["false"]) {
        json.push_str("false");
    } else if is(&["y", "yes", "n", "no", "on", "off"]) {
        return None;
    } else if is_whole(text) {
        json.push_str(text);
    } else {
        let is_text = match first {
            b'0'..=b'9' => is_no_number(text),
            b'.' => text.starts_with("./"),
            _ => first.is_ascii_alphabetic() || b"/_^($\\".contains(&first),
        };
        // With a colon it might be a mapping within a scalar.
        if !is_text || text.contains(": ") || text.ends_with(':') {
            return None;
        }
        push_text(text, json);
    }
    Some(())
}

/// Writes the quoted scalar that a text begins with, and returns what stands behind it.
pub(super) fn quoted<'a>(text: &'a str, json: &mut String) -> Option<&'a str> {
    let mark = text
        .chars()
        .next()
        .filter(|mark| matches!(mark, '"' | '\''))?;
    let (inner, rest) = text.get(1..)?.split_once(mark)?;
    // Two quotation marks stand for one within.
    if (mark == '"' && inner.contains('\\')) || rest.starts_with(mark) {
        return None;
    }
    push_text(inner, json);
    Some(rest)
}

/// A decimal number, as short as it can be.
fn is_whole(text: &str) -> bool {
    text == "0"
        || text.len() <= 18
            && !text.starts_with('0')
            && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether what begins with a digit is a number in no version: it has a letter that no number has,
/// such as the unit of a time, or several points, as addresses do.
fn is_no_number(text: &str) -> bool {
    let has_letter = text
        .bytes()
        .any(|byte| !byte.is_ascii_hexdigit() && !b"xXoO_.+-".contains(&byte));
    let is_address = || {
        let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        text.bytes().all(is_part) && text.bytes().filter(|byte| *byte == b'.').count() > 1
    };
    has_letter || is_address()
}

/// Writes printable ASCII as a string of JSON.
fn push_text(text: &str, json: &mut String) {
    json.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\\']) {
        let (before, from) = rest.split_at(at);
        let (mark, after) = from.split_at(1);
        json.push_str(before);
        json.push('\\');
        json.push_str(mark);
        rest = after;
    }
    json.push_str(rest);
    json.push('"');
}
