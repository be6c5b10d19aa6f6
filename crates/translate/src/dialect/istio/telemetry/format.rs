//! Formats of access logs in Envoy's command operators.

use myriad_model::{Attribute, FormatPart, is_token};

/// The text of a line where nobody wrote a format, as Istio has it.
pub const USUAL: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% \
    %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% - \"-\" \
    %BYTES_RECEIVED% %BYTES_SENT% %DURATION% - \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
    \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% - - \
    %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// The members of a line in JSON where nobody wrote any.
pub const USUAL_JSON: [(&str, &str); 17] = [
    ("start_time", "%START_TIME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("authority", "%REQ(:AUTHORITY)%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
];

/// Reads a format. Operators that are not known are written as `-` and named.
///
/// # Errors
/// The problem of the text as a whole.
pub fn parse(text: &str, unknown: &mut Vec<String>) -> Result<Box<[FormatPart]>, String> {
    let mut parts: Vec<FormatPart> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, behind) = rest.split_at(at);
        push(&mut parts, before);
        let behind = behind.get(1..).unwrap_or_default();
        if let Some(behind) = behind.strip_prefix('%') {
            push(&mut parts, "%");
            rest = behind;
            continue;
        }
        let end = end_of(behind).ok_or_else(|| format!("{text:?} has a % without its end"))?;
        let (written, behind) = behind.split_at(end);
        rest = behind.get(1..).unwrap_or_default();
        match operator(written) {
            Some(part) => parts.push(part),
            None => {
                unknown.push(format!("%{written}%"));
                push(&mut parts, "-");
            }
        }
    }
    push(&mut parts, rest);
    Ok(parts.into())
}

/// The attribute that one operator stands for, without its per cent signs.
pub fn single(text: &str) -> Option<Attribute> {
    let written = text.strip_prefix('%')?.strip_suffix('%')?;
    match operator(written)? {
        FormatPart::Value { attribute, .. } => Some(attribute),
        FormatPart::Text(_) => None,
    }
}

/// The end of an operator; a % within its parentheses does not end it.
fn end_of(text: &str) -> Option<usize> {
    let mut is_within = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => is_within = true,
            ')' => is_within = false,
            '%' if !is_within => return Some(at),
            _ => {}
        }
    }
    None
}

fn push(parts: &mut Vec<FormatPart>, text: &str) {
    if text.is_empty() {
        return;
    }
    match parts.last_mut() {
        Some(FormatPart::Text(known)) => *known = format!("{known}{text}").into(),
        _ => parts.push(FormatPart::Text(text.into())),
    }
}

fn operator(written: &str) -> Option<FormatPart> {
    let (written, bytes_max) = match written.rsplit_once(':') {
        Some((before, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (before, number.parse().ok()?)
        }
        _ => (written, 0),
    };
    let attribute = match written.split_once('(') {
        Some((name, argument)) => with_argument(name, argument.strip_suffix(')')?)?,
        None => plain(written)?,
    };
    Some(FormatPart::Value {
        attribute,
        bytes_max,
    })
}

fn with_argument(name: &str, argument: &str) -> Option<Attribute> {
    let (first, second) = match argument.split_once('?') {
        Some((first, second)) => (first, Some(second)),
        None => (argument, None),
    };
    let first = first.to_ascii_lowercase();
    let second = second.map(str::to_ascii_lowercase);
    match (name, first.as_str(), second.as_deref()) {
        // The log tells what the client asked for, whatever was made of it.
        ("REQ", ":path", None) | ("REQ", "x-envoy-original-path", Some(":path")) => {
            Some(Attribute::Target)
        }
        ("REQ", ":method", None) => Some(Attribute::Method),
        ("REQ", ":authority" | "host", None) => Some(Attribute::Authority),
        ("REQ", ":scheme", None) => Some(Attribute::Scheme),
        ("RESP", ":status", None) => Some(Attribute::Status),
        ("REQ", ..) => {
            let (first, second) = headers(&first, second.as_deref())?;
            Some(Attribute::RequestHeader(first, second))
        }
        _ => None,
    }
}

fn headers(first: &str, second: Option<&str>) -> Option<(Box<str>, Option<Box<str>>)> {
    // A percent sign would end the operator.
    let name = |text: &str| (is_token(text) && !text.contains('%')).then(|| Box::from(text));
    Some((
        name(first)?,
        match second {
            Some(second) => Some(name(second)?),
            None => None,
        },
    ))
}

fn plain(name: &str) -> Option<Attribute> {
    Some(match name {
        "START_TIME" => Attribute::StartTime,
        "DURATION" => Attribute::Duration,
        "PROTOCOL" => Attribute::Protocol,
        "RESPONSE_CODE" => Attribute::Status,
        "RESPONSE_CODE_DETAILS" => Attribute::Details,
        "RESPONSE_FLAGS" => Attribute::Flags,
        "BYTES_RECEIVED" => Attribute::BytesReceived,
        "BYTES_SENT" => Attribute::BytesSent,
        "UPSTREAM_HOST" | "UPSTREAM_REMOTE_ADDRESS" => Attribute::Endpoint,
        "UPSTREAM_CLUSTER" | "UPSTREAM_CLUSTER_RAW" => Attribute::Upstream,
        "ROUTE_NAME" => Attribute::Route,
        "DOWNSTREAM_REMOTE_ADDRESS" | "DOWNSTREAM_DIRECT_REMOTE_ADDRESS" => {
            Attribute::ClientAddress
        }
        "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"
        | "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT" => Attribute::ClientIp,
        "DOWNSTREAM_REMOTE_PORT" | "DOWNSTREAM_DIRECT_REMOTE_PORT" => Attribute::ClientPort,
        "DOWNSTREAM_LOCAL_PORT" => Attribute::ListenerPort,
        "DOWNSTREAM_TLS_VERSION" => Attribute::TlsVersion,
        "DOWNSTREAM_PEER_URI_SAN" => Attribute::Principal,
        "REQUESTED_SERVER_NAME" => Attribute::ServerName,
        "HOSTNAME" => Attribute::Hostname,
        "TRACE_ID" => Attribute::TraceId,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use myriad_model::{Attribute, FormatPart};

    use super::{USUAL, USUAL_JSON, parse, single};

    #[test]
    fn operators_are_understood_and_others_named() {
        let mut unknown = Vec::new();
        let parts = parse("a %REQ(X-A?X-B):5% 100%% %FOO(%b)%\n", &mut unknown);
        let value = FormatPart::Value {
            attribute: Attribute::RequestHeader("x-a".into(), Some("x-b".into())),
            bytes_max: 5,
        };
        let text = |text: &str| FormatPart::Text(text.into());
        assert_eq!(
            parts.as_deref(),
            Ok(&[text("a "), value, text(" 100% -\n")][..])
        );
        assert_eq!(unknown, ["%FOO(%b)%"]);
        assert!(parse("a % b", &mut unknown).is_err());
        assert_eq!(single("%REQ(:METHOD)%"), Some(Attribute::Method));
        assert_eq!(single("a%REQ(:METHOD)%"), None);
    }

    #[test]
    fn the_usual_formats_have_nothing_unknown() {
        let mut unknown = Vec::new();
        assert!(parse(USUAL, &mut unknown).is_ok());
        for (_, text) in USUAL_JSON {
            assert!(parse(text, &mut unknown).is_ok());
        }
        assert_eq!(unknown, [""; 0]);
    }
}
