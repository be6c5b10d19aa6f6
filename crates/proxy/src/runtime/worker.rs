//! A worker: one thread, one core, one run-time, and everything that it owns.

use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, UdpSocket};
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
use tokio_util::sync::CancellationToken;

use super::accept::{Acceptor, Connected, Door};
use super::open::Handshaking;
use crate::admission::bucket::Buckets;
use crate::admission::pressure::{Pressure, PressureStep};
use crate::admission::room::ConnectionRoom;
use crate::admission::share::Fairness;
use crate::admission::turns::HandshakeTurns;
use crate::codec::proxy_header::Introductions;
use crate::http::spans::Spans;
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::local::Local;
use crate::net::deadline;
use crate::net::names::Names;
use crate::random::hash::hash;
use crate::random::rng::Rng;
use crate::route::tables::Tables;
use crate::telemetry::access_log::AccessLogWriter;
use crate::telemetry::count::Counts;
use crate::telemetry::live_trace::LiveTraces;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::standard::Library;
use crate::tls::accept::Handshakes;
use crate::udp::serve::{self, DatagramContext};
use crate::udp::stop::{ReceiverOrder, Stop};

/// How often idle connections to endpoints are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// How long a connection without a request is waited for during a drain: whoever has just sent
/// one would otherwise lose it.
const LAST_CALL: Duration = Duration::from_secs(1);

/// How often a drain looks whether connections are left.
const LOOK: Duration = Duration::from_millis(5);

/// A command to a worker.
pub(super) enum Command {
    /// Accept from a socket.
    Listen {
        /// The listener it belongs to.
        name: Name,
        /// Tells it from other sockets.
        id: u64,
        /// The socket.
        socket: TcpListener,
    },
    /// Receive datagrams by a socket.
    Receive {
        /// The listener it belongs to.
        name: Name,
        /// Tells it from other sockets.
        id: u64,
        /// The socket.
        socket: UdpSocket,
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
    /// Accept what waits, and close the socket; flows of datagrams end.
    Close {
        /// The number of the socket's opening.
        id: u64,
    },
    /// End, and say so.
    Drain {
        /// The sender that is told when the drain is over.
        ended: oneshot::Sender<()>,
        /// Whether another process accepts in its place.
        is_succeeded: bool,
    },
}

/// The parts that a worker is started with.
pub(super) struct Setup {
    pub limits: Arc<Limits>,
    pub buckets: Arc<Buckets>,
    pub names: Names,
    pub counts: Arc<Counts>,
    pub library: Arc<Library>,
    pub counts_all: bool,
    pub spans: Spans,
    pub access_log: AccessLogWriter,
    pub live_traces: LiveTraces,
    pub logs_all: bool,
    pub trusted_hops: usize,
    /// The treatment of clients' request ids.
    pub request_ids: RequestIds,
    pub introductions: Option<Arc<Introductions>>,
    pub tables: Arc<ArcSwap<Tables>>,
    pub handshakes: Arc<Handshakes>,
    pub pressure: Arc<Pressure>,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
}

/// A socket that is accepted from.
#[derive(Clone, Default)]
struct Opened {
    stop: CancellationToken,
    is_closing: Arc<AtomicBool>,
}

/// Everything that a worker serves clients by.
#[derive(Default)]
struct Entrances {
    /// Sockets of listeners, by the number of their opening.
    sockets: HashMap<u64, Vec<Opened>>,
    captures: Vec<Opened>,
    /// Receivers of datagrams, by the number of their opening.
    receivers: HashMap<u64, Vec<Rc<Stop>>>,
}

/// Starts a worker.
pub(super) fn start(
    number: usize,
    setup: Setup,
    inbox: mpsc::Receiver<Command>,
) -> io::Result<JoinHandle<()>> {
    // A run-time whose tasks stay on its thread can only be made there.
    let (sender, made) = std::sync::mpsc::sync_channel(1);
    let thread = Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(runtime::LocalOptions::default());
            let (runtime, result) = match runtime {
                Ok(runtime) => (Some(runtime), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Whoever starts a worker waits for this.
            let _ = sender.send(result);
            if let Some(runtime) = runtime {
                runtime.block_on(run(number, setup, inbox));
            }
        })?;
    let ended = |_| io::Error::other("a worker ended before it began");
    made.recv().map_err(ended)??;
    Ok(thread)
}

async fn run(number: usize, setup: Setup, mut inbox: mpsc::Receiver<Command>) {
    let local = Rc::new(local(number, &setup));
    let handshaking = Rc::new(Handshaking::new(setup.handshakes, &setup.limits));
    let worker = Rc::new(Worker::new(local, setup.tables, setup.spans));
    task::spawn_local("deadlines", deadline::run());
    task::spawn_local("turns", worker.clone().give_turns());
    task::spawn_local("idle upstreams", sweep(worker.clone()));
    let mut entrances = Entrances::default();
    let mut ended = None;
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Drain {
                ended: sender,
                is_succeeded,
            } => {
                ended = Some((sender, is_succeeded));
                break;
            }
            command => entrances.obey(&worker, &handshaking, command),
        }
    }
    let is_succeeded = matches!(ended, Some((_, true)));
    if ended.is_some() && !is_succeeded {
        tokio::time::sleep(setup.drain_delay).await;
    }
    // Nobody waits for this process where another one serves already, so that idle connections
    // have time for the request whose answer ends them.
    let last_call = match is_succeeded {
        true => setup.drain_timeout,
        false => LAST_CALL.min(setup.drain_timeout),
    };
    worker.drain(last_call);
    entrances.drain(ReceiverOrder::Drain {
        last_call,
        is_succeeded,
    });
    wait_for_connections(&worker, setup.drain_timeout).await;
    if let Some((ended, _)) = ended {
        // Whoever asked may have stopped waiting.
        let _ = ended.send(());
    }
}

impl Entrances {
    /// Does what a command says, but for a drain.
    fn obey(&mut self, worker: &Rc<Worker>, handshaking: &Rc<Handshaking>, command: Command) {
        match command {
            Command::Listen { name, id, socket } => {
                let opened = accept(worker, handshaking, Door::Listener(name), socket);
                self.sockets.entry(id).or_default().push(opened);
            }
            Command::Receive { name, id, socket } => {
                let stop = receive(worker, name, socket);
                self.receivers.entry(id).or_default().push(stop);
            }
            Command::Capture {
                direction,
                ports,
                socket,
            } => {
                let door = Door::Capture(direction, ports);
                let opened = accept(worker, handshaking, door, socket);
                self.captures.push(opened);
            }
            Command::Wake => worker.wake(),
            Command::Close { id } => {
                for opened in self.sockets.remove(&id).into_iter().flatten() {
                    opened.stop.cancel();
                    opened.is_closing.store(true, Ordering::Relaxed);
                    worker.wake();
                }
                for stop in self.receivers.remove(&id).into_iter().flatten() {
                    stop.give(ReceiverOrder::Close);
                }
            }
            Command::Drain { .. } => {}
        }
    }

    /// Lets nobody in any more.
    fn drain(self, order: ReceiverOrder) {
        for opened in self.sockets.into_values().flatten().chain(self.captures) {
            opened.stop.cancel();
        }
        for stop in self.receivers.into_values().flatten() {
            stop.give(order);
        }
    }
}

fn local(number: usize, setup: &Setup) -> Local {
    let seed = hash(0, &format!("worker {number}"));
    Local {
        fairness: Fairness::new(&setup.limits, &setup.pressure),
        turns: HandshakeTurns::new(),
        room: Rc::new(ConnectionRoom::new(&setup.limits, setup.counts.clone())),
        limits: setup.limits.clone(),
        buckets: setup.buckets.clone(),
        number,
        library: setup.library.clone(),
        counts_all: setup.counts_all,
        names: setup.names.clone(),
        counts: setup.counts.clone(),
        dice: Rng::new(seed),
        access_log: setup.access_log.clone(),
        live_traces: setup.live_traces.clone(),
        logs_all: setup.logs_all,
        trusted_hops: setup.trusted_hops,
        request_ids: setup.request_ids,
        introductions: setup.introductions.clone(),
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

/// Receives datagrams by a socket from now on.
fn receive(worker: &Rc<Worker>, listener: Name, socket: UdpSocket) -> Rc<Stop> {
    let stop = Rc::new(Stop::default());
    let context = DatagramContext {
        local: worker.local.clone(),
        tables: worker.tables.clone(),
        stop: stop.clone(),
    };
    let counted = Connected::new(worker.clone());
    let receiving = async move {
        let _counted = counted;
        serve::serve(context, listener, socket).await;
    };
    task::spawn_local("receiver", receiving);
    stop
}

/// Waits until all connections have ended with the request they are in.
async fn wait_for_connections(worker: &Worker, timeout: Duration) {
    let end = clock::now() + timeout;
    // Acceptors take what waits in their queues before they end, and count as connections, as do
    // receivers until their last flow has ended.
    while worker.connections.get() > 0 && clock::now() < end {
        tokio::time::sleep(LOOK).await;
    }
    worker.h1_pool.clear();
    worker.h2_pool.clear();
}

async fn sweep(worker: Rc<Worker>) {
    let mut step = PressureStep::None;
    let mut used = 0;
    let mut interval = tokio::time::interval(SWEEP);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        worker.h1_pool.sweep();
        worker.h2_pool.sweep();
        let pressure = &worker.local.fairness.pressure;
        // One worker asks for all.
        if worker.local.number == 0 {
            pressure.ask();
        }
        // What was freed is seen a little later, and then nobody else has to go.
        if pressure.used() >= std::mem::replace(&mut used, pressure.used()) {
            let local = &worker.local;
            local.fairness.relieve(&local.counts);
            let excess = local.fairness.holdings.excess_of_nobody();
            local.room.relieve(excess);
        }
        if pressure.step() > std::mem::replace(&mut step, pressure.step()) {
            worker.wake();
        }
    }
}
