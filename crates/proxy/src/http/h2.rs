//! HTTP/2 with clients (RFC 9113): streams in, each of which is served like a request of
//! HTTP/1.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ::h2::ext::Protocol;
use ::h2::server::{Builder, Connection, SendResponse};
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use http::Request;
use myriad_base::task;

use super::account::Account;
use super::answer::Answer;
use super::check::settle;
use super::exchange::{Outcome, Switched, exchange};
use super::gate::plan;
use super::plan::{Forward, Plan, Planned};
use super::process::{Ended, accompany};
use super::tunnel;
use super::worker::Worker;
use crate::net::deadline::Deadline;
use crate::net::failure::FailureKind;
use crate::net::field::{Field, Known};
use crate::net::head::{self, Fields, Head, Pseudo, Version};
use crate::net::limits::{Limits, Reached};
use crate::net::stream::Stream;
use crate::route::visit::Visit;

mod client;
pub mod flood;

use client::Client;
use flood::{Signs, Watched};

/// What the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    visit: Visit,
    /// Streams being served.
    active: Cell<usize>,
    /// Streams that the client reset, less those that it let end: what is left of a flood.
    resets: Cell<usize>,
    /// What its frames tell.
    signs: Rc<Signs>,
    /// Whether the connection ends for a flood.
    is_calmed: Cell<bool>,
}

/// Counts a stream for as long as it is served.
struct Active(Rc<Shared>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

/// Serves a connection until it ends.
pub async fn serve(worker: Rc<Worker>, visit: Visit, stream: Stream) {
    let limits = worker.local.limits.clone();
    let deadline = Deadline::new();
    deadline.set(limits.head_timeout);
    let signs = Signs::new();
    let stream = Watched::new(stream, &limits, signs.clone());
    let mut handshake = std::pin::pin!(builder(&limits).handshake::<_, Bytes>(stream));
    let connection = poll_fn(|context| {
        if let Poll::Ready(done) = handshake.as_mut().poll(context) {
            return Poll::Ready(done.ok());
        }
        let passed = deadline.poll_passed(context);
        passed.map(|()| {
            worker.local.counts.add_failure(FailureKind::HeadTimeout);
            None
        })
    })
    .await;
    let Some(mut connection) = connection else {
        return;
    };
    let shared = Rc::new(Shared {
        worker,
        visit,
        active: Cell::new(0),
        resets: Cell::new(0),
        signs,
        is_calmed: Cell::new(false),
    });
    while let Some((request, respond)) = next(&mut connection, &shared, &deadline).await {
        shared.active.set(shared.active.get() + 1);
        let active = Active(shared.clone());
        task::spawn_local("stream", serve_stream(active, request, respond));
    }
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams_max)
        .initial_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        // Heads beyond the limit are refused, and counted, like any other; beyond twice as much
        // they are not even kept.
        .max_header_list_size(u32::try_from(limits.head_bytes_max * 2).unwrap_or(u32::MAX))
        .max_concurrent_reset_streams(limits.resets_max)
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(Some(limits.resets_max))
        .max_send_buffer_size(client::WAITING_BYTES_MAX)
        // As over HTTP/1.1, it is the endpoint that says whether it changes the protocol.
        .enable_connect_protocol();
    builder
}

/// Waits for a stream; none at the end of the connection.
async fn next(
    connection: &mut Connection<Watched, Bytes>,
    shared: &Shared,
    deadline: &Deadline,
) -> Option<(Request<RecvStream>, SendResponse<Bytes>)> {
    let limits = &shared.worker.local.limits;
    let mut is_closing = false;
    deadline.set(limits.idle_timeout);
    poll_fn(|context| {
        calm(connection, shared);
        if let Poll::Ready(accepted) = connection.poll_accept(context) {
            if let Some(Err(error)) = &accepted
                && !shared.is_calmed.replace(true)
                && let Some(limit) = shared.signs.reached(error)
            {
                shared.worker.local.counts.add_reached(limit);
            }
            return Poll::Ready(accepted.and_then(Result::ok));
        }
        if calm(connection, shared) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let is_short = shared.worker.local.fairness.ends_idle();
        let is_leaving = shared.worker.is_draining() || shared.visit.is_leaving() || is_short;
        if !is_closing && is_leaving {
            is_closing = true;
            connection.graceful_shutdown();
            deadline.set(limits.idle_timeout);
            context.waker().wake_by_ref();
        }
        if deadline.poll_passed(context).is_pending() {
            return Poll::Pending;
        }
        if shared.active.get() > 0 {
            deadline.set(limits.idle_timeout);
        } else if is_closing {
            return Poll::Ready(None);
        } else {
            is_closing = true;
            shared.worker.local.counts.add_reached(Reached::IdleTimeout);
            connection.graceful_shutdown();
            deadline.set(limits.write_timeout);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Ends a connection that floods the proxy; whether it has just begun to.
fn calm(connection: &mut Connection<Watched, Bytes>, shared: &Shared) -> bool {
    let local = &shared.worker.local;
    let Limits {
        resets_max,
        streams_max,
        ..
    } = *local.limits;
    // Streams that were reset are no longer among those that `h2` counts, but go on until they
    // notice.
    let many = resets_max.saturating_add(usize::try_from(streams_max).unwrap_or(usize::MAX));
    let is_over = shared.resets.get() > resets_max || shared.active.get() > many;
    let flood = shared
        .signs
        .flood
        .get()
        .or(is_over.then_some(Reached::Resets));
    let Some(limit) = flood.filter(|_| !shared.is_calmed.replace(true)) else {
        return false;
    };
    local.counts.add_reached(limit);
    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    true
}

async fn serve_stream(active: Active, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let shared = &*active.0;
    let worker = &shared.worker;
    let (parts, body) = request.into_parts();
    let planned = plan_stream(shared, &parts, body.is_end_stream());
    let has_to_upgrade = parts.extensions.get::<Protocol>().is_some();
    drop(parts);
    let (planned, mut account, is_head) = match planned {
        Ok(planned) => planned,
        Err(kind) => {
            let planned = Planned::failed(kind);
            let account = Account::begin_unread(worker, &shared.visit, Version::Http2);
            (planned, account, false)
        }
    };
    let body_bytes_max = match &planned.plan {
        Plan::Forward(plan) => plan.policy().map(|policy| policy.request_body_bytes_max),
        Plan::Answer(_) => None,
    };
    let mut client = Client::new(respond, body, body_bytes_max.unwrap_or(u64::MAX));
    let deadline = Deadline::new();
    let plan = ready(shared, planned, &mut client, &mut account, &deadline).await;
    let tunnel = match plan {
        Plan::Answer(mut answer) => {
            if has_to_upgrade && matches!(answer.status, 200..300) {
                *answer = Answer::failed(FailureKind::NoUpgrade);
            }
            let account = &mut account;
            respond_with(worker, &mut client, &answer, is_head, account, &deadline).await;
            None
        }
        Plan::Forward(plan) => forward(shared, &mut client, plan, &mut account, &deadline).await,
    };
    let resets = shared.resets.get();
    shared.resets.set(match account.failure {
        Some(FailureKind::ClientGone) => resets + 1,
        _ => resets.saturating_sub(1),
    });
    account.bytes_sent = client.bytes_sent();
    account.bytes_received = client.bytes_received();
    account.grpc_status = client.grpc_status();
    account.finish(worker);
    if let Some((switched, idle_timeout)) = tunnel
        && let Some(carrier) = client.into_carrier()
    {
        let tunnel = tunnel::run(carrier, None, *switched, &deadline, idle_timeout);
        Box::pin(tunnel).await;
    }
}

/// The plan, once whoever has to be asked has answered, and any wait on purpose is over.
async fn ready(
    shared: &Shared,
    mut planned: Planned,
    client: &mut Client,
    account: &mut Account,
    deadline: &Deadline,
) -> Plan {
    if let Some(check) = planned.check.take() {
        let (worker, visit) = (&shared.worker, &shared.visit);
        let plan = &mut planned;
        let settled = settle(worker, visit, *check, plan, client, account, deadline);
        Box::pin(settled).await;
    }
    if !planned.delay.is_zero() {
        tokio::time::sleep(planned.delay).await;
    }
    planned.plan
}

fn plan_stream(
    shared: &Shared,
    parts: &http::request::Parts,
    is_body_empty: bool,
) -> Result<(Planned, Account, bool), FailureKind> {
    let fields = parts.headers.iter().map(|(name, value)| Field {
        known: Known::of(name.as_str()),
        name: name.as_str(),
        value: value.as_bytes(),
    });
    let fields: Fields<'_> = fields.collect();
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let protocol = parts.extensions.get::<Protocol>();
    let pseudo = Pseudo {
        method: parts.method.as_str(),
        path_and_query: target,
        authority: parts.uri.authority().map(|authority| authority.as_str()),
        protocol: protocol.map(Protocol::as_str),
    };
    let mut head: Head<'_> =
        head::from_http2(pseudo, fields, is_body_empty, &shared.worker.local.limits)?;
    head.scheme = shared.visit.scheme();
    let tables = shared.worker.tables.load();
    let mut account = Account::begin(&shared.worker, &tables, &shared.visit, &head);
    let planned = plan(&shared.worker, &tables, &shared.visit, &head, &mut account);
    Ok((planned, account, head.method == "HEAD"))
}

/// Forwards a request, and tells what its stream carries from then on, where that is no HTTP.
async fn forward(
    shared: &Shared,
    client: &mut Client,
    mut plan: Box<Forward>,
    account: &mut Account,
    deadline: &Deadline,
) -> Option<(Box<Switched>, Duration)> {
    let worker = &shared.worker;
    let ended = match plan.is_processed() {
        false => exchange(worker, &mut plan, client, account, deadline).await,
        true => {
            let scheme = shared.visit.scheme();
            let ended = accompany(worker, scheme, &mut plan, client, account, deadline);
            match Box::pin(ended).await {
                Ended::Exchanged(ended) => ended,
                Ended::Answered(answer) => {
                    let answer = answer.with(std::mem::take(&mut plan.additions));
                    respond_with(worker, client, &answer, plan.is_head, account, deadline).await;
                    return None;
                }
            }
        }
    };
    match ended {
        Ok(Outcome::Done { .. }) => {}
        Ok(Outcome::Switched(switched)) => {
            // HTTP/2 has no 101, and says the same by a success.
            account.status = 200;
            let idle_timeout = plan.policy().map(|policy| policy.read_timeout);
            return Some((switched, idle_timeout.unwrap_or_default()));
        }
        Err(broken) => {
            let kind = broken.failure.kind;
            account.failure = Some(kind);
            if broken.is_started {
                if kind != FailureKind::ClientGone {
                    client.reset(Reason::INTERNAL_ERROR);
                }
                return None;
            }
            let answer = Answer::failed(kind).with(std::mem::take(&mut plan.additions));
            respond_with(worker, client, &answer, plan.is_head, account, deadline).await;
        }
    }
    None
}

async fn respond_with(
    worker: &Worker,
    client: &mut Client,
    answer: &Answer,
    is_head: bool,
    account: &mut Account,
    deadline: &Deadline,
) {
    account.failure = answer.failure;
    account.status = answer.status;
    match answer.failure {
        // The stream has ended already, and in the way that its end should be told.
        Some(FailureKind::ClientGone) => return,
        Some(FailureKind::ClientStalled) => return client.reset(Reason::CANCEL),
        _ => {}
    }
    if client.answer(answer, is_head).is_err() {
        return;
    }
    deadline.set(worker.local.limits.write_timeout);
    let flushed = poll_fn(|context| {
        if let Poll::Ready(flushed) = client.poll_flush_all(context) {
            return Poll::Ready(flushed);
        }
        let passed = deadline.poll_passed(context);
        passed.map(|()| Err(FailureKind::ClientStalled))
    })
    .await;
    if flushed == Err(FailureKind::ClientStalled) {
        client.reset(Reason::CANCEL);
    }
}
