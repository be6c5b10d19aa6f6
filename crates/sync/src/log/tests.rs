//! Recovery of the log after ends of all kinds.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use myriad_model::{
    Endpoint, Endpoints, Form, Key, Kind, Name, Origin, Position, Resource, Sealer, Value,
};

use super::file::{Records, ZEROS_MAX};
use super::{Log, LogCounters, LogError, Logged, Replay};

const KEY: [u8; 32] = [5; 32];

/// A commit that puts these resources at a revision.
fn commit(sealer: &mut Sealer, revision: u64, names: &[String]) -> Logged {
    let mut logged = Logged::new(Position::counter(1, revision));
    logged.key = (revision == 1).then_some(KEY);
    for name in names {
        let address = ([10, 0, 0, 1], revision as u16).into();
        let value = Value::Endpoints(Box::new(Endpoints::new([Endpoint::even(address)].into())));
        let origin = Origin::settings();
        let sealed = sealer.seal(Name::from(&**name), Resource { origin, value });
        let bytes = sealed.encoded().unwrap().clone();
        logged.put(sealed.key().clone(), sealed.version(), bytes);
    }
    logged
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("e{number}")).collect()
}

fn open(path: &Path) -> Result<(Log, Vec<Logged>), LogError> {
    let mut records = Vec::new();
    let log = Log::open(path, LogCounters::default(), |it| records.push(it))?;
    Ok((log, records))
}

fn replay(records: Vec<Logged>) -> myriad_model::Snapshot {
    let mut replay = Replay::new(myriad_model::wire::SCHEMA);
    records.into_iter().for_each(|it| replay.apply(it));
    let (snapshot, key, unread) = replay.finish();
    assert_eq!((key, unread), (Some(KEY), 0));
    snapshot
}

/// The bytes of a file.
fn read(path: &Path) -> Vec<u8> {
    let mut content = vec![0; fs::metadata(path).unwrap().len() as usize];
    let file = fs::File::open(path).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
    content
}

/// A log of three commits, and where each record begins.
fn three(path: &Path) -> (Vec<Logged>, Vec<u64>) {
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let (log, _) = open(path).unwrap();
    let mut commits = Vec::new();
    let mut begins = Vec::new();
    for revision in 1..=3 {
        begins.push(fs::metadata(path).unwrap().len());
        let mut logged = commit(&mut sealer, revision, &names(0..10));
        if revision == 3 {
            logged.remove(Key::new(Kind::Endpoints, "gone"));
        }
        assert!(log.append(logged.clone()));
        log.flush();
        commits.push(logged);
    }
    (commits, begins)
}

#[test]
fn what_was_appended_is_read_back_and_only_its_owner_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (commits, _) = three(&path);
    let (log, records) = open(&path).unwrap();
    assert_eq!(records, commits);
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    assert!(log.append(commit(&mut sealer, 4, &names(0..1))));
    drop(log);
    assert_eq!(open(&path).unwrap().1.len(), 4);
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_off_and_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (commits, begins) = three(&path);
    let content = read(&path);
    let whole = content.len() as u64;
    for len in begins[2]..whole {
        fs::write(&path, &content[..len as usize]).unwrap();
        let (log, records) = open(&path).unwrap();
        assert_eq!(records, commits[..2]);
        assert!(log.append(commits[2].clone()));
        drop(log);
        assert_eq!(open(&path).unwrap().1, commits);
    }
    // The length was written, the bytes were not.
    let mut zeros = content[..begins[2] as usize].to_vec();
    zeros.resize(whole as usize, 0);
    fs::write(&path, &zeros).unwrap();
    assert_eq!(open(&path).unwrap().1, commits[..2]);
    for len in 0..16 {
        fs::write(&path, &content[..len]).unwrap();
        assert!(open(&path).unwrap().1.is_empty());
    }
}

#[test]
fn a_tail_of_zeros_beyond_what_a_crash_leaves_is_not_read_and_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (commits, _) = three(&path);
    let whole = fs::metadata(&path).unwrap().len();
    for (zeros, is_told) in [
        (1 << 20, false),
        (ZEROS_MAX, false),
        (ZEROS_MAX + 1, true),
        (50 << 30, true),
    ] {
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_len(whole + zeros).unwrap();
        let (mut records, _) = Records::open(&path, whole + zeros).unwrap();
        for _ in 0..3 {
            assert!(records.next().unwrap().is_some());
        }
        let end = records.next();
        let is_corrupt = matches!(end, Err(LogError::Corrupt { offset, .. }) if offset == whole);
        assert_eq!(is_corrupt, is_told, "{zeros}");
        assert!(is_corrupt || matches!(end, Ok(None)), "{zeros}");
        assert_eq!(open(&path).unwrap().1, commits, "{zeros}");
        assert_eq!(fs::metadata(&path).unwrap().len(), whole, "{zeros}");
    }
}

#[test]
fn anything_but_a_file_is_refused_unread_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    // One with a writer, so that who reads it waits for ever.
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
    std::os::unix::fs::symlink(pipe, &path).unwrap();
    let told = |path: &Path| open(path).err().unwrap().to_string();
    assert!(told(&path).contains("log: is a pipe and no regular file"));
    let created = super::file::create(&path).err().unwrap().to_string();
    assert!(created.contains("is a pipe"), "{created}");
    assert!(Records::open(&path, 100).is_err());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(told(&path).contains("is a directory"));
    fs::remove_dir(&path).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(told(&path).contains("is a socket"));
    fs::remove_file(&path).unwrap();
    assert!(open(&path).unwrap().1.is_empty());
}

#[test]
fn after_bytes_that_are_not_what_was_written_the_good_beginning_is_read_and_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (commits, begins) = three(&path);
    let content = read(&path);
    for offset in begins[1]..begins[2] {
        let mut damaged = content.clone();
        damaged[offset as usize] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        let (log, records) = open(&path).unwrap();
        assert_eq!(records, commits[..1], "at {offset}");
        assert!(log.append(commits[2].clone()));
        drop(log);
        assert_eq!(
            open(&path).unwrap().1,
            [commits[0].clone(), commits[2].clone()]
        );
    }
    // A page that was never written, with pages behind it that were.
    let mut torn = content.clone();
    torn[begins[1] as usize..begins[2] as usize].fill(0);
    fs::write(&path, &torn).unwrap();
    assert_eq!(open(&path).unwrap().1, commits[..1]);
    let mut other = content;
    other[2] = b'?';
    fs::write(&path, &other).unwrap();
    assert!(matches!(
        open(&path).err(),
        Some(LogError::OtherFormat { .. })
    ));
}

#[test]
fn a_part_of_what_a_compaction_left_is_not_served_since_it_may_lack_what_restricts_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let held = replay(vec![commit(&mut sealer, 1, &names(0..10_000))]);
    let log = Log::without_file(&path, LogCounters::default()).unwrap();
    assert!(log.rewrite(&held, KEY));
    log.flush();
    let compacted = read(&path).len();
    let mut more = commit(&mut sealer, 2, &names(0..1));
    more.key = None;
    assert!(log.append(more));
    drop(log);
    let content = read(&path);
    // Behind what the compaction left, it is as in any log; within, nothing is to be trusted.
    for (offset, is_served) in [(compacted + 1, true), (compacted - 1, false), (40, false)] {
        let mut damaged = content.clone();
        damaged[offset] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        match open(&path) {
            Ok((_, records)) => {
                assert!(is_served, "at {offset}");
                assert_eq!(replay(records).digest(), held.digest());
            }
            Err(error) => {
                let is_corrupt = matches!(error, LogError::Corrupt { .. });
                assert!(is_corrupt && !is_served, "at {offset}: {error}");
            }
        }
    }
    fs::write(&path, &content[..compacted - 1]).unwrap();
    assert!(matches!(open(&path).err(), Some(LogError::Corrupt { .. })));
}

#[test]
fn a_kind_of_a_newer_build_stays_in_the_log_and_the_rest_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let (log, _) = open(&path).unwrap();
    let future = |name: &str| Key::new(Kind::from_number(77).unwrap(), name);
    let mut first = commit(&mut sealer, 1, &names(0..10));
    for name in ["stays", "goes"] {
        let version = myriad_model::Version([7; 16]);
        first.put(future(name), version, b"of a newer build".to_vec().into());
    }
    assert!(log.append(first.clone()));
    let mut second = commit(&mut sealer, 2, &names(5..15));
    second.remove(future("goes"));
    assert!(log.append(second.clone()));
    log.flush();
    let end = read(&path).len() as u64;
    drop(log);
    let (_, records) = open(&path).unwrap();
    assert_eq!(records, [first, second]);
    let mut state = Replay::new(myriad_model::wire::SCHEMA);
    records.into_iter().for_each(|it| state.apply(it));
    let (snapshot, _, unread) = state.finish();
    assert_eq!((snapshot.len(), unread), (15, 2));

    // A newer build finds its bytes again, even after a compaction by this one.
    let compacted = super::compaction::compact(&path, end).unwrap();
    super::compaction::put_in_place(&compacted.file, &compacted.path, &path).unwrap();
    let (_, records) = open(&path).unwrap();
    let changes = records.iter().flat_map(|it| &it.changes);
    let newer: Vec<_> = changes
        .filter(|it| matches!(it.key.kind, Kind::Newer(_)))
        .collect();
    assert_eq!(newer.len(), 1);
    assert_eq!(newer[0].key, future("stays"));
    let bytes = newer[0].new.as_ref().map(|(_, bytes)| &bytes[..]);
    assert_eq!(bytes, Some(&b"of a newer build"[..]));
}

/// A log whose disk does not answer: a pipe that nobody reads.
fn hung(path: &Path, counters: LogCounters) -> (Log, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let opened = super::file::Opened {
        file: fs::File::from(std::os::fd::OwnedFd::from(writer)),
        len: super::file::HEAD_BYTES,
        compacted_len: 0,
    };
    (Log::start(path, Some(opened), counters).unwrap(), reader)
}

#[tokio::test]
async fn a_disk_that_does_not_answer_stops_nothing_and_the_log_is_written_anew_once_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let counters = LogCounters::default();
    let (mut log, mut reader) = hung(&path, counters.clone());
    let patience = Duration::from_millis(100);
    let mut taken = 0;
    let mut all = Vec::new();
    for revision in 1..=2_000 {
        let logged = commit(&mut sealer, revision, &names(0..20));
        all.push(logged.clone());
        // Once one has waited in vain, none waits any more: this test would take minutes.
        taken += usize::from(log.append_within(logged, patience).await);
    }
    assert!((1_000..2_000).contains(&taken), "{taken}");
    assert_eq!(counters.lost.get(), 2_000 - taken as u64);
    let held = replay(all);
    assert!(!log.is_whole());
    assert!(!log.rewrite(&held, KEY), "it does not answer yet");

    let reading = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    log.flush();
    assert!(log.rewrite(&held, KEY));
    assert!(log.is_whole());
    assert!(!log.rewrite(&held, KEY), "once is enough");
    let mut more = commit(&mut sealer, 2_001, &names(0..1));
    more.key = None;
    assert!(log.append_within(more.clone(), patience).await);
    log.flush();
    assert!(log.is_whole());
    assert_eq!(counters.rewrites.get(), 1);
    drop(log);
    reading.join().unwrap().unwrap();
    let restored = replay(open(&path).unwrap().1);
    assert_eq!(restored.len(), held.len());
    assert_eq!(restored.position(), &more.position);
}

#[test]
fn a_log_of_many_replacements_is_compacted_to_what_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let counters = LogCounters::default();
    let log = Log::open(&path, counters.clone(), |_| {}).unwrap();
    let mut all = Vec::new();
    for revision in 1..=100 {
        let mut logged = commit(&mut sealer, revision, &names(0..4_000));
        if revision == 100 {
            logged.changes.truncate(3_000);
            for name in names(3_000..4_000) {
                logged.remove(Key::new(Kind::Endpoints, &*name));
            }
        }
        all.push(logged.clone());
        assert!(log.append(logged));
        log.flush();
    }
    assert!(log.is_whole());
    drop(log);
    assert!(counters.compactions.get() >= 1);
    let len = fs::metadata(&path).unwrap().len();
    assert!(len < counters.bytes_written.get(), "{len} bytes");
    let (_, records) = open(&path).unwrap();
    let (expected, found) = (replay(all), replay(records));
    assert_eq!(found.digest(), expected.digest());
    assert_eq!(found.len(), 3_000);
    assert_eq!(found.position(), expected.position());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_disk_that_takes_no_more_ends_the_log_where_it_was_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (commits, _) = three(&path);
    // A file that may only be read refuses writes as a full disk does.
    let opened = super::file::Opened {
        file: fs::File::open(&path).unwrap(),
        len: fs::metadata(&path).unwrap().len(),
        compacted_len: 0,
    };
    let counters = LogCounters::default();
    let log = Log::start(&path, Some(opened), counters.clone()).unwrap();
    assert!(log.append(commits[0].clone()), "nobody knows yet");
    log.flush();
    assert!(!log.is_whole());
    assert!(!log.append(commits[1].clone()));
    assert_eq!(counters.lost.get(), 2);
    drop(log);
    assert_eq!(open(&path).unwrap().1, commits);
    let missing = folder.path().join("missing").join("log");
    assert!(matches!(open(&missing).err(), Some(LogError::Io { .. })));
}

#[test]
fn a_log_is_made_anew_from_what_is_in_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let held = replay(vec![commit(&mut sealer, 1, &names(0..10_000))]);
    fs::write(&path, b"anything but a log").unwrap();
    assert!(open(&path).is_err());
    let log = Log::without_file(&path, LogCounters::default()).unwrap();
    assert!(!log.is_whole());
    assert!(!log.append(Logged::default()), "it lacks what is before");
    assert!(log.rewrite(&held, KEY));
    let mut more = commit(&mut sealer, 2, &names(0..1));
    more.key = None;
    assert!(log.append(more));
    drop(log);
    let restored = replay(open(&path).unwrap().1);
    assert_eq!(restored.len(), 10_000);
    assert_eq!(restored.position(), &Position::counter(1, 2));
    assert_ne!(restored.digest(), held.digest());
}

#[tokio::test]
async fn what_is_more_than_the_queue_holds_waits_for_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut logged = Logged::new(Position::counter(1, 1));
    for name in names(0..5) {
        let version = myriad_model::Version([0; 16]);
        let bytes = vec![0; 4 << 20].into();
        logged.put(Key::new(Kind::Endpoints, &*name), version, bytes);
    }
    let (mut log, _) = open(&path).unwrap();
    for _ in 0..6 {
        assert!(
            log.append_within(logged.clone(), Duration::from_secs(60))
                .await
        );
    }
    assert!(log.is_whole());
    drop(log);
    let (_, records) = open(&path).unwrap();
    let mut keys: Vec<_> = records
        .iter()
        .flat_map(|it| &it.changes)
        .map(|it| &it.key)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

/// The figure that DESIGN.md bounds at a million in a release build; here it is only shown.
#[test]
fn a_hundred_thousand_resources_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut sealer = Sealer::new(KEY, Form::Encoded);
    let (log, _) = open(&path).unwrap();
    for piece in 0..25_usize {
        let range = piece * 4_000..(piece + 1) * 4_000;
        assert!(log.append(commit(&mut sealer, 1 + piece as u64, &names(range))));
    }
    drop(log);
    let before = myriad_base::clock::now();
    let mut replay = Replay::new(myriad_model::wire::SCHEMA);
    let log = Log::open(&path, LogCounters::default(), |it| replay.apply(it)).unwrap();
    let (snapshot, ..) = replay.finish();
    let took = myriad_base::clock::now() - before;
    eprintln!("100,000 resources from the log in {took:?}");
    assert_eq!(snapshot.len(), 100_000);
    drop(log);
}
