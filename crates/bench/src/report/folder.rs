//! The folder of a report: the page, its JSON, its plots, and the points that are finished.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::point::Outcome;
use super::programs::BENCH;
use super::{Report, figures, page};

/// The longest point that is read back, and the longest output of one.
pub(super) const FILE_BYTES_MAX: u64 = 64 << 20;

/// A folder that exists.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens it, and makes it where there is none.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn open(path: &Path) -> anyhow::Result<Folder> {
        for folder in ["points", "plots"] {
            let folder = path.join(folder);
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let path = std::fs::canonicalize(path)?;
        Ok(Folder { path })
    }

    /// The path of the page.
    pub(super) fn page(&self) -> PathBuf {
        self.path.join("index.html")
    }

    /// The paths of a running point's output, and of its complaints.
    pub(super) fn running(&self) -> [PathBuf; 2] {
        ["running.jsonl", "running.log"].map(|name| self.path.join(name))
    }

    /// A point that was finished before, of an experiment and with this key. One that cannot be
    /// read, as half a file, is measured again.
    pub(super) fn kept(&self, experiment: &str, key: &str) -> Option<Outcome> {
        let text = read(&self.point(experiment, key)).ok()?;
        let outcome: Outcome = serde_json::from_str(&text).ok()?;
        (outcome.key == key && outcome.is_finished()).then_some(outcome)
    }

    /// The latest point that was finished with the same command and the same programs but for this
    /// one, of which another build has measured it.
    pub(super) fn kept_of_another_build(
        &self,
        experiment: &str,
        wanted: &Outcome,
    ) -> Option<Outcome> {
        let others = |it: &Outcome| {
            let mut programs = it.programs.clone();
            programs.remove(BENCH);
            programs
        };
        let prefix = format!("{experiment}-");
        let files = std::fs::read_dir(self.path.join("points")).ok()?;
        files
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with(&prefix))
            .filter_map(|file| {
                let text = read(&file.path()).ok()?;
                serde_json::from_str::<Outcome>(&text).ok()
            })
            .filter(|it| it.is_finished() && it.command == wanted.command)
            .filter(|it| others(it) == others(wanted))
            .max_by(|one, other| one.ended.cmp(&other.ended))
    }

    /// Keeps a point that is finished.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn keep(&self, experiment: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(outcome)?;
        self.place(&self.point(experiment, &outcome.key), &text)
    }

    /// Writes the page, the JSON and the plots.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn write(&self, report: &Report) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report)?;
        self.place(&self.path.join("report.json"), &(text + "\n"))?;
        for results in &report.experiments {
            for (number, plot) in (1..).zip(figures::plots(results)) {
                let name = format!("{}-{number}.svg", results.id);
                self.place(&self.path.join("plots").join(name), &plot.svg())?;
            }
        }
        self.place(&self.page(), &page::html(report))
    }

    fn point(&self, experiment: &str, key: &str) -> PathBuf {
        let name = format!("{experiment}-{key}.json");
        self.path.join("points").join(name)
    }

    /// Writes a file whole or not at all.
    fn place(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let draft = self.path.join("draft");
        std::fs::write(&draft, text).with_context(|| draft.display().to_string())?;
        std::fs::rename(&draft, path).with_context(|| path.display().to_string())
    }
}

/// The text of a file, up to its bound.
///
/// # Errors
/// The errors of the system.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
