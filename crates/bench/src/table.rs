//! Rows of figures as they come: a table, or one JSON object for each.

use std::io::Write as _;

use serde::Serialize;

/// A row of `N` columns.
pub trait Row<const N: usize>: Serialize {
    /// The heads of the columns, and their widths.
    const COLUMNS: [(&'static str, usize); N];

    /// The cells of the row.
    fn cells(&self) -> [String; N];

    /// Why requests failed, if some did.
    fn last_error(&self) -> Option<&str> {
        None
    }
}

/// Prints rows.
pub struct Table {
    is_json: bool,
    has_begun: bool,
}

impl Table {
    /// One without rows.
    pub fn new(is_json: bool) -> Table {
        Table {
            is_json,
            has_begun: false,
        }
    }

    /// Prints a row, the first behind the names of the columns.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn add<const N: usize, R: Row<N>>(&mut self, row: &R) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.is_json {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            let names = R::COLUMNS.map(|(name, _)| name.to_owned());
            writeln!(out, "{}", line(names, R::COLUMNS))?;
        }
        writeln!(out, "{}", line(row.cells(), R::COLUMNS))?;
        if let Some(error) = row.last_error() {
            writeln!(out, "  last error: {error}")?;
        }
        Ok(())
    }
}

fn line<const N: usize>(cells: [String; N], columns: [(&str, usize); N]) -> String {
    let pairs = cells.into_iter().zip(columns);
    let cells = pairs.map(|(cell, (_, width))| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn cells_stand_below_the_names_of_their_columns() {
        let columns = [("case", 4), ("ms", 6)];
        let names = columns.map(|(name, _)| name.to_owned());
        assert_eq!(line(names, columns), "case     ms");
        let cells = ["3".to_owned(), "0.25".to_owned()];
        assert_eq!(line(cells, columns), "   3   0.25");
    }
}
