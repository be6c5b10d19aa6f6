//! `myriad metrics`: every metric with its kind, labels and meaning. The table is held to what
//! processes show by tests, and the page in `docs` to the table.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// The beginning of the page.
const HEAD: &str = include_str!("metrics/head.md");

/// The rows: `## ` begins a group, `> ` says what is to be said of it, and all else is a metric.
const TABLE: &str = include_str!("metrics/table.txt");

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// The name as Prometheus shows it.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels, with spaces between them; in parentheses where they are those of others.
    pub labels: &'static str,
    /// The commands that have it.
    pub of: &'static str,
    /// The meaning.
    pub help: &'static str,
}

/// A line of the table.
enum Line {
    Group(&'static str),
    About(&'static str),
    Row(MetricRow),
}

fn lines() -> impl Iterator<Item = Line> {
    TABLE.lines().filter_map(|line| {
        if let Some(title) = line.strip_prefix("## ") {
            return Some(Line::Group(title));
        }
        if let Some(about) = line.strip_prefix("> ") {
            return Some(Line::About(about));
        }
        let mut cells = line.split('|').map(str::trim);
        Some(Line::Row(MetricRow {
            name: cells.next()?,
            kind: cells.next()?,
            labels: cells.next()?,
            of: cells.next()?,
            help: cells.next()?,
        }))
    })
}

/// All metrics.
pub fn rows() -> impl Iterator<Item = MetricRow> {
    lines().filter_map(|line| match line {
        Line::Row(row) => Some(row),
        Line::Group(_) | Line::About(_) => None,
    })
}

/// The page of all metrics, in Markdown.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let mut has_header = false;
    for line in lines() {
        // Writing into a String cannot fail.
        let _ = match line {
            Line::Group(title) => {
                has_header = false;
                write!(page, "\n## {title}\n\n")
            }
            Line::About(about) => write!(page, "{about}\n\n"),
            Line::Row(row) => {
                if !std::mem::replace(&mut has_header, true) {
                    page.push_str("| metric | kind | labels | of | meaning |\n");
                    page.push_str("|---|---|---|---|---|\n");
                }
                let MetricRow {
                    name,
                    kind,
                    of,
                    help,
                    ..
                } = row;
                let labels = row.labels_in_markdown();
                writeln!(page, "| `{name}` | {kind} | {labels} | {of} | {help} |")
            }
        };
    }
    page
}

/// Writes the page to standard output.
///
/// # Errors
/// The errors of standard output.
pub fn run() -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(markdown().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl MetricRow {
    fn labels_in_markdown(&self) -> String {
        let inside = self.labels.strip_prefix('(');
        if let Some(words) = inside.and_then(|it| it.strip_suffix(')')) {
            return words.to_owned();
        }
        let labels = self.labels.split_whitespace();
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        labels.join(", ")
    }
}

#[cfg(test)]
mod tests;
