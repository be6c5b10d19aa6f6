//! The words of a connection before it is served: it waits in little memory for a whole
//! ClientHello, or a whole head, and takes nothing of which the worker has few.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use super::introduce::introduce;
use super::open::{Kind, may_come};
use crate::admission::room::Hush;
use crate::admission::silent::source_of;
use crate::codec::buffer::Buffer;
use crate::codec::head;
use crate::http::downstream::h1::Start;
use crate::http::worker::Worker;
use crate::limits::{Limits, Reached};
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count::Count;
use crate::tls::hello;

/// How many bytes are read at a time, at least.
const READ_BYTES: usize = 512;

/// A connection that has yet to say enough.
struct Hearing<'a> {
    worker: &'a Worker,
    visit: &'a DownstreamConnection,
    tcp: &'a TcpStream,
    hush: &'a Hush,
    said: Option<Buffer>,
    end: End,
    is_last_call: bool,
}

/// The end of what is waited for.
enum End {
    Hello(hello::HelloFinder),
    Head(head::HeadFinder),
}

/// Waits until a connection has said enough to be served; none where it has gone, or had to.
pub(super) async fn hear(
    worker: &Worker,
    visit: &mut DownstreamConnection,
    kind: Kind,
    tcp: &TcpStream,
    mut hush: Hush,
) -> Option<Start> {
    let (local, limits) = (&worker.local, &worker.local.limits);
    if let Some(introductions) = &local.introductions
        && introductions.are_asked_at(visit.port)
    {
        let introduced = Box::pin(introduce(introductions, local, visit, tcp));
        if !hush.deadline().unless_passed(introduced).await? {
            return None;
        }
        hush.come_from(source_of(visit.client.ip()));
    }
    if !kind.has_to_ask() {
        // The server may be the one that speaks first.
        let may_come = !kind.is_stream() || may_come(worker, visit);
        return may_come.then(Start::default);
    }
    hush.deadline().set(match kind.is_tls {
        true => limits.handshake_timeout,
        false => limits.idle_timeout,
    });
    let mut hearing = Hearing {
        worker,
        visit,
        tcp,
        hush: &hush,
        said: None,
        end: match kind.is_tls {
            true => End::Hello(hello::HelloFinder::default()),
            false => End::Head(head::HeadFinder::default()),
        },
        is_last_call: false,
    };
    poll_fn(|context| hearing.poll(context)).await
}

impl Hearing<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Start>> {
        let local = &self.worker.local;
        if self.hush.is_evicted() {
            return Poll::Ready(None);
        }
        match self.poll_enough(context) {
            Poll::Ready(Ok(true)) => {
                let said = self.said.take();
                return Poll::Ready(Some(Start {
                    said,
                    is_late: false,
                }));
            }
            Poll::Ready(_) => {
                if matches!(self.end, End::Hello(_)) {
                    local.counts.add(Count::HandshakeFailed);
                }
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let is_leaving =
            self.worker.is_draining() || self.visit.is_leaving() || local.fairness.ends_idle();
        if is_leaving && self.said.is_none() && !self.is_last_call {
            // Who has only just connected is about to ask.
            self.is_last_call = true;
            self.hush.deadline().set(self.worker.last_call());
        }
        ready!(self.hush.deadline().poll_passed(context));
        if self.hush.is_evicted() || self.is_last_call {
            return Poll::Ready(None);
        }
        if matches!(self.end, End::Hello(_)) {
            local.counts.add(Count::HandshakeTimeout);
            return Poll::Ready(None);
        }
        let Some(said) = self.said.take() else {
            local.counts.add_reached(Reached::IdleTimeout);
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Start {
            said: Some(said),
            is_late: true,
        }))
    }

    /// Reads until enough was said; false at the end of the connection, and where nothing that may
    /// still be said would be enough.
    fn poll_enough(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            // No memory is taken for who says nothing.
            ready!(self.tcp.poll_read_ready(context))?;
            let has_begun = self.said.is_some();
            let said = self.said.get_or_insert_with(Buffer::for_head);
            said.reserve(READ_BYTES);
            let read = self.tcp.try_read(said.spare());
            match read {
                Ok(0) => return Poll::Ready(Ok(false)),
                Ok(count) => said.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if said.is_empty() {
                        self.said = None;
                    }
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            let limits = &self.worker.local.limits;
            match self.end.is_reached(said, limits) {
                Ok(true) => return Poll::Ready(Ok(true)),
                Ok(false) => {}
                Err(hello::NoHello) => {
                    hello::refuse(self.tcp);
                    return Poll::Ready(Ok(false));
                }
            }
            if said.is_empty() {
                self.said = None;
                continue;
            }
            let held = said.capacity();
            if !has_begun && matches!(self.end, End::Head(_)) {
                self.hush.deadline().set(limits.head_timeout);
            }
            self.hush.hold(held);
        }
    }
}

impl End {
    /// Whether this is enough, or too much, or a wrong head, which others then say.
    fn is_reached(&mut self, said: &mut Buffer, limits: &Limits) -> Result<bool, hello::NoHello> {
        match self {
            End::Hello(_) if said.len() > limits.client_hello_bytes_max => Ok(true),
            End::Hello(finder) => finder.find(said.filled()),
            End::Head(finder) => {
                // An empty line in front of a head is none (RFC 9112, section 2.2).
                while said.filled().starts_with(b"\r\n") {
                    said.consume(2);
                    *finder = head::HeadFinder::default();
                }
                let is_too_long = said.len() > limits.head_bytes_max;
                Ok(is_too_long || !matches!(finder.find(said.filled()), Ok(None)))
            }
        }
    }
}
