//! Paths that two servers may understand differently: refused, or brought into one form.
//!
//! Routes, policies and endpoints all see the same path, so what is brought into another form is
//! brought there before anybody looks at it.

use std::borrow::Cow;

use myriad_model::unescape;

use crate::failure::FailureKind;
use crate::limits::PathRule;

pub mod reading;

impl PathRule {
    /// A path as the rule wants it.
    ///
    /// # Errors
    /// [`FailureKind::BadRequest`] for what is refused.
    pub fn follow(self, path: &str) -> Result<Cow<'_, str>, FailureKind> {
        // Most paths have nothing that any rule would change, and are done here.
        if is_plain(path) {
            return Ok(Cow::Borrowed(path));
        }
        let followed = match self {
            PathRule::Dialect => resolved(path).ok_or(FailureKind::BadRequest)?,
            PathRule::AsIs => Cow::Borrowed(path),
            PathRule::Base => once(path, false, false)?,
            PathRule::MergeSlashes => once(path, false, true)?,
            PathRule::DecodeAndMergeSlashes => once(path, true, true)?,
            PathRule::Strict => match normal(path, true, true) == path && !has_bad_escape(path) {
                true => Cow::Borrowed(path),
                false => return Err(FailureKind::BadRequest),
            },
        };
        match is_one(&followed) {
            true => Ok(followed),
            false => Err(FailureKind::BadRequest),
        }
    }
}

/// Refuses bytes that no target has.
///
/// # Errors
/// Always [`FailureKind::BadRequest`].
pub fn check_bytes(path: &str, query: Option<&str>) -> Result<(), FailureKind> {
    let is_bad = |byte: u8| byte <= b' ' || byte == 0x7f || byte == b'#';
    match path.bytes().any(is_bad) || query.is_some_and(|query| query.bytes().any(is_bad)) {
        true => Err(FailureKind::BadRequest),
        false => Ok(()),
    }
}

/// Whether a path reads alike everywhere: no escape, no backslash, no parameter, no empty segment
/// and none that could be a dot segment.
pub fn is_plain(path: &str) -> bool {
    let mut before = [0; 2];
    let is_plain = path.bytes().all(|byte| {
        let is_odd = match byte {
            b'%' | b'\\' | b';' => true,
            b'/' => before[1] == b'/' || before == *b"/.",
            b'.' => before == *b"/.",
            _ => false,
        };
        before = [before[1], byte];
        !is_odd
    });
    is_plain && before != *b"/."
}

/// A path with its dot segments followed (RFC 3986, section 5.2.4) and backslashes as slashes.
/// All else stays as it came. None where a segment hides another, or a zero byte.
fn resolved(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('\\') && is_one(path) {
        return Some(Cow::Borrowed(path));
    }
    let rest = path.strip_prefix('/').unwrap_or_default();
    let mut made = Segments::with_capacity(path.len());
    let mut parts = rest.split(['/', '\\']).peekable();
    while let Some(segment) = parts.next() {
        // However they are escaped.
        match dots_of(segment) {
            0 => made.extend(Some(segment).filter(|segment| is_one(segment))?.as_bytes()),
            dots => made.extend(b"..".get(..dots).unwrap_or_default()),
        }
        made.end(parts.peek().is_none(), false);
    }
    made.into_text().map(Cow::Owned)
}

/// 1 for `.` and 2 for `..`, however they are escaped; 0 for all other segments.
fn dots_of(segment: &str) -> usize {
    let mut rest = segment;
    for count in 0..=2 {
        if rest.is_empty() {
            return count;
        }
        let escaped = rest.get(..3).filter(|it| it.eq_ignore_ascii_case("%2e"));
        rest = match (rest.strip_prefix('.'), escaped) {
            (Some(after), _) => after,
            (None, Some(_)) => rest.get(3..).unwrap_or_default(),
            (None, None) => return 0,
        };
    }
    0
}

/// The normal form of a path, unless that has another: an escape that undoing others has made.
fn once(path: &str, decodes: bool, merges: bool) -> Result<Cow<'_, str>, FailureKind> {
    let followed = normal(path, decodes, merges);
    match has_bad_escape(path) && normal(&followed, decodes, merges) != followed {
        true => Err(FailureKind::BadRequest),
        false => Ok(followed),
    }
}

/// Whether a path means one thing: no backslash, no zero byte, and no segment that is `.` or `..`
/// once `%2e`, `%2f`, `%5c` and `%3b` are decoded and parameters are left out.
fn is_one(path: &str) -> bool {
    !path.contains('\\') && !path.contains("%00") && !has_dot_segment(path)
}

fn has_dot_segment(path: &str) -> bool {
    let mut dots = 0_u32;
    // Whether the segment so far is dots only.
    let mut is_dots = true;
    let mut rest = path.as_bytes();
    loop {
        let (byte, after) = match rest {
            // What is no escape stands for itself: a slash behind it ends its segment.
            [b'%', after @ ..] => unescape(after).unwrap_or((b'%', after)),
            [byte, after @ ..] => (*byte, after),
            [] => return is_dots && (1..=2).contains(&dots),
        };
        rest = after;
        match byte {
            b'/' | b'\\' => {
                if is_dots && (1..=2).contains(&dots) {
                    return true;
                }
                dots = 0;
                is_dots = true;
            }
            // Some servers leave out parameters of segments first.
            b';' if is_dots && (1..=2).contains(&dots) => return true,
            b'.' => dots += 1,
            _ => is_dots = false,
        }
    }
}

/// Whether a percent sign is not followed by two digits.
fn has_bad_escape(path: &str) -> bool {
    let mut parts = path.split('%');
    // What stands before the first is no escape.
    parts.next();
    parts.any(|part| unescape(part.as_bytes()).is_none())
}

/// A path with escapes of unreserved bytes undone (RFC 3986, section 6.2.2), backslashes as
/// slashes and dot segments followed; with `decodes`, escaped slashes as slashes too, and with
/// `merges`, many slashes as one.
fn normal(path: &str, decodes: bool, merges: bool) -> Cow<'_, str> {
    let mut made = Segments::with_capacity(path.len());
    let mut rest = path.as_bytes().strip_prefix(b"/").unwrap_or_default();
    loop {
        let (is_slash, is_end) = match rest {
            [b'%', behind @ ..] => match unescape(behind) {
                Some((b'/' | b'\\', after)) if decodes => {
                    rest = after;
                    (true, false)
                }
                Some((byte, after)) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                    rest = after;
                    made.push(byte);
                    (false, false)
                }
                _ => {
                    rest = behind;
                    made.push(b'%');
                    (false, false)
                }
            },
            [b'/' | b'\\', after @ ..] => {
                rest = after;
                (true, false)
            }
            [byte, after @ ..] => {
                rest = after;
                made.push(*byte);
                (false, false)
            }
            [] => (true, true),
        };
        if is_slash {
            made.end(is_end, merges);
        }
        if is_end {
            break;
        }
    }
    // Only ASCII was taken out or put in, so what was text still is.
    match made.into_text() {
        Some(text) if text != path => Cow::Owned(text),
        _ => Cow::Borrowed(path),
    }
}

/// A path that is made segment by segment, in one buffer.
struct Segments {
    bytes: Vec<u8>,
    /// Where the slash before the segment stands that is being made.
    start: usize,
}

impl Segments {
    fn with_capacity(capacity: usize) -> Segments {
        let mut bytes = Vec::with_capacity(capacity + 1);
        bytes.push(b'/');
        Segments { bytes, start: 0 }
    }

    fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the segment is `..`, and no other stands before it.
    fn leads_above(&self) -> bool {
        self.bytes == b"/.."
    }

    /// Ends a segment: dot segments are followed, and with `merges` one that is empty is left out.
    fn end(&mut self, is_last: bool, merges: bool) {
        let segment = self.bytes.get(self.start + 1..).unwrap_or_default();
        let dots = match segment {
            b"." => 1,
            b".." => 2,
            b"" if merges && !is_last => 1,
            _ => 0,
        };
        if dots > 0 {
            self.bytes.truncate(self.start);
        }
        if dots == 2 {
            let before = self.bytes.iter().rposition(|byte| *byte == b'/');
            self.bytes.truncate(before.unwrap_or(0));
        }
        self.start = self.bytes.len();
        // What ends in a dot segment is a directory.
        if !is_last || dots > 0 {
            self.bytes.push(b'/');
        }
    }

    fn into_text(self) -> Option<String> {
        String::from_utf8(self.bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::limits::PathRule;

    #[test]
    fn each_rule_leaves_or_changes_or_refuses() {
        // The path, and what DIALECT, NONE, BASE, MERGE_SLASHES, DECODE_AND_MERGE_SLASHES and
        // STRICT make of it; empty where it is refused.
        for (path, expected) in [
            ("/a/b", ["/a/b"; 6]),
            ("/", ["/"; 6]),
            ("/a/", ["/a/"; 6]),
            ("/.well-known/x", ["/.well-known/x"; 6]),
            ("/a...", ["/a..."; 6]),
            ("/%61b", ["/%61b", "/%61b", "/ab", "/ab", "/ab", ""]),
            ("/%20", ["/%20"; 6]),
            ("/%zz", ["/%zz", "/%zz", "/%zz", "/%zz", "/%zz", ""]),
            ("/a%", ["/a%", "/a%", "/a%", "/a%", "/a%", ""]),
            ("/a//b", ["/a//b", "/a//b", "/a//b", "/a/b", "/a/b", ""]),
            ("//", ["//", "//", "//", "/", "/", ""]),
            ("/a/./b", ["/a/b", "", "/a/b", "/a/b", "/a/b", ""]),
            ("/a/../b", ["/b", "", "/b", "/b", "/b", ""]),
            ("/a/..", ["/", "", "/", "/", "/", ""]),
            ("/a/.", ["/a/", "", "/a/", "/a/", "/a/", ""]),
            ("/../../a", ["/a", "", "/a", "/a", "/a", ""]),
            ("/..", ["/", "", "/", "/", "/", ""]),
            ("/a/%2e%2E/b", ["/b", "", "/b", "/b", "/b", ""]),
            ("/a\\b", ["/a/b", "", "/a/b", "/a/b", "/a/b", ""]),
            ("/a\\..\\b", ["/b", "", "/b", "/b", "/b", ""]),
            (
                "/a%2fb",
                ["/a%2fb", "/a%2fb", "/a%2fb", "/a%2fb", "/a/b", ""],
            ),
            (
                "/a%5Cb",
                ["/a%5Cb", "/a%5Cb", "/a%5Cb", "/a%5Cb", "/a/b", ""],
            ),
            ("/a%2f..%2fb", ["", "", "", "", "/b", ""]),
            ("/a%2f%2e%2e%5cb", ["", "", "", "", "/b", ""]),
            // What is no escape hides nothing behind it.
            ("/a%/../b", ["/b", "", "/b", "/b", "/b", ""]),
            ("/%/./b", ["/%/b", "", "/%/b", "/%/b", "/%/b", ""]),
            (
                "/%%2e/b",
                ["/%%2e/b", "/%%2e/b", "/%./b", "/%./b", "/%./b", ""],
            ),
            ("/%%361", ["/%%361", "/%%361", "", "", "", ""]),
            ("/a%00b", [""; 6]),
            ("/a;b/c", ["/a;b/c"; 6]),
            ("/..;/a", [""; 6]),
            ("/a/%00/../b", ["", "", "/a/b", "/a/b", "/a/b", ""]),
            ("/a%2f../../b", ["", "", "/b", "/b", "/b", ""]),
            ("/a/.%2e%3bb/c", [""; 6]),
            ("/a%252e%252e/b", ["/a%252e%252e/b"; 6]),
        ] {
            for ((name, rule), expected) in PathRule::ALL.into_iter().zip(expected) {
                let followed = rule.follow(path);
                let followed = followed.as_deref().unwrap_or_default();
                assert_eq!(followed, expected, "{path} by {name}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_a_rule_leaves_it_leaves_again(
            path in "/([a./%\\\\]|%2[ef]|%5c|%61|//|\\.\\./){0,12}",
        ) {
            for (_, rule) in PathRule::ALL {
                let Ok(once) = rule.follow(&path) else {
                    continue;
                };
                prop_assert!(once.starts_with('/'));
                let again = rule.follow(&once);
                prop_assert_eq!(again.as_deref(), Ok(&*once));
            }
        }
    }
}
