//! The proxy's log on local disk: commits as they were received, one after the other.
//!
//! A restarted proxy serves from it without its controller. Writing never makes the proxy wait:
//! a thread of its own takes commits from a bounded queue, and what does not fit or cannot be
//! written ends the log where it is, which is a state that the proxy was in.

mod compaction;
mod file;
mod record;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use myriad_base::metrics::{Counter, Metrics};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use record::{Logged, LoggedChange, Replay};

/// The most bytes that wait to be written, in units of [`ROOM_UNIT_BYTES`].
const ROOM_UNITS: u32 = 1_024;
const ROOM_UNIT_BYTES: usize = 64 << 10;
/// Commits take room first, and the few that flush wait for each other.
const QUEUE_MAX: usize = ROOM_UNITS as usize + 1;

/// A log that is open for writing. Its thread ends, with everything written, when it is dropped.
pub struct Log {
    queue: Option<SyncSender<Command>>,
    thread: Option<std::thread::JoinHandle<()>>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// The state that the log's owner and its threads share.
#[derive(Default)]
struct Shared {
    /// Something was not written, so nothing may be written after it.
    is_broken: AtomicBool,
    counters: LogCounters,
}

enum Command {
    /// Gives its room back once it is written.
    Append(Box<Logged>, OwnedSemaphorePermit),
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
    /// Bytes in the middle are not what was written. Nothing of the file is to be trusted; the
    /// owner moves it away and fetches everything anew.
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
    /// to `read`, oldest first. A record that was cut off at the end is cut away.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(
        path: &Path,
        counters: LogCounters,
        read: impl FnMut(Logged),
    ) -> Result<Log, LogError> {
        let opened = file::open(path, read)?;
        Self::start(path, opened, counters)
    }

    /// Makes a log of these records in the place of whatever is there, for instance of a log that
    /// is corrupt or not whole; see [`Logged::all`]. Blocks until they are on disk.
    ///
    /// # Errors
    /// See [`LogError`]. What was there is there still.
    pub fn replace(
        path: &Path,
        counters: LogCounters,
        records: impl Iterator<Item = Logged>,
    ) -> Result<Log, LogError> {
        let opened = compaction::replace(path, records)?;
        Self::start(path, opened, counters)
    }

    fn start(path: &Path, opened: file::Opened, counters: LogCounters) -> Result<Log, LogError> {
        let shared = Arc::new(Shared {
            counters,
            ..Shared::default()
        });
        let (queue, commands) = sync_channel(QUEUE_MAX);
        let writer = thread::Writer::new(path, opened, shared.clone());
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run(&commands))
            .map_err(LogError::io(path))?;
        Ok(Log {
            queue: Some(queue),
            thread: Some(thread),
            room: Arc::new(Semaphore::new(ROOM_UNITS as usize)),
            shared,
        })
    }

    /// Hands a commit to the log's thread, and returns at once whether it will be written. After
    /// the first one that is not, none is: the log ends there.
    pub fn append(&self, logged: Logged) -> bool {
        let room = self.room.clone().try_acquire_many_owned(units(&logged));
        self.send(logged, room.ok())
    }

    /// Appends, but waits for room where the disk is slower than the network. Nobody else waits
    /// for it but the controller, which sends no further commit before this one is acknowledged.
    pub async fn append_when_room(&self, logged: Logged) -> bool {
        let room = self.room.clone().acquire_many_owned(units(&logged)).await;
        self.send(logged, room.ok())
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
            self.shared.is_broken.store(true, Ordering::Release);
        }
        sent
    }

    /// Whether everything appended so far was written or waits to be. A log that is not whole is
    /// closed and made anew from a fetched state.
    pub fn is_whole(&self) -> bool {
        !self.shared.is_broken.load(Ordering::Acquire)
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
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
