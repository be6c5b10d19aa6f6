//! Reads one file, within limits, and tells whether it was touched since.

use std::fs::{File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::OFlags;

use super::problem::Problem;
use super::split::count_lines;
use super::{Counters, Limits};

/// The stamp that tells one state of a file from another without reading it: device, inode, size,
/// and the times of its content and its attributes to the nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The state of the file at a path.
#[derive(Debug)]
pub(crate) enum FileState {
    /// No file.
    Gone,
    /// A file that cannot be used as a whole.
    Unreadable(Stamp, Box<Problem>),
    /// Its text, without byte order mark.
    Text(Stamp, String),
}

/// A source of files; tests have a map instead of a disk.
pub(crate) trait Files {
    /// The state of the file at the path now.
    fn read(&mut self, path: &str) -> FileState;
}

/// The real files.
pub(crate) struct Disk<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) counters: &'a Counters,
}

impl Files for Disk<'_> {
    fn read(&mut self, path: &str) -> FileState {
        let state = read_file(path, self.limits.file_bytes_max);
        if let FileState::Text(_, text) = &state {
            self.counters.files_read.inc();
            self.counters.bytes_read.inc_by(text.len() as u64);
        }
        state
    }
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Stamp {
        // The hasher has fixed keys, so that equal files have equal stamps.
        let mut hasher = DefaultHasher::new();
        (metadata.dev(), metadata.ino(), metadata.size()).hash(&mut hasher);
        (metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
        (metadata.ctime(), metadata.ctime_nsec()).hash(&mut hasher);
        Stamp(hasher.finish())
    }
}

fn read_file(path: &str, bytes_max: u64) -> FileState {
    let unreadable = |stamp, problem| FileState::Unreadable(stamp, Box::new(problem));
    let (mut file, metadata) = match open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound && !is_link(path) => {
            return FileState::Gone;
        }
        Err(error) => return unreadable(Stamp::default(), explain(&error)),
    };
    let stamp = Stamp::of(&metadata);
    if !metadata.is_file() {
        let remedy = "put a regular file in its place";
        return unreadable(stamp, Problem::new("is not a regular file", remedy));
    }
    let mut bytes = Vec::new();
    if metadata.len() <= bytes_max {
        bytes.reserve_exact(
            usize::try_from(metadata.len())
                .unwrap_or(0)
                .saturating_add(1),
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the reader ends behind bytes_max"
        )]
        let read = file
            .by_ref()
            .take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes);
        if let Err(error) = read {
            return unreadable(stamp, explain(&error));
        }
    }
    if metadata.len() > bytes_max || bytes.len() as u64 > bytes_max {
        let message = format!("is longer than {bytes_max} bytes, so it is not read");
        return unreadable(stamp, Problem::new(message, "divide it into several files"));
    }
    of_bytes(stamp, bytes)
}

/// A file with this content.
pub(crate) fn of_bytes(stamp: Stamp, bytes: Vec<u8>) -> FileState {
    match decode(bytes) {
        Ok(text) => FileState::Text(stamp, text),
        Err(problem) => FileState::Unreadable(stamp, Box::new(problem)),
    }
}

fn open(path: &str) -> io::Result<(File, Metadata)> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    // A pipe without writer would hold the reader for ever.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn is_link(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// The problem that an error of the file system is.
pub(crate) fn explain(error: &io::Error) -> Problem {
    let (message, remedy) = match error.kind() {
        ErrorKind::PermissionDenied => (
            "is not readable for the user that Myriad runs as".to_owned(),
            "give that user read permission",
        ),
        ErrorKind::NotFound => (
            "is a link whose target does not exist".to_owned(),
            "correct the link or remove it",
        ),
        _ => (
            format!("is not readable: {error}"),
            "look after the file system",
        ),
    };
    Problem::new(message, remedy)
}

fn decode(bytes: Vec<u8>) -> Result<String, Problem> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let (good, _) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line = count_lines(std::str::from_utf8(good).ok());
        Problem::new(
            "is not UTF-8 text from this line on",
            "save the file as UTF-8",
        )
        .at(line)
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(state: FileState) -> Problem {
        match state {
            FileState::Unreadable(_, problem) => *problem,
            other => panic!("{other:?} should be unreadable"),
        }
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("a"), "\u{feff}a: 1").expect("a file");
        assert!(matches!(read_file(&path("a"), 7), FileState::Text(_, text) if text == "a: 1"));
        assert!(
            problem(read_file(&path("a"), 6))
                .message
                .contains("longer than 6 bytes")
        );
        assert!(matches!(read_file(&path("b"), 9), FileState::Gone));
        std::fs::write(path("c"), b"a: 1\nb: \xff").expect("a file");
        assert_eq!(problem(read_file(&path("c"), 99)).line, 1);
    }

    #[test]
    fn what_is_no_file_does_not_hold_the_reader() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.yaml");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        let path = path.display().to_string();
        assert!(
            problem(read_file(&path, 9))
                .message
                .contains("regular file")
        );
        std::fs::remove_file(&path).expect("no link");
        std::os::unix::fs::symlink("nowhere", &path).expect("a link");
        assert!(problem(read_file(&path, 9)).message.contains("target"));
        std::fs::remove_file(&path).expect("no link");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path.as_str(), mode).expect("a pipe");
        assert!(
            problem(read_file(&path, 9))
                .message
                .contains("regular file")
        );
    }

    #[test]
    fn a_sparse_file_of_a_hundred_megabytes_is_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.yaml");
        File::create(&path)
            .and_then(|file| file.set_len(100 << 20))
            .expect("a file");
        let found = problem(read_file(&path.display().to_string(), 16 << 20));
        assert!(found.message.contains("16777216 bytes"), "{found:?}");
    }

    #[test]
    fn a_forbidden_file_says_who_should_read_it() {
        let found = explain(&io::Error::from(ErrorKind::PermissionDenied));
        assert!(found.remedy.contains("permission"), "{found:?}");
    }
}
