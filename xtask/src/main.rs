//! The project's own tools: what holds the walls and the style, generates, and tests everything.
//!
//! **Does** check the walls between crates and modules, keep files tidy, generate the wire types,
//! and run every test together with its set-up.
//! **Knows** the rules of the house, each in one table with its reason.
//! **Never** is depended on, and never changes a source file but the generated one.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of the developer: it reads the work tree whole and times its stages"
)]
#![allow(
    clippy::print_stdout,
    reason = "its output is for the person or the CI that called it"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

mod answers;
mod browser;
mod cluster;
mod codegen;
mod conformance;
mod image;
mod istio;
mod manifests;
mod mongo;
mod oidc;
mod peer;
mod stages;
mod survey;
mod tidy;
mod violation;
mod walls;

use myriad_lab::tool;
use survey::Survey;
use violation::Violation;

/// The project's own tools.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks the allowed dependencies: between crates, on third parties, and between modules of
    /// the proxy.
    Walls,
    /// Checks limits and habits of style: sizes, orphans, names, notes, reasons.
    Tidy,
    /// Generates the wire types of `model` from its proto files.
    Codegen {
        /// Changes nothing; fails when the committed file is stale.
        #[arg(long)]
        check: bool,
    },
    /// A real Kubernetes API on this machine, without containers.
    Cluster {
        #[command(subcommand)]
        action: cluster::Action,
    },
    /// Runs the official suite of Gateway API against our controller and proxies, as Pods of a
    /// node; takes root.
    Conformance(conformance::Wanted),
    /// Provides a program that Myriad is measured beside or with, and prints its path.
    Peer {
        /// Which one.
        #[arg(value_enum)]
        peer: peer::Peer,
    },
    /// Makes the image of both parts as an archive, without a daemon or a registry.
    Image(image::Wanted),
    /// Records anew how nginx and Envoy read the paths that ours are compared with.
    Answers,
    /// Renders the plain manifests of `deploy` from the Helm chart.
    Manifests {
        /// Changes nothing; fails when the committed file is stale.
        #[arg(long)]
        check: bool,
    },
    /// Sets up what the tests need and runs everything, stage by stage.
    Test {
        /// Runs only this stage, after the set-up. May be given several times.
        #[arg(long = "stage", value_name = "NAME")]
        stages: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let root = workspace_root()?;
    tool::this_program()?;
    match arguments.command {
        Command::Walls => check_walls(&root),
        Command::Tidy => check_tidy(&root),
        Command::Codegen { check } => codegen::run(&root, check),
        Command::Manifests { check } => manifests::run(&root, &tool::cache_folder()?, check),
        Command::Cluster { action } => cluster::run(&root, action),
        Command::Conformance(wanted) => conformance::run(&root, &wanted),
        Command::Image(wanted) => image::run(&root, &wanted),
        Command::Answers => answers::run(&root, &tool::cache_folder()?),
        Command::Peer { peer } => peer::run(&root, peer),
        Command::Test { stages } => stages::run(&root, &stages),
    }
}

fn check_walls(root: &Path) -> Result<()> {
    let metadata = survey::read_metadata(root)?;
    let survey = Survey::of(root, &metadata)?;
    let graph = walls::Graph::of(&metadata)?;
    report("walls", &walls::check(&graph, &survey))
}

fn check_tidy(root: &Path) -> Result<()> {
    let metadata = survey::read_metadata(root)?;
    let survey = Survey::of(root, &metadata)?;
    report("tidy", &tidy::check(&survey))
}

/// Prints all violations; any at all is an error.
fn report(name: &str, violations: &[Violation]) -> Result<()> {
    if violations.is_empty() {
        println!("{name}: no violations");
        return Ok(());
    }
    for violation in violations {
        println!("{violation}");
    }
    bail!("{name}: {} violations", violations.len())
}

/// The folder of the workspace, which is where this package's folder lies.
fn workspace_root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: start this by `cargo xtask`")?;
    let root = Path::new(&package).parent();
    Ok(root.context("the package has no parent folder")?.to_owned())
}
