use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_model::{Digest, Key, Position, Version};

use super::super::{Live, Newcomer, Speaker};
use super::{ProxyGroup, Served};

/// Commits to views, each with a root of its own.
struct World {
    live: Live,
    commits: u64,
}

fn route(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::HttpRoute, "shop", name)
}

fn own(name: &str) -> ProxyGroup {
    ProxyGroup::Own(format!("gateway/{name}").into())
}

fn root(number: u64) -> Digest {
    Digest::of(number, Version([7; 16]))
}

impl World {
    fn new() -> World {
        World {
            live: Live::new(&Metrics::new()),
            commits: 0,
        }
    }

    /// A commit that changes a view. Returns its number.
    fn commit(&mut self, view: &str) -> u64 {
        self.commits += 1;
        let roots = vec![(Arc::from(view), root(self.commits))];
        let keys: [Key; 0] = [];
        let live = &self.live;
        live.committed(roots, clock::now(), keys.iter(), []);
        self.commits
    }

    fn connect(&self, stream: u64, view: &str, speaker: Speaker) {
        let newcomer = Newcomer {
            subject: "somebody".into(),
            view: view.into(),
            instance: format!("p{stream}"),
            schema: 1,
            speaker,
        };
        self.live.connected(stream, newcomer);
    }

    fn ack(&self, stream: u64, number: u64) {
        self.live.acked(stream, root(number), Position::default());
    }

    /// A gateway of the operator that serves everything.
    fn join(&self, stream: u64) {
        self.connect(stream, "gateway", Speaker::Operator);
        self.ack(stream, self.commits);
    }

    /// The names of the objects that are told to be served.
    fn told(&self) -> Vec<String> {
        let news = std::mem::take(&mut self.live.lock().groups.news);
        news.iter().map(|key| key.name().to_owned()).collect()
    }
}

fn namespace(name: &str) -> Speaker {
    Speaker::Namespace(name.into())
}

#[test]
fn an_object_is_served_once_every_ready_proxy_has_its_commit() {
    let mut world = World::new();
    world.commit("gateway");
    world.join(1);
    world.join(2);
    // One that is fetching everything is not ready, and keeps nobody waiting.
    world.connect(3, "gateway", Speaker::Operator);
    let commit = world.commit("gateway");
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    let served = || world.live.served(&route("a"), &ProxyGroup::Shared);
    assert_eq!(served(), Served::Partly { proxies: 2 });
    world.ack(1, commit);
    assert_eq!(
        (world.told(), served()),
        (vec![], Served::Partly { proxies: 2 })
    );
    world.ack(2, commit);
    assert_eq!(world.told(), ["a"]);
    assert_eq!(served(), Served::Everywhere { proxies: 2 });
    world.ack(3, commit);
    assert_eq!(served(), Served::Everywhere { proxies: 3 });
    assert_eq!(world.told(), [""; 0], "told once");
}

#[test]
fn one_that_lags_behind_is_waited_for_until_it_is_gone() {
    let mut world = World::new();
    world.commit("gateway");
    world.join(1);
    world.join(2);
    let first = world.commit("gateway");
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    let second = world.commit("gateway");
    world.live.await_object(&route("b"), [ProxyGroup::Shared]);
    world.ack(1, second);
    world.ack(2, first);
    assert_eq!(world.told(), ["a"]);
    // A newer state of an object waits anew.
    world.commit("gateway");
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    world.live.gone(2);
    assert_eq!(world.told(), ["b"]);
    world.live.forget_object(&route("a"));
    world.ack(1, 4);
    assert_eq!(world.told(), [""; 0]);
    let state = world.live.lock();
    assert!(state.groups.waiting.is_empty() && state.groups.objects.is_empty());
}

#[test]
fn without_any_proxy_an_object_waits_for_the_first() {
    let mut world = World::new();
    world.commit("gateway");
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    let served = |name: &str| world.live.served(&route(name), &ProxyGroup::Shared);
    assert_eq!(served("a"), Served::Nowhere);
    let peeked = world.live.peek(&route("peeked"), &ProxyGroup::Shared);
    assert_eq!(peeked, Served::Nowhere);
    assert_eq!(served("older"), Served::Nowhere);
    world.connect(1, "gateway", Speaker::Operator);
    assert_eq!((world.told(), served("a")), (vec![], Served::Nowhere));
    world.ack(1, 1);
    assert_eq!(world.told(), ["a", "older"]);
    assert_eq!(served("older"), Served::Everywhere { proxies: 1 });
    // What changed nothing that proxies obey is served by what they serve.
    world.live.await_object(&route("b"), [ProxyGroup::Shared]);
    assert_eq!(world.told(), ["b"]);
    world.live.gone(1);
    assert_eq!(served("b"), Served::Nowhere);
    assert!(world.live.lock().groups.crowds.is_empty());
}

#[test]
fn what_waits_is_told_when_the_last_ready_proxy_goes_and_when_the_first_comes() {
    let mut world = World::new();
    let first = world.commit("gateway");
    world.join(1);
    world.join(2);
    world.commit("gateway");
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    world.live.hold_object(&route("b"), [ProxyGroup::Shared]);
    world.live.await_object(&route("c"), [own("edge/g")]);
    let served = || world.live.served(&route("a"), &ProxyGroup::Shared);
    world.live.gone(1);
    assert_eq!(
        (world.told(), served()),
        (vec![], Served::Partly { proxies: 1 })
    );
    world.live.gone(2);
    assert_eq!(
        (world.told().join(" "), served()),
        ("a b".to_owned(), Served::Nowhere)
    );
    assert!(world.live.awaits(&route("a")) && !world.live.awaits(&route("d")));
    // One that is not ready turns nothing, and the first that is does, though it lags behind.
    world.connect(3, "gateway", Speaker::Operator);
    world.live.gone(3);
    world.connect(4, "gateway", Speaker::Operator);
    assert_eq!(world.told(), [""; 0]);
    world.ack(4, first);
    assert_eq!(
        (world.told().join(" "), served()),
        ("a b".to_owned(), Served::Partly { proxies: 1 })
    );
    world.ack(4, world.commits);
    assert_eq!(world.told(), ["a"]);
    assert!(!world.live.awaits(&route("a")) && world.live.awaits(&route("b")));
}

#[test]
fn the_proxies_of_a_namespace_keep_nobody_waiting_but_whom_they_serve() {
    let mut world = World::new();
    world.live.share(["second".into()]);
    for view in [
        "gateway",
        "second",
        "egress",
        "gateway/evil/g",
        "shop/app#1",
    ] {
        world.commit(view);
    }
    world.connect(1, "gateway", Speaker::Operator);
    world.connect(2, "second", Speaker::Operator);
    world.connect(3, "egress", Speaker::Operator);
    world.connect(4, "gateway/evil/g", namespace("evil"));
    world.connect(5, "shop/app#1", namespace("shop"));
    for stream in 1..=5 {
        world.ack(stream, stream);
    }
    let ready: BTreeSet<_> = world.live.ready_proxies().into_iter().collect();
    let beside = ProxyGroup::Beside("shop".into());
    let expected = [
        (ProxyGroup::Shared, 2),
        (own("evil/g"), 1),
        (beside.clone(), 1),
    ];
    assert_eq!(ready, BTreeSet::from(expected));
    for view in ["gateway/evil/g", "egress", "gateway"] {
        world.commit(view);
    }
    let groups = [ProxyGroup::Shared, own("evil/g"), beside];
    world.live.await_object(&route("a"), groups.clone());
    world.ack(1, 8);
    // The sidecar's view did not change, and it serves all that there is for it.
    let served = groups.map(|group| world.live.served(&route("a"), &group));
    let expected = [
        Served::Everywhere { proxies: 2 },
        Served::Partly { proxies: 1 },
        Served::Everywhere { proxies: 1 },
    ];
    assert_eq!(served, expected);
    assert_eq!(world.told(), ["a"]);
    assert_eq!(
        world.live.waiting_objects(),
        [route("a")],
        "for the Gateway's own"
    );
}

#[test]
fn an_acknowledgement_costs_what_becomes_served_however_much_waits() {
    for waiting in [10, 1_000] {
        let mut world = World::new();
        world.commit("gateway");
        world.join(1);
        let first = world.commit("gateway");
        world.live.await_object(&route("a"), [ProxyGroup::Shared]);
        world.commit("gateway");
        for number in 0..waiting {
            let key = route(&format!("other{number}"));
            world.live.await_object(&key, [ProxyGroup::Shared]);
        }
        world.ack(1, first);
        assert_eq!(world.told(), ["a"]);
        assert_eq!(world.live.waiting_objects().len(), waiting);
        let places = world.live.lock().groups.waiting.len();
        assert_eq!(places, 1, "all that wait for a commit are one place");
    }
}

#[test]
fn an_object_that_is_held_waits_until_it_is_awaited() {
    let mut world = World::new();
    world.commit("gateway");
    world.join(1);
    world.live.hold_object(&route("a"), [ProxyGroup::Shared]);
    world.ack(1, world.commits);
    let commit = world.commit("gateway");
    world.ack(1, commit);
    let served = || world.live.served(&route("a"), &ProxyGroup::Shared);
    assert_eq!(
        (world.told(), served()),
        (vec![], Served::Partly { proxies: 1 })
    );
    world.live.await_object(&route("a"), [ProxyGroup::Shared]);
    assert_eq!(world.told(), ["a"]);
    assert_eq!(served(), Served::Everywhere { proxies: 1 });
}
