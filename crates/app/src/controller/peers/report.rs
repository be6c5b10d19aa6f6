//! The report of a replica, as others read it.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::ObjectKey;
use serde::{Deserialize, Serialize};

use super::AwaitedObject;
use crate::control::Progress;
use crate::live::ProxyGroup;

/// The most groups of proxies, objects and namespaces that a report names.
const GROUPS_MAX: usize = 512;
const OBJECTS_MAX: usize = 512;
const NAMESPACES_MAX: usize = 512;

/// How it is at one replica. What it does not name is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    /// Ready proxies by their group.
    proxies: BTreeMap<String, usize>,
    /// How far each kind was read.
    read: BTreeMap<String, u64>,
    /// Objects that some of the proxies do not serve yet.
    behind: BTreeSet<String>,
    /// Namespaces of which that holds for any object.
    namespaces: BTreeSet<String>,
    /// Whether it holds for any object at all.
    all: bool,
    /// Differs from time to time.
    beat: i64,
}

impl Report {
    /// How it is here. What there is too much of is named as a whole: the namespace of an object,
    /// or everything.
    pub(super) fn new(
        progress: Progress,
        proxies: &[(ProxyGroup, usize)],
        waiting: Vec<ObjectKey>,
    ) -> Report {
        let mut report = Report::default();
        let groups = proxies.iter().take(GROUPS_MAX);
        let groups = groups.map(|(group, count)| (group_name(group), *count));
        report.proxies = groups.collect();
        let read = progress.read.into_iter();
        let read = read.map(|(kind, revision)| (kind.full_name().to_owned(), revision));
        report.read = read.collect();
        let waiting_namespaces = progress.waiting.into_iter();
        report.namespaces = waiting_namespaces.map(String::from).collect();
        let is_named = |key: &ObjectKey| report.namespaces.contains(key.namespace());
        let mut behind: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for key in waiting.iter().filter(|key| !is_named(key)) {
            let lane = behind.entry(key.namespace().to_owned()).or_default();
            lane.insert(object_name(key));
        }
        // Those of namespaces with few of them, so that one with many leaves room for others.
        let mut lanes: Vec<_> = behind.into_iter().collect();
        lanes.sort_by_key(|(_, objects)| objects.len());
        for (namespace, objects) in lanes {
            if report.behind.len() + objects.len() <= OBJECTS_MAX {
                report.behind.extend(objects);
            } else {
                report.namespaces.insert(namespace);
            }
        }
        if report.namespaces.len() > NAMESPACES_MAX {
            report.namespaces.clear();
            report.all = true;
        }
        report
    }

    /// A report as it was written. One that cannot be read says nothing.
    pub(super) fn read(text: &str) -> Report {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The same as a text.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same at another time.
    pub(super) fn with_beat(self, beat: i64) -> Report {
        Report { beat, ..self }
    }

    /// Whether it has no ready proxies.
    pub(super) fn is_empty(&self) -> bool {
        self.proxies.is_empty()
    }

    /// How many ready proxies a group has.
    pub(super) fn proxies_of(&self, group: &str) -> usize {
        self.proxies.get(group).copied().unwrap_or_default()
    }

    /// Whether some of its proxies may not serve an object.
    pub(super) fn lacks(&self, object: &AwaitedObject<'_>) -> bool {
        let is_behind = || self.behind.contains(&object_name(object.key));
        let waits = || {
            object
                .namespaces
                .iter()
                .any(|it| self.namespaces.contains(*it))
        };
        let has_not_read = || {
            let mut read = object.read.into_iter().flat_map(|it| it.iter());
            read.any(|(kind, revision)| {
                let known = self.read.get(kind.full_name());
                known.copied().unwrap_or_default() < *revision
            })
        };
        self.all || is_behind() || waits() || has_not_read()
    }
}

/// The name of a group in a report.
pub(super) fn group_name(group: &ProxyGroup) -> String {
    match group {
        ProxyGroup::Shared => "shared".to_owned(),
        ProxyGroup::Own(view) => format!("own {view}"),
        ProxyGroup::Beside(namespace) => format!("beside {namespace}"),
    }
}

fn object_name(key: &ObjectKey) -> String {
    format!("{} {}", key.kind.full_name(), key.id())
}
