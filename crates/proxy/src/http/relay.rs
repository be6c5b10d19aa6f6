//! The bytes of one exchange, both ways at once, over one connection to an endpoint.
//!
//! Nothing here waits for one direction while the other could go on: a response may come before
//! the request is complete, and either end may be slow. What is kept in memory is bounded in each
//! direction, and a full buffer stops the reading that would fill it further.

use std::task::{Context, Poll};
use std::time::Duration;

use super::peer::Peer;
use super::plan::Forward;
use super::worker::Worker;
use crate::net::body::{BodyLength, Decoder};
use crate::net::buffer::{BUFFER_BYTES, Buffer};
use crate::net::deadline::Deadline;
use crate::net::failure::{Failure, FailureKind, Retry};
use crate::net::head::Finder;
use crate::net::response;
use crate::net::stream::Stream;
use crate::upstream::link::Link;

/// What goes to an endpoint. The start of a request is kept until it is known that it need not
/// be sent again.
pub struct Outgoing {
    buffer: Buffer,
    sent: usize,
    has_body: bool,
    /// Some of it was dropped after it had been sent.
    is_cut: bool,
}

/// How an exchange ended.
pub enum End {
    /// The response is complete.
    Done {
        /// Whether the connection to the endpoint can serve again.
        is_reusable: bool,
        /// Whether the request was read to its end.
        is_request_done: bool,
    },
    /// The endpoint changed the protocol; what it said beyond its head.
    Switched(Option<Buffer>),
}

/// How an exchange broke off.
#[derive(Debug)]
pub struct Broken {
    /// Why.
    pub failure: Failure,
    /// Whether the response had begun.
    pub is_started: bool,
}

/// One exchange over one connection.
pub struct Relay<'a, P> {
    worker: &'a Worker,
    plan: &'a Forward,
    peer: &'a mut P,
    link: &'a mut Link,
    outgoing: &'a mut Outgoing,
    deadline: &'a Deadline,
    incoming: Option<Buffer>,
    response: Response,
    status: u16,
    is_request_done: bool,
    /// The endpoint takes no more of the request; it may still answer.
    is_refused: bool,
    keep_alive: bool,
    waits_for: Waits,
}

enum Response {
    Head(Finder),
    Body(Decoder),
    Done,
    Switched,
}

/// What the exchange waits for, which says how long it may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    ClientBody,
    ClientRead,
    EndpointRead,
    EndpointWrite,
}

impl Outgoing {
    /// A request that begins with a head.
    pub fn new(head: Buffer) -> Self {
        Outgoing {
            buffer: head,
            sent: 0,
            has_body: false,
            is_cut: false,
        }
    }

    /// Whether all of it is still there, to be sent again.
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Whether none of it was sent.
    pub fn is_unsent(&self) -> bool {
        self.sent == 0 && !self.is_cut
    }

    /// Begins anew, on another connection.
    pub fn rewind(&mut self) {
        self.sent = 0;
    }

    fn is_pending(&self) -> bool {
        self.sent < self.buffer.len()
    }

    fn has_room(&self) -> bool {
        self.buffer.len() - self.sent < BUFFER_BYTES
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<std::io::Result<()>> {
        while self.is_pending() {
            let rest = self.buffer.filled().get(self.sent..).unwrap_or_default();
            match stream.poll_write(context, rest) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
                }
                Poll::Ready(Ok(count)) => self.sent += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.has_body {
            self.buffer.clear();
            self.sent = 0;
            self.is_cut = true;
        }
        stream.poll_send(context)
    }
}

impl<'a, P: Peer> Relay<'a, P> {
    /// An exchange over a connection.
    pub fn new(
        worker: &'a Worker,
        plan: &'a Forward,
        peer: &'a mut P,
        link: &'a mut Link,
        outgoing: &'a mut Outgoing,
        deadline: &'a Deadline,
    ) -> Self {
        Relay {
            worker,
            peer,
            link,
            outgoing,
            deadline,
            incoming: None,
            response: Response::Head(Finder::default()),
            status: 0,
            is_request_done: !plan.has_body,
            is_refused: false,
            keep_alive: true,
            waits_for: Waits::Nothing,
            plan,
        }
    }

    /// The status of the response; 0 before it.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Goes on with the exchange until it ends.
    ///
    /// # Errors
    /// How it broke off.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<End, Broken>> {
        match self.poll_all(context) {
            Poll::Ready(Ok(end)) => Poll::Ready(Ok(end)),
            Poll::Ready(Err(failure)) => Poll::Ready(Err(self.broken(failure))),
            Poll::Pending => match self.deadline.poll_passed(context) {
                Poll::Ready(()) => {
                    let failure = self.timeout().into();
                    Poll::Ready(Err(self.broken(failure)))
                }
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn broken(&self, failure: Failure) -> Broken {
        Broken {
            failure,
            is_started: self.status != 0,
        }
    }

    fn poll_all(&mut self, context: &mut Context<'_>) -> Poll<Result<End, Failure>> {
        let mut has_moved = false;
        loop {
            let mut waits = Waits::Nothing;
            let mut moves = self.poll_request(context, &mut waits)?;
            moves |= self.poll_response(context, &mut waits)?;
            let was_full = !self.peer.has_room();
            match self.peer.poll_flush(context) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending => waits = Waits::ClientRead,
            }
            // Room that was just made is a reason to read on, which nobody would wake us for.
            moves |= was_full && self.peer.has_room();
            if waits != Waits::ClientRead
                && let Some(end) = self.end()
            {
                return Poll::Ready(Ok(end));
            }
            has_moved |= moves;
            if !moves {
                if has_moved || waits != self.waits_for {
                    self.waits_for = waits;
                    self.deadline.set(self.patience());
                }
                return Poll::Pending;
            }
        }
    }

    /// The end, once there is one. An answer that is complete ends the exchange, whether or not
    /// the request is.
    fn end(&mut self) -> Option<End> {
        match self.response {
            Response::Head(_) | Response::Body(_) => None,
            Response::Switched => Some(End::Switched(self.incoming.take())),
            Response::Done => {
                let is_clean = self.incoming.is_none() && !self.outgoing.is_pending();
                Some(End::Done {
                    is_reusable: self.keep_alive
                        && is_clean
                        && self.is_request_done
                        && !self.is_refused,
                    is_request_done: self.is_request_done,
                })
            }
        }
    }

    /// Passes on the request, as far as either end goes along.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut Waits,
    ) -> Result<bool, Failure> {
        if self.is_refused {
            return Ok(false);
        }
        let mut moves = false;
        if !self.is_request_done && self.outgoing.has_room() {
            let body = &mut self.outgoing.buffer;
            let before = body.len();
            match self.peer.poll_body(context, self.plan.encoder, body) {
                Poll::Ready(Ok(is_done)) => {
                    self.is_request_done = is_done;
                    moves = true;
                }
                Poll::Ready(Err(kind)) => return Err(kind.into()),
                Poll::Pending => *waits = Waits::ClientBody,
            }
            self.outgoing.has_body |= self.outgoing.buffer.len() > before;
        }
        if !self.outgoing.is_pending() {
            if self.is_request_done && *waits == Waits::Nothing {
                *waits = Waits::EndpointRead;
            }
            return Ok(moves);
        }
        match self.outgoing.poll_send(context, &mut self.link.stream) {
            Poll::Ready(Ok(())) => {
                moves = true;
                if self.is_request_done {
                    *waits = Waits::EndpointRead;
                }
            }
            // What the endpoint said before it closed is still to be read: perhaps an answer.
            Poll::Ready(Err(_)) => self.is_refused = true,
            Poll::Pending => *waits = Waits::EndpointWrite,
        }
        Ok(moves)
    }

    /// Passes on the response, as far as either end goes along.
    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut Waits,
    ) -> Result<bool, Failure> {
        let mut moves = false;
        while !matches!(self.response, Response::Done | Response::Switched) {
            if !self.peer.has_room() {
                break;
            }
            if self.incoming.is_some() && self.read_incoming()? {
                moves = true;
                continue;
            }
            match self.link.stream.poll_fill(context, &mut self.incoming) {
                Poll::Pending => {
                    if *waits == Waits::Nothing {
                        *waits = Waits::EndpointRead;
                    }
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

    /// Makes use of what was read; false where more is needed first.
    fn read_incoming(&mut self) -> Result<bool, Failure> {
        match &self.response {
            Response::Head(finder) => {
                let mut finder = *finder;
                let bytes = self.incoming.as_ref().map_or(&[][..], Buffer::filled);
                let found = finder.find(bytes);
                let found = found.map_err(|_| FailureKind::BadResponse)?;
                let length_max = self.worker.local.limits.head_bytes_max;
                match found {
                    Some(length) if length <= length_max => {
                        self.read_head(length)?;
                        Ok(true)
                    }
                    None if bytes.len() <= length_max => {
                        self.response = Response::Head(finder);
                        Ok(false)
                    }
                    _ => Err(FailureKind::BadResponse.into()),
                }
            }
            Response::Body(_) => self.read_body(),
            Response::Done | Response::Switched => Ok(false),
        }
    }

    fn read_head(&mut self, length: usize) -> Result<(), Failure> {
        let Some(mut incoming) = self.incoming.take() else {
            return Err(FailureKind::Internal.into());
        };
        let bytes = incoming.filled().get(..length).unwrap_or_default();
        let head = response::parse(bytes, &self.worker.local.limits)?;
        match head.status {
            101 if self.plan.is_upgrade => {
                self.status = 101;
                self.peer
                    .start(&head, BodyLength::None, &self.plan.additions)?;
                self.response = Response::Switched;
            }
            101 => return Err(FailureKind::BadResponse.into()),
            // A client that did not ask would not know what to do with it.
            100 if !self.plan.expects_continue => self.response = Response::Head(Finder::default()),
            100..200 => {
                self.peer.interim(&head)?;
                self.response = Response::Head(Finder::default());
            }
            status => {
                let body = head.body_for(self.plan.is_head);
                self.keep_alive = head.keep_alive;
                self.status = status;
                self.peer.start(&head, body, &self.plan.additions)?;
                let decoder = Decoder::new(body);
                if decoder.is_done() {
                    self.peer.end();
                    self.response = Response::Done;
                } else {
                    self.response = Response::Body(decoder);
                }
            }
        }
        drop(head);
        incoming.consume(length);
        self.incoming = (!incoming.is_empty()).then_some(incoming);
        Ok(())
    }

    fn read_body(&mut self) -> Result<bool, Failure> {
        let (Response::Body(decoder), Some(incoming)) = (&mut self.response, &mut self.incoming)
        else {
            return Ok(false);
        };
        let mut moves = false;
        while !incoming.is_empty() && !decoder.is_done() && self.peer.has_room() {
            let step = decoder.step(incoming.filled());
            let step = step.map_err(|_| FailureKind::BadResponse)?;
            self.peer.data(step.data);
            let consumed = step.consumed;
            incoming.consume(consumed);
            moves = true;
        }
        if incoming.is_empty() {
            self.incoming = None;
        }
        if decoder.is_done() {
            self.peer.end();
            self.response = Response::Done;
        }
        Ok(moves)
    }

    /// The endpoint sends no more.
    fn read_end(&mut self, is_clean: bool) -> Result<(), Failure> {
        self.keep_alive = false;
        match &self.response {
            Response::Body(decoder) if decoder.is_until_close() && is_clean => {
                self.peer.end();
                self.response = Response::Done;
                Ok(())
            }
            Response::Head(_) if self.incoming.is_none() => {
                Err(Failure::of(FailureKind::UpstreamClosed).retry(Retry::IfReused))
            }
            _ => Err(FailureKind::UpstreamClosed.into()),
        }
    }

    fn patience(&self) -> Duration {
        let limits = &self.worker.local.limits;
        let policy = self.plan.policy();
        let of_policy =
            |time: fn(&myriad_model::Policy) -> Duration| policy.map_or(limits.write_timeout, time);
        match self.waits_for {
            Waits::ClientBody => limits.body_timeout,
            Waits::ClientRead => limits.write_timeout,
            Waits::EndpointWrite => of_policy(|policy| policy.send_timeout),
            Waits::EndpointRead | Waits::Nothing => of_policy(|policy| policy.read_timeout),
        }
    }

    fn timeout(&self) -> FailureKind {
        match self.waits_for {
            Waits::ClientBody => FailureKind::BodyTimeout,
            Waits::ClientRead => FailureKind::ClientStalled,
            Waits::EndpointWrite => FailureKind::SendTimeout,
            Waits::EndpointRead | Waits::Nothing => FailureKind::ReadTimeout,
        }
    }
}
