//! A proxy's log that is damaged, and a disk that takes nothing for a while.

use std::fs;
use std::path::Path;

use myriad_base::metrics::Metrics;
use myriad_model::wire::SCHEMA;
use myriad_model::{
    Endpoint, Endpoints, Form, Name, Origin, Position, Resource, Sealer, Snapshot, Value,
};
use myriad_sync::Logged;

use super::{BROKEN_FILE, FILE, Kept};

const KEY: [u8; 32] = [3; 32];

/// A commit of one resource.
fn commit(revision: u16) -> Logged {
    let endpoint = Endpoint::even(([10, 0, 0, 1], revision).into());
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Endpoints(Box::new(Endpoints::new([endpoint].into()))),
    };
    let name = Name::new(format!("e{revision}"));
    let sealed = Sealer::new(KEY, Form::Encoded).seal(name, resource);
    let mut logged = Logged::new(Position::counter(1, revision.into()));
    let bytes = sealed.encoded().cloned().unwrap_or_default();
    logged.put(sealed.key().clone(), sealed.version(), bytes);
    logged
}

/// The state that commits lead to.
fn held(count: u16) -> Snapshot {
    let mut replay = myriad_sync::log::Replay::new(SCHEMA);
    for revision in 1..=count {
        let mut logged = commit(revision);
        logged.key = Some(KEY);
        replay.apply(logged);
    }
    replay.finish().0
}

fn open(directory: &Path) -> (Kept, Snapshot) {
    let (kept, snapshot, _) = Kept::open(directory, SCHEMA, &Metrics::new());
    (kept, snapshot)
}

/// Keeps three commits, and returns the length of the log after each.
async fn keep_three(directory: &Path) -> Vec<u64> {
    let (mut kept, _) = open(directory);
    kept.rekey(KEY);
    let mut lengths = Vec::new();
    for revision in 1..=3 {
        kept.append(commit(revision)).await;
        kept.hold(&held(revision));
        kept.log.as_ref().unwrap().flush();
        lengths.push(fs::metadata(directory.join(FILE)).unwrap().len());
    }
    lengths
}

#[tokio::test]
async fn the_good_beginning_of_a_damaged_log_is_served_and_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = keep_three(folder.path()).await;
    let path = folder.path().join(FILE);
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xaa; 8], lengths[1] - 9).unwrap();
    let (mut kept, served) = open(folder.path());
    assert_eq!(served.digest(), held(1).digest());
    assert!(!folder.path().join(BROKEN_FILE).exists());
    for revision in 2..=3 {
        kept.append(commit(revision)).await;
    }
    drop(kept);
    assert_eq!(open(folder.path()).1.digest(), held(3).digest());
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_told_and_the_log_is_written_anew_once_it_does() {
    let folder = tempfile::tempdir().unwrap();
    // A directory of that name can neither be opened nor replaced.
    let path = folder.path().join(FILE);
    fs::create_dir(&path).unwrap();
    let (mut kept, _) = open(folder.path());
    kept.rekey(KEY);
    kept.append(commit(1)).await;
    kept.hold(&held(1));
    assert_eq!(kept.gap.get(), 1);
    kept.log.as_ref().unwrap().flush();
    kept.append(commit(2)).await;
    kept.hold(&held(2));
    assert_eq!((kept.gap.get(), kept.counters.rewrites.get()), (1, 0));

    fs::remove_dir(&path).unwrap();
    // Half a minute later, and without any commit.
    kept.mended_at = None;
    kept.mend();
    kept.append(commit(3)).await;
    kept.hold(&held(3));
    kept.log.as_ref().unwrap().flush();
    kept.mend();
    assert_eq!((kept.gap.get(), kept.counters.rewrites.get()), (0, 1));
    drop(kept);
    assert_eq!(open(folder.path()).1.digest(), held(3).digest());
}
