//! Digests: one number that says whether two snapshots hold the same.

use std::fmt;

/// The sum, modulo 2^128, of keyed hashes of (kind, name, version) over a set of resources.
/// Equal digests mean equal sets; the key keeps people who write objects from steering it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest over both sets, which have no resource in common.
    pub fn plus(self, other: Digest) -> Digest {
        Digest(self.0.wrapping_add(other.0))
    }

    /// The digest over this set without a part of it.
    pub fn minus(self, other: Digest) -> Digest {
        Digest(self.0.wrapping_sub(other.0))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
