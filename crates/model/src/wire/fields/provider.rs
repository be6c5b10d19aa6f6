//! Providers.

use super::policy::header_list;
use super::*;
use crate::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Processing};

message! {
    /// A service that is asked whether a request may pass.
    Provider, provider {
        1 upstream: resource_name("upstream");
        2 timeout as timeout_ms: positive("timeout");
        3 fail_open: boolean();
        4 error_status: http_status(400..=599, "status");
        /// Absent where the service is told nothing of the body.
        5 body: some::<CheckBody>();
        6 authority: header_text("authority");
        /// Absent where gRPC is spoken.
        7 http: boxed::<HttpCheck>(), of match &provider.protocol {
            CheckProtocol::Http(check) => Some(check.clone()),
            CheckProtocol::Grpc | CheckProtocol::Process(_) => None,
        };
        8 reroutes: boolean();
        /// Present where requests pass by the service; then there is no `http`.
        9 processing: some::<Processing>(), of match provider.protocol {
            CheckProtocol::Process(processing) => Some(processing),
            CheckProtocol::Http(_) | CheckProtocol::Grpc => None,
        };
        /// Headers that a service over gRPC is told; empty for all.
        10 told: list(each::<NameMatch>()), since 5;
    } => {
        if authority.is_empty() {
            return Err(WireError::Missing("authority"));
        }
        let protocol = match (http, processing) {
            (Some(http), None) => CheckProtocol::Http(http),
            (None, Some(processing)) => CheckProtocol::Process(processing),
            (None, None) => CheckProtocol::Grpc,
            (Some(_), Some(_)) => return Err(WireError::Invalid("protocol")),
        };
        Provider {
            upstream,
            protocol,
            timeout,
            fail_open,
            error_status,
            body,
            authority,
            reroutes,
            told: told.into(),
        }
    }
}

message! {
    /// The parts that a processor is told beside the head of a request.
    Processing {
        1 tells_response: boolean();
    }
}

message! {
    /// How much of the body of a request a provider is told.
    CheckBody, body {
        1 bytes_max: at_most(Provider::BODY_BYTES_MAX, "number of bytes");
        2 allows_part: boolean();
        3 is_raw: boolean();
    } => {
        if bytes_max == 0 {
            return Err(WireError::Invalid("number of bytes"));
        }
        CheckBody { bytes_max, allows_part, is_raw }
    }
}

message! {
    /// The request to a provider over HTTP, and the parts of its answer that are passed on.
    HttpCheck, check {
        1 path_prefix: string();
        2 request: list(each::<NameMatch>());
        3 additional: header_list();
        4 upstream_on_allow: list(each::<NameMatch>());
        5 downstream_on_allow: list(each::<NameMatch>());
        6 downstream_on_deny: list(each::<NameMatch>());
    } => {
        let is_path = |byte: u8| byte > b' ' && byte != 0x7f;
        let is_prefix = path_prefix.is_empty() || path_prefix.starts_with('/');
        if !is_prefix || !path_prefix.bytes().all(is_path) {
            return Err(WireError::Invalid("path prefix"));
        }
        HttpCheck {
            path_prefix,
            request: request.into(),
            additional: additional.into(),
            upstream_on_allow: upstream_on_allow.into(),
            downstream_on_allow: downstream_on_allow.into(),
            downstream_on_deny: downstream_on_deny.into(),
        }
    }
}

message! {
    /// A test of a header's name.
    NameMatch, name {
        1 form: one_of::<NameMatch>("header name"), of *name;
    } => form
}

forms! {
    NameMatch {
        1 exact: header_name("header name") => Exact;
        2 start: header_name("header name") => Start;
        3 end: header_name("header name") => End;
        4 any => Any, since 5;
    }
}
