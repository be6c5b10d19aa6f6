//! The file: a head, then records, each with its length and checksums.
//!
//! The file is read as far as it is as it was written. A crash leaves a record behind that was cut
//! off; a loss of power may leave bytes in the middle that were never written. What is before is a
//! state that the proxy was in, as long as that begins with all of what the last compaction left:
//! a part of that is a state that never was, and may lack what restricts the rest.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{LogError, Logged};

const MAGIC: &[u8; 8] = b"myriad\x00\x01";
/// Magic, then the length that the file had after its last compaction.
pub(super) const HEAD_BYTES: u64 = 16;
const RECORD_HEAD_BYTES: u64 = 16;
/// The most bytes of one record: what a commit may hold, with all its names.
const RECORD_BYTES_MAX: u32 = 64 << 20;
const READ_BYTES: usize = 1 << 20;
/// The longest tail of zeros that is taken for what a crash left, twice what waits to be written.
/// No more is read to tell: a file of any length takes no time to make.
pub(super) const ZEROS_MAX: u64 = 128 << 20;
/// A piece of such a tail.
const ZEROS: [u8; 4_096] = [0; 4_096];
/// The file holds private keys.
const MODE: u32 = 0o600;

/// A log file whose records were all read.
pub(super) struct Opened {
    pub(super) file: File,
    /// The offset of the next record, in bytes.
    pub(super) len: u64,
    /// The length after the last compaction.
    pub(super) compacted_len: u64,
}

/// Opens or makes the file, reads its records and cuts off a torn tail.
pub(super) fn open(path: &Path, mut read: impl FnMut(Logged)) -> Result<Opened, LogError> {
    let io = || LogError::io(path);
    require_file(path).map_err(io())?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.mode(MODE).open(path).map_err(io())?;
    // It may be another one since.
    let metadata = file.metadata().map_err(io())?;
    require_regular(&metadata).map_err(io())?;
    // Who made the file may have been more generous.
    file.set_permissions(Permissions::from_mode(MODE))
        .map_err(io())?;
    let size = metadata.len();
    if size < HEAD_BYTES {
        require_beginning_of_head(&mut file, path)?;
        write_head(&mut file, 0).map_err(io())?;
        return Ok(Opened {
            file,
            len: HEAD_BYTES,
            compacted_len: 0,
        });
    }
    let (mut records, compacted_len) = Records::open(path, size)?;
    loop {
        match records.next() {
            Ok(Some(logged)) => read(logged),
            Ok(None) if records.offset < compacted_len => return Err(records.corrupt()),
            Ok(None) => break,
            Err(LogError::Corrupt { offset, .. }) if offset >= compacted_len => {
                let (path, cut) = (path.display(), size - offset);
                let told = "the log cannot be read from here on; the rest is fetched";
                tracing::error!(%path, offset, cut, "{told}");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let len = records.offset;
    file.set_len(len).map_err(io())?;
    file.seek(SeekFrom::Start(len)).map_err(io())?;
    Ok(Opened {
        file,
        len,
        compacted_len,
    })
}

/// Refuses anything but a regular file at a path, before it is opened: a pipe may hold the reader
/// for ever, and a device does as it likes. Nothing at all is fine.
fn require_file(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) => require_regular(&metadata),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn require_regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let text = format!("is {what} and no regular file; move it away, and the log is made anew");
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// The path of a file beside the log.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Makes an empty file beside the log, for a compaction to write.
pub(super) fn create(path: &Path) -> Result<File, LogError> {
    require_file(path).map_err(LogError::io(path))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let mut file = options.mode(MODE).open(path).map_err(LogError::io(path))?;
    write_head(&mut file, 0).map_err(LogError::io(path))?;
    Ok(file)
}

/// Writes the head, and leaves the file where the first record goes.
pub(super) fn write_head(file: &mut File, compacted_len: u64) -> std::io::Result<()> {
    let mut head = [0; HEAD_BYTES as usize];
    let (magic, len) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    len.copy_from_slice(&compacted_len.to_le_bytes());
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&head)
}

/// A record with its head, as it goes to disk in one write.
pub(super) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(payload.len() + RECORD_HEAD_BYTES as usize);
    framed.extend_from_slice(&head(payload.len() as u32, checksum(payload)));
    framed.extend_from_slice(payload);
    framed
}

/// Whether the record may be written: what is written must be readable.
pub(super) fn fits(payload: &[u8]) -> bool {
    payload.len() <= RECORD_BYTES_MAX as usize
}

/// The head of a record: length, checksum of the payload, checksum of these two.
fn head(len: u32, payload: u64) -> [u8; RECORD_HEAD_BYTES as usize] {
    let mut head = [0; RECORD_HEAD_BYTES as usize];
    let fields = u128::from(len) | u128::from(payload) << 32;
    head.copy_from_slice(&fields.to_le_bytes());
    let check = checksum(head.get(..12).unwrap_or_default()) as u32;
    let all = fields | u128::from(check) << 96;
    all.to_le_bytes()
}

fn checksum(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let first = hash.as_bytes().first_chunk();
    first.map_or(0, |first| u64::from_le_bytes(*first))
}

/// A file shorter than the head is one whose making was cut off, or not ours.
fn require_beginning_of_head(file: &mut File, path: &Path) -> Result<(), LogError> {
    let mut found = [0; HEAD_BYTES as usize];
    let count = fill(file, &mut found).map_err(LogError::io(path))?;
    let common = MAGIC.iter().zip(&found).take(count.min(MAGIC.len()));
    if common.clone().all(|(a, b)| a == b) {
        Ok(())
    } else {
        Err(LogError::OtherFormat {
            path: path.to_owned(),
        })
    }
}

/// The records of a file, read in bulk.
pub(super) struct Records {
    path: PathBuf,
    reader: BufReader<File>,
    /// The offset of the next record, in bytes.
    pub(super) offset: u64,
    end: u64,
}

impl Records {
    /// The records up to `end`, and the length after the last compaction.
    pub(super) fn open(path: &Path, end: u64) -> Result<(Records, u64), LogError> {
        require_file(path).map_err(LogError::io(path))?;
        let file = File::open(path).map_err(LogError::io(path))?;
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        let mut head = [0; HEAD_BYTES as usize];
        reader.read_exact(&mut head).map_err(LogError::io(path))?;
        let (magic, len) = head.split_at(MAGIC.len());
        let Some(len) = len.first_chunk().filter(|_| magic == MAGIC) else {
            return Err(LogError::OtherFormat {
                path: path.to_owned(),
            });
        };
        let compacted_len = u64::from_le_bytes(*len);
        let records = Records {
            path: path.to_owned(),
            reader,
            offset: HEAD_BYTES,
            end,
        };
        Ok((records, compacted_len))
    }

    /// The next record; none at the end, or where the last one was cut off.
    pub(super) fn next(&mut self) -> Result<Option<Logged>, LogError> {
        let rest = self.end.saturating_sub(self.offset);
        if rest < RECORD_HEAD_BYTES {
            return Ok(None);
        }
        let mut found = [0; RECORD_HEAD_BYTES as usize];
        self.reader.read_exact(&mut found).map_err(self.io())?;
        let fields = u128::from_le_bytes(found);
        let (len, sum) = (fields as u32, (fields >> 32) as u64);
        if head(len, sum) != found {
            // A crash may leave a tail of zeros, where the length was written and the rest not.
            return if found == [0; RECORD_HEAD_BYTES as usize] && self.is_rest_zero()? {
                Ok(None)
            } else {
                Err(self.corrupt())
            };
        }
        let whole = RECORD_HEAD_BYTES + u64::from(len);
        if len > RECORD_BYTES_MAX {
            return Err(self.corrupt());
        }
        if whole > rest {
            return Ok(None);
        }
        let mut payload = vec![0; len as usize];
        self.reader.read_exact(&mut payload).map_err(self.io())?;
        if checksum(&payload) != sum {
            return if whole == rest {
                Ok(None)
            } else {
                Err(self.corrupt())
            };
        }
        let logged = Logged::decode(Bytes::from(payload)).map_err(|_| self.corrupt())?;
        self.offset += whole;
        Ok(Some(logged))
    }

    /// Whether nothing but zeros is left, and no more of them than a crash leaves.
    fn is_rest_zero(&mut self) -> Result<bool, LogError> {
        if self.end.saturating_sub(self.offset) > ZEROS_MAX {
            return Ok(false);
        }
        let mut piece = ZEROS;
        loop {
            let count = fill(&mut self.reader, &mut piece).map_err(self.io())?;
            let (read, _) = piece.split_at(count);
            if !ZEROS.starts_with(read) {
                return Ok(false);
            }
            if count < piece.len() {
                return Ok(true);
            }
        }
    }

    fn corrupt(&self) -> LogError {
        LogError::Corrupt {
            path: self.path.clone(),
            offset: self.offset,
        }
    }

    fn io(&self) -> impl FnOnce(std::io::Error) -> LogError + use<> {
        LogError::io(&self.path)
    }
}

/// Reads until the buffer is full or the input ends, and returns how much was read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
