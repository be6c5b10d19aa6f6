use proptest::prelude::*;

use super::{CONNECTION_MEMBERS_MAX, Head, HeadFinder, parse, split_authority};
use crate::codec::body::BodyLength;
use crate::failure::FailureKind;
use crate::limits::Limits;

fn read(text: &str) -> Result<Head<'_>, FailureKind> {
    let length = HeadFinder::default().find(text.as_bytes())?;
    assert_eq!(length, Some(text.len()), "{text:?}");
    parse(text.as_bytes(), &Limits::default())
}

fn refusal(text: &str) -> Option<FailureKind> {
    read(text).err()
}

#[test]
fn a_plain_head_is_taken_apart() {
    let head = read("GET /a/b?c=d HTTP/1.1\r\nHost: A.Example.:80\r\nCookie: x\r\n\r\n").unwrap();
    assert_eq!(head.method, "GET");
    assert_eq!(head.path, "/a/b");
    assert_eq!(head.query, Some("c=d"));
    assert_eq!(head.host, "a.example");
    assert_eq!(head.authority, "A.Example.:80");
    assert_eq!(head.body, BodyLength::None);
    assert!(head.keep_alive);
}

#[test]
fn no_version_of_http_is_changed_to_whatever_it_is_called() {
    let upgrade = |protocol: &str| {
        let fields = format!("Connection: upgrade\r\nUpgrade: {protocol}\r\n");
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        read(&text).unwrap().upgrade.map(<[u8]>::to_vec)
    };
    for http in [
        "h2c", "H2C", "h2c-14", "h2c/1", "h2", "h2-14", "HTTP/2.0", "http2", "TLS/1.0", "tls",
    ] {
        assert_eq!(upgrade(http), None, "{http}");
    }
    for other in ["websocket", "h", "foo/2", "ht"] {
        assert_eq!(upgrade(other), Some(other.into()), "{other}");
    }
}

#[test]
fn what_two_servers_could_read_differently_is_refused() {
    const H: &str = "Host: a.example\r\n";
    for request in [
        // Framing.
        format!("POST / HTTP/1.1\r\n{H}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length: 1, 1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length: +1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length: -1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Content-Length:\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: gzip\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: gzip, chunked\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: chunked, chunked\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: \"chunked\"\r\n\r\n"),
        format!("POST / HTTP/1.1\r\n{H}Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("POST / HTTP/1.0\r\n{H}Transfer-Encoding: chunked\r\n\r\n"),
        // Field syntax.
        format!("GET / HTTP/1.1\r\n{H}A: b\r\n c\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A : b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}: b\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A: b\0c\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A: b\rc\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A: b\x7fc\r\n\r\n"),
        format!(" GET / HTTP/1.1\r\n{H}\r\n"),
        format!("GET / HTTP/1.1\r\n {H}\r\n"),
        // Host.
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\n{H}{H}\r\n"),
        "GET / HTTP/1.1\r\nHost:\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n".to_owned(),
        format!("GET http://b.example/ HTTP/1.1\r\n{H}\r\n"),
        // Target.
        format!("GET a HTTP/1.1\r\n{H}\r\n"),
        format!("GET * HTTP/1.1\r\n{H}\r\n"),
        format!("GET ftp://a.example/ HTTP/1.1\r\n{H}\r\n"),
        format!("GET a.example:80 HTTP/1.1\r\n{H}\r\n"),
        format!("GET  / HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a b HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a#b HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a/..;/b HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a/.%2e;b/c HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a%2f../../b HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a%2f..%2fb HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a%5c..%5cb HTTP/1.1\r\n{H}\r\n"),
        // The rest.
        format!("GET / HTTP/1.1\r\n{H}Expect: magic\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}Expect: 100-continue\r\nExpect: magic\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"),
    ] {
        assert_eq!(
            refusal(&request),
            Some(FailureKind::BadRequest),
            "{request:?}"
        );
    }
}

#[test]
fn what_only_looks_odd_is_served() {
    const H: &str = "Host: a.example\r\n";
    for request in [
        format!("GET /... HTTP/1.1\r\n{H}\r\n"),
        format!("GET /.well-known/x HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a%2fb HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a.%2e.b/c HTTP/1.1\r\n{H}\r\n"),
        format!("GET /a?b=../c HTTP/1.1\r\n{H}\r\n"),
        format!("GET //a//b HTTP/1.1\r\n{H}\r\n"),
        format!("GET /%zz HTTP/1.1\r\n{H}\r\n"),
        format!("GET http://A.example/b HTTP/1.1\r\n{H}\r\n"),
        format!("OPTIONS * HTTP/1.1\r\n{H}\r\n"),
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a_b-c\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\n{H}A:\tb\t\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{H}A: \u{e9}\r\n\r\n"),
    ] {
        assert_eq!(refusal(&request), None, "{request:?}");
    }
}

#[test]
fn each_refusal_has_its_kind() {
    const H: &str = "Host: a.example\r\n";
    let long = "a".repeat(20_000);
    for (request, kind) in [
        (
            format!("GET / HTTP/2.0\r\n{H}\r\n"),
            FailureKind::BadVersion,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{H}\r\n"),
            FailureKind::BadMethod,
        ),
        (
            format!("TRACE / HTTP/1.1\r\n{H}\r\n"),
            FailureKind::BadMethod,
        ),
        (
            format!("GET /{long} HTTP/1.1\r\n{H}\r\n"),
            FailureKind::TargetTooLong,
        ),
        (
            format!("GET /{} HTTP/1.1\r\n{H}\r\n", "%20".repeat(1_366)),
            FailureKind::TargetTooLong,
        ),
        (
            format!("GET / HTTP/1.1\r\n{H}{}\r\n", "A: b\r\n".repeat(128)),
            FailureKind::HeadTooLarge,
        ),
    ] {
        assert_eq!(refusal(&request), Some(kind));
    }
}

#[test]
fn lines_end_in_carriage_return_and_line_feed() {
    for text in ["GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\n"] {
        let found = HeadFinder::default().find(text.as_bytes());
        assert_eq!(found, Err(FailureKind::BadRequest), "{text:?}");
    }
}

#[test]
fn the_end_is_found_in_whatever_pieces_it_comes() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest\n";
    let mut finder = HeadFinder::default();
    for length in 1..text.len() {
        let found = finder.find(&text[..length]).unwrap();
        if let Some(found) = found {
            assert_eq!(found, text.len() - 5);
            return;
        }
    }
    panic!("not found");
}

#[test]
fn connections_are_kept_by_version_and_option() {
    for (request, keep_alive) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            false,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n",
            false,
        ),
        ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", false),
        (
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n",
            true,
        ),
        (
            "GET / HTTP/1.0\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n",
            false,
        ),
    ] {
        assert_eq!(read(request).unwrap().keep_alive, keep_alive, "{request:?}");
    }
}

#[test]
fn fields_that_belong_to_the_connection_are_taken_out_and_it_names_so_many() {
    let connection = "X-A, x-b, x-none, x-a, X-a, keep-alive, TE, upgrade";
    let text = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\nx-a: 1\r\nX-B: 2\r\n\
         x-c: 3\r\nTE: trailers\r\nX-B: 4\r\nx_a: 5\r\nUpgrade: websocket\r\n\r\n"
    );
    let head = read(&text).unwrap();
    // Those that the proxy acts on are never passed on, and read until then.
    let names: Vec<&str> = head.fields.iter().map(|field| field.name).collect();
    assert_eq!(names, ["Host", "Connection", "x-c", "TE", "x_a", "Upgrade"]);
    assert_eq!(head.upgrade, Some(&b"websocket"[..]));
    let read_many = |count: usize| {
        let first = "a,".repeat(count - 1);
        let text = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {first}\r\nConnection: close\r\n\r\n"
        );
        read(&text).map(|head| (head.fields.len(), head.keep_alive))
    };
    assert_eq!(read_many(CONNECTION_MEMBERS_MAX), Ok((3, false)));
    for count in [CONNECTION_MEMBERS_MAX + 1, 30_500] {
        assert_eq!(read_many(count), Err(FailureKind::BadRequest), "{count}");
    }
}

#[test]
fn authorities_are_hosts_with_ports() {
    assert_eq!(split_authority("a.b:8443"), Ok(("a.b", Some(8443))));
    assert_eq!(split_authority("a.b:"), Ok(("a.b", None)));
    assert_eq!(split_authority("[::1]"), Ok(("[::1]", None)));
    for bad in [
        "", ":80", "[::1", "[::1]x", "[x]:1", "a..b", ".a", "a:1:2", "\u{e9}",
    ] {
        assert_eq!(
            split_authority(bad),
            Err(FailureKind::BadRequest),
            "{bad:?}"
        );
    }
}

/// Bytes of a head, some of which are not as they should be.
fn nearly_a_head() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![
        "GET",
        "OPTIONS",
        " ",
        "/",
        "*",
        "/a/../%2e",
        "http://h",
        "HTTP/1.1",
        "HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        "Host: h",
        "Host: [::1]:80",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "Connection: close, x",
        "Upgrade: y",
        "Expect: 100-continue",
        ": ",
        "\0",
        "\u{7f}",
        "\u{e9}",
        "?",
        "%",
        ":",
        "[",
        ",",
    ]);
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in nearly_a_head(), cut in 0_usize..64) {
        let mut bytes = bytes;
        bytes.truncate(bytes.len().saturating_sub(cut % 3));
        if let Ok(Some(length)) = HeadFinder::default().find(&bytes)
            && let Ok(head) = parse(&bytes[..length], &Limits::default())
        {
            // What is passed on holds nothing that could end a line early.
            for text in [head.method, &head.path, head.authority, &head.host] {
                prop_assert!(!text.contains(['\r', '\n', '\0', ' ']), "{text:?}");
            }
            for field in &head.fields {
                prop_assert!(!field.value.iter().any(|byte| b"\r\n\0".contains(byte)));
            }
        }
        let _ = crate::codec::response::parse(&bytes, &Limits::default());
    }
}
