//! The keys of tickets: secrets that the process makes and replaces itself, or ones that it is
//! given, which the other replicas of its gateway have as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use myriad_base::clock;
use myriad_base::metrics::{Counter, Family, Gauge, Metrics};

use super::NoKeys;

/// How long a secret of the process makes tickets, in seconds. It opens them for as long again.
pub(super) const ROTATION_SECONDS: i64 = 6 * 60 * 60;

/// A secret that tickets are made by. It cannot be printed.
#[derive(Clone)]
pub struct TicketSecret {
    /// When it came into use, in seconds since the epoch.
    pub since: i64,
    /// The secret.
    pub bytes: [u8; 32],
}

/// The secrets of a process.
pub struct TicketKeys {
    secrets: ArcSwap<Secrets>,
    replacing: Mutex<()>,
    counters: Counters,
}

/// All of them open tickets.
pub(super) struct Secrets {
    /// Keys that the process was given. The first one makes tickets, if there is one.
    given: Vec<TicketSecret>,
    /// Keys that the process has made, the newest first. They make tickets where none was given.
    own: Vec<TicketSecret>,
}

#[derive(Default)]
struct Counters {
    /// How many secrets there are, by where they come from.
    secrets: Family<[(&'static str, &'static str); 1], Gauge>,
    since: Gauge,
    changes: Counter,
}

impl TicketSecret {
    pub(super) fn new(now: i64) -> Result<Self, NoKeys> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| NoKeys)?;
        Ok(TicketSecret { since: now, bytes })
    }
}

impl TicketKeys {
    /// New ones, or those that a predecessor handed over, the newest first.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(mut inherited: Vec<TicketSecret>) -> Result<Self, NoKeys> {
        if inherited.is_empty() {
            inherited.push(TicketSecret::new(clock::unix_seconds())?);
        }
        let keys = TicketKeys {
            secrets: ArcSwap::from_pointee(Secrets {
                given: Vec::new(),
                own: inherited,
            }),
            replacing: Mutex::new(()),
            counters: Counters::default(),
        };
        keys.count(&keys.secrets.load());
        Ok(keys)
    }

    /// Shows where the secrets come from, how old the one in use is, and how often it changed.
    pub fn register(&self, metrics: &Metrics) {
        let Counters {
            secrets,
            since,
            changes,
        } = &self.counters;
        let help = "Keys that open session tickets; those of a file make them, where it has any";
        metrics.register("ticket_keys", help, secrets.clone());
        let help = "When the key that makes session tickets came into use, since 1970";
        metrics.register("ticket_key_timestamp_seconds", help, since.clone());
        let help = "Times that another key began to make session tickets";
        metrics.register("ticket_key_changes", help, changes.clone());
    }

    /// From now on tickets are made by the first of these, and opened by all of them as well as by
    /// those that the process made itself. What was given before is forgotten; none changes
    /// nothing. Says whether they are others than before.
    pub fn take(&self, mut given: Vec<TicketSecret>) -> bool {
        let _one = self.lock();
        let before = self.secrets.load_full();
        let are_known = given.len() == before.given.len()
            && (given.iter().zip(&before.given)).all(|(new, old)| new.bytes == old.bytes);
        let Some(first) = given.first_mut().filter(|_| !are_known) else {
            return false;
        };
        let used = before.given.first();
        match used.filter(|used| used.bytes == first.bytes) {
            Some(used) => first.since = used.since,
            None => drop(self.counters.changes.inc()),
        }
        let own = before.own.clone();
        self.store(Secrets { given, own });
        true
    }

    /// How many the process was given.
    pub fn given(&self) -> usize {
        self.secrets.load().given.len()
    }

    /// The keys that the process has made, for the process that takes over, the newest first. The
    /// next process is given the others itself, from where this one was.
    pub fn own(&self) -> Vec<TicketSecret> {
        self.secrets.load().own.clone()
    }

    pub(super) fn secrets(&self) -> Arc<Secrets> {
        self.secrets.load_full()
    }

    /// Whether these are still the ones.
    pub(super) fn are(&self, known: &Arc<Secrets>) -> bool {
        Arc::ptr_eq(&self.secrets.load(), known)
    }

    /// Replaces a secret of the process whose time has passed, if it makes tickets.
    pub(super) fn refresh(&self, now: i64) {
        if !self.secrets.load().is_due(now) {
            return;
        }
        let _one = self.lock();
        let before = self.secrets.load_full();
        if !before.is_due(now) {
            return;
        }
        // Without random numbers the old secret goes on, and the next ticket tries again.
        if let Ok(current) = TicketSecret::new(now) {
            let newest = before.own.first();
            let fresh = newest.filter(|it| now - it.since < 2 * ROTATION_SECONDS);
            let own = std::iter::once(current).chain(fresh.cloned()).collect();
            self.counters.changes.inc();
            self.store(Secrets {
                given: Vec::new(),
                own,
            });
        }
    }

    fn store(&self, secrets: Secrets) {
        self.count(&secrets);
        self.secrets.store(Arc::new(secrets));
    }

    fn count(&self, secrets: &Secrets) {
        let Counters {
            secrets: known,
            since,
            ..
        } = &self.counters;
        for (source, some) in [("process", &secrets.own), ("file", &secrets.given)] {
            let count = i64::try_from(some.len()).unwrap_or(i64::MAX);
            known.get_or_create(&[("source", source)]).set(count);
        }
        since.set(secrets.all().next().map_or(0, |it| it.since));
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        let lock = self.replacing.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets {
    /// All of them; the first makes tickets.
    pub(super) fn all(&self) -> impl Iterator<Item = &TicketSecret> {
        self.given.iter().chain(&self.own)
    }

    fn is_due(&self, now: i64) -> bool {
        let newest = self.own.first().filter(|_| self.given.is_empty());
        // A clock that was set back must not keep a secret in use.
        newest.is_some_and(|it| !(0..ROTATION_SECONDS).contains(&(now - it.since)))
    }
}
