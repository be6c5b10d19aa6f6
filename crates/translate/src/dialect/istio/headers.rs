//! Headers that a rule or one of its destinations changes.

use std::collections::BTreeSet;

use myriad_api::istio::Labels;
use myriad_api::istio::header::{HeaderOperations, Headers};
use myriad_api::istio::virtual_service::HttpRoute;
use myriad_model::{HeaderEdit, HeaderEdits, is_token};

use super::rule_problem::RuleProblem;
use crate::resolve::sendable::has_control;

/// The most bytes that a rule and one of its destinations may add to a request and its response in
/// all, separators of names and values included.
const HEADER_BYTES_MAX: usize = 32 << 10;

/// The most fields that a rule and one of its destinations may set in or add to a request and its
/// response in all.
const HEADERS_MAX: usize = 256;

/// The most names of fields that a rule and one of its destinations may remove from a request and
/// its response in all. Beyond, the rule answers 503: fields may be removed that clients must not
/// say of themselves.
const REMOVED_MAX: usize = 256;

/// The bytes that separate a header's name from its value, and end it.
const SEPARATOR_BYTES: usize = 4;

/// How much may be changed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EditsLeft {
    /// Fields that are set or added.
    fields: usize,
    /// The bytes of these fields.
    bytes: usize,
    /// Names that are removed.
    removed: usize,
}

impl EditsLeft {
    /// All that a rule and one of its destinations may change.
    pub(super) const ALL: EditsLeft = EditsLeft {
        bytes: HEADER_BYTES_MAX,
        fields: HEADERS_MAX,
        removed: REMOVED_MAX,
    };

    /// How much each destination of a rule may change beside the headers of the rule.
    pub(super) fn beside(edits: Option<&HeaderEdits>) -> Self {
        let Some(HeaderEdits { request, response }) = edits else {
            return EditsLeft::ALL;
        };
        let pairs = [&request.set, &request.add, &response.set, &response.add];
        let taken = pairs.into_iter().flat_map(|pairs| pairs.iter());
        let bytes = taken.map(|(name, value)| header_bytes(name, value));
        let fields = pairs.map(|pairs| pairs.len()).iter().sum();
        let removed = request.remove.len() + response.remove.len();
        EditsLeft {
            bytes: HEADER_BYTES_MAX.saturating_sub(bytes.sum()),
            fields: HEADERS_MAX.saturating_sub(fields),
            removed: REMOVED_MAX.saturating_sub(removed),
        }
    }

    /// Takes one field more; none where it is too much.
    fn take(self, name: &str, value: &str) -> Option<Self> {
        Some(EditsLeft {
            bytes: self.bytes.checked_sub(header_bytes(name, value))?,
            fields: self.fields.checked_sub(1)?,
            ..self
        })
    }
}

/// Whether a rule and one of its destinations remove more names than they may: then it forwards
/// nothing.
pub(super) fn is_closed(route: &HttpRoute) -> bool {
    let of_rule = route.rare.as_deref().and_then(|rare| rare.headers.as_ref());
    let of_shares = route.route.iter().map(|share| share.headers.as_deref());
    let most = of_shares.map(|it| it.map_or(0, removed_count)).max();
    of_rule.map_or(0, removed_count) + most.unwrap_or(0) > REMOVED_MAX
}

fn removed_count(written: &Headers) -> usize {
    let both = [&written.request, &written.response];
    let counts = both.map(|it| it.as_ref().map_or(0, |it| removed(it).len()));
    counts.iter().sum()
}

/// The names that are removed, each once, or one more of them than may be.
fn removed(written: &HeaderOperations) -> BTreeSet<Box<str>> {
    let mut names: BTreeSet<Box<str>> = BTreeSet::new();
    for name in written.remove.iter().filter(|name| is_token(name)) {
        names.insert(name.to_ascii_lowercase().into());
        if names.len() > REMOVED_MAX {
            break;
        }
    }
    names
}

fn header_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + SEPARATOR_BYTES
}

/// The edits of headers; none where nothing is changed. No more than `left` is changed.
pub(super) fn headers(
    written: &Headers,
    field: &str,
    mut left: EditsLeft,
    problems: &mut Vec<RuleProblem>,
) -> Option<Box<HeaderEdits>> {
    let mut edit = |written: &Option<HeaderOperations>, direction: &str| {
        let field = format!("{field}.{direction}");
        let written = written.as_ref();
        let edit = |it| header_edit(it, &field, &mut left, problems);
        written.map_or_else(HeaderEdit::default, edit)
    };
    let edits = HeaderEdits {
        request: edit(&written.request, "request"),
        response: edit(&written.response, "response"),
    };
    let is_empty = edits.request.is_empty() && edits.response.is_empty();
    (!is_empty).then(|| Box::new(edits))
}

fn header_edit(
    written: &HeaderOperations,
    field: &str,
    left: &mut EditsLeft,
    problems: &mut Vec<RuleProblem>,
) -> HeaderEdit {
    let mut pairs = |written: &Labels, end: &str| {
        let (mut kept, mut beyond) = (Vec::new(), 0);
        for (name, value) in written.iter() {
            if !is_token(name) || has_control(value) {
                problems.push(bad_header(format!("{field}.{end}[{name}]")));
                continue;
            }
            match left.take(name, value) {
                Some(rest) => {
                    *left = rest;
                    kept.push((name.to_ascii_lowercase().into(), value.clone()));
                }
                None => beyond += 1,
            }
        }
        if beyond > 0 {
            problems.push(too_many_headers(format!("{field}.{end}"), beyond));
        }
        kept
    };
    let (set, add) = (pairs(&written.set, "set"), pairs(&written.add, "add"));
    let bad = written.remove.iter().enumerate();
    for (at, _) in bad.filter(|(_, name)| !is_token(name)) {
        problems.push(bad_header(format!("{field}.remove[{at}]")));
    }
    let mut remove: Vec<Box<str>> = removed(written).into_iter().collect();
    if remove.len() > left.removed {
        problems.push(too_many_removed(format!("{field}.remove")));
        // The rule is closed.
        remove.truncate(left.removed);
    }
    left.removed -= remove.len();
    HeaderEdit::new(remove, set, add)
}

fn too_many_headers(field: String, count: usize) -> RuleProblem {
    RuleProblem {
        field,
        message: format!(
            "has {count} beyond the {HEADER_BYTES_MAX} bytes, or the {HEADERS_MAX} fields, that a \
             rule and one of its destinations may add in all, which have no effect"
        ),
        remedy: "write fewer or shorter ones",
    }
}

fn too_many_removed(field: String) -> RuleProblem {
    RuleProblem {
        field,
        message: format!(
            "has more than the {REMOVED_MAX} names that a rule and one of its destinations may \
             remove in all, so the rule answers 503"
        ),
        remedy: "name fewer fields",
    }
}

fn bad_header(field: String) -> RuleProblem {
    RuleProblem {
        field,
        message: "is no header that can be sent, so it has no effect".into(),
        remedy: "write a header name, and a value without control characters",
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::header::{HeaderOperations, Headers};
    use myriad_api::istio::virtual_service::{HttpDestination, HttpRoute};
    use myriad_api::istio::{Labels, Names};

    use super::{EditsLeft, HEADER_BYTES_MAX, HEADERS_MAX, REMOVED_MAX, headers, is_closed};

    fn labels(pairs: &[(&str, usize)]) -> Labels {
        let pair = |(name, length): &(&str, usize)| -> (Box<str>, Box<str>) {
            ((*name).into(), "x".repeat(*length).into())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_a_rule_adds_is_bounded_with_what_its_destinations_add() {
        let written = Headers {
            request: Some(HeaderOperations {
                set: labels(&[("a", 20 << 10)]),
                ..HeaderOperations::default()
            }),
            response: Some(HeaderOperations {
                add: labels(&[("b", 20 << 10), ("c", 4 << 10)]),
                ..HeaderOperations::default()
            }),
        };
        let mut problems = Vec::new();
        let edits = headers(&written, "headers", EditsLeft::ALL, &mut problems).unwrap();
        assert_eq!(edits.request.set.len(), 1);
        let added: Vec<&str> = edits.response.add.iter().map(|(name, _)| &**name).collect();
        assert_eq!(added, ["c"]);
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["headers.response.add"]);
        assert!(
            problems[0]
                .message
                .starts_with("has 1 beyond the 32768 bytes")
        );
        let left = EditsLeft::beside(Some(&edits));
        assert_eq!(left.bytes, HEADER_BYTES_MAX - (24 << 10) - 10);
        assert_eq!(left.fields, HEADERS_MAX - 2);
        let of_share = headers(&written, "route[0].headers", left, &mut problems).unwrap();
        assert!(of_share.request.is_empty());
        assert_eq!(of_share.response.add.len(), 1);
        assert_eq!(problems.len(), 3);
        assert_eq!(EditsLeft::beside(None), EditsLeft::ALL);
    }

    fn names(count: usize, word: &str) -> Names {
        (0..count).map(|it| format!("{word}-{it}").into()).collect()
    }

    fn removing(remove: Names) -> Headers {
        Headers {
            request: Some(HeaderOperations {
                remove,
                ..HeaderOperations::default()
            }),
            response: None,
        }
    }

    #[test]
    fn fields_are_bounded_by_their_number_too() {
        let field = |it: usize| -> (Box<str>, Box<str>) { (format!("x-{it}").into(), "".into()) };
        let written = Headers {
            request: None,
            response: Some(HeaderOperations {
                set: (0..HEADERS_MAX + 44).map(field).collect(),
                ..HeaderOperations::default()
            }),
        };
        let mut problems = Vec::new();
        let edits = headers(&written, "headers", EditsLeft::ALL, &mut problems).unwrap();
        assert_eq!(edits.response.set.len(), HEADERS_MAX);
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["headers.response.set"]);
        assert!(problems[0].message.starts_with("has 44 beyond"));
    }

    #[test]
    fn names_that_are_removed_count_once_and_too_many_close() {
        let mut problems = Vec::new();
        let twice = names(REMOVED_MAX, "x").into_iter();
        let twice = removing(twice.chain(names(REMOVED_MAX, "X")).collect());
        let edits = headers(&twice, "headers", EditsLeft::ALL, &mut problems).unwrap();
        assert_eq!(edits.request.remove.len(), REMOVED_MAX);
        assert!(edits.request.is_in_order() && problems.is_empty());
        // A destination has what the rule leaves.
        let left = EditsLeft::beside(Some(&edits));
        let more = removing(names(3, "y"));
        assert!(headers(&more, "route[0].headers", left, &mut problems).is_none());
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["route[0].headers.request.remove"]);
        assert!(
            problems[0]
                .message
                .starts_with("has more than the 256 names")
        );
        let route = |headers: Headers| HttpRoute {
            route: [HttpDestination {
                headers: Some(Box::new(headers)),
                ..HttpDestination::default()
            }]
            .into(),
            ..HttpRoute::default()
        };
        assert!(!is_closed(&route(twice)));
        assert!(is_closed(&route(removing(names(REMOVED_MAX + 1, "x")))));
    }
}
