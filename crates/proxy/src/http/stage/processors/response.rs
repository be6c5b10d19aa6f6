//! The client of an exchange whose response passes by a processor before it begins.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::Conversation;
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::Buffer;
use crate::codec::response::{self, ResponseHead};
use crate::codec::trailer::Trailers;
use crate::failure::FailureKind;
use crate::http::peer::{Peer, ResponseChanges};
use crate::http::plan::{Forward, changes_of};
use crate::http::worker::Worker;
use crate::policy::check::{OwnedHeader, RefusalResponse, edit, may_pass_on};
use crate::policy::cors::Additions;
use crate::policy::process::{self, Part, Reply};
use crate::route::entry::RouteEntry;
use crate::telemetry::count::Count;

/// A client that gets what the processor has left of a response.
pub(super) struct Processed<'a, P> {
    worker: Rc<Worker>,
    peer: &'a mut P,
    talk: Conversation,
    route: RouteEntry,
    share: usize,
    is_head: bool,
    stage: Stage,
}

enum Stage {
    /// No response has come.
    Before,
    /// The processor knows its head.
    Told(Box<Held>),
    /// It goes on to the client.
    Passing,
    /// The client got another one, of this status.
    Replaced(u16),
}

/// A response that has not begun.
struct Held {
    /// Its head as HTTP/1 has it.
    head: Buffer,
    length: BodyLength,
    additions: Additions,
    told: Vec<OwnedHeader>,
    /// Whether it has ended already, with what came behind its body.
    ended: Option<Option<Trailers>>,
}

impl<'a, P: Peer> Processed<'a, P> {
    /// A client of a plan that a processor accompanies.
    pub(super) fn new(
        worker: Rc<Worker>,
        peer: &'a mut P,
        talk: Conversation,
        plan: &Forward,
    ) -> Self {
        Processed {
            worker,
            peer,
            talk,
            route: plan.route.clone(),
            share: plan.share,
            is_head: plan.is_head,
            stage: Stage::Before,
        }
    }

    /// The status that the client got in place of the endpoint's.
    pub(super) fn replaced(&self) -> Option<u16> {
        match self.stage {
            Stage::Replaced(status) => Some(status),
            Stage::Before | Stage::Told(_) | Stage::Passing => None,
        }
    }

    /// Begins the response once the processor has answered.
    fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        let Stage::Told(held) = &mut self.stage else {
            return Poll::Ready(Ok(()));
        };
        if !self.peer.has_room() {
            ready!(self.peer.poll_flush(context))?;
        }
        let answer = ready!(self.talk.poll_answer(context));
        let has = |name: &str| {
            let limits = &self.worker.local.limits;
            let head = response::parse(held.head.filled(), limits);
            head.is_ok_and(|head| {
                let mut fields = head.fields.iter();
                fields.any(|field| field.name.eq_ignore_ascii_case(name))
            })
        };
        let reply = answer.and_then(|it| process::reply(it, Part::ResponseHead, has));
        let counts = &self.worker.local.counts;
        let provider = self.talk.provider();
        let fails_open = provider.is_some_and(|provider| provider.fail_open);
        let error_status = provider.map_or(500, |provider| provider.error_status);
        let refusal = match reply {
            Some(Reply::Continue(mutation)) => {
                counts.add(Count::CheckPassed);
                if mutation.changes.are_of_request() {
                    held.head = edit(&held.head, &mutation.changes);
                }
                None
            }
            Some(Reply::Immediate(refusal)) => {
                counts.add(Count::CheckRefused);
                Some(refusal)
            }
            None if fails_open => {
                counts.add(Count::CheckFailedOpen);
                None
            }
            None => {
                counts.add(Count::CheckFailedClosed);
                Some(RefusalResponse {
                    status: error_status,
                    fields: Vec::new(),
                    body: Box::default(),
                })
            }
        };
        Poll::Ready(match refusal {
            None => self.pass_on(),
            Some(refusal) => self.replace(&refusal),
        })
    }

    fn pass_on(&mut self) -> Result<(), FailureKind> {
        let Stage::Told(held) = std::mem::replace(&mut self.stage, Stage::Passing) else {
            return Ok(());
        };
        let head = response::parse(held.head.filled(), &self.worker.local.limits);
        let head = head.map_err(|_| FailureKind::BadResponse)?;
        let changes = changes_of(&self.route, self.share, &held.additions, &held.told);
        self.peer.start(&head, held.length, &changes)?;
        if let Some(trailers) = held.ended {
            self.peer.end(trailers);
        }
        Ok(())
    }

    fn replace(&mut self, refusal: &RefusalResponse) -> Result<(), FailureKind> {
        self.stage = Stage::Replaced(refusal.status);
        let mut head = Buffer::take();
        head.append(b"HTTP/1.1 ");
        head.append_decimal(refusal.status.into());
        head.append(b" \r\n");
        for (name, value) in refusal.fields.iter().filter(|(name, _)| may_pass_on(name)) {
            head.append_str(name);
            head.append(b": ");
            head.append(value);
            head.append(b"\r\n");
        }
        head.append(b"content-length: ");
        head.append_decimal(refusal.body.len() as u64);
        head.append(b"\r\n\r\n");
        let head = response::parse(head.filled(), &self.worker.local.limits);
        let head = head.map_err(|_| FailureKind::BadResponse)?;
        let length = head.body_for(self.is_head);
        self.peer
            .start(&head, length, &ResponseChanges::default())?;
        if length != BodyLength::None {
            self.peer.data(&refusal.body);
        }
        self.peer.end(None);
        Ok(())
    }
}

impl<P: Peer> Peer for Processed<'_, P> {
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        encoder: Encoder,
        out: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        self.peer.poll_body(context, encoder, out)
    }

    fn limit_body(&mut self, bytes_max: u64) {
        self.peer.limit_body(bytes_max);
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.peer.take_trailers()
    }

    fn interim(&mut self, head: &ResponseHead<'_>) -> Result<(), FailureKind> {
        self.peer.interim(head)
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        length: BodyLength,
        changes: &ResponseChanges<'_>,
    ) -> Result<(), FailureKind> {
        // What changes its protocol is nothing that a processor could follow.
        if head.status == 101 {
            self.stage = Stage::Passing;
            return self.peer.start(head, length, changes);
        }
        let is_last = matches!(length, BodyLength::None | BodyLength::Exact(0));
        let told = process::response_head(head.status, &head.fields, is_last);
        self.talk.tell(&told);
        let mut text = Buffer::take();
        text.append(b"HTTP/1.1 ");
        text.append_decimal(head.status.into());
        text.append(b" ");
        text.append_str(head.reason);
        text.append(b"\r\n");
        for field in &head.fields {
            text.append_str(field.name);
            text.append(b": ");
            text.append(field.value);
            text.append(b"\r\n");
        }
        text.append(b"\r\n");
        self.stage = Stage::Told(Box::new(Held {
            head: text,
            length,
            additions: changes.additions.iter().cloned().collect(),
            told: changes.told.to_vec(),
            ended: None,
        }));
        Ok(())
    }

    fn has_room(&self) -> bool {
        match self.stage {
            Stage::Told(_) => false,
            Stage::Replaced(_) => true,
            Stage::Before | Stage::Passing => self.peer.has_room(),
        }
    }

    fn room(&self) -> usize {
        self.peer.room()
    }

    fn hold(&mut self, bytes: usize, below: usize) -> bool {
        let held = match &self.stage {
            Stage::Told(held) => held.head.capacity(),
            Stage::Before | Stage::Passing | Stage::Replaced(_) => 0,
        };
        self.peer.hold(bytes + held + self.talk.memory(), below)
    }

    fn taken(&self) -> u64 {
        self.peer.taken()
    }

    fn data(&mut self, data: &[u8]) {
        if matches!(self.stage, Stage::Passing) {
            self.peer.data(data);
        }
    }

    fn end(&mut self, trailers: Option<Trailers>) {
        match &mut self.stage {
            Stage::Told(held) => held.ended = Some(trailers),
            Stage::Passing => self.peer.end(trailers),
            Stage::Before | Stage::Replaced(_) => {}
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        ready!(self.poll_begin(context))?;
        self.talk.soak(context);
        self.peer.poll_flush(context)
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.peer.poll_gone(context)
    }
}
