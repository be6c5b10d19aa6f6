//! Certificates that are obtained by ACME: a thread of its own carries out what the desk decides,
//! and what comes of it enters the control loop's inbox like any change.
//!
//! The one inbox is the only way: answers to challenges are objects that become resources, and so
//! are certificates. What is kept is enough to go on after a crash at any moment.

mod http;
mod proof;
mod steps;
mod store;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use myriad_api::{Batch, Change, Finding, ObjectKey, Severity};
use myriad_base::backoff::random_seed;
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_base::{file, task};
use myriad_pki::acme::{
    CertificateWish, Desk, Effect, Millis, NAMES_MAX, StepOutcome, StepTrouble, Task, TroubleNotice,
};
use myriad_proxy::{NameSettings, Names};
use myriad_translate::FindingsChange;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::control::Event;
use crate::settings::{AcmeSettings, ISSUER};
use crate::wishes::{ChangedWishes, WantedCertificate, Wishes};
use proof::Proof;
use steps::{Steps, now};
use store::{AcmeStore, Lock};

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
}

/// Certificates that are being obtained. They are not any more once this is dropped.
pub struct Acme {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Acme {
    /// Starts on a thread of its own. Certificates that are kept are in the inbox before it
    /// returns, so that they are part of the first list.
    ///
    /// # Errors
    /// The state directory or the roots cannot be read, or the thread cannot be started.
    pub fn start(
        settings: &AcmeSettings,
        around: Surroundings,
        metrics: &Metrics,
    ) -> anyhow::Result<Acme> {
        let folder = &settings.state_dir;
        let store = AcmeStore::open(folder);
        let store = store.with_context(|| format!("--acme-state-dir {}", folder.display()))?;
        let kept = store.certificates()?;
        let changes = kept.into_iter().map(|kept| Change::Put(kept.object));
        let batch = Batch {
            changes: changes.collect(),
            ..Batch::default()
        };
        let config = client_config(settings)?;
        if !batch.changes.is_empty() {
            around.inbox.try_send(Event::Changed(batch))?;
        }
        let counters = Counters::new(metrics);
        let stop = CancellationToken::new();
        let (settings, stopped) = (settings.clone(), stop.clone());
        let run = move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = match runtime.enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "obtains no certificates"),
            };
            let local = tokio::task::LocalSet::new();
            let running = run(&settings, config, store, around, counters);
            local.block_on(&runtime, async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    ended = running => {
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
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

async fn run(
    settings: &AcmeSettings,
    config: Arc<ClientConfig>,
    store: AcmeStore,
    around: Surroundings,
    counters: Counters,
) -> io::Result<()> {
    // Counted by nobody: those of endpoints are others.
    let names = Names::new(around.names, &Metrics::new());
    let steps = Rc::new(Steps {
        issuer: settings.issuer.clone(),
        client: http::Client::new(config, names.clone()),
        proof: Proof {
            port: settings.proof_port,
            own: own_address(around.http),
            names,
        },
        store,
        inbox: around.inbox,
        accounts: RefCell::default(),
    });
    let _lock = lock(&steps.store).await?;
    let (outcomes, results) = mpsc::channel(OUTCOMES_MAX);
    let mut office = Office {
        desk: Desk::new(settings.bounds, random_seed()),
        steps,
        objects: HashMap::new(),
        told: BTreeMap::new(),
        is_swept: false,
        outcomes,
        counters,
    };
    office.restore().await?;
    office.run(around.wishes, results).await;
    Ok(())
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
    /// Whether it is known what is wanted, and the rest is forgotten.
    is_swept: bool,
    outcomes: mpsc::Sender<Ended>,
    counters: Counters,
}

impl Office {
    /// Takes in what was kept.
    async fn restore(&mut self) -> io::Result<()> {
        let now = now();
        let issuer = self.steps.issuer.clone();
        let effects = self.desk.put_issuer(ISSUER, issuer, now);
        self.carry_out(effects).await;
        for order in self.steps.store.orders()? {
            self.steps.resume(&order).await;
            self.desk.restore_order(order, now);
        }
        for kept in self.steps.store.certificates()? {
            self.desk.restore_certificate(&kept.id, kept.held, now);
            // A process before may have put another one there meanwhile.
            self.steps.serve(kept.object).await;
        }
        Ok(())
    }

    async fn run(&mut self, wishes: Wishes, mut results: mpsc::Receiver<Ended>) {
        let mut count = tokio::time::interval(COUNT_PAUSE);
        loop {
            self.begin().await;
            tokio::select! {
                news = wishes.next() => self.take(news).await,
                Some((task, result)) = results.recv() => self.end(&task, result).await,
                () = until(self.desk.due()) => {}
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
            Ok(StepOutcome::Issued(held)) => {
                self.counters.issued.inc();
                tracing::info!(secret = %task.id, names = held.names.len(), "has a certificate");
            }
            Err(trouble) => {
                self.counters.failed.inc();
                tracing::debug!(secret = %task.id, step = ?task.step, ?trouble, "a step failed");
            }
            Ok(_) => {}
        }
        let effects = self.desk.done(task, result, now());
        self.carry_out(effects).await;
    }

    async fn take(&mut self, news: ChangedWishes) {
        let now = now();
        for (secret, wanted) in news.changed {
            let effects = match wanted {
                Some(wanted) => self.want(&secret, wanted, now),
                None => {
                    self.objects.remove(&secret);
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

    fn want(&mut self, secret: &Arc<str>, wanted: WantedCertificate, now: Millis) -> Vec<Effect> {
        let count = wanted.names.len();
        self.objects.insert(secret.clone(), wanted.objects);
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
        self.desk.want(secret, wish, now)
    }

    /// Forgets certificates that are over and that nobody wants.
    fn clean(&self, now: Millis) {
        let kept = match self.steps.store.certificates() {
            Ok(kept) => kept,
            Err(error) => return tracing::warn!(%error, "certificates that are over stay"),
        };
        for kept in kept {
            if kept.is_over(now) && !self.objects.contains_key(&kept.id) {
                let dropped = self.steps.store.drop_certificate(&kept.id);
                if let Err(error) = dropped {
                    tracing::warn!(secret = %kept.id, %error, "stays, although it is over");
                }
            }
        }
    }

    async fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(order) => {
                    if let Err(error) = self.steps.store.keep_order(&order) {
                        tracing::error!(secret = %order.id, %error, "its order is not kept");
                    }
                    if order.stage.placed().is_none() {
                        self.steps.withdraw(&order.id).await;
                    }
                }
                Effect::Drop(id) => {
                    if let Err(error) = self.steps.store.drop_order(&id) {
                        tracing::error!(secret = %id, %error, "its order is not forgotten");
                    }
                    self.steps.withdraw(&id).await;
                }
                Effect::Tell(id, notice) => self.tell(&id, notice).await,
            }
        }
    }

    /// Tells people how it is with a certificate.
    async fn tell(&mut self, id: &Arc<str>, notice: Option<TroubleNotice>) {
        let removed = self.told.remove(id).unwrap_or_default();
        let objects = self.objects.get(id);
        let findings = notice.iter().flat_map(|notice| {
            let objects = objects.into_iter().flatten();
            objects.map(move |object| Arc::new(finding(object, id, notice)))
        });
        let added: Vec<Arc<Finding>> = findings.collect();
        if added == removed {
            if !added.is_empty() {
                self.told.insert(id.clone(), added);
            }
            return;
        }
        if !added.is_empty() {
            self.told.insert(id.clone(), added.clone());
        }
        let change = FindingsChange { added, removed };
        // A loop that has ended tells nobody anything.
        let _ = self.steps.inbox.send(Event::Found(change)).await;
    }
}

fn finding(object: &ObjectKey, id: &str, notice: &TroubleNotice) -> Finding {
    let message = format!("the certificate in Secret {id} {}", notice.message);
    Finding::new(Severity::Error, object, "", message, &*notice.remedy)
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

/// Numbers for metrics.
struct Counters {
    wanted: Gauge,
    held: Gauge,
    open: Gauge,
    failing: Gauge,
    issued: Counter,
    failed: Counter,
}

impl Counters {
    fn new(metrics: &Metrics) -> Counters {
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            metrics.register(name, help, gauge.clone());
            gauge
        };
        let counter = |name: &str, help: &str| {
            let counter = Counter::default();
            metrics.register(name, help, counter.clone());
            counter
        };
        Counters {
            wanted: gauge("acme_wanted", "Certificates that are wanted of an issuer"),
            held: gauge(
                "acme_held",
                "Certificates that are wanted of an issuer and are there",
            ),
            open: gauge("acme_orders", "Orders that an authority has"),
            failing: gauge(
                "acme_orders_failing",
                "Orders that failed and wait to be tried again",
            ),
            issued: counter("acme_issued", "Certificates that were obtained"),
            failed: counter("acme_failures", "Steps of orders that failed"),
        }
    }

    fn show(&self, desk: &Desk) {
        let counts = desk.counts();
        for (gauge, count) in [
            (&self.wanted, counts.wanted),
            (&self.held, counts.held),
            (&self.open, counts.open),
            (&self.failing, counts.failing),
        ] {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
