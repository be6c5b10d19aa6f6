//! Proxies that take their time, and those that always say that they have something else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::{self, Instant};
use myriad_model::{Certificate, Form, KeyEncoding, PrivateKey, Sealer, Value};
use prost::Message as _;

use super::pair::{KEY, World};
use crate::server::{
    ClaimRoom, LAG_BYTES_MAX, LAG_TIMEOUT, RESYNCS_MAX, STEP_AGE_MAX, VIEW_BYTES_MAX,
};
use crate::wire::{self, FromProxy, FromServer, from_proxy, from_server};
use crate::{ServerCounters, ServerSession, SessionError};

/// Another root than anybody has.
const OTHER_ROOT: [u8; 16] = [9; 16];

/// The stream of a proxy that says it has so many resources.
fn connect(
    world: &World,
    count: u64,
    is_gateway: bool,
    counters: &ServerCounters,
) -> ServerSession {
    let server = world.session(counters.clone());
    let mut server = server.claiming(&ClaimRoom::default(), Arc::from("evil"), is_gateway);
    let root = match count {
        0 => [0; 16],
        _ => OTHER_ROOT,
    };
    let hello = wire::Hello {
        protocol: wire::PROTOCOL,
        root: Bytes::copy_from_slice(&root),
        count,
        key_id: Sealer::new(KEY, Form::Encoded).key_id(),
        ..wire::Hello::default()
    };
    say(&mut server, from_proxy::Body::Hello(hello)).unwrap();
    server
}

fn say(server: &mut ServerSession, body: from_proxy::Body) -> Result<(), SessionError> {
    let message = FromProxy { body: Some(body) };
    server.receive(message).map(drop)
}

/// Takes all frames up to the next commit. To whatever is asked it has nothing.
fn take_commit(server: &mut ServerSession, now: Instant) -> wire::Commit {
    let mut taken = None;
    while let Some(frame) = server.poll(now) {
        match FromServer::decode(frame).unwrap().body {
            Some(from_server::Body::Commit(commit)) => taken = Some(commit),
            Some(from_server::Body::Ask(ask)) => {
                let nodes = ask.paths.iter().map(|_| wire::Node::default()).collect();
                let nodes = from_proxy::Body::Nodes(wire::Nodes { nodes });
                say(server, nodes).unwrap();
            }
            _ => {}
        }
    }
    taken.expect("a commit")
}

fn acknowledge(
    server: &mut ServerSession,
    commit: wire::Commit,
    root: Bytes,
) -> Result<(), SessionError> {
    let ack = wire::Ack {
        position: commit.position,
        root,
        ..wire::Ack::default()
    };
    say(server, from_proxy::Body::Ack(ack))
}

/// A certificate of so many bytes.
fn certificate(number: u8, length: usize) -> Value {
    Value::Certificate(Box::new(Certificate {
        chain: [Bytes::from(vec![number; length])].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from_static(b"key")),
    }))
}

#[test]
fn a_sidecar_that_takes_its_time_while_much_is_replaced_is_sent_away() {
    let part = 8 << 20;
    let parts = u8::try_from(LAG_BYTES_MAX / part).unwrap() + 2;
    for (is_gateway, parts, is_sent_away) in [
        (false, parts, true),
        (false, 2, false),
        (true, parts, false),
    ] {
        let mut world = World::new(Form::Encoded);
        for number in 0..5_000 {
            world.put(&format!("e{number}"), 1);
        }
        let mut server = connect(&world, 0, is_gateway, &ServerCounters::default());
        let mut now = clock::now();
        let first = take_commit(&mut server, now);
        for number in 0..parts {
            world.put_value("ns/tls", certificate(number, part as usize));
        }
        server.update(world.snapshot().clone());
        now += LAG_TIMEOUT - Duration::from_secs(1);
        assert!(!server.is_overdue(now), "it has its time");
        let root = first.root.clone();
        acknowledge(&mut server, first, root).unwrap();
        // The rest of what was newest once.
        let second = take_commit(&mut server, now);
        now += Duration::from_secs(1);
        let case = (is_gateway, parts);
        assert_eq!(server.is_overdue(now), is_sent_away, "{case:?}");
        // Whoever has got there has its time anew.
        let root = second.root.clone();
        acknowledge(&mut server, second, root).unwrap();
        assert!(!server.is_overdue(now), "{case:?}");
        take_commit(&mut server, now);
        assert!(!server.is_overdue(now), "{case:?}");
    }
}

#[test]
fn a_proxy_that_is_in_step_now_and_then_is_compared_a_few_times_only() {
    let mut world = World::new(Form::Encoded);
    for number in 0..9_000 {
        world.put(&format!("e{number}"), 1);
    }
    let mut server = connect(&world, 5, false, &ServerCounters::default());
    let now = clock::now();
    let mut compared = 0;
    let end = loop {
        // One commit that is right, so that it does not seem to be never in step.
        let commit = take_commit(&mut server, now);
        let root = commit.root.clone();
        acknowledge(&mut server, commit, root).unwrap();
        let commit = take_commit(&mut server, now);
        let root = Bytes::from_static(&OTHER_ROOT);
        if let Err(error) = acknowledge(&mut server, commit, root) {
            break error;
        }
        compared += 1;
        assert!(compared <= RESYNCS_MAX);
    };
    assert_eq!(end, SessionError::NeverInStep);
    assert_eq!(compared, RESYNCS_MAX);
}

#[test]
fn sidecars_that_take_nothing_hold_no_more_commits_of_their_own_than_there_is_room_for() {
    let part = 15 << 20;
    let mut world = World::new(Form::Encoded);
    world.put_value("ns/tls", certificate(1, part));
    let counters = ServerCounters::default();
    let begin = |now, is_gateway| {
        let mut server = connect(&world, 0, is_gateway, &counters);
        for frame in ["the welcome", "the first of the commit"] {
            assert!(server.poll(now).is_some(), "{frame}");
        }
        server
    };
    let room = VIEW_BYTES_MAX as u64 / part as u64 + 1;
    let mut now = clock::now();
    let mut held = Vec::new();
    for _ in 0..20 {
        // By then nobody shares what those before were to send.
        now += STEP_AGE_MAX;
        held.push(begin(now, false));
    }
    assert_eq!(counters.steps_made.get(), room);
    now += STEP_AGE_MAX;
    held.push(begin(now, true));
    assert_eq!(counters.steps_made.get(), room + 1, "a gateway");
    held.clear();
    now += STEP_AGE_MAX;
    held.push(begin(now, false));
    let made = counters.steps_made.get();
    assert_eq!(made, room + 2, "what nobody has any more does not count");
}
