//! Objects in a Kubernetes cluster: one watch per kind, or per kind and namespace.
//!
//! - A list is streamed where the server can, else paged; absence counts only when it is complete.
//! - Objects are decoded from the bytes of the server into the trimmed types, and only when
//!   something that translation reads has changed. What is kept of them is their key, version
//!   and hash.
//! - Nothing is `synced` before every kind has been listed. A kind that is suddenly empty keeps
//!   its objects for [`ClusterSettings::removal_hold`], and one that has lost much until somebody
//!   confirms it ([`ClusterSettings::holds`]).
//! - Kinds whose definitions (CRDs) come and go are watched while they are there.
//! - Pods are asked for only while there are definitions of DestinationRules or ServiceEntries,
//!   and for more than their metadata only while a ServiceEntry selects workloads, and for
//!   [`ClusterSettings::whole_pods_for`] after that.
//! - Secrets of types that are never read are not asked for, and one of which nothing is read is
//!   forgotten when it comes. Of ConfigMaps at most one is asked for, unless all are wanted, for
//!   themselves or for Gateway API.

mod annotate;
mod backoff;
mod budget;
mod client;
mod core;
mod counters;
mod definitions;
pub mod events;
mod holding;
mod item;
pub mod lease;
mod lines;
mod made;
mod merge;
mod moment;
mod own;
mod pace;
mod path;
mod provided;
mod reviews;
mod selecting;
mod shelf;
pub mod status;
#[cfg(test)]
mod tests;
mod turns;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Batch, ObjectKey, ObjectKind};
use myriad_base::backoff::random_seed;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::task;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use self::client::{Access, CallError, Client, ConnectError, RETRY_AFTER_MAX};
pub use self::counters::WatchCounters;
pub use self::made::{MadeKind, MadeObject, service_addresses};
pub use self::moment::second_time;
pub use self::own::{OwnConfigMap, Secret, Texts};
pub use self::reviews::TokenVerdict;
pub use self::shelf::{Shelf, ShelfNews, ShelfWatch, Shelved};

use self::core::{Core, Limits, Scope};
use self::definitions::Look;
use self::holding::Holding;
use self::merge::Merge;
use self::pace::Pace;
use self::watch::{Message, Remarks, Watch};
use crate::Wanted;

/// The most changes that end in one batch, but for those of the one message that reaches it.
const BATCH_CHANGES_MAX: usize = 4_096;

/// The most messages of watches that wait; a watch that finds the queue full stops reading.
const MESSAGES_MAX: usize = 64;

/// Secrets that hold a certificate.
const CERTIFICATES: &str = "type=kubernetes.io/tls";

/// Secrets but those of types of which nothing is read. They are one watch, since a Secret that
/// is made anew with another type would leave one of two after it had come to the other.
const SECRETS: &str = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token,\
                       type!=kubernetes.io/dockerconfigjson,type!=kubernetes.io/dockercfg,\
                       type!=kubernetes.io/basic-auth,type!=kubernetes.io/ssh-auth,\
                       type!=bootstrap.kubernetes.io/token";

/// Which cluster, which part of it, and within which limits.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Where the API server is.
    pub access: Access,
    /// The namespaces that are watched, each by a watch of its own; none means all, by one.
    pub namespaces: Vec<Arc<str>>,
    /// The kinds that are watched. With `namespaces` set, cluster-scoped kinds that the server
    /// forbids count as empty. Those beyond [`ObjectKind::CORE`] are watched while the server has
    /// definitions of them, and count as empty else; so do [`ObjectKind::ISSUERS`] where the
    /// server forbids them, and [`ObjectKind::GATEWAY_API`] where it forbids GatewayClasses.
    /// ConfigMaps are not among them.
    pub kinds: Vec<ObjectKind>,
    /// Namespace and name of the one ConfigMap that is watched, wherever it is.
    pub config_map: Option<(Arc<str>, Arc<str>)>,
    /// Whether all ConfigMaps are watched in the namespaces that are. Where the server forbids
    /// that, they count as empty, unless the one that is named is among them. For Gateway API they
    /// are watched in any case, while the server has it.
    pub all_config_maps: bool,
    /// Whether Secrets that may hold anything are watched, beside those of certificates.
    pub generic_secrets: bool,
    /// Whether Pods are wanted whole, whatever else there is.
    pub needs_pods: bool,
    /// Whether batches name who wrote an object last, for which each that changes is read once
    /// more.
    pub names_writers: bool,
    /// How long Pods stay wanted whole after the last ServiceEntry that selected some: within that
    /// time they are listed anew twice at most, however often such ServiceEntries come and go.
    pub whole_pods_for: Duration,
    /// How long a definition that is installed may go unnoticed.
    pub look_interval: Duration,
    /// The time that a kind which was not empty and suddenly is keeps its objects.
    pub removal_hold: Duration,
    /// When so many objects that are missing in a list stay until they are confirmed, and what
    /// stays.
    pub holds: Holds,
    /// A watch that is silent for longer is dead. The server sends a bookmark a minute, so
    /// less than that makes every quiet watch begin anew.
    pub idle_timeout: Duration,
    /// After which time the server is asked to end a watch; it is resumed where it ended.
    pub watch_timeout: Duration,
    /// Objects per page of a list that is not streamed.
    pub page_objects: u32,
}

/// A cluster that is being watched.
pub struct Cluster {
    client: Client,
    receiver: mpsc::Receiver<Message>,
    merge: Merge,
    epoch: u64,
    counters: WatchCounters,
    watches: Vec<JoinHandle<Option<()>>>,
    /// The objects that each watch reads again, by its number.
    wanted: Vec<(Scope, Wanted)>,
}

impl Cluster {
    /// Begins to watch. A server that does not answer is asked again until it does; the reports
    /// say so. To be called within a runtime.
    ///
    /// # Errors
    /// When there is no usable description of the server.
    pub async fn connect(settings: ClusterSettings) -> Result<Cluster, ConnectError> {
        let client = Client::new(&settings.access, settings.namespaces.clone().into()).await?;
        if settings.needs_pods {
            client.definitions().need_pods();
        }
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let scopes = scopes(&settings);
        let merge = Merge::new(scopes.iter().map(|scope| scope.kind));
        let limits = Limits {
            removal_hold: settings.removal_hold,
            hold: settings.holds.limits(),
            page_objects: settings.page_objects,
        };
        let (counters, restored) = (
            WatchCounters::default(),
            Arc::new(tokio::sync::watch::Sender::new(0)),
        );
        let wanted = scopes.iter().map(|it| (it.clone(), Wanted::default()));
        let wanted: Vec<(Scope, Wanted)> = wanted.collect();
        let definitions = client.definitions();
        let start = |(number, (scope, wanted)): (usize, (Scope, Wanted))| {
            let watch = Watch {
                wanted,
                pace: Pace::default(),
                scope: number,
                is_whole: scope.kind != ObjectKind::Pod,
                definition: match follows_definition(&scope, &settings) {
                    true => definitions.follow(scope.kind, settings.whole_pods_for),
                    false => None,
                },
                client: client.clone(),
                core: Core::new(scope, limits, random_seed()),
                idle_timeout: settings.idle_timeout,
                watch_timeout: settings.watch_timeout,
                sender: sender.clone(),
                holding: Holding::new(&settings.holds),
                epoch: 0,
                counters: counters.clone(),
                restored: restored.subscribe(),
                tell_restored: restored.clone(),
                remarks: Remarks {
                    names_writers: settings.names_writers,
                    edits: client.edits().clone(),
                },
            };
            task::spawn("kubernetes watch", watch.run())
        };
        let mut watches: Vec<_> = wanted.iter().cloned().enumerate().map(start).collect();
        // After the watches, since those whose kinds keep requests out are counted by then.
        if let Some(look) = Look::new(&client, &settings.kinds, settings.look_interval) {
            watches.push(task::spawn("kubernetes definitions", look.run()));
        }
        Ok(Cluster {
            client,
            receiver,
            merge,
            epoch: 0,
            counters: counters.clone(),
            watches,
            wanted,
        })
    }

    /// The next batch; it is never empty, but for the one that ends the first lists with
    /// `synced`, which may be. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Batch {
        loop {
            let Some(message) = self.receiver.recv().await else {
                // The watches end only with this value, or by a panic, which was logged.
                return std::future::pending().await;
            };
            self.add(message);
            while self.merge.len() < BATCH_CHANGES_MAX
                && let Ok(message) = self.receiver.try_recv()
            {
                self.add(message);
            }
            if let Some(batch) = self.merge.finish() {
                return batch;
            }
        }
    }

    /// Reads objects again although they have not changed: they come as if they had.
    pub fn read_again(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        for key in keys {
            let is_of = |scope: &Scope| {
                let namespace = scope.namespace.as_deref();
                let name = scope.name.as_deref();
                scope.kind == key.kind
                    && namespace.is_none_or(|it| it == key.namespace())
                    && name.is_none_or(|it| it == key.name())
            };
            if let Some((_, wanted)) = self.wanted.iter().find(|(scope, _)| is_of(scope)) {
                wanted.add([key]);
            }
        }
    }

    /// Which cluster the last batch came from, as a hash of the UID of `kube-system`. When it
    /// differs from that of the batch before, resourceVersions do not compare any more.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A client of the same server, for those who write.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Whether the server has kinds of cert-manager; none before it has been asked, and where no
    /// kinds are watched that have definitions of their own.
    pub fn cert_manager(&self) -> tokio::sync::watch::Receiver<Option<bool>> {
        self.client.definitions().cert_manager()
    }

    /// Counts of the watches' work so far.
    pub fn counters(&self) -> &WatchCounters {
        &self.counters
    }

    fn add(&mut self, message: Message) {
        self.epoch = message.epoch;
        let noticed = message.noticed.into_std();
        self.merge.add(message.scope, message.output, Some(noticed));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            access: Access::default(),
            namespaces: Vec::new(),
            kinds: ObjectKind::CORE.into(),
            config_map: None,
            all_config_maps: false,
            generic_secrets: true,
            needs_pods: false,
            names_writers: false,
            whole_pods_for: Duration::from_secs(600),
            look_interval: Duration::from_secs(5),
            removal_hold: Duration::from_secs(60),
            holds: Holds::new(HoldLimits::default()),
            idle_timeout: Duration::from_secs(75),
            watch_timeout: Duration::from_secs(290),
            page_objects: 500,
        }
    }
}

/// The scopes that are watched: each kind in each namespace, cluster-scoped kinds once, and
/// ConfigMaps.
fn scopes(settings: &ClusterSettings) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = Vec::new();
    let is_wanted =
        |kind: &ObjectKind| *kind != ObjectKind::ConfigMap && settings.kinds.contains(kind);
    for kind in ObjectKind::ALL.into_iter().filter(is_wanted) {
        // An older role lacks the right to them, which is no reason to serve nothing. Without
        // Namespaces no selector of theirs lets anything in.
        let may_lack = ObjectKind::ISSUERS.contains(&kind) || kind == ObjectKind::Namespace;
        if kind.is_cluster_scoped() || settings.namespaces.is_empty() {
            scopes.push(Scope {
                kind,
                namespace: None,
                name: None,
                except: None,
                selector: selector(kind, settings),
                is_optional: may_lack || !settings.namespaces.is_empty(),
                api_version: kind.api_version(),
            });
            continue;
        }
        for namespace in &settings.namespaces {
            let scope = Scope {
                kind,
                namespace: Some(namespace.clone()),
                name: None,
                except: None,
                selector: selector(kind, settings),
                is_optional: may_lack,
                api_version: kind.api_version(),
            };
            // A namespace that is named twice is watched once.
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
    }
    scopes.extend(config_map_scopes(settings));
    scopes
}

/// The selector of fields for a kind.
fn selector(kind: ObjectKind, settings: &ClusterSettings) -> &'static str {
    match (kind, settings.generic_secrets) {
        (ObjectKind::Secret, true) => SECRETS,
        (ObjectKind::Secret, false) => CERTIFICATES,
        _ => "",
    }
}

/// The ConfigMaps that are watched: all, where they are wanted or Gateway API is, and the one that
/// is named, unless it is among them.
fn config_map_scopes(settings: &ClusterSettings) -> Vec<Scope> {
    let kind = ObjectKind::ConfigMap;
    let scope = |namespace: Option<Arc<str>>, name: Option<Arc<str>>| Scope {
        kind,
        namespace,
        name,
        except: None,
        selector: "",
        is_optional: false,
        api_version: kind.api_version(),
    };
    let named = settings.config_map.as_ref();
    let mut namespaces: Vec<Option<Arc<str>>> = Vec::new();
    if settings.all_config_maps || settings.kinds.contains(&ObjectKind::Gateway) {
        namespaces.extend(settings.namespaces.iter().cloned().map(Some));
        namespaces.sort();
        namespaces.dedup();
        if namespaces.is_empty() {
            namespaces.push(None);
        }
    }
    let has_named = |namespace: &Option<Arc<str>>| {
        named.is_some_and(|(of, _)| namespace.as_ref().is_none_or(|it| it == of))
    };
    let is_covered = settings.all_config_maps && namespaces.iter().any(has_named);
    let alone = named.filter(|_| !is_covered);
    let alone = alone.map(|(of, name)| scope(Some(of.clone()), Some(name.clone())));
    let all = namespaces.into_iter().map(|namespace| {
        // A right to the one that is named, and a watch of it, need nothing of Gateway API.
        let own = named.filter(|_| !settings.all_config_maps && has_named(&namespace));
        Scope {
            except: own.map(|(_, name)| name.clone()),
            is_optional: !settings.all_config_maps || !has_named(&namespace),
            ..scope(namespace, None)
        }
    });
    all.chain(alone).collect()
}

/// Whether a watch follows a definition: one of ConfigMaps does where Gateway API alone asks for
/// them.
fn follows_definition(scope: &Scope, settings: &ClusterSettings) -> bool {
    let is_needed = settings.all_config_maps || scope.name.is_some();
    scope.kind != ObjectKind::ConfigMap || !is_needed
}
