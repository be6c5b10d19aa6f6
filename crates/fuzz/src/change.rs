//! Changes to bytes, the same on every machine.

/// The longest input in bytes.
pub const BYTES_MAX: usize = 8 << 10;

/// Words that parsers look for, and that confuse them.
const WORDS: [&[u8]; 40] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b"/",
    b"\\",
    b"..",
    b"%2e",
    b"%2f",
    b"%00",
    b"0\r\n\r\n",
    b"ffffffff",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"\xff\xff\xff\xff",
    b"\x80",
    b"[::1]",
    b"PROXY TCP4 ",
    b"HTTP/1.1",
    b"---\n",
    b"\n---\n",
    b"  ",
    b"- ",
    b": ",
    b"#",
    b"\"",
    b"'",
    b"{",
    b"}",
    b"&a ",
    b"*a",
    b"|\n",
    b"=",
    b";",
    b",",
];

/// Numbers that only look random (xorshift).
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Numbers(seed | 1)
    }

    /// One below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Changes some bytes, perhaps by parts of others.
    pub fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(2) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                2 => {
                    let end = (at + self.below(16)).min(bytes.len());
                    bytes.drain(at..end);
                }
                3 => {
                    let end = (at + self.below(32)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                4 => {
                    let start = self.below(other.len());
                    let end = (start + self.below(64)).min(other.len());
                    bytes.splice(at..at, other[start..end].iter().copied());
                }
                _ => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..at, word.iter().copied());
                }
            }
        }
        bytes.truncate(BYTES_MAX);
    }
}
