//! HTTP/2 with clients (RFC 9113): streams in, each of which is served like a request of
//! HTTP/1.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use myriad_base::task;

use super::turn::{self, PlanCost, Unplanned};
use super::{Downstream as _, RequestTurn, Served};
use crate::admission::planning::{Asker, PlanTurns, RESET_STEPS};
use crate::codec::buffer::Buffer;
use crate::codec::frame::Reason;
use crate::codec::head::{self, Head, Version};
use crate::codec::hpack::Section;
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::plan::Plan;
use crate::http::stage::{Planned, plan, scheme};
use crate::http::tunnel;
use crate::http::worker::Worker;
use crate::limits::{Limits, Reached};
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;
use crate::pattern::Budget;
use crate::policy::token::HeadMemory;
use crate::policy::underscore;
use crate::route::downstream_connection::DownstreamConnection;

mod client;
mod connection;
mod flood;
mod late;
pub mod request;
mod streams;

use client::H2Client;
use connection::{Connection, OpenedStream};
use late::LateStream;
use request::H2Request;
use streams::Handle;

/// How long a client has to close its side once the connection is at its end.
const LINGER: Duration = Duration::from_secs(1);

/// The state that the streams of a connection share.
struct Shared {
    worker: Rc<Worker>,
    visit: DownstreamConnection,
    /// The hash of the client's source.
    source: u64,
    /// Streams being served.
    active: Cell<usize>,
    /// Streams being served that wait for more than the client to read an answer of the proxy.
    busy: Cell<usize>,
    /// Streams that the client reset, less those that it let endpoints end: what is left of a
    /// flood.
    resets: Cell<usize>,
}

/// A stream that is to be served.
struct Begun {
    active: Active,
    handle: Handle,
    stream: PlannedStream,
}

/// The plan of a stream, and what is left to know of its head.
struct PlannedStream {
    planned: Planned,
    account: RequestAccount,
    is_head: bool,
    has_to_upgrade: bool,
    is_costly: bool,
}

impl Shared {
    /// Whether the connection shall end with the streams that it has.
    fn is_leaving(&self) -> bool {
        let worker = &self.worker;
        worker.is_draining() || self.visit.is_leaving() || worker.local.fairness.ends_idle()
    }

    /// Takes note of a stream that was reset, which has cost something for nothing.
    fn note_reset(&self) {
        self.resets.set(self.resets.get() + 1);
        let fairness = &self.worker.local.fairness;
        fairness.resets.add(self.source);
        fairness.plans.spend(self.source, RESET_STEPS);
    }

    /// Takes note of a stream that was served, which makes up for one that was reset.
    fn make_up(&self) {
        self.resets.set(self.resets.get().saturating_sub(1));
        self.worker.local.fairness.resets.make_up(self.source);
    }

    /// Charges the client's source for more than its head.
    fn charge(&self, cost: PlanCost) {
        turn::charge_source(&self.worker, || self.source, cost.planned);
    }
}

impl Begun {
    fn new(active: Active, mut handle: Handle, stream: PlannedStream) -> Self {
        handle.hold_always(stream.account.memory());
        handle.hold(stream.planned.memory(), 0);
        Begun {
            active,
            handle,
            stream,
        }
    }
}

impl PlannedStream {
    /// The answer to a failure.
    fn failed(shared: &Shared, kind: FailureKind) -> Self {
        let Shared { worker, visit, .. } = shared;
        PlannedStream {
            planned: Planned::failed(kind),
            account: RequestAccount::begin_unread(worker, visit, Version::Http2),
            is_head: false,
            has_to_upgrade: false,
            is_costly: false,
        }
    }
}

/// Counts a stream for as long as it is served.
struct Active {
    shared: Rc<Shared>,
    is_busy: bool,
}

impl Active {
    fn new(shared: Rc<Shared>) -> Self {
        shared.active.set(shared.active.get() + 1);
        shared.busy.set(shared.busy.get() + 1);
        Active {
            shared,
            is_busy: true,
        }
    }

    /// Nothing but the rest of an answer of the proxy is left to be sent: where that is so of all
    /// streams, their connection may have to go for another.
    fn rest(&mut self) {
        if !std::mem::take(&mut self.is_busy) {
            return;
        }
        let busy = self.shared.busy.get() - 1;
        self.shared.busy.set(busy);
        if busy == 0 {
            self.shared.visit.rest();
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.shared.active.set(self.shared.active.get() - 1);
        self.rest();
    }
}

/// Serves a connection until it ends. `said` is what was read of it already.
pub async fn serve(
    worker: Rc<Worker>,
    visit: DownstreamConnection,
    stream: Stream,
    said: Option<Buffer>,
) {
    let source = PlanTurns::source(visit.client.ip());
    let mut connection = Connection::new(stream, said, worker.local.clone(), source);
    let shared = Rc::new(Shared {
        worker,
        visit,
        source,
        active: Cell::new(0),
        busy: Cell::new(0),
        resets: Cell::new(0),
    });
    let deadline = Deadline::new();
    deadline.set(shared.worker.local.limits.head_timeout);
    shared.visit.watch(&deadline);
    connection.watch(&deadline);
    shared.visit.rest();
    let mut waits = Waits::Start;
    while let Some(opened) = next(&mut connection, &shared, &deadline, &mut waits).await {
        let active = Active::new(shared.clone());
        // Boxed, because the runtime moves a task whole when it begins and again when it ends.
        let (ends_turn, is_costly) = match begin(active, opened, connection.asker()) {
            Ok(begun) => {
                let turn = (begun.stream.planned.ends_turn, begun.stream.is_costly);
                task::spawn_local("stream", Box::pin(serve_stream(begun)));
                turn
            }
            Err(late) => {
                task::spawn_local("late stream", Box::pin(late.serve()));
                (true, true)
            }
        };
        connection.note_stream(ends_turn, is_costly);
        if ends_turn {
            // What it is answered with counts before another stream is read, and one that is
            // costly has been the turn of this connection.
            tokio::task::yield_now().await;
        }
    }
}

/// The event that a connection waits for, until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The preface and settings, which have to come first.
    Start,
    /// Another frame, or the end of a stream.
    More,
    /// The rest of a head.
    Head,
    /// The end of those streams that there are.
    Streams,
    /// The client to close its side.
    End,
}

/// Waits for a stream; none at the end of the connection.
async fn next(
    connection: &mut Connection,
    shared: &Shared,
    deadline: &Deadline,
    waits: &mut Waits,
) -> Option<OpenedStream> {
    if *waits == Waits::More {
        deadline.set(shared.worker.local.limits.idle_timeout);
    }
    poll_fn(|context| {
        let polled = poll_next(connection, shared, deadline, waits, context);
        shared.visit.keep(connection.held());
        polled
    })
    .await
}

fn poll_next(
    connection: &mut Connection,
    shared: &Shared,
    deadline: &Deadline,
    waits: &mut Waits,
    context: &mut Context<'_>,
) -> Poll<Option<OpenedStream>> {
    let (local, limits) = (&shared.worker.local, &shared.worker.local.limits);
    loop {
        if has_to_go(connection, shared) {
            give_way(connection, shared, context);
            return Poll::Ready(None);
        }
        calm(connection, shared);
        let polled = connection.poll_next(context);
        if polled.is_ready() {
            shared.visit.work();
            return polled;
        }
        if calm(connection, shared) {
            continue;
        }
        let now = match *waits {
            _ if connection.is_ending() => Waits::End,
            Waits::Start if !connection.is_open() => Waits::Start,
            Waits::Streams => Waits::Streams,
            _ if shared.is_leaving() => Waits::Streams,
            _ if connection.is_reading_head() => Waits::Head,
            _ => Waits::More,
        };
        if now != *waits {
            *waits = now;
            deadline.set(match now {
                Waits::End => LINGER,
                Waits::Head | Waits::Start => limits.head_timeout,
                Waits::More | Waits::Streams => limits.idle_timeout,
            });
            if now == Waits::Streams {
                connection.leave();
                continue;
            }
        }
        let is_idle = shared.active.get() == 0;
        if is_idle && connection.has_left() && now != Waits::End {
            connection.finish();
            continue;
        }
        if deadline.poll_passed(context).is_pending() {
            return Poll::Pending;
        }
        if has_to_go(connection, shared) {
            continue;
        }
        match now {
            Waits::End => return Poll::Ready(None),
            Waits::Start | Waits::Head => {
                local.counts.add_failure(FailureKind::HeadTimeout);
                connection.end(Reason::EnhanceYourCalm);
            }
            _ if !is_idle => deadline.set(limits.idle_timeout),
            Waits::Streams => connection.finish(),
            Waits::More => {
                local.counts.add_reached(Reached::IdleTimeout);
                *waits = Waits::Streams;
                connection.leave();
                deadline.set(limits.write_timeout);
            }
        }
    }
}

/// Whether a connection has to go for others, or for what is held for it.
fn has_to_go(connection: &Connection, shared: &Shared) -> bool {
    shared.visit.is_evicted() || connection.is_evicted()
}

/// Says that a connection ends, as far as its client reads that at once, and ends its streams.
fn give_way(connection: &mut Connection, shared: &Shared, context: &mut Context<'_>) {
    if connection.is_evicted() {
        let counts = &shared.worker.local.counts;
        counts.add_reached(Reached::AllHeldBytes);
    }
    connection.leave();
    let _ = connection.poll_next(context);
    connection.end(Reason::NoError);
}

/// Ends a connection that floods the proxy; whether it has just begun to.
fn calm(connection: &mut Connection, shared: &Shared) -> bool {
    let local = &shared.worker.local;
    let Limits {
        resets_max,
        streams_max,
        ..
    } = *local.limits;
    (0..connection.take_faults()).for_each(|_| shared.note_reset());
    // Where the client's source floods by one connection after the other, each may do less.
    let resets = &local.fairness.resets;
    let has_many = resets.is_too_many(shared.source, shared.resets.get());
    // Streams that were reset go on until they notice.
    let many = resets_max.saturating_add(usize::try_from(streams_max).unwrap_or(usize::MAX));
    if connection.is_ending() || (!has_many && shared.active.get() <= many) {
        return false;
    }
    local.counts.add_reached(Reached::Resets);
    connection.end(Reason::EnhanceYourCalm);
    true
}

/// Makes the plan of a stream while its head is there.
///
/// # Errors
/// The stream as it waits, where the namespace that serves its host has had its turn.
fn begin(active: Active, opened: OpenedStream, asker: Asker) -> Result<Begun, Box<LateStream>> {
    let OpenedStream {
        head,
        handle,
        is_end,
    } = opened;
    let (shared, section) = (&active.shared, head.section());
    let fairness = &shared.worker.local.fairness;
    fairness.plans.note_request(shared.source);
    if fairness.resets.is_flood(shared.source) {
        // Most of its streams are reset, and by then others of them are read.
        fairness.plans.spend(shared.source, RESET_STEPS);
    }
    match plan_or_refuse(shared, section, is_end, Some(asker)) {
        Ok(stream) => Ok(Begun::new(active, handle, stream)),
        Err(namespace) => {
            let head = (section.clone(), is_end);
            let late = LateStream::new((active, handle), head, namespace, asker);
            Err(Box::new(late))
        }
    }
}

/// The plan of a stream with a head, or the answer to what is wrong with that.
///
/// # Errors
/// The namespace that serves its host, by its hash, where that has had its turn.
fn plan_or_refuse(
    shared: &Shared,
    section: &Section,
    is_end: bool,
    asker: Option<Asker>,
) -> Result<PlannedStream, u64> {
    match plan_stream(shared, section, is_end, asker) {
        Ok(stream) => Ok(stream),
        Err(Unplanned::Crowded(namespace)) => Err(namespace),
        Err(Unplanned::Failed(kind)) => {
            let cost = PlanCost::of_refused(section.size(), &shared.worker.local.limits);
            shared.charge(cost);
            Ok(PlannedStream {
                is_costly: cost.is_costly(),
                ..PlannedStream::failed(shared, kind)
            })
        }
    }
}

async fn serve_stream(begun: Begun) {
    let Begun {
        active,
        handle,
        stream,
    } = begun;
    let PlannedStream {
        mut planned,
        mut account,
        is_head,
        has_to_upgrade,
        ..
    } = stream;
    if handle.is_gone() {
        // Nothing is begun for it: no endpoint is chosen, and none is connected to.
        planned = Planned::failed(FailureKind::ClientGone);
    }
    let shared = active.shared.clone();
    let worker = &shared.worker;
    let body_bytes_max = match &planned.plan {
        Plan::Forward(plan) => plan.policy().map(|policy| policy.request_body_bytes_max),
        Plan::Answer(_) => None,
    };
    let body_bytes_max = body_bytes_max.unwrap_or(u64::MAX);
    let mut client = H2Client::new(
        worker.clone(),
        (handle, active),
        body_bytes_max,
        is_head,
        has_to_upgrade,
    );
    let deadline = Deadline::new();
    let mut turn = RequestTurn {
        worker,
        visit: &shared.visit,
        client: &mut client,
        account: &mut account,
        deadline: &deadline,
    };
    let served = turn.carry_out(planned).await;
    // An answer of the proxy costs a client nothing, and makes up for no reset.
    let has_earned = !matches!(served, Served::Answered { .. });
    let tunnel = match served {
        Served::Switched(switched, idle_timeout) => {
            // HTTP/2 has no 101, and says the same by a success.
            account.status = 200;
            Some((switched, idle_timeout))
        }
        Served::Done | Served::Answered { .. } | Served::Broken => None,
    };
    match account.failure {
        Some(FailureKind::ClientGone) => shared.note_reset(),
        _ if has_earned => shared.make_up(),
        _ => {}
    }
    client.tell(&mut account);
    account.finish(worker);
    if let Some((switched, idle_timeout)) = tunnel {
        let carrier = client.into_carrier();
        let patience = (&deadline, idle_timeout);
        let tunnel = tunnel::run(worker.clone(), carrier, None, *switched, patience);
        Box::pin(tunnel).await;
    }
}

/// The plan of a stream that `asker` asks for, or that was called once others had had their turn.
fn plan_stream(
    shared: &Shared,
    section: &Section,
    is_body_empty: bool,
    asker: Option<Asker>,
) -> Result<PlannedStream, Unplanned> {
    let limits = &shared.worker.local.limits;
    if section.is_over() {
        return Err(FailureKind::HeadTooLarge.into());
    }
    let mut room = HeadMemory::default();
    let request = H2Request::read(section).map_err(|_| FailureKind::BadRequest)?;
    let pseudo = request.pseudo?;
    let has_to_upgrade = pseudo.protocol.is_some();
    let mut head: Head<'_> = head::from_http2(pseudo, request.fields, is_body_empty, limits)?;
    head.scheme = scheme(&shared.visit, &head, shared.worker.local.trusted_hops);
    let tables = shared.worker.tables.load();
    let (worker, visit, budget) = (&shared.worker, &shared.visit, Budget::default());
    if let Some(asker) = asker {
        let admitted = turn::admit(worker, &tables, visit, &head.host, || asker);
        // Its path was read for nothing.
        admitted.inspect_err(|_| shared.charge(PlanCost::of(&head, 0, &budget)))?;
    }
    underscore::sift(&tables, visit, &mut head, &worker.local.counts, &budget);
    let mut account = RequestAccount::begin(worker, &tables, visit, &head);
    let room = &mut room;
    let planned = plan(worker, &tables, visit, (&head, room), &mut account, &budget);
    let cost = PlanCost::of(&head, section.size(), &budget);
    shared.charge(cost);
    turn::charge_namespace(worker, &tables, visit, &head.host, cost.all());
    Ok(PlannedStream {
        planned,
        account,
        is_head: head.method == "HEAD",
        has_to_upgrade,
        is_costly: cost.is_costly(),
    })
}

#[cfg(test)]
mod tests {
    use super::serve_stream;
    use super::streams::STREAM_BYTES;

    const fn bytes_of<A, F>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_task_of_a_stream_is_within_what_each_of_them_counts_for() {
        let bytes = bytes_of(serve_stream);
        assert!(bytes <= STREAM_BYTES - 512, "{bytes} bytes");
    }
}
