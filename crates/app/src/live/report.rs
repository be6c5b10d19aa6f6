//! Reports of what is live, for people.

use std::collections::BTreeMap;

use myriad_api::ObjectKind;
use myriad_model::Position;
use serde::{Deserialize, Serialize};

use super::Live;

/// The connected proxies, and what they serve.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct LiveReport {
    /// Connected proxies.
    pub proxies_total: usize,
    /// How many of them serve the newest commit.
    pub in_step: usize,
    /// Commits since the start.
    pub commits: u64,
    /// How many of them every connected gateway serves, or every sidecar where there is none.
    pub commits_live: u64,
    /// The proxies.
    pub proxies: Vec<ProxyReport>,
    /// Refusals that still stand, by resource: the reason, and the proxies.
    pub refusals: Vec<String>,
}

/// One proxy.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProxyReport {
    /// The name that it gives itself.
    pub instance: String,
    /// The subject of its token.
    pub subject: String,
    /// The view that it sees.
    #[serde(default)]
    pub view: String,
    /// The newest schema that it understands.
    pub schema: u32,
    /// The time that it has been connected, in seconds.
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

/// The commits and proxies by which one object is live.
#[derive(Debug, Serialize, Deserialize)]
pub struct ObjectReport {
    /// Connected proxies: gateways, and sidecars of the namespace of the object.
    pub proxies_total: usize,
    /// How many of them serve the object as it is now.
    pub live: usize,
    /// Some of those that do not, by what they call themselves.
    pub missing: Vec<String>,
    /// When its newest state came, in seconds since the epoch; none if that is not remembered.
    pub changed_unix: Option<i64>,
    /// Since when all gateways serve it, in seconds since the epoch; without any, all sidecars.
    pub live_since_unix: Option<i64>,
    /// How long that took.
    pub live_after_ms: Option<u64>,
    /// Refusals of its resources, and the proxies.
    pub refused: Vec<String>,
}

/// How a commit became live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BecameLive {
    /// It is not remembered.
    Forgotten,
    /// It is not live yet.
    NotYet,
    /// Every gateway serves it, or every sidecar where there is none.
    Live {
        /// How long that took, in milliseconds.
        after_ms: u64,
        /// How many proxies were connected.
        proxies: usize,
    },
}

impl Live {
    /// The number of the newest commit; 0 before the first.
    pub fn newest_commit(&self) -> u64 {
        self.lock().newest
    }

    /// How a commit became live, by its number.
    pub fn became_live(&self, number: u64) -> BecameLive {
        let state = self.lock();
        let proxies = state.proxies.len();
        match state.commit(number).map(|commit| commit.live) {
            None => BecameLive::Forgotten,
            Some(None) => BecameLive::NotYet,
            Some(Some((_, took))) => BecameLive::Live {
                after_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                proxies,
            },
        }
    }

    /// How many proxies have a commit or one after it, and how many there are.
    pub fn reached_by(&self, number: u64) -> (usize, usize) {
        let state = self.lock();
        let proxies = state.proxies.values();
        let reached = proxies.filter(|proxy| proxy.reached(state.newest) >= number);
        (reached.count(), state.proxies.len())
    }
}

/// A position as people read it: the revision of each kind, or a counter.
pub fn by_kind(position: &Position) -> BTreeMap<String, u64> {
    let name = |number: u8| {
        let kinds = ObjectKind::ALL.into_iter();
        let mut kinds = kinds.filter(|kind| *kind as u8 == number);
        kinds.next().map_or("commits", ObjectKind::full_name)
    };
    let revisions = position.revisions.iter();
    revisions
        .map(|(source, revision)| (name(*source).to_owned(), *revision))
        .collect()
}
