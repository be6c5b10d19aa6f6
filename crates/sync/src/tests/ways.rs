//! Streams on a way that they share with nobody: how many there are, and what they hold.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::{self, Instant};
use myriad_model::{COMMIT_RESOURCES_MAX, Form, Sealer, Snapshot};
use prost::Message as _;

use super::pair::{KEY, Pair, World};
use crate::server::{ClaimRoom, NAMESPACE_WAYS_MAX, SHORT_NODES_MAX, WAY_PAUSE, WAY_TIMEOUT};
use crate::wire::{self, ASK_NODES_MAX, FromProxy, FromServer, from_proxy, from_server};
use crate::{ServerCounters, ServerSession};

/// More resources than a commit takes.
const RESOURCES: usize = COMMIT_RESOURCES_MAX + 1_000;

/// A world that many streams see, and the room of all of them.
struct Crowd {
    world: World,
    room: ClaimRoom,
    counters: ServerCounters,
}

impl Crowd {
    fn new() -> Self {
        let mut world = World::new(Form::Encoded);
        for number in 0..RESOURCES {
            world.put(&format!("e{number}"), 1);
        }
        Crowd {
            world,
            room: ClaimRoom::default(),
            counters: ServerCounters::default(),
        }
    }

    /// A stream whose proxy says that it holds one resource that nobody has sent it.
    fn claim(&self, namespace: &str, is_gateway: bool) -> ServerSession {
        let server = self.world.session(self.counters.clone());
        let mut server = server.claiming(&self.room, Arc::from(namespace), is_gateway);
        let hello = wire::Hello {
            protocol: wire::PROTOCOL,
            root: Bytes::from_static(&[9; 16]),
            count: 1,
            key_id: Sealer::new(KEY, Form::Encoded).key_id(),
            ..wire::Hello::default()
        };
        say(&mut server, from_proxy::Body::Hello(hello));
        server
    }
}

fn say(server: &mut ServerSession, body: from_proxy::Body) {
    let message = FromProxy { body: Some(body) };
    server.receive(message).expect("what a proxy may say");
}

/// Takes frames, and answers what is asked, up to the first of a commit; whether there is one.
fn takes_a_frame(server: &mut ServerSession, now: Instant) -> bool {
    while let Some(frame) = server.poll(now) {
        match FromServer::decode(frame).expect("a message").body {
            Some(from_server::Body::Ask(_)) => {
                let leaf = wire::Leaf {
                    index: 0,
                    slot: 0,
                    version: Bytes::from_static(&[7; 16]),
                    kind: 6,
                };
                let node = wire::Node {
                    leaves: vec![leaf],
                    ..wire::Node::default()
                };
                let nodes = wire::Nodes { nodes: vec![node] };
                say(server, from_proxy::Body::Nodes(nodes));
            }
            Some(from_server::Body::Changes(_)) => return true,
            _ => {}
        }
    }
    false
}

#[test]
fn streams_that_claim_one_stranger_hold_few_commits_of_their_own() {
    let crowd = Crowd::new();
    let now = clock::now();
    let mut streams: Vec<_> = (0..100).map(|_| crowd.claim("evil", false)).collect();
    let mut begun = 0;
    for stream in &mut streams {
        begun += usize::from(takes_a_frame(stream, now));
    }
    assert_eq!(begun, NAMESPACE_WAYS_MAX);
    assert_eq!(crowd.room.ways(), NAMESPACE_WAYS_MAX);
    let waited = streams.len() - NAMESPACE_WAYS_MAX;
    assert_eq!(crowd.counters.ways_waited.get(), waited as u64);
    // What they hold counts, and what the others want is not there.
    let held = NAMESPACE_WAYS_MAX * COMMIT_RESOURCES_MAX * 200;
    let live = crowd.world.steps().live_bytes();
    assert!(live > 0 && live <= held, "{live} of {held} bytes");
    // Others go on beside them.
    let mut honest = crowd.claim("good", false);
    assert!(takes_a_frame(&mut honest, now));
    let mut gateways: Vec<_> = (0..20).map(|_| crowd.claim("evil", true)).collect();
    assert!(gateways.iter_mut().all(|it| takes_a_frame(it, now)));

    // Whoever waits asks again, and goes on once a place is free.
    let mut last = streams.pop().expect("one that waits");
    let due = last.deadline().expect("a time to ask again");
    assert_eq!(due, now + WAY_PAUSE);
    assert!(!takes_a_frame(&mut last, due), "nobody has left");
    drop(streams.remove(0));
    assert!(!takes_a_frame(&mut last, due), "it has asked just now");
    assert!(takes_a_frame(&mut last, due + WAY_PAUSE));
    drop((streams, last, honest, gateways));
    assert_eq!(crowd.room.ways(), 0);
    assert_eq!(crowd.world.steps().live_bytes(), 0);
}

#[test]
fn a_stream_that_takes_long_while_others_wait_is_sent_away() {
    let crowd = Crowd::new();
    let now = clock::now();
    let mut slow: Vec<_> = (0..NAMESPACE_WAYS_MAX)
        .map(|_| crowd.claim("evil", false))
        .collect();
    assert!(slow.iter_mut().all(|it| takes_a_frame(it, now)));
    let late = now + WAY_TIMEOUT;
    assert!(!slow[0].is_overdue(late), "nobody waits");
    let mut other = crowd.claim("evil", false);
    assert!(!takes_a_frame(&mut other, late));
    let early = late - Duration::from_millis(1);
    assert!(!slow[0].is_overdue(early), "it has its time");
    assert!(slow[0].is_overdue(late));
    assert!(!other.is_overdue(late), "it has no place");
    drop(other);
    let later = late + Duration::from_secs(1);
    assert!(!slow[0].is_overdue(later), "nobody waits any more");
}

#[test]
fn few_changes_beside_what_a_proxy_has_need_no_place() {
    let mut crowd = Crowd::new();
    let mut first = Pair::connect(&crowd.world, Snapshot::new());
    first.settle();
    let held = first.client.held().clone();
    // What is changed is a stranger at whoever has it as it was.
    for number in 0..100 {
        crowd.world.put(&format!("e{number}"), 2);
    }
    let now = clock::now();
    let mut slow: Vec<_> = (0..NAMESPACE_WAYS_MAX)
        .map(|_| crowd.claim("shop", false))
        .collect();
    assert!(slow.iter_mut().all(|it| takes_a_frame(it, now)));
    for _ in 0..50 {
        let mut pair = Pair::connect(&crowd.world, held.clone());
        let server = crowd.world.session(crowd.counters.clone());
        pair.server = server.claiming(&crowd.room, Arc::from("shop"), false);
        pair.settle();
        assert!(pair.server.is_in_step());
    }
    assert_eq!(crowd.counters.ways_waited.get(), 0);
    assert_eq!(crowd.room.ways(), NAMESPACE_WAYS_MAX);
}

#[test]
fn a_long_comparison_needs_a_place_before_it_goes_on() {
    let mut crowd = Crowd::new();
    let mut first = Pair::connect(&crowd.world, Snapshot::new());
    first.settle();
    let held = first.client.held().clone();
    for number in 0..2_000 {
        crowd.world.put(&format!("e{number}"), 2);
    }
    let now = clock::now();
    let mut slow: Vec<_> = (0..NAMESPACE_WAYS_MAX)
        .map(|_| crowd.claim("shop", false))
        .collect();
    assert!(slow.iter_mut().all(|it| takes_a_frame(it, now)));
    let mut pair = Pair::connect(&crowd.world, held);
    let counters = ServerCounters::default();
    let server = crowd.world.session(counters.clone());
    pair.server = server.claiming(&crowd.room, Arc::from("shop"), false);
    pair.settle();
    assert!(!pair.server.is_in_step());
    let asked = counters.nodes_asked.get();
    let most = SHORT_NODES_MAX + ASK_NODES_MAX;
    assert!(asked as usize <= most, "{asked} nodes without a place");
    assert_eq!(counters.ways_waited.get(), 1);
    assert_eq!(pair.server.deadline(), Some(pair.now + WAY_PAUSE));

    drop(slow);
    pair.settle();
    assert_eq!(counters.nodes_asked.get(), asked, "it has asked just now");
    pair.now += WAY_PAUSE;
    pair.settle();
    assert!(pair.server.is_in_step());
    assert!(counters.nodes_asked.get() > asked);
    let newest = crowd.world.snapshot();
    assert_eq!(pair.client.held().digest(), newest.digest());
    assert_eq!(counters.resources.get(), 2_000);
    assert_eq!(crowd.room.ways(), 0, "it gives its place back");
}
