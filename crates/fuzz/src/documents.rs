//! Files of objects, and what becomes of the objects.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use myriad_api::{Batch, Change, Finding};
use myriad_model::{Delta, Digest, Form, Sealer, Writer};
use myriad_proxy::route::edit::Edit;
use myriad_proxy::route::tables::Tables;
use myriad_proxy::upstream::endpoint::EndpointTable;
use myriad_source::{Limits, read};
use myriad_translate::{Engine, Outcome, Role, Settings, View};
use serde_json::value::RawValue;

use crate::resources::assert_written;

/// When all of it happens: 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000;

/// The finding about a file that made a parser fail.
const FAILED: &str = "made the parser fail";

/// A document that stands behind others.
const NEIGHBOUR: &str =
    "---\napiVersion: v1\nkind: Service\nmetadata: {name: zz-neighbour, namespace: zz}\n";

/// The objects that are there before anything else comes.
const BASE: &str = include_str!("documents/base.yaml");

/// A file of documents is read the same each time, no key is given twice, a document behind the
/// others is read whatever they are, and JSON means the same whether or not the file says that it
/// is JSON.
pub(crate) fn documents(bytes: &[u8]) -> bool {
    let batch = objects_of("a.yaml", bytes);
    let keys: BTreeMap<_, _> = batch.changes.iter().map(|it| (it.key(), it)).collect();
    assert_eq!(keys.len(), batch.changes.len());
    assert_eq!(objects_of("a.yaml", bytes), batch);
    let Ok(text) = std::str::from_utf8(bytes) else {
        assert!(batch.changes.is_empty());
        return false;
    };
    // A block scalar at the end says something else without the end of its line.
    let ended = objects_of("a.yaml", format!("{text}\n").as_bytes());
    let with_neighbour = objects_of("a.yaml", format!("{text}\n{NEIGHBOUR}").as_bytes());
    let is_neighbour = |change: &&Change| change.key().namespace() == "zz";
    assert_eq!(
        with_neighbour.changes.iter().filter(is_neighbour).count(),
        1
    );
    let others = with_neighbour.changes.iter().filter(|it| !is_neighbour(it));
    assert!(others.eq(&ended.changes));
    if text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok() {
        assert_eq!(objects_of("a.json", bytes).changes, batch.changes);
    }
    !batch.changes.is_empty()
}

/// The batch of a directory that has one file.
fn objects_of(path: &str, bytes: &[u8]) -> Batch {
    let batch = read(path, bytes, &Limits::default());
    for finding in batch.reports.iter().flat_map(|report| &report.findings) {
        assert!(!finding.message.is_empty() && !finding.remedy.is_empty());
        assert!(!finding.message.contains(FAILED), "{finding}");
    }
    batch
}

static BASE_CHANGES: LazyLock<Vec<Change>> =
    LazyLock::new(|| objects_of("b.yaml", BASE.as_bytes()).changes);

fn settings() -> Settings {
    Settings {
        https_port: 443,
        sidecars: true,
        views: vec![View {
            name: "web".into(),
            role: Role::Sidecar,
            labels: [("app".to_owned(), "web".to_owned())].into(),
            namespace: "shop".into(),
        }],
        ..Settings::default()
    }
}

/// Whatever objects say, what is translated of them can be sent and obeyed, so that none of its
/// texts could end a field of a head, and once they are gone everything is as it was.
pub(crate) fn translated(bytes: &[u8]) -> bool {
    let changes = objects_of("a.yaml", bytes).changes;
    if changes.is_empty() {
        return false;
    }
    let mut world = World::new();
    let before = world.state();
    let keys: Vec<_> = changes.iter().map(|change| change.key().clone()).collect();
    let known = |change: &&Change| keys.contains(change.key());
    let put_back = BASE_CHANGES.iter().filter(known).cloned();
    let mut back: Vec<_> = keys.iter().cloned().map(Change::Remove).collect();
    back.extend(put_back);
    world.apply(changes);
    world.apply(back);
    let after = world.state();
    assert_eq!(after.findings, before.findings);
    assert_eq!((after.digest, after.held), (before.digest, before.held));
    true
}

/// An engine, and the tables of the proxies that obey it.
struct World {
    engine: Engine,
    tables: BTreeMap<Arc<str>, (Tables, EndpointTable)>,
}

/// The state after all changes.
struct State {
    digest: Digest,
    findings: Vec<Finding>,
    /// Objects, units and links.
    held: [usize; 3],
}

impl World {
    fn new() -> Self {
        let writer = Writer::new(Sealer::new([7; 32], Form::Value));
        let mut world = World {
            engine: Engine::new(settings(), writer),
            tables: BTreeMap::new(),
        };
        world.apply(BASE_CHANGES.clone());
        world
    }

    fn state(&self) -> State {
        let usage = self.engine.usage();
        State {
            digest: self.engine.snapshot().digest(),
            findings: self.engine.findings().cloned().collect(),
            held: [usage.objects, usage.units, usage.links],
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        let Outcome { delta, others, .. } = self.engine.apply(changes, NOW);
        self.obey("gateway".into(), &delta);
        for (view, delta) in others {
            self.obey(view, &delta);
        }
    }

    fn obey(&mut self, view: Arc<str>, delta: &Delta) {
        let (tables, targets) = self.tables.entry(view).or_default();
        let mut edit = Edit::new(tables, targets);
        for change in delta.changes() {
            let new = change.new.as_ref();
            if let Some(resource) = new.and_then(|new| new.resource()) {
                assert_written(resource);
            }
            let taken = edit.change(change.old.as_ref(), new);
            assert_eq!(taken, Ok(()), "{}", change.key);
        }
        edit.finish();
    }
}
