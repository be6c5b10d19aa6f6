//! Streams of HTTP/2 that are made into requests of HTTP/1 on their way.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::grammar::{Dice, HOST};

/// The first bytes of every connection, and settings that say nothing.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Kinds of frames, and the flags that end a stream and a head.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The streams of every connection.
const STREAMS: u32 = 3;

/// Bytes of a connection with some streams.
pub(super) fn connection(dice: &mut Dice, number: usize) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    for place in 0..STREAMS {
        stream(dice, number, place, &mut bytes);
    }
    bytes
}

fn stream(dice: &mut Dice, number: usize, place: u32, bytes: &mut Vec<u8>) {
    let body = format!("GET /smuggled-{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let length = body.len().to_string();
    let path = format!("/h{number}-{place}");
    let more = dice.mostly(
        "",
        &[
            "?a=b",
            " HTTP/1.1",
            "\r\nX-A: a",
            "//x",
            "/%2f",
            ";a",
            "#a",
            "/\u{e9}",
            "?\u{e9}",
            "\0",
            "\u{7f}",
        ],
    );
    let method = dice.mostly(
        "POST",
        &[
            "GET",
            "PUT",
            "GET /smuggled",
            "P\r\nT",
            "post",
            "CONNECT",
            "",
        ],
    );
    let authority = dice.mostly(HOST, &["", "other.alt", "HOST.alt\r\nX-A: a", "a@HOST.alt"]);
    let mut fields = vec![
        (":method", method.to_owned()),
        (":scheme", "http".to_owned()),
        (":path", path + more),
        (":authority", authority.to_owned()),
    ];
    let (name, value) = match dice.below(18) {
        0 => ("content-length", "3"),
        1 => ("content-length", "+3"),
        2 => ("transfer-encoding", "chunked"),
        3 => ("connection", "close"),
        4 => ("host", "other.alt"),
        5 => ("x-a", "a\r\nx-b: b"),
        6 => ("x-a: b\r\nx-c", "a"),
        7 => ("transfer_encoding", "chunked"),
        8 => ("X-A", "a"),
        9 => ("expect", "100-continue"),
        10 => ("content-length", "1e1"),
        11 => ("content-length", "-3"),
        12 => ("content-length", "18446744073709551693"),
        13 => ("te", "trailers, chunked"),
        14 => ("x-a", "a\0b"),
        15 => ("x-a", "\u{e9}"),
        _ => ("content-length", &*length),
    };
    fields.push((name, value.to_owned()));
    let block = block(&fields);
    let id = place * 2 + 1;
    frame(HEADERS, END_HEADERS, id, &block, bytes);
    frame(DATA, END_STREAM, id, body.as_bytes(), bytes);
}

/// The fields of a head, packed.
fn block(fields: &[(&str, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal that is not remembered, with a name of its own (RFC 7541, section 6.2.2).
        block.push(0);
        for text in [name.as_bytes(), value.as_bytes()] {
            block.push(text.len() as u8);
            block.extend(text);
        }
    }
    block
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], bytes: &mut Vec<u8>) {
    let length = (payload.len() as u32).to_be_bytes();
    bytes.extend(&length[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

/// Reads until every stream was answered or refused, or the connection ends.
pub(super) async fn read(mut from: impl AsyncRead + Unpin) {
    let mut left = STREAMS;
    let mut head = [0; 9];
    while left > 0 && from.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if from.read_exact(&mut payload).await.is_err() {
            return;
        }
        match head[3] {
            GOAWAY => return,
            RST_STREAM => left -= 1,
            DATA | HEADERS if head[4] & END_STREAM != 0 => left -= 1,
            _ => {}
        }
    }
}
