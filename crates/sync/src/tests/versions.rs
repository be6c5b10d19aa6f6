//! Bytes that are not those of their version.

use bytes::Bytes;
use myriad_base::clock;
use myriad_model::{Certificate, Form, KeyEncoding, PrivateKey, Sealer, Snapshot, Value};

use super::pair::{KEY, Pair, World};
use crate::wire::from_server;

#[test]
fn bytes_that_are_not_those_of_their_version_are_refused_by_name() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    world.put("b", 1);
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    let held = pair.client.held().digest();
    world.put("a", 0x1234);
    pair.server.update(world.snapshot().clone());
    pair.speak();
    let changes = pair.to_client.iter_mut().find_map(|it| match &mut it.body {
        Some(from_server::Body::Changes(changes)) => Some(changes),
        _ => None,
    });
    let change = &mut changes.expect("a frame").changes[0];
    // Another port, which is as valid.
    let mut bytes = change.bytes.to_vec();
    let last = bytes.last_mut().expect("bytes");
    *last ^= 1;
    change.bytes = Bytes::from(bytes);
    pair.settle();
    let receipts = pair.receipts.iter();
    let receipts: Vec<_> = receipts
        .map(|it| (it.key.to_string(), &*it.reason))
        .collect();
    let reason = "it has other bytes than its version says";
    assert_eq!(receipts, [("endpoints a".to_owned(), reason)]);
    assert_eq!(pair.client.held().digest(), held, "the last good one stays");
    assert!(pair.server.is_in_step(), "as with whatever is refused");
}

/// The figures of decision 41; they are only shown.
#[test]
fn the_version_of_what_arrives_is_checked_for_the_price_of_a_hash() {
    let mut world = World::new(Form::Encoded);
    for number in 0..20_000_u32 {
        // A leaf and its issuer, and a key.
        let chain = [900, 900].map(|len| Bytes::from(vec![number as u8; len]));
        let value = Value::Certificate(Box::new(Certificate {
            chain: chain.into(),
            key: PrivateKey::new(KeyEncoding::Pkcs8, Bytes::from(vec![7; 138])),
        }));
        world.put_value(&format!("ns/{number}"), value);
    }
    let sealer = Sealer::new(KEY, Form::Value);
    let took = |is_checked: bool| {
        let begun = clock::now();
        for sealed in world.snapshot().iter() {
            let (key, version) = (sealed.key().clone(), sealed.version());
            let bytes = sealed.encoded().expect("encoded");
            let opened = match is_checked {
                true => sealer.open(key, version, bytes),
                false => sealer.open_trusted(key, version, bytes),
            };
            assert!(opened.is_ok());
        }
        clock::now() - begun
    };
    let (trusted, checked) = (took(false), took(true));
    eprintln!(
        "20,000 certificates of 2 KB: opened in {trusted:?}, with their versions {checked:?}"
    );
}
