//! External processors: services that a request and its response pass by, each part when it is
//! there.
//!
//! One stream of gRPC accompanies one request, over the connections of HTTP/2 that all requests to
//! the processor share. What is told is the head that the endpoint would get, after all edits of
//! the route.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::h2::SendStream;
use ::h2::client::ResponseFuture;
use bytes::Bytes;
use myriad_model::{CheckProtocol, Provider, SealedArc};
use tokio::time::Sleep;

use super::dry_run::{DryRunEnd, StageVerdict};
use super::gather::{Body, gather};
use super::{RequestState, Scene};
use crate::admission::spaces::NOBODY;
use crate::admission::waiting::Standing;
use crate::balance::Flight;
use crate::codec::body::{Encoder, unchunked};
use crate::codec::buffer::Buffer;
use crate::failure::FailureKind;
use crate::http::account::RequestAccount;
use crate::http::answer::LocalReply;
use crate::http::peer::Peer;
use crate::http::plan::Forward;
use crate::http::upstream::attempt::Broken;
use crate::http::upstream::own::{Own, own_plan};
use crate::http::upstream::retry::{self, ExchangeOutcome};
use crate::http::worker::Worker;
use crate::net::deadline::Deadline;
use crate::net::intake::Intake;
use crate::policy::check::edit_head;
use crate::policy::hops;
use crate::policy::process::{self, Mutation, Part, Reply, envoy};
use crate::telemetry::count::Count;
use crate::upstream::h2_connection::H2Stream;

mod response;

use response::Processed;

pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let taken = request.taken();
    let Some(name) = taken.ok().and_then(|it| it.route.policy.processor.as_ref()) else {
        return StageVerdict::Silent;
    };
    let sealed = scene.tables.provider(name);
    let Some(provider) = sealed.and_then(|sealed| sealed.provider()) else {
        let text = format!("processor {name} is not known");
        return DryRunEnd::refused(FailureKind::ProviderFailed, text);
    };
    let without = match provider.fail_open {
        true => "goes on without it where it is down".to_owned(),
        false => format!("gets {} where it is down", provider.error_status),
    };
    let upstream = &provider.upstream;
    StageVerdict::Passes(format!(
        "passes by processor {name} at {upstream}, which may refuse it, and {without}"
    ))
}

/// How a request that a processor accompanies ended.
pub enum Ended {
    /// The exchange with the endpoint ended.
    Exchanged(Result<ExchangeOutcome, Broken>),
    /// The client gets this.
    Answered(LocalReply),
}

/// A stream to a processor.
pub struct Conversation {
    provider: SealedArc,
    sending: SendStream<Bytes>,
    receiving: Receiving,
    arrived: Vec<u8>,
    /// How long the next answer may take.
    timer: Pin<Box<Sleep>>,
    /// Given back when the stream ends.
    _stream: H2Stream,
    _flight: Flight,
}

enum Receiving {
    Head(ResponseFuture),
    Messages(Intake),
}

/// Carries a plan out whose route has a processor.
pub async fn accompany<P: Peer>(
    worker: &Rc<Worker>,
    plan: &mut Forward,
    peer: &mut P,
    account: &mut RequestAccount,
    deadline: &Deadline,
) -> Ended {
    let name = plan.policy().and_then(|policy| policy.processor.clone());
    let tables = worker.tables.load_full();
    let sealed = name.and_then(|name| tables.provider(&name).cloned());
    drop(tables);
    let Some((sealed, provider)) = sealed.as_ref().and_then(|it| Some((it, it.provider()?))) else {
        return Ended::Answered(LocalReply::failed(FailureKind::ProviderFailed));
    };
    let whose = (&mut *peer, account.standing());
    let talk = match begin(worker, sealed, provider, plan, whose, deadline).await {
        Ok(talk) => talk,
        Err(answer) => return Ended::Answered(answer),
    };
    let is_told = matches!(&provider.protocol, CheckProtocol::Process(it) if it.tells_response);
    let Some(talk) = talk.filter(|_| is_told) else {
        return Ended::Exchanged(retry::exchange(worker, plan, peer, account, deadline).await);
    };
    let mut processed = Processed::new(worker.clone(), peer, talk, plan);
    let ended = retry::exchange(worker, plan, &mut processed, account, deadline).await;
    if let Some(status) = processed.replaced() {
        account.status = status;
        account.failure = Some(FailureKind::ProviderRefused);
    }
    Ended::Exchanged(ended)
}

/// Tells of the request. None where the processor is down and requests pass without it.
///
/// # Errors
/// The answer to the client instead.
async fn begin<P: Peer>(
    worker: &Rc<Worker>,
    sealed: &SealedArc,
    provider: &Provider,
    plan: &mut Forward,
    (peer, standing): (&mut P, Standing),
    deadline: &Deadline,
) -> Result<Option<Conversation>, LocalReply> {
    let mut body = unframe(plan).standing(standing).beside(plan.memory());
    let has_body = plan.has_body || !body.filled().is_empty();
    if let Some(rule) = provider.body.filter(|_| has_body) {
        let expects = plan.expects_continue;
        let gathered = gather(worker, rule, expects, &mut body, peer, deadline).await;
        gathered.map_err(LocalReply::failed)?;
    }
    // It is told once more, and goes on.
    peer.hold(body.beside + 3 * body.memory(), 0);
    let mut talk = None;
    let told = async {
        let mut opened = Conversation::open(worker, sealed, provider, plan).await?;
        let head = process::request_head(&plan.head, plan.scheme, !has_body);
        let has = |name: &str| plan.head.has(name);
        let first = opened.ask(&head, Part::RequestHead, has).await?;
        let mut second = None;
        if provider.body.is_some() && has_body && matches!(first, Reply::Continue(_)) {
            let told = process::request_body(body.filled());
            second = Some(opened.ask(&told, Part::RequestBody, has).await?);
        }
        talk = Some(opened);
        Some([Some(first), second])
    }
    .await;
    let counts = &worker.local.counts;
    let Some(replies) = told else {
        if !provider.fail_open {
            counts.add(Count::CheckFailedClosed);
            let mut answer = LocalReply::failed(FailureKind::ProviderFailed);
            answer.status = provider.error_status;
            return Err(answer);
        }
        counts.add(Count::CheckFailedOpen);
        frame(plan, &body, None);
        return Ok(None);
    };
    let mut replaced = None;
    for reply in replies.into_iter().flatten() {
        match reply {
            Reply::Immediate(refusal) => {
                counts.add(Count::CheckRefused);
                return Err(LocalReply::refused(refusal));
            }
            Reply::Continue(Mutation { changes, body }) => {
                if changes.are_of_request() {
                    plan.reserved.extend(changes.names().map(Box::from));
                    edit_head(&mut plan.head, &changes);
                }
                replaced = body.or(replaced);
            }
        }
    }
    counts.add(Count::CheckPassed);
    frame(plan, &body, replaced);
    Ok(talk)
}

/// Takes what somebody has read of the body already.
fn unframe(plan: &mut Forward) -> Body {
    let framed = std::mem::replace(&mut plan.body, Buffer::none());
    if framed.is_empty() {
        return Body::default();
    }
    let body = match plan.encoder {
        Encoder::Plain => framed,
        Encoder::Chunked => unchunked(framed.filled()),
    };
    Body::of(body, !plan.has_body)
}

/// Puts the body, or what stands in its place, behind the head.
fn frame(plan: &mut Forward, body: &Body, replaced: Option<Bytes>) {
    let Some(replaced) = replaced else {
        return body.give_back(plan);
    };
    plan.head.set_length(replaced.len());
    plan.body = Buffer::none();
    plan.body.append(&replaced);
    plan.encoder = Encoder::Plain;
    plan.has_body = false;
    plan.expects_continue = false;
}

impl Conversation {
    /// Begins a stream, which tells of the gateways as the request of a plan does; none where the
    /// processor is down.
    async fn open(
        worker: &Rc<Worker>,
        sealed: &SealedArc,
        provider: &Provider,
        accompanied: &Forward,
    ) -> Option<Conversation> {
        let host = provider.authority.split(':').next();
        let own = Own {
            upstream: &provider.upstream,
            host: host.unwrap_or_default(),
            head: Buffer::none(),
            is_head: false,
            timeout: provider.timeout,
            // Its own conversation holds what is told and said.
            space: NOBODY,
        };
        let plan = own_plan(worker, own)?;
        if !plan.upstream.is_http2() {
            return None;
        }
        let opening = tokio::time::timeout(provider.timeout, retry::open_stream(worker, &plan));
        let (stream, flight) = opening.await.ok()?.ok()?;
        let mut request = http::Request::builder()
            .method("POST")
            .version(http::Version::HTTP_2)
            .uri(format!(
                "http://{}{}",
                provider.authority,
                process::GRPC_PATH
            ))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(passed) = accompanied.head.value(hops::FIELD) {
            request = request.header(hops::FIELD, passed);
        }
        let request = request.body(()).ok()?;
        let ready = tokio::time::timeout(provider.timeout, stream.send.clone().ready());
        let mut send = ready.await.ok()?.ok()?;
        let (response, sending) = send.send_request(request, false).ok()?;
        Some(Conversation {
            provider: sealed.clone(),
            sending,
            receiving: Receiving::Head(response),
            arrived: Vec::new(),
            timer: Box::pin(tokio::time::sleep(provider.timeout)),
            _stream: stream,
            _flight: flight,
        })
    }

    /// How many bytes of memory its answers take that are not whole.
    pub fn memory(&self) -> usize {
        self.arrived.capacity()
    }

    /// The processor.
    pub fn provider(&self) -> Option<&Provider> {
        self.provider.provider()
    }

    /// Tells a part.
    pub fn tell(&mut self, message: &envoy::ProcessingRequest) {
        let timeout = self.provider().map(|provider| provider.timeout);
        let timer = tokio::time::sleep(timeout.unwrap_or_default());
        self.timer.as_mut().set(timer);
        // Where the stream has ended, so has what is heard of it.
        let _ = self.sending.send_data(process::framed(message), false);
    }

    /// Takes what has come of further answers off the library's hands, for whoever waits for them.
    pub fn soak(&mut self, context: &mut Context<'_>) {
        if let Receiving::Messages(stream) = &mut self.receiving {
            stream.soak(context);
        }
    }

    /// Waits for an answer; none where there is none in time.
    pub fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<envoy::ProcessingResponse>> {
        let body_bytes_max = self.provider().and_then(|provider| provider.body);
        let body_bytes_max = body_bytes_max.map_or(0, |rule| rule.bytes_max as usize);
        loop {
            match process::take(&mut self.arrived, body_bytes_max) {
                Ok(Some(message)) => return Poll::Ready(Some(message)),
                Ok(None) => {}
                Err(_) => return Poll::Ready(None),
            }
            match &mut self.receiving {
                Receiving::Head(response) => match Pin::new(response).poll(context) {
                    Poll::Ready(Ok(head)) if head.status() == 200 => {
                        self.receiving = Receiving::Messages(Intake::new(head.into_body()));
                        continue;
                    }
                    Poll::Ready(_) => return Poll::Ready(None),
                    Poll::Pending => {}
                },
                Receiving::Messages(stream) => match stream.poll_data(context) {
                    Poll::Ready(Some(Ok(data))) => {
                        self.arrived.extend_from_slice(&data);
                        continue;
                    }
                    Poll::Ready(_) => return Poll::Ready(None),
                    Poll::Pending => {}
                },
            }
            return self.timer.as_mut().poll(context).map(|()| None);
        }
    }

    async fn ask(
        &mut self,
        message: &envoy::ProcessingRequest,
        part: Part,
        has: impl Fn(&str) -> bool,
    ) -> Option<Reply> {
        self.tell(message);
        let answer = poll_fn(|context| self.poll_answer(context)).await?;
        process::reply(answer, part, has)
    }
}
