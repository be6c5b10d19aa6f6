mod links;
mod owners;
mod turns;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use myriad_api::{Change, Object, ObjectKey, ObjectKind};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

/// Long enough for any machine; nothing waits for it unless the test fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// A directory on disk, and someone who has heard all batches about it.
struct World {
    home: TempDir,
    directory: Directory,
    ports: BTreeMap<String, u16>,
    findings: BTreeMap<String, Vec<String>>,
    markers: u32,
}

impl World {
    /// Opens `root` below a new directory that `prepare` has filled.
    async fn open(root: &str, prepare: impl FnOnce(&Path)) -> World {
        World::open_within(root, Limits::default(), prepare).await
    }

    /// The same within limits. Time does not end slices.
    async fn open_within(root: &str, limits: Limits, prepare: impl FnOnce(&Path)) -> World {
        let home = tempfile::tempdir().expect("a directory");
        prepare(home.path());
        let mut settings = Settings::new(home.path().join(root));
        settings.limits = limits;
        let mut directory = Directory::open(settings).expect("a served directory");
        directory.processor_time = Arc::new(|| Duration::ZERO);
        let mut world = World {
            directory,
            home,
            ports: BTreeMap::new(),
            findings: BTreeMap::new(),
            markers: 0,
        };
        while !world.next().await.synced {}
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("a rename");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a removal");
    }

    async fn next(&mut self) -> Batch {
        let batch = timeout(DEADLINE, self.directory.next())
            .await
            .expect("a batch");
        for change in &batch.changes {
            let name = change.key().name().to_owned();
            match change {
                Change::Put(Object::Service(service)) => {
                    self.ports.insert(name, service.ports[0].port);
                }
                Change::Put(other) => panic!("{other:?} is no Service"),
                Change::Remove(_) => {
                    assert!(self.ports.remove(&name).is_some(), "{name} was not there");
                }
            }
        }
        for report in &batch.reports {
            let subject = report.subject.rsplit('/').next().unwrap_or("").to_owned();
            let findings = report.findings.iter().map(ToString::to_string).collect();
            self.findings.insert(subject, findings);
        }
        self.findings.retain(|_, findings| !findings.is_empty());
        batch
    }

    /// The batches until now: one more file is written, and its batch is the end.
    async fn batches(&mut self) -> Vec<Batch> {
        self.markers += 1;
        let marker = format!("marker{}", self.markers);
        let root = self.directory.root.to_string();
        fs::write(format!("{root}/{marker}.yaml"), service(&marker, 1)).expect("a file");
        let mut batches = Vec::new();
        while !self.ports.contains_key(&marker) {
            batches.push(self.next().await);
        }
        let last = batches.pop().expect("the marker's batch");
        assert_eq!(last.changes.len(), 1, "the marker has a batch of its own");
        self.ports.remove(&marker);
        batches
    }

    /// The only batch until now.
    async fn only_batch(&mut self) -> Batch {
        let mut batches = self.batches().await;
        assert_eq!(batches.len(), 1, "{batches:?}");
        batches.remove(0)
    }

    fn check(&self, expected: &[(&str, u16)]) {
        let expected = expected
            .iter()
            .map(|(name, port)| ((*name).to_owned(), *port));
        assert_eq!(self.ports, expected.collect());
        assert!(self.findings.is_empty(), "{:?}", self.findings);
    }

    fn files_read(&self) -> u64 {
        self.directory.counters.files_read.get()
    }
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n  \
         - port: {port}\n"
    )
}

/// `a.yaml` with the Service `a`.
fn one_file(home: &Path) {
    fs::write(home.join("a.yaml"), service("a", 1)).expect("a file");
}

#[tokio::test]
async fn the_first_load_finds_everything() {
    let mut world = World::open("", |home| {
        for n in 0..300 {
            fs::create_dir_all(home.join(format!("{}/x", n % 7))).expect("a directory");
            let text = format!(
                "{}---\n{}",
                service(&format!("a{n}"), n),
                service(&format!("b{n}"), n)
            );
            fs::write(home.join(format!("{}/x/{n}.yaml", n % 7)), text).expect("a file");
        }
        fs::write(home.join("broken.yml"), "a: [\n").expect("a file");
    })
    .await;
    assert_eq!(world.ports.len(), 600);
    assert_eq!(world.findings.len(), 1);
    assert_eq!(
        (
            world.files_read(),
            world.directory.counters.documents_parsed.get()
        ),
        (301, 601)
    );
    let key = ObjectKey::new(ObjectKind::Service, "default", "b9");
    let place = world.directory.locator().locate(&key).expect("a place");
    assert_eq!(*place.file, *world.path("2/x/9.yaml").display().to_string());
    assert_eq!(place.line, 9);
    assert!(
        world.batches().await.is_empty(),
        "the load itself is no change"
    );
}

#[tokio::test]
async fn one_edit_among_a_thousand_files_reads_one_file_and_parses_one_document() {
    let text = |n: u16, port| {
        format!(
            "{}---\n{}",
            service(&format!("a{n}"), 1),
            service(&format!("b{n}"), port)
        )
    };
    let mut world = World::open("", |home| {
        for n in 0..1_000 {
            fs::write(home.join(format!("{n}.yaml")), text(n, 1)).expect("a file");
        }
    })
    .await;
    let before = (
        world.files_read(),
        world.directory.counters.documents_parsed.get(),
    );
    world.write("500.yaml", &text(500, 2));
    let batch = world.next().await;
    assert_eq!(batch.changes.len(), 1);
    assert_eq!(world.ports["b500"], 2);
    let after = (
        world.files_read(),
        world.directory.counters.documents_parsed.get(),
    );
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
}

#[tokio::test]
async fn a_file_is_read_when_it_is_closed_and_not_before() {
    let mut world = World::open("", one_file).await;
    let mut growing = File::create(world.path("b.yaml")).expect("a file");
    growing
        .write_all(service("b", 1).as_bytes())
        .expect("a write");
    let mut rewritten = File::create(world.path("a.yaml")).expect("a file");
    rewritten.write_all(b"apiVersion: v1\n").expect("a write");
    assert!(world.batches().await.is_empty());
    drop(growing);
    rewritten
        .write_all(b"kind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 2}]}\n")
        .expect("a write");
    drop(rewritten);
    assert_eq!(world.batches().await.len(), 2);
    world.check(&[("a", 2), ("b", 1)]);
}

#[tokio::test]
async fn a_touched_file_is_no_change() {
    let mut world = World::open("", one_file).await;
    world.write("a.yaml", &service("a", 1));
    world.write("a.yaml", &format!("# why\n{}", service("a", 1)));
    assert!(world.batches().await.is_empty());
    assert_eq!(
        world.directory.counters.documents_parsed.get(),
        2,
        "a and the marker"
    );
}

#[tokio::test]
async fn files_move_appear_and_go() {
    let mut world = World::open("", one_file).await;
    world.rename("a.yaml", "b.yaml");
    let batch = world.only_batch().await;
    assert!(
        matches!(batch.changes[..], [Change::Put(_)]),
        "never out of effect: {batch:?}"
    );
    world.check(&[("a", 1)]);

    world.write("new", &service("a", 2));
    world.rename("new", "b.yaml");
    world.only_batch().await;
    world.check(&[("a", 2)]);

    fs::hard_link(world.path("b.yaml"), world.path("c.yaml")).expect("a link");
    world.next().await;
    assert!(
        world.findings["c.yaml"][0].contains("b.yaml"),
        "{:?}",
        world.findings
    );
    world.remove("b.yaml");
    let batch = world.next().await;
    assert!(matches!(batch.changes[..], [Change::Put(_)]), "{batch:?}");
    world.check(&[("a", 2)]);
    world.rename("c.yaml", "c.yaml.off");
    assert!(matches!(
        world.next().await.changes[..],
        [Change::Remove(_)]
    ));
    world.check(&[]);
}

#[tokio::test]
async fn editors_change_a_file_once() {
    let mut world = World::open("", one_file).await;

    // vim: a probe, a swap file, the old file as backup, the new one from its first byte on.
    world.write(".a.yaml.swp", "swap");
    world.write("4913", "");
    world.remove("4913");
    world.rename("a.yaml", "a.yaml~");
    let mut file = File::create(world.path("a.yaml")).expect("a file");
    file.write_all(service("a", 2).as_bytes()).expect("a write");
    assert!(
        world.batches().await.is_empty(),
        "between the old file and the new one"
    );
    drop(file);
    world.remove("a.yaml~");
    world.remove(".a.yaml.swp");
    let batch = world.only_batch().await;
    assert!(matches!(batch.changes[..], [Change::Put(_)]), "{batch:?}");
    world.check(&[("a", 2)]);

    // sed -i: a temporary file, moved over the old one.
    world.write("sedAbC123", &service("a", 3));
    world.rename("sedAbC123", "a.yaml");
    world.only_batch().await;
    world.check(&[("a", 3)]);

    // Emacs: a lock that is a dangling link, an autosave file, a backup by renaming.
    symlink("someone@host.1:2", world.path(".#a.yaml")).expect("a link");
    world.write("#a.yaml#", "half");
    world.rename("a.yaml", "a.yaml~");
    world.write("a.yaml", &service("a", 4));
    world.remove("#a.yaml#");
    world.remove(".#a.yaml");
    world.only_batch().await;
    world.check(&[("a", 4)]);

    // git: the old file is removed before the new one is made.
    world.remove("a.yaml");
    world.write("a.yaml", &service("a", 5));
    world.only_batch().await;
    world.check(&[("a", 5)]);
}

#[tokio::test]
async fn directories_come_move_and_go() {
    let mut world = World::open("", one_file).await;
    fs::create_dir_all(world.path("x/y/z")).expect("directories");
    world.write("x/y/z/b.yaml", &service("b", 1));
    assert_eq!(world.batches().await.len(), 1);
    world.write("x/y/c.yaml", &service("c", 1));
    assert_eq!(world.batches().await.len(), 1);
    world.check(&[("a", 1), ("b", 1), ("c", 1)]);

    world.rename("x", "w");
    let batch = world.only_batch().await;
    let removals = batch
        .changes
        .iter()
        .filter(|change| matches!(change, Change::Remove(_)));
    assert_eq!(removals.count(), 0, "never out of effect");
    world.write("w/y/z/b.yaml", &service("b", 2));
    world.only_batch().await;
    world.check(&[("a", 1), ("b", 2), ("c", 1)]);

    let outside = tempfile::tempdir().expect("a directory");
    fs::rename(world.path("w/y"), outside.path().join("y")).expect("a rename");
    while world.ports.len() > 1 {
        world.next().await;
    }
    fs::write(outside.path().join("y/c.yaml"), service("c", 9)).expect("a file");
    assert!(
        world.batches().await.is_empty(),
        "what was moved out is watched no more"
    );
    fs::rename(outside.path().join("y"), world.path("v")).expect("a rename");
    while world.ports.len() < 3 {
        world.next().await;
    }
    world.check(&[("a", 1), ("b", 2), ("c", 9)]);
    fs::remove_dir_all(world.path("v")).expect("a removal");
    while world.ports.len() > 1 {
        world.next().await;
    }
    world.check(&[("a", 1)]);
}

#[tokio::test]
async fn after_an_overflow_only_files_that_differ_are_read() {
    let mut world = World::open("", |home| {
        for n in 0..100 {
            fs::write(home.join(format!("{n}.yaml")), service(&format!("s{n}"), 1))
                .expect("a file");
        }
    })
    .await;
    let read = world.files_read();
    world.write("7.yaml", &service("s7", 2));
    world.write("new.yaml", &service("new", 1));
    world.remove("8.yaml");
    fs::create_dir(world.path("sub")).expect("a directory");
    world.write("sub/deep.yaml", &service("deep", 1));
    // The events are lost, and instead comes what the kernel says then.
    assert!(!world.directory.watch.drain().expect("events").is_empty());
    world
        .directory
        .queue
        .take(watch::Event::Overflow, clock::now(), &rescan::NoFacts);
    while world.ports.contains_key("s8") {
        world.next().await;
    }
    assert_eq!(world.files_read() - read, 3);
    assert_eq!(
        (world.ports["s7"], world.ports["new"], world.ports["deep"]),
        (2, 1, 1)
    );
    world.write("sub/deep.yaml", &service("deep", 2));
    world.only_batch().await;
    assert_eq!(world.ports["deep"], 2, "the new directory is watched");
}

#[tokio::test]
async fn more_events_than_the_kernel_holds_lose_nothing() {
    let limit = fs::File::open("/proc/sys/fs/inotify/max_queued_events").ok();
    let limit = limit.and_then(|file| std::io::read_to_string(file).ok());
    let limit: u32 = limit
        .and_then(|text| text.trim().parse().ok())
        .expect("a limit");
    assert!(
        limit < 100_000,
        "the kernel holds {limit} events, too many for this test"
    );
    let mut world = World::open("", one_file).await;
    // Two names take turns, since equal events in a row are one.
    for _ in 0..=limit / 4 {
        world.rename("a.yaml", "b.yaml");
        world.rename("b.yaml", "a.yaml");
    }
    world.write("c.yaml", &service("c", 1));
    while world.ports.len() < 2 {
        world.next().await;
    }
    assert_eq!(world.directory.counters.overflows.get(), 1);
    world.write("a.yaml", &service("a", 2));
    world.only_batch().await;
    world.check(&[("a", 2), ("c", 1)]);
}

#[tokio::test]
async fn dropping_next_loses_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    for n in 0..50 {
        fs::write(
            home.path().join(format!("{n}.yaml")),
            service(&format!("s{n}"), 1),
        )
        .expect("a file");
    }
    let mut directory = Directory::open(Settings::new(home.path())).expect("a directory");
    let mut seen = std::collections::BTreeSet::new();
    let mut is_synced = false;
    let begin = clock::now();
    let mut written = 0;
    while seen.len() < 60 {
        assert!(clock::now() - begin < DEADLINE, "{} objects", seen.len());
        tokio::select! {
            biased;
            batch = directory.next() => {
                is_synced |= batch.synced;
                seen.extend(batch.changes.iter().map(|change| change.key().clone()));
            }
            () = tokio::task::yield_now() => {
                if is_synced && written < 10 {
                    let file = home.path().join(format!("new{written}.yaml"));
                    fs::write(file, service(&format!("new{written}"), 1)).expect("a file");
                    written += 1;
                }
            }
        }
    }
}

#[tokio::test]
async fn the_root_must_be_a_directory_or_a_file_of_objects() {
    let home = tempfile::tempdir().expect("a directory");
    fs::write(home.path().join("a.txt"), service("a", 1)).expect("a file");
    for name in ["a.txt", "missing", "missing.yaml"] {
        let opened = Directory::open(Settings::new(home.path().join(name)));
        assert!(
            matches!(opened, Err(OpenError::Unreadable { .. })),
            "{name}"
        );
    }
}

/// The next batch, as the names of the objects that changed and whether the list is complete.
async fn names(source: &mut Directory) -> (Vec<String>, bool) {
    let batch = timeout(DEADLINE, source.next()).await.expect("in time");
    let names = batch.changes.iter().map(|it| it.key().name().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    (names, batch.synced)
}

#[tokio::test]
async fn a_file_is_read_alone_beside_a_directory_and_watched() {
    let home = tempfile::tempdir().expect("a directory");
    let write = |path: &str, text: &str| fs::write(home.path().join(path), text).expect("a file");
    for directory in ["one", "two"] {
        fs::create_dir(home.path().join(directory)).expect("a directory");
    }
    write("one/a.yaml", &service("a", 1));
    write("two/b.yaml", &service("b", 1));
    write("two/c.yaml", &service("c", 1));
    let known = Known::default();
    let open = |name: &str| {
        let settings = Settings::new(home.path().join(name));
        Directory::open_beside(settings, &known).expect("it is there")
    };
    for (name, object) in [("one", "a"), ("two/b.yaml", "b")] {
        let mut source = open(name);
        let mut seen = Vec::new();
        let mut is_synced = false;
        while !is_synced {
            let (names, synced) = names(&mut source).await;
            seen.extend(names);
            is_synced = synced;
        }
        assert_eq!(seen, [object], "{name}");
        if object == "b" {
            write("two/c.yaml", &service("c", 2));
            write("two/b.yaml", &service("d", 2));
            assert_eq!(names(&mut source).await.0, ["b", "d"]);
            write("two/c.yaml", &service("c", 3));
            source.look_again();
            fs::remove_file(home.path().join("two/b.yaml")).expect("it was there");
            assert_eq!(names(&mut source).await.0, ["d"]);
        }
    }
    assert_eq!(known.counters().files_read.get(), 3);
}

#[test]
fn a_check_reads_files_and_directories_once() {
    let home = tempfile::tempdir().expect("a directory");
    fs::create_dir(home.path().join("sub")).expect("a directory");
    one_file(&home.path().join("sub"));
    fs::write(home.path().join("any.txt"), service("b", 1)).expect("a file");
    fs::write(home.path().join("big.yaml"), "x: [\n").expect("a file");
    File::options()
        .write(true)
        .open(home.path().join("big.yaml"))
        .and_then(|file| file.set_len(100 << 20))
        .expect("a long file");
    let paths = ["sub", "any.txt", "big.yaml", "missing", "sub"].map(|name| home.path().join(name));
    let loaded = load(&paths, &Limits::default()).expect("a check");
    assert!(loaded.batch.synced);
    assert_eq!(loaded.batch.changes.len(), 2);
    let findings: Vec<_> = loaded
        .batch
        .reports
        .iter()
        .flat_map(|report| &report.findings)
        .collect();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].message.contains("16777216") && findings[1].message.contains("No such"));
    assert_eq!(loaded.counters.files_read.get(), 2);
    let key = ObjectKey::new(ObjectKind::Service, "default", "b");
    assert!(loaded.locator.locate(&key).is_some());
}

#[tokio::test]
async fn an_object_that_is_wanted_again_comes_as_if_it_had_changed() {
    let mut world = World::open("", |home| {
        fs::write(home.join("a.yaml"), service("a", 1)).expect("a file");
        let list = "kind: List\napiVersion: v1\nitems:\n";
        let item = |name: &str| service(name, 1).replace('\n', "\n  ");
        let items = ["b", "c"].map(|name| format!("- {}\n", item(name).trim_end()));
        fs::write(home.join("list.yaml"), format!("{list}{}", items.concat())).expect("a file");
    })
    .await;
    let key = |name: &str| ObjectKey::new(ObjectKind::Service, "default", name);
    for name in ["a", "b"] {
        world.directory.read_again([key(name), key("elsewhere")]);
        let batch = world.next().await;
        let keys: Vec<&ObjectKey> = batch.changes.iter().map(Change::key).collect();
        assert_eq!(keys, [&key(name)]);
        assert!(matches!(batch.changes[0], Change::Put(_)));
    }
}
