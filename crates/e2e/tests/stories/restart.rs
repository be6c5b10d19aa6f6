//! Hot restart: one process after another on the same sockets, and nobody notices.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use myriad_e2e::authority::Authority;
use myriad_e2e::world::{DEADLINE, eventually};
use myriad_e2e::{Curl, Site};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::commands::myriad;

const RESTARTS: usize = 10;

/// 40 connections, each with a request every 20 ms, are 2,000 requests per second.
const CONNECTIONS: usize = 40;
const REQUEST_INTERVAL: Duration = Duration::from_millis(20);

const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(100);

pub(super) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// How long a process may take to get live, or to drain.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint that costs next to nothing.
pub(super) async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut head).await {
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// A process that serves, and where.
struct Process {
    child: Child,
    lines: Lines,
    http: SocketAddr,
    https: SocketAddr,
    admin: SocketAddr,
}

impl Process {
    /// Starts one, and waits until it serves.
    async fn start(served: &Path, socket: &Path, workers: usize) -> Process {
        let mut child = myriad()
            .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
            .args(["--admin=127.0.0.1:0", "--drain-delay=5"])
            .arg(format!("--workers={workers}"))
            .arg(format!("--restart-socket={}", socket.display()))
            .arg(served)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let greeting = tokio::time::timeout(PATIENCE, async {
            let mut said = String::new();
            while let Some(line) = lines.next_line().await.expect("text") {
                if line.starts_with("myriad serves") {
                    return line;
                }
                said += &line;
            }
            panic!("it ended: {said}");
        });
        let greeting = greeting.await.expect("it serves in time");
        let find = |name: &str| -> SocketAddr {
            let (_, rest) = greeting.split_once(name).expect("it is there");
            let end = rest.find(',').unwrap_or(rest.len());
            rest[..end].trim().parse().expect("an address")
        };
        Process {
            http: find("http on "),
            https: find("https on "),
            admin: find("admin on "),
            child,
            lines,
        }
    }

    async fn end(self) {
        end(self.child, self.lines).await;
    }
}

/// The lines that a process writes to standard error.
pub(super) type Lines = tokio::io::Lines<BufReader<tokio::process::ChildStderr>>;

/// Waits for the end of a process that another one takes over from, which has to be a good one.
pub(super) async fn end(mut child: Child, mut lines: Lines) {
    let reading = async {
        let mut said = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            said += &line;
            said.push('\n');
        }
        (child.wait().await, said)
    };
    let ended = tokio::time::timeout(PATIENCE, reading).await;
    let (status, said) = ended.expect("it drains in time");
    assert!(status.expect("a status").success(), "{said}");
    assert!(said.contains("another process takes over"), "{said}");
}

/// The answers that one client met.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Met {
    pub answered: usize,
    pub lost: usize,
    pub refused: usize,
    closed: usize,
    pub full: usize,
    pub resumed: usize,
}

/// Reads an answer; says whether it is one, and the last of its connection.
pub(super) async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> (bool, bool) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"done") {
        match stream.read_buf(&mut bytes).await {
            Ok(1..) => {}
            _ => return (false, true),
        }
    }
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let is_well = text.starts_with("http/1.1 200");
    (is_well, text.contains("connection: close"))
}

/// How many times an interval has passed, or will have at the end once there is one.
async fn due(start: Instant, interval: Duration, count: u32, end: &watch::Receiver<bool>) -> bool {
    let at = start + interval * count;
    if *end.borrow() && at > Instant::now() {
        return false;
    }
    tokio::time::sleep_until(at.into()).await;
    true
}

/// Asks at its times, however late an answer was, on one connection after another.
pub(super) async fn ask(http: SocketAddr, end: watch::Receiver<bool>) -> Met {
    let (start, mut met) = (Instant::now(), Met::default());
    let (mut count, mut stream) = (0, None);
    while due(start, REQUEST_INTERVAL, count, &end).await {
        count += 1;
        let mut open = match stream.take() {
            Some(open) => open,
            None => match TcpStream::connect(http).await {
                Ok(open) => open,
                Err(_) => {
                    met.refused += 1;
                    continue;
                }
            },
        };
        let sent = open.write_all(REQUEST).await;
        let (is_well, is_last) = answer(&mut open).await;
        met.answered += usize::from(is_well);
        met.lost += usize::from(!is_well || sent.is_err());
        met.closed += usize::from(is_well && is_last);
        if !is_last {
            stream = Some(open);
        }
    }
    met
}

/// Shakes hands at its times, and asks once for each.
pub(super) async fn shake(https: SocketAddr, root: String, end: watch::Receiver<bool>) -> Met {
    let (start, mut met, mut count) = (Instant::now(), Met::default(), 0);
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("a root");
    roots.add(root).expect("a root");
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("a.test").expect("a name");
    while due(start, HANDSHAKE_INTERVAL, count, &end).await {
        count += 1;
        let Ok(tcp) = TcpStream::connect(https).await else {
            met.refused += 1;
            continue;
        };
        let Ok(mut tls) = connector.connect(name.clone(), tcp).await else {
            met.lost += 1;
            continue;
        };
        let sent = tls.write_all(REQUEST).await;
        let (is_well, _) = answer(&mut tls).await;
        met.answered += usize::from(is_well);
        met.lost += usize::from(!is_well || sent.is_err());
        match tls.get_ref().1.handshake_kind() {
            Some(HandshakeKind::Resumed) => met.resumed += 1,
            _ => met.full += 1,
        }
    }
    met
}

#[tokio::test]
async fn ten_restarts_in_a_row_refuse_and_lose_nothing() {
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(endpoint().await)
        .tls(&authority.issue(&["a.test"]))
        .annotation("nginx.ingress.kubernetes.io/ssl-redirect", "false");
    let directory = tempfile::tempdir().expect("a directory");
    let (served, socket) = (directory.path().join("served"), directory.path().join("s"));
    std::fs::create_dir(&served).expect("a directory");
    std::fs::write(served.join("a.yaml"), site.yaml()).expect("a file");

    let mut serving = Process::start(&served, &socket, 2).await;
    let (end, ended) = watch::channel(false);
    let (http, https, admin) = (serving.http, serving.https, serving.admin);
    let asking = (0..CONNECTIONS).map(|_| tokio::spawn(ask(http, ended.clone())));
    let asking: Vec<_> = asking.collect();
    let root = authority.root().to_owned();
    let shaking = tokio::spawn(shake(https, root, ended.clone()));
    let start = Instant::now();
    for restart in 0..RESTARTS {
        // More workers than there are sockets, and fewer.
        let next = Process::start(&served, &socket, 1 + restart % 3).await;
        assert_eq!((next.http, next.https, next.admin), (http, https, admin));
        std::mem::replace(&mut serving, next).end().await;
        // Load for as long as handshakes need to be several under each process.
        tokio::time::sleep(5 * HANDSHAKE_INTERVAL).await;
    }
    let seconds = start.elapsed().as_secs_f64();
    end.send_replace(true);
    let mut met = Met::default();
    for asking in asking {
        let one = asking.await.expect("a client");
        assert!(one.closed >= RESTARTS, "it met every drain: {one:?}");
        met.answered += one.answered;
        met.lost += one.lost;
        met.refused += one.refused;
    }
    assert_eq!((met.lost, met.refused), (0, 0), "{met:?}");
    assert!(
        met.answered as f64 >= 1_999.0 * seconds,
        "{met:?} in {seconds} s"
    );
    let shaken = shaking.await.expect("a client");
    assert_eq!((shaken.lost, shaken.refused), (0, 0), "{shaken:?}");
    assert!(
        shaken.answered as f64 >= 9.9 * seconds,
        "{shaken:?} in {seconds} s"
    );
    // The keys of tickets went along.
    assert_eq!((shaken.full, shaken.resumed), (1, shaken.answered - 1));

    let url = format!("http://{admin}/metrics");
    let page = Curl::new(&url, &[], &directory.path().join("none"));
    let page = page.args(&["--insecure"]).ask().await.body;
    assert!(
        page.contains("myriad_restart_sockets_taken_total"),
        "{page}"
    );
}

#[tokio::test]
async fn one_that_dies_before_it_is_live_leaves_everything_as_it_was() {
    let site = Site::new("a.test").to(endpoint().await);
    let directory = tempfile::tempdir().expect("a directory");
    let (served, socket) = (directory.path().join("served"), directory.path().join("s"));
    std::fs::create_dir(&served).expect("a directory");
    std::fs::write(served.join("a.yaml"), site.yaml()).expect("a file");
    let serving = Process::start(&served, &socket, 2).await;

    // It is given the sockets, and then finds that there is nothing to serve.
    let broken = myriad()
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .args(["--admin=127.0.0.1:0"])
        .arg(format!("--restart-socket={}", socket.display()))
        .arg(directory.path().join("nothing"))
        .output();
    assert!(!broken.await.expect("the binary runs").status.success());
    let url = format!("http://{}/metrics", serving.admin);
    let noted = eventually(async || {
        let page = Curl::new(&url, &[], &directory.path().join("none"));
        let page = page.args(&["--insecure"]).ask().await.body;
        page.contains("myriad_restart_failed_total 1").then_some(())
    });
    assert!(noted.await.is_some());
    for _ in 0..20 {
        let mut stream = TcpStream::connect(serving.http).await.expect("it listens");
        stream.write_all(REQUEST).await.expect("a request");
        assert_eq!(answer(&mut stream).await, (true, false));
    }
    // And somebody else may still take over.
    let next = Process::start(&served, &socket, 2).await;
    assert_eq!(next.http, serving.http);
    tokio::time::timeout(DEADLINE, serving.end())
        .await
        .expect("it drains");
}
