//! One exchange over a stream of HTTP/2 to an endpoint: the same as a relay is over a connection
//! of HTTP/1.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::h2::client::ResponseFuture;
use ::h2::{Reason, SendStream};
use bytes::Bytes;
use http::header::{HeaderValue, UPGRADE};

use super::attempt::{Attempt, Broken, ExchangeEnd, ExchangeWait, Interims};
use super::mirror;
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::endpoint_head::fields_memory;
use crate::codec::field::{Field, KnownField};
use crate::codec::response::{self, ResponseHead};
use crate::codec::trailer;
use crate::codec::websocket;
use crate::failure::{Failure, FailureKind, Retry};
use crate::http::answer::reason;
use crate::http::peer::Peer;
use crate::net::carrier::Carrier;
use crate::net::intake::Intake;
use crate::policy::retry::Event;
use crate::upstream::h2_connection::{H2Stream, WAITING_BYTES_MAX};

mod request;

/// One exchange over one stream.
pub(super) struct Exchange<'a, 'l, P> {
    around: Attempt<'a>,
    peer: &'l mut P,
    stream: &'l mut H2Stream,
    sending: Option<SendStream<Bytes>>,
    response: Response,
    status: u16,
    /// The bytes of the response that have not come yet, as far as its head tells.
    left: u64,
    /// The endpoint takes no more of the request; it may still answer.
    is_refused: bool,
    /// The end of the request was sent.
    is_ended: bool,
    /// The answer to an upgrade of HTTP/1.1; `None` for others. Boxed, because it is rare.
    accept: Option<Box<HeaderValue>>,
    interims: Interims,
    waits_for: ExchangeWait,
}

enum Response {
    /// The request has not begun.
    Unasked,
    Head(ResponseFuture),
    /// The head has come, and the client's end has no room for it, or it has to wait for its turn.
    /// Boxed, because it is rare.
    Waiting(Box<(http::response::Parts, Intake)>),
    Body(Intake),
    /// The stream carries another protocol.
    Carried(Intake),
    Done,
    /// It is not passed on.
    Refused,
}

impl<'a, 'l, P: Peer> Exchange<'a, 'l, P> {
    /// An exchange over a stream of a connection.
    pub(super) fn new(around: Attempt<'a>, peer: &'l mut P, stream: &'l mut H2Stream) -> Self {
        Exchange {
            around,
            peer,
            stream,
            sending: None,
            response: Response::Unasked,
            status: 0,
            left: u64::MAX,
            is_refused: false,
            is_ended: false,
            accept: None,
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
            let mut moves = self.poll_request(context, &mut waits)?;
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
            has_moved |= moves;
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

    /// Tells how much is held for the request: where the client takes nothing, as much as the
    /// endpoint may send before it waits.
    fn hold(&mut self) {
        let (is_coming, head) = match &self.response {
            Response::Waiting(waiting) => (true, fields_memory(&waiting.0.headers)),
            Response::Head(_) | Response::Body(_) => (true, 0),
            _ => (false, 0),
        };
        let below = match is_coming && !self.peer.has_room() {
            true => {
                let window = self.around.worker.local.limits.stream_window_bytes;
                usize::try_from(self.left.min(u64::from(window))).unwrap_or(usize::MAX)
            }
            false => 0,
        };
        self.around.hold(self.peer, head, below);
    }

    /// The end, once there is one.
    fn end(&mut self) -> Option<ExchangeEnd> {
        match std::mem::replace(&mut self.response, Response::Done) {
            Response::Done => Some(ExchangeEnd::Done {
                is_reusable: true,
                is_request_done: self.around.outgoing.is_complete(),
            }),
            Response::Refused => Some(ExchangeEnd::Refused { is_reusable: true }),
            Response::Carried(body) => {
                let sending = self.sending.take()?;
                Some(ExchangeEnd::Carried(Carrier::new(body, sending)))
            }
            unfinished => {
                self.response = unfinished;
                None
            }
        }
    }

    /// Passes on the request, as far as either end goes along.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut ExchangeWait,
    ) -> Result<bool, Failure> {
        if self.is_refused || self.is_ended {
            *waits = ExchangeWait::EndpointRead;
            return Ok(false);
        }
        let mut moves = false;
        if matches!(self.response, Response::Unasked) {
            if !self.poll_ask(context)? {
                *waits = ExchangeWait::EndpointWrite;
                return Ok(false);
            }
            moves = true;
        }
        let waits_for_body = self.around.waits_for_body(self.interims);
        let Attempt {
            outgoing,
            plan,
            worker,
            ..
        } = &mut self.around;
        if !outgoing.is_complete() && outgoing.has_room() {
            let peer = &mut *self.peer;
            match outgoing.poll_extend(|body| peer.poll_body(context, Encoder::Plain, body)) {
                Poll::Ready(Ok(())) => moves = true,
                Poll::Ready(Err(kind)) => return Err(kind.into()),
                Poll::Pending => *waits = waits_for_body,
            }
            if outgoing.is_complete() {
                outgoing.trailers = peer.take_trailers().and_then(|it| plan.trailers(it));
                mirror::start(worker, plan, outgoing);
            }
        }
        moves |= self.poll_send(context, waits);
        if *waits == ExchangeWait::Nothing && self.is_ended {
            *waits = ExchangeWait::EndpointRead;
        }
        Ok(moves)
    }

    /// Begins the stream; false where the connection has no room for it yet.
    fn poll_ask(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        match self.stream.send.poll_ready(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(self.failed(&error)),
            Poll::Ready(Ok(())) => {}
        }
        let Attempt { outgoing, plan, .. } = &mut self.around;
        if plan.is_upgrade && !self.stream.send.is_extended_connect_protocol_enabled() {
            return Err(FailureKind::NoUpgrade.into());
        }
        let mut request = outgoing.ask().ok_or(FailureKind::Internal)?;
        if plan.is_upgrade {
            self.accept = request::extend(&mut request).map(Box::new);
        }
        // What is sent again may be complete from the start.
        let has_more = outgoing.is_pending() || outgoing.trailers.is_some();
        let is_end = outgoing.is_complete() && !has_more && !plan.is_upgrade;
        match self.stream.send.send_request(request, is_end) {
            Ok((response, sending)) => {
                self.is_ended = is_end;
                self.response = Response::Head(response);
                self.sending = Some(sending);
                Ok(true)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Sends what waits of the body, as far as the endpoint's window goes; whether any of it was.
    fn poll_send(&mut self, context: &mut Context<'_>, waits: &mut ExchangeWait) -> bool {
        let (outgoing, Some(sending)) = (&mut self.around.outgoing, &mut self.sending) else {
            return false;
        };
        // What follows the head of an upgrade is no request, and not for us to end.
        let is_upgrade = self.around.plan.is_upgrade;
        let mut moves = false;
        while outgoing.is_pending() {
            let waiting = outgoing.unsent();
            sending.reserve_capacity(waiting.len().min(WAITING_BYTES_MAX));
            let granted = match sending.capacity() {
                0 => match sending.poll_capacity(context) {
                    Poll::Pending => {
                        *waits = ExchangeWait::EndpointWrite;
                        return moves;
                    }
                    // The window may have gone to other streams in the meantime.
                    Poll::Ready(Some(Ok(0))) => continue,
                    Poll::Ready(Some(Ok(granted))) => granted,
                    // What the endpoint said before is still to be read: perhaps an answer.
                    Poll::Ready(_) => {
                        self.is_refused = true;
                        return moves;
                    }
                },
                granted => granted,
            };
            let part = waiting.get(..granted).unwrap_or(waiting);
            let length = part.len();
            let is_rest = outgoing.is_complete() && length == waiting.len();
            let is_last = is_rest && outgoing.trailers.is_none();
            if sending
                .send_data(Bytes::copy_from_slice(part), is_last)
                .is_err()
            {
                self.is_refused = true;
                return moves;
            }
            outgoing.pass(length);
            self.is_ended = is_last;
            moves = true;
        }
        if outgoing.is_complete() && !self.is_ended && !is_upgrade {
            let sent = match &outgoing.trailers {
                Some(trailers) => sending.send_trailers((**trailers).clone()),
                None => sending.send_data(Bytes::new(), true),
            };
            self.is_refused = sent.is_err();
            self.is_ended = true;
            return true;
        }
        // Only a stream that is asked tells that the endpoint takes no more of it.
        if !self.is_ended && sending.poll_reset(context).is_ready() {
            self.is_refused = true;
            return true;
        }
        moves
    }

    /// Passes on the response, as far as either end goes along.
    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
        waits: &mut ExchangeWait,
    ) -> Result<bool, Failure> {
        let mut moves = false;
        loop {
            if !self.peer.has_room() {
                self.take_ahead(context)?;
                break;
            }
            let polled = match &mut self.response {
                Response::Head(_) => self.poll_head(context)?,
                Response::Waiting(_) => self.answer(context)?,
                Response::Body(_) => self.poll_body(context)?,
                Response::Unasked | Response::Carried(_) | Response::Done | Response::Refused => {
                    break;
                }
            };
            if polled.is_pending() {
                if *waits == ExchangeWait::Nothing {
                    *waits = ExchangeWait::EndpointRead;
                }
                break;
            }
            moves = true;
        }
        Ok(moves)
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        let Response::Head(future) = &mut self.response else {
            return Ok(Poll::Pending);
        };
        if let Poll::Ready(Some(Ok(interim))) = future.poll_informational(context) {
            let status = interim.status().as_u16();
            if self.interims.take(status, self.around.plan)? {
                let head = self.head_of(status, interim.headers(), false)?;
                self.peer.interim(&head)?;
            }
            return Ok(Poll::Ready(()));
        }
        match Pin::new(future).poll(context) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(error)) => Err(self.failed(&error)),
            Poll::Ready(Ok(response)) => {
                let (parts, body) = response.into_parts();
                let mut body = Intake::new(body);
                if self.around.poll_turn(context).is_pending() {
                    body.soak(context);
                    self.response = Response::Waiting(Box::new((parts, body)));
                    return Ok(Poll::Pending);
                }
                self.answered(parts, body)?;
                Ok(Poll::Ready(()))
            }
        }
    }

    /// Begins the response that has waited for room, or for its turn. What comes behind it is taken
    /// meanwhile: the library would keep each frame by itself.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        if self.around.poll_turn(context).is_pending() {
            if let Response::Waiting(waiting) = &mut self.response {
                waiting.1.soak(context);
            }
            return Ok(Poll::Pending);
        }
        match std::mem::replace(&mut self.response, Response::Done) {
            Response::Waiting(waiting) => {
                let (parts, body) = *waiting;
                self.answered(parts, body)?;
            }
            other => self.response = other,
        }
        Ok(Poll::Ready(()))
    }

    fn answered(&mut self, mut parts: http::response::Parts, body: Intake) -> Result<(), Failure> {
        let fields = parts.headers.iter();
        let bytes = fields.map(|(name, value)| name.as_str().len() + value.len());
        self.around.spend_unpacked(bytes.sum(), parts.headers.len());
        if self.around.plan.is_upgrade && parts.status.is_success() {
            return self.carry(&mut parts.headers, body);
        }
        let is_end = body.is_end_stream();
        let head = self.head_of(parts.status.as_u16(), &parts.headers, is_end)?;
        self.begin(&head, body, is_end)
    }

    /// Takes what comes while the client's end has no room: the library would keep it, and it
    /// counts neither heads nor frames. The client does not get to see interim responses then.
    fn take_ahead(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        while let Response::Head(future) = &mut self.response {
            if let Poll::Ready(Some(Ok(interim))) = future.poll_informational(context) {
                let status = interim.status().as_u16();
                self.interims.take(status, self.around.plan)?;
                continue;
            }
            match Pin::new(future).poll(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(self.failed(&error)),
                Poll::Ready(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    let waiting = Box::new((parts, Intake::new(body)));
                    self.response = Response::Waiting(waiting);
                }
            }
        }
        if let Response::Body(body) | Response::Carried(body) = &mut self.response {
            body.soak(context);
        } else if let Response::Waiting(waiting) = &mut self.response {
            waiting.1.soak(context);
        }
        Ok(())
    }

    /// Begins to carry another protocol, of which HTTP/1.1 tells by fields of its own.
    fn carry(&mut self, headers: &mut http::HeaderMap, body: Intake) -> Result<(), Failure> {
        headers.insert(UPGRADE, HeaderValue::from_static(websocket::PROTOCOL));
        if let Some(accept) = self.accept.take() {
            headers.insert(websocket::ACCEPT, *accept);
        }
        let head = self.head_of(101, headers, false)?;
        self.around.note_response(head.status);
        self.around.timers.end_try();
        let changes = self.around.plan.changes(head.status);
        self.status = head.status;
        self.peer.start(&head, BodyLength::None, &changes)?;
        self.response = Response::Carried(body);
        Ok(())
    }

    fn head_of<'h>(
        &self,
        status: u16,
        headers: &'h http::HeaderMap,
        is_end: bool,
    ) -> Result<ResponseHead<'h>, FailureKind> {
        let fields = headers.iter().map(|(name, value)| Field {
            known: KnownField::of(name.as_str()),
            name: name.as_str(),
            value: value.as_bytes(),
        });
        let local = &self.around.worker.local;
        let head = response::from_http2(status, fields.collect(), is_end, &local.limits);
        let mut head = head.map_err(|it| local.counts.malformed(it, FailureKind::BadResponse))?;
        head.reason = reason(status);
        Ok(head)
    }

    /// Begins the response, or leaves it for a repetition or a page.
    fn begin(
        &mut self,
        head: &ResponseHead<'_>,
        body: Intake,
        is_end: bool,
    ) -> Result<(), Failure> {
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
        let event = Event::Response {
            status: head.status,
            fields: &head.fields,
        };
        let is_repeated = outgoing.is_whole() && tries.take(worker, plan, pool, event);
        if is_repeated || tries.replaces(plan, head.status) {
            self.response = Response::Refused;
            return Ok(());
        }
        timers.answer();
        // Only a copy may still need what has come.
        if plan.mirrors.is_empty() || outgoing.is_complete() {
            outgoing.let_go();
        }
        self.status = head.status;
        let length = head.body_for(plan.is_head);
        if let BodyLength::Exact(length) = length {
            self.left = length;
        }
        self.peer.start(head, length, &plan.changes(head.status))?;
        if is_end || length == BodyLength::None {
            self.peer.end(None);
            self.response = Response::Done;
        } else {
            self.response = Response::Body(body);
        }
        Ok(())
    }

    fn poll_body(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        let Response::Body(body) = &mut self.response else {
            return Ok(Poll::Pending);
        };
        match body.poll_data(context) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Some(Ok(data))) => {
                self.left = self.left.saturating_sub(data.len() as u64);
                // What the client has not taken yet is bounded by who calls this.
                self.peer.data(&data);
                return Ok(Poll::Ready(()));
            }
            Poll::Ready(Some(Err(_))) => return Err(FailureKind::UpstreamClosed.into()),
            Poll::Ready(None) => {}
        }
        match body.poll_trailers(context) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(_)) => Err(FailureKind::UpstreamClosed.into()),
            Poll::Ready(Ok(trailers)) => {
                self.peer
                    .end(trailers.map(Box::new).and_then(trailer::filter));
                self.response = Response::Done;
                Ok(Poll::Ready(()))
            }
        }
    }

    /// The failure that an error before the response means.
    fn failed(&self, error: &::h2::Error) -> Failure {
        let failure = Failure::of(FailureKind::UpstreamClosed);
        let is_gone = error.is_go_away() && error.is_remote();
        let is_ours = error.is_go_away() && !is_gone || self.stream.is_cut();
        if is_gone || is_ours || error.is_io() {
            self.stream.retire();
        }
        match error.reason() {
            _ if !self.interims.is_empty() => failure,
            // The endpoint says that it has not looked at the request (RFC 9113, section 8.7).
            Some(Reason::REFUSED_STREAM) if error.is_remote() => failure.retry(Retry::Yes),
            Some(Reason::NO_ERROR) if is_gone => failure.retry(Retry::Yes),
            _ if is_ours => failure.retry(Retry::IfIdempotent),
            Some(_) => failure,
            None => failure.retry(Retry::IfReused),
        }
    }
}
