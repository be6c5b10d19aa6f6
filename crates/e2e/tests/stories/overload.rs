//! Too much to do: one tenant's flood leaves the others what they need, and memory is not used up.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::{DEADLINE, eventually};
use myriad_e2e::{Backend, Curl, Site, World};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::commands::myriad;

/// A connection that asks on and on.
pub(super) struct Asker(pub TcpStream);

impl Asker {
    pub(super) async fn connect(address: SocketAddr) -> Asker {
        Asker(TcpStream::connect(address).await.expect("a connection"))
    }

    pub(super) async fn send(&mut self, host: &str) {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let sent = self.0.write_all(request.as_bytes()).await;
        sent.expect("a request");
    }

    /// The head of the answer, in lower case; the body is read as well.
    pub(super) async fn answer(&mut self) -> String {
        let reading = async {
            let mut bytes = Vec::new();
            loop {
                let read = self.0.read_buf(&mut bytes).await.expect("an answer");
                let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.split_once("content-length: ").expect("a length").1;
                    let length = length.split("\r\n").next().expect("a number");
                    if body.len() >= length.parse().expect("a number") {
                        return head.to_owned();
                    }
                }
                assert!(read > 0, "the answer is cut off: {text}");
            }
        };
        let answer = tokio::time::timeout(DEADLINE, reading).await;
        answer.expect("an answer in time")
    }

    pub(super) async fn ask(&mut self, host: &str) -> String {
        self.send(host).await;
        self.answer().await
    }
}

/// Serves two tenants on one worker, the first of which has this endpoint.
async fn two_tenants(endpoint: SocketAddr, limit: &str) -> (Backend, World) {
    let backend = Backend::start("quiet").await;
    let authority = Authority::new();
    let pair = authority.issue(&["flood.test", "quiet.test"]);
    let redirect = ("nginx.ingress.kubernetes.io/ssl-redirect", "false");
    let site = |host: &str, endpoint| {
        let site = Site::new(host).to(endpoint).tls(&pair);
        site.annotation(redirect.0, redirect.1).yaml()
    };
    let files = [
        ("flood.yaml", site("flood.test", endpoint)),
        ("quiet.yaml", site("quiet.test", backend.address())),
    ];
    let world = World::serve_with(authority, &files, &["--workers=1", limit]).await;
    (backend, world)
}

/// The number of refusals because of a fair share.
async fn refused(world: &World, of: &str) -> f64 {
    let name = format!("myriad_fair_share_refused_total{{of=\"{of}\"}}");
    world.metric(&name).await
}

/// The first bytes of a handshake.
fn hello(world: &World, name: &'static str) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    let root = rustls::pki_types::CertificateDer::from_pem_slice(world.authority.root().as_bytes());
    roots.add(root.expect("a root")).expect("a root");
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name).expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a hello");
    bytes
}

#[tokio::test]
async fn a_flood_of_handshakes_leaves_others_theirs() {
    let flooded = Backend::start("flood").await;
    let (quiet, world) = two_tenants(flooded.address(), "--limit=handshakes=64").await;
    let hello = hello(&world, "flood.test");
    // Handshakes that the client begins and never ends.
    let mut flood = Vec::new();
    let has_enough = eventually(async || {
        let mut stream = TcpStream::connect(world.https()).await.ok()?;
        stream.write_all(&hello).await.ok()?;
        flood.push(stream);
        (flood.len() >= 100).then_some(())
    });
    assert!(has_enough.await.is_some());
    // Those beyond four fifths wait.
    let waiting = async || world.metric("myriad_handshakes_queued_total").await;
    let is_full = eventually(async || (waiting().await > 0.0).then_some(()));
    assert!(is_full.await.is_some());
    for number in 1..=10 {
        let answer = world.get("https://quiet.test/").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(quiet.asked(), number);
    }
    drop(flood);
    world.stop().await;
}

#[tokio::test]
async fn a_flood_of_connections_leaves_others_theirs() {
    let flooded = Backend::start("flood").await;
    let (quiet, world) = two_tenants(flooded.address(), "--limit=connections=100").await;
    let mut held = Vec::new();
    for _ in 0..150 {
        let mut asker = Asker::connect(world.http()).await;
        let answer = asker.ask("flood.test").await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        held.push(asker);
    }
    // Beyond four fifths its own idle connections go for its new ones.
    let evicted = "myriad_connections_evicted_total{state=\"idle\"}";
    assert_eq!(world.metric(evicted).await, 70.0);
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut asker = Asker::connect(world.http()).await;
        let answer = asker.ask("quiet.test").await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        others.push(asker);
    }
    assert_eq!(quiet.asked(), 10);
    // Who is connected already goes on.
    let answer = held.last_mut().expect("one").ask("flood.test").await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert_eq!(refused(&world, "connections").await, 0.0);
    drop((held, others));
    world.stop().await;
}

/// An endpoint that answers nothing before it is told to.
pub(super) async fn slow_endpoint() -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (told, telling) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut telling = telling.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4_096];
                while let Ok(1..) = stream.read(&mut bytes).await {
                    let _ = telling.wait_for(|told| *told).await;
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                    let _ = stream.write_all(answer).await;
                }
            });
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_request_whose_body_trickles_gives_its_place_back() {
    let flooded = Backend::start("flood").await;
    let limit = "--limit=body_timeout=1s,min_body_rate=1000";
    let (quiet, world) = two_tenants(flooded.address(), limit).await;
    let stream = TcpStream::connect(world.http()).await;
    let (mut read, mut write) = stream.expect("a connection").into_split();
    let head = "POST / HTTP/1.1\r\nHost: flood.test\r\nContent-Length: 1000\r\n\r\n";
    write.write_all(head.as_bytes()).await.expect("a head");
    // No pause is longer than one may be.
    let trickling = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let mut start = [0; 12];
    let reading = tokio::time::timeout(DEADLINE, read.read_exact(&mut start)).await;
    reading.expect("an answer in time").expect("an answer");
    assert_eq!(&start, b"HTTP/1.1 408");
    let given_up = "myriad_request_failures_total{reason=\"body_timeout\"}";
    assert_eq!(world.metric(given_up).await, 1.0);
    let answer = world.get("https://quiet.test/").await;
    assert_eq!((answer.status, quiet.asked()), (200, 1));
    trickling.abort();
    world.stop().await;
}

#[tokio::test]
async fn a_flood_of_slow_requests_leaves_others_theirs() {
    let (endpoint, tell) = slow_endpoint().await;
    let (quiet, world) = two_tenants(endpoint, "--limit=requests=50").await;
    let mut flood = Vec::new();
    for _ in 0..100 {
        let mut asker = Asker::connect(world.http()).await;
        asker.send("flood.test").await;
        flood.push(asker);
    }
    // Four fifths of what there is are under way, and all others are refused.
    let is_shed = eventually(async || (refused(&world, "requests").await >= 60.0).then_some(()));
    assert!(
        is_shed.await.is_some(),
        "{}",
        refused(&world, "requests").await
    );
    for _ in 0..20 {
        let mut asker = Asker::connect(world.http()).await;
        let answer = asker.ask("quiet.test").await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
    }
    assert_eq!(quiet.asked(), 20);
    tell.send_replace(true);
    let (mut answered, mut shed) = (0, 0);
    for asker in &mut flood {
        let answer = asker.answer().await;
        answered += usize::from(answer.starts_with("http/1.1 200"));
        shed += usize::from(answer.starts_with("http/1.1 503") && answer.contains("retry-after"));
    }
    assert_eq!((answered, shed), (40, 60));
    assert_eq!(refused(&world, "requests").await, 60.0);
    let answer = Asker::connect(world.http()).await.ask("flood.test").await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    world.stop().await;
}

/// A process with a budget of memory: its HTTP and admin addresses, and what ends it.
pub(super) async fn with_budget(
    directory: &std::path::Path,
    budget: &str,
) -> (SocketAddr, SocketAddr, Kept) {
    let mut child = myriad()
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .args(["--admin=127.0.0.1:0", "--workers=1"])
        .arg("--limit=head_timeout=5m")
        // Heads that never end are what takes the memory here, so they may.
        .arg("--limit=silent_bytes=512MiB")
        .arg(format!("--memory-max={budget}"))
        .arg(directory)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let find = |greeting: &str, name: &str| -> SocketAddr {
        let (_, rest) = greeting.split_once(name).expect("it is there");
        let end = rest.find(',').unwrap_or(rest.len());
        rest[..end].trim().parse().expect("an address")
    };
    let greeted = tokio::time::timeout(DEADLINE, async {
        while let Some(line) = lines.next_line().await.expect("text") {
            if line.starts_with("myriad serves") {
                return (find(&line, "http on "), find(&line, "admin on "));
            }
        }
        panic!("it ended");
    });
    let (http, admin) = greeted.await.expect("it serves in time");
    (http, admin, (child, lines))
}

/// Ends with what it holds.
pub(super) type Kept = (
    tokio::process::Child,
    tokio::io::Lines<BufReader<tokio::process::ChildStderr>>,
);

pub(super) async fn number(admin: SocketAddr, name: &str) -> Option<u64> {
    let url = format!("http://{admin}/metrics");
    let page = Curl::new(&url, &[], &"/none".into());
    let page = page.args(&["--insecure"]).ask().await.body;
    let line = page.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

#[tokio::test]
async fn connections_end_before_memory_runs_out() {
    let backend = Backend::start("a").await;
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::new("a.test").to(backend.address());
    std::fs::write(directory.path().join("a.yaml"), site.yaml()).expect("a file");

    let (http, admin, kept) = with_budget(directory.path(), "0").await;
    let used = eventually(async || {
        let used = number(admin, "myriad_memory_used_bytes").await?;
        (used > 0).then_some(used)
    });
    let used = used.await.expect("the memory in use");
    let answer = Asker::connect(http).await.ask("a.test").await;
    assert!(!answer.contains("connection: close"), "{answer}");
    drop(kept);

    // At 82 per cent every answer is the last of its connection. How much a process uses differs
    // a little from start to start, so the budget follows what the last one used.
    let mut used = used;
    let mut is_last = false;
    for _ in 0..8 {
        let budget = (used * 100 / 82).to_string();
        let (http, admin, _kept) = with_budget(directory.path(), &budget).await;
        let settled = eventually(async || {
            let step = number(admin, "myriad_memory_pressure").await?;
            used = number(admin, "myriad_memory_used_bytes").await?;
            (step > 0 && used > 0).then_some(step)
        });
        if settled.await == Some(1) {
            let answer = Asker::connect(http).await.ask("a.test").await;
            is_last = answer.starts_with("http/1.1 200") && answer.contains("connection: close");
            break;
        }
    }
    assert!(is_last, "no start came to the first step");

    // Beyond the budget a domain that holds nothing is still answered, and its connection ends.
    let (http, admin, _kept) = with_budget(directory.path(), "1MiB").await;
    let step = eventually(async || {
        let step = number(admin, "myriad_memory_pressure").await?;
        (step == 3).then_some(())
    });
    assert!(step.await.is_some());
    let answer = Asker::connect(http).await.ask("a.test").await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}
