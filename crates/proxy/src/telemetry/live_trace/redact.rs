//! Secrets of a request, which no record of it has: credentials, cookies, tokens and keys, in
//! header fields, in paths, in queries, and wherever a stage quotes them.
//!
//! A secret is told by its name, and where a name tells nothing by how it looks. What stands within
//! a value, as a URL or JSON does, is looked at as well, as it is and decoded. It is better to
//! leave out a value that is none than to show one.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub(super) use myriad_model::secrecy::REDACTED;
pub use myriad_model::secrecy::is_secret_name;
use myriad_model::secrecy::is_secret_parameter;
use myriad_model::unescape;

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

/// A text that is longer is not looked at, and not shown.
const LOOKED_BYTES_MAX: usize = 16 << 10;

/// How often a text is decoded to be looked at. One that is encoded more often is not shown.
const DECODED_TIMES: usize = 2;

/// The characters that parts of a path end with.
const PATH_ENDS: [char; 5] = ['/', ';', '?', '&', '#'];

/// The characters that parts of a query end with.
const QUERY_ENDS: [char; 3] = ['&', ';', '#'];

/// The characters that names with their values are between, in whatever text they stand.
const PAIR_ENDS: [char; 14] = [
    ' ', '\t', ',', '/', ';', '?', '&', '#', '{', '}', '[', ']', '(', ')',
];

/// The characters that values are between.
const VALUE_ENDS: [char; 5] = ['=', ':', '@', '"', '\''];

/// The characters that names in JSON are between.
const QUOTES: [char; 2] = ['"', '\''];

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
        if is_secret_name(&name) || is_secret(&value, is_plain) {
            self.note_user(&value);
            return self.taken(&value).to_owned();
        }
        for query in value.split('?').skip(1) {
            self.note(query);
        }
        without_queries(&value)
    }

    /// A path, as far as it may be shown.
    pub(super) fn path(&mut self, path: &str) -> String {
        let shown = self.parts(path, &PATH_ENDS);
        self.text(&shown)
    }

    /// A query, as far as it may be shown.
    pub(super) fn query(&mut self, query: &str) -> String {
        self.parts(query, &QUERY_ENDS)
    }

    /// A text whose parts end with characters, without those that may be secrets.
    fn parts(&mut self, text: &str, ends: &[char]) -> String {
        if text.len() > LOOKED_BYTES_MAX {
            return self.taken(text).to_owned();
        }
        let mut shown = String::with_capacity(text.len());
        for part in text.split_inclusive(ends) {
            let kept = part.strip_suffix(ends).unwrap_or(part);
            // A name may be a value that some server reads, with or without a sign behind it.
            let pair = kept.split_once('=');
            let value = match pair.filter(|(name, _)| !is_secret(name, false)) {
                Some((name, value)) => {
                    shown.push_str(name);
                    shown.push('=');
                    (is_secret_parameter(name) || is_secret(value, false), value)
                }
                None => (is_secret(kept, false), kept),
            };
            shown.push_str(match value {
                (true, value) => self.taken(value),
                (false, value) => value,
            });
            shown.push_str(part.get(kept.len()..).unwrap_or_default());
        }
        shown
    }

    /// A text about the request, without its secrets and without the queries of URLs.
    pub(super) fn text(&self, text: &str) -> String {
        if self.is_full() {
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

    /// The text that is shown instead of a secret, which is noted in every form that may be quoted.
    fn taken(&mut self, secret: &str) -> &'static str {
        let mut form = Cow::Borrowed(secret);
        for _ in 0..=DECODED_TIMES {
            self.note(&form);
            if secret.len() <= LOOKED_BYTES_MAX {
                named(&form).for_each(|value| self.note(value));
            }
            match decoded(&form) {
                Some(next) if !self.is_full() => form = Cow::Owned(next),
                _ => break,
            }
        }
        REDACTED
    }

    /// Whether there are more secrets than texts are searched for.
    fn is_full(&self) -> bool {
        self.bytes > SECRET_BYTES_MAX
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
        if self.is_full() {
            return;
        }
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
            if self.is_full() {
                return;
            }
            self.secrets.push(found.into());
        }
    }
}

/// Whether a text, or a part of it, may be a secret: as it is, or decoded. How parts of one look
/// that is plain says nothing.
fn is_secret(text: &str, is_plain: bool) -> bool {
    if text.len() > LOOKED_BYTES_MAX {
        return true;
    }
    let mut form = Cow::Borrowed(text);
    for _ in 0..=DECODED_TIMES {
        let mut parts = form.split(is_part_end);
        if is_credential(&form)
            || parts.any(is_credential)
            || has_user(&form)
            || named(&form).next().is_some()
            || (!is_plain && has_opaque(&form))
        {
            return true;
        }
        match decoded(&form) {
            Some(next) => form = Cow::Owned(next),
            None => return false,
        }
    }
    // Nobody has decoded all of it.
    true
}

/// A text with its escapes decoded; none where it has none.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut has_escapes) = (Vec::with_capacity(text.len()), false);
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let escape = Some(behind).filter(|_| *first == b'%').and_then(unescape);
        has_escapes |= escape.is_some() || *first == b'+';
        let plain = if *first == b'+' { b' ' } else { *first };
        let (byte, behind) = escape.unwrap_or((plain, behind));
        bytes.push(byte);
        rest = behind;
    }
    has_escapes.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The values in a text that names before them say to be secret, as those of queries, of cookies
/// and of JSON do.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let pairs = text.split(PAIR_ENDS).filter_map(|it| it.split_once('='));
    let quoted = text.match_indices(':').filter_map(move |(colon, _)| {
        let (before, behind) = text.split_at_checked(colon)?;
        let before = before.trim_ascii_end().strip_suffix(QUOTES)?;
        // What stands in JSON as a text may be JSON.
        let name = before.trim_end_matches('\\').rsplit(QUOTES).next()?;
        let is_around = |letter: char| " :\\\"'".contains(letter);
        let value = behind.trim_start_matches(is_around);
        let value = value.split(['"', '\'', '\\', ',', '}']).next()?;
        Some((name, value))
    });
    let named = pairs.chain(quoted).filter(|(name, value)| {
        let name = name.trim_matches(QUOTES);
        !value.is_empty() && is_secret_parameter(name)
    });
    named.map(|(_, value)| value)
}

/// Whether a URL in a text has a user, and with it a password.
fn has_user(text: &str) -> bool {
    let mut behind = text.split("://").skip(1);
    behind.any(|rest| {
        let authority = rest.split(PAIR_ENDS).next();
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

fn is_part_end(letter: char) -> bool {
    // Credentials have a space in them.
    let is_end = PAIR_ENDS.contains(&letter) || VALUE_ENDS.contains(&letter);
    is_end && letter != ' '
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
    let mut words = value.split([' ', '\t', ';', ',']);
    let mut parts = value.split(|letter: char| letter == ' ' || is_part_end(letter));
    words.any(is_opaque) || parts.any(is_opaque)
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
    use super::{LOOKED_BYTES_MAX, REDACTED, Redactor, SECRET_BYTES_MAX, SECRETS_MAX};

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
    fn secrets_within_values_and_paths_are_not_shown() {
        for query in [
            "a=1;token=c4n4ry",
            "next=/cb?access_token=c4n4ry",
            "next=/cb%3Faccess_token%3Dc4n4ry",
            "next=%252Fcb%253Faccess_token%253Dc4n4ry",
            "next=%25252Fc4n4ry",
            "next=https://eve:c4n4ry@b.test/",
            "d={\"password\":\"c4n4ry\"}",
            "d={%22user%22:1,%22password%22%20:%20%22c4n4ry%22}",
            "d=%7B%22pass%5Cu0077ord%22:%22c4n4ry%22}",
            "d={%22a%22:%22{%5C%22token%5C%22:%5C%22c4n4ry%5C%22}%22}",
            "a=b#access_token=c4n4ry",
            "q=Bearer+c4n4ry",
            "c4n4ry0123456789abcd=",
        ] {
            let shown = Redactor::default().query(query);
            assert!(!shown.contains("c4n4ry"), "{query}: {shown}");
        }
        for (path, shown) in [
            ("/", "/"),
            ("/shop/cart;v=2/x.css", "/shop/cart;v=2/x.css"),
            ("/verify/eyJhbGciOi.e30.x/b", "/verify/[redacted]/b"),
            ("/verify/%65yJhbGciOi", "/verify/[redacted]"),
            ("/a;jsessionid=c4n4ry", "/a;jsessionid=[redacted]"),
            ("/a/key=c4n4ry/b", "/a/key=[redacted]/b"),
            ("/a/0123456789abcdef0123/", "/a/[redacted]/"),
            ("/a&token=c4n4ry", "/a&token=[redacted]"),
        ] {
            assert_eq!(Redactor::default().path(path), shown, "{path}");
        }
        for (name, value) in [
            ("X-Client-Assertion", "c4n4ry"),
            ("X-Callback", "https://a.test/cb#access_token=c4n4ry"),
            ("X-Data", "{\"password\": \"c4n4ry\"}"),
            ("Referer", "https://eve:c4n4ry@a.test/"),
            ("User-Agent", "tool (https://a.test/?token=c4n4ry)"),
        ] {
            let mut redactor = Redactor::default();
            assert_eq!(redactor.header(name, value.as_bytes()), REDACTED, "{name}");
            let text = redactor.text("it has c4n4ry in it");
            let is_named = value.contains("oken=") || value.contains(": ");
            assert!(!is_named || !text.contains("c4n4ry"), "{value}: {text}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_not_looked_at() {
        let long = "a/".repeat(LOOKED_BYTES_MAX);
        assert_eq!(Redactor::default().path(&long), REDACTED);
        assert_eq!(Redactor::default().query(&long), REDACTED);
        let shown = Redactor::default().header("Accept", long.as_bytes());
        assert_eq!(shown, REDACTED);
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
