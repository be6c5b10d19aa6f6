//! Frames put together to what one commit changes, within bounds.

use bytes::{Bytes, BytesMut};
use myriad_model::{Key, Version};

use crate::wire::{
    self, COMMIT_BYTES_MAX, COMMIT_CHANGES_MAX, Change, Changes, RESOURCE_BYTES_MAX, SessionError,
};

/// The parts that have arrived since the last commit.
#[derive(Default)]
pub(super) struct Assembly {
    whole: Whole,
    /// A resource of which more bytes are to come.
    unfinished: Option<(Key, Version, BytesMut)>,
    bytes: usize,
}

#[derive(Default)]
pub(super) struct Whole {
    pub(super) changes: Vec<Assembled>,
    pub(super) removals: Vec<Key>,
    /// Place and version of what the server does not know by name.
    pub(super) strangers: Vec<(u64, Version)>,
}

pub(super) struct Assembled {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) bytes: Bytes,
}

impl Assembly {
    pub(super) fn add(&mut self, frame: Changes) -> Result<(), SessionError> {
        for change in frame.changes {
            self.add_change(change)?;
        }
        for removal in frame.removals {
            self.count(removal.name.len())?;
            let key = wire::key(removal.kind, &removal.name)?;
            self.whole.removals.push(key);
        }
        for stranger in frame.strangers {
            self.count(0)?;
            let version = wire::version(&stranger.version)?;
            self.whole.strangers.push((stranger.slot, version));
        }
        Ok(())
    }

    /// Everything, now that the commit has arrived.
    pub(super) fn finish(&mut self) -> Result<Whole, SessionError> {
        if self.unfinished.is_some() {
            return Err(SessionError::Unexpected("commit"));
        }
        self.bytes = 0;
        Ok(std::mem::take(&mut self.whole))
    }

    fn add_change(&mut self, change: Change) -> Result<(), SessionError> {
        let (key, version, bytes) = match self.unfinished.take() {
            Some((key, version, mut bytes)) => {
                if !change.version.is_empty() || change.bytes.is_empty() {
                    return Err(SessionError::Unexpected("resource inside of another"));
                }
                self.count_bytes(change.bytes.len())?;
                bytes.extend_from_slice(&change.bytes);
                if bytes.len() > RESOURCE_BYTES_MAX {
                    return Err(SessionError::TooMany("bytes of a resource"));
                }
                if change.unfinished {
                    self.unfinished = Some((key, version, bytes));
                    return Ok(());
                }
                (key, version, bytes.freeze())
            }
            None => {
                self.count(change.name.len() + change.bytes.len())?;
                let key = wire::key(change.kind, &change.name)?;
                let version = wire::version(&change.version)?;
                if change.unfinished {
                    let bytes = BytesMut::from(&change.bytes[..]);
                    self.unfinished = Some((key, version, bytes));
                    return Ok(());
                }
                (key, version, change.bytes)
            }
        };
        self.whole.changes.push(Assembled {
            key,
            version,
            bytes,
        });
        Ok(())
    }

    /// One more entry of this size.
    fn count(&mut self, bytes: usize) -> Result<(), SessionError> {
        let whole = &self.whole;
        let count = whole.changes.len() + whole.removals.len() + whole.strangers.len();
        if count >= COMMIT_CHANGES_MAX {
            return Err(SessionError::TooMany("changes"));
        }
        self.count_bytes(bytes)
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), SessionError> {
        self.bytes += bytes;
        if self.bytes > COMMIT_BYTES_MAX + COMMIT_CHANGES_MAX * wire::NAME_BYTES_MAX {
            return Err(SessionError::TooMany("bytes"));
        }
        Ok(())
    }
}
