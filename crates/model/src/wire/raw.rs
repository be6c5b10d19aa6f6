//! Bytes of protobuf: keys, numbers and lengths, written and read.
//!
//! The writer makes one pass: what a message needs is known, and its length put in front, once its
//! fields have been written. The reader lends slices of what it reads. Groups, which proto3 does
//! not have, are refused.

use bytes::Bytes;

use super::WireError;

const NUMBER: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

/// Writes a message, and keeps the lowest schema that understands what was written.
pub(super) struct Encoder<'a> {
    buffer: &'a mut Vec<u8>,
    schema: u32,
}

impl<'a> Encoder<'a> {
    /// Appends to a buffer.
    pub(super) fn new(buffer: &'a mut Vec<u8>) -> Self {
        Encoder { buffer, schema: 1 }
    }

    /// Raises the schema to that of something written.
    pub(super) fn needs(&mut self, schema: u32) {
        self.schema = self.schema.max(schema);
    }

    /// The lowest schema that understands what was written.
    pub(super) fn schema(&self) -> u32 {
        self.schema
    }

    /// How many bytes the buffer holds, by which a caller sees whether a field was written.
    pub(super) fn written(&self) -> usize {
        self.buffer.len()
    }

    /// A field that is a number.
    pub(super) fn number(&mut self, field: u32, number: u64) {
        self.key(field, NUMBER);
        self.varint(number);
    }

    /// A field that is bytes or text.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.buffer.extend_from_slice(bytes);
    }

    /// A field whose content is written by a function: a message, or formatted text.
    pub(super) fn delimited(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, DELIMITED);
        let at = self.buffer.len();
        write(self);
        let end = self.buffer.len();
        self.varint((end - at) as u64);
        let length = self.buffer.len() - end;
        if let Some(written) = self.buffer.get_mut(at..) {
            written.rotate_right(length);
        }
    }

    /// A number in as few bytes as it needs, without a key.
    pub(super) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.buffer.push((number as u8) | 0x80);
            number >>= 7;
        }
        self.buffer.push(number as u8);
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from((field << 3) | kind));
    }
}

/// Appends text, as the content of [`Encoder::delimited`].
impl std::fmt::Write for Encoder<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.buffer.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Reads the fields of a message.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// All that was received, of which bytes are slices.
    whole: &'a Bytes,
    rest: &'a [u8],
}

/// The content of a field, behind its key.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    /// A number.
    Number(u64),
    /// Bytes, text, or a message.
    Delimited(Reader<'a>),
    /// Four or eight bytes, which no field has yet.
    Fixed,
}

impl<'a> Reader<'a> {
    /// Reads a whole message.
    pub(super) fn new(whole: &'a Bytes) -> Self {
        let rest = whole;
        Reader { whole, rest }
    }

    /// The next field, by its number.
    ///
    /// # Errors
    /// [`WireError::Malformed`] where the bytes are cut short or no protobuf.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| WireError::Malformed)?;
        let raw = match key & 7 {
            NUMBER => Raw::Number(self.varint()?),
            DELIMITED => {
                let length = usize::try_from(self.varint()?);
                let rest = self.split(length.map_err(|_| WireError::Malformed)?)?;
                Raw::Delimited(Reader { rest, ..*self })
            }
            FIXED_64 => self.split(8).map(|_| Raw::Fixed)?,
            FIXED_32 => self.split(4).map(|_| Raw::Fixed)?,
            _ => return Err(WireError::Malformed),
        };
        match key >> 3 {
            0 => Err(WireError::Malformed),
            field => Ok(Some((field, raw))),
        }
    }

    /// The next number of a list that is packed.
    ///
    /// # Errors
    /// [`WireError::Malformed`] where it is cut short or has more than 64 bits.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, WireError> {
        match self.rest.is_empty() {
            true => Ok(None),
            false => self.varint().map(Some),
        }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(WireError::Malformed)?;
            self.rest = rest;
            if shift == 63 && *byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError::Malformed)
    }

    fn split(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (part, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(WireError::Malformed)?;
        self.rest = rest;
        Ok(part)
    }
}

impl<'a> Raw<'a> {
    /// No bytes, as an absent field stands for.
    pub(super) fn empty() -> Raw<'static> {
        static NOTHING: Bytes = Bytes::new();
        Raw::Delimited(Reader::new(&NOTHING))
    }

    /// It as a number.
    ///
    /// # Errors
    /// [`WireError::Malformed`] where it is none; so for the others below.
    pub(super) fn number(self) -> Result<u64, WireError> {
        match self {
            Raw::Number(number) => Ok(number),
            Raw::Delimited(_) | Raw::Fixed => Err(WireError::Malformed),
        }
    }

    /// It as a message.
    ///
    /// # Errors
    /// See [`Raw::number`].
    pub(super) fn message(self) -> Result<Reader<'a>, WireError> {
        match self {
            Raw::Delimited(reader) => Ok(reader),
            Raw::Number(_) | Raw::Fixed => Err(WireError::Malformed),
        }
    }

    /// It as bytes, a slice of what was received.
    ///
    /// # Errors
    /// See [`Raw::number`].
    pub(super) fn shared(self) -> Result<Bytes, WireError> {
        let reader = self.message()?;
        Ok(reader.whole.slice_ref(reader.rest))
    }

    /// It as bytes, borrowed.
    ///
    /// # Errors
    /// See [`Raw::number`].
    pub(super) fn bytes(self) -> Result<&'a [u8], WireError> {
        self.message().map(|reader| reader.rest)
    }

    /// The bytes as text.
    ///
    /// # Errors
    /// See [`Raw::number`].
    pub(super) fn text(self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Malformed)
    }
}
