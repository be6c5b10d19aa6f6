//! One service of a graph, as a process: it plays its script for each request.

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

use super::topology::{Call, Command, Work};
use crate::load::Seen;

/// Connections to one other service that are kept.
const KEPT_MAX: usize = 64;

/// The parent's commands, each on a line: to forget what was seen so far, and to tell it.
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

/// The plan of a process: its work, and the services that it knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The work.
    pub work: Work,
    /// The services that it calls, by name.
    pub peers: BTreeMap<String, Peer>,
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
    /// Nanoseconds from the head of a request to its answer, and how often.
    pub latency: Vec<(u64, u64)>,
    /// Requests that were answered with 500, by chance or because a call failed.
    pub errors: u64,
}

struct Service {
    work: Work,
    body: Bytes,
    peers: BTreeMap<String, Kept>,
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
    let service = Arc::new(Service {
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
        match line?.as_str() {
            BEGIN => *service.seen() = Seen::new()?,
            _ => service.tell()?,
        }
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

    /// Whether something happens that does with this share: xorshift.
    fn is_by_chance(&self, share: f64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        ((*state >> 11) as f64 / (1_u64 << 53) as f64) < share
    }

    fn tell(&self) -> anyhow::Result<()> {
        let seen = self.seen();
        let recorded = seen.latency.iter_recorded();
        let told = Told {
            latency: recorded
                .map(|it| (it.value_iterated_to(), it.count_at_value()))
                .collect(),
            errors: seen.errors,
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&told)?)?;
        Ok(out.flush()?)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
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
