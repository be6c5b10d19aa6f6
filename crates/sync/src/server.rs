//! The server's end of one stream, without IO: it is told what arrives and what time it is, and
//! says what to send.
//!
//! It keeps two snapshots, what the proxy has been sent and the newest, which share all that did
//! not change. Nothing is queued for a slow proxy: while a commit is unacknowledged, later changes
//! only make the difference of the two larger.

mod frames;
mod order;
mod plan;
mod signing;
mod steps;
mod strangers;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;
use myriad_model::{
    COMMIT_RESOURCES_MAX, Change, Digest, Form, Key, Position, Sealer, Snapshot, Version,
    wire::SCHEMA,
};
use prost::Message as _;

use crate::metrics::ServerCounters;
use crate::signing::{Anchors, NotSigned};
use crate::wire::{self, FromProxy, FromServer, SessionError, from_proxy, from_server};
use plan::Plan;
use signing::Signing;
pub use signing::{Asked, SIGN_BURST, SIGN_INTERVAL};
pub use steps::Steps;
use steps::Way;
use strangers::Strangers;
use walk::Walk;

/// How long a proxy waits for a replica that is behind it, before it is served nevertheless.
pub const AHEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a proxy may take to acknowledge a commit, to answer a question about what it has, or to
/// take a frame. It then has another stream, if it lives.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Resyncs without a commit in step between them, after which the session ends.
const MISMATCHES_MAX: u32 = 3;

/// One proxy, as its server sees it.
pub struct ServerSession {
    key: [u8; 32],
    newest: Snapshot,
    /// The resources that the proxy has been sent, whether it obeys or refused them.
    sent: Snapshot,
    /// Other resources that the proxy had when the two were compared. Some are written over by what
    /// is sent, and the rest are removed once everything has been sent.
    strangers: Strangers,
    state: State,
    plan: Option<Plan>,
    /// Steps that other streams of the same view have worked out already.
    steps: Arc<Steps>,
    /// The frames of at most one commit.
    outbox: VecDeque<Frame>,
    /// The root that the proxy must have after the commit that it has not acknowledged.
    awaited: Option<Digest>,
    /// When everything had been sent that the proxy has not answered yet.
    waits_since: Option<Instant>,
    answer_timeout: Duration,
    /// Whether a commit is owed even without changes, so that a greeting has an answer.
    owes_commit: bool,
    mismatches: u32,
    signing: Signing,
    counters: ServerCounters,
}

/// A message to send.
enum Frame {
    /// A message of this stream alone. It is encoded when its turn comes, so that a commit's bytes
    /// are copied one frame at a time.
    Own(FromServer),
    /// An encoded message that several streams share.
    Shared(Bytes),
}

enum State {
    /// Nothing has arrived; or the key was sent, and another hello is due.
    Start { is_welcomed: bool },
    /// The proxy has seen more than this replica.
    Ahead { since: Option<Instant>, it: Theirs },
    /// The two digest trees are being compared.
    Walking(Box<Walk>),
    /// `sent` is what the proxy has.
    Following,
}

/// The digest, size and position of the snapshot that a proxy says it has.
#[derive(Clone)]
struct Theirs {
    root: Digest,
    count: u64,
    position: Position,
}

/// The meaning of a message for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing to tell.
    Nothing,
    /// The proxy introduced itself.
    Greeted {
        /// The name that the proxy gives itself.
        instance: String,
        /// The newest schema it understands.
        schema: u32,
        /// The position of what it holds.
        position: Position,
        /// How many resources it holds.
        count: u64,
    },
    /// The proxy has put a commit into service.
    Acked {
        /// The position that it has reached.
        position: Position,
        /// The root that it reports: equal to a snapshot's digest where it has been sent all of
        /// that snapshot, whether it obeys it or refused parts of it.
        root: Digest,
        /// Whether it has been sent everything that is newest here.
        is_in_step: bool,
        /// The resources of this commit that it refused.
        receipts: Vec<Receipt>,
        /// Refusals that were counted but not listed.
        receipts_omitted: u64,
    },
}

/// One resource that a proxy refused. Its last good version stays in service there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The resource's key.
    pub key: Key,
    /// The version that was refused.
    pub version: Version,
    /// Why, for people; at most [`wire::TEXT_BYTES_MAX`] bytes.
    pub reason: String,
}

impl ServerSession {
    /// A session with a proxy that has not spoken yet. `newest` must come from behind the sync
    /// gate: what it lacks is removed from the proxy. `steps` are those of its view.
    pub fn new(
        key: [u8; 32],
        newest: Snapshot,
        steps: Arc<Steps>,
        counters: ServerCounters,
    ) -> Self {
        ServerSession {
            key,
            newest,
            sent: Snapshot::new(),
            strangers: Strangers::default(),
            state: State::Start { is_welcomed: false },
            plan: None,
            steps,
            outbox: VecDeque::new(),
            awaited: None,
            waits_since: None,
            answer_timeout: ANSWER_TIMEOUT,
            owes_commit: false,
            mismatches: 0,
            signing: Signing::default(),
            counters,
        }
    }

    /// This session, in which answers may take this long instead of [`ANSWER_TIMEOUT`].
    #[must_use]
    pub fn answering_within(self, answer_timeout: Duration) -> Self {
        ServerSession {
            answer_timeout,
            ..self
        }
    }

    /// The mesh is known by these now. A proxy that wants an identity is told, and may ask for
    /// signatures from then on.
    pub fn anchor(&mut self, anchors: Arc<Anchors>) {
        self.signing.anchor(anchors);
    }

    /// The request that the proxy wants signed, if it may ask now. To be called after every
    /// message, and to be answered by [`signed`](Self::signed).
    pub fn asked(&mut self, now: Instant) -> Option<Asked> {
        self.signing.take(now)
    }

    /// Answers a request to sign: the chain, or why there is none. The authority of the chain has
    /// to be among the anchors already.
    pub fn signed(&mut self, outcome: Result<Vec<Bytes>, NotSigned>) {
        self.signing.answer(outcome);
    }

    /// There is a newer snapshot.
    pub fn update(&mut self, newest: Snapshot) {
        self.newest = newest;
    }

    /// Whether the proxy has acknowledged all that is newest here.
    pub fn is_in_step(&self) -> bool {
        matches!(self.state, State::Following)
            && self.awaited.is_none()
            && self.plan.is_none()
            && self.strangers.is_empty()
            && self.sent.digest() == self.newest.digest()
    }

    /// When to poll again even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Ahead { since, .. } => since.map(|since| since + AHEAD_TIMEOUT),
            _ => self.waits_since.map(|since| since + self.answer_timeout),
        }
    }

    /// Whether the proxy has not answered in time: the stream is of no use then.
    pub fn is_overdue(&self, now: Instant) -> bool {
        let waits = |since| now.saturating_duration_since(since) >= self.answer_timeout;
        self.waits_since.is_some_and(waits)
    }

    /// Takes a message of the proxy.
    ///
    /// # Errors
    /// The stream is of no use any more; see [`SessionError`].
    pub fn receive(&mut self, message: FromProxy) -> Result<Report, SessionError> {
        match message.body.ok_or(SessionError::Invalid("message"))? {
            from_proxy::Body::Hello(hello) => self.receive_hello(hello),
            from_proxy::Body::Nodes(nodes) => {
                let State::Walking(walk) = &mut self.state else {
                    return Err(SessionError::Unexpected("answer"));
                };
                walk.answer(&nodes)?;
                self.waits_since = None;
                Ok(Report::Nothing)
            }
            from_proxy::Body::Ack(ack) => self.receive_ack(ack),
            from_proxy::Body::SignRequest(asked) => {
                self.signing.receive(asked)?;
                Ok(Report::Nothing)
            }
        }
    }

    /// The next message to send, encoded, if there is one now. To be called until there is none
    /// after every message, every update and at the [`deadline`](Self::deadline).
    pub fn poll(&mut self, now: Instant) -> Option<Bytes> {
        let frame = self.poll_frame(now);
        let is_waiting = match &self.state {
            State::Walking(walk) => walk.is_waiting(),
            _ => self.awaited.is_some(),
        };
        if frame.is_none() && is_waiting {
            self.waits_since.get_or_insert(now);
        }
        frame
    }

    fn poll_frame(&mut self, now: Instant) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.next_frame() {
                let bytes = match frame {
                    Frame::Own(message) => message.encode_to_vec().into(),
                    Frame::Shared(bytes) => bytes,
                };
                self.counters.bytes_sent.inc_by(bytes.len() as u64);
                return Some(bytes);
            }
            match &mut self.state {
                State::Start { .. } => return None,
                State::Ahead { since, it } => {
                    let since = *since.get_or_insert(now);
                    let is_late = now.saturating_duration_since(since) >= AHEAD_TIMEOUT;
                    let is_ahead = it.position.is_ahead_of(self.newest.position());
                    if is_ahead && !is_late {
                        return None;
                    }
                    self.counters.ahead_too_long.inc_by(u64::from(is_ahead));
                    let it = it.clone();
                    self.compare(&it);
                }
                State::Walking(walk) => {
                    if walk.is_waiting() {
                        return None;
                    }
                    if let Some(ask) = walk.ask() {
                        self.counters.nodes_asked.inc_by(ask.paths.len() as u64);
                        self.push(from_server::Body::Ask(ask));
                    } else {
                        (self.sent, self.strangers) = walk.finish();
                        self.follow();
                    }
                }
                State::Following => {
                    if self.awaited.is_some() || !self.prepare() {
                        return None;
                    }
                }
            }
        }
    }

    /// The next message to send. Signatures go between the frames of a commit, never before the
    /// welcome.
    fn next_frame(&mut self) -> Option<Frame> {
        let is_welcomed = match self.state {
            State::Start { .. } => false,
            State::Ahead { .. } => self.outbox.is_empty(),
            State::Walking(_) | State::Following => true,
        };
        let aside = is_welcomed.then(|| self.signing.poll(&self.counters));
        let aside = aside.flatten().map(Frame::Own);
        aside.or_else(|| self.outbox.pop_front())
    }

    fn receive_hello(&mut self, hello: wire::Hello) -> Result<Report, SessionError> {
        let State::Start { is_welcomed } = self.state else {
            return Err(SessionError::Unexpected("hello"));
        };
        if hello.protocol != wire::PROTOCOL {
            return Err(SessionError::OtherProtocol(hello.protocol));
        }
        let it = Theirs {
            root: wire::digest(&hello.root)?,
            count: hello.count,
            position: wire::position(hello.position)?,
        };
        let has_key = hello.key_id == Sealer::new(self.key, Form::Encoded).key_id();
        if is_welcomed && !has_key {
            return Err(SessionError::Invalid("key"));
        }
        if !is_welcomed {
            let key = if has_key { &[][..] } else { &self.key[..] };
            let welcome = wire::Welcome {
                protocol: wire::PROTOCOL,
                schema: SCHEMA,
                key: Bytes::copy_from_slice(key),
            };
            self.push(from_server::Body::Welcome(welcome));
            self.state = State::Start { is_welcomed: true };
        }
        let report = Report::Greeted {
            instance: wire::cut_text(&hello.instance),
            schema: hello.schema,
            position: it.position.clone(),
            count: it.count,
        };
        if !has_key {
            return Ok(Report::Nothing);
        }
        self.signing.greeted(hello.wants_identity);
        self.state = State::Ahead { since: None, it };
        Ok(report)
    }

    fn receive_ack(&mut self, ack: wire::Ack) -> Result<Report, SessionError> {
        let is_sent = self.outbox.is_empty();
        let awaited = self.awaited.take().filter(|_| is_sent);
        let awaited = awaited.ok_or(SessionError::Unexpected("acknowledgement"))?;
        self.waits_since = None;
        if ack.receipts.len() > wire::RECEIPTS_MAX {
            return Err(SessionError::TooMany("receipts"));
        }
        let position = wire::position(ack.position)?;
        let receipt = |it: wire::Receipt| {
            Ok(Receipt {
                key: wire::key(it.kind, &it.name)?,
                version: wire::version(&it.version)?,
                reason: wire::cut_text(&it.reason),
            })
        };
        let receipts = ack.receipts.into_iter().map(receipt);
        let receipts = receipts.collect::<Result<_, SessionError>>()?;
        let root = wire::digest(&ack.root)?;
        if root == awaited {
            self.mismatches = 0;
        } else {
            self.counters.mismatches.inc();
            self.mismatches += 1;
            if self.mismatches > MISMATCHES_MAX {
                return Err(SessionError::NeverInStep);
            }
            self.walk();
        }
        Ok(Report::Acked {
            position,
            root,
            is_in_step: self.is_in_step(),
            receipts,
            receipts_omitted: ack.receipts_omitted,
        })
    }

    /// Decides what the proxy lacks from what it said.
    fn compare(&mut self, it: &Theirs) {
        if it.root == self.newest.digest() {
            self.sent = self.newest.clone();
            self.follow();
        } else if it.count == 0 {
            self.sent = Snapshot::new();
            self.follow();
        } else {
            self.walk();
        }
    }

    fn walk(&mut self) {
        self.plan = None;
        self.strangers = Strangers::default();
        self.state = State::Walking(Box::new(Walk::new(self.newest.clone())));
    }

    fn follow(&mut self) {
        self.owes_commit = true;
        self.state = State::Following;
    }

    /// Puts the frames of the next commit into the outbox; `false` if there is nothing to commit.
    fn prepare(&mut self) -> bool {
        let is_behind = self.sent.digest() != self.newest.digest();
        let plan = match self.plan.take() {
            Some(plan) => plan,
            None if !self.strangers.is_empty() => {
                let plan = Plan::new(self.sent.clone(), self.newest.clone());
                self.counters.nodes_visited.inc_by(plan.nodes_visited());
                plan
            }
            None if is_behind || self.owes_commit => {
                match self.steps.find(&self.sent, &self.newest, &self.counters) {
                    Way::Long(plan) => *plan,
                    Way::Short(step) => {
                        self.take_step(&step);
                        return true;
                    }
                }
            }
            None => return false,
        };
        self.take_of(plan);
        true
    }

    /// Sends what other streams send as well.
    fn take_step(&mut self, step: &steps::Step) {
        self.owes_commit = false;
        self.counters.resources.inc_by(step.resources);
        self.counters.removals.inc_by(step.removals);
        self.counters.commits.inc();
        let frames = step.frames.iter().cloned().map(Frame::Shared);
        self.outbox.extend(frames);
        // The newest itself, not a copy that is equal: streams in step share all of it.
        self.sent = self.newest.clone();
        self.awaited = Some(self.sent.digest());
    }

    /// Sends the next commit of a way of its own.
    fn take_of(&mut self, mut plan: Plan) {
        self.owes_commit = false;
        let visited = plan.nodes_visited();
        let (changes, is_last) = plan.take();
        let visited = plan.nodes_visited() - visited;
        self.counters.nodes_visited.inc_by(visited);
        self.sent.set_position(plan.position().clone());
        self.record(&changes);
        let mut removed = Vec::new();
        if is_last {
            self.sent = plan.target().clone();
            while changes.len() + removed.len() < COMMIT_RESOURCES_MAX {
                let Some(stranger) = self.strangers.pop() else {
                    break;
                };
                removed.push(stranger);
            }
        } else {
            self.plan = Some(plan);
        }
        self.counters.removals.inc_by(removed.len() as u64);
        self.counters.commits.inc();
        let mut frames = VecDeque::new();
        let oversized = frames::write(&changes, &removed, &mut frames);
        self.counters.oversized.inc_by(oversized);
        self.outbox.extend(frames.into_iter().map(Frame::Own));
        let root = self.root();
        self.push(from_server::Body::Commit(wire::Commit {
            position: wire::position_message(self.sent.position()),
            root: wire::digest_bytes(root),
        }));
        self.awaited = Some(root);
    }

    fn push(&mut self, body: from_server::Body) {
        let frame = Frame::Own(wire::from_server(body));
        self.outbox.push_back(frame);
    }

    /// Notes that the proxy will have these changes, since they are being sent.
    fn record(&mut self, changes: &[Change]) {
        for change in changes {
            self.sent.apply(change);
            let Some(new) = &change.new else {
                self.counters.removals.inc();
                continue;
            };
            self.counters.resources.inc();
            self.strangers.write_over(new.slot());
        }
    }

    /// The digest over what was sent and what else the proxy still has.
    fn root(&self) -> Digest {
        self.sent.digest().plus(self.strangers.digest())
    }
}
