//! Commits of the history as people and pages see them.

use std::fmt;
use std::sync::Arc;

use myriad_api::one_line;
use serde::{Deserialize, Serialize};

use super::entry::{HistoryEntry, Touch};
use super::{History, moment};
use crate::live::{BecameLive, Live};

/// The path of the list of commits.
pub const PATH: &str = "/history";

/// The path of one commit.
pub const ENTRY_PATH: &str = "/history/entry";

/// The most commits of one list.
pub const ENTRIES_SHOWN_MAX: usize = 500;

/// The commits of a list where no number is asked for.
pub const ENTRIES_SHOWN: usize = 50;

/// The most resources and findings of a commit that a report lists.
pub const RESOURCES_SHOWN_MAX: usize = 200;

/// The most hosts of a resource, and lines of a text about a commit, that are shown.
const LINES_SHOWN_MAX: usize = 8;

/// The letters of a version in a text.
const VERSION_LETTERS: usize = 8;

/// Which commits are listed.
#[derive(Clone, Debug, Default)]
pub struct TimelineFilter {
    /// A host that a changed resource names; none for all.
    pub host: Option<String>,
    /// A namespace whose objects or findings take part; none for all.
    pub namespace: Option<String>,
    /// The number of the commit that they are before; none for the newest.
    pub before: Option<u64>,
    /// How many at most; 0 for [`ENTRIES_SHOWN`].
    pub count_max: usize,
}

/// A list of commits.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TimelineReport {
    /// Since when commits are listed.
    pub kept_since: String,
    /// How many are kept.
    pub kept: usize,
    /// The bytes that they are charged.
    pub bytes: usize,
    /// The most bytes that they may be charged.
    pub bytes_max: usize,
    /// The commits, the newest first.
    pub entries: Vec<EntryReport>,
    /// The number that the next list is `before`; none where there are no more.
    pub next: Option<u64>,
}

/// One commit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EntryReport {
    /// Its number.
    pub number: u64,
    /// When it was made, as RFC 3339 has it.
    pub time: String,
    /// The same in milliseconds since the epoch.
    pub unix_ms: i64,
    /// The objects that led to it.
    pub objects: Vec<ObjectLine>,
    /// How many there were.
    pub objects_total: usize,
    /// The resources that it changed, at most [`RESOURCES_SHOWN_MAX`].
    pub resources: Vec<ResourceLine>,
    /// How many it changed, over all views.
    pub resources_total: usize,
    /// The findings that appeared, as lines.
    pub appeared: Vec<String>,
    /// The findings that went, as lines.
    pub gone: Vec<String>,
    /// Where it is live; none where it changed nothing, or that is not known any more.
    pub live: Option<LiveLine>,
    /// Whether all of it is kept.
    pub is_whole: bool,
    /// The namespaces whose part of it is not kept, since they have written most of the history.
    #[serde(default)]
    pub lost: Vec<String>,
}

/// An object that changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ObjectLine {
    /// The kind.
    pub kind: String,
    /// The namespace; empty where it has none.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `put` or `removed`.
    pub deed: String,
    /// The manager that wrote it last, by its `managedFields`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
}

/// A resource that changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResourceLine {
    /// The view.
    pub view: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The version before; none where it was not there.
    pub old: Option<String>,
    /// The version after; none where it is not there.
    pub new: Option<String>,
    /// Some of the hosts that it names.
    pub hosts: Vec<String>,
}

/// Where a commit is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLine {
    /// Whether every gateway serves it, or every sidecar where there is none.
    pub is_live: bool,
    /// How long that took, in milliseconds.
    pub after_ms: Option<u64>,
    /// How many proxies have it, or one after it.
    pub proxies: usize,
    /// How many proxies were connected.
    pub proxies_total: usize,
}

impl History {
    /// A list of commits.
    pub fn timeline(&self, filter: &TimelineFilter, live: Option<&Live>) -> TimelineReport {
        let count_max = match filter.count_max {
            0 => ENTRIES_SHOWN,
            count => count.min(ENTRIES_SHOWN_MAX),
        };
        let mut report = {
            let state = self.lock();
            TimelineReport {
                kept_since: moment::text(state.listed_since),
                kept: state.entries.len(),
                bytes: state.bytes,
                bytes_max: self.0.settings.bytes_max,
                ..TimelineReport::default()
            }
        };
        let mut before = filter.before.unwrap_or(u64::MAX);
        loop {
            let entries = self.entries_before(before);
            let Some(last) = entries.last() else {
                return report;
            };
            before = last.number;
            for entry in entries.iter().filter(|it| filter.admits(it)) {
                if report.entries.len() >= count_max {
                    report.next = report.entries.last().map(|it| it.number);
                    return report;
                }
                report.entries.push(entry.report(live));
            }
        }
    }

    /// A commit, by its number; none where it is not kept.
    pub fn entry(&self, number: u64, live: Option<&Live>) -> Option<EntryReport> {
        let state = self.lock();
        let entry = state.entries.get(&number).cloned()?;
        drop(state);
        Some(entry.report(live))
    }
}

impl TimelineFilter {
    fn admits(&self, entry: &HistoryEntry) -> bool {
        let is_of = |namespace: &str| {
            let findings = entry.appeared.iter().chain(&entry.gone);
            let mut objects = findings.filter_map(|finding| finding.object.as_ref());
            let mut touches = entry.touches.iter();
            touches.any(|touch| touch.key.namespace() == namespace)
                || objects.any(|object| object.namespace() == namespace)
        };
        let is_named = |host: &str| entry.names_host(&host.to_ascii_lowercase());
        self.host.as_deref().is_none_or(is_named) && self.namespace.as_deref().is_none_or(is_of)
    }
}

impl HistoryEntry {
    /// The commit for people.
    pub fn report(&self, live: Option<&Live>) -> EntryReport {
        let lines = |findings: &[Arc<myriad_api::Finding>]| {
            let findings = findings.iter().take(RESOURCES_SHOWN_MAX);
            findings.map(ToString::to_string).collect()
        };
        let undos = self.views.iter().flat_map(|(view, undos)| {
            let undos = undos.iter();
            undos.map(move |undo| ResourceLine {
                view: view.to_string(),
                kind: undo.key.kind.as_str().to_owned(),
                name: one_line(&undo.key.name),
                old: undo.old.as_ref().map(|old| old.version.to_string()),
                new: undo.new.map(|new| new.to_string()),
                hosts: undo.hosts.iter().map(ToString::to_string).collect(),
            })
        });
        EntryReport {
            number: self.number,
            time: moment::text(self.at),
            unix_ms: self.at,
            objects: self.touches.iter().map(ObjectLine::of).collect(),
            objects_total: self.touches_total,
            resources: undos.take(RESOURCES_SHOWN_MAX).collect(),
            resources_total: self.resources_total,
            appeared: lines(&self.appeared),
            gone: lines(&self.gone),
            live: self.live_line(live),
            is_whole: self.is_whole,
            lost: self.lost().map(|namespace| one_line(namespace)).collect(),
        }
    }

    fn live_line(&self, live: Option<&Live>) -> Option<LiveLine> {
        let number = self.commit?;
        let known = self.live.get().copied();
        let became = match (known, live) {
            (Some(became @ BecameLive::Live { .. }), _) => became,
            (_, Some(live)) => live.became_live(number),
            (_, None) => return None,
        };
        match became {
            BecameLive::Forgotten => None,
            BecameLive::Live { after_ms, proxies } => Some(LiveLine {
                is_live: true,
                after_ms: Some(after_ms),
                proxies,
                proxies_total: proxies,
            }),
            BecameLive::NotYet => {
                let (proxies, proxies_total) = live?.reached_by(number);
                Some(LiveLine {
                    is_live: false,
                    after_ms: None,
                    proxies,
                    proxies_total,
                })
            }
        }
    }
}

impl ObjectLine {
    /// The line of an object.
    pub fn of(touch: &Touch) -> ObjectLine {
        ObjectLine {
            kind: touch.key.kind.as_str().to_owned(),
            namespace: touch.key.namespace().to_owned(),
            name: one_line(touch.key.name()),
            deed: if touch.is_put { "put" } else { "removed" }.to_owned(),
            by: touch.by.as_deref().map(one_line),
        }
    }
}

impl fmt::Display for ObjectLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        let deed = match &*self.deed {
            "put" => "was written",
            _ => "was removed",
        };
        write!(f, "{} {deed}", self.name)?;
        match &self.by {
            Some(by) => write!(f, " by {by}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ResourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |version: &String| version.chars().take(VERSION_LETTERS).collect::<String>();
        let old = self
            .old
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), short);
        let new = self
            .new
            .as_ref()
            .map_or_else(|| "nothing".to_owned(), short);
        write!(f, "{} {}: {old} -> {new}", self.kind, self.name)
    }
}

impl fmt::Display for LiveLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (proxies, total) = (self.proxies, self.proxies_total);
        match self.after_ms {
            Some(after) if self.is_live => {
                write!(f, "live on all proxies ({total}) after {after} ms")
            }
            _ => write!(f, "not live yet: on {proxies} of {total} proxies"),
        }
    }
}

impl fmt::Display for EntryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  commit {}", self.time, self.number)?;
        match &self.live {
            Some(live) => writeln!(f, ", {live}")?,
            None => writeln!(f)?,
        }
        if self.objects_total == 0 && self.resources_total > 0 {
            writeln!(
                f,
                "  follows from earlier changes, from time, or from settings"
            )?;
        }
        write_some(f, "  ", &self.objects, self.objects_total)?;
        write_some(f, "    ", &self.resources, self.resources_total)?;
        let appeared = self.appeared.iter().map(|it| format!("appeared: {it}"));
        let gone = self.gone.iter().map(|it| format!("gone: {it}"));
        let findings: Vec<String> = appeared.chain(gone).collect();
        write_some(f, "    ", &findings, findings.len())?;
        let lost = self.lost.iter().filter(|namespace| !namespace.is_empty());
        for namespace in lost {
            writeln!(
                f,
                "    not kept: the part of namespace {namespace}, which has written too much"
            )?;
        }
        match self.is_whole || self.lost.iter().any(|namespace| !namespace.is_empty()) {
            true => Ok(()),
            false => writeln!(f, "    too large for the history to keep all of it"),
        }
    }
}

/// Writes some lines, and how many more there are.
fn write_some<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    lines: &[T],
    total: usize,
) -> fmt::Result {
    let shown = lines.len().min(LINES_SHOWN_MAX);
    for line in lines.iter().take(shown) {
        writeln!(f, "{indent}{line}")?;
    }
    match total.saturating_sub(shown) {
        0 => Ok(()),
        more => writeln!(f, "{indent}and {more} more"),
    }
}
