//! The bytes of one exchange, both ways at once, over one connection to an endpoint.
//!
//! Nothing here waits for one direction while the other could go on: a response may come before
//! the request is complete, and either end may be slow. What is kept in memory is bounded in each
//! direction, and a full buffer stops the reading that would fill it further.

use std::task::{Context, Poll, ready};

use super::attempt::{Attempt, Broken, ExchangeEnd, ExchangeWait, Interims};
use super::mirror;
use crate::admission::framing::{FramingWork, UNIT_BYTES};
use crate::codec::body::{BodyDecoder, BodyLength};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::head::HeadFinder;
use crate::codec::response::{self, ResponseHead};
use crate::failure::{Failure, FailureKind, Retry};
use crate::http::peer::Peer;
use crate::limits::Reached;
use crate::policy::retry::Event;
use crate::upstream::h1_connection::H1Connection;

/// One exchange over one connection.
pub(super) struct Relay<'a, 'l, P> {
    around: Attempt<'a>,
    peer: &'l mut P,
    connection: &'l mut H1Connection,
    incoming: Option<Buffer>,
    response: Response,
    /// The work of a response in very small chunks. Boxed, because hardly any comes so.
    work: Option<Box<FramingWork>>,
    status: u16,
    /// The endpoint takes no more of the request; it may still answer.
    is_refused: bool,
    keep_alive: bool,
    interims: Interims,
    waits_for: ExchangeWait,
}

enum Response {
    Head(HeadFinder),
    Body(BodyDecoder),
    Done,
    Switched,
    /// It is not passed on; whether nothing of it is left to be read.
    Refused(bool),
}

impl<'a, 'l, P: Peer> Relay<'a, 'l, P> {
    /// An exchange over a connection.
    pub(super) fn new(
        around: Attempt<'a>,
        peer: &'l mut P,
        connection: &'l mut H1Connection,
    ) -> Self {
        Relay {
            around,
            peer,
            connection,
            incoming: None,
            response: Response::Head(HeadFinder::default()),
            work: None,
            status: 0,
            is_refused: false,
            keep_alive: true,
            interims: Interims::default(),
            waits_for: ExchangeWait::Nothing,
        }
    }

    /// The attempt that it was given.
    pub(super) fn into_around(self) -> Attempt<'a> {
        self.around
    }

    /// The status of the response; 0 before it.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Goes on with the exchange until it ends.
    ///
    /// # Errors
    /// How it broke off.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<ExchangeEnd, Broken>> {
        let polled = self.poll_all(context);
        self.around
            .poll_end(context, polled, self.waits_for, self.status)
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<ExchangeEnd, Failure>> {
        let mut has_moved = false;
        loop {
            let mut waits = ExchangeWait::Nothing;
            let sends = self.poll_request(context, &mut waits)?;
            // Of a request that was sent to its end nothing more can move.
            let mut moves = sends && !self.around.outgoing.is_sent();
            moves |= self.poll_response(context, &mut waits)?;
            let was_full = !self.peer.has_room();
            match self.peer.poll_flush(context) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending => waits = ExchangeWait::ClientRead,
            }
            // Room that was just made is a reason to read on, which nobody would wake us for.
            moves |= was_full && self.peer.has_room();
            if waits != ExchangeWait::ClientRead
                && let Some(end) = self.end()
            {
                return Poll::Ready(Ok(end));
            }
            has_moved |= sends || moves;
            self.hold();
            if !moves {
                if has_moved || waits != self.waits_for {
                    self.waits_for = waits;
                    let taken = self.peer.taken();
                    self.around.wait_for(waits, self.status != 0, taken);
                }
                return Poll::Pending;
            }
        }
    }

    /// Tells how much is held for the request.
    fn hold(&mut self) {
        let incoming = self.incoming.as_ref().map_or(0, Buffer::capacity);
        let below = self.connection.stream.memory();
        self.around.hold(self.peer, incoming, below);
    }

    /// The end, once there is one. An answer that is complete ends the exchange, whether or not
    /// the request is.
    fn end(&mut self) -> Option<ExchangeEnd> {
        match self.response {
            Response::Head(_) | Response::Body(_) => None,
            Response::Switched => Some(ExchangeEnd::Switched(self.incoming.take())),
            Response::Refused(is_read) => Some(ExchangeEnd::Refused {
                is_reusable: is_read && self.is_reusable(),
            }),
            Response::Done => Some(ExchangeEnd::Done {
                is_reusable: self.incoming.is_none() && self.is_reusable(),
                is_request_done: self.around.outgoing.is_complete(),
            }),
        }
    }

    /// Whether the connection can serve again, as far as the request goes.
    fn is_reusable(&self) -> bool {
        let is_sent = self.around.outgoing.is_sent() && self.connection.stream.is_sent();
        self.keep_alive && is_sent && !self.is_refused
    }

    /// Passes on the request, as far as either end goes along.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut ExchangeWait,
    ) -> Result<bool, Failure> {
        if self.is_refused {
            return Ok(false);
        }
        let mut moves = false;
        let waits_for_body = self.around.waits_for_body(self.interims);
        let Attempt {
            outgoing,
            plan,
            worker,
            ..
        } = &mut self.around;
        if !outgoing.is_complete() && outgoing.has_room() {
            let peer = &mut *self.peer;
            let extended = outgoing.poll_extend(|body| {
                let is_complete = ready!(peer.poll_body(context, plan.encoder, body))?;
                if is_complete {
                    let trailers = peer.take_trailers().and_then(|it| plan.trailers(it));
                    plan.encoder.end_with(trailers.as_ref(), body);
                }
                Poll::Ready(Ok::<bool, FailureKind>(is_complete))
            });
            match extended {
                Poll::Ready(Ok(())) => moves = true,
                Poll::Ready(Err(kind)) => return Err(kind.into()),
                Poll::Pending => *waits = waits_for_body,
            }
            if outgoing.is_complete() {
                mirror::start(worker, plan, outgoing);
            }
        }
        // Nobody else sends what the socket did not take of the last record.
        if !outgoing.is_pending() && self.connection.stream.is_sent() {
            if outgoing.is_complete() && *waits == ExchangeWait::Nothing {
                *waits = ExchangeWait::EndpointRead;
            }
            return Ok(moves);
        }
        match outgoing.poll_send(context, &mut self.connection.stream) {
            Poll::Ready(Ok(())) => {
                moves = true;
                if outgoing.is_complete() {
                    *waits = ExchangeWait::EndpointRead;
                }
            }
            // What the endpoint said before it closed is still to be read: perhaps an answer.
            Poll::Ready(Err(_)) => self.is_refused = true,
            Poll::Pending => *waits = ExchangeWait::EndpointWrite,
        }
        Ok(moves)
    }

    /// Passes on the response, as far as either end goes along.
    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut ExchangeWait,
    ) -> Result<bool, Failure> {
        if self.poll_turn(context).is_pending() {
            waits.read_endpoint();
            return Ok(false);
        }
        let mut moves = false;
        while matches!(self.response, Response::Head(_) | Response::Body(_)) {
            if !self.peer.has_room() {
                break;
            }
            if self.poll_work(context).is_pending() {
                waits.read_endpoint();
                break;
            }
            if self.incoming.is_some() && self.read_incoming()? {
                moves = true;
                continue;
            }
            let (stream, room) = (&mut self.connection.stream, self.peer.room());
            match stream.poll_fill_part(context, &mut self.incoming, room) {
                Poll::Pending => {
                    waits.read_endpoint();
                    break;
                }
                Poll::Ready(Ok(count)) if count > 0 => moves = true,
                Poll::Ready(ended) => {
                    self.read_end(ended.is_ok())?;
                    moves = true;
                }
            }
        }
        Ok(moves)
    }

    /// Ready unless something of a head is there, and the upstream's namespace has had its turn.
    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_head = matches!(self.response, Response::Head(_)) && self.peer.has_room();
        if !is_head || !self.connection.stream.may_have_input() {
            return Poll::Ready(());
        }
        self.around.poll_turn(context)
    }

    /// Ready unless what came before was in very small chunks, and others have their turn now.
    fn poll_work(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(());
        };
        let around = &self.around;
        work.poll_turn(context, |context| around.poll_turn(context))
    }

    /// Makes use of what was read; false where more is needed first.
    fn read_incoming(&mut self) -> Result<bool, Failure> {
        match &self.response {
            Response::Head(finder) => {
                let mut finder = *finder;
                let bytes = self.incoming.as_ref().map_or(&[][..], Buffer::filled);
                let found = finder.find(bytes);
                let found = found.map_err(|_| FailureKind::BadResponse)?;
                let local = &self.around.worker.local;
                let length_max = local.limits.response_head_bytes_max;
                match found {
                    Some(length) if length <= length_max => {
                        self.read_head(length)?;
                        Ok(true)
                    }
                    None if bytes.len() <= length_max => {
                        self.response = Response::Head(finder);
                        Ok(false)
                    }
                    _ => {
                        local.counts.add_reached(Reached::ResponseHeadBytes);
                        Err(FailureKind::BadResponse.into())
                    }
                }
            }
            Response::Body(_) => self.read_body(),
            Response::Done | Response::Switched | Response::Refused(_) => Ok(false),
        }
    }

    fn read_head(&mut self, length: usize) -> Result<(), Failure> {
        let Some(mut incoming) = self.incoming.take() else {
            return Err(FailureKind::Internal.into());
        };
        let bytes = incoming.filled().get(..length).unwrap_or_default();
        let local = &self.around.worker.local;
        self.around.spend_head(length);
        let head = response::parse(bytes, &local.limits);
        let head = head.map_err(|it| local.counts.malformed(it, FailureKind::BadResponse))?;
        let plan = self.around.plan;
        match head.status {
            101 if plan.is_upgrade => {
                self.status = 101;
                self.peer
                    .start(&head, BodyLength::None, &plan.changes(101))?;
                self.response = Response::Switched;
            }
            100..200 => {
                if self.interims.take(head.status, plan)? {
                    self.peer.interim(&head)?;
                }
                self.response = Response::Head(HeadFinder::default());
            }
            _ => self.begin(&head, incoming.len() - length)?,
        }
        drop(head);
        incoming.consume(length);
        self.incoming = (!incoming.is_empty()).then(|| incoming.fitted());
        Ok(())
    }

    /// Begins the response, of which `rest` bytes beyond the head are there, or leaves it for a
    /// repetition or a page.
    fn begin(&mut self, head: &ResponseHead<'_>, rest: usize) -> Result<(), Failure> {
        self.around.note_response(head.status);
        let Attempt {
            plan,
            worker,
            pool,
            outgoing,
            tries,
            timers,
            ..
        } = &mut self.around;
        let body = head.body_for(plan.is_head);
        self.keep_alive = head.keep_alive;
        let event = Event::Response {
            status: head.status,
            fields: &head.fields,
        };
        let is_repeated = outgoing.is_whole() && tries.take(worker, plan, pool, event);
        if is_repeated || tries.replaces(plan, head.status) {
            let is_read = match body {
                BodyLength::None => rest == 0,
                BodyLength::Exact(length) => rest as u64 == length,
                BodyLength::Chunked | BodyLength::UntilClose => false,
            };
            self.response = Response::Refused(is_read);
            return Ok(());
        }
        timers.answer();
        if plan.has_to_upgrade && matches!(head.status, 200..300) {
            return Err(FailureKind::NoUpgrade.into());
        }
        // Only a copy may still need what has come.
        if plan.mirrors.is_empty() || outgoing.is_complete() {
            outgoing.let_go();
        }
        self.status = head.status;
        self.peer.start(head, body, &plan.changes(head.status))?;
        let decoder = BodyDecoder::limited(body, &worker.local.limits);
        if decoder.is_done() {
            self.peer.end(None);
            self.response = Response::Done;
        } else {
            self.response = Response::Body(decoder);
        }
        Ok(())
    }

    fn read_body(&mut self) -> Result<bool, Failure> {
        let (Response::Body(decoder), Some(incoming)) = (&mut self.response, &mut self.incoming)
        else {
            return Ok(false);
        };
        let counts = &self.around.worker.local.counts;
        let joined = decoder.join(incoming, BUFFER_BYTES);
        let joined = joined.map_err(|it| counts.malformed(it, FailureKind::BadResponse))?;
        if joined.length > 0 {
            self.peer.data(joined.bytes(incoming));
        }
        incoming.consume(joined.consumed);
        if incoming.is_empty() {
            self.incoming = None;
        }
        if decoder.is_done() {
            self.peer.end(decoder.take_trailers());
            self.response = Response::Done;
        }
        self.note_work(joined.work);
        Ok(joined.consumed > 0)
    }

    /// Takes note of the work of framing, unless reading it took longer.
    fn note_work(&mut self, bytes: usize) {
        if bytes < UNIT_BYTES {
            return;
        }
        let work = self.work.get_or_insert_default();
        if let Some(charged) = work.note(bytes) {
            self.around.spend_framing(charged);
        }
    }

    /// The endpoint sends no more.
    fn read_end(&mut self, is_clean: bool) -> Result<(), Failure> {
        self.keep_alive = false;
        match &self.response {
            Response::Body(decoder) if decoder.is_until_close() && is_clean => {
                self.peer.end(None);
                self.response = Response::Done;
                Ok(())
            }
            Response::Head(_) if self.incoming.is_none() && self.interims.is_empty() => {
                Err(Failure::of(FailureKind::UpstreamClosed).retry(Retry::IfReused))
            }
            _ => Err(FailureKind::UpstreamClosed.into()),
        }
    }
}
