//! One domain's flood, and what is left for others.

use std::sync::Arc;

use myriad_base::metrics::Metrics;
use myriad_model::{
    AccessAction, AccessSubject, Action, CheckProtocol, ErrorPages, Provider, Respond, TlsSettings,
    Value,
};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::checks::access_policy_on;
use super::world::{Backend, Client, PATIENCE, World, header, route, with_policy};
use crate::limits::Limits;
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

/// A provider that is asked about every request for a host, and the policy that says so.
fn asked_about(host: &str) -> [Value; 2] {
    let provider = Provider {
        upstream: "check".into(),
        protocol: CheckProtocol::Http(Box::default()),
        timeout: PATIENCE,
        fail_open: false,
        error_status: 403,
        reroutes: false,
        body: None,
        authority: "check.evil".into(),
        told: Box::default(),
    };
    let custom = AccessAction::Custom("p".into());
    [
        Value::Provider(Box::new(provider)),
        access_policy_on(custom, AccessSubject::Host, host),
    ]
}

#[tokio::test]
async fn questions_about_what_the_proxy_answers_itself_have_places_and_leave_some_to_others() {
    let limits = Limits {
        requests_max: 20,
        ..Limits::default()
    };
    let (mut world, check) = world(limits, false).await;
    world.put_upstream("check", &[check.local_addr().unwrap()]);
    let [provider, access_policy] = asked_about("evil.example");
    let mut answers = route("evil.example", "/answers", "none");
    answers.action = Action::Respond(Box::new(Respond {
        status: 204,
        body: Arc::default(),
    }));
    let answers = Value::Route(Box::new(answers));
    let all = vec![("p", provider), ("g", access_policy), ("answers", answers)];
    world.put_all_of("evil", all);
    let ask = |number: usize| {
        let path = ["/answers", "/none"][number % 2];
        format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    };
    let mut flood = Vec::new();
    for number in 0..24 {
        let mut client = world.client().await;
        client.send(ask(number)).await;
        flood.push(client);
    }
    // Four fifths are asked about, and no connection is opened for any other.
    until_counted(&world, "requests", 8).await;
    ask_quietly(&world, 2).await;
    let admit = async || {
        let mut asked = Client::new(check.accept().await.unwrap().0);
        asked.read_until("\r\n\r\n").await;
        asked
            .send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
    };
    for _ in 0..16 {
        admit().await;
    }
    let mut answered = [0; 3];
    for client in &mut flood {
        let (head, _) = client.response().await;
        let statuses = ["204", "404", "503"];
        let at = statuses.iter().position(|it| head[9..].starts_with(it));
        answered[at.unwrap_or_else(|| panic!("{head}"))] += 1;
    }
    assert_eq!(answered[2], 8, "{answered:?}");
    assert_eq!(answered[0] + answered[1], 16, "{answered:?}");
    // The places are free again.
    for number in 0..2 {
        let mut client = world.client().await;
        client.send(ask(number)).await;
        admit().await;
        let (head, _) = client.response().await;
        assert!(!head.starts_with("HTTP/1.1 503"), "{head}");
    }
    until_counted(&world, "requests", 8).await;
}

#[tokio::test]
async fn an_error_keeps_its_place_while_somebody_is_asked_for_its_page() {
    let limits = Limits {
        requests_max: 20,
        ..Limits::default()
    };
    let (mut world, pages) = world(limits, false).await;
    let failing =
        Backend::answering(|_| "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    world.put_upstream("pages", &[pages.local_addr().unwrap()]);
    world.put_upstream("failing", &[failing.address]);
    let paged = with_policy(route("flood.example", "/", "failing"), |policy| {
        policy.error_pages = Some(Box::new(ErrorPages {
            statuses: [404].into(),
            upstream: "pages".into(),
            fields: Box::default(),
        }));
    });
    world.put_route("flood", paged);
    let mut flood = Vec::new();
    for _ in 0..20 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        flood.push(client);
    }
    until_counted(&world, "requests", 4).await;
    ask_quietly(&world, 2).await;
    assert!(failing.requests() <= 16, "no other is sent on");
}

#[tokio::test]
async fn requests_whose_bodies_do_not_come_give_way_to_those_of_the_same_host_and_of_others() {
    let limits = Limits {
        requests_max: 20,
        ..Limits::default()
    };
    let (mut world, slow) = world(limits, false).await;
    world.put_upstream("slow", &[slow.local_addr().unwrap()]);
    world.put_route("up", route("flood.example", "/up", "slow"));
    let victim = Value::Route(Box::new(route("victim.example", "/", "quiet")));
    world.put_all_of("victim", vec![("victim", victim)]);
    let mut flood = Vec::new();
    // All that the host gets.
    for _ in 0..16 {
        let mut client = world.client().await;
        client
            .send("POST /up HTTP/1.1\r\nHost: flood.example\r\nContent-Length: 9\r\n\r\n")
            .await;
        flood.push((client, slow.accept().await.unwrap()));
    }
    let mut client = world.client().await;
    client
        .send("GET / HTTP/1.1\r\nHost: victim.example\r\n\r\n")
        .await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    // Whoever has just come does not go at once.
    let answered = async {
        loop {
            let mut client = world.client().await;
            client.send(FLOOD).await;
            let (head, _) = client.response().await;
            if head.starts_with("HTTP/1.1 200") {
                return;
            }
            assert!(head.starts_with("HTTP/1.1 503"), "{head}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
    let evicted = "requests_evicted_total{waits_for=\"body\"} 1\n";
    world.counts(evicted).await;
    // Its place was one for all that followed.
    for _ in 0..5 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    }
    world.counts(evicted).await;
    let mut gone = 0;
    for (client, _) in &mut flood {
        let answer = tokio::time::timeout(std::time::Duration::from_millis(20), client.response());
        if let Ok((head, _)) = answer.await {
            assert!(head.starts_with("HTTP/1.1 408"), "{head}");
            gone += 1;
        }
    }
    assert_eq!(gone, 1);
}

/// A client of another source than all others.
async fn elsewhere(world: &World) -> Client<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
    Client::new(socket.connect(world.address("http")).await.unwrap())
}

#[tokio::test]
async fn the_source_that_holds_most_of_a_host_makes_room_for_others() {
    for says in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na"] {
        let limits = Limits {
            requests_max: 20,
            ..Limits::default()
        };
        let (mut world, slow) = world(limits, true).await;
        world.put_route("quick", route("flood.example", "/quick", "quiet"));
        let mut flood = Vec::new();
        // All that the host gets.
        for _ in 0..16 {
            let mut client = world.client().await;
            client.send(FLOOD).await;
            let mut endpoint = slow.accept().await.unwrap().0;
            endpoint.write_all(says.as_bytes()).await.unwrap();
            flood.push((client, endpoint));
        }
        let answered = async {
            loop {
                let mut client = elsewhere(&world).await;
                client
                    .send("GET /quick HTTP/1.1\r\nHost: flood.example\r\n\r\n")
                    .await;
                let (head, _) = client.response().await;
                if head.starts_with("HTTP/1.1 200") {
                    return;
                }
                assert!(head.starts_with("HTTP/1.1 503"), "{head}");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answered).await.unwrap();
        let evicted = "requests_evicted_total{waits_for=\"endpoint\"} 1\n";
        world.counts(evicted).await;
    }
}

#[tokio::test]
async fn beyond_its_share_a_domain_exchanges_idle_connections_of_its_own() {
    let limits = Limits {
        connections_max: 102,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let mut held = Vec::new();
    for _ in 0..120 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        let (head, _) = client.response().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        held.push(client);
    }
    // Up to four fifths it may have all, and what came first has gone for what came last.
    world
        .counts("connections_evicted_total{state=\"idle\"} 38\n")
        .await;
    ask_quietly(&world, 5).await;
    for client in held.iter_mut().take(38) {
        assert_eq!(client.read_to_end().await, "");
    }
    for client in held.iter_mut().skip(38) {
        client.send(FLOOD).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    }
    world
        .counts("fair_share_refused_total{of=\"connections\"} 0\n")
        .await;
}

#[tokio::test]
async fn connections_with_requests_under_way_are_not_exchanged() {
    let limits = Limits {
        connections_max: 20,
        ..Limits::default()
    };
    let (world, slow) = world(limits, true).await;
    let mut flood = Vec::new();
    for number in 0..18 {
        let mut client = world.client().await;
        client.send(FLOOD).await;
        if number < 16 {
            flood.push((client, slow.accept().await.unwrap()));
        } else {
            assert!(client.response().await.0.starts_with("HTTP/1.1 503"));
        }
    }
    until_counted(&world, "connections", 2).await;
    ask_quietly(&world, 3).await;
    world
        .counts("connections_evicted_total{state=\"idle\"} 0\n")
        .await;
}

#[tokio::test]
async fn sixty_hosts_of_one_namespace_leave_another_some_at_once_and_its_share_then() {
    let limits = Limits {
        requests_max: 100,
        ..Limits::default()
    };
    let (mut world, _slow) = world(limits, true).await;
    let put = |world: &mut World, namespace: &str, host: &str| {
        let value = Value::Route(Box::new(route(host, "/", "flood")));
        world.put_all_of(namespace, vec![(host, value)]);
    };
    let ask = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    put(&mut world, "victim", "victim.example");
    let mut flood = Vec::new();
    for number in 0..60 {
        put(&mut world, "flood", &format!("{number}.example"));
    }
    for number in (0..60).cycle().take(180) {
        let mut client = world.client().await;
        client.send(ask(&format!("{number}.example"))).await;
        flood.push(client);
    }
    // Nine tenths are the most that hosts with little of a namespace with much may have.
    until_counted(&world, "requests", 90).await;
    let mut victims = Vec::new();
    for _ in 0..40 {
        let mut client = world.client().await;
        client.send(ask("victim.example")).await;
        victims.push(client);
    }
    // A fifth of its share, which is a third, is what it has of the last tenth.
    until_counted(&world, "requests", 90 + 34).await;
}

/// Begins a handshake and does not go on with it.
pub(super) async fn begin(world: &World, name: &'static str) -> TcpStream {
    let mut stream = TcpStream::connect(world.address("https")).await.unwrap();
    stream.write_all(&hello(name)).await.unwrap();
    stream
}

/// A ClientHello.
pub(super) fn hello(name: &'static str) -> Vec<u8> {
    hello_by(name, super::world::trusting())
}

fn hello_by(name: &'static str, config: Arc<ClientConfig>) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from(name).unwrap();
    let client = rustls::ClientConnection::new(config, name);
    let mut hello = Vec::new();
    client.unwrap().write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn handshakes_of_one_domain_leave_others_a_tenth_and_wait_beyond() {
    let limits = Limits {
        handshakes_max: 40,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let mut flood = Vec::new();
    for number in 0..50 {
        let mut one = begin(&world, "flood.example").await;
        if number < 32 {
            until_answered(&mut one).await;
        }
        flood.push(one);
    }
    world.counts("handshakes_queued_total 18\n").await;
    for _ in 0..5 {
        let mut client = world.tls_client("quiet.example").await.unwrap();
        client.send(QUIET).await;
        assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    }
    // They wait until others have gone, and are closed no sooner.
    world.counts("connections_shed_total 0\n").await;
    drop(flood.drain(..32));
    for client in &mut flood {
        until_answered(client).await;
    }
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_give_back_their_slots_and_stay() {
    let limits = Limits {
        handshakes_max: 10,
        handshake_timeout: PATIENCE * 6,
        turn_timeout: PATIENCE * 6,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let mut flood = Vec::new();
    // Eight are all that the host gets at a time.
    for _ in 0..20 {
        flood.push(begin(&world, "flood.example").await);
    }
    let connecting = tokio::time::timeout(PATIENCE, world.tls_client("flood.example"));
    let mut client = connecting.await.unwrap().unwrap();
    client.send(FLOOD).await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    for one in &mut flood {
        until_answered(one).await;
    }
    world.counts("connections_shed_total 0\n").await;
    let timeouts = "handshakes_total{outcome=\"timeout\"} 0\n";
    world.counts(timeouts).await;
}

/// A client whose first key share is of a group that no domain takes.
pub(super) fn asked_again() -> Arc<ClientConfig> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::MLKEM1024, aws_lc_rs::kx_group::X25519];
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(super::world::trust())
        .with_no_client_auth();
    Arc::new(config)
}

#[tokio::test]
async fn who_has_to_be_asked_again_gives_its_slot_back_until_then() {
    let limits = Limits {
        handshakes_max: 1,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let config = asked_again();
    let mut half = TcpStream::connect(world.address("https")).await.unwrap();
    let hello = hello_by("flood.example", config.clone());
    half.write_all(&hello).await.unwrap();
    until_answered(&mut half).await;
    // The beginning of a second hello is none.
    half.write_all(&[22]).await.unwrap();
    let client = world.tls_client_with("quiet.example", &config).await;
    let mut client = client.unwrap();
    client.send(QUIET).await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
    world.counts("handshakes_queued_total 0\n").await;
    world.counts("handshakes_total{outcome=\"full\"} 1\n").await;
}

#[tokio::test]
async fn handshakes_that_wait_for_their_clients_are_held() {
    let limits = Limits {
        all_held_bytes_max: 64 << 10,
        ..Limits::default()
    };
    let (world, _slow) = world(limits, false).await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(begin(&world, "flood.example").await);
    }
    // Ten of 8 KiB are a quarter more than the bound, and the next is the first beyond. Then the
    // oldest goes for each.
    let evicted = "connections_evicted_total{state=\"handshake\"} 9\n";
    world.counts(evicted).await;
    drop(flood);
    world
        .counts("handshakes_total{outcome=\"failed\"} 11\n")
        .await;
    let mut client = world.tls_client("quiet.example").await.unwrap();
    client.send(QUIET).await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 200"));
}

/// Waits until a handshake has gone on.
pub(super) async fn until_answered(client: &mut TcpStream) {
    let mut record = [0; 5];
    let answered = client.read_exact(&mut record);
    tokio::time::timeout(PATIENCE, answered)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record[0], 22, "a part of the handshake");
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
