use myriad_api::{Change, Object, ObjectKind};
use myriad_model::{Form, Position, Sealer, Snapshot, Writer};
use myriad_sync::Views;
use myriad_translate::{Engine, MAIN, Role, Settings, View};
use serde_json::json;
use tokio::sync::watch;

use super::Shown;

/// An engine with so many sidecars, of a namespace each, and what is shown of it.
struct World {
    engine: Engine,
    shown: Shown,
    /// The streams of all views, by their number.
    streams: Vec<watch::Receiver<Snapshot>>,
    main: watch::Receiver<Snapshot>,
    batches: u64,
}

fn view(number: usize) -> View {
    View {
        name: format!("ns{number}/app#1").into(),
        role: Role::Sidecar,
        labels: [("app".to_owned(), "app".to_owned())].into(),
        namespace: format!("ns{number}").into(),
    }
}

/// A policy for the workloads of a namespace, that only they obey.
fn policy(namespace: usize) -> Change {
    let value = json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"namespace": format!("ns{namespace}"), "name": "p"},
        "spec": {"rules": [{}]}
    });
    let object = Object::deserialize(ObjectKind::AuthorizationPolicy, value);
    Change::Put(object.expect("a policy"))
}

impl World {
    fn new(views: usize) -> World {
        let settings = Settings {
            sidecars: true,
            views: (0..views).map(view).collect(),
            ..Settings::default()
        };
        let writer = Writer::new(Sealer::new([5; 32], Form::Encoded));
        let mut world = World {
            engine: Engine::new(settings, writer),
            shown: Shown::new(Views::new()),
            streams: Vec::new(),
            main: watch::channel(Snapshot::new()).1,
            batches: 0,
        };
        world.apply(Vec::new());
        let stream = |name: &str| world.shown.newest[name].subscribe();
        world.streams = (0..views).map(|it| stream(&view(it).name)).collect();
        world.main = stream(MAIN);
        world
    }

    fn apply(&mut self, changes: Vec<Change>) {
        self.batches += 1;
        let outcome = self.engine.apply(changes, 1_000);
        self.engine.set_position(self.position());
        let has_changed = !outcome.delta.is_empty();
        self.shown.show_main(self.engine.snapshot(), has_changed);
        self.shown
            .show_others(&self.engine, &outcome.others, &outcome.gone);
    }

    fn position(&self) -> Position {
        Position::counter(1, self.batches)
    }

    /// How many views were written to in the last batch, and how many of their streams it woke.
    fn touched(&mut self) -> (usize, usize) {
        let newest = self.shown.newest.values();
        let position = self.position();
        let written = newest.filter(|it| *it.borrow().position() == position);
        let streams = self.streams.iter_mut().chain([&mut self.main]);
        let woken = streams.filter_map(|it| {
            let is_woken = it.has_changed().expect("a sender");
            it.mark_unchanged();
            is_woken.then_some(())
        });
        (written.count(), woken.count())
    }

    /// The position of which a stream that begins is told.
    fn position_of(&self, view: &str) -> Position {
        let newest = self.shown.views.newest(view).expect("it is there");
        newest.position().clone()
    }
}

#[test]
fn a_batch_writes_to_the_views_that_it_changes_however_many_there_are() {
    for views in [1, 100, 1_000] {
        let mut world = World::new(views);
        world.touched();
        world.apply(Vec::new());
        assert_eq!(world.touched(), (0, 0), "nothing changed in {views} views");
        world.apply(vec![policy(0)]);
        assert_eq!(world.touched(), (1, 1), "one changed of {views}");
        let last = view(views - 1).name;
        for name in [MAIN, &last] {
            assert_eq!(world.position_of(name), world.position(), "{name}");
        }
    }
}

#[test]
fn a_view_that_comes_is_shown_and_the_streams_of_one_that_goes_end() {
    let mut world = World::new(2);
    let came = view(7);
    world.engine.put_view(came.clone()).expect("there is room");
    world.apply(Vec::new());
    assert_eq!(world.touched().0, 1);
    assert_eq!(world.position_of(&came.name), world.position());
    assert!(world.engine.remove_view(&view(0).name));
    world.apply(Vec::new());
    assert!(world.shown.views.newest(&view(0).name).is_none());
    assert!(world.streams[0].has_changed().is_err(), "its stream ends");
    assert!(world.streams[1].has_changed().is_ok());
}
