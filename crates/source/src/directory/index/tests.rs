use std::collections::BTreeMap;

use myriad_api::{Batch, Change, Finding, Object};
use proptest::prelude::*;

use super::*;
use crate::directory::file::{FileState, Files};
use crate::directory::parsed::{Content, Parsed};
use crate::directory::{Counters, Limits};

/// Files in memory.
#[derive(Clone, Default)]
struct Shelf(BTreeMap<String, String>);

impl Files for Shelf {
    fn read(&mut self, path: &str) -> FileState {
        match self.0.get(path) {
            None => FileState::Gone,
            Some(text) if text == UNREADABLE => FileState::Unreadable(
                Stamp::default(),
                Box::new(Problem::new("is locked", "wait")),
            ),
            Some(text) => FileState::Text(Stamp::default(), text.clone()),
        }
    }
}

const UNREADABLE: &str = "(unreadable)";

/// The knowledge of a reader who has heard all batches.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    objects: BTreeMap<ObjectKey, Object>,
    findings: BTreeMap<String, Vec<Finding>>,
}

impl Heard {
    fn hear(&mut self, batch: Batch) {
        let mut keys: Vec<_> = batch
            .changes
            .iter()
            .map(|change| change.key().clone())
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), batch.changes.len(), "one change per key");
        for change in batch.changes {
            match change {
                Change::Put(object) => {
                    self.objects.insert(object.key().clone(), object);
                }
                Change::Remove(key) => {
                    assert!(self.objects.remove(&key).is_some(), "{key} was never there");
                }
            }
        }
        for report in batch.reports {
            if report.findings.is_empty() {
                let former = self.findings.remove(&*report.subject);
                assert!(
                    former.is_some(),
                    "nothing was reported about {}",
                    report.subject
                );
            } else {
                self.findings
                    .insert(report.subject.to_string(), report.findings);
            }
        }
    }
}

#[derive(Default)]
struct World {
    shelf: Shelf,
    index: Index,
    limits: Limits,
    counters: Counters,
    heard: Heard,
    /// Files that are to be read since they hold what others let go.
    unread: BTreeSet<Arc<str>>,
}

impl World {
    fn of(shelf: &Shelf) -> World {
        let mut world = World {
            shelf: shelf.clone(),
            ..World::default()
        };
        let paths: Vec<_> = shelf.0.keys().cloned().collect();
        for path in paths {
            world.tell(&[&path]);
        }
        world
    }

    fn write(&mut self, path: &str, text: &str) -> Batch {
        self.shelf.0.insert(path.into(), text.into());
        self.tell(&[path])
    }

    fn delete(&mut self, path: &str) -> Batch {
        self.shelf.0.remove(path);
        self.tell(&[path])
    }

    fn tell(&mut self, paths: &[&str]) -> Batch {
        let mut session = Session::new(&mut self.index, &self.limits, &self.counters);
        for path in paths {
            session.update(&Arc::from(*path), &mut self.shelf);
        }
        let batch = session.finish(&mut self.shelf);
        self.heard.hear(batch.clone());
        batch
    }

    /// Tells of paths, and reads what others let go at once or when [`World::catch_up`] says so.
    fn hear_of(&mut self, paths: &[&str], is_late: bool) {
        if !is_late {
            self.tell(paths);
            return;
        }
        let mut session = Session::new(&mut self.index, &self.limits, &self.counters);
        for path in paths {
            session.update(&Arc::from(*path), &mut self.shelf);
        }
        let (batch, rivals) = session.end();
        self.unread.extend(rivals);
        self.heard.hear(batch);
    }

    /// Reads what others let go; at most so many files.
    fn catch_up(&mut self, files_max: usize) {
        for _ in 0..files_max {
            let Some(path) = self.unread.pop_first() else {
                return;
            };
            self.hear_of(&[&path], true);
        }
    }

    fn parsed(&self) -> u64 {
        self.counters.documents_parsed.get()
    }

    /// The port of each Service in effect, which in these tests tells versions apart.
    fn ports(&self) -> BTreeMap<String, u16> {
        let objects = self.heard.objects.values();
        objects
            .filter_map(|object| match object {
                Object::Service(service) => {
                    Some((object.key().name().to_owned(), service.ports.first()?.port))
                }
                _ => None,
            })
            .collect()
    }

    fn check_ports(&self, expected: &[(&str, u16)]) {
        let expected = expected
            .iter()
            .map(|(name, port)| ((*name).to_owned(), *port));
        assert_eq!(self.ports(), expected.collect());
    }

    fn place(&self, name: &str) -> Option<(String, u32)> {
        let key = ObjectKey::new(myriad_api::ObjectKind::Service, "default", name);
        let place = self.index.locate(&key)?;
        Some((place.file.to_string(), place.line))
    }
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n  \
         - port: {port}\n"
    )
}

fn file(documents: &[String]) -> String {
    documents.join("---\n")
}

fn is_silent(batch: &Batch) -> bool {
    batch.changes.is_empty() && batch.reports.is_empty()
}

#[test]
fn only_documents_with_new_bytes_are_parsed() {
    let mut world = World::default();
    let documents: Vec<_> = (0..100).map(|n| service(&format!("s{n}"), 1)).collect();
    world.write("a.yaml", &file(&documents));
    assert_eq!(world.parsed(), 100);
    let mut changed = documents;
    changed[50] = service("s50", 2);
    let batch = world.write("a.yaml", &file(&changed));
    assert_eq!((world.parsed(), batch.changes.len()), (101, 1));
    let commented = format!("# why\n---\n{}", file(&changed));
    let batch = world.write("a.yaml", &commented);
    assert!(is_silent(&batch), "moved lines are no change");
    assert_eq!(world.parsed(), 101);
    assert_eq!(world.place("s1"), Some(("a.yaml".into(), 3 + 8)));
}

#[test]
fn an_emptied_or_deleted_file_takes_its_objects_along() {
    let mut world = World::default();
    world.write("a.yaml", &file(&[service("a", 1), service("b", 1)]));
    world.write("b.yaml", &service("c", 1));
    world.write("a.yaml", &service("b", 1));
    world.check_ports(&[("b", 1), ("c", 1)]);
    world.write("a.yaml", "# nothing\n");
    world.check_ports(&[("c", 1)]);
    world.delete("b.yaml");
    world.check_ports(&[]);
    assert!(is_silent(&world.delete("b.yaml")));
    assert_eq!(world.index.owners.len() + world.index.rivals.len(), 0);
}

#[test]
fn a_broken_document_takes_no_object_out_of_effect() {
    let mut world = World::default();
    world.write(
        "a.yaml",
        &file(&[service("a", 1), service("b", 1), service("c", 1)]),
    );
    let broken = "apiVersion: v1\nkind: Service\nmetadata:\n  name: b\nspec: [\n".to_owned();
    world.write(
        "a.yaml",
        &file(&[service("a", 2), broken.clone(), service("c", 1)]),
    );
    world.check_ports(&[("a", 2), ("b", 1), ("c", 1)]);
    let findings = &world.heard.findings["a.yaml"];
    let place = findings[0].place.as_ref().expect("a place");
    assert_eq!(
        (&*place.file, place.line, findings.len()),
        ("a.yaml", 13, 1)
    );
    assert_eq!(findings[0].object.as_ref().map(|key| key.name()), Some("b"));

    // Even what is taken out stays, for what is broken may have been meant to be it.
    world.write("a.yaml", &broken);
    world.check_ports(&[("a", 2), ("b", 1), ("c", 1)]);
    world.write("a.yaml", UNREADABLE);
    world.check_ports(&[("a", 2), ("b", 1), ("c", 1)]);
    assert!(world.heard.findings["a.yaml"][0].message.contains("locked"));

    let before = world.parsed();
    let batch = world.write("a.yaml", &file(&[service("a", 2), service("b", 3)]));
    assert_eq!(world.parsed() - before, 1, "the bytes of a are known");
    assert_eq!(batch.changes.len(), 2);
    world.check_ports(&[("a", 2), ("b", 3)]);
    assert!(world.heard.findings.is_empty());
}

#[test]
fn what_is_kept_of_a_broken_file_is_reported_no_more() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service}\n\
                - {apiVersion: v1, kind: Service, metadata: {name: a}}\n";
    let mut world = World::default();
    world.write("a.yaml", list);
    assert_eq!(world.heard.objects.len(), 1);
    world.write("a.yaml", "x\n");
    assert_eq!(world.heard.objects.len(), 1);
    assert_eq!(world.heard.findings["a.yaml"].len(), 1);
    world.limits.documents_per_file_max = 1;
    world.write("a.yaml", "y\n");
    assert_eq!(
        world.heard.objects.len(),
        0,
        "no more is kept than a file may hold"
    );
}

#[test]
fn a_file_that_comes_back_at_once_is_reported_on() {
    let mut world = World::default();
    world.write("a.yaml", "x\n");
    world.shelf.0.insert("a.yaml".into(), service("a", 1));
    let path: Arc<str> = "a.yaml".into();
    let mut session = Session::new(&mut world.index, &world.limits, &world.counters);
    let (stamp, content) = (Stamp::default(), Content::Gone);
    session.apply(Parsed {
        path: path.clone(),
        stamp,
        content,
    });
    session.update(&path, &mut world.shelf);
    let batch = session.finish(&mut world.shelf);
    world.heard.hear(batch);
    assert!(world.heard.findings.is_empty());
    world.check_ports(&[("a", 1)]);
}

#[test]
fn a_broken_document_is_read_once() {
    let mut world = World::default();
    world.write("a.yaml", &file(&["x\n".to_owned(), service("a", 1)]));
    world.write(
        "a.yaml",
        &file(&[service("b", 1), "x\n".to_owned(), service("a", 1)]),
    );
    assert_eq!(world.parsed(), 3);
    let lines: Vec<_> = world.heard.findings["a.yaml"]
        .iter()
        .filter_map(|finding| Some(finding.place.as_ref()?.line))
        .collect();
    assert_eq!(lines, [9], "the finding moves with its document");
}

#[test]
fn of_two_files_the_one_that_sorts_first_wins() {
    for order in [["a.yaml", "b.yaml"], ["b.yaml", "a.yaml"]] {
        let mut world = World::default();
        for path in order {
            world.write(path, &service("s", if path == "a.yaml" { 1 } else { 2 }));
        }
        world.check_ports(&[("s", 1)]);
        assert_eq!(world.place("s"), Some(("a.yaml".into(), 1)));
        let findings = &world.heard.findings["b.yaml"];
        assert!(findings[0].message.contains("a.yaml"), "{findings:?}");
        assert_eq!(world.heard.findings.len(), 1);

        let batch = world.delete("a.yaml");
        assert_eq!(batch.changes.len(), 1, "never out of effect: {batch:?}");
        world.check_ports(&[("s", 2)]);
        assert!(world.heard.findings.is_empty());
    }
    // By bytes, not by parts of the path: `.` sorts before `/`.
    let mut world = World::default();
    world.write("a/b.yaml", &service("s", 2));
    world.write("a.yaml", &service("s", 1));
    world.check_ports(&[("s", 1)]);
}

#[test]
fn what_a_file_let_go_stays_until_a_rival_was_read() {
    let mut world = World::default();
    for (path, port) in [("a.yaml", 1), ("b.yaml", 2), ("c.yaml", 3)] {
        world.write(path, &service("s", port));
    }
    world.shelf.0.remove("a.yaml");
    world.hear_of(&["a.yaml"], true);
    world.check_ports(&[("s", 1)]);
    assert_eq!((world.place("s"), world.parsed()), (None, 3));
    // The rival gives something else by now, so the next one is asked.
    world.shelf.0.insert("b.yaml".into(), service("t", 2));
    world.catch_up(1);
    world.check_ports(&[("s", 1), ("t", 2)]);
    world.catch_up(1);
    world.check_ports(&[("s", 3), ("t", 2)]);
    assert_eq!(world.parsed(), 5);
    assert!(world.unread.is_empty() && world.index.awaited.is_empty());
    assert!(world.heard.findings.is_empty());

    // Whoever takes it over meanwhile keeps it.
    world.write("d.yaml", &service("s", 4));
    world.shelf.0.remove("c.yaml");
    world.hear_of(&["c.yaml"], true);
    world.shelf.0.insert("a.yaml".into(), service("s", 5));
    world.hear_of(&["a.yaml"], true);
    world.check_ports(&[("s", 5), ("t", 2)]);
    world.catch_up(1);
    world.check_ports(&[("s", 5), ("t", 2)]);
    assert_eq!(world.place("s"), Some(("a.yaml".into(), 1)));
    assert!(world.heard.findings["d.yaml"][0].message.contains("a.yaml"));

    // Without a rival it goes at once.
    for path in ["d.yaml", "a.yaml"] {
        world.shelf.0.remove(path);
        world.hear_of(&[path], true);
    }
    world.check_ports(&[("t", 2)]);
    assert!(world.index.rivals.is_empty() && world.index.awaited.is_empty());
}

#[test]
fn of_two_documents_in_a_file_the_first_wins() {
    let mut world = World::default();
    world.write("a.yaml", &file(&[service("s", 1), service("s", 2)]));
    world.check_ports(&[("s", 1)]);
    assert!(world.heard.findings["a.yaml"][0].message.contains("line 1"));
    world.write("a.yaml", &service("s", 2));
    world.check_ports(&[("s", 2)]);
    assert!(world.heard.findings.is_empty());
}

#[test]
fn a_moved_file_is_no_change() {
    let mut world = World::default();
    world.write("b.yaml", &service("s", 1));
    let text = world.shelf.0.remove("b.yaml").expect("a file");
    world.shelf.0.insert("a.yaml".into(), text);
    let batch = world.tell(&["b.yaml", "a.yaml"]);
    assert!(matches!(batch.changes[..], [Change::Put(_)]), "{batch:?}");
    assert_eq!(world.place("s"), Some(("a.yaml".into(), 1)));
}

#[test]
fn an_item_of_a_list_changes_alone() {
    let list = |ports: [u16; 3]| {
        let items = ports.iter().enumerate().map(|(n, port)| {
            format!(
                "- {{apiVersion: v1, kind: Service, metadata: {{name: s{n}}}, \
                 spec: {{ports: [{{port: {port}}}]}}}}\n"
            )
        });
        format!(
            "apiVersion: v1\nkind: List\nitems:\n{}",
            items.collect::<String>()
        )
    };
    let mut world = World::default();
    world.write("a.yaml", &list([1, 1, 1]));
    let batch = world.write("a.yaml", &list([1, 2, 1]));
    assert_eq!(batch.changes.len(), 1);
    world.check_ports(&[("s0", 1), ("s1", 2), ("s2", 1)]);
    let broken = list([1, 0, 1]).replace("port: 0", "port: zero");
    assert!(world.write("a.yaml", &broken).changes.is_empty());
    world.check_ports(&[("s0", 1), ("s1", 2), ("s2", 1)]);
    assert_eq!(
        world.heard.findings["a.yaml"][0].field,
        "items[1].spec.ports[0].port"
    );
    let twice = list([1, 2, 3]).replace("s2", "s0");
    world.write("a.yaml", &twice);
    world.check_ports(&[("s0", 1), ("s1", 2)]);
    assert_eq!(world.heard.findings["a.yaml"].len(), 1);
    assert!(is_silent(
        &world.write("a.yaml", &format!("{twice}# more\n"))
    ));
}

#[test]
fn ten_thousand_errors_are_summed_up() {
    let mut world = World::default();
    let documents: Vec<_> = (0..10_000).map(|n| format!("x{n}\n")).collect();
    world.write("a.yaml", &file(&documents));
    let findings = &world.heard.findings["a.yaml"];
    assert_eq!(findings.len(), world.limits.findings_per_file_max);
    assert!(
        findings[99].message.contains("9901 more"),
        "{}",
        findings[99]
    );
    world.write("b.yaml", &file(&[service("s", 1), service("t", 1)]));
    world.check_ports(&[("s", 1), ("t", 1)]);

    let copies: Vec<_> = (0..10_000).map(|n| service("s", n)).collect();
    world.write("c.yaml", &file(&copies));
    assert_eq!(world.heard.findings["c.yaml"].len(), 100);
    world.limits.documents_per_file_max = 9_999;
    world.write("c.yaml", &file(&copies));
    assert!(
        world.heard.findings["c.yaml"][0]
            .message
            .contains("9999 documents")
    );
}

#[test]
fn a_document_costs_few_bytes() {
    assert!(size_of::<Document>() <= 48, "{}", size_of::<Document>());
    assert!(
        size_of::<(ObjectKey, Owner)>() <= 32,
        "{}",
        size_of::<(ObjectKey, Owner)>()
    );
}

const PATHS: [&str; 5] = ["a.yaml", "a/b.yaml", "b.yaml", "c.json", "d.yaml"];

/// A text that a test may put into a file.
fn any_text() -> impl Strategy<Value = String> {
    let document = prop_oneof![
        8 => (0..6_u8, 1..4_u16).prop_map(|(name, port)| service(&format!("s{name}"), port)),
        1 => Just("# nothing\n".to_owned()),
        1 => Just("apiVersion: apps/v1\nkind: Deployment\n".to_owned()),
        1 => Just("- broken\n".to_owned()),
        1 => Just("broken: [\n".to_owned()),
        1 => proptest::collection::vec((0..6_u8, 1..4_u16), 0..4).prop_map(|items| {
            let items = items.iter().map(|(name, port)| {
                format!(
                    "- {{apiVersion: v1, kind: Service, metadata: {{name: s{name}}}, \
                     spec: {{ports: [{{port: {port}}}]}}}}\n"
                )
            });
            format!("apiVersion: v1\nkind: List\nitems:\n{}", items.collect::<String>())
        }),
    ];
    prop_oneof![
        9 => proptest::collection::vec(document, 0..4).prop_map(|documents| file(&documents)),
        1 => Just(UNREADABLE.to_owned()),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, String),
    Delete(usize),
    /// The source hears of some paths, at last or for nothing.
    Tell(Vec<usize>),
    /// It reads a file that holds what another one let go.
    Read,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PATHS.len(), any_text()).prop_map(|(path, text)| Step::Write(path, text)),
        1 => (0..PATHS.len()).prop_map(Step::Delete),
        3 => proptest::collection::vec(0..PATHS.len(), 1..3).prop_map(Step::Tell),
        1 => Just(Step::Read),
    ]
}

/// A file whose text is read in full by a source that starts now.
fn is_whole(text: &str) -> bool {
    text != UNREADABLE && !text.contains("broken")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happened, in whatever order it was heard: once every file is whole and heard of,
    /// objects, findings and places are those of a source that starts now.
    #[test]
    fn any_order_of_events_ends_in_the_same_state(
        steps in proptest::collection::vec(any_step(), 1..40),
        last in Just(PATHS.to_vec()).prop_shuffle(),
        is_late in any::<bool>(),
    ) {
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Write(path, text) => {
                    world.shelf.0.insert(PATHS[path].into(), text);
                }
                Step::Delete(path) => {
                    world.shelf.0.remove(PATHS[path]);
                }
                Step::Tell(paths) => {
                    let paths: Vec<_> = paths.into_iter().map(|path| PATHS[path]).collect();
                    world.hear_of(&paths, is_late);
                }
                Step::Read => world.catch_up(1),
            }
        }
        // JSON files hold YAML here, so they are broken too.
        world.shelf.0.retain(|path, text| is_whole(text) && !path.ends_with("json"));
        for path in last {
            world.hear_of(&[path], is_late);
        }
        world.catch_up(1_000);
        prop_assert!(world.unread.is_empty() && world.index.awaited.is_empty());
        let fresh = World::of(&world.shelf);
        prop_assert_eq!(&world.heard, &fresh.heard);
        for key in fresh.heard.objects.keys() {
            prop_assert_eq!(world.index.locate(key), fresh.index.locate(key));
        }
        prop_assert_eq!(world.index.owners.len(), fresh.heard.objects.len());
        let rivals = |world: &World| {
            world.index.rivals.values().map(|ids| ids.len()).sum::<usize>()
        };
        prop_assert_eq!(rivals(&world), rivals(&fresh));
        for path in PATHS {
            prop_assert!(is_silent(&world.tell(&[path])), "a second look at {} is silent", path);
        }
    }

    /// Breaking files takes no object out of effect.
    #[test]
    fn breaking_files_removes_nothing(
        texts in proptest::collection::vec(any_text(), PATHS.len()),
        broken in proptest::collection::vec((0..PATHS.len(), 0..3_u8), 1..6),
    ) {
        let mut world = World::default();
        for (path, text) in PATHS.iter().zip(&texts) {
            world.write(path, text);
        }
        let before: Vec<_> = world.heard.objects.keys().cloned().collect();
        for (path, how) in broken {
            let Some(text) = world.shelf.0.get(PATHS[path]).cloned() else { continue };
            let text = match how {
                0 => UNREADABLE.to_owned(),
                1 => "broken: [\n".to_owned(),
                _ => format!("{text}---\nbroken: [\n"),
            };
            world.write(PATHS[path], &text);
        }
        let after: Vec<_> = world.heard.objects.keys().cloned().collect();
        for key in before {
            prop_assert!(after.contains(&key), "{} is gone", key);
        }
    }
}
