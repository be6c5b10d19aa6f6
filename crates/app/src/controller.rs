//! `controller`: watches a cluster, translates, and tells proxies what to serve.

mod acme;
mod annotations;
mod authority;
mod certificate;
pub mod claims;
mod contact;
mod deployments;
mod described;
mod fleet;
mod held;
mod issuers;
mod objects;
mod obstacle;
mod outlet;
mod peers;
mod pods;
mod published;
mod roots;
mod signer;
mod tickets;
mod trust;
mod watcher;
mod webhook;
mod word;

pub use pods::KnownPods;
pub use signer::{Signer, Terms};

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::drain::Drain;
use myriad_base::hold::Holds;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use myriad_base::{clock, task};
use myriad_model::{Form, Sealer, Writer};
use myriad_source::Wanted;
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{self, Client, Cluster};
use myriad_sync::Views;
use myriad_translate::{ClaimsChange, Engine, MAIN};
use tokio::sync::{mpsc, oneshot, watch};

use crate::acme::{Demands, Issued};
use crate::board::Board;
use crate::cli::RawController;
use crate::console::ConsoleParts;
use crate::console::reviews::{self, ReviewQuestion};
use crate::control::{Callers, Control, Event, Fairness, Shares, follow_tenants};
use crate::descriptors;
use crate::explain::Explainer;
use crate::history::History;
use crate::host_proof::{self, KnownProofs, ProofParts};
use crate::live::Live;
use crate::mesh;
use crate::pages::{self, Pages};
use crate::restart;
use crate::rivals::Rivals;
use crate::settings::{Controller, MeshAuthority};
use crate::signals::Stop;
use crate::stated::StatedStatuses;
use crate::status::report::Reporter;
use crate::tokens::Tokens;
use acme::Obtaining;
use authority::AuthorityKeeper;
use certificate::Renewed;
use claims::{Claims, Known};
use outlet::Fleet;
use roots::Namespaces;
use trust::Trust;
use word::Word;

/// How long is waited before the API server is asked again for what nothing works without.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How old the published keys of tokens may get.
const TOKEN_KEYS_AGE_MAX: Duration = Duration::from_secs(3_600);

/// How often they are read again because of a key that is not known.
const TOKEN_KEYS_AGE_MIN: Duration = Duration::from_secs(5);

/// Runs the command until SIGTERM or SIGINT.
///
/// # Errors
/// Settings that do not hold, addresses that cannot be bound, no description of an API server.
pub fn run(raw: &RawController) -> anyhow::Result<ExitCode> {
    if let Err(problem) = myriad_base::log::start(&raw.process.log) {
        anyhow::bail!("--log: {problem}");
    }
    let settings = Controller::check(raw)?;
    // Every proxy holds a connection.
    descriptors::raise_all();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, control(settings))?;
    Ok(ExitCode::SUCCESS)
}

/// The namespace and the name of an object.
fn parts(key: &ObjectKey) -> (Arc<str>, Arc<str>) {
    (key.namespace().into(), key.name().into())
}

/// The settings of the watches.
fn cluster_settings(settings: &Controller, holds: &Holds) -> kubernetes::ClusterSettings {
    let namespaces = settings.namespaces.iter().map(|it| it.as_str().into());
    let has_mesh = settings.meaning.trust_domain.is_some();
    let mut kinds: Vec<ObjectKind> = ObjectKind::CORE.into();
    if settings.watches_istio {
        kinds.extend(ObjectKind::ISTIO);
    }
    if settings.watches_istio || has_mesh {
        kinds.push(ObjectKind::Pod);
    }
    if settings.watches_gateway_api {
        kinds.extend(ObjectKind::GATEWAY_API);
        kinds.push(ObjectKind::Namespace);
    }
    // There are rights to issuers where certificates are obtained.
    if settings.acme.is_some() {
        kinds.extend(ObjectKind::ISSUERS);
    }
    kubernetes::ClusterSettings {
        namespaces: namespaces.collect(),
        kinds,
        config_map: settings.meaning.nginx_config_map.as_ref().map(parts),
        all_config_maps: settings.watches_config_maps,
        generic_secrets: settings.watches_generic_secrets,
        needs_pods: has_mesh,
        names_writers: settings.history.is_some(),
        holds: holds.clone(),
        ..kubernetes::ClusterSettings::default()
    }
}

/// Holds what is missing too much of, by the settings.
fn holds(settings: &Controller, metrics: &Metrics) -> Holds {
    let holds = Holds::new(settings.hold);
    holds.register(metrics);
    holds
}

async fn control(settings: Controller) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let (metrics, readiness, drain) = (Metrics::new(), Readiness::new(), Drain::new());
    let (board, live) = (Board::new(&metrics), Live::new(&metrics));
    let stated = objects::stated(&settings, &live);
    let holds = holds(&settings, &metrics);
    let ready = readiness.require("the first complete list of every kind");
    let listener = pages::bind(settings.admin, None)?;
    let sync = fleet::bind(settings.sync)?;
    let webhook = webhook::bind(settings.injection.as_ref())?;
    let shown = (&board, &live, &holds, &stated);
    let (history, asked) = start_pages(listener, (&metrics, &readiness, &drain), shown, &settings)?;
    let (cluster, client, lost) = connect(&settings, &holds, (&readiness, asked), &metrics).await?;
    let (inbox, callers, events) = Callers::with_inbox();
    let (trust, tokens, (known, proofs), demands) = tokio::select! {
        prepared = prepare((&client, &metrics), (&settings, &stated), &inbox) => prepared,
        _ = stop.asked() => return Ok(()),
    };
    let (announce, addresses) = watch::channel(None);
    let (views, pods, wanted) = (Views::new(), KnownPods::default(), Wanted::default());
    let signer = look_after_authority((&client, &pods), &settings, &inbox, &metrics);
    let server = fleet::Server {
        signer,
        settings: &settings,
        trust: &trust,
        tokens,
        pods: pods.clone(),
        views: views.clone(),
        is_listed: addresses,
        live: live.clone(),
        holds,
        lost,
        callers: callers.clone(),
        obtain: acme::obtain(&settings, &demands),
    };
    let certificate = server.start(sync, &metrics, &drain)?;
    let (bundle, told) = watch::channel(trust.roots.bundle());
    start_webhook(webhook, certificate.clone(), &metrics, &drain)?;
    let namespaces = publish_roots(&client, &settings, told.clone());
    keep_secrets((certificate, bundle), &client, &settings, &metrics);
    tracing::info!(sync = %settings.sync, admin = %settings.admin, "the controller watches");
    let word = Word::start(&client, &settings, &inbox, &metrics, &drain)?;
    let (place, told) = ((&client, &settings), (&inbox, told));
    let objects = objects::start(place, (&word, &live, &stated), told);
    let (claims, kept) = keep_claims((&client, &settings), &inbox, word.leads(), known, &drain);
    let around = (&cluster, &inbox, &live, board.obtained(), &demands);
    let obtaining = Obtaining::start(&settings, around, word.leads(), &metrics)?;
    let rivals = keep_proofs(&settings, proofs, &inbox, word.leads(), &metrics);
    let (wishes, issued) = (obtaining.wishes.clone(), obtaining.issued.clone());
    let looks = Looks::of((&client, &settings), namespaces, pods, issued);
    follow(cluster, inbox.clone(), looks, wanted.clone());
    follow_tenants(settings.meaning.tenants_followed(&metrics)?, &inbox);
    drop(task::spawn_local("stop", pass_on(stop, inbox)));
    let fleet = Fleet::new(views, (word, objects), claims);
    let over = on_a_thread_of_its_own(move || {
        let (engine, fair) = (engine(&settings, &trust, kept), fairness(&settings));
        Control::new(engine, fleet, fair, board, live, ready, announce)
            .with_wanted(wanted)
            .with_callers(&callers)
            .with_wishes(wishes)
            .with_rivals(rivals)
            .with_stated(stated)
            .with_history(history)
            .run(events)
    })?;
    over.await.context("the control thread panicked")?;
    close(obtaining, &drain).await;
    Ok(())
}

/// Begins to watch the cluster, to ask whether the API server is lost, and what it says of those
/// who show tokens to the console.
async fn connect(
    settings: &Controller,
    holds: &Holds,
    (readiness, asked): (&Readiness, mpsc::Receiver<ReviewQuestion>),
    metrics: &Metrics,
) -> anyhow::Result<(Cluster, Client, watch::Receiver<bool>)> {
    let heard = readiness.require("the API server");
    let cluster = Cluster::connect(cluster_settings(settings, holds)).await?;
    let client = cluster.client();
    cluster.counters().register(metrics);
    let lost = contact::keep(client.clone(), settings.lost_after, heard, metrics);
    let reviews = reviews::answer(client.clone(), asked);
    drop(task::spawn("console reviews", reviews));
    Ok((cluster, client, lost))
}

/// Answers API servers by the certificate that proxies are shown, where there is a webhook.
fn start_webhook(
    webhook: Option<webhook::Bound<'_>>,
    certificate: Arc<Renewed>,
    metrics: &Metrics,
    drain: &Drain,
) -> anyhow::Result<()> {
    match webhook {
        Some(webhook) => webhook.start(fleet::tls(certificate)?, metrics, drain),
        None => Ok(()),
    }
}

/// Ends what was started beside the control loop, gracefully.
async fn close(obtaining: Obtaining, drain: &Drain) {
    drop(obtaining);
    drain.start();
    drain.finished().await;
}

/// Runs the control loop on a thread, so that watches, the Lease and what is written to the cluster
/// never wait for a translation. The answer comes when the loop has ended.
fn on_a_thread_of_its_own<F: Future<Output = ()>>(
    start: impl FnOnce() -> F + Send + 'static,
) -> anyhow::Result<oneshot::Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (ended, over) = oneshot::channel();
    let run = move || {
        runtime.block_on(async { start().await });
        // Who does not wait any more is about to end.
        let _ = ended.send(());
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(run)?;
    Ok(over)
}

/// Tells the control loop to stop once the process is asked to.
async fn pass_on(mut stop: Stop, inbox: mpsc::Sender<Event>) {
    stop.asked().await;
    stop.end_at_next();
    // A loop that has ended needs no telling.
    let _ = inbox.send(Event::Stop).await;
}

/// Serves the admin pages; returns the history that they show, where one is kept, and whose tokens
/// the console asks about.
fn start_pages(
    listener: std::net::TcpListener,
    (metrics, readiness, drain): (&Metrics, &Readiness, &Drain),
    shown: (&Board, &Live, &Holds, &StatedStatuses),
    settings: &Controller,
) -> anyhow::Result<(Option<History>, mpsc::Receiver<ReviewQuestion>)> {
    let mut pages = pages(metrics, readiness, shown, settings);
    let (reviews, asked) = reviews::reviews();
    let console = ConsoleParts::of(settings.console.as_ref(), shown.0);
    pages.console = console.map(|it| it.with_reviews(reviews));
    let history = pages.history.clone();
    pages::start(listener, pages, drain, restart::at_once())?;
    Ok((history, asked))
}

fn pages(
    metrics: &Metrics,
    readiness: &Readiness,
    (board, live, holds, stated): (&Board, &Live, &Holds, &StatedStatuses),
    settings: &Controller,
) -> Pages {
    let reporter = Reporter {
        role: "controller",
        started: clock::now(),
        readiness: readiness.clone(),
        board: board.clone(),
        live: Some(live.clone()),
        stated: Some(stated.clone()),
        holds: holds.clone(),
        followed: None,
    };
    Pages {
        metrics: metrics.clone(),
        reporter,
        explainer: Explainer::of_board(board.clone()),
        history: settings.history.map(History::new),
        traces: None,
        top: None,
        exports: settings.otlp.clone(),
        console: None,
        hosts: settings.admin_hosts.clone(),
    }
}

/// Publishes the roots for API servers and Pods with a proxy, where Pods get proxies here; returns
/// where it learns of the latter.
fn publish_roots(
    client: &Client,
    settings: &Controller,
    told: watch::Receiver<String>,
) -> Namespaces {
    let (namespaces, heard) = Namespaces::new();
    if let Some(injection) = &settings.injection {
        let keeper = roots::RootKeeper {
            client: client.clone(),
            configuration: injection.configuration.clone(),
            config_map: injection.sidecar.ca_config_map.clone(),
        };
        drop(task::spawn("webhook roots", keeper.keep(told, heard)));
    }
    namespaces
}

/// Keeps since when objects claim hosts, beyond this process; returns where it is told, and what
/// was kept before.
fn keep_claims(
    (client, settings): (&Client, &Controller),
    inbox: &mpsc::Sender<Event>,
    leads: Claim,
    known: Known,
    drain: &Drain,
) -> (Claims, ClaimsChange) {
    let (claims, kept) = (Claims::default(), known.claims.clone());
    let place = (client.clone(), settings.namespace.clone());
    let keeper = claims::ClaimKeeper::new(place, claims.clone(), inbox.clone(), leads, known);
    drop(task::spawn("claims", keeper.keep(drain.holder())));
    (claims, kept)
}

/// Lets hosts be proven, where settings say so; returns where it is told of those that several
/// namespaces claim.
fn keep_proofs(
    settings: &Controller,
    known: Option<KnownProofs>,
    inbox: &mpsc::Sender<Event>,
    leads: Claim,
    metrics: &Metrics,
) -> Rivals {
    let rivals = Rivals::default();
    if let (Some(proof), Some(known)) = (settings.proof.clone(), known) {
        let parts = ProofParts {
            inbox: inbox.clone(),
            rivals: rivals.clone(),
            names: acme::names(settings),
        };
        let keeper = host_proof::keep_in_cluster(known, proof, parts, leads, metrics.clone());
        drop(task::spawn_local("host proofs", keeper));
    }
    rivals
}

/// Lets everything be replaced in time that the replicas share by Secrets: the trust, and the keys
/// of session tickets where they are made here.
fn keep_secrets(
    (certificate, bundle): (Arc<Renewed>, watch::Sender<String>),
    client: &Client,
    settings: &Controller,
    metrics: &Metrics,
) {
    let home = settings.namespace.clone();
    let trust = trust::keep(client.clone(), home, certificate, bundle);
    drop(task::spawn("roots", trust));
    if settings.keeps_tickets {
        let (client, namespace) = (client.clone(), settings.namespace.clone());
        let views = settings.meaning.gateways.views.iter();
        let gateways = std::iter::once(MAIN.into()).chain(views.map(|view| view.name.clone()));
        let keeper = tickets::TicketKeeper::new(client, namespace, gateways.collect(), metrics);
        drop(task::spawn("ticket keys", keeper.keep()));
    }
}

/// Reads, or makes, what signs identities of the mesh, where there is one. A cluster whose mesh has
/// no authority yet is served all the same.
fn look_after_authority(
    (client, pods): (&Client, &KnownPods),
    settings: &Controller,
    inbox: &mpsc::Sender<Event>,
    metrics: &Metrics,
) -> Option<Signer> {
    let domain = settings.meaning.trust_domain.clone()?;
    let MeshAuthority {
        secret: (namespace, name),
        makes,
        lifetime,
        overlap,
    } = settings.authority.clone();
    let terms = Terms {
        trust_domain: domain.own,
        aliases: domain.aliases,
        lifetime,
        overlap,
    };
    let signer = Signer::new(terms, pods.clone(), metrics);
    let keeper = AuthorityKeeper {
        client: client.clone(),
        home: settings.namespace.clone(),
        namespace,
        name,
        makes,
        signer: signer.clone(),
        inbox: inbox.clone(),
    };
    drop(task::spawn("mesh authority", keeper.keep()));
    Some(signer)
}

/// Asks until what nothing works without is there: the shared trust, the keys of tokens, and what
/// is known of claims to hosts. Orders of certificates, and proofs of hosts, that are there are in
/// the inbox by then.
async fn prepare(
    (client, metrics): (&Client, &Metrics),
    (settings, stated): (&Controller, &StatedStatuses),
    inbox: &mpsc::Sender<Event>,
) -> (Trust, Arc<Tokens>, (Known, Option<KnownProofs>), Demands) {
    let trust = loop {
        match prepare_trust(client, &settings.namespace).await {
            Ok(trust) => break trust,
            Err(error) => tracing::warn!("{error:#}; trying again"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    };
    let tokens = Arc::new({
        let has_mesh = settings.meaning.trust_domain.is_some();
        let tokens = Tokens::new(settings.proxy_accounts.clone(), has_mesh);
        tokens.with_dedicated(stated.dedicated())
    });
    while let Err(error) = refresh(client, &tokens).await {
        tracing::warn!("the keys of tokens cannot be read: {error:#}; trying again");
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    let known = claims::load(client, &settings.namespace).await;
    let proofs = match &settings.proof {
        Some(_) => Some(host_proof::load(client, &settings.namespace, inbox).await),
        None => None,
    };
    let demands = Demands::new(metrics);
    acme::follow_orders((client, &demands), settings, inbox).await;
    let (client, refreshed) = (client.clone(), tokens.clone());
    drop(task::spawn("token keys", async move {
        loop {
            tokio::time::sleep(TOKEN_KEYS_AGE_MIN).await;
            let rest = TOKEN_KEYS_AGE_MAX - TOKEN_KEYS_AGE_MIN;
            // Whichever comes first; the time that is over is no error.
            let _ = tokio::time::timeout(rest, refreshed.stale.notified()).await;
            if let Err(error) = refresh(&client, &refreshed).await {
                tracing::warn!("the keys of tokens cannot be read: {error:#}; the former hold");
            }
        }
    }));
    (trust, tokens, (known, proofs), demands)
}

async fn prepare_trust(client: &Client, namespace: &str) -> anyhow::Result<Trust> {
    let trust = trust::provide(client, namespace).await?;
    trust::publish(client, namespace, &trust.roots).await?;
    Ok(trust)
}

async fn refresh(client: &Client, tokens: &Tokens) -> anyhow::Result<()> {
    let published = client.token_keys().await?;
    let set = tokens.set_keys(&published);
    set.map_err(|reason| anyhow::anyhow!("the published set {reason}"))
}

/// The parts that look at what the watches see, before it is translated.
struct Looks {
    namespaces: Namespaces,
    /// Where there is a mesh.
    pods: Option<KnownPods>,
    /// Where certificates are obtained.
    issued: Option<Issued>,
    /// Where claims to hosts are kept: whoever edits objects without end would otherwise choose
    /// between what was read of claims before the first list and what the list has.
    claims: Option<(Client, String)>,
}

impl Looks {
    fn of(
        (client, settings): (&Client, &Controller),
        namespaces: Namespaces,
        pods: KnownPods,
        issued: Option<Issued>,
    ) -> Self {
        let has_mesh = settings.meaning.trust_domain.is_some();
        Looks {
            namespaces,
            pods: has_mesh.then_some(pods),
            issued,
            claims: Some((client.clone(), settings.namespace.clone())),
        }
    }

    /// The claims as they are kept at the end of the first list.
    async fn take_claims(&mut self, is_listed: bool) -> Option<Event> {
        let (client, namespace) = self.claims.take_if(|_| is_listed)?;
        let known = claims::load(&client, &namespace).await;
        Some(Event::Learned(known.claims))
    }
}

/// Carries what the watches see into the inbox.
fn follow(mut cluster: Cluster, inbox: mpsc::Sender<Event>, mut looks: Looks, wanted: Wanted) {
    drop(task::spawn_local("source", async move {
        let mut epoch = None;
        loop {
            let batch = tokio::select! {
                batch = cluster.next() => batch,
                keys = wanted.next() => {
                    cluster.read_again(keys);
                    continue;
                }
            };
            if epoch != Some(cluster.epoch()) {
                epoch = Some(cluster.epoch());
                if inbox.send(Event::Epoch(cluster.epoch())).await.is_err() {
                    return;
                }
            }
            looks.namespaces.look(&batch);
            if let Some(pods) = &looks.pods {
                pods.look(&batch);
            }
            if let Some(issued) = &looks.issued {
                issued.look(&batch);
            }
            // Before anybody is told of what the list has.
            if let Some(learned) = looks.take_claims(batch.synced).await
                && inbox.send(learned).await.is_err()
            {
                return;
            }
            if inbox.send(Event::Changed(batch)).await.is_err() {
                return;
            }
        }
    }));
}

/// How namespaces share the control thread; its own is the operator's.
fn fairness(settings: &Controller) -> Fairness {
    let share = settings.meaning.control_share;
    let mut fairness = Fairness::new(Shares::FAIR, share, &settings.translate());
    fairness
        .operators
        .insert(settings.namespace.as_str().into());
    fairness
}

fn engine(settings: &Controller, trust: &Trust, claims: ClaimsChange) -> Engine {
    let writer = Writer::new(Sealer::new(trust.version_key.0, Form::Encoded));
    let config = &settings.meaning.mesh;
    mesh::warn(config, mesh::remedies(&config.edge));
    let mut engine = Engine::new(settings.translate(), writer);
    engine.learn(claims);
    engine
}
