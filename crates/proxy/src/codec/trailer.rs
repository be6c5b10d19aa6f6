//! Fields behind a body (RFC 9110, section 6.5): what gRPC tells its status by.

use http::header::{HeaderName, HeaderValue};

use super::buffer::Buffer;
use super::field::{KnownField, is_ambiguous, tells_of_certificate};

/// The most fields of one set of trailers; beyond them none is passed on.
const TRAILERS_MAX: usize = 64;

/// The bytes of a field beside its text, about.
const FIELD_BYTES: usize = 128;

/// Fields beside the known ones that say nothing behind a body, or say it too late: who asks, who
/// may, what the body is, and what is to be done with it.
const BEFORE: [&str; 25] = [
    "age",
    "authentication-info",
    "authorization",
    "cache-control",
    "clear-site-data",
    "content-encoding",
    "content-range",
    "content-security-policy",
    "content-type",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
];

/// Fields of a request beside the known ones that say how it came, where it leads or what it asks
/// for, which endpoints believe of those in front of them.
const CLAIMS: [&str; 16] = [
    "b3",
    "cf-connecting-ip",
    "remote-user",
    "traceparent",
    "tracestate",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-remote-addr",
    "x-remote-user",
    "x-request-start",
    "x-rewrite-url",
];

/// The prefixes of the others.
const CLAIM_STARTS: [&str; 4] = ["x-b3-", "x-envoy-", "x-forwarded-", "x-original-"];

/// The field by which gRPC tells how a call ended.
pub const GRPC_STATUS: &str = "grpc-status";

/// The codes of gRPC; whatever else is written is none of them.
pub fn grpc_status(written: &[u8]) -> &'static str {
    const CODES: [&str; 17] = [
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
    ];
    let mut codes = CODES.into_iter();
    let code = codes.find(|code| code.as_bytes() == written);
    code.unwrap_or("unknown")
}

/// The media type of gRPC, as it begins.
pub const GRPC: &str = "application/grpc";

/// Whether a media type is that of gRPC.
pub fn is_grpc(media_type: &[u8]) -> bool {
    let rest = media_type.strip_prefix(GRPC.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Fields behind a body. Boxed, because hardly any message has them.
pub type Trailers = Box<http::HeaderMap>;

/// How many bytes of memory trailers take, about.
pub fn memory(trailers: &Trailers) -> usize {
    let fields = trailers.iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    fields.sum()
}

/// Reads the lines behind the last chunk of HTTP/1, the empty one that ends them included. What
/// is not well-formed is left out as a whole: nobody has to understand trailers.
pub fn parse(lines: &[u8]) -> Option<Trailers> {
    let mut slots = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let parsed = httparse::parse_headers(lines, &mut slots).ok()?;
    let httparse::Status::Complete((_, fields)) = parsed else {
        return None;
    };
    let mut trailers = Trailers::default();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(field.value).ok()?;
        trailers.try_append(name, value).ok()?;
    }
    filter(trailers)
}

/// Takes out what must not stand behind a body: framing, routing, what belongs to a connection,
/// and what is of use only before the body (RFC 9110, section 6.5.1). None where nothing is left.
pub fn filter(trailers: Trailers) -> Option<Trailers> {
    if trailers.len() > TRAILERS_MAX {
        return None;
    }
    keep(trailers, |name| {
        KnownField::of(name.as_str()) == KnownField::Other && !BEFORE.contains(&name.as_str())
    })
}

/// The same of those of a request, without names with underscores or other punctuation, whatever
/// its route says of them in a head, without those that only proxies may claim, and without those
/// that are reserved: servers that join trailers to the head would take them for what the proxy has
/// set or verified there. None where nothing is left.
pub fn of_request(trailers: Trailers, is_reserved: impl Fn(&str) -> bool) -> Option<Trailers> {
    keep(trailers, |name| {
        let name = name.as_str();
        !is_ambiguous(name) && !is_claim(name) && !is_reserved(name)
    })
}

/// The same without more of them that are reserved. None where nothing is left.
pub fn without(trailers: Trailers, is_reserved: impl Fn(&str) -> bool) -> Option<Trailers> {
    keep(trailers, |name| !is_reserved(name.as_str()))
}

fn is_claim(name: &str) -> bool {
    CLAIMS.contains(&name)
        || CLAIM_STARTS.iter().any(|start| name.starts_with(start))
        || tells_of_certificate(name)
}

fn keep(trailers: Trailers, is_allowed: impl Fn(&HeaderName) -> bool) -> Option<Trailers> {
    if trailers.keys().all(&is_allowed) {
        return (!trailers.is_empty()).then_some(trailers);
    }
    let mut kept = Trailers::default();
    for (name, value) in trailers.iter().filter(|(name, _)| is_allowed(name)) {
        kept.try_append(name.clone(), value.clone()).ok()?;
    }
    (!kept.is_empty()).then_some(kept)
}

/// Writes them as HTTP/1 has them behind the last chunk, without the empty line.
pub fn write(trailers: &http::HeaderMap, out: &mut Buffer) {
    for (name, value) in trailers {
        out.append_str(name.as_str());
        out.append(b": ");
        out.append(value.as_bytes());
        out.append(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, CLAIMS, of_request, parse, write};

    #[test]
    fn trailers_come_out_as_they_went_in_but_for_what_must_not_be_there() {
        let text = b"Grpc-Status: 0\r\nContent-Length: 7\r\nx-a: b\r\nx-a: c\r\n\r\n";
        let mut out = Buffer::take();
        write(&parse(text).unwrap(), &mut out);
        assert_eq!(out.filled(), b"grpc-status: 0\r\nx-a: b\r\nx-a: c\r\n");
    }

    #[test]
    fn what_is_of_use_before_a_body_does_not_stand_behind_it() {
        let text = b"Set-Cookie: a=b\r\nContent-Type: d\r\nx_a: e\r\netag: f\r\n\r\n";
        let mut out = Buffer::take();
        write(&parse(text).unwrap(), &mut out);
        assert_eq!(out.filled(), b"x_a: e\r\netag: f\r\n");
        assert!(parse(b"set-cookie: a=b\r\n\r\n").is_none());
    }

    #[test]
    fn trailers_of_a_request_are_none_of_what_the_proxy_fills() {
        let passed = |text: &[u8]| of_request(parse(text).unwrap(), |name| name == "x-user");
        let text = b"x_forwarded_for: 192.0.2.1\r\nX-User: root\r\nx.user: root\r\nx-a: b\r\n\r\n";
        let mut out = Buffer::take();
        write(&passed(text).unwrap(), &mut out);
        assert_eq!(out.filled(), b"x-a: b\r\n");
        assert!(passed(b"x_forwarded_for: 192.0.2.1\r\nx-user: root\r\n\r\n").is_none());
    }

    #[test]
    fn trailers_of_a_request_are_none_that_only_proxies_may_claim() {
        let passed = |text: &[u8]| of_request(parse(text).unwrap(), |_| false);
        for name in CLAIMS {
            assert!(
                passed(format!("{name}: a\r\n\r\n").as_bytes()).is_none(),
                "{name}"
            );
        }
        for name in [
            "X-Forwarded-Prefix",
            "x-original-url",
            "X-B3-TraceId",
            "x-envoy-retry-on",
            "SSL.Client.Verify",
            "ssl-client~subject-dn",
        ] {
            assert!(
                passed(format!("{name}: a\r\n\r\n").as_bytes()).is_none(),
                "{name}"
            );
        }
        assert!(passed(b"x-checksum: a\r\n\r\n").is_some());
    }

    #[test]
    fn trailers_that_are_not_well_formed_are_left_out() {
        for text in [
            "\r\n",
            "a b: c\r\n\r\n",
            "a: b",
            "host: a\r\n\r\n",
            ": x\r\n\r\n",
        ] {
            assert!(parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
