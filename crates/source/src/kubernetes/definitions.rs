//! Which kinds the server has that need a definition of their own (a CRD), and in which version.
//!
//! - Definitions come and go while we run: one task asks for all, and the watches follow what it
//!   finds. A kind without a definition counts as one without objects.
//! - What lets requests in waits for what keeps them out: where definitions appear, a kind of
//!   [`is_opening`] is listed only when those of [`is_closing`] have been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::ObjectKind;
use myriad_base::clock;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use super::backoff::{Backoff, random_seed};
use super::client::{Client, Form};
use super::core::Failure;

/// How much less often is looked while all that is wanted is there: a watch notices what is
/// removed, so that is only about newer versions.
const COMPLETE_FACTOR: u32 = 12;

/// The shortest time between two looks that watches ask for.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Definitions {
    /// Rises with every difference.
    generation: u64,
    versions: BTreeMap<ObjectKind, &'static str>,
    /// Why nobody knows; then there are no versions.
    trouble: Option<Failure>,
}

/// How it is with one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The server has it, in this version.
    Served(&'static str),
    /// The server does not have it.
    Absent,
    /// The server does not say.
    Hidden(Failure),
}

impl Definitions {
    /// How it is with a kind.
    pub(super) fn presence(&self, kind: ObjectKind) -> Presence {
        match (self.versions.get(&kind), &self.trouble) {
            (Some(version), _) => Presence::Served(version),
            (None, None) => Presence::Absent,
            (None, Some(trouble)) => Presence::Hidden(trouble.clone()),
        }
    }

    /// The version in which a kind is served, if one is known.
    pub(super) fn version(&self, kind: ObjectKind) -> Option<&'static str> {
        self.versions.get(&kind).copied()
    }
}

/// Whether the kind needs a definition: its own, or for Pods that of DestinationRules.
pub(super) fn is_defined(kind: ObjectKind) -> bool {
    !ObjectKind::CORE.contains(&kind)
}

/// Whether objects of this kind let requests in.
fn is_opening(kind: ObjectKind) -> bool {
    kind == ObjectKind::VirtualService
}

/// Whether objects of this kind keep requests out.
fn is_closing(kind: ObjectKind) -> bool {
    matches!(
        kind,
        ObjectKind::AuthorizationPolicy | ObjectKind::RequestAuthentication
    )
}

/// What the task and its watches share.
#[derive(Clone)]
pub(super) struct Shared {
    found: Arc<watch::Sender<Option<Arc<Definitions>>>>,
    /// Wakes the task.
    doubt: Arc<Notify>,
    /// Of each closing watch, the generation of definitions by which it has listed.
    listed: Arc<watch::Sender<Vec<u64>>>,
}

impl Shared {
    /// Nothing found yet.
    pub(super) fn new() -> Self {
        Shared {
            found: Arc::new(watch::Sender::new(None)),
            doubt: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// What a watch of the kind follows; none for a kind that needs no definition.
    pub(super) fn follow(&self, kind: ObjectKind) -> Option<Definition> {
        if !is_defined(kind) {
            return None;
        }
        let mut place = None;
        if is_closing(kind) {
            self.listed.send_modify(|listed| {
                place = Some(listed.len());
                listed.push(0);
            });
        }
        Some(Definition {
            kind,
            found: self.found.subscribe(),
            seen: 0,
            shared: self.clone(),
            place,
        })
    }

    /// The newest that was found.
    pub(super) fn newest(&self) -> Option<Arc<Definitions>> {
        self.found.borrow().clone()
    }
}

/// The definition of one kind, as its watch sees it.
pub(super) struct Definition {
    kind: ObjectKind,
    found: watch::Receiver<Option<Arc<Definitions>>>,
    /// The generation that the watch goes by.
    seen: u64,
    shared: Shared,
    /// Where in `listed` this watch is, if it is a closing one.
    place: Option<usize>,
}

impl Definition {
    /// How it is, once something is known.
    pub(super) fn presence(&mut self) -> Option<Presence> {
        let newest = self.found.borrow_and_update();
        let newest = newest.as_ref()?;
        self.seen = newest.generation;
        Some(newest.presence(self.kind))
    }

    /// Waits until there is something else to know.
    pub(super) async fn changed(&mut self) {
        if self.found.changed().await.is_err() {
            // The sender is part of `shared`, so it lives.
            std::future::pending().await
        }
    }

    /// The server denies what was found: it is to be looked again.
    pub(super) fn doubt(&self) {
        self.shared.doubt.notify_one();
    }

    /// Says that all that the server has of this kind has been handed on.
    pub(super) fn note_listed(&self) {
        let Some(place) = self.place else { return };
        let generation = self.seen;
        self.shared.listed.send_if_modified(|listed| {
            let known = listed.get_mut(place);
            known.is_some_and(|known| std::mem::replace(known, generation) != generation)
        });
    }

    /// Waits until this kind may be listed: at once, but for an opening one.
    pub(super) async fn may_list(&self) {
        if !is_opening(self.kind) {
            return;
        }
        let generation = self.seen;
        let mut listed = self.shared.listed.subscribe();
        let are_listed = |listed: &Vec<u64>| listed.iter().all(|known| *known >= generation);
        // The sender is part of `shared`, so it lives.
        let _ = listed.wait_for(are_listed).await;
    }
}

/// The task that looks for definitions.
pub(super) struct Look {
    client: Client,
    wanted: Vec<ObjectKind>,
    interval: Duration,
    shared: Shared,
}

impl Look {
    /// A task that looks for these kinds; none if there is nothing to look for.
    pub(super) fn new(client: &Client, kinds: &[ObjectKind], interval: Duration) -> Option<Look> {
        let wanted: BTreeSet<_> = kinds.iter().copied().filter(|it| is_defined(*it)).collect();
        if wanted.is_empty() {
            return None;
        }
        Some(Look {
            client: client.clone(),
            wanted: wanted.into_iter().collect(),
            interval,
            shared: client.definitions().clone(),
        })
    }

    /// Looks for ever.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new(random_seed());
        loop {
            let wait = match self.look().await {
                Ok(versions) => {
                    backoff.reset();
                    let is_complete = versions.len() == self.wanted.len();
                    self.publish(versions, None);
                    match is_complete {
                        true => self.interval * COMPLETE_FACTOR,
                        false => self.interval,
                    }
                }
                Err(failure) => {
                    tracing::debug!(?failure, "the kinds of the server cannot be asked for");
                    // What was found stays until it is contradicted.
                    let knows = self.shared.newest().is_some_and(|it| it.trouble.is_none());
                    if matches!(failure, Failure::Refused(_)) && !knows {
                        self.publish(BTreeMap::new(), Some(failure));
                    }
                    backoff.fail()
                }
            };
            let end = clock::now() + wait;
            tokio::select! {
                () = tokio::time::sleep_until(end) => {}
                () = self.shared.doubt.notified() => {
                    tokio::time::sleep(DOUBT_INTERVAL.min(wait)).await;
                }
            }
        }
    }

    fn publish(&self, versions: BTreeMap<ObjectKind, &'static str>, trouble: Option<Failure>) {
        self.shared.found.send_if_modified(|found| {
            let generation = found.as_ref().map_or(0, |known| known.generation);
            let is_same = found
                .as_ref()
                .is_some_and(|known| known.versions == versions && known.trouble == trouble);
            if is_same {
                return false;
            }
            tracing::info!(
                kinds = versions.len(),
                "kinds with definitions of their own"
            );
            *found = Some(Arc::new(Definitions {
                generation: generation + 1,
                versions,
                trouble,
            }));
            true
        });
    }

    /// Of each wanted kind the newest version that the server has.
    async fn look(&self) -> Result<BTreeMap<ObjectKind, &'static str>, Failure> {
        let groups: Groups = self.read("/apis").await?.unwrap_or_default();
        let served: BTreeSet<Box<str>> = groups
            .groups
            .into_iter()
            .flat_map(|group| group.versions)
            .map(|version| version.group_version)
            .collect();
        let wanted = self.wanted.iter().flat_map(|kind| kind.api_versions());
        let wanted: BTreeSet<&str> = wanted.copied().collect();
        let mut plurals: BTreeMap<&str, BTreeSet<Box<str>>> = BTreeMap::new();
        for version in wanted.into_iter().filter(|it| served.contains(*it)) {
            let resources: Resources = self
                .read(&format!("/apis/{version}"))
                .await?
                .unwrap_or_default();
            let names = resources.resources.into_iter().map(|it| it.name);
            plurals.insert(version, names.collect());
        }
        let has = |kind: ObjectKind, version: &str| {
            let names = plurals.get(version);
            names.is_some_and(|names| names.contains(kind.plural()))
        };
        let find = |kind: &ObjectKind| {
            let mut versions = kind.api_versions().iter().copied();
            Some((*kind, versions.find(|version| has(*kind, version))?))
        };
        let mut found: BTreeMap<_, _> = self.wanted.iter().filter_map(find).collect();
        // Every server has Pods; their labels are wanted for the subsets of DestinationRules.
        if self.wanted.contains(&ObjectKind::Pod)
            && found.contains_key(&ObjectKind::DestinationRule)
        {
            found.insert(ObjectKind::Pod, ObjectKind::Pod.api_version());
        }
        Ok(found)
    }

    /// An answer of the discovery; none where there is nothing.
    async fn read<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Result<Option<T>, Failure> {
        let body = match self.client.page(path, Form::Whole).await {
            Ok(body) => body,
            Err(Failure::Missing(_)) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let read = serde_json::from_slice(&body);
        read.map(Some)
            .map_err(|_| Failure::Lost("the kinds of the server cannot be read".to_owned()))
    }
}

/// `APIGroupList`.
#[derive(Default, Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: Box<str>,
}

/// `APIResourceList`.
#[derive(Default, Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: Box<str>,
}
