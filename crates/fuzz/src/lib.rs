//! Parsers of bytes that anybody may send, each as a function that takes some and panics where
//! the parser breaks its word. `tests/replay.rs` feeds them the files of `corpus` and what comes
//! of changing those; cargo-fuzz can feed them too, by hand.
//!
//! **Does** call parsers, and asks of what they took whether it means one thing.
//! **Knows** the crates that read untrusted bytes.
//! **Never** reads a file, a clock or a random number.

use bytes::Bytes;
use myriad_api::{Object, ObjectKind};
use myriad_model::wire::{decode, encode};
use myriad_model::workload::WorkloadNames;
use myriad_proxy::net::body::{BodyLength, Decoder};
use myriad_proxy::net::head::{self, Finder, split_authority};
use myriad_proxy::net::limits::Limits;
use myriad_proxy::net::path::PathRule;
use myriad_proxy::net::{proxy_header, response, trailer};
use myriad_proxy::policy::token;
use myriad_proxy::route::keys::KeySet;

/// A parser, by the name of its folder in `corpus`.
pub type Target = (&'static str, fn(&[u8]));

/// Every parser.
pub const TARGETS: [Target; 12] = [
    ("request_head", request_head),
    ("response_head", response_head),
    ("chunked_body", chunked_body),
    ("trailers", trailers),
    ("path", path),
    ("authority", authority),
    ("proxy_header", proxy_headers),
    ("resource", resource),
    ("workload_names", workload_names),
    ("object", object),
    ("key_set", key_set),
    ("token", token),
];

/// A head that is taken has one host, one path, and no byte that another could end a line at.
pub fn request_head(bytes: &[u8]) {
    let Ok(Some(length)) = Finder::default().find(bytes) else {
        return;
    };
    let bytes = bytes.get(..length).unwrap_or_default();
    let Ok(head) = head::parse(bytes, &Limits::default()) else {
        return;
    };
    assert!(head.path.starts_with('/') || head.path == "*");
    assert!(!head.path.contains("/../") && !head.path.contains('\\'));
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    for field in &head.fields {
        assert!(!field.name.is_empty() && !field.value.iter().any(is_end));
    }
    for text in [head.method, &head.path, head.authority, &head.host] {
        assert!(!text.bytes().any(|byte| is_end(&byte) || byte == b' '));
    }
    assert!(head.host.bytes().all(|byte| !byte.is_ascii_uppercase()));
}

/// The same of responses.
pub fn response_head(bytes: &[u8]) {
    let Ok(head) = response::parse(bytes, &Limits::default()) else {
        return;
    };
    assert!(head.status >= 100);
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    for field in &head.fields {
        assert!(!field.name.is_empty() && !field.value.iter().any(is_end));
    }
    assert!(!head.reason.bytes().any(|byte| is_end(&byte)));
}

/// However a body is cut, it is read alike, and never more comes out than went in.
pub fn chunked_body(bytes: &[u8]) {
    let whole = body(bytes, bytes.len());
    for size in [1, 3, 16] {
        assert_eq!(body(bytes, size), whole);
    }
    if let Some((data, used)) = whole {
        assert!(data.len() <= used && used <= bytes.len());
    }
}

fn body(bytes: &[u8], size: usize) -> Option<(Vec<u8>, usize)> {
    let mut decoder = Decoder::limited(BodyLength::Chunked, &Limits::default());
    let mut data = Vec::new();
    let mut used = 0;
    for piece in bytes.chunks(size.max(1)) {
        let mut rest = piece;
        while !rest.is_empty() && !decoder.is_done() {
            let step = decoder.step(rest).ok()?;
            assert!(step.consumed > 0);
            data.extend_from_slice(step.data);
            used += step.consumed;
            rest = rest.get(step.consumed..).unwrap_or_default();
        }
    }
    Some((data, used))
}

/// No trailer frames or routes a message.
pub fn trailers(bytes: &[u8]) {
    let Some(trailers) = trailer::parse(bytes) else {
        return;
    };
    for name in [
        "content-length",
        "transfer-encoding",
        "host",
        "authorization",
    ] {
        assert!(!trailers.contains_key(name));
    }
}

/// What a rule leaves of a path it leaves again, and no dot segment is in it.
pub fn path(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let path = format!("/{text}");
    for (name, rule) in PathRule::ALL {
        let Ok(once) = rule.follow(&path) else {
            continue;
        };
        let mut segments = once.split('/');
        assert!(once.starts_with('/') && !once.contains('\\'));
        assert!(segments.all(|segment| segment != "." && segment != ".."));
        assert_eq!(rule.follow(&once).as_deref(), Ok(&*once), "{name}");
    }
}

/// A host has no byte that separates it from something else.
pub fn authority(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok((host, _)) = split_authority(text) {
        assert!(!host.is_empty() && text.starts_with(host));
        assert!(!host.contains(['/', '@', '?', '#', ' ', ',', '%']));
    }
}

/// A header takes no more than there is.
pub fn proxy_headers(bytes: &[u8]) {
    if let Ok(Some(header)) = proxy_header::parse(bytes) {
        assert!(header.length <= bytes.len());
    }
}

/// What is taken as a resource is written as one that is taken, and the same.
pub fn resource(bytes: &[u8]) {
    let Ok(resource) = decode(&Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let mut written = Vec::new();
    encode(&resource, &mut written);
    let again = decode(&Bytes::from(written.clone()));
    let mut rewritten = Vec::new();
    match again {
        Ok(again) => encode(&again, &mut rewritten),
        Err(error) => panic!("what was written is not taken: {error}"),
    }
    assert_eq!(written, rewritten);
}

/// Names in a certificate are bounded, and written as they were read.
pub fn workload_names(bytes: &[u8]) {
    if let Some(names) = WorkloadNames::from_der(bytes) {
        let again = WorkloadNames::from_der(&names.to_der());
        assert!(again.is_some_and(|again| again == names));
    }
}

/// Whatever somebody writes as an object is one, or an error.
pub fn object(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for kind in ObjectKind::ALL {
        let _ = Object::from_json(kind, text);
    }
}

/// A set of keys is read or refused; one that is read verifies nothing that is no signature.
pub fn key_set(bytes: &[u8]) {
    if let Ok(keys) = KeySet::read(bytes) {
        assert!(token::read("eyJhbGciOiJFUzI1NiJ9.e30.", &keys).is_none());
        assert!(token::read("eyJhbGciOiJub25lIn0.e30.", &keys).is_none());
    }
}

/// The key that signed the tokens of the corpus (RFC 7515, appendix A.3).
const KEYS: &[u8] = br#"{"keys":[{"kty":"EC","crv":"P-256",
    "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// What its signature signs, and nothing else.
const SIGNED: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6\
    Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.";

/// A token whose claims are believed is the one that was signed.
pub fn token(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(!is_believed(text) || text.starts_with(SIGNED), "{text}");
    }
}

/// Whether the claims of a token are believed.
pub fn is_believed(token: &str) -> bool {
    KeySet::read(KEYS).is_ok_and(|keys| token::read(token, &keys).is_some())
}
