//! Objects in a directory: every `*.yaml`, `*.yml` and `*.json` below it, at any depth.
//!
//! - One file is one batch, and so is one swap of the `..data` link of a mounted ConfigMap.
//! - Only the file that changed is read, and only documents with new bytes are parsed.
//! - Work comes in the order of its events. What takes long to read is read in slices, and takes
//!   effect as a whole; meanwhile other work of the same owner waits, and that of others goes on.
//!   An owner is a directory in the root with all below it, or the root with its own files.
//! - A file is read when it was closed after writing or moved into place, never while it grows.
//!   A file that disappears counts as gone after [`Settings::removal_hold`].
//! - While a document of a file is broken, no object that the file gave goes out of effect.
//! - Of two files with the same object the one whose path sorts first (by bytes) has its way.
//! - Links to files are followed, and links in the root to directories anywhere. Those of an owner
//!   to directories are within the owner or the root, and lead nowhere that it has already. A
//!   change is seen where the link stands or below a followed directory; behind a link to a single
//!   file it is not.
//! - A directory in the root has a quarter of the directories and files of the tree at most.

mod check;
mod comparison;
mod document;
mod draft;
mod file;
mod head;
mod index;
mod job;
mod lanes;
mod lines;
mod loader;
mod locator;
mod name;
mod parsed;
mod problem;
mod queue;
mod rescan;
mod slice;
mod split;
mod survey;
#[cfg(test)]
mod tests;
mod tree;
mod watch;
mod work;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use myriad_api::{Batch, ObjectKey};
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Metrics};
use tokio::sync::mpsc;

pub use self::check::{Loaded, load, read};
pub use self::document::Passed;
pub use self::locator::{FieldLocator, Locator};

use self::index::{Index, Session};
use self::job::{Job, Knowledge};
use self::parsed::Parsed;
use self::queue::Queue;
use self::survey::Survey;
use self::watch::DirectoryWatch;

/// The most files of the first load that end in one batch.
const BATCH_FILES_MAX: usize = 1_024;

/// The most pieces of work whose files are held while they are read in slices. Those of other
/// owners wait for one to end, and hold nothing.
const JOBS_MAX: usize = 4;

/// Which directory, and within which limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory, or a link to it. Findings name files beginning with this text.
    pub root: PathBuf,
    /// The bounds of the work and the memory that files can cause.
    pub limits: Limits,
    /// For how long a file may be missing before its objects go. It spans the moment in which
    /// editors and `git` have taken the old file away and not begun the new one.
    pub removal_hold: Duration,
}

/// The bounds of the work and the memory that files can cause.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest file that is read, in bytes.
    pub file_bytes_max: u64,
    /// The longest document that is parsed, in bytes.
    pub document_bytes_max: usize,
    /// The most documents of one file; a file with more is not used.
    pub documents_per_file_max: usize,
    /// The most findings about one file; the last one sums up the rest.
    pub findings_per_file_max: usize,
    /// The most files.
    pub files_max: usize,
    /// The most directories, which is also the most watches that are asked of the system.
    pub directories_max: usize,
}

/// How much work was done. Cheap to clone; clones count together.
#[derive(Clone, Default)]
pub struct Counters {
    /// Files whose text was read.
    pub files_read: Counter,
    /// Bytes of these texts.
    pub bytes_read: Counter,
    /// Documents that had not been seen before, or were not in effect, and so were read.
    pub documents_parsed: Counter,
    /// How often events were lost, so that every file was looked at.
    pub overflows: Counter,
}

/// Why a directory cannot be served at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its name.
    #[error("the path {0:?} is not UTF-8")]
    NotUtf8(PathBuf),
    /// The operator's choice, or the permissions.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// The directory or file.
        path: Arc<str>,
        /// The error of the system.
        error: io::Error,
    },
    /// A limit of the system (`fs.inotify.max_user_instances` or `max_user_watches`), or of
    /// its threads.
    #[error("{path} cannot be watched: {error}")]
    Unwatchable {
        /// The directory.
        path: Arc<str>,
        /// The error of the system.
        error: io::Error,
    },
}

/// The knowledge that the directories of one process share: of two files with the same object, the
/// one whose path sorts first has its way, whichever directory it is in. Cheap to clone.
#[derive(Clone, Default)]
pub struct Known {
    index: Arc<RwLock<Index>>,
    counters: Counters,
}

impl Known {
    /// Finds the places of objects.
    pub fn locator(&self) -> Locator {
        Locator::new(&self.index)
    }

    /// The work done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// A directory, or one file of it, that is being watched.
pub struct Directory {
    root: Arc<str>,
    /// The one file that is read; none for all.
    only: Option<Arc<str>>,
    limits: Limits,
    index: Arc<RwLock<Index>>,
    counters: Counters,
    watch: DirectoryWatch,
    queue: Queue,
    /// The work that is read in slices, the next slice first; at most [`JOBS_MAX`].
    jobs: VecDeque<Job>,
    /// The work that is to be read so once there is room, and of which nothing is held.
    waiting: VecDeque<Job>,
    /// Whether the next slice goes before other work.
    owes_slice: bool,
    /// The results of the first load, until it is complete.
    loading: Option<mpsc::Receiver<Vec<Parsed>>>,
    /// Problems of the tree that were found before the first load.
    early: Vec<Parsed>,
    /// When the events were noticed that the work in the queue follows from.
    noticed: Option<Instant>,
    survey: Survey,
    /// The processor time that this thread has taken.
    processor_time: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Directory {
    /// Watches and lists the directory and starts to read it. To be called within a runtime.
    ///
    /// # Errors
    /// When the root cannot be listed or watched. What is wrong below it becomes findings.
    pub fn open(settings: Settings) -> Result<Directory, OpenError> {
        Directory::open_beside(settings, &Known::default())
    }

    /// Opens a root beside others. Where the root is a file, it alone is read of its directory.
    ///
    /// # Errors
    /// The errors of [`Directory::open`], and a file whose name is not one of those that are read.
    pub fn open_beside(settings: Settings, known: &Known) -> Result<Directory, OpenError> {
        let Some(root) = settings.root.to_str() else {
            return Err(OpenError::NotUtf8(settings.root));
        };
        let (root, only) = split_root(trim_root(root))?;
        let unwatchable = |error| OpenError::Unwatchable {
            path: root.clone(),
            error,
        };
        if let Err(error) = std::fs::read_dir(&*root) {
            return Err(OpenError::Unreadable { path: root, error });
        }
        let mut watch = DirectoryWatch::new(&root).map_err(unwatchable)?;
        watch.anchor();
        watch.add(&root).map_err(unwatchable)?;
        let limits = settings.limits;
        let listing = match &only {
            Some(file) => tree::Listing {
                files: [file.clone()].into(),
                ..tree::Listing::default()
            },
            None => tree::list(&root, &limits, &mut |directory| {
                watch.enter(directory, &root)
            }),
        };
        let troubles = listing.troubles.into_iter();
        let early = troubles
            .map(|(path, problem)| check::trouble(path, problem))
            .collect();
        let counters = known.counters.clone();
        let (sender, receiver) = mpsc::channel(loader::CHUNKS_WAITING_MAX);
        let send = move |chunk| sender.blocking_send(chunk).is_ok();
        loader::start(
            listing.files.into_iter().collect(),
            &limits,
            &counters,
            send,
        )
        .map_err(unwatchable)?;
        Ok(Directory {
            queue: Queue::new(settings.removal_hold, &root),
            root,
            only,
            limits,
            index: known.index.clone(),
            counters,
            watch,
            jobs: VecDeque::new(),
            waiting: VecDeque::new(),
            owes_slice: false,
            loading: Some(receiver),
            early,
            noticed: None,
            survey: Survey::default(),
            processor_time: Arc::new(clock::processor_time),
        })
    }

    /// The next batch; it is never empty, but for the one that ends the first load with
    /// `synced`, which may be. Dropping the future loses nothing.
    ///
    /// It reads files with blocking calls, so it belongs on a thread that nobody waits for, and all
    /// that share a [`Known`] on the same one. While something long is read, what else changes
    /// comes after one slice of it: 64 KiB of documents, 1,024 entries of directories, or as much
    /// as takes 25 ms of processor time, but one document of [`Limits::document_bytes_max`] whole,
    /// beside the splitting of one text of [`Limits::file_bytes_max`].
    pub async fn next(&mut self) -> Batch {
        loop {
            if let Some(receiver) = &mut self.loading {
                let chunk = receiver.recv().await;
                if let Some(batch) = self.take_loaded(chunk) {
                    return batch;
                }
                continue;
            }
            if !self.jobs.is_empty() {
                self.take_events();
            }
            let work = match self.owes_slice && !self.jobs.is_empty() {
                true => None,
                false => self.queue.pop(),
            };
            // Neither waits for more than one of the other.
            self.owes_slice = work.is_some() && !self.jobs.is_empty();
            let batch = match work {
                Some(work) => self.perform(work),
                None if !self.jobs.is_empty() => self.read_on(),
                None => {
                    self.wait().await;
                    continue;
                }
            };
            if let Some(batch) = batch {
                return batch;
            }
            // Many files that turn out to be unchanged must not starve other tasks, nor may a
            // long one.
            match self.jobs.is_empty() {
                true => tokio::task::coop::consume_budget().await,
                false => tokio::task::yield_now().await,
            }
        }
    }

    /// Looks at every file again, as after events were lost: next come the changes that no event
    /// told of.
    pub fn look_again(&mut self) {
        let now = clock::now();
        self.noticed = Some(now);
        self.queue
            .take(watch::Event::Overflow, now, &rescan::NoFacts);
    }

    /// Reads objects again although they have not changed: next come the files that they are in.
    /// Objects of other directories are passed over.
    pub fn read_again(&mut self, keys: impl IntoIterator<Item = ObjectKey>) {
        self.noticed = Some(clock::now());
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            let path = index.file_of(&key);
            let is_ours = |path: &Arc<str>| match &self.only {
                Some(only) => path == only,
                None => name::is_below(path, &self.root),
            };
            if let Some(path) = path.filter(is_ours) {
                index.let_go(key);
                self.queue.push(path);
            }
        }
    }

    /// Finds the places of objects.
    pub fn locator(&self) -> Locator {
        Locator::new(&self.index)
    }

    /// The work done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn take_loaded(&mut self, chunk: Option<Vec<Parsed>>) -> Option<Batch> {
        let Some(mut parsed) = chunk else {
            self.loading = None;
            let mut batch = self.apply(Vec::new());
            batch.synced = true;
            return Some(batch);
        };
        while parsed.len() < BATCH_FILES_MAX
            && let Some(receiver) = &mut self.loading
            && let Ok(more) = receiver.try_recv()
        {
            parsed.extend(more);
        }
        telling(self.apply(parsed))
    }

    /// Waits for events or for the end of a hold, and puts into the queue what follows.
    async fn wait(&mut self) {
        let ready = match self.queue.deadline() {
            Some(deadline) => tokio::select! {
                ready = self.watch.ready() => ready,
                () = tokio::time::sleep_until(deadline) => Ok(()),
            },
            None => self.watch.ready().await,
        };
        match ready {
            Ok(()) if self.take_events() => return,
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the directory cannot be watched"),
        }
        // The descriptor is ours and open, so this does not happen; if it does, a busy loop would
        // be worse than a pause.
        self.queue
            .take(watch::Event::Overflow, clock::now(), &rescan::NoFacts);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Puts into the queue what follows from events and from holds that have ended. Returns whether
    /// events can be read.
    fn take_events(&mut self) -> bool {
        let now = clock::now();
        let events = self.watch.drain();
        if let Err(error) = &events {
            tracing::error!(%error, "the directory's events cannot be read");
        }
        let is_readable = events.is_ok();
        self.noticed = Some(now);
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let facts = rescan::DiskFacts {
            index: &index,
            watch: &self.watch,
        };
        for event in events.unwrap_or_default() {
            if event == watch::Event::Overflow {
                self.counters.overflows.inc();
            }
            self.queue.take(event, now, &facts);
        }
        self.queue.expire(now);
        is_readable
    }

    fn knowledge(&self) -> Knowledge<'_> {
        Knowledge {
            root: &self.root,
            index: &self.index,
            limits: &self.limits,
            counters: &self.counters,
        }
    }

    /// One batch from what has been read.
    fn apply(&mut self, parsed: impl IntoIterator<Item = Parsed>) -> Batch {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let mut session = Session::new(&mut index, &self.limits, &self.counters);
        for parsed in self.early.drain(..).chain(parsed) {
            session.apply(parsed);
        }
        let (batch, rivals) = session.end();
        for path in rivals {
            self.queue.push_rival(path);
        }
        batch
    }
}

/// The batch, if it says anything.
fn telling(batch: Batch) -> Option<Batch> {
    (!batch.changes.is_empty() || !batch.reports.is_empty()).then_some(batch)
}

impl Settings {
    /// The defaults for a directory.
    pub fn new(root: impl Into<PathBuf>) -> Settings {
        Settings {
            root: root.into(),
            limits: Limits::default(),
            removal_hold: Duration::from_millis(10),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            file_bytes_max: 16 << 20,
            document_bytes_max: 2 << 20,
            documents_per_file_max: 100_000,
            findings_per_file_max: document::PROBLEMS_MAX,
            files_max: 1_000_000,
            directories_max: 65_536,
        }
    }
}

impl Counters {
    /// Shows the counters among the metrics of the process.
    pub fn register(&self, metrics: &Metrics) {
        let counters = [
            (
                "source_files_read",
                "Files whose text was read",
                &self.files_read,
            ),
            (
                "source_read_bytes",
                "Bytes of text read from files",
                &self.bytes_read,
            ),
            (
                "source_documents_parsed",
                "Documents that were new or not in effect and so were read",
                &self.documents_parsed,
            ),
            (
                "source_watch_overflows",
                "Times that events were lost and every file was looked at",
                &self.overflows,
            ),
        ];
        for (name, help, counter) in counters {
            metrics.register(name, help, counter.clone());
        }
    }
}

/// The directory of a root that is a file, and that file as events name it.
fn split_root(root: &str) -> Result<(Arc<str>, Option<Arc<str>>), OpenError> {
    let is_file = std::fs::metadata(root).is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Ok((root.into(), None));
    }
    let name = name::last_part(root);
    if !name::holds_objects(name) {
        let kinds = "a file that is served ends in .yaml, .yml or .json";
        return Err(OpenError::Unreadable {
            path: root.into(),
            error: io::Error::new(io::ErrorKind::InvalidInput, kinds),
        });
    }
    let directory: Arc<str> = match root.rsplit_once('/') {
        Some(("", _)) => "/".into(),
        Some((directory, _)) => directory.into(),
        None => ".".into(),
    };
    let file = name::join(&directory, name);
    Ok((directory, Some(file)))
}

/// A path without slashes at its end, so that names can be appended.
fn trim_root(root: &str) -> &str {
    let trimmed = root.trim_end_matches('/');
    if trimmed.is_empty() && !root.is_empty() {
        "/"
    } else {
        trimmed
    }
}
