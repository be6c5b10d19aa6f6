//! A worker: one thread, one core, one run-time, and everything that it owns.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::{clock, task};
use myriad_model::{CaptureDirection, Name};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::accept::{Acceptor, Door};
use super::open::Handshaking;
use crate::http::spans::Spans;
use crate::http::worker::Worker;
use crate::net::bucket::Buckets;
use crate::net::count::Counts;
use crate::net::deadline;
use crate::net::dice::Dice;
use crate::net::hash::hash;
use crate::net::journal::Journal;
use crate::net::limits::Limits;
use crate::net::local::Local;
use crate::net::names::Names;
use crate::net::standard::Library;
use crate::route::tables::Tables;
use crate::tls::accept::Handshakes;

/// How often idle connections to endpoints are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// How often a drain looks whether connections are left.
const LOOK: Duration = Duration::from_millis(5);

/// What a worker is told.
pub enum Command {
    /// Accept from a socket.
    Listen {
        /// The listener it belongs to.
        name: Name,
        /// Tells it from other sockets.
        id: u64,
        /// The socket.
        socket: TcpListener,
    },
    /// Accept captured connections from a socket.
    Capture {
        /// Which way they go.
        direction: CaptureDirection,
        /// The ports of all such sockets, which no connection is meant for.
        ports: Arc<[u16]>,
        /// The socket.
        socket: TcpListener,
    },
    /// Let connections look whether they shall end.
    Wake,
    /// Accept what waits, and close the socket.
    Close {
        /// Which.
        id: u64,
    },
    /// End, and say so.
    Drain(oneshot::Sender<()>),
}

/// What a worker is started with.
pub struct Setup {
    pub limits: Arc<Limits>,
    pub buckets: Arc<Buckets>,
    pub names: Names,
    pub counts: Arc<Counts>,
    pub library: Arc<Library>,
    pub counts_all: bool,
    pub spans: Spans,
    pub journal: Journal,
    pub logs_all: bool,
    pub trusted_hops: usize,
    pub tables: Arc<ArcSwap<Tables>>,
    pub handshakes: Arc<Handshakes>,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
}

/// A socket that is accepted from.
#[derive(Clone, Default)]
struct Opened {
    stop: CancellationToken,
    is_closing: Arc<AtomicBool>,
}

/// Starts a worker.
pub fn start(
    number: usize,
    setup: Setup,
    inbox: mpsc::Receiver<Command>,
) -> io::Result<JoinHandle<()>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, run(number, setup, inbox));
        })
}

async fn run(number: usize, setup: Setup, mut inbox: mpsc::Receiver<Command>) {
    let seed = hash(0, &format!("worker {number}"));
    let local = Rc::new(Local {
        limits: setup.limits,
        buckets: setup.buckets,
        number,
        library: setup.library,
        counts_all: setup.counts_all,
        names: setup.names,
        counts: setup.counts,
        dice: Dice::new(seed),
        journal: setup.journal,
        logs_all: setup.logs_all,
        trusted_hops: setup.trusted_hops,
    });
    let worker = Rc::new(Worker::new(local, setup.tables, setup.spans));
    let handshaking = Rc::new(Handshaking::new(setup.handshakes));
    task::spawn_local("deadlines", deadline::run());
    task::spawn_local("idle upstreams", sweep(worker.clone()));
    let mut sockets: HashMap<u64, Opened> = HashMap::new();
    let mut captures: Vec<Opened> = Vec::new();
    let mut ended = None;
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Listen { name, id, socket } => {
                let opened = accept(&worker, &handshaking, Door::Listener(name), socket);
                sockets.insert(id, opened);
            }
            Command::Capture {
                direction,
                ports,
                socket,
            } => {
                let door = Door::Capture(direction, ports);
                captures.push(accept(&worker, &handshaking, door, socket));
            }
            Command::Wake => worker.wake(),
            Command::Close { id } => {
                if let Some(opened) = sockets.remove(&id) {
                    opened.stop.cancel();
                    opened.is_closing.store(true, Ordering::Relaxed);
                    worker.wake();
                }
            }
            Command::Drain(sender) => {
                ended = Some(sender);
                break;
            }
        }
    }
    if ended.is_some() {
        tokio::time::sleep(setup.drain_delay).await;
    }
    let opened = sockets.into_values().chain(captures);
    drain(&worker, opened, setup.drain_timeout).await;
    if let Some(ended) = ended {
        // Whoever asked may have stopped waiting.
        let _ = ended.send(());
    }
}

/// Accepts from a socket from now on.
fn accept(
    worker: &Rc<Worker>,
    handshaking: &Rc<Handshaking>,
    door: Door,
    socket: TcpListener,
) -> Opened {
    let opened = Opened::default();
    let acceptor = Acceptor {
        worker: worker.clone(),
        handshaking: handshaking.clone(),
        door,
        stop: opened.stop.clone(),
        is_closing: opened.is_closing.clone(),
    };
    task::spawn_local("acceptor", acceptor.run(socket));
    opened
}

/// Lets connections end with the request they are in, and waits for them.
async fn drain(worker: &Worker, sockets: impl Iterator<Item = Opened>, timeout: Duration) {
    worker.drain();
    for opened in sockets {
        opened.stop.cancel();
    }
    let end = clock::now() + timeout;
    // Acceptors take what waits in their queues before they end, and count as connections.
    while worker.connections.get() > 0 && clock::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    worker.links.clear();
    worker.channels.clear();
}

async fn sweep(worker: Rc<Worker>) {
    let mut interval = tokio::time::interval(SWEEP);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        worker.links.sweep();
        worker.channels.sweep();
    }
}
