//! Paths as access policies compare them, in each reading that an endpoint may have of them.
//!
//! Policies that close look whether any reading fits, and policies that open whether all of them
//! do. Escapes of letters, digits, `-`, `.`, `_` and `~` mean these to all servers (RFC 3986,
//! section 6.2.2.2), so a policy that opens goes by the path with those undone and asks no more of
//! the path as it came.

use myriad_model::AccessMatcher;

use crate::codec::path::reading::{Readings, widened};

/// Whether a path fits. `readings` are those of a path that has more than one, and `wide` looks
/// for any that fits. `*`, which asks about the server as a whole, is compared as `/`.
pub fn fits(form: &AccessMatcher, path: &str, readings: Option<&Readings>, wide: bool) -> bool {
    let path = match path {
        "*" => "/",
        path => path,
    };
    let Some(readings) = readings else {
        return fits_one(form, path);
    };
    // What is written with escapes is compared without them where the path is.
    let undone = undone(form);
    let fits_undone = |path: &str| fits_one(form, path) || fits_one(&undone, path);
    match wide {
        true => {
            let plainest = [path, readings.base()].into_iter();
            plainest.chain(readings.others(path)).any(fits_undone)
        }
        false => fits_one(form, readings.base()) && readings.others(path).all(fits_undone),
    }
}

/// A form as it is compared with readings that have no escapes.
fn undone(form: &AccessMatcher) -> AccessMatcher {
    let undo = |text: &str| widened(text).into();
    match form {
        AccessMatcher::Exact(text) => AccessMatcher::Exact(undo(text)),
        AccessMatcher::Prefix(text) => AccessMatcher::Prefix(undo(text)),
        AccessMatcher::Suffix(text) => AccessMatcher::Suffix(undo(text)),
        AccessMatcher::Template(text) => AccessMatcher::Template(undo(text)),
        AccessMatcher::Present | AccessMatcher::Block(_) => form.clone(),
    }
}

fn fits_one(form: &AccessMatcher, path: &str) -> bool {
    match form {
        AccessMatcher::Template(template) => fits_template(template, path),
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
