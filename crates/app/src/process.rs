//! What every process that goes on has: admin pages, a random key, signals that end it.

use std::net::SocketAddr;

use anyhow::Context;
use myriad_admin::{Admin, Page};
use myriad_api::{ObjectKey, Place};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::board::Board;

/// Finds the file of an object, where there are files.
pub type Locate = Box<dyn Fn(&ObjectKey) -> Option<Place> + Send + Sync>;

/// Binds the admin address.
///
/// # Errors
/// It cannot be bound.
pub fn bind_admin(address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)
        .with_context(|| format!("--admin {address}: cannot be bound"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the admin pages on a thread of their own: a dump of a large board must not delay a
/// change.
///
/// # Errors
/// The thread cannot be started.
pub fn start_admin(
    listener: std::net::TcpListener,
    readiness: Readiness,
    metrics: Metrics,
    board: Board,
    locate: Locate,
    drain: &Drain,
) -> anyhow::Result<()> {
    let admin = Admin::new(readiness)
        .page(Page {
            path: "/metrics",
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            render: Box::new(move || metrics.encode()),
        })
        .page(Page {
            path: "/config",
            content_type: "application/json",
            render: Box::new(move || board.dump(&locate)),
        });
    let drained = drain.holder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                admin.serve(listener, drained).await
            })
        })?;
    Ok(())
}

/// A key that nobody can guess.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_key() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let filled = provider.secure_random.fill(&mut key);
    filled.map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
    Ok(key)
}

/// What the process is called, for people: the name of a Pod is that of its host.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// The signals that ask a process to end: SIGTERM and SIGINT.
pub struct Stop {
    term: Signal,
}

impl Stop {
    /// Listens from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen() -> std::io::Result<Stop> {
        let term = signal(SignalKind::terminate())?;
        Ok(Stop { term })
    }

    /// Waits for one.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}
