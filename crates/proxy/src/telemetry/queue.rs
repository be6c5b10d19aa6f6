//! The bytes of what waits for a thread that may be behind, as the writer of the access log: what
//! clients say decides how long each of it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes that wait in one queue.
const BYTES_MAX: usize = 32 << 20;

/// The room of a queue.
#[derive(Clone, Default)]
pub struct QueueRoom {
    taken: Arc<AtomicUsize>,
}

/// Room that was taken; it is free again once dropped.
pub struct QueuedBytes {
    room: QueueRoom,
    bytes: usize,
}

impl QueueRoom {
    /// Room for so many bytes; none where there is not enough.
    pub fn take(&self, bytes: usize) -> Option<QueuedBytes> {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let taken = QueuedBytes {
            room: self.clone(),
            bytes,
        };
        (before + bytes <= BYTES_MAX).then_some(taken)
    }
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, QueueRoom};

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let room = QueueRoom::default();
        let first = room.take(BYTES_MAX - 1);
        assert!(first.is_some());
        assert!(room.take(2).is_none());
        let last = room.take(1);
        assert!(last.is_some() && room.take(1).is_none());
        drop((first, last));
        assert!(room.take(BYTES_MAX).is_some());
    }
}
