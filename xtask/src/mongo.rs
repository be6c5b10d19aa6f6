//! A server that speaks MongoDB's protocol and a real driver of it, from their registries by
//! their ordinary clients: pinned versions with known checksums, each kept as a program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use myriad_lab::tool::{Tool, run_in};

/// Listens on port 27017 of this machine, in plain text, and keeps everything in memory.
const SERVER: Tool = Tool {
    name: "mongo-java-server",
    version: "1.46.0",
};

/// Python that has the driver.
const DRIVER: Tool = Tool {
    name: "python-pymongo",
    version: "4.13.2",
};

/// The folder where both are pinned, below the workspace.
const FOLDER: &str = "tools/mongo";

/// The goal of Maven: to copy what the module there depends on.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// The server, which is fetched where it is not there yet.
pub(crate) fn server(root: &Path, cache: &Path) -> Result<PathBuf> {
    SERVER.provide(cache, |to| fetch_server(&root.join(FOLDER), to))
}

/// The driver, likewise: Python's arguments are those of the program.
pub(crate) fn driver(root: &Path, cache: &Path) -> Result<PathBuf> {
    DRIVER.provide(cache, |to| fetch_driver(&root.join(FOLDER), to))
}

fn fetch_server(from: &Path, to: &Path) -> Result<()> {
    let jars = to.join("jars");
    fs::create_dir_all(&jars).with_context(|| jars.display().to_string())?;
    let mut command = Command::new("mvn");
    command.args(["--batch-mode", "--quiet", COPY]);
    command.arg(format!("-DoutputDirectory={}", jars.display()));
    run_in(from, command)?;
    let mut command = Command::new("sha256sum");
    command.args(["--check", "--strict", "--quiet"]);
    command.arg(from.join("sums.txt"));
    run_in(&jars, command)?;
    let class = "de.bwaldvogel.mongo.InMemoryMongoServer";
    let line = format!("exec java -cp \"${{0%/*}}/../jars/*\" {class} \"$@\"");
    write_program(&SERVER, to, &line)
}

fn fetch_driver(from: &Path, to: &Path) -> Result<()> {
    let packages = to.join("packages");
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
    command.args(["--only-binary=:all:", "--require-hashes"]);
    // The packages are unpacked here and nowhere else, whatever this Python is managed by.
    command.args(["--break-system-packages", "--root-user-action=ignore"]);
    command.arg("--requirement");
    command.arg(from.join("requirements.txt"));
    command.arg("--target").arg(&packages);
    run_in(from, command)?;
    let line = "PYTHONPATH=\"${0%/*}/../packages\" exec python3 \"$@\"";
    write_program(&DRIVER, to, line)
}

/// Writes a program that runs a line of the shell.
pub(crate) fn write_program(tool: &Tool, to: &Path, line: &str) -> Result<()> {
    let program = to.join("bin").join(tool.name);
    fs::create_dir_all(to.join("bin"))?;
    fs::write(&program, format!("#!/bin/sh\n{line}\n"))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&program, mode).with_context(|| program.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{DRIVER, SERVER};

    #[test]
    fn the_versions_are_those_that_are_pinned() {
        let pom = include_str!("../../tools/mongo/pom.xml");
        assert!(pom.contains(&format!("<version>{}</version>", SERVER.version)));
        let sums = include_str!("../../tools/mongo/sums.txt");
        assert!(sums.contains(&format!("memory-backend-{}.jar", SERVER.version)));
        let requirements = include_str!("../../tools/mongo/requirements.txt");
        assert!(requirements.contains(&format!("\npymongo=={} ", DRIVER.version)));
    }
}
