//! The proxies of Gateways that have some of their own: a service account, a network policy, a
//! Deployment and Services in the namespace of each, made by the one who leads.
//!
//! The objects that are wanted follow from the statuses of Gateways, and each is compared with what
//! there is: a change costs the Gateway that it is about. An object that has the name of such a one
//! and was not made here for this very Gateway is left alone, and the Gateway says so. An object
//! that was made goes when its Gateway is gone or is somebody else's; that its class is missing is
//! no reason.

mod manifest;
mod scaling;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::gateway::status::{GatewayStatus, Scaling, State, Status};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::status::Address;
use myriad_source::kubernetes::status::described::DescribedStatuses;
use myriad_source::kubernetes::{CallError, Client, MadeKind, service_addresses};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use self::manifest::{MADE_BY, Owner, Parts, is_made_here, owners, roots};
use self::scaling::scaled;
use self::turns::GatewayTurns;
use super::obstacle::Obstacle;
use crate::dedicated::made_name;
use crate::settings::GatewayTemplate;
use crate::stated::{StatedStatuses, is_accepted};

/// How long is waited between two Gateways: each is some ten calls.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a Gateway waits that could not be looked after.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is tried again what somebody has to do something for.
const OBSTACLE_INTERVAL: Duration = Duration::from_secs(30);

/// How often all that was made is compared with what is wanted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(600);

/// How often the addresses of Services are read: soon after something was made, and else.
const POLL_INTERVAL_MIN: Duration = Duration::from_secs(1);
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// How long after that is soon.
const SOON: Duration = Duration::from_secs(60);

/// The Gateways with proxies of their own, as far as the leader has come. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Installations {
    state: Arc<Mutex<Installed>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Installed {
    /// The Gateways, by `namespace/name`, that are to be looked after.
    due: GatewayTurns,
    /// How it is with those that were.
    known: HashMap<Arc<str>, Installation>,
}

/// How it is with what was made for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Installation {
    /// The addresses of its Services, sorted.
    pub addresses: Vec<Address>,
    /// Why something could not be made.
    pub obstacle: Option<Obstacle>,
    /// Labels and annotations that it wants on what is made, and that no Gateway may put there.
    pub refused: BTreeSet<Box<str>>,
}

/// Makes and removes.
pub(super) struct DeploymentKeeper {
    pub client: Client,
    pub leads: Claim,
    pub template: GatewayTemplate,
    /// The namespace of the controllers, which names the installation.
    pub installation: String,
    pub controller: Box<str>,
    pub stated: StatedStatuses,
    pub installations: Installations,
    pub statuses: DescribedStatuses,
    /// The roots that controllers are known by.
    pub bundle: watch::Receiver<String>,
}

/// The memory that the leader has of its turns.
#[derive(Default)]
struct Remembered {
    /// The names of Services that seem to have been made for each Gateway.
    services: HashMap<Arc<str>, BTreeSet<Box<str>>>,
    /// The Services that were made for each Gateway, or would have been had it ports.
    made_services: HashMap<Arc<str>, MadeServices>,
    /// The namespaces that have the roots of now.
    rooted: BTreeSet<Box<str>>,
    swept: Option<Instant>,
    polled: Option<Instant>,
    made: Option<Instant>,
    /// Gateways that could not be looked after, and until when they wait.
    resting: BTreeMap<Arc<str>, Instant>,
}

/// The Services of a Gateway.
struct MadeServices {
    /// The UID of the Gateway.
    uid: Box<str>,
    /// The names.
    names: BTreeSet<Box<str>>,
}

impl Installations {
    /// A Gateway, by `namespace/name`, is to be looked after.
    pub(super) fn note(&self, id: &Arc<str>) {
        self.lock().due.push(id.clone());
        self.changed.notify_one();
    }

    /// How it is with a Gateway; none where that is not known yet.
    pub(super) fn get(&self, id: &str) -> Option<Installation> {
        self.lock().known.get(id).cloned()
    }

    /// Notes how it is with a Gateway. Returns whether that is news.
    fn set(&self, id: &Arc<str>, installation: Installation) -> bool {
        let former = self.lock().known.insert(id.clone(), installation.clone());
        former.is_none_or(|former| former != installation)
    }

    fn lock(&self) -> MutexGuard<'_, Installed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeploymentKeeper {
    /// Looks after them for ever, while this process leads.
    pub(super) async fn keep(mut self) {
        let mut memory = Remembered::default();
        loop {
            if !self.leads.holds(clock::now()) {
                memory = Remembered::default();
                let mut installed = self.installations.lock();
                installed.due.clear();
                installed.known.clear();
            }
            self.wait(&memory).await;
            if !self.leads.holds(clock::now()) {
                continue;
            }
            if self.bundle.has_changed().unwrap_or(false) {
                self.bundle.mark_unchanged();
                memory.rooted.clear();
                memory.swept = None;
            }
            self.turn(&mut memory).await;
        }
    }

    /// Waits until there is something to do.
    async fn wait(&self, memory: &Remembered) {
        if !self.leads.holds(clock::now()) {
            self.leads.acquired().await;
            return;
        }
        let is_due = !self.installations.lock().due.is_empty();
        if is_due || memory.swept.is_none() {
            tokio::time::sleep(PAUSE).await;
            return;
        }
        tokio::select! {
            () = self.installations.changed.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL_MIN) => {}
        }
    }

    async fn turn(&self, memory: &mut Remembered) {
        let now = clock::now();
        let is_over = |last: Option<Instant>, interval: Duration| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= interval)
        };
        if is_over(memory.swept, SWEEP_INTERVAL) {
            memory.rooted.clear();
            match self.sweep().await {
                Ok(()) => memory.swept = Some(now),
                Err(error) => {
                    self.complain(&error, "what was made for Gateways cannot be read");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    return;
                }
            }
        }
        let is_soon = memory
            .made
            .is_some_and(|at| now.saturating_duration_since(at) < SOON);
        let interval = match is_soon {
            true => POLL_INTERVAL_MIN,
            false => POLL_INTERVAL_MAX,
        };
        if is_over(memory.polled, interval) {
            memory.polled = Some(now);
            if let Err(error) = self.poll(memory).await {
                self.complain(&error, "the Services of Gateways cannot be read");
            }
        }
        let rested = memory.resting.iter().filter(|(_, until)| **until <= now);
        let rested: Vec<Arc<str>> = rested.map(|(id, _)| id.clone()).collect();
        for id in rested {
            memory.resting.remove(&id);
            self.installations.lock().due.push(id);
        }
        let Some(id) = self.installations.lock().due.pop() else {
            return;
        };
        match self.look_after(&id, memory).await {
            Ok(()) => {}
            Err(error) => {
                self.complain(&error, &format!("Gateway {id} is not looked after"));
                memory.resting.insert(id, now + RETRY_INTERVAL);
            }
        }
    }

    fn complain(&self, error: &CallError, what: &str) {
        tracing::warn!(%error, "{what}; trying again");
    }

    /// Lets all Gateways be looked after that have something made, or are to have.
    async fn sweep(&self) -> Result<(), CallError> {
        let label = (MADE_BY, &*self.installation);
        let mut found: BTreeSet<Arc<str>> = self.stated.with_views().into_iter().collect();
        for kind in MadeKind::OWN {
            for object in self.client.made_with(kind, label).await? {
                let ids = object.gateways.iter();
                found.extend(ids.map(|(name, _)| id_of(&object.namespace, name)));
            }
        }
        let mut installed = self.installations.lock();
        for id in found {
            installed.due.push(id);
        }
        Ok(())
    }

    /// Reads the addresses of all Services that were made.
    async fn poll(&self, memory: &mut Remembered) -> Result<(), CallError> {
        let label = (MADE_BY, &*self.installation);
        let services = self.client.made_with(MadeKind::Service, label).await?;
        let mut addresses: HashMap<Arc<str>, Vec<Address>> = HashMap::new();
        memory.services.clear();
        for service in services {
            for (gateway, uid) in &service.gateways {
                let id = id_of(&service.namespace, gateway);
                // Whoever may write Services can name any owner.
                let made = memory.made_services.get(&id);
                if made.is_some_and(|it| it.uid == *uid && it.names.contains(&service.name)) {
                    let all = addresses.entry(id.clone()).or_default();
                    all.extend(service.addresses.iter().cloned());
                }
                let names = memory.services.entry(id).or_default();
                names.insert(service.name.clone());
            }
        }
        let mut changed = Vec::new();
        let mut installed = self.installations.lock();
        for (id, known) in &mut installed.known {
            let mut found = addresses.remove(id).unwrap_or_default();
            found.sort();
            found.dedup();
            if known.addresses != found {
                known.addresses = found;
                changed.push(id.clone());
            }
        }
        drop(installed);
        for id in changed {
            self.show(&id);
        }
        Ok(())
    }

    /// Lets the status of a Gateway be looked at.
    fn show(&self, id: &Arc<str>) {
        let key = ObjectKey::from_id(ObjectKind::Gateway, id.clone());
        self.statuses.look(key, clock::now());
    }

    /// Makes what a Gateway is to have, or removes what it has.
    async fn look_after(&self, id: &Arc<str>, memory: &mut Remembered) -> Result<(), CallError> {
        let key = ObjectKey::from_id(ObjectKind::Gateway, id.clone());
        let stated = self.stated.get(&key);
        let gateway = self.client.read_object(&key).await?;
        let wanted = stated.as_ref().and_then(|status| wanted(status));
        match (&gateway, wanted) {
            (Some(gateway), Some(wanted)) if self.stated.has_view(id) => {
                let parts = self.parts((&key, gateway), wanted);
                let Some(parts) = parts else {
                    return Ok(());
                };
                let made = self.make(&key, &parts, memory).await;
                let (addresses, obstacle) = match made {
                    Ok(addresses) => (addresses, None),
                    Err(Unmade::Obstacle(obstacle)) => (Vec::new(), Some(obstacle)),
                    Err(Unmade::Failed(error)) => return Err(error),
                };
                let installation = Installation {
                    addresses,
                    obstacle,
                    refused: parts.refused_metadata(),
                };
                let now = clock::now();
                memory.made = Some(now);
                if installation.obstacle.is_some() {
                    memory.resting.insert(id.clone(), now + OBSTACLE_INTERVAL);
                }
                if self.installations.set(id, installation) {
                    self.show(id);
                }
                Ok(())
            }
            _ => {
                self.unmake(&key, gateway.as_ref(), memory).await?;
                self.installations.lock().known.remove(id);
                Ok(())
            }
        }
    }

    /// The parts of what a Gateway is to have; none where it wants no proxies of its own.
    fn parts<'a>(
        &'a self,
        (key, gateway): (&'a ObjectKey, &'a Value),
        wanted: &'a GatewayStatus,
    ) -> Option<Parts<'a>> {
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        Some(Parts {
            template: &self.template,
            installation: &self.installation,
            owner: Owner {
                namespace: key.namespace(),
                name: key.name(),
                uid: text(&gateway["metadata"]["uid"]),
                class: text(&gateway["spec"]["gatewayClassName"]),
                api_version: text(&gateway["apiVersion"]),
            },
            deployment: wanted.deployment.as_deref()?,
            addresses: &wanted.addresses,
        })
    }

    /// Makes what a Gateway is to have. Returns the addresses of its Services.
    async fn make(
        &self,
        key: &ObjectKey,
        parts: &Parts<'_>,
        memory: &mut Remembered,
    ) -> Result<Vec<Address>, Unmade> {
        let uid = parts.owner.uid;
        let is_ours = |read: &Value| {
            let mut owners = owners(read, key.name());
            is_made_here(read, &self.installation) && owners.any(|it| it == uid)
        };
        let names = parts.service_names();
        let services = MadeServices {
            uid: uid.into(),
            names: names.clone(),
        };
        memory.made_services.insert(key.id().clone(), services);
        self.put_roots(key.namespace(), memory).await?;
        let objects = parts.objects();
        let has_policy = objects.iter().any(|(it, _)| *it == MadeKind::NetworkPolicy);
        if !has_policy {
            let name = made_name(key.name());
            let policy = (MadeKind::NetworkPolicy, name.as_str());
            self.remove_ours(key, policy, is_ours).await?;
        }
        if parts.deployment.scaling.is_none() {
            self.remove_autoscaler(key, is_ours).await?;
        }
        if parts.has_ports() {
            // Those of addresses that are not asked for any more, before there are others.
            let known = memory.services.insert(key.id().clone(), names.clone());
            for name in known.unwrap_or_default().difference(&names) {
                let service = (MadeKind::Service, &**name);
                self.remove_ours(key, service, is_ours).await?;
            }
        }
        let mut addresses = Vec::new();
        for (kind, object) in objects {
            let scaling = parts.deployment.scaling;
            let scaling = scaling.filter(|_| kind == MadeKind::Deployment);
            let object = (&object, scaling);
            let made = self.put((kind, key.name()), object, is_ours).await?;
            if kind == MadeKind::Service {
                addresses.extend(service_addresses(&made));
            }
        }
        if !parts.has_ports() {
            // Nothing listens, but an address that is given up may not come back.
            let known = self.installations.get(key.id()).unwrap_or_default();
            return Ok(known.addresses);
        }
        addresses.sort();
        addresses.dedup();
        Ok(addresses)
    }

    /// Removes an object that a Gateway is not to have, if it is there and is ours.
    async fn remove_ours(
        &self,
        key: &ObjectKey,
        (kind, name): (MadeKind, &str),
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<(), CallError> {
        match self.found(kind, key.namespace(), name).await? {
            Some(read) if is_ours(&read) => self.remove(kind, &read).await,
            _ => Ok(()),
        }
    }

    /// Makes an object of a Gateway be there as it is wanted, unless there is one that is not ours.
    /// One that was made for a Gateway which had the name before makes way. A Deployment that is
    /// scaled has as many replicas as the one in its place.
    async fn put(
        &self,
        (kind, gateway): (MadeKind, &str),
        (wanted, scaling): (&Value, Option<Scaling>),
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<Value, Unmade> {
        let namespace = wanted["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let place = || format!("{} {namespace}/{name}", kind.as_str());
        let no_resources =
            |message: String| Unmade::Obstacle(Obstacle::new("NoResources", message));
        let read = match self.client.made(kind, namespace, name).await {
            Err(CallError::Forbidden(text)) => {
                let message = format!("{} may not be read: {text}", place());
                return Err(no_resources(message));
            }
            read => read?,
        };
        if let Some(read) = read.as_ref().filter(|read| !is_ours(read)) {
            let had_name = owners(read, gateway).next().is_some();
            if had_name && is_made_here(read, &self.installation) {
                self.remove(kind, read).await?;
                return Err(Unmade::Failed(CallError::Conflict));
            }
            let message = format!(
                "{} is there already and was not made for this Gateway, so that it is left alone: \
                 delete it, or give the Gateway another name",
                place()
            );
            return Err(no_resources(message));
        }
        let manager = format!("myriad-{}", self.installation);
        let read = read.as_ref();
        let scaled = scaling.map(|scaling| scaled(wanted, scaling, read));
        self.check_lead()?;
        let wanted = (scaled.as_ref().unwrap_or(wanted), read);
        let made = self.client.apply_made(kind, &manager, wanted);
        match made.await {
            Ok(made) => Ok(made),
            Err(CallError::Forbidden(text)) => {
                Err(no_resources(format!("{} may not be made: {text}", place())))
            }
            Err(CallError::Rejected(text)) => {
                Err(no_resources(format!("{} is rejected: {text}", place())))
            }
            Err(error) => Err(Unmade::Failed(error)),
        }
    }

    /// Removes an object that was read.
    async fn remove(&self, kind: MadeKind, read: &Value) -> Result<(), CallError> {
        self.check_lead()?;
        self.client.unmake(kind, read).await
    }

    /// Whether this process leads still: to be asked directly before every write.
    ///
    /// # Errors
    /// It does not, so that somebody else looks after this.
    fn check_lead(&self) -> Result<(), CallError> {
        match self.leads.holds(clock::now()) {
            true => Ok(()),
            false => Err(CallError::Lost("another replica leads".to_owned())),
        }
    }

    /// Gives a namespace the roots by which its proxies know the controllers.
    async fn put_roots(&self, namespace: &str, memory: &mut Remembered) -> Result<(), Unmade> {
        if memory.rooted.contains(namespace) {
            return Ok(());
        }
        let bundle = self.bundle.borrow().clone();
        let wanted = roots(&self.template.roots, namespace, &self.installation, &bundle);
        let is_ours = |read: &Value| is_made_here(read, &self.installation);
        self.put((MadeKind::ConfigMap, ""), (&wanted, None), is_ours)
            .await?;
        memory.rooted.insert(namespace.into());
        Ok(())
    }

    /// Removes what was made for a Gateway that is gone, or is not ours any more.
    async fn unmake(
        &self,
        key: &ObjectKey,
        gateway: Option<&Value>,
        memory: &mut Remembered,
    ) -> Result<(), CallError> {
        let stays = match gateway {
            Some(gateway) => !self.is_given_up(key, gateway).await?,
            None => false,
        };
        let uid = gateway.and_then(|it| it["metadata"]["uid"].as_str());
        let own: Box<str> = made_name(key.name()).into();
        let services = memory.services.get(key.id()).cloned().unwrap_or_default();
        let services = services.into_iter().filter(|name| *name != own);
        let services = services.map(|name| (MadeKind::Service, name));
        let all = MadeKind::OWN.map(|kind| (kind, own.clone()));
        let scaled = [(MadeKind::HorizontalPodAutoscaler, own.clone())];
        let all = all.into_iter().rev();
        let all: Vec<_> = scaled.into_iter().chain(services).chain(all).collect();
        for (kind, name) in all {
            let found = self.found(kind, key.namespace(), &name).await?;
            let Some(read) = found.filter(|it| is_made_here(it, &self.installation)) else {
                continue;
            };
            // One that is of a Gateway which had the name before goes with that.
            let is_of_now = owners(&read, key.name()).any(|it| Some(it) == uid);
            let is_owned = owners(&read, key.name()).next().is_some();
            if is_owned && !(is_of_now && stays) {
                self.remove(kind, &read).await?;
            }
        }
        memory.services.remove(key.id());
        memory.made_services.remove(key.id());
        Ok(())
    }

    /// Whether a Gateway that is there has no use for proxies of its own: its class is another
    /// controller's, or it is accepted and shares those of all. A class that is missing may come
    /// back, and what a Gateway that is not accepted wants is not known.
    async fn is_given_up(&self, key: &ObjectKey, gateway: &Value) -> Result<bool, CallError> {
        let class = gateway["spec"]["gatewayClassName"].as_str();
        let class = ObjectKey::new(ObjectKind::GatewayClass, "", class.unwrap_or_default());
        let Some(class) = self.client.read_object(&class).await? else {
            return Ok(false);
        };
        if class["spec"]["controllerName"] != *self.controller {
            return Ok(true);
        }
        let stated = self.stated.get(key);
        Ok(stated.is_some_and(|status| match &status.state {
            State::Gateway(it) => is_accepted(&it.conditions) && it.deployment.is_none(),
            _ => false,
        }))
    }
}

/// Why something was not made.
enum Unmade {
    /// Somebody has to do something.
    Obstacle(Obstacle),
    /// It is to be tried again.
    Failed(CallError),
}

impl From<CallError> for Unmade {
    fn from(error: CallError) -> Self {
        Unmade::Failed(error)
    }
}

/// The status of a Gateway that wants proxies of its own.
fn wanted(status: &Status) -> Option<&GatewayStatus> {
    match &status.state {
        State::Gateway(gateway) if gateway.deployment.is_some() => Some(gateway),
        _ => None,
    }
}

fn id_of(namespace: &str, name: &str) -> Arc<str> {
    format!("{namespace}/{name}").into()
}

#[cfg(test)]
mod tests;
