//! The streams of a connection of HTTP/2. Requests are frames that were made before, of
//! which only the stream's number is written; of answers no header but the status is read.

use std::time::Instant;

use super::talk::BODY;
use crate::backend::BODY_BYTES;
use crate::load::{Failure, Trouble};

/// The bytes that a client begins with: the preface; settings (no push, windows of 1 MiB for
/// streams); and a window of 1 GiB for the connection.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x0c\x04\x00\x00\x00\x00\x00\
    \x00\x02\x00\x00\x00\x00\x00\x04\x00\x10\x00\x00\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x40\x00\x00\x00";

/// How much is taken before the connection's window is opened again.
const WINDOW_BYTES: u32 = 1 << 28;

/// The length of a frame's head.
const HEAD_BYTES: usize = 9;

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Their flags. Of settings and pings, the first is the acknowledgement.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// `:status: 200` as one byte.
const STATUS_200: u8 = 0x88;

/// HTTP/2 on a connection.
pub(crate) struct Streams {
    max: usize,
    next: u32,
    open: Vec<Stream>,
    /// The part of a frame that has come.
    begun: Vec<u8>,
    /// The bytes to be sent.
    out: Vec<u8>,
    /// Bytes taken since the window was opened.
    taken: u32,
}

struct Stream {
    number: u32,
    due: Instant,
    has_status: bool,
    body_bytes: usize,
}

/// One frame that has come.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

/// A request as a frame, whose stream is yet to be written.
pub(crate) fn frame(host: &str, path: &str) -> Vec<u8> {
    // `:method: GET` and `:scheme: https`; then names by their number in the static table, with
    // values as they are, which no table keeps.
    let mut block = vec![0x82, 0x87];
    let names: [(&[u8], &str); 4] = [
        (&[0x04], path),
        (&[0x01], host),
        (&[0x0f, 58 - 15], "bench"),
        (&[0x0f, 19 - 15], "*/*"),
    ];
    for (name, value) in names {
        block.extend_from_slice(name);
        // Lengths of less than 127 are one byte.
        block.push(u8::try_from(value.len()).map_or(0x7e, |length| length.min(0x7e)));
        block.extend_from_slice(&value.as_bytes()[..value.len().min(0x7e)]);
    }
    let mut frame = head(block.len(), HEADERS, END_STREAM | END_HEADERS, 0).to_vec();
    frame.append(&mut block);
    frame
}

fn head(bytes: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    let [_, high, middle, low] = (bytes as u32).to_be_bytes();
    let [first, second, third, fourth] = stream.to_be_bytes();
    [high, middle, low, kind, flags, first, second, third, fourth]
}

impl Streams {
    /// A connection of so many streams at a time.
    pub(crate) fn new(max: usize) -> Streams {
        Streams {
            max,
            next: 1,
            open: Vec::with_capacity(max),
            begun: Vec::new(),
            out: GREETING.to_vec(),
            taken: 0,
        }
    }

    /// Whether another request may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() < self.max
    }

    /// How many requests are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.open.len()
    }

    /// Adds a request to what is sent next.
    pub(crate) fn ask(&mut self, request: &[u8], due: Instant) {
        let begin = self.out.len();
        self.out.extend_from_slice(request);
        self.out[begin + 5..begin + HEAD_BYTES].copy_from_slice(&self.next.to_be_bytes());
        self.open.push(Stream {
            number: self.next,
            due,
            has_status: false,
            body_bytes: 0,
        });
        self.next += 2;
    }

    /// The bytes to be sent, which are sent then.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Takes what has come, and says of each answer that is whole when its request was due.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        answered: &mut dyn FnMut(Instant),
    ) -> Result<(), Failure> {
        let mut joined = std::mem::take(&mut self.begun);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while let Some((frame, after)) = Frame::split(rest) {
            self.hear(&frame, answered)?;
            rest = after;
        }
        self.begun = rest.to_vec();
        if self.taken >= WINDOW_BYTES {
            self.out.extend_from_slice(&head(4, WINDOW_UPDATE, 0, 0));
            self.out.extend_from_slice(&self.taken.to_be_bytes());
            self.taken = 0;
        }
        Ok(())
    }

    fn hear(
        &mut self,
        frame: &Frame<'_>,
        answered: &mut dyn FnMut(Instant),
    ) -> Result<(), Failure> {
        match frame.kind {
            DATA | HEADERS => return self.hear_answer(frame, answered),
            SETTINGS | PING if frame.flags & ACK == 0 => {
                let payload = match frame.kind {
                    PING => frame.payload,
                    _ => &[],
                };
                let head = head(payload.len(), frame.kind, ACK, 0);
                self.out.extend_from_slice(&head);
                self.out.extend_from_slice(payload);
            }
            GOAWAY => return Err((Trouble::Connection, "it goes away".to_owned())),
            RST_STREAM | PUSH_PROMISE => return wrong("a stream is reset or pushed"),
            // What is left only allows more, or adds to headers that nobody reads.
            _ => {}
        }
        Ok(())
    }

    fn hear_answer(
        &mut self,
        frame: &Frame<'_>,
        answered: &mut dyn FnMut(Instant),
    ) -> Result<(), Failure> {
        let mut streams = self.open.iter();
        let Some(at) = streams.position(|stream| stream.number == frame.stream) else {
            return wrong("nobody asked");
        };
        let stream = &mut self.open[at];
        let Some(content) = frame.content() else {
            return wrong("a frame is longer than it says");
        };
        if frame.kind == HEADERS {
            stream.has_status = status(content) == Some(STATUS_200);
            if !stream.has_status {
                return wrong("the status is not 200");
            }
        } else {
            self.taken += frame.payload.len() as u32;
            let is_right = content.len() <= BODY_BYTES && content == &BODY[..content.len()];
            stream.body_bytes += content.len();
            if !is_right || !stream.has_status {
                return wrong("the body has other bytes");
            }
        }
        if frame.flags & END_STREAM != 0 {
            if stream.body_bytes != BODY_BYTES {
                return wrong("the body has another length");
            }
            answered(self.open.swap_remove(at).due);
        }
        Ok(())
    }
}

impl<'a> Frame<'a> {
    /// The first frame, if it is whole, and what comes after it.
    fn split(bytes: &'a [u8]) -> Option<(Frame<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [high, middle, low, kind, flags, stream @ ..] = *head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        let frame = Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
            payload,
        };
        Some((frame, rest))
    }

    /// The payload without padding and priority.
    fn content(&self) -> Option<&'a [u8]> {
        let mut content = self.payload;
        if self.flags & PADDED != 0 {
            let (&padding, rest) = content.split_first()?;
            content = rest.get(..rest.len().checked_sub(usize::from(padding))?)?;
        }
        if self.kind == HEADERS && self.flags & PRIORITY != 0 {
            content = content.get(5..)?;
        }
        Some(content)
    }
}

/// The first byte of a block of headers that is no change of the table's size: everybody writes
/// the status first, and as one byte where it is a frequent one.
fn status(mut block: &[u8]) -> Option<u8> {
    loop {
        let (&first, mut rest) = block.split_first()?;
        if first & 0xe0 != 0x20 {
            return Some(first);
        }
        if first & 0x1f == 0x1f {
            while rest.first()? & 0x80 != 0 {
                rest = &rest[1..];
            }
            rest = &rest[1..];
        }
        block = rest;
    }
}

fn wrong<T>(text: &str) -> Result<T, Failure> {
    Err((Trouble::Answer, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stream: u32, body: &[u8]) -> Vec<u8> {
        // A change of the table's size first, and a header after the status.
        let block = [0x3f, 0xe1, 0x1f, STATUS_200, 0x90];
        let mut bytes = head(block.len(), HEADERS, END_HEADERS, stream).to_vec();
        bytes.extend_from_slice(&block);
        let (first, second) = body.split_at(body.len() / 2);
        bytes.extend_from_slice(&head(first.len(), DATA, 0, stream));
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(&head(second.len(), DATA, END_STREAM, stream));
        bytes.extend_from_slice(second);
        bytes
    }

    #[test]
    fn an_answer_counts_when_its_last_byte_has_come_however_it_is_cut() {
        let answers = [answer(3, &BODY), answer(1, &BODY)].concat();
        for cut in 1..answers.len() {
            let mut streams = Streams::new(2);
            let request = frame("a.test", "/path-1");
            streams.ask(&request, Instant::now());
            streams.ask(&request, Instant::now());
            assert!(!streams.has_room());
            let mut count = 0;
            let (first, second) = answers.split_at(cut);
            streams.take(first, &mut |_| count += 1).unwrap();
            assert_eq!(count, usize::from(cut >= answers.len() / 2), "{cut}");
            streams.take(second, &mut |_| count += 1).unwrap();
            assert_eq!((count, streams.under_way()), (2, 0));
        }
    }

    #[test]
    fn an_answer_with_another_byte_length_or_status_is_wrong() {
        let mut other = BODY;
        other[700] = b'y';
        let mut not_found = answer(1, &BODY);
        not_found[HEAD_BYTES + 3] = 0x8d;
        let wrong = [answer(1, &other), answer(1, &BODY[1..]), not_found];
        for bytes in wrong.into_iter().chain([answer(5, &BODY)]) {
            let mut streams = Streams::new(1);
            streams.ask(&frame("a.test", "/"), Instant::now());
            assert!(streams.take(&bytes, &mut |_| {}).is_err());
        }
    }
}
