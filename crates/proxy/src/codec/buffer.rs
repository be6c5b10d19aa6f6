//! Buffers that are borrowed from their worker while there is something in them.
//!
//! A head, which is kept for as long as an endpoint takes to answer, is in a small one; what
//! passes through at once is in a full one, of which a worker therefore needs few.

use std::cell::RefCell;

/// The size of a full buffer in bytes.
pub const BUFFER_BYTES: usize = 16 << 10;

/// The size of the buffer that a head begins in: most heads fit, and the rest are moved.
pub const HEAD_BYTES: usize = 1 << 10;

/// The sizes that are kept for the next who needs one, and how many free ones of each a worker
/// keeps at most: 2 MiB of them in all.
const SIZES: [(usize, usize); 3] = [(HEAD_BYTES, 512), (4 << 10, 128), (BUFFER_BYTES, 64)];

thread_local! {
    static FREE: RefCell<[Vec<Vec<u8>>; SIZES.len()]> =
        const { RefCell::new([const { Vec::new() }; SIZES.len()]) };
}

#[cfg(test)]
thread_local! {
    static HELD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many bytes the buffers of this thread take that somebody holds.
#[cfg(test)]
pub fn held_bytes() -> usize {
    HELD.get()
}

/// Bytes in a row: filled at the end, consumed at the start. Dropping it gives the memory back
/// to its thread.
pub struct Buffer {
    /// All of it is initialised, so that reads need no unsafe code.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer of [`BUFFER_BYTES`].
    pub fn take() -> Self {
        Buffer::of(BUFFER_BYTES)
    }

    /// An empty buffer for a head; it grows where the head is longer than most.
    pub fn for_head() -> Self {
        Buffer::of(HEAD_BYTES)
    }

    /// An empty buffer with room for so many bytes.
    pub fn with_room(count: usize) -> Self {
        Buffer::of(count)
    }

    /// The same bytes in no more memory than a full buffer, if they fit into one.
    pub fn fitted(self) -> Self {
        if self.capacity() <= BUFFER_BYTES || self.len() > BUFFER_BYTES {
            return self;
        }
        let mut fitted = Buffer::of(self.len());
        fitted.append(self.filled());
        fitted
    }

    /// An empty buffer without any memory.
    pub const fn none() -> Self {
        Buffer {
            bytes: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// An empty buffer of the smallest size that holds `count` bytes.
    fn of(count: usize) -> Self {
        let bytes = match SIZES.iter().position(|(size, _)| *size >= count) {
            Some(index) => FREE
                .with_borrow_mut(|free| free.get_mut(index).and_then(Vec::pop))
                .unwrap_or_else(|| vec![0; SIZES.get(index).map_or(count, |(size, _)| *size)]),
            None => vec![0; count.next_power_of_two()],
        };
        #[cfg(test)]
        HELD.set(HELD.get() + bytes.len());
        Buffer {
            bytes,
            start: 0,
            end: 0,
        }
    }

    /// How many bytes of memory it takes.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes in it.
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// The bytes in it, to be changed where they lie.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Drops what is behind the first `count` bytes.
    pub fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    /// How many bytes are in it.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops `count` bytes at the start.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Makes room for `count` more bytes at the end, by moving what is there to the front, or by
    /// growing. Callers bound how much they put in.
    #[inline]
    pub fn reserve(&mut self, count: usize) {
        if self.bytes.len() - self.end < count {
            self.make_room(count);
        }
    }

    #[cold]
    fn make_room(&mut self, count: usize) {
        let wanted = self.len() + count;
        if wanted > self.bytes.len() {
            let mut larger = Buffer::of(wanted);
            larger.append(self.filled());
            *self = larger;
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// The room at the end, to be filled by a reader; see [`Buffer::advance`].
    pub fn spare(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Counts `count` bytes of the spare room as filled.
    pub fn advance(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Copies bytes to the end. A head is written in very many pieces, most of them of a length
    /// that is known where this is called.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let end = self.end + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.end..end) {
            room.copy_from_slice(bytes);
            self.end = end;
        }
    }

    /// Copies a text to the end.
    #[inline]
    pub fn append_str(&mut self, text: &str) {
        self.append(text.as_bytes());
    }

    /// Writes a decimal number to the end.
    pub fn append_decimal(&mut self, number: u64) {
        self.append(decimal(number, &mut [0; 20]));
    }
}

/// The digits of a number, in the place that they are given.
pub fn decimal(number: u64, place: &mut [u8; 20]) -> &[u8] {
    let mut rest = number;
    let mut start = place.len();
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        start -= 1;
        if rest == 0 {
            break;
        }
    }
    place.get(start..).unwrap_or_default()
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let size = self.bytes.len();
        #[cfg(test)]
        let _ = HELD.try_with(|held| held.set(held.get() - size));
        let Some(index) = SIZES.iter().position(|(known, _)| *known == size) else {
            return;
        };
        let bytes = std::mem::take(&mut self.bytes);
        // At the end of its thread the list may be gone already; then so is the buffer.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            let (free, max) = (free.get_mut(index), SIZES.get(index));
            if let (Some(free), Some((_, max))) = (free, max)
                && free.len() < *max
            {
                free.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, Buffer, FREE, HEAD_BYTES, SIZES};

    #[test]
    fn bytes_come_out_in_the_order_they_went_in() {
        let mut buffer = Buffer::take();
        buffer.append(b"abc");
        buffer.consume(1);
        buffer.append_decimal(u64::MAX);
        buffer.append_decimal(0);
        assert_eq!(buffer.filled(), b"bc184467440737095516150");
    }

    #[test]
    fn room_is_made_by_moving_before_growing() {
        let mut buffer = Buffer::take();
        buffer.append(&[1; BUFFER_BYTES]);
        buffer.consume(BUFFER_BYTES - 2);
        buffer.reserve(BUFFER_BYTES - 2);
        assert_eq!(buffer.spare().len(), BUFFER_BYTES - 2);
        buffer.reserve(BUFFER_BYTES - 1);
        assert_eq!(buffer.filled(), [1, 1]);
        assert!(buffer.spare().len() >= BUFFER_BYTES - 1);
    }

    #[test]
    fn a_head_that_is_long_moves_into_a_larger_buffer() {
        let mut buffer = Buffer::for_head();
        assert_eq!(buffer.capacity(), HEAD_BYTES);
        buffer.append(&[1; HEAD_BYTES]);
        assert_eq!(buffer.capacity(), HEAD_BYTES);
        for (more, capacity) in [(1, 4 << 10), (4 << 10, BUFFER_BYTES), (16 << 10, 32 << 10)] {
            buffer.append(&vec![2; more]);
            assert_eq!(buffer.capacity(), capacity);
        }
        assert_eq!(
            buffer.filled().iter().filter(|byte| **byte == 1).count(),
            1_024
        );
        assert_eq!(buffer.len(), HEAD_BYTES + 1 + (4 << 10) + (16 << 10));
        buffer.consume(20 << 10);
        let fitted = buffer.fitted();
        assert_eq!((fitted.len(), fitted.capacity()), (1_025, 4 << 10));
        assert_eq!(Buffer::none().capacity(), 0);
    }

    #[test]
    fn a_worker_keeps_no_more_free_buffers_than_are_stated() {
        let kept = || FREE.with_borrow(|free| free.each_ref().map(Vec::len));
        let bytes: usize = SIZES.iter().map(|(size, max)| size * max).sum();
        assert_eq!(bytes, 2 << 20);
        for (size, max) in SIZES {
            drop((0..=max).map(|_| Buffer::of(size)).collect::<Vec<_>>());
        }
        assert_eq!(kept(), SIZES.map(|(_, max)| max));
        let taken = Buffer::for_head();
        assert_eq!(kept().first(), Some(&511));
        drop(taken);
    }
}
