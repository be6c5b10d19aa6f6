//! Heads of HTTP/2 as they are packed (RFC 7541).
//!
//! An unpacked head lies in one row of bytes, and is bounded before it is kept; a packed one names
//! no earlier head, so that a connection keeps nothing for it.

use super::buffer::Buffer;
use super::field::{Field, KnownField};

mod huffman;
mod table;

use Unreadable::Malformed;

use table::HpackTable;
pub use table::TABLE_BYTES_MAX;

/// The bytes that a field counts beside its own (RFC 7541, section 4.1).
const FIELD_BYTES: usize = 32;

/// The most bytes and fields that a section keeps memory for, until the next head.
const KEPT_BYTES: usize = 64 << 10;
const KEPT_FIELDS: usize = 256;

/// How many times the size of a section a head may have before it is given up.
const TIMES_MAX: usize = 4;

/// Why a head cannot be unpacked, nor anything after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It breaks the rules.
    Malformed,
    /// It is far larger than what is kept of it: a few bytes may stand for thousands.
    Bomb,
}

/// The fields of a head, pseudo fields included, in their order.
#[derive(Clone, Debug, Default)]
pub struct Section {
    bytes: Vec<u8>,
    fields: Vec<Span>,
    size: usize,
    size_max: usize,
    is_over: bool,
    is_passed_over: bool,
}

/// The place of a field: its name, and its value behind that.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    name_end: usize,
    value_end: usize,
}

impl Section {
    /// Empties it, for a head of at most so many bytes, as RFC 7541 counts them.
    pub fn clear(&mut self, size_max: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.fields.clear();
        self.fields.shrink_to(KEPT_FIELDS);
        self.size = 0;
        self.size_max = size_max;
        self.is_over = false;
        self.is_passed_over = false;
    }

    /// Keeps nothing of what comes until it is emptied: a head that nobody reads.
    pub fn pass_over(&mut self) {
        self.is_passed_over = true;
    }

    /// Whether there was more than it may hold, so that fields are missing.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How many bytes it has, as RFC 7541 counts them.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Span>()
    }

    /// The names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|span| {
            let name = self.bytes.get(span.start..span.name_end);
            let value = self.bytes.get(span.name_end..span.value_end);
            (name.unwrap_or_default(), value.unwrap_or_default())
        })
    }

    /// Whether a field of so many bytes is kept.
    fn has_room(&self, bytes: usize) -> bool {
        !self.is_passed_over && self.size + bytes + FIELD_BYTES <= self.size_max
    }

    /// Counts a field of so many bytes; whether it is kept.
    fn count(&mut self, bytes: usize) -> bool {
        let has_room = self.has_room(bytes);
        self.size += bytes + FIELD_BYTES;
        self.is_over |= self.size > self.size_max;
        has_room
    }

    /// Takes the bytes from `start` on as a field whose name ends at `name_end`.
    fn push(&mut self, start: usize, name_end: usize) {
        self.fields.push(Span {
            start,
            name_end,
            value_end: self.bytes.len(),
        });
    }
}

/// Unpacks the heads that one end of a connection sends.
#[derive(Debug, Default)]
pub struct HpackDecoder {
    table: HpackTable,
}

impl HpackDecoder {
    /// How many bytes of memory it takes between two heads, about.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Adds the fields of a whole block to a section.
    ///
    /// # Errors
    /// A block after which the connection has to end.
    pub fn decode(&mut self, block: &[u8], into: &mut Section) -> Result<(), Unreadable> {
        let mut reader = Reader { rest: block };
        let mut is_start = true;
        while let Some(first) = reader.rest.first().copied() {
            if into.size > into.size_max.saturating_mul(TIMES_MAX) {
                return Err(Unreadable::Bomb);
            }
            if first & 0xe0 == 0x20 {
                let size = reader.integer(5)?;
                if !is_start || size > TABLE_BYTES_MAX {
                    return Err(Malformed);
                }
                self.table.set_max(size);
                continue;
            }
            is_start = false;
            let start = into.bytes.len();
            if first & 0x80 != 0 {
                let index = reader.integer(7)?;
                let (name, value) = self.table.get(index).ok_or(Malformed)?;
                // What is not kept costs no more than its number.
                if into.count(name.len() + value.len()) {
                    into.bytes.extend_from_slice(name);
                    into.bytes.extend_from_slice(value);
                    into.push(start, start + name.len());
                }
                continue;
            }
            let is_kept = first & 0x40 != 0;
            let index = reader.integer(if is_kept { 6 } else { 4 })?;
            // The bytes of a name that is not written.
            let mut unwritten = 0;
            match index {
                0 => reader.string(&mut into.bytes)?,
                index => {
                    let (name, _) = self.table.get(index).ok_or(Malformed)?;
                    if is_kept || into.has_room(name.len()) {
                        into.bytes.extend_from_slice(name);
                    } else {
                        unwritten = name.len();
                    }
                }
            }
            let name_end = into.bytes.len();
            reader.string(&mut into.bytes)?;
            if is_kept {
                let bytes = into.bytes.get(start..).unwrap_or_default();
                self.table.insert(bytes, name_end - start);
            }
            if into.count(into.bytes.len() - start + unwritten) {
                into.push(start, name_end);
            } else {
                into.bytes.truncate(start);
            }
        }
        Ok(())
    }
}

/// The rest of a block.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (first, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    /// A number whose first byte has so many bits of it (RFC 7541, section 5.1), below 2^28.
    fn integer(&mut self, bits: u32) -> Result<usize, Unreadable> {
        let full = (1_usize << bits) - 1;
        let mut number = usize::from(self.byte()?) & full;
        if number < full {
            return Ok(number);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Unreadable> {
        let is_coded = self.rest.first().ok_or(Malformed)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        if is_coded {
            return huffman::decode(string, out);
        }
        out.extend_from_slice(string);
        Ok(())
    }
}

/// Says that heads name no earlier ones; in front of the first.
pub fn forget(out: &mut Buffer) {
    out.append(&[0x20]);
}

/// Packs the status of a response.
pub fn status(status: u16, out: &mut Buffer) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.append(&[8, 3]);
            out.append_decimal(u64::from(status));
            return;
        }
    };
    out.append(&[0x80 | index]);
}

/// Packs a field. Its name may be in any case.
pub fn field(name: &str, value: &[u8], out: &mut Buffer) {
    out.reserve(name.len() + value.len() + 12);
    // Cookies are guessed at where others may add to the same connection.
    let (kind, index) = match table::name_index(name) {
        Some(index @ table::SET_COOKIE) => (0x10, index),
        Some(index) => (0, index),
        None => (0, 0),
    };
    integer(kind, 4, index, out);
    if index == 0 {
        integer(0, 7, name.len(), out);
        for byte in name.bytes() {
            out.append(&[byte.to_ascii_lowercase()]);
        }
    }
    integer(0, 7, value.len(), out);
    out.append(value);
}

/// Writes a number behind what the first byte has beside it.
fn integer(first: u8, bits: u32, number: usize, out: &mut Buffer) {
    let full = (1_usize << bits) - 1;
    if number < full {
        out.append(&[first | number as u8]);
        return;
    }
    out.append(&[first | full as u8]);
    let mut rest = number - full;
    while rest >= 0x80 {
        out.append(&[0x80 | (rest & 0x7f) as u8]);
        rest >>= 7;
    }
    out.append(&[rest as u8]);
}

/// A field of a section, where its name and value are such as HTTP/2 allows (RFC 9113, section
/// 8.2.1): a name in lower case, a value without control bytes or white space around it.
pub fn checked<'a>(name: &'a [u8], value: &'a [u8]) -> Option<Field<'a>> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    if name.is_empty() || !name.iter().copied().all(is_name_byte) {
        return None;
    }
    if value.iter().any(is_control) || is_blank(value.first()) || is_blank(value.last()) {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    let known = KnownField::of(name);
    Some(Field { known, name, value })
}

/// The bytes of a token, in lower case.
fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"-_!#$%&'*+.^`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
