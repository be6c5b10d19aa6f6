//! `report`: the published experiments, each as commands of this program that run Myriad beside
//! real peers, and one page with the plots of all.
//!
//! Points run one after the other as processes of their own: cores, descriptors and networks that
//! one of them takes cannot reach the next, and the command in the report is the one that ran.

mod figures;
mod folder;
mod machine;
mod page;
mod plan;
mod point;
mod programs;
mod runner;
mod terminal;

use std::path::PathBuf;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use folder::Folder;
use machine::Machine;
use plan::Experiment;
use point::Outcome;
use programs::Programs;
use runner::Runner;
use terminal::Progress;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Minutes instead of an hour, with few domains: whether all works, not what it says.
    #[arg(long, conflicts_with = "published")]
    quick: bool,
    /// The lengths of the published experiments, which are hours.
    #[arg(long)]
    published: bool,
    /// The folder of the page, of its JSON and of finished points. Points that are there already,
    /// of the same commands and programs, are not measured again.
    #[arg(long, default_value = "report")]
    out: PathBuf,
    /// Points count as well that another build of this program has measured, where the command and
    /// all other programs are the same; the report names that build.
    #[arg(long)]
    other_builds: bool,
    /// Only peers that are there already; otherwise those that are missing are fetched.
    #[arg(long, conflicts_with = "alone")]
    present: bool,
    /// Leave peers out.
    #[arg(long)]
    alone: bool,
    /// Some experiments, by their names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// How long everything may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Five minutes.
    Quick,
    /// An hour.
    Usual,
    /// As long as the published experiments.
    Published,
}

/// All results, as they stand beside the page.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    mode: Mode,
    /// When it was written, in UTC.
    written: String,
    machine: Machine,
    /// The versions of all programs that took part.
    programs: std::collections::BTreeMap<String, String>,
    /// Points of all experiments, and those of them that have all of their figures.
    points: usize,
    finished: usize,
    /// Places where something is missing.
    gaps: usize,
    experiments: Vec<Results>,
}

/// The results of one experiment.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    id: String,
    title: String,
    question: String,
    points: Vec<Outcome>,
    /// Parts of the published experiment that no command measures yet.
    missing: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// An experiment is unknown, or the folder cannot be written. A point that fails is no error: it
/// is a gap in the report, with its reason.
pub fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let mode = args.mode();
    let experiments = choose(plan::all(mode, machine::cores()), &args.only)?;
    let folder = Folder::open(&args.out)?;
    let programs = Programs::find(args.alone, args.present);
    let count = experiments.iter().map(|it| it.points.len()).sum();
    let progress = Progress::new(count);
    let mut runner = Runner::new(&folder, &programs, mode);
    runner.other_builds = args.other_builds;
    let report = Report::new(mode, &programs)?;
    let measured = measure_all(&experiments, report, &mut runner, &progress, &folder);
    progress.end();
    // The cluster must not stay, whatever became of the rest.
    runner.end()?;
    measured?;
    progress.show(&format!("{}\n", folder.page().display()))
}

/// Takes all experiments, and writes the report after each.
fn measure_all(
    experiments: &[Experiment],
    mut report: Report,
    runner: &mut Runner<'_>,
    progress: &Progress,
    folder: &Folder,
) -> anyhow::Result<()> {
    for experiment in experiments {
        let results = measure(experiment, runner, progress)?;
        progress.show(&terminal::text(&results))?;
        report.add(results)?;
        // The part that is there can be read while the rest is measured.
        folder.write(&report)?;
    }
    Ok(())
}

/// The experiments of these names; all where none is named.
fn choose(all: Vec<Experiment>, names: &[String]) -> anyhow::Result<Vec<Experiment>> {
    for name in names {
        let known: Vec<&str> = all.iter().map(|it| it.id).collect();
        ensure!(
            known.contains(&name.as_str()),
            "no experiment `{name}`; there are {}",
            known.join(", ")
        );
    }
    let is_chosen = |it: &Experiment| names.is_empty() || names.iter().any(|name| name == it.id);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Takes all points of an experiment.
fn measure(
    experiment: &Experiment,
    runner: &mut Runner<'_>,
    progress: &Progress,
) -> anyhow::Result<Results> {
    let mut points = Vec::new();
    for point in &experiment.points {
        progress.begin(experiment.title, &point.name);
        points.push(runner.point(experiment.id, point)?);
        progress.next();
    }
    Ok(Results {
        id: experiment.id.to_owned(),
        title: experiment.title.to_owned(),
        question: experiment.question.to_owned(),
        points,
        missing: experiment.missing.iter().map(|&it| it.to_owned()).collect(),
    })
}

impl ReportArgs {
    fn mode(&self) -> Mode {
        match (self.quick, self.published) {
            (true, _) => Mode::Quick,
            (false, true) => Mode::Published,
            (false, false) => Mode::Usual,
        }
    }
}

impl Mode {
    /// One of three values.
    fn pick<T>(self, quick: T, usual: T, published: T) -> T {
        match self {
            Mode::Quick => quick,
            Mode::Usual => usual,
            Mode::Published => published,
        }
    }
}

impl Report {
    /// A report of nothing yet.
    fn new(mode: Mode, programs: &Programs) -> anyhow::Result<Report> {
        Ok(Report {
            mode,
            written: now()?,
            machine: Machine::look(),
            programs: programs.versions(),
            points: 0,
            finished: 0,
            gaps: 0,
            experiments: Vec::new(),
        })
    }

    /// Adds the results of an experiment.
    fn add(&mut self, results: Results) -> anyhow::Result<()> {
        self.written = now()?;
        self.points += results.points.len();
        self.finished += results.points.iter().filter(|it| it.is_finished()).count();
        let gaps = results.points.iter().map(|it| it.gaps.len());
        self.gaps += gaps.sum::<usize>() + results.missing.len();
        for point in &results.points {
            self.note_build(point);
        }
        self.experiments.push(results);
        Ok(())
    }

    /// Names the build of this program that has measured a point, where it is another one.
    fn note_build(&mut self, point: &Outcome) {
        let Some(build) = point.programs.get(programs::BENCH) else {
            return;
        };
        if self.programs.get(programs::BENCH) == Some(build) {
            return;
        }
        let name = format!("{} of earlier points", programs::BENCH);
        let named = self.programs.entry(name).or_default();
        if !named.contains(build) {
            let comma = if named.is_empty() { "" } else { ", " };
            named.push_str(comma);
            named.push_str(build);
        }
    }
}

/// The time of day, to the second, in UTC.
fn now() -> anyhow::Result<String> {
    let now = OffsetDateTime::now_utc();
    Ok(now.replace_nanosecond(0)?.format(&Rfc3339)?)
}

#[cfg(test)]
mod tests;
