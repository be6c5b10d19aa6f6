//! What people may ask of it.

use std::collections::BTreeMap;

use myriad_api::{ObjectKey, ObjectKind, one_line};
use myriad_base::clock;
use myriad_model::Position;
use serde::{Deserialize, Serialize};

use super::{Live, State};

/// The most proxies that a report lists, those that are furthest behind first; all are counted.
pub const PROXIES_SHOWN_MAX: usize = 1_000;

/// Who serves what.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LiveReport {
    /// Connected proxies.
    pub proxies_total: usize,
    /// How many of them serve the newest commit.
    pub in_step: usize,
    /// Commits since the start.
    pub commits: u64,
    /// How many of them every connected proxy serves.
    pub commits_live: u64,
    /// The proxies.
    pub proxies: Vec<ProxyReport>,
    /// What was refused and still stands, by resource: why, and by whom.
    pub refusals: Vec<String>,
}

/// One proxy.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProxyReport {
    /// What it calls itself.
    pub instance: String,
    /// Who it is, as its token proves.
    pub subject: String,
    /// The view that it sees.
    #[serde(default)]
    pub view: String,
    /// The newest schema that it understands.
    pub schema: u32,
    /// For how long it has been connected.
    pub connected_seconds: u64,
    /// Whether it serves the newest commit.
    pub is_in_step: bool,
    /// How many commits it lacks; none while it has not said what it serves.
    pub commits_behind: Option<u64>,
    /// Changes of resources in them.
    pub resources_behind: Option<u64>,
    /// How far the sources were read for what it serves, by kind.
    pub position: BTreeMap<String, u64>,
    /// How many resources it refused since it connected.
    pub refused: u64,
}

/// Where one object is live.
#[derive(Debug, Serialize, Deserialize)]
pub struct ObjectReport {
    /// Connected proxies.
    pub proxies_total: usize,
    /// How many of them serve the object as it is now.
    pub live: usize,
    /// Some of those that do not, by what they call themselves.
    pub missing: Vec<String>,
    /// When its newest state came, in seconds since the epoch; none if that is not remembered.
    pub changed_unix: Option<i64>,
    /// Since when all connected proxies serve it, in seconds since the epoch.
    pub live_since_unix: Option<i64>,
    /// How long that took.
    pub live_after_ms: Option<u64>,
    /// What proxies refused of it, and which.
    pub refused: Vec<String>,
}

/// The most proxies that are named because they lack an object.
const MISSING_SHOWN_MAX: usize = 20;

impl Live {
    /// Who serves what.
    pub fn report(&self) -> LiveReport {
        let state = self.lock();
        let mut proxies: Vec<_> = state.proxies.values().collect();
        proxies.sort_by_key(|proxy| proxy.reached);
        let (now, newest) = (clock::now(), state.newest);
        let resources = |number| state.commit(number).map(|commit| commit.resources);
        let report = |proxy: &&super::Proxy| ProxyReport {
            instance: proxy.newcomer.instance.clone(),
            subject: proxy.newcomer.subject.to_string(),
            view: proxy.newcomer.view.to_string(),
            schema: proxy.newcomer.schema,
            connected_seconds: now.saturating_duration_since(proxy.since).as_secs(),
            is_in_step: proxy.reached == newest,
            commits_behind: (proxy.reached > 0).then_some(newest - proxy.reached),
            resources_behind: resources(proxy.reached).map(|known| state.resources - known),
            position: by_kind(&proxy.position),
            refused: proxy.refused,
        };
        LiveReport {
            proxies_total: proxies.len(),
            in_step: state.reached.get(&newest).copied().unwrap_or(0),
            commits: newest,
            commits_live: state.live,
            proxies: proxies.iter().take(PROXIES_SHOWN_MAX).map(report).collect(),
            refusals: state.refusals(|_| true),
        }
    }

    /// Where an object is live.
    pub fn report_of(&self, object: &ObjectKey) -> ObjectReport {
        let state = self.lock();
        // What is not remembered has not changed for longer than commits are.
        let noted = state.objects.get(object).copied();
        let number = noted.unwrap_or(1);
        let commit = state.commit(number);
        let missing = state.missing(number);
        ObjectReport {
            proxies_total: state.proxies.len(),
            live: state.proxies.len() - state.missing(number).count(),
            missing: missing.take(MISSING_SHOWN_MAX).map(str::to_owned).collect(),
            changed_unix: commit.map(|commit| commit.since_unix),
            live_since_unix: commit.and_then(|commit| Some(commit.live?.0)),
            live_after_ms: commit.and_then(|commit| u64::try_from(commit.live?.1.as_millis()).ok()),
            refused: state.refusals(|about| about == Some(object)),
        }
    }
}

impl State {
    fn refusals(&self, is_wanted: impl Fn(Option<&ObjectKey>) -> bool) -> Vec<String> {
        let refusals = self.refusals.values();
        refusals
            .filter(|refusal| is_wanted(refusal.finding.object.as_ref()))
            .map(|refusal| {
                let streams = refusal.streams.iter();
                let proxies = streams.filter_map(|stream| self.proxies.get(stream));
                let names: Vec<_> = proxies.map(|proxy| &*proxy.newcomer.instance).collect();
                one_line(&format!(
                    "{} ({})",
                    refusal.finding.message,
                    names.join(", ")
                ))
            })
            .collect()
    }
}

/// A position as people read it: the revision of each kind, or a counter.
pub fn by_kind(position: &Position) -> BTreeMap<String, u64> {
    let name = |number: u8| {
        let kinds = ObjectKind::ALL.into_iter();
        let mut kinds = kinds.filter(|kind| *kind as u8 == number);
        kinds.next().map_or("commits", |kind| kind.as_str())
    };
    let revisions = position.revisions.iter();
    revisions
        .map(|(source, revision)| (name(*source).to_owned(), *revision))
        .collect()
}
