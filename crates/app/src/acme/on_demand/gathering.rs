//! Certificates on demand in a cluster: every replica asks about the hosts that its proxies tell,
//! and writes those that are allowed as wishes into Secrets of the controllers' own namespace.
//!
//! For the leader a wish is what a handshake that waits is elsewhere: it asks the endpoint itself,
//! and its budgets are those of the cluster. It removes a wish with its answer, and that there is a
//! certificate then, or none, is the answer to all replicas.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::{is_demandable, on_demand_name};
use myriad_pki::acme::{Budget, HeldCertificate, Suffixes};
use myriad_proxy::Demand;
use myriad_source::kubernetes::{CallError, Client, Shelf, ShelfNews, ShelfWatch, Shelved, Texts};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::demands::{Demands, Wished};
use super::{DemandNews, OnDemand, now};
use crate::acme::following::follow_shelf;
use crate::acme::store::{KeptOnDemand, ON_DEMAND_LABEL, WISH_LABEL, named, today};
use crate::control::Event;

/// The key in the Secret of a wish: the host.
const HOST: &str = "host";

/// The most wishes of all replicas, and those of this one that have no answer.
const WISHES_MAX: usize = 1_024;
const PENDING_MAX: usize = 256;

/// The most wishes that this replica writes in a minute.
const WISHES_PER_MINUTE: u32 = 300;

/// How long a wish may be without an answer, for the leader and for who has written it.
const CARRIED_MAX: Duration = Duration::from_secs(60);
const PENDING_FOR_MAX: Duration = Duration::from_secs(90);

/// How long a wish that was written may be unseen.
const UNSEEN_MAX: Duration = Duration::from_secs(5);

/// How long a wish stays whose certificate is there, so that all replicas see that first.
const SETTLED_PAUSE: Duration = Duration::from_secs(5);

/// How long a wish is left that could not be removed, before it is carried again.
const CARRY_PAUSE: Duration = Duration::from_secs(5);

/// How often is looked whether somebody obtains certificates by now.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// How often pending wishes are looked at, and after how many times uses are noted.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
const LOOKS_PER_NOTE: u32 = 30;

/// The most uses that are noted at a time.
const NOTED_MAX: usize = 100;

/// The work of a replica on the hosts that its proxies tell.
pub(in crate::acme) struct Gathering {
    on_demand: Rc<OnDemand>,
    demands: Demands,
    wishes: Shelf,
    certificates: Shelf,
    pending: HashMap<Arc<str>, Instant>,
    budget: Budget,
    noting: Option<JoinHandle<Option<()>>>,
}

impl Gathering {
    /// For the hosts that proxies tell; Secrets are in the controllers' own namespace.
    pub(in crate::acme) fn new(
        on_demand: Rc<OnDemand>,
        demands: Demands,
        (client, namespace): (&Client, &str),
    ) -> Gathering {
        Gathering {
            on_demand,
            demands,
            wishes: Shelf::new(client.clone(), namespace, WISH_LABEL),
            certificates: Shelf::new(client.clone(), namespace, ON_DEMAND_LABEL),
            pending: HashMap::new(),
            budget: Budget::new(WISHES_PER_MINUTE, 60_000),
            noting: None,
        }
    }

    /// Goes on for ever. The URL that is asked, in place of the one of the settings, may change.
    pub(in crate::acme) async fn run(mut self, mut url: watch::Receiver<Option<Arc<str>>>) {
        let mut changes = self.demands.changes();
        let mut looks = tokio::time::interval(LOOK_PAUSE);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (on_demand, mut count) = (self.on_demand.clone(), 0_u32);
        self.ask_at(&mut url);
        loop {
            tokio::select! {
                news = on_demand.next() => self.take(news),
                Ok(()) = url.changed() => self.ask_at(&mut url),
                Ok(()) = changes.changed() => self.look(clock::now()),
                _ = looks.tick() => {
                    self.look(clock::now());
                    count = count.wrapping_add(1);
                    if count.is_multiple_of(LOOKS_PER_NOTE) {
                        self.note_uses();
                    }
                }
            }
        }
    }

    fn ask_at(&self, url: &mut watch::Receiver<Option<Arc<str>>>) {
        let url = url.borrow_and_update().clone();
        self.on_demand.ask_at(url.as_deref());
        self.demands.set_open(self.demands.told().is_open());
    }

    fn take(&mut self, news: DemandNews) {
        match news {
            DemandNews::Want(host) => self.wish(&host),
            // The leader knows what is there.
            DemandNews::Idle(_) | DemandNews::Over(_) => {}
        }
    }

    /// Writes that a host is to have a certificate.
    fn wish(&mut self, host: &Arc<str>) {
        let is_full = self.pending.len() >= PENDING_MAX
            || self.demands.wishes_count() >= WISHES_MAX
            || self.budget.free_at() > now();
        if is_full || self.demands.has(host) {
            return self.end(host);
        }
        self.budget.spend(now());
        self.pending.insert(host.clone(), clock::now());
        let (wishes, host) = (self.wishes.clone(), host.clone());
        task::spawn_local("on demand", async move {
            let texts = Texts::from([(HOST.to_owned(), host.to_string())]);
            match wishes.put(&wish_name(&host), None, &texts).await {
                // Another replica wishes the same.
                Ok(_) | Err(CallError::Conflict) => {}
                // It is seen by none then, and so at an end.
                Err(error) => tracing::warn!(%host, %error, "a wish is not written"),
            }
        });
    }

    /// Looks for wishes that have an answer, or will have none.
    fn look(&mut self, now: Instant) {
        let (gone, demands) = (self.demands.take_gone(), &self.demands);
        let ended = self.pending.extract_if(|host, since| {
            let age = now.saturating_duration_since(*since);
            let is_unseen = || age > UNSEEN_MAX && !demands.is_wished(&wish_name(host));
            gone.contains(host) || age > PENDING_FOR_MAX || demands.has(host) || is_unseen()
        });
        let ended: Vec<Arc<str>> = ended.map(|(host, _)| host).collect();
        for host in ended {
            self.end(&host);
        }
    }

    /// A host has its certificate now, or is refused for a while.
    fn end(&self, host: &Arc<str>) {
        match self.demands.has(host) {
            true => {
                self.on_demand.place(host);
                self.demands.told().settle(host);
            }
            false => self.on_demand.trouble(host, true),
        }
        self.on_demand.give_up(host);
    }

    /// Notes on some certificates that they were used today, unless that is under way.
    fn note_uses(&mut self) {
        if self.noting.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let (demands, certificates) = (self.demands.clone(), self.certificates.clone());
        self.noting = Some(task::spawn_local("on demand", async move {
            for host in demands.take_uses(NOTED_MAX) {
                if let Err(error) = note_use(&certificates, &host).await {
                    tracing::debug!(%host, %error, "its use is noted later");
                    demands.note_use(&host);
                }
            }
        }));
    }
}

/// Notes that the certificate of a host was used today.
async fn note_use(certificates: &Shelf, host: &str) -> Result<(), CallError> {
    let name = KeptOnDemand::secret_name(host);
    let Some(shelved) = certificates.get(&name).await? else {
        return Ok(());
    };
    let kept = KeptOnDemand::read(&shelved.texts);
    let today = today();
    if kept.is_some_and(|kept| kept.used_on < today) {
        let texts = KeptOnDemand::texts_of_use(today);
        let written = certificates.put(&name, Some(&shelved.version), &texts);
        match written.await {
            // Somebody else has written it: it is read again with the next use.
            Ok(_) | Err(CallError::Conflict | CallError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The name of the Secret of a wish.
fn wish_name(host: &str) -> String {
    named("wish", host)
}

/// Lets all wishes wait for certificates, like handshakes, while this process leads; it has to be
/// dropped, with all tasks, once it does not any more. Certificates that were used in so many days
/// count as used now, and wishes are of sources by these suffixes.
pub(in crate::acme) async fn carry(
    demands: Demands,
    (client, namespace): (&Client, &str),
    leads: impl Fn() -> bool + Clone + 'static,
    (idle_days, suffixes): (i64, Suffixes),
) {
    let shelf = Shelf::new(client.clone(), namespace, WISH_LABEL);
    let carried = Rc::<CarriedWishes>::default();
    let mut changes = demands.changes();
    task::spawn_local("on demand", tell_uses(demands.clone(), idle_days));
    loop {
        changes.mark_unchanged();
        for wish in carried.take(demands.wishes(WISHES_MAX)) {
            let (demand, shelf) = (demands.wished().clone(), shelf.clone());
            let (leads, carried) = (leads.clone(), carried.clone());
            let source = source_of(&wish.host, &suffixes);
            task::spawn_local("on demand", async move {
                carry_one(&demand, &wish, source).await;
                let removed = match leads() {
                    true => shelf.remove(&wish.name, &wish.version).await,
                    false => Err(CallError::Lost("another controller leads".to_owned())),
                };
                match removed {
                    // Where somebody has written it meanwhile, that is another one.
                    Ok(()) | Err(CallError::Conflict) => carried.end(&wish.host),
                    Err(error) => {
                        tracing::debug!(host = %wish.host, %error, "its wish stays for now");
                        tokio::time::sleep(CARRY_PAUSE.max(error.retry_after())).await;
                        carried.forget(&wish.host);
                    }
                }
            });
        }
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return std::future::pending().await;
                }
            }
            () = carried.ends.notified() => {}
        }
    }
}

/// The version of a wish that is carried, and whether it is at an end.
type CarriedWish = (Box<str>, bool);

/// The wishes that are carried, and those that are at an end and yet to be seen gone.
#[derive(Default)]
struct CarriedWishes {
    /// Each, by its host.
    wishes: RefCell<HashMap<Arc<str>, CarriedWish>>,
    /// Told whenever one does not stand in the way of the next any more.
    ends: Notify,
}

impl CarriedWishes {
    /// Takes on those of the wishes that are there which are not carried yet, and returns them. One
    /// that is made again comes once the one before is at an end.
    fn take(&self, mut there: Vec<Wished>) -> Vec<Wished> {
        let mut known = self.wishes.borrow_mut();
        let versions = there.iter().map(|wish| (&*wish.host, &*wish.version));
        let versions: HashMap<&str, &str> = versions.collect();
        known.retain(|host, (version, is_over)| {
            !*is_over || versions.get(&**host).is_some_and(|it| **it == **version)
        });
        there.retain(|wish| {
            let is_new = !known.contains_key(&wish.host);
            if is_new {
                known.insert(wish.host.clone(), (wish.version.clone(), false));
            }
            is_new
        });
        there
    }

    /// A wish is at an end. It is remembered until it is seen gone, or another one is there.
    fn end(&self, host: &str) {
        if let Some((_, is_over)) = self.wishes.borrow_mut().get_mut(host) {
            *is_over = true;
        }
        self.ends.notify_one();
    }

    /// A wish is to be carried again where it is there.
    fn forget(&self, host: &str) {
        self.wishes.borrow_mut().remove(host);
        self.ends.notify_one();
    }
}

/// Waits until there is an answer to a wish.
async fn carry_one(demand: &Demand, wish: &Wished, source: u64) {
    let asking = async {
        while !demand.is_open() {
            tokio::time::sleep(OPEN_PAUSE).await;
        }
        demand.ask(&wish.host, source).await
    };
    let refused = tokio::time::timeout(CARRIED_MAX, asking).await;
    if refused.is_ok_and(|time| time.is_zero()) {
        tokio::time::sleep(SETTLED_PAUSE).await;
    }
}

/// Wishes for one registered domain are of one source, so that it keeps back no other.
fn source_of(host: &str, suffixes: &Suffixes) -> u64 {
    let hash = blake3::hash(suffixes.registered_domain(host).as_bytes());
    let (first, _) = hash
        .as_bytes()
        .split_first_chunk()
        .unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*first)
}

/// Tells of the certificates that were used lately, so that they are renewed.
async fn tell_uses(demands: Demands, idle_days: i64) {
    while !demands.wished().is_open() {
        tokio::time::sleep(OPEN_PAUSE).await;
    }
    for host in demands.used_since(today() - idle_days) {
        while demands.wished().is_open() && !demands.wished().tell_used(&host) {
            tokio::time::sleep(OPEN_PAUSE).await;
        }
    }
}

/// Follows certificates on demand, which every replica serves, and wishes for more. Returns once
/// the certificates are in the inbox that were there before, or after a while.
pub async fn follow_on_demand(
    client: Client,
    namespace: &str,
    inbox: mpsc::Sender<Event>,
    demands: Demands,
) {
    let wishes = Shelf::new(client.clone(), namespace, WISH_LABEL).follow();
    let certificates = Shelf::new(client, namespace, ON_DEMAND_LABEL).follow();
    drop(task::spawn(
        "wishes",
        follow_wishes(wishes, demands.clone()),
    ));
    let mut served = Served {
        demands,
        known: HashMap::new(),
    };
    let take = move |news| served.take(news);
    if !follow_shelf("on demand", certificates, inbox, take).await {
        tracing::warn!(namespace, "certificates on demand cannot be read yet");
    }
}

async fn follow_wishes(mut watch: ShelfWatch, demands: Demands) {
    loop {
        for news in watch.next().await {
            take_wish(news, &demands);
        }
    }
}

/// Takes in news of the Secret of a wish.
fn take_wish(news: ShelfNews, demands: &Demands) {
    let shelved = match news {
        ShelfNews::Put(shelved) => shelved,
        ShelfNews::Gone(name) => return demands.remove_wish(&name),
    };
    let host = shelved.texts.get(HOST).map(String::as_str);
    match host.filter(|host| is_demandable(host) && *wish_name(host) == *shelved.name) {
        Some(host) => demands.put_wish(Wished {
            host: host.into(),
            name: shelved.name.clone(),
            version: shelved.version.clone(),
        }),
        None => demands.remove_wish(&shelved.name),
    }
}

/// The certificates on demand that proxies serve, by the name of their Secret.
struct Served {
    demands: Demands,
    known: HashMap<Arc<str>, (Arc<str>, HeldCertificate)>,
}

impl Served {
    /// The changes that news of Secrets mean.
    fn take(&mut self, news: Vec<ShelfNews>) -> Vec<Change> {
        let mut changes = Vec::new();
        for news in news {
            match news {
                ShelfNews::Put(shelved) => changes.extend(self.put(&shelved)),
                ShelfNews::Gone(name) => changes.extend(self.remove(&name)),
            }
        }
        changes
    }

    fn put(&mut self, shelved: &Shelved) -> Option<Change> {
        let kept = KeptOnDemand::read(&shelved.texts);
        // One in another's Secret would be left behind when that changes.
        let kept = kept.filter(|it| *KeptOnDemand::secret_name(&it.host) == *shelved.name);
        let Some(kept) = kept else {
            tracing::error!(secret = %shelved.name, "holds no certificate on demand");
            return self.remove(&shelved.name);
        };
        self.demands.put(&kept);
        let is_same = |(_, held): &(_, HeldCertificate)| *held == kept.held;
        // Its use was noted.
        if self.known.get(&shelved.name).is_some_and(is_same) {
            return None;
        }
        let id = on_demand_name(&kept.host).text().clone();
        self.demands.issued().note(&id, Some(kept.held.clone()));
        let known = (kept.host, kept.held);
        self.known.insert(shelved.name.clone(), known);
        Some(Change::Put(kept.object))
    }

    fn remove(&mut self, name: &str) -> Option<Change> {
        let (host, _) = self.known.remove(name)?;
        self.demands.remove(&host);
        let id = on_demand_name(&host).text().clone();
        self.demands.issued().note(&id, None);
        let key = ObjectKey::from_id(ObjectKind::OnDemand, id);
        Some(Change::Remove(key))
    }
}

#[cfg(test)]
mod tests;
