//! HTTP/2 with clients (RFC 9113): streams in, each of which is served like a request of
//! HTTP/1.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use ::h2::server::{Builder, Connection, SendResponse};
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use http::Request;
use myriad_base::task;

use super::account::Account;
use super::answer::Answer;
use super::check::settle;
use super::exchange::{Outcome, exchange};
use super::gate::plan;
use super::plan::{Forward, Plan, Planned};
use super::process::{Ended, accompany};
use super::worker::Worker;
use crate::net::deadline::Deadline;
use crate::net::failure::FailureKind;
use crate::net::field::{Field, Known};
use crate::net::head::{self, Fields, Head, Version};
use crate::net::limits::Limits;
use crate::net::stream::Stream;
use crate::route::visit::Visit;

mod client;

use client::Client;

/// What the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    visit: Visit,
    /// Streams being served.
    active: Cell<usize>,
    /// Streams that the client reset, less those that it let end: what is left of a flood.
    resets: Cell<usize>,
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
    let mut handshake = std::pin::pin!(builder(&limits).handshake::<_, Bytes>(stream));
    let connection = poll_fn(|context| {
        if let Poll::Ready(done) = handshake.as_mut().poll(context) {
            return Poll::Ready(done.ok());
        }
        deadline.poll_passed(context).map(|()| None)
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
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_reset_streams(limits.resets_max)
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(Some(limits.resets_max))
        .max_send_buffer_size(client::WAITING_BYTES_MAX);
    builder
}

/// Waits for a stream; none at the end of the connection.
async fn next(
    connection: &mut Connection<Stream, Bytes>,
    shared: &Shared,
    deadline: &Deadline,
) -> Option<(Request<RecvStream>, SendResponse<Bytes>)> {
    let limits = &shared.worker.local.limits;
    let mut is_closing = false;
    deadline.set(limits.idle_timeout);
    poll_fn(|context| {
        if shared.resets.get() > limits.resets_max {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        if let Poll::Ready(accepted) = connection.poll_accept(context) {
            return Poll::Ready(accepted.and_then(Result::ok));
        }
        if !is_closing && (shared.worker.is_draining() || shared.visit.is_leaving()) {
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
            connection.graceful_shutdown();
            deadline.set(limits.write_timeout);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

async fn serve_stream(active: Active, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
    let shared = &*active.0;
    let worker = &shared.worker;
    let (parts, body) = request.into_parts();
    let planned = plan_stream(shared, &parts, body.is_end_stream());
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
    match plan {
        Plan::Answer(answer) => {
            respond_with(
                worker,
                &mut client,
                &answer,
                is_head,
                &mut account,
                &deadline,
            )
            .await;
        }
        Plan::Forward(plan) => {
            forward(shared, &mut client, plan, &mut account, &deadline).await;
        }
    }
    let resets = shared.resets.get();
    shared.resets.set(match account.failure {
        Some(FailureKind::ClientGone) => resets + 1,
        _ => resets.saturating_sub(1),
    });
    account.bytes_sent = client.bytes_sent();
    account.bytes_received = client.bytes_received();
    account.grpc_status = client.grpc_status();
    account.finish(worker);
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
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let mut head: Head<'_> = head::from_http2(
        parts.method.as_str(),
        target,
        authority,
        fields,
        is_body_empty,
        &shared.worker.local.limits,
    )?;
    head.scheme = shared.visit.scheme();
    let tables = shared.worker.tables.load();
    let mut account = Account::begin(&shared.worker, &tables, &shared.visit, &head);
    let planned = plan(&shared.worker, &tables, &shared.visit, &head, &mut account);
    Ok((planned, account, head.method == "HEAD"))
}

async fn forward(
    shared: &Shared,
    client: &mut Client,
    mut plan: Box<Forward>,
    account: &mut Account,
    deadline: &Deadline,
) {
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
                    return;
                }
            }
        }
    };
    match ended {
        Ok(Outcome::Done { .. }) => {}
        // Nobody asked for another protocol, so nobody is there to speak it.
        Ok(Outcome::Switched(_)) => client.reset(Reason::INTERNAL_ERROR),
        Err(broken) => {
            let kind = broken.failure.kind;
            account.failure = Some(kind);
            if broken.is_started {
                if kind != FailureKind::ClientGone {
                    client.reset(Reason::INTERNAL_ERROR);
                }
                return;
            }
            let answer = Answer::failed(kind).with(std::mem::take(&mut plan.additions));
            respond_with(worker, client, &answer, plan.is_head, account, deadline).await;
        }
    }
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
