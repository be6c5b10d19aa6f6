//! The cost of one change of the setup: counted, and timed until it is live.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use crate::activate::{PerDomain, Quantiles};
use crate::child::{Counts, Running};
use crate::istio::{self, Served, Setup};
use crate::probe::{Prober, Wanted};

/// The path that a rule of the changed VirtualService rewrites to: the endpoint knows only `/`.
const ELSEWHERE: &str = "/elsewhere";

/// How long changes are apart: a removed file is held for a moment, in case it is replaced.
const REST: Duration = Duration::from_millis(60);

/// The cost of one kind of change.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    /// The kind of change.
    change: &'static str,
    domains: u32,
    paths: u32,
    /// The time from the write that makes it live to the first answer that shows it.
    live_ms: Quantiles,
    /// The calls of keyed translation functions.
    units_translated: PerDomain,
    /// The objects that they read.
    objects_visited: PerDomain,
    resources_changed: PerDomain,
    table_nodes_copied: PerDomain,
    bytes_allocated: PerDomain,
    bytes_encoded: PerDomain,
}

/// A setup that is served, and what is done to it.
struct World {
    setup: Setup,
    directory: tempfile::TempDir,
    child: Running,
    prober: Prober,
    times: Vec<Duration>,
    work: Vec<Counts>,
}

/// Measures each kind of change so many times, and prints an object for each.
///
/// # Errors
/// A change does not become live.
pub(super) fn run(setup: &Setup, endpoint: SocketAddr, samples: u32) -> anyhow::Result<()> {
    let all = setup.make()?;
    let more = setup.make_more(samples)?;
    print(&change_rules(setup, endpoint, &all, samples)?)?;
    print(&add_with_gateways(setup, endpoint, &all, &more)?)?;
    print(&add_servers(setup, endpoint, &all, &more)?)
}

/// One rule of a VirtualService changes.
fn change_rules(
    setup: &Setup,
    endpoint: SocketAddr,
    all: &[Served],
    samples: u32,
) -> anyhow::Result<Change> {
    let directory = tempfile::tempdir()?;
    setup.write(all, endpoint, directory.path())?;
    let mut world = World::start(setup, directory)?;
    let step = (all.len() / samples.max(1) as usize).max(1);
    for served in all.iter().step_by(step).take(samples as usize) {
        let before = served.objects(setup.paths);
        let (gateway, _) = before.split_once("---").context("a Gateway comes first")?;
        let after = format!(
            "{gateway}---\n{}",
            served.routes(setup.paths, false, ELSEWHERE)
        );
        let file = world.path(served);
        world.change(served, 404, || replace(&file, &after))?;
        replace(&file, &before)?;
        std::thread::sleep(REST);
    }
    world.end("one rule of a VirtualService")
}

/// A domain is added with a Gateway of its own.
fn add_with_gateways(
    setup: &Setup,
    endpoint: SocketAddr,
    all: &[Served],
    more: &[Served],
) -> anyhow::Result<Change> {
    let directory = tempfile::tempdir()?;
    setup.write(all, endpoint, directory.path())?;
    let mut world = World::start(setup, directory)?;
    for served in more {
        let (file, text) = (world.path(served), served.objects(setup.paths));
        world.change(served, 200, || replace(&file, &text))?;
    }
    world.end("a domain with its own Gateway")
}

/// A domain is added to the Gateway that all domains share.
fn add_servers(
    setup: &Setup,
    endpoint: SocketAddr,
    all: &[Served],
    more: &[Served],
) -> anyhow::Result<Change> {
    let directory = tempfile::tempdir()?;
    let gateway = setup.write_shared(all, endpoint, directory.path())?;
    let mut world = World::start(setup, directory)?;
    let mut domains: Vec<_> = all.iter().map(Served::domain).collect();
    for served in more {
        domains.push(served.domain());
        let (file, text) = (world.path(served), served.routes(setup.paths, true, "/"));
        let edge = istio::shared_gateway(&domains);
        world.change(served, 200, || {
            replace(&file, &text)?;
            replace(&gateway, &edge)
        })?;
    }
    world.end("a domain as one more server of a Gateway")
}

impl World {
    fn start(setup: &Setup, directory: tempfile::TempDir) -> anyhow::Result<World> {
        let mut child = Running::start(Some(directory.path()), 1)?;
        let prober = Prober::new(child.wait_ready()?.https)?.asking(istio::FIRST_PATH);
        Ok(World {
            setup: *setup,
            directory,
            child,
            prober,
            times: Vec::new(),
            work: Vec::new(),
        })
    }

    /// Publishes a change, and takes the time until the domain's first path answers so.
    fn change(
        &mut self,
        served: &Served,
        status: u16,
        publish: impl FnOnce() -> anyhow::Result<Instant>,
    ) -> anyhow::Result<()> {
        std::thread::sleep(REST);
        let before = self.child.counts()?;
        let wanted = Wanted::Answer {
            leaf: served.leaf().to_vec(),
            status,
        };
        let host = served.domain().host();
        let (written, hit) = self.prober.watch(&host, wanted, publish)?;
        self.times.push(hit.at.saturating_duration_since(written));
        std::thread::sleep(REST);
        // By now whatever the change had to do has long been done.
        self.work.push(self.child.counts()?.since(&before));
        Ok(())
    }

    fn path(&self, served: &Served) -> PathBuf {
        self.directory.path().join(served.domain().file())
    }

    fn end(self, change: &'static str) -> anyhow::Result<Change> {
        self.child.stop()?;
        let work = |count: fn(&Counts) -> u64| PerDomain::of(self.work.iter().map(count).collect());
        Ok(Change {
            change,
            domains: self.setup.workspaces * self.setup.domains,
            paths: self.setup.paths,
            live_ms: Quantiles::of(self.times.iter().copied()),
            units_translated: work(|it| it.units_translated),
            objects_visited: work(|it| it.objects_visited),
            resources_changed: work(|it| it.resources_changed),
            table_nodes_copied: work(|it| it.table_nodes_copied),
            bytes_allocated: work(|it| it.bytes_allocated),
            bytes_encoded: work(|it| it.bytes_encoded),
        })
    }
}

/// Puts a file in the place of another at once, and says when.
fn replace(path: &Path, text: &str) -> anyhow::Result<Instant> {
    let aside = path.with_file_name(".next");
    std::fs::write(&aside, text)?;
    let written = Instant::now();
    std::fs::rename(&aside, path)?;
    Ok(written)
}

fn print(change: &Change) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, change)?;
    Ok(writeln!(out)?)
}
