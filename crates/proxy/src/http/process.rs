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

use ::h2::client::ResponseFuture;
use ::h2::{RecvStream, SendStream};
use bytes::Bytes;
use myriad_model::{CheckProtocol, Provider, SealedArc};
use tokio::time::Sleep;

use super::account::Account;
use super::answer::Answer;
use super::around::Broken;
use super::check::{Body, Own, gather, own_plan, refused};
use super::exchange::{self, Outcome};
use super::peer::Peer;
use super::plan::Forward;
use super::processed::Processed;
use super::worker::Worker;
use crate::balance::Flight;
use crate::net::body::{BodyLength, Decoder, Encoder};
use crate::net::buffer::Buffer;
use crate::net::count::Count;
use crate::net::deadline::Deadline;
use crate::net::failure::FailureKind;
use crate::net::field::Known;
use crate::policy::check::edit;
use crate::policy::process::{self, Mutation, Part, Reply, envoy};
use crate::upstream::channel::Place;

/// How a request that a processor accompanies ended.
pub enum Ended {
    /// As any exchange does.
    Exchanged(Result<Outcome, Broken>),
    /// The client gets this.
    Answered(Answer),
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
    _place: Place,
    _flight: Flight,
}

enum Receiving {
    Head(ResponseFuture),
    Messages(RecvStream),
}

/// Carries a plan out whose route has a processor.
pub async fn accompany<P: Peer>(
    worker: &Rc<Worker>,
    plan: &mut Forward,
    peer: &mut P,
    account: &mut Account,
    deadline: &Deadline,
) -> Ended {
    let name = plan.policy().and_then(|policy| policy.processor.clone());
    let tables = worker.tables.load_full();
    let sealed = name.and_then(|name| tables.provider(&name).cloned());
    drop(tables);
    let Some((sealed, provider)) = sealed.as_ref().and_then(|it| Some((it, it.provider()?))) else {
        return Ended::Answered(Answer::failed(FailureKind::ProviderFailed));
    };
    let talk = match begin(worker, sealed, provider, plan, peer, deadline).await {
        Ok(talk) => talk,
        Err(answer) => return Ended::Answered(answer),
    };
    let is_told = matches!(&provider.protocol, CheckProtocol::Process(it) if it.tells_response);
    let Some(talk) = talk.filter(|_| is_told) else {
        return Ended::Exchanged(exchange::exchange(worker, plan, peer, account, deadline).await);
    };
    let mut processed = Processed::new(worker.clone(), peer, talk, plan);
    let ended = exchange::exchange(worker, plan, &mut processed, account, deadline).await;
    if let Some(status) = processed.replaced() {
        account.status = status;
        account.failure = Some(FailureKind::ProviderRefused);
    }
    Ended::Exchanged(ended)
}

/// Tells of the request. None where the processor is down and requests pass without it.
///
/// # Errors
/// What the client gets instead.
async fn begin<P: Peer>(
    worker: &Rc<Worker>,
    sealed: &SealedArc,
    provider: &Provider,
    plan: &mut Forward,
    peer: &mut P,
    deadline: &Deadline,
) -> Result<Option<Conversation>, Answer> {
    let mut body = unframe(plan);
    let has_body = plan.has_body || !body.filled().is_empty();
    if let Some(rule) = provider.body.filter(|_| has_body) {
        let expects = plan.expects_continue;
        let gathered = gather(worker, rule, expects, &mut body, peer, deadline).await;
        gathered.map_err(Answer::failed)?;
    }
    let mut talk = None;
    let told = async {
        let mut opened = Conversation::open(worker, sealed, provider).await?;
        let head = process::request_head(plan.head.filled(), plan.scheme, !has_body);
        let has = |name: &str| has_field(plan.head.filled(), name);
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
            let mut answer = Answer::failed(FailureKind::ProviderFailed);
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
                return Err(refused(refusal));
            }
            Reply::Continue(Mutation { changes, body }) => {
                if changes.are_of_request() {
                    plan.head = edit(&plan.head, &changes);
                }
                replaced = body.or(replaced);
            }
        }
    }
    counts.add(Count::CheckPassed);
    frame(plan, &body, replaced);
    Ok(talk)
}

/// Takes what somebody has put of the body behind the head.
fn unframe(plan: &mut Forward) -> Body {
    let bytes = plan.head.filled();
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let (head, mut rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    if rest.is_empty() {
        return Body::default();
    }
    let mut body = Buffer::take();
    match plan.encoder {
        Encoder::Plain => body.append(rest),
        Encoder::Chunked => {
            let mut decoder = Decoder::new(BodyLength::Chunked);
            while let Ok(step) = decoder.step(rest)
                && step.consumed > 0
            {
                body.append(step.data);
                rest = rest.get(step.consumed..).unwrap_or_default();
            }
        }
    }
    let mut kept = Buffer::take();
    kept.append(head);
    plan.head = kept;
    Body::of(body, !plan.has_body)
}

/// Puts the body, or what stands in its place, behind the head.
fn frame(plan: &mut Forward, body: &Body, replaced: Option<Bytes>) {
    let Some(replaced) = replaced else {
        return body.give_back(plan);
    };
    let bytes = plan.head.filled();
    let mut out = Buffer::take();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let known = std::str::from_utf8(name).map_or(Known::Other, Known::of);
        if line == b"\r\n" {
            break;
        }
        if !matches!(known, Known::ContentLength | Known::TransferEncoding) {
            out.append(line);
        }
    }
    out.append(b"content-length: ");
    out.append_decimal(replaced.len() as u64);
    out.append(b"\r\n\r\n");
    out.append(&replaced);
    plan.head = out;
    plan.encoder = Encoder::Plain;
    plan.has_body = false;
    plan.expects_continue = false;
}

/// Whether a written head has a field of a lower-case name.
fn has_field(head: &[u8], name: &str) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.any(|line| {
        let known = line.split(|byte| *byte == b':').next().unwrap_or_default();
        known.eq_ignore_ascii_case(name.as_bytes())
    })
}

impl Conversation {
    /// Begins a stream; none where the processor is down.
    async fn open(
        worker: &Rc<Worker>,
        sealed: &SealedArc,
        provider: &Provider,
    ) -> Option<Conversation> {
        let host = provider.authority.split(':').next();
        let own = Own {
            upstream: &provider.upstream,
            host: host.unwrap_or_default(),
            head: Buffer::take(),
            is_head: false,
            timeout: provider.timeout,
        };
        let plan = own_plan(worker, own)?;
        if !plan.upstream.is_http2() {
            return None;
        }
        let opening = tokio::time::timeout(provider.timeout, exchange::place(worker, &plan));
        let (place, flight) = opening.await.ok()?.ok()?;
        let request = http::Request::builder()
            .method("POST")
            .version(http::Version::HTTP_2)
            .uri(format!(
                "http://{}{}",
                provider.authority,
                process::GRPC_PATH
            ))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .ok()?;
        let ready = tokio::time::timeout(provider.timeout, place.send.clone().ready());
        let mut send = ready.await.ok()?.ok()?;
        let (response, sending) = send.send_request(request, false).ok()?;
        Some(Conversation {
            provider: sealed.clone(),
            sending,
            receiving: Receiving::Head(response),
            arrived: Vec::new(),
            timer: Box::pin(tokio::time::sleep(provider.timeout)),
            _place: place,
            _flight: flight,
        })
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
                        self.receiving = Receiving::Messages(head.into_body());
                        continue;
                    }
                    Poll::Ready(_) => return Poll::Ready(None),
                    Poll::Pending => {}
                },
                Receiving::Messages(stream) => match stream.poll_data(context) {
                    Poll::Ready(Some(Ok(data))) => {
                        let _ = stream.flow_control().release_capacity(data.len());
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
