//! Messages in Protocol Buffers, by the numbers of their fields.

use anyhow::{Context as _, bail};

/// The kinds of fields that are written here.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

/// A message that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

/// The value of a field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number of any width, which nobody here reads.
    Number,
    /// Bytes: text, or a message.
    Bytes(&'a [u8]),
}

impl Message {
    /// One without fields.
    pub(super) fn new() -> Message {
        Message::default()
    }

    /// The same with a number.
    pub(super) fn number(mut self, field: u64, value: u64) -> Message {
        self.varint((field << 3) | NUMBER);
        self.varint(value);
        self
    }

    /// The same with bytes.
    pub(super) fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.varint((field << 3) | BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// The same with text.
    pub(super) fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    /// The same with a message.
    pub(super) fn message(self, field: u64, value: &Message) -> Message {
        self.bytes(field, &value.0)
    }

    /// The same with a message of any type, by the whole name of that.
    pub(super) fn any(self, field: u64, kind: &str, value: &Message) -> Message {
        let any = Message::new()
            .text(1, &format!("type.googleapis.com/{kind}"))
            .message(2, value);
        self.message(field, &any)
    }

    /// Its bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The fields of a message in their order.
///
/// # Errors
/// It is no message, or one with fields of fixed widths.
pub(super) fn fields(mut bytes: &[u8]) -> anyhow::Result<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            NUMBER => {
                varint(&mut bytes)?;
                Value::Number
            }
            BYTES => {
                let length = usize::try_from(varint(&mut bytes)?)?;
                let (value, rest) = bytes.split_at_checked(length).context("a short field")?;
                bytes = rest;
                Value::Bytes(value)
            }
            other => bail!("a field of kind {other}"),
        };
        all.push((key >> 3, value));
    }
    Ok(all)
}

fn varint(bytes: &mut &[u8]) -> anyhow::Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().context("a short number")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a long number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let inner = Message::new().text(3, "name");
        let message = Message::new()
            .number(1, 300)
            .message(2, &inner)
            .number(16, 0);
        // 300 is 0xac 0x02, and field 16 has a key of two bytes.
        let expected = b"\x08\xac\x02\x12\x06\x1a\x04name\x80\x01\x00";
        assert_eq!(message.as_bytes(), expected);
        let read = fields(message.as_bytes()).unwrap();
        let expected = [
            (1, Value::Number),
            (2, Value::Bytes(inner.as_bytes())),
            (16, Value::Number),
        ];
        assert_eq!(read, expected);
        let any = Message::new().any(4, "a.B", &inner);
        assert!(
            any.as_bytes()
                .starts_with(b"\x22\x21\x0a\x17type.googleapis.com/a.B"),
            "{any:?}"
        );
    }

    #[test]
    fn half_a_message_is_an_error() {
        for bytes in [
            &b"\x08"[..],
            b"\x12\x05ab",
            b"\x0d\x00\x00\x00\x00",
            &[0xff; 11],
        ] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
    }
}
