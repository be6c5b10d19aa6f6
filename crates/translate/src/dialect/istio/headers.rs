//! Headers that a rule or one of its destinations changes.

use myriad_api::istio::Labels;
use myriad_api::istio::header::{HeaderOperations, Headers};
use myriad_model::{HeaderEdit, HeaderEdits, is_token};

use super::rule_problem::RuleProblem;
use crate::resolve::sendable::has_control;

/// The most bytes that a rule and one of its destinations may add to a request and its response in
/// all, separators of names and values included.
pub(super) const HEADER_BYTES_MAX: usize = 32 << 10;

/// The bytes that separate a header's name from its value, and end it.
const SEPARATOR_BYTES: usize = 4;

/// How much the destinations of a rule may add beside the headers of the rule.
pub(super) fn bytes_left(edits: Option<&HeaderEdits>) -> usize {
    let Some(HeaderEdits { request, response }) = edits else {
        return HEADER_BYTES_MAX;
    };
    let pairs = [&request.set, &request.add, &response.set, &response.add];
    let pairs = pairs.into_iter().flat_map(|pairs| pairs.iter());
    let taken: usize = pairs.map(|(name, value)| header_bytes(name, value)).sum();
    HEADER_BYTES_MAX.saturating_sub(taken)
}

fn header_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + SEPARATOR_BYTES
}

/// The edits of headers; none where nothing is changed. No more than `left` bytes are added.
pub(super) fn headers(
    written: &Headers,
    field: &str,
    mut left: usize,
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
    left: &mut usize,
    problems: &mut Vec<RuleProblem>,
) -> HeaderEdit {
    let mut pairs = |written: &Labels, end: &str| {
        let (mut kept, mut beyond) = (Vec::new(), 0);
        for (name, value) in written.iter() {
            if !is_token(name) || has_control(value) {
                problems.push(bad_header(format!("{field}.{end}[{name}]")));
                continue;
            }
            match left.checked_sub(header_bytes(name, value)) {
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
        kept.into()
    };
    let (set, add) = (pairs(&written.set, "set"), pairs(&written.add, "add"));
    let mut remove = Vec::new();
    for (at, name) in written.remove.iter().enumerate() {
        match is_token(name) {
            true => remove.push(name.to_ascii_lowercase().into()),
            false => problems.push(bad_header(format!("{field}.remove[{at}]"))),
        }
    }
    HeaderEdit {
        remove: remove.into(),
        set,
        add,
    }
}

fn too_many_headers(field: String, count: usize) -> RuleProblem {
    RuleProblem {
        field,
        message: format!(
            "has {count} beyond the {HEADER_BYTES_MAX} bytes that a rule and one of its \
             destinations may add in all, which have no effect"
        ),
        remedy: "write fewer or shorter ones",
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
    use myriad_api::istio::Labels;
    use myriad_api::istio::header::{HeaderOperations, Headers};

    use super::{HEADER_BYTES_MAX, bytes_left, headers};

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
        let edits = headers(&written, "headers", HEADER_BYTES_MAX, &mut problems).unwrap();
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
        let left = bytes_left(Some(&edits));
        assert_eq!(left, HEADER_BYTES_MAX - (24 << 10) - 10);
        let of_share = headers(&written, "route[0].headers", left, &mut problems).unwrap();
        assert!(of_share.request.is_empty());
        assert_eq!(of_share.response.add.len(), 1);
        assert_eq!(problems.len(), 3);
        assert_eq!(bytes_left(None), HEADER_BYTES_MAX);
    }
}
