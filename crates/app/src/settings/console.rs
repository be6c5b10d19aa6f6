//! Settings of the console.

use std::path::{Path, PathBuf};

use myriad_base::file;

use crate::cli::process::RawProcess;

/// The fewest characters of a token: of fewer, all can be tried.
const TOKEN_CHARS_MIN: usize = 16;

/// The longest file of a token, in bytes.
const FILE_BYTES_MAX: u64 = 4_096;

/// The console, where it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// The file of the token by which people are let in.
    pub token_file: Option<PathBuf>,
    /// Whether the API server is asked about other tokens.
    pub reviews: bool,
}

/// Reads settings; none where no console is asked for.
pub(super) fn read(
    raw: &RawProcess,
    reviews: bool,
    problems: &mut Vec<String>,
) -> Option<ConsoleSettings> {
    let token_file = raw.console_token_file.clone();
    if let Some(path) = &token_file
        && let Err(problem) = token(path)
    {
        let path = path.display();
        problems.push(format!("--console-token-file {path}: {problem}"));
    }
    (token_file.is_some() || reviews).then_some(ConsoleSettings {
        token_file,
        reviews,
    })
}

/// The token in a file, without spaces around it.
///
/// # Errors
/// A text that says what is wrong with the file, and nothing of what is in it.
pub fn token(path: &Path) -> Result<String, String> {
    let text = file::whole(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
    let token = text.trim();
    let is_sound = token.chars().all(|character| character.is_ascii_graphic());
    if !is_sound || token.len() < TOKEN_CHARS_MIN {
        return Err(format!(
            "it is not one word of at least {TOKEN_CHARS_MIN} characters of ASCII"
        ));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn a_token_is_one_long_word() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            token(&path)
        };
        assert_eq!(
            read("  0123456789abcdef\n"),
            Ok("0123456789abcdef".to_owned())
        );
        for unsound in [
            "",
            "\n",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdéf",
        ] {
            let problem = read(unsound).unwrap_err();
            assert!(unsound.len() < 4 || !problem.contains(unsound), "{problem}");
        }
        assert!(read(&"a".repeat(5_000)).is_err());
        assert!(token(&directory.path().join("none")).is_err());
    }
}
