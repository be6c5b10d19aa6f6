//! Paths as people write them, and which of two goes first.

use std::borrow::Cow;
use std::fmt::Write as _;

use myriad_api::PathType;
use myriad_model::{PathMatch, PathRewrite, unescape};

use super::annotations::Options;
use crate::regex::{self, COSTLY, COSTLY_REMEDY, TooMany};

/// The longest path in bytes.
pub(super) const PATH_BYTES_MAX: usize = 4_096;

/// The prefix that makes a regex ignore case.
const ANY_CASE: &str = "(?i)";

/// Why a path is without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathProblem {
    /// No slash at its start.
    #[error("does not start with '/'")]
    NotAbsolute,
    /// `pathType: Exact` without a path.
    #[error("is missing")]
    Missing,
    /// Longer than [`PATH_BYTES_MAX`].
    #[error("is longer than 4096 bytes")]
    TooLong,
    /// A byte that no request path has.
    #[error("has a space, a control character, '?' or '#', which no request path has")]
    BadByte,
    /// A segment that is resolved before a path is compared.
    #[error("has '//', '/./' or '/../', which Kubernetes does not allow")]
    NotNormal,
    /// Not a regex, or one that needs what a linear-time engine does not have.
    #[error("is not a regex without look-around and back-references")]
    BadRegex,
    /// A regex that takes too much to read.
    #[error("{}", COSTLY)]
    CostlyRegex,
    /// More than the settings allow.
    #[error("is beyond the {0} regexes that a host may have")]
    TooManyRegexes(usize),
    /// Too large for its groups to be followed, which a rewrite refers to.
    #[error("is a regex of more than {0} instructions, whose groups rewrite-target cannot have")]
    GroupsTooLarge(usize),
}

impl From<TooMany> for PathProblem {
    fn from(TooMany(max): TooMany) -> Self {
        PathProblem::TooManyRegexes(max)
    }
}

impl PathProblem {
    /// The remedy.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            PathProblem::CostlyRegex => COSTLY_REMEDY,
            PathProblem::TooManyRegexes(_) => {
                "write plain prefixes where they do, or raise --regexes-per-host"
            }
            PathProblem::GroupsTooLarge(_) => {
                "write fewer or smaller repetitions, or a rewrite-target without groups"
            }
            _ => "write a path such as /shop, or leave it out to match every path",
        }
    }
}

/// The match of a written path.
///
/// `ImplementationSpecific` is a regex under `use-regex`, and under `rewrite-target` where it has
/// characters that only a regex has. `Prefix` with such characters is one under both, because
/// ingress-nginx reads it so. Other paths on the host stay as they are: ingress-nginx turns them
/// all into regexes, which opens `/admin` below `/adm`.
pub(super) fn read(
    path: Option<&str>,
    path_type: PathType,
    options: &Options,
) -> Result<PathMatch, PathProblem> {
    let text = match (path, path_type) {
        (None | Some(""), PathType::Exact) => return Err(PathProblem::Missing),
        (None | Some(""), _) => "/",
        (Some(text), _) => text,
    };
    if !text.starts_with('/') {
        return Err(PathProblem::NotAbsolute);
    }
    if text.len() > PATH_BYTES_MAX {
        return Err(PathProblem::TooLong);
    }
    if is_regex(text, path_type, options) {
        return read_regex(text);
    }
    if text
        .bytes()
        .any(|b| b <= b' ' || b == 0x7f || b == b'?' || b == b'#')
    {
        return Err(PathProblem::BadByte);
    }
    let text = &*undone(text);
    let is_normal =
        !text.contains("//") && !text.split('/').any(|part| part == "." || part == "..");
    if !is_normal {
        return Err(PathProblem::NotNormal);
    }
    if path_type == PathType::Exact {
        return Ok(PathMatch::Exact(text.into()));
    }
    let bare = match text.strip_suffix('/') {
        Some("") | None => text,
        Some(bare) => bare,
    };
    Ok(PathMatch::Prefix(bare.into()))
}

/// A path with its escapes undone, as paths of requests are when they are compared: `%25`, and
/// escapes of what is not UTF-8, stay.
fn undone(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let (byte, after) = match byte {
            b'%' => match unescape(after) {
                Some((byte, behind)) if byte != b'%' => (byte, behind),
                _ => (b'%', after),
            },
            byte => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    let mut undone = String::with_capacity(text.len());
    for chunk in bytes.utf8_chunks() {
        undone.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(undone, "%{byte:02X}");
        }
    }
    Cow::Owned(undone)
}

/// The number of a route in the order of its host: exact paths first, then the longer ones, then
/// the default; `order` decides among the routes of one path.
pub(super) fn rank(path: &PathMatch, order: u8) -> u64 {
    let (class, text, tie) = match path {
        PathMatch::Exact(text) => (1, &**text, 0),
        PathMatch::Regex(text) => (2, text.strip_prefix(ANY_CASE).unwrap_or(text), 0),
        PathMatch::Prefix(text) | PathMatch::Start(text) => (2, &**text, 1),
    };
    class << 56 | shortness(text) << 16 | tie << 8 | u64::from(order)
}

/// The rank of the redirect of `/`, before every path.
pub(super) const APP_ROOT_RANK: u64 = 0;

/// The rank of a default backend, after every path.
pub(super) const DEFAULT_RANK: u64 = 3 << 56;

/// The word for the kind of a path in the names of routes.
pub(super) fn kind_word(path: &PathMatch) -> &'static str {
    match path {
        PathMatch::Exact(_) => "exact",
        PathMatch::Prefix(_) => "prefix",
        PathMatch::Regex(_) => "regex",
        PathMatch::Start(_) => "start",
    }
}

/// The text of a path as it is compared.
pub(super) fn text(path: &PathMatch) -> &str {
    match path {
        PathMatch::Exact(text)
        | PathMatch::Prefix(text)
        | PathMatch::Regex(text)
        | PathMatch::Start(text) => text,
    }
}

/// A path as it is written, without the case of a regex.
pub(super) fn bare(path: &PathMatch) -> &str {
    let text = text(path);
    text.strip_prefix(ANY_CASE).unwrap_or(text)
}

/// Advice about a path that holds, and what to do about it.
pub(super) fn advise(matched: &PathMatch, options: &Options) -> Option<(String, &'static str)> {
    if let PathMatch::Prefix(text) = matched
        && looks_like_regex(text)
    {
        return Some((
            "has characters of a regex and is compared as plain text".into(),
            "set the annotation use-regex to \"true\", or use pathType Exact if it is plain text",
        ));
    }
    let wanted = options.rewrite.as_deref().and_then(last_group)?;
    let groups = match matched {
        PathMatch::Regex(pattern) => regex::groups(pattern)?,
        _ => 0,
    };
    (wanted > groups).then(|| {
        (
            format!(
                "has {groups} groups, while rewrite-target refers to ${wanted}, which is empty"
            ),
            "put the part of the path that is to be kept in parentheses",
        )
    })
}

/// Why nothing can be sent on for a path that holds: its groups are asked for, and nobody can
/// follow them.
pub(super) fn lost_groups(matched: &PathMatch, options: &Options) -> Option<PathProblem> {
    let has_groups = |template: &str| template.contains('$');
    let PathMatch::Regex(pattern) = matched else {
        return None;
    };
    let is_lost =
        options.rewrite.as_deref().is_some_and(has_groups) && !regex::has_groups_followed(pattern);
    is_lost.then_some(PathProblem::GroupsTooLarge(PathRewrite::INSTRUCTIONS_MAX))
}

/// The highest group that a rewrite refers to.
fn last_group(rewrite: &str) -> Option<usize> {
    let digits = rewrite
        .split('$')
        .skip(1)
        .filter_map(|rest| rest.chars().next());
    digits
        .filter_map(|c| c.to_digit(10))
        .max()
        .map(|digit| digit as usize)
}

/// The match of all paths that begin so, in either case.
pub(super) fn beginning(start: &str) -> PathMatch {
    let start = regex_syntax::escape(start);
    PathMatch::Regex(format!("{ANY_CASE}{start}").into())
}

/// Whether a path may be a regex, if annotations say so.
pub(super) fn looks_like_regex(text: &str) -> bool {
    text.contains(['(', ')', '[', ']', '{', '}', '|', '*', '+', '^', '$', '\\'])
}

fn is_regex(text: &str, path_type: PathType, options: &Options) -> bool {
    let looks_like_one = || looks_like_regex(text);
    match path_type {
        PathType::Exact => false,
        PathType::Prefix => (options.use_regex || options.rewrite.is_some()) && looks_like_one(),
        PathType::ImplementationSpecific => {
            options.use_regex || (options.rewrite.is_some() && looks_like_one())
        }
    }
}

/// Case-insensitive and anchored at its start, like a location `~* "^…"`.
fn read_regex(text: &str) -> Result<PathMatch, PathProblem> {
    let pattern = any_case(text);
    match regex::compiles(&pattern) {
        true => Ok(PathMatch::Regex(pattern.into())),
        false if regex::is_costly(&pattern) => Err(PathProblem::CostlyRegex),
        false => Err(PathProblem::BadRegex),
    }
}

/// A regex of people, as it is compared: without regard to case.
pub(super) fn any_case(text: &str) -> String {
    format!("{ANY_CASE}{text}")
}

fn shortness(text: &str) -> u64 {
    u64::from(u32::MAX) - text.len() as u64
}

#[cfg(test)]
mod tests {
    use myriad_api::PathType;
    use myriad_model::PathMatch;

    use super::{APP_ROOT_RANK, DEFAULT_RANK, PathProblem, rank, read};
    use crate::dialect::ingress::annotations::Options;

    #[test]
    fn the_order_is_exact_then_longer_then_default() {
        let exact = rank(&PathMatch::Exact("/".into()), 9);
        let long = rank(&PathMatch::Prefix("/a/b".into()), 9);
        let regex = rank(&PathMatch::Regex("/a".into()), 9);
        let prefix = rank(&PathMatch::Prefix("/a".into()), 0);
        let root = rank(&PathMatch::Prefix("/".into()), u8::MAX);
        let order = [
            APP_ROOT_RANK,
            exact,
            long,
            regex,
            prefix,
            root,
            DEFAULT_RANK,
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    }

    #[test]
    fn paths_that_no_request_has_are_refused() {
        let options = Options::default();
        let prefix = |text| read(Some(text), PathType::Prefix, &options);
        assert_eq!(prefix("a"), Err(PathProblem::NotAbsolute));
        assert_eq!(prefix("/a b"), Err(PathProblem::BadByte));
        assert_eq!(prefix("/a?b"), Err(PathProblem::BadByte));
        assert_eq!(prefix("/a//b"), Err(PathProblem::NotNormal));
        assert_eq!(prefix("/a/.."), Err(PathProblem::NotNormal));
        assert_eq!(prefix("/a.b/..c"), Ok(PathMatch::Prefix("/a.b/..c".into())));
        assert_eq!(prefix("/a%2f%2fb"), Err(PathProblem::NotNormal));
        let long = "/a".repeat(3_000);
        assert_eq!(prefix(&long), Err(PathProblem::TooLong));
        assert_eq!(
            read(None, PathType::Exact, &options),
            Err(PathProblem::Missing)
        );
    }

    #[test]
    fn escapes_are_undone_as_those_of_requests_are() {
        for (written, compared) in [
            ("/a%20b", "/a b"),
            ("/%61%2Fb", "/a/b"),
            ("/100%25", "/100%25"),
            ("/%zz%", "/%zz%"),
            ("/%C3%A4%ff", "/ä%FF"),
        ] {
            let read = read(Some(written), PathType::Exact, &Options::default());
            assert_eq!(read, Ok(PathMatch::Exact(compared.into())), "{written}");
        }
    }

    #[test]
    fn a_regex_that_would_not_compile_small_is_refused() {
        let options = Options {
            use_regex: true,
            ..Options::default()
        };
        let regex = |text: &str| read(Some(text), PathType::ImplementationSpecific, &options);
        assert_eq!(regex("/a(b"), Err(PathProblem::BadRegex));
        assert_eq!(regex("/a(?=b)"), Err(PathProblem::BadRegex));
        assert_eq!(regex("/(\\w{500}){500}"), Err(PathProblem::BadRegex));
        assert!(regex("/v[0-9]+/").is_ok());
        // It is as large as its classes are without regard to case.
        let large = "[!-\u{1E943}]".repeat(5);
        assert_eq!(regex(&format!("/{large}")), Err(PathProblem::CostlyRegex));
        assert!(regex(&format!("/(?-i){large}")).is_ok());
        // What is too long is not read.
        assert_eq!(
            regex(&format!("/{}", large.repeat(500))),
            Err(PathProblem::TooLong)
        );
    }
}
