//! Every file of the corpora, and what comes of changing it, some thousand times with a fixed seed:
//! the same on every machine, and in bounded time.

use std::fs;
use std::path::Path;

use myriad_fuzz::TARGETS;

/// How often each file is changed.
const CHANGES: u32 = 60_000;

/// The longest input in bytes.
const BYTES_MAX: usize = 8 << 10;

/// What parsers look for, and what confuses them.
const WORDS: [&[u8]; 24] = [
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
];

/// Numbers that only look random (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Changes some bytes.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
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

#[test]
fn no_parser_breaks_its_word() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let folder = fs::read_dir(corpus.join(name)).unwrap();
        let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        #[expect(clippy::disallowed_methods, reason = "our own files, of a known size")]
        let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        let mut numbers = Numbers(0x6d79_7269_6164);
        for seed in &seeds {
            target(seed);
            let mut bytes = seed.clone();
            for round in 0..CHANGES {
                // Changes pile up for a while, so that they lead away from what is well-formed.
                if round % 8 == 0 {
                    bytes.clone_from(seed);
                }
                let other = &seeds[numbers.below(seeds.len())];
                numbers.change(&mut bytes, other);
                let input = bytes.clone();
                let done = std::panic::catch_unwind(|| target(&input));
                assert!(
                    done.is_ok(),
                    "{name} breaks on {:?}",
                    input.escape_ascii().to_string()
                );
            }
        }
    }
}

#[test]
fn the_signed_token_of_the_corpus_is_believed() {
    let token = include_str!("../corpus/token/signed");
    assert!(myriad_fuzz::is_believed(token));
    assert!(!myriad_fuzz::is_believed(&token.replace("DtEh", "DtEi")));
}
