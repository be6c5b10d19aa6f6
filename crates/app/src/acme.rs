//! Certificates that are obtained by ACME: a thread of its own carries out what the desk decides,
//! and what comes of it enters the control loop's inbox like any change.
//!
//! The one inbox is the only way: answers to challenges are objects that become resources, and so
//! are certificates. What is kept is enough to go on after a crash at any moment.

mod accounts;
mod checked;
mod cluster;
mod counters;
mod demanding;
mod dns;
#[cfg(test)]
mod faults;
mod following;
mod http;
mod issued;
mod issuers;
mod issuing;
mod lanes;
mod loading;
mod on_demand;
mod patience;
mod proof;
mod registrar;
mod reports;
mod secret;
mod steps;
mod store;
mod telling;
#[cfg(test)]
mod testing;
mod token;
mod waiting;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use myriad_api::{Finding, ObjectKey};
use myriad_base::backoff::random_seed;
use myriad_base::metrics::Metrics;
use myriad_base::{file, task};
use myriad_pki::acme::{
    AcmeIssuer, CertificateWish, Desk, Effect, Millis, NAMES_MAX, StepOutcome, StepTrouble, Task,
    TaskStep, TroubleNotice,
};
use myriad_proxy::{Demand, NameSettings, Names};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::control::Event;
use crate::obtained::Obtained;
use crate::settings::{AcmeSettings, ISSUER};
use crate::wishes::{ChangedWishes, WantedCertificate, Wishes};
use counters::Counters;
use dns::Records;
use issued::IssuedNews;
use issuers::{IssuerBook, trusting};
use lanes::Lanes;
use loading::{ReadCertificates, Unread};
use on_demand::{DemandCounters, OnDemand};
use proof::Proof;
use steps::{Steps, now};
use store::{AcmeStore, FileStore, Lock};

pub use cluster::{ClusterParts, follow_orders};
pub use dns::TextFinder;
pub use issued::Issued;
pub use on_demand::{Demands, follow_on_demand};
pub use reports::{IssuerReport, IssuerReports};

/// How often is tried whether the process before has ended.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// How often numbers are counted.
const COUNT_PAUSE: Duration = Duration::from_secs(5);

/// The longest file of roots.
const ROOTS_BYTES_MAX: u64 = 1 << 20;

/// The most outcomes that wait to be taken in; the steps behind them wait too.
const OUTCOMES_MAX: usize = 64;

/// The parts of the process that certificates are obtained with.
pub struct Surroundings {
    /// The control loop.
    pub inbox: mpsc::Sender<Event>,
    /// The certificates that are wanted.
    pub wishes: Wishes,
    /// The servers of DNS, and the bounds on answers.
    pub names: NameSettings,
    /// The address of plain HTTP.
    pub http: SocketAddr,
    /// Where people are shown how many certificates there are.
    pub obtained: Obtained,
    /// The names that handshakes ask for and that have no certificate.
    pub demand: Demand,
    /// Dropped once the certificates that are kept are in the inbox.
    pub loaded: DropGuard,
}

/// Certificates that are being obtained. They are not any more once this is dropped.
pub struct Acme {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Acme {
    /// Starts on a thread of its own. Certificates that are kept go into the inbox, and the first
    /// list ends behind them. Without an issuer of the settings, and before anything was kept, it
    /// begins once an object makes one.
    ///
    /// # Errors
    /// The state directory or the roots of an issuer of the settings cannot be read, or the thread
    /// cannot be started.
    pub fn start(
        settings: &AcmeSettings,
        around: Surroundings,
        metrics: &Metrics,
    ) -> anyhow::Result<Acme> {
        let is_used = settings.issuer.is_some() || settings.state_dir.is_dir();
        let opened = match is_used.then(|| open(settings)) {
            Some(Err(error)) if settings.issuer.is_none() => {
                tracing::info!("{error:#}: no certificate that was kept is served");
                None
            }
            opened => opened.transpose()?,
        };
        let unread = opened.as_ref().map(|(store, _)| Unread::of(store));
        let unread = unread.transpose()?;
        let (settings, metrics) = (settings.clone(), metrics.clone());
        Acme::spawn(move || async move {
            let read = match unread {
                Some(unread) => unread.load(&around.inbox).await,
                None => ReadCertificates::default(),
            };
            drop(around.loaded);
            let (store, config) = match opened {
                Some(opened) => opened,
                None => {
                    around.wishes.any_issuer().await;
                    open(&settings).map_err(io::Error::other)?
                }
            };
            let shown = (&metrics, around.obtained, around.demand);
            let means = Means::new(&settings, config, around.inbox, shown);
            let hands = Hands::new(&means, around.names, own_address(around.http));
            let store = (AcmeStore::Files(store), read);
            work(&means, &hands, store, around.wishes, std::future::pending()).await
        })
    }

    /// Runs something on a thread of its own, until this is dropped.
    fn spawn<F: Future<Output = io::Result<()>>>(
        start: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<Acme> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let run = move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = match runtime.enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "obtains no certificates"),
            };
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    ended = start() => {
                        if let Err(error) = ended {
                            tracing::error!(%error, "obtains no certificates any more");
                        }
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("acme".to_owned());
        Ok(Acme {
            stop,
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Acme {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic has been told of.
            let _ = thread.join();
        }
    }
}

/// The store of files, and how directories are verified.
fn open(settings: &AcmeSettings) -> anyhow::Result<(FileStore, Arc<ClientConfig>)> {
    let folder = &settings.state_dir;
    let store = FileStore::open(folder);
    let store = store.with_context(|| format!("--acme-state-dir {}", folder.display()))?;
    Ok((store, client_config(settings)?))
}

/// How directories are verified.
fn client_config(settings: &AcmeSettings) -> anyhow::Result<Arc<ClientConfig>> {
    let Some(path) = &settings.roots else {
        return Ok(myriad_proxy::upstream::secure::trusting()?);
    };
    let named = || format!("--acme-ca {}", path.display());
    let text = file::whole(path, ROOTS_BYTES_MAX).with_context(named)?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(root.with_context(named)?).with_context(named)?;
    }
    anyhow::ensure!(!roots.is_empty(), "{} holds no certificate", named());
    Ok(trusting(roots)?)
}

/// The settings and the surroundings of an office, whatever its store.
struct Means {
    settings: AcmeSettings,
    /// How directories are verified.
    config: Arc<ClientConfig>,
    /// The control loop.
    inbox: mpsc::Sender<Event>,
    /// Where people are shown how it is with issuers; none where nobody can be.
    reports: Option<IssuerReports>,
    counters: Counters,
    /// The names that handshakes ask for, and what is counted of them.
    demand: (Demand, DemandCounters),
}

impl Means {
    fn new(
        settings: &AcmeSettings,
        config: Arc<ClientConfig>,
        inbox: mpsc::Sender<Event>,
        (metrics, obtained, demand): (&Metrics, Obtained, Demand),
    ) -> Means {
        Means {
            settings: settings.clone(),
            config,
            inbox,
            reports: None,
            counters: Counters::new(metrics, obtained),
            demand: (demand, DemandCounters::new(metrics)),
        }
    }
}

/// The means that belong to the thread of an office.
struct Hands {
    client: http::Client,
    proof: Proof,
    records: Rc<Records>,
}

impl Hands {
    /// For names at the addresses that endpoints may have.
    fn new(means: &Means, names: NameSettings, own: SocketAddr) -> Hands {
        let reach = names.border.endpoints.clone();
        let recursors = names.servers.clone();
        // Counted by nobody: those of endpoints are others.
        let names = Names::new(names, &Metrics::new());
        let client = http::Client::new(means.config.clone(), names.clone());
        let port = means.settings.dns_port;
        let records = Records::new(names.clone(), recursors, port, client.clone());
        Hands {
            client,
            records: Rc::new(records),
            proof: Proof {
                port: means.settings.proof_port,
                own,
                names,
                reach,
            },
        }
    }
}

/// Obtains what is wanted, with a store, until its end comes or something else has changed what is
/// kept there.
async fn work(
    means: &Means,
    hands: &Hands,
    (store, read): (AcmeStore, ReadCertificates),
    wishes: Wishes,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    // All steps end with it.
    let steps = LocalSet::new();
    let working = async {
        let _lock = lock(&store).await?;
        let (mut office, results) = Office::new(means, hands, store);
        office.restore(means.settings.issuer.clone(), read).await?;
        tokio::select! {
            () = office.run(wishes, results) => {}
            () = end => {}
        }
        office.close().await;
        Ok(())
    };
    steps.run_until(working).await
}

/// Waits until no other process changes what is kept.
async fn lock(store: &AcmeStore) -> io::Result<Lock> {
    loop {
        if let Some(lock) = store.lock()? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

/// The address of this machine by which a listener of this process is reached.
fn own_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// Certificates on demand, of which none is obtained yet.
fn on_demand(means: &Means, client: &http::Client) -> Rc<OnDemand> {
    let (settings, (demand, counters)) = (&means.settings, &means.demand);
    let (counted, with) = (settings.counted(), (client.clone(), counters.clone()));
    Rc::new(OnDemand::new(demand, &settings.on_demand, counted, with))
}

/// The result of a step.
type Ended = (Task, Result<StepOutcome, StepTrouble>);

/// The desk, and the hands that do what it says.
struct Office {
    desk: Desk,
    steps: Rc<Steps>,
    /// The objects that ask for each certificate.
    objects: HashMap<Arc<str>, Vec<ObjectKey>>,
    /// The findings about each certificate.
    told: BTreeMap<Arc<str>, Vec<Arc<Finding>>>,
    /// The issuers.
    book: IssuerBook,
    /// Whether it is known what is wanted, and the rest is forgotten.
    is_swept: bool,
    outcomes: mpsc::Sender<Ended>,
    counters: Counters,
}

impl Office {
    /// One that has not begun, and the way by which it hears of steps that have ended.
    fn new(means: &Means, hands: &Hands, store: AcmeStore) -> (Office, mpsc::Receiver<Ended>) {
        // Who writes to the namespaces of a cluster is not who runs this.
        let are_tenants = store.cluster().is_some();
        let asking = (means.config.clone(), hands.proof.names.clone());
        let book = IssuerBook::new(asking, means.reports.clone(), are_tenants, random_seed());
        let steps = Rc::new(Steps {
            issuers: RefCell::default(),
            client: hands.client.clone(),
            clients: RefCell::default(),
            lanes: Lanes::default(),
            proof: hands.proof.clone(),
            records: hands.records.clone(),
            store,
            inbox: means.inbox.clone(),
            on_demand: on_demand(means, &hands.client),
            accounts: accounts::Accounts::default(),
            seconds: RefCell::default(),
        });
        let (outcomes, results) = mpsc::channel(OUTCOMES_MAX);
        let desk = Desk::new(means.settings.bounds, random_seed());
        let office = Office {
            desk: desk.with_suffixes(means.settings.suffixes.clone()),
            steps,
            objects: HashMap::new(),
            told: BTreeMap::new(),
            book,
            is_swept: false,
            outcomes,
            counters: means.counters.clone(),
        };
        (office, results)
    }

    /// Takes in what was kept.
    async fn restore(
        &mut self,
        issuer: Option<AcmeIssuer>,
        read: ReadCertificates,
    ) -> io::Result<()> {
        let now = now();
        self.book.of_settings = issuer.clone();
        if let Some(issuer) = issuer {
            self.put(ISSUER, issuer, None).await;
        }
        for spent in self.steps.store.spent().await? {
            self.desk.restore_spent(&spent, now);
        }
        let mut on_demand = Vec::new();
        for order in self.steps.store.orders().await? {
            self.steps.resume(&order).await;
            on_demand.extend(self.wish_on_demand(&order));
            self.desk.restore_order(order, now);
        }
        for (id, held) in read.kept {
            self.restore_on_demand(&id, &held);
            self.desk.restore_certificate(&id, held, now);
        }
        // A process before may have put others there since they were read.
        for kept in self.steps.store.certificates(read.since)? {
            self.restore_on_demand(&kept.id, &kept.held);
            self.desk.restore_certificate(&kept.id, kept.held, now);
            self.steps.serve(kept.object).await;
        }
        self.open_on_demand(on_demand).await;
        Ok(())
    }

    /// Goes on until something else has changed what is kept, so that it is to be read anew.
    async fn run(&mut self, wishes: Wishes, mut results: mpsc::Receiver<Ended>) {
        let mut count = tokio::time::interval(COUNT_PAUSE);
        let steps = self.steps.clone();
        loop {
            self.begin().await;
            self.begin_issuers();
            let due = self.due();
            tokio::select! {
                () = steps.store.doubted() => return,
                news = steps.store.news() => self.find(&wishes, news).await,
                news = steps.on_demand.next() => self.meet(news).await,
                news = wishes.next() => self.take(news).await,
                Some((task, result)) = results.recv() => self.end(&task, result).await,
                Some(ended) = self.book.registered.recv() => self.end_registration(ended),
                () = until(due) => {}
                _ = count.tick() => self.counters.show(&self.desk),
            }
        }
    }

    /// Begins all steps that there are places for.
    async fn begin(&mut self) {
        loop {
            let (task, effects) = self.desk.next(now());
            self.carry_out(effects).await;
            let Some(task) = task else { return };
            let (steps, outcomes) = (self.steps.clone(), self.outcomes.clone());
            task::spawn_local("acme step", async move {
                let result = steps.perform(&task).await;
                // Nobody is left to hear of it where the office has closed.
                let _ = outcomes.send((task, result)).await;
            });
        }
    }

    async fn end(&mut self, task: &Task, result: Result<StepOutcome, StepTrouble>) {
        match &result {
            Ok(StepOutcome::Issued(held)) if task.step == TaskStep::Fetch => {
                self.counters.issue(task.is_renewal);
                tracing::info!(secret = %task.id, names = held.names.len(), "has a certificate");
            }
            Err(trouble) => {
                self.counters.failed.inc();
                tracing::debug!(secret = %task.id, step = ?task.step, ?trouble, "a step failed");
            }
            Ok(_) => {}
        }
        let is_given_up = self.note_on_demand(task, &result);
        let mut effects = self.desk.done(task, result, now());
        if is_given_up {
            effects.extend(self.desk.unwant(&task.id, now()));
        }
        self.carry_out(effects).await;
    }

    async fn take(&mut self, news: ChangedWishes) {
        for (name, news) in news.issuers {
            self.take_issuer(&name, news).await;
        }
        let now = now();
        for (secret, wanted) in news.changed {
            let effects = match wanted {
                Some(wanted) => self.want(&secret, wanted, now),
                None => {
                    self.objects.remove(&secret);
                    self.steps.note_second(&secret, false);
                    let mut effects = vec![Effect::Tell(secret.clone(), None)];
                    effects.extend(self.desk.unwant(&secret, now));
                    effects
                }
            };
            self.carry_out(effects).await;
        }
        if news.is_complete && !std::mem::replace(&mut self.is_swept, true) {
            let effects = self.desk.sweep(now);
            self.carry_out(effects).await;
            self.clean(now);
        }
    }

    /// Takes in certificates that have changed although no order did that.
    async fn find(&mut self, wishes: &Wishes, news: IssuedNews) {
        let now = now();
        for (id, held) in news {
            let effects = match held {
                None => self.desk.lose(&id, now),
                Some(held) => {
                    // It is as if it had been there before it was wanted.
                    let mut effects = self.desk.unwant(&id, now);
                    self.desk.restore_certificate(&id, (*held).clone(), now);
                    effects.extend(self.find_on_demand(&id, &held, now));
                    if let Some(wanted) = wishes.wanted(&id) {
                        effects.extend(self.want(&id, wanted, now));
                    }
                    effects
                }
            };
            self.carry_out(effects).await;
        }
    }

    fn want(&mut self, secret: &Arc<str>, wanted: WantedCertificate, now: Millis) -> Vec<Effect> {
        let count = wanted.count;
        self.objects.insert(secret.clone(), wanted.objects);
        self.steps.note_second(secret, wanted.is_second);
        if count > NAMES_MAX {
            let mut effects = self.desk.unwant(secret, now);
            let notice = TroubleNotice {
                message: format!("is not ordered: it would have {count} names, over {NAMES_MAX}"),
                remedy: "divide the hosts among several Secrets".to_owned(),
            };
            effects.push(Effect::Tell(secret.clone(), Some(notice)));
            return effects;
        }
        let wish = CertificateWish {
            names: wanted.names,
            issuer: wanted.issuer,
        };
        let told = self.await_issuer(secret, &wish.issuer);
        let mut effects = self.desk.want(secret, wish, now);
        effects.extend(told);
        effects
    }

    /// Forgets certificates that are over and that nobody wants.
    fn clean(&mut self, now: Millis) {
        let AcmeStore::Files(files) = &self.steps.store else {
            // In a cluster they are their users' to remove.
            return;
        };
        for id in self.desk.forget_over(now) {
            if self.objects.contains_key(&id) {
                continue;
            }
            if let Err(error) = files.drop_certificate(&id) {
                tracing::warn!(secret = %id, %error, "stays, although it is over");
            }
        }
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(order) => {
                    self.steps.store.keep_soon(&order);
                    if order.stage.placed().is_none() {
                        self.steps.withdraw(&order.id).await;
                    }
                }
                Effect::Drop(id) => {
                    self.steps.store.drop_soon(&id);
                    self.steps.withdraw(&id).await;
                }
                Effect::Tell(id, notice) => self.tell(&id, notice).await,
            }
        }
    }
}

/// Waits for a moment; for ever where there is none.
async fn until(due: Option<Millis>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    let wait = due.saturating_sub(now()).max(0).unsigned_abs();
    // A clock that jumps is noticed within a minute.
    tokio::time::sleep(Duration::from_millis(wait.min(60_000))).await;
}
