//! The code of strings (RFC 7541, appendix B).
//!
//! Shorter codes come before longer ones, and codes of one length in the order of their bytes, so
//! that the lengths tell the code.

use super::Unreadable;

/// The end of the code, which no string may contain.
const END: u16 = 256;

/// The longest code in bits.
const BITS_MAX: usize = 30;

/// Codes of so many bits or fewer are found at once.
const FAST_BITS: u32 = 9;

/// How many bits the code of each byte has, and that of the end.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The code, as it is looked up.
struct Code {
    /// Bytes in the order of their codes.
    order: [u16; LENGTHS.len()],
    /// The first code of each length.
    first: [u32; BITS_MAX + 1],
    /// The index in `order` of the first byte of each length.
    start: [u16; BITS_MAX + 1],
    /// How many there are of each length.
    count: [u16; BITS_MAX + 1],
    /// The byte and the length of its code, by the first bits; a length of 0 where it is longer.
    fast: [(u8, u8); 1 << FAST_BITS],
}

static CODE: Code = Code::new();

impl Code {
    #[expect(clippy::indexing_slicing, reason = "it is run by the compiler")]
    const fn new() -> Self {
        let mut code = Code {
            order: [0; LENGTHS.len()],
            first: [0; BITS_MAX + 1],
            start: [0; BITS_MAX + 1],
            count: [0; BITS_MAX + 1],
            fast: [(0, 0); 1 << FAST_BITS],
        };
        let (mut next, mut placed, mut length) = (0_u32, 0, 1);
        while length <= BITS_MAX {
            next <<= 1;
            code.first[length] = next;
            code.start[length] = placed as u16;
            let mut byte = 0;
            while byte < LENGTHS.len() {
                if LENGTHS[byte] as usize == length {
                    code.order[placed] = byte as u16;
                    code.put_fast(next, length as u32, byte as u8);
                    code.count[length] += 1;
                    next += 1;
                    placed += 1;
                }
                byte += 1;
            }
            length += 1;
        }
        code
    }

    #[expect(clippy::indexing_slicing, reason = "it is run by the compiler")]
    const fn put_fast(&mut self, code: u32, length: u32, byte: u8) {
        if length > FAST_BITS {
            return;
        }
        let shift = FAST_BITS - length;
        let mut at = code << shift;
        while at < (code + 1) << shift {
            self.fast[at as usize] = (byte, length as u8);
            at += 1;
        }
    }

    /// The byte whose code these bits begin with, and how long that is.
    fn find(&self, bits: u32) -> Option<(u16, u32)> {
        let fast = self.fast.get((bits >> (32 - FAST_BITS)) as usize);
        if let Some((byte, length @ 1..)) = fast {
            return Some((u16::from(*byte), u32::from(*length)));
        }
        (FAST_BITS + 1..=BITS_MAX as u32).find_map(|length| {
            let index = length as usize;
            let past = (bits >> (32 - length)).checked_sub(*self.first.get(index)?)?;
            if past >= u32::from(*self.count.get(index)?) {
                return None;
            }
            let at = usize::from(*self.start.get(index)?) + past as usize;
            Some((*self.order.get(at)?, length))
        })
    }
}

/// Adds what a string stands for.
pub(super) fn decode(string: &[u8], out: &mut Vec<u8>) -> Result<(), Unreadable> {
    // Bits that were read and not used, the first of them highest.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut bytes = string.iter();
    loop {
        while count <= 56
            && let Some(byte) = bytes.next()
        {
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let found = CODE.find((bits >> 32) as u32);
        let Some((byte, length)) = found.filter(|(_, length)| *length <= count) else {
            break;
        };
        if byte == END {
            return Err(Unreadable::Malformed);
        }
        out.push(byte as u8);
        bits <<= length;
        count -= length;
    }
    // What is left fills a byte, with the start of the code of the end: ones.
    let is_filled = count == 0 || (count < 8 && bits >> (64 - count) == (1 << count) - 1);
    if !is_filled {
        return Err(Unreadable::Malformed);
    }
    Ok(())
}
