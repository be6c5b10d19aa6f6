//! Certificates that are obtained on demand: the handshakes that wait for them, and those that do
//! not.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::task;
use myriad_model::{Kind, TlsSettings, Value, on_demand_name};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::limits::{counted, until_counted};
use super::world::{Backend, Client, PATIENCE, World, certificate, route, trusting};
use crate::limits::Limits;
use crate::{Demand, Demanded, Settings};

/// How long a refusal lasts in these stories: for ever.
const LONG: Duration = Duration::from_secs(3_600);

type Shaken = io::Result<Client<TlsStream<TcpStream>>>;

/// A world with a route for every host, and whoever obtains certificates.
async fn world(set: &[&str]) -> (World, Demand) {
    let mut limits = Limits::default();
    for limit in set {
        limits.set(limit).unwrap();
    }
    let mut world = World::start_with(Settings {
        workers: 1,
        limits,
        ..Settings::default()
    });
    let demand = world.proxy.demand().clone();
    demand.open();
    let backend = Backend::saying("hello").await;
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("*", "/", "u"));
    (world, demand)
}

/// Begins a handshake, which goes on by itself.
fn begin(world: &World, name: &'static str) -> JoinHandle<Option<Shaken>> {
    let address = world.address("https");
    task::spawn("client", connect(address, name))
}

async fn connect(address: SocketAddr, name: &'static str) -> Shaken {
    let tcp = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(trusting());
    let name = ServerName::try_from(name).unwrap();
    Ok(Client::new(connector.connect(name, tcp).await?))
}

async fn ended(handshake: JoinHandle<Option<Shaken>>) -> Shaken {
    let ended = tokio::time::timeout(PATIENCE, handshake).await;
    ended.expect("it ends").unwrap().unwrap()
}

async fn told(demand: &Demand) -> Demanded {
    let told = tokio::time::timeout(PATIENCE, demand.next()).await;
    told.expect("something is told")
}

fn wanted(name: &str) -> Demanded {
    Demanded::Wanted(name.into())
}

/// Nothing is told, which whoever waits for something else has found out by now.
async fn is_quiet(demand: &Demand) -> bool {
    tokio::select! {
        biased;
        _ = demand.next() => false,
        () = std::future::ready(()) => true,
    }
}

/// Puts a certificate into service that was obtained on demand, and returns the leaf.
fn obtain(world: &mut World, name: &str) -> Bytes {
    let certificate = certificate(&[name]);
    let leaf = certificate.chain[0].clone();
    let value = Value::Certificate(Box::new(certificate));
    let applied = world.put(on_demand_name(name).as_str(), value);
    assert!(applied.refused.is_empty());
    leaf
}

fn shown(client: &Client<TlsStream<TcpStream>>) -> &[u8] {
    let session = client.stream.get_ref().1;
    &session.peer_certificates().unwrap()[0]
}

async fn status(client: &mut Client<TlsStream<TcpStream>>, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.send(request).await;
    client.response().await.0[9..12].to_owned()
}

#[tokio::test]
async fn the_first_handshake_of_a_name_waits_for_its_certificate_and_is_served_with_it() {
    let (mut world, demand) = world(&[]).await;
    let first = begin(&world, "new.example");
    assert_eq!(told(&demand).await, wanted("new.example"));
    let second = begin(&world, "new.example");
    let leaf = obtain(&mut world, "new.example");
    for handshake in [first, second] {
        let mut client = ended(handshake).await.unwrap();
        assert_eq!(shown(&client), &*leaf);
        assert_eq!(status(&mut client, "new.example").await, "200");
        // The connection is for that name alone, as there is no default certificate.
        assert_eq!(status(&mut client, "other.example").await, "421");
    }
    // That it is used is told once, whoever shakes hands how often.
    for _ in 0..3 {
        assert!(ended(begin(&world, "new.example")).await.is_ok());
    }
    assert_eq!(told(&demand).await, Demanded::Used("new.example".into()));
    assert!(is_quiet(&demand).await);

    // One that is taken out of service is waited for again.
    world.remove(Kind::Certificate, on_demand_name("new.example").as_str());
    let handshake = begin(&world, "new.example");
    assert_eq!(told(&demand).await, wanted("new.example"));
    demand.refuse(&"new.example".into(), LONG);
    let error = ended(handshake).await.err().unwrap().to_string();
    assert!(error.contains("UnrecognisedName"), "{error}");
}

#[tokio::test]
async fn a_name_that_is_refused_gets_what_it_got_before_and_waits_for_nothing_for_a_while() {
    let (mut world, demand) = world(&[]).await;
    let handshake = begin(&world, "no.example");
    assert_eq!(told(&demand).await, wanted("no.example"));
    demand.refuse(&"no.example".into(), LONG);
    let error = ended(handshake).await.err().unwrap().to_string();
    assert!(error.contains("UnrecognisedName"), "{error}");
    assert!(ended(begin(&world, "no.example")).await.is_err());
    assert!(is_quiet(&demand).await);
    let default = certificate(&["default.example"]);
    let leaf = default.chain[0].clone();
    world.put("default", Value::Certificate(Box::new(default)));
    let client = ended(begin(&world, "no.example")).await.unwrap();
    assert_eq!(shown(&client), &*leaf);
    // Once nobody obtains certificates, nobody waits.
    demand.close();
    let client = ended(begin(&world, "more.example")).await.unwrap();
    assert_eq!(shown(&client), &*leaf);
}

#[tokio::test]
async fn nobody_waits_for_what_is_no_host_or_not_served_or_has_a_certificate() {
    let (mut world, demand) = world(&[]).await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    world.put_domain("*.w.example", &["*.w.example"], TlsSettings::default());
    for name in ["a.example", "x.w.example"] {
        assert!(ended(begin(&world, name)).await.is_ok(), "{name}");
    }
    for name in ["localhost", "a_b.example", "7.2.0.192.in-addr.arpa"] {
        assert!(ended(begin(&world, name)).await.is_err(), "{name}");
    }
    // A default certificate that is for the name serves it.
    let default = certificate(&["*.platform.example"]);
    world.put("default", Value::Certificate(Box::new(default)));
    assert!(ended(begin(&world, "x.platform.example")).await.is_ok());
    // Nor for a host that has no route here.
    world.remove(Kind::Route, "r");
    assert!(ended(begin(&world, "lost.example")).await.is_ok());
    assert!(is_quiet(&demand).await);
}

#[tokio::test]
async fn a_domain_of_the_name_keeps_its_settings_and_one_with_a_certificate_comes_first() {
    let (mut world, demand) = world(&[]).await;
    obtain(&mut world, "a.example");
    let own = world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let client = ended(begin(&world, "a.example")).await.unwrap();
    assert_eq!(shown(&client), &*own);
    assert!(is_quiet(&demand).await, "it is not in use");
    // The catch-all is of TLS 1.3 alone, and so is whatever it covers.
    let strict = TlsSettings {
        version_min: myriad_model::TlsVersion::V13,
        ..TlsSettings::default()
    };
    let catch_all = super::world::domain("*", None, strict);
    world.put("*", Value::Domain(Box::new(catch_all)));
    let leaf = obtain(&mut world, "b.example");
    let client = ended(begin(&world, "b.example")).await.unwrap();
    assert_eq!(shown(&client), &*leaf);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(super::world::trust())
        .with_no_client_auth();
    let refused = world.tls_client_with("b.example", &Arc::new(old)).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn places_are_few_and_whoever_has_most_gives_up_the_oldest() {
    let (mut world, demand) = world(&["parked=2"]).await;
    let first = begin(&world, "one.example");
    assert_eq!(told(&demand).await, wanted("one.example"));
    let second = begin(&world, "two.example");
    assert_eq!(told(&demand).await, wanted("two.example"));
    let third = begin(&world, "three.example");
    assert_eq!(told(&demand).await, wanted("three.example"));
    assert!(ended(first).await.is_err());
    until_counted(&world, "limits_reached_total{limit=\"parked\"}").await;
    for (name, handshake) in [("two.example", second), ("three.example", third)] {
        obtain(&mut world, name);
        assert!(ended(handshake).await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn a_name_has_few_places_and_a_wait_has_an_end() {
    let (world, demand) = world(&["parked_per_name=1", "park_timeout=2s"]).await;
    let first = begin(&world, "one.example");
    assert_eq!(told(&demand).await, wanted("one.example"));
    let second = begin(&world, "one.example");
    assert!(ended(first).await.is_err());
    let metric = "limits_reached_total{limit=\"parked_per_name\"}";
    until_counted(&world, metric).await;
    assert!(ended(second).await.is_err());
    assert_eq!(counted(&world, metric), 1);
    until_counted(&world, "limits_reached_total{limit=\"park_timeout\"}").await;
}

#[tokio::test]
async fn one_that_waits_holds_no_slot_and_leaves_its_place_with_its_client() {
    let (mut world, demand) = world(&["handshakes=1", "parked=1", "park_timeout=5m"]).await;
    world.put_domain("a.example", &["a.example"], TlsSettings::default());
    let waiting = begin(&world, "new.example");
    assert_eq!(told(&demand).await, wanted("new.example"));
    for _ in 0..3 {
        assert!(ended(begin(&world, "a.example")).await.is_ok());
    }
    assert_eq!(counted(&world, "handshakes_queued_total"), 0);
    waiting.abort();
    let metric = "handshakes_total{outcome=\"failed\"}";
    until_counted(&world, metric).await;
    // Its place is free: nobody has to go for the next.
    let _next = begin(&world, "next.example");
    assert_eq!(told(&demand).await, wanted("next.example"));
    assert_eq!(counted(&world, "limits_reached_total{limit=\"parked\"}"), 0);
}

#[tokio::test]
async fn a_client_that_has_said_more_leaves_its_place_when_it_goes() {
    let (world, demand) = world(&["parked=1", "park_timeout=5m"]).await;
    let name = ServerName::try_from("new.example").unwrap();
    let mut session = rustls::ClientConnection::new(trusting(), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    let mut client = TcpStream::connect(world.address("https")).await.unwrap();
    client.write_all(&hello).await.unwrap();
    assert_eq!(told(&demand).await, wanted("new.example"));
    client.write_all(b"x").await.unwrap();
    drop(client);
    until_counted(&world, "handshakes_total{outcome=\"failed\"}").await;
    let metric = "limits_reached_total{limit=\"park_timeout\"}";
    assert_eq!(counted(&world, metric), 0);
}
