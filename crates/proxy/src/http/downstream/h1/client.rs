//! The client's end of a connection of HTTP/1.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::is_empty;
use crate::admission::holdings::{HeldBytes, TUNNEL_BYTES};
use crate::admission::spaces::{NOBODY, Spots};
use crate::codec::body::{BodyDecoder, BodyLength, Encoder};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::codec::head::Version;
use crate::codec::response::ResponseHead;
use crate::codec::trailer::Trailers;
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::answer::LocalReply;
use crate::http::downstream::{Downstream, GiveUp, trailers_of_request};
use crate::http::peer::{Peer, ResponseChanges};
use crate::http::worker::Worker;
use crate::http::write::{self, Framing};
use crate::limits::Reached;
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;

mod passing;

use passing::{Passing, SmallChunks};

/// The most bytes that are thrown away after the last response.
const LINGER_BYTES_MAX: u32 = 256 << 10;

/// The client's end: its stream, what it has sent, and what it has yet to be sent.
pub(super) struct H1Client {
    worker: Rc<Worker>,
    /// The source of the client, by its hash.
    source: u64,
    stream: Stream,
    input: Option<Buffer>,
    output: Option<Buffer>,
    request: H1Request,
    decoder: BodyDecoder,
    /// The turns of bodies in very small chunks, where there were some.
    small_chunks: Option<Box<SmallChunks>>,
    encoder: Encoder,
    /// The trailers of a request.
    trailers: Option<Trailers>,
    keep_alive: bool,
    is_aborted: bool,
    bytes_received: u64,
    bytes_sent: u64,
    lingered: u32,
    held: HeldBytes,
}

/// The properties of a request that the client's end has to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct H1Request {
    /// The version.
    pub version: Version,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// How the body is framed.
    pub length: BodyLength,
    /// The largest body that is taken, in bytes.
    pub body_bytes_max: u64,
    /// Whether the connection may go on after it.
    pub keep_alive: bool,
    /// Whether the client waits for a 100 before it sends the body.
    pub expects_continue: bool,
}

impl H1Request {
    /// A request that could not be read.
    pub(super) fn unread() -> Self {
        H1Request {
            version: Version::Http11,
            is_head: false,
            length: BodyLength::None,
            body_bytes_max: 0,
            keep_alive: false,
            expects_continue: false,
        }
    }
}

impl H1Client {
    /// A client, of a source, that has said this so far.
    pub(super) fn new(
        stream: Stream,
        input: Option<Buffer>,
        source: u64,
        worker: Rc<Worker>,
    ) -> Self {
        H1Client {
            source,
            held: worker.local.fairness.holdings.connection(),
            worker,
            stream,
            input,
            output: None,
            request: H1Request::unread(),
            decoder: BodyDecoder::new(BodyLength::None),
            small_chunks: None,
            encoder: Encoder::Plain,
            trailers: None,
            keep_alive: true,
            is_aborted: false,
            bytes_received: 0,
            bytes_sent: 0,
            lingered: 0,
        }
    }

    /// The source of the client, by its hash.
    pub(super) fn source(&self) -> u64 {
        self.source
    }

    /// The stream, and what was read of it already.
    pub(super) fn into_parts(self) -> (Stream, Option<Buffer>) {
        (self.stream, self.input)
    }

    /// The bytes that were read and not used yet.
    pub(super) fn waiting(&self) -> Option<&[u8]> {
        self.input.as_ref().map(Buffer::filled)
    }

    /// Drops an empty line in front of a head (RFC 9112, section 2.2); whether there was one.
    pub(super) fn skip_empty_line(&mut self) -> bool {
        let has_one = self
            .waiting()
            .is_some_and(|bytes| bytes.starts_with(b"\r\n"));
        if has_one {
            self.consume(2);
        }
        has_one
    }

    /// How many bytes of memory there are of what was not used yet, and not sent.
    pub(super) fn memory(&self) -> usize {
        let [input, output] = [&self.input, &self.output].map(|buffer| buffer.as_ref());
        let own = input.map_or(0, Buffer::capacity) + output.map_or(0, Buffer::capacity);
        own + self.stream.buffered()
    }

    /// Takes note of what is held for half a head, of which nobody knows whose it is. False where
    /// there is no room for more of it, or the connection has to go for another.
    pub(super) fn hold_head(&mut self, bytes: usize, is_first: bool, deadline: &Deadline) -> bool {
        if is_first {
            // What was held for the request before is given back.
            self.held.set(0);
            self.held.belong(NOBODY);
            self.held.watch_head(deadline);
        }
        let grows = bytes > self.held.bytes();
        self.held.set(bytes);
        let has_room = !grows || self.held.may_grow() || self.held.exchange();
        has_room && !self.held.is_evicted()
    }

    /// Half a head is whole by now, or given up, and does not have to go any more.
    pub(super) fn unwatch(&mut self) {
        self.held.unwatch();
    }

    /// Reads more.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_fill(context, &mut self.input)
    }

    /// Begins a request whose head takes `length` of the bytes that wait.
    pub(super) fn begin(&mut self, request: H1Request, length: usize) {
        self.consume(length);
        self.request = request;
        self.trailers = None;
        self.decoder = BodyDecoder::limited(request.length, &self.worker.local.limits);
        self.keep_alive = request.keep_alive;
        self.bytes_received = 0;
        self.bytes_sent = 0;
    }

    /// Whether the connection goes on.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether the request was read to its end.
    pub(super) fn is_request_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether the connection is to be dropped without another byte.
    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Whether the connection has failed, though requests may still be there to be read.
    pub(super) fn is_gone(&self) -> bool {
        self.stream.has_failed()
    }

    /// Drops the connection without another byte.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
        self.keep_alive = false;
    }

    /// Puts the head of an answer of the proxy into the output. The connection goes on where little
    /// of the request is left to be thrown away.
    fn put_answer(&mut self, answer: &LocalReply) {
        let discard_bytes_max = self.worker.local.limits.discard_bytes_max;
        let left = self.decoder.remaining();
        if left.is_some_and(|left| left > discard_bytes_max) {
            let counts = &self.worker.local.counts;
            counts.add_reached(Reached::DiscardBytes);
        }
        let is_short =
            is_empty(self.request.length) || left.is_some_and(|left| left <= discard_bytes_max);
        // Whoever waits for a 100 and gets another answer may or may not send the body.
        if !is_short || self.request.expects_continue {
            self.keep_alive = self.keep_alive && self.is_request_done();
        }
        let framing = self.framing(BodyLength::None);
        write::answer(answer, framing, self.output());
    }

    /// Sends an answer whose head was put into the output, and its body in pieces: the rest of it
    /// stays where it is. False where the client is gone.
    fn poll_sent(&mut self, context: &mut Context<'_>, answer: &LocalReply) -> Poll<bool> {
        let has_body = answer.has_body() && !self.request.is_head;
        let body = if has_body { answer.body() } else { &[] };
        loop {
            let sent = usize::try_from(self.bytes_sent).unwrap_or(usize::MAX);
            let rest = body.get(sent..).unwrap_or_default();
            let unsent = self.output.as_ref().map_or(0, Buffer::len);
            let room = BUFFER_BYTES.saturating_sub(unsent);
            let part = rest.get(..room).unwrap_or(rest);
            if !part.is_empty() {
                self.output().append(part);
                self.bytes_sent += part.len() as u64;
            }
            if !ready!(self.poll_send(context)) {
                return Poll::Ready(false);
            }
            if part.len() == rest.len() {
                return Poll::Ready(true);
            }
        }
    }

    /// Sends what is in the output; false where the client is gone.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Some(output) = &mut self.output else {
            return self.stream.poll_send(context).map(|sent| sent.is_ok());
        };
        let sent = ready!(self.stream.poll_drain(context, output));
        self.output = None;
        Poll::Ready(sent.is_ok())
    }

    /// Throws away what is left of the request; false where that cannot be done.
    pub(super) fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            while let Some(input) = &mut self.input {
                match self.decoder.step(input.filled()) {
                    Ok(step) => {
                        let consumed = step.consumed;
                        input.consume(consumed);
                    }
                    Err(_) => return Poll::Ready(false),
                }
                if input.is_empty() {
                    self.input = None;
                }
                if self.decoder.is_done() {
                    return Poll::Ready(true);
                }
            }
            match ready!(self.poll_fill(context)) {
                Ok(count) if count > 0 => {}
                _ => return Poll::Ready(false),
            }
        }
    }

    /// Closes the sending half, and throws away what still comes until the client closes too.
    pub(super) fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if ready!(self.stream.poll_close(context)).is_err() {
            return Poll::Ready(());
        }
        loop {
            self.input = None;
            match ready!(self.poll_fill(context)) {
                Ok(count) if count > 0 => {
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    self.lingered = self.lingered.saturating_add(count);
                }
                _ => return Poll::Ready(()),
            }
            if self.lingered > LINGER_BYTES_MAX {
                return Poll::Ready(());
            }
        }
    }

    /// Ready once more of the body may be passed on: at once, unless that comes in very small
    /// chunks.
    fn poll_small_chunks(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let turns = &self.worker.local.fairness.plans;
        match &mut self.small_chunks {
            None => Poll::Ready(()),
            Some(chunks) => chunks.poll_turn(turns, self.source, context),
        }
    }

    fn output(&mut self) -> &mut Buffer {
        self.output.get_or_insert_with(Buffer::take)
    }

    fn consume(&mut self, count: usize) {
        if let Some(input) = &mut self.input {
            input.consume(count);
            if input.is_empty() {
                self.input = None;
            }
        }
    }

    fn framing(&mut self, length: BodyLength) -> Framing {
        // A drain may have begun since the request was read.
        self.keep_alive &= !self.worker.is_draining();
        Framing {
            version: self.request.version,
            length,
            keep_alive: self.keep_alive,
        }
    }
}

impl Downstream for H1Client {
    fn begin_answer(&mut self, answer: &LocalReply) {
        self.put_answer(answer);
    }

    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        answer: &LocalReply,
    ) -> Poll<Result<(), FailureKind>> {
        match ready!(self.poll_sent(context, answer)) {
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(Err(FailureKind::ClientGone)),
        }
    }

    fn rest(&mut self, visit: &DownstreamConnection) {
        visit.rest();
    }

    fn give_up(&mut self, why: GiveUp) {
        if why == GiveUp::Stalled {
            let counts = &self.worker.local.counts;
            counts.add_failure(FailureKind::ClientStalled);
        }
        self.abort();
    }

    fn tell(&self, account: &mut RequestAccount) {
        account.bytes_sent = self.bytes_sent;
        account.bytes_received = self.bytes_received;
    }
}

impl Peer for H1Client {
    fn limit_body(&mut self, bytes_max: u64) {
        self.request.body_bytes_max = bytes_max;
    }

    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        let most = match self.held.may_grow() {
            true => BUFFER_BYTES,
            false => TUNNEL_BYTES,
        };
        loop {
            let mut has_moved = false;
            if self.input.is_some() && !self.decoder.is_done() {
                ready!(self.poll_small_chunks(context));
            }
            if let Some(input) = &mut self.input {
                let mut passing = Passing {
                    decoder: &mut self.decoder,
                    received: &mut self.bytes_received,
                    bytes_max: self.request.body_bytes_max,
                    counts: &self.worker.local.counts,
                };
                let room = out.len() + most;
                let passed = passing.pass(input, encoder, out, room)?;
                has_moved = passed.has_moved;
                let turns = &self.worker.local.fairness.plans;
                SmallChunks::note(&mut self.small_chunks, passed.work, turns, self.source);
                if input.is_empty() {
                    self.input = None;
                }
            }
            if self.decoder.is_done() {
                let received = self.decoder.take_trailers();
                self.trailers = received.and_then(|it| trailers_of_request(&self.worker, it));
                return Poll::Ready(Ok(true));
            }
            if has_moved {
                return Poll::Ready(Ok(false));
            }
            let filled = self.stream.poll_fill_part(context, &mut self.input, most);
            match ready!(filled) {
                Ok(count) if count > 0 => {}
                _ => return Poll::Ready(Err(FailureKind::ClientGone)),
            }
        }
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.trailers.take()
    }

    fn interim(&mut self, head: &ResponseHead<'_>) -> Result<(), FailureKind> {
        // HTTP/1.0 has no interim responses (RFC 9110, section 15.2).
        if self.request.version != Version::Http10 {
            write::interim(head, self.output());
        }
        Ok(())
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        length: BodyLength,
        changes: &ResponseChanges<'_>,
    ) -> Result<(), FailureKind> {
        if head.status == 101 {
            write::interim(head, self.output());
            return Ok(());
        }
        // What has no length of its own is sent in chunks, or ends with the connection where the
        // client does not know chunks.
        let length = match length {
            BodyLength::Chunked | BodyLength::UntilClose => {
                if self.request.version == Version::Http10 {
                    self.keep_alive = false;
                    BodyLength::UntilClose
                } else {
                    BodyLength::Chunked
                }
            }
            other => other,
        };
        // A request that is not complete by now is not waited for.
        self.keep_alive &= self.decoder.is_done();
        self.encoder = Encoder::new(length);
        let framing = self.framing(length);
        write::response(head, framing, changes, self.output());
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.output
            .as_ref()
            .is_none_or(|output| output.len() < BUFFER_BYTES)
    }

    fn belong(&mut self, space: Spots) {
        self.held.belong(space);
    }

    fn space(&self) -> Spots {
        self.held.owner()
    }

    fn hold(&mut self, bytes: usize, below: usize) -> bool {
        let own = self.memory();
        self.held.set(bytes + below + own);
        self.held.may_grow()
    }

    fn taken(&self) -> u64 {
        let waiting = self.output.as_ref().map_or(0, Buffer::len);
        self.bytes_sent.saturating_sub(waiting as u64)
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes_sent += data.len() as u64;
        let encoder = self.encoder;
        encoder.write(data, self.output());
    }

    fn end(&mut self, trailers: Option<Trailers>) {
        let encoder = self.encoder;
        if encoder != Encoder::Plain {
            encoder.end_with(trailers.as_ref(), self.output());
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        let waits = self.output.is_none() && self.decoder.is_done();
        let sent = ready!(self.poll_send(context));
        // Nobody reads from the client until there is an answer to its request.
        let is_gone = waits && self.stream.is_reset(context);
        Poll::Ready(if sent && !is_gone {
            Ok(())
        } else {
            Err(FailureKind::ClientGone)
        })
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.stream.is_reset(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
