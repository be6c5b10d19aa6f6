//! The messages of the stream and the log, their bounds, and the checked way into own types.

#[allow(missing_docs, clippy::all, reason = "generated from the .proto files")]
mod generated;

use bytes::Bytes;
use myriad_model as model;
use myriad_model::{Digest, Key, Kind, Name, Version};

pub use generated::*;

/// The protocol that this build speaks.
pub const PROTOCOL: u32 = 1;
/// The most content bytes in one frame; names and framing come on top. The transport copies a
/// frame for each stream that it goes to, so a fleet that comes back holds as many at a time as it
/// has proxies.
pub const FRAME_BYTES_MAX: usize = 120 << 10;
/// The most encoded bytes of one message that either end accepts.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;
/// The most encoded bytes of one resource. A larger one is refused by name.
pub const RESOURCE_BYTES_MAX: usize = 16 << 20;
/// The most encoded bytes of one commit that a proxy takes.
pub const COMMIT_BYTES_MAX: usize = model::COMMIT_BYTES_MAX + RESOURCE_BYTES_MAX;
/// The most changes, removals and strangers in one commit.
pub const COMMIT_CHANGES_MAX: usize = model::COMMIT_RESOURCES_MAX;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 8 << 10;
/// The most nodes in one question. An answer then stays below [`MESSAGE_BYTES_MAX`].
pub const ASK_NODES_MAX: usize = 256;
/// The most children of one node.
pub const NODE_CHILDREN_MAX: usize = 64;
/// The longest path in a digest tree: 64 bits in steps of 6.
pub const PATH_MAX: usize = 11;
/// The most receipts in one acknowledgement; others are only counted.
pub const RECEIPTS_MAX: usize = 1_024;
/// The most bytes of a receipt's reason or an instance's name; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 256;
/// The most sources in a position.
pub const SOURCES_MAX: usize = 256;

/// Why a session cannot go on. The other end is to blame, and a new connection may do better.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A message that is not expected now.
    #[error("sent a {0} out of turn")]
    Unexpected(&'static str),
    /// A field that no correct end sends.
    #[error("sent a {0} that is not valid")]
    Invalid(&'static str),
    /// More than the stated bound.
    #[error("sent more {0} than may be")]
    TooMany(&'static str),
    /// Another protocol.
    #[error("speaks protocol {0}, and this build speaks {PROTOCOL}")]
    OtherProtocol(u32),
    /// The digests differed again after resyncs.
    #[error("is not in step after repeated resyncs")]
    NeverInStep,
    /// No answer in time; see [`crate::server::ANSWER_TIMEOUT`].
    #[error("has not answered in time")]
    NoAnswer,
}

pub(crate) fn from_server(body: from_server::Body) -> FromServer {
    FromServer { body: Some(body) }
}

pub(crate) fn from_proxy(body: from_proxy::Body) -> FromProxy {
    FromProxy { body: Some(body) }
}

/// The kinds that a build knows. Only in tests is there a choice: an older build there sees what is
/// newer than it as kinds of the future.
#[derive(Clone, Copy, Default)]
pub(crate) struct KnownKinds {
    #[cfg(test)]
    pub(crate) number_max: Option<u8>,
}

impl KnownKinds {
    /// The key as the build sees it.
    pub(crate) fn see(self, key: Key) -> Key {
        #[cfg(test)]
        if let Some(number_max) = self.number_max {
            let kind = key.kind.within(number_max);
            return Key { kind, ..key };
        }
        key
    }
}

/// A key. Its kind may be one that only newer builds know.
pub(crate) fn key(kind: u32, name: &str) -> Result<Key, SessionError> {
    let kind = Kind::from_number(kind).ok_or(SessionError::Invalid("kind"))?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(SessionError::Invalid("name"));
    }
    Ok(Key::new(kind, Name::from(name)))
}

pub(crate) fn version(bytes: &[u8]) -> Result<Version, SessionError> {
    let bytes = bytes.try_into();
    bytes
        .map(Version)
        .map_err(|_| SessionError::Invalid("version"))
}

pub(crate) fn version_bytes(version: Version) -> Bytes {
    Bytes::copy_from_slice(&version.0)
}

pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, SessionError> {
    let bytes = bytes.try_into();
    bytes
        .map(|bytes| Digest(u128::from_be_bytes(bytes)))
        .map_err(|_| SessionError::Invalid("digest"))
}

pub(crate) fn digest_bytes(digest: Digest) -> Bytes {
    Bytes::copy_from_slice(&digest.0.to_be_bytes())
}

/// An absent position is that of who has seen nothing.
pub(crate) fn position(message: Option<Position>) -> Result<model::Position, SessionError> {
    let message = message.unwrap_or_default();
    if message.revisions.len() > SOURCES_MAX {
        return Err(SessionError::TooMany("sources"));
    }
    let revision = |it: &Revision| {
        let source = u8::try_from(it.source).map_err(|_| SessionError::Invalid("source"))?;
        Ok((source, it.revision))
    };
    Ok(model::Position {
        epoch: message.epoch,
        revisions: message
            .revisions
            .iter()
            .map(revision)
            .collect::<Result<_, SessionError>>()?,
    })
}

pub(crate) fn position_message(position: &model::Position) -> Option<Position> {
    let revision = |&(source, revision): &(u8, u64)| Revision {
        source: source.into(),
        revision,
    };
    Some(Position {
        epoch: position.epoch,
        revisions: position.revisions.iter().map(revision).collect(),
    })
}

/// The first [`TEXT_BYTES_MAX`] bytes of a text at most, without control characters.
pub(crate) fn cut_text(text: &str) -> String {
    let mut cut = String::new();
    for character in text.chars().filter(|it| !it.is_control()) {
        if cut.len() + character.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        cut.push(character);
    }
    cut
}
