//! `conformance`: the official suite of Gateway API against our controller and proxies, which run
//! as Pods of a node with a real API server.
//!
//! The suite is a program of Go (`tools/gateway-api`) in the network of the cluster, where the
//! addresses of Gateways and Pods are reached. Its images are made here, since there is no
//! registry.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use myriad_lab::cluster::{Cluster, Isolation, Name, down};
use myriad_lab::gateway_api::{self, GATEWAY_API_VERSION};
use myriad_lab::tool;

use crate::manifests::{self, NAMESPACE};
use crate::{cluster, image};
use choice::{Chosen, Shard, Test};

mod choice;
mod evidence;

/// The options of the command line.
#[derive(clap::Args)]
pub(crate) struct Wanted {
    /// Only the tests of this profile, such as GATEWAY-HTTP. May be given several times.
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
    /// Only this test. May be given several times.
    #[arg(long = "run", value_name = "TEST")]
    tests: Vec<String>,
    /// Of the extended tests only one part of N: the K-th, or with `commit/N` one that the commit
    /// tells.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Says which tests these are, and runs none.
    #[arg(long)]
    list: bool,
    /// The proxies that serve a Gateway.
    #[arg(long, value_enum, default_value_t = Mode::Dedicated)]
    mode: Mode,
    /// Leaves the cluster as it is at the end, for another run or to look at. With one test, its
    /// objects stay too.
    #[arg(long)]
    keep: bool,
    /// How many times as long to wait for what has no bound of its own, on a machine that is slow.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_patience)]
    patience: f64,
    /// The tests that run at once, of those that can.
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    parallel: usize,
    /// A binary that is built already.
    #[arg(long, value_name = "FILE", conflicts_with = "build")]
    binary: Option<PathBuf>,
    /// The profile of cargo that the binary is built with.
    #[arg(long, value_name = "PROFILE", default_value = "dev")]
    build: String,
}

/// The proxies that serve a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// The proxies of the release, whose addresses all Gateways share. The suite takes it that they
    /// do not, and many of its tests fail.
    Shared,
    /// The proxies of a Deployment of its own.
    Dedicated,
}

/// The cluster that stays.
const KEPT: &str = "conformance";

/// The folder of all that a run writes, below the workspace.
const FOLDER: &str = "target/conformance";
/// The folder of the reports that are committed.
const REPORTS: &str = "conformance";
const REPORT: &str = "report.yaml";
const LOG: &str = "suite.log";

const CHART: &str = "deploy/helm/myriad";
const REPOSITORY: &str = "docker.io/library/myriad";
const RELEASE: &str = "myriad";
/// The class that the chart makes.
const CLASS: &str = "myriad";

/// Settings of the chart beside those that depend on the run. A node of two processors has room for
/// a proxy of each of many Gateways, and Pods end soon.
const SETTINGS: [&str; 11] = [
    "gatewayApi.enabled=true",
    "gatewayApi.deployments.enabled=true",
    "gatewayApi.deployments.addresses={10.112.0.0/24}",
    "mesh.enabled=true",
    "sidecars.inject=true",
    "controller.replicas=1",
    "controller.resources.requests.cpu=10m",
    "proxy.replicas=1",
    "proxy.resources.requests.cpu=10m",
    "proxy.resources.requests.memory=32Mi",
    "proxy.drainDelay=1",
];

/// How long Pods of the release may take to be ready.
const READY_TIMEOUT: &str = "180s";

/// The implementation, as reports have it.
const IMPLEMENTATION: [&str; 5] = [
    "-organization=myriad",
    "-project=myriad",
    "-url=https://myriad.dev",
    "-contact=@myriad/maintainers",
    concat!("-version=v", env!("CARGO_PKG_VERSION")),
];

/// Addresses that Gateways ask for: the chart lets them ask for the first, which the balancer of
/// the cluster gives, and not for the second.
const ADDRESSES: [&str; 2] = ["-usable-address=10.112.0.77", "-unusable-address=192.0.2.7"];

/// No run that gets on takes that long.
const TIMEOUT: &str = "-test.timeout=6h";

/// The parts of the extended tests, of which a run of all stages has one.
const SHARDS: &str = "commit/8";

/// How many times as long as usual the tests wait in such a run.
const PATIENCE: f64 = 5.0;

/// Runs the core tests and the part of the extended ones that the commit tells.
pub(crate) fn run_shard(root: &Path, binary: &Path) -> Result<()> {
    let wanted = Wanted {
        profiles: Vec::new(),
        tests: Vec::new(),
        shard: Some(SHARDS.parse()?),
        list: false,
        mode: Mode::Dedicated,
        keep: false,
        patience: PATIENCE,
        parallel: 4,
        binary: Some(binary.to_owned()),
        build: String::new(),
    };
    run(root, &wanted)
}

/// Runs the suite, or those of its tests that are wanted.
pub(crate) fn run(root: &Path, wanted: &Wanted) -> Result<()> {
    let cache = tool::cache_folder()?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let suite = folder.join("suite");
    gateway_api::build_suite(root, &suite)?;
    let chosen = choose(root, &suite, wanted)?;
    if wanted.list {
        println!("{}", chosen.tests.join("\n"));
        return Ok(());
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "containers need root, and so does this"
    );
    let binary = match &wanted.binary {
        Some(binary) => binary.clone(),
        None => image::build(root, &wanted.build)?,
    };
    cluster::provide_node_programs(root)?;
    let name: Name = match wanted.keep {
        true => KEPT.parse()?,
        false => format!("{KEPT}-{}", std::process::id()).parse()?,
    };
    let run = Run {
        root,
        cache: &cache,
        folder: &folder,
        wanted,
        chosen: &chosen,
    };
    let up = Cluster::up(root, &cache, &name, Isolation::of_this_user(), 1);
    let result = up.and_then(|cluster| run.within(&cluster, &suite, &binary));
    if wanted.keep {
        println!("the cluster stays until `cargo xtask cluster down --name {name}`");
        return result;
    }
    let ended = down(&cache, &name);
    result?;
    ensure!(ended?, "the cluster was gone before its end");
    Ok(())
}

/// Asks the suite for its tests, and chooses.
fn choose(root: &Path, suite: &Path, wanted: &Wanted) -> Result<Chosen> {
    let output = Command::new(suite).arg("-list").output()?;
    ensure!(output.status.success(), "the suite lists no tests");
    let all: Vec<Test> = serde_json::from_slice(&output.stdout)?;
    let commit = match wanted.shard {
        Some(_) => hash_of_commit(root)?,
        None => String::new(),
    };
    let shard = wanted.shard.map(|shard| (shard, commit.as_str()));
    choice::choose(&all, &wanted.profiles, &wanted.tests, shard)
}

fn hash_of_commit(root: &Path) -> Result<String> {
    let mut command = Command::new("git");
    let output = command.args(["rev-parse", "HEAD"]).current_dir(root);
    let output = output.output().context("`git` does not start")?;
    ensure!(output.status.success(), "git knows no commit");
    Ok(String::from_utf8(output.stdout)?)
}

/// Removes the routes that a run of one test has left in a cluster that is kept, which are in the
/// way of all other tests.
fn clear_routes(cluster: &Cluster) -> Result<()> {
    let kinds = "httproutes,grpcroutes,tlsroutes,tcproutes,udproutes";
    cluster.kubectl(&["delete", kinds, "--all", "--all-namespaces"], "")?;
    Ok(())
}

/// A run of chosen tests.
struct Run<'a> {
    root: &'a Path,
    cache: &'a Path,
    /// The folder of all that it writes.
    folder: &'a Path,
    wanted: &'a Wanted,
    chosen: &'a Chosen,
}

impl Run<'_> {
    /// Brings all that is needed into a cluster, and runs the suite there.
    fn within(&self, cluster: &Cluster, suite: &Path, binary: &Path) -> Result<()> {
        timed("images", || self.load_images(cluster))?;
        let tag = tag_of(binary)?;
        timed("release", || {
            self.load_ours(cluster, binary, &tag)?;
            self.define(cluster)?;
            self.install(cluster, &tag)?;
            clear_routes(cluster)
        })?;
        let result = timed("suite", || self.test(cluster, suite));
        let kept = evidence::keep(cluster, self.folder);
        result.and(kept)
    }

    /// Brings the images that the suite names to the node.
    fn load_images(&self, cluster: &Cluster) -> Result<()> {
        for image in gateway_api::images(self.root, self.cache)? {
            cluster.load(&image.archive)?;
            for name in &image.names {
                cluster.tag(&image.name, name)?;
            }
        }
        Ok(())
    }

    fn load_ours(&self, cluster: &Cluster, binary: &Path, tag: &str) -> Result<()> {
        let archive = self.folder.join("myriad.tar");
        let name = format!("{REPOSITORY}:{tag}");
        image::write(self.root, binary, &name, &archive, None)?;
        cluster.load(&archive)
    }

    /// Writes the definitions of the kinds of Gateway API.
    fn define(&self, cluster: &Cluster) -> Result<()> {
        let definitions = gateway_api::definitions(self.root, self.cache)?;
        let file = format!("--filename={}", definitions.display());
        cluster.kubectl(&["apply", "--server-side", &file], "")?;
        let established = "--for=condition=Established";
        let all = ["wait", established, "crds", "--all", "--timeout=60s"];
        cluster.kubectl(&all, "")?;
        Ok(())
    }

    /// Installs the chart, or upgrades what an earlier run has left.
    fn install(&self, cluster: &Cluster, tag: &str) -> Result<()> {
        let mut helm = cluster.command(&manifests::helm(self.root, self.cache)?);
        helm.args(["upgrade", "--install", RELEASE])
            .arg(self.root.join(CHART))
            .args(["--namespace", NAMESPACE, "--create-namespace"])
            .args(["--wait", "--timeout", READY_TIMEOUT]);
        let mode = self.wanted.mode.word();
        let own = [
            format!("image.repository={REPOSITORY}"),
            format!("image.tag={tag}"),
            format!("gatewayApi.className={CLASS}"),
            format!("gatewayApi.mode={mode}"),
        ];
        for setting in SETTINGS.into_iter().chain(own.iter().map(String::as_str)) {
            helm.args(["--set", setting]);
        }
        // It keeps files of its own somewhere.
        helm.env("HOME", self.folder);
        tool::run_in(self.root, helm)
    }

    /// Runs the suite. The report of a whole profile, whatever it says, goes where it is committed.
    fn test(&self, cluster: &Cluster, suite: &Path) -> Result<()> {
        let report = self.folder.join(REPORT);
        // One of another run must not be taken for this one's.
        drop(fs::remove_file(&report));
        let log = self.folder.join(LOG);
        let mut command = cluster.command(suite);
        command.args(self.arguments(&report));
        command.stdin(Stdio::null()).stdout(File::create(&log)?);
        println!("the log is in {}", log.display());
        let status = command.status().context("the suite does not start")?;
        if self.chosen.is_whole && report.is_file() {
            let committed = self.root.join(REPORTS).join(self.report_name());
            fs::create_dir_all(committed.parent().context("it lies in a folder")?)?;
            fs::copy(&report, &committed)?;
            println!("the report is in {}", committed.display());
        }
        ensure!(status.success(), "not all tests pass: {}", log.display());
        Ok(())
    }

    fn arguments(&self, report: &Path) -> Vec<String> {
        let Wanted { keep, mode, .. } = *self.wanted;
        let join = |words: &BTreeSet<String>| Vec::from_iter(words.clone()).join(",");
        // The cluster goes, or is to be looked at; tests are in each other's way.
        let keeps_objects = keep && self.chosen.tests.len() == 1;
        let mut arguments = vec![
            "-test.v".to_owned(),
            TIMEOUT.to_owned(),
            format!("-test.parallel={}", self.wanted.parallel),
            format!("-only={}", self.chosen.tests.join(",")),
            format!("-patience={}", self.wanted.patience),
            format!("-gateway-class={CLASS}"),
            format!("-conformance-profiles={}", join(&self.chosen.profiles)),
            format!("-report-output={}", report.display()),
            format!("-mode={}", mode.word()),
            "-cleanup-base-resources=false".to_owned(),
            format!("-cleanup-test-resources={}", !keeps_objects),
        ];
        arguments.extend(IMPLEMENTATION.map(str::to_owned));
        arguments.extend(ADDRESSES.map(str::to_owned));
        arguments
    }

    /// The place of the report below the folder of those that are committed: it tells the version
    /// of the API, ours, the mode, and the profiles unless they are all.
    fn report_name(&self) -> String {
        let mode = self.wanted.mode.word();
        let mut words = vec![
            "experimental".to_owned(),
            format!("v{}", env!("CARGO_PKG_VERSION")),
            mode.to_owned(),
        ];
        if !self.chosen.has_all_profiles {
            let profiles = self.chosen.profiles.iter();
            words.extend(profiles.map(|profile| profile.to_lowercase()));
        }
        format!("v{GATEWAY_API_VERSION}/{}-{REPORT}", words.join("-"))
    }
}

impl Mode {
    /// The word for it in the chart and in reports.
    fn word(self) -> &'static str {
        match self {
            Mode::Shared => "shared",
            Mode::Dedicated => "dedicated",
        }
    }
}

/// A tag that tells what is in the binary, so that another one is rolled out.
fn tag_of(binary: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(binary).with_context(|| binary.display().to_string())?);
    Ok(format!("tested-{:016x}", hasher.finish()))
}

/// Says how long it took.
fn timed<T>(name: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = run();
    let seconds = start.elapsed().as_secs_f64();
    println!("conformance: {name} took {seconds:.1} s");
    result
}

fn parse_patience(text: &str) -> Result<f64> {
    let factor: f64 = text.parse()?;
    ensure!(
        (1.0..=MAX_PATIENCE).contains(&factor),
        "a factor from 1 to {MAX_PATIENCE}"
    );
    Ok(factor)
}

/// More is none.
const MAX_PATIENCE: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        wanted: Wanted,
    }

    fn wanted(words: &[&str]) -> Result<Wanted, clap::Error> {
        let words = ["conformance"].iter().chain(words);
        Ok(<Line as clap::Parser>::try_parse_from(words)?.wanted)
    }

    fn chosen(profiles: &[&str], tests: &[&str], has_all_profiles: bool) -> Chosen {
        Chosen {
            profiles: profiles.iter().map(|&it| it.to_owned()).collect(),
            tests: tests.iter().map(|&it| it.to_owned()).collect(),
            is_whole: true,
            has_all_profiles,
        }
    }

    #[test]
    fn a_report_is_called_by_versions_mode_and_profiles() {
        let wanted = wanted(&["--mode", "shared"]).expect("options");
        let chosen = [
            (chosen(&["GATEWAY-HTTP", "MESH-HTTP"], &[], true), "shared"),
            (chosen(&["MESH-HTTP"], &[], false), "shared-mesh-http"),
        ];
        for (chosen, words) in &chosen {
            let run = Run {
                root: Path::new("."),
                cache: Path::new("."),
                folder: Path::new("."),
                wanted: &wanted,
                chosen,
            };
            let version = env!("CARGO_PKG_VERSION");
            let expected =
                format!("v{GATEWAY_API_VERSION}/experimental-v{version}-{words}-report.yaml");
            assert_eq!(run.report_name(), expected);
        }
    }

    #[test]
    fn the_suite_is_told_of_tests_profiles_and_patience() {
        for (options, kept) in [(&["--keep"][..], "false"), (&[][..], "true")] {
            let words = [&["--patience", "2.5"][..], options].concat();
            let wanted = wanted(&words).expect("options");
            let run = Run {
                root: Path::new("."),
                cache: Path::new("."),
                folder: Path::new("."),
                wanted: &wanted,
                chosen: &chosen(&["A", "B"], &["one"], false),
            };
            let arguments = run.arguments(Path::new("/r.yaml"));
            for argument in [
                "-only=one",
                "-conformance-profiles=A,B",
                "-patience=2.5",
                "-report-output=/r.yaml",
                "-mode=dedicated",
                &format!("-cleanup-test-resources={kept}"),
            ] {
                let given = arguments.iter().any(|it| it == argument);
                assert!(given, "{argument} in {arguments:?}");
            }
        }
    }

    #[test]
    fn patience_is_a_factor_of_at_least_one() {
        for text in ["0.5", "0", "-1", "NaN", "inf", "long"] {
            assert!(wanted(&["--patience", text]).is_err(), "{text}");
        }
        assert!(wanted(&["--binary", "a", "--build", "dist"]).is_err());
        assert!(wanted(&["--shard", "3/2"]).is_err());
    }

    #[test]
    fn another_binary_has_another_tag() {
        let folder = tempfile::tempdir().expect("a folder");
        let tag = |text: &str| {
            let path = folder.path().join("myriad");
            fs::write(&path, text).expect("a file");
            tag_of(&path).expect("a tag")
        };
        assert_eq!(tag("a"), tag("a"));
        assert_ne!(tag("a"), tag("b"));
    }
}
