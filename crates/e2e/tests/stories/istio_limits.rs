//! Rules about time and number: new endpoints, repetitions, connecting and being idle.
//!
//! Times are compared with bounds that hold on a slow machine too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use myriad_e2e::istio::{
    Scene, TO, destination_rule, free_port, gateway, service, service_speaking, virtual_service,
};
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Barrier;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy";

/// A rule of HTTP with these repetitions, endpoints and their policy.
async fn serve(endpoints: &[SocketAddr], retries: &str, policy: &str) -> World {
    let rule = format!("retries: {{{retries}}}, {TO}");
    let scene = Scene::new().to(endpoints).rules(&[&rule]);
    let policy = destination_rule("api", &format!("trafficPolicy: {policy}"));
    scene.with(&policy).serve().await
}

#[tokio::test]
async fn an_endpoint_that_is_new_begins_with_less_than_its_share() {
    const WARM: Duration = Duration::from_secs(3);
    const ASKED: usize = 300;
    let (old, new) = (Backend::start("old").await, Backend::start("new").await);
    let begin = Instant::now();
    let policy = "{loadBalancer: {simple: RANDOM, warmup: {duration: 3s, minimumPercent: 1}}}";
    let world = serve(&[old.address()], "attempts: 0", policy).await;
    assert_eq!(world.get("http://a.test/").await.status, 200);
    // The old one has all of its weight, however late the world began.
    tokio::time::sleep(WARM.saturating_sub(begin.elapsed()) + WARM / 10).await;
    let added = Instant::now();
    let later = service("api", &[new.address()]).replace("api-0", "api-new");
    let slice = later.split("---\n").find(|it| it.contains("EndpointSlice"));
    world.write("new.yaml", &format!("---\n{}", slice.expect("a slice")));
    let reached = eventually(async || {
        burst(&world, 20).await;
        (new.asked() > 0).then_some(())
    });
    assert!(reached.await.is_some(), "the new one is reached");
    let before = (old.asked(), new.asked());
    burst(&world, ASKED).await;
    let (olds, news) = (old.asked() - before.0, new.asked() - before.1);
    assert_eq!(olds + news, ASKED);
    // As warm as it can be by now, and six times the standard deviation; and never a fifth where
    // a half would be its share.
    let part = (added.elapsed().as_secs_f64() / WARM.as_secs_f64()).clamp(0.01, 1.0);
    let share = part / (1.0 + part);
    let bound = ASKED as f64 * share + 6.0 * (ASKED as f64 * share * (1.0 - share)).sqrt();
    let bound = bound.max(ASKED as f64 / 5.0);
    assert!((news as f64) < bound, "{news} of {ASKED}, below {bound}");
    let warm = eventually(async || {
        let before = (old.asked(), new.asked());
        burst(&world, ASKED).await;
        let (olds, news) = (old.asked() - before.0, new.asked() - before.1);
        (news * 3 > olds).then_some(())
    });
    assert!(warm.await.is_some(), "it has its share once it is warm");
    world.stop().await;
}

/// Sends so many requests on one connection.
async fn burst(world: &World, count: usize) {
    let mut tcp = TcpStream::connect(world.http()).await.expect("a gateway");
    for _ in 0..count {
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        tcp.write_all(request).await.expect("it is heard");
        read_answer(&mut tcp).await;
    }
}

/// Reads a head, and as much of a body as it names.
async fn read_answer(tcp: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split("\r\n").next());
    let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
    let mut body = vec![0; length];
    tcp.read_exact(&mut body).await.expect("a body");
}

/// An endpoint that is busy once so many clients ask, and answers what is asked then when all
/// the others have been told.
async fn busy_to(clients: usize) -> (SocketAddr, Arc<AtomicUsize>, Arc<Barrier>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (first, last) = (
        Arc::new(Barrier::new(clients)),
        Arc::new(Barrier::new(clients + 1)),
    );
    let again = Arc::new(AtomicUsize::new(0));
    let (all, repeated, asked) = (last.clone(), again.clone(), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let (first, last, asked) = (first.clone(), last.clone(), asked.clone());
            let again = again.clone();
            tokio::spawn(async move {
                let mut head = [0; 4_096];
                while tcp.read(&mut head).await.is_ok_and(|length| length > 0) {
                    if asked.fetch_add(1, Ordering::SeqCst) < clients {
                        first.wait().await;
                        let _ = tcp.write_all(BUSY).await;
                    } else {
                        again.fetch_add(1, Ordering::SeqCst);
                        last.wait().await;
                        let _ = tcp.write_all(OK).await;
                    }
                }
            });
        }
    });
    (address, repeated, all)
}

#[tokio::test]
async fn as_many_repetitions_are_in_flight_as_the_budget_has_room_for() {
    const CLIENTS: usize = 6;
    for room in [1, 4] {
        let (address, again, all) = busy_to(CLIENTS).await;
        let policy = format!("{{retryBudget: {{percent: 0, minRetryConcurrency: {room}}}}}");
        let retries = "attempts: 1, retryOn: '503', backoff: 1ms";
        let world = Arc::new(serve(&[address], retries, &policy).await);
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let world = world.clone();
            asked.spawn(async move { world.get("http://a.test/").await.status });
        }
        // Whoever finds no room is answered while the others wait.
        let mut statuses = Vec::new();
        for _ in room..CLIENTS {
            let status = asked.join_next().await.expect("a client");
            statuses.push(status.expect("no panic"));
        }
        assert_eq!(statuses, vec![503; CLIENTS - room], "room for {room}");
        let arrived = eventually(async || (again.load(Ordering::SeqCst) == room).then_some(()));
        assert!(arrived.await.is_some(), "room for {room}");
        for _ in room..=CLIENTS {
            let all = all.clone();
            tokio::spawn(async move { all.wait().await });
        }
        while let Some(status) = asked.join_next().await {
            assert_eq!(status.expect("no panic"), 200, "room for {room}");
        }
        let refused = world.metric("myriad_retries_refused_total").await;
        assert_eq!(refused, (CLIENTS - room) as f64);
    }
}

#[tokio::test]
async fn a_repetition_waits_as_long_as_the_rule_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4_096];
                for answer in [BUSY, OK] {
                    let _ = tcp.read(&mut head).await;
                    let _ = tcp.write_all(answer).await;
                }
            });
        }
    });
    let retries = "attempts: 1, retryOn: '503', backoff: 1s";
    let world = serve(&[address], retries, "{}").await;
    let start = Instant::now();
    assert_eq!(world.get("http://a.test/").await.body, "ok");
    // Between a half of it and all.
    let passed = start.elapsed();
    assert!(passed >= Duration::from_millis(500), "{passed:?}");
    world.stop().await;
}

/// An endpoint of gRPC that answers first calls with a status, and second ones with none.
async fn calls_that_fail_first(status: &'static str, is_late: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.expect("HTTP/2");
                while let Some(Ok((call, respond))) = connection.accept().await {
                    let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
                    let status = if is_first { status } else { "0" };
                    // An answer before the end of the call would break it off for curl.
                    tokio::spawn(async move {
                        let mut said = call.into_body();
                        while let Some(Ok(_)) = said.data().await {}
                        answer_call(respond, status, is_late);
                    });
                }
            });
        }
    });
    address
}

fn answer_call(mut respond: h2::server::SendResponse<Bytes>, status: &str, is_late: bool) {
    let head = http::Response::builder().header("content-type", "application/grpc");
    if !is_late && status != "0" {
        let head = head.header("grpc-status", status).body(()).expect("a head");
        respond.send_response(head, true).expect("a stream");
        return;
    }
    let head = head.body(()).expect("a head");
    let mut send = respond.send_response(head, false).expect("a stream");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", status.parse().expect("a value"));
    let said = Bytes::from_static(b"said");
    send.send_data(said, false).expect("a stream");
    send.send_trailers(trailers).expect("a stream");
}

#[tokio::test]
async fn calls_are_made_again_by_their_status_unless_something_was_said_already() {
    for (condition, status, is_late, wanted) in [
        ("cancelled", "1", false, "0"),
        ("deadline-exceeded", "4", false, "0"),
        ("resource-exhausted", "8", false, "0"),
        ("internal", "13", false, "0"),
        ("unavailable", "14", false, "0"),
        ("unavailable", "13", false, "13"),
        ("unavailable", "14", true, "14"),
    ] {
        let address = calls_that_fail_first(status, is_late).await;
        let rule = format!("retries: {{attempts: 1, retryOn: {condition}}}, {TO}");
        let scene = Scene::new().rules(&[&rule]);
        let scene = scene.with(&service_speaking("grpc", "api", &[address]));
        let world = scene.serve().await;
        let call = ["--http2", "-X", "POST", "-H", "te: trailers", "-d", "x"];
        let curl = world.curl("https://a.test/pkg.Service/Method");
        let answer = curl.args(&call).ask().await;
        let told = format!("grpc-status: {wanted}");
        let is_told = answer.header("grpc-status") == Some(wanted) || answer.body.contains(&told);
        assert!(is_told, "{condition}, {status}, {is_late}: {answer:?}");
        world.stop().await;
    }
}

/// An endpoint that nobody gets a connection to, because those that wait for it fill its queue.
async fn full() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any).expect("a port");
    let listener = socket.listen(0).expect("a queue");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(500);
    while let Ok(tcp) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
        waiting.push(tcp.expect("a place in the queue"));
    }
    (address, listener, waiting)
}

/// Less than the time to connect where nothing is written, which is 10 s.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test]
async fn connecting_takes_no_longer_than_the_rule_says() {
    const SHORT: &str = "{connectionPool: {tcp: {connectTimeout: 0.3s}}}";
    let (address, _listener, _waiting) = full().await;
    let world = serve(&[address], "attempts: 0", SHORT).await;
    let start = Instant::now();
    let answer = world.curl("http://a.test/").args(&["--max-time", "8"]);
    assert_eq!(answer.ask().await.status, 504);
    assert!(start.elapsed() >= Duration::from_millis(300));
    world.stop().await;
}

#[tokio::test]
async fn a_stream_waits_no_longer_for_its_endpoint_than_the_rule_says() {
    const SHORT: &str = "{connectionPool: {tcp: {connectTimeout: 0.3s}}}";
    let (address, _listener, _waiting) = full().await;
    let port = free_port();
    let server = format!("port: {{number: {port}, name: t, protocol: TCP}}, hosts: ['*']");
    let to = "route: [{destination: {host: far, port: {number: 80}}}]";
    let text = gateway("streams", &[&server])
        + &service("far", &[address])
        + &destination_rule("far", &format!("trafficPolicy: {SHORT}"))
        + &virtual_service("s", "hosts: ['*'], gateways: [streams]", "tcp", &[to]);
    let world = Scene::new().with(&text).serve().await;
    let opened = eventually(async || TcpStream::connect(("127.0.0.1", port)).await.ok());
    let mut tcp = opened.await.expect("the port opens");
    let mut heard = Vec::new();
    let closed = tokio::time::timeout(SOON, tcp.read_to_end(&mut heard)).await;
    assert!(closed.is_ok(), "it is given up");
    assert!(heard.is_empty());
    world.stop().await;
}

/// The time until the kernel's next probe on connections to this address, as it tells; `None` where
/// it sends none.
fn until_probe(address: SocketAddr) -> Option<Duration> {
    let SocketAddr::V4(address) = address else {
        panic!("not IPv4");
    };
    let ip = u32::from_le_bytes(address.ip().octets());
    let wanted = format!("{ip:08X}:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (to, timer) = (words.get(2)?, words.get(5)?);
        let (kind, ticks) = timer.split_once(':')?;
        let ticks = u64::from_str_radix(ticks, 16).ok()?;
        // Timer 2 is that of probes; a second has a hundred ticks.
        (**to == *wanted && kind == "02").then(|| Duration::from_millis(ticks * 10))
    })
}

#[tokio::test]
async fn idle_connections_are_probed_where_the_rule_says_so() {
    for (policy, is_probed) in [
        (
            "{connectionPool: {tcp: {tcpKeepalive: {time: 1000s}}}}",
            true,
        ),
        ("{connectionPool: {tcp: {maxConnections: 9}}}", false),
    ] {
        let backend = Backend::start("a").await;
        let world = serve(&[backend.address()], "attempts: 0", policy).await;
        assert_eq!(world.get("http://a.test/").await.status, 200);
        if is_probed {
            let probe = eventually(async || until_probe(backend.address())).await;
            let probe = probe.expect("probes are sent");
            // The system's own time is two hours.
            assert!(probe <= Duration::from_secs(1_000), "{probe:?}");
        } else {
            assert_eq!(until_probe(backend.address()), None);
        }
        world.stop().await;
    }
}
