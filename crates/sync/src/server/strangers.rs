//! Resources that a proxy holds and its server does not have.

use std::collections::BTreeSet;

use myriad_model::{Digest, Version};

/// A resource that a proxy holds, known by place and version only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stranger {
    pub(super) slot: u64,
    pub(super) version: Version,
    /// The number of its kind; 0 where the proxy does not tell.
    pub(super) kind: u32,
}

/// A set of strangers, and the digest over it.
#[derive(Default)]
pub(super) struct Strangers {
    all: BTreeSet<Stranger>,
    digest: Digest,
    /// How many are of a kind that the proxy does not tell.
    unknown: usize,
}

impl Strangers {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many there are of which the proxy does not say what they are.
    pub(super) fn unknown(&self) -> usize {
        self.unknown
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    pub(super) fn insert(&mut self, stranger: Stranger) {
        if self.all.insert(stranger) {
            self.unknown += usize::from(stranger.kind == 0);
            self.digest = self.digest.plus(stranger.digest());
        }
    }

    /// Something was sent for this place, and so written over what was there.
    pub(super) fn write_over(&mut self, slot: u64) {
        let at = |version, kind| Stranger {
            slot,
            version: Version(version),
            kind,
        };
        let mut there = self.all.range(at([0; 16], 0)..=at([255; 16], u32::MAX));
        if let Some(stranger) = there.next().copied() {
            self.remove(stranger);
        }
    }

    /// Takes out any of them.
    pub(super) fn pop(&mut self) -> Option<Stranger> {
        let stranger = self.all.first().copied()?;
        self.remove(stranger);
        Some(stranger)
    }

    fn remove(&mut self, stranger: Stranger) {
        if self.all.remove(&stranger) {
            self.unknown -= usize::from(stranger.kind == 0);
            self.digest = self.digest.minus(stranger.digest());
        }
    }
}

impl Stranger {
    fn digest(&self) -> Digest {
        Digest::of(self.slot, self.version)
    }
}
