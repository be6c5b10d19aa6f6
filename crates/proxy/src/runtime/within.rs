//! Streams within mutual TLS of the mesh that say themselves where they go: their client's own
//! handshake is read as far as its name, and handed on with what was read of it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use tokio::time::timeout;

use crate::codec::buffer::Buffer;
use crate::http::worker::Worker;
use crate::limits::Reached;
use crate::mesh::detect::{Expected, KnownProtocols, Speech};
use crate::net::stream::Stream;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::stream_route::{Arrival, StreamRouteEntry};
use crate::route::within;
use crate::tls::accept::HandshakeError;
use crate::tls::hello;

/// How many bytes are read at a time, at least, until they tell what is spoken.
const READ_BYTES: usize = 512;

/// The protocols that first bytes have to tell apart: a handshake, and whatever else.
const QUESTION: KnownProtocols = KnownProtocols {
    may_be_tls: true,
    expected: Expected::Bytes,
};

/// A stream of which is known where it goes.
pub(super) struct Heard {
    /// The bytes that were read of it.
    pub(super) said: Option<Buffer>,
    /// The name that decides.
    pub(super) sni: Option<Box<str>>,
    /// The stream route.
    pub(super) entry: Arc<StreamRouteEntry>,
}

/// Whether the handshake within is asked where a stream goes that this stream route takes.
pub(super) fn is_asked(
    worker: &Worker,
    visit: &DownstreamConnection,
    entry: &StreamRouteEntry,
) -> bool {
    let secured = visit.secured.as_ref();
    secured.is_some_and(|secured| within::is_asked(&worker.tables.load(), secured, entry))
}

/// Waits for the handshake within, and finds the stream route of its name. A stream that is no
/// handshake, or whose server is waited for, goes by what stands outside.
///
/// # Errors
/// The name leads nowhere, or there is none, or the handshake is none that could be handed on.
pub(super) async fn hear(
    worker: &Worker,
    visit: &DownstreamConnection,
    client: &mut Stream,
    (sni, entry): (Option<Box<str>>, Arc<StreamRouteEntry>),
) -> Result<Heard, HandshakeError> {
    let (limits, counts) = (&worker.local.limits, &worker.local.counts);
    let mut received = Buffer::none();
    let looking = look(client, visit, QUESTION, &mut received);
    let looked = timeout(limits.detection_timeout, looking).await;
    let speech = match looked {
        Ok(speech) => speech?,
        Err(_) if received.is_empty() => Speech::Bytes,
        Err(_) => Speech::Tls,
    };
    if speech != Speech::Tls {
        let said = (!received.is_empty()).then_some(received);
        return Ok(Heard { said, sni, entry });
    }
    let mut held = worker.local.fairness.holdings.connection();
    held.set(limits.client_hello_bytes_max);
    if !held.may_grow() {
        counts.add_reached(Reached::AllHeldBytes);
        return Err(HandshakeError::Shed);
    }
    let hello = hello::read(client, received, limits.client_hello_bytes_max);
    let hello = timeout(limits.handshake_timeout, hello).await?;
    if matches!(hello, Err(HandshakeError::TooLong)) {
        counts.add_reached(Reached::ClientHelloBytes);
    }
    let hello = hello?;
    let name = hello.sni.ok_or(HandshakeError::UnknownName)?;
    let arrival = Arrival {
        listener: &visit.listener,
        client: visit.client.ip(),
        own: visit.address,
        is_terminated: true,
    };
    let tables = worker.tables.load();
    let entry = within::stream_route(&tables, arrival, &name).cloned();
    Ok(Heard {
        said: Some(hello.received),
        sni: Some(name),
        entry: entry.ok_or(HandshakeError::UnknownName)?,
    })
}

/// Reads until the first bytes tell which of the protocols in question it is.
///
/// # Errors
/// The errors of the connection.
pub(super) async fn look(
    client: &mut Stream,
    visit: &DownstreamConnection,
    question: KnownProtocols,
    received: &mut Buffer,
) -> io::Result<Speech> {
    loop {
        if let Some(speech) = question.judge(received.filled()) {
            return Ok(speech);
        }
        received.reserve(READ_BYTES);
        visit.keep(received.capacity());
        let count = poll_fn(|context| client.poll_read(context, received.spare())).await?;
        if count == 0 {
            return Ok(Speech::Bytes);
        }
        received.advance(count);
    }
}
