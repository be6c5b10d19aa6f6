//! `serve`: the whole pipe in one process, both ends sharing one snapshot.

mod files;
mod here;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use myriad_api::Batch;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::metrics::Metrics;
use myriad_base::readiness::{Condition, Readiness};
use myriad_base::{clock, task};
use myriad_model::{Form, Sealer, Writer};
use myriad_proxy::{Demand, Inherited, Proxy};
use myriad_source::Wanted;
use myriad_source::directory::Locator;
use myriad_translate::Engine;
use socket2::{Domain, Socket, Type};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::acme::{self, Acme};
use crate::board::Board;
use crate::cli::RawServe;
use crate::control::{
    Addresses, Control, Event, Fairness, INBOX_EVENTS_MAX, Shares, follow_tenants,
};
use crate::history::History;
use crate::host_proof::{ProofParts, Proving};
use crate::live::Live;
use crate::pages::{self, Pages};
use crate::process;
use crate::restart::{self, Offer, Restart, Role};
use crate::rivals::Rivals;
use crate::signals::Stop;
use crate::status::report::Reporter;
use crate::wishes::Wishes;
use crate::{descriptors, greeting, mesh, settings, tickets};
use here::Here;

/// A source of objects.
pub enum Input {
    /// The directories and files of the settings.
    Directory,
    /// Batches that another part of the process sends. The one that ends the first complete
    /// list has `synced` set.
    Inbox(mpsc::Receiver<Batch>),
}

/// A serving process within this one.
pub struct Running {
    board: Board,
    admin: SocketAddr,
    addresses: watch::Receiver<Option<Addresses>>,
    inbox: mpsc::Sender<Event>,
    control: std::thread::JoinHandle<anyhow::Result<()>>,
    over: CancellationToken,
}

/// Runs the command until SIGTERM, SIGINT or SIGQUIT.
///
/// # Errors
/// Settings that do not hold, sockets that cannot be bound, a directory that cannot be read.
pub fn run(raw: &RawServe) -> anyhow::Result<ExitCode> {
    if let Err(problem) = myriad_base::log::start(&raw.process.log) {
        anyhow::bail!("--log: {problem}");
    }
    let mut settings = settings::Serve::check(raw)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let mut running = start(settings.clone(), Input::Directory)?;
        settings.admin = running.admin();
        tokio::select! {
            addresses = running.wait_ready() => match addresses {
                Ok(addresses) => greeting::print(&settings, &addresses, &running.board),
                Err(_) => return running.join(),
            },
            _ = stop.asked() => return running.stop().await,
        }
        tokio::select! {
            _ = stop.asked() => stop.end_at_next(),
            () = running.succeeded() => {}
            () = running.closed() => {}
        }
        running.stop().await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Starts serving on threads of its own, and returns at once.
///
/// # Errors
/// An address cannot be bound, or the control thread cannot be started.
pub fn start(settings: settings::Serve, input: Input) -> anyhow::Result<Running> {
    start_with(settings, input, Box::new(|| {}))
}

/// Like [`start`], and calls `at_start` first thing on the control thread.
///
/// # Errors
/// The errors of [`start`].
pub fn start_with(
    mut settings: settings::Serve,
    input: Input,
    at_start: Box<dyn FnOnce() + Send>,
) -> anyhow::Result<Running> {
    let (mut restart, inherited) = restart::begin(settings.traffic.restart_socket.as_deref())?;
    let over = restart.as_ref().map(Restart::over).unwrap_or_default();
    let (listeners, before) = (&mut settings.listeners, &mut restart);
    let reserved = [
        reserve("--http", Role::Http, &mut listeners.http, before)?,
        reserve("--https", Role::Https, &mut listeners.https, before)?,
    ];
    let metrics = Metrics::new();
    let readiness = Readiness::new();
    let board = Board::new(&metrics);
    let (inbox, events) = mpsc::channel(INBOX_EVENTS_MAX);
    let (announce, addresses) = watch::channel(None);
    let listener = pages::bind(settings.admin, restart.as_mut())?;
    let admin = listener.local_addr()?;
    settings.admin = admin;
    settings.traffic.names.border.own.push(admin);
    let ready = readiness.require("the first snapshot");
    let parts = Parts {
        settings,
        input,
        metrics,
        readiness,
        board: board.clone(),
        ready,
        announce,
        listener,
        inbox: inbox.clone(),
        reserved,
        restart,
        inherited,
    };
    let control = std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            at_start();
            run_control(parts, events)
        })?;
    Ok(Running {
        board,
        admin,
        addresses,
        inbox,
        control,
        over,
    })
}

impl Running {
    /// The work counters and findings.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The address where admin pages are served.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Waits until the first snapshot serves, and says where listeners are bound.
    ///
    /// # Errors
    /// The control loop ended before.
    pub async fn wait_ready(&mut self) -> anyhow::Result<Addresses> {
        let addresses = self.addresses.wait_for(Option::is_some).await;
        let addresses = addresses.context("the control loop ended before it was ready")?;
        Ok(addresses.clone().unwrap_or_default())
    }

    /// Drains, and waits for the end.
    ///
    /// # Errors
    /// That with which the control loop ended.
    pub async fn stop(self) -> anyhow::Result<()> {
        // A loop that has ended needs no telling.
        let _ = self.inbox.send(Event::Stop).await;
        drop(self.inbox);
        tokio::task::spawn_blocking(move || join(self.control)).await?
    }

    /// Waits until another process has taken over from this one, which shall then stop.
    pub async fn succeeded(&self) {
        self.over.cancelled().await;
    }

    async fn closed(&self) {
        self.inbox.closed().await;
    }

    fn join(self) -> anyhow::Result<()> {
        drop(self.inbox);
        join(self.control)
    }
}

fn join(control: std::thread::JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    match control.join() {
        Ok(result) => result,
        Err(_) => anyhow::bail!("the control thread panicked"),
    }
}

/// The parts that the control thread is started with.
struct Parts {
    settings: settings::Serve,
    input: Input,
    metrics: Metrics,
    readiness: Readiness,
    board: Board,
    ready: Condition,
    announce: watch::Sender<Option<Addresses>>,
    listener: std::net::TcpListener,
    inbox: mpsc::Sender<Event>,
    /// Held until the workers listen.
    reserved: [Socket; 2],
    restart: Option<Restart>,
    inherited: Option<Inherited>,
}

/// Binds an address without listening on it, so that one that is taken or not ours is an error
/// before anything is started, and port 0 becomes the port that redirects will name. The workers'
/// sockets share the address with this one, which is held as long as they.
///
/// An address that the process before has reserved stays so.
fn reserve(
    setting: &str,
    role: Role,
    address: &mut SocketAddr,
    restart: &mut Option<Restart>,
) -> anyhow::Result<Socket> {
    let bind = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // Behind connections that linger; the kernel never chooses a port that somebody has.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        // Shared only once it is bound: a socket that shares would join another process that
        // shares as well, and the kernel would split the connections between both.
        socket.set_reuse_port(true)?;
        Ok::<_, std::io::Error>(socket)
    };
    let inherited = restart.as_mut().and_then(|it| it.take(role, *address));
    let socket = match inherited {
        Some(file) => Socket::from(file),
        None => bind(*address).with_context(|| format!("{setting} {address}"))?,
    };
    if let Some(bound) = socket.local_addr()?.as_socket() {
        address.set_port(bound.port());
    }
    Ok(socket)
}

/// The control thread: what has been read comes to its inbox, and what follows goes to the proxy's
/// tables.
fn run_control(parts: Parts, events: mpsc::Receiver<Event>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let Parts {
            settings,
            input,
            metrics,
            readiness,
            board,
            ready,
            announce,
            listener,
            inbox,
            reserved,
            restart,
            inherited,
        } = parts;
        let mut proxy = myriad_proxy::Settings {
            inherited,
            ..settings.traffic.proxy()
        };
        descriptors::provide(&mut proxy).show(&board, &metrics);
        let proxy = Proxy::start(proxy, &metrics).context("workers cannot start")?;
        settings.traffic.access_log.reopen_at_signal()?;
        tickets::follow(settings.traffic.ticket_keys.as_deref(), &proxy, &metrics)?;
        let is_live = CancellationToken::new();
        let from = restart.as_ref().map(|it| it.answers_from(&is_live));
        let writer = Writer::new(Sealer::new(process::random_key()?, Form::Value));
        warn_of_mesh(&settings);
        let engine = Engine::new(settings.translate(), writer);
        let (drain, live) = (Drain::new(), Live::new(&metrics));
        let wanted = Wanted::default();
        follow_tenants(settings.meaning.tenants_followed(&metrics)?, &inbox);
        let (wishes, rivals) = (Wishes::default(), Rivals::default());
        let loaded = CancellationToken::new();
        let parts = (&inbox, &wishes, &board, &loaded);
        let obtaining = start_acme(&settings, parts, (&metrics, proxy.demand()))?;
        let proving = start_proofs(&settings, (&inbox, &rivals), &metrics)?;
        let locator = start_source(&settings, input, (inbox, &wanted, loaded), &metrics)?;
        if let Some(locator) = locator {
            board.locate_with(Box::new(move |key| locator.locate(key)));
        }
        let offer = offer(&proxy, &listener, &reserved, (&drain, &readiness))?;
        let reporter = reporter(readiness, (&board, &live));
        let pages = pages(&settings, &proxy, &metrics, reporter);
        let history = pages.history.clone();
        let succession = restart.map(|it| it.go_on(offer, is_live.clone(), &metrics));
        let succession = succession.transpose()?;
        let from = from.unwrap_or_else(restart::at_once);
        pages::start(listener, pages, &drain, from)?;
        let longest = settings.traffic.drain_longest();
        let here = Here::new(proxy, (&live, &metrics), is_live, longest);
        let here = here.with_acme(Some(obtaining));
        let fairness = fairness(&settings);
        let control = Control::new(engine, here, fairness, board, live, ready, announce)
            .with_wanted(wanted)
            .with_wishes(wishes)
            .with_rivals(rivals)
            .with_history(history);
        Box::pin(control.run(events)).await;
        drain.start();
        drain.finished().await;
        drop((reserved, succession, proving));
        Ok(())
    })
}

/// Starts to obtain certificates, of the issuer of the settings and of those that objects make.
fn start_acme(
    settings: &settings::Serve,
    (inbox, wishes, board, loaded): (&mpsc::Sender<Event>, &Wishes, &Board, &CancellationToken),
    (metrics, demand): (&Metrics, &Demand),
) -> anyhow::Result<Acme> {
    let around = acme::Surroundings {
        inbox: inbox.clone(),
        wishes: wishes.clone(),
        names: settings.traffic.names.clone(),
        http: settings.listeners.http,
        obtained: board.obtained().clone(),
        demand: demand.clone(),
        loaded: loaded.clone().drop_guard(),
    };
    Acme::start(&settings.acme, around, metrics)
}

/// Starts to prove hosts, where settings say so.
fn start_proofs(
    settings: &settings::Serve,
    (inbox, rivals): (&mpsc::Sender<Event>, &Rivals),
    metrics: &Metrics,
) -> anyhow::Result<Option<Proving>> {
    let Some(proof) = &settings.proof else {
        return Ok(None);
    };
    let parts = ProofParts {
        inbox: inbox.clone(),
        rivals: rivals.clone(),
        names: settings.traffic.names.clone(),
    };
    Ok(Some(Proving::start(proof, parts, metrics)?))
}

/// The sources of the admin pages.
fn pages(
    settings: &settings::Serve,
    proxy: &Proxy,
    metrics: &Metrics,
    reporter: Reporter,
) -> Pages {
    let (console, exports) = (settings.console.as_ref(), settings.otlp.as_ref());
    let around = (console, exports, &settings.admin_hosts);
    Pages {
        history: settings.history.map(History::new),
        ..Pages::of_proxy(proxy, (metrics, reporter), &settings.traffic, around)
    }
}

/// The reporter of the status page. Removals are never held, since files say what people want.
fn reporter(readiness: Readiness, (board, live): (&Board, &Live)) -> Reporter {
    Reporter {
        holds: Holds::new(HoldLimits::NONE),
        role: "serve",
        started: clock::now(),
        readiness,
        board: board.clone(),
        live: Some(live.clone()),
        stated: None,
        followed: None,
    }
}

/// How namespaces share the control thread. A file takes effect as it is.
fn fairness(settings: &settings::Serve) -> Fairness {
    let share = settings.meaning.control_share;
    Fairness::new(Shares::WHOLE, share, &settings.translate())
}

/// Says which fields of the mesh's configuration have no effect here.
fn warn_of_mesh(settings: &settings::Serve) {
    let config = &settings.meaning.mesh;
    let is_told = settings.traffic.introductions.is_some();
    mesh::warn(
        config,
        mesh::introductions(&config.edge).filter(|_| !is_told),
    );
}

/// The sockets and handles that the next process is given.
fn offer(
    proxy: &Proxy,
    admin: &std::net::TcpListener,
    reserved: &[Socket; 2],
    (drain, readiness): (&Drain, &Readiness),
) -> anyhow::Result<Offer> {
    let [http, https] = reserved;
    Ok(Offer {
        sockets: proxy.sockets(),
        own: vec![
            (Role::Admin, admin.try_clone()?.into()),
            (Role::Http, http.try_clone()?.into()),
            (Role::Https, https.try_clone()?.into()),
        ],
        admin: drain.clone(),
        readiness: readiness.clone(),
        is_suspended: Arc::default(),
    })
}

/// Starts what fills the inbox, behind what has to be there before; returns how to find an object's
/// file, where there are files.
fn start_source(
    settings: &settings::Serve,
    input: Input,
    (inbox, wanted, loaded): (mpsc::Sender<Event>, &Wanted, CancellationToken),
    metrics: &Metrics,
) -> anyhow::Result<Option<Locator>> {
    match input {
        Input::Directory => {
            let around = (inbox, wanted.clone(), loaded);
            Ok(Some(files::start(settings.paths.clone(), around, metrics)?))
        }
        Input::Inbox(mut batches) => {
            task::spawn_local("source", async move {
                loaded.cancelled().await;
                while let Some(batch) = batches.recv().await {
                    if inbox.send(Event::Changed(batch)).await.is_err() {
                        return;
                    }
                }
            });
            Ok(None)
        }
    }
}
