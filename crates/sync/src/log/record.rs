//! One commit as the log holds it.

use bytes::Bytes;
use myriad_model::{
    COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Change, Form, Key, Position, SealedArc, Sealer,
    Snapshot, Version,
};
use prost::Message as _;

use crate::client::Refusal;
use crate::wire::{self, KnownKinds, SessionError};

/// The changes of a commit, as the bytes that were received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// The cluster's key, where this record is the first that needs it.
    pub key: Option<[u8; 32]>,
    /// The position after the commit.
    pub position: Position,
    /// The changes, at most one per key.
    pub changes: Vec<LoggedChange>,
}

/// One resource: its version and bytes, or neither where it was removed.
#[derive(Clone, PartialEq, Eq)]
pub struct LoggedChange {
    /// The resource's key.
    pub key: Key,
    /// The new version and its bytes; `None` for a removal.
    pub new: Option<(Version, Bytes)>,
}

/// The bytes may hold a private key, so they are not shown.
impl std::fmt::Debug for LoggedChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.new {
            Some((version, _)) => write!(f, "{} at {version}", self.key),
            None => write!(f, "{} removed", self.key),
        }
    }
}

impl LoggedChange {
    /// About how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let bytes = self.new.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.key.name.len() + bytes + 32
    }
}

impl Logged {
    /// The records of a log that leads to this snapshot, for a log that has to be made anew.
    ///
    /// Resources are encoded for it. One that a newer build wrote may have had fields that were
    /// not kept; it then no longer has its version, is left out, and will be sent again.
    pub fn all(snapshot: &Snapshot, key: [u8; 32]) -> impl Iterator<Item = Logged> {
        let mut sealer = Sealer::new(key, Form::Encoded);
        let mut resources = snapshot.iter();
        let mut key = Some(key);
        std::iter::from_fn(move || {
            let mut logged = Logged::new(snapshot.position().clone());
            let is_first = key.is_some();
            logged.key = key.take();
            let mut bytes = 0;
            while logged.changes.len() < COMMIT_RESOURCES_MAX && bytes < COMMIT_BYTES_MAX {
                let Some(resource) = resources.next() else {
                    break;
                };
                let value = resource.resource().cloned();
                let sealed = value.map(|value| sealer.seal(resource.name().clone(), value));
                let Some(sealed) = sealed.filter(|it| it.version() == resource.version()) else {
                    continue;
                };
                let encoded = sealed.encoded().cloned().unwrap_or_default();
                bytes += encoded.len();
                logged.put(resource.key().clone(), resource.version(), encoded);
            }
            (is_first || !logged.changes.is_empty()).then_some(logged)
        })
    }

    /// A commit without changes.
    pub fn new(position: Position) -> Self {
        Logged {
            position,
            ..Logged::default()
        }
    }

    /// Adds a resource that is new or changed.
    pub fn put(&mut self, key: Key, version: Version, bytes: Bytes) {
        let new = Some((version, bytes));
        self.changes.push(LoggedChange { key, new });
    }

    /// Adds a removal.
    pub fn remove(&mut self, key: Key) {
        self.changes.push(LoggedChange { key, new: None });
    }

    /// Takes out what the proxy refused: the log holds what is in service.
    pub fn leave_out(&mut self, refusals: &[Refusal]) {
        if !refusals.is_empty() {
            let refused: std::collections::HashSet<&Key> =
                refusals.iter().map(|refusal| &refusal.key).collect();
            self.changes.retain(|it| !refused.contains(&it.key));
        }
    }

    /// The commit as the log holds it.
    pub fn encode(&self) -> Vec<u8> {
        let mut changes = wire::Changes::default();
        for LoggedChange { key, new } in &self.changes {
            let (kind, name) = (key.kind.number().into(), key.name.as_str().to_owned());
            match new {
                Some((version, bytes)) => changes.changes.push(wire::Change {
                    kind,
                    name,
                    version: wire::version_bytes(*version),
                    bytes: bytes.clone(),
                    unfinished: false,
                }),
                None => changes.removals.push(wire::Removal { kind, name }),
            }
        }
        let record = wire::Record {
            key: self
                .key
                .map_or_else(Bytes::new, |key| Bytes::copy_from_slice(&key)),
            position: wire::position_message(&self.position),
            changes: Some(changes),
        };
        record.encode_to_vec()
    }

    /// Reads a commit.
    ///
    /// # Errors
    /// The bytes are no record.
    pub fn decode(bytes: Bytes) -> Result<Logged, SessionError> {
        let record = wire::Record::decode(bytes).map_err(|_| SessionError::Invalid("record"))?;
        let mut logged = Logged::new(wire::position(record.position)?);
        if !record.key.is_empty() {
            let key = record.key[..].try_into();
            logged.key = Some(key.map_err(|_| SessionError::Invalid("key"))?);
        }
        let changes = record.changes.unwrap_or_default();
        for change in changes.changes {
            let key = wire::key(change.kind, &change.name)?;
            logged.put(key, wire::version(&change.version)?, change.bytes);
        }
        for removal in changes.removals {
            logged.remove(wire::key(removal.kind, &removal.name)?);
        }
        Ok(logged)
    }
}

/// The state that a log leads to, record by record.
pub struct Replay {
    schema_max: u32,
    kinds: KnownKinds,
    sealer: Option<([u8; 32], Sealer)>,
    snapshot: Snapshot,
    unread: usize,
}

impl Replay {
    /// A state without resources, which takes nothing that needs a newer schema than this.
    pub fn new(schema_max: u32) -> Self {
        Replay {
            schema_max,
            kinds: KnownKinds::default(),
            sealer: None,
            snapshot: Snapshot::new(),
            unread: 0,
        }
    }

    /// This state, as of a build that knows these kinds.
    #[cfg(test)]
    pub(crate) fn knowing(self, kinds: KnownKinds) -> Self {
        Replay { kinds, ..self }
    }

    /// Applies the next record. What cannot be read, for instance since a newer build wrote it,
    /// leaves the version before in the state, and will be sent again.
    pub fn apply(&mut self, logged: Logged) {
        if let Some(key) = logged.key {
            let sealer = Sealer::new(key, Form::Value).within(self.schema_max);
            self.snapshot = crate::client::rekeyed(&self.snapshot, &sealer);
            self.sealer = Some((key, sealer));
        }
        let Some((_, sealer)) = &self.sealer else {
            self.unread += logged.changes.len();
            return;
        };
        for LoggedChange { key, new } in logged.changes {
            let key = self.kinds.see(key);
            let slot = sealer.slot(&key);
            let old = self.snapshot.get(slot, &key).cloned();
            let opened = new.map(|(version, bytes)| {
                // What is kept for long must not keep the record that it came in.
                let bytes = Bytes::copy_from_slice(&bytes);
                // The record has its checksum, and may be older than the cluster's key.
                sealer.open_trusted(key.clone(), version, &bytes)
            });
            let Ok(new) = opened.transpose() else {
                self.unread += 1;
                continue;
            };
            let new = new.map(SealedArc::new);
            self.snapshot.apply(&Change { key, old, new });
        }
        self.snapshot.set_position(logged.position);
    }

    /// The state, the cluster's key, and how many resources could not be read.
    pub fn finish(self) -> (Snapshot, Option<[u8; 32]>, usize) {
        let key = self.sealer.map(|(key, _)| key);
        (self.snapshot, key, self.unread)
    }
}
