//! Cuts a stream of bytes into lines of bounded length.

use bytes::{Buf, Bytes, BytesMut};

/// A line that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The bytes of a stream that were not handed out yet.
pub(super) struct Lines {
    waiting: BytesMut,
    /// How many bytes of `waiting` are known to hold no end of line.
    searched: usize,
    line_bytes_max: usize,
}

impl Lines {
    /// No bytes yet.
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Lines {
            waiting: BytesMut::new(),
            searched: 0,
            line_bytes_max,
        }
    }

    /// More bytes; all lines are to be taken before the next.
    pub(super) fn push(&mut self, bytes: &Bytes) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next complete line, without its end.
    ///
    /// # Errors
    /// When the line under way is longer than the maximum.
    pub(super) fn take(&mut self) -> Result<Option<Bytes>, TooLong> {
        let rest = self.waiting.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', rest) else {
            self.searched = self.waiting.len();
            return if self.searched > self.line_bytes_max {
                Err(TooLong)
            } else {
                Ok(None)
            };
        };
        let length = self.searched + at;
        self.searched = 0;
        if length > self.line_bytes_max {
            return Err(TooLong);
        }
        let line = self.waiting.split_to(length).freeze();
        self.waiting.advance(1);
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, TooLong};
    use bytes::Bytes;

    fn cut(chunks: &[&'static str]) -> Result<Vec<Bytes>, TooLong> {
        let mut lines = Lines::new(4);
        let mut found = Vec::new();
        for chunk in chunks {
            lines.push(&Bytes::from_static(chunk.as_bytes()));
            while let Some(line) = lines.take()? {
                found.push(line);
            }
        }
        Ok(found)
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let whole = cut(&["ab\n\ncdef\ngh"]);
        assert_eq!(whole, Ok(vec!["ab".into(), "".into(), "cdef".into()]));
        assert_eq!(cut(&["a", "b", "\n\nc", "def", "\ng", "h"]), whole);
    }

    #[test]
    fn a_line_that_never_ends_is_refused() {
        assert_eq!(cut(&["abc", "de"]), Err(TooLong));
        assert_eq!(cut(&["abcde\n"]), Err(TooLong));
    }
}
