//! Which kinds the server has that need a definition of their own (a CRD), and in which version.
//!
//! - Definitions come and go while we run: one task asks for all, and the watches follow what it
//!   finds. A kind without a definition counts as one without objects.
//! - What lets requests in waits for what keeps them out: where definitions appear,
//!   VirtualServices are listed only when policies have been ([`waits_for`]), and so are routes of
//!   Gateway API, which would reach backends without TLS before.
//! - Pods are listed when ServiceEntries have been, since those say how much of a Pod is wanted.
//! - Namespaces and ConfigMaps are looked at for the sake of Gateway API, and so while it is there.
//!   One who may not see GatewayClasses has an older role, and no kind of it is there for him.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, Object, ObjectKind};
use myriad_base::backoff::random_seed;
use myriad_base::clock;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use super::backoff::backoff;
use super::client::{Client, Form};
use super::core::Failure;
use super::path;
use super::selecting::{PodForm, Selecting};

/// How much less often is looked while all that is wanted is there: a watch notices what is
/// removed, so that is only about newer versions.
const COMPLETE_FACTOR: u32 = 12;

/// The shortest time between two looks that watches ask for.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

/// The group of cert-manager's kinds, before the version.
const CERT_MANAGER: &str = "cert-manager.io/";

/// The definitions of kinds that were found.
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
            // They keep nobody out: without them less is obtained, and all else is served.
            (None, Some(_)) if ObjectKind::ISSUERS.contains(&kind) => Presence::Absent,
            (None, Some(trouble)) => Presence::Hidden(trouble.clone()),
        }
    }

    /// The version in which a kind is served, if one is known.
    pub(super) fn version(&self, kind: ObjectKind) -> Option<&'static str> {
        self.versions.get(&kind).copied()
    }
}

/// Whether the kind needs a definition: its own, or that of a kind for whose sake it is watched.
pub(super) fn is_defined(kind: ObjectKind) -> bool {
    !ObjectKind::CORE.contains(&kind)
}

/// The kinds that are listed before a kind is.
fn waits_for(kind: ObjectKind) -> &'static [ObjectKind] {
    match kind {
        // They let requests in, which those keep out.
        ObjectKind::VirtualService => &[
            ObjectKind::AuthorizationPolicy,
            ObjectKind::RequestAuthentication,
        ],
        ObjectKind::HttpRoute
        | ObjectKind::GrpcRoute
        | ObjectKind::TlsRoute
        | ObjectKind::TcpRoute => &[ObjectKind::BackendTlsPolicy],
        ObjectKind::Pod => &[ObjectKind::ServiceEntry],
        _ => &[],
    }
}

/// Whether another kind is listed after this one.
fn is_waited_for(kind: ObjectKind) -> bool {
    let mut later = ObjectKind::ALL.into_iter();
    later.any(|later| waits_for(later).contains(&kind))
}

/// The state that the task and its watches share.
#[derive(Clone)]
pub(super) struct Shared {
    found: Arc<watch::Sender<Option<Arc<Definitions>>>>,
    /// Wakes the task.
    doubt: Arc<Notify>,
    /// The kind of each watch that others wait for, and the generation of definitions by which it
    /// has listed.
    listed: Arc<watch::Sender<Vec<(ObjectKind, u64)>>>,
    /// The ServiceEntries that select Pods, whose addresses are wanted then.
    selecting: Selecting,
    /// Whether the server has kinds of cert-manager; none before it has said so.
    cert_manager: Arc<watch::Sender<Option<bool>>>,
}

impl Shared {
    /// A state before anything is found.
    pub(super) fn new() -> Self {
        Shared {
            found: Arc::new(watch::Sender::new(None)),
            doubt: Arc::default(),
            listed: Arc::default(),
            selecting: Selecting::default(),
            cert_manager: Arc::default(),
        }
    }

    /// The definition that a watch of the kind follows; `None` for a kind that needs none. Pods
    /// stay whole for a time after nothing selects them any more.
    pub(super) fn follow(&self, kind: ObjectKind, whole_pods_for: Duration) -> Option<Definition> {
        if !is_defined(kind) {
            return None;
        }
        let mut place = None;
        if is_waited_for(kind) {
            self.listed.send_modify(|listed| {
                place = Some(listed.len());
                listed.push((kind, 0));
            });
        }
        Some(Definition {
            kind,
            found: self.found.subscribe(),
            seen: 0,
            shared: self.clone(),
            place,
            pods: (kind == ObjectKind::Pod).then(|| self.selecting.follow(whole_pods_for)),
            own: HashSet::new(),
        })
    }

    /// Pods are wanted whole, as if something selected them for good.
    pub(super) fn need_pods(&self) {
        self.selecting.replace(0, 1);
    }

    /// Whether the server has kinds of cert-manager, as far as anybody looks.
    pub(super) fn cert_manager(&self) -> watch::Receiver<Option<bool>> {
        self.cert_manager.subscribe()
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
    /// The index of this watch in `listed`, if others wait for it.
    place: Option<usize>,
    /// The form in which Pods are wanted, for a watch of Pods.
    pods: Option<PodForm>,
    /// The ServiceEntries that this watch knows to select Pods.
    own: HashSet<Arc<str>>,
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
        // The senders are part of `shared`, so they live.
        tokio::select! {
            Ok(()) = self.found.changed() => {}
            () = changed(&mut self.pods) => {}
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
            known.is_some_and(|(_, known)| std::mem::replace(known, generation) != generation)
        });
    }

    /// Takes note of ServiceEntries that select Pods, before anybody learns that they were
    /// listed.
    pub(super) fn note_selecting(&mut self, changes: &[Change]) {
        if self.kind != ObjectKind::ServiceEntry {
            return;
        }
        let before = self.own.len();
        for change in changes {
            let selects = match change {
                Change::Put(Object::ServiceEntry(entry)) => entry.spec.workload_selector.is_some(),
                Change::Put(_) | Change::Remove(_) => false,
            };
            let id = change.key().id();
            match selects {
                true => self.own.insert(id.clone()),
                false => self.own.remove(id),
            };
        }
        let after = self.own.len();
        if before != after {
            self.shared.selecting.replace(before, after);
        }
    }

    /// Whether objects of this kind are wanted as a whole: all but Pods, of which the metadata is
    /// enough where no ServiceEntry has selected any for long.
    pub(super) fn is_wanted_whole(&mut self) -> bool {
        self.pods.as_mut().is_none_or(PodForm::is_whole)
    }

    /// Waits until this kind may be listed.
    pub(super) async fn may_list(&self) {
        let earlier = waits_for(self.kind);
        let generation = self.seen;
        let mut listed = self.shared.listed.subscribe();
        let are_listed = |listed: &Vec<(ObjectKind, u64)>| {
            let mut waited_for = listed.iter().filter(|(kind, _)| earlier.contains(kind));
            waited_for.all(|(_, known)| *known >= generation)
        };
        // The sender is part of `shared`, so it lives.
        let _ = listed.wait_for(are_listed).await;
    }
}

/// Waits until Pods may be wanted in another form; for ever, where the watch is of no Pods.
async fn changed(pods: &mut Option<PodForm>) {
    match pods {
        Some(pods) => pods.changed().await,
        None => std::future::pending().await,
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
        let mut wanted: BTreeSet<_> = kinds.iter().copied().filter(|it| is_defined(*it)).collect();
        match wanted.contains(&ObjectKind::Gateway) {
            true => wanted.insert(ObjectKind::ConfigMap),
            false => wanted.remove(&ObjectKind::ConfigMap),
        };
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
        let mut backoff = backoff(random_seed());
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
                    let is_refused =
                        matches!(failure, Failure::Refused(_) | Failure::Unauthorized(_));
                    if is_refused && !knows {
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

    /// The newest version of each wanted kind that the server has.
    async fn look(&self) -> Result<BTreeMap<ObjectKind, &'static str>, Failure> {
        // Every API server has these, so whatever has not is asked in vain what it serves.
        let unknown = || Failure::Refused("404 there is no list of API groups".to_owned());
        let groups: Groups = self.read("/apis").await?.ok_or_else(unknown)?;
        let served: BTreeSet<Box<str>> = groups
            .groups
            .into_iter()
            .flat_map(|group| group.versions)
            .map(|version| version.group_version)
            .collect();
        self.note_cert_manager(&served);
        let wanted = self.wanted.iter().flat_map(|kind| kind.api_versions());
        let wanted: BTreeSet<&str> = wanted.copied().collect();
        let mut plurals: BTreeMap<&str, BTreeSet<Box<str>>> = BTreeMap::new();
        for version in wanted.into_iter().filter(|it| served.contains(*it)) {
            let unknown = || Failure::Lost(format!("{version} is served and has no kinds"));
            let resources = self.read(&format!("/apis/{version}")).await?;
            let resources: Resources = resources.ok_or_else(unknown)?;
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
        // Every server has Pods; their labels are wanted for the subsets of DestinationRules, and
        // their addresses for the selectors of ServiceEntries.
        let selecting = [ObjectKind::DestinationRule, ObjectKind::ServiceEntry];
        let is_needed = self.shared.selecting.is_any();
        if self.wanted.contains(&ObjectKind::Pod)
            && (is_needed || selecting.iter().any(|kind| found.contains_key(kind)))
        {
            found.insert(ObjectKind::Pod, ObjectKind::Pod.api_version());
        }
        self.look_at_gateways(&mut found).await?;
        Ok(found)
    }

    /// Takes Gateway API out where it may not be read, and adds the kinds that are watched for its
    /// sake.
    async fn look_at_gateways(
        &self,
        found: &mut BTreeMap<ObjectKind, &'static str>,
    ) -> Result<(), Failure> {
        let class = ObjectKind::GatewayClass;
        // Without a class there is no Gateway of ours.
        let is_there = match found.get(&class).copied() {
            Some(version) => self.may_read(class, version).await?,
            None => false,
        };
        if !is_there {
            found.retain(|kind, _| !ObjectKind::GATEWAY_API.contains(kind));
            return Ok(());
        }
        let also = [ObjectKind::Namespace, ObjectKind::ConfigMap].into_iter();
        let also = also.filter(|kind| self.wanted.contains(kind));
        found.extend(also.map(|kind| (kind, kind.api_version())));
        Ok(())
    }

    /// Whether objects of a kind may be read. A right that is taken away later takes nothing from
    /// what is known: the watch says that it is refused.
    async fn may_read(&self, kind: ObjectKind, version: &str) -> Result<bool, Failure> {
        let known = self.shared.newest();
        if known.is_some_and(|known| known.version(kind).is_some()) {
            return Ok(true);
        }
        let path = path::collection(kind, version, None);
        let path = format!("{path}?limit=1");
        match self.client.page(&path, Form::MetadataList).await {
            Ok(_) => Ok(true),
            Err(Failure::Refused(text) | Failure::Missing(text)) => {
                tracing::debug!(kind = kind.full_name(), text, "the kind may not be read");
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    fn note_cert_manager(&self, served: &BTreeSet<Box<str>>) {
        let is_there = served.iter().any(|it| it.starts_with(CERT_MANAGER));
        let cert_manager = &self.shared.cert_manager;
        cert_manager.send_if_modified(|known| known.replace(is_there) != Some(is_there));
    }

    /// An answer of the discovery; `None` where there is nothing.
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
#[derive(Deserialize)]
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
#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: Box<str>,
}
