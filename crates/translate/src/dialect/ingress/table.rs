//! The paths of a host: which Ingress serves each, and which canary has a share of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use myriad_api::{Finding, IngressBackend, PathType, Severity};
use myriad_model::{Host, PathMatch};

use super::annotations::Options;
use super::claimant::Claimant;
use super::opened::Opened;
use super::paths::{self, PathProblem};
use crate::regex::{Regexes, literal_start};

/// The place where a backend is written.
#[derive(Clone)]
pub(super) struct Spot<'a> {
    /// Index of the Ingress among the claimants.
    pub claimant: usize,
    /// The backend.
    pub backend: &'a IngressBackend,
    /// The field that holds it: `spec.defaultBackend` or `spec.rules[i].http.paths[j].backend`.
    pub field: String,
}

/// A path, the backend that serves it, and the one that has a share.
pub(super) struct PathEntry<'a> {
    /// The backend that serves it.
    pub main: Spot<'a>,
    /// The backend that has a share.
    pub canary: Option<Spot<'a>>,
    /// Whether it stands for paths that have to stay closed.
    pub is_closed: bool,
}

/// All paths of a host.
pub(super) struct Table<'a> {
    /// The paths, by what they match.
    pub paths: BTreeMap<PathMatch, PathEntry<'a>>,
    /// The backend for requests that no path matches.
    pub default: Option<PathEntry<'a>>,
    /// The Ingress that says where `/` leads, by index.
    pub app_root: Option<usize>,
    /// The paths that are regexes.
    regexes: Regexes,
}

/// One written path of a host.
struct WrittenPath<'a> {
    claimant: usize,
    path: Option<&'a str>,
    path_type: PathType,
    backend: &'a IngressBackend,
    field: String,
}

/// Merges the paths of all Ingresses on a host, which come the oldest first.
pub(super) fn build<'a>(
    host: &Host,
    claimants: &'a [Claimant],
    regexes: Regexes,
    findings: &mut Vec<Finding>,
) -> Table<'a> {
    let mut table = Table::new(regexes);
    let mut mains = BTreeMap::new();
    for (at, claimant) in claimants.iter().enumerate() {
        if claimant.is_canary() {
            continue;
        }
        if claimant.options.app_root.is_some() && table.app_root.is_none() {
            table.app_root = Some(at);
        }
        for written in written_paths(at, claimant, host) {
            let raw = raw_key(&written);
            if let Some(matched) = table.add(claimants, host, written, findings) {
                mains.entry(raw).or_insert(matched);
            }
        }
        table.add_default(claimants, at, host, findings);
    }
    for (at, claimant) in claimants.iter().enumerate() {
        if !claimant.is_canary() {
            continue;
        }
        for written in written_paths(at, claimant, host) {
            table.add_canary(claimants, host, &mains, written, findings);
        }
    }
    table
}

impl<'a> Table<'a> {
    /// A table without paths, for so many regexes.
    pub(super) fn new(regexes: Regexes) -> Self {
        Table {
            paths: BTreeMap::new(),
            default: None,
            app_root: None,
            regexes,
        }
    }

    fn add(
        &mut self,
        claimants: &'a [Claimant],
        host: &Host,
        written: WrittenPath<'a>,
        findings: &mut Vec<Finding>,
    ) -> Option<PathMatch> {
        let claimant = &claimants[written.claimant];
        let read = paths::read(written.path, written.path_type, &claimant.options);
        let field = || format!("{}.path", written.field);
        let key = &claimant.ingress.meta.key;
        let matched = match read.and_then(|matched| self.admit(matched)) {
            Ok(matched) => matched,
            Err(problem) => {
                let closed = self.close(&written, problem, &claimant.options);
                let message = match closed {
                    Some(start) => format!("{problem}, so {start} is closed below longer paths"),
                    None => format!("{problem}, so it has no effect"),
                };
                let remedy = problem.remedy();
                findings.push(Finding::new(Severity::Error, key, field(), message, remedy));
                return None;
            }
        };
        if let Some((message, remedy)) = paths::advise(&matched, &claimant.options) {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                field(),
                message,
                remedy,
            ));
        }
        match self.paths.entry(matched.clone()) {
            Slot::Vacant(slot) => {
                let problem = paths::lost_groups(slot.key(), &claimant.options);
                let is_closed = problem.is_some();
                findings.extend(problem.map(|problem| {
                    let message = format!("{problem}, so it answers 503");
                    Finding::new(Severity::Error, key, field(), message, problem.remedy())
                }));
                slot.insert(PathEntry {
                    main: Spot::of(&written),
                    canary: None,
                    is_closed,
                });
            }
            Slot::Occupied(slot) => {
                let winner = &slot.get().main;
                let is_same =
                    winner.claimant == written.claimant && winner.backend == written.backend;
                if !is_same {
                    findings.push(conflict(claimants, winner, &written, host, &matched));
                }
            }
        }
        Some(matched)
    }

    /// Closes what a path takes that restricts and is beyond the regexes of its host, so that no
    /// shorter path opens it: all that begins as it does. Returns how that begins.
    fn close(
        &mut self,
        written: &WrittenPath<'a>,
        problem: PathProblem,
        options: &Options,
    ) -> Option<String> {
        let is_beyond = matches!(problem, PathProblem::TooManyRegexes(_));
        if !is_beyond || !options.restricts() {
            return None;
        }
        let start = literal_start(written.path?);
        let entry = self.paths.entry(paths::beginning(&start));
        let entry = entry.or_insert_with(|| PathEntry {
            main: Spot::of(written),
            canary: None,
            is_closed: true,
        });
        entry.is_closed = true;
        Some(start)
    }

    /// Bounds what the proxy has to compile for one host.
    fn admit(&mut self, matched: PathMatch) -> Result<PathMatch, PathProblem> {
        if let PathMatch::Regex(pattern) = &matched {
            self.regexes.admit(pattern)?;
        }
        Ok(matched)
    }

    fn add_default(
        &mut self,
        claimants: &'a [Claimant],
        at: usize,
        host: &Host,
        findings: &mut Vec<Finding>,
    ) {
        let ingress = &claimants[at].ingress;
        let has_rule = has_rule(ingress, host);
        let Some(backend) = ingress.default_backend.as_ref().filter(|_| has_rule) else {
            return;
        };
        let spot = Spot {
            claimant: at,
            backend,
            field: "spec.defaultBackend".into(),
        };
        let Some(known) = &self.default else {
            self.default = Some(PathEntry {
                main: spot,
                canary: None,
                is_closed: false,
            });
            return;
        };
        let older = &claimants[known.main.claimant].ingress.meta.key;
        let is_same =
            known.main.backend == backend && older.namespace() == ingress.meta.key.namespace();
        if !is_same {
            findings.push(Finding::new(
                Severity::Warning,
                &ingress.meta.key,
                spot.field,
                format!(
                    "is without effect for {}: the older {older} has one",
                    shown(host)
                ),
                "leave the default backend to one of them",
            ));
        }
    }

    fn add_canary(
        &mut self,
        claimants: &'a [Claimant],
        host: &Host,
        mains: &BTreeMap<(u8, String), PathMatch>,
        written: WrittenPath<'a>,
        findings: &mut Vec<Finding>,
    ) {
        let key = &claimants[written.claimant].ingress.meta.key;
        let main = mains
            .get(&raw_key(&written))
            .and_then(|matched| self.paths.get_mut(matched));
        let problem = match main {
            None => format!(
                "is a canary of {} on {}, which no other Ingress serves, so it has no effect",
                written.path.unwrap_or("/"),
                shown(host)
            ),
            Some(entry) => match &entry.canary {
                None => {
                    entry.canary = Some(Spot::of(&written));
                    return;
                }
                Some(first) => format!(
                    "is a second canary of {} on {}, beside the older {}, so it has no effect",
                    written.path.unwrap_or("/"),
                    shown(host),
                    claimants[first.claimant].ingress.meta.key
                ),
            },
        };
        findings.push(Finding::new(
            Severity::Error,
            key,
            format!("{}.path", written.field),
            problem,
            "write the same host, path and pathType as the main Ingress, in one canary",
        ));
    }
}

impl<'a> Spot<'a> {
    fn of(written: &WrittenPath<'a>) -> Self {
        Spot {
            claimant: written.claimant,
            backend: written.backend,
            field: format!("{}.backend", written.field),
        }
    }
}

/// Whether an Ingress has a rule for a host that could fall back, or is whole without any. One that
/// stands in `tls` alone has none.
pub(super) fn has_rule(ingress: &Opened, host: &Host) -> bool {
    let is_whole = || *host == Host::any() || ingress.is_alias(host);
    ingress.rules.is_empty() && is_whole() || !ingress.rules_of(host).is_empty()
}

fn written_paths<'a>(
    at: usize,
    claimant: &'a Claimant,
    host: &Host,
) -> impl Iterator<Item = WrittenPath<'a>> {
    let ingress = &claimant.ingress;
    let mut written = Vec::new();
    for rule_at in ingress.rules_of(host) {
        let paths = ingress
            .rules
            .get(rule_at)
            .map_or(&[][..], |rule| &rule.paths);
        for (path_at, path) in paths.iter().enumerate() {
            written.push(WrittenPath {
                claimant: at,
                path: path.path.as_deref(),
                path_type: path.path_type,
                backend: &path.backend,
                field: format!("spec.rules[{rule_at}].http.paths[{path_at}]"),
            });
        }
    }
    written.into_iter()
}

/// The part of its main path that a canary has to repeat.
fn raw_key(written: &WrittenPath<'_>) -> (u8, String) {
    let text = written.path.filter(|text| !text.is_empty()).unwrap_or("/");
    let class = match written.path_type {
        PathType::Exact => 0,
        PathType::Prefix => 1,
        PathType::ImplementationSpecific => 2,
    };
    (class, text.to_owned())
}

fn conflict(
    claimants: &[Claimant],
    winner: &Spot<'_>,
    loser: &WrittenPath<'_>,
    host: &Host,
    matched: &PathMatch,
) -> Finding {
    let key = &claimants[loser.claimant].ingress.meta.key;
    let path = paths::text(matched);
    let message = if winner.claimant == loser.claimant {
        format!("stands twice on {}: the first {path} holds", shown(host))
    } else {
        let winner = &claimants[winner.claimant].ingress.meta.key;
        format!(
            "is without effect: {path} on {} is served by the older {winner}",
            shown(host)
        )
    };
    Finding::new(
        Severity::Error,
        key,
        format!("{}.path", loser.field),
        message,
        "leave each path of a host to one rule",
    )
}

fn shown(host: &Host) -> String {
    if *host == Host::any() {
        "hosts that nobody names".into()
    } else {
        format!("host {host}")
    }
}
