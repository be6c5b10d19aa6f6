//! The folder where a cluster keeps everything, and the lock of who may change it: one at a time.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// The name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// Below the cache folder.
const CLUSTERS: &str = "clusters";
/// A name is that of a folder, and people type it.
const NAME_LENGTH_MAX: usize = 40;
/// The bytes of a log that an error shows.
const LOG_END_BYTES: u64 = 4096;

/// The folder of one cluster, which may not exist.
#[derive(Clone)]
pub(crate) struct Folder {
    name: Name,
    path: PathBuf,
}

/// The right to change the folder, which exists as long as this does. It ends with the process.
pub(super) struct Lock {
    folder: Folder,
    /// The folder itself, opened; programs that are started do not inherit it.
    _held: File,
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Name> {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = text.starts_with(word) && text.chars().all(|c| word(c) || c == '-');
        if !good || text.len() > NAME_LENGTH_MAX {
            bail!("a name has up to {NAME_LENGTH_MAX} of a-z, 0-9 and, not at its start, -");
        }
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Folder {
    pub(crate) fn of(cache: &Path, name: &Name) -> Folder {
        Folder {
            path: cache.join(CLUSTERS).join(&name.0),
            name: name.clone(),
        }
    }

    /// The names of all clusters that have a folder.
    pub(super) fn names(cache: &Path) -> Result<Vec<Name>> {
        let entries = match fs::read_dir(cache.join(CLUSTERS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // Whatever else people put there is none of ours.
            names.extend(entry?.file_name().to_string_lossy().parse::<Name>().ok());
        }
        names.sort();
        Ok(names)
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The kubeconfig that clients read; absolute, so that it serves in any folder.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// The script by which one enters the network of the cluster.
    pub(crate) fn entry(&self) -> PathBuf {
        self.path.join("enter")
    }

    /// The script by which tests kill parts of the cluster and start them again.
    pub(crate) fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Which process plays this part.
    pub(super) fn process(&self, part: &str) -> PathBuf {
        self.path.join("processes").join(part)
    }

    /// Waits until nobody else changes it; creates it if need be.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = &self.path;
        let context = || path.display().to_string();
        loop {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(path).with_context(context)?;
            let held = match File::open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                held => held.with_context(context)?,
            };
            held.lock().with_context(context)?;
            // Who had the lock before may have removed the folder, and another made it anew.
            let (ours, now) = (held.metadata()?, fs::metadata(path));
            if now.is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Lock {
                    folder: self.clone(),
                    _held: held,
                });
            }
        }
    }

    /// The last lines of a part's log; empty when it has none.
    pub(super) fn end_of_log(&self, part: &str) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.log(part)).and_then(|mut log| {
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(length.saturating_sub(LOG_END_BYTES)))?;
            log.take(LOG_END_BYTES).read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(_) => String::new(),
        }
    }

    fn log(&self, part: &str) -> PathBuf {
        self.logs().join(format!("{part}.log"))
    }
}

impl Lock {
    /// Writes a file at once or not at all, readable by the owner alone.
    pub(super) fn write(&self, path: &Path, text: &str, mode: u32) -> Result<()> {
        let context = || path.display().to_string();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(context)?;
        }
        let part = path.with_added_extension("part");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(&part).with_context(context)?;
        file.write_all(text.as_bytes()).with_context(context)?;
        fs::rename(&part, path).with_context(context)
    }

    /// A new log for a part; that of the start before stays beside it.
    pub(super) fn open_log(&self, part: &str) -> Result<File> {
        let path = self.folder.log(part);
        let context = || path.display().to_string();
        fs::create_dir_all(self.folder.logs()).with_context(context)?;
        match fs::rename(&path, path.with_added_extension("previous")) {
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            renamed => renamed.with_context(context)?,
        }
        File::create(&path).with_context(context)
    }

    /// Removes the folder with all that is in it.
    pub(super) fn remove_folder(self) -> Result<()> {
        let path = &self.folder.path;
        fs::remove_dir_all(path).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, sync_channel};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn a_name_can_be_a_file_and_an_argument() {
        for good in ["myriad", "a", "7", "test-1f"] {
            assert_eq!(name(good).to_string(), good);
        }
        for bad in ["", "-a", "a/b", "..", "A", "a b", &"a".repeat(41)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn clusters_are_found_by_their_folders() {
        let cache = tempfile::tempdir().expect("a folder");
        assert!(Folder::names(cache.path()).expect("none").is_empty());
        for cluster in ["b", "a"] {
            let folder = Folder::of(cache.path(), &name(cluster));
            drop(folder.lock().expect("created"));
        }
        fs::write(cache.path().join("clusters/.swp"), "").expect("a file");
        let names = Folder::names(cache.path()).expect("two");
        assert_eq!(names, [name("a"), name("b")]);
    }

    #[test]
    fn who_waited_for_a_folder_that_was_removed_gets_a_new_one() {
        let cache = tempfile::tempdir().expect("a folder");
        let folder = Folder::of(cache.path(), &name("a"));
        let first = folder.lock().expect("created");
        let (sender, receiver) = sync_channel(1);
        let waiting = folder.clone();
        let thread = std::thread::spawn(move || {
            let lock = waiting.lock().expect("created anew");
            sender.send(()).expect("the test listens");
            lock.remove_folder().expect("removed");
        });
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        first.remove_folder().expect("removed");
        receiver.recv().expect("its turn");
        thread.join().expect("no panic");
        assert!(!folder.exists());
    }
}
