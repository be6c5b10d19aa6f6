//! A relay between two parts, on which a story can hold back, cut, or lead elsewhere what passes.
//! In front of controllers it is what a Service's address is to proxies.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes TCP connections on; it ends when dropped.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    target: watch::Sender<SocketAddr>,
    is_held: watch::Sender<bool>,
    /// Connections of an earlier number are cut.
    cuts: watch::Sender<u64>,
    /// How many bytes of an answer pass on each connection.
    answer_bytes_max: AtomicU64,
    broken_off: AtomicUsize,
}

impl Relay {
    /// Listens on a port of this address and leads to that one.
    ///
    /// # Panics
    /// Where the address is not of this machine.
    pub async fn start(at: std::net::IpAddr, target: SocketAddr) -> Relay {
        let listener = TcpListener::bind((at, 0)).await.expect("a port");
        let shared = Arc::new(Shared {
            target: watch::Sender::new(target),
            is_held: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            answer_bytes_max: AtomicU64::new(u64::MAX),
            broken_off: AtomicUsize::new(0),
        });
        Relay {
            address: listener.local_addr().expect("an address"),
            task: tokio::spawn(accept(listener, shared.clone())),
            shared,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to another address from now on, and cuts what led to the one before.
    pub fn lead_to(&self, target: SocketAddr) {
        self.lead_next_to(target);
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Leads connections of the future to another address, as a Service does that has one endpoint
    /// less.
    pub fn lead_next_to(&self, target: SocketAddr) {
        self.shared.target.send_replace(target);
    }

    /// Keeps back what is answered, on every connection, until [`Relay::release`].
    pub fn hold(&self) {
        self.shared.is_held.send_replace(true);
    }

    /// Passes on what was kept back, and all that follows.
    pub fn release(&self) {
        self.shared.is_held.send_replace(false);
    }

    /// Cuts each connection of the future after so many bytes of answers.
    pub fn break_off_after(&self, bytes: u64) {
        let max = &self.shared.answer_bytes_max;
        max.store(bytes, Ordering::SeqCst);
    }

    /// How many connections it has cut because of that.
    pub fn broken_off(&self) -> usize {
        self.shared.broken_off.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass(client, shared.clone()));
    }
}

async fn pass(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut cuts = shared.cuts.subscribe();
    let target = *shared.target.borrow();
    let server = TcpStream::connect(target).await?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let asked = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let answered = answer(from_server, to_client, &shared);
    let both = async { tokio::try_join!(asked, answered) };
    tokio::select! {
        ended = both => ended.map(drop),
        // Whether it was cut or the relay is gone, the connection ends.
        _ = cuts.changed() => Ok(()),
    }
}

async fn answer(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    let mut is_held = shared.is_held.subscribe();
    let mut buffer = vec![0; 16 << 10];
    let mut left = shared.answer_bytes_max.load(Ordering::SeqCst);
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        is_held
            .wait_for(|is_held| !is_held)
            .await
            .map_err(io::Error::other)?;
        let passing = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        to.write_all(&buffer[..passing]).await?;
        left -= passing as u64;
        if left == 0 {
            shared.broken_off.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}
