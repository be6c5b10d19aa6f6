//! The last change of each key in a log, found in memory that does not grow with the keys.
//!
//! Hashes of keys and the numbers of their changes are sorted in runs, which lie in a file beside
//! the log, and the runs are merged. What stays in memory is one run, a piece of each other run
//! while they are merged, and a bit for each change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use myriad_model::Key;

use super::super::{LogError, file};

/// The changes that are sorted at once; 24 bytes each.
pub(super) const RUN_CHANGES: usize = 1 << 16;
/// The changes of each run that are in memory while runs are merged.
const PIECE_CHANGES: usize = 512;
const CHANGE_BYTES: usize = 24;

/// A change: the hash of its key, in two halves, and its number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    key: (u64, u64),
    number: u64,
}

/// The changes of a log as they are read.
pub(super) struct Sorter {
    path: PathBuf,
    run_changes: usize,
    run: Vec<Numbered>,
    /// The runs that were sorted, one behind the other.
    runs: Option<File>,
    /// How many changes there are in `runs`.
    written: u64,
    /// How many changes were read.
    count: u64,
}

/// The last change of each key, by its number.
#[derive(Debug, Default)]
pub(super) struct Last {
    bits: Vec<u64>,
}

impl Sorter {
    /// A sorter that writes beside this log, if it reads more changes than fit into one run.
    pub(super) fn new(log: &Path, run_changes: usize) -> Sorter {
        Sorter {
            path: file::beside(log, ".keys"),
            run_changes,
            run: Vec::new(),
            runs: None,
            written: 0,
            count: 0,
        }
    }

    /// Takes the next change of the log.
    pub(super) fn push(&mut self, key: &Key) -> Result<(), LogError> {
        if self.run.len() >= self.run_changes {
            self.write_run()?;
        }
        self.run.push(Numbered {
            key: hash(key),
            number: self.count,
        });
        self.count += 1;
        Ok(())
    }

    /// How many bytes of memory this takes.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.run.capacity() * size_of::<Numbered>()
    }

    /// The last change of each key, once all were taken.
    pub(super) fn finish(mut self) -> Result<Last, LogError> {
        let words = usize::try_from(self.count.div_ceil(64)).unwrap_or(usize::MAX);
        let mut last = Last {
            bits: vec![0; words],
        };
        if self.runs.is_some() {
            self.write_run()?;
        }
        match self.runs.take() {
            Some(runs) => self.merge(&runs, &mut last)?,
            None => {
                self.run.sort_unstable();
                last.add_sorted(self.run.iter().map(|it| Ok(*it)))?;
            }
        }
        Ok(last)
    }

    fn write_run(&mut self) -> Result<(), LogError> {
        self.run.sort_unstable();
        if self.runs.is_none() {
            let made = file::create(&self.path)?;
            // Nothing is left of it, however this ends.
            std::fs::remove_file(&self.path).map_err(LogError::io(&self.path))?;
            self.runs = Some(made);
        }
        let mut bytes = Vec::with_capacity(PIECE_CHANGES * CHANGE_BYTES);
        for piece in self.run.chunks(PIECE_CHANGES) {
            bytes.clear();
            piece.iter().for_each(|it| it.write(&mut bytes));
            let offset = self.written * CHANGE_BYTES as u64;
            if let Some(runs) = &self.runs {
                let written = runs.write_all_at(&bytes, offset);
                written.map_err(LogError::io(&self.path))?;
            }
            self.written += piece.len() as u64;
        }
        self.run.clear();
        Ok(())
    }

    fn merge(&self, file: &File, last: &mut Last) -> Result<(), LogError> {
        let io = LogError::io(&self.path);
        let step = self.run_changes.max(1);
        let starts = (0..self.written).step_by(step);
        let mut runs: Vec<Run<'_>> = starts
            .map(|at| Run {
                file,
                at,
                end: (at + step as u64).min(self.written),
                piece: Vec::new(),
            })
            .collect();
        let mut next = BinaryHeap::new();
        let mut merged = || -> std::io::Result<Option<Numbered>> {
            if next.is_empty() {
                for (index, run) in runs.iter_mut().enumerate() {
                    next.extend(run.take()?.map(|it| Reverse((it, index))));
                }
            }
            let Some(Reverse((first, index))) = next.pop() else {
                return Ok(None);
            };
            let following = runs.get_mut(index).map(Run::take).transpose()?.flatten();
            next.extend(following.map(|it| Reverse((it, index))));
            Ok(Some(first))
        };
        last.add_sorted(std::iter::from_fn(|| merged().transpose()))
            .map_err(io)
    }
}

impl Last {
    /// Whether the change with this number is the last of its key.
    pub(super) fn is(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok();
        let word = word.and_then(|at| self.bits.get(at));
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Takes all changes, in the order of their keys and then of their numbers.
    fn add_sorted<E>(&mut self, all: impl Iterator<Item = Result<Numbered, E>>) -> Result<(), E> {
        let mut before: Option<Numbered> = None;
        for numbered in all {
            let numbered = numbered?;
            if let Some(before) = before.filter(|it| it.key != numbered.key) {
                self.set(before.number);
            }
            before = Some(numbered);
        }
        if let Some(before) = before {
            self.set(before.number);
        }
        Ok(())
    }

    fn set(&mut self, number: u64) {
        let word = usize::try_from(number / 64).ok();
        if let Some(word) = word.and_then(|at| self.bits.get_mut(at)) {
            *word |= 1 << (number % 64);
        }
    }
}

/// A sorted run in the file.
struct Run<'a> {
    file: &'a File,
    /// The change that is read next, and the end.
    at: u64,
    end: u64,
    /// The changes that were read, the first one last.
    piece: Vec<Numbered>,
}

impl Run<'_> {
    fn take(&mut self) -> std::io::Result<Option<Numbered>> {
        if self.piece.is_empty() {
            let rest = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let count = rest.min(PIECE_CHANGES);
            let mut bytes = vec![0; count * CHANGE_BYTES];
            let offset = self.at * CHANGE_BYTES as u64;
            self.file.read_exact_at(&mut bytes, offset)?;
            let read = bytes.chunks_exact(CHANGE_BYTES).rev();
            self.piece.extend(read.filter_map(Numbered::read));
            self.at += count as u64;
        }
        Ok(self.piece.pop())
    }
}

impl Numbered {
    fn write(&self, bytes: &mut Vec<u8>) {
        for part in [self.key.0, self.key.1, self.number] {
            bytes.extend_from_slice(&part.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Numbered> {
        let (parts, _) = bytes.as_chunks::<8>();
        let [first, second, number] = parts else {
            return None;
        };
        Some(Numbered {
            key: (u64::from_le_bytes(*first), u64::from_le_bytes(*second)),
            number: u64::from_le_bytes(*number),
        })
    }
}

fn hash(key: &Key) -> (u64, u64) {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[key.kind.number()]);
    hasher.update(key.name.as_bytes());
    let hash = hasher.finalize();
    let (parts, _) = hash.as_bytes().as_chunks::<8>();
    match parts {
        [first, second, ..] => (u64::from_le_bytes(*first), u64::from_le_bytes(*second)),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use myriad_model::{Key, Kind};

    use super::Sorter;
    use crate::tests::pair::Random;

    #[test]
    fn the_last_change_of_each_key_is_found_in_memory_that_does_not_grow_with_the_keys() {
        let folder = tempfile::tempdir().unwrap();
        let run = 256;
        let mut memory = Vec::new();
        for keys in [100, 1_000, 20_000] {
            let mut random = Random::new(keys as u64);
            let mut sorter = Sorter::new(&folder.path().join("log"), run);
            let mut expected = HashMap::new();
            for number in 0..3 * keys as u64 {
                let key = Key::new(Kind::Endpoints, &*format!("e{}", random.below(keys)));
                sorter.push(&key).unwrap();
                expected.insert(key, number);
            }
            memory.push(sorter.memory_bytes());
            let last = sorter.finish().unwrap();
            let found = (0..3 * keys as u64).filter(|number| last.is(*number));
            let mut expected: Vec<u64> = expected.into_values().collect();
            expected.sort_unstable();
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
        assert_eq!(memory[1..], [memory[0]; 2], "bytes");
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "nothing is left beside the log");
    }
}
