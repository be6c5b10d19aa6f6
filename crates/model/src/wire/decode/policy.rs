//! What holds for a route beside its match and its action.

use std::time::Duration;

use super::super::{WireError, generated as wire};
use super::{header_text, optional, port, redirect_status, required};
use crate::{
    Abort, AbortAnswer, Affinity, Cors, Delay, Fault, HeaderEdit, HeaderEdits, Mirror, PathReading,
    PathRewrite, Policy, RateLimit, Retry, RetryConditions, Rewrite, Share, TlsRedirect,
    Underscores,
};

/// Reads a policy.
pub fn policy(message: wire::Policy) -> Result<Policy, WireError> {
    Ok(Policy {
        tls_redirect: message.tls_redirect.map(tls_redirect).transpose()?,
        rewrite: message.rewrite.map(rewrite).transpose()?.map(Box::new),
        sources_allowed: networks(&message.sources_allowed)?,
        request_body_bytes_max: message.request_body_bytes_max,
        connect_timeout: milliseconds(message.connect_timeout_ms),
        read_timeout: milliseconds(message.read_timeout_ms),
        send_timeout: milliseconds(message.send_timeout_ms),
        cors: message.cors.map(cors).transpose()?.map(Box::new),
        affinity: message.affinity.map(affinity).transpose()?.map(Box::new),
        request_timeout: milliseconds(message.request_timeout_ms),
        retry: message.retry.map(retry).transpose()?.map(Box::new),
        fault: message.fault.map(fault).transpose()?.map(Box::new),
        mirrors: message
            .mirrors
            .into_iter()
            .map(mirror)
            .collect::<Result<_, _>>()?,
        headers: message.headers.map(header_edits).transpose()?.map(Box::new),
        rate_limits: rate_limits(message.rate_limits)?,
        processor: optional(message.processor),
        underscores: match message.underscores {
            0 => Underscores::Colliding,
            1 => Underscores::Dropped,
            2 => Underscores::Passed,
            _ => return Err(WireError::Invalid("underscores")),
        },
        path_reading: match message.path_reading {
            0 => PathReading::AsSent,
            1 => PathReading::Base,
            2 => PathReading::Decoded,
            _ => return Err(WireError::Invalid("reading of paths")),
        },
    })
}

fn networks(texts: &[String]) -> Result<Box<[ipnet::IpNet]>, WireError> {
    let network = |text: &String| text.parse().map_err(|_| WireError::Invalid("source range"));
    texts.iter().map(network).collect()
}

fn rate_limits(messages: Vec<wire::RateLimit>) -> Result<Box<[RateLimit]>, WireError> {
    if messages.len() > RateLimit::PER_POLICY_MAX {
        return Err(WireError::Invalid("number of rate limits"));
    }
    messages.into_iter().map(rate_limit).collect()
}

fn rate_limit(message: wire::RateLimit) -> Result<RateLimit, WireError> {
    let interval = milliseconds(message.interval_ms);
    let is_interval = (Duration::from_secs(1)..=RateLimit::INTERVAL_MAX).contains(&interval);
    let is_rate = (1..=RateLimit::REQUESTS_MAX).contains(&message.requests);
    if !is_interval || !is_rate || message.burst > RateLimit::REQUESTS_MAX {
        return Err(WireError::Invalid("rate limit"));
    }
    Ok(RateLimit {
        name: message.name.into(),
        requests: message.requests,
        interval,
        burst: message.burst,
        is_per_client: message.is_per_client,
        exempt: networks(&message.exempt)?,
    })
}

/// A duration from its number of milliseconds.
pub fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(number.into())
}

fn tls_redirect(message: wire::TlsRedirect) -> Result<TlsRedirect, WireError> {
    Ok(TlsRedirect {
        status: redirect_status(message.status)?,
        port: port(message.port)?,
        except_prefix: message.except_prefix.into(),
    })
}

fn rewrite(message: wire::Rewrite) -> Result<Rewrite, WireError> {
    use wire::rewrite::Form;
    let path = match message.form {
        None => None,
        Some(Form::Path(template)) => {
            Some(PathRewrite::Template(header_text(template, "rewrite")?))
        }
        Some(Form::Matched(text)) => Some(PathRewrite::Matched(header_text(text, "rewrite")?)),
        Some(Form::Substitution(message)) => {
            if message.regex.is_empty() {
                return Err(WireError::Missing("regex"));
            }
            Some(PathRewrite::Substitution {
                regex: message.regex.into(),
                template: header_text(message.template, "rewrite")?,
            })
        }
    };
    Ok(Rewrite {
        path,
        authority: header_text(message.authority, "authority")?,
    })
}

fn cors(message: wire::Cors) -> Result<Cors, WireError> {
    let origin = |text| header_text(text, "CORS origin");
    let origins = message.origins.into_iter().map(origin);
    Ok(Cors {
        origins: origins.collect::<Result<_, _>>()?,
        methods: header_text(message.methods, "CORS methods")?,
        headers_allowed: header_text(message.headers_allowed, "CORS headers")?,
        headers_exposed: header_text(message.headers_exposed, "CORS headers")?,
        credentials: message.credentials,
        age_max_s: message.age_max_s,
        origin_patterns: message
            .origin_patterns
            .into_iter()
            .map(Into::into)
            .collect(),
        forwards_unmatched: message.forwards_unmatched,
    })
}

fn affinity(message: wire::Affinity) -> Result<Affinity, WireError> {
    if message.cookie.is_empty() {
        return Err(WireError::Missing("cookie name"));
    }
    Ok(Affinity {
        cookie: header_text(message.cookie, "cookie name")?,
        path: header_text(message.path, "cookie path")?,
        age_max_s: message.age_max_s,
        secure: message.secure,
    })
}

fn retry(message: wire::Retry) -> Result<Retry, WireError> {
    let attempts = u8::try_from(message.attempts).ok();
    let attempts = attempts.filter(|attempts| *attempts <= Retry::ATTEMPTS_MAX);
    if message.conditions & !RetryConditions::ALL.0 != 0 {
        return Err(WireError::Invalid("condition of a retry"));
    }
    let statuses = message.statuses.into_iter().map(status);
    Ok(Retry {
        attempts: attempts.ok_or(WireError::Invalid("number of retries"))?,
        try_timeout: milliseconds(message.try_timeout_ms),
        conditions: RetryConditions(message.conditions),
        statuses: statuses.collect::<Result<_, _>>()?,
        backoff: milliseconds(message.backoff_ms),
    })
}

fn fault(message: wire::Fault) -> Result<Fault, WireError> {
    let delay = |message: wire::Delay| {
        Ok(Delay {
            share: share(message.share_ppm)?,
            delay: milliseconds(message.delay_ms),
        })
    };
    Ok(Fault {
        delay: message.delay.map(delay).transpose()?,
        abort: message.abort.map(abort).transpose()?,
    })
}

fn abort(message: wire::Abort) -> Result<Abort, WireError> {
    let answer = match (message.status, message.grpc_status) {
        (0, grpc @ 1..=16) => AbortAnswer::Grpc(grpc as u8),
        (number, 0) => AbortAnswer::Status(status(number)?),
        _ => return Err(WireError::Invalid("status")),
    };
    Ok(Abort {
        share: share(message.share_ppm)?,
        answer,
    })
}

fn mirror(message: wire::Mirror) -> Result<Mirror, WireError> {
    Ok(Mirror {
        upstream: required(message.upstream, "upstream")?,
        share: share(message.share_ppm)?,
    })
}

/// Reads a share.
pub fn share(ppm: u32) -> Result<Share, WireError> {
    Share::from_ppm(ppm).ok_or(WireError::Invalid("share"))
}

fn status(number: u32) -> Result<u16, WireError> {
    match number {
        200..=599 => Ok(number as u16),
        _ => Err(WireError::Invalid("status")),
    }
}

/// Reads header edits.
pub fn header_edits(message: wire::HeaderEdits) -> Result<HeaderEdits, WireError> {
    Ok(HeaderEdits {
        request: header_edit(message.request)?,
        response: header_edit(message.response)?,
    })
}

fn header_edit(message: Option<wire::HeaderEdit>) -> Result<HeaderEdit, WireError> {
    let Some(message) = message else {
        return Ok(HeaderEdit::default());
    };
    let remove = message.remove.into_iter().map(header_name);
    Ok(HeaderEdit {
        remove: remove.collect::<Result<_, _>>()?,
        set: headers(message.set)?,
        add: headers(message.add)?,
    })
}

type Headers = Box<[(Box<str>, Box<str>)]>;

/// Reads headers.
pub fn headers(messages: Vec<wire::Header>) -> Result<Headers, WireError> {
    let pair = |header: wire::Header| {
        let value = header_text(header.value, "header value")?;
        Ok((header_name(header.name)?, value))
    };
    messages.into_iter().map(pair).collect()
}

/// A lower-case token (RFC 9110, section 5.1).
pub fn header_name(name: String) -> Result<Box<str>, WireError> {
    let is_token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(WireError::Invalid("header name"));
    }
    Ok(name.into())
}
