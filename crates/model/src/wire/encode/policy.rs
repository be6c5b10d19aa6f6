//! What holds for a route beside its match and its action.

use super::super::generated as wire;
use super::{milliseconds, optional};
use crate::{
    AbortAnswer, Cors, Fault, HeaderEdit, HeaderEdits, Mirror, PathRewrite, Policy, RateLimit,
    Retry, Rewrite,
};

/// The message of a policy.
pub fn policy(value: &Policy) -> wire::Policy {
    let tls_redirect = value.tls_redirect.as_ref();
    let affinity = value.affinity.as_ref();
    wire::Policy {
        tls_redirect: tls_redirect.map(|redirect| wire::TlsRedirect {
            status: redirect.status.into(),
            port: redirect.port.into(),
            except_prefix: redirect.except_prefix.to_string(),
        }),
        rewrite: value.rewrite.as_deref().map(rewrite),
        sources_allowed: value
            .sources_allowed
            .iter()
            .map(ToString::to_string)
            .collect(),
        request_body_bytes_max: value.request_body_bytes_max,
        connect_timeout_ms: milliseconds(value.connect_timeout),
        read_timeout_ms: milliseconds(value.read_timeout),
        send_timeout_ms: milliseconds(value.send_timeout),
        cors: value.cors.as_deref().map(cors),
        affinity: affinity.map(|affinity| wire::Affinity {
            cookie: affinity.cookie.to_string(),
            path: affinity.path.to_string(),
            age_max_s: affinity.age_max_s,
            secure: affinity.secure,
        }),
        request_timeout_ms: milliseconds(value.request_timeout),
        retry: value.retry.as_deref().map(retry),
        fault: value.fault.as_deref().map(fault),
        mirrors: value.mirrors.iter().map(mirror).collect(),
        headers: value.headers.as_deref().map(header_edits),
        rate_limits: value.rate_limits.iter().map(rate_limit).collect(),
        processor: optional(&value.processor),
        underscores: value.underscores as u32,
        path_reading: value.path_reading as u32,
    }
}

fn rewrite(value: &Rewrite) -> wire::Rewrite {
    use wire::rewrite::Form;
    let form = value.path.as_ref().map(|path| match path {
        PathRewrite::Template(template) => Form::Path(template.to_string()),
        PathRewrite::Matched(text) => Form::Matched(text.to_string()),
        PathRewrite::Substitution { regex, template } => Form::Substitution(wire::Substitution {
            regex: regex.to_string(),
            template: template.to_string(),
        }),
    });
    wire::Rewrite {
        form,
        authority: value.authority.to_string(),
    }
}

fn cors(value: &Cors) -> wire::Cors {
    let texts = |texts: &[Box<str>]| texts.iter().map(ToString::to_string).collect();
    wire::Cors {
        origins: texts(&value.origins),
        methods: value.methods.to_string(),
        headers_allowed: value.headers_allowed.to_string(),
        headers_exposed: value.headers_exposed.to_string(),
        credentials: value.credentials,
        age_max_s: value.age_max_s,
        origin_patterns: texts(&value.origin_patterns),
        forwards_unmatched: value.forwards_unmatched,
    }
}

fn retry(value: &Retry) -> wire::Retry {
    wire::Retry {
        attempts: value.attempts.into(),
        try_timeout_ms: milliseconds(value.try_timeout),
        conditions: value.conditions.0,
        statuses: value.statuses.iter().map(|it| u32::from(*it)).collect(),
        backoff_ms: milliseconds(value.backoff),
    }
}

fn fault(value: &Fault) -> wire::Fault {
    wire::Fault {
        delay: value.delay.as_ref().map(|delay| wire::Delay {
            share_ppm: delay.share.ppm(),
            delay_ms: milliseconds(delay.delay),
        }),
        abort: value.abort.as_ref().map(|abort| {
            let (status, grpc_status) = match abort.answer {
                AbortAnswer::Status(status) => (status.into(), 0),
                AbortAnswer::Grpc(status) => (0, status.into()),
            };
            wire::Abort {
                share_ppm: abort.share.ppm(),
                status,
                grpc_status,
            }
        }),
    }
}

fn mirror(value: &Mirror) -> wire::Mirror {
    wire::Mirror {
        upstream: value.upstream.to_string(),
        share_ppm: value.share.ppm(),
    }
}

fn rate_limit(value: &RateLimit) -> wire::RateLimit {
    wire::RateLimit {
        name: value.name.to_string(),
        requests: value.requests,
        interval_ms: milliseconds(value.interval),
        burst: value.burst,
        is_per_client: value.is_per_client,
        exempt: value.exempt.iter().map(ToString::to_string).collect(),
    }
}

/// The message of header edits.
pub fn header_edits(value: &HeaderEdits) -> wire::HeaderEdits {
    let some = |edit: &HeaderEdit| (!edit.is_empty()).then(|| header_edit(edit));
    wire::HeaderEdits {
        request: some(&value.request),
        response: some(&value.response),
    }
}

fn header_edit(value: &HeaderEdit) -> wire::HeaderEdit {
    wire::HeaderEdit {
        remove: value.remove.iter().map(ToString::to_string).collect(),
        set: headers(&value.set),
        add: headers(&value.add),
    }
}

/// The messages of headers.
pub fn headers(values: &[(Box<str>, Box<str>)]) -> Vec<wire::Header> {
    let header = |(name, value): &(Box<str>, Box<str>)| wire::Header {
        name: name.to_string(),
        value: value.to_string(),
    };
    values.iter().map(header).collect()
}
