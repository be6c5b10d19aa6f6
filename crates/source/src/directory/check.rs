//! Reads files and directories once, for a check of what they hold.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError, RwLock};

use myriad_api::Batch;

use super::document::Passed;
use super::file::{self, Disk, FileState, Files, Stamp};
use super::index::{Index, Session};
use super::loader::{self, CHUNKS_WAITING_MAX};
use super::locator::Locator;
use super::parsed::{self, Parsed};
use super::problem::Problem;
use super::tree::{self, Listing};
use super::{Counters, Limits};

/// All that was found, once.
pub struct Loaded {
    /// Every object and every finding; `synced` is set.
    pub batch: Batch,
    /// The places of objects in files.
    pub locator: Locator,
    /// How many objects there are of each kind that is not read.
    pub passed: BTreeMap<Passed, usize>,
    /// How much was read.
    pub counters: Counters,
}

/// Reads the given files, whatever their names, and the directories with all below them.
///
/// # Errors
/// When no thread can be started. What is wrong with the files is in the findings.
pub fn load(paths: &[PathBuf], limits: &Limits) -> std::io::Result<Loaded> {
    let counters = Counters::default();
    let index = Arc::new(RwLock::new(Index::default()));
    let listing = list(paths, limits);
    let (sender, receiver) = sync_channel::<Vec<Parsed>>(CHUNKS_WAITING_MAX);
    let send = move |chunk| sender.send(chunk).is_ok();
    loader::start(listing.files.into_iter().collect(), limits, &counters, send)?;
    let (batch, passed) = {
        let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
        let mut session = Session::new(&mut index, limits, &counters);
        for (path, problem) in listing.troubles {
            session.apply(trouble(path, problem));
        }
        for parsed in receiver.into_iter().flatten() {
            session.apply(parsed);
        }
        let passed = session.take_passed();
        let mut batch = session.finish(&mut Disk {
            limits,
            counters: &counters,
        });
        batch.synced = true;
        (batch, passed)
    };
    Ok(Loaded {
        batch,
        locator: Locator::new(&index),
        passed,
        counters,
    })
}

/// The batch of one file with this content, as a directory with nothing but it would be read.
/// Nothing is looked for on the disk.
pub fn read(path: &str, bytes: &[u8], limits: &Limits) -> Batch {
    let counters = Counters::default();
    let mut index = Index::default();
    let mut session = Session::new(&mut index, limits, &counters);
    let mut content = Content(bytes);
    session.update(&path.into(), &mut content);
    session.finish(&mut content)
}

/// The content of the one file there is.
struct Content<'a>(&'a [u8]);

impl Files for Content<'_> {
    fn read(&mut self, _: &str) -> FileState {
        file::of_bytes(Stamp::default(), self.0.to_vec())
    }
}

/// The state of a path of which only the problem is known.
pub(crate) fn trouble(path: Arc<str>, problem: Problem) -> Parsed {
    Parsed {
        path,
        stamp: Stamp::default(),
        content: parsed::Content::Trouble(Box::new(problem)),
    }
}

fn list(paths: &[PathBuf], limits: &Limits) -> Listing {
    let mut all = Listing::default();
    for path in paths {
        let Some(text) = path.to_str() else {
            let problem = Problem::new("has a name that is not UTF-8", "rename it");
            all.troubles.push((path.to_string_lossy().into(), problem));
            continue;
        };
        let path: Arc<str> = super::trim_root(text).into();
        match std::fs::metadata(&*path) {
            Ok(metadata) if metadata.is_dir() => {
                let below = tree::list(&path, limits, &mut |_| Ok(true));
                all.files.extend(below.files);
                all.troubles.extend(below.troubles);
            }
            Ok(_) => {
                all.files.insert(path);
            }
            Err(error) => {
                let message = format!("is not readable: {error}");
                let problem = Problem::new(message, "give the path of a file or directory");
                all.troubles.push((path, problem));
            }
        }
    }
    all
}
