//! The one hash of the process: seeded once at start, so that nobody outside can steer it.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::quality::RandomState;

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The hash of a text within a class, so that equal texts of different classes differ.
pub fn hash(class: u8, text: &str) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(text.as_bytes());
    hasher.write_u8(class);
    hasher.finish()
}

/// The hash of a text below a parent, for tables of edges.
pub fn hash_below(parent: u32, text: &str) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(text.as_bytes());
    hasher.write_u32(parent);
    hasher.finish()
}

/// The hash of a text and numbers within a class.
pub fn hash_numbers(class: u8, text: &str, numbers: &[u64]) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(text.as_bytes());
    for number in numbers {
        hasher.write_u64(*number);
    }
    hasher.write_u8(class);
    hasher.finish()
}

/// The hash of a value within a class, by all that it tells of itself.
pub fn hash_value(class: u8, value: &impl Hash) -> u64 {
    let mut hasher = SEED.build_hasher();
    value.hash(&mut hasher);
    hasher.write_u8(class);
    hasher.finish()
}

/// A hash that is the same in every process and at every time, for what leaves the process
/// (FNV-1a, 64 bits, with a final mix). Not for tables.
pub fn hash_stable(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash ^= u64::from(*byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
