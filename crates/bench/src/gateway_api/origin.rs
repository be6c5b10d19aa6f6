//! An endpoint that can fail and come back: nobody listens meanwhile, and its connections are cut.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as Listener, TcpStream as Probe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// How long it may take to fail or to come back.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// An endpoint, on a thread that ends with it.
pub(super) struct Origin {
    pub address: SocketAddr,
    answered: Arc<AtomicU64>,
    is_up: watch::Sender<bool>,
}

/// The part of it that answers.
#[derive(Clone)]
struct Answers {
    response: Arc<[u8]>,
    answered: Arc<AtomicU64>,
}

impl Origin {
    /// Starts one that answers every path with its name.
    pub(super) fn start(address: IpAddr, name: &str) -> anyhow::Result<Origin> {
        let listener = Listener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let length = name.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
        let answers = Answers {
            response: response.into_bytes().into(),
            answered: Arc::default(),
        };
        let answered = answers.answered.clone();
        let (is_up, wanted) = watch::channel(true);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("origin".to_owned());
        thread.spawn(move || runtime.block_on(serve(listener, address, wanted, answers)))?;
        Ok(Origin {
            address,
            answered,
            is_up,
        })
    }

    /// How many requests it has answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Lets it fail or come back, and waits until it has.
    pub(super) fn set_up(&self, is_up: bool) -> anyhow::Result<()> {
        self.is_up.send(is_up)?;
        let start = Instant::now();
        while Probe::connect(self.address).is_ok() != is_up {
            let is_late = start.elapsed() > CHANGE_TIMEOUT;
            ensure!(!is_late, "an endpoint neither fails nor comes back");
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

async fn serve(
    first: Listener,
    address: SocketAddr,
    mut wanted: watch::Receiver<bool>,
    answers: Answers,
) -> io::Result<()> {
    let mut first = Some(first);
    loop {
        if !*wanted.borrow_and_update() {
            if wanted.changed().await.is_err() {
                return Ok(());
            }
            continue;
        }
        let listener = match first.take() {
            Some(first) => TcpListener::from_std(first)?,
            None => TcpListener::bind(address).await?,
        };
        // They go, and the listener goes, when it fails.
        let mut visitors = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    visitors.spawn(answer(accepted?.0, answers.clone()));
                }
                changed = wanted.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    break;
                }
            }
        }
    }
}

/// Answers the requests of one connection, which have no bodies.
async fn answer(mut stream: TcpStream, answers: Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    loop {
        while let Some(end) = memmem::find(&bytes, b"\r\n\r\n") {
            bytes.drain(..end + 4);
            answers.answered.fetch_add(1, Ordering::Relaxed);
            stream.write_all(&answers.response).await?;
        }
        if bytes.len() > HEAD_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
}
