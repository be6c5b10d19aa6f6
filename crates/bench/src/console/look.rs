//! Pages as a browser shows them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// Looks at pages in light and dark, keeps a picture of each, and holds them against what axe-core
/// finds.
pub(super) fn look(pictures: &Path, pages: &[String], token: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(pictures)?;
    let pictures = pictures.canonicalize()?;
    let program = std::env::var_os("MYRIAD_BROWSER")
        .context("MYRIAD_BROWSER is a program; `cargo xtask test --stage setup` makes it")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/console/look.mjs");
    let mut browser = Command::new(program)
        .arg(script.canonicalize()?)
        .arg(&pictures)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("the browser does not run")?;
    let mut input = browser.stdin.take().context("a pipe")?;
    let mut lines = BufReader::new(browser.stdout.take().context("a pipe")?).lines();
    for (number, url) in pages.iter().enumerate() {
        for (kind, is_dark) in [("light", false), ("dark", true)] {
            let name = format!("console-{number}-{kind}");
            let page = json!({"url": url, "token": token, "name": name, "dark": is_dark});
            writeln!(input, "{page}")?;
            let seen: Value = serde_json::from_str(&lines.next().context("an answer")??)?;
            let is_clean = seen["violations"].as_array().is_some_and(Vec::is_empty);
            ensure!(is_clean, "{url}: {seen}");
        }
    }
    drop(input);
    ensure!(browser.wait()?.success(), "the browser failed");
    Ok(())
}
