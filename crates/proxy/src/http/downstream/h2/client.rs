//! The client's end of a stream of HTTP/2.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::Active;
use super::streams::{Gone, Handle};
use crate::admission::spaces::Spots;
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::{BUFFER_BYTES, Buffer, decimal};
use crate::codec::frame::Reason;
use crate::codec::hpack;
use crate::codec::response::ResponseHead;
use crate::codec::trailer::{self, GRPC_STATUS, Trailers};
use crate::codec::websocket;
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::answer::LocalReply;
use crate::http::downstream::{Downstream, GiveUp, trailers_of_request};
use crate::http::peer::{Peer, ResponseChanges};
use crate::http::worker::Worker;
use crate::http::write::response_fields;
use crate::net::duplex::Flow;
use crate::route::downstream_connection::DownstreamConnection;

/// The most of a response that is read at once while its client takes none.
const WAITING_BYTES: usize = 4 << 10;

/// The client's end of a stream.
pub(super) struct H2Client {
    worker: Rc<Worker>,
    handle: Handle,
    body_bytes_max: u64,
    /// Whether the method is HEAD.
    is_head: bool,
    /// Whether a success would tell the client that the protocol was changed.
    has_to_upgrade: bool,
    /// Bytes that windows and room do not allow to be sent yet.
    waiting: Option<Buffer>,
    /// The head of the response was sent.
    is_begun: bool,
    is_ended: bool,
    /// Trailers that came behind the body of the request.
    received: Option<Trailers>,
    /// Trailers that go behind the body of the response.
    trailers: Option<Trailers>,
    /// The end of the response was sent.
    is_closed: bool,
    bytes_received: u64,
    bytes_sent: u64,
    /// The status of the response as gRPC has it; empty for none.
    grpc_status: &'static str,
    active: Active,
}

impl From<Gone> for FailureKind {
    fn from(_: Gone) -> Self {
        FailureKind::ClientGone
    }
}

impl H2Client {
    /// The end of a stream whose head was read.
    pub(super) fn new(
        worker: Rc<Worker>,
        (handle, active): (Handle, Active),
        body_bytes_max: u64,
        is_head: bool,
        has_to_upgrade: bool,
    ) -> Self {
        H2Client {
            worker,
            handle,
            body_bytes_max,
            is_head,
            has_to_upgrade,
            waiting: None,
            is_begun: false,
            is_ended: false,
            received: None,
            trailers: None,
            is_closed: false,
            bytes_received: 0,
            bytes_sent: 0,
            grpc_status: "",
            active,
        }
    }

    fn put_answer(&mut self, answer: &LocalReply) -> Result<(), FailureKind> {
        let has_body = answer.has_body();
        let is_empty = !has_body || self.is_head || answer.body().is_empty();
        self.send_head(is_empty, |out| {
            hpack::status(answer.status, out);
            answer.fields(|name, value| hpack::field(name, value, out));
            if has_body {
                content_length(answer.body().len() as u64, out);
            }
        })?;
        self.grpc_status = answer.grpc_status;
        if is_empty {
            self.end(None);
        }
        Ok(())
    }

    /// The stream as it carries another protocol, once its head was answered.
    pub(super) fn into_carrier(mut self) -> TunnelStream {
        self.handle.hold(0, 0);
        TunnelStream {
            handle: self.handle,
            is_closed: self.is_closed,
            _active: self.active,
        }
    }

    fn send_head(
        &mut self,
        is_end: bool,
        pack: impl FnOnce(&mut Buffer),
    ) -> Result<(), FailureKind> {
        self.handle.head(is_end, pack)?;
        self.is_begun = true;
        self.is_closed = is_end;
        Ok(())
    }
}

impl Downstream for H2Client {
    fn understands(&self, answer: &LocalReply) -> bool {
        !(self.has_to_upgrade && matches!(answer.status, 200..300))
    }

    /// Its head waits until there is room for it.
    fn begin_answer(&mut self, _: &LocalReply) {}

    /// Gives the head once there is room for it, then of the body as much at a time as may be
    /// sent, and the rest of it stays where it is.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        answer: &LocalReply,
    ) -> Poll<Result<(), FailureKind>> {
        if !self.is_begun {
            ready!(self.handle.poll_room(context))?;
            self.put_answer(answer)?;
        }
        if !self.is_ended {
            let sent = usize::try_from(self.bytes_sent).unwrap_or(usize::MAX);
            let rest = answer.body().get(sent..).unwrap_or_default();
            let taken = self.handle.data(rest)?;
            self.bytes_sent += taken as u64;
            if taken < rest.len() {
                return self.handle.poll_wait(context).map(|gone| Err(gone.into()));
            }
            self.end(None);
        }
        self.poll_flush(context)
    }

    fn rest(&mut self, _: &DownstreamConnection) {
        self.active.rest();
    }

    fn give_up(&mut self, why: GiveUp) {
        match why {
            // The stream has ended already, and in the way that its end should be told.
            GiveUp::Lost
            | GiveUp::Absent(FailureKind::ClientGone)
            | GiveUp::Broken(FailureKind::ClientGone) => {}
            GiveUp::Stalled | GiveUp::Absent(_) => self.handle.reset(Reason::Cancel),
            GiveUp::Broken(_) => self.handle.reset(Reason::Internal),
        }
    }

    fn tell(&self, account: &mut RequestAccount) {
        account.bytes_sent = self.bytes_sent;
        account.bytes_received = self.bytes_received;
        account.grpc_status = self.grpc_status;
    }
}

impl Peer for H2Client {
    fn limit_body(&mut self, bytes_max: u64) {
        self.body_bytes_max = bytes_max;
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        let left = self.body_bytes_max.saturating_sub(self.bytes_received);
        let mut is_too_large = false;
        // What is in the buffer is bounded by who calls this, so the window opens now.
        let taken = self.handle.poll_body(context, out.len(), |data| {
            is_too_large = data.len() as u64 > left;
            if !is_too_large {
                encoder.write(data, out);
            }
        });
        match ready!(taken)? {
            Some(_) if is_too_large => Poll::Ready(Err(FailureKind::BodyTooLarge)),
            Some(count) => {
                self.bytes_received += count as u64;
                Poll::Ready(Ok(false))
            }
            None => {
                let received = self.handle.take_trailers().and_then(trailer::filter);
                self.received = received.and_then(|it| trailers_of_request(&self.worker, it));
                Poll::Ready(Ok(true))
            }
        }
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.received.take()
    }

    fn interim(&mut self, head: &ResponseHead<'_>) -> Result<(), FailureKind> {
        let sent = self.handle.head(false, |out| {
            hpack::status(head.status, out);
            response_fields(head, &ResponseChanges::default(), |name, value| {
                hpack::field(name, value, out);
            });
        });
        Ok(sent?)
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        length: BodyLength,
        changes: &ResponseChanges<'_>,
    ) -> Result<(), FailureKind> {
        if head.status == 101 {
            return self.send_head(false, |out| {
                hpack::status(200, out);
                response_fields(head, &ResponseChanges::default(), |name, value| {
                    // It answers a key that only HTTP/1.1 has.
                    if !name.eq_ignore_ascii_case(websocket::ACCEPT) {
                        hpack::field(name, value, out);
                    }
                });
            });
        }
        let is_empty = matches!(length, BodyLength::None | BodyLength::Exact(0));
        if is_empty {
            let mut fields = head.fields.iter();
            let status = fields.find(|field| field.name.eq_ignore_ascii_case(GRPC_STATUS));
            self.grpc_status = status.map_or("", |field| trailer::grpc_status(field.value));
        }
        let declared = match length {
            BodyLength::Exact(_) => head.declared_length(),
            BodyLength::None if head.status != 204 => head.declared_length(),
            BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
        };
        self.send_head(is_empty, |out| {
            hpack::status(head.status, out);
            response_fields(head, changes, |name, value| hpack::field(name, value, out));
            if let Some(length) = declared {
                content_length(length, out);
            }
        })
    }

    fn has_room(&self) -> bool {
        match &self.waiting {
            // Nobody else's memory is for what this client does not take.
            Some(_) => false,
            None => self.is_begun || self.handle.has_room(),
        }
    }

    fn room(&self) -> usize {
        match self.handle.may_send(BUFFER_BYTES) {
            true => BUFFER_BYTES,
            false => WAITING_BYTES,
        }
    }

    fn belong(&mut self, space: Spots) {
        self.handle.belong(space);
    }

    fn space(&self) -> Spots {
        self.handle.space()
    }

    fn hold(&mut self, bytes: usize, below: usize) -> bool {
        let waiting = self.waiting.as_ref().map_or(0, Buffer::capacity);
        let trailers = self.trailers.as_ref().map_or(0, trailer::memory);
        self.handle.hold(bytes + waiting + trailers, below)
    }

    fn taken(&self) -> u64 {
        let waiting = self.waiting.as_ref().map_or(0, Buffer::len);
        self.bytes_sent.saturating_sub(waiting as u64)
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes_sent += data.len() as u64;
        let taken = match self.waiting {
            // Who is gone is told so when this is sent.
            None => self.handle.data(data).unwrap_or_default(),
            Some(_) => 0,
        };
        if let Some(rest) = data.get(taken..)
            && !rest.is_empty()
        {
            self.waiting.get_or_insert_with(Buffer::none).append(rest);
        }
    }

    fn end(&mut self, trailers: Option<Trailers>) {
        self.is_ended = true;
        let status = trailers.as_ref().and_then(|it| it.get(GRPC_STATUS));
        if let Some(status) = status {
            self.grpc_status = trailer::grpc_status(status.as_bytes());
        }
        self.trailers = trailers;
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        if let Some(waiting) = &mut self.waiting {
            let taken = self.handle.data(waiting.filled())?;
            waiting.consume(taken);
            if !waiting.is_empty() {
                return self.handle.poll_wait(context).map(|gone| Err(gone.into()));
            }
            self.waiting = None;
        }
        if !self.is_begun {
            return self.handle.poll_room(context).map_err(FailureKind::from);
        }
        if self.is_ended && !self.is_closed {
            if self.trailers.is_some() {
                ready!(self.handle.poll_room(context))?;
            }
            match self.trailers.take() {
                Some(trailers) => self.handle.head(true, |out| {
                    for (name, value) in &*trailers {
                        hpack::field(name.as_str(), value.as_bytes(), out);
                    }
                })?,
                None => self.handle.end()?,
            }
            self.is_closed = true;
        }
        if !self.is_closed && self.handle.poll_gone(context).is_ready() {
            return Poll::Ready(Err(FailureKind::ClientGone));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.handle.poll_gone(context)
    }
}

fn content_length(length: u64, out: &mut Buffer) {
    hpack::field("content-length", decimal(length, &mut [0; 20]), out);
}

/// A stream that carries another protocol.
pub(super) struct TunnelStream {
    handle: Handle,
    is_closed: bool,
    _active: Active,
}

impl Flow for TunnelStream {
    const COUNTS: bool = true;

    fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Option<Buffer>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        // No more is read before this is written, so the window opens now.
        let taken = self.handle.poll_data(context, room, |data| {
            let buffer = buffer.get_or_insert_with(|| Buffer::with_room(room));
            buffer.append(data);
        });
        let taken = ready!(taken).map_err(|Gone| io::ErrorKind::ConnectionReset)?;
        Poll::Ready(Ok(taken.unwrap_or(0)))
    }

    fn poll_drain(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
    ) -> Poll<io::Result<()>> {
        let taken = self.handle.data(buffer.filled());
        buffer.consume(taken.map_err(|Gone| io::ErrorKind::BrokenPipe)?);
        if buffer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let wait = self.handle.poll_wait(context);
        wait.map(|Gone| Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only a stream that is asked tells that the other end has reset it.
        if !self.is_closed && self.handle.poll_gone(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_closed {
            let sent = self.handle.end();
            sent.map_err(|Gone| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.is_closed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn hold(&mut self, bytes: usize) {
        self.handle.hold(bytes, 0);
    }
}
