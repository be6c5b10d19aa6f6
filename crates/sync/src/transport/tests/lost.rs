//! Servers that have lost their source, and proxies that follow them.

use std::sync::{Arc, Mutex};

use myriad_model::Form;
use tokio::sync::watch;

use super::super::Views;
use super::super::server::{Event, ServerSettings};
use super::{Following, Movable, Serving, settings, tls, within};
use crate::tests::pair::World;

/// A server, and whether it has lost its source.
async fn serve(
    world: &World,
    tls: &Arc<rustls::ServerConfig>,
) -> (
    Serving,
    String,
    watch::Sender<bool>,
    watch::Sender<myriad_model::Snapshot>,
) {
    let (newest, told) = watch::channel(world.snapshot().clone());
    let (lost, is_lost) = watch::channel(false);
    let settings = ServerSettings {
        lost: Some(is_lost),
        ..settings(Some(tls.clone()))
    };
    let (serving, server) = Serving::server_of(Views::one("gateway", told), settings);
    let (serving, address) = serving.listen(server).await;
    (serving, address, lost, newest)
}

#[tokio::test]
async fn a_proxy_moves_to_a_server_that_has_its_source_and_stays_where_there_is_none() {
    let (server_tls, client_tls) = tls();
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    let (first, first_address, first_lost, first_newest) = serve(&world, &server_tls).await;
    let (mut second, second_address, second_lost, newest) = serve(&world, &server_tls).await;
    let address = Arc::new(Mutex::new(first_address));
    let connect = Movable {
        address: address.clone(),
        tls: client_tls,
    };
    let mut proxy = Following::start(Arc::new(connect), "good");
    proxy.reaches(world.snapshot().digest()).await;

    // Both have lost it: the proxy has looked at the other one, and still follows the first.
    second_lost.send_replace(true);
    *address.lock().unwrap() = second_address;
    first_lost.send_replace(true);
    while !matches!(second.next().await, Event::Gone { .. }) {}
    world.put("b", 1);
    first_newest.send_replace(world.snapshot().clone());
    proxy.reaches(world.snapshot().digest()).await;
    assert_eq!(proxy.counters.disconnections.get(), 0);

    // The other one has it again.
    newest.send_replace(world.snapshot().clone());
    second_lost.send_replace(false);
    world.put("c", 1);
    let is_moved = async { while !matches!(second.next().await, Event::Acked { .. }) {} };
    within(is_moved).await;
    newest.send_replace(world.snapshot().clone());
    proxy.reaches(world.snapshot().digest()).await;
    assert_eq!(proxy.counters.connections.get(), 2);
    assert_eq!(
        proxy.counters.disconnections.get(),
        0,
        "it never was without one"
    );
    assert!(proxy.errors.try_recv().is_err());
    proxy.stop().await;
    first.stop().await;
    second.stop().await;
}
