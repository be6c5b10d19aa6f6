//! The progress and the tables on a terminal.

use std::io::Write as _;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Results, figures};

/// The widest column; longer texts push those behind them.
const COLUMN_MAX: usize = 44;

/// A bar of all points, which a terminal alone shows.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// One of so many points.
    pub(super) fn new(points: usize) -> Progress {
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg}");
        let bar = ProgressBar::new(points as u64);
        Progress(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// A point begins.
    pub(super) fn begin(&self, experiment: &str, point: &str) {
        self.0.set_message(format!("{experiment}: {point}"));
        self.0.tick();
    }

    /// It has ended.
    pub(super) fn next(&self) {
        self.0.inc(1);
    }

    /// All have ended.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }

    /// Prints a text above the bar.
    ///
    /// # Errors
    /// Nobody reads it.
    pub(super) fn show(&self, text: &str) -> anyhow::Result<()> {
        self.0.suspend(|| {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        })?;
        Ok(())
    }
}

/// The results of an experiment as a table, with its gaps below.
pub(super) fn text(results: &Results) -> String {
    let table = figures::table(results);
    let mut text = format!("\n{}\n", results.title);
    let all = || std::iter::once(&table.heads).chain(&table.rows);
    let widths: Vec<usize> = (0..table.heads.len())
        .map(|column| {
            let cells = all().filter_map(|cells| cells.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).min(COLUMN_MAX)
        })
        .collect();
    for cells in all() {
        let padded = cells.iter().zip(&widths).enumerate();
        let padded = padded.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for note in figures::notes(results) {
        text.push_str(&format!("  {note}\n"));
    }
    for gap in figures::gaps(results) {
        text.push_str(&format!("  gap: {gap}\n"));
    }
    text
}
