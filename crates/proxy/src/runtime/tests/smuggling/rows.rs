//! Rows of requests and responses, each with its outcome.

/// The outcome of a request.
pub(super) enum Expected {
    /// It is answered with a status, and its connection ends.
    Refused(u16),
    /// An endpoint gets this, beside what tells of the client.
    Forwarded(&'static str),
}

use Expected::{Forwarded, Refused};

macro_rules! get {
    ($more:literal) => {
        concat!("GET / HTTP/1.1\r\nHost: a.example\r\n", $more, "\r\n")
    };
}

macro_rules! post {
    ($more:literal) => {
        concat!("POST / HTTP/1.1\r\nHost: a.example\r\n", $more)
    };
}

/// Bodies that turn out bad once the head has gone on.
macro_rules! broken {
    ($more:literal) => {
        concat!(
            "POST /broken HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n",
            $more
        )
    };
}

macro_rules! target {
    ($target:literal) => {
        concat!("GET ", $target, " HTTP/1.1\r\nHost: a.example\r\n\r\n")
    };
}

macro_rules! host {
    ($host:literal) => {
        concat!("GET / HTTP/1.1\r\nHost:", $host, "\r\n\r\n")
    };
}

const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a.example\r\n\r\n";

pub(super) const REQUEST_ROWS: &[(&str, Expected)] = &[
    // Two framings, or none that is certain.
    (
        post!("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX"),
        Refused(400),
    ),
    (
        post!("Content-Length: 0\r\nContent-Length: 44\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
        Refused(400),
    ),
    (post!("Content-Length: 1, 1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length: +1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length: -1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length: 0x1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length: 1 \t1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length: 1e1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length:\r\n\r\nx"), Refused(400)),
    (
        post!("Content-Length: 99999999999999999999\r\n\r\nx"),
        Refused(400),
    ),
    (post!("Content-Length : 1\r\n\r\nx"), Refused(400)),
    (post!("Content-Length\t: 1\r\n\r\nx"), Refused(400)),
    (
        post!("Content_Length: 5\r\nTransfer-Encoding : chunked\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (post!("Transfer-Encoding:\r\n\r\n0\r\n\r\n"), Refused(400)),
    (
        post!("Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!(" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        post!("A: b\r\n\tTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Refused(400),
    ),
    (
        "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused(400),
    ),
    // Lines.
    ("GET / HTTP/1.1\nHost: a.example\n\n", Refused(400)),
    ("GET / HTTP/1.1\r\nHost: a.example\n\r\n", Refused(400)),
    (get!("A: b\nContent-Length: 44\r\n"), Refused(400)),
    (get!("A: b\rContent-Length: 44\r\n"), Refused(400)),
    (get!("A: b\r\r\n"), Refused(400)),
    (get!("A: b\0c\r\n"), Refused(400)),
    (get!("A: b\x7fc\r\n"), Refused(400)),
    (get!("A: b\r\n c\r\n"), Refused(400)),
    (get!(": b\r\n"), Refused(400)),
    (get!("A\r\n"), Refused(400)),
    (get!("A b: c\r\n"), Refused(400)),
    (get!("A\0: c\r\n"), Refused(400)),
    (get!("\u{e9}: c\r\n"), Refused(400)),
    (get!("A(: c\r\n"), Refused(400)),
    // The first line.
    (" GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Refused(400)),
    ("GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n", Refused(400)),
    ("GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n", Refused(400)),
    ("GET / HTTP/1.1 x\r\nHost: a.example\r\n\r\n", Refused(400)),
    ("GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", Refused(505)),
    ("GET / http/1.1\r\nHost: a.example\r\n\r\n", Refused(505)),
    ("GET /\r\nHost: a.example\r\n\r\n", Refused(400)),
    ("G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n", Refused(400)),
    (
        "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
        Refused(405),
    ),
    ("TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n", Refused(405)),
    // EndpointTable.
    (target!("/a/../b"), Refused(400)),
    (target!("/a/%2e%2e/b"), Refused(400)),
    (target!("/a%2f..%2fb"), Refused(400)),
    (target!("/a%/../b"), Refused(400)),
    (target!("/a\\b"), Refused(400)),
    (target!("/a%00b"), Refused(400)),
    (target!("/a#b"), Refused(400)),
    (target!("/a\x01b"), Refused(400)),
    (target!("a"), Refused(400)),
    (target!("*"), Refused(400)),
    (target!("ftp://a.example/"), Refused(400)),
    (target!("http://b.example/"), Refused(400)),
    (target!("http://u@a.example/"), Refused(400)),
    (target!("http:///x"), Refused(400)),
    (target!("http://a.example?x"), Refused(400)),
    // Hosts.
    ("GET / HTTP/1.1\r\n\r\n", Refused(400)),
    (
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        Refused(400),
    ),
    (
        "GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n",
        Refused(400),
    ),
    (host!(""), Refused(400)),
    (host!(" a.example, b.example"), Refused(400)),
    (host!(" a.example/b"), Refused(400)),
    (host!(" a.example?b"), Refused(400)),
    (host!(" a.example b"), Refused(400)),
    (host!(" u@a.example"), Refused(400)),
    (host!(" a.example:80:80"), Refused(400)),
    (host!(" a.example:x"), Refused(400)),
    (host!(" a.example:65536"), Refused(400)),
    (host!(" %61.example"), Refused(400)),
    (host!(" .a.example"), Refused(400)),
    (host!(" a..example"), Refused(400)),
    (host!(" [::1"), Refused(400)),
    (host!(" a.example\u{e9}"), Refused(400)),
    // What a connection must not claim.
    (get!("Connection: host\r\n"), Refused(400)),
    (get!("Connection: close, Content-Length\r\n"), Refused(400)),
    (get!("Connection: transfer-encoding\r\n"), Refused(400)),
    (get!("Connection: Authorization\r\n"), Refused(400)),
    (get!("Connection: cookie\r\n"), Refused(400)),
    (get!("Connection: X-Forwarded-For\r\n"), Refused(400)),
    (get!("Connection: x-real-ip\r\n"), Refused(400)),
    (get!("Connection: close\u{e9}\r\n"), Refused(400)),
    (get!("Expect: 200-maybe\r\n"), Refused(400)),
    // Bodies that turn out bad break off what had begun; nothing of the rest goes on.
    (broken!("x\r\n"), Refused(400)),
    (broken!("1 \r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("0x1\r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("-1\r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("1\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("1\r\nxy\r\n0\r\n\r\n"), Refused(400)),
    (broken!("1\r\nx0\r\n\r\n"), Refused(400)),
    (broken!("1;a\nb\r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("1;a\rb\r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("ffffffffffffffff1\r\nx\r\n0\r\n\r\n"), Refused(400)),
    (broken!("0\r\nA: b\n\r\n\r\n"), Refused(400)),
    (broken!("0\r\nA: b\0\r\n\r\n"), Refused(400)),
    // What goes on does so in one plain form.
    (get!(""), Forwarded(PLAIN)),
    (
        "\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        Forwarded(PLAIN),
    ),
    (get!("Content-Length: 0\r\n"), Forwarded(PLAIN)),
    (
        get!("Connection: keep-alive, x-a\r\nX-A: b\r\nKeep-Alive: 5\r\n"),
        Forwarded(PLAIN),
    ),
    (
        get!("Proxy-Connection: close\r\nTE: trailers\r\nTrailer: a\r\n"),
        Forwarded(PLAIN),
    ),
    // Another version of HTTP is not changed to, as if nobody had asked.
    (
        get!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
        Forwarded(PLAIN),
    ),
    (
        get!("Connection: upgrade\r\nUpgrade: websocket, h2c\r\n"),
        Forwarded(PLAIN),
    ),
    (
        get!("Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: H2C\r\n"),
        Forwarded(PLAIN),
    ),
    (
        get!("Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n"),
        Forwarded(PLAIN),
    ),
    (
        "GET http://A.example/b HTTP/1.1\r\nHost: a.Example\r\n\r\n",
        Forwarded("GET /b HTTP/1.1\r\nhost: A.example\r\n\r\n"),
    ),
    (
        "GET / HTTP/1.1\r\nHost: a.example.:80\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
        Forwarded("GET / HTTP/1.1\r\nhost: a.example.:80\r\n\r\n"),
    ),
    (
        post!("Content-Length: 003\r\n\r\nabc"),
        Forwarded("POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\n\r\nabc"),
    ),
    (
        post!("Transfer-Encoding: Chunked\r\n\r\n003;x=\"y\"\r\nabc\r\n00\r\nHost: b\r\n\r\n"),
        Forwarded(
            "POST / HTTP/1.1\r\nhost: a.example\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\n\r\n",
        ),
    ),
    (
        post!("Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n"),
        Forwarded(
            "POST / HTTP/1.1\r\nhost: a.example\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
    ),
    (
        post!("\r\n"),
        Forwarded("POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 0\r\n\r\n"),
    ),
];

type Http2Row = (
    &'static [(&'static str, &'static str)],
    &'static str,
    Option<&'static str>,
);

macro_rules! stream {
    ($method:literal $path:literal $body:literal $(, $name:literal : $value:literal)*
        => $to:expr) => {
        (
            &[
                (":method", $method),
                (":scheme", "https"),
                (":authority", "a.example"),
                (":path", $path),
                $(($name, $value)),*
            ],
            $body,
            $to,
        )
    };
}

/// Fields and body of a stream, and what an endpoint gets; none where that is nothing.
pub(super) const HTTP2_ROWS: &[Http2Row] = &[
    stream!("GET" "/" "" => Some(PLAIN)),
    stream!("GET" "/" "", "host": "a.example" => Some(PLAIN)),
    stream!("GET" "/" "", "te": "trailers" => Some(PLAIN)),
    stream!("POST" "/" "abc", "content-length": "3" =>
        Some("POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: 3\r\n\r\nabc")),
    stream!("GET" "/" "", "host": "b.example" => None),
    stream!("GET" "/" "", "connection": "close" => None),
    stream!("GET" "/" "", "transfer-encoding": "chunked" => None),
    stream!("POST" "/" "0\r\n\r\nGET /smuggled", "transfer-encoding": "chunked" => None),
    stream!("GET" "/" "", "upgrade": "websocket" => None),
    stream!("GET" "/" "", "keep-alive": "5" => None),
    stream!("GET" "/" "", "proxy-connection": "close" => None),
    stream!("GET" "/" "", "te": "gzip" => None),
    stream!("GET" "/" "", "a": "b\r\nc: d" => None),
    stream!("GET" "/" "", "a": "b\nc: d" => None),
    stream!("GET" "/" "", "a": "b\rc" => None),
    stream!("GET" "/" "", "a": "b\0c" => None),
    stream!("GET" "/" "", "a: b\r\nc": "d" => None),
    stream!("GET" "/" "", "A": "b" => None),
    stream!("GET" "/" "", "": "b" => None),
    stream!("GET" "/" "", "a b": "c" => None),
    stream!("GET" "/" "", ":path": "/smuggled" => None),
    stream!("GET" "/" "", ":other": "x" => None),
    stream!("GET" "/ HTTP/1.1\r\nhost: a.example\r\n\r\nGET /smuggled" "" => None),
    stream!("GET" "/a b" "" => None),
    stream!("GET" "/a\\b" "" => None),
    stream!("GET" "/../b" "" => None),
    stream!("GET" "/%2e%2e/b" "" => None),
    stream!("GET" "/a%00b" "" => None),
    stream!("GET" "" "" => None),
    stream!("GET" "a" "" => None),
    stream!("GET" "*" "" => None),
    stream!("GET /smuggled HTTP/1.1\r\nA:" "/" "" => None),
    stream!("TRACE" "/" "" => None),
    stream!("POST" "/broken" "abcd", "content-length": "3" => None),
    stream!("POST" "/broken" "ab", "content-length": "3" => None),
    stream!("POST" "/broken" "abc", "content-length": "3", "content-length": "4" => None),
    stream!("POST" "/broken" "abc", "content-length": "3", "content-length": "3" => None),
    stream!("POST" "/broken" "abc", "content-length": "+3" => None),
    stream!("POST" "/broken" "abc", "content-length": "3,3" => None),
    stream!("POST" "/broken" "", "content-length": "3" => None),
    (
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            (":authority", "u@a.example"),
        ],
        "",
        None,
    ),
    (
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            (":authority", "a.example\r\n"),
        ],
        "",
        None,
    ),
    (
        &[(":method", "GET"), (":scheme", "https"), (":path", "/")],
        "",
        None,
    ),
    (
        &[
            (":scheme", "https"),
            (":path", "/"),
            (":authority", "a.example"),
        ],
        "",
        None,
    ),
    (
        &[
            (":method", "GET"),
            (":path", "/"),
            (":authority", "a.example"),
        ],
        "",
        None,
    ),
    (
        &[
            ("a", "b"),
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            (":authority", "a.example"),
        ],
        "",
        None,
    ),
];

/// The bytes of an endpoint, and the start of the client's response where that is no 502; empty
/// where it is broken off. `NUMBER` is that of the connection.
pub(super) const RESPONSE_ROWS: &[(&str, Option<&str>)] = &[
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        None,
    ),
    ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab", None),
    ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nab", None),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        None,
    ),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", None),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        None,
    ),
    ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", None),
    (
        "HTTP/1.1 200 OK\r\nA: b\nC: d\r\nContent-Length: 0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\nA: b\rC: d\r\nContent-Length: 0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\nA: b\0\r\nContent-Length: 0\r\n\r\n",
        None,
    ),
    ("HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n", None),
    ("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", None),
    ("HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", None),
    ("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", None),
    ("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", None),
    ("SSH-2.0-x\r\n\r\n", None),
    (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        None,
    ),
    // More than was asked for: the rest is nobody's answer.
    (
        "HTTP/1.1 200 OK\r\nConnection-Number: NUMBER\r\nContent-Length: 2\r\n\r\n\
         okHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsplit",
        Some("HTTP/1.1 200 OK\r\n"),
    ),
    (
        "HTTP/1.1 204 No Content\r\nConnection-Number: NUMBER\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsplit",
        Some("HTTP/1.1 204 No Content\r\n"),
    ),
    (
        "HTTP/1.1 304 Not Modified\r\nConnection-Number: NUMBER\r\nContent-Length: 5\r\n\r\nsplit",
        Some("HTTP/1.1 304 Not Modified\r\n"),
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection-Number: NUMBER\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsplit",
        Some("HTTP/1.1 200 OK\r\n"),
    ),
    // A body that is not framed as it says ends early for the client.
    (
        "HTTP/1.1 200 OK\r\nConnection-Number: NUMBER\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nabcdefgh\r\n0\r\n\r\n",
        Some(""),
    ),
];
