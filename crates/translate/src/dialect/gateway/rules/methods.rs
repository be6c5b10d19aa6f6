//! The matches of GRPCRoutes: services and methods, which are paths, and header fields.

use myriad_api::gateway::{GrpcMethodMatch, GrpcRouteMatch, ValueMatchKind};
use myriad_model::PathMatch;

use super::fault::{CORRECT, RuleFaults};
use super::matching::{self, RequestMatch, whole_path};
use super::rank::{self, NameLength};

/// The regex of any service or method.
const ANY: &str = "[^/]+";

/// Reads a match of a GRPCRoute; without one, a rule takes every call. Nothing, where a part of it
/// cannot be read.
pub(super) fn of_grpc(
    matched: Option<&GrpcRouteMatch>,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<RequestMatch> {
    let written = matched.and_then(|matched| matched.method.as_ref());
    let (path, [service, method]) = match written {
        Some(written) => read_method(written, &format!("{field}.method"), faults)?,
        None => (PathMatch::Prefix("/".into()), [NameLength::Any; 2]),
    };
    let headers = matched.map_or(&[][..], |matched| &matched.headers);
    let conditions = matching::headers(headers, &format!("{field}.headers"), faults)?;
    Some(RequestMatch {
        path,
        precedence: rank::of_grpc(service, method, conditions.len()),
        conditions,
    })
}

/// The calls that a match of a GRPCRoute is about at least, of which a part cannot be read: the
/// service and the method, where those can.
pub(super) fn at_least(matched: &GrpcRouteMatch) -> RequestMatch {
    let all = || PathMatch::Prefix("/".into());
    let (path, [service, method]) = match &matched.method {
        None => (all(), [NameLength::Any; 2]),
        Some(written) => {
            let read = read_method(written, "method", &mut RuleFaults::default());
            read.unwrap_or_else(|| {
                let names = [&written.service, &written.method];
                let lengths = names.map(|name| match name.as_deref().unwrap_or("") {
                    "" => NameLength::Any,
                    name => NameLength::Regex(name.chars().count()),
                });
                (all(), lengths)
            })
        }
    };
    RequestMatch {
        path,
        conditions: Vec::new(),
        precedence: rank::of_grpc(service, method, matched.headers.len()),
    }
}

fn read_method(
    written: &GrpcMethodMatch,
    field: &str,
    faults: &mut RuleFaults,
) -> Option<(PathMatch, [NameLength; 2])> {
    let service = written.service.as_deref().unwrap_or("");
    let method = written.method.as_deref().unwrap_or("");
    if let Some(fault) = written.fault() {
        faults.drop(field, fault, CORRECT);
        return None;
    }
    match written.kind.known() {
        Some(ValueMatchKind::Exact) => {
            // A name from the root on is the same name.
            let service = service.strip_prefix('.').unwrap_or(service);
            let lengths = [service, method].map(|name| match name {
                "" => NameLength::Any,
                _ => NameLength::Exact,
            });
            let path = match (service, method) {
                ("", "") => PathMatch::Prefix("/".into()),
                (service, "") => PathMatch::Prefix(format!("/{service}").into()),
                // Names have letters, digits and underscores.
                ("", method) => whole_path(&format!("/{ANY}/{method}"), method, field, faults)?,
                (service, method) => PathMatch::Exact(format!("/{service}/{method}").into()),
            };
            Some((path, lengths))
        }
        Some(ValueMatchKind::RegularExpression) => {
            let lengths = [service, method].map(|name| match name {
                "" => NameLength::Any,
                name => NameLength::Regex(name.chars().count()),
            });
            if lengths == [NameLength::Any; 2] {
                return Some((PathMatch::Prefix("/".into()), lengths));
            }
            let [of_service, of_method] = [service, method].map(|name| match name {
                "" => ANY,
                name => name,
            });
            let text = format!("/(?:{of_service})/(?:{of_method})");
            // Each by itself, so that no part begins in one and ends in the other.
            let path = match service {
                "" => whole_path(&text, method, field, faults),
                service => {
                    let with_service = format!("/(?:{service})/{ANY}");
                    whole_path(&with_service, service, field, faults)?;
                    whole_path(&text, of_method, field, faults)
                }
            };
            Some((path?, lengths))
        }
        None => {
            matching::unknown_type(written.kind.as_str(), field, faults);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::{PathMatch, Source, Test};

    use super::super::tests::grpc_rule;
    use super::{RequestMatch, RuleFaults, of_grpc};

    fn read(text: &str) -> (Option<RequestMatch>, RuleFaults) {
        let rule = grpc_rule(&format!("matches: [{text}]"));
        let mut faults = RuleFaults::default();
        let matched = of_grpc(rule.matches.first(), "matches[0]", &mut faults);
        (matched, faults)
    }

    fn matched(text: &str) -> RequestMatch {
        let (matched, faults) = read(text);
        assert!(faults.told().is_empty(), "{text}: {faults:?}");
        matched.expect("a match")
    }

    #[test]
    fn services_and_methods_are_paths() {
        let regex = |text: &str| PathMatch::Regex(text.into());
        for (text, path) in [
            ("{}", PathMatch::Prefix("/".into())),
            (
                "{method: {service: '', method: ''}}",
                PathMatch::Prefix("/".into()),
            ),
            (
                "{method: {service: a.B, method: C}}",
                PathMatch::Exact("/a.B/C".into()),
            ),
            (
                "{method: {type: Exact, service: .a.B, method: C}}",
                PathMatch::Exact("/a.B/C".into()),
            ),
            ("{method: {service: a.B}}", PathMatch::Prefix("/a.B".into())),
            ("{method: {method: C}}", regex("(?:/[^/]+/C)\\z")),
            (
                "{method: {type: RegularExpression, service: 'a|b', method: 'C.*'}}",
                regex("(?:/(?:a|b)/(?:C.*))\\z"),
            ),
            (
                "{method: {type: RegularExpression, service: 'a.*'}}",
                regex("(?:/(?:a.*)/(?:[^/]+))\\z"),
            ),
            (
                "{method: {type: RegularExpression, method: 'C.*'}}",
                regex("(?:/(?:[^/]+)/(?:C.*))\\z"),
            ),
            (
                "{method: {type: RegularExpression}}",
                PathMatch::Prefix("/".into()),
            ),
        ] {
            assert_eq!(matched(text).path, path, "{text}");
        }
    }

    #[test]
    fn the_service_goes_before_the_method_and_that_before_header_fields() {
        let precedence = |text: &str| matched(text).precedence;
        let headers = "headers: [{name: a, value: a}, {name: b, value: b}]";
        let ordered = [
            "{method: {service: a.B, method: C}}".to_owned(),
            format!("{{method: {{service: a.B}}, {headers}}}"),
            "{method: {service: a.B}}".to_owned(),
            "{method: {method: C}}".to_owned(),
            format!("{{{headers}}}"),
            "{}".to_owned(),
        ];
        let ordered = ordered.map(|text| precedence(&text));
        assert!(
            ordered.is_sorted_by(|one, other| one < other),
            "{ordered:?}"
        );
        let condition = &matched(&format!("{{{headers}}}")).conditions[1];
        assert_eq!((condition.source, &*condition.name), (Source::Header, "b"));
        assert_eq!(condition.test, Test::Exact("b".into()));
    }

    #[test]
    fn what_cannot_be_read_drops_the_rule_and_is_named() {
        for (text, field) in [
            ("{method: {type: Glob, service: a}}", "method.type"),
            ("{method: {service: a/b}}", "method"),
            ("{method: {method: c.d}}", "method"),
            (
                "{method: {type: RegularExpression, service: '('}}",
                "method",
            ),
            (
                "{method: {type: RegularExpression, service: 'a)/(?:b', method: c}}",
                "method",
            ),
            (
                "{method: {type: RegularExpression, method: 'a)|(?:b'}}",
                "method",
            ),
            ("{headers: [{name: 'a b', value: a}]}", "headers[0].name"),
        ] {
            let (matched, faults) = read(text);
            assert!(matched.is_none(), "{text}");
            let fault = faults.dropping().expect("a fault");
            assert_eq!(fault.field, format!("matches[0].{field}"), "{text}");
        }
    }
}
