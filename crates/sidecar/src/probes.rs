//! Answers to questions from outside of the mesh, on an address that no rule leads away: the
//! sidecar's own health, its metrics, and the kubelet's checks of the workload, which the proxy
//! does in the kubelet's place.

mod ask;
mod check;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use myriad_admin::server::{Answer, Answering, Question, Server, accept, readiness, text, typed};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use check::{Check, Checks, read};

/// The paths of metrics; the second is where Istio's proxies have them.
const METRICS_PATHS: [&str; 2] = ["/metrics", "/stats/prometheus"];

/// The most checks under way at once.
const UNDER_WAY_MAX: usize = 64;

/// The longest that a check may take.
const TIMEOUT_SECONDS_MAX: u64 = 600;

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
            return readiness(&self.readiness);
        }
        if METRICS_PATHS.contains(&path) {
            let (content_type, body) = self.metrics.expose(accept(question));
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
