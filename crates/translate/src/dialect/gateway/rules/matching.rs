//! The matches of HTTPRoutes: paths, header fields, parameters and methods.

use std::collections::BTreeSet;

use myriad_api::gateway::{
    HeaderMatch, HttpRouteMatch, PathMatch as WrittenPath, PathMatchKind, QueryParamMatch,
    ValueMatchKind,
};
use myriad_model::{PathMatch, Source, Test, ValueMatch, is_token, unescape};

use super::fault::{CORRECT, RuleFaults};
use super::rank::{self, PathLength};
use crate::regex::{COSTLY, COSTLY_REMEDY, compiles, is_costly, is_read};

/// The methods that a match may name.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// The requests that a match is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestMatch {
    /// Their paths.
    pub path: PathMatch,
    /// The conditions on all else.
    pub conditions: Vec<ValueMatch>,
    /// The precedence of the match: the lower goes first.
    pub precedence: u32,
}

/// Reads a match of an HTTPRoute; without one, a rule takes everything. Nothing, where a part of it
/// cannot be read.
pub(super) fn of_http(
    matched: Option<&HttpRouteMatch>,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<RequestMatch> {
    let written = matched.and_then(|matched| matched.path.as_ref());
    let (path, length) = match written {
        Some(path) => read_path(path, &format!("{field}.path"), faults)?,
        None => (PathMatch::Prefix("/".into()), PathLength::Prefix(1)),
    };
    let Some(matched) = matched else {
        return Some(RequestMatch {
            path,
            conditions: Vec::new(),
            precedence: rank::of_http(length, false, 0, 0),
        });
    };
    let mut conditions = headers(&matched.headers, &format!("{field}.headers"), faults)?;
    let headers = conditions.len();
    let field_of_query = format!("{field}.queryParams");
    conditions.extend(parameters(&matched.query_params, &field_of_query, faults)?);
    let queries = conditions.len() - headers;
    if let Some(method) = &matched.method {
        if !METHODS.contains(&&**method) {
            faults.drop(
                format!("{field}.method"),
                format!("is {method}, which is no method that a match may name"),
                "write GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE or PATCH",
            );
            return None;
        }
        conditions.push(ValueMatch {
            source: Source::Method,
            name: Box::default(),
            test: Test::Exact(method.clone()),
            invert: false,
        });
    }
    let has_method = matched.method.is_some();
    Some(RequestMatch {
        path,
        conditions,
        precedence: rank::of_http(length, has_method, headers, queries),
    })
}

/// The requests that a match of an HTTPRoute is about at least, of which a part cannot be read: the
/// path, where that can.
pub(super) fn at_least(matched: &HttpRouteMatch) -> RequestMatch {
    let all = || PathMatch::Prefix("/".into());
    let (path, length) = match &matched.path {
        None => (all(), PathLength::Prefix(1)),
        Some(written) => {
            let read = read_path(written, "path", &mut RuleFaults::default());
            let length = written.value().chars().count();
            read.unwrap_or_else(|| (all(), PathLength::Regex(length)))
        }
    };
    let (headers, queries) = (matched.headers.len(), matched.query_params.len());
    RequestMatch {
        path,
        conditions: Vec::new(),
        precedence: rank::of_http(length, matched.method.is_some(), headers, queries),
    }
}

fn read_path(
    written: &WrittenPath,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<(PathMatch, PathLength)> {
    let Some(kind) = written.kind.known() else {
        unknown_type(written.kind.as_str(), field, faults);
        return None;
    };
    Some(match kind {
        PathMatchKind::Exact => {
            let path = base(written.value());
            (PathMatch::Exact(path.into()), PathLength::Exact)
        }
        PathMatchKind::PathPrefix => {
            let path = base(written.value());
            let bare = match path.trim_end_matches('/') {
                "" => "/",
                bare => bare,
            };
            let length = PathLength::Prefix(bare.chars().count());
            (PathMatch::Prefix(bare.into()), length)
        }
        PathMatchKind::RegularExpression => {
            let text = written.value();
            let path = whole_path(text, text, &format!("{field}.value"), faults)?;
            (path, PathLength::Regex(text.chars().count()))
        }
    })
}

/// The regex of a whole path from the text of one; nothing, where that or one of its parts cannot
/// be read. `parts` is what was written.
pub(super) fn whole_path(
    text: &str,
    parts: &str,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<PathMatch> {
    let whole = format!("(?:{text})\\z");
    // What is no regex by itself may become one by what is put around it.
    if is_read(parts) && is_read(text) && compiles(&whole) {
        return Some(PathMatch::Regex(whole.into()));
    }
    bad_regex(&whole, field, faults);
    None
}

/// The conditions on header fields. Of several on one field the first holds.
pub(super) fn headers(
    written: &[HeaderMatch],
    field: &str,
    faults: &mut RuleFaults,
) -> Option<Vec<ValueMatch>> {
    let mut conditions = Vec::with_capacity(written.len());
    let mut known: BTreeSet<Box<str>> = BTreeSet::new();
    for (at, condition) in written.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if !is_token(&condition.name) {
            let message = "is no name of a header field";
            faults.drop(format!("{field}.name"), message, CORRECT);
            return None;
        }
        let name: Box<str> = condition.name.to_ascii_lowercase().into();
        if !known.insert(name.clone()) {
            tell_repeated(&field, faults);
            continue;
        }
        let kind = (condition.kind.known(), condition.kind.as_str());
        let test = test(kind, &condition.value, &field, faults)?;
        conditions.push(ValueMatch {
            source: Source::Header,
            name,
            test,
            invert: false,
        });
    }
    Some(conditions)
}

/// The conditions on parameters. Of several on one parameter the first holds.
fn parameters(
    written: &[QueryParamMatch],
    field: &str,
    faults: &mut RuleFaults,
) -> Option<Vec<ValueMatch>> {
    let mut conditions = Vec::with_capacity(written.len());
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (at, condition) in written.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if !known.insert(&condition.name) {
            tell_repeated(&field, faults);
            continue;
        }
        let kind = (condition.kind.known(), condition.kind.as_str());
        let test = test(kind, &condition.value, &field, faults)?;
        conditions.push(ValueMatch {
            source: Source::Query,
            name: condition.name.clone(),
            test,
            invert: false,
        });
    }
    Some(conditions)
}

fn test(
    (kind, word): (Option<ValueMatchKind>, &str),
    value: &str,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<Test> {
    match kind {
        Some(ValueMatchKind::Exact) => Some(Test::Exact(value.into())),
        Some(ValueMatchKind::RegularExpression) if compiles(value) => {
            Some(Test::Regex(value.into()))
        }
        Some(ValueMatchKind::RegularExpression) => {
            bad_regex(value, &format!("{field}.value"), faults);
            None
        }
        None => {
            unknown_type(word, field, faults);
            None
        }
    }
}

fn tell_repeated(field: &str, faults: &mut RuleFaults) {
    faults.omit(
        format!("{field}.name"),
        "stands twice, of which the first holds, so this condition has no effect",
        "name each once",
    );
}

/// Adds that the type of a match is not known.
pub(super) fn unknown_type(word: &str, field: &str, faults: &mut RuleFaults) {
    faults.drop(
        format!("{field}.type"),
        format!("is {word}, which is no type of match that is known"),
        "write a type of the API's definition",
    );
}

fn bad_regex(text: &str, field: &str, faults: &mut RuleFaults) {
    let (message, remedy) = match is_costly(text) {
        true => (COSTLY, COSTLY_REMEDY),
        false => ("is not a regex within RE2's syntax and 256 KiB", CORRECT),
    };
    faults.drop(field, message, remedy);
}

/// A path with its escapes of unreserved bytes undone, as paths of requests are when they are
/// compared.
fn base(path: &str) -> String {
    let mut read = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = match byte {
            b'%' => unescape(after).filter(|(byte, _)| is_unreserved(*byte)),
            _ => None,
        };
        let (byte, behind) = escaped.unwrap_or((*byte, after));
        read.push(byte);
        rest = behind;
    }
    // Nothing but ASCII was taken out or put in, so what was text still is.
    String::from_utf8(read).unwrap_or_else(|_| path.to_owned())
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::HttpRouteMatch;
    use myriad_model::{PathMatch, Source, Test};

    use super::{RequestMatch, RuleFaults, of_http};

    fn written(text: &str) -> HttpRouteMatch {
        super::super::tests::http_rule(&format!("matches: [{text}]")).matches[0].clone()
    }

    fn read(text: &str) -> (Option<RequestMatch>, RuleFaults) {
        let mut faults = RuleFaults::default();
        let matched = of_http(Some(&written(text)), "matches[0]", &mut faults);
        (matched, faults)
    }

    fn path(text: &str) -> PathMatch {
        let (matched, faults) = read(text);
        assert!(faults.told().is_empty(), "{text}: {faults:?}");
        matched.expect("a match").path
    }

    /// The fault that drops a rule with a match.
    fn fault(text: &str) -> (String, String) {
        let (matched, faults) = read(text);
        assert!(matched.is_none(), "{text}");
        let fault = faults.dropping().expect("a fault");
        (fault.field.clone(), fault.message.clone())
    }

    #[test]
    fn a_path_is_compared_as_its_type_says() {
        let prefix = |text: &str| PathMatch::Prefix(text.into());
        let exact = |text: &str| PathMatch::Exact(text.into());
        for (text, expected) in [
            ("{}", prefix("/")),
            ("{path: {}}", prefix("/")),
            ("{path: {value: /a}}", prefix("/a")),
            ("{path: {type: PathPrefix, value: /a/}}", prefix("/a")),
            ("{path: {type: PathPrefix, value: /}}", prefix("/")),
            ("{path: {type: Exact, value: /a/}}", exact("/a/")),
            ("{path: {type: Exact, value: /}}", exact("/")),
            // Requests are compared with such escapes undone.
            (
                "{path: {type: Exact, value: '/%41%2d%c3%A4'}}",
                exact("/A-%c3%A4"),
            ),
            (
                "{path: {type: RegularExpression, value: '/a|/b'}}",
                PathMatch::Regex("(?:/a|/b)\\z".into()),
            ),
        ] {
            assert_eq!(path(text), expected, "{text}");
        }
        let mut faults = RuleFaults::default();
        let all = of_http(None, "matches", &mut faults).expect("all");
        assert_eq!((all.path, all.conditions), (prefix("/"), Vec::new()));
    }

    #[test]
    fn conditions_are_on_fields_parameters_and_the_method() {
        let text = "{method: PUT, \
                    headers: [{name: X-A, value: One}, \
                              {name: b, type: RegularExpression, value: 'o.*'}, \
                              {name: x-a, value: two}], \
                    queryParams: [{name: A, value: '1'}, {name: a, value: '2'}, \
                                  {name: A, type: RegularExpression, value: '['}]}";
        let (matched, faults) = read(text);
        let matched = matched.expect("a match");
        let conditions = matched.conditions.iter();
        let shown: Vec<(Source, &str, &Test)> = conditions
            .map(|it| (it.source, &*it.name, &it.test))
            .collect();
        let exact = |text: &str| Test::Exact(text.into());
        assert_eq!(
            shown,
            [
                (Source::Header, "x-a", &exact("One")),
                (Source::Header, "b", &Test::Regex("o.*".into())),
                (Source::Query, "A", &exact("1")),
                (Source::Query, "a", &exact("2")),
                (Source::Method, "", &exact("PUT")),
            ]
        );
        let fields: Vec<&str> = faults.told().iter().map(|it| &*it.field).collect();
        assert_eq!(
            fields,
            [
                "matches[0].headers[2].name",
                "matches[0].queryParams[2].name"
            ]
        );
        assert!(faults.dropping().is_none());
        // What has no effect has none on the precedence either.
        let others = "{method: PUT, headers: [{name: a, value: a}, {name: b, value: b}], \
                      queryParams: [{name: a, value: a}, {name: b, value: b}]}";
        let (other, _) = read(others);
        assert_eq!(other.expect("a match").precedence, matched.precedence);
    }

    #[test]
    fn what_cannot_be_read_drops_the_rule_and_is_named() {
        for (text, field, message) in [
            ("{path: {type: Glob, value: /a}}", "path.type", "is Glob"),
            (
                "{path: {type: RegularExpression, value: '('}}",
                "path.value",
                "is not a regex",
            ),
            (
                "{path: {type: RegularExpression, value: 'a)(b'}}",
                "path.value",
                "is not a regex",
            ),
            (
                "{path: {type: RegularExpression, value: '(\\w{500}){500}'}}",
                "path.value",
                "is not a regex",
            ),
            ("{method: get}", "method", "is get"),
            ("{method: PURGE}", "method", "is PURGE"),
            (
                "{headers: [{name: ':method', value: a}]}",
                "headers[0].name",
                "is no name",
            ),
            (
                "{headers: [{name: a, type: Prefix, value: a}]}",
                "headers[0].type",
                "is Prefix",
            ),
            (
                "{headers: [{name: a, type: RegularExpression, value: '(?=a)'}]}",
                "headers[0].value",
                "is not a regex",
            ),
            (
                "{queryParams: [{name: a, type: RegularExpression, value: '('}]}",
                "queryParams[0].value",
                "is not a regex",
            ),
            (
                "{queryParams: [{name: a, type: Present, value: a}]}",
                "queryParams[0].type",
                "is Present",
            ),
        ] {
            let (found, problem) = fault(text);
            assert_eq!(found, format!("matches[0].{field}"), "{text}");
            assert!(problem.starts_with(message), "{text}: {problem}");
        }
    }
}
