//! What the tests need and a fresh Debian with Rust and Go does not have.
//!
//! Packages come from Debian; tools are built from pinned sources into the cache folder, below
//! their version, so that another version never finds an old build. What cannot be had is an
//! error: a test that silently did not run would look like one that passed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Place, run_in};

/// A program, the Debian package that has it, and what it is for.
struct Program {
    name: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 5] = [
    // The cryptography and the allocator are built from C.
    Program {
        name: "cc",
        package: "gcc",
    },
    Program {
        name: "make",
        package: "make",
    },
    // Builds h2spec.
    Program {
        name: "go",
        package: "golang-go",
    },
    // Stories ask as people do.
    Program {
        name: "curl",
        package: "curl",
    },
    // Stories and benchmarks that need many HTTP/2 streams at once.
    Program {
        name: "h2load",
        package: "nghttp2-client",
    },
];

/// A tool that is built here.
pub(super) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Holds what the lock file brings in against `deny.toml`.
pub(super) const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};

/// Tests whether we speak HTTP/2 as its RFCs say. This version is pinned in `tools/h2spec`.
pub(super) const H2SPEC: Tool = Tool {
    name: "h2spec",
    version: "2.2.1",
};

impl Tool {
    /// Where it is once it has been built.
    pub(super) fn path(&self, place: &Place) -> PathBuf {
        self.folder(place).join("bin").join(self.name)
    }

    fn folder(&self, place: &Place) -> PathBuf {
        place.cache.join(format!("{}-{}", self.name, self.version))
    }
}

/// Makes sure that everything is there.
pub(super) fn run(place: &Place) -> Result<()> {
    install_packages(place)?;
    build(place, &H2SPEC, build_h2spec)?;
    build(place, &CARGO_DENY, build_cargo_deny)?;
    // What later stages do offline needs the manifests of all platforms.
    place.cargo(&["fetch", "--locked"])
}

/// `MYRIAD_CACHE`, or else `myriad` in the user's cache folder.
pub(super) fn cache_folder() -> Result<PathBuf> {
    let folder = |name: &str| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let chosen = folder("MYRIAD_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("myriad")))
        .or_else(|| Some(folder("HOME")?.join(".cache/myriad")));
    let chosen = chosen.context("no HOME; name a cache folder in MYRIAD_CACHE")?;
    Ok(std::path::absolute(chosen)?)
}

fn install_packages(place: &Place) -> Result<()> {
    let missing = PROGRAMS
        .iter()
        .filter(|program| !is_installed(program.name));
    let packages: Vec<&str> = missing.map(|program| program.package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    println!("missing packages: {}", packages.join(", "));
    let remedy = || format!("install these packages: {}", packages.join(", "));
    run_in(&place.root, apt_get(&["update", "--quiet=2"])).with_context(remedy)?;
    let options = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
    run_in(
        &place.root,
        apt_get(&[&options[..], &packages[..]].concat()),
    )
    .with_context(remedy)?;
    for program in &PROGRAMS {
        ensure!(
            is_installed(program.name),
            "`{}` is still missing after installing the package {}",
            program.name,
            program.package
        );
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Command {
    let root = rustix::process::geteuid().is_root();
    let mut command = if root {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args([
            "--non-interactive",
            "--preserve-env=DEBIAN_FRONTEND",
            "apt-get",
        ]);
        sudo
    };
    command.args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Builds beside the final place and moves it there, so that half a build is never found.
fn build(place: &Place, tool: &Tool, build: fn(&Place, &Path) -> Result<()>) -> Result<()> {
    let path = tool.path(place);
    if path.is_file() {
        return Ok(());
    }
    println!("building {} {}", tool.name, tool.version);
    fs::create_dir_all(&place.cache).with_context(|| place.cache.display().to_string())?;
    let part = place
        .cache
        .join(format!("{}.{}", tool.name, std::process::id()));
    if let Err(error) = build(place, &part) {
        // The error that counts is the first; what is left behind only takes room.
        drop(fs::remove_dir_all(&part));
        return Err(error);
    }
    let folder = tool.folder(place);
    if let Err(error) = fs::rename(&part, &folder) {
        // Another run may have been quicker; then its build serves as well.
        ensure!(path.is_file(), "{}: {error}", folder.display());
        fs::remove_dir_all(&part)?;
    }
    ensure!(path.is_file(), "{} was not built", path.display());
    Ok(())
}

fn build_h2spec(place: &Place, to: &Path) -> Result<()> {
    let mut command = Command::new("go");
    command.args(["build", "-mod=readonly", "-trimpath", "-o"]);
    command.arg(to.join("bin").join(H2SPEC.name));
    command.arg("github.com/summerwind/h2spec/cmd/h2spec");
    // The installed Go does: a newer one must not be fetched for it.
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOWORK", "off");
    run_in(&place.root.join("tools/h2spec"), command)
}

fn build_cargo_deny(place: &Place, to: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command
        .args(["install", "--locked", "--quiet", "--root"])
        .arg(to);
    command.args(["--version", CARGO_DENY.version, CARGO_DENY.name]);
    // In the target folder of the workspace its build would be in the way of ours.
    command.env("CARGO_TARGET_DIR", to.join("target"));
    run_in(&place.root, command)?;
    fs::remove_dir_all(to.join("target")).context("the build folder cannot be removed")
}
