//! The thread that writes.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use myriad_base::clock::{self, Instant};

use super::compaction::{self, Compacted};
use super::file::{self, Opened};
use super::{Command, LogError, Logged, Shared};

/// How often the file is forced to disk at most.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// The file may grow by as much as it had after its last compaction, and by this.
const GROWTH_BYTES: u64 = 16 << 20;
const COPY_BYTES: usize = 1 << 20;

pub(super) struct Writer {
    path: PathBuf,
    file: File,
    len: u64,
    compacted_len: u64,
    /// When something was written that is not forced to disk yet.
    dirty_since: Option<Instant>,
    compaction: Option<JoinHandle<Result<Compacted, LogError>>>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(path: &Path, opened: Opened, shared: Arc<Shared>) -> Self {
        Writer {
            path: path.to_owned(),
            file: opened.file,
            len: opened.len,
            compacted_len: opened.compacted_len,
            dirty_since: None,
            compaction: None,
            shared,
        }
    }

    /// Writes until the queue's other end is dropped.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let command = match self.timeout() {
                Some(timeout) => commands.recv_timeout(timeout),
                None => commands.recv().map_err(RecvTimeoutError::from),
            };
            match command {
                Ok(Command::Append(logged, _room)) => self.append(&logged),
                Ok(Command::Flush(done)) => {
                    self.finish_compaction(true);
                    self.sync();
                    let _ = done.try_send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.timeout().is_some_and(|timeout| timeout.is_zero()) {
                self.sync();
            }
            self.finish_compaction(false);
            self.start_compaction();
        }
        self.finish_compaction(true);
        self.sync();
    }

    /// Until when the next command may be waited for; forever if nothing else is to be done.
    fn timeout(&self) -> Option<Duration> {
        let until_sync = self.dirty_since.map(|since| {
            let passed = clock::now().saturating_duration_since(since);
            SYNC_INTERVAL.saturating_sub(passed)
        });
        let until_compacted = self.compaction.is_some().then_some(SYNC_INTERVAL / 10);
        until_sync.into_iter().chain(until_compacted).min()
    }

    fn append(&mut self, logged: &Logged) {
        if self.shared.is_broken.load(Ordering::Acquire) {
            self.shared.counters.lost.inc();
            return;
        }
        let payload = logged.encode();
        let framed = file::frame(&payload);
        let written = file::fits(&payload) && self.write(&framed);
        if !written {
            self.break_off();
            return;
        }
        self.len += framed.len() as u64;
        self.dirty_since.get_or_insert_with(clock::now);
        let bytes = framed.len() as u64;
        self.shared.counters.bytes_written.inc_by(bytes);
    }

    fn write(&mut self, framed: &[u8]) -> bool {
        let result = self.file.write_all(framed);
        if let Err(error) = &result {
            tracing::error!(path = %self.path.display(), %error, "the log cannot be written");
        }
        result.is_ok()
    }

    /// Ends the log where it was whole.
    fn break_off(&mut self) {
        self.shared.is_broken.store(true, Ordering::Release);
        self.shared.counters.lost.inc();
        // If even this fails, the next start finds a torn tail.
        let _ = self.file.set_len(self.len);
        let _ = self.file.seek(SeekFrom::Start(self.len));
    }

    fn sync(&mut self) {
        if self.dirty_since.take().is_none() {
            return;
        }
        if let Err(error) = self.file.sync_data() {
            let path = self.path.display();
            tracing::error!(%path, %error, "the log cannot be forced to disk");
            // What the system has dropped nobody knows, so nothing may follow it.
            self.break_off();
        }
        self.shared.counters.syncs.inc();
    }

    fn start_compaction(&mut self) {
        let is_due = self.len > 2 * self.compacted_len + GROWTH_BYTES;
        if !is_due || self.compaction.is_some() || self.shared.is_broken.load(Ordering::Acquire) {
            return;
        }
        let (path, end) = (self.path.clone(), self.len);
        let thread = std::thread::Builder::new().name("log-compaction".to_owned());
        match thread.spawn(move || compaction::compact(&path, end)) {
            Ok(running) => self.compaction = Some(running),
            Err(error) => tracing::error!(%error, "the compaction of the log does not start"),
        }
    }

    /// Puts the compacted file in place, if the compaction has ended or is waited for.
    fn finish_compaction(&mut self, wait: bool) {
        let is_done = |running: &JoinHandle<_>| wait || running.is_finished();
        let Some(running) = self.compaction.take_if(|running| is_done(running)) else {
            return;
        };
        let result = match running.join() {
            Ok(compacted) => compacted.and_then(|it| self.replace(it)),
            Err(_) => return tracing::error!("the compaction of the log panicked"),
        };
        match result {
            Ok(()) => {
                self.shared.counters.compactions.inc();
            }
            Err(error) => {
                tracing::error!(%error, "the log is not compacted");
                // Not again until it has grown as much once more.
                self.compacted_len = self.len;
                let _ = std::fs::remove_file(compaction::path_beside(&self.path));
            }
        }
    }

    /// Adds what was appended meanwhile, and puts the new file in the place of the old one.
    fn replace(&mut self, compacted: Compacted) -> Result<(), LogError> {
        let Compacted {
            path,
            mut file,
            len,
            copied_to,
        } = compacted;
        let io = || LogError::io(&path);
        file::write_head(&mut file, len).map_err(io())?;
        file.seek(SeekFrom::Start(len)).map_err(io())?;
        let mut old = File::open(&self.path).map_err(io())?;
        old.seek(SeekFrom::Start(copied_to)).map_err(io())?;
        let mut rest = old.take(self.len - copied_to);
        let mut piece = vec![0; COPY_BYTES];
        loop {
            let count = rest.read(&mut piece).map_err(io())?;
            let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else {
                break;
            };
            file.write_all(read).map_err(io())?;
        }
        compaction::put_in_place(&file, &path, &self.path)?;
        self.len = len + (self.len - copied_to);
        self.compacted_len = len;
        self.file = file;
        self.dirty_since = None;
        Ok(())
    }
}
