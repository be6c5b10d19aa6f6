//! Keys of session tickets as text: one to a line, in 64 hexadecimal digits. The first one makes
//! tickets, and all of them open tickets. Empty lines, and those that begin with `#`, say nothing.

use std::fmt::Write as _;

/// The most keys: whoever replaces one needs three.
pub const KEYS_MAX: usize = 16;

/// A key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey(pub [u8; 32]);

/// Why a text is none of keys. It has nothing of the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKeys {
    /// A line that is no key.
    #[error(
        "line {line} has {characters} characters and is no key of 64 hexadecimal digits; \
         `openssl rand -hex 32` makes one"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its length.
        characters: usize,
    },
    /// A key that anybody could guess.
    #[error("line {0} is not random; `openssl rand -hex 32` makes a key that is")]
    Guessable(usize),
    /// A key that is there before.
    #[error("line {line} has the key of line {before}; take one of them out")]
    Again {
        /// Its number, from 1.
        line: usize,
        /// The one before.
        before: usize,
    },
    /// More than are of use.
    #[error("line {0} is one key more than {KEYS_MAX}; take out those that are older than a day")]
    TooMany(usize),
    /// No key at all.
    #[error("it has no key; `openssl rand -hex 32` makes one")]
    Empty,
}

/// Reads keys, of which there is at least one.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(text: &str) -> Result<Vec<TicketKey>, MalformedKeys> {
    let mut keys: Vec<TicketKey> = Vec::new();
    let mut lines = Vec::new();
    for (line, written) in (1..).zip(text.lines()) {
        let written = written.trim();
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        let key = key(written).ok_or_else(|| MalformedKeys::Line {
            line,
            characters: written.chars().count(),
        })?;
        if key.0.iter().all(|byte| *byte == key.0[0]) {
            return Err(MalformedKeys::Guessable(line));
        }
        if let Some(place) = keys.iter().position(|known| *known == key) {
            let before = lines[place];
            return Err(MalformedKeys::Again { line, before });
        }
        if keys.len() == KEYS_MAX {
            return Err(MalformedKeys::TooMany(line));
        }
        keys.push(key);
        lines.push(line);
    }
    match keys.is_empty() {
        true => Err(MalformedKeys::Empty),
        false => Ok(keys),
    }
}

/// Writes keys so that they are read again.
pub fn expose(keys: &[TicketKey]) -> String {
    let mut text = String::new();
    for key in keys {
        for byte in key.0 {
            // Writing into a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text
}

fn key(digits: &str) -> Option<TicketKey> {
    let mut key = [0; 32];
    let pairs = digits.as_bytes().chunks(2);
    if digits.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(pairs) {
        let [high, low] = pair else {
            return None;
        };
        let digit = |it: &u8| char::from(*it).to_digit(16);
        *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    }
    Some(TicketKey(key))
}

#[cfg(test)]
mod tests {
    use super::{KEYS_MAX, MalformedKeys, TicketKey, expose, parse};

    fn numbered(number: u8) -> TicketKey {
        let mut key = [0xA5; 32];
        key[31] = number;
        TicketKey(key)
    }

    #[test]
    fn keys_are_read_as_they_were_written_and_in_their_order() {
        let keys: Vec<TicketKey> = (0..).take(KEYS_MAX).map(numbered).collect();
        let text = expose(&keys);
        assert!(parse(&text).is_ok_and(|read| read == keys));
        // As an editor may leave it.
        let loose = text.to_uppercase().replace('\n', " \r\n\r\n# older\r\n");
        assert!(parse(&loose).is_ok_and(|read| read == keys));
    }

    #[test]
    fn what_is_no_list_of_keys_is_refused_by_line_and_never_repeated() {
        let keys: Vec<TicketKey> = (0..).take(KEYS_MAX).map(numbered).collect();
        let all = expose(&keys);
        let first = expose(&keys[..1]);
        let short = &first[..63];
        let line = |line, characters| MalformedKeys::Line { line, characters };
        for (text, wanted) in [
            (String::new(), MalformedKeys::Empty),
            ("# nothing\n\n".to_owned(), MalformedKeys::Empty),
            (format!("\n{short}\n"), line(2, 63)),
            (format!("{first}{short}g"), line(2, 64)),
            (format!("{short}ä"), line(1, 64)),
            (format!("+{short}"), line(1, 64)),
            (format!("{} {}", &first[..32], &first[32..]), line(1, 65)),
            (
                format!("{first}{first}"),
                MalformedKeys::Again { line: 2, before: 1 },
            ),
            (
                format!("#\n{}\n", "ab".repeat(32)),
                MalformedKeys::Guessable(2),
            ),
            (
                format!("{all}{}", expose(&[numbered(99)])),
                MalformedKeys::TooMany(17),
            ),
        ] {
            let found = parse(&text).err().unwrap();
            assert!(!found.to_string().contains("a5a5"), "{found}");
            assert_eq!(found, wanted);
        }
    }
}
