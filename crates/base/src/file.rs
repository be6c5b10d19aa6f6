//! Files that people write, read whole.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::kernel;

/// The text of a file that has fewer than so many bytes. A longer one is refused: half of it could
/// be read as less than what it says.
///
/// # Errors
/// The file cannot be read, is no text, or is too long.
pub fn whole(path: &Path, bytes_max: u64) -> io::Result<String> {
    let text = kernel::text(path, bytes_max)?;
    match text.len() as u64 >= bytes_max {
        true => Err(ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::whole;

    #[test]
    fn a_file_is_read_whole_or_refused() {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let text = whole(path, 1 << 20).unwrap();
        assert!(text.contains("myriad-base"));
        let length = text.len() as u64;
        assert_eq!(whole(path, length + 1).unwrap(), text);
        for bytes_max in [length, length - 1, 1] {
            let error = whole(path, bytes_max).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        }
        assert!(whole(&path.join("nothing"), 1 << 20).is_err());
    }
}
