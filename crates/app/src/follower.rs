//! `proxy`: serves what a controller says, and what it said last where none answers.

mod identity;
mod kept;
mod link;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock;
use myriad_base::drain::Drain;
use myriad_base::hold::Holds;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::{Condition, Readiness};
use myriad_base::task;
use myriad_model::{Change, Commit, Snapshot};
use myriad_proxy::{Demand, Demanded, Inherited, Proxy};
use myriad_sidecar::probes::{self, Probes};
use myriad_sync::{
    Anchors, Apply, Client, ClientCounters, ClientError, ClientSettings, Delivery, DemandedHost,
    Issued, NotSigned, Refusal,
};

use crate::activation::Activation;
use crate::board::Board;
use crate::cli::RawProxy;
use crate::pages::{self, Pages};
use crate::process;
use crate::restart::{self, Offer, Restart, Role};
use crate::signals::{self, Stop};
use crate::status::report::Reporter;
use crate::{descriptors, settings, tickets};
use identity::{Given, OwnIdentity};
use kept::Kept;
use link::Link;
use tokio_util::sync::CancellationToken;

/// Runs the command until SIGTERM or SIGINT.
///
/// # Errors
/// Settings that do not hold, an admin address that cannot be bound, threads that cannot start.
pub fn run(raw: &RawProxy) -> anyhow::Result<ExitCode> {
    if let Err(problem) = myriad_base::log::start(&raw.process.log) {
        anyhow::bail!("--log: {problem}");
    }
    let settings = settings::Proxy::check(raw)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(follow(settings, raw.bind.clone()))?;
    Ok(ExitCode::SUCCESS)
}

async fn follow(settings: settings::Proxy, bind: Vec<IpAddr>) -> anyhow::Result<()> {
    let stop = Stop::listen()?;
    let (metrics, readiness, drain) = (Metrics::new(), Readiness::new(), Drain::new());
    let board = Board::new(&metrics);
    let holds = Holds::new(settings.hold);
    holds.register(&metrics);
    let ready = readiness.require("the first snapshot");
    let is_sidecar = !settings.traffic.captures.sockets.is_empty();
    let identity = || OwnIdentity::new(is_sidecar, &readiness, &metrics);
    let identity = settings.wants_identity.then(identity);
    if let Some(identity) = &identity {
        drop(task::spawn("identity", identity.validity().watch()));
    }
    let probes = settings.probes.as_ref();
    let probes = probes.map(|probes| answerer(probes, &readiness, &metrics));
    let opened = open(&settings, probes, &drain)?;
    let over = opened.restart.as_ref().map(Restart::over);
    let over = over.unwrap_or_default();
    let mut proxy = settings.traffic.proxy();
    proxy.names.border.own = own_addresses(&settings, &opened.listener)?;
    proxy.inherited = opened.inherited;
    proxy.bind = bind;
    descriptors::provide(&mut proxy).show(&board, &metrics);
    let proxy = Proxy::start(proxy, &metrics)?;
    settings.traffic.access_log.reopen_at_signal()?;
    tickets::follow(settings.traffic.ticket_keys.as_deref(), &proxy, &metrics)?;
    let (kept, held, key) = Kept::open(&settings.state_dir, settings.schema_max, &metrics);
    let offer = Offer {
        sockets: proxy.sockets(),
        own: opened.own,
        admin: drain.clone(),
        readiness: readiness.clone(),
        is_suspended: kept.suspension(),
    };
    let is_live = opened.is_live;
    let succession = opened
        .restart
        .map(|it| it.go_on(offer, is_live.clone(), &metrics));
    let succession = succession.transpose()?;
    let reporter = reporter(&settings, (&readiness, &holds), &board, &kept);
    let pages = pages(&settings, &proxy, &metrics, reporter);
    pages::start(opened.listener, pages, &drain, opened.from)?;
    let mut follower = Follower {
        demand: (!is_sidecar).then(|| proxy.demand().clone()),
        proxy,
        kept,
        board,
        ready,
        identity,
        position: 0,
        readiness,
        is_live,
        activation: Activation::new(&metrics),
    };
    follower.serve_held(&held);
    let client = Client::new(client(&settings, holds)?, held, key, counters(&metrics));
    follow_until(client, &mut follower, ended(stop, &over)).await;
    follower.ready.revoke();
    let longest = settings.traffic.drain_longest();
    signals::tell_drain(follower.proxy.connections(), longest);
    follower.proxy.drain().await;
    drain.start();
    drain.finished().await;
    drop(succession);
    Ok(())
}

/// Waits until the process is asked to stop, or another has taken over.
async fn ended(mut stop: Stop, over: &CancellationToken) {
    tokio::select! {
        _ = stop.asked() => stop.end_at_next(),
        () = over.cancelled() => {}
    }
}

/// The addresses that the process listens on beside its listeners.
fn own_addresses(
    settings: &settings::Proxy,
    admin: &TcpListener,
) -> anyhow::Result<Vec<SocketAddr>> {
    let probes = settings.probes.iter().map(|probes| probes.address);
    let admin = admin.local_addr()?;
    Ok(probes.chain([admin]).collect())
}

async fn follow_until(client: Client, follower: &mut Follower, end: impl Future<Output = ()>) {
    let following = Drain::new();
    let drained = following.holder();
    let stopping = async {
        end.await;
        following.start();
    };
    tokio::join!(client.run(follower, drained), stopping);
}

/// The sources of the admin pages. The history is kept by controllers, which know of objects.
fn pages(
    settings: &settings::Proxy,
    proxy: &Proxy,
    metrics: &Metrics,
    reporter: Reporter,
) -> Pages {
    let (console, exports) = (settings.console.as_ref(), settings.otlp.as_ref());
    let around = (console, exports, &settings.admin_hosts);
    Pages::of_proxy(proxy, (metrics, reporter), &settings.traffic, around)
}

fn reporter(
    settings: &settings::Proxy,
    (readiness, holds): (&Readiness, &Holds),
    board: &Board,
    kept: &Kept,
) -> Reporter {
    let (host, port) = &settings.controller;
    let (controller, history) = (format!("{host}:{port}"), kept.history());
    Reporter {
        role: "proxy",
        started: clock::now(),
        readiness: readiness.clone(),
        board: board.clone(),
        live: None,
        stated: None,
        holds: holds.clone(),
        followed: Some(Arc::new(move || history.report(&controller))),
    }
}

fn counters(metrics: &Metrics) -> ClientCounters {
    let counters = ClientCounters::default();
    counters.register(metrics);
    counters
}

fn client(settings: &settings::Proxy, holds: Holds) -> anyhow::Result<ClientSettings> {
    let file = settings.token_file.clone();
    Ok(ClientSettings {
        instance: process::host_name(),
        schema_max: settings.schema_max,
        connect: Arc::new(Link::new(settings)?),
        token: Arc::new(move || link::read_small(&file)),
        holds,
    })
}

/// The sockets of the process, but for those of the proxy.
struct Opened {
    /// The socket of the admin pages.
    listener: TcpListener,
    /// The sockets among them that the next process is given.
    own: Vec<(Role, OwnedFd)>,
    /// When questions are answered.
    from: CancellationToken,
    /// Cancelled once everything that is waited for is there.
    is_live: CancellationToken,
    restart: Option<Restart>,
    /// The sockets and keys that the process before has left to the proxy.
    inherited: Option<Inherited>,
}

/// Takes sockets over from the process before, or opens them.
fn open(
    settings: &settings::Proxy,
    probes: Option<Probes>,
    drain: &Drain,
) -> anyhow::Result<Opened> {
    let (mut restart, inherited) = restart::begin(settings.traffic.restart_socket.as_deref())?;
    let is_live = CancellationToken::new();
    let from = restart.as_ref().map(|it| it.answers_from(&is_live));
    let from = from.unwrap_or_else(restart::at_once);
    let listener = pages::bind(settings.admin, restart.as_mut())?;
    let mut own = vec![(Role::Admin, listener.try_clone()?.into())];
    if let (Some(probes), Some(settings)) = (probes, &settings.probes) {
        let inherited = restart.as_mut();
        let inherited = inherited.and_then(|it| it.take(Role::Probes, settings.address));
        let bound = probes::bind(settings.address, inherited)?;
        own.push((Role::Probes, bound.try_clone()?.into()));
        probes.start(bound, drain, from.clone())?;
    }
    Ok(Opened {
        listener,
        own,
        from,
        is_live,
        restart,
        inherited,
    })
}

/// Answers what a sidecar is asked from outside of the mesh.
fn answerer(settings: &settings::Probes, readiness: &Readiness, metrics: &Metrics) -> Probes {
    let own = settings.clone();
    Probes {
        readiness: readiness.clone(),
        metrics: metrics.clone(),
        checks: settings.checks.clone(),
        pod: settings.pod,
        may_read_metrics: Box::new(move |address| own.tells_metrics_to(address)),
    }
}

/// Puts commits into service, and then on disk.
struct Follower {
    proxy: Proxy,
    /// The hosts that clients ask for and that no object names; none where it is a sidecar.
    demand: Option<Demand>,
    kept: Kept,
    board: Board,
    ready: Condition,
    /// Its identity of the mesh, where one is wanted.
    identity: Option<OwnIdentity>,
    position: u64,
    readiness: Readiness,
    /// Cancelled once everything that is waited for is there.
    is_live: CancellationToken,
    /// How long changes took until they were live here.
    activation: Activation,
}

impl Follower {
    /// Serves what was kept, however old.
    fn serve_held(&mut self, held: &Snapshot) {
        if held.is_empty() {
            return;
        }
        let changes = held.iter().map(|sealed| Change {
            key: sealed.key().clone(),
            old: None,
            new: Some(sealed.clone()),
        });
        let commit = Commit {
            changes: changes.collect(),
            position: held.position().clone(),
        };
        self.put_into_service(&commit);
        let resources = held.len();
        tracing::info!(
            resources,
            "serving what was kept, until a controller answers"
        );
        self.board.set_snapshot(held, self.position);
    }

    fn identify(&mut self, given: Option<Given>) {
        let Some(Given {
            certificate,
            roots,
            trust_domains,
        }) = given
        else {
            return;
        };
        let identity = myriad_proxy::Identity {
            certificate,
            roots,
            trust_domains,
        };
        if let Err(error) = self.proxy.identify(identity) {
            tracing::error!(%error, "the identity of the mesh cannot be used; the former stays");
        }
    }

    fn put_into_service(&mut self, commit: &Commit) -> Vec<Refusal> {
        let applied = self.proxy.apply(commit);
        self.board.register(&commit.changes);
        self.position += 1;
        let work = self.board.work();
        work.commits.inc();
        work.table_nodes_copied.inc_by(applied.nodes_copied);
        work.resources_changed.inc_by(commit.changes.len() as u64);
        let refused = applied.refused.iter().map(|receipt| Refusal {
            key: receipt.key.clone(),
            reason: receipt.reason.clone(),
        });
        let refused = refused.collect();
        self.board.set_receipts(commit, applied.refused);
        self.ready.meet();
        self.look_live();
        refused
    }

    /// Goes live once the process is ready.
    fn look_live(&mut self) {
        if !self.is_live.is_cancelled() && self.readiness.pending().is_empty() {
            self.proxy.go_live();
            self.is_live.cancel();
        }
    }
}

impl Apply for Follower {
    async fn apply(&mut self, delivery: Delivery) -> Vec<Refusal> {
        let Delivery {
            commit,
            mut logged,
            refused: unread,
            noticed,
        } = delivery;
        if let Some(Refusal { key, reason }) = unread.first() {
            let refused = unread.len();
            tracing::warn!(refused, first = %key, reason, "resources were refused unread");
        }
        let was_live = self.is_live.is_cancelled();
        let refused = self.put_into_service(&commit);
        if let Some(noticed) = noticed.filter(|_| was_live) {
            self.activation.observe_noticed(noticed);
        }
        logged.leave_out(&refused);
        self.kept.append(logged).await;
        refused
    }

    async fn holds(&mut self, held: &Snapshot) {
        self.board.set_snapshot(held, self.position);
        self.kept.hold(held);
    }

    fn rekey(&mut self, key: [u8; 32]) {
        self.kept.rekey(key);
    }

    fn tick(&mut self) -> bool {
        self.kept.mend();
        self.proxy.take_bindable()
    }

    fn wants_identity(&self) -> bool {
        self.identity.is_some()
    }

    fn anchored(&mut self, anchors: Anchors) {
        let own = self.identity.as_mut();
        let given = own.and_then(|own| own.anchored(anchors));
        self.identify(given);
    }

    fn request(&mut self) -> Option<Bytes> {
        self.identity.as_mut()?.request(clock::unix_seconds())
    }

    fn signed(&mut self, outcome: Result<Issued, NotSigned>) {
        let own = self.identity.as_mut();
        let given = own.and_then(|own| own.signed(outcome, clock::unix_seconds()));
        self.identify(given);
        self.look_live();
    }

    fn demands(&self) -> bool {
        self.demand.is_some()
    }

    fn set_demanding(&mut self, is_open: bool) {
        match (&self.demand, is_open) {
            (Some(demand), true) => demand.open(),
            (Some(demand), false) => demand.close(),
            (None, _) => {}
        }
    }

    async fn demanded(&mut self) -> DemandedHost {
        let Some(demand) = &self.demand else {
            return std::future::pending().await;
        };
        match demand.next().await {
            Demanded::Wanted(host) => DemandedHost {
                host,
                is_used: false,
            },
            Demanded::Used(host) => DemandedHost {
                host,
                is_used: true,
            },
        }
    }

    fn answered(&mut self, host: Arc<str>, refused_for: Duration) {
        match &self.demand {
            Some(demand) if refused_for.is_zero() => demand.release(&host),
            Some(demand) => demand.refuse(&host, refused_for),
            None => {}
        }
    }

    fn connected(&mut self) {
        tracing::info!("a controller is followed");
        self.kept.set_connected(true);
    }

    fn disconnected(&mut self, _: &ClientError) {
        self.set_demanding(false);
        self.kept.set_connected(false);
    }
}
