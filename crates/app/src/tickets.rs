//! The keys of session tickets that the replicas of a gateway share: a file that people, or a
//! controller by way of a Secret, write and replace.

pub mod file;
pub mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use myriad_base::metrics::{Counter, Metrics};
use myriad_base::task;
use myriad_proxy::{Proxy, TicketKeys};

use crate::signals;
use file::{Problem, read};

/// How often the file is read.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Follows the file of the setting for as long as the run-time goes on.
struct Follower {
    path: PathBuf,
    keys: Arc<TicketKeys>,
    failures: Counter,
    /// The problem of the file that was told last, until it is well again.
    told: Option<String>,
    /// Whether the file has ever had keys.
    has_keys: bool,
}

/// Checks the setting. A file that is not there yet is waited for, a folder is not.
pub fn check(path: Option<&Path>, problems: &mut Vec<String>) -> Option<PathBuf> {
    let path = path?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let is_awaited = folder.is_none_or(Path::is_dir);
    match read(path) {
        Ok(_) => {}
        Err(Problem::Absent) if is_awaited => {}
        Err(problem) => problems.push(format!("--ticket-keys {}: {problem}", path.display())),
    }
    Some(path.to_owned())
}

/// Gives a proxy the keys of the file, now and whenever it has others; SIGHUP looks at once.
///
/// # Errors
/// Signals cannot be listened to.
pub fn follow(path: Option<&Path>, proxy: &Proxy, metrics: &Metrics) -> std::io::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let mut hangup = signals::hangup()?;
    let mut follower = Follower {
        path: path.to_owned(),
        keys: proxy.ticket_keys(),
        failures: Counter::default(),
        told: None,
        has_keys: false,
    };
    let help = "Looks at the file of --ticket-keys that found no keys in it";
    metrics.register("ticket_key_file_failures", help, follower.failures.clone());
    follower.look();
    drop(task::spawn("ticket keys", async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                _ = hangup.recv() => {}
            }
            follower.look();
        }
    }));
    Ok(())
}

impl Follower {
    fn look(&mut self) {
        let file = self.path.display();
        match read(&self.path) {
            Ok(keys) => {
                let count = keys.len();
                if self.keys.take(keys) {
                    tracing::info!(%file, keys = count, "session tickets are made by the file");
                }
                (self.told, self.has_keys) = (None, true);
            }
            Err(problem) => {
                self.failures.inc();
                let problem = problem.to_string();
                if self.told.as_ref() == Some(&problem) {
                    return;
                }
                let goes_on = match self.has_keys {
                    true => "those that it had go on",
                    false => "those of the process make tickets until then",
                };
                tracing::warn!(%file, "no keys of session tickets: {problem}; {goes_on}");
                self.told = Some(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use myriad_base::metrics::Counter;
    use myriad_proxy::TicketKeys;

    use super::file::tests::write;
    use super::{Follower, check};

    fn problems(path: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        check(Some(path), &mut problems);
        problems
    }

    #[test]
    fn a_file_is_awaited_and_a_wrong_one_or_no_folder_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        assert!(problems(&path).is_empty() && problems(Path::new("nothing")).is_empty());
        let nowhere = directory.path().join("no/keys");
        assert!(problems(&nowhere)[0].contains("--ticket-keys"));
        write(&path, "zz", 0o600);
        assert!(
            problems(&path)[0].contains("keys: line 1"),
            "{:?}",
            problems(&path)
        );
    }

    #[test]
    fn the_keys_of_a_file_stay_when_it_breaks_or_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let keys = Arc::new(TicketKeys::new(Vec::new()).unwrap());
        let mut follower = Follower {
            path: path.clone(),
            keys: keys.clone(),
            failures: Counter::default(),
            told: None,
            has_keys: false,
        };
        follower.look();
        follower.look();
        assert_eq!((follower.failures.get(), keys.given()), (2, 0));
        let [first, second] = ["01", "02"].map(|it| format!("{}ff\n", it.repeat(31)));
        write(&path, &(first + &second), 0o600);
        follower.look();
        assert_eq!((follower.told.clone(), keys.given()), (None, 2));
        write(&path, "broken", 0o600);
        follower.look();
        assert!(follower.told.as_ref().unwrap().contains("line 1"));
        std::fs::remove_file(&path).unwrap();
        follower.look();
        assert!(follower.told.as_ref().unwrap().contains("no such file"));
        assert_eq!((follower.failures.get(), keys.given()), (4, 2));
    }
}
