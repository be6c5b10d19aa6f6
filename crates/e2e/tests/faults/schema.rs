//! A controller and a proxy one schema apart: older proxies are this build, told to understand no
//! more than theirs did. What a newer controller than this one says is played by its messages.

use bytes::Bytes;
use myriad_e2e::cluster::{Retry, Servers};
use myriad_e2e::world::eventually;
use myriad_model::wire::SCHEMA;
use myriad_model::{
    Endpoint, Endpoints, Form, Key, Kind, Name, Origin, Resource, Sealed, Sealer, Snapshot, Value,
    Version,
};
use myriad_sync::wire::{self, from_proxy, from_server};
use myriad_sync::{ClientCounters, ClientSession, Received};
use tokio::sync::watch;

use crate::scene::{Fleet, Scene};

const KEY: [u8; 32] = [7; 32];

/// The annotation that needs the second schema: the host that the endpoint sees.
const NEEDS_SECOND: &str = "nginx.ingress.kubernetes.io/upstream-vhost=inner.test";

#[tokio::test]
async fn a_fleet_is_upgraded_and_rolled_back_under_traffic() {
    let _servers = Servers::shared().await;
    let scene = Scene::set().await;
    let cluster = &scene.cluster;
    let mut fleet = Fleet::new(cluster).await;
    let controller = fleet.controller(0).start();
    cluster.provide_trust("proxy", "myriad").await;
    for number in 0..2 {
        fleet.start_within(number, 1);
        fleet.ready(number).await;
    }
    let (_, addresses) = watch::channel(fleet.addresses());
    let traffic = scene.traffic_to(addresses, Retry::Elsewhere);
    scene.apply(&["plain.test", "told.test"]).await;
    traffic.add("plain.test").await;
    for number in 0..2 {
        let served = eventually(async || {
            let sent = sent_as(&fleet, number).await;
            (sent.as_deref() == Some("")).then_some(())
        });
        assert!(served.await.is_some(), "proxy {number} serves told.test");
    }

    // One change needs what these proxies do not know: they say so, and serve what was before.
    let tenant = cluster.tenant();
    let line = ["annotate", "ingress", "told-test", NEEDS_SECOND];
    let whole = [&line[..], &["--namespace", &tenant]].concat();
    cluster.kubectl(&whole).await;
    let said = eventually(async || {
        let status = cluster.admin(&controller, "/status").await.body;
        status.contains("needs schema 2").then_some(())
    });
    assert!(
        said.await.is_some(),
        "the controller knows what was refused"
    );
    let sent = sent_as(&fleet, 0).await;
    assert_eq!(sent.as_deref(), Some(""), "the last good version stays");
    scene.apply(&["after.test"]).await;
    traffic.add("after.test").await;

    // Upgraded, one after the other, and rolled back.
    for (schema_max, wanted) in [(SCHEMA, "inner.test/"), (1, "")] {
        for number in 0..2 {
            let mut process = fleet.take(number);
            process.terminate();
            assert!(process.ended().await.success());
            fleet.start_within(number, schema_max);
            fleet.ready(number).await;
            traffic.go_on(50).await;
            let reached = eventually(async || {
                let sent = sent_as(&fleet, number).await;
                (sent.as_deref() == Some(wanted)).then_some(())
            });
            assert!(
                reached.await.is_some(),
                "proxy {number} within {schema_max}"
            );
        }
        let host = format!("within-{schema_max}.test");
        scene.apply(&[&host]).await;
        traffic.add(&host).await;
    }
    traffic.stop().assert_flawless();
}

/// The host and path that a proxy rewrites a request to `told.test` to: empty where they stay, and
/// none where it does not serve the domain.
async fn sent_as(fleet: &Fleet, number: usize) -> Option<String> {
    let page = "/explain?url=https://told.test:8443/&method=GET";
    let text = fleet.admin(number, page).await.body;
    let explanation: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let route = explanation.get("route").filter(|route| route.is_object())?;
    let rewrite = route.get("rewrite").and_then(|text| text.as_str());
    Some(rewrite.unwrap_or_default().to_owned())
}

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
        "it needs schema {}, and schema {SCHEMA} is understood here",
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
        lost: false,
    };
    assert!(matches!(
        tell(proxy, from_server::Body::Welcome(welcome)),
        Received::Key(..)
    ));
}

/// Sends resources in one commit, each as if it needed this schema. Returns what was refused.
fn commit(proxy: &mut ClientSession, sent: &[(&Sealed, u32)]) -> Vec<(String, String)> {
    let changes = sent.iter().map(|(sealed, schema)| wire::Change {
        kind: Kind::Endpoints.number().into(),
        name: sealed.name().to_string(),
        version: Bytes::copy_from_slice(&version_with(sealed, *schema).0),
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
        confirmed: false,
        noticed_micros: 0,
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
    let endpoint = Endpoint::even(([10, 0, 0, 1], port).into());
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Endpoints(Box::new(Endpoints::new([endpoint].into()))),
    };
    Sealer::new(KEY, Form::Encoded).seal(Name::from(name), resource)
}

/// The encoded bytes begin with the lowest schema that understands them.
fn with_schema(sealed: &Sealed, schema: u32) -> Bytes {
    let mut bytes = sealed.encoded().expect("it was encoded").to_vec();
    assert_eq!(bytes[..2], [0x08, 1]);
    bytes[1] = u8::try_from(schema).expect("small");
    bytes.into()
}

fn version_with(sealed: &Sealed, schema: u32) -> Version {
    Sealer::new(KEY, Form::Encoded).version(&with_schema(sealed, schema))
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
