//! The resources that proxies have refused, by who says so.
//!
//! The word of a sidecar counts for its namespace: it is told as one of that namespace, names
//! objects of that namespace alone, and takes no room from gateways, whose word stands beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::Key;

/// The most refused resources that are remembered.
pub const REFUSALS_MAX: usize = 1_000;

/// How many of them sidecars may have refused, all together and those of one namespace.
const REFUSALS_OF_SIDECARS_MAX: usize = REFUSALS_MAX / 2;
const REFUSALS_OF_NAMESPACE_MAX: usize = 50;

/// The most proxies that are remembered to have refused a resource. When all of them are gone,
/// so is what is said of it: who still refuses it says so when it connects again.
pub const REFUSERS_MAX: usize = 20;

/// A resource that a proxy refused.
#[derive(Debug)]
pub struct RefusedResource {
    /// The resource.
    pub key: Key,
    /// The object that it came from.
    pub object: Option<ObjectKey>,
    /// The reason.
    pub reason: String,
}

/// The one in whose name a proxy speaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speaker {
    /// The operator: a gateway, of which the settings say so, or this process.
    Operator,
    /// A namespace: a sidecar of a workload there.
    Namespace(Arc<str>),
}

/// The refusals that stand.
#[derive(Default)]
pub(super) struct Refusals {
    standing: BTreeMap<Key, BTreeMap<Speaker, Refusal>>,
    /// How many there are of each speaker that has any.
    counts: BTreeMap<Speaker, usize>,
}

/// A refusal that stands.
pub(super) struct Refusal {
    /// The finding that people are told.
    pub(super) finding: Arc<Finding>,
    /// Some of those who refused it, at most [`REFUSERS_MAX`].
    pub(super) streams: BTreeSet<u64>,
}

impl Speaker {
    /// The namespace that it is of, and whose objects alone it may speak of.
    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Speaker::Operator => None,
            Speaker::Namespace(own) => Some(own),
        }
    }

    /// Whether what it says may be told of an object.
    pub(super) fn may_speak_of(&self, object: &ObjectKey) -> bool {
        let own = self.namespace();
        own.is_none_or(|own| object.namespace() == own)
    }
}

impl Refusals {
    /// Notes that a proxy has refused a resource. Returns the finding, if it is a new one.
    pub(super) fn add(
        &mut self,
        (stream, speaker): (u64, &Speaker),
        refused: RefusedResource,
    ) -> Option<Arc<Finding>> {
        let known = self.standing.get_mut(&refused.key);
        if let Some(known) = known.and_then(|known| known.get_mut(speaker)) {
            if known.streams.len() < REFUSERS_MAX {
                known.streams.insert(stream);
            }
            return None;
        }
        if !self.has_room(speaker) {
            return None;
        }
        let finding = Arc::new(finding(speaker, &refused));
        let refusal = Refusal {
            finding: finding.clone(),
            streams: BTreeSet::from([stream]),
        };
        let standing = self.standing.entry(refused.key).or_default();
        standing.insert(speaker.clone(), refusal);
        *self.counts.entry(speaker.clone()).or_default() += 1;
        Some(finding)
    }

    /// A resource has changed. Returns the findings about it.
    pub(super) fn forget(&mut self, key: &Key) -> Vec<Arc<Finding>> {
        let gone = self.standing.remove(key).unwrap_or_default();
        for speaker in gone.keys() {
            self.release(speaker);
        }
        gone.into_values().map(|refusal| refusal.finding).collect()
    }

    /// A proxy is gone. Returns the findings that nobody is left for.
    pub(super) fn leave(&mut self, (stream, speaker): (u64, &Speaker)) -> Vec<Arc<Finding>> {
        let mut gone = Vec::new();
        self.standing.retain(|_, standing| {
            let is_last = standing.get_mut(speaker).is_some_and(|refusal| {
                refusal.streams.remove(&stream) && refusal.streams.is_empty()
            });
            if is_last {
                gone.extend(standing.remove(speaker).map(|refusal| refusal.finding));
            }
            !standing.is_empty()
        });
        for _ in &gone {
            self.release(speaker);
        }
        gone
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.standing.values().flat_map(BTreeMap::values)
    }

    fn has_room(&self, speaker: &Speaker) -> bool {
        let operators = self.counts.get(&Speaker::Operator).copied();
        let all = self.counts.values().sum::<usize>();
        let sidecars = all - operators.unwrap_or_default();
        let own = self.counts.get(speaker).copied().unwrap_or_default();
        match speaker {
            Speaker::Operator => all < REFUSALS_MAX,
            Speaker::Namespace(_) => {
                own < REFUSALS_OF_NAMESPACE_MAX
                    && sidecars < REFUSALS_OF_SIDECARS_MAX
                    && all < REFUSALS_MAX
            }
        }
    }

    fn release(&mut self, speaker: &Speaker) {
        if let Some(count) = self.counts.get_mut(speaker) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(speaker);
            }
        }
    }
}

/// The finding about a refused resource. Those of several speakers are told apart by who speaks.
fn finding(speaker: &Speaker, refused: &RefusedResource) -> Finding {
    let proxy = match speaker {
        Speaker::Operator => "a proxy".to_owned(),
        Speaker::Namespace(namespace) => format!("a sidecar of namespace {namespace}"),
    };
    let object = refused.object.clone();
    Finding {
        severity: Severity::Error,
        object: object.filter(|object| speaker.may_speak_of(object)),
        field: String::new(),
        message: format!("{proxy} refused {}: {}", refused.key, refused.reason),
        remedy: "change the object; until then its last good version is served".into(),
        place: None,
    }
}
