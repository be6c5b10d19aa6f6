//! The log without what later records replaced, written beside it while it goes on.
//!
//! The file is read twice: first for which change of each key is the last (`last`), then to copy
//! those. Bytes are copied as they were received, never encoded anew: a field or a kind that this
//! build does not know must still be there when a newer one reads it.

mod last;

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use myriad_model::{COMMIT_BYTES_MAX, COMMIT_RESOURCES_MAX, Position};

use self::last::{Last, RUN_CHANGES, Sorter};
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
    file::beside(path, ".new")
}

/// Copies what is in force at `end` to a new file.
pub(super) fn compact(path: &Path, end: u64) -> Result<Compacted, LogError> {
    let survey = survey(path, end)?;
    let target = path_beside(path);
    let mut copy = Copy {
        file: file::create(&target)?,
        path: &target,
        len: HEAD_BYTES,
        record: Logged {
            key: survey.key,
            position: survey.position,
            changes: Vec::new(),
        },
        bytes: 0,
    };
    let (mut records, _) = Records::open(path, end)?;
    let mut number = 0_u64;
    while let Some(record) = records.next()? {
        for change in record.changes {
            let is_last = survey.last.is(number);
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

/// Writes these records to a file beside the log, which is to be put in its place.
pub(super) fn write_all(
    target: &Path,
    records: impl Iterator<Item = Logged>,
) -> Result<Opened, LogError> {
    let mut copy = Copy {
        file: file::create(target)?,
        path: target,
        len: HEAD_BYTES,
        record: Logged::default(),
        bytes: 0,
    };
    for record in records {
        copy.record = record;
        copy.write()?;
    }
    let Copy { mut file, len, .. } = copy;
    file::write_head(&mut file, len).map_err(LogError::io(target))?;
    file.seek(SeekFrom::Start(len))
        .map_err(LogError::io(target))?;
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
    last: Last,
    key: Option<[u8; 32]>,
    position: Position,
}

fn survey(path: &Path, end: u64) -> Result<Survey, LogError> {
    let mut sorter = Sorter::new(path, RUN_CHANGES);
    let (mut key, mut position) = (None, Position::default());
    let (mut records, _) = Records::open(path, end)?;
    while let Some(record) = records.next()? {
        for change in &record.changes {
            sorter.push(&change.key)?;
        }
        key = record.key.or(key);
        position = record.position;
    }
    Ok(Survey {
        last: sorter.finish()?,
        key,
        position,
    })
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
