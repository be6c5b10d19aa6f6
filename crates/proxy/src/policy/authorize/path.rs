//! Paths as guards compare them.
//!
//! Heads with dot segments and backslashes never come this far. What is left of Istio's default
//! normalisation is that escapes of letters, digits, `-`, `.`, `_` and `~` mean these (RFC 3986,
//! section 6.2.2.2). Whoever looks at every reading also takes the path with all escapes undone
//! and empty segments left out, because endpoints may do so.

use std::borrow::Cow;

use myriad_model::GuardForm;

/// Whether a path fits.
pub fn fits(form: &GuardForm, path: &str, wide: bool) -> bool {
    let normal = unescape(path, |byte| {
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
    });
    if fits_one(form, &normal) {
        return true;
    }
    if !wide {
        return false;
    }
    if path.contains('%') && fits_one(form, &unescape(path, |_| true)) {
        return true;
    }
    let is_plain = !path.contains('%') && !path.contains("//");
    !is_plain && fits_one(form, &merge_slashes(&unescape(path, |_| true)))
}

fn fits_one(form: &GuardForm, path: &str) -> bool {
    match form {
        GuardForm::Template(template) => fits_template(template, path),
        other => super::fits(other, path),
    }
}

/// `{*}` is one segment that is not empty, and `{**}` any number of segments, or none.
fn fits_template(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some("{**}"), found) => {
                let after: Vec<&str> = template.collect();
                let rest: Vec<&str> = found.into_iter().chain(path).collect();
                return fits_end(&after, &rest);
            }
            (Some("{*}"), Some(segment)) if !segment.is_empty() => {}
            (Some(text), Some(segment)) if text == segment => {}
            _ => return false,
        }
    }
}

/// Whether the last segments fit what stands behind `{**}`.
fn fits_end(after: &[&str], rest: &[&str]) -> bool {
    let Some(start) = rest.len().checked_sub(after.len()) else {
        return false;
    };
    let last = rest.get(start..).unwrap_or_default();
    after.iter().zip(last).all(|(text, segment)| match *text {
        "{*}" => !segment.is_empty(),
        text => text == *segment,
    })
}

/// A path with those escapes undone whose byte is picked. Most paths have none.
fn unescape(path: &str, picked: impl Fn(u8) -> bool) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    loop {
        match rest {
            [b'%', high, low, after @ ..] => {
                let digits = (digit(*high), digit(*low));
                match digits {
                    (Some(high), Some(low)) if picked(high * 16 + low) => {
                        out.push(high * 16 + low);
                    }
                    // What is no escape stands for itself, and what is behind may be one.
                    _ => {
                        out.push(b'%');
                        rest = rest.get(1..).unwrap_or_default();
                        continue;
                    }
                }
                rest = after;
            }
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
            [] => break,
        }
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !merged.ends_with('/') {
            merged.push(letter);
        }
    }
    merged
}
