//! The real server and the real client, over TLS on ports of the system's choice.

mod crowd;
mod demanding;
mod lost;
mod signing;
mod unread;

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream;
use myriad_base::drain::Drain;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::task;
use myriad_model::{Digest, Form, Snapshot};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::client::{Apply, Client, ClientError, ClientSettings, Connect, TcpConnect};
use super::server::{Authenticate, Event, Identity, Owner, Refused, Server, ServerSettings};
use super::{Connection, Views};
use crate::tests::pair::{KEY, REFUSED_PORT, World};
use crate::{ClientCounters, Delivery, Refusal, ServerCounters};

/// Accepts tokens that begin with `good`; what follows a colon is the view. One that begins with
/// `pod` is of a sidecar of the Pod that it names.
struct GoodTokens;

impl Authenticate for GoodTokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Identity, Refused>> {
        Box::pin(async move {
            let pod = token.strip_prefix("pod");
            let view = match token.strip_prefix("good") {
                Some("") => "gateway",
                Some(rest) => rest.trim_start_matches(':'),
                None if pod.is_some() => "gateway",
                None => return Err(Refused("of another audience".to_owned())),
            };
            Ok(Identity {
                subject: "gateway".into(),
                view: view.into(),
                owner: Owner {
                    namespace: "tests".into(),
                    pod: pod.unwrap_or_default().into(),
                    is_gateway: pod.is_none(),
                },
            })
        })
    }
}

/// Obeys everything but what it refuses, and shows the digest of what it has.
struct Obedient {
    held: Snapshot,
    digest: watch::Sender<Digest>,
    keys: usize,
    errors: mpsc::Sender<String>,
    /// While this is set, it is stuck in whatever it applies.
    stuck: watch::Receiver<bool>,
}

impl Apply for Obedient {
    async fn apply(&mut self, delivery: Delivery) -> Vec<Refusal> {
        // Where nobody can set it any more, it stays as it is.
        let _ = self.stuck.wait_for(|is_stuck| !is_stuck).await;
        let mut refusals = Vec::new();
        for change in &delivery.commit.changes {
            let endpoints = change.new.as_ref().and_then(|new| new.endpoints());
            let port = endpoints.map(|it| it.endpoints[0].address.port());
            if port == Some(REFUSED_PORT) {
                refusals.push(Refusal {
                    key: change.key.clone(),
                    reason: "a test says so".to_owned(),
                });
            } else {
                self.held.apply(change);
            }
        }
        self.digest.send_replace(self.held.digest());
        refusals
    }

    fn rekey(&mut self, key: [u8; 32]) {
        assert_eq!(key, KEY);
        self.keys += 1;
    }

    fn disconnected(&mut self, error: &ClientError) {
        let _ = self.errors.try_send(error.to_string());
    }
}

/// Leads to wherever the server is now.
struct Movable {
    address: Arc<Mutex<String>>,
    tls: Arc<rustls::ClientConfig>,
}

impl Connect for Movable {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        let address = self.address.lock().unwrap().clone();
        let name = ServerName::try_from("controller").unwrap();
        let tls = Some((self.tls.clone(), name));
        Box::pin(async move { TcpConnect { address, tls }.connect().await })
    }
}

/// A server's and a client's settings of one authority.
fn tls() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["controller".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

fn settings(tls: Option<Arc<rustls::ServerConfig>>) -> ServerSettings {
    ServerSettings {
        key: KEY,
        tls,
        streams_max: 8,
        unauthenticated_max: 4,
        greeting_timeout: Duration::from_secs(10),
        answer_timeout: crate::server::ANSWER_TIMEOUT,
        holds: Holds::new(HoldLimits::default()),
        lost: None,
    }
}

/// A server that runs until its drain is asked for.
struct Serving {
    drain: Drain,
    counters: ServerCounters,
    events: mpsc::Receiver<Event>,
}

impl Serving {
    fn server(
        newest: &watch::Sender<Snapshot>,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> (Serving, Server) {
        Self::server_of(Views::one("gateway", newest.subscribe()), settings(tls))
    }

    fn server_of(views: Views, settings: ServerSettings) -> (Serving, Server) {
        Self::server_telling(views, settings, 1_024)
    }

    /// A server that may tell so many events before they are read.
    fn server_telling(views: Views, settings: ServerSettings, room: usize) -> (Serving, Server) {
        let (sender, events) = mpsc::channel(room);
        let (drain, counters) = (Drain::new(), ServerCounters::default());
        let server = Server::new(
            settings,
            Arc::new(GoodTokens),
            views,
            sender,
            counters.clone(),
            drain.holder(),
        );
        let serving = Serving {
            drain,
            counters,
            events,
        };
        (serving, server)
    }

    async fn start(
        newest: &watch::Sender<Snapshot>,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> (Serving, String) {
        let (serving, server) = Self::server(newest, tls);
        serving.listen(server).await
    }

    async fn listen(self, server: Server) -> (Serving, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(task::spawn("test server", async move {
            server.serve(listener).await.unwrap();
        }));
        (self, address)
    }

    async fn next(&mut self) -> Event {
        within(self.events.recv()).await.expect("an event")
    }

    async fn stop(self) {
        let Serving { drain, events, .. } = self;
        // A stream that ends tells so, and waits for room to.
        drop(events);
        drain.start();
        within(drain.finished()).await;
    }
}

/// A client that runs until its drain is asked for, and what can be seen of it.
struct Following {
    drain: Drain,
    digest: watch::Receiver<Digest>,
    errors: mpsc::Receiver<String>,
    counters: ClientCounters,
    ended: tokio::task::JoinHandle<Option<(Snapshot, usize)>>,
}

impl Following {
    fn start(connect: Arc<dyn Connect>, token: &'static str) -> Following {
        Self::start_stuck(connect, token, watch::channel(false).1)
    }

    /// Starts a client that holds what it had from the server before.
    fn resume(connect: Arc<dyn Connect>, token: &'static str, held: Snapshot) -> Following {
        Self::start_with(connect, token, watch::channel(false).1, held)
    }

    /// Starts a client that is stuck while this is set.
    fn start_stuck(
        connect: Arc<dyn Connect>,
        token: &'static str,
        stuck: watch::Receiver<bool>,
    ) -> Following {
        Self::start_with(connect, token, stuck, Snapshot::new())
    }

    fn start_with(
        connect: Arc<dyn Connect>,
        token: &'static str,
        stuck: watch::Receiver<bool>,
        held: Snapshot,
    ) -> Following {
        let (digest, shown) = watch::channel(Digest::default());
        let (errors, seen) = mpsc::channel(64);
        let mut apply = Obedient {
            held: held.clone(),
            digest,
            keys: 0,
            errors,
            stuck,
        };
        let settings = ClientSettings {
            instance: "proxy".to_owned(),
            schema_max: myriad_model::wire::SCHEMA,
            connect,
            token: Arc::new(move || Ok(token.to_owned())),
            holds: Holds::new(HoldLimits::default()),
        };
        let (drain, counters) = (Drain::new(), ClientCounters::default());
        let holder = drain.holder();
        let key = (!held.is_empty()).then_some(KEY);
        let client = Client::new(settings, held, key, counters.clone());
        let ended = task::spawn("test client", async move {
            let held = client.run(&mut apply, holder).await;
            (held, apply.keys)
        });
        Following {
            drain,
            digest: shown,
            errors: seen,
            counters,
            ended,
        }
    }

    async fn reaches(&mut self, digest: Digest) {
        within(self.digest.wait_for(|it| *it == digest))
            .await
            .unwrap();
    }

    async fn stop(self) -> (Snapshot, usize) {
        self.drain.start();
        within(self.ended).await.unwrap().unwrap()
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let deadline = Duration::from_secs(30);
    tokio::time::timeout(deadline, future)
        .await
        .expect("in time")
}

#[tokio::test]
async fn a_proxy_follows_over_tls_and_comes_back_in_step_after_a_restart() {
    let (server_tls, client_tls) = tls();
    let mut world = World::new(Form::Encoded);
    for number in 0..6_000 {
        world.put(&format!("e{number}"), 1);
    }
    let (newest, _) = watch::channel(world.snapshot().clone());
    let (mut first, address) = Serving::start(&newest, Some(server_tls.clone())).await;
    let address = Arc::new(Mutex::new(address));
    let connect = Movable {
        address: address.clone(),
        tls: client_tls,
    };
    let mut proxy = Following::start(Arc::new(connect), "good");
    proxy.reaches(world.snapshot().digest()).await;
    let connected = first.next().await;
    let is_ours = matches!(&connected, Event::Connected { identity, instance, .. }
        if &*identity.subject == "gateway" && instance == "proxy");
    assert!(is_ours, "{connected:?}");
    let acked = [first.next().await, first.next().await];
    let steps = acked.map(|it| match it {
        Event::Acked { is_in_step, .. } => is_in_step,
        other => panic!("{other:?}"),
    });
    assert_eq!(steps, [false, true]);

    world.put("e1", 2);
    newest.send_replace(world.snapshot().clone());
    proxy.reaches(world.snapshot().digest()).await;
    assert_eq!(first.counters.resources.get(), 6_001);
    first.stop().await;

    let (second, moved) = Serving::start(&newest, Some(server_tls)).await;
    *address.lock().unwrap() = moved;
    world.put("e2", 3);
    newest.send_replace(world.snapshot().clone());
    proxy.reaches(world.snapshot().digest()).await;
    assert_eq!(second.counters.resources.get(), 1, "nothing was sent again");
    let (held, keys) = proxy.stop().await;
    assert_eq!((held.digest(), keys), (world.snapshot().digest(), 1));
    second.stop().await;
}

#[tokio::test]
async fn another_token_gets_nothing_and_neither_does_who_trusts_another_authority() {
    let (server_tls, client_tls) = tls();
    let mut world = World::new(Form::Encoded);
    world.put("secret", 1);
    let (newest, _) = watch::channel(world.snapshot().clone());
    let (serving, address) = Serving::start(&newest, Some(server_tls)).await;
    for (trusted, token) in [(client_tls, "bad"), (tls().1, "good")] {
        let address = Arc::new(Mutex::new(address.clone()));
        let connect = Movable {
            address,
            tls: trusted,
        };
        let mut proxy = Following::start(Arc::new(connect), token);
        let error = within(proxy.errors.recv()).await.expect("an error");
        let is_expected = match token {
            "bad" => error.contains("the token is not accepted"),
            _ => error.contains("certificate"),
        };
        assert!(is_expected, "{error}");
        assert_eq!(proxy.counters.commits.get(), 0);
        assert!(proxy.stop().await.0.is_empty());
    }
    assert_eq!(serving.counters.bytes_sent.get(), 0);
    assert!(serving.counters.refused.get() >= 2);
    serving.stop().await;
}

/// One pipe in memory, and then no more.
struct Pipe(Mutex<Option<tokio::io::DuplexStream>>);

impl Connect for Pipe {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        let pipe = self.0.lock().unwrap().take();
        let gone = || io::Error::other("no further pipe");
        Box::pin(async move { pipe.map(Connection::new).ok_or_else(gone) })
    }
}

#[tokio::test]
async fn refusals_come_back_as_events_of_the_proxy_that_refused() {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    world.put("b", REFUSED_PORT);
    let (newest, _) = watch::channel(world.snapshot().clone());
    let (mut serving, server) = Serving::server(&newest, None);
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    drop(task::spawn("test server", async move {
        let pipes = stream::iter([Connection::new(ours)]);
        server
            .serve_connections(futures_util::StreamExt::chain(pipes, stream::pending()))
            .await
    }));
    let proxy = Following::start(Arc::new(Pipe(Mutex::new(Some(theirs)))), "good");
    let Event::Connected { stream, .. } = serving.next().await else {
        panic!("connected first");
    };
    let Event::Refused {
        stream: refused,
        receipts,
        ..
    } = serving.next().await
    else {
        panic!("then refused");
    };
    assert_eq!(refused, stream);
    assert_eq!(receipts[0].key.to_string(), "endpoints b");
    assert_eq!(receipts[0].reason, "a test says so");
    let acked = serving.next().await;
    assert!(
        matches!(
            acked,
            Event::Acked {
                is_in_step: true,
                ..
            }
        ),
        "{acked:?}"
    );
    proxy.stop().await;
    let gone = serving.next().await;
    assert_eq!(
        gone,
        Event::Gone {
            stream,
            error: None
        }
    );
    serving.stop().await;
}
