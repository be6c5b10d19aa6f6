//! Files in which the kernel tells of processes and control groups.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

/// The text of a file, of which no more than so many bytes are read.
///
/// # Errors
/// The file cannot be read, or is no text.
pub fn text(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "what is read from is limited by take"
    )]
    File::open(path)?
        .take(bytes_max)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The number at a position, from 0, among words with spaces between them; none where there is
/// another word or no word.
pub fn number<T: FromStr>(words: &str, position: usize) -> Option<T> {
    words.split_whitespace().nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{number, text};

    #[test]
    fn a_file_of_the_kernel_is_read_up_to_a_bound() {
        let whole = text("/proc/self/stat", 4_096).unwrap();
        assert_eq!(number(&whole, 0), Some(std::process::id()));
        let start = text("/proc/self/stat", 3).unwrap();
        assert_eq!(start.len(), 3);
        assert!(whole.starts_with(&start));
        assert!(text("/proc/self/nothing", 4_096).is_err());
    }

    #[test]
    fn numbers_are_found_by_their_position() {
        for (words, position, found) in [
            ("7 8\n", 0, Some(7)),
            (" 7   8\n", 1, Some(8)),
            ("7 8", 2, None),
            ("7 max", 1, None),
            ("7 -1", 1, None),
            ("", 0, None),
        ] {
            assert_eq!(number::<u64>(words, position), found, "{words:?}");
        }
    }
}
