//! Proxies that claim to have what nobody sent them.

use std::sync::Arc;

use bytes::Bytes;
use myriad_base::clock;
use myriad_model::{Form, Position, Sealer};
use prost::Message as _;

use super::pair::{KEY, Pair, World};
use crate::server::{ClaimRoom, STREAM_CLAIMS_MAX};
use crate::wire::{self, FromProxy, FromServer, from_proxy, from_server};
use crate::{ServerCounters, ServerSession, SessionError};

/// A proxy that invents whatever it is asked for.
struct Liar {
    server: ServerSession,
    room: ClaimRoom,
    invented: u64,
    cuts: usize,
}

impl Liar {
    fn connect(world: &World) -> Liar {
        let room = ClaimRoom::default();
        let server = world.session(ServerCounters::default());
        let mut liar = Liar {
            server: server.claiming(&room, Arc::from("evil"), false),
            room,
            invented: 0,
            cuts: 0,
        };
        let hello = wire::Hello {
            protocol: wire::PROTOCOL,
            root: Bytes::from_static(&[9; 16]),
            count: 5,
            key_id: Sealer::new(KEY, Form::Encoded).key_id(),
            ..wire::Hello::default()
        };
        liar.say(from_proxy::Body::Hello(hello)).unwrap();
        liar
    }

    fn say(&mut self, body: from_proxy::Body) -> Result<(), SessionError> {
        let message = FromProxy { body: Some(body) };
        self.server.receive(message).map(drop)
    }

    /// A node below the second row has resources alone, all that fit.
    fn invent(&mut self, path: &[u8]) -> wire::Node {
        let mut node = wire::Node::default();
        for index in 0..64_u32 {
            self.invented += 1;
            let mut version = [7; 16];
            version[..8].copy_from_slice(&self.invented.to_be_bytes());
            if path.len() < 2 {
                let digest = Bytes::copy_from_slice(&version);
                node.branches.push(wire::Branch { index, digest });
                continue;
            }
            let steps = path.iter().map(|step| u64::from(*step));
            let steps = steps.chain([u64::from(index), self.invented]);
            let slot = (0_u32..)
                .zip(steps)
                .map(|(depth, step)| step << (6 * depth));
            node.leaves.push(wire::Leaf {
                index,
                slot: slot.fold(0, |slot, step| slot | step),
                version: Bytes::copy_from_slice(&version),
                kind: 6,
            });
        }
        node
    }

    /// Answers everything that it is asked, and says of each commit that it has another root.
    fn turn(&mut self) -> Result<(), SessionError> {
        while let Some(frame) = self.server.poll(clock::now()) {
            match FromServer::decode(frame).unwrap().body {
                Some(from_server::Body::Ask(ask)) => {
                    self.cuts += usize::from(ask.paths.iter().any(Bytes::is_empty));
                    let nodes = ask.paths.iter().map(|path| self.invent(path)).collect();
                    self.say(from_proxy::Body::Nodes(wire::Nodes { nodes }))?;
                }
                Some(from_server::Body::Commit(commit)) => {
                    let ack = wire::Ack {
                        position: commit.position,
                        root: Bytes::from_static(&[9; 16]),
                        ..wire::Ack::default()
                    };
                    self.say(from_proxy::Body::Ack(ack))?;
                }
                _ => {}
            }
            assert!(self.room.taken() <= STREAM_CLAIMS_MAX);
        }
        Ok(())
    }
}

#[test]
fn a_proxy_that_invents_resources_without_end_takes_no_more_than_its_room() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut liar = Liar::connect(&world);
    assert_eq!(liar.turn(), Err(SessionError::NeverInStep));
    assert_eq!(
        liar.cuts, 17,
        "the root is looked at once for each comparison"
    );
    let room = liar.room.clone();
    drop(liar);
    assert_eq!(room.taken(), 0, "and is given back");
}

#[test]
fn a_proxy_that_has_more_than_its_room_is_in_step_in_the_end() {
    let mut former = World::new(Form::Value);
    for number in 0..STREAM_CLAIMS_MAX + 20_000 {
        former.put(&format!("e{number}"), 1);
    }
    let mut world = World::new(Form::Encoded);
    world.put("e1", 1);
    world.put("new", 1);
    let mut held = former.snapshot().clone();
    held.set_position(Position::counter(1, 1));
    let mut pair = Pair::connect(&world, held);
    pair.settle();
    assert!(pair.server.is_in_step());
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    assert_eq!(pair.server_counters.mismatches.get(), 0);
}

#[test]
fn a_resource_outside_the_node_that_was_asked_for_is_refused() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let mut liar = Liar::connect(&world);
    while liar.server.poll(clock::now()).is_some() {}
    let leaf = wire::Leaf {
        index: 3,
        slot: 4,
        version: Bytes::from_static(&[7; 16]),
        kind: 6,
    };
    let node = wire::Node {
        leaves: vec![leaf],
        ..wire::Node::default()
    };
    let answer = wire::Nodes { nodes: vec![node] };
    let refused = liar.say(from_proxy::Body::Nodes(answer)).unwrap_err();
    assert_eq!(refused, SessionError::Invalid("place of a resource"));
}
