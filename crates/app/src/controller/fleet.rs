//! The server that proxies follow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use myriad_base::drain::Drain;
use myriad_base::metrics::{Gauge, Metrics};
use myriad_base::task;
use myriad_model::Snapshot;
use myriad_pki::Authority;
use myriad_sync::{
    Authenticate, Event, Identity, Refused, Server as SyncServer, ServerCounters, ServerSettings,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use tokio::sync::{mpsc, watch};

use super::certificate::Renewed;
use crate::control::Addresses;
use crate::settings::Controller;
use crate::tokens::Tokens;
use crate::trust::Trust;

/// The most proxies of one controller.
const STREAMS_MAX: usize = 10_000;

/// The most events of proxies that wait.
const EVENTS_MAX: usize = 1_024;

/// Threads that serve proxies: apart from the control loop, which they must not delay.
const THREADS: usize = 2;

/// What the server is made of.
pub struct Server<'a> {
    pub settings: &'a Controller,
    pub trust: &'a Trust,
    pub tokens: Arc<Tokens>,
    pub newest: watch::Receiver<Snapshot>,
    /// Holds a value once the first list is complete: before, what is missing means nothing.
    pub is_listed: watch::Receiver<Option<Addresses>>,
}

impl Server<'_> {
    /// Starts to serve on threads of its own, once the first list is complete.
    ///
    /// # Errors
    /// A name that no certificate can have, or a thread that cannot be started.
    pub fn start(
        self,
        listener: std::net::TcpListener,
        metrics: &Metrics,
        drain: &Drain,
    ) -> anyhow::Result<()> {
        let Server {
            settings,
            trust,
            tokens,
            newest,
            mut is_listed,
        } = self;
        let root = &trust.authority;
        let authority = Authority::from_pem(root.certificate_pem(), root.expose_key_pem())?;
        let names = settings.sync_hosts.clone();
        let key = trust.version_key.0;
        let counters = ServerCounters::default();
        counters.register(metrics);
        let connected = Gauge::default();
        metrics.register(
            "sync_proxies",
            "Proxies that are connected",
            connected.clone(),
        );
        let drained = drain.holder();
        let certificate = Renewed::new(authority, names)?;
        let tls = tls(certificate.clone())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("sync")
            .enable_all()
            .build()?;
        let serve = async move {
            let (events, happened) = mpsc::channel(EVENTS_MAX);
            drop(task::spawn("sync events", watch_over(happened, connected)));
            drop(task::spawn("certificate", certificate.keep()));
            tokio::select! {
                listed = is_listed.wait_for(Option::is_some) => drop(listed?),
                () = drained.signalled() => return Ok(()),
            }
            let server = ServerSettings {
                key,
                tls: Some(tls),
                streams_max: STREAMS_MAX,
            };
            let server = SyncServer::new(server, tokens, newest, events, counters, drained);
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
        Ok(())
    }
}

/// TLS 1.3 alone: both ends are ours.
fn tls(certificate: Arc<Renewed>) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(Arc::new(config))
}

impl Authenticate for Tokens {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Identity, Refused>> + Send + 'a>> {
        Box::pin(async move {
            let identity = self
                .check(token)
                .map_err(|error| Refused(error.to_string()))?;
            let subject = format!(
                "{}/{}/{}",
                identity.namespace, identity.account, identity.pod
            );
            Ok(Identity {
                subject: subject.into(),
            })
        })
    }
}

/// Tells operators what happens to proxies.
async fn watch_over(mut events: mpsc::Receiver<Event>, connected: Gauge) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Connected {
                stream,
                identity,
                instance,
                schema,
                ..
            } => {
                connected.inc();
                let proxy = &*identity.subject;
                tracing::info!(stream, proxy, instance, schema, "a proxy follows");
            }
            Event::Refused {
                stream,
                receipts,
                receipts_omitted,
            } => {
                for receipt in receipts {
                    let (resource, reason) = (receipt.key.to_string(), receipt.reason);
                    tracing::warn!(stream, resource, reason, "a proxy refused a resource");
                }
                if receipts_omitted > 0 {
                    tracing::warn!(stream, receipts_omitted, "a proxy refused more resources");
                }
            }
            Event::Acked { .. } => {}
            Event::Gone { stream, error } => {
                connected.dec();
                tracing::info!(stream, ?error, "a proxy is gone");
            }
        }
    }
}
