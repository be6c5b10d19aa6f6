//! Providers.

use super::super::generated as wire;
use super::milliseconds;
use super::policy::headers;
use crate::{CheckProtocol, HttpCheck, NameMatch, Processing, Provider};

/// The message of a provider.
pub fn provider(value: &Provider) -> wire::Provider {
    wire::Provider {
        upstream: value.upstream.to_string(),
        timeout_ms: milliseconds(value.timeout),
        fail_open: value.fail_open,
        error_status: value.error_status.into(),
        body: value.body.map(|body| wire::CheckBody {
            bytes_max: body.bytes_max,
            allows_part: body.allows_part,
            is_raw: body.is_raw,
        }),
        authority: value.authority.to_string(),
        http: match &value.protocol {
            CheckProtocol::Http(check) => Some(http_check(check)),
            CheckProtocol::Grpc | CheckProtocol::Process(_) => None,
        },
        reroutes: value.reroutes,
        processing: match value.protocol {
            CheckProtocol::Process(Processing { tells_response }) => {
                Some(wire::Processing { tells_response })
            }
            CheckProtocol::Http(_) | CheckProtocol::Grpc => None,
        },
    }
}

fn http_check(value: &HttpCheck) -> wire::HttpCheck {
    wire::HttpCheck {
        path_prefix: value.path_prefix.to_string(),
        request: name_matches(&value.request),
        additional: headers(&value.additional),
        upstream_on_allow: name_matches(&value.upstream_on_allow),
        downstream_on_allow: name_matches(&value.downstream_on_allow),
        downstream_on_deny: name_matches(&value.downstream_on_deny),
    }
}

fn name_matches(values: &[NameMatch]) -> Vec<wire::NameMatch> {
    use wire::name_match::Form;
    let form = |value: &NameMatch| match value {
        NameMatch::Exact(text) => Form::Exact(text.to_string()),
        NameMatch::Start(text) => Form::Start(text.to_string()),
        NameMatch::End(text) => Form::End(text.to_string()),
    };
    let message = |value| wire::NameMatch {
        form: Some(form(value)),
    };
    values.iter().map(message).collect()
}
