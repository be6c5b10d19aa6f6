//! Everything that has to hold, stage by stage, each timed; the first that fails ends it.
//!
//! All stages build with the one development profile, so that what one compiles the next reuses.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use myriad_lab::cert_manager::{CERT_MANAGER, CERT_MANAGER_DEFINITIONS};
use myriad_lab::pebble::{PEBBLE, PEBBLE_NAMES};
use myriad_lab::tool;

use crate::{browser, oidc, peer};

mod cluster;
mod node;
mod programs;
mod report;
mod roles;
pub(crate) mod setup;
mod smoke;

/// A step of the whole, under the name that `--stage` takes.
struct Stage {
    name: &'static str,
    run: fn(&Place) -> Result<()>,
}

/// The stages that only root can run: containers need it.
const OF_ROOT: [&str; 2] = ["node", "conformance"];

/// The stages in the order in which they run: what is quick or stops everything comes first.
const STAGES: [Stage; 17] = [
    stage("setup", setup::run),
    stage("fmt", |place| place.cargo(&["fmt", "--all", "--check"])),
    stage("walls", |place| crate::check_walls(&place.root)),
    stage("tidy", |place| crate::check_tidy(&place.root)),
    stage("codegen", |place| crate::codegen::run(&place.root, true)),
    stage("manifests", |place| {
        crate::manifests::run(&place.root, &place.cache, true)
    }),
    stage("deny", deny),
    stage("clippy", clippy),
    stage("build", build),
    stage(programs::STAGE, programs::run),
    stage("unit", unit),
    stage("stories", stories),
    stage("cluster", cluster::run),
    stage("node", node::run),
    stage("conformance", |place| {
        crate::conformance::run_shard(&place.root, &place.programs.join("myriad"))
    }),
    stage("bench-smoke", smoke::run),
    stage("report", cluster::run_report),
];

const fn stage(name: &'static str, run: fn(&Place) -> Result<()>) -> Stage {
    Stage { name, run }
}

/// The folders of the workspace, the tools and the programs.
struct Place {
    /// The workspace.
    root: PathBuf,
    /// The folder where tools are kept between runs, each below its own version.
    cache: PathBuf,
    /// The folder where cargo puts programs of the development profile: this one lies there too.
    programs: PathBuf,
    /// The programs of clusters that are built while other stages run.
    meanwhile: RefCell<Option<programs::Building>>,
}

/// Runs the stages of these names, or when there are none all that this user can run.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<()> {
    let place = Place {
        root: root.to_owned(),
        cache: tool::cache_folder()?,
        programs: programs_folder()?,
        meanwhile: RefCell::default(),
    };
    let chosen = choose(names, is_root())?;
    let mut times: Vec<(&str, Duration)> = Vec::new();
    let mut failure = None;
    for stage in &chosen {
        println!("==> {}", stage.name);
        let start = Instant::now();
        let result = (stage.run)(&place);
        times.push((stage.name, start.elapsed()));
        if let Err(error) = result {
            failure = Some(error.context(format!("stage {} failed", stage.name)));
            break;
        }
        let is_first = times.len() == 1;
        if is_first && chosen.iter().any(|it| it.name == programs::STAGE) {
            place
                .meanwhile
                .replace(Some(programs::Building::start(&place)?));
        }
    }
    summarise(&chosen, &times, failure.is_some());
    if names.is_empty() && !is_root() {
        let left = OF_ROOT.map(|name| format!("--stage {name}")).join(" ");
        println!("not among them, since they need root: cargo xtask test {left}");
    }
    failure.map_or(Ok(()), Err)
}

/// The set-up always runs: when nothing is missing it takes a moment.
fn choose(names: &[String], is_root: bool) -> Result<Vec<&'static Stage>> {
    for name in names {
        if !STAGES.iter().any(|stage| stage.name == name) {
            let known = STAGES.map(|stage| stage.name).join(", ");
            bail!("no stage `{name}`; there are {known}");
        }
    }
    let stages = STAGES.iter().filter(|stage| {
        let named = names.iter().any(|name| name == stage.name);
        let is_usual = is_root || !OF_ROOT.contains(&stage.name);
        stage.name == "setup" || named || names.is_empty() && is_usual
    });
    Ok(stages.collect())
}

fn summarise(chosen: &[&Stage], times: &[(&str, Duration)], failed: bool) {
    println!("\n==> summary");
    for (index, stage) in chosen.iter().enumerate() {
        let name = stage.name;
        match times.get(index) {
            Some((_, time)) if failed && index + 1 == times.len() => {
                println!("{name:<12} {:>7.1} s  FAILED", time.as_secs_f64());
            }
            Some((_, time)) => println!("{name:<12} {:>7.1} s", time.as_secs_f64()),
            None => println!("{name:<12}       not run"),
        }
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    println!("{:<12} {:>7.1} s", "all", total.as_secs_f64());
    let passed = times.len() - usize::from(failed);
    println!("stages: {passed} passed, {} failed", usize::from(failed));
}

/// Advisories are left out: their database comes from the network, and what it says changes
/// without any change of ours. Everything else follows from the lock file.
fn deny(place: &Place) -> Result<()> {
    let mut command = Command::new(setup::CARGO_DENY.path(&place.cache));
    command.args(["--offline", "check", "bans", "licenses", "sources"]);
    place.run(command)
}

fn clippy(place: &Place) -> Result<()> {
    let what = ["--locked", "--workspace", "--all-targets"];
    place.cargo(&[&["clippy"], &what[..], &["--", "-D", "warnings"]].concat())
}

/// Builds all that the stages behind it run, at once: packages that are built one by one have other
/// features of what they depend on, and that is then compiled once more for each.
fn build(place: &Place) -> Result<()> {
    place.cargo(&["build", "--locked", "--workspace", "--all-targets"])
}

fn unit(place: &Place) -> Result<()> {
    place.cargo(&["test", "--locked", "--workspace", "--exclude", "myriad-e2e"])
}

/// The stories start the real program, so it is built first.
fn stories(place: &Place) -> Result<()> {
    build(place)?;
    place.cargo(&["test", "--locked", "--workspace", "--test", "stories"])
}

impl Place {
    /// Runs cargo with what the tests need to know in its environment.
    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("cargo");
        command.args(arguments);
        self.run(command)
    }

    fn run(&self, command: Command) -> Result<()> {
        tool::run_in(&self.root, self.with_tools(command))
    }

    /// Tests find a tool by a variable, so that none of them looks for it, or skips without it.
    fn with_tools(&self, mut command: Command) -> Command {
        command.env("MYRIAD_H2SPEC", setup::H2SPEC.path(&self.cache));
        command.env("MYRIAD_K6", peer::K6.path(&self.cache));
        command.env("MYRIAD_BROWSER", browser::BROWSER.path(&self.cache));
        command.env("MYRIAD_OIDC_PROVIDER", oidc::PROVIDER.path(&self.cache));
        command.env("MYRIAD_PEBBLE", PEBBLE.path(&self.cache));
        command.env("MYRIAD_PEBBLE_NAMES", PEBBLE_NAMES.path(&self.cache));
        command.env("MYRIAD_CERT_MANAGER", CERT_MANAGER.path(&self.cache));
        let definitions = CERT_MANAGER_DEFINITIONS.path(&self.cache);
        command.env("MYRIAD_CERT_MANAGER_DEFINITIONS", definitions);
        command.env("MYRIAD_BIN", self.programs.join("myriad"));
        command
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn programs_folder() -> Result<PathBuf> {
    let this = tool::this_program()?;
    Ok(this
        .parent()
        .context("a program lies in a folder")?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_chosen_by_name_after_the_set_up_and_an_unknown_one_refused() {
        let choose = |names: &[&str], is_root| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let chosen = choose(&names, is_root)?;
            Ok::<_, anyhow::Error>(chosen.iter().map(|stage| stage.name).collect::<Vec<_>>())
        };
        let names = choose(&["tidy"], false);
        assert_eq!(names.expect("known"), ["setup", "tidy"]);
        let error = choose(&["tidiness"], false).expect_err("unknown");
        let error = error.to_string();
        assert!(
            error.contains("tidiness") && error.contains("tidy"),
            "{error}"
        );
        let usual = STAGES.iter().map(|it| it.name);
        assert!(choose(&[], true).expect("all").into_iter().eq(usual));
        let others = choose(&[], false).expect("all but those");
        assert_eq!(others.len(), STAGES.len() - OF_ROOT.len());
        assert!(!others.iter().any(|name| OF_ROOT.contains(name)));
        let names = choose(&OF_ROOT, false);
        assert_eq!(names.expect("known"), ["setup", "node", "conformance"]);
    }
}
