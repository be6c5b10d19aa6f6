//! Requests that a grammar makes, through the gateway to servers of others, each of which tells
//! what it saw: no server ever sees a request that nobody sent, and all see the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::repository;
use myriad_e2e::{Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

mod grammar;
mod origins;
mod streams;

use grammar::{Dice, HOST, connection, last};
use origins::Origin;

/// Connections in the test command; `MYRIAD_DIFFERENTIAL` is another number.
const CONNECTIONS: usize = 500;

/// Connections at a time.
const AT_ONCE: usize = 16;

#[tokio::test]
async fn no_server_sees_a_request_that_nobody_sent_and_all_see_the_same() {
    let count = std::env::var("MYRIAD_DIFFERENTIAL");
    let count = count.map_or(CONNECTIONS, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a directory");
    let origins = origins::start(folder.path()).await;
    let sites = origins.iter().map(|origin| {
        let site = Site::new(origin.host).to(origin.address);
        (origin.host, site.yaml())
    });
    let files: Vec<(String, String)> = sites
        .map(|(host, yaml)| (format!("{host}.yaml"), yaml))
        .collect();
    let files: Vec<(&str, String)> = files
        .iter()
        .map(|(name, it)| (&**name, it.clone()))
        .collect();
    let world = World::serve_with(Authority::new(), &files, &[]).await;

    // What was found before comes first, as it was found.
    let mut all: Vec<Sent> = found()
        .iter()
        .map(|it| Sent::Text(it.clone() + &last(0)))
        .collect();
    let mut dice = Dice(20_260_101);
    for number in 1..=count {
        all.push(Sent::Text(connection(&mut dice, number)));
        if number % 4 == 0 {
            all.push(Sent::Streams(streams::connection(&mut dice, number)));
        }
    }
    let hosts: Vec<&str> = origins.iter().map(|origin| origin.host).collect();
    for some in all.chunks(AT_ONCE) {
        let mut tasks = tokio::task::JoinSet::new();
        for sent in some {
            for host in &hosts {
                tasks.spawn(send(world.http(), sent.to(host)));
            }
        }
        tasks.join_all().await;
    }
    world.stop().await;
    compare(&origins, count);
}

/// Compares what the servers saw.
fn compare(origins: &[Origin], count: usize) {
    let mut bodies: BTreeMap<String, BTreeSet<(Option<u64>, &str)>> = BTreeMap::new();
    for origin in origins {
        let (heads, wholes) = origin.seen();
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for seen in heads.iter().chain(&wholes) {
            assert!(!seen.head.contains("smuggled"), "{}: {seen:?}", origin.host);
        }
        for seen in &wholes {
            *times.entry(&seen.head).or_default() += 1;
            let whole = bodies.entry(seen.head.clone()).or_default();
            whole.insert((seen.body, origin.host));
        }
        // Those of the corpus may be the same.
        let twice: Vec<_> = times
            .iter()
            .filter(|(head, n)| **n > 1 && !head.contains("/c0-"))
            .collect();
        assert!(twice.is_empty(), "{}: {twice:?}", origin.host);
        assert!(
            wholes.len() >= count / 4,
            "{}: {}",
            origin.host,
            wholes.len()
        );
    }
    let mut agreed = 0;
    for (head, seen) in &bodies {
        let lengths: BTreeSet<u64> = seen.iter().filter_map(|(length, _)| *length).collect();
        assert!(lengths.len() <= 1, "{head}: {seen:?}");
        agreed += usize::from(seen.len() == origins.len());
    }
    // Servers refuse some of what others take, such as methods in lower case.
    assert!(agreed >= count / 4, "{agreed} of {}", bodies.len());
}

/// The corpus: connections that once were a finding, with `\r`, `\n` and the like escaped as in
/// Rust, one a line.
fn found() -> Vec<String> {
    let folder = repository("crates/e2e/tests/stories/differential");
    let text = std::fs::read_to_string(folder.join("corpus.txt")).expect("the corpus");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let escapes = [
            ("\\r", "\r"),
            ("\\n", "\n"),
            ("\\t", "\t"),
            ("\\0", "\0"),
            ("\\x0b", "\x0b"),
        ];
        let read = |text: String, (written, meant): (&str, &str)| text.replace(written, meant);
        escapes.into_iter().fold(line.to_owned(), read)
    };
    lines.map(read).collect()
}

/// A connection.
enum Sent {
    /// Of HTTP/1.
    Text(String),
    /// Of HTTP/2.
    Streams(Vec<u8>),
}

impl Sent {
    /// The same to a host.
    fn to(&self, host: &str) -> Sent {
        match self {
            Sent::Text(text) => Sent::Text(text.replace(HOST, host)),
            Sent::Streams(bytes) => {
                let mut bytes = bytes.clone();
                for at in 0..=bytes.len().saturating_sub(HOST.len()) {
                    if bytes[at..].starts_with(HOST.as_bytes()) {
                        bytes[at..at + HOST.len()].copy_from_slice(host.as_bytes());
                    }
                }
                Sent::Streams(bytes)
            }
        }
    }
}

/// Sends a connection, and reads until the gateway has answered and ended it.
async fn send(address: SocketAddr, sent: Sent) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let answered = async {
        // Refused bytes may meet a closed socket.
        match sent {
            Sent::Text(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
            Sent::Streams(bytes) => {
                let _ = stream.write_all(&bytes).await;
                streams::read(stream).await;
            }
        }
    };
    // Where a body took the last request for a part of it, nothing more comes.
    let _ = tokio::time::timeout(Duration::from_secs(5), answered).await;
}
