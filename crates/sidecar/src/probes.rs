//! Answers to questions from outside of the mesh, on an address that no rule leads away: the
//! sidecar's own health, its metrics, and the kubelet's checks of the workload, which the proxy
//! does in the kubelet's place.

mod ask;
mod check;
mod shared;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::HeaderValue;
use myriad_admin::server::{
    Answer, Answering, Question, Server, Source, accept, readiness, text, typed,
};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use tokio_util::sync::CancellationToken;

pub use check::{Check, Checks, read};
use shared::{FRESH_FOR, Outcome, SharedChecks};

/// The paths of metrics; the second is where Istio's proxies have them.
const METRICS_PATHS: [&str; 2] = ["/metrics", "/stats/prometheus"];

/// The longest that a check may take.
const TIMEOUT_SECONDS_MAX: u64 = 600;

/// How the user agent of a kubelet begins; the version of Kubernetes follows.
const KUBELET: &str = "kube-probe/";

/// The longest version, in bytes.
const VERSION_BYTES_MAX: usize = 32;

/// The checks and pages that a sidecar answers.
pub struct Probes {
    /// Whether the proxy is ready.
    pub readiness: Readiness,
    /// Its counters.
    pub metrics: Metrics,
    /// The checks of the workload.
    pub checks: Checks,
    /// The address of the workload.
    pub pod: IpAddr,
    /// Whether somebody at an address may read the counters: they tell who calls the workload, and
    /// whom it calls.
    pub may_read_metrics: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl Probes {
    /// Answers on a thread of its own, `from` when that is cancelled.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        self,
        listener: TcpListener,
        drain: &Drain,
        from: CancellationToken,
    ) -> anyhow::Result<()> {
        let drained = drain.holder();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (probes, shared) = (Arc::new(self), Arc::new(SharedChecks::new(FRESH_FOR)));
        let server = Server {
            tls: None,
            body_bytes_max: 0,
            answerer: Arc::new(move |question| -> Answering {
                let (probes, shared) = (probes.clone(), shared.clone());
                Box::pin(async move { probes.answer(&question, &shared).await })
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

    async fn answer(&self, question: &Question, shared: &SharedChecks) -> Answer {
        let path = question.uri().path();
        if path == "/healthz" {
            return text(200, "ok\n");
        }
        if path == "/readyz" {
            return readiness(&self.readiness);
        }
        if METRICS_PATHS.contains(&path) && !self.is_reader(question) {
            return text(
                403,
                "metrics are not for this address: see --probes-metrics-from\n",
            );
        }
        if METRICS_PATHS.contains(&path) {
            let (content_type, body) = self.metrics.expose(accept(question));
            return typed(200, content_type, body);
        }
        let Some(check) = self.checks.get(path) else {
            return text(404, "there is no such check\n");
        };
        let asker = asker(question);
        let check = || outcome(check.clone(), self.pod, asker);
        match shared.outcome(path, check).await {
            Some((status, said)) => text(status, said),
            None => text(503, "the check came to no end\n"),
        }
    }

    /// Whether whoever asks may read the counters.
    fn is_reader(&self, question: &Question) -> bool {
        let source = question.extensions().get::<Source>();
        source.is_some_and(|Source(address)| (self.may_read_metrics)(*address))
    }
}

/// Checks the workload.
async fn outcome(check: Check, pod: IpAddr, asker: HeaderValue) -> Outcome {
    let timeout = check.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX);
    let asking = ask::ask(&check.form, pod, &asker);
    match tokio::time::timeout(Duration::from_secs(timeout), asking).await {
        // What a redirect leads to is not followed: that it was answered is enough.
        Ok(Ok(200..400)) => (200, Bytes::from_static(b"the workload is well\n")),
        Ok(Ok(status)) => (status, Bytes::from_static(b"the workload says so\n")),
        Ok(Err(error)) => (503, format!("{error:#}\n").into()),
        Err(_) => (504, "the workload did not answer in time\n".into()),
    }
}

/// The user agent that the workload is shown: that of a kubelet, since others are told the same,
/// and the workload could answer anybody else otherwise.
fn asker(question: &Question) -> HeaderValue {
    let named = question.headers().get(http::header::USER_AGENT);
    let is_kubelet = named.is_some_and(|named| {
        let version = named.as_bytes().strip_prefix(KUBELET.as_bytes());
        version.is_some_and(|version| {
            let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b".+-".contains(byte);
            version.len() <= VERSION_BYTES_MAX && version.iter().all(is_fit)
        })
    });
    let named = named.filter(|_| is_kubelet).cloned();
    named.unwrap_or(HeaderValue::from_static(KUBELET))
}

/// Binds the address, unless the socket was left by the process before.
///
/// # Errors
/// It cannot be bound.
pub fn bind(address: SocketAddr, inherited: Option<OwnedFd>) -> anyhow::Result<TcpListener> {
    let listener = match inherited {
        Some(file) => file.into(),
        None => TcpListener::bind(address)
            .with_context(|| format!("--probes {address}: cannot be bound"))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
