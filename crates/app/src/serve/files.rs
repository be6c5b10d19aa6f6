//! The directories and files that a process serves, on a thread of their own: whoever translates
//! and serves waits for no text to be read.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};

use anyhow::Context;
use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_source::Wanted;
use myriad_source::directory::{Directory, Known, Locator};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::control::Event;
use crate::signals;

/// A directory that is followed, with the signal that it is to be looked at again, and the objects
/// of it that are to be read again.
type FollowedDirectory = (Directory, Signal, Wanted);

/// Starts to read, and fills the inbox until nobody takes from it, once what has to be there before
/// is loaded; a full one lets the reading wait. Returns how to find an object's file.
///
/// # Errors
/// A directory that cannot be read or watched, and the limits of the system.
pub(super) fn start(
    paths: Vec<PathBuf>,
    around: (mpsc::Sender<Event>, Wanted, CancellationToken),
    metrics: &Metrics,
) -> anyhow::Result<Locator> {
    let known = Known::default();
    known.counters().register(metrics);
    let locator = known.locator();
    let (sender, opened) = sync_channel(1);
    let run = move || run(&paths, &known, around, &sender);
    let thread = std::thread::Builder::new().name("source".to_owned());
    drop(thread.spawn(run)?);
    opened.recv().context("the source has ended")??;
    Ok(locator)
}

/// The thread: says whether all could be opened, and reads.
fn run(
    paths: &[PathBuf],
    known: &Known,
    (inbox, wanted, loaded): (mpsc::Sender<Event>, Wanted, CancellationToken),
    opened: &SyncSender<anyhow::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tell(opened, Err(error.into())),
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let followed = match open(paths, known) {
            Ok(followed) => followed,
            Err(error) => return tell(opened, Err(error)),
        };
        tell(opened, Ok(()));
        let each = followed.iter().map(|(.., wanted)| wanted.clone());
        task::spawn_local("wanted", share_out(wanted, each.collect()));
        let unlisted = Rc::new(Cell::new(followed.len()));
        for it in followed {
            let way = (inbox.clone(), loaded.clone());
            task::spawn_local("source", follow(it, unlisted.clone(), way));
        }
        inbox.closed().await;
    });
}

/// Tells whoever has started the thread.
fn tell(opened: &SyncSender<anyhow::Result<()>>, how: anyhow::Result<()>) {
    // It waits for this, so it takes it.
    let _ = opened.send(how);
}

fn open(paths: &[PathBuf], known: &Known) -> anyhow::Result<Vec<FollowedDirectory>> {
    let open = |path: &PathBuf| -> anyhow::Result<FollowedDirectory> {
        let directory = Directory::open_beside(myriad_source::Settings::new(path), known)?;
        Ok((directory, signals::hangup()?, Wanted::default()))
    };
    paths.iter().map(open).collect()
}

/// Passes on what changes in a directory. The list is complete once all are that were `unlisted`.
async fn follow(
    (mut directory, mut hangup, wanted): FollowedDirectory,
    unlisted: Rc<Cell<usize>>,
    (inbox, loaded): (mpsc::Sender<Event>, CancellationToken),
) {
    loop {
        let mut batch = tokio::select! {
            batch = directory.next() => batch,
            keys = wanted.next() => {
                directory.read_again(keys);
                continue;
            }
            _ = hangup.recv() => {
                tracing::info!("SIGHUP: every file is looked at again");
                directory.look_again();
                continue;
            }
        };
        if batch.synced {
            unlisted.set(unlisted.get().saturating_sub(1));
            batch.synced = unlisted.get() == 0;
        }
        // A file takes the place of whatever was kept before.
        loaded.cancelled().await;
        if inbox.send(Event::Changed(batch)).await.is_err() {
            return;
        }
    }
}

/// Asks every directory for the objects that are wanted: one of them has each.
async fn share_out(wanted: Wanted, each: Vec<Wanted>) {
    loop {
        let keys = wanted.next().await;
        for one in &each {
            one.add(keys.iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;

    use myriad_base::metrics::Metrics;
    use myriad_source::Wanted;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::start;
    use crate::control::Event;

    fn services(count: usize, port: u16) -> String {
        let mut text = String::new();
        for number in 0..count {
            let spec = format!("{{ports: [{{port: {port}}}]}}");
            let head = "---\napiVersion: v1\nkind: Service\n";
            let _ = writeln!(text, "{head}metadata: {{name: s{number}}}\nspec: {spec}");
        }
        text
    }

    /// How many objects come in the next batch that has some, and whether the list is complete.
    fn next(events: &mut mpsc::Receiver<Event>) -> (usize, bool) {
        match events.blocking_recv() {
            Some(Event::Changed(batch)) => (batch.changes.len(), batch.synced),
            _ => panic!("a batch"),
        }
    }

    #[test]
    fn files_are_read_while_the_thread_that_serves_does_something_else() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("a.yaml");
        fs::write(&file, services(10, 1)).expect("a file");
        let (inbox, mut events) = mpsc::channel(16);
        let paths = vec![home.path().to_owned()];
        let loaded = CancellationToken::new();
        let around = (inbox, Wanted::default(), loaded.clone());
        let locator = start(paths, around, &Metrics::new()).expect("a directory");
        // Something else has to be in the inbox before.
        assert!(events.try_recv().is_err());
        loaded.cancel();
        // No runtime runs here that could be what reads them.
        let (mut seen, mut is_synced) = (0, false);
        while !is_synced {
            let (more, synced) = next(&mut events);
            (seen, is_synced) = (seen + more, synced);
        }
        assert_eq!(seen, 10);
        fs::write(&file, services(5_000, 2)).expect("a file");
        assert_eq!(next(&mut events), (5_000, false));
        let key = myriad_api::ObjectKey::new(myriad_api::ObjectKind::Service, "default", "s4999");
        assert!(locator.locate(&key).is_some());
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_told() {
        let (inbox, _events) = mpsc::channel(16);
        let around = (inbox, Wanted::default(), CancellationToken::new());
        let error = start(vec!["/does/not/exist".into()], around, &Metrics::new());
        let error = error.err().expect("an error").to_string();
        assert!(error.contains("/does/not/exist"), "{error}");
    }
}
