//! The entry that serves a path which is written down: found by how what entries match begins, and
//! not by a walk of the table for each path that is looked for.

use std::collections::BTreeMap;

use myriad_model::PathMatch;

use super::paths;
use super::table::{PathEntry, Table};
use crate::regex::literal_start;

/// The rank of an entry, and its place in the table, which decides among entries of one rank.
type Standing = (u64, usize);

/// The entries of a table by how the paths begin that they match.
pub(super) struct Serving<'t> {
    table: &'t Table<'t>,
    /// The entries in the order of the table.
    entries: Vec<(&'t PathMatch, &'t PathEntry<'t>)>,
    /// The prefixes, each with the slash behind it.
    prefixes: Starts,
    /// The starts that may end within an element.
    starts: Starts,
    /// The literal starts of regexes, in lower case.
    regexes: Starts,
}

impl<'t> Serving<'t> {
    /// Looks at each entry of a table once.
    pub(super) fn of(table: &'t Table<'t>) -> Self {
        let entries: Vec<_> = table.paths.iter().collect();
        let mut prefixes = BTreeMap::new();
        let mut starts = BTreeMap::new();
        let mut regexes = BTreeMap::new();
        for (place, (matched, _)) in entries.iter().copied().enumerate() {
            let (known, start) = match matched {
                // They are looked up.
                PathMatch::Exact(_) => continue,
                PathMatch::Prefix(text) => (&mut prefixes, whole_elements(text)),
                PathMatch::Start(text) => (&mut starts, text.to_string()),
                PathMatch::Regex(_) => {
                    let start = literal_start(paths::bare(matched));
                    (&mut regexes, start.to_ascii_lowercase())
                }
            };
            let standing: Standing = (paths::rank(matched, 0), place);
            let best = known.entry(start).or_insert(standing);
            *best = standing.min(*best);
        }
        Serving {
            table,
            entries,
            prefixes: Starts::of(prefixes),
            starts: Starts::of(starts),
            regexes: Starts::of(regexes),
        }
    }

    /// The entry that serves a path, where it can be told.
    ///
    /// # Errors
    /// A regex that may take it first.
    pub(super) fn entry(&self, path: &str) -> Result<Option<&'t PathEntry<'t>>, &'t str> {
        // Nothing goes before what is equal.
        if let Some(entry) = self.table.paths.get(&PathMatch::Exact(path.into())) {
            return Ok(Some(entry));
        }
        let below = self.prefixes.best(&format!("{path}/"));
        let first = [below, self.starts.best(path)].into_iter().flatten().min();
        let doubt = self.regexes.best(&path.to_ascii_lowercase());
        let doubt = doubt.filter(|(rank, _)| first.is_none_or(|(known, _)| *rank < known));
        if let Some(&(matched, _)) = doubt.and_then(|(_, place)| self.entries.get(place)) {
            return Err(paths::bare(matched));
        }
        match first {
            Some((_, place)) => Ok(self.entries.get(place).map(|(_, entry)| *entry)),
            None => Ok(self.table.default.as_ref()),
        }
    }
}

/// The text that paths begin with, once they have a slash behind them, that have the elements of a
/// prefix first.
fn whole_elements(prefix: &str) -> String {
    match prefix {
        "/" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

/// Starts of texts, in their order.
struct Starts(Vec<Start>);

/// A start of texts.
struct Start {
    text: String,
    /// The best standing of what begins so, or with less of it.
    best: Standing,
    /// The place of the longest other one that it begins with.
    above: Option<usize>,
}

impl Starts {
    fn of(known: BTreeMap<String, Standing>) -> Self {
        let mut all: Vec<Start> = Vec::with_capacity(known.len());
        for (text, standing) in known {
            let mut above = all.len().checked_sub(1);
            // One that it does not begin with is the start of nothing behind it either.
            while let Some(start) = above.and_then(|at| all.get(at)) {
                if text.starts_with(&start.text) {
                    break;
                }
                above = start.above;
            }
            let best = match above.and_then(|at| all.get(at)) {
                Some(start) => start.best.min(standing),
                None => standing,
            };
            all.push(Start { text, best, above });
        }
        Starts(all)
    }

    /// The best standing of the starts that a text has. All of them are above the last one that is
    /// not behind it in the order.
    fn best(&self, text: &str) -> Option<Standing> {
        let behind = self.0.partition_point(|start| start.text.as_str() <= text);
        let mut start = self.0.get(behind.checked_sub(1)?)?;
        let pairs = start.text.bytes().zip(text.bytes());
        let shared = pairs.take_while(|(a, b)| a == b).count();
        while start.text.len() > shared {
            start = self.0.get(start.above?)?;
        }
        Some(start.best)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{BackendPort, IngressBackend};
    use myriad_model::PathMatch;

    use super::Serving;
    use crate::dialect::ingress::paths;
    use crate::dialect::ingress::table::{PathEntry, Spot, Table};
    use crate::regex::{Regexes, literal_start};

    /// The paths of tables.
    const WRITTEN: [&str; 12] = [
        "/", "/a", "/ab", "/a/b", "/A/b", "/a/b/c", "/a/bc", "/b", "/a-b", "/a.b/c", "/ä", "/ä/b",
    ];

    /// The regexes of tables.
    const REGEXES: [&str; 8] = [
        "(?i)/a",
        "(?i)/a/B",
        "(?i)/a/[0-9]+",
        "(?i)/a/b/c",
        "(?i)/a/b/.*",
        "(?i)/a|/b",
        "(?i)/B.*/c",
        "(?i)/ä/(b|c)",
    ];

    /// A match of a table.
    fn matched(number: usize) -> PathMatch {
        let kind = number % 4;
        let number = number / 4;
        match kind {
            0 => PathMatch::Exact(WRITTEN[number % WRITTEN.len()].into()),
            1 => PathMatch::Prefix(WRITTEN[number % WRITTEN.len()].into()),
            2 => PathMatch::Start(WRITTEN[number % WRITTEN.len()].into()),
            _ => PathMatch::Regex(REGEXES[number % REGEXES.len()].into()),
        }
    }

    fn entry(number: usize, backend: &IngressBackend) -> PathEntry<'_> {
        PathEntry {
            main: Spot {
                claimant: number,
                backend,
                field: String::new(),
            },
            canary: None,
            is_closed: false,
        }
    }

    /// The first entry in the order of routes that takes a path, by a walk of all.
    fn walk(table: &Table<'_>, path: &str) -> Result<Option<usize>, String> {
        let mut taking: Vec<(u64, Result<usize, &str>)> = Vec::new();
        for (matched, entry) in &table.paths {
            let takes = match matched {
                PathMatch::Exact(text) => **text == *path,
                PathMatch::Prefix(text) => is_below(path, text),
                PathMatch::Start(text) => path.starts_with(&**text),
                PathMatch::Regex(_) => {
                    let start = literal_start(paths::bare(matched)).to_ascii_lowercase();
                    path.to_ascii_lowercase().starts_with(&start)
                }
            };
            let found = match matched {
                PathMatch::Regex(_) => Err(paths::bare(matched)),
                _ => Ok(entry.main.claimant),
            };
            taking.extend(takes.then(|| (paths::rank(matched, 0), found)));
        }
        let first = taking.into_iter().min_by_key(|(rank, _)| *rank);
        match first {
            Some((_, found)) => found.map(Some).map_err(str::to_owned),
            None => Ok(table.default.as_ref().map(|entry| entry.main.claimant)),
        }
    }

    /// Whether a path has these elements first.
    fn is_below(path: &str, prefix: &str) -> bool {
        let rest = path.strip_prefix(prefix);
        prefix == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    #[test]
    fn the_entry_that_serves_a_path_is_that_which_a_walk_finds() {
        let backend = IngressBackend::Service {
            name: "web".into(),
            port: BackendPort::Number(80),
        };
        let asked = [
            "/", "/a", "/a/", "/A", "/ab", "/abc", "/a/b", "/A/B", "/a/b/", "/a/b/c/d", "/a/bcd",
            "/a/5", "/a-", "/a-b/c", "/a.b", "/a.b/cd", "/b", "/bb", "/c", "/ä", "/ä/b", "/ä/bc",
        ];
        let mut number: u64 = 1;
        for size in (0..24).cycle().take(480) {
            let mut table = Table::new(Regexes::new(256));
            for at in 0..size {
                // As numbers without an order follow each other.
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let matched = matched((number >> 33) as usize);
                table.paths.insert(matched, entry(at, &backend));
            }
            table.default = (number >> 62 == 0).then(|| entry(size, &backend));
            let serving = Serving::of(&table);
            for path in asked {
                let found = serving.entry(path);
                let found = found.map(|entry| entry.map(|entry| entry.main.claimant));
                let found = found.map_err(str::to_owned);
                assert_eq!(
                    found,
                    walk(&table, path),
                    "{path} of {:?}",
                    table.paths.keys()
                );
            }
        }
    }

    #[test]
    fn a_prefix_ends_where_an_element_does() {
        let backend = IngressBackend::Service {
            name: "web".into(),
            port: BackendPort::Number(80),
        };
        let serves = |prefix: &str, path: &str| {
            let mut table = Table::new(Regexes::new(1));
            let matched = PathMatch::Prefix(prefix.into());
            table.paths.insert(matched, entry(0, &backend));
            let served = Serving::of(&table).entry(path).map(|entry| entry.is_some());
            served.expect("there is no regex")
        };
        assert!(serves("/a", "/a/b") && serves("/a", "/a") && serves("/", "/a"));
        assert!(!serves("/a", "/ab") && !serves("/a", "/"));
    }
}
