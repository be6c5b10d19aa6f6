//! One domain's flood, and what is left for others.

use myriad_base::metrics::Metrics;
use myriad_model::TlsSettings;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::world::{Backend, PATIENCE, World, header, route};
use crate::net::limits::Limits;
use crate::{Proxy, Settings};

const FLOOD: &str = "GET / HTTP/1.1\r\nHost: flood.example\r\n\r\n";
const QUIET: &str = "GET / HTTP/1.1\r\nHost: quiet.example\r\n\r\n";

/// Two domains; the first one's endpoint accepts and answers nothing, unless it is the same.
async fn world(limits: Limits, is_slow: bool) -> (World, TcpListener) {
    let backend = Backend::saying("ok").await;
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::start_with(Settings {
        workers: 1,
        limits,
        ..Settings::default()
    });
    let flooded = match is_slow {
        true => slow.local_addr().unwrap(),
        false => backend.address,
    };
    world.put_upstream("flood", &[flooded]);
    world.put_upstream("quiet", &[backend.address]);
    for name in ["flood", "quiet"] {
        let host = format!("{name}.example");
        world.put_route(name, route(&host, "/", name));
        world.put_domain(&host, &[&host], TlsSettings::default());
    }
    (world, slow)
}

async fn until_counted(world: &World, of: &str, number: usize) {
    let wanted = format!("fair_share_refused_total{{of=\"{of}\"}} {number}\n");
    world.counts(&wanted).await;
}

async fn ask_quietly(world: &World, times: usize) {
    for _ in 0..times {
        let mut client = world.client().await;
        client.send(QUIET).await;
        let (head, _) = client.response().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
}

#[tokio::test]
async fn slow_requests_of_one_domain_leave_others_a_fifth() {
    let limits = Limits {
        requests_max: 50,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, true).await;
    let mut flood = Vec::new();
    for _ in 0..60 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        flood.push(client);
    }
    until_counted(&world, "requests", 20).await;
    ask_quietly(&world, 10).await;
    until_counted(&world, "requests", 20).await;
    // Those beyond are the last ones, in the order of their coming or not.
    let mut refused = 0;
    for client in &mut flood {
        let answer = tokio::time::timeout(std::time::Duration::from_millis(20), client.response());
        if let Ok((head, _)) = answer.await {
            assert!(head.starts_with("HTTP/1.1 503"), "{head}");
            assert_eq!(header(&head, "retry-after"), Some("1"));
            assert_eq!(header(&head, "connection"), Some("close"));
            refused += 1;
        }
    }
    assert_eq!(refused, 20);
}

#[tokio::test]
async fn connections_of_one_domain_leave_others_a_fifth() {
    let limits = Limits {
        connections_max: 102,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..120 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        let (head, _) = client.response().await;
        match head.starts_with("HTTP/1.1 200") {
            true => held.push(client),
            false => refused += 1,
        }
    }
    assert!(
        held.len() <= 82 && refused == 120 - held.len(),
        "{}",
        held.len()
    );
    until_counted(&world, "connections", refused).await;
    ask_quietly(&world, 5).await;
    // Who is there already goes on.
    let client = held.last_mut().unwrap();
    client.send(FLOOD).await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    until_counted(&world, "connections", refused).await;
}

/// Begins a handshake and does not go on with it.
async fn begin(world: &World, hello: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(world.address("https")).await.unwrap();
    stream.write_all(hello).await.unwrap();
    stream
}

#[tokio::test]
async fn handshakes_of_one_domain_leave_others_a_fifth() {
    let limits = Limits {
        handshakes_max: 40,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let name = rustls::pki_types::ServerName::try_from("flood.example").unwrap();
    let client = rustls::ClientConnection::new(super::world::trusting(), name);
    let mut hello = Vec::new();
    client.unwrap().write_tls(&mut hello).unwrap();
    let mut flood = Vec::new();
    for number in 1..=50 {
        flood.push(begin(&world, &hello).await);
        if number > 32 {
            until_counted(&world, "handshakes", number - 32).await;
        }
    }
    for _ in 0..5 {
        let mut client = world.tls_client("quiet.example").await.unwrap();
        client.send(QUIET).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    }
    world.counts("connections_shed_total 18\n").await;
}

#[tokio::test]
async fn under_pressure_nothing_new_is_begun() {
    let metrics = Metrics::new();
    let settings = Settings {
        workers: 1,
        memory_max: Some(1),
        ..Settings::default()
    };
    let proxy = Proxy::start(settings, &metrics).unwrap();
    let taken = async {
        while !metrics.encode().contains("memory_pressure 3\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    drop(proxy);
}
