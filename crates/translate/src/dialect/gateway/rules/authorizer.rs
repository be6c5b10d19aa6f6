//! Servers that are asked whether a request may go on.

use std::time::Duration;

use myriad_api::gateway::{AuthProtocol, ExternalAuth, HttpAuth};
use myriad_model::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Provider, is_token};

use super::fault::{CORRECT, RuleFaults};
use super::kit::{RuleKit, upstream_of};
use crate::dialect::gateway::backend_problem::BackendUse;
use crate::engine::Unit;
use crate::resolve::names;

/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The status of requests while there is no answer.
const REFUSAL: u16 = 403;

/// Reads a filter. Nothing, where nobody can be asked: then nothing may go on.
pub(super) fn read(
    written: &ExternalAuth,
    field: &str,
    kit: &mut RuleKit<'_>,
    faults: &mut RuleFaults,
) -> Option<(Unit, Provider)> {
    let Some(kind) = written.protocol.known() else {
        let word = written.protocol.as_str();
        let message = format!("is {word}, by which nobody is asked");
        faults.drop(format!("{field}.protocol"), message, "write HTTP or GRPC");
        return None;
    };
    let (protocol, told, used) = match kind {
        AuthProtocol::Http => {
            let check = http(written.http.as_ref(), field, faults)?;
            let protocol = CheckProtocol::Http(Box::new(check));
            (protocol, Box::default(), BackendUse::Http)
        }
        AuthProtocol::Grpc => {
            let allowed = written.grpc.as_ref();
            let allowed = allowed.map_or(&[][..], |grpc| &grpc.allowed_headers);
            let told = names_of(allowed, &format!("{field}.grpc.allowedHeaders"), faults)?;
            (CheckProtocol::Grpc, told, BackendUse::Grpc)
        }
    };
    let is_other = match kind {
        AuthProtocol::Http => written.grpc.is_some(),
        AuthProtocol::Grpc => written.http.is_some(),
    };
    if is_other {
        let message = "has the fields of the other protocol";
        faults.drop(field, message, "write those of the protocol");
        return None;
    }
    let of_backend = format!("{field}.backendRef");
    let effect = "nobody can be asked, and the rule refuses its requests";
    let backend = kit.find((&of_backend, &written.backend), used, effect, faults)?;
    let bytes_max = written
        .forward_body
        .as_ref()
        .map_or(0, |body| body.max_size);
    let body = CheckBody {
        bytes_max: bytes_max.into(),
        allows_part: false,
        is_raw: false,
    };
    let (unit, upstream) = upstream_of(&backend);
    let provider = Provider {
        upstream,
        protocol,
        timeout: TIMEOUT,
        fail_open: false,
        error_status: REFUSAL,
        body: (bytes_max > 0).then_some(body),
        authority: names::service_host(&backend.service, kit.cluster_domain).into(),
        reroutes: false,
        told,
    };
    Some((unit, provider))
}

/// The questions over HTTP; nothing, where they cannot be asked as they are written.
fn http(written: Option<&HttpAuth>, field: &str, faults: &mut RuleFaults) -> Option<HttpCheck> {
    let every: Box<[NameMatch]> = [NameMatch::Any].into();
    let Some(written) = written else {
        return Some(HttpCheck {
            upstream_on_allow: every,
            ..HttpCheck::default()
        });
    };
    let field = |end: &str| format!("{field}.http.{end}");
    let path_prefix = path_prefix(&written.path);
    if path_prefix.is_none() {
        faults.drop(
            field("path"),
            "is no path that can be put before another",
            "write a path such as /check, without dot segments, ? or #",
        );
    }
    let request = names_of(&written.allowed_headers, &field("allowedHeaders"), faults);
    let passed = &written.allowed_response_headers;
    let upstream_on_allow = match passed.is_empty() {
        true => Some(every),
        false => names_of(passed, &field("allowedResponseHeaders"), faults),
    };
    Some(HttpCheck {
        path_prefix: path_prefix?,
        request: request?,
        upstream_on_allow: upstream_on_allow?,
        ..HttpCheck::default()
    })
}

/// A path as others are appended to it, which begin with a slash.
fn path_prefix(text: &str) -> Option<Box<str>> {
    let bare = text.trim_end_matches('/');
    let is_sent = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'\\');
    let is_path = bare.bytes().all(is_sent)
        && !bare.contains("//")
        && !bare.split('/').any(|part| matches!(part, "." | ".."));
    let rooted = match bare.is_empty() || bare.starts_with('/') {
        true => bare.into(),
        false => format!("/{bare}").into(),
    };
    is_path.then_some(rooted)
}

/// Names of header fields. Nothing, where one of them is none: to leave it out could open
/// something.
fn names_of(
    written: &[Box<str>],
    field: &str,
    faults: &mut RuleFaults,
) -> Option<Box<[NameMatch]>> {
    let mut names = Vec::with_capacity(written.len());
    for (at, name) in written.iter().enumerate() {
        if !is_token(name) {
            let message = "is no name of a header field";
            faults.drop(format!("{field}[{at}]"), message, CORRECT);
            return None;
        }
        names.push(NameMatch::Exact(name.to_ascii_lowercase().into()));
    }
    Some(names.into())
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{ExternalAuth, RouteFilter};
    use myriad_model::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Provider};

    use super::super::tests::{TestKit, http_rule};
    use super::{RuleFaults, read};

    fn filter(text: &str) -> ExternalAuth {
        let rule = http_rule(&format!(
            "filters: [{{type: ExternalAuth, externalAuth: {text}}}]"
        ));
        match rule.filters.first() {
            Some(RouteFilter::ExternalAuth(written)) => (**written).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn asked(text: &str) -> (Option<Provider>, RuleFaults) {
        let mut faults = RuleFaults::default();
        let written = filter(text);
        let found = TestKit::default().with(|kit| read(&written, "f", kit, &mut faults));
        (found.map(|(_, provider)| provider), faults)
    }

    fn provider(text: &str) -> Provider {
        let (found, faults) = asked(text);
        assert!(faults.told().is_empty(), "{text}: {faults:?}");
        found.expect("a provider")
    }

    fn exact(names: &[&str]) -> Box<[NameMatch]> {
        let name = |name: &&str| NameMatch::Exact((*name).into());
        names.iter().map(name).collect()
    }

    #[test]
    fn a_server_is_asked_over_http() {
        let found = provider(
            "{protocol: HTTP, backendRef: {name: auth, port: 80}, \
              http: {path: check/, allowedHeaders: [X-Team], \
                     allowedResponseHeaders: [X-User, x-role]}, \
              forwardBody: {maxSize: 1024}}",
        );
        assert_eq!(found.upstream.as_str(), "shop/auth:80");
        assert_eq!(&*found.authority, "auth.shop.svc.cluster.local");
        assert_eq!((found.fail_open, found.error_status), (false, 403));
        let expected = HttpCheck {
            path_prefix: "/check".into(),
            request: exact(&["x-team"]),
            upstream_on_allow: exact(&["x-user", "x-role"]),
            ..HttpCheck::default()
        };
        assert_eq!(found.protocol, CheckProtocol::Http(Box::new(expected)));
        let body = CheckBody {
            bytes_max: 1_024,
            allows_part: false,
            is_raw: false,
        };
        assert_eq!(found.body, Some(body));
        // Without a list the backend gets all that is answered.
        for text in [
            "{protocol: HTTP, backendRef: {name: auth, port: 80}}",
            "{protocol: HTTP, backendRef: {name: auth, port: 80}, http: {}, forwardBody: {}}",
        ] {
            let found = provider(text);
            let expected = HttpCheck {
                upstream_on_allow: [NameMatch::Any].into(),
                ..HttpCheck::default()
            };
            assert_eq!(found.protocol, CheckProtocol::Http(Box::new(expected)));
            assert_eq!(found.body, None);
        }
    }

    #[test]
    fn a_server_is_asked_over_grpc() {
        let found = provider(
            "{protocol: GRPC, backendRef: {name: auth, port: 81}, \
              grpc: {allowedHeaders: [Authorization]}}",
        );
        assert_eq!(found.protocol, CheckProtocol::Grpc);
        assert_eq!(found.told, exact(&["authorization"]));
        assert_eq!(found.upstream.as_str(), "shop/auth:81+h2c");
        let found = provider("{protocol: GRPC, backendRef: {name: auth, port: 81}}");
        assert!(found.told.is_empty());
    }

    #[test]
    fn a_server_that_is_not_there_is_told_and_nothing_goes_on() {
        let (found, faults) = asked("{protocol: HTTP, backendRef: {name: missing, port: 80}}");
        assert!(found.is_none() && faults.dropping().is_none());
        let (_, fault) = faults.unresolved().next().expect("a fault");
        assert_eq!(fault.field, "f.backendRef");
        assert!(fault.message.ends_with("the rule refuses its requests"));
    }

    #[test]
    fn what_nobody_can_be_asked_drops_the_rule_and_is_named() {
        let backend = "backendRef: {name: auth, port: 80}";
        for (text, field) in [
            ("protocol: SOAP", "f.protocol"),
            ("protocol: HTTP, grpc: {}", "f"),
            ("protocol: GRPC, http: {}", "f"),
            ("protocol: HTTP, http: {path: /a/../b}", "f.http.path"),
            ("protocol: HTTP, http: {path: '/a?b'}", "f.http.path"),
            (
                "protocol: HTTP, http: {allowedHeaders: [a, 'b c']}",
                "f.http.allowedHeaders[1]",
            ),
            (
                "protocol: HTTP, http: {allowedResponseHeaders: ['b c']}",
                "f.http.allowedResponseHeaders[0]",
            ),
            (
                "protocol: GRPC, grpc: {allowedHeaders: ['']}",
                "f.grpc.allowedHeaders[0]",
            ),
        ] {
            let (found, faults) = asked(&format!("{{{text}, {backend}}}"));
            assert!(found.is_none(), "{text}");
            let found = faults.dropping().map(|fault| &*fault.field);
            assert_eq!(found, Some(field), "{text}");
        }
    }
}
