//! Reports of what the proxies of other replicas serve.
//!
//! A proxy follows one replica, and only that one hears what it has put into service. Each replica
//! that does not lead says in a ConfigMap of the controllers' namespace how many ready proxies it
//! has and which objects they do not serve yet, at most once a second; the leader reads that while
//! somebody waits for an object. Without the right to it the leader knows its own proxies alone.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::clock::{self, Instant};
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{CallError, Client, Texts};
use tokio::sync::{Notify, mpsc, oneshot};

use self::report::{Report, group_name};
use crate::control::{Event, Progress};
use crate::live::{Live, ProxyGroup};
use crate::stated::Revisions;

/// The ConfigMap.
const NAME: &str = "myriad-live";

/// How often a report is written at most, and how often those of others are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often a report is written although it says the same: who does not is gone.
const BEAT_INTERVAL: Duration = Duration::from_secs(15);

/// After which time without a beat a replica is gone, and its proxies follow another.
const SILENT_MAX: Duration = Duration::from_secs(45);

/// After which time what it has said is removed.
const REMOVED_AFTER: Duration = Duration::from_secs(600);

/// How long one who begins to lead waits for the words of others, before it says what is served.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// The largest report that is read, in bytes.
const REPORT_BYTES_MAX: usize = 128 << 10;

/// The most replicas whose reports are read.
const REPLICAS_MAX: usize = 64;

/// The words of other replicas. Cheap to clone; clones are one.
#[derive(Clone, Default)]
pub(super) struct Peers {
    state: Arc<Mutex<State>>,
    /// Wakes whoever looks again at the objects that waited for others.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    reports: BTreeMap<String, Heard>,
    /// Objects that proxies of others do not serve yet.
    waiting: BTreeSet<ObjectKey>,
    /// Objects among them that are to be looked at again.
    due: BTreeSet<ObjectKey>,
}

/// A report, and when it was last another one.
struct Heard {
    text: String,
    report: Report,
    at: Instant,
}

/// An object that is asked for: in which namespaces somebody decides what becomes of it, and how
/// far this replica had read when it changed.
pub(super) struct AwaitedObject<'a> {
    pub key: &'a ObjectKey,
    pub namespaces: &'a [&'a str],
    pub read: Option<&'a Revisions>,
}

/// Keeps the reports.
pub(super) struct PeerKeeper {
    pub client: Client,
    /// The namespace of the controllers.
    pub namespace: String,
    /// The name of this replica.
    pub own: String,
    pub leads: Claim,
    pub live: Live,
    pub inbox: mpsc::Sender<Event>,
    pub peers: Peers,
}

impl Peers {
    /// How many ready proxies other replicas have in a group, and whether one of those replicas
    /// may have some that do not serve an object. Then the object waits.
    pub(super) fn served(&self, object: &AwaitedObject<'_>, group: &ProxyGroup) -> (usize, bool) {
        let mut state = self.lock();
        let (proxies, is_lacked) = state.served(object, group);
        if is_lacked {
            state.waiting.insert(object.key.clone());
        }
        (proxies, is_lacked)
    }

    /// The same, and the object does not begin to wait.
    pub(super) fn peek(&self, object: &AwaitedObject<'_>, group: &ProxyGroup) -> (usize, bool) {
        self.lock().served(object, group)
    }

    /// An object waits for the first proxy of another replica, since none is known that serves it.
    pub(super) fn await_first(&self, key: &ObjectKey) {
        self.lock().waiting.insert(key.clone());
    }

    /// An object is looked at: it waits no more, unless that is found anew.
    pub(super) fn let_go(&self, key: &ObjectKey) {
        self.lock().waiting.remove(key);
    }

    /// Waits for objects to look at again, since another replica has said something new, and takes
    /// them. Dropping the future loses nothing. For one task at a time.
    pub(super) async fn next_due(&self) -> BTreeSet<ObjectKey> {
        loop {
            let due = std::mem::take(&mut self.lock().due);
            if !due.is_empty() {
                return due;
            }
            self.news.notified().await;
        }
    }

    /// Takes in what other replicas say, by their names. Returns those that have been silent for
    /// so long that what they said can go.
    fn hear(&self, texts: &Texts, own: &str, now: Instant) -> Vec<String> {
        let mut state = self.lock();
        let mut is_new = false;
        for (name, text) in texts.iter().filter(|(name, _)| *name != own) {
            if state.reports.get(name).is_some_and(|it| it.text == *text) {
                continue;
            }
            let has_room = state.reports.len() < REPLICAS_MAX || state.reports.contains_key(name);
            if text.len() > REPORT_BYTES_MAX || !has_room {
                continue;
            }
            // One that cannot be read is of a newer build: nothing is known of its proxies.
            let heard = Heard {
                report: Report::read(text),
                text: text.clone(),
                at: now,
            };
            state.reports.insert(name.clone(), heard);
            is_new = true;
        }
        let mut over = Vec::new();
        state.reports.retain(|name, heard| {
            let silent = now.saturating_duration_since(heard.at);
            let is_there = texts.contains_key(name);
            is_new |= !is_there;
            if is_there && silent >= REMOVED_AFTER {
                over.push(name.clone());
            }
            if silent >= SILENT_MAX && !heard.report.is_empty() {
                heard.report = Report::default();
                is_new = true;
            }
            is_there && silent < REMOVED_AFTER
        });
        if is_new {
            let waiting = std::mem::take(&mut state.waiting);
            state.due.extend(waiting);
            self.news.notify_one();
        }
        over
    }

    /// Whether an object waits for others.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn served(&self, object: &AwaitedObject<'_>, group: &ProxyGroup) -> (usize, bool) {
        let group = group_name(group);
        let reports = self.reports.values().map(|heard| &heard.report);
        let with_proxies = reports.filter(|it| it.proxies_of(&group) > 0);
        let (mut proxies, mut is_lacked) = (0, false);
        for report in with_proxies {
            proxies += report.proxies_of(&group);
            is_lacked |= report.lacks(object);
        }
        (proxies, is_lacked)
    }
}

impl PeerKeeper {
    /// Keeps them for ever.
    pub(super) async fn keep(self) {
        let mut written: Option<(String, Instant)> = None;
        let mut read_at: Option<Instant> = None;
        let mut told: Option<String> = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let now = clock::now();
            let done = if self.leads.holds(now) {
                written = None;
                let is_due = read_at.is_none_or(|at| now >= at + BEAT_INTERVAL);
                match is_due || self.peers.is_waited_for() {
                    true => {
                        read_at = Some(now);
                        self.read(now).await
                    }
                    false => Ok(()),
                }
            } else {
                // Who begins to lead reads them at once.
                read_at = None;
                self.write(&mut written, now).await
            };
            let problem = done.err().map(|error| error.to_string());
            if let Some(problem) = problem.as_ref().filter(|_| told != problem) {
                let namespace = &self.namespace;
                tracing::warn!(
                    namespace,
                    name = NAME,
                    "what the proxies of other replicas serve is not known: {problem}"
                );
            }
            told = problem;
        }
    }

    /// Reads what others say, and removes what those said that are long gone.
    async fn read(&self, now: Instant) -> Result<(), CallError> {
        let texts = match self.client.config_map(&self.namespace, NAME).await {
            Ok(map) => map.texts,
            Err(CallError::NotFound) => Texts::new(),
            Err(error) => return Err(error),
        };
        for name in self.peers.hear(&texts, &self.own, now) {
            self.client
                .patch_config_map(&self.namespace, NAME, (&name, None))
                .await?;
        }
        Ok(())
    }

    /// Says what the proxies of this replica serve, if that is news.
    async fn write(
        &self,
        written: &mut Option<(String, Instant)>,
        now: Instant,
    ) -> Result<(), CallError> {
        let Some(report) = self.report().await else {
            return Ok(());
        };
        // Who has never had a proxy has nothing to say.
        if report.is_empty() && written.is_none() {
            return Ok(());
        }
        let text = report.text();
        let is_told = written.as_ref().is_some_and(|(known, at)| {
            *known == text && now.saturating_duration_since(*at) < BEAT_INTERVAL
        });
        if is_told {
            return Ok(());
        }
        // Equal words would be taken for silence.
        let beaten = report.with_beat(clock::unix_seconds()).text();
        let entry = (&*self.own, Some(&*beaten));
        match self
            .client
            .patch_config_map(&self.namespace, NAME, entry)
            .await
        {
            Err(CallError::NotFound) => {
                let texts = Texts::from([(self.own.clone(), beaten)]);
                let created = self
                    .client
                    .write_config_map(&self.namespace, NAME, None, &texts)
                    .await;
                match created {
                    // Another replica was first; the next turn writes beside it.
                    Ok(()) | Err(CallError::Conflict) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        *written = Some((text, now));
        Ok(())
    }

    /// How it is here; none once the control loop has ended.
    async fn report(&self) -> Option<Report> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Event::Progress(answer)).await.ok()?;
        let progress: Progress = answered.await.ok()?;
        // Asked after it, so that an object of that progress waits, or is served.
        let waiting = self.live.waiting_objects();
        Some(Report::new(progress, &self.live.ready_proxies(), waiting))
    }
}

#[cfg(test)]
mod tests;
