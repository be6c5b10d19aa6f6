//! Changes of the host and the path that backends see.

use myriad_api::gateway::{PathModifier, UrlRewrite};
use myriad_model::{PathRewrite, Rewrite};

use super::fault::RuleFaults;
use super::redirect::{bad_path, host, is_prefix_fit, rooted, unknown_modifier};
use crate::resolve::sendable::escaped;

/// Reads a filter. Nothing, where it changes nothing or a part of it cannot be honoured.
pub(super) fn read(
    written: &UrlRewrite,
    field: &str,
    is_by_prefix: bool,
    faults: &mut RuleFaults,
) -> Option<Rewrite> {
    let authority = host(written.hostname.as_deref(), field, faults)?;
    let path = match &written.path {
        Some(path) => Some(read_path(path, field, is_by_prefix, faults)?),
        None => None,
    };
    (path.is_some() || !authority.is_empty()).then_some(Rewrite { path, authority })
}

fn read_path(
    written: &PathModifier,
    field: &str,
    is_by_prefix: bool,
    faults: &mut RuleFaults,
) -> Option<PathRewrite> {
    match written {
        PathModifier::Full(text) => {
            let Some(path) = escaped(text).filter(|_| !text.contains(['?', '#'])) else {
                bad_path(format!("{field}.path.replaceFullPath"), faults);
                return None;
            };
            Some(PathRewrite::Template(literal(&rooted(path))))
        }
        PathModifier::Prefix(text) => {
            let is_fit = is_prefix_fit(text, field, is_by_prefix, faults);
            let path = escaped(text).filter(|_| is_fit)?;
            Some(PathRewrite::Matched(path))
        }
        PathModifier::Other(kind) => {
            unknown_modifier(kind, field, faults);
            None
        }
    }
}

/// A path as a template that stands for itself: what would be a group of a regex there is escaped.
fn literal(path: &str) -> Box<str> {
    let mut text = String::with_capacity(path.len());
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter == '$' && letters.peek().is_some_and(char::is_ascii_digit) {
            true => text.push_str("%24"),
            false => text.push(letter),
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{PathModifier, UrlRewrite};
    use myriad_model::{PathRewrite, Rewrite};

    use super::{RuleFaults, read};

    fn written(hostname: Option<&str>, path: Option<PathModifier>) -> UrlRewrite {
        UrlRewrite {
            hostname: hostname.map(Into::into),
            path,
        }
    }

    #[test]
    fn a_host_a_path_and_a_prefix_are_rewritten() {
        let full = |text: &str| Some(PathModifier::Full(text.into()));
        let template = |text: &str| Some(PathRewrite::Template(text.into()));
        for (host, path, expected) in [
            (Some("b.example"), None, None),
            (None, full("/one"), template("/one")),
            (None, full("one"), template("/one")),
            (None, full("/$1/$x/$"), template("/%241/$x/$")),
            (None, full("/a b"), template("/a%20b")),
            (
                Some("b.example"),
                Some(PathModifier::Prefix("/one".into())),
                Some(PathRewrite::Matched("/one".into())),
            ),
            (
                None,
                Some(PathModifier::Prefix("".into())),
                Some(PathRewrite::Matched("".into())),
            ),
        ] {
            let mut faults = RuleFaults::default();
            let found = read(&written(host, path), "f", true, &mut faults);
            let expected = Rewrite {
                path: expected,
                authority: host.unwrap_or("").into(),
            };
            assert_eq!(found, Some(expected));
            assert!(faults.told().is_empty());
        }
        let mut faults = RuleFaults::default();
        assert_eq!(read(&written(None, None), "f", true, &mut faults), None);
        assert!(faults.told().is_empty());
    }

    #[test]
    fn what_cannot_be_sent_drops_the_rule_and_is_named() {
        let prefix = |text: &str| Some(PathModifier::Prefix(text.into()));
        for (written, is_by_prefix, field) in [
            (written(Some("a/b"), None), true, "f.hostname"),
            (written(None, prefix("/a")), false, "f.path"),
            (
                written(None, prefix("/a\n")),
                true,
                "f.path.replacePrefixMatch",
            ),
            (
                written(None, Some(PathModifier::Full("/a?b".into()))),
                true,
                "f.path.replaceFullPath",
            ),
            (
                written(None, Some(PathModifier::Other("X".into()))),
                true,
                "f.path.type",
            ),
        ] {
            let mut faults = RuleFaults::default();
            assert!(read(&written, "f", is_by_prefix, &mut faults).is_none());
            let found = faults.dropping().map(|fault| &*fault.field);
            assert_eq!(found, Some(field));
        }
    }
}
