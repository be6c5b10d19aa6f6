//! CORS policies of rules.

use myriad_api::istio::StringMatch;
use myriad_api::istio::virtual_service::{CorsPolicy, UnmatchedPreflights};
use myriad_model::{Cors, is_token};

use super::matching::escape;
use super::rule_problem::RuleProblem;
use crate::regex::{COSTLY, COSTLY_REMEDY, compiles, is_costly};
use crate::resolve::sendable::has_control;

/// The longest list of names that a CORS policy tells clients.
const LIST_BYTES_MAX: usize = 8 << 10;

/// The policy, without what cannot be sent.
pub(super) fn build(written: &CorsPolicy, problems: &mut Vec<RuleProblem>) -> Cors {
    let (origins, patterns) = origins(written, problems);
    let mut listed = |written: &[Box<str>], field: &str| names(written, field, problems);
    let age = written.max_age.unwrap_or_default().as_secs();
    Cors {
        origins,
        methods: listed(&written.allow_methods, "allowMethods"),
        headers_allowed: listed(&written.allow_headers, "allowHeaders"),
        headers_exposed: listed(&written.expose_headers, "exposeHeaders"),
        credentials: written.allow_credentials.unwrap_or_default(),
        age_max_s: u32::try_from(age).unwrap_or(u32::MAX),
        origin_patterns: patterns,
        forwards_unmatched: written.unmatched_preflights != UnmatchedPreflights::Ignore,
        echoes_wildcards: false,
        exposes_in_preflights: false,
    }
}

/// A list of texts.
type Texts = Box<[Box<str>]>;

/// The origins that are allowed to the letter, and the regexes of others.
fn origins(written: &CorsPolicy, problems: &mut Vec<RuleProblem>) -> (Texts, Texts) {
    let mut origins: Vec<Box<str>> = Vec::new();
    let mut patterns: Vec<Box<str>> = Vec::new();
    let bad = |field: String| RuleProblem {
        field,
        message: "has a control character, so it allows no origin".into(),
        remedy: "write an origin such as https://a.example.com",
    };
    for (at, origin) in written.allow_origin.iter().enumerate() {
        match has_control(origin) {
            true => problems.push(bad(format!("corsPolicy.allowOrigin[{at}]"))),
            false => origins.push(origin.clone()),
        }
    }
    for (at, origin) in written.allow_origins.iter().enumerate() {
        match origin {
            StringMatch::Exact(text) if has_control(text) => {
                problems.push(bad(format!("corsPolicy.allowOrigins[{at}].exact")));
            }
            StringMatch::Exact(text) => origins.push(text.clone()),
            StringMatch::Prefix(text) => patterns.push(format!("{}.*", escape(text)).into()),
            StringMatch::Regex(text) if compiles(text) => patterns.push(text.clone()),
            StringMatch::Regex(text) if is_costly(text) => problems.push(RuleProblem {
                field: format!("corsPolicy.allowOrigins[{at}].regex"),
                message: format!("{COSTLY}, so it allows no origin"),
                remedy: COSTLY_REMEDY,
            }),
            StringMatch::Regex(_) => problems.push(RuleProblem {
                field: format!("corsPolicy.allowOrigins[{at}].regex"),
                message: "is not a regex within RE2's syntax, so it allows no origin".into(),
                remedy: "correct the regex",
            }),
            StringMatch::Present => patterns.push(".*".into()),
        }
    }
    (origins.into(), patterns.into())
}

/// The names that answers list; an entry may be a list of its own.
fn names(written: &[Box<str>], field: &str, problems: &mut Vec<RuleProblem>) -> Box<str> {
    let mut kept: Vec<Box<str>> = Vec::new();
    for (at, entry) in written.iter().enumerate() {
        let names = || entry.split(',').map(|name| name.trim_matches([' ', '\t']));
        match names().all(is_token) {
            true => kept.extend(names().map(Into::into)),
            false => problems.push(RuleProblem {
                field: format!("corsPolicy.{field}[{at}]"),
                message: "is no name that can be sent, so it has no effect".into(),
                remedy: "write a method such as GET, a header such as x-token, or *",
            }),
        }
    }
    joined(&kept, field, problems)
}

/// Names as clients are told them, as far as they fit.
fn joined(names: &[Box<str>], field: &str, problems: &mut Vec<RuleProblem>) -> Box<str> {
    let mut text = String::new();
    let mut beyond = 0;
    for name in names {
        if text.len() + name.len() + 1 > LIST_BYTES_MAX {
            beyond += 1;
            continue;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
    }
    if beyond > 0 {
        problems.push(RuleProblem {
            field: format!("corsPolicy.{field}"),
            message: format!(
                "is longer than {LIST_BYTES_MAX} bytes, so {beyond} of its words have no effect"
            ),
            remedy: "write fewer or shorter ones",
        });
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::{CorsPolicy, LIST_BYTES_MAX, UnmatchedPreflights, build, joined};

    #[test]
    fn lists_of_a_cors_policy_are_bounded() {
        let name: Box<str> = "x".repeat(LIST_BYTES_MAX / 2 - 1).into();
        let mut problems = Vec::new();
        let text = joined(&[name], "allowHeaders", &mut problems);
        assert!(problems.is_empty());
        let names = [text.clone(), text.clone(), text, "y".into()];
        let text = joined(&names, "allowHeaders", &mut problems);
        assert_eq!(text.len(), LIST_BYTES_MAX - 1);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "corsPolicy.allowHeaders");
        assert!(
            problems[0]
                .message
                .ends_with("so 2 of its words have no effect")
        );
    }

    #[test]
    fn preflights_that_fit_no_origin_are_forwarded_unless_it_is_said_otherwise() {
        let forwards = |unmatched_preflights| {
            let written = CorsPolicy {
                unmatched_preflights,
                ..CorsPolicy::default()
            };
            let mut problems = Vec::new();
            let forwards = build(&written, &mut problems).forwards_unmatched;
            assert!(problems.is_empty());
            forwards
        };
        assert!(forwards(UnmatchedPreflights::Unspecified));
        assert!(forwards(UnmatchedPreflights::Forward));
        assert!(!forwards(UnmatchedPreflights::Ignore));
    }

    #[test]
    fn names_that_would_end_their_field_are_left_out_and_told() {
        let list = |texts: &[&str]| -> Box<[Box<str>]> {
            texts.iter().map(|text| (*text).into()).collect()
        };
        let written = CorsPolicy {
            allow_origin: list(&["https://a", "https://b\r\n"]),
            allow_methods: list(&["GET", "PUT\r\nx: y", "*"]),
            allow_headers: list(&["x-a, x-b", "", "x c"]),
            expose_headers: list(&["x-d\n"]),
            ..CorsPolicy::default()
        };
        let mut problems = Vec::new();
        let made = build(&written, &mut problems);
        assert_eq!(made.origins.join(" "), "https://a");
        assert_eq!(&*made.methods, "GET,*");
        assert_eq!(&*made.headers_allowed, "x-a,x-b");
        assert_eq!(&*made.headers_exposed, "");
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(
            fields,
            [
                "corsPolicy.allowOrigin[1]",
                "corsPolicy.allowMethods[1]",
                "corsPolicy.allowHeaders[1]",
                "corsPolicy.allowHeaders[2]",
                "corsPolicy.exposeHeaders[0]",
            ]
        );
    }
}
