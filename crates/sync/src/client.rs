//! The proxy's end of one stream, without IO: it is told what arrives, says what to answer, and
//! hands out commits that are complete, decoded and checked.

mod assembly;
mod demanding;
mod waiting;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;
use myriad_base::hold::{HoldLimits, Loss};
use myriad_model::{
    Change, Commit, Digest, Form, Key, Position, Sealed, SealedArc, Sealer, Snapshot, TreeChild,
    Version, wire::SCHEMA,
};

use crate::log::Logged;
use crate::metrics::ClientCounters;
use crate::signing::{self, Anchors, Issued, NotSigned};
use crate::wire::{self, FromProxy, FromServer, KnownKinds, SessionError, from_proxy, from_server};
use assembly::{Assembled, Assembly};
use demanding::Demanding;
pub(crate) use waiting::COUNTED;
use waiting::Waiting;

/// The server, as one proxy sees it.
pub struct ClientSession {
    instance: String,
    schema_max: u32,
    kinds: KnownKinds,
    sealer: Sealer,
    /// The resources in service.
    held: Snapshot,
    /// The snapshot that was sent: `held`, but with stand-ins where a resource was refused, and
    /// without what waits to be removed.
    received: Snapshot,
    waiting: Waiting,
    is_welcomed: bool,
    is_server_lost: bool,
    assembly: Assembly,
    applying: Option<Applying>,
    asking: Asking,
    demanding: Demanding,
    counters: ClientCounters,
}

/// How far a proxy is with its identity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// It wants none.
    Never,
    /// The server has not said that it signs.
    NotYet,
    /// It may ask.
    May,
    /// It has asked.
    Open,
}

/// A commit that was handed out and is not in service yet.
struct Applying {
    changes: Vec<Change>,
    position: Position,
    announced: Digest,
    receipts: Vec<wire::Receipt>,
    receipts_omitted: u64,
}

/// The action that a message asks of the caller.
pub enum Received {
    /// Nothing.
    Nothing,
    /// Send an answer.
    Answer(FromProxy),
    /// Remember the cluster's key and send an answer.
    Key([u8; 32], FromProxy),
    /// Put a commit into service, and then call [`ClientSession::applied`].
    Apply(Delivery),
    /// Trust these anchors from now on. [`ClientSession::ask`] may be called.
    Anchors(Anchors),
    /// Take the certificate that was asked for, or ask again later.
    Signed(Result<Issued, NotSigned>),
    /// Let handshakes wait for certificates from now on, or none.
    Demanding(bool),
    /// A host that was told has its certificate, or none for this time.
    Answered(Arc<str>, Duration),
}

/// A commit to put into service.
#[derive(Debug)]
pub struct Delivery {
    /// The changes, decoded and checked, and the position that they lead to.
    pub commit: Commit,
    /// The commit as it was received, for the log.
    pub logged: Logged,
    /// Resources that were refused already, since they cannot be read.
    pub refused: Vec<Refusal>,
    /// When the oldest of the changes was noticed, since 1970; none where that is not known.
    pub noticed: Option<Duration>,
}

/// A resource that cannot be obeyed, and why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The resource's key.
    pub key: Key,
    /// One sentence; cut at [`wire::TEXT_BYTES_MAX`] bytes.
    pub reason: String,
}

impl ClientSession {
    /// A session that starts from what is in service. `key` is the cluster's key as far as it is
    /// known; without one, nothing is known of `held`.
    pub fn new(
        instance: &str,
        key: Option<[u8; 32]>,
        held: Snapshot,
        counters: ClientCounters,
    ) -> Self {
        ClientSession {
            instance: wire::cut_text(instance),
            schema_max: SCHEMA,
            kinds: KnownKinds::default(),
            sealer: Sealer::new(key.unwrap_or_default(), Form::Value),
            received: held.clone(),
            waiting: Waiting::new(HoldLimits::NONE, &held),
            held,
            is_welcomed: false,
            is_server_lost: false,
            assembly: Assembly::default(),
            applying: None,
            asking: Asking::Never,
            demanding: Demanding::default(),
            counters,
        }
    }

    /// This session, as of a build that understands no newer schema than this.
    #[must_use]
    pub fn within(mut self, schema_max: u32) -> Self {
        self.schema_max = schema_max.min(SCHEMA);
        self.sealer = self.sealer.within(self.schema_max);
        self
    }

    /// This session, as of a build that knows these kinds.
    #[cfg(test)]
    pub(crate) fn knowing(self, kinds: KnownKinds) -> Self {
        ClientSession { kinds, ..self }
    }

    /// This session, which wants an identity of the mesh.
    #[must_use]
    pub fn wanting_identity(mut self) -> Self {
        self.asking = Asking::NotYet;
        self
    }

    /// This session, which holds removals that are inferred and exceed these limits.
    #[must_use]
    pub fn holding(mut self, limits: HoldLimits) -> Self {
        self.waiting = Waiting::new(limits, &self.held);
        self
    }

    /// Whether the server says that it has lost its source.
    pub fn is_server_lost(&self) -> bool {
        self.is_server_lost
    }

    /// The loss by removals that are held; none if nothing is.
    pub fn loss(&self) -> Option<Loss> {
        self.waiting.loss()
    }

    /// When the time of what is held is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    /// The removals that are held were confirmed here.
    pub fn confirm(&mut self) {
        self.waiting.confirm();
    }

    /// Removals that need not wait any more, as a commit that the server awaits nothing for. To be
    /// put into service before anything else arrives, and asked for until there is none: after
    /// every message and confirmation, and at the [`deadline`](Self::deadline).
    pub fn release(&mut self, now: Instant) -> Option<Delivery> {
        let released = match self.applying {
            Some(_) => Vec::new(),
            None => self.waiting.release(now),
        };
        if released.is_empty() {
            return None;
        }
        let position = self.held.position().clone();
        let mut logged = Logged::new(position.clone());
        let mut changes = Vec::with_capacity(released.len());
        for sealed in released {
            self.counters.removals.inc();
            logged.remove(sealed.key().clone());
            let change = removal(sealed);
            self.held.apply(&change);
            changes.push(change);
        }
        Some(Delivery {
            commit: Commit { changes, position },
            logged,
            refused: Vec::new(),
            noticed: None,
        })
    }

    /// Whether a certificate may be asked for now: the server signs, and every earlier request
    /// is answered.
    pub fn may_ask(&self) -> bool {
        self.asking == Asking::May
    }

    /// Asks for a certificate, if that may be. The token proves whose it will be.
    pub fn ask(&mut self, request: Bytes, token: String) -> Option<FromProxy> {
        if !self.may_ask() {
            return None;
        }
        self.asking = Asking::Open;
        let asked = wire::SignRequest { request, token };
        Some(wire::from_proxy(from_proxy::Body::SignRequest(asked)))
    }

    /// The resources in service.
    pub fn held(&self) -> &Snapshot {
        &self.held
    }

    /// The digest over what was sent, whether it is in service or was refused.
    pub fn received(&self) -> Digest {
        self.received.digest()
    }

    /// The first message to send.
    pub fn hello(&self) -> FromProxy {
        wire::from_proxy(from_proxy::Body::Hello(wire::Hello {
            protocol: wire::PROTOCOL,
            schema: self.schema_max,
            instance: self.instance.clone(),
            position: wire::position_message(self.held.position()),
            root: wire::digest_bytes(self.held.digest()),
            count: self.held.len() as u64,
            key_id: self.sealer.key_id(),
            wants_identity: self.asking != Asking::Never,
            moves: true,
            demands: self.demanding.is_wanted,
        }))
    }

    /// Takes a message of the server.
    ///
    /// # Errors
    /// The stream is of no use any more; what is in service stays. See [`SessionError`].
    pub fn receive(&mut self, message: FromServer) -> Result<Received, SessionError> {
        let body = message.body.ok_or(SessionError::Invalid("message"))?;
        let is_welcome = matches!(body, from_server::Body::Welcome(_));
        if is_welcome == self.is_welcomed {
            return Err(SessionError::Unexpected("welcome"));
        }
        if self.applying.is_some() {
            return Err(SessionError::Unexpected(
                "message before the acknowledgement",
            ));
        }
        match body {
            from_server::Body::Welcome(welcome) => self.receive_welcome(&welcome),
            from_server::Body::Ask(ask) => self.answer(&ask).map(Received::Answer),
            from_server::Body::Changes(changes) => {
                self.assembly.add(changes)?;
                Ok(Received::Nothing)
            }
            from_server::Body::Commit(commit) => self.receive_commit(commit),
            from_server::Body::Anchors(anchors) => {
                match self.asking {
                    Asking::Never => return Err(SessionError::Unexpected("root")),
                    Asking::NotYet => self.asking = Asking::May,
                    Asking::May | Asking::Open => {}
                }
                Anchors::read(anchors).map(Received::Anchors)
            }
            from_server::Body::Contact(contact) => {
                self.is_server_lost = contact.lost;
                Ok(Received::Nothing)
            }
            from_server::Body::DemandState(state) => {
                let is_open = self.demanding.set_open(state.open);
                is_open.map(Received::Demanding)
            }
            from_server::Body::DemandAnswer(answer) => {
                let (host, refused_for) = self.demanding.take_answer(answer)?;
                Ok(Received::Answered(host, refused_for))
            }
            from_server::Body::Signed(signed) => {
                if self.asking != Asking::Open {
                    return Err(SessionError::Unexpected("signature"));
                }
                self.asking = Asking::May;
                let signed = signing::read(signed)?;
                match &signed {
                    Ok(_) => self.counters.signed.inc(),
                    Err(_) => self.counters.not_signed.inc(),
                };
                Ok(Received::Signed(signed))
            }
        }
    }

    /// The commit that was handed out is in service, but for these resources, which keep their
    /// last good version. Returns the acknowledgement; none if no commit was handed out.
    pub fn applied(&mut self, refusals: &[Refusal]) -> Option<FromProxy> {
        let mut applying = self.applying.take()?;
        for refusal in refusals {
            let found = applying
                .changes
                .iter()
                .position(|change| change.key == refusal.key);
            let Some(at) = found else {
                continue;
            };
            let change = applying.changes.swap_remove(at);
            if let Some(new) = &change.new {
                self.receive_stand_in(new.key(), new.version());
                applying.refuse(new.key(), new.version(), &refusal.reason);
                self.counters.refusals.inc();
            }
        }
        for change in &applying.changes {
            self.held.apply(change);
        }
        self.held.set_position(applying.position);
        let root = self.received.digest();
        let is_mismatch = root != applying.announced;
        self.counters.mismatches.inc_by(u64::from(is_mismatch));
        Some(wire::from_proxy(from_proxy::Body::Ack(wire::Ack {
            position: wire::position_message(self.held.position()),
            root: wire::digest_bytes(root),
            receipts: applying.receipts,
            receipts_omitted: applying.receipts_omitted,
            held: self.waiting.loss().map(held_message),
        })))
    }

    fn receive_welcome(&mut self, welcome: &wire::Welcome) -> Result<Received, SessionError> {
        if welcome.protocol != wire::PROTOCOL {
            return Err(SessionError::OtherProtocol(welcome.protocol));
        }
        self.is_welcomed = true;
        self.is_server_lost = welcome.lost;
        if welcome.key.is_empty() {
            return Ok(Received::Nothing);
        }
        let key: Result<[u8; 32], _> = welcome.key[..].try_into();
        let key = key.map_err(|_| SessionError::Invalid("key"))?;
        self.sealer = Sealer::new(key, Form::Value).within(self.schema_max);
        self.held = rekeyed(&self.held, &self.sealer);
        self.received = self.held.clone();
        Ok(Received::Key(key, self.hello()))
    }

    /// The nodes that the server asked for.
    fn answer(&self, ask: &wire::Ask) -> Result<FromProxy, SessionError> {
        if ask.paths.len() > wire::ASK_NODES_MAX {
            return Err(SessionError::TooMany("nodes"));
        }
        let nodes = ask.paths.iter().map(|path| self.node(path)).collect();
        Ok(wire::from_proxy(from_proxy::Body::Nodes(wire::Nodes {
            nodes,
        })))
    }

    fn node(&self, path: &[u8]) -> wire::Node {
        let mut node = wire::Node::default();
        let children = self.received.children_at(path).unwrap_or_default();
        for (index, child) in children.into_iter().take(wire::NODE_CHILDREN_MAX) {
            let index = index.into();
            match child {
                TreeChild::Branch(digest) => node.branches.push(wire::Branch {
                    index,
                    digest: wire::digest_bytes(digest),
                }),
                TreeChild::Resource(sealed) => node.leaves.push(wire::Leaf {
                    index,
                    slot: sealed.slot(),
                    version: wire::version_bytes(sealed.version()),
                    kind: sealed.key().kind.number().into(),
                }),
            }
        }
        node
    }

    fn receive_commit(&mut self, commit: wire::Commit) -> Result<Received, SessionError> {
        let position = wire::position(commit.position)?;
        let announced = wire::digest(&commit.root)?;
        let assembled = self.assembly.finish()?;
        // More of what is inferred would be in it, if there were more.
        let entries = assembled.changes.len() + assembled.removals.len();
        let is_whole = entries + assembled.strangers.len() < wire::COMMIT_CHANGES_MAX;
        // A history that began anew says nothing of what the former one had.
        let is_other = position.epoch != self.held.position().epoch && !self.held.is_empty();
        let mut applying = Applying {
            changes: Vec::new(),
            position: position.clone(),
            announced,
            receipts: Vec::new(),
            receipts_omitted: 0,
        };
        let mut delivery = Delivery {
            commit: Commit::default(),
            logged: Logged::new(position.clone()),
            refused: Vec::new(),
            noticed: (commit.noticed_micros > 0)
                .then(|| Duration::from_micros(commit.noticed_micros)),
        };
        self.counters.commits.inc();
        self.open_all(assembled.changes, &mut applying, &mut delivery)?;
        let mut removed: Vec<SealedArc> = Vec::new();
        for key in assembled.removals {
            let key = self.kinds.see(key);
            let slot = self.sealer.slot(&key);
            let found = self.received.get(slot, &key).cloned();
            match is_other {
                true => found.into_iter().for_each(|it| self.wait(it)),
                false => removed.extend(found),
            }
        }
        for (slot, version) in assembled.strangers {
            let is_it = |it: &&SealedArc| it.version() == version;
            let found = self.received.at(slot).find(is_it).cloned();
            found.into_iter().for_each(|it| self.wait(it));
        }
        if is_whole {
            let (held, received) = (&self.held, &self.received);
            removed.extend(self.waiting.judge(held, received, commit.confirmed));
        }
        self.remove_all(&removed, &mut applying, &mut delivery);
        delivery.commit = Commit {
            changes: applying.changes.clone(),
            position,
        };
        self.applying = Some(applying);
        Ok(Received::Apply(delivery))
    }

    /// Opens what is new or changed, or refuses it by name.
    fn open_all(
        &mut self,
        changes: Vec<Assembled>,
        applying: &mut Applying,
        delivery: &mut Delivery,
    ) -> Result<(), SessionError> {
        let mut known = HashSet::new();
        for Assembled {
            key,
            version,
            bytes,
        } in changes
        {
            let key = self.kinds.see(key);
            if !known.insert(key.clone()) {
                return Err(SessionError::Invalid("commit: it has one key twice"));
            }
            self.counters.resources.inc();
            self.waiting.forget(&key);
            // What is kept for long must not keep the frame that it came in.
            let bytes = Bytes::copy_from_slice(&bytes);
            let new = match self.sealer.open(key.clone(), version, &bytes) {
                Ok(sealed) => SealedArc::new(sealed),
                Err(error) => {
                    let reason = format!("it {error}");
                    self.receive_stand_in(&key, version);
                    applying.refuse(&key, version, &reason);
                    self.counters.refusals.inc();
                    delivery.refused.push(Refusal { key, reason });
                    continue;
                }
            };
            let old = self.held.get(new.slot(), &key).cloned();
            let change = Change {
                key: key.clone(),
                old,
                new: Some(new),
            };
            self.received.apply(&change);
            let old = change.old.as_ref();
            if old.is_none_or(|old| old.version() != version) {
                delivery.logged.put(key, version, bytes);
                applying.changes.push(change);
            }
        }
        Ok(())
    }

    /// Resources that the server infers to be gone wait, if they are in service.
    fn wait(&mut self, sealed: SealedArc) {
        let held = self.held.get(sealed.slot(), sealed.key()).cloned();
        self.received.apply(&removal(sealed));
        if let Some(held) = held {
            self.waiting.insert(held);
        }
    }

    fn remove_all(
        &mut self,
        removed: &[SealedArc],
        applying: &mut Applying,
        delivery: &mut Delivery,
    ) {
        for sealed in removed {
            self.counters.removals.inc();
            let key = sealed.key();
            self.received.apply(&removal(sealed.clone()));
            // The log may have it although it was refused here: from a newer build.
            delivery.logged.remove(key.clone());
            // What was refused from the start is not in service, so nothing has to go.
            if let Some(held) = self.held.get(sealed.slot(), key).cloned() {
                applying.changes.push(removal(held));
            }
        }
    }

    fn receive_stand_in(&mut self, key: &Key, version: Version) {
        let sealed = self.sealer.stand_in(key.clone(), version);
        self.received.apply(&addition(sealed));
    }
}

impl Applying {
    fn refuse(&mut self, key: &Key, version: Version, reason: &str) {
        if self.receipts.len() >= wire::RECEIPTS_MAX {
            self.receipts_omitted += 1;
            return;
        }
        self.receipts.push(wire::Receipt {
            kind: key.kind.number().into(),
            name: key.name.as_str().to_owned(),
            version: wire::version_bytes(version),
            reason: wire::cut_text(reason),
        });
    }
}

fn held_message(loss: Loss) -> wire::Held {
    let counted = COUNTED.iter().find(|(_, what)| *what == loss.what);
    wire::Held {
        kind: counted.map_or(0, |(kind, _)| kind.number().into()),
        lost: loss.lost as u64,
        of: loss.of as u64,
    }
}

fn addition(sealed: Sealed) -> Change {
    Change {
        key: sealed.key().clone(),
        old: None,
        new: Some(SealedArc::new(sealed)),
    }
}

fn removal(sealed: SealedArc) -> Change {
    Change {
        key: sealed.key().clone(),
        old: Some(sealed),
        new: None,
    }
}

/// The resources at the places that another key gives them. Their versions are those of the
/// old key, so that all of them will be sent again, each replacing itself.
pub(crate) fn rekeyed(snapshot: &Snapshot, sealer: &Sealer) -> Snapshot {
    let mut moved = Snapshot::new();
    for sealed in snapshot.iter() {
        moved.apply(&addition(sealer.adopt(sealed)));
    }
    moved.set_position(snapshot.position().clone());
    moved
}
