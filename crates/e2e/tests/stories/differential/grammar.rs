//! Requests made by a grammar of what parsers of HTTP/1 disagree about.

/// Numbers that follow from a seed (SplitMix64).
pub(super) struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.roll() % count as u64) as usize
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    /// The plain form in most cases, so that what is odd about a request is mostly one thing.
    pub(super) fn mostly<'a>(&mut self, plain: &'a str, odd: &[&'a str]) -> &'a str {
        match self.below(8) {
            0 => self.pick(odd),
            _ => plain,
        }
    }
}

/// Stands for the host in what is made; as long as the hosts are.
pub(super) const HOST: &str = "HOST.alt";

/// Odd forms of the field that names the host.
const HOSTS: [&str; 16] = [
    "",
    "Host: HOST.alt\r\nHost: HOST.alt\r\n",
    "Host: other.alt\r\n",
    "Host : HOST.alt\r\n",
    "Host:HOST.alt\r\n",
    "host: HOST.alt \r\n",
    "Host: HOST.alt\r\n other.alt\r\n",
    "Host: HOST.alt, other.alt\r\n",
    "Host: HOST.alt:80\r\n",
    "Host: HOST.alt:\r\n",
    "Host: HOST.alt.\r\n",
    "Host: a@HOST.alt\r\n",
    "Host: HOST.alt/a\r\n",
    "Host: \r\n",
    "Host:\r\n HOST.alt\r\n",
    "Host: HOST.alt\0.other.alt\r\n",
];

/// Fields that parsers disagree about.
const ODD_FIELDS: [&str; 49] = [
    "X-A: a\r\n b\r\n",
    "X-A: a\rb\r\n",
    "X-A: a\nX-B: b\r\n",
    " X-A: a\r\n",
    "X_A: a\r\n",
    "Content_Length: 7\r\n",
    "Transfer_Encoding: chunked\r\n",
    "X-A\r\n",
    ": a\r\n",
    "X-A: a\0b\r\n",
    "X-A: a\x0bb\r\n",
    "X-A: a\x7fb\r\n",
    "X-A: \u{e9}\r\n",
    "X-\u{e9}: a\r\n",
    "X-A:\r\n\ta\r\n",
    "X-A: a\r\r\n",
    "\0: a\r\n",
    "X-A: \r\n",
    "X A: a\r\n",
    "Expect: 100-continue\r\n",
    "Expect: 200-ok\r\n",
    "Expect: 100-Continue\r\n",
    "Expect: 100-continue, 200-ok\r\n",
    "Expect: 100-continue\r\nExpect: 100-continue\r\n",
    "Expect:\r\n",
    "Connection: Content-Length\r\n",
    "Connection: Transfer-Encoding\r\n",
    "Connection: keep-alive, x-a\r\nX-A: a\r\n",
    "Connection: close\r\n",
    "Connection: close, keep-alive\r\n",
    "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n",
    "Connection: Host\r\n",
    "Connection: Expect\r\n",
    "Connection: X-Forwarded-For\r\n",
    "Proxy-Connection: keep-alive\r\n",
    "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "Connection: upgrade\r\nUpgrade: other\r\n",
    "Connection: upgrade\r\nUpgrade: other, h2c\r\n",
    "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n",
    "Upgrade: other\r\n",
    "TE: trailers\r\n",
    "TE: chunked\r\n",
    "Trailer: Content-Length\r\n",
    "Trailer: Transfer-Encoding\r\n",
    "Content-Length:\r\n",
    "Content-Length\r\n",
    "Content-Length\0: 7\r\n",
    "Transfer-Encoding:\r\n",
    "Transfer-Encoding\0: chunked\r\n",
];

/// Bytes of a connection: one to three requests, and a last one that ends it.
pub(super) fn connection(dice: &mut Dice, number: usize) -> String {
    let mut text = String::new();
    for place in 0..=dice.below(3) {
        text += &request(dice, &format!("/c{number}-{place}"), number);
    }
    text + &last(number)
}

/// The request that ends a connection.
pub(super) fn last(number: usize) -> String {
    format!("GET /c{number}-last HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n")
}

fn request(dice: &mut Dice, path: &str, number: usize) -> String {
    let method = dice.mostly(
        "POST",
        &[
            "GET", "HEAD", "PUT", "OPTIONS", "DELETE", "get", "TRACE", "CONNECT", "PRI", "P\0T",
        ],
    );
    let version = dice.mostly(
        "HTTP/1.1",
        &[
            "HTTP/1.0",
            "HTTP/1.2",
            "HTTP/2.0",
            "http/1.1",
            "HTTP/0.9",
            "HTTP/1.",
            "HTTP/1.1x",
            "",
        ],
    );
    let end = dice.pick(&[
        "", "?a=b", "?", "/%2f", "//x", ";a=b", "/%61", "/a%20b", "?a=/../b",
    ]);
    let target = match dice.below(32) {
        0..4 => format!("http://{HOST}{path}{end}"),
        4..7 => format!("HTTP://{HOST}:80{path}{end}"),
        7 => format!("http://a:b@{HOST}{path}{end}"),
        8 => format!("http://{HOST}\\@other.alt{path}{end}"),
        9 => format!("{HOST}:80"),
        10 => "*".to_owned(),
        _ => format!("{path}{end}"),
    };
    let blank = dice.mostly(" ", &["  ", "\t", " \t"]);
    let line_end = dice.mostly("\r\n", &["\n", "\r", "\r\r\n"]);
    let host = dice.mostly("Host: HOST.alt\r\n", &HOSTS);
    let odd = dice.mostly("", &ODD_FIELDS);
    let (framing, body) = framing(dice, number);
    format!("{method}{blank}{target} {version}{line_end}{host}{odd}{framing}\r\n{body}")
}

/// Fields that say how a body is framed, and the body.
fn framing(dice: &mut Dice, number: usize) -> (String, String) {
    let hidden = format!("GET /smuggled-{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let plain = match dice.below(3) {
        0 => "hello".to_owned(),
        _ => hidden,
    };
    let length = plain.len();
    let chunks = chunks(dice, &plain);
    let coding = dice.mostly(
        "Transfer-Encoding: chunked\r\n",
        &[
            "Transfer-Encoding: Chunked\r\n",
            "Transfer-Encoding:\tchunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding: chunked;a=b\r\n",
            "Transfer-Encoding: chunked,\r\n",
            "Transfer-Encoding: , chunked\r\n",
            "Transfer-Encoding: chunked \r\n",
            "Transfer-Encoding: chunked\r\n chunked\r\n",
            "Transfer-Encoding: chunked\0\r\n",
            "Transfer-Encoding: chunked\r\r\n",
            "Transfer-Encoding: chunked\u{a0}\r\n",
            "Transfer-Encoding: \r\n",
            "Transfer-Encoding: identity\r\n",
        ],
    );
    let exact = format!("Content-Length: {length}\r\n");
    match dice.below(10) {
        0 => (String::new(), String::new()),
        1..=3 => (exact, plain),
        4..=6 => (coding.to_owned(), chunks),
        7 => (format!("{exact}{coding}"), chunks),
        8 => (format!("{coding}Content-Length: 3\r\n"), chunks),
        _ => {
            let written = match dice.below(18) {
                0 => format!("Content-Length: +{length}\r\n"),
                1 => format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"),
                2 => format!("Content-Length: {length}, {length}\r\n"),
                3 => format!("Content-Length: 0{length}\r\n"),
                4 => format!("Content-Length: {length} \r\n"),
                5 => format!("Content-Length: 0x{length:x}\r\n"),
                6 => format!("Content-Length: -{length}\r\n"),
                7 => "Content-Length: 1e1\r\n".to_owned(),
                8 => format!("Content-Length: {length}.0\r\n"),
                9 => format!("Content-Length: {length};a\r\n"),
                10 => format!("Content-Length: {length}\0\r\n"),
                11 => format!("Content-Length: \x0b{length}\r\n"),
                12 => format!("Content-Length: \t{length}\t\r\n"),
                13 => format!("Content-Length:\r\n {length}\r\n"),
                14 => format!("Content-Length: {length}\r\n 0\r\n"),
                15 => format!("Content-Length: {length},\r\n"),
                // As long as the body to whoever drops what is beyond 64 bits.
                16 => format!("Content-Length: {}\r\n", (1_u128 << 64) + length as u128),
                _ => format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
            };
            (written, plain)
        }
    }
}

fn chunks(dice: &mut Dice, plain: &str) -> String {
    let length = plain.len();
    let size = match dice.below(68) {
        0 => format!("{length:X};a=b"),
        1 => format!("{length:x};a=\"b;c\""),
        2 => format!("000{length:x}"),
        3 => format!("{length:x} "),
        4 => format!("0x{length:x}"),
        5 => format!("{length:x};a\rb"),
        6 => format!("{length:x};a=\"\r\nb\""),
        7 => format!("{length:x};a=\"b"),
        8 => format!("{length:x};a=\"\nb\""),
        9 => format!("{length:x};\0"),
        10 => format!("{length:x};\u{e9}"),
        11 => format!("{length:x} ;a=b"),
        12 => format!("{length:x}\r"),
        13 => format!("{length:x}\0"),
        14 => format!("{length:x}\t"),
        15 => format!(" {length:x}"),
        16 => format!("-{length:x}"),
        17 => format!("+{length:x}"),
        18 => format!("{length:x}h"),
        19 => format!("{length:016x}"),
        20 => format!("{length:017x}"),
        21 => "f".repeat(16),
        22 => "f".repeat(17),
        // As long as the body to whoever drops what is beyond 64 bits.
        23 => format!("1{length:016x}"),
        24 => String::new(),
        25 => ";a".to_owned(),
        _ => format!("{length:x}"),
    };
    let line_end = dice.mostly("\r\n", &["\n", "\r", "\r\r\n", "\n\r\n"]);
    let end = dice.mostly(
        "0\r\n\r\n",
        &[
            "0\r\nX-A: a\r\n\r\n",
            "0\r\nContent-Length: 5\r\n\r\n",
            "0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "0\r\nHost: other.alt\r\n\r\n",
            "0\r\nX-A: a\r\n b\r\n\r\n",
            "0\r\nX-A: a\0b\r\n\r\n",
            "0\r\nX-A: a\rb\r\n\r\n",
            "0\r\nX-A: \u{e9}\r\n\r\n",
            "0\r\nX-A\r\n\r\n",
            "0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
            "0;a=b\r\n\r\n",
            "0;a=\"b\r\n\r\n",
            "00\r\n\r\n",
            "-0\r\n\r\n",
            "0000000000000000\r\n\r\n",
            "0\n\n",
            "0\r\r\n\r\n",
            "0\r\n\n",
            "0\r\nX-A: a\n\r\n",
        ],
    );
    format!("{size}{line_end}{plain}\r\n{end}")
}
