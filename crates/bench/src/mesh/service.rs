//! One service of a graph, as a process: it plays its script for each request.

mod store;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};

use super::topology::{Call, Command, Query, Work};
use crate::load::Seen;
pub(super) use store::CONNECTIONS_MAX;
use store::Store;

/// Connections to one other service that are kept.
const KEPT_MAX: usize = 64;

/// The parent's commands, each on a line: to forget what was seen so far, and to tell it. Either is
/// answered by what is known then.
pub const BEGIN: &str = "begin";
/// See [`BEGIN`].
pub const TELL: &str = "tell";

/// Settings of the process.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// The address that it listens on.
    #[arg(long)]
    listen: SocketAddr,
    /// The file with its plan.
    #[arg(long)]
    plan: PathBuf,
}

/// The plan of a process: its work, and the services and databases that it knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The work.
    pub work: Work,
    /// The services that it calls, by name.
    pub peers: BTreeMap<String, Peer>,
    /// The databases that it asks, by name.
    pub databases: BTreeMap<String, SocketAddr>,
}

/// The address of another service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its Service.
    pub address: SocketAddr,
    /// Its name.
    pub host: String,
}

/// The measurements of a process, as a line of JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// Requests that it answered.
    pub requests: Counted,
    /// Queries that it made, by database.
    pub queries: BTreeMap<String, Counted>,
}

/// The measurements of requests or of queries.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Nanoseconds to the answer, from the head of a request or from when a query was to be made,
    /// and how often.
    pub latency: Vec<(u64, u64)>,
    /// Requests that were answered with 500, by chance or because a call or a query failed; queries
    /// without an answer, or with one of other rows.
    pub errors: u64,
    /// The last failure, where there is a reason.
    pub last_error: Option<String>,
    /// The rows that were read.
    pub rows: u64,
}

/// The counts of requests or of queries.
pub(super) struct Counter {
    /// All that were answered, whatever with.
    pub seen: Seen,
    /// The rows that were read.
    pub rows: u64,
}

struct Service {
    work: Work,
    body: Bytes,
    peers: BTreeMap<String, Kept>,
    stores: BTreeMap<String, Store>,
    seen: Mutex<Seen>,
    state: Mutex<u64>,
}

/// Another service with idle connections to it.
struct Kept {
    peer: Peer,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// Runs the process until its input ends.
///
/// # Errors
/// The plan cannot be read, or the address is taken.
pub fn run(args: &ServiceArgs) -> anyhow::Result<()> {
    let plan: Plan = serde_json::from_reader(std::fs::File::open(&args.plan)?)?;
    let listener = std::net::TcpListener::bind(args.listen)?;
    listener.set_nonblocking(true)?;
    let kept = |(name, peer)| {
        let idle = Mutex::default();
        (name, Kept { peer, idle })
    };
    let store = |(name, address)| Ok::<_, anyhow::Error>((name, Store::new(address)?));
    let stores = plan.databases.into_iter().map(store);
    let service = Arc::new(Service {
        stores: stores.collect::<anyhow::Result<_>>()?,
        body: vec![b'x'; plan.work.response_bytes].into(),
        work: plan.work,
        peers: plan.peers.into_iter().map(kept).collect(),
        seen: Mutex::new(Seen::new()?),
        state: Mutex::new(u64::from(std::process::id()) << 32 | 1),
    });
    let serving = service.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("service".to_owned())
        .spawn(move || runtime.block_on(accept(listener, serving)))?;
    for line in std::io::stdin().lock().lines() {
        if line? == BEGIN {
            service.forget()?;
        }
        service.tell()?;
    }
    Ok(())
}

async fn accept(listener: std::net::TcpListener, service: Arc<Service>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(service.clone(), request));
            let builder = hyper::server::conn::http1::Builder::new();
            // Whoever breaks a connection asks again.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let begun = Instant::now();
    let read = drain(request.into_body()).await;
    let played = match read {
        Ok(()) => service.play().await,
        Err(error) => Err(error),
    };
    let is_unlucky = service.is_by_chance(service.work.error_share);
    let mut seen = service.seen();
    seen.record(begun.elapsed());
    let mut response = Response::new(Full::new(service.body.clone()));
    if is_unlucky || played.is_err() {
        seen.errors += 1;
        seen.last_error = played.err().map(|error| format!("{error:#}"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

impl Service {
    /// Plays the script.
    async fn play(&self) -> anyhow::Result<()> {
        for command in &self.work.script {
            match command {
                Command::Concurrent(inner) => {
                    try_join_all(inner.iter().map(|one| self.perform(one))).await?;
                }
                single => self.perform(single).await?,
            }
        }
        Ok(())
    }

    async fn perform(&self, command: &Command) -> anyhow::Result<()> {
        match command {
            Command::Sleep(time) => tokio::time::sleep(*time).await,
            Command::Call(call) if self.is_by_chance(call.probability) => self.call(call).await?,
            Command::Query(query) => self.query(query).await?,
            // A list in a list is refused when the file is read.
            Command::Call(_) | Command::Concurrent(_) => {}
        }
        Ok(())
    }

    async fn call(&self, call: &Call) -> anyhow::Result<()> {
        let kept = self.peers.get(&call.service).context("it is known")?;
        let request = Request::post("/")
            .header(header::HOST, &kept.peer.host)
            .body(Full::new(Bytes::from(vec![b'x'; call.request_bytes])))?;
        let mut sender = kept.take().await?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        drain(response.into_body()).await?;
        kept.put(sender);
        ensure!(status.is_success(), "{}: {status}", call.service);
        Ok(())
    }

    async fn query(&self, query: &Query) -> anyhow::Result<()> {
        let store = self.stores.get(&query.database).context("it is known")?;
        store.ask(query).await
    }

    /// Whether something happens that does with this share: xorshift.
    fn is_by_chance(&self, share: f64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        ((*state >> 11) as f64 / (1_u64 << 53) as f64) < share
    }

    fn forget(&self) -> anyhow::Result<()> {
        *self.seen() = Seen::new()?;
        for store in self.stores.values() {
            *store.counter() = Counter::new()?;
        }
        Ok(())
    }

    fn tell(&self) -> anyhow::Result<()> {
        let stores = self.stores.iter();
        let queries: BTreeMap<_, _> = stores
            .map(|(name, store)| {
                let counter = store.counter();
                (name.clone(), Counted::of(&counter.seen, counter.rows))
            })
            .collect();
        let rows = queries.values().map(|it| it.rows).sum();
        let told = Told {
            requests: Counted::of(&self.seen(), rows),
            queries,
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&told)?)?;
        Ok(out.flush()?)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn of(seen: &Seen, rows: u64) -> Counted {
        let recorded = seen.latency.iter_recorded();
        Counted {
            latency: recorded
                .map(|it| (it.value_iterated_to(), it.count_at_value()))
                .collect(),
            errors: seen.errors,
            last_error: seen.last_error.clone(),
            rows,
        }
    }
}

impl Counter {
    /// Nothing yet.
    pub(super) fn new() -> anyhow::Result<Counter> {
        Ok(Counter {
            seen: Seen::new()?,
            rows: 0,
        })
    }

    /// Adds what a process tells.
    pub(super) fn add(&mut self, told: &Counted) {
        for &(nanos, count) in &told.latency {
            self.seen.latency.saturating_record_n(nanos, count);
        }
        self.seen.errors += told.errors;
        let last = told.last_error.as_ref();
        self.seen.last_error = last.or(self.seen.last_error.as_ref()).cloned();
        self.rows += told.rows;
    }
}

impl Kept {
    async fn take(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        loop {
            let idle = self.idle().pop();
            match idle {
                Some(sender) if sender.is_closed() => {}
                Some(sender) => return Ok(sender),
                None => break,
            }
        }
        let stream = TcpStream::connect(self.peer.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn put(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle();
        if idle.len() < KEPT_MAX {
            idle.push(sender);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a body to its end.
async fn drain(mut body: Incoming) -> anyhow::Result<()> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
