//! The last good snapshot on disk: a proxy restarts and serves without its control plane.

use std::path::{Path, PathBuf};
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Gauge, Metrics};
use myriad_model::Snapshot;
use myriad_sync::log::{LogCounters, Replay};
use myriad_sync::{Log, LogError, Logged};

/// The file in the state directory.
const FILE: &str = "commits.log";

/// Where a file goes that cannot be read, for people to look at.
const BROKEN_FILE: &str = "commits.log.broken";

/// How often a disk that takes nothing is tried again, at most.
const MEND_INTERVAL: Duration = Duration::from_secs(30);

/// What is kept on disk.
pub struct Kept {
    /// None where the disk does not take it: serving goes on, and a restart fetches everything.
    log: Option<Log>,
    path: PathBuf,
    counters: LogCounters,
    key: Option<[u8; 32]>,
    /// Whether the next record has to say the key.
    is_rekeyed: bool,
    followed_at: Gauge,
    is_connected: bool,
    mended_at: Option<Instant>,
}

impl Kept {
    /// Opens the log in a directory, and says what it leads to: the state, and the cluster's key.
    pub fn open(directory: &Path, metrics: &Metrics) -> (Kept, Snapshot, Option<[u8; 32]>) {
        let counters = LogCounters::default();
        counters.register(metrics);
        let followed_at = Gauge::default();
        let help = "When a controller was last followed, in seconds since the epoch; 0 for never";
        metrics.register("sync_followed_at_seconds", help, followed_at.clone());
        let path = directory.join(FILE);
        let (log, replay) = open(&path, &counters);
        let (snapshot, key, unread) = replay.finish();
        if unread > 0 {
            tracing::warn!(
                unread,
                "resources that were kept cannot be read, and are fetched"
            );
        }
        let kept = Kept {
            log,
            path,
            counters,
            key,
            is_rekeyed: false,
            followed_at,
            is_connected: false,
            mended_at: None,
        };
        (kept, snapshot, key)
    }

    /// Keeps a commit that is in service.
    pub async fn append(&mut self, mut logged: Logged) {
        if self.is_connected {
            self.followed_at.set(clock::unix_seconds());
        }
        if let Some(log) = &self.log {
            logged.key = self.key.filter(|_| self.is_rekeyed);
            self.is_rekeyed = false;
            // One that is not written is told by the log, which then has to be mended.
            log.append_when_room(logged).await;
        }
    }

    /// Writes everything anew where the log has a gap: it would lead to a state that never was.
    pub async fn mend(&mut self, held: &Snapshot) {
        let is_whole = self.log.as_ref().is_some_and(Log::is_whole);
        let now = clock::now();
        let is_too_soon = self.mended_at.is_some_and(|at| now - at < MEND_INTERVAL);
        let Some(key) = self.key.filter(|_| !is_whole && !is_too_soon) else {
            return;
        };
        self.mended_at = Some(now);
        self.log = None;
        let (path, counters, held) = (self.path.clone(), self.counters.clone(), held.clone());
        let write = move || Log::replace(&path, counters, Logged::all(&held, key));
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(log)) => {
                self.is_rekeyed = false;
                self.log = Some(log);
            }
            Ok(Err(error)) => tracing::error!(%error, "nothing is kept on disk; trying again"),
            Err(_) => tracing::error!("the writer of the log panicked"),
        }
    }

    /// The cluster's key is another one now.
    pub fn rekey(&mut self, key: [u8; 32]) {
        self.key = Some(key);
        self.is_rekeyed = true;
    }

    /// Whether a controller is followed.
    pub fn set_connected(&mut self, is_connected: bool) {
        self.is_connected = is_connected;
        if is_connected {
            self.followed_at.set(clock::unix_seconds());
        }
    }
}

fn open(path: &Path, counters: &LogCounters) -> (Option<Log>, Replay) {
    let mut replay = Replay::new();
    match Log::open(path, counters.clone(), |logged| replay.apply(logged)) {
        Ok(log) => return (Some(log), replay),
        Err(error @ LogError::Io { .. }) => {
            tracing::error!(%error, "nothing can be kept on disk; a restart needs a controller");
            return (None, Replay::new());
        }
        Err(error) => tracing::error!(%error, "what was kept is moved aside and fetched anew"),
    }
    let moved = std::fs::rename(path, path.with_file_name(BROKEN_FILE));
    let opened = moved
        .map_err(|error| error.to_string())
        .and_then(|()| Log::open(path, counters.clone(), drop).map_err(|error| error.to_string()));
    match opened {
        Ok(log) => (Some(log), Replay::new()),
        Err(error) => {
            tracing::error!(
                error,
                "nothing can be kept on disk; a restart needs a controller"
            );
            (None, Replay::new())
        }
    }
}
