//! The client's end of an exchange, whatever version it speaks.

use std::task::{Context, Poll};

use crate::admission::spaces::{NOBODY, Spots};
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::response::ResponseHead;
use crate::codec::trailer::Trailers;
use crate::failure::FailureKind;
use crate::policy::header::Edits;

/// The changes to the fields of a response.
#[derive(Clone, Copy, Default)]
pub struct ResponseChanges<'a> {
    /// Edits of what the endpoint sent.
    pub edits: Edits<'a>,
    /// Fields that are put in place of the endpoint's own.
    pub additions: &'a [(&'static str, Box<[u8]>)],
    /// Fields that are added to the endpoint's own.
    pub told: &'a [(Box<str>, Box<[u8]>)],
}

/// The client's end: the source of a request and the destination of its response.
pub trait Peer {
    /// Appends what has arrived of the request body to `out`, framed for the endpoint but for its
    /// end. True once the body is complete.
    ///
    /// # Errors
    /// A body that is refused, or a client that went away.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>>;

    /// Takes no longer a body from here on, where another route has another limit.
    fn limit_body(&mut self, _bytes_max: u64) {}

    /// The trailers behind the request body, once that is complete.
    fn take_trailers(&mut self) -> Option<Trailers> {
        None
    }

    /// Passes on an interim response (1xx but 101), where the client's version has them.
    ///
    /// # Errors
    /// A client that went away.
    fn interim(&mut self, head: &ResponseHead<'_>) -> Result<(), FailureKind>;

    /// Begins the response.
    ///
    /// # Errors
    /// A response that the client's version cannot carry, or a client that went away.
    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        length: BodyLength,
        changes: &ResponseChanges<'_>,
    ) -> Result<(), FailureKind>;

    /// Whether the response may begin, or more of its body be given.
    fn has_room(&self) -> bool;

    /// How many bytes of a response are read at once: fewer where the client takes none now.
    fn room(&self) -> usize {
        BUFFER_BYTES
    }

    /// Takes note of the namespace that the request is of.
    fn belong(&mut self, _space: Spots) {}

    /// The namespace that the request is of.
    fn space(&self) -> Spots {
        NOBODY
    }

    /// Takes note of how many bytes are held for the request, beside what the client's end holds,
    /// and how many there may be below that: what TLS keeps, and what an endpoint may send before
    /// it is read. False where that is too much already, so that nothing should be kept in case
    /// it is of use later.
    fn hold(&mut self, _bytes: usize, _below: usize) -> bool {
        true
    }

    /// How many bytes of the response body the client has taken, about.
    fn taken(&self) -> u64 {
        0
    }

    /// Gives some of the response body.
    fn data(&mut self, data: &[u8]);

    /// Ends the response, with what came behind its body.
    fn end(&mut self, trailers: Option<Trailers>);

    /// Sends what was given; ready when all of it was taken.
    ///
    /// # Errors
    /// A client that went away.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>>;

    /// Ready once the client is gone, while nothing is read from it and nothing sent.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;
}
