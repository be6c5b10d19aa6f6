//! The path that is sent upstream.

use myriad_model::{PathReading, PathRewrite, PathView, RouteView};

use crate::codec::head::{Head, check_path};
use crate::codec::path::reading::escaped;
use crate::failure::FailureKind;
use crate::limits::PathRule;
use crate::pattern::{Budget, Groups, Pattern};
use crate::route::entry::RouteEntry;

/// The longest rewritten path in bytes; what is longer is never sent.
const PATH_BYTES_MAX: usize = 64 << 10;

/// The match of a path.
#[derive(Clone, Copy)]
pub struct Matched<'a> {
    /// The match.
    pub path: PathView<'a>,
    /// Its regex, where it is one.
    pub regex: Option<&'a Pattern>,
    /// The reading of the path that it was compared with.
    pub reading: PathReading,
    /// The steps that looking for it may cost.
    pub budget: &'a Budget,
}

impl<'a> Matched<'a> {
    /// The match of a route's path. `budget` is what looking for it may cost.
    pub fn of(entry: &'a RouteEntry, route: RouteView<'a>, budget: &'a Budget) -> Self {
        Matched {
            path: route.path,
            regex: entry.path_regex(),
            reading: route.policy.path_reading,
            budget,
        }
    }
}

/// The path that a rule makes of a request's. `substituted` is the regex of a substitution.
///
/// # Errors
/// A path that is too long, that nobody may ask for, or whose regex takes too many steps.
pub fn rewrite(
    rule: &PathRewrite,
    matched: Matched<'_>,
    substituted: Option<&Pattern>,
    head: &Head<'_>,
) -> Result<String, FailureKind> {
    let path = head.read(matched.reading)?;
    let made = make(rule, matched, substituted, path)?;
    // What is put together of harmless parts may still lead out of where it should stay.
    sendable(made, matched, head)
}

/// A path that was made of a request's, as it can be sent.
///
/// # Errors
/// A path that nobody may ask for, or that was made with more steps than there are.
pub fn sendable(
    made: String,
    matched: Matched<'_>,
    head: &Head<'_>,
) -> Result<String, FailureKind> {
    if matched.budget.is_spent() {
        return Err(FailureKind::RegexBudget);
    }
    let is_decoded = matched.reading == PathReading::Decoded && head.readings.is_some();
    let made = match is_decoded {
        true => escaped(&made),
        false => made,
    };
    check_path(&made, None, PathRule::AsIs)?;
    Ok(made)
}

fn make(
    rule: &PathRewrite,
    matched: Matched<'_>,
    substituted: Option<&Pattern>,
    path: &str,
) -> Result<String, FailureKind> {
    let made = match rule {
        PathRewrite::Template(template) => fill(template, matched, path),
        PathRewrite::Matched(with) => Some(replace(with, matched, path)),
        PathRewrite::Substitution { template, .. } => match substituted {
            Some(regex) => substitute(template, regex, path, matched.budget),
            None => return Err(FailureKind::Internal),
        },
    };
    if matched.budget.is_spent() {
        return Err(FailureKind::RegexBudget);
    }
    let made = made.filter(|made| made.len() <= PATH_BYTES_MAX);
    made.ok_or(FailureKind::TargetTooLong)
}

/// The path with something else in place of what the match covers. A prefix ends where an
/// element does, so that exactly one slash follows what stands in its place; a start is replaced
/// to the letter.
pub fn replace(with: &str, matched: Matched<'_>, path: &str) -> String {
    let (with, rest) = match matched.path {
        PathView::Exact(_) => (with, ""),
        PathView::Start(start) => (with, path.get(start.len()..).unwrap_or("")),
        PathView::Regex(_) => {
            let regex = matched.regex;
            let end = regex.and_then(|regex| regex.match_end(path.as_bytes(), matched.budget));
            (with, path.get(end.unwrap_or(0)..).unwrap_or(""))
        }
        PathView::Prefix("/") => match path {
            "/" => (with, ""),
            path => (with.trim_end_matches('/'), path),
        },
        PathView::Prefix(prefix) => match path.get(prefix.len()..).unwrap_or("") {
            "" => (with, ""),
            rest => (with.trim_end_matches('/'), rest),
        },
    };
    let slash = if with.starts_with('/') || (with.is_empty() && rest.starts_with('/')) {
        ""
    } else {
        "/"
    };
    [slash, with, rest].concat()
}

/// A template with `$1` to `$9` replaced by groups of the match. A group that took no part is
/// empty. None where the result is too long.
fn fill(template: &str, matched: Matched<'_>, path: &str) -> Option<String> {
    // Groups cost more than the match does: a template without them need not know.
    let regex = matched.regex.filter(|_| template.contains('$'));
    let groups = regex.and_then(|regex| regex.groups(path.as_bytes(), matched.budget));
    let mut out = String::with_capacity(template.len() + path.len());
    if !template.starts_with(['/', '$']) {
        out.push('/');
    }
    expand(template, groups, path, &mut out)?;
    Some(rooted(out))
}

/// The path with a template in place of everything that a regex finds. None where the result is
/// too long.
fn substitute(template: &str, regex: &Pattern, path: &str, budget: &Budget) -> Option<String> {
    let mut out = String::with_capacity(template.len() + path.len());
    let (mut copied, mut from, mut last) = (0, 0, None);
    while let Some(groups) = regex.find(path.as_bytes(), from, budget) {
        let Some(found) = groups.get(0) else {
            break;
        };
        // Nothing is not found where something has just ended.
        if last.replace(found.end) != Some(found.end) {
            out.push_str(path.get(copied..found.start).unwrap_or(""));
            expand(template, Some(groups), path, &mut out)?;
            copied = found.end;
        }
        from = match path.get(found.end..).and_then(|rest| rest.chars().next()) {
            _ if !found.is_empty() => found.end,
            Some(letter) => found.end + letter.len_utf8(),
            None => break,
        };
    }
    out.push_str(path.get(copied..).unwrap_or(""));
    Some(rooted(out))
}

fn expand(template: &str, groups: Option<Groups>, path: &str, out: &mut String) -> Option<()> {
    let mut rest = template;
    while let Some(dollar) = rest.find('$') {
        let (before, after) = rest.split_at(dollar);
        out.push_str(before);
        let digit = after.chars().nth(1).and_then(|letter| letter.to_digit(10));
        match digit.filter(|digit| *digit > 0) {
            Some(digit) => {
                let group = groups.and_then(|found| found.get(digit as usize));
                out.push_str(group.and_then(|span| path.get(span)).unwrap_or(""));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push('$');
                rest = after.get(1..).unwrap_or_default();
            }
        }
        if out.len() > PATH_BYTES_MAX {
            return None;
        }
    }
    out.push_str(rest);
    (out.len() <= PATH_BYTES_MAX).then_some(())
}

/// Every path begins with a slash.
fn rooted(mut path: String) -> String {
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    path
}

#[cfg(test)]
mod tests {
    use myriad_model::{PathReading, PathRewrite, PathView};

    use super::{Matched, PATH_BYTES_MAX, fill, replace, rewrite, substitute};
    use crate::codec::head;
    use crate::failure::FailureKind;
    use crate::limits::Limits;
    use crate::pattern::{Budget, Pattern};

    #[test]
    fn groups_are_put_in_their_places() {
        for (template, regex, path, result) in [
            ("/$2", "/a(/|$)(.*)", "/a/b/c", "/b/c"),
            ("/$2", "/a(/|$)(.*)", "/a", "/"),
            ("$1", "/a(.*)", "/a/b", "/b"),
            ("$1", "/a(.*)", "/ab", "/b"),
            ("/x/$1/$3", "/(a)(b)?(c)", "/ac", "/x/a/c"),
            ("/x$", "/a", "/a", "/x$"),
            ("/$0$x", "/a", "/a", "/$0$x"),
        ] {
            let path_match = PathView::Regex(regex);
            let regex = Pattern::new(regex).unwrap();
            let matched = Matched {
                path: path_match,
                regex: Some(&regex),
                reading: PathReading::AsSent,
                budget: &Budget::default(),
            };
            let found = fill(template, matched, path);
            assert_eq!(found.as_deref(), Some(result), "{template} of {path}");
        }
    }

    #[test]
    fn a_template_without_groups_is_the_path() {
        let matched = Matched {
            path: PathView::Start("/a"),
            regex: None,
            reading: PathReading::AsSent,
            budget: &Budget::default(),
        };
        assert_eq!(fill("/", matched, "/a/b").as_deref(), Some("/"));
        assert_eq!(fill("x", matched, "/a/b").as_deref(), Some("/x"));
        assert_eq!(fill("/$1", matched, "/a/b").as_deref(), Some("/"));
    }

    #[test]
    fn what_the_match_covers_is_replaced() {
        let (exact, prefix, start) = (PathView::Exact, PathView::Prefix, PathView::Start);
        for (path_match, with, path, result) in [
            (exact("/a"), "/x", "/a", "/x"),
            (exact("/a"), "", "/a", "/"),
            (prefix("/a"), "/x", "/a/b", "/x/b"),
            (prefix("/a"), "/x/", "/a/b", "/x/b"),
            (prefix("/a"), "/", "/a/b", "/b"),
            (prefix("/a"), "", "/a/b", "/b"),
            (prefix("/a"), "/", "/a", "/"),
            (prefix("/a"), "/x/", "/a", "/x/"),
            (prefix("/a"), "/x", "/a/", "/x/"),
            (prefix("/"), "/x", "/a", "/x/a"),
            (prefix("/"), "/x", "/", "/x"),
            (start("/a"), "/x", "/ab/c", "/xb/c"),
            (start("/a/"), "/", "/a/b", "/b"),
            (start("/a"), "/", "/a/b", "//b"),
            (start("/a"), "", "/ab", "/b"),
        ] {
            let matched = Matched {
                path: path_match,
                regex: None,
                reading: PathReading::AsSent,
                budget: &Budget::default(),
            };
            assert_eq!(
                replace(with, matched, path),
                result,
                "{path_match:?} {path}"
            );
        }
        let regex = Pattern::new("(?i)/A+").unwrap();
        let matched = Matched {
            path: PathView::Regex("(?i)/A+"),
            regex: Some(&regex),
            reading: PathReading::AsSent,
            budget: &Budget::default(),
        };
        assert_eq!(replace("/x", matched, "/aAab/c"), "/xb/c");
    }

    #[test]
    fn everything_that_is_found_is_substituted() {
        for (regex, template, path, result) in [
            ("a", "b", "/a/ca", "/b/cb"),
            ("/v([0-9])/([^/]*)", "/$2/$1", "/v1/x/v2/y", "/x/1/y/2"),
            (
                "^/service/([^/]+)(/.*)$",
                "$2/instance/$1",
                "/service/foo/v1/api",
                "/v1/api/instance/foo",
            ),
            ("x", "y", "/a", "/a"),
            ("^/", "", "/a", "/a"),
            ("x*", "-", "/xa", "/-/-a-"),
            ("", ".", "/ä", "/./.ä."),
        ] {
            let pattern = Pattern::new(regex).unwrap();
            let found = substitute(template, &pattern, path, &Budget::default());
            assert_eq!(found.as_deref(), Some(result), "{regex} of {path}");
        }
    }

    #[test]
    fn nothing_leads_out_of_where_it_should_stay() {
        let path_match = PathView::Start("/a");
        let matched = Matched {
            path: path_match,
            regex: None,
            reading: PathReading::AsSent,
            budget: &Budget::default(),
        };
        let made = |with: &str| {
            let bytes = b"GET /a./b HTTP/1.1\r\nHost: a\r\n\r\n";
            let head = head::parse(bytes, &Limits::default()).unwrap();
            rewrite(&PathRewrite::Matched(with.into()), matched, None, &head)
        };
        assert_eq!(made("/x").as_deref(), Ok("/x./b"));
        assert_eq!(made("/.").unwrap_err(), FailureKind::BadRequest);
        assert_eq!(made("/x y").unwrap_err(), FailureKind::BadRequest);
        let long = "x".repeat(PATH_BYTES_MAX);
        assert_eq!(made(&long).unwrap_err(), FailureKind::TargetTooLong);
    }
}
