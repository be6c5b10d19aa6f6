//! Memory that runs short under a flood: what is shed at each step, what goes on, and that all is
//! well once the flood is over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use myriad_e2e::world::{eventually, eventually_within};
use myriad_e2e::{Backend, Site};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::overload::{Asker, Kept, number, slow_endpoint, with_budget};

/// The most bytes that the flood may take, beside what the process uses at rest.
const ROOM_BYTES: u64 = 96 << 20;

/// The bytes that a connection of the flood has sent of a head that never ends.
const HEAD_BYTES: usize = 60 << 10;

/// The requests that the first domain has under way; the others have one each.
const LARGEST: usize = 30;

/// How long it takes at most until the process looks how much it uses.
const LOOK: Duration = Duration::from_millis(1_500);

/// The allocator keeps for some time what it was given back.
const PATIENCE: Duration = Duration::from_secs(60);

const SLOW: [&str; 3] = ["large.test", "small.test", "other.test"];

/// A process under a flood.
struct Scene {
    http: SocketAddr,
    admin: SocketAddr,
    kept: Kept,
    quick: Backend,
    /// Lets the slow endpoint answer.
    tell: watch::Sender<bool>,
    used_at_rest: u64,
    flood: Vec<TcpStream>,
    _directory: tempfile::TempDir,
}

impl Scene {
    async fn set() -> Scene {
        let directory = tempfile::tempdir().expect("a directory");
        let quick = Backend::start("quick").await;
        let (slow, tell) = slow_endpoint().await;
        // Each domain has slow paths, and one that is answered at once.
        for host in SLOW {
            let slow = Site::new(host).to(slow).path("/slow").yaml();
            let quick = Site::new(host).to(quick.address()).yaml();
            let quick = quick.replace(&host.replace('.', "-"), &format!("quick-{}", &host[..5]));
            let text = format!("{slow}---\n{quick}");
            std::fs::write(directory.path().join(format!("{host}.yaml")), text).expect("a file");
        }
        let (_, admin, kept) = with_budget(directory.path(), "0").await;
        let used = eventually(async || {
            let used = number(admin, "myriad_memory_used_bytes").await?;
            (used > 0).then_some(used)
        });
        let used_at_rest = used.await.expect("the memory in use");
        drop(kept);
        let budget = (used_at_rest + ROOM_BYTES).to_string();
        let (http, admin, kept) = with_budget(directory.path(), &budget).await;
        Scene {
            http,
            admin,
            kept,
            quick,
            tell,
            used_at_rest,
            flood: Vec::new(),
            _directory: directory,
        }
    }

    async fn metric(&self, name: &str) -> u64 {
        let value = number(self.admin, &format!("myriad_{name}")).await;
        value.unwrap_or_else(|| panic!("no {name}"))
    }

    /// Floods until a step is taken, and no further.
    async fn flood_to(&mut self, step: u64, percent: u64) {
        let wanted = (self.used_at_rest + ROOM_BYTES) * percent / 100;
        let mut sent_at: Option<Instant> = None;
        let reached = eventually_within(PATIENCE, async || {
            if self.metric("memory_pressure").await == step {
                return Some(());
            }
            // Before that the memory is as it was before the flood grew.
            if sent_at.is_none_or(|at| at.elapsed() > LOOK) {
                let used = self.metric("memory_used_bytes").await;
                let missing = wanted.saturating_sub(used) * 3 / 4;
                for _ in 0..(missing / HEAD_BYTES as u64).max(1) {
                    self.flood.push(flooding(self.http).await);
                }
                sent_at = Some(Instant::now());
            }
            None
        });
        assert!(reached.await.is_some(), "step {step} is never taken");
    }

    /// Waits for a line of the log.
    async fn says(&mut self, text: &str, more: &str) {
        let reading = async {
            while let Ok(Some(line)) = self.kept.1.next_line().await {
                if line.contains(text) && line.contains(more) {
                    return true;
                }
            }
            false
        };
        let reading = tokio::time::timeout(PATIENCE, reading).await;
        assert_eq!(reading, Ok(true), "no {text:?} with {more:?}");
    }
}

/// A head that never ends.
async fn flooding(http: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(http).await.expect("a connection");
    let head = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES));
    // What nobody reads any more waits with the kernel.
    let _ = stream.try_write(head.as_bytes());
    stream
}

/// A connection with all of a request but its last line.
async fn begun(http: SocketAddr, host: &str) -> Asker {
    let mut asker = Asker::connect(http).await;
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n");
    let sent = asker.0.write_all(head.as_bytes()).await;
    sent.expect("a part of a request");
    asker
}

/// Requests that are not answered yet.
async fn under_way(http: SocketAddr) -> Vec<Asker> {
    let mut under_way = Vec::new();
    for (host, count) in SLOW.into_iter().zip([LARGEST, 1, 1]) {
        for _ in 0..count {
            let mut asker = Asker::connect(http).await;
            let head = format!("GET /slow HTTP/1.1\r\nHost: {host}\r\n\r\n");
            asker.0.write_all(head.as_bytes()).await.expect("a request");
            under_way.push(asker);
        }
    }
    under_way
}

async fn end(mut asker: Asker) -> String {
    asker.0.write_all(b"\r\n").await.expect("the end of it");
    asker.answer().await
}

/// Sees to it that what was under way is done, and nothing of it was lost.
async fn is_done(under_way: &mut [Asker]) {
    for asker in &mut *under_way {
        let answer = asker.answer().await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
    }
    // It was begun before anybody knew that it would be the last of its connection.
    for asker in under_way {
        let ended = tokio::time::timeout(PATIENCE, asker.0.read_u8()).await;
        assert!(ended.is_ok_and(|read| read.is_err()), "it is closed");
    }
}

#[tokio::test]
async fn memory_that_runs_short_is_saved_step_by_step_and_comes_back() {
    let mut scene = Scene::set().await;
    let http = scene.http;
    let mut under_way = under_way(http).await;
    let mut waiting = Vec::new();
    for host in [
        "large.test",
        "small.test",
        "small.test",
        "other.test",
        "large.test",
    ] {
        waiting.push(begun(http, host).await);
    }
    assert_eq!(scene.metric("memory_pressure").await, 0);

    // At 90 per cent the largest gets no more.
    scene.flood_to(2, 92).await;
    scene
        .says("memory is short, and new work is shed", "ShedLargest")
        .await;
    let refused = "fair_share_refused_total{of=\"connections\"}";
    let answer = end(waiting.remove(0)).await;
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
    assert_eq!((scene.metric(refused).await, scene.quick.asked()), (1, 0));
    let answer = end(waiting.remove(0)).await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");

    // At 95 only those do who hold next to nothing.
    scene.flood_to(3, 97).await;
    scene
        .says("memory is short, and new work is shed", "ShedAll")
        .await;
    for (asker, status) in waiting.into_iter().zip(["200", "200", "503"]) {
        let answer = end(asker).await;
        assert!(
            answer.starts_with(&format!("http/1.1 {status}")),
            "{answer}"
        );
    }
    let answer = Asker::connect(http).await.ask("other.test").await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert_eq!((scene.metric(refused).await, scene.quick.asked()), (2, 4));

    scene.tell.send_replace(true);
    is_done(&mut under_way).await;
    assert!(scene.metric("memory_pressure_steps_total").await >= 2);
    assert_eq!(
        (scene.metric("memory_pressure").await, scene.quick.asked()),
        (3, 4)
    );

    // Once the flood is over, everybody is served.
    scene.flood.clear();
    let is_over = eventually_within(PATIENCE, async || {
        (scene.metric("memory_pressure").await == 0).then_some(())
    });
    assert!(is_over.await.is_some(), "it never ends");
    scene.says("there is memory again", "None").await;
    for host in SLOW {
        let answer = Asker::connect(http).await.ask(host).await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}
