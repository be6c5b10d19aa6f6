//! The proxy's log on local disk: commits as they were received, one after the other.
//!
//! A restarted proxy serves from it without its controller. Writing never makes the proxy wait for
//! long: a thread of its own takes commits from a bounded queue, and what does not fit or cannot be
//! written ends the log where it is, which is a state that the proxy was in. Once the disk takes
//! everything that had been queued, the log can be written anew.

mod compaction;
mod file;
mod record;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use myriad_base::metrics::{Counter, Metrics};
use myriad_model::Snapshot;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use record::{Logged, LoggedChange, Replay};

/// The most bytes that wait to be written, in units of [`ROOM_UNIT_BYTES`].
const ROOM_UNITS: u32 = 1_024;
const ROOM_UNIT_BYTES: usize = 64 << 10;
/// Commits take room first, a log is written anew once at a time, and the few that flush wait for
/// each other.
const QUEUE_MAX: usize = ROOM_UNITS as usize + 2;
/// How long the end of a log waits for a disk that does not answer.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A log that is open for writing. Its thread ends, with everything written, when it is dropped;
/// where the disk does not answer that is not waited for.
pub struct Log {
    queue: Option<SyncSender<Command>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Disconnected once the thread has ended.
    end: Receiver<()>,
    room: Arc<Semaphore>,
    /// Whether a commit did not reach the queue. Nothing may follow it but the whole anew.
    is_short: AtomicBool,
    /// How often the log was to be written anew.
    generation: AtomicU64,
    shared: Arc<Shared>,
}

/// The state that the log's owner and its threads share.
#[derive(Default)]
struct Shared {
    /// The number behind the generation of which something was not written, so that nothing may be
    /// written after it; 0 for none.
    broken: AtomicU64,
    /// Nobody owns the log any more, and its file may be another's.
    is_abandoned: AtomicBool,
    counters: LogCounters,
}

enum Command {
    /// Gives its room back once it is written.
    Append(Box<Logged>, OwnedSemaphorePermit),
    /// Writes everything anew, in the place of whatever is there.
    Rewrite {
        /// The resources that the log leads to then.
        held: Snapshot,
        /// The cluster's key.
        key: [u8; 32],
        /// How often this was asked for, with this time.
        generation: u64,
    },
    /// Says on the channel that all before is on disk.
    Flush(SyncSender<()>),
}

/// The counters of a log. Cheap to clone.
#[derive(Clone, Default)]
pub struct LogCounters {
    /// Bytes written.
    pub bytes_written: Counter,
    /// Times that the file was forced to disk.
    pub syncs: Counter,
    /// Compactions that were finished.
    pub compactions: Counter,
    /// Commits that were not written, since the disk failed or was too slow.
    pub lost: Counter,
    /// Times that everything was written anew, since commits had not been written.
    pub rewrites: Counter,
}

impl LogCounters {
    /// Registers everything.
    pub fn register(&self, metrics: &Metrics) {
        let all = [
            (
                "log_written_bytes",
                "Bytes written to the log.",
                &self.bytes_written,
            ),
            (
                "log_syncs",
                "Times that the log was forced to disk.",
                &self.syncs,
            ),
            (
                "log_compactions",
                "Compactions of the log.",
                &self.compactions,
            ),
            (
                "log_lost_commits",
                "Commits that the log lacks, since the disk failed or was too slow.",
                &self.lost,
            ),
            (
                "log_rewrites",
                "Times that the log was written anew, since it lacked commits.",
                &self.rewrites,
            ),
        ];
        for (name, help, counter) in all {
            metrics.register(name, help, counter.clone());
        }
    }
}

/// Why a log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk or its rights are to blame.
    #[error("{path}: {error}")]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// Bytes are not what was written, in what the last compaction left. A part of that is a state
    /// that never was; the owner moves the file away and fetches everything anew.
    #[error("{path}: corrupt at byte {offset}")]
    Corrupt {
        /// The path of the file.
        path: PathBuf,
        /// The offset, in bytes, of the first record that cannot be read.
        offset: u64,
    },
    /// A build that wrote another format.
    #[error("{path}: not a log that this build can read")]
    OtherFormat {
        /// The path of the file.
        path: PathBuf,
    },
}

impl LogError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> LogError + use<> {
        let path = path.to_owned();
        move |error| LogError::Io { path, error }
    }
}

impl Log {
    /// Opens the log, making an empty one of mode 0600 where there is none, and hands each record
    /// to `read`, oldest first. From the first record on that is not as it was written, the file is
    /// cut off.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(
        path: &Path,
        counters: LogCounters,
        read: impl FnMut(Logged),
    ) -> Result<Log, LogError> {
        let opened = file::open(path, read)?;
        Self::start(path, Some(opened), counters)
    }

    /// A log that is not whole, and takes nothing until it is written anew. Touches no file.
    ///
    /// # Errors
    /// Its thread cannot start.
    pub fn without_file(path: &Path, counters: LogCounters) -> Result<Log, LogError> {
        Self::start(path, None, counters)
    }

    fn start(
        path: &Path,
        opened: Option<file::Opened>,
        counters: LogCounters,
    ) -> Result<Log, LogError> {
        let is_short = AtomicBool::new(opened.is_none());
        let shared = Arc::new(Shared {
            counters,
            ..Shared::default()
        });
        let (queue, commands) = sync_channel(QUEUE_MAX);
        let (ending, end) = sync_channel(1);
        let writer = thread::Writer::new(path, opened, shared.clone());
        let run = move || {
            writer.run(&commands);
            drop(ending);
        };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(run)
            .map_err(LogError::io(path))?;
        Ok(Log {
            queue: Some(queue),
            thread: Some(thread),
            end,
            is_short,
            generation: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(ROOM_UNITS as usize)),
            shared,
        })
    }

    /// Hands a commit to the log's thread, and returns at once whether it will be written. After
    /// the first one that is not, none is: the log ends there, until it is written anew.
    pub fn append(&self, logged: Logged) -> bool {
        let room = self.room.clone().try_acquire_many_owned(units(&logged));
        self.send(logged, room.ok())
    }

    /// Appends, but waits for room where the disk is slower than the network, and no longer than
    /// this: a disk that does not answer stops no commit but the first one that it has no room for.
    pub async fn append_within(&mut self, logged: Logged, patience: Duration) -> bool {
        if !self.is_whole() {
            return self.send(logged, None);
        }
        let room = self.room.clone().acquire_many_owned(units(&logged));
        let room = tokio::time::timeout(patience, room).await;
        self.send(logged, room.ok().and_then(Result::ok))
    }

    /// Has the log written anew, before anything that is appended from now on. Returns at once;
    /// `false` while there is no need, or the disk has not taken yet what was appended before.
    pub fn rewrite(&self, held: &Snapshot, key: [u8; 32]) -> bool {
        let is_drained = self.room.available_permits() == ROOM_UNITS as usize;
        let Some(queue) = self
            .queue
            .as_ref()
            .filter(|_| is_drained && !self.is_whole())
        else {
            return false;
        };
        let generation = self.generation.load(Ordering::Acquire) + 1;
        let held = held.clone();
        let command = Command::Rewrite {
            held,
            key,
            generation,
        };
        let is_sent = queue.try_send(command).is_ok();
        if is_sent {
            self.generation.store(generation, Ordering::Release);
            self.is_short.store(false, Ordering::Release);
        }
        is_sent
    }

    fn send(&self, logged: Logged, room: Option<OwnedSemaphorePermit>) -> bool {
        let queue = self.queue.as_ref().filter(|_| self.is_whole());
        let sent = queue.zip(room).is_some_and(|(queue, room)| {
            queue
                .try_send(Command::Append(Box::new(logged), room))
                .is_ok()
        });
        if !sent {
            self.shared.counters.lost.inc();
            self.is_short.store(true, Ordering::Release);
        }
        sent
    }

    /// Whether everything appended so far was written or waits to be. A log that is not whole
    /// wants to be [written anew](Self::rewrite).
    pub fn is_whole(&self) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        let broken = self.shared.broken.load(Ordering::Acquire);
        !self.is_short.load(Ordering::Acquire) && broken <= generation
    }

    /// Waits until all that was appended is on disk. Blocks; not for serving threads.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if let Some(queue) = &self.queue {
            let _ = queue.send(Command::Flush(done));
        }
        // An end without an answer means that the thread is gone, and with it all it could write.
        let _ = wait.recv();
    }
}

/// The room that a commit takes; the largest takes all of it.
fn units(logged: &Logged) -> u32 {
    let bytes: usize = logged.changes.iter().map(LoggedChange::size).sum();
    let units = u32::try_from(bytes / ROOM_UNIT_BYTES).unwrap_or(ROOM_UNITS);
    (units + 1).min(ROOM_UNITS)
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue = None;
        if self.end.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            self.shared.is_abandoned.store(true, Ordering::Release);
            tracing::error!("the disk does not answer: the log ends without its last commits");
        } else if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
