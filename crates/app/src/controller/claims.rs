//! Keeps what no object tells of claims to hosts, ports and names: since when an object claims one
//! that it came to after its creation, and what of it it left a short while ago. The leader writes
//! it to ConfigMaps of the controllers' own namespace, and all replicas read it, before they list
//! anything, before anybody is told of what they listed, a few times soon after that, and then
//! again and again: whoever edits an object without end is seen by the leader, who writes it in a
//! second.
//!
//! Each replica sees edits itself, and what the ConfigMaps say holds before that. Every write rests
//! on what was read, so two that believe to lead lose nothing of each other.

mod book;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::drain::Drained;
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{CallError, Client, OwnConfigMap, Texts};
use myriad_translate::{ClaimsChange, FindingsChange};
use tokio::sync::{Notify, mpsc};

use self::book::{Book, SHARDS};
use crate::control::Event;

/// The ConfigMaps, with a number behind it.
const NAME: &str = "myriad-claims";

/// The key in them.
const KEY: &str = "claims";

/// How often a ConfigMap is written at most, and how soon a change is.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// How often they are read, and how soon one is tried again that could not be written.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How often they are read after the first list, and how many times: what was edited just before is
/// written after it.
const LOOK_INTERVAL_SOON: Duration = Duration::from_secs(2);
const LOOKS_SOON: u32 = 3;

/// How long is waited before the API server is asked again for what is read first.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The claims to write; the control loop tells them, and the keeper writes them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Claims {
    book: Arc<Mutex<Book>>,
    changed: Arc<Notify>,
    /// Whether the first list has ended, and nobody has looked since.
    is_listed: Arc<AtomicBool>,
}

/// The claims that were read before anything was translated.
#[derive(Default)]
pub struct Known {
    /// The claims.
    pub claims: ClaimsChange,
    /// The text of each ConfigMap, by its number.
    texts: BTreeMap<usize, String>,
    problem: Option<Finding>,
}

/// Reads and writes the ConfigMaps.
pub struct ClaimKeeper {
    client: Client,
    /// The namespace of the controllers.
    namespace: String,
    claims: Claims,
    /// The inbox of claims that others have seen, and of findings.
    inbox: mpsc::Sender<Event>,
    /// Whether this process leads.
    leads: Claim,
    known: Known,
    looks: Looks,
    /// No write before then.
    rest: Instant,
}

/// When all are read.
struct Looks {
    /// When they were read last.
    last: Instant,
    /// How many times they are read soon.
    soon: u32,
}

/// The outcome for one ConfigMap.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It says what there is to say.
    Done,
    /// Claims that others have written have to be taken in first.
    Again,
}

impl Known {
    /// The text of a ConfigMap when it was read or written last.
    fn text(&self, shard: usize) -> &str {
        self.texts.get(&shard).map_or("", String::as_str)
    }
}

impl Claims {
    /// Takes in what changed.
    pub fn take(&self, change: ClaimsChange) {
        if !change.is_empty() {
            self.lock().take(change);
            self.changed.notify_one();
        }
    }

    /// Lets them be read soon, since the first list has ended.
    pub fn hasten(&self) {
        self.is_listed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what is kept. Without the right to, or where nothing is there yet, all claims are as old
/// as their objects; a server that cannot be asked is asked until it can.
pub async fn load(client: &Client, namespace: &str) -> Known {
    let mut known = Known::default();
    for shard in 0..SHARDS {
        match load_one(client, namespace, shard).await {
            Ok(body) => {
                let (claims, unread) = text::read(&body);
                if unread > 0 {
                    let name = name(shard);
                    tracing::warn!(namespace, name, lines = unread, "claims that are not read");
                }
                known.claims.objects.extend(claims.objects);
                known.claims.beyond.extend(claims.beyond);
                known.texts.insert(shard, body);
            }
            Err(error) => {
                let problem = finding(namespace, shard, &error);
                tracing::warn!("{problem}");
                known.problem.get_or_insert(problem);
            }
        }
    }
    known
}

async fn load_one(client: &Client, namespace: &str, shard: usize) -> Result<String, CallError> {
    loop {
        match client.config_map(namespace, &name(shard)).await {
            Ok(map) => return Ok(body(map)),
            Err(CallError::NotFound) => return Ok(String::new()),
            Err(error @ (CallError::Forbidden(_) | CallError::Rejected(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "claims to hosts cannot be read; trying again");
                tokio::time::sleep(RETRY_INTERVAL.max(error.retry_after())).await;
            }
        }
    }
}

impl Looks {
    fn interval(&self) -> Duration {
        match self.soon {
            0 => LOOK_INTERVAL,
            _ => LOOK_INTERVAL_SOON,
        }
    }

    /// Whether all are to be read now.
    fn take(&mut self, now: Instant) -> bool {
        if now < self.last + self.interval() {
            return false;
        }
        self.last = now;
        self.soon = self.soon.saturating_sub(1);
        true
    }
}

impl ClaimKeeper {
    /// Goes on from what was read first.
    pub fn new(
        (client, namespace): (Client, String),
        claims: Claims,
        inbox: mpsc::Sender<Event>,
        leads: Claim,
        known: Known,
    ) -> ClaimKeeper {
        let now = clock::now();
        ClaimKeeper {
            client,
            namespace,
            claims,
            inbox,
            leads,
            known,
            looks: Looks { last: now, soon: 0 },
            rest: now,
        }
    }

    /// Keeps them until the process drains; who leads then writes what is left.
    pub async fn keep(mut self, drained: Drained) {
        let problem = self.known.problem.clone();
        if let Some(problem) = problem.clone() {
            self.tell(None, Some(problem)).await;
        }
        let mut told = problem;
        let mut did_lead = false;
        loop {
            if self.claims.is_listed.swap(false, Ordering::AcqRel) {
                self.looks.soon = LOOKS_SOON;
            }
            let interval = self.looks.interval();
            let is_over = tokio::select! {
                () = drained.signalled() => true,
                () = self.claims.changed.notified() => false,
                // What the former leader has seen last may not be written.
                () = self.leads.acquired(), if !did_lead => false,
                () = tokio::time::sleep(interval) => false,
            };
            let now = clock::now();
            let leads = self.leads.holds(now);
            if is_over {
                // The Lease is given back at this moment; what is written rests on what was read.
                if leads || did_lead {
                    drop(self.write_all().await);
                }
                return;
            }
            did_lead = leads;
            let found = match self.turn(leads, now).await {
                None => continue,
                Some(found) => found,
            };
            if found != told {
                self.tell(told.take(), found.clone()).await;
                told = found;
            }
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }

    /// Writes or reads what is due, and says what is wrong; none where nothing was due.
    async fn turn(&mut self, leads: bool, now: Instant) -> Option<Option<Finding>> {
        if leads && now >= self.rest && self.claims.lock().is_dirty() {
            let written = self.write_all().await;
            if written.is_err() {
                self.rest = clock::now() + LOOK_INTERVAL;
            }
            return Some(written.err());
        }
        if !self.looks.take(now) {
            return None;
        }
        let mut problem = None;
        for shard in 0..SHARDS {
            match self.client.config_map(&self.namespace, &name(shard)).await {
                Ok(map) => self.learn(shard, body(map)).await,
                // One that was deleted comes back.
                Err(CallError::NotFound) if !self.known.text(shard).is_empty() => {
                    self.claims.lock().touch(shard);
                    self.claims.changed.notify_one();
                }
                Err(CallError::NotFound) => {}
                Err(error) => problem = problem.or(self.judge(shard, &error)),
            }
        }
        Some(problem)
    }

    async fn write_all(&mut self) -> Result<(), Finding> {
        for shard in 0..SHARDS {
            let text = self.claims.lock().text(shard);
            let text = match text {
                None => continue,
                Some(Ok(text)) => text,
                Some(Err(namespace)) => {
                    // What cannot be kept must not be forgotten either.
                    tracing::warn!(%namespace, "has too many claims to be kept: it claims last");
                    // A control loop that has ended tells nobody anything any more.
                    let _ = self.inbox.send(Event::Overrun(namespace)).await;
                    continue;
                }
            };
            match self.write(shard, &text).await {
                Ok(Outcome::Done) => self.claims.lock().written(shard, &text),
                // The book says so once the control loop has taken it in.
                Ok(Outcome::Again) | Err(CallError::Conflict) => self.claims.changed.notify_one(),
                Err(error) => {
                    if let Some(problem) = self.judge(shard, &error) {
                        return Err(problem);
                    }
                    self.claims.changed.notify_one();
                }
            }
        }
        Ok(())
    }

    /// Writes a text, unless somebody else has written what is not known here.
    async fn write(&mut self, shard: usize, text: &str) -> Result<Outcome, CallError> {
        let (namespace, name) = (&self.namespace, name(shard));
        let read = match self.client.config_map(namespace, &name).await {
            Ok(map) => Some(map),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let there = read.as_ref().and_then(|map| map.texts.get(KEY));
        let there = there.map_or("", String::as_str);
        if there == text {
            self.known.texts.insert(shard, text.to_owned());
            return Ok(Outcome::Done);
        }
        // Where it was deleted, what is known here is written anew.
        if read.is_some() && there != self.known.text(shard) {
            let there = there.to_owned();
            self.learn(shard, there).await;
            return Ok(Outcome::Again);
        }
        let texts = Texts::from([(KEY.to_owned(), text.to_owned())]);
        let written = self
            .client
            .write_config_map(namespace, &name, read.as_ref(), &texts);
        written.await?;
        self.known.texts.insert(shard, text.to_owned());
        Ok(Outcome::Done)
    }

    /// Passes on what others have written.
    async fn learn(&mut self, shard: usize, there: String) {
        if there == self.known.text(shard) {
            return;
        }
        let (claims, _) = text::read(&there);
        self.known.texts.insert(shard, there);
        // A control loop that has ended tells nobody anything any more.
        let _ = self.inbox.send(Event::Learned(claims)).await;
    }

    /// The finding about an error; `None` of one that passes.
    fn judge(&self, shard: usize, error: &CallError) -> Option<Finding> {
        match error {
            CallError::Forbidden(_) | CallError::Rejected(_) => {
                Some(finding(&self.namespace, shard, error))
            }
            error => {
                tracing::debug!(%error, "claims to hosts are not kept; trying again");
                None
            }
        }
    }

    async fn tell(&self, former: Option<Finding>, found: Option<Finding>) {
        if let Some(found) = &found {
            tracing::warn!("{found}");
        }
        let change = FindingsChange {
            added: found.into_iter().map(Arc::new).collect(),
            removed: former.into_iter().map(Arc::new).collect(),
        };
        // A control loop that has ended tells nobody anything any more.
        let _ = self.inbox.send(Event::Found(change)).await;
    }
}

fn name(shard: usize) -> String {
    format!("{NAME}-{shard}")
}

fn body(mut map: OwnConfigMap) -> String {
    map.texts.remove(KEY).unwrap_or_default()
}

fn finding(namespace: &str, shard: usize, error: &CallError) -> Finding {
    let object = ObjectKey::new(ObjectKind::ConfigMap, namespace, &name(shard));
    Finding::new(
        Severity::Error,
        &object,
        "",
        format!(
            "cannot be read or written ({error}), so that after a restart an object has every host \
             as if it had claimed it since its creation"
        ),
        "grant create on ConfigMaps, and get and patch on myriad-claims-0 to myriad-claims-7, to \
         the controller's service account, as the chart does",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_base::clock;

    use super::{Claims, LOOK_INTERVAL, LOOK_INTERVAL_SOON, LOOKS_SOON, Looks};

    #[test]
    fn after_the_first_list_all_are_read_a_few_times_soon() {
        let start = clock::now();
        let mut looks = Looks {
            last: start,
            soon: LOOKS_SOON,
        };
        let step = Duration::from_millis(500);
        let mut times = Vec::new();
        for number in 0..200 {
            let now = start + step * number;
            if looks.take(now) {
                times.push(now.duration_since(start));
            }
        }
        let soon = LOOK_INTERVAL_SOON * LOOKS_SOON;
        let expected = [1, 2, 3].map(|count| LOOK_INTERVAL_SOON * count);
        let later = [1, 2, 3].map(|count| soon + LOOK_INTERVAL * count);
        assert_eq!(times, [expected, later].concat());
    }

    #[tokio::test]
    async fn the_end_of_the_first_list_wakes_the_keeper() {
        let claims = Claims::default();
        claims.hasten();
        claims.changed.notified().await;
        assert!(claims.is_listed.load(std::sync::atomic::Ordering::Acquire));
    }
}
