//! Hot restart: a process takes over the listening sockets of the one before, which then drains.
//!
//! A new process asks the one that listens at the path of `--restart-socket`, is given copies of
//! its sockets, and says when it is live; until then the process before goes on as if nothing was.
//! Connections that nobody has accepted yet wait in the sockets, so that none is lost. Flows of
//! datagrams begin anew with the next process; the one before hands on what endpoints still answer.

pub mod message;
mod wire;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use myriad_base::drain::Drain;
use myriad_base::metrics::{Counter, Metrics};
use myriad_base::readiness::Readiness;
use myriad_model::CaptureDirection;
use myriad_proxy::{Inherited, SocketRole, Sockets, TicketSecret};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

pub use message::Role;
use message::{Message, SOCKETS_MAX, SOCKETS_PER_MESSAGE_MAX};

/// How long the other process may take for an answer that it has at hand.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a process that connects may take to say that it wants the sockets, which is the first
/// that it does. Others wait meanwhile, and no longer than [`ANSWER_TIMEOUT`].
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a process that was given the sockets may say nothing while another one asks for them.
/// The newer one takes its place then, in time for its own [`ANSWER_TIMEOUT`].
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long a process may take to become live, before its predecessor gives it up.
const LIVE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The sockets and keys that a process was given by the one before, if there was one.
pub struct Restart {
    path: PathBuf,
    /// The process before, which waits to hear that this one is live.
    predecessor: Option<Socket>,
    /// Sockets that are not the proxy's.
    own: VecDeque<(Role, OwnedFd)>,
    taken: usize,
    over: CancellationToken,
}

/// The sockets that the next process is given.
pub struct Offer {
    /// The proxy's sockets.
    pub sockets: Sockets,
    /// Sockets of this process that are not the proxy's.
    pub own: Vec<(Role, OwnedFd)>,
    /// Ends what answers at the admin address, which the next process does from then on.
    pub admin: Drain,
    /// The readiness that this process tells where it is asked.
    pub readiness: Readiness,
    /// Says that nothing shall be written to files that the next process writes too.
    pub is_suspended: Arc<AtomicBool>,
}

/// A process that can be taken over from.
pub struct Succession {
    path: PathBuf,
    over: CancellationToken,
    stop: CancellationToken,
}

#[derive(Clone, Default)]
struct Counters {
    sockets_taken: Counter,
    handed_over: Counter,
    failed: Counter,
}

/// A token that is cancelled already.
pub fn at_once() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// Asks the process that listens at the path of the setting, if there is one, for its sockets.
///
/// # Errors
/// There is one that gives none, or it is somebody else's.
pub fn begin(path: Option<&Path>) -> anyhow::Result<(Option<Restart>, Option<Inherited>)> {
    let Some(path) = path else {
        return Ok((None, None));
    };
    let (restart, inherited) = Restart::begin(path)?;
    Ok((Some(restart), inherited))
}

impl Restart {
    fn begin(path: &Path) -> anyhow::Result<(Restart, Option<Inherited>)> {
        let mut restart = Restart {
            path: path.to_owned(),
            predecessor: None,
            own: VecDeque::new(),
            taken: 0,
            over: CancellationToken::new(),
        };
        let Some(socket) = connect(path)? else {
            return Ok((restart, None));
        };
        let inherited = restart.receive(&socket);
        let inherited = inherited.with_context(|| {
            let path = path.display();
            format!("--restart-socket {path}: the process before gives no sockets")
        })?;
        restart.predecessor = Some(socket);
        Ok((restart, Some(inherited)))
    }

    fn receive(&mut self, socket: &Socket) -> anyhow::Result<Inherited> {
        wire::send(socket, &Message::Hello, &[])?;
        let mut sockets = Vec::new();
        loop {
            match wire::receive(socket)? {
                (Message::Sockets(roles), files) => {
                    self.taken += files.len();
                    ensure!(self.taken <= SOCKETS_MAX, "it gives over {SOCKETS_MAX}");
                    for (role, file) in roles.into_iter().zip(files) {
                        check(role, &file)?;
                        match role.of_proxy() {
                            Some(role) => sockets.push((role, file)),
                            None => self.own.push_back((role, file)),
                        }
                    }
                }
                (
                    Message::End {
                        sockets: all,
                        secrets,
                    },
                    _,
                ) => {
                    ensure!(self.taken == all as usize, "some got lost on the way");
                    let tickets = secrets
                        .into_iter()
                        .map(|(since, bytes)| TicketSecret { since, bytes });
                    let tickets = tickets.collect();
                    tracing::info!(sockets = all, "taken over from the process before");
                    return Ok(Inherited { sockets, tickets });
                }
                _ => bail!("it says something else"),
            }
        }
    }

    /// The socket of a role, if the process before had one at this address; port 0 is whichever
    /// port that was.
    pub fn take(&mut self, role: Role, address: SocketAddr) -> Option<OwnedFd> {
        let is_it = |(own, file): &(Role, OwnedFd)| {
            let local = local_address(file);
            *own == role
                && local.is_some_and(|local| {
                    let port = address.port();
                    local.ip() == address.ip() && (port == 0 || port == local.port())
                })
        };
        let place = self.own.iter().position(is_it)?;
        self.own.remove(place).map(|(_, file)| file)
    }

    /// When questions to this process are answered: at once, or from when it is live where the
    /// process before answers them until then.
    pub fn answers_from(&self, is_live: &CancellationToken) -> CancellationToken {
        let from = is_live.clone();
        match self.predecessor {
            Some(_) => from,
            None => at_once(),
        }
    }

    /// Cancelled once another process has taken over from this one.
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// On a thread of its own: waits until this process is live, tells the one before, and then
    /// listens for the next one.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn go_on(
        self,
        offer: Offer,
        is_live: CancellationToken,
        metrics: &Metrics,
    ) -> anyhow::Result<Succession> {
        let counters = Counters::default();
        counters.register(metrics);
        counters.sockets_taken.inc_by(self.taken as u64);
        let succession = Succession {
            path: self.path.clone(),
            over: self.over.clone(),
            stop: CancellationToken::new(),
        };
        let (over, stop) = (succession.over.clone(), succession.stop.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let keeper = Keeper {
            restart: self,
            offer,
            counters,
        };
        let keeping = async move {
            tokio::select! {
                () = is_live.cancelled() => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                kept = keeper.keep() => match kept {
                    Ok(()) => over.cancel(),
                    Err(error) => tracing::error!("nobody can take over: {error:#}"),
                },
                () = stop.cancelled() => {}
            }
        };
        std::thread::Builder::new()
            .name("restart".to_owned())
            .spawn(move || runtime.block_on(keeping))?;
        Ok(succession)
    }
}

impl Drop for Succession {
    fn drop(&mut self) {
        self.stop.cancel();
        // By then the path is that of the process that took over.
        if !self.over.is_cancelled() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Counters {
    /// Notes that a process asked in vain.
    fn fail(&self, error: &anyhow::Error) {
        self.failed.inc();
        tracing::warn!("another process asked for the sockets, in vain: {error:#}");
    }

    fn register(&self, metrics: &Metrics) {
        let taken = self.sockets_taken.clone();
        let help = "Listening sockets taken over from the process before";
        metrics.register("restart_sockets_taken", help, taken);
        let help = "Times that a next process took over";
        metrics.register("restart_handed_over", help, self.handed_over.clone());
        let help = "Times that a next process asked for the sockets and did not get live";
        metrics.register("restart_failed", help, self.failed.clone());
    }
}

/// The state of the thread.
struct Keeper {
    restart: Restart,
    offer: Offer,
    counters: Counters,
}

impl Keeper {
    /// Returns once another process has taken over.
    async fn keep(mut self) -> anyhow::Result<()> {
        if let Some(predecessor) = self.restart.predecessor.take() {
            let path = self.restart.path.clone();
            let told = tokio::task::spawn_blocking(move || {
                let told = succeed(&predecessor);
                let is_late = told.as_ref().is_err_and(|error| is_late(&path, error));
                (told, is_late)
            });
            match told.await? {
                (Ok(()), _) => tracing::info!("the process before drains"),
                // Two would serve, and write the same files.
                (Err(_), true) => {
                    tracing::error!("another process has the place of this one: it drains");
                    self.leave();
                    return Ok(());
                }
                // Whatever became of it: this process is live.
                (Err(error), _) => tracing::warn!("the process before says nothing: {error:#}"),
            }
        }
        let listening = listen(&self.restart.path)?;
        let mut next: Option<UnixStream> = None;
        loop {
            let socket = match next.take() {
                Some(asking) => asking,
                None => asker(&listening, &self.counters).await?,
            };
            let others = newer(&listening, &self.counters, SILENCE_MAX);
            let error = match outlast(self.hand_over(&socket), others).await {
                Ok(None) => {
                    self.succeed(&socket).await;
                    return Ok(());
                }
                Ok(asking) => {
                    next = asking;
                    anyhow!("it says nothing, and a newer one asks")
                }
                Err(error) => error,
            };
            self.offer.is_suspended.store(false, Ordering::Release);
            self.counters.fail(&error);
        }
    }

    /// Gives everything to a process, and waits until it is live.
    async fn hand_over(&self, socket: &UnixStream) -> anyhow::Result<()> {
        tracing::info!("another process takes over");
        self.offer.is_suspended.store(true, Ordering::Release);
        tokio::time::timeout(ANSWER_TIMEOUT, self.give(socket))
            .await
            .context("it does not take them")??;
        let live = tokio::time::timeout(LIVE_TIMEOUT, receive(socket));
        match live.await.context("it did not get live")?? {
            Message::Live => Ok(()),
            _ => bail!("it does not say that it is live"),
        }
    }

    /// A process is live: from here on it is the one, whether or not it hears this.
    async fn succeed(&self, socket: &UnixStream) {
        self.counters.handed_over.inc();
        self.leave();
        if let Err(error) = send(socket, &Message::Draining, &[]).await {
            tracing::warn!("the process that took over is not told: {error:#}");
        }
    }

    /// Leaves everything to the process that is live from here on.
    fn leave(&self) {
        self.offer.is_suspended.store(true, Ordering::Release);
        self.offer.readiness.hand_over();
        self.offer.sockets.succeed();
        self.offer.admin.start();
    }

    async fn give(&self, socket: &UnixStream) -> anyhow::Result<()> {
        let mut all: Vec<(Role, OwnedFd)> = Vec::new();
        for (role, copy) in self.offer.sockets.copies()? {
            all.push((Role::from_proxy(role), copy));
        }
        for (role, file) in &self.offer.own {
            all.push((*role, file.try_clone()?));
        }
        ensure!(all.len() <= SOCKETS_MAX, "there are over {SOCKETS_MAX}");
        for some in all.chunks(SOCKETS_PER_MESSAGE_MAX) {
            let roles = some.iter().map(|(role, _)| *role).collect();
            let files: Vec<_> = some.iter().map(|(_, file)| file.as_fd()).collect();
            send(socket, &Message::Sockets(roles), &files).await?;
        }
        let secrets = self.offer.sockets.tickets().into_iter();
        let end = Message::End {
            sockets: u32::try_from(all.len())?,
            secrets: secrets.map(|it| (it.since, it.bytes)).collect(),
        };
        send(socket, &end, &[]).await
    }
}

/// The next process that asks for the sockets. One that only connects keeps no other waiting.
async fn asker(listening: &UnixListener, counters: &Counters) -> anyhow::Result<UnixStream> {
    loop {
        let (socket, _) = listening.accept().await.context("nobody can ask")?;
        match greeted(&socket).await {
            Ok(()) => return Ok(socket),
            Err(error) => counters.fail(&error),
        }
    }
}

async fn greeted(socket: &UnixStream) -> anyhow::Result<()> {
    check_peer(socket)?;
    let hello = tokio::time::timeout(HELLO_TIMEOUT, receive(socket));
    match hello.await.context("it says nothing")?? {
        Message::Hello => Ok(()),
        _ => bail!("it does not say what it wants"),
    }
}

/// A process that asks while another one has the sockets, no earlier than after so long.
async fn newer(
    listening: &UnixListener,
    counters: &Counters,
    silence_max: Duration,
) -> anyhow::Result<UnixStream> {
    let silence = tokio::time::sleep(silence_max);
    let asking = asker(listening, counters).await?;
    silence.await;
    Ok(asking)
}

/// Waits until a process is live; where a newer one takes its place before that, that one.
async fn outlast(
    hand_over: impl Future<Output = anyhow::Result<()>>,
    newer: impl Future<Output = anyhow::Result<UnixStream>>,
) -> anyhow::Result<Option<UnixStream>> {
    tokio::select! {
        biased;
        lives = hand_over => lives.map(|()| None),
        asking = newer => asking.map(Some),
    }
}

async fn receive(socket: &UnixStream) -> anyhow::Result<Message> {
    loop {
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || wire::receive(socket)) {
            // Whatever files came along are closed.
            Ok((message, _)) => return Ok(message),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn send(
    socket: &UnixStream,
    message: &Message,
    files: &[BorrowedFd<'_>],
) -> anyhow::Result<()> {
    loop {
        socket.writable().await?;
        let send = || wire::send(socket, message, files);
        match socket.try_io(Interest::WRITABLE, send) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells the process before that this one is live.
fn succeed(predecessor: &Socket) -> anyhow::Result<()> {
    wire::send(predecessor, &Message::Live, &[])?;
    match wire::receive(predecessor)? {
        (Message::Draining, _) => Ok(()),
        _ => bail!("it says something else"),
    }
}

/// Whether the process before has closed the connection, since this one took too long, and somebody
/// serves all the same.
fn is_late(path: &Path, error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    let is_closed = error.is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    });
    is_closed && matches!(connect(path), Ok(Some(_)))
}

/// A connection to whoever listens at a path; none where nobody does.
fn connect(path: &Path) -> anyhow::Result<Option<Socket>> {
    let name = || format!("--restart-socket {}", path.display());
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    match socket.connect(&SockAddr::unix(path).with_context(name)?) {
        Ok(()) => {}
        Err(error) => {
            // A process that was killed leaves its path behind.
            return match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error).with_context(name),
            };
        }
    }
    check_peer(&socket).with_context(name)?;
    Ok(Some(socket))
}

/// Listens at a path, in the place of whoever did before.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let name = || format!("--restart-socket {}", path.display());
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(name);
        }
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.bind(&SockAddr::unix(&aside)?).with_context(name)?;
    // Nobody can connect before it is listened on, and by then nobody else may.
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).with_context(name)?;
    socket.listen(1)?;
    socket.set_nonblocking(true)?;
    std::fs::rename(&aside, path).with_context(name)?;
    // It keeps the bounds of messages, unlike what the type is meant for; accepting, waiting and
    // closing are the same.
    let listener = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
    Ok(UnixListener::from_std(listener)?)
}

/// Only processes of the same user give sockets to each other.
fn check_peer(socket: impl AsFd) -> anyhow::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    ensure!(
        peer.uid == rustix::process::geteuid(),
        "the other process is another user's"
    );
    Ok(())
}

/// Whether a file is the socket that it is said to be.
fn check(role: Role, file: &OwnedFd) -> anyhow::Result<()> {
    use rustix::net::{SocketType, sockopt};
    let expected = match role {
        Role::Datagrams => SocketType::DGRAM,
        _ => SocketType::STREAM,
    };
    let is_expected = sockopt::socket_type(file).is_ok_and(|it| it == expected);
    let is_listening = sockopt::socket_acceptconn(file).unwrap_or(false);
    ensure!(
        is_expected && local_address(file).is_some() && is_listening == role.is_listening(),
        "a socket is not what it is said to be"
    );
    Ok(())
}

fn local_address(file: &OwnedFd) -> Option<SocketAddr> {
    socket2::SockRef::from(file).local_addr().ok()?.as_socket()
}

impl Role {
    fn of_proxy(self) -> Option<SocketRole> {
        match self {
            Role::Listener => Some(SocketRole::Listener),
            Role::Outbound => Some(SocketRole::Capture(CaptureDirection::Outbound)),
            Role::Inbound => Some(SocketRole::Capture(CaptureDirection::Inbound)),
            Role::Datagrams => Some(SocketRole::Datagrams),
            Role::Admin | Role::Probes | Role::Http | Role::Https => None,
        }
    }

    fn from_proxy(role: SocketRole) -> Role {
        match role {
            SocketRole::Listener => Role::Listener,
            SocketRole::Capture(CaptureDirection::Outbound) => Role::Outbound,
            SocketRole::Capture(CaptureDirection::Inbound) => Role::Inbound,
            SocketRole::Datagrams => Role::Datagrams,
        }
    }
}

#[cfg(test)]
mod tests;
