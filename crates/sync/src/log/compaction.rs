//! The log without what later records replaced, written beside it while it goes on.
//!
//! The file is read twice: first for which change of each key is the last, then to copy those.
//! Bytes are copied as they were received, never encoded anew: a field that this build does not
//! know must still be there when a newer one reads it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use myriad_model::{COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Key, Position};

use super::file::{self, HEAD_BYTES, Opened, Records};
use super::{LogError, Logged};

/// A file that holds what the log held up to `copied_to`.
pub(super) struct Compacted {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) copied_to: u64,
}

/// The path that a compaction writes to.
pub(super) fn path_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Copies what is in force at `end` to a new file.
pub(super) fn compact(path: &Path, end: u64) -> Result<Compacted, LogError> {
    let last = survey(path, end)?;
    let target = path_beside(path);
    let mut copy = Copy {
        file: file::create(&target)?,
        path: &target,
        len: HEAD_BYTES,
        record: Logged {
            key: last.key,
            position: last.position.clone(),
            changes: Vec::new(),
        },
        bytes: 0,
    };
    let (mut records, _) = Records::open(path, end)?;
    let mut number = 0_u64;
    while let Some(record) = records.next()? {
        for change in record.changes {
            let is_last = last.numbers.get(&digest(&change.key)) == Some(&number);
            number += 1;
            if is_last && change.new.is_some() {
                copy.add(change)?;
            }
        }
    }
    copy.write()?;
    Ok(Compacted {
        len: copy.len,
        file: copy.file,
        path: target,
        copied_to: end,
    })
}

/// Writes these records beside the log, and then puts them in its place.
pub(super) fn replace(
    path: &Path,
    records: impl Iterator<Item = Logged>,
) -> Result<Opened, LogError> {
    let target = path_beside(path);
    let mut copy = Copy {
        file: file::create(&target)?,
        path: &target,
        len: HEAD_BYTES,
        record: Logged::default(),
        bytes: 0,
    };
    for record in records {
        copy.record = record;
        copy.write()?;
    }
    let Copy { mut file, len, .. } = copy;
    file::write_head(&mut file, len).map_err(LogError::io(&target))?;
    file.seek(SeekFrom::Start(len))
        .map_err(LogError::io(&target))?;
    put_in_place(&file, &target, path)?;
    Ok(Opened {
        file,
        len,
        compacted_len: len,
    })
}

/// Forces a finished file to disk and gives it the log's name.
pub(super) fn put_in_place(file: &File, from: &Path, to: &Path) -> Result<(), LogError> {
    file.sync_all().map_err(LogError::io(from))?;
    std::fs::rename(from, to).map_err(LogError::io(to))?;
    if let Some(folder) = to.parent() {
        // Without this the old file might be back after a crash, which is older but whole.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

/// The findings of the first reading.
struct Survey {
    /// The number of the last change of each key. A hash instead of the name keeps this small.
    numbers: HashMap<u128, u64>,
    key: Option<[u8; 32]>,
    position: Position,
}

fn survey(path: &Path, end: u64) -> Result<Survey, LogError> {
    let mut survey = Survey {
        numbers: HashMap::new(),
        key: None,
        position: Position::default(),
    };
    let (mut records, _) = Records::open(path, end)?;
    let mut number = 0_u64;
    while let Some(record) = records.next()? {
        for change in &record.changes {
            survey.numbers.insert(digest(&change.key), number);
            number += 1;
        }
        survey.key = record.key.or(survey.key);
        survey.position = record.position;
    }
    Ok(survey)
}

fn digest(key: &Key) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[key.kind.number()]);
    hasher.update(key.name.as_bytes());
    let hash = hasher.finalize();
    let first = hash.as_bytes().first_chunk();
    first.map_or(0, |first| u128::from_le_bytes(*first))
}

struct Copy<'a> {
    file: File,
    path: &'a Path,
    len: u64,
    record: Logged,
    bytes: usize,
}

impl Copy<'_> {
    fn add(&mut self, change: super::LoggedChange) -> Result<(), LogError> {
        let bytes = change.new.as_ref().map_or(0, |(_, bytes)| bytes.len());
        let is_full = self.record.changes.len() >= COMMIT_RESOURCES_MAX
            || self.bytes + bytes > COMMIT_BYTES_MAX;
        if is_full {
            self.write()?;
        }
        self.bytes += bytes;
        self.record.changes.push(change);
        Ok(())
    }

    fn write(&mut self) -> Result<(), LogError> {
        let framed = file::frame(&self.record.encode());
        self.file
            .write_all(&framed)
            .map_err(LogError::io(self.path))?;
        self.len += framed.len() as u64;
        self.bytes = 0;
        self.record.key = None;
        self.record.changes.clear();
        Ok(())
    }
}
