//! Providers.

use super::super::{WireError, generated as wire};
use super::policy::{header_name, headers, milliseconds};
use super::{header_text, required};
use crate::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Processing, Provider};

/// Reads a provider.
pub fn provider(message: wire::Provider) -> Result<Provider, WireError> {
    let error_status = match message.error_status {
        400..=599 => message.error_status as u16,
        _ => return Err(WireError::Invalid("status")),
    };
    if message.timeout_ms == 0 {
        return Err(WireError::Invalid("timeout"));
    }
    if message.authority.is_empty() {
        return Err(WireError::Missing("authority"));
    }
    Ok(Provider {
        upstream: required(message.upstream, "upstream")?,
        protocol: match (message.http, message.processing) {
            (Some(http), None) => CheckProtocol::Http(Box::new(http_check(http)?)),
            (None, Some(wire::Processing { tells_response })) => {
                CheckProtocol::Process(Processing { tells_response })
            }
            (None, None) => CheckProtocol::Grpc,
            (Some(_), Some(_)) => return Err(WireError::Invalid("protocol")),
        },
        timeout: milliseconds(message.timeout_ms),
        fail_open: message.fail_open,
        error_status,
        body: message.body.map(check_body).transpose()?,
        authority: header_text(message.authority, "authority")?,
        reroutes: message.reroutes,
    })
}

fn check_body(message: wire::CheckBody) -> Result<CheckBody, WireError> {
    if !(1..=Provider::BODY_BYTES_MAX).contains(&message.bytes_max) {
        return Err(WireError::Invalid("number of bytes"));
    }
    Ok(CheckBody {
        bytes_max: message.bytes_max,
        allows_part: message.allows_part,
        is_raw: message.is_raw,
    })
}

fn http_check(message: wire::HttpCheck) -> Result<HttpCheck, WireError> {
    let is_path = |byte: u8| byte > b' ' && byte != 0x7f;
    let prefix = message.path_prefix;
    let is_prefix = prefix.is_empty() || prefix.starts_with('/');
    if !is_prefix || !prefix.bytes().all(is_path) {
        return Err(WireError::Invalid("path prefix"));
    }
    Ok(HttpCheck {
        path_prefix: prefix.into(),
        request: name_matches(message.request)?,
        additional: headers(message.additional)?,
        upstream_on_allow: name_matches(message.upstream_on_allow)?,
        downstream_on_allow: name_matches(message.downstream_on_allow)?,
        downstream_on_deny: name_matches(message.downstream_on_deny)?,
    })
}

fn name_matches(messages: Vec<wire::NameMatch>) -> Result<Box<[NameMatch]>, WireError> {
    use wire::name_match::Form;
    let name = |message: wire::NameMatch| match message.form {
        Some(Form::Exact(text)) => Ok(NameMatch::Exact(header_name(text)?)),
        Some(Form::Start(text)) => Ok(NameMatch::Start(header_name(text)?)),
        Some(Form::End(text)) => Ok(NameMatch::End(header_name(text)?)),
        None => Err(WireError::Missing("header name")),
    };
    messages.into_iter().map(name).collect()
}
