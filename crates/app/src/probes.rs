//! What is asked of a sidecar from outside of the mesh, on an address that no rule leads away:
//! its own health, its metrics, and the kubelet's checks of the workload, which the proxy does in
//! the kubelet's place.

mod ask;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use ask::Anybody;

use crate::answering::{Answer, Answering, Question, Server, text, typed};
use crate::restart::{Restart, Role};

/// Where metrics are; the second is where Istio's proxies have them.
const METRICS_PATHS: [&str; 2] = ["/metrics", "/stats/prometheus"];

/// The checks of a Pod at most, and those under way at once.
const CHECKS_MAX: usize = 256;
const UNDER_WAY_MAX: usize = 64;

/// The longest that a check may take.
const TIMEOUT_SECONDS_MAX: u64 = 600;

/// Checks of the workload, by the path under which the kubelet asks for them.
pub type Checks = BTreeMap<String, Check>;

/// What the workload is asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    #[serde(flatten)]
    form: Form,
    timeout_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Form {
    HttpGet(HttpGet),
    TcpSocket(TcpSocket),
    Grpc(Grpc),
}

/// As in a Pod; the port is a number and there is no other host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpGet {
    #[serde(default)]
    path: String,
    port: u16,
    /// HTTP if it is empty.
    #[serde(default)]
    scheme: String,
    #[serde(default)]
    http_headers: Vec<HttpHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct HttpHeader {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct TcpSocket {
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Grpc {
    port: u16,
    #[serde(default)]
    service: String,
}

/// Reads the checks as injection writes them.
///
/// # Errors
/// They are no such JSON, or too many.
pub fn read(json: &str) -> anyhow::Result<Checks> {
    if json.is_empty() {
        return Ok(Checks::new());
    }
    let checks: Checks = serde_json::from_str(json)?;
    ensure!(checks.len() <= CHECKS_MAX, "there are over {CHECKS_MAX}");
    Ok(checks)
}

/// What can be asked.
pub struct Probes {
    /// Whether the proxy is ready.
    pub readiness: Readiness,
    /// What it counts.
    pub metrics: Metrics,
    /// The checks of the workload.
    pub checks: Checks,
    /// Where the workload is.
    pub pod: IpAddr,
}

impl Probes {
    /// Answers on a thread of its own, `from` when that is cancelled.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        self,
        listener: std::net::TcpListener,
        drain: &Drain,
        from: CancellationToken,
    ) -> anyhow::Result<()> {
        let drained = drain.holder();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (probes, under_way) = (Arc::new(self), Arc::new(Semaphore::new(UNDER_WAY_MAX)));
        let server = Server {
            tls: None,
            body_bytes_max: 0,
            answerer: Arc::new(move |question| -> Answering {
                let (probes, under_way) = (probes.clone(), under_way.clone());
                Box::pin(async move { probes.answer(&question, &under_way).await })
            }),
        };
        std::thread::Builder::new()
            .name("probes".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = from.cancelled() => {}
                        () = drained.signalled() => return,
                    }
                    match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => server.serve(listener, drained).await,
                        Err(error) => tracing::error!("probes are not answered: {error}"),
                    }
                });
            })?;
        Ok(())
    }

    async fn answer(&self, question: &Question, under_way: &Semaphore) -> Answer {
        let path = question.uri().path();
        if path == "/healthz" {
            return text(200, "ok\n");
        }
        if path == "/readyz" {
            let pending = self.readiness.pending();
            return match pending.is_empty() {
                true => text(200, "ready\n"),
                false => text(503, format!("waiting for {}\n", pending.join(", "))),
            };
        }
        if METRICS_PATHS.contains(&path) {
            let accept = question.headers().get(http::header::ACCEPT);
            let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
            let (content_type, body) = self.metrics.expose(accept);
            return typed(200, content_type, body);
        }
        let Some(check) = self.checks.get(path) else {
            return text(404, "there is no such check\n");
        };
        let Ok(_permit) = under_way.try_acquire() else {
            return text(503, "too many checks are under way\n");
        };
        let asker = question.headers().get(http::header::USER_AGENT);
        let timeout = check.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX);
        let asking = ask::ask(&check.form, self.pod, asker);
        match tokio::time::timeout(Duration::from_secs(timeout), asking).await {
            // What a redirect leads to is not followed: that it was answered is enough.
            Ok(Ok(200..400)) => text(200, "the workload is well\n"),
            Ok(Ok(status)) => text(status, Bytes::from_static(b"the workload says so\n")),
            Ok(Err(error)) => text(503, format!("{error:#}\n")),
            Err(_) => text(504, "the workload did not answer in time\n"),
        }
    }
}

/// Binds the address.
///
/// # Errors
/// It cannot be bound.
pub fn bind(
    address: std::net::SocketAddr,
    restart: Option<&mut Restart>,
) -> anyhow::Result<std::net::TcpListener> {
    let inherited = restart.and_then(|it| it.take(Role::Probes, address));
    let listener = match inherited {
        Some(file) => file.into(),
        None => std::net::TcpListener::bind(address)
            .with_context(|| format!("--probes {address}: cannot be bound"))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
