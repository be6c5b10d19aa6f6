//! The fields of an endpoint's heads, counted as they are packed (RFC 7541): one byte may stand for
//! a field of thousands.

use crate::codec::frame::{FrameHead, flag, kind};

/// The bytes of a priority in front of a head.
const PRIORITY_BYTES: usize = 5;

/// Counts the fields of the heads of a connection. It trusts nobody: whatever cannot be right is
/// left to the library, which ends the connection for it.
#[derive(Default)]
pub(super) struct FieldCount {
    /// The bytes in front of the packed fields, and those of fields and of filling behind them.
    before: usize,
    packed: usize,
    /// Whether the first byte tells how much filling there is.
    is_padded: bool,
    state: State,
}

/// The part of a packed field that the next byte is.
#[derive(Clone, Copy, Default)]
enum State {
    /// The first of a field.
    #[default]
    First,
    /// More of an index; then so many strings follow.
    Index(u8),
    /// The first of a string's length; so many strings follow it.
    Length(u8),
    /// More of it: its value so far, and where the next bits go.
    MoreLength(u8, usize, u32),
    /// The string itself, of which so many bytes are left.
    Text(u8, usize),
}

impl FieldCount {
    /// Takes note of the head of a frame.
    pub(super) fn begin(&mut self, head: &FrameHead) {
        (self.before, self.packed, self.is_padded) = (0, 0, false);
        match head.kind {
            kind::HEADERS => {
                self.state = State::First;
                self.is_padded = head.has(flag::PADDED);
                self.before = usize::from(self.is_padded);
                if head.has(flag::PRIORITY) {
                    self.before += PRIORITY_BYTES;
                }
                self.packed = head.length.saturating_sub(self.before);
            }
            kind::CONTINUATION => self.packed = head.length,
            _ => {}
        }
    }

    /// How many fields begin in these bytes, which are the next of the frame.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u64 {
        if self.before > 0 {
            let skipped = self.before.min(bytes.len());
            if self.is_padded && skipped > 0 {
                let filling = bytes.first().copied().map_or(0, usize::from);
                self.packed = self.packed.saturating_sub(filling);
                self.is_padded = false;
            }
            self.before -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
        }
        let taken = self.packed.min(bytes.len());
        self.packed -= taken;
        let mut bytes = bytes.get(..taken).unwrap_or_default();
        let mut count = 0;
        while let Some((byte, rest)) = bytes.split_first() {
            if let State::Text(strings, left) = self.state {
                let skipped = left.min(bytes.len());
                bytes = bytes.get(skipped..).unwrap_or_default();
                self.state = match left - skipped {
                    0 => State::before(strings),
                    left => State::Text(strings, left),
                };
                continue;
            }
            bytes = rest;
            count += u64::from(matches!(self.state, State::First));
            self.state = self.state.next(*byte);
        }
        count
    }
}

impl State {
    /// The state with so many strings to come.
    fn before(strings: u8) -> Self {
        match strings {
            0 => State::First,
            strings => State::Length(strings - 1),
        }
    }

    fn next(self, byte: u8) -> Self {
        match self {
            State::First => {
                // Indexed; kept in the table; a new size of that; neither.
                let (mask, has_value) = match byte {
                    0x80.. => (0x7f, false),
                    0x40.. => (0x3f, true),
                    0x20.. => (0x1f, false),
                    _ => (0x0f, true),
                };
                let index = byte & mask;
                let strings = u8::from(has_value) + u8::from(has_value && index == 0);
                match index == mask {
                    true => State::Index(strings),
                    false => State::before(strings),
                }
            }
            State::Index(strings) if byte & 0x80 == 0 => State::before(strings),
            State::Index(_) => self,
            State::Length(strings) => match byte & 0x7f {
                0x7f => State::MoreLength(strings, 0x7f, 0),
                length => State::text(strings, length.into()),
            },
            State::MoreLength(strings, length, shift) => {
                let more = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
                let length = length.saturating_add(more);
                match byte & 0x80 == 0 {
                    true => State::text(strings, length),
                    false => State::MoreLength(strings, length, shift.saturating_add(7)),
                }
            }
            State::Text(..) => self,
        }
    }

    fn text(strings: u8, length: usize) -> Self {
        match length {
            0 => State::before(strings),
            length => State::Text(strings, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FieldCount;
    use crate::codec::frame::{FrameHead, flag, kind};

    /// How many fields are found where the frame comes in parts of some size.
    fn counted(flags: u8, frame: &[u8], size: usize) -> u64 {
        let mut fields = FieldCount::default();
        fields.begin(&FrameHead {
            length: frame.len(),
            kind: kind::HEADERS,
            flags,
            stream: 1,
        });
        frame.chunks(size).map(|part| fields.count(part)).sum()
    }

    #[test]
    fn every_field_is_found_however_it_is_packed_and_cut() {
        let long = [&[0x00, 0x7f, 0x01], &[b'n'; 128][..], &[0x00]].concat();
        let cases: [(&[u8], u64); 7] = [
            // Two of the table, the second with an index of two bytes.
            (&[0x88, 0xff, 0x00], 2),
            // Names and values as they are, kept and not; a packed name; nothing for a value.
            (&[0x40, 1, b'a', 2, b'b', b'c', 0x00, 1, b'a', 0], 2),
            (&[0x10, 0x81, 0x90, 1, 0x90, 0x90], 2),
            // A name of the table, with an index of two bytes.
            (&[0x0f, 0x2f, 1, b'x', 0x88], 2),
            // A new size of the table.
            (&[0x3f, 0xe1, 0x1f, 0x88], 2),
            (&long, 1),
            (&[0xbe; 300], 300),
        ];
        for (frame, fields) in cases {
            for size in [1, 2, 3, 400] {
                assert_eq!(counted(0, frame, size), fields, "{frame:?} {size}");
                let padded = [&[3, 0, 0, 0, 0, 9], frame, &[0x88; 3]].concat();
                let flags = flag::PADDED | flag::PRIORITY;
                assert_eq!(counted(flags, &padded, size), fields, "{frame:?} {size}");
            }
        }
    }

    #[test]
    fn a_head_goes_on_in_further_frames() {
        let mut fields = FieldCount::default();
        let frame = |kind, length| FrameHead {
            length,
            kind,
            flags: 0,
            stream: 1,
        };
        fields.begin(&frame(kind::HEADERS, 3));
        assert_eq!(fields.count(&[0x00, 5, b'n']), 1);
        fields.begin(&frame(kind::CONTINUATION, 8));
        assert_eq!(
            fields.count(&[b'a', b'm', b'e', b's', 1, b'v', 0x88, 0x88]),
            2
        );
        fields.begin(&frame(kind::DATA, 3));
        assert_eq!(fields.count(&[0x88; 3]), 0);
    }
}
