//! How much is done before others have their turn.

use std::time::Duration;

/// The bytes of new documents that are read in one slice; of a longer document all.
pub(super) const SLICE_BYTES: usize = 64 << 10;

/// The bytes that each file counts for.
pub(super) const FILE_BYTES: usize = 64;

/// The processor time after which a slice ends, whatever has been read: at the next document, or
/// at the next entries of a directory.
pub(super) const SLICE_MAX: Duration = Duration::from_millis(25);

/// A slice of a piece of work.
pub(super) struct Slice<'a> {
    room: usize,
    begin: Duration,
    is_late: bool,
    processor_time: &'a (dyn Fn() -> Duration + Send + Sync),
}

impl<'a> Slice<'a> {
    /// A slice that begins now, with room for so many bytes.
    pub(super) fn new(
        room: usize,
        processor_time: &'a (dyn Fn() -> Duration + Send + Sync),
    ) -> Slice<'a> {
        Slice {
            room,
            begin: processor_time(),
            is_late: false,
            processor_time,
        }
    }

    /// Counts what was done, and looks at the clock.
    pub(super) fn take(&mut self, bytes: usize) {
        self.room = self.room.saturating_sub(bytes);
        self.is_late = (self.processor_time)().saturating_sub(self.begin) >= SLICE_MAX;
    }

    /// Whether others have their turn now.
    pub(super) fn is_over(&self) -> bool {
        self.is_late || self.room == 0
    }
}
