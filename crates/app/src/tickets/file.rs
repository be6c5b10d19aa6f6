//! The file of ticket keys as it is at a moment.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use myriad_base::clock;
use myriad_proxy::TicketSecret;

use super::text::{self, MalformedKeys};

/// The largest file in bytes: more than the most keys with a comment to each.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// The mode bits of those who are neither the owner nor of the group.
const OTHERS: u32 = 0o007;

/// Why a file gives no keys.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// There is none.
    #[error("there is no such file yet")]
    Absent,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is a folder or a device.
    #[error("it is no file")]
    NoFile,
    /// Everybody may read or write it.
    #[error(
        "its mode is {0:o}, so everybody may read or change it; take that away by `chmod o=`, or \
         by `defaultMode: 0440` for the volume of a Secret"
    )]
    Open(u32),
    /// It is longer than keys are.
    #[error("it is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It has bytes that are no text.
    #[error("it is no text; write keys as hexadecimal digits, such as `openssl rand -hex 32` does")]
    NoText,
    /// It has something else than keys.
    #[error(transparent)]
    Malformed(#[from] MalformedKeys),
}

/// Reads the keys, which came into use when the file was written.
///
/// # Errors
/// Why there are none.
pub fn read(path: &Path) -> Result<Vec<TicketSecret>, Problem> {
    let unreadable = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => Problem::Absent,
        _ => Problem::Unreadable(error),
    };
    // A pipe would not be opened before somebody writes to it.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(Problem::NoFile);
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(Problem::Open(mode & 0o777));
    }
    let mut text = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the reader ends behind FILE_BYTES_MAX"
    )]
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let length = length.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Problem::NoText,
        _ => Problem::Unreadable(error),
    })?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(Problem::TooLong);
    }
    let since = written_at(&metadata);
    let keys = text::parse(&text)?.into_iter();
    let secret = |key: text::TicketKey| TicketSecret {
        since,
        bytes: key.0,
    };
    Ok(keys.map(secret).collect())
}

/// The time of the last write, in seconds since the epoch.
fn written_at(metadata: &Metadata) -> i64 {
    let now = clock::unix_seconds();
    let written = metadata.modified().ok();
    let age = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let seconds = age.and_then(|age| i64::try_from(age.as_secs()).ok());
    seconds.map_or(now, |at| at.min(now))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use super::{FILE_BYTES_MAX, read};

    pub(in crate::tickets) fn write(path: &Path, text: impl AsRef<[u8]>, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_gives_keys_unless_everybody_may_touch_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("keys"), directory.path().join("link"));
        let key = format!("{}ff\n", "01".repeat(31));
        symlink(&path, &link).unwrap();
        for mode in [0o600, 0o400, 0o440, 0o660] {
            write(&path, &key, mode);
            let keys = read(&link).unwrap();
            assert_eq!((keys.len(), keys[0].bytes[31]), (1, 0xFF));
            assert!(keys[0].since > 0);
            std::fs::remove_file(&path).unwrap();
        }
        for mode in [0o604, 0o602, 0o644] {
            write(&path, &key, mode);
            let problem = read(&link).err().unwrap().to_string();
            assert!(problem.contains(&format!("{mode:o}")), "{problem}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let told = |path: &Path| read(path).err().unwrap().to_string();
        assert!(told(&path).contains("no such file"));
        assert!(told(directory.path()).contains("no file"));
        write(&path, [0xFF; 48], 0o600);
        assert!(told(&path).contains("no text"));
        write(&path, "#".repeat(FILE_BYTES_MAX as usize + 1), 0o600);
        assert!(told(&path).contains("longer"));
        write(&path, "\nhello\n", 0o600);
        assert!(told(&path).starts_with("line 2"));
    }
}
