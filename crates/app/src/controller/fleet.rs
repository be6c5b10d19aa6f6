//! The server that proxies follow.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use myriad_base::drain::Drain;
use myriad_base::hold::Holds;
use myriad_base::metrics::{Gauge, Metrics};
use myriad_base::task;
use myriad_model::{Form, Sealer};
use myriad_sync::{
    Authenticate, Identity, Obtain, Owner, Refused, Server as SyncServer, ServerCounters,
    ServerSettings, Views,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use tokio::sync::{mpsc, watch};

use super::certificate::Renewed;
use super::held::HeldFindings;
use super::pods::KnownPods;
use super::signer::Signer;
use super::trust::Trust;
use super::watcher::{FollowedStreams, Watcher};
use crate::control::{Addresses, Callers};
use crate::live::Live;
use crate::settings::Controller;
use crate::tokens::{self, Tokens};

/// The most proxies of one controller. A tenth is kept for gateways, and namespaces share the rest.
const STREAMS_MAX: usize = 16_384;

/// The most connections on which nobody has proved who they are, shared by the addresses that they
/// come from. Two thousand proxies that return at once go through in turns of a few milliseconds.
const UNAUTHENTICATED_MAX: usize = 512;

/// The most connections that wait to be accepted; the system may have a lower bound.
const BACKLOG: i32 = 4_096;

/// The most bytes that the kernel takes for a proxy beside those that are under way: what waits
/// for one that does not read counts nowhere.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// How long a TLS handshake may take, of which its first byte has a second, and each step from
/// there to a stream.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The most events of proxies that wait.
const EVENTS_MAX: usize = 1_024;

/// Threads that serve proxies: apart from the control loop, which they must not delay.
const THREADS: usize = 2;

/// The parts of the server.
pub(super) struct Server<'a> {
    pub settings: &'a Controller,
    pub trust: &'a Trust,
    pub tokens: Arc<Tokens>,
    /// The Pods that there are, where there is a mesh.
    pub pods: KnownPods,
    /// The signer of the mesh's identities, where there is one.
    pub signer: Option<Signer>,
    /// The snapshots that the proxies of each view shall serve.
    pub views: Views,
    /// Holds a value once the first list is complete: before, what is missing means nothing.
    pub is_listed: watch::Receiver<Option<Addresses>>,
    /// The commits that proxies have put into service.
    pub live: Live,
    /// The removals that are held for them.
    pub holds: Holds,
    /// Whether the API server is lost.
    pub lost: watch::Receiver<bool>,
    /// The way of proxies to the control loop.
    pub callers: Callers,
    /// Takes in the hosts that they tell, where certificates are obtained.
    pub obtain: Option<Arc<dyn Obtain>>,
}

impl Server<'_> {
    /// Starts to serve on threads of its own, once the first list is complete. Returns the
    /// certificate that is shown, for who sees to it that the right authority signs it.
    ///
    /// # Errors
    /// A name that no certificate can have, or a thread that cannot be started.
    pub(super) fn start(
        self,
        listener: std::net::TcpListener,
        metrics: &Metrics,
        drain: &Drain,
    ) -> anyhow::Result<Arc<Renewed>> {
        let Server {
            settings,
            trust,
            tokens,
            pods,
            signer,
            views,
            mut is_listed,
            live,
            holds,
            lost,
            callers,
            obtain,
        } = self;
        let names = settings.sync_hosts.clone();
        let key = trust.version_key.0;
        let counters = ServerCounters::default();
        counters.register(metrics);
        let watcher = Watcher {
            sealer: Sealer::new(key, Form::Encoded),
            views: views.clone(),
            streams: FollowedStreams::default(),
            live,
            held: HeldFindings::new(holds.clone(), settings.publish_service.clone()),
            inbox: callers.inbox(),
            callers: callers.clone(),
            connected: connected(metrics),
        };
        let gate = Arc::new(Gate::new(tokens, pods, callers));
        let drained = drain.holder();
        let certificate = Renewed::new(trust.roots.current(), names)?;
        let shown = certificate.clone();
        let tls = tls(certificate.clone())?;
        let runtime = runtime()?;
        let serve = async move {
            let (events, happened) = mpsc::channel(EVENTS_MAX);
            drop(task::spawn("sync events", watcher.watch_over(happened)));
            drop(task::spawn("certificate", certificate.keep()));
            tokio::select! {
                listed = is_listed.wait_for(Option::is_some) => drop(listed?),
                () = drained.signalled() => return Ok(()),
            }
            let server = limits((key, tls), holds, lost);
            let mut server = SyncServer::new(server, gate, views, events, counters, drained);
            server = server.obtaining(obtain);
            if let Some(signer) = signer {
                server = server.signing(Arc::new(signer));
            }
            server
                .serve(tokio::net::TcpListener::from_std(listener)?)
                .await?;
            anyhow::Ok(())
        };
        std::thread::Builder::new()
            .name("sync main".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve) {
                    tracing::error!("proxies are not served any more: {error:#}");
                }
            })?;
        Ok(shown)
    }
}

/// The socket that proxies connect to. Thousands of them come back at once when a controller is
/// replaced.
///
/// # Errors
/// The address cannot be bound.
pub(super) fn bind(address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)
        .with_context(|| format!("--sync {address}: cannot be bound"))?;
    listener.set_nonblocking(true)?;
    let socket = socket2::SockRef::from(&listener);
    socket.listen(BACKLOG)?;
    // Accepted connections inherit it. A kernel without it is no reason not to serve.
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    Ok(listener)
}

/// The threads that serve proxies.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("sync")
        .enable_all()
        .build()
}

/// The number of proxies that are connected, among the metrics.
fn connected(metrics: &Metrics) -> Gauge {
    let connected = Gauge::default();
    let help = "Proxies that are connected";
    metrics.register("sync_proxies", help, connected.clone());
    connected
}

/// How proxies are served.
fn limits(
    (key, tls): ([u8; 32], Arc<ServerConfig>),
    holds: Holds,
    lost: watch::Receiver<bool>,
) -> ServerSettings {
    ServerSettings {
        key,
        tls: Some(tls),
        streams_max: STREAMS_MAX,
        unauthenticated_max: UNAUTHENTICATED_MAX,
        greeting_timeout: GREETING_TIMEOUT,
        answer_timeout: myriad_sync::server::ANSWER_TIMEOUT,
        holds,
        lost: Some(lost),
    }
}

/// TLS 1.3 alone: the other ends are ours, and API servers.
///
/// # Errors
/// The cryptography has no TLS 1.3.
pub(super) fn tls(certificate: Arc<Renewed>) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(Arc::new(config))
}

/// Decides which proxy sees what, by its token, and for sidecars by the control loop, which knows
/// their Pods.
struct Gate {
    tokens: Arc<Tokens>,
    pods: KnownPods,
    callers: Callers,
}

impl Gate {
    fn new(tokens: Arc<Tokens>, pods: KnownPods, callers: Callers) -> Self {
        Gate {
            tokens,
            pods,
            callers,
        }
    }

    async fn admit(&self, token: &str) -> Result<Identity, Refused> {
        let identity = self.tokens.check(token);
        let identity = identity.map_err(|error| Refused(error.to_string()))?;
        self.admit_proved(identity).await
    }

    /// Admits whoever has proved this.
    async fn admit_proved(&self, identity: tokens::Identity) -> Result<Identity, Refused> {
        let (namespace, pod) = (&identity.namespace, &identity.pod);
        // A token outlives its Pod, and another Pod may have its name and other labels.
        if self.pods.has_another(namespace, pod, &identity.pod_uid) {
            return Err(Refused(format!(
                "the token is of a Pod {namespace}/{pod} that is gone"
            )));
        }
        let subject = format!("{namespace}/{}/{pod}", identity.account);
        let owner = Owner {
            namespace: namespace.as_str().into(),
            pod: identity.seat(),
            is_gateway: identity.is_operators,
        };
        let view = match identity.view {
            Some(view) => view,
            None => {
                let view = self.callers.ask(namespace, pod).await;
                view.ok_or_else(|| Refused(format!("Pod {namespace}/{pod} has no view")))?
            }
        };
        Ok(Identity {
            subject: subject.into(),
            view,
            owner,
        })
    }
}

impl Authenticate for Gate {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Identity, Refused>> + Send + 'a>> {
        Box::pin(self.admit(token))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Gate, UNSENT_BYTES_MAX, bind};
    use crate::control::Callers;
    use crate::controller::pods::KnownPods;
    use crate::controller::pods::tests::{look, pod_with};
    use crate::tokens::{Identity, Tokens};

    #[tokio::test]
    async fn the_token_of_a_pod_that_is_gone_is_not_one_of_another_of_its_name() {
        let (_inbox, callers, _events) = Callers::with_inbox();
        let (tokens, pods) = (Tokens::new(BTreeMap::new(), true), KnownPods::default());
        look(&pods, vec![pod_with("shop", "cart-0", "u2")]);
        let gate = Gate::new(Arc::new(tokens), pods, callers);
        let admit = async |uid: &str| {
            let proved = Identity {
                namespace: "shop".to_owned(),
                account: "cart".to_owned(),
                pod: "cart-0".to_owned(),
                pod_uid: uid.to_owned(),
                view: Some("gateway/shop/cart".into()),
                is_operators: false,
            };
            let admitted = gate.admit_proved(proved).await;
            admitted.ok().map(|it| it.owner.pod)
        };
        assert_eq!(admit("u1").await, None);
        assert_eq!(admit("").await, None);
        assert_eq!(admit("u2").await.as_deref(), Some("cart-0/u2"));
    }

    #[test]
    fn the_kernel_keeps_little_for_a_proxy_that_does_not_read() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let address = listener.local_addr().unwrap();
        let _proxy = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let unsent = socket2::SockRef::from(&accepted).tcp_notsent_lowat();
        assert_eq!(unsent.unwrap(), UNSENT_BYTES_MAX);
    }
}
