//! A file that lines are appended to, and that is opened anew once somebody has moved it away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use myriad_base::task;
use tokio::signal::unix::{SignalKind, signal};

/// A file of lines. Cheap to clone; clones write to the same.
#[derive(Clone, Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    /// Opens it, and makes it where it is not there.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn open(path: &Path) -> io::Result<LogFile> {
        Ok(LogFile {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(append(path)?)),
        })
    }

    /// Opens it anew; where that fails, the file before goes on.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }

    /// Opens it anew at each SIGUSR1, for as long as the run-time goes on.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn reopen_at_signal(&self) -> io::Result<()> {
        let (log, mut signals) = (self.clone(), signal(SignalKind::user_defined1())?);
        drop(task::spawn("access log file", async move {
            while signals.recv().await.is_some() {
                let file = log.path.display();
                match log.reopen() {
                    Ok(()) => tracing::info!(%file, "SIGUSR1: the access log is opened anew"),
                    Err(error) => tracing::error!(%file, %error, "cannot be opened anew"),
                }
            }
        }));
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::LogFile;

    #[test]
    fn lines_go_to_the_new_file_once_it_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        log.write_all(b"two\n").unwrap();
        log.reopen().unwrap();
        log.write_all(b"three\n").unwrap();
        let length = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert_eq!((length(&moved), length(&path)), (8, 6));
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert!(log.reopen().is_err() && log.write_all(b"four\n").is_ok());
    }
}
