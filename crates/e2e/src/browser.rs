//! A real browser that stories look at pages with.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::world::repository;

/// The variable that names the folder where pictures are kept; they go with the story without.
const PICTURES: &str = "MYRIAD_PICTURES";

/// A running Chromium; it ends when dropped.
pub struct Browser {
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pictures: PathBuf,
    _folder: tempfile::TempDir,
    _child: Child,
}

/// A page that is looked at.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// Its URL.
    pub url: String,
    /// The token that is shown; empty for none.
    pub token: &'a str,
    /// The name of the picture.
    pub name: &'a str,
    /// The width of the window in pixels.
    pub width: u32,
    /// Whether the person likes it dark.
    pub is_dark: bool,
    /// How often the tabulator is pressed.
    pub presses: u32,
}

impl Browser {
    /// Starts one.
    ///
    /// # Panics
    /// Where the program is not there.
    pub fn start() -> Browser {
        let program = std::env::var_os("MYRIAD_BROWSER")
            .expect("MYRIAD_BROWSER is a program; `cargo xtask test` sets it");
        let folder = tempfile::tempdir().expect("a directory");
        let kept = std::env::var_os(PICTURES).map(PathBuf::from);
        let pictures = kept.unwrap_or_else(|| folder.path().to_owned());
        std::fs::create_dir_all(&pictures).expect("a folder for pictures");
        let pictures = pictures.canonicalize().expect("a folder");
        let mut command = Command::new(program);
        command
            .arg(
                repository("tools/console/look.mjs")
                    .canonicalize()
                    .expect("it is there"),
            )
            .arg(&pictures)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("the browser runs");
        Browser {
            input: child.stdin.take().expect("a pipe"),
            lines: BufReader::new(child.stdout.take().expect("a pipe")).lines(),
            pictures,
            _folder: folder,
            _child: child,
        }
    }

    /// Looks at a page, and says what was seen.
    ///
    /// # Panics
    /// Where the page is not shown in time.
    pub async fn look(&mut self, look: &Look<'_>) -> Value {
        let page = serde_json::json!({
            "url": look.url,
            "token": look.token,
            "name": look.name,
            "width": look.width,
            "dark": look.is_dark,
            "keys": look.presses,
        });
        let line = format!("{page}\n");
        let written = self.input.write_all(line.as_bytes()).await;
        written.expect("the browser listens");
        let told = tokio::time::timeout(Duration::from_secs(90), self.lines.next_line()).await;
        let told = told.expect("an answer in time").expect("a line");
        let seen: Value = serde_json::from_str(&told.expect("an answer")).expect("JSON");
        assert!(seen["error"].is_null(), "{look:?}: {seen}");
        seen
    }

    /// The picture of a look, by its name.
    pub fn picture(&self, name: &str) -> PathBuf {
        self.pictures.join(format!("{name}.png"))
    }
}

/// Whether a file is a picture that shows something: a PNG of more than one colour is larger than
/// this.
///
/// # Panics
/// Where it is not there.
pub fn is_picture(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("a picture");
    bytes.starts_with(b"\x89PNG") && bytes.len() > 5_000
}
