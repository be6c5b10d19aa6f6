//! The messages of a controller and its proxies, each behind its length in two
//! bytes, the highest first.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use myriad_base::clock::{self, Instant};
use myriad_model::{
    Change, Delta, Endpoint, Endpoints, Form, Name, Origin, Position, Resource, Sealer, Snapshot,
    Value, Writer,
};
use myriad_sync::server::Steps;
use myriad_sync::wire::{
    ASK_NODES_MAX, FromProxy, FromServer, MESSAGE_BYTES_MAX, NODE_CHILDREN_MAX, RECEIPTS_MAX,
    TEXT_BYTES_MAX, from_proxy,
};
use myriad_sync::{
    Anchors, ClientCounters, ClientSession, Delivery, Logged, NotSigned, Received, Report,
    ServerCounters, ServerSession,
};
use prost::Message as _;

/// The key of the cluster.
pub const KEY: [u8; 32] = [7; 32];

/// How many resources there are.
pub const WORLD_RESOURCES: u16 = 40;

/// The most messages that one of the other end can lead to: every resource once, and questions.
const ANSWERS_MAX: usize = 100;

/// Time stands still.
static NOW: LazyLock<Instant> = LazyLock::new(clock::now);

/// The resources of a controller, from a version of each on.
pub fn world(port: u16, form: Form) -> Snapshot {
    let mut writer = Writer::new(Sealer::new(KEY, form));
    for number in 0..WORLD_RESOURCES {
        let address = Ipv4Addr::from(0x0a00_0001 + u32::from(number));
        let endpoints = Endpoints::new([Endpoint::even((address, port).into())].into());
        let resource = Resource {
            origin: Origin::settings(),
            value: Value::Endpoints(Box::new(endpoints)),
        };
        let output = (Name::new(format!("e{number}")), resource);
        writer.replace(&[], vec![output], &mut Delta::default());
    }
    writer.set_position(Position::counter(1, port.into()));
    writer.snapshot().clone()
}

static OLD: LazyLock<Snapshot> = LazyLock::new(|| world(80, Form::Value));
static NEW: LazyLock<Snapshot> = LazyLock::new(|| world(81, Form::Encoded));

/// A server for proxies that want an identity as well.
pub fn server() -> ServerSession {
    let counters = ServerCounters::default();
    let mut server = ServerSession::new(KEY, NEW.clone(), Arc::new(Steps::default()), counters);
    server.anchor(Arc::new(Anchors {
        roots: vec![Bytes::from_static(b"root")],
        trust_domains: vec!["cluster.local".to_owned()],
    }));
    server
}

/// A proxy that has the resources before, and wants an identity.
pub fn client() -> ClientSession {
    let counters = ClientCounters::default();
    ClientSession::new("proxy", Some(KEY), OLD.clone(), counters).wanting_identity()
}

/// The messages in some bytes.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (message, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some(message)
    })
}

/// A controller bounds what a proxy can make it send and say, and believes that a proxy is in
/// step only where it told the digest.
pub fn proxy_messages(bytes: &[u8]) -> bool {
    let mut server = server();
    let mut is_acked = false;
    for message in messages(bytes) {
        let Ok(message) = FromProxy::decode(message) else {
            break;
        };
        let Ok(report) = server.receive(message) else {
            break;
        };
        match report {
            Report::Nothing => {}
            Report::Greeted { instance, .. } => assert_text(&instance),
            Report::Acked {
                root,
                is_in_step,
                receipts,
                ..
            } => {
                is_acked = true;
                assert!(!is_in_step || root == NEW.digest());
                assert!(receipts.len() <= RECEIPTS_MAX);
                receipts.iter().for_each(|it| assert_text(&it.reason));
            }
        }
        if server.asked(*NOW).is_some() {
            server.signed(Err(NotSigned {
                reason: "nobody signs here".to_owned(),
                retry_after: std::time::Duration::ZERO,
            }));
        }
        let mut answers = 0;
        while let Some(frame) = server.poll(*NOW) {
            assert!(frame.len() <= MESSAGE_BYTES_MAX);
            assert!(FromServer::decode(frame).is_ok_and(|message| message.body.is_some()));
            answers += 1;
            assert!(answers <= ANSWERS_MAX, "it goes on and on");
        }
    }
    is_acked
}

fn assert_text(text: &str) {
    assert!(text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control));
}

/// A proxy puts into service what it could read, and each resource once; what it says that it has
/// is what it has.
pub fn controller_messages(bytes: &[u8]) -> bool {
    let mut client = client();
    let mut is_applied = false;
    for message in messages(bytes) {
        let Ok(message) = FromServer::decode(message) else {
            break;
        };
        let Ok(received) = client.receive(message) else {
            break;
        };
        match received {
            Received::Nothing => {}
            Received::Answer(answer) => assert_answer(&answer),
            Received::Key(_, hello) => {
                assert!(matches!(hello.body, Some(from_proxy::Body::Hello(_))))
            }
            Received::Apply(delivery) => {
                is_applied = true;
                assert_delivery(&delivery);
                let ack = client.applied(&[]);
                assert_ack(&client, ack);
            }
            Received::Anchors(anchors) => assert!(!anchors.roots.is_empty()),
            Received::Signed(Ok(issued)) => assert!(!issued.chain.is_empty()),
            Received::Signed(Err(refused)) => assert_text(&refused.reason),
            Received::Demanding(_) => {}
            Received::Answered(host, _) => assert!(myriad_model::is_demandable(&host)),
        }
        let _ = client.ask(Bytes::from_static(b"request"), "token".to_owned());
    }
    is_applied
}

fn assert_answer(answer: &FromProxy) {
    let Some(from_proxy::Body::Nodes(nodes)) = &answer.body else {
        panic!("an answer without nodes");
    };
    assert!(nodes.nodes.len() <= ASK_NODES_MAX);
    for node in &nodes.nodes {
        assert!(node.branches.len() + node.leaves.len() <= NODE_CHILDREN_MAX);
    }
    assert!(answer.encoded_len() <= MESSAGE_BYTES_MAX);
}

fn assert_delivery(delivery: &Delivery) {
    let mut known = HashSet::new();
    for change in &delivery.commit.changes {
        assert!(known.insert(&change.key), "{} twice", change.key);
        let new = change.new.as_ref();
        assert!(new.is_none_or(|new| *new.key() == change.key && new.resource().is_some()));
    }
    let again = Logged::decode(Bytes::from(delivery.logged.encode()));
    assert!(again.is_ok_and(|again| again == delivery.logged));
}

fn assert_ack(client: &ClientSession, ack: Option<FromProxy>) {
    let Some(from_proxy::Body::Ack(ack)) = ack.and_then(|ack| ack.body) else {
        panic!("a commit without acknowledgement");
    };
    assert!(ack.receipts.len() <= RECEIPTS_MAX);
    ack.receipts.iter().for_each(|it| assert_text(&it.reason));
    assert_eq!(ack.root[..], client.received().0.to_be_bytes());
    let mut fresh = Snapshot::new();
    for sealed in client.held().iter() {
        fresh.apply(&Change {
            key: sealed.key().clone(),
            old: None,
            new: Some(sealed.clone()),
        });
    }
    assert_eq!(fresh.digest(), client.held().digest());
}
