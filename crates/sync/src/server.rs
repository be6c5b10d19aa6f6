//! The server's end of one stream, without IO: it is told what arrives and what time it is, and
//! says what to send.
//!
//! It keeps two snapshots, what the proxy has been sent and the newest, which share all that did
//! not change. Nothing is queued for a slow proxy: while a commit is unacknowledged, later changes
//! only make the difference of the two larger.

mod acked;
mod ahead;
mod demanding;
mod frames;
mod hold;
mod lag;
mod order;
mod plan;
mod report;
mod room;
mod signing;
mod steps;
mod strangers;
mod taking;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;
use myriad_base::hold::{HoldLimits, Loss};
use myriad_model::{Digest, Form, Sealer, Snapshot, wire::SCHEMA};
use prost::Message as _;

use crate::demand::DemandedHost;
use crate::metrics::ServerCounters;
use crate::signing::{Anchors, NotSigned};
use crate::wire::{self, FromProxy, FromServer, SessionError, from_proxy, from_server};
#[cfg(test)]
pub(crate) use acked::{RESYNCS_MAX, SIDECAR_RECEIPTS_MAX};
pub use ahead::AHEAD_TIMEOUT;
use ahead::{Ahead, Standing};
use demanding::Demanding;
use frames::Draft;
use hold::Hold;
use lag::Lag;
#[cfg(test)]
pub(crate) use lag::{LAG_BYTES_MAX, LAG_TIMEOUT};
use plan::Plan;
pub use report::{Receipt, Report};
use room::ClaimShare;
pub use room::{
    CLAIMS_MAX, ClaimRoom, GATEWAY_CLAIMS_MAX, GATEWAY_STREAM_CLAIMS_MAX, NAMESPACE_CLAIMS_MAX,
    STREAM_CLAIMS_MAX,
};
#[cfg(test)]
pub(crate) use room::{NAMESPACE_WAYS_MAX, WAY_TIMEOUT};
use signing::Signing;
pub use signing::{Asked, SIGN_BURST, SIGN_INTERVAL};
use steps::LiveCount;
pub(crate) use steps::Shelf;
pub use steps::Steps;
#[cfg(test)]
pub(crate) use steps::{SHELF_BYTES_MAX, STEP_AGE_MAX, VIEW_BYTES_MAX};
use strangers::Strangers;
#[cfg(test)]
pub(crate) use taking::WAY_PAUSE;
#[cfg(test)]
pub(crate) use walk::SHORT_NODES_MAX;
use walk::Walk;

/// How long a proxy may take to acknowledge a commit, to answer a question about what it has, or to
/// take a frame. It then has another stream, if it lives.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// One proxy, as its server sees it.
pub struct ServerSession {
    key: [u8; 32],
    newest: Snapshot,
    /// The resources that the proxy has been sent, whether it obeys or refused them.
    sent: Snapshot,
    /// The same before the commit that it has not acknowledged, of a sidecar.
    before: Option<Snapshot>,
    /// Other resources that the proxy had when the two were compared. Some are written over by what
    /// is sent, and the rest are removed once everything has been sent.
    strangers: Strangers,
    /// The room that these take, and what is being compared.
    share: ClaimShare,
    /// The proxy may have more that is not known here: the comparison ended before everything was
    /// looked at.
    is_cut: bool,
    cuts: u32,
    hold: Hold,
    state: State,
    /// The position of a proxy that has what this replica has, and may have seen more. What comes
    /// next waits until the replica has seen that too.
    ahead: Option<Ahead>,
    plan: Option<Plan>,
    /// The end of the course that it is on with other streams.
    goal: Option<Snapshot>,
    /// Whether what the next plan finds gone is only inferred, or what the one under way does.
    infers: bool,
    /// Steps that other streams of the same view have worked out already.
    steps: Arc<Steps>,
    /// The frames of at most one commit.
    outbox: VecDeque<Frame>,
    /// The count of the last commit, where it shares that with nobody.
    own: Option<LiveCount>,
    /// When it asks again for a place for a way of its own, where it found none.
    way_due: Option<Instant>,
    /// The root that the proxy must have after the commit that it has not acknowledged.
    awaited: Option<Digest>,
    /// When everything had been sent that the proxy has not answered yet.
    waits_since: Option<Instant>,
    answer_timeout: Duration,
    /// Whether a commit is owed even without changes, so that a greeting has an answer.
    owes_commit: bool,
    /// When the oldest change was noticed that the proxy has not been sent, in microseconds since
    /// 1970; 0 where there is none, or nobody knows.
    noticed_micros: u64,
    mismatches: u32,
    resyncs: u32,
    lag: Lag,
    signing: Signing,
    demanding: Demanding,
    contact: Contact,
    counters: ServerCounters,
}

/// Whether the server hears of what changes, and whether the proxy wants to know.
#[derive(Default)]
struct Contact {
    is_lost: bool,
    /// The proxy has a use for being told.
    is_wanted: bool,
    is_due: bool,
}

/// A message to send.
enum Frame {
    /// A message of this stream alone.
    Own(FromServer),
    /// The changes of a commit of this stream alone. Each frame is written when its turn comes, so
    /// that a commit is copied one frame at a time.
    Drafted(Box<Draft>),
    /// An encoded message that several streams share.
    Shared(Bytes),
}

enum State {
    /// Nothing has arrived; or the key was sent, and another hello is due.
    Start { is_welcomed: bool },
    /// The proxy may have seen more than this replica.
    Ahead { ahead: Ahead, it: Theirs },
    /// The two digest trees are being compared.
    Walking(Box<Walk>),
    /// `sent` is what the proxy has.
    Following,
}

/// The digest and size of the snapshot that a proxy says it has.
#[derive(Clone)]
struct Theirs {
    root: Digest,
    count: u64,
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
            before: None,
            strangers: Strangers::default(),
            share: ClaimRoom::default().share(Arc::default(), false),
            is_cut: false,
            cuts: 0,
            hold: Hold::new(HoldLimits::NONE),
            state: State::Start { is_welcomed: false },
            ahead: None,
            plan: None,
            goal: None,
            infers: false,
            steps,
            outbox: VecDeque::new(),
            own: None,
            way_due: None,
            awaited: None,
            waits_since: None,
            answer_timeout: ANSWER_TIMEOUT,
            owes_commit: false,
            noticed_micros: 0,
            mismatches: 0,
            resyncs: 0,
            lag: Lag::default(),
            signing: Signing::default(),
            demanding: Demanding::default(),
            contact: Contact::default(),
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

    /// This session, in which what the proxy claims takes this room, for a gateway or for a
    /// sidecar of a namespace.
    #[must_use]
    pub fn claiming(self, room: &ClaimRoom, namespace: Arc<str>, is_gateway: bool) -> Self {
        let share = room.share(namespace, is_gateway);
        ServerSession { share, ..self }
    }

    /// This session, which holds removals that are inferred and exceed these limits.
    #[must_use]
    pub fn holding(mut self, limits: HoldLimits) -> Self {
        self.hold = Hold::new(limits);
        self
    }

    /// The loss at the proxy by removals that are held, there or here.
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// The removals that are held were confirmed.
    pub fn confirm(&mut self) {
        self.owes_commit |= self.hold.confirm();
    }

    /// The server has lost its source, or has it again. A proxy that may follow another is told.
    pub fn set_lost(&mut self, is_lost: bool) {
        let contact = &mut self.contact;
        contact.is_due ^= contact.is_lost != is_lost;
        contact.is_lost = is_lost;
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

    /// Somebody obtains certificates for hosts that no object names, or nobody does any more. A
    /// proxy that tells such hosts is told, and may tell them from then on. For those of gateways.
    pub fn set_open(&mut self, is_open: bool) {
        self.demanding.set_open(is_open);
    }

    /// A host that the proxy tells, if one may be handed on now. To be called until there is none
    /// after every message and at the [`deadline`](Self::deadline), and to be answered by
    /// [`answer`](Self::answer).
    pub fn demanded(&mut self, now: Instant) -> Option<DemandedHost> {
        self.demanding.take(now, &self.counters)
    }

    /// Answers a host that was handed on: how long it is refused, or nothing where its certificate
    /// is there or may come.
    pub fn answer(&mut self, host: &Arc<str>, refused_for: Duration) {
        self.demanding.answer(host, refused_for);
    }

    /// There is a newer snapshot.
    pub fn update(&mut self, newest: Snapshot) {
        if newest.inferences() != self.newest.inferences() {
            // A plan that is under way leads to the one before, and another has to be made.
            self.plan = None;
            self.goal = None;
            self.infers = true;
        }
        let noticed = newest.noticed_micros();
        if noticed > 0 && newest.digest() != self.newest.digest() {
            self.noticed_micros = match self.noticed_micros {
                0 => noticed,
                earlier => earlier.min(noticed),
            };
        }
        self.newest = newest;
    }

    /// Whether the proxy has acknowledged all that is newest here.
    pub fn is_in_step(&self) -> bool {
        matches!(self.state, State::Following)
            && self.awaited.is_none()
            && self.plan.is_none()
            && !self.is_cut
            && (self.strangers.is_empty() || self.hold.is_ours())
            && self.sent.digest() == self.newest.digest()
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
                walk.answer(&nodes, &mut self.share)?;
                self.waits_since = None;
                Ok(Report::Nothing)
            }
            from_proxy::Body::Ack(ack) => self.receive_ack(ack),
            from_proxy::Body::SignRequest(asked) => {
                self.signing.receive(asked)?;
                Ok(Report::Nothing)
            }
            from_proxy::Body::Demand(demand) => {
                self.demanding.receive(demand)?;
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
            if let Some(bytes) = self.next_frame() {
                self.counters.bytes_sent.inc_by(bytes.len() as u64);
                return Some(bytes);
            }
            if self.waits_to_compare(now) {
                return None;
            }
            match &mut self.state {
                State::Start { .. } => return None,
                State::Ahead { ahead, it } => {
                    // Whoever has the same has nothing to wait for.
                    if it.root != self.newest.digest() {
                        match ahead.look(self.newest.position(), now) {
                            Standing::Level => {}
                            Standing::Waits => return None,
                            Standing::Late => drop(self.counters.ahead_too_long.inc()),
                        }
                    }
                    let it = it.clone();
                    self.lag.compare(self.newest.bytes_replaced(), now);
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
                        (self.sent, self.strangers, self.is_cut) = walk.finish();
                        self.cuts += u32::from(self.is_cut);
                        self.give_back();
                        self.hold.compared(self.sent.len() + self.strangers.len());
                        self.follow();
                    }
                }
                State::Following => {
                    if self.awaited.is_some() || !self.prepare(now) {
                        return None;
                    }
                    self.lag.begin(self.newest.bytes_replaced(), now);
                }
            }
        }
    }

    /// The next message to send, encoded. Signatures go between the frames of a commit, never
    /// before the welcome.
    fn next_frame(&mut self) -> Option<Bytes> {
        let is_welcomed = match self.state {
            State::Start { .. } => false,
            State::Ahead { .. } => self.outbox.is_empty(),
            State::Walking(_) | State::Following => true,
        };
        let aside = is_welcomed.then(|| {
            let signed = self.signing.poll(&self.counters);
            signed.or_else(|| self.demanding.poll())
        });
        let contact = &mut self.contact;
        if is_welcomed && contact.is_wanted && std::mem::take(&mut contact.is_due) {
            let is_lost = contact.is_lost;
            let contact = from_server::Body::Contact(wire::Contact { lost: is_lost });
            self.outbox
                .push_front(Frame::Own(wire::from_server(contact)));
        }
        if let Some(message) = aside.flatten() {
            return Some(message.encode_to_vec().into());
        }
        loop {
            match self.outbox.pop_front()? {
                Frame::Own(message) => return Some(message.encode_to_vec().into()),
                Frame::Shared(bytes) => return Some(bytes),
                Frame::Drafted(mut draft) => {
                    if let Some(message) = draft.next_frame() {
                        self.outbox.push_front(Frame::Drafted(draft));
                        return Some(message.encode_to_vec().into());
                    }
                    self.counters.oversized.inc_by(draft.oversized());
                }
            }
        }
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
        };
        let position = wire::position(hello.position)?;
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
                lost: self.contact.is_lost,
            };
            self.contact.is_due = false;
            self.push(from_server::Body::Welcome(welcome));
            self.state = State::Start { is_welcomed: true };
        }
        let report = Report::Greeted {
            instance: wire::cut_text(&hello.instance),
            schema: hello.schema,
            position: position.clone(),
            count: it.count,
        };
        if !has_key {
            return Ok(Report::Nothing);
        }
        self.signing.greeted(hello.wants_identity);
        self.demanding.greeted(hello.demands);
        self.contact.is_wanted = hello.moves;
        let ahead = Ahead::new(position);
        self.state = State::Ahead { ahead, it };
        Ok(report)
    }

    /// Decides what the proxy lacks from what it said.
    fn compare(&mut self, it: &Theirs) {
        if it.root == self.newest.digest() {
            if let State::Ahead { ahead, .. } = std::mem::replace(&mut self.state, State::Following)
                && ahead.position().is_ahead_of(self.newest.position())
            {
                self.ahead = Some(ahead);
            }
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
        self.goal = None;
        self.strangers = Strangers::default();
        self.is_cut = false;
        self.state = State::Walking(Box::new(Walk::new(self.newest.clone())));
    }

    /// Takes no more room than for the strangers that are left.
    fn give_back(&mut self) {
        self.share.hold(self.strangers.len());
    }

    fn follow(&mut self) {
        self.owes_commit = true;
        self.state = State::Following;
    }

    fn push(&mut self, body: from_server::Body) {
        let frame = Frame::Own(wire::from_server(body));
        self.outbox.push_back(frame);
    }

    /// The digest over what was sent and what else the proxy still has.
    fn root(&self) -> Digest {
        self.sent.digest().plus(self.strangers.digest())
    }
}
