//! A controller and a proxy one schema apart. This build knows a single schema, so the newer end
//! is played by its messages: what they say is all that an older proxy can know of it.

use bytes::Bytes;
use myriad_model::wire::SCHEMA;
use myriad_model::{
    Endpoint, Endpoints, Form, Key, Kind, Name, Origin, Resource, Sealed, Sealer, Snapshot, Value,
};
use myriad_sync::wire::{self, from_proxy, from_server};
use myriad_sync::{ClientCounters, ClientSession, Received};

const KEY: [u8; 32] = [7; 32];

#[test]
fn what_needs_a_newer_schema_is_refused_by_name_and_the_rest_is_served() {
    let mut proxy = following(Snapshot::new());
    commit(
        &mut proxy,
        &[(&sealed("a", 1), SCHEMA), (&sealed("b", 1), SCHEMA)],
    );
    assert_eq!(ports(&proxy), [1, 1]);

    // The controller is upgraded, and one of two changes needs what this proxy does not know.
    let refused = commit(
        &mut proxy,
        &[(&sealed("a", 2), SCHEMA + 1), (&sealed("b", 2), SCHEMA)],
    );
    let newer = format!(
        "it needs schema {}, and this build understands {SCHEMA}",
        SCHEMA + 1
    );
    assert_eq!(refused, [("endpoints a".to_owned(), newer)]);
    assert_eq!(ports(&proxy), [1, 2], "the last good one stays");

    // The proxy starts again: it does not claim to have what it refused, and is asked for it.
    let claimed = proxy.held().digest();
    let mut proxy = following(proxy.held().clone());
    let from_proxy::Body::Hello(hello) = proxy.hello().body.expect("a body") else {
        panic!("not a hello")
    };
    assert_eq!(hello.root, Bytes::copy_from_slice(&claimed.0.to_be_bytes()));

    // The controller is rolled back, and writes it as before.
    assert!(commit(&mut proxy, &[(&sealed("a", 3), SCHEMA)]).is_empty());
    assert_eq!(ports(&proxy), [3, 2]);
}

#[test]
fn a_controller_of_an_older_schema_is_followed() {
    let mut proxy = ClientSession::new("new", None, Snapshot::new(), ClientCounters::default());
    welcome(&mut proxy, SCHEMA - 1);
    assert!(commit(&mut proxy, &[(&sealed("a", 1), SCHEMA - 1)]).is_empty());
    assert_eq!(ports(&proxy), [1]);
}

/// A proxy that has greeted a controller of the next schema.
fn following(held: Snapshot) -> ClientSession {
    let mut proxy = ClientSession::new("old", None, held, ClientCounters::default());
    welcome(&mut proxy, SCHEMA + 1);
    proxy
}

fn welcome(proxy: &mut ClientSession, schema: u32) {
    let welcome = wire::Welcome {
        protocol: wire::PROTOCOL,
        schema,
        key: Bytes::copy_from_slice(&KEY),
    };
    assert!(matches!(
        tell(proxy, from_server::Body::Welcome(welcome)),
        Received::Key(..)
    ));
}

/// Sends resources in one commit, each as if it needed this schema. Returns what was refused.
fn commit(proxy: &mut ClientSession, sent: &[(&Sealed, u32)]) -> Vec<(String, String)> {
    let changes = sent.iter().map(|(sealed, schema)| wire::Change {
        kind: Kind::Endpoints as u32,
        name: sealed.name().to_string(),
        version: Bytes::copy_from_slice(&sealed.version().0),
        bytes: with_schema(sealed, *schema),
        unfinished: false,
    });
    let changes = wire::Changes {
        changes: changes.collect(),
        ..wire::Changes::default()
    };
    tell(proxy, from_server::Body::Changes(changes));
    let end = wire::Commit {
        position: None,
        root: Bytes::copy_from_slice(&[0; 16]),
    };
    let Received::Apply(delivery) = tell(proxy, from_server::Body::Commit(end)) else {
        panic!("not a commit")
    };
    let ack = proxy.applied(&[]).and_then(|ack| ack.body);
    let Some(from_proxy::Body::Ack(ack)) = ack else {
        panic!("not acknowledged")
    };
    assert_eq!(
        ack.receipts.len(),
        delivery.refused.len(),
        "the controller is told"
    );
    let refused = delivery.refused.into_iter();
    refused.map(|it| (it.key.to_string(), it.reason)).collect()
}

fn tell(proxy: &mut ClientSession, body: from_server::Body) -> Received {
    let message = wire::FromServer { body: Some(body) };
    proxy.receive(message).expect("a correct message")
}

fn sealed(name: &str, port: u16) -> Sealed {
    let endpoint = Endpoint {
        address: ([10, 0, 0, 1], port).into(),
        weight: 1,
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Endpoints(Endpoints {
            endpoints: [endpoint].into(),
        }),
    };
    Sealer::new(KEY, Form::Encoded).seal(Name::from(name), resource)
}

/// The encoded bytes begin with the lowest schema that understands them.
fn with_schema(sealed: &Sealed, schema: u32) -> Bytes {
    let mut bytes = sealed.encoded().expect("it was encoded").to_vec();
    assert_eq!(bytes[..2], [0x08, u8::try_from(SCHEMA).expect("small")]);
    bytes[1] = u8::try_from(schema).expect("small");
    bytes.into()
}

/// The port of each endpoint that is in service.
fn ports(proxy: &ClientSession) -> Vec<u16> {
    let sealer = Sealer::new(KEY, Form::Value);
    let port = |name: &str| {
        let key = Key::new(Kind::Endpoints, name);
        let held = proxy.held().get(sealer.slot(&key), &key)?;
        Some(held.endpoints()?.endpoints.first()?.address.port())
    };
    ["a", "b"].into_iter().filter_map(port).collect()
}
