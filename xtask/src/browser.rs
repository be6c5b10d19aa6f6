//! A browser that stories look at pages with, by Debian's Chromium, and what says whether everybody
//! can use them: axe-core, from npm by its ordinary client, pinned by its checksum.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::mongo::write_program;
use myriad_lab::tool::{Tool, run_in};

/// Runs a module of JavaScript that is given by its whole path, with arguments, where it finds
/// axe-core, whose version this is.
pub(crate) const BROWSER: Tool = Tool {
    name: "browser",
    version: "4.10.3",
};

/// The folder where it is pinned, below the workspace.
const FOLDER: &str = "tools/console";

/// The browser's program, which is made where it is not there yet.
pub(crate) fn provide(root: &Path, cache: &Path) -> Result<PathBuf> {
    BROWSER.provide(cache, |to| fetch(&root.join(FOLDER), to))
}

fn fetch(from: &Path, to: &Path) -> Result<()> {
    let packages = to.join("packages");
    fs::create_dir_all(&packages).with_context(|| packages.display().to_string())?;
    for name in ["package.json", "package-lock.json"] {
        let pinned = from.join(name);
        fs::copy(&pinned, packages.join(name)).with_context(|| pinned.display().to_string())?;
    }
    let mut command = Command::new("npm");
    // It takes what the lock file names, by its checksums, and runs nothing of it.
    command.args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--silent",
    ]);
    run_in(&packages, command)?;
    let run = "exec node --input-type=module --eval \"$(cat \"$1\")\" -- \"$@\"";
    let line = format!("cd \"${{0%/*}}/../packages\" && {run}");
    write_program(&BROWSER, to, &line)
}

#[cfg(test)]
mod tests {
    use super::BROWSER;

    #[test]
    fn the_version_is_the_one_that_is_pinned_and_all_files_have_checksums() {
        let named = format!("\"axe-core\": \"{}\"", BROWSER.version);
        assert!(include_str!("../../tools/console/package.json").contains(&named));
        let lock = include_str!("../../tools/console/package-lock.json");
        assert!(lock.contains(&named));
        let count = |text: &str| lock.matches(text).count();
        assert_eq!(count("\"node_modules/"), count("\"integrity\": \"sha512-"));
    }
}
