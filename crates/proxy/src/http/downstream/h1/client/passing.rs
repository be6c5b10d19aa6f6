//! The body of a request on its way from what has arrived to what is sent on.

use std::task::{Context, Poll};

use crate::admission::framing::{FramingWork, UNIT_BYTES};
use crate::admission::planning::{Asker, PlanTurns, PlanWait, read_steps};
use crate::codec::body::{BodyDecoder, Encoder};
use crate::codec::buffer::Buffer;
use crate::failure::FailureKind;
use crate::telemetry::count::Counts;

/// A body on its way.
pub(super) struct Passing<'a> {
    /// Takes its framing off.
    pub decoder: &'a mut BodyDecoder,
    /// The bytes of it that have come.
    pub received: &'a mut u64,
    /// The most that there may be.
    pub bytes_max: u64,
    /// The counts of what is malformed.
    pub counts: &'a Counts,
}

/// A step of passing on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassedPart {
    /// Whether there was anything.
    pub has_moved: bool,
    /// The work of its framing; see [`crate::codec::body::JoinedBody`].
    pub work: usize,
}

impl Passing<'_> {
    /// Passes on what has arrived until there are so many bytes. Chunks that lie together become
    /// one.
    ///
    /// # Errors
    /// A body that is malformed, or too large. What was decoded of it is consumed, too, so that
    /// nobody takes it for a head.
    pub(super) fn pass(
        &mut self,
        input: &mut Buffer,
        encoder: Encoder,
        out: &mut Buffer,
        room: usize,
    ) -> Result<PassedPart, FailureKind> {
        let most = room.saturating_sub(out.len());
        let joined = self.decoder.join(input, most);
        let joined = joined.map_err(|it| self.counts.malformed(it, FailureKind::BadBody))?;
        *self.received += joined.length as u64;
        let is_too_large = *self.received > self.bytes_max;
        if !is_too_large {
            encoder.write(joined.bytes(input), out);
        }
        input.consume(joined.consumed);
        if is_too_large {
            return Err(FailureKind::BodyTooLarge);
        }
        Ok(PassedPart {
            has_moved: joined.consumed > 0,
            work: joined.work,
        })
    }
}

/// The turns of bodies that come in very small chunks.
#[derive(Default)]
pub(super) struct SmallChunks {
    work: FramingWork,
    wait: PlanWait,
}

impl SmallChunks {
    /// Takes note of the work of what was passed on for a source. Most connections have none.
    pub(super) fn note(
        chunks: &mut Option<Box<Self>>,
        work: usize,
        turns: &PlanTurns,
        source: u64,
    ) {
        if work < UNIT_BYTES {
            return;
        }
        let chunks = chunks.get_or_insert_default();
        if let Some(charged) = chunks.work.note(work) {
            turns.spend(source, read_steps(charged));
        }
    }

    /// Ready once more may be passed on for a source.
    pub(super) fn poll_turn(
        &mut self,
        turns: &PlanTurns,
        source: u64,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let SmallChunks { work, wait } = self;
        let asker = Asker {
            source,
            is_costly: true,
        };
        work.poll_turn(context, |context| turns.poll_source(asker, wait, context))
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, FailureKind, PassedPart, Passing};
    use crate::codec::body::{BodyDecoder, BodyLength};
    use crate::codec::buffer::Buffer;
    use crate::telemetry::count::Counts;

    #[test]
    fn a_body_beyond_its_limit_is_never_read_as_the_next_request() {
        let mut input = Buffer::for_head();
        input.append(b"GET /evilGET /next");
        let mut decoder = BodyDecoder::new(BodyLength::Exact(9));
        let mut passing = Passing {
            decoder: &mut decoder,
            received: &mut 0,
            bytes_max: 4,
            counts: &Counts::new(),
        };
        let mut out = Buffer::for_head();
        let passed = passing.pass(&mut input, Encoder::Plain, &mut out, 64);
        assert_eq!(passed, Err(FailureKind::BodyTooLarge));
        assert!(decoder.is_done() && out.is_empty());
        assert_eq!(input.filled(), b"GET /next");
    }

    /// Each went on as a chunk of its own, with six times as many bytes.
    #[test]
    fn tiny_chunks_go_on_as_one_however_large_the_body_may_be() {
        for (bytes_max, is_passed) in [(100, true), (99, false)] {
            let mut input = Buffer::take();
            input.append(&b"1\r\na\r\n".repeat(100));
            input.append(b"0\r\n\r\nGET /next");
            let mut decoder = BodyDecoder::new(BodyLength::Chunked);
            let mut received = 0;
            let mut passing = Passing {
                decoder: &mut decoder,
                received: &mut received,
                bytes_max,
                counts: &Counts::new(),
            };
            let mut out = Buffer::take();
            let passed = passing.pass(&mut input, Encoder::Chunked, &mut out, 1_000);
            match passed {
                Ok(PassedPart { has_moved, work }) => {
                    assert!(is_passed && has_moved && work >= 6_400, "{work}");
                    let wanted = [&b"64\r\n"[..], &[b'a'; 100], b"\r\n"].concat();
                    assert_eq!(out.filled(), wanted);
                }
                Err(kind) => {
                    assert_eq!((kind, is_passed), (FailureKind::BodyTooLarge, false));
                    assert!(out.is_empty());
                }
            }
            assert_eq!((input.filled(), received), (&b"GET /next"[..], 100));
        }
    }
}
