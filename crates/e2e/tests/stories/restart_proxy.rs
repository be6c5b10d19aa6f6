//! Hot restart of proxies that follow a controller, whether it is there or not.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::controller::Controller;
use myriad_e2e::world::eventually_within;
use myriad_e2e::{Answer, Curl};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::commands::myriad;
use super::restart::{self, Lines, Met, PATIENCE, REQUEST, answer};

/// Clients that ask every 20 ms.
const CLIENTS: usize = 8;

/// The addresses of everybody: an IP address of this story alone, so that its ports are nobody
/// else's.
struct Place {
    ip: IpAddr,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let [.., high, low] = std::process::id().to_be_bytes();
        Place {
            ip: [127, 201, high, low].into(),
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        (self.ip, port).into()
    }

    fn http(&self) -> SocketAddr {
        self.at(18_080)
    }

    fn https(&self) -> SocketAddr {
        self.at(18_443)
    }

    fn probes(&self) -> SocketAddr {
        self.at(19_902)
    }

    fn controller(&self, authority: &Authority) -> Controller {
        let listeners = [
            ("http", Controller::listener(self.http(), false)),
            ("https", Controller::listener(self.https(), true)),
        ];
        Controller::new(authority, self.at(15_010), &listeners)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// A proxy that keeps what it is told in a directory.
    fn proxy(&self, state: &str) -> Process {
        let argument = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let path = |name: &str| self.directory.path().join(name);
        std::fs::create_dir_all(path(state)).expect("a directory");
        let mut child = myriad()
            .arg("proxy")
            .arg(format!("--controller={}", self.at(15_010)))
            .arg(format!("--admin={}", self.at(19_901)))
            .arg(format!("--probes={}", self.probes()))
            .arg(argument("token-file", &path("token")))
            .arg(argument("ca-file", &path("ca")))
            .arg(argument("state-dir", &path(state)))
            .arg(argument("restart-socket", &path("socket")))
            .args(["--workers=2", "--drain-delay=1"])
            .arg("--endpoint-allow=127.0.0.0/8")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        Process { child, lines }
    }

    /// The answer to the kubelet's question.
    async fn ready(&self) -> Answer {
        let url = format!("http://{}/readyz", self.probes());
        Curl::new(&url, &[], &self.directory.path().join("ca"))
            .ask()
            .await
    }

    /// Whether a host is served.
    async fn serves(&self, host: &str) -> bool {
        let url = format!("http://{host}:{}/", self.http().port());
        let resolve = format!("{host}:{}:{}", self.http().port(), self.ip);
        let curl = Curl::new(&url, &[resolve], &self.directory.path().join("ca"));
        curl.ask().await.status == 200
    }

    async fn until_serves(&self, host: &str) {
        let serves = eventually_within(PATIENCE, async || self.serves(host).await.then_some(()));
        assert!(serves.await.is_some(), "{host} is served");
    }

    /// Asks on new connections, each of which somebody accepts.
    async fn ask_anew(&self) {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(self.http()).await.expect("it listens");
            stream.write_all(REQUEST).await.expect("a request");
            assert!(answer(&mut stream).await.0, "it is answered");
        }
    }
}

struct Process {
    child: Child,
    lines: Lines,
}

impl Process {
    /// Reads its log up to a line.
    async fn says(&mut self, text: &str) {
        let mut said = String::new();
        let reading = async {
            while let Ok(Some(line)) = self.lines.next_line().await {
                if line.contains(text) {
                    return true;
                }
                said += &line;
                said.push('\n');
            }
            false
        };
        let reading = tokio::time::timeout(PATIENCE, reading).await;
        assert_eq!(reading, Ok(true), "no {text:?} in {said}");
    }

    async fn end(self) {
        restart::end(self.child, self.lines).await;
    }
}

/// Clients that ask until they are told to end.
struct Load {
    end: watch::Sender<bool>,
    asking: Vec<JoinHandle<Met>>,
    shaking: JoinHandle<Met>,
    probing: JoinHandle<usize>,
}

impl Load {
    fn start(place: &Place, authority: &Authority) -> Load {
        let (end, ended) = watch::channel(false);
        let ask = |_| tokio::spawn(restart::ask(place.http(), ended.clone()));
        let asking = (0..CLIENTS).map(ask).collect();
        let root = authority.root().to_owned();
        Load {
            end,
            asking,
            shaking: tokio::spawn(restart::shake(place.https(), root, ended.clone())),
            probing: tokio::spawn(probe(place.probes(), ended)),
        }
    }

    /// Everything was answered, by one process or another.
    async fn stop(self) {
        self.end.send_replace(true);
        for asking in self.asking {
            let met = asking.await.expect("a client");
            assert_eq!((met.lost, met.refused), (0, 0), "{met:?}");
        }
        let met = self.shaking.await.expect("a client");
        assert_eq!((met.lost, met.refused), (0, 0), "{met:?}");
        // The keys of tickets went along.
        assert_eq!((met.full, met.resumed), (1, met.answered - 1));
        assert!(self.probing.await.expect("a kubelet") > 0);
    }
}

/// Asks whether the proxy is ready, as the kubelet does, on a new connection each time; how often.
async fn probe(address: SocketAddr, end: watch::Receiver<bool>) -> usize {
    let mut count = 0;
    while !*end.borrow() {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let question = b"GET /readyz HTTP/1.1\r\nHost: probes\r\nConnection: close\r\n\r\n";
        stream.write_all(question).await.expect("a question");
        let mut said = String::new();
        let reading = tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut said);
        reading.await.expect("an answer");
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        count += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    count
}

#[tokio::test]
async fn proxies_take_over_whether_their_controller_is_there_or_not() {
    let (place, authority) = (Place::new(), Authority::new());
    place.write("token", "story");
    place.write("ca", authority.root());
    let pair = authority.issue(&["a.test", "b.test", "c.test"]);
    let endpoint = restart::endpoint().await;
    let mut controller = place.controller(&authority);
    controller.say("a.test", endpoint, &pair);
    controller.come().await;
    let first = place.proxy("kept");
    let is_ready = eventually_within(PATIENCE, async || {
        (place.ready().await.status == 200).then_some(())
    });
    assert!(is_ready.await.is_some(), "{:?}", place.ready().await);
    let load = Load::start(&place, &authority);

    // The controller is there.
    let second = place.proxy("kept");
    first.end().await;
    place.ask_anew().await;

    // It is away, and what was kept is served before it says more, and after.
    controller.go().await;
    let third = place.proxy("kept");
    second.end().await;
    place.ask_anew().await;
    assert!(!place.serves("b.test").await);
    controller.say("b.test", endpoint, &pair);
    controller.come().await;
    place.until_serves("b.test").await;
    place.ask_anew().await;

    // It is away, and nothing was kept: the process before goes on until there is something.
    controller.go().await;
    let mut fourth = place.proxy("new");
    fourth.says("taken over from the process before").await;
    place.ask_anew().await;
    assert!(place.serves("b.test").await);
    controller.say("c.test", endpoint, &pair);
    assert!(!place.serves("c.test").await);
    controller.come().await;
    third.end().await;
    for host in ["a.test", "b.test", "c.test"] {
        place.until_serves(host).await;
    }
    load.stop().await;
}
