//! As much of the body of a request as providers and processors are told, read before the request
//! goes on.

use std::future::poll_fn;
use std::task::Poll;

use myriad_model::CheckBody;

use crate::admission::waiting::{ClientWait, Standing};
use crate::codec::body::Encoder;
use crate::codec::buffer::Buffer;
use crate::codec::response;
use crate::failure::FailureKind;
use crate::http::patience::Patience;
use crate::http::peer::Peer;
use crate::http::plan::Forward;
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::deadline::Deadline;

/// The part of a request's body that providers are told.
#[derive(Default)]
pub(super) struct Body {
    bytes: Option<Buffer>,
    is_complete: bool,
    patience: Patience,
    /// The bytes of memory that are held for the request beside it.
    pub beside: usize,
}

impl Body {
    /// A body of which this part was read already.
    pub(super) fn of(bytes: Buffer, is_complete: bool) -> Self {
        Body {
            bytes: Some(bytes),
            is_complete,
            ..Body::default()
        }
    }

    /// The same of a request that stands in this line while it waits for its client.
    pub(super) fn standing(mut self, standing: Standing) -> Self {
        self.patience = Patience::of(standing);
        self
    }

    /// The same of a request for which so many bytes are held beside it.
    pub(super) fn beside(mut self, bytes: usize) -> Self {
        self.beside = bytes;
        self
    }

    /// How many bytes of memory it takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.as_ref().map_or(0, Buffer::capacity)
    }

    /// The bytes that were read.
    pub(super) fn filled(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], Buffer::filled)
    }

    /// Puts what was read in front of what the endpoint gets of the body.
    pub(super) fn give_back(&self, plan: &mut Forward) {
        let Some(bytes) = &self.bytes else {
            return;
        };
        plan.encoder.write(bytes.filled(), &mut plan.body);
        plan.expects_continue = false;
        if self.is_complete {
            plan.encoder.end(&mut plan.body);
            plan.has_body = false;
        }
    }
}

/// Reads as much of the body as a rule wants, unless it was read already.
///
/// # Errors
/// A body that is too long, late or broken, or for which there is no room.
pub(super) async fn gather<P: Peer>(
    worker: &Worker,
    rule: CheckBody,
    expects_continue: bool,
    body: &mut Body,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<(), FailureKind> {
    let (limits, counts) = (&worker.local.limits, &worker.local.counts);
    if expects_continue && body.bytes.is_none() {
        invite(peer, limits)?;
    }
    let bytes_max = rule.bytes_max as usize;
    let bytes = body.bytes.get_or_insert_with(Buffer::none);
    let patience = &mut body.patience;
    while !body.is_complete && bytes.len() <= bytes_max {
        if rule.allows_part && bytes.len() >= bytes_max {
            break;
        }
        peer.hold(body.beside + bytes.capacity(), 0);
        if !worker
            .local
            .fairness
            .may_hold(peer.space(), bytes.len(), counts)
        {
            return Err(FailureKind::Overloaded);
        }
        // What has to be whole is no stream that goes on for ever.
        let wait = patience.begin(&worker.local, bytes.len() as u64, !rule.allows_part);
        deadline.set(wait);
        let standing = &mut patience.standing;
        standing.wait(ClientWait::Body, bytes.len() as u64, deadline.number());
        body.is_complete = poll_fn(|context| {
            if let Poll::Ready(Err(kind)) = peer.poll_flush(context) {
                return Poll::Ready(Err(kind));
            }
            if let Poll::Ready(moved) = peer.poll_body(context, Encoder::Plain, bytes) {
                return Poll::Ready(moved);
            }
            if standing.is_evicted() || deadline.poll_passed(context).is_ready() {
                return Poll::Ready(Err(FailureKind::BodyTimeout));
            }
            Poll::Pending
        })
        .await?;
    }
    deadline.unset();
    patience.end();
    patience.standing.leave();
    match bytes.len() > bytes_max && !rule.allows_part {
        true => Err(FailureKind::BodyTooLarge),
        false => Ok(()),
    }
}

/// Asks for the body of a client that waits to be asked.
fn invite<P: Peer>(peer: &mut P, limits: &Limits) -> Result<(), FailureKind> {
    let head = response::parse(b"HTTP/1.1 100 Continue\r\n\r\n", limits);
    let head = head.map_err(|_| FailureKind::Internal)?;
    peer.interim(&head)
}
