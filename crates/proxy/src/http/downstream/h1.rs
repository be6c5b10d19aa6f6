//! HTTP/1 with clients (RFC 9112): heads in, one request at a time, heads and bodies out.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::turn::{self, PlanCost, Unplanned};
use super::{Downstream as _, RequestTurn, Served, h2};
use crate::admission::planning::{Asker, PlanTurns, PlanWait};
use crate::admission::spaces::NOBODY;
use crate::codec::body::BodyLength;
use crate::codec::buffer::Buffer;
use crate::codec::frame;
use crate::codec::head::{self, Head, HeadFinder, Version};
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::answer::LocalReply;
use crate::http::peer::Peer as _;
use crate::http::plan::Plan;
use crate::http::stage::{Planned, plan, scheme};
use crate::http::tunnel;
use crate::http::upstream::retry::Switched;
use crate::http::worker::Worker;
use crate::limits::{Limits, Reached};
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;
use crate::pattern::Budget;
use crate::policy::token::HeadMemory;
use crate::policy::underscore;
use crate::route::downstream_connection::DownstreamConnection;

mod client;

use client::{H1Client, H1Request};

/// How long the client has to close its half after the last response.
const LINGER: Duration = Duration::from_secs(2);

/// A connection.
struct Connection {
    worker: Rc<Worker>,
    visit: DownstreamConnection,
    client: H1Client,
    deadline: Deadline,
    requests: u64,
    /// Whether others come before the next request, though that may be here already.
    has_had_turn: bool,
    /// Whether the request before was costly.
    is_costly: Cell<bool>,
}

/// A request that is planned: its account, and what the client's end has to know of it.
type PlannedRequest = (Planned, RequestAccount, H1Request);

/// The way of a request to its plan.
#[derive(Default)]
struct PlanLine {
    wait: PlanWait,
    /// The namespace that serves its host, where that has had its turn.
    namespace: Option<u64>,
    has_waited: bool,
}

/// The beginning of a connection, as it was heard before it is served.
#[derive(Default)]
pub struct Start {
    /// The bytes that it has sent.
    pub said: Option<Buffer>,
    /// Whether that is less than a head, and has taken too long.
    pub is_late: bool,
}

/// The length of a head that was read; none at the end of the connection.
type HeadRead = Result<Option<usize>, FailureKind>;

/// The state of a wait for a head.
#[derive(Default)]
struct HeadWait {
    finder: HeadFinder,
    has_begun: bool,
    is_last_call: bool,
    /// Whether the connection makes room for others, and whether it does so with half a head.
    rests: Option<bool>,
    /// Whether anything was held meanwhile.
    is_held: bool,
}

/// The next step on a connection after a request.
enum Next {
    /// Another one.
    Request,
    /// The end of the connection.
    Close,
    /// The answer to a request that has no plan, and then the end.
    Refuse(FailureKind),
    /// Another protocol.
    Tunnel(Box<Switched>, Duration),
}

/// Serves a connection until it ends.
pub fn serve(
    worker: Rc<Worker>,
    visit: DownstreamConnection,
    stream: Stream,
    start: Start,
) -> impl Future<Output = ()> {
    let mut connection = Connection {
        client: H1Client::new(
            stream,
            start.said,
            PlanTurns::source(visit.client.ip()),
            worker.clone(),
        ),
        worker,
        visit,
        deadline: Deadline::new(),
        requests: 0,
        has_had_turn: false,
        is_costly: Cell::new(false),
    };
    connection.visit.watch(&connection.deadline);
    // What a block takes from around it is there once, the arguments of a function twice.
    async move {
        if start.is_late {
            connection.refuse(FailureKind::HeadTimeout).await;
            return connection.close().await;
        }
        loop {
            let head = connection.read_head().await;
            connection.visit.work();
            let length = match head {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(kind) => {
                    connection.refuse(kind).await;
                    break;
                }
            };
            if connection.is_http2(length) {
                let (stream, said) = connection.client.into_parts();
                let served = h2::serve(connection.worker, connection.visit, stream, said);
                return Box::pin(served).await;
            }
            connection.requests += 1;
            match connection.serve_one(length).await {
                Next::Request => {}
                Next::Close => break,
                Next::Refuse(kind) => {
                    connection.refuse(kind).await;
                    break;
                }
                Next::Tunnel(switched, idle_timeout) => {
                    let Connection {
                        client,
                        deadline,
                        worker,
                        ..
                    } = connection;
                    let (stream, said) = client.into_parts();
                    let patience = (&deadline, idle_timeout);
                    let tunnel = tunnel::run(worker, stream, said, *switched, patience);
                    Box::pin(tunnel).await;
                    return;
                }
            }
        }
        connection.close().await;
    }
}

/// Whether a connection shall end with the request it is in.
fn is_leaving(worker: &Worker, visit: &DownstreamConnection) -> bool {
    worker.is_draining() || visit.is_leaving() || worker.local.fairness.ends_idle()
}

/// Ready once others have had their turn, after one that was had.
fn poll_turn(has_had_turn: &mut bool, context: &Context<'_>) -> Poll<()> {
    if std::mem::take(has_had_turn) {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

impl Connection {
    /// Waits for a head, and returns its length; none at the end of the connection.
    async fn read_head(&mut self) -> HeadRead {
        let mut wait = HeadWait::default();
        self.deadline.set(self.worker.local.limits.idle_timeout);
        let read = poll_fn(|context| {
            ready!(poll_turn(&mut self.has_had_turn, context));
            if self.visit.is_evicted() {
                self.client.abort();
                return Poll::Ready(Ok(None));
            }
            match self.poll_head(&mut wait, context) {
                Poll::Pending => self.poll_late(&mut wait, context),
                read => read,
            }
        })
        .await;
        if wait.is_held {
            self.client.unwatch();
            self.visit.keep(0);
        }
        read
    }

    /// Reads until a head is whole, or the connection at its end.
    fn poll_head(&mut self, wait: &mut HeadWait, context: &mut Context<'_>) -> Poll<HeadRead> {
        let limits = &self.worker.local.limits;
        loop {
            if self.client.skip_empty_line() {
                // Nothing behind it was looked at.
                wait.finder = HeadFinder::default();
            }
            if let Some(bytes) = self.client.waiting() {
                if !wait.has_begun {
                    wait.has_begun = true;
                    self.deadline.set(limits.head_timeout);
                }
                match wait.finder.find(bytes) {
                    Ok(Some(length)) if length <= limits.head_bytes_max => {
                        return Poll::Ready(Ok(Some(length)));
                    }
                    Ok(None) if bytes.len() <= limits.head_bytes_max => {}
                    Ok(_) => return Poll::Ready(Err(too_large(bytes, limits))),
                    Err(kind) => return Poll::Ready(Err(kind)),
                }
            } else if is_leaving(&self.worker, &self.visit) && !wait.is_last_call {
                // What the connection came in by is no longer what it was, as where plain
                // text is not accepted any more: nothing more is taken.
                if self.visit.is_leaving() && self.requests > 0 {
                    return Poll::Ready(Ok(None));
                }
                // Who has only just connected is about to ask, and any other client may have
                // sent a request that has yet to arrive: the answer to it says the end.
                wait.is_last_call = true;
                self.deadline.set(self.worker.last_call());
            }
            match ready!(self.client.poll_fill(context)) {
                Ok(count) if count > 0 => {}
                // Half a head has nobody to answer any more.
                _ => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// Ends a wait for a head, where it has taken too long or there is no room for it.
    fn poll_late(&mut self, wait: &mut HeadWait, context: &mut Context<'_>) -> Poll<HeadRead> {
        if !self.has_room(wait) {
            let counts = &self.worker.local.counts;
            counts.add_reached(Reached::AllHeldBytes);
            return Poll::Ready(Err(FailureKind::Overloaded));
        }
        // With half a head it makes room for others as well, but after idle ones.
        if wait.rests.replace(wait.has_begun) != Some(wait.has_begun) {
            self.visit.rest();
        }
        ready!(self.deadline.poll_passed(context));
        if self.visit.is_evicted() {
            self.client.abort();
            return Poll::Ready(Ok(None));
        }
        if wait.has_begun {
            return Poll::Ready(Err(FailureKind::HeadTimeout));
        }
        // A last call is the end of a drain, and no limit.
        if !wait.is_last_call {
            self.worker.local.counts.add_reached(Reached::IdleTimeout);
        }
        Poll::Ready(Ok(None))
    }

    /// Whether there is room for what is held while the rest of a head is waited for.
    fn has_room(&mut self, wait: &mut HeadWait) -> bool {
        let bytes = self.client.memory();
        if bytes == 0 && !wait.is_held {
            // So it is before all heads that come whole.
            self.client.hold(0, 0);
            return true;
        }
        self.visit.keep(bytes);
        let is_first = !std::mem::replace(&mut wait.is_held, true);
        self.client.hold_head(bytes, is_first, &self.deadline)
    }

    /// Whether a connection in plain text begins as one of HTTP/2 does by prior knowledge (RFC
    /// 9113, section 3.3). With TLS its handshake would have said so.
    fn is_http2(&self, length: usize) -> bool {
        let bytes = self.client.waiting().unwrap_or_default();
        self.requests == 0
            && self.visit.secured.is_none()
            && bytes.get(..length) == Some(frame::PREFACE_HEAD)
    }

    async fn serve_one(&mut self, length: usize) -> Next {
        let (planned, mut account, request) = match self.planned(length).await {
            Ok(planned) => planned,
            // Not from here: the connection would have room for a plan twice.
            Err(kind) => return Next::Refuse(kind),
        };
        self.client.begin(request, length);
        let ends_turn = planned.ends_turn;
        let served = self.turn(&mut account).carry_out(planned).await;
        let ends_turn = ends_turn || matches!(served, Served::Answered { .. });
        let next = match served {
            Served::Done => self.after(false).await,
            Served::Answered { is_framed } => self.after(is_framed).await,
            Served::Broken => Next::Close,
            Served::Switched(switched, idle_timeout) => Next::Tunnel(switched, idle_timeout),
        };
        self.client.tell(&mut account);
        account.finish(&self.worker);
        self.has_had_turn = ends_turn;
        next
    }

    /// The request that it is in.
    fn turn<'a>(&'a mut self, account: &'a mut RequestAccount) -> RequestTurn<'a, H1Client> {
        RequestTurn {
            worker: &self.worker,
            visit: &self.visit,
            client: &mut self.client,
            account,
            deadline: &self.deadline,
        }
    }

    /// The plan of a request, once it is its turn.
    fn planned(
        &mut self,
        length: usize,
    ) -> impl Future<Output = Result<PlannedRequest, FailureKind>> {
        let mut line = PlanLine::default();
        poll_fn(move |context| self.poll_planned(length, &mut line, context))
    }

    fn poll_planned(
        &mut self,
        length: usize,
        line: &mut PlanLine,
        context: &mut Context<'_>,
    ) -> Poll<Result<PlannedRequest, FailureKind>> {
        loop {
            if self.poll_line(line, context).is_pending() {
                line.has_waited = true;
                // Its head is held meanwhile, and not for whoever was asked before.
                self.client.belong(NOBODY);
                return match self.client.hold(0, 0) {
                    true => Poll::Pending,
                    false => Poll::Ready(Err(FailureKind::Overloaded)),
                };
            }
            // Nothing is done for a client that has gone meanwhile.
            if line.has_waited && self.client.is_gone() {
                return Poll::Ready(Err(FailureKind::ClientGone));
            }
            match self.plan(length, line.namespace.is_some()) {
                Ok(planned) => return Poll::Ready(Ok(planned)),
                Err(Unplanned::Failed(kind)) => return Poll::Ready(Err(kind)),
                Err(Unplanned::Crowded(namespace)) => {
                    line.namespace = Some(namespace);
                    line.wait = PlanWait::default();
                }
            }
        }
    }

    /// Ready once it is the turn of the client's source, or of the namespace that a request is for.
    fn poll_line(&self, line: &mut PlanLine, context: &mut Context<'_>) -> Poll<()> {
        let turns = &self.worker.local.fairness.plans;
        let wait = &mut line.wait;
        match line.namespace {
            None if turns.admits_any_request() => Poll::Ready(()),
            None => turns.poll_request(self.asker(), wait, context),
            Some(namespace) => turns.poll_namespace(namespace, self.asker(), wait, context),
        }
    }

    fn source(&self) -> u64 {
        self.client.source()
    }

    fn asker(&self) -> Asker {
        Asker {
            source: self.source(),
            is_costly: self.is_costly.get(),
        }
    }

    /// Everything that needs the head, which is used up by then.
    ///
    /// # Errors
    /// The head is refused, or others have their turn before, unless the request was called.
    fn plan(&self, length: usize, was_called: bool) -> Result<PlannedRequest, Unplanned> {
        let bytes = self.client.waiting().unwrap_or_default();
        let bytes = bytes.get(..length).unwrap_or_default();
        let (worker, visit) = (&self.worker, &self.visit);
        let limits = &worker.local.limits;
        let mut room = HeadMemory::default();
        let parsed = head::parse(bytes, limits);
        let mut head = parsed.inspect_err(|_| self.charge(PlanCost::of_refused(length, limits)))?;
        head.scheme = scheme(visit, &head, worker.local.trusted_hops);
        let tables = worker.tables.load();
        let (counts, budget) = (&worker.local.counts, Budget::default());
        if !was_called {
            let admitted = turn::admit(worker, &tables, visit, &head.host, || self.asker());
            admitted.inspect_err(|_| {
                let cost = PlanCost::of(&head, length, &budget);
                turn::charge_source(worker, || self.source(), cost.all());
            })?;
        }
        underscore::sift(&tables, visit, &mut head, counts, &budget);
        let mut account = RequestAccount::begin(worker, &tables, visit, &head);
        let room = &mut room;
        let planned = plan(worker, &tables, visit, (&head, room), &mut account, &budget);
        let cost = PlanCost::of(&head, length, &budget);
        self.charge(cost);
        turn::charge_namespace(worker, &tables, visit, &head.host, cost.all());
        let request = self.request(&head, &planned.plan);
        Ok((planned, account, request))
    }

    /// Counts a request of the client's source, and charges that what it has cost.
    fn charge(&self, cost: PlanCost) {
        self.is_costly.set(cost.is_costly());
        self.worker.local.fairness.plans.note_request(self.source());
        turn::charge_source(&self.worker, || self.source(), cost.all());
    }

    fn request(&self, head: &Head<'_>, plan: &Plan) -> H1Request {
        let local = &self.worker.local;
        let is_last = self.requests >= local.limits.requests_per_connection_max;
        if is_last {
            local.counts.add_reached(Reached::RequestsPerConnection);
        }
        let body_bytes_max = match plan {
            Plan::Answer(_) => u64::MAX,
            Plan::Forward(plan) => plan
                .policy()
                .map_or(u64::MAX, |policy| policy.request_body_bytes_max),
        };
        H1Request {
            version: head.version,
            is_head: head.method == "HEAD",
            length: head.body,
            body_bytes_max,
            keep_alive: head.keep_alive
                && !is_leaving(&self.worker, &self.visit)
                && !is_last
                && !plan.is_overloaded(),
            expects_continue: head.expects_continue,
        }
    }

    /// Refuses a head that cannot be understood, after which nothing can be.
    async fn refuse(&mut self, kind: FailureKind) {
        let mut account = RequestAccount::begin_unread(&self.worker, &self.visit, Version::Http11);
        // Nothing that it has said is of use, and it may take its time to read why.
        let said = self.client.waiting().map_or(0, <[u8]>::len);
        self.client.begin(H1Request::unread(), said);
        let mut answer = LocalReply::failed(kind);
        self.turn(&mut account).respond(&mut answer).await;
        account.finish(&self.worker);
    }

    /// Reads what is left of the request, if that is little and nobody waits for it. Meanwhile the
    /// connection goes at once where another needs the place.
    async fn after(&mut self, may_discard: bool) -> Next {
        if !self.client.keeps_alive() {
            return Next::Close;
        }
        if self.client.is_request_done() {
            return Next::Request;
        }
        if !may_discard {
            return Next::Close;
        }
        let limits = &self.worker.local.limits;
        self.deadline.set(limits.body_timeout);
        let discarded = poll_fn(|context| {
            if let Poll::Ready(discarded) = self.client.poll_discard(context) {
                return Poll::Ready(discarded);
            }
            self.visit.rest();
            self.deadline.poll_passed(context).map(|()| false)
        })
        .await;
        if discarded {
            Next::Request
        } else {
            Next::Close
        }
    }

    /// Ends the connection so that the client gets all of the last response: data that arrives
    /// at a closed socket would make the kernel throw away what the client has not read yet.
    /// Nobody waits for a place because of that: it goes at once where another connection comes.
    async fn close(mut self) {
        if self.client.is_aborted() || self.visit.is_evicted() {
            return;
        }
        self.deadline.set(LINGER);
        self.client.hold(0, 0);
        self.visit.rest();
        poll_fn(|context| {
            if self.client.poll_linger(context).is_ready() {
                return Poll::Ready(());
            }
            self.deadline.poll_passed(context)
        })
        .await;
    }
}

/// The fault of a head that is too long: its target, if that alone is.
fn too_large(bytes: &[u8], limits: &Limits) -> FailureKind {
    match memchr::memchr(b'\n', bytes) {
        Some(line) if line <= limits.target_bytes_max => FailureKind::HeadTooLarge,
        _ => FailureKind::TargetTooLong,
    }
}

/// Whether a request is framed in a way that leaves nothing to read.
fn is_empty(length: BodyLength) -> bool {
    matches!(length, BodyLength::None | BodyLength::Exact(0))
}
