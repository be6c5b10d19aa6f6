//! HTTP/1 with clients (RFC 9112): heads in, one request at a time, heads and bodies out.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{Downstream as _, RequestTurn, Served, h2};
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
}

/// The beginning of a connection, as it was heard before it is served.
#[derive(Default)]
pub struct Start {
    /// The bytes that it has sent.
    pub said: Option<Buffer>,
    /// Whether that is less than a head, and has taken too long.
    pub is_late: bool,
}

/// The next step on a connection after a request.
enum Next {
    /// Another one.
    Request,
    /// The end of the connection.
    Close,
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
        client: H1Client::new(stream, start.said, worker.clone()),
        worker,
        visit,
        deadline: Deadline::new(),
        requests: 0,
        has_had_turn: false,
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
                let Connection {
                    worker,
                    visit,
                    client,
                    ..
                } = connection;
                let (stream, said) = client.into_parts();
                Box::pin(h2::serve(worker, visit, stream, said)).await;
                return;
            }
            connection.requests += 1;
            match connection.serve_one(length).await {
                Next::Request => {}
                Next::Close => break,
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
    async fn read_head(&mut self) -> Result<Option<usize>, FailureKind> {
        let limits = &self.worker.local.limits;
        let mut finder = HeadFinder::default();
        let mut has_begun = false;
        let mut is_last_call = false;
        let mut rests = None;
        self.deadline.set(limits.idle_timeout);
        poll_fn(|context| {
            ready!(poll_turn(&mut self.has_had_turn, context));
            if self.visit.is_evicted() {
                self.client.abort();
                return Poll::Ready(Ok(None));
            }
            loop {
                self.client.skip_empty_line();
                if let Some(bytes) = self.client.waiting() {
                    if !has_begun {
                        has_begun = true;
                        self.deadline.set(limits.head_timeout);
                    }
                    match finder.find(bytes) {
                        Ok(Some(length)) if length <= limits.head_bytes_max => {
                            return Poll::Ready(Ok(Some(length)));
                        }
                        Ok(None) if bytes.len() <= limits.head_bytes_max => {}
                        Ok(_) => return Poll::Ready(Err(too_large(bytes, limits))),
                        Err(kind) => return Poll::Ready(Err(kind)),
                    }
                } else if is_leaving(&self.worker, &self.visit) && !is_last_call {
                    // What the connection came in by is no longer what it was, as where plain
                    // text is not accepted any more: nothing more is taken.
                    if self.visit.is_leaving() && self.requests > 0 {
                        return Poll::Ready(Ok(None));
                    }
                    // Who has only just connected is about to ask, and any other client may have
                    // sent a request that has yet to arrive: the answer to it says the end.
                    is_last_call = true;
                    self.deadline.set(self.worker.last_call());
                }
                match self.client.poll_fill(context) {
                    Poll::Ready(Ok(count)) if count > 0 => {}
                    // Half a head has nobody to answer any more.
                    Poll::Ready(_) => return Poll::Ready(Ok(None)),
                    Poll::Pending => break,
                }
            }
            self.client.hold(0, 0);
            // With half a head it makes room for others as well, but after idle ones.
            if rests.replace(has_begun) != Some(has_begun) {
                self.visit.rest();
            }
            match self.deadline.poll_passed(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) if self.visit.is_evicted() => {
                    self.client.abort();
                    Poll::Ready(Ok(None))
                }
                Poll::Ready(()) if has_begun => Poll::Ready(Err(FailureKind::HeadTimeout)),
                Poll::Ready(()) => {
                    // A last call is the end of a drain, and no limit.
                    if !is_last_call {
                        self.worker.local.counts.add_reached(Reached::IdleTimeout);
                    }
                    Poll::Ready(Ok(None))
                }
            }
        })
        .await
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
        let (planned, mut account, request) = match self.plan(length) {
            Ok(planned) => planned,
            Err(kind) => {
                self.refuse(kind).await;
                return Next::Close;
            }
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

    /// Everything that needs the head, which is used up by then.
    fn plan(&self, length: usize) -> Result<(Planned, RequestAccount, H1Request), FailureKind> {
        let bytes = self.client.waiting().unwrap_or_default();
        let bytes = bytes.get(..length).unwrap_or_default();
        let mut room = HeadMemory::default();
        let mut head = head::parse(bytes, &self.worker.local.limits)?;
        head.scheme = scheme(&self.visit, &head, self.worker.local.trusted_hops);
        let tables = self.worker.tables.load();
        let (counts, budget) = (&self.worker.local.counts, Budget::default());
        underscore::sift(&tables, &self.visit, &mut head, counts, &budget);
        let mut account = RequestAccount::begin(&self.worker, &tables, &self.visit, &head);
        let (worker, visit) = (&self.worker, &self.visit);
        let room = &mut room;
        let planned = plan(worker, &tables, visit, (&head, room), &mut account, &budget);
        let request = self.request(&head, &planned.plan);
        Ok((planned, account, request))
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
        self.client.begin(H1Request::unread(), 0);
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
