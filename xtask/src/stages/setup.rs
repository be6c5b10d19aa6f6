//! The packages that tests need and a fresh Debian with Rust and Go does not have.
//!
//! Packages come from Debian; tools are built from pinned sources and kept. What cannot be had
//! is an error: a test that silently did not run would look like one that passed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Place;
use crate::browser;
use crate::oidc;
use crate::peer::{self, Peer};
use myriad_lab::tool::{Tool, build_go, run_in};
use myriad_lab::{pebble, postgresql};

/// A program, the Debian package that has it, and what it is for.
struct Program {
    name: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 20] = [
    // The cryptography and the allocator are built from C.
    Program {
        name: "cc",
        package: "gcc",
    },
    Program {
        name: "make",
        package: "make",
    },
    // Builds h2spec and Kubernetes.
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
    // The test cluster has a network of its own, and certificates.
    Program {
        name: "ip",
        package: "iproute2",
    },
    // Leads the connections of a workload to its proxy.
    Program {
        name: "nft",
        package: "nftables",
    },
    // Reads metrics as it does for dashboards. Where its package starts a service, that has a port
    // of its own: stories run theirs with a configuration, data and a port of their own.
    Program {
        name: "prometheus",
        package: "prometheus",
    },
    Program {
        name: "openssl",
        package: "openssl",
    },
    // Takes updates of zones. Where its package starts a service, that has a port of its own.
    Program {
        name: "named",
        package: "bind9",
    },
    // Asks it, as people do.
    Program {
        name: "dig",
        package: "bind9-dnsutils",
    },
    // Scans the TLS that we speak as the public does.
    Program {
        name: "testssl",
        package: "testssl.sh",
    },
    // A server that speaks MongoDB's protocol, and a driver of it.
    Program {
        name: "java",
        package: "openjdk-17-jre-headless",
    },
    Program {
        name: "mvn",
        package: "maven",
    },
    // The database of a shop. Where its package starts a server, that has data of its own: ours
    // has a network, and data that end with it.
    Program {
        name: "postgres",
        package: "postgresql",
    },
    // Its server sees what others see, as do those of Go, Python, nginx and HAProxy.
    Program {
        name: "node",
        package: "nodejs",
    },
    // Fetches a provider of OpenID Connect, which runs on Node.js.
    Program {
        name: "npm",
        package: "npm",
    },
    // Shows pages as people see them.
    Program {
        name: "chromium",
        package: "chromium",
    },
    Program {
        name: "python3",
        package: "python3",
    },
    Program {
        name: "pip3",
        package: "python3-pip",
    },
];

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

/// Makes sure that everything is there.
pub(super) fn run(place: &Place) -> Result<()> {
    install_packages(place)?;
    for peer in [Peer::Nginx, Peer::Haproxy] {
        peer::provide(&place.root, peer, &place.cache)?;
    }
    H2SPEC.provide(&place.cache, |to| build_h2spec(place, to))?;
    browser::provide(&place.root, &place.cache)?;
    oidc::provider(&place.root, &place.cache)?;
    pebble::provide(&place.root, &place.cache)?;
    CARGO_DENY.provide(&place.cache, |to| build_cargo_deny(place, to))?;
    // What later stages do offline needs the manifests of all platforms.
    place.cargo(&["fetch", "--locked"])
}

fn install_packages(place: &Place) -> Result<()> {
    let missing = PROGRAMS
        .iter()
        .filter(|program| !is_installed(program.name));
    let packages: Vec<&str> = missing.map(|program| program.package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    install(&place.root, &packages)?;
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

/// Installs Debian packages.
pub(crate) fn install(root: &Path, packages: &[&str]) -> Result<()> {
    println!("missing packages: {}", packages.join(", "));
    let remedy = || format!("install these packages: {}", packages.join(", "));
    let update = privileged("apt-get", &["update", "--quiet=2"]);
    run_in(root, update).with_context(remedy)?;
    let options = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
    let install = privileged("apt-get", &[&options[..], packages].concat());
    run_in(root, install).with_context(remedy)
}

/// A command as the administrator.
pub(crate) fn privileged(program: &str, arguments: &[&str]) -> Command {
    let root = rustix::process::geteuid().is_root();
    let mut command = if root {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args([
            "--non-interactive",
            "--preserve-env=DEBIAN_FRONTEND",
            program,
        ]);
        sudo
    };
    command.args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// The path of a program, whose package is installed where it is missing.
pub(crate) fn provide(root: &Path, program: &str, package: &str) -> Result<PathBuf> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    install(root, &[package])?;
    find(program).with_context(|| format!("the package {package} has no program {program}"))
}

fn is_installed(program: &str) -> bool {
    find(program).is_some()
}

/// The path of a program. Those of the administrator count too, although an ordinary user's path
/// may lack them, and so do those of PostgreSQL.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let folders = folders.chain(postgresql::folders());
    let mut files = folders.map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

fn build_h2spec(place: &Place, to: &Path) -> Result<()> {
    let package = "github.com/summerwind/h2spec/cmd/h2spec";
    let program = to.join("bin").join(H2SPEC.name);
    build_go(&place.root.join("tools/h2spec"), package, &[], &program)
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
