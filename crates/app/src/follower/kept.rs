//! The last good snapshot on disk: a proxy restarts and serves without its control plane.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::{Duration, UNIX_EPOCH};

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Gauge, Metrics};
use myriad_model::Snapshot;
use myriad_sync::log::{LogCounters, Replay};
use myriad_sync::{Log, LogError, Logged};

use crate::status::report::FollowedReport;

/// The file in the state directory.
const FILE: &str = "commits.log";

/// The name that a file is given that cannot be read, for people to look at.
const BROKEN_FILE: &str = "commits.log.broken";

/// How often everything is written anew, at most.
const MEND_INTERVAL: Duration = Duration::from_secs(30);

/// How long a commit waits for a disk that is slower than the network. One that does not answer
/// delays the first commit that it has no room for by this, and none after it.
const DISK_PATIENCE: Duration = Duration::from_secs(1);

/// The state that is kept on disk.
pub(super) struct Kept {
    /// The log; none while another process has it, or where it cannot be opened: serving goes on,
    /// and it is written anew.
    log: Option<Log>,
    /// The resources in service, from which the log is written anew.
    held: Snapshot,
    path: PathBuf,
    counters: LogCounters,
    key: Option<[u8; 32]>,
    /// Whether the next record has to say the key.
    is_rekeyed: bool,
    followed_at: Gauge,
    /// 1 while the log lacks commits that are in service.
    gap: Gauge,
    history: KeptTimes,
    mended_at: Option<Instant>,
    /// Whether another process keeps commits here now.
    is_suspended: Arc<AtomicBool>,
}

impl Kept {
    /// Opens the log in a directory, and says what it leads to: the state, and the cluster's key.
    pub(super) fn open(
        directory: &Path,
        schema_max: u32,
        metrics: &Metrics,
    ) -> (Kept, Snapshot, Option<[u8; 32]>) {
        let counters = LogCounters::default();
        counters.register(metrics);
        let followed_at = Gauge::default();
        let help = "When a controller was last followed, in seconds since the epoch; 0 for never";
        metrics.register("sync_followed_at_seconds", help, followed_at.clone());
        let gap = Gauge::default();
        let help = "1 while the log lacks commits that are in service";
        metrics.register("log_gap", help, gap.clone());
        let path = directory.join(FILE);
        let history = KeptTimes::default();
        history.0.kept_at.store(modified_at(&path), Relaxed);
        let (log, replay) = open(&path, &counters, schema_max);
        let (snapshot, key, unread) = replay.finish();
        if unread > 0 {
            tracing::warn!(
                unread,
                "resources that were kept cannot be read, and are fetched"
            );
        }
        let kept = Kept {
            log,
            held: snapshot.clone(),
            path,
            counters,
            key,
            is_rekeyed: false,
            followed_at,
            gap,
            history,
            mended_at: None,
            is_suspended: Arc::default(),
        };
        (kept, snapshot, key)
    }

    /// Keeps a commit that is in service.
    pub(super) async fn append(&mut self, mut logged: Logged) {
        if self.history.0.is_connected.load(Relaxed) {
            self.note_followed();
        }
        self.look();
        if let Some(log) = &mut self.log {
            logged.key = self.key.filter(|_| self.is_rekeyed);
            self.is_rekeyed = false;
            // One that is not written is told by the log, which then has to be mended.
            if log.append_within(logged, DISK_PATIENCE).await {
                self.history.0.kept_at.store(clock::unix_seconds(), Relaxed);
            }
        }
    }

    /// Notes the resources in service.
    pub(super) fn hold(&mut self, held: &Snapshot) {
        self.held = held.clone();
        self.mend();
    }

    /// Has everything written anew where the log has a gap, once the disk has taken what was
    /// queued: with the gap it would lead to a state that never was. Waits for nothing.
    pub(super) fn mend(&mut self) {
        self.look();
        let is_whole = self.log.as_ref().is_some_and(Log::is_whole);
        let has_gap = !is_whole && !self.is_suspended.load(Acquire);
        let had_gap = self.gap.set(has_gap.into()) != 0;
        if has_gap && !had_gap {
            let path = self.path.display();
            tracing::error!(%path, "commits are served and not kept, until the disk takes them");
        }
        let now = clock::now();
        let is_too_soon = self.mended_at.is_some_and(|at| now - at < MEND_INTERVAL);
        let Some(key) = self.key.filter(|_| has_gap && !is_too_soon) else {
            return;
        };
        if self.log.is_none() {
            match Log::without_file(&self.path, self.counters.clone()) {
                Ok(log) => self.log = Some(log),
                Err(error) => tracing::error!(%error, "nothing is kept on disk; trying again"),
            }
        }
        let log = self.log.as_ref();
        if log.is_some_and(|log| log.rewrite(&self.held, key)) {
            self.mended_at = Some(now);
            self.is_rekeyed = false;
        }
    }

    /// The cluster's key is another one now.
    pub(super) fn rekey(&mut self, key: [u8; 32]) {
        self.key = Some(key);
        self.is_rekeyed = true;
    }

    /// Whether a controller is followed.
    pub(super) fn set_connected(&mut self, is_connected: bool) {
        let was_connected = self.history.0.is_connected.swap(is_connected, Relaxed);
        // An attempt that failed is not the end of a connection.
        if is_connected || was_connected {
            self.note_followed();
        }
    }

    /// Lets go of the log while another process keeps commits here. `mend` writes it anew if that
    /// process does not get live.
    pub(super) fn look(&mut self) {
        if self.is_suspended.load(Acquire) {
            self.log = None;
        }
    }

    /// While this is set nothing is written.
    pub(super) fn suspension(&self) -> Arc<AtomicBool> {
        self.is_suspended.clone()
    }

    /// The history of the state, for use on another thread.
    pub(super) fn history(&self) -> KeptTimes {
        self.history.clone()
    }

    fn note_followed(&self) {
        let now = clock::unix_seconds();
        self.followed_at.set(now);
        self.history.0.followed_at.store(now, Relaxed);
    }
}

/// When a controller was followed, and something kept. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct KeptTimes(Arc<Times>);

/// Times in seconds since the epoch; 0 for never.
#[derive(Default)]
struct Times {
    is_connected: AtomicBool,
    followed_at: AtomicI64,
    kept_at: AtomicI64,
}

impl KeptTimes {
    /// How it stands with the controllers at an address.
    pub(super) fn report(&self, controller: &str) -> FollowedReport {
        let Times {
            is_connected,
            followed_at,
            kept_at,
        } = &*self.0;
        let time = |at: &AtomicI64| Some(at.load(Relaxed)).filter(|at| *at != 0);
        FollowedReport {
            controller: controller.to_owned(),
            is_connected: is_connected.load(Relaxed),
            followed_unix: time(followed_at),
            kept_unix: time(kept_at),
        }
    }
}

/// When a file was last written, in seconds since the epoch; 0 for never.
fn modified_at(path: &Path) -> i64 {
    let modified = std::fs::metadata(path).and_then(|it| it.modified());
    let age = modified
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    age.map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(0))
}

fn open(path: &Path, counters: &LogCounters, schema_max: u32) -> (Option<Log>, Replay) {
    let mut replay = Replay::new(schema_max);
    match Log::open(path, counters.clone(), |logged| replay.apply(logged)) {
        Ok(log) => return (Some(log), replay),
        Err(error @ LogError::Io { .. }) => {
            tracing::error!(%error, "nothing can be kept on disk; a restart needs a controller");
            return (None, Replay::new(schema_max));
        }
        Err(error) => tracing::error!(%error, "what was kept is moved aside and fetched anew"),
    }
    let moved = std::fs::rename(path, path.with_file_name(BROKEN_FILE));
    let opened = moved
        .map_err(|error| error.to_string())
        .and_then(|()| Log::open(path, counters.clone(), drop).map_err(|error| error.to_string()));
    match opened {
        Ok(log) => (Some(log), Replay::new(schema_max)),
        Err(error) => {
            tracing::error!(
                error,
                "nothing can be kept on disk; a restart needs a controller"
            );
            (None, Replay::new(schema_max))
        }
    }
}

#[cfg(test)]
mod tests;
