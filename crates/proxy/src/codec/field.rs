//! Header fields, and those among them that the proxy itself acts on.

use std::borrow::Cow;

/// One header field of a head. Names of HTTP/1 come as they were sent.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// The field, if the proxy acts on it.
    pub known: KnownField,
    /// A token (RFC 9110, section 5.6.2).
    pub name: &'a str,
    /// Without white space at its ends, and without control bytes but tabs.
    pub value: &'a [u8],
}

/// The fields that the proxy acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownField {
    /// Any other.
    Other,
    /// `Host`
    Host,
    /// `Content-Length`
    ContentLength,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Connection`
    Connection,
    /// `Keep-Alive`
    KeepAlive,
    /// `Proxy-Connection`
    ProxyConnection,
    /// `Upgrade`
    Upgrade,
    /// `TE`
    Te,
    /// `Trailer`
    Trailer,
    /// `Expect`
    Expect,
    /// `Cookie`
    Cookie,
    /// `Origin`
    Origin,
    /// `Vary`
    Vary,
    /// `Date`
    Date,
    /// `Accept`
    Accept,
    /// `X-Request-ID`
    RequestId,
    /// `X-Forwarded-For`
    ForwardedFor,
    /// `X-Forwarded-Proto`
    ForwardedProto,
    /// `X-Forwarded-Host`
    ForwardedHost,
    /// `X-Forwarded-Port`
    ForwardedPort,
    /// `X-Forwarded-Client-Cert`
    ForwardedClientCert,
    /// `X-Real-IP`
    RealIp,
    /// `Forwarded` (RFC 7239)
    Forwarded,
    /// Any other by which proxies tell servers how a request came to them, and by which
    /// certificate: `X-Scheme`, `X-Forwarded-Scheme`, `X-Forwarded-SSL`, `Front-End-Https`,
    /// `X-Original-Forwarded-For`, those of Envoy, and all that begin with `SSL-Client-`
    OtherForwarded,
    /// `Access-Control-Request-Method`
    CorsRequestMethod,
    /// Any `Access-Control-` field of a response
    Cors,
    /// `CDN-Loop` (RFC 8586)
    CdnLoop,
    /// `HTTP2-Settings`
    Http2Settings,
    /// `Proxy`, which no standard knows, and which CGI makes the variable `HTTP_PROXY` of: by that
    /// programs find the proxy for their own requests
    Proxy,
}

impl KnownField {
    /// Longer than the name of any field that is known by its whole name.
    const NAME_BYTES_MAX: usize = 48;

    /// Which field has this name, in any case.
    pub fn of(name: &str) -> KnownField {
        // By length first: most names are told apart without being compared.
        let candidates: &[(&str, KnownField)] = match name.len() {
            2 => &[("te", KnownField::Te)],
            4 => &[
                ("host", KnownField::Host),
                ("vary", KnownField::Vary),
                ("date", KnownField::Date),
            ],
            5 => &[("proxy", KnownField::Proxy)],
            6 => &[
                ("cookie", KnownField::Cookie),
                ("accept", KnownField::Accept),
                ("expect", KnownField::Expect),
                ("origin", KnownField::Origin),
            ],
            7 => &[
                ("upgrade", KnownField::Upgrade),
                ("trailer", KnownField::Trailer),
            ],
            8 => &[
                ("x-scheme", KnownField::OtherForwarded),
                ("cdn-loop", KnownField::CdnLoop),
            ],
            9 => &[
                ("x-real-ip", KnownField::RealIp),
                ("forwarded", KnownField::Forwarded),
            ],
            10 => &[
                ("connection", KnownField::Connection),
                ("keep-alive", KnownField::KeepAlive),
            ],
            12 => &[("x-request-id", KnownField::RequestId)],
            14 => &[
                ("content-length", KnownField::ContentLength),
                ("http2-settings", KnownField::Http2Settings),
            ],
            15 => &[
                ("x-forwarded-for", KnownField::ForwardedFor),
                ("x-forwarded-ssl", KnownField::OtherForwarded),
                ("front-end-https", KnownField::OtherForwarded),
            ],
            16 => &[
                ("proxy-connection", KnownField::ProxyConnection),
                ("x-forwarded-host", KnownField::ForwardedHost),
                ("x-forwarded-port", KnownField::ForwardedPort),
                ("x-envoy-internal", KnownField::OtherForwarded),
            ],
            17 => &[
                ("transfer-encoding", KnownField::TransferEncoding),
                ("x-forwarded-proto", KnownField::ForwardedProto),
            ],
            18 => &[("x-forwarded-scheme", KnownField::OtherForwarded)],
            21 => &[("x-envoy-original-path", KnownField::OtherForwarded)],
            22.. => return KnownField::of_long(name),
            _ => &[],
        };
        candidates
            .iter()
            .find(|(known, _)| is_lower_case_of(known, name))
            .map_or_else(|| KnownField::of_start(name), |(_, known)| *known)
    }

    /// Which field a server takes a name for that reads whatever is neither letter nor digit as a
    /// dash.
    pub fn read_of(name: &str) -> KnownField {
        let mut room = [0; KnownField::NAME_BYTES_MAX];
        let Some(dashed) = room.get_mut(..name.len()) else {
            return KnownField::Other;
        };
        for (to, from) in dashed.iter_mut().zip(name.bytes()) {
            *to = if is_plain(from) { from } else { b'-' };
        }
        std::str::from_utf8(dashed).map_or(KnownField::Other, KnownField::of)
    }

    fn of_long(name: &str) -> KnownField {
        const REQUEST_METHOD: &str = "access-control-request-method";
        const PREFIX: &str = "access-control-";
        const OTHERS: [&str; 2] = ["x-original-forwarded-for", "x-envoy-external-address"];
        if name.eq_ignore_ascii_case(REQUEST_METHOD) {
            return KnownField::CorsRequestMethod;
        }
        if name.eq_ignore_ascii_case("x-forwarded-client-cert") {
            return KnownField::ForwardedClientCert;
        }
        if OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return KnownField::OtherForwarded;
        }
        match name.get(..PREFIX.len()) {
            Some(start) if start.eq_ignore_ascii_case(PREFIX) => KnownField::Cors,
            _ => KnownField::of_start(name),
        }
    }

    fn of_start(name: &str) -> KnownField {
        match name.get(..CERTIFICATE_START.len()) {
            Some(start) if start.eq_ignore_ascii_case(CERTIFICATE_START) => {
                KnownField::OtherForwarded
            }
            _ => KnownField::Other,
        }
    }

    /// Whether a field is for all who see a request, so that no connection can claim it: what
    /// frames, routes or authorizes, and where it came from.
    pub fn is_for_all(self, name: &str) -> bool {
        match self {
            KnownField::Other => name.eq_ignore_ascii_case("authorization"),
            KnownField::Vary
            | KnownField::Date
            | KnownField::Accept
            | KnownField::RequestId
            | KnownField::Cors
            | KnownField::CorsRequestMethod
            | KnownField::Proxy => false,
            KnownField::Host | KnownField::ContentLength | KnownField::TransferEncoding => true,
            known => !known.is_hop_by_hop(),
        }
    }

    /// Whether the field tells how a request came, from whom and as which: what the proxy knows,
    /// and a service that is asked about the request does not.
    pub fn tells_of_way(self) -> bool {
        matches!(
            self,
            KnownField::RequestId
                | KnownField::ForwardedFor
                | KnownField::ForwardedProto
                | KnownField::ForwardedHost
                | KnownField::ForwardedPort
                | KnownField::ForwardedClientCert
                | KnownField::RealIp
                | KnownField::Forwarded
                | KnownField::OtherForwarded
        )
    }

    /// Whether the field belongs to one connection and is never passed on as it is (RFC 9110,
    /// section 7.6.1).
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            KnownField::Connection
                | KnownField::KeepAlive
                | KnownField::ProxyConnection
                | KnownField::TransferEncoding
                | KnownField::Upgrade
                | KnownField::Te
                | KnownField::Trailer
                | KnownField::Http2Settings
        )
    }
}

/// Whether a text is another in lower case. One side of it need not be brought into any case.
pub fn is_lower_case_of(lower: &str, text: &str) -> bool {
    let mut pairs = lower.bytes().zip(text.bytes());
    lower.len() == text.len() && pairs.all(|(lower, it)| lower == it.to_ascii_lowercase())
}

/// Whether a byte of a name is a letter, a digit or a dash, which all servers read as they are:
/// looked up, since every byte of every name is asked about.
fn is_plain(byte: u8) -> bool {
    /// A bit for each byte of ASCII.
    const PLAIN: u128 = {
        let mut plain = 0_u128;
        let mut byte = 0_u8;
        while byte < 128 {
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                plain |= 1 << byte;
            }
            byte += 1;
        }
        plain
    };
    byte.is_ascii() && PLAIN >> byte & 1 == 1
}

/// Whether servers may read a name as another, for an underscore or other punctuation in it.
pub fn is_ambiguous(name: &str) -> bool {
    !name.bytes().all(is_plain)
}

/// Whether a server that reads whatever is neither letter nor digit as a dash takes one name for
/// another, in any case.
pub fn is_read_as(sent: &str, name: &str) -> bool {
    let is_read = |(sent, name): (u8, u8)| {
        sent.eq_ignore_ascii_case(&name) || (name == b'-' && !sent.is_ascii_alphanumeric())
    };
    sent.len() == name.len() && sent.bytes().zip(name.bytes()).all(is_read)
}

/// Whether a field tells an endpoint whom a request comes from, or a server takes it for one that
/// does.
pub fn tells_of_client(name: &str) -> bool {
    let is_known = matches!(
        KnownField::read_of(name),
        KnownField::ForwardedFor
            | KnownField::ForwardedClientCert
            | KnownField::RealIp
            | KnownField::Forwarded
            | KnownField::OtherForwarded
    );
    is_known || tells_of_certificate(name)
}

/// How the names of fields begin that tell of the certificate of a client.
const CERTIFICATE_START: &str = "ssl-client-";

/// Whether a field tells of the certificate of a client, or a server takes it for one that does:
/// there are some (CGI) that read whatever is neither letter nor digit as the same.
pub fn tells_of_certificate(name: &str) -> bool {
    let is_read = |(sent, own): (u8, u8)| {
        sent.eq_ignore_ascii_case(&own) || (own == b'-' && !sent.is_ascii_alphanumeric())
    };
    let start = name.as_bytes().get(..CERTIFICATE_START.len());
    start.is_some_and(|start| {
        let letters = start.iter().copied();
        letters.zip(CERTIFICATE_START.bytes()).all(is_read)
    })
}

/// The bytes between the fields of cookies that become one.
pub const BETWEEN_COOKIES: &[u8] = b"; ";

/// The cookies of all fields in one, as they have to be told outside of HTTP/2 (RFC 9113, section
/// 8.2.3); none where there are none.
pub fn cookies<'a>(fields: &[Field<'a>]) -> Option<Cow<'a, [u8]>> {
    let cookies = fields.iter().filter(|it| it.known == KnownField::Cookie);
    let mut cookies = cookies.map(|field| field.value);
    let mut all = Cow::Borrowed(cookies.next()?);
    for value in cookies {
        let all = all.to_mut();
        all.extend_from_slice(BETWEEN_COOKIES);
        all.extend_from_slice(value);
    }
    Some(all)
}

/// The members of a comma-separated list (RFC 9110, section 5.6.1), without empty ones. A value
/// that is not text has none.
pub fn members(value: &[u8]) -> impl Iterator<Item = &str> {
    std::str::from_utf8(value)
        .unwrap_or_default()
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|member| !member.is_empty())
}

/// The largest `Content-Length`.
const LENGTH_MAX: u64 = i64::MAX.unsigned_abs();

/// A `Content-Length` (RFC 9110, section 8.6): digits only, and at most 2^63 - 1, beyond which
/// servers that count with a sign read something else.
pub fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    let mut length = 0_u64;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length = length * 10 + u64::from(digit);
    }
    (length <= LENGTH_MAX).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::{Field, KnownField, cookies, is_ambiguous, is_read_as, members, parse_length};

    #[test]
    fn fields_are_known_in_any_case() {
        assert_eq!(KnownField::of("Content-Length"), KnownField::ContentLength);
        assert_eq!(
            KnownField::of("TRANSFER-ENCODING"),
            KnownField::TransferEncoding
        );
        assert_eq!(
            KnownField::of("Access-Control-Request-Method"),
            KnownField::CorsRequestMethod
        );
        assert_eq!(
            KnownField::of("access-control-allow-origin"),
            KnownField::Cors
        );
        assert_eq!(KnownField::of("content-lengthy"), KnownField::Other);
        assert_eq!(KnownField::of("ACCEPT"), KnownField::Accept);
        assert_eq!(KnownField::of("X-Request-ID"), KnownField::RequestId);
        assert_eq!(KnownField::of("accepts"), KnownField::Other);
        assert_eq!(KnownField::of("Proxy"), KnownField::Proxy);
        assert!(!KnownField::Proxy.is_for_all("proxy"));
    }

    #[test]
    fn fields_that_tell_of_the_way_of_a_request_are_known() {
        for name in [
            "X-Scheme",
            "x-forwarded-scheme",
            "X-Forwarded-SSL",
            "Front-End-Https",
            "X-Original-Forwarded-For",
            "x-envoy-external-address",
            "x-envoy-internal",
            "x-envoy-original-path",
            "SSL-Client-Verify",
            "ssl-client-cert",
            "ssl-client-subject-dn-and-a-long-name",
        ] {
            assert_eq!(KnownField::of(name), KnownField::OtherForwarded, "{name}");
            let read = KnownField::read_of(&name.replace('-', "_"));
            assert_eq!(read, KnownField::OtherForwarded, "{name}");
        }
        for name in [
            "x-schema",
            "x-forwarded-prefix",
            "x-forwarded-server",
            "x-envoy-attempt-count",
            "ssl-client",
            "ssl-clients-cert",
        ] {
            assert_eq!(KnownField::of(name), KnownField::Other, "{name}");
        }
    }

    #[test]
    fn underscores_are_read_as_dashes_and_dashes_as_nothing_else() {
        assert_eq!(
            KnownField::read_of("Transfer_Encoding"),
            KnownField::TransferEncoding
        );
        assert_eq!(
            KnownField::read_of("x_forwarded-client_CERT"),
            KnownField::ForwardedClientCert
        );
        assert_eq!(KnownField::read_of("x_user"), KnownField::Other);
        assert_eq!(KnownField::read_of(&"x_".repeat(1_000)), KnownField::Other);
        assert!(is_read_as("X_jwt-SUB", "x-jwt-sub"));
        assert!(is_read_as("x-jwt-sub", "X-JWT-sub"));
        assert!(!is_read_as("x-jwt-sub", "x_jwt_sub"));
        assert!(!is_read_as("x_jwt_sub2", "x-jwt-sub"));
    }

    #[test]
    fn other_punctuation_is_read_as_dashes_too() {
        for byte in "!#$%&'*+.^_`|~".chars() {
            let spelled = |name: &str| name.replace('-', &byte.to_string());
            for (name, known) in [
                ("X-Forwarded-For", KnownField::ForwardedFor),
                ("Content-Length", KnownField::ContentLength),
                ("Transfer-Encoding", KnownField::TransferEncoding),
                ("ssl-client-verify", KnownField::OtherForwarded),
            ] {
                assert_eq!(KnownField::read_of(&spelled(name)), known, "{byte}{name}");
            }
            assert_eq!(KnownField::read_of(&spelled("x-own")), KnownField::Other);
            assert!(is_read_as(&spelled("X-User"), "x-user"), "{byte}");
            assert!(!is_read_as("x-user", &spelled("x-user")), "{byte}");
            assert!(is_ambiguous(&spelled("x-user")), "{byte}");
        }
        assert!(!is_read_as("xxuser", "x-user"));
        assert!(!is_read_as("x1user", "x-user"));
        assert!(!is_ambiguous("X-User-2"));
    }

    #[test]
    fn cookies_of_several_fields_are_told_in_one() {
        let field = |name: &'static str, value: &'static [u8]| Field {
            known: KnownField::of(name),
            name,
            value,
        };
        let all: [Field<'_>; 4] = [
            field("cookie", b"a=1; b=2"),
            field("x-cookie", b"no"),
            field("Cookie", b"c=3"),
            field("COOKIE", b"d=4"),
        ];
        let told = |count: usize| cookies(&all[..count]).unwrap().into_owned();
        assert_eq!(told(4), b"a=1; b=2; c=3; d=4");
        assert_eq!(told(2), b"a=1; b=2");
        assert!(cookies(&all[1..2]).is_none());
    }

    #[test]
    fn lengths_are_digits_only() {
        assert_eq!(parse_length(b"0"), Some(0));
        assert_eq!(
            parse_length(b"9223372036854775807"),
            Some(9_223_372_036_854_775_807)
        );
        for bad in [
            "",
            "+1",
            "-1",
            "1 ",
            "0x1",
            "1,1",
            "9223372036854775808",
            "9999999999999999999",
            "18446744073709551621",
        ] {
            assert_eq!(parse_length(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn lists_have_no_empty_members() {
        let found: Vec<&str> = members(b" close , ,\tTE,").collect();
        assert_eq!(found, ["close", "TE"]);
    }
}
