//! Streams whose events nobody reads, and what sidecars say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_model::{Digest, Form, Name, Snapshot};
use tokio::sync::watch;

use super::super::Views;
use super::super::client::TcpConnect;
use super::super::server::Event;
use super::{Following, Serving, settings, within};
use crate::tests::order::domain;
use crate::tests::pair::{REFUSED_PORT, World};

fn plain(address: &str) -> Arc<TcpConnect> {
    Arc::new(TcpConnect {
        address: address.to_owned(),
        tls: None,
    })
}

/// The digest of these endpoints and their ports.
fn digest(ports: &[(&str, u16)]) -> Digest {
    let mut world = World::new(Form::Encoded);
    for (name, port) in ports {
        world.put(name, *port);
    }
    world.snapshot().digest()
}

/// A server in whose queue there is room for one event, which nobody reads.
async fn unread(newest: &watch::Sender<Snapshot>) -> (Serving, String) {
    let views = Views::one("gateway", newest.subscribe());
    let (serving, server) = Serving::server_telling(views, settings(None), 1);
    serving.listen(server).await
}

#[tokio::test]
async fn a_stream_serves_its_proxy_though_nobody_reads_what_it_tells() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let (newest, _) = watch::channel(world.snapshot().clone());
    let (mut serving, address) = unread(&newest).await;
    let mut proxy = Following::start(plain(&address), "good");
    for port in 2..=9 {
        world.put("a", port);
        newest.send_replace(world.snapshot().clone());
        proxy.reaches(world.snapshot().digest()).await;
    }
    assert!(matches!(serving.next().await, Event::Connected { .. }));
    // One acknowledgement stands for those before it.
    let mut acks = 0;
    loop {
        acks += 1;
        match serving.next().await {
            Event::Acked { root, .. } if root == world.snapshot().digest() => break,
            Event::Acked { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(acks <= 2, "{acks}");
    proxy.stop().await;
    serving.stop().await;
}

#[tokio::test]
async fn refusals_that_nobody_reads_are_kept_of_gateways_and_counted_of_sidecars() {
    for (token, dropped) in [("good", 0), ("pod-1", 1)] {
        let mut world = World::new(Form::Encoded);
        world.put("a", 1);
        world.put("b", REFUSED_PORT);
        let (newest, _) = watch::channel(world.snapshot().clone());
        let (mut serving, address) = unread(&newest).await;
        let mut proxy = Following::start(plain(&address), token);
        for port in 1..=3 {
            world.put("a", port);
            newest.send_replace(world.snapshot().clone());
            proxy.reaches(digest(&[("a", port)])).await;
        }
        assert_eq!(serving.counters.receipts_dropped.get(), dropped, "{token}");
        assert!(matches!(serving.next().await, Event::Connected { .. }));
        let next = serving.next().await;
        let refused = match &next {
            Event::Refused { receipts, .. } => receipts.len() as u64,
            _ => 0,
        };
        assert_eq!(refused, 1 - dropped, "{token}: {next:?}");
        if refused > 0 {
            assert!(matches!(serving.next().await, Event::Acked { .. }));
        }
        proxy.stop().await;
        serving.stop().await;
    }
}

#[tokio::test]
async fn what_a_sidecar_says_that_it_holds_is_not_proven() {
    let listeners: Arc<[Name]> = [Name::from("https")].into();
    let mut full = World::new(Form::Encoded);
    for number in 0..60 {
        full.put_value(&format!("d{number}"), domain(number, &listeners));
    }
    let mut empty = World::new(Form::Encoded);
    // It has seen as much, so that nobody waits for it.
    (0..100).for_each(|_| empty.skip());
    let mut found = BTreeMap::new();
    for token in ["good", "pod-1"] {
        let (newest, _) = watch::channel(full.snapshot().clone());
        let (serving, server) = Serving::server(&newest, None);
        let (serving, address) = serving.listen(server).await;
        let mut proxy = Following::start(plain(&address), token);
        proxy.reaches(full.snapshot().digest()).await;
        let (held, _) = proxy.stop().await;
        serving.stop().await;

        let (newest, _) = watch::channel(empty.snapshot().clone());
        let settings = settings(None);
        let holds = settings.holds.clone();
        let views = Views::one("gateway", newest.subscribe());
        let (serving, server) = Serving::server_of(views, settings);
        let (serving, address) = serving.listen(server).await;
        let proxy = Following::resume(plain(&address), token, held);
        let is_told = async {
            while holds.held().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        within(is_told).await;
        let told = holds.held();
        assert_eq!((told[0].loss.lost, told[0].loss.of), (60, 60));
        found.insert(token, told[0].is_proven);
        let (held, _) = proxy.stop().await;
        assert_eq!(held.len(), 60);
        serving.stop().await;
    }
    assert_eq!(found, BTreeMap::from([("good", true), ("pod-1", false)]));
}
