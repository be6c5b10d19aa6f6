//! The cuts of long lists into resources: at entries whose hashes say so, whatever the list was
//! before. What is inserted changes the part that it is in, and the cuts behind it stay.

use std::collections::HashSet;

/// The hash of an entry, or of what tells it apart from others.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut half = [0; 8];
    half.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    u64::from_be_bytes(half)
}

/// The ids of the parts of a list: 0 for the first, and then the hashes of their first entries.
#[derive(Default)]
pub(super) struct Ids {
    known: HashSet<u64>,
}

impl Ids {
    /// The id of the next part, by the hash of its first entry. One that is there twice is told
    /// apart by how often.
    pub(super) fn next(&mut self, hash: u64) -> u64 {
        let mut id = if self.known.is_empty() { 0 } else { hash };
        while !self.known.insert(id) {
            id = id.wrapping_add(1);
        }
        id
    }
}
