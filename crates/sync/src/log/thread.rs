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
    /// Absent until it is written for the first time, where there was none to open.
    file: Option<File>,
    /// Whether something was not written, so that nothing may be written after it.
    is_broken: bool,
    /// How often everything was written anew.
    generation: u64,
    len: u64,
    compacted_len: u64,
    /// When something was written that is not forced to disk yet.
    dirty_since: Option<Instant>,
    compaction: Option<JoinHandle<Result<Compacted, LogError>>>,
    /// Whether it compacts a file that was written anew meanwhile.
    is_compaction_stale: bool,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(path: &Path, opened: Option<Opened>, shared: Arc<Shared>) -> Self {
        let len = opened.as_ref().map_or(0, |opened| opened.len);
        let compacted_len = opened.as_ref().map_or(0, |opened| opened.compacted_len);
        Writer {
            path: path.to_owned(),
            is_broken: opened.is_none(),
            file: opened.map(|opened| opened.file),
            generation: 0,
            len,
            compacted_len,
            dirty_since: None,
            compaction: None,
            is_compaction_stale: false,
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
            if self.shared.is_abandoned.load(Ordering::Acquire) {
                return;
            }
            match command {
                Ok(Command::Append(logged, _room)) => self.append(&logged),
                Ok(Command::Rewrite {
                    held,
                    key,
                    generation,
                }) => {
                    self.generation = generation;
                    self.rewrite(Logged::all(&held, key));
                }
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
        if self.is_broken {
            self.shared.counters.lost.inc();
            return;
        }
        let payload = logged.encode();
        let framed = file::frame(&payload);
        let written = file::fits(&payload) && self.write(&framed);
        if !written {
            self.shared.counters.lost.inc();
            self.break_off();
            return;
        }
        self.len += framed.len() as u64;
        self.dirty_since.get_or_insert_with(clock::now);
        let bytes = framed.len() as u64;
        self.shared.counters.bytes_written.inc_by(bytes);
    }

    fn write(&mut self, framed: &[u8]) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let result = file.write_all(framed);
        if let Err(error) = &result {
            tracing::error!(path = %self.path.display(), %error, "the log cannot be written");
        }
        result.is_ok()
    }

    /// Writes everything anew in the place of the file.
    fn rewrite(&mut self, records: impl Iterator<Item = Logged>) {
        let path = self.path.display();
        // A compaction may be writing to a file of its own.
        let target = file::beside(&self.path, ".all");
        let written = compaction::write_all(&target, records).and_then(|opened| {
            self.put_in_place(&opened.file, &target)?;
            Ok(opened)
        });
        match written {
            Ok(opened) => {
                tracing::info!(%path, bytes = opened.len, "the log was written anew");
                self.file = Some(opened.file);
                (self.len, self.compacted_len) = (opened.len, opened.compacted_len);
                self.dirty_since = None;
                self.is_broken = false;
                self.is_compaction_stale = self.compaction.is_some();
                self.shared.counters.rewrites.inc();
            }
            Err(error) => {
                tracing::error!(%error, "the log cannot be written anew; trying again");
                let _ = std::fs::remove_file(&target);
                self.break_off();
            }
        }
    }

    /// Gives a finished file the log's name, unless that is another's by now.
    fn put_in_place(&self, file: &File, from: &Path) -> Result<(), LogError> {
        if self.shared.is_abandoned.load(Ordering::Acquire) {
            let error = std::io::Error::other("the log was given up");
            return Err(LogError::io(from)(error));
        }
        compaction::put_in_place(file, from, &self.path)
    }

    /// Ends the log where it was whole.
    fn break_off(&mut self) {
        self.is_broken = true;
        let broken = self.generation + 1;
        self.shared.broken.store(broken, Ordering::Release);
        if let Some(file) = &mut self.file {
            // If even this fails, the next start finds a torn tail.
            let _ = file.set_len(self.len);
            let _ = file.seek(SeekFrom::Start(self.len));
        }
    }

    fn sync(&mut self) {
        let Some(file) = self.file.as_ref().filter(|_| self.dirty_since.is_some()) else {
            return;
        };
        self.dirty_since = None;
        if let Err(error) = file.sync_data() {
            let path = self.path.display();
            tracing::error!(%path, %error, "the log cannot be forced to disk");
            // What the system has dropped nobody knows, so nothing may follow it.
            self.shared.counters.lost.inc();
            self.break_off();
        }
        self.shared.counters.syncs.inc();
    }

    fn start_compaction(&mut self) {
        let is_due = self.len > 2 * self.compacted_len + GROWTH_BYTES;
        if !is_due || self.compaction.is_some() || self.is_broken {
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
        let is_stale = std::mem::take(&mut self.is_compaction_stale);
        let result = match running.join() {
            Ok(_) if is_stale => {
                let _ = std::fs::remove_file(compaction::path_beside(&self.path));
                return;
            }
            Ok(compacted) => compacted.and_then(|it| self.replace(it)),
            Err(_) => return tracing::error!("the compaction of the log panicked"),
        };
        match result {
            Ok(()) => {
                self.shared.counters.compactions.inc();
            }
            Err(error) => {
                tracing::error!(%error, "the log is not compacted");
                if let LogError::Corrupt { .. } = error {
                    // A start would find no more than what is before.
                    self.break_off();
                }
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
        self.put_in_place(&file, &path)?;
        self.len = len + (self.len - copied_to);
        self.compacted_len = len;
        self.file = Some(file);
        self.dirty_since = None;
        Ok(())
    }
}
