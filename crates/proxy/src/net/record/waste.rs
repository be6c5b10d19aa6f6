//! The ciphertext of a peer that carries no plain bytes: tickets, updates of keys, filling.
//!
//! Each of its messages costs far more than its bytes, and rustls takes them for as long as they
//! come. So they have turns, and a bound. Records of a few plain bytes have turns as well: each of
//! them takes longer than many bytes of one record do.

use std::io;

use crate::limits::FRAMES_TIME;
use crate::net::deadline::{TICK, now_ticks};

/// The most bytes of it in [`FRAMES_TIME`], beyond what is given for plain bytes.
pub(super) const WASTE_BYTES_MAX: u32 = 256 << 10;

/// For so many plain bytes there may be one byte of it more.
const PLAIN_PER_WASTE: u32 = 4;

/// The bytes of it after which others have their turn.
pub(super) const TURN_BYTES: u32 = 8 << 10;

/// The bytes of a turn that any record takes, whatever it carries: after so many of them that fill
/// a turn, others have theirs.
pub(super) const RECORD_BYTES: u32 = 64;

/// The most bytes around the plain ones of a record that are none of it: those of TLS 1.2, the
/// header, a nonce and a tag, are 29.
const AROUND_BYTES: usize = 32;

/// A peer sends too many records that carry nothing.
#[derive(Debug, thiserror::Error)]
#[error("the peer sends too many tickets, updates of keys or filled records of TLS")]
pub(super) struct Wasteful;

/// Counts what a peer sends beside plain bytes.
pub(super) struct Waste {
    bytes: u32,
    plain: u32,
    /// The bytes since others had their turn, with those that records take.
    of_turn: u32,
    /// The tick at which counting began.
    since: u32,
}

impl Waste {
    /// The counts of a connection on which nothing was said.
    pub(super) fn new() -> Self {
        Waste {
            bytes: 0,
            plain: 0,
            of_turn: 0,
            since: now_ticks(),
        }
    }

    /// Counts a record of so many bytes, of which so many were plain.
    ///
    /// # Errors
    /// It was too much, and the connection is not to be read on.
    pub(super) fn count(&mut self, record: usize, plain: usize) -> io::Result<()> {
        let around = match plain {
            0 => 0,
            _ => AROUND_BYTES,
        };
        self.plain = add(self.plain, plain);
        let wasted = record.saturating_sub(plain + around);
        let of_turn = match record {
            // Less than one has come.
            0 => 0,
            _ => wasted.max(RECORD_BYTES as usize),
        };
        self.of_turn = add(self.of_turn, of_turn);
        if wasted == 0 {
            return Ok(());
        }
        self.begin_again();
        self.bytes = add(self.bytes, wasted);
        match self.bytes > WASTE_BYTES_MAX + self.plain / PLAIN_PER_WASTE {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, Wasteful)),
            false => Ok(()),
        }
    }

    /// Whether others are to have their turn before more is looked at.
    pub(super) fn is_turn_over(&self) -> bool {
        self.of_turn >= TURN_BYTES
    }

    /// The same, once for each turn: the next one begins.
    pub(super) fn ends_turn(&mut self) -> bool {
        let is_over = self.is_turn_over();
        if is_over {
            self.of_turn = 0;
        }
        is_over
    }

    /// Forgets what was counted, where that was begun long enough ago.
    fn begin_again(&mut self) {
        let ticks = FRAMES_TIME.as_millis() / TICK.as_millis();
        let now = now_ticks();
        if u128::from(now.wrapping_sub(self.since)) >= ticks {
            (self.bytes, self.plain, self.since) = (0, 0, now);
        }
    }
}

/// A count and so many bytes more, up to the most that it can say.
fn add(count: u32, bytes: usize) -> u32 {
    count.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{RECORD_BYTES, TURN_BYTES, WASTE_BYTES_MAX, Waste};
    use crate::net::deadline;

    /// The bytes of records like this one that are taken before there are too many, up to 4 MiB.
    fn taken(waste: &mut Waste, record: usize, plain: usize) -> u32 {
        let (all, mut taken) = (4 << 20, 0);
        while taken < all && waste.count(record, plain).is_ok() {
            taken += record as u32;
        }
        taken
    }

    #[test]
    fn what_carries_nothing_has_a_bound_and_what_carries_a_byte_has_none() {
        assert_eq!(taken(&mut Waste::new(), 32, 0), WASTE_BYTES_MAX);
        assert_eq!(taken(&mut Waste::new(), 1 << 14, 0), WASTE_BYTES_MAX);
        // A byte by TLS 1.3, by TLS 1.2, and as much as there is in a record.
        for (record, plain) in [(23, 1), (30, 1), (16_406, 16_384)] {
            assert!(taken(&mut Waste::new(), record, plain) >= 4 << 20);
        }
        // A byte, and filling.
        assert!(taken(&mut Waste::new(), 1 << 14, 1) <= WASTE_BYTES_MAX + (1 << 14));
    }

    #[test]
    fn plain_bytes_give_more_and_time_forgives() {
        let mut waste = Waste::new();
        waste.count(4_096 + 22, 4_096).unwrap();
        assert_eq!(taken(&mut waste, 32, 0), WASTE_BYTES_MAX + 1_024);
        (0..99).for_each(|_| deadline::tick());
        assert_eq!(taken(&mut waste, 32, 0), 0);
        deadline::tick();
        assert_eq!(taken(&mut waste, 32, 0), WASTE_BYTES_MAX);
    }

    #[test]
    fn a_turn_ends_once_for_its_bytes() {
        let mut waste = Waste::new();
        for _ in 0..TURN_BYTES / 1_024 {
            assert!(!waste.ends_turn());
            waste.count(1_024, 0).unwrap();
        }
        assert!(waste.is_turn_over() && waste.ends_turn());
        assert!(!waste.is_turn_over() && !waste.ends_turn());
    }

    /// Records that carry a byte each are no waste, and ended no turn before.
    #[test]
    fn a_turn_ends_after_so_many_records_whatever_they_carry() {
        for (record, plain) in [(23, 1), (30, 1), (32, 0), (16_406, 16_384)] {
            let mut waste = Waste::new();
            for _ in 0..TURN_BYTES / RECORD_BYTES {
                assert!(!waste.ends_turn());
                waste.count(record, plain).unwrap();
            }
            assert!(waste.ends_turn() && !waste.ends_turn());
        }
    }
}
