//! Heads, bodies and trailers of HTTP, and what stands in front of them.

use myriad_proxy::codec::body::{BodyDecoder, BodyLength};
use myriad_proxy::codec::field::{Field, KnownField};
use myriad_proxy::codec::head::{self, Head, HeadFinder, Pseudo, split_authority};
use myriad_proxy::codec::proxy_header;
use myriad_proxy::codec::response;
use myriad_proxy::codec::trailer;
use myriad_proxy::limits::Limits;
use myriad_proxy::limits::PathRule;

/// Calls with the head of a request that the bytes begin with, if they do.
pub(crate) fn with_head(bytes: &[u8], call: impl FnOnce(&Head<'_>)) -> bool {
    let Ok(Some(length)) = HeadFinder::default().find(bytes) else {
        return false;
    };
    let bytes = bytes.get(..length).unwrap_or_default();
    let Ok(head) = head::parse(bytes, &Limits::default()) else {
        return false;
    };
    call(&head);
    true
}

/// A head that is taken has one host, one path, and no byte that another could end a line at.
pub(crate) fn request_head(bytes: &[u8]) -> bool {
    with_head(bytes, assert_plain)
}

pub(crate) fn assert_plain(head: &Head<'_>) {
    assert!(head.path.starts_with('/') || head.path == "*");
    assert!(!head.path.contains("/../") && !head.path.contains('\\'));
    for field in &head.fields {
        assert!(!field.name.is_empty() && !field.value.iter().any(is_end));
    }
    for text in [head.method, &head.path, head.authority, &head.host] {
        assert!(!text.bytes().any(|byte| is_end(&byte) || byte == b' '));
    }
    assert!(head.host.bytes().all(|byte| !byte.is_ascii_uppercase()));
}

fn is_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// Request heads of HTTP/2 keep the same rules. The library has read frames and fields, one of them
/// a line here: what could change the framing is refused, and an upgrade is what it would be over
/// HTTP/1.1.
pub(crate) fn request_head_2(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let mut pseudo = Pseudo {
        method: "GET",
        path_and_query: "",
        authority: None,
        protocol: None,
    };
    let mut fields = head::Fields::new();
    // As where heads are unpacked: control bytes and upper-case names never come through.
    let lines = text
        .split('\n')
        .filter(|line| !line.contains(char::is_control));
    for line in lines {
        match line.split_once(' ') {
            Some((":method", value)) if is_token(value) => pseudo.method = value,
            Some((":path", value)) => pseudo.path_and_query = value,
            Some((":authority", value)) => pseudo.authority = Some(value),
            Some((":protocol", value)) => pseudo.protocol = Some(value),
            Some((name, value))
                if is_token(name) && !name.bytes().any(|it| it.is_ascii_uppercase()) =>
            {
                fields.push(Field {
                    known: KnownField::of(name),
                    name,
                    value: value.as_bytes(),
                });
            }
            _ => {}
        }
    }
    let Ok(head) = head::from_http2(pseudo, fields, false, &Limits::default()) else {
        return false;
    };
    assert_plain(&head);
    assert_ne!(head.method, "CONNECT");
    assert_eq!(head.upgrade.is_some(), pseudo.protocol.is_some());
    let lengths = head.fields.iter();
    let lengths = lengths.filter(|field| field.known == KnownField::ContentLength);
    assert!(lengths.count() <= 1);
    true
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Response heads keep the same rules.
pub(crate) fn response_head(bytes: &[u8]) -> bool {
    let Ok(head) = response::parse(bytes, &Limits::default()) else {
        return false;
    };
    assert!(head.status >= 100);
    for field in &head.fields {
        assert!(!field.name.is_empty() && !field.value.iter().any(is_end));
    }
    assert!(!head.reason.bytes().any(|byte| is_end(&byte)));
    true
}

/// However a body is cut, it is read alike, and never more comes out than went in.
pub(crate) fn chunked_body(bytes: &[u8]) -> bool {
    let whole = body(bytes, bytes.len());
    for size in [1, 3, 16] {
        assert_eq!(body(bytes, size), whole);
    }
    if let Some((data, used)) = &whole {
        assert!(data.len() <= *used && *used <= bytes.len());
    }
    whole.is_some()
}

fn body(bytes: &[u8], size: usize) -> Option<(Vec<u8>, usize)> {
    let mut decoder = BodyDecoder::limited(BodyLength::Chunked, &Limits::default());
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

/// No trailer frames or routes a message, or sets a cookie.
pub(crate) fn trailers(bytes: &[u8]) -> bool {
    let Some(trailers) = trailer::parse(bytes) else {
        return false;
    };
    for name in [
        "content-length",
        "transfer-encoding",
        "host",
        "authorization",
        "set-cookie",
    ] {
        assert!(!trailers.contains_key(name));
    }
    true
}

/// A rule leaves a path that it has already treated as it is, and no dot segment is in it.
pub(crate) fn path(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let path = format!("/{text}");
    let mut is_taken = false;
    for (name, rule) in PathRule::ALL {
        let Ok(once) = rule.follow(&path) else {
            continue;
        };
        is_taken = true;
        let mut segments = once.split('/');
        assert!(once.starts_with('/') && !once.contains('\\'));
        assert!(segments.all(|segment| segment != "." && segment != ".."));
        assert_eq!(rule.follow(&once).as_deref(), Ok(&*once), "{name}");
    }
    is_taken
}

/// A host has no byte that separates it from something else.
pub(crate) fn authority(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let Ok((host, _)) = split_authority(text) else {
        return false;
    };
    assert!(!host.is_empty() && text.starts_with(host));
    assert!(!host.contains(['/', '@', '?', '#', ' ', ',', '%']));
    true
}

/// A header takes no more than there is, and what follows it changes nothing.
pub(crate) fn proxy_headers(bytes: &[u8]) -> bool {
    let Ok(Some(header)) = proxy_header::parse(bytes) else {
        return false;
    };
    assert!(header.length <= bytes.len());
    let alone = bytes.get(..header.length).unwrap_or_default();
    let again = proxy_header::parse(alone).ok().flatten();
    assert!(again.is_some_and(|again| again.length == header.length));
    true
}
