//! Framing of HTTP/1 bodies (RFC 9112, sections 6 and 7), read strictly and written plainly.

use super::buffer::Buffer;
use super::trailer::{self, Trailers};
use crate::limits::{CHUNK_LINE_BYTES_MAX, Limits, Reached, TRAILER_BYTES_MAX};

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// Framed by its number of bytes.
    Exact(u64),
    /// Framed by a last chunk, or by the end of its HTTP/2 stream.
    Chunked,
    /// Framed by the end of the connection; responses only.
    UntilClose,
}

/// A body is not what its framing says, or the head of a response not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not well-formed, or goes beyond a limit")]
pub struct MalformedMessage {
    /// The limit that it goes beyond, if that is what is wrong with it.
    pub reached: Option<Reached>,
}

/// The error of input that is simply not well-formed.
pub const MALFORMED: MalformedMessage = MalformedMessage { reached: None };

/// The work of the line of a chunk, in bytes of framing, beside its own.
const LINE_WORK: usize = 64;

/// The work in which chunks are joined at a time. Beyond it the rest is left where it is.
const WORK_MAX: usize = 64 << 10;

/// So many bytes of a body pay for one byte of framing: chunks of a kibibyte are no work beside it.
const BYTES_PER_WORK: usize = 16;

/// Takes the framing off a body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    chunk_line_bytes_max: u32,
    trailer_bytes_max: u32,
    /// The lines behind the last chunk. Boxed, because hardly any body has some.
    trailer: Option<Box<TrailerLines>>,
}

/// Lines behind the last chunk as they came, the empty one included.
#[derive(Clone, Debug, Default)]
struct TrailerLines(Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Exact(u64),
    UntilClose,
    /// Within the digits of a chunk's size.
    Size {
        size: u64,
        digits: u32,
    },
    /// Within a chunk's extension, `used` bytes into its line.
    Extension {
        size: u64,
        used: u32,
    },
    /// After the CR of a chunk's line.
    SizeLineFeed(u64),
    Chunk(u64),
    ChunkReturn,
    ChunkLineFeed,
    /// Within the trailers, `used` bytes into them; `line` bytes into a line.
    Trailer {
        used: u32,
        line: u32,
    },
    TrailerLineFeed {
        used: u32,
        line: u32,
    },
}

/// One step of decoding.
#[derive(Debug, PartialEq, Eq)]
pub struct BodyStep<'a> {
    /// How many bytes of the input were used.
    pub consumed: usize,
    /// Bytes of the body among them, the first ones; may be empty.
    pub data: &'a [u8],
}

/// Part of a body that was moved together, in the buffer that it came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinedBody {
    start: usize,
    /// How many bytes of the body there are.
    pub length: usize,
    /// How many bytes of the buffer were used, and are to be consumed.
    pub consumed: usize,
    /// The work of the framing, in bytes, beyond what that many bytes of a body pay for.
    pub work: usize,
}

impl JoinedBody {
    /// The bytes of the body, in the buffer that they are in.
    pub fn bytes(self, input: &Buffer) -> &[u8] {
        let bytes = input.filled().get(self.start..self.start + self.length);
        bytes.unwrap_or_default()
    }
}

impl BodyDecoder {
    /// A decoder at the start of a body that comes from somebody else.
    pub fn limited(length: BodyLength, limits: &Limits) -> Self {
        BodyDecoder {
            chunk_line_bytes_max: limits.chunk_line_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
            ..BodyDecoder::new(length)
        }
    }

    /// A decoder at the start of a body, with the default limits.
    pub fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::None | BodyLength::Exact(0) => State::Done,
            BodyLength::Exact(length) => State::Exact(length),
            BodyLength::Chunked => State::Size { size: 0, digits: 0 },
            BodyLength::UntilClose => State::UntilClose,
        };
        BodyDecoder {
            state,
            chunk_line_bytes_max: CHUNK_LINE_BYTES_MAX,
            trailer_bytes_max: TRAILER_BYTES_MAX,
            trailer: None,
        }
    }

    /// Whether the body has been read to its end.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the body ends with the connection.
    pub fn is_until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// How many bytes are still to come at most, where that is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Exact(left) => Some(left),
            _ => None,
        }
    }

    /// The fields behind the body, once it is done.
    pub fn take_trailers(&mut self) -> Option<Trailers> {
        let lines = self.trailer.take()?;
        (!lines.0.is_empty())
            .then(|| trailer::parse(&lines.0))
            .flatten()
    }

    /// Uses what lies in a buffer until so many bytes of the body are there, its end, or enough
    /// work is done, and moves these bytes together: chunks of a few bytes become one. Uses nothing
    /// once the body is done.
    ///
    /// # Errors
    /// Input that is not what the framing says, once all that came before it was used.
    pub fn join(
        &mut self,
        input: &mut Buffer,
        most: usize,
    ) -> Result<JoinedBody, MalformedMessage> {
        let bytes = input.filled_mut();
        let mut joined = JoinedBody::default();
        while joined.length < most && joined.work < WORK_MAX && !self.is_done() {
            let rest = bytes.get(joined.consumed..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let (state, lines) = (self.state, self.trailer_length());
            let step = match self.step(rest) {
                Ok(step) => step,
                Err(error) if joined.consumed == 0 => return Err(error),
                // It is found again once what came before it was passed on.
                Err(_) => {
                    self.state = state;
                    self.cut_trailer(lines);
                    break;
                }
            };
            let (consumed, length) = (step.consumed, step.data.len());
            if length > 0 && joined.length == 0 {
                joined.start = joined.consumed;
            }
            let end = joined.start + joined.length;
            if length > 0 && end < joined.consumed {
                bytes.copy_within(joined.consumed..joined.consumed + length, end);
            }
            if consumed > length {
                joined.work += LINE_WORK + consumed - length;
            }
            joined.length += length;
            joined.consumed += consumed;
        }
        joined.work = joined.work.saturating_sub(joined.length / BYTES_PER_WORK);
        Ok(joined)
    }

    fn trailer_length(&self) -> usize {
        self.trailer.as_ref().map_or(0, |lines| lines.0.len())
    }

    fn cut_trailer(&mut self, length: usize) {
        if let Some(lines) = &mut self.trailer {
            lines.0.truncate(length);
        }
    }

    /// Uses some bytes of a non-empty input. Uses none only once the body is done.
    ///
    /// # Errors
    /// Input that is not what the framing says.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, MalformedMessage> {
        match self.state {
            State::Done => Ok(BodyStep {
                consumed: 0,
                data: &[],
            }),
            State::UntilClose => Ok(BodyStep {
                consumed: input.len(),
                data: input,
            }),
            State::Exact(left) => {
                let data = first(input, left);
                let left = left - data.len() as u64;
                self.state = if left == 0 {
                    State::Done
                } else {
                    State::Exact(left)
                };
                Ok(BodyStep {
                    consumed: data.len(),
                    data,
                })
            }
            State::Chunk(left) => {
                let data = first(input, left);
                let left = left - data.len() as u64;
                self.state = if left == 0 {
                    State::ChunkReturn
                } else {
                    State::Chunk(left)
                };
                Ok(BodyStep {
                    consumed: data.len(),
                    data,
                })
            }
            _ => self.step_between(input),
        }
    }

    /// Whether what is between data has grown too long.
    fn check(&self) -> Result<(), MalformedMessage> {
        let reached = match self.state {
            State::Extension { used, .. } if used > self.chunk_line_bytes_max => {
                Reached::ChunkLineBytes
            }
            State::Trailer { used, .. } if used > self.trailer_bytes_max => Reached::TrailerBytes,
            _ => return Ok(()),
        };
        Err(MalformedMessage {
            reached: Some(reached),
        })
    }

    /// Uses bytes that are not data, up to the next that are, or to the end.
    fn step_between<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, MalformedMessage> {
        let mut consumed = 0;
        for byte in input {
            let before = self.state;
            self.state = next(before, *byte)?;
            self.check()?;
            consumed += 1;
            match before {
                // The empty line alone, which nearly all bodies end with, is not kept.
                State::Trailer { used: 0, .. } if *byte == b'\r' => {}
                State::TrailerLineFeed { used: 0, .. } => {}
                State::Trailer { .. } | State::TrailerLineFeed { .. } => {
                    self.trailer.get_or_insert_default().0.push(*byte);
                }
                _ => {}
            }
            if matches!(self.state, State::Done | State::Chunk(_)) {
                break;
            }
        }
        Ok(BodyStep {
            consumed,
            data: &[],
        })
    }
}

fn first(input: &[u8], count: u64) -> &[u8] {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    input.get(..count).unwrap_or(input)
}

/// The state after one byte that is not data.
fn next(state: State, byte: u8) -> Result<State, MalformedMessage> {
    Ok(match (state, byte) {
        (State::Size { size, digits }, _) => next_in_size(size, digits, byte)?,
        (State::Extension { size, .. }, b'\r') => State::SizeLineFeed(size),
        (State::Extension { size, used }, byte) => {
            // Extensions are not passed on, so all that matters is where their line ends.
            let is_text = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            if !is_text {
                return Err(MALFORMED);
            }
            let used = used + 1;
            State::Extension { size, used }
        }
        (State::SizeLineFeed(0), b'\n') => State::Trailer { used: 0, line: 0 },
        (State::SizeLineFeed(size), b'\n') => State::Chunk(size),
        (State::ChunkReturn, b'\r') => State::ChunkLineFeed,
        (State::ChunkLineFeed, b'\n') => State::Size { size: 0, digits: 0 },
        (State::Trailer { used, line }, b'\r') => State::TrailerLineFeed { used, line },
        (State::Trailer { used, line }, byte) => {
            let is_text = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            if !is_text {
                return Err(MALFORMED);
            }
            let (used, line) = (used + 1, line + 1);
            State::Trailer { used, line }
        }
        (State::TrailerLineFeed { line: 0, .. }, b'\n') => State::Done,
        (State::TrailerLineFeed { used, .. }, b'\n') => State::Trailer { used, line: 0 },
        _ => return Err(MALFORMED),
    })
}

fn next_in_size(size: u64, digits: u32, byte: u8) -> Result<State, MalformedMessage> {
    if let Some(digit) = char::from(byte).to_digit(16) {
        // 15 digits are 2^60 bytes, which no chunk has, and cannot overflow.
        if digits >= 15 {
            return Err(MALFORMED);
        }
        let size = size * 16 + u64::from(digit);
        let digits = digits + 1;
        return Ok(State::Size { size, digits });
    }
    match byte {
        _ if digits == 0 => Err(MALFORMED),
        b'\r' => Ok(State::SizeLineFeed(size)),
        b';' => Ok(State::Extension { size, used: 0 }),
        _ => Err(MALFORMED),
    }
}

/// Puts framing on a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    /// The bytes as they are: the head told their number, or the connection's end does.
    Plain,
    /// In chunks.
    Chunked,
}

impl Encoder {
    /// The encoder for a length.
    pub fn new(length: BodyLength) -> Self {
        match length {
            BodyLength::Chunked => Encoder::Chunked,
            BodyLength::None | BodyLength::Exact(_) | BodyLength::UntilClose => Encoder::Plain,
        }
    }

    /// Appends data.
    pub fn write(self, data: &[u8], out: &mut Buffer) {
        if data.is_empty() {
            return;
        }
        match self {
            Encoder::Plain => out.append(data),
            Encoder::Chunked => {
                append_hexadecimal(data.len() as u64, out);
                out.append(b"\r\n");
                out.append(data);
                out.append(b"\r\n");
            }
        }
    }

    /// Appends the end.
    pub fn end(self, out: &mut Buffer) {
        match self {
            Encoder::Plain => {}
            Encoder::Chunked => out.append(b"0\r\n\r\n"),
        }
    }

    /// Appends the end with trailers, where the framing has them.
    pub fn end_with(self, trailers: Option<&Trailers>, out: &mut Buffer) {
        match (self, trailers) {
            (Encoder::Chunked, Some(trailers)) => {
                out.append(b"0\r\n");
                trailer::write(trailers, out);
                out.append(b"\r\n");
            }
            _ => self.end(out),
        }
    }
}

fn append_hexadecimal(number: u64, out: &mut Buffer) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (number >> (place * 4)) & 15;
        let letter = char::from_digit(digit as u32, 16).unwrap_or('0');
        out.append(&[letter as u8]);
    }
}

/// The body that was written in chunks, as far as it is whole.
pub fn unchunked(mut framed: &[u8]) -> Buffer {
    let mut body = Buffer::take();
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    while let Ok(step) = decoder.step(framed)
        && step.consumed > 0
    {
        body.append(step.data);
        framed = framed.get(step.consumed..).unwrap_or_default();
    }
    body
}

#[cfg(test)]
mod tests;
