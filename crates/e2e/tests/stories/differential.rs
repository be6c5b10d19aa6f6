//! Requests that a grammar makes, through the gateway to servers of others, each of which tells
//! what it saw: no server ever sees a request that nobody sent, all see the same, and each sees
//! what the gateway says that it sent there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::{eventually, repository};
use myriad_e2e::{Site, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

mod forwarded;
mod grammar;
mod origins;
mod streams;

use forwarded::{End, Forwarded};
use grammar::{Dice, HOST, connection, last};
use origins::{Origin, Seen, Told};

/// Connections in the test command; `MYRIAD_DIFFERENTIAL` is another number.
const CONNECTIONS: usize = 500;

/// The fewest requests to each server in the test command.
const REQUESTS_MIN: usize = 1_000;

/// The seed of all connections.
const SEED: u64 = 20_260_101;

/// Connections at a time, to each server.
const AT_ONCE: usize = 16;

/// The most findings that are told.
const FINDINGS_MAX: usize = 20;

#[tokio::test]
async fn servers_see_what_the_gateway_says_that_it_sent_and_nothing_that_nobody_sent() {
    let count = std::env::var("MYRIAD_DIFFERENTIAL");
    let count = count.map_or(CONNECTIONS, |text| text.parse().expect("a number"));
    let all = connections(count);
    let requests: usize = all.iter().map(Sent::requests).sum();
    let requests_min = REQUESTS_MIN * count / CONNECTIONS;
    assert!(requests >= requests_min, "{requests} of {requests_min}");

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
    let log = folder.path().join("access.log");
    let flag = format!("--access-log-file={}", log.display());
    let world = World::serve_with(Authority::new(), &files, &[&flag]).await;
    send_all(world.http(), &origins, &all).await;
    world.stop().await;

    // Servers tell of what broke off once they notice, which is after the gateway has ended.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let forwarded = forwarded::read(&log);
    let findings = compare(&origins, &forwarded, count).await;
    assert!(findings.is_empty(), "{}", report(&all, &findings));
}

/// All connections: what was found before comes first, as it was found.
fn connections(count: usize) -> Vec<Sent> {
    let mut all = found();
    let mut dice = Dice(SEED);
    for number in 1..=count {
        all.push(Sent {
            number,
            bytes: connection(&mut dice, number).into_bytes(),
        });
        if number % 4 == 0 {
            let bytes = streams::connection(&mut dice, number);
            all.push(Sent { number, bytes });
        }
    }
    all
}

/// Sends all connections to all servers.
async fn send_all(gateway: SocketAddr, origins: &[Origin], all: &[Sent]) {
    for some in all.chunks(AT_ONCE) {
        let mut tasks = tokio::task::JoinSet::new();
        for sent in some {
            for origin in origins {
                tasks.spawn(send(gateway, sent.to(origin.host)));
            }
        }
        tasks.join_all().await;
    }
}

/// Compares what the servers saw with each other, and with what the gateway says.
async fn compare(
    origins: &[Origin],
    forwarded: &BTreeMap<String, Vec<Forwarded>>,
    count: usize,
) -> Vec<String> {
    let mut findings = Vec::new();
    let mut bodies: BTreeMap<String, BTreeSet<(Option<u64>, &str)>> = BTreeMap::new();
    for origin in origins {
        let sent = forwarded.get(&origin.address.to_string());
        let sent = sent.map(Vec::as_slice).unwrap_or_default();
        // nginx and HAProxy tell of a request after they have answered it.
        let differing = |told: &Told| differences(origin, told, sent);
        let is_settled = async || differing(&origin.told()).is_empty().then_some(());
        let _ = eventually(is_settled).await;
        let told = origin.told();
        let of_origin = differing(&told).into_iter();
        let of_origin = of_origin.chain(forged(&told, sent));
        let of_origin = of_origin.chain(refused(origin, &told, sent));
        findings.extend(of_origin.map(|finding| format!("{}: {finding}", origin.host)));
        let wholes = told.wholes.len();
        if wholes < count / 4 {
            findings.push(format!("{}: only {wholes} were seen", origin.host));
        }
        for seen in origin.sure(told.wholes, sent) {
            let whole = bodies.entry(seen.head).or_default();
            whole.insert((seen.body, origin.host));
        }
    }
    let mut agreed = 0;
    for (head, seen) in &bodies {
        let lengths: BTreeSet<u64> = seen.iter().filter_map(|(length, _)| *length).collect();
        if lengths.len() > 1 {
            findings.push(format!("{head}: bodies are not the same: {seen:?}"));
        }
        agreed += usize::from(seen.len() == origins.len());
    }
    // Servers refuse some of what others take, such as methods in lower case.
    if agreed < count / 4 {
        findings.push(format!("all saw only {agreed} of {}", bodies.len()));
    }
    findings
}

/// The differences between the accounts of a server and of the gateway. Of each method and target,
/// the server has seen no head more often than the gateway sent it, and has seen whole, with as
/// long a body, whatever the gateway says that it answered 200, and nothing but what the gateway
/// may have sent whole. A request that broke off may be in neither count.
fn differences(origin: &Origin, told: &Told, sent: &[Forwarded]) -> Vec<String> {
    let heads = |seen: &[Seen]| times(seen.iter().map(|it| it.head.clone()));
    let wholes = |seen: &[Seen]| times(seen.iter().map(|it| (it.head.clone(), it.body)));
    let sure = origin.sure(told.wholes.clone(), sent);
    let all = times(sent.iter().map(|it| it.head.clone()));
    let answered = || sent.iter().filter(|it| it.end == End::Answered);
    let answered_heads = times(answered().map(|it| it.head.clone()));
    let answered_wholes = times(answered().map(|it| (it.head.clone(), Some(it.body))));
    let unbroken = sent.iter().filter(|it| it.end != End::Malformed);
    let unbroken = times(unbroken.map(|it| (it.head.clone(), Some(it.body))));
    let seen = heads(&told.heads);
    let seen_whole = wholes(&told.wholes);
    [
        more("seen and not sent", &seen, &all),
        more("seen whole and not sent so", &wholes(&sure), &unbroken),
        more("answered and not seen", &answered_heads, &seen),
        more("answered and not seen so", &answered_wholes, &seen_whole),
    ]
    .concat()
}

/// Requests that nobody sent, or that were sent once and are there twice.
fn forged(told: &Told, sent: &[Forwarded]) -> Vec<String> {
    let of_told = told.heads.iter().chain(&told.wholes).map(|it| &it.head);
    let all = of_told.chain(sent.iter().map(|it| &it.head));
    let smuggled = all.filter(|head| head.contains("smuggled"));
    let smuggled = smuggled.map(|head| format!("nobody sent it: {head}"));
    let times = times(sent.iter().map(|it| &*it.head)).into_iter();
    // Those of the corpus may be the same, and `*` is one target for all.
    let twice = times.filter(|(head, n)| {
        let is_own = !head.contains("/c0-") && !head.ends_with(" *");
        is_own && *n > 1
    });
    let twice = twice.map(|(head, n)| format!("it was sent once, and went on {n} times: {head}"));
    smuggled.chain(twice).collect()
}

/// The requests that a server refuses of what the gateway passes on, and is not known to refuse.
fn refused(origin: &Origin, told: &Told, sent: &[Forwarded]) -> Vec<String> {
    let strange = sent.iter().filter(|it| it.end == End::Refused);
    let strange = strange.filter(|it| !origin.refuses(&it.head));
    let mut findings: Vec<String> = strange
        .map(|it| format!("the server refuses it: {}", it.head))
        .collect();
    // Those that the server tells of without a name are no more than those known to be such.
    let known = sent.iter().filter(|it| it.end != End::Answered);
    let known = known.filter(|it| origin.refuses(&it.head)).count();
    if told.refused > known {
        let refused = told.refused;
        findings.push(format!(
            "it refuses {refused} heads, of which {known} known"
        ));
    }
    findings
}

/// How often each is there.
fn times<T: Ord>(all: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut times: BTreeMap<T, usize> = BTreeMap::new();
    for it in all {
        *times.entry(it).or_default() += 1;
    }
    times
}

/// The elements that are there more often than in another account.
fn more<T: Ord + Debug>(
    what: &str,
    times: &BTreeMap<T, usize>,
    others: &BTreeMap<T, usize>,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (it, n) in times {
        let other = others.get(it).copied().unwrap_or(0);
        if *n > other {
            findings.push(format!("{what}: {it:?}, {n} and {other} times"));
        }
    }
    findings
}

/// The findings, and the connections that they were found by, as lines for the corpus.
fn report(all: &[Sent], findings: &[String]) -> String {
    let told = &findings[..findings.len().min(FINDINGS_MAX)];
    let numbers: BTreeSet<usize> = told.iter().filter_map(|it| number_in(it)).collect();
    let lines = all.iter().filter(|sent| numbers.contains(&sent.number));
    let lines: Vec<String> = lines.map(Sent::line).collect();
    format!(
        "{} findings:\n{}\nConnections, with the seed {SEED}:\n{}",
        findings.len(),
        told.join("\n"),
        lines.join("\n")
    )
}

/// The number of the connection that a target in a text is of.
fn number_in(text: &str) -> Option<usize> {
    let starts = ["/c", "/h", "/smuggled-"];
    starts.iter().find_map(|start| {
        let (_, rest) = text.split_once(*start)?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    })
}

/// The corpus: connections that once were a finding, with bytes escaped as in Rust, one a line.
/// Connections of HTTP/1 have no last request.
fn found() -> Vec<Sent> {
    let folder = repository("crates/e2e/tests/stories/differential");
    let text = std::fs::read_to_string(folder.join("corpus.txt")).expect("the corpus");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let mut sent = Sent {
            number: 0,
            bytes: meant(line),
        };
        if !sent.is_streams() {
            sent.bytes.extend(last(0).into_bytes());
        }
        sent
    };
    lines.map(read).collect()
}

/// The bytes that a line of the corpus stands for.
fn meant(line: &str) -> Vec<u8> {
    let mut meant = Vec::new();
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\\' => escaped(&mut bytes).expect("an escape"),
            plain => plain,
        };
        meant.push(byte);
    }
    meant
}

/// The byte that an escape stands for.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let byte = match bytes.next()? {
        b'r' => b'\r',
        b'n' => b'\n',
        b't' => b'\t',
        b'0' => 0,
        b'x' => {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(high * 16 + low).ok()?
        }
        itself => itself,
    };
    Some(byte)
}

/// A connection, of HTTP/1 or of HTTP/2.
struct Sent {
    /// Its number; 0 for those of the corpus.
    number: usize,
    bytes: Vec<u8>,
}

impl Sent {
    /// Whether it is of HTTP/2.
    fn is_streams(&self) -> bool {
        self.bytes.starts_with(streams::PREFACE)
    }

    /// How many requests it has at least: a few name no target of their own.
    fn requests(&self) -> usize {
        let text = String::from_utf8_lossy(&self.bytes);
        let number = self.number;
        let starts = [format!("/c{number}-"), format!("/h{number}-")];
        starts.iter().map(|start| text.matches(start).count()).sum()
    }

    /// The connection with requests for another host.
    fn to(&self, host: &str) -> Sent {
        let Sent { number, ref bytes } = *self;
        let mut bytes = bytes.clone();
        for at in 0..=bytes.len().saturating_sub(HOST.len()) {
            if bytes[at..].starts_with(HOST.as_bytes()) {
                bytes[at..at + HOST.len()].copy_from_slice(host.as_bytes());
            }
        }
        Sent { number, bytes }
    }

    /// A line for the corpus.
    fn line(&self) -> String {
        self.bytes.escape_ascii().to_string()
    }
}

/// Sends a connection, and reads until the gateway has answered and ended it.
async fn send(address: SocketAddr, sent: Sent) {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let answered = async {
        // Refused bytes may meet a closed socket.
        let _ = stream.write_all(&sent.bytes).await;
        if sent.is_streams() {
            streams::read(&mut stream).await;
        } else {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    // Where a body took the last request for a part of it, nothing more comes.
    let _ = tokio::time::timeout(Duration::from_secs(5), answered).await;
}
