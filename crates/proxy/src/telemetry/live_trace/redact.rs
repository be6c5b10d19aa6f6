//! Secrets of a request, which no record of it has: credentials, cookies, tokens and keys, in
//! header fields, in queries, and wherever a stage quotes them.
//!
//! A secret is told by its name, and where a name tells nothing by how it looks. It is better to
//! leave out a value that is none than to show one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The text in place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// Parts of names, in lower case, whose values are secret.
const SECRET_PARTS: [&str; 17] = [
    "auth",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "key",
    "session",
    "signature",
    "credential",
    "jwt",
    "csrf",
    "xsrf",
    "otp",
    "saml",
    "ticket",
];

/// Whole names of query parameters whose values are secret.
const SECRET_PARAMETERS: [&str; 8] = ["code", "state", "sig", "pass", "pw", "nonce", "sid", "pin"];

/// Names of header fields whose values are shown however they look.
const PLAIN_HEADERS: [&str; 15] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "content-type",
    "host",
    "traceparent",
    "user-agent",
    "via",
    "x-b3-parentspanid",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
    "x-request-id",
];

/// Starts of values that are credentials, in lower case.
const SCHEMES: [&str; 5] = ["basic ", "bearer ", "digest ", "dpop ", "negotiate "];

/// The start of every JSON Web Token, and of what is made of one.
const TOKEN_START: &str = "eyJ";

/// A value of so many bytes without spaces, with letters and digits, may be a key.
const OPAQUE_BYTES_MIN: usize = 20;

/// A secret that is shorter is in too many words to be looked for.
const SECRET_BYTES_MIN: usize = 3;

/// The same of a part of a secret.
const PART_BYTES_MIN: usize = 6;

/// The most secrets that texts are searched for, each for itself.
const SECRETS_MAX: usize = 128;

/// The most bytes of secrets that texts are searched for. A request with more has no texts.
const SECRET_BYTES_MAX: usize = 32 << 10;

/// The secrets of one request. They cannot be printed.
#[derive(Default)]
pub(super) struct Redactor {
    secrets: Vec<Box<str>>,
    bytes: usize,
}

impl Redactor {
    /// The value of a header field, as far as it may be shown.
    pub(super) fn header(&mut self, name: &str, value: &[u8]) -> String {
        let value = String::from_utf8_lossy(value);
        let name = name.to_ascii_lowercase();
        let is_plain = PLAIN_HEADERS.contains(&&*name);
        if is_secret_name(&name) || is_credential(&value) || (!is_plain && has_opaque(&value)) {
            self.note(&value);
            self.note_user(&value);
            return REDACTED.to_owned();
        }
        for query in value.split('?').skip(1) {
            self.note(query);
        }
        without_queries(&value)
    }

    /// A query, as far as it may be shown.
    pub(super) fn query(&mut self, query: &str) -> String {
        let mut text = String::with_capacity(query.len());
        for (number, pair) in query.split('&').enumerate() {
            if number > 0 {
                text.push('&');
            }
            let Some((name, value)) = pair.split_once('=') else {
                // A name alone may be a value that some server reads.
                text.push_str(match is_opaque(pair) || is_credential(pair) {
                    true => self.taken(pair),
                    false => pair,
                });
                continue;
            };
            text.push_str(name);
            text.push('=');
            let is_secret = is_secret_parameter(name) || is_credential(value) || is_opaque(value);
            text.push_str(match is_secret {
                true => self.taken(value),
                false => value,
            });
        }
        text
    }

    /// A text about the request, without its secrets and without the queries of URLs.
    pub(super) fn text(&self, text: &str) -> String {
        if self.bytes > SECRET_BYTES_MAX {
            return REDACTED.to_owned();
        }
        // All are looked for in the text as it came: one that is a part of what takes the place of
        // another would make it grow, and two of such without end.
        let mut found: Vec<(usize, usize)> = Vec::new();
        for secret in &self.secrets {
            let places = text.match_indices(&**secret);
            found.extend(places.map(|(start, it)| (start, start + it.len())));
        }
        found.sort_unstable();
        let (mut written, mut end) = (String::with_capacity(text.len()), 0);
        for (start, behind) in found {
            if start >= end {
                written.push_str(text.get(end..start).unwrap_or_default());
                written.push_str(REDACTED);
            }
            end = end.max(behind);
        }
        written.push_str(text.get(end..).unwrap_or_default());
        without_queries(&written)
    }

    /// Forgets all of them, once nothing more is told.
    pub(super) fn forget(&mut self) {
        *self = Redactor {
            secrets: Vec::new(),
            // Whoever tells more all the same says nothing.
            bytes: SECRET_BYTES_MAX + 1,
        };
    }

    fn taken(&mut self, secret: &str) -> &'static str {
        self.note(secret);
        REDACTED
    }

    /// Notes name and password of a user, which are encoded (RFC 7617).
    fn note_user(&mut self, value: &str) {
        let encoded = value.split_once(' ').map(|(_, encoded)| encoded.trim());
        let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        for part in decoded.iter().flat_map(|text| text.splitn(2, ':')) {
            self.note(part);
        }
    }

    fn note(&mut self, secret: &str) {
        let is_part = |part: &&str| part.len() >= PART_BYTES_MIN && *part != secret;
        let parts = secret.split([' ', ';', ',', '=', '&']).filter(is_part);
        let whole = Some(secret).filter(|it| it.len() >= SECRET_BYTES_MIN);
        for found in whole.into_iter().chain(parts) {
            if self.secrets.iter().any(|known| **known == *found) {
                continue;
            }
            self.bytes = self.bytes.saturating_add(found.len());
            if self.secrets.len() >= SECRETS_MAX {
                self.bytes = SECRET_BYTES_MAX + 1;
            }
            if self.bytes > SECRET_BYTES_MAX {
                return;
            }
            self.secrets.push(found.into());
        }
    }
}

/// Whether a name in lower case says that its value is secret.
pub fn is_secret_name(name: &str) -> bool {
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// The same of a parameter of a query. One that is written in an odd way is not read.
fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains('%') || is_secret_name(&name) || SECRET_PARAMETERS.contains(&&*name)
}

/// Whether a value says that it is a credential.
fn is_credential(value: &str) -> bool {
    let begins = |scheme: &&str| {
        let start = value.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    value.contains(TOKEN_START) || SCHEMES.iter().any(begins)
}

/// Whether a value looks as a key or the id of a session does.
fn is_opaque(value: &str) -> bool {
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"+/_=.-%~:".contains(&byte);
    value.len() >= OPAQUE_BYTES_MIN
        && value.bytes().all(is_of_key)
        && value.bytes().any(|byte| byte.is_ascii_digit())
        && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether a part of a value looks so.
fn has_opaque(value: &str) -> bool {
    value.split([' ', '\t', ';', ',']).any(is_opaque)
}

/// A text with something else in place of all queries of URLs in it.
fn without_queries(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, query)) = rest.split_once('?') {
        written.push_str(before);
        written.push('?');
        let end = query.find([' ', '"', '\'', '\t']).unwrap_or(query.len());
        let (query, behind) = query.split_at(end);
        if !query.is_empty() {
            written.push_str(REDACTED);
        }
        rest = behind;
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::{REDACTED, Redactor, SECRET_BYTES_MAX, SECRETS_MAX};

    #[test]
    fn credentials_cookies_tokens_and_keys_are_not_shown() {
        for (name, value) in [
            ("Authorization", "Basic dXNlcjpwYXNz"),
            ("Proxy-Authorization", "x"),
            ("Cookie", "a=b"),
            ("X-Api-Key", "k"),
            ("X-Auth-Token", "t"),
            ("api_secret", "s"),
            ("X-Forwarded-Proof", "bearer abc"),
            ("X-Custom", "eyJhbGciOiJIUzI1NiJ9.e30.x"),
            ("X-Custom", "sk-live-0123456789abcdef"),
            ("X-Custom", "of eve; id=0123456789abcdef0123, v=1"),
        ] {
            let shown = Redactor::default().header(name, value.as_bytes());
            assert_eq!(shown, REDACTED, "{name}: {value}");
        }
        for (name, value) in [
            ("X-Version", "canary"),
            ("X-Request-Id", "0f8fad5b-d9cb-469f-a165-70867728950e"),
            ("Accept", "text/html"),
            ("Cache-Control", "max-age=31536000, immutable"),
            ("If-Modified-Since", "Wed, 21 Oct 2015 07:28:00 GMT"),
        ] {
            let shown = Redactor::default().header(name, value.as_bytes());
            assert_eq!(shown, value, "{name}");
        }
        let shown = Redactor::default().header("Referer", b"https://a.test/b?c=d");
        assert_eq!(shown, "https://a.test/b?[redacted]");
    }

    #[test]
    fn parameters_of_queries_are_shown_unless_they_may_be_secrets() {
        for (query, shown) in [
            ("page=2&sort=name", "page=2&sort=name"),
            ("access_token=abc&page=2", "access_token=[redacted]&page=2"),
            ("code=a&x=1", "code=[redacted]&x=1"),
            ("%74oken=abc", "%74oken=[redacted]"),
            ("q=eyJhbGciOi", "q=[redacted]"),
            ("q=0123456789abcdef0123", "q=[redacted]"),
            ("0123456789abcdef0123", "[redacted]"),
            ("", ""),
            ("a&b", "a&b"),
        ] {
            assert_eq!(Redactor::default().query(query), shown, "{query}");
        }
    }

    #[test]
    fn texts_quote_no_secret_that_was_seen_and_no_query() {
        let mut redactor = Redactor::default();
        redactor.header("authorization", b"Bearer c4n4ry-one");
        redactor.header("cookie", b"sid=c4n4ry-two; theme=dark");
        redactor.query("token=c4n4ry-three");
        // The name of a user is eve, and the password c4n4ry-four.
        redactor.header("proxy-authorization", b"Basic ZXZlOmM0bjRyeS1mb3Vy");
        let text =
            "c4n4ry-one, c4n4ry-two, c4n4ry-three, eve, c4n4ry-four, https://a/?b=c4 goes on";
        let text = redactor.text(text);
        assert!(!text.contains("c4n4") && !text.contains("eve"), "{text}");
        assert!(text.ends_with("https://a/?[redacted] goes on"), "{text}");
        redactor.forget();
        assert_eq!(redactor.text("anything"), REDACTED);
    }

    #[test]
    fn secrets_that_are_parts_of_what_takes_their_place_make_no_text_grow() {
        let mut redactor = Redactor::default();
        for _ in 0..SECRETS_MAX {
            redactor.header("cookie", b"red");
            redactor.header("x-token", b"act");
        }
        let text = redactor.text("redirected, an act, redact");
        let shown = "[redacted]irected, an [redacted], [redacted][redacted]";
        assert_eq!(text, shown);
        let mut redactor = Redactor::default();
        for secret in ["abcdef", "cdefgh", "defg"] {
            redactor.header("cookie", secret.as_bytes());
        }
        assert_eq!(redactor.text("xabcdefghx é"), "x[redacted]x é");
    }

    #[test]
    fn a_request_with_too_many_secrets_has_no_texts() {
        let mut redactor = Redactor::default();
        redactor.header("cookie", &vec![b'x'; SECRET_BYTES_MAX + 1]);
        assert_eq!(redactor.text("anything"), REDACTED);
        let mut redactor = Redactor::default();
        for number in 0..=SECRETS_MAX {
            redactor.header("cookie", format!("{number:03}").as_bytes());
        }
        assert_eq!(redactor.text("anything"), REDACTED);
    }
}
