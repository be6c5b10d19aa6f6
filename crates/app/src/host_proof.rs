//! Proofs of whose a host is: of those that several namespaces claim, DNS is asked whom the owner
//! of the zone has named, and what comes of it enters the control loop's inbox like any change.
//!
//! An answer counts once it is kept, in a file or in a ConfigMap that every controller follows. So
//! all replicas say the same, and nobody loses a host because a process, or DNS, is away: who has
//! one by a proof has it until another namespace proves it.

mod book;
mod decided;
mod desk;
mod looking;
mod record;
mod store;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use myriad_api::{Batch, Change, Finding, HostProof, Object, ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_base::task;
use myriad_model::Host;
use myriad_proxy::NameSettings;
use myriad_source::kubernetes::Client;
use myriad_source::kubernetes::lease::Claim;
use myriad_translate::FindingsChange;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use crate::acme::TextFinder;
use crate::control::Event;
use crate::rivals::Rivals;
use crate::settings::ProofSettings;
use book::{PROOFS_MAX, PROOFS_PER_NAMESPACE_MAX, ProofBook};
use decided::DecidedProofs;
use desk::{IN_FLIGHT_MAX, ProofDesk, ProofQuestion, ProofVerdict};
use looking::NamedOwners;
use store::{CONFIG_MAP, ProofStore, StoreError, Written};

/// How often is looked at what others have written, and how soon a write is tried again.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest pause between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// How long is waited before the API server is asked again for what is read first.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The parts of a process that hosts are proven with.
pub struct ProofParts {
    /// The control loop.
    pub inbox: mpsc::Sender<Event>,
    /// The hosts that several namespaces claim.
    pub rivals: Rivals,
    /// The servers of DNS, and where those of zones may be.
    pub names: NameSettings,
}

/// The proofs that were read before anything was translated.
pub struct KnownProofs {
    store: ProofStore,
    text: String,
    book: ProofBook,
    problem: Option<Finding>,
}

/// Hosts that are being proven. They are not any more once this is dropped.
pub struct Proving {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Proving {
    /// Starts on a thread of its own, with proofs that are kept in a file. They are in the inbox
    /// before it returns, so that they are part of the first list.
    ///
    /// # Errors
    /// The file cannot be read, or the thread cannot be started.
    pub fn start(
        settings: &ProofSettings,
        parts: ProofParts,
        metrics: &Metrics,
    ) -> anyhow::Result<Proving> {
        let path = &settings.file;
        let text = store::read_file(path);
        let text = text.with_context(|| format!("--host-proof-file {}", path.display()))?;
        let known = KnownProofs::of(ProofStore::File(path.clone()), text);
        if let Some(event) = known.event() {
            parts.inbox.try_send(event)?;
        }
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (settings, counters) = (settings.clone(), ProofCounters::new(metrics));
        let run = move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = match runtime.enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "proves no hosts"),
            };
            let steps = LocalSet::new();
            let keeping = keep(known, &settings, parts, None, counters);
            runtime.block_on(steps.run_until(async {
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = keeping => {}
                }
            }));
        };
        let thread = std::thread::Builder::new().name("host proofs".to_owned());
        Ok(Proving {
            stop,
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Proving {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic has been told of.
            let _ = thread.join();
        }
    }
}

/// Reads the proofs that the controllers keep, which are in the inbox when this returns. A server
/// that cannot be asked is asked until it can: without them other namespaces would have hosts.
pub async fn load(client: &Client, namespace: &str, inbox: &mpsc::Sender<Event>) -> KnownProofs {
    let store = ProofStore::Cluster(client.clone(), namespace.to_owned());
    let read = loop {
        match store.read().await {
            Ok(text) => break Ok(text),
            Err(error) if error.is_lasting() => break Err(error),
            Err(error) => tracing::warn!(%error, "proofs of hosts cannot be read; trying again"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    };
    let known = match read {
        Ok(text) => KnownProofs::of(store, text),
        Err(error) => {
            let problem = store_problem(namespace, &error);
            tracing::warn!("{problem}");
            KnownProofs {
                problem: Some(problem),
                ..KnownProofs::of(store, String::new())
            }
        }
    };
    if let Some(event) = known.event() {
        // A control loop that has ended asks for nothing any more.
        let _ = inbox.send(event).await;
    }
    known
}

/// Keeps proofs in a cluster, for as long as the process lives. DNS is asked while it leads.
pub async fn keep_in_cluster(
    known: KnownProofs,
    settings: ProofSettings,
    parts: ProofParts,
    leads: Claim,
    metrics: Metrics,
) {
    let counters = ProofCounters::new(&metrics);
    keep(known, &settings, parts, Some(leads), counters).await;
}

impl KnownProofs {
    fn of(store: ProofStore, text: String) -> KnownProofs {
        let (book, unread) = ProofBook::read(&text);
        if unread > 0 {
            tracing::warn!(lines = unread, "proofs of hosts that are not read");
        }
        KnownProofs {
            store,
            text,
            book,
            problem: None,
        }
    }

    /// The event that tells the control loop of them; none where there are none.
    fn event(&self) -> Option<Event> {
        changed(difference(&ProofBook::default(), &self.book))
    }
}

/// Asks, decides, keeps and tells.
async fn keep(
    known: KnownProofs,
    settings: &ProofSettings,
    parts: ProofParts,
    leads: Option<Claim>,
    counters: ProofCounters,
) {
    let (outcomes, mut results) = mpsc::channel(IN_FLIGHT_MAX);
    let mut keeper = ProofKeeper {
        finder: Rc::new(TextFinder::new(parts.names, settings.port)),
        installation: Arc::from(&*settings.installation),
        desk: ProofDesk::new(clock::now()),
        kept: known.book,
        text: known.text,
        decided: DecidedProofs::new(clock::now()),
        store: known.store,
        inbox: parts.inbox,
        leads,
        did_lead: false,
        outcomes,
        rest: clock::now(),
        looked: clock::now(),
        problem: None,
        counters,
    };
    keeper.tell(known.problem).await;
    loop {
        keeper.begin().await;
        keeper.settle().await;
        keeper.count();
        let due = keeper.due();
        tokio::select! {
            disputes = parts.rivals.next() => {
                let now = clock::now();
                for dispute in disputes {
                    keeper.desk.take(dispute, now);
                }
            }
            Some((question, found)) = results.recv() => keeper.end(&question, found),
            () = keeper.newly_leads() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

/// The namespaces that a record names, or words about why nobody says.
type FoundOwners = Result<NamedOwners, String>;

/// The desk and the book, and the hands that do what they say.
struct ProofKeeper {
    finder: Rc<TextFinder>,
    installation: Arc<str>,
    desk: ProofDesk,
    /// The proofs that are kept and told of, and their text as it was read or written last.
    kept: ProofBook,
    text: String,
    /// The proofs that are to be kept or forgotten.
    decided: DecidedProofs,
    store: ProofStore,
    inbox: mpsc::Sender<Event>,
    /// Whether this process leads; none where it is the only one.
    leads: Option<Claim>,
    did_lead: bool,
    outcomes: mpsc::Sender<(ProofQuestion, FoundOwners)>,
    /// No write before then.
    rest: Instant,
    /// When it was looked at what others have written.
    looked: Instant,
    problem: Option<Finding>,
    counters: ProofCounters,
}

impl ProofKeeper {
    fn leads(&self) -> bool {
        let leads = self.leads.as_ref();
        leads.is_none_or(|leads| leads.holds(clock::now()))
    }

    /// Waits until this process begins to lead.
    async fn newly_leads(&self) {
        match &self.leads {
            Some(leads) if !self.did_lead => leads.acquired().await,
            _ => std::future::pending().await,
        }
    }

    /// When there is something to do that nobody tells of.
    fn due(&self) -> Instant {
        let mut due = self.looked + LOOK_INTERVAL;
        if self.did_lead {
            due = self.desk.due().map_or(due, |asked| asked.min(due));
            if let Some(decided) = self.decided.due() {
                due = due.min(decided.max(self.rest));
            }
        }
        due
    }

    /// Begins all questions that there are places for, where this process leads.
    async fn begin(&mut self) {
        let leads = self.leads();
        if leads && !self.did_lead {
            // What the one before has written last is to be known first.
            self.look().await;
        }
        self.did_lead = leads;
        if !leads {
            // Whoever leads decides.
            self.decided.clear();
            return;
        }
        while let Some(question) = self.desk.next(clock::now()) {
            self.counters.asked.inc();
            let (finder, outcomes) = (self.finder.clone(), self.outcomes.clone());
            let installation = self.installation.clone();
            let proven: Option<Box<str>> = self.proven(&question.host).map(Box::from);
            task::spawn_local("host proof", async move {
                let host = &question.host;
                let found = looking::look(&finder, &installation, host, proven.as_deref()).await;
                // Nobody is left to hear of it where the process ends.
                let _ = outcomes.send((question, found)).await;
            });
        }
    }

    /// Takes in an answer.
    fn end(&mut self, question: &ProofQuestion, found: FoundOwners) {
        let (host, now) = (&question.host, clock::now());
        let proven = self.decided.proven(host, self.kept.get(host));
        let named = match &found {
            // Where others have written another one meanwhile, it is asked of again.
            Ok(owners) => owners.trusted(proven),
            Err(words) => {
                self.counters.failed.inc();
                tracing::debug!(%host, words, "nobody says whose it is");
                None
            }
        };
        let verdict = self.desk.end(question, named, proven, now);
        // An answer that came too late is of one who leads no more.
        if !self.did_lead {
            return;
        }
        let proven = match verdict {
            None => return,
            Some(ProofVerdict::Proven(namespace)) => Some(namespace),
            Some(ProofVerdict::Released) => None,
        };
        let charged = question.charged();
        self.decided.decide(host, proven, charged, now);
    }

    /// The namespace that has proven a host, as it is known or was decided.
    fn proven(&self, host: &Host) -> Option<&str> {
        self.decided.proven(host, self.kept.get(host))
    }

    /// Keeps what was decided, or looks at what others have, where that is due.
    async fn settle(&mut self) {
        let now = clock::now();
        let is_due = self.decided.due().is_some_and(|due| due <= now);
        if is_due && now >= self.rest {
            let problem = self.write(now, false).await;
            self.tell(problem).await;
        } else if now >= self.looked + LOOK_INTERVAL {
            self.look().await;
        }
    }

    /// Keeps what was decided and is to be written by a moment, and tells of it. Where that is what
    /// is kept, it is written if it is to be anew. Returns what is wrong.
    async fn write(&mut self, now: Instant, is_anew: bool) -> Option<Finding> {
        let mut next = self.kept.clone();
        let mut full = None;
        for (host, namespace) in self.decided.ready(now) {
            match namespace {
                None => next.remove(host),
                Some(namespace) if next.get(host) == Some(namespace) => {}
                Some(namespace) if next.put(host, namespace, clock::unix_seconds()) => {}
                Some(namespace) => full = Some(too_many(host, namespace)),
            }
        }
        if next == self.kept && !is_anew {
            self.decided.written(now);
            return full.or_else(|| self.problem.clone());
        }
        let text = next.text();
        self.rest = clock::now() + WRITE_INTERVAL;
        match self.store.write(&self.text, &text).await {
            Ok(Written::Done) => {
                self.decided.written(now);
                self.text = text;
                self.replace(next).await;
                full
            }
            // What is decided is decided over that.
            Ok(Written::Other(text)) => {
                self.learn(text).await;
                self.problem.clone()
            }
            Err(error) => {
                self.rest = clock::now() + LOOK_INTERVAL;
                self.judge(&error)
            }
        }
    }

    /// Looks at what others have written. A file is nobody else's.
    async fn look(&mut self) {
        self.looked = clock::now();
        if let ProofStore::File(_) = self.store {
            return;
        }
        match self.store.read().await {
            // What was deleted is written anew by who leads, and nobody loses a host by that.
            Ok(text) if text.is_empty() && self.kept.len() > 0 => {
                if self.did_lead {
                    let problem = self.write(clock::now(), true).await;
                    self.tell(problem).await;
                }
            }
            Ok(text) => {
                self.learn(text).await;
                if self.problem.as_ref().is_some_and(is_of_store) {
                    self.tell(None).await;
                }
            }
            Err(error) => {
                let problem = self.judge(&error);
                self.tell(problem).await;
            }
        }
    }

    /// Takes in what others have written.
    async fn learn(&mut self, text: String) {
        if text == self.text {
            return;
        }
        let (book, unread) = ProofBook::read(&text);
        if unread > 0 {
            tracing::warn!(lines = unread, "proofs of hosts that are not read");
        }
        self.text = text;
        self.replace(book).await;
    }

    /// Tells the control loop of other proofs than before.
    async fn replace(&mut self, book: ProofBook) {
        let changes = difference(&self.kept, &book);
        for change in &changes {
            match change {
                Change::Put(Object::HostProof(proof)) => {
                    let (host, namespace) = (proof.meta.key.name(), &*proof.namespace);
                    tracing::info!(host, namespace, "has proven that a host is its own");
                }
                change => tracing::info!(host = change.key().name(), "is proven by nobody"),
            }
        }
        self.kept = book;
        if let Some(event) = changed(changes) {
            // A control loop that has ended asks for nothing any more.
            let _ = self.inbox.send(event).await;
        }
    }

    /// The finding about an error of the store; of one that passes, the one before.
    fn judge(&self, error: &StoreError) -> Option<Finding> {
        if !error.is_lasting() {
            tracing::debug!(%error, "proofs of hosts are not kept; trying again");
            return self.problem.clone();
        }
        match &self.store {
            ProofStore::Cluster(_, namespace) => Some(store_problem(namespace, error)),
            ProofStore::File(path) => {
                tracing::error!(path = %path.display(), %error, "proofs of hosts are not kept");
                None
            }
        }
    }

    /// Tells people what is wrong, and what is not any more.
    async fn tell(&mut self, problem: Option<Finding>) {
        if problem == self.problem {
            return;
        }
        if let Some(problem) = &problem {
            tracing::warn!("{problem}");
        }
        let former = std::mem::replace(&mut self.problem, problem.clone());
        let change = FindingsChange {
            added: problem.into_iter().map(Arc::new).collect(),
            removed: former.into_iter().map(Arc::new).collect(),
        };
        // A control loop that has ended tells nobody anything any more.
        let _ = self.inbox.send(Event::Found(change)).await;
    }

    fn count(&self) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.counters.disputed.set(number(self.desk.len()));
        self.counters.proven.set(number(self.kept.len()));
    }
}

/// The changes of objects from some proofs to others.
fn difference(before: &ProofBook, after: &ProofBook) -> Vec<Change> {
    let gone = before.iter().filter(|(host, _)| after.get(host).is_none());
    let gone = gone.map(|(host, _)| Change::Remove(HostProof::key_of(host.as_str())));
    let put = after
        .iter()
        .filter(|(host, namespace)| before.get(host) != Some(*namespace));
    let put = put.map(|(host, namespace)| {
        let proof = HostProof::new(host.as_str(), namespace);
        Change::Put(Object::HostProof(Arc::new(proof)))
    });
    gone.chain(put).collect()
}

fn changed(changes: Vec<Change>) -> Option<Event> {
    let batch = Batch {
        changes,
        ..Batch::default()
    };
    (!batch.changes.is_empty()).then_some(Event::Changed(batch))
}

fn is_of_store(problem: &Finding) -> bool {
    let object = problem.object.as_ref();
    object.is_some_and(|object| object.kind == ObjectKind::ConfigMap)
}

fn store_problem(namespace: &str, error: &StoreError) -> Finding {
    let object = ObjectKey::new(ObjectKind::ConfigMap, namespace, CONFIG_MAP);
    Finding::new(
        Severity::Error,
        &object,
        "",
        format!(
            "cannot be read or written ({error}), so that no namespace has a host by a proof that \
             is not known yet"
        ),
        format!(
            "grant create on ConfigMaps, and get and patch on {CONFIG_MAP}, to the controller's \
             service account, as the chart does with hostProof"
        ),
    )
}

fn too_many(host: &Host, namespace: &str) -> Finding {
    let object = HostProof::key_of(host.as_str());
    Finding::new(
        Severity::Warning,
        &object,
        "",
        format!(
            "is not kept for namespace {namespace}: there may be {PROOFS_PER_NAMESPACE_MAX} proofs \
             of a namespace and {PROOFS_MAX} in all"
        ),
        "let fewer hosts be claimed by several namespaces",
    )
}

/// The metrics.
struct ProofCounters {
    disputed: Gauge,
    proven: Gauge,
    asked: Counter,
    failed: Counter,
}

impl ProofCounters {
    fn new(metrics: &Metrics) -> ProofCounters {
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
        ProofCounters {
            disputed: gauge("hosts_disputed", "Hosts that several namespaces claim"),
            proven: gauge("hosts_proven", "Hosts that a namespace has by a proof"),
            asked: counter("host_proof_questions", "Questions whose a host is"),
            failed: counter(
                "host_proof_failures",
                "Questions whose a host is that nobody answered",
            ),
        }
    }
}
