//! Buffers that are borrowed from their worker while there is something in them.

use std::cell::RefCell;

/// The size of a fresh buffer in bytes.
pub const BUFFER_BYTES: usize = 16 << 10;

/// The most free buffers that a worker keeps.
const FREE_MAX: usize = 256;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
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
        let bytes = FREE
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        Buffer {
            bytes,
            start: 0,
            end: 0,
        }
    }

    /// What is in it.
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
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

    /// Drops everything.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Makes room for `count` more bytes at the end, by moving what is there to the front, or by
    /// growing. Callers bound how much they put in.
    pub fn reserve(&mut self, count: usize) {
        if self.bytes.len() - self.end >= count {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let wanted = self.end + count;
        if wanted > self.bytes.len() {
            self.bytes.resize(wanted.next_power_of_two(), 0);
        }
    }

    /// The room at the end, to be filled by a reader; see [`Buffer::advance`].
    pub fn spare(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// Counts `count` bytes of the spare room as filled.
    pub fn advance(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Copies bytes to the end.
    pub fn append(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let end = self.end + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.end..end) {
            room.copy_from_slice(bytes);
            self.end = end;
        }
    }

    /// Copies a text to the end.
    pub fn append_str(&mut self, text: &str) {
        self.append(text.as_bytes());
    }

    /// Writes a decimal number to the end.
    pub fn append_decimal(&mut self, number: u64) {
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut used = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            used += 1;
            if rest == 0 {
                break;
            }
        }
        let digits = digits.get(digits.len() - used..).unwrap_or_default();
        self.append(digits);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() != BUFFER_BYTES {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // At the end of its thread the list may be gone already; then so is the buffer.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_MAX {
                free.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_BYTES, Buffer};

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
}
