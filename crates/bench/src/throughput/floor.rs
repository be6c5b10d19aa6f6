//! The floor: what a proxy costs that has no policy at all. One thread and one epoll, a TLS
//! library, a header parser, a pool of connections to one upstream. Every path becomes `/`.
//!
//! It makes two reads and two writes for a request. What it leaves out is what a proxy is for:
//! routes, timeouts, limits, retries, balancing, records. So it is the limit, not a peer.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use super::traffic::flush;
use crate::poll::{Poll, Ready};

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct FloorArgs {
    /// A file with chain and key for each name.
    #[arg(long)]
    certificates: PathBuf,
    /// The address that requests go to.
    #[arg(long)]
    upstream: SocketAddr,
    /// The port of HTTPS.
    #[arg(long)]
    https: u16,
    /// The port of HTTP.
    #[arg(long)]
    http: u16,
}

/// The listeners of HTTPS and HTTP; other sockets are numbered after them.
const LISTENERS: usize = 2;

/// Header lines of a message.
const HEADERS_MAX: usize = 32;

/// The most bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// The longest message that waits for its end.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Certificates by name.
struct Names(HashMap<String, Arc<CertifiedKey>>);

/// One client, and what it waits for.
struct Client {
    pipe: Pipe,
    /// The part of a request that has come.
    begun: Vec<u8>,
    /// The number of the upstream connection that answers it.
    upstream: Option<usize>,
}

/// A connection to the upstream.
struct Upstream {
    pipe: Pipe,
    begun: Vec<u8>,
    /// The number of the client it answers; `None` while it is pooled.
    client: Option<usize>,
}

/// A socket, with or without TLS, and what it has not taken yet.
struct Pipe {
    socket: TcpStream,
    session: Option<Box<ServerConnection>>,
    unsent: Vec<u8>,
}

/// The owner of a number.
enum End {
    Client(Client),
    Upstream(Upstream),
}

struct Floor {
    poll: Poll,
    config: Arc<ServerConfig>,
    to: SocketAddr,
    ends: Vec<Option<End>>,
    free: Vec<usize>,
    /// Numbers that were freed just now, of which something may still be told.
    freed: Vec<usize>,
    pool: Vec<usize>,
    buffer: Vec<u8>,
    message: Vec<u8>,
}

/// Serves until it is killed.
///
/// # Errors
/// The errors of files and sockets.
pub fn run(args: &FloorArgs) -> anyhow::Result<()> {
    let https = TcpListener::bind((Ipv4Addr::LOCALHOST, args.https))?;
    let http = TcpListener::bind((Ipv4Addr::LOCALHOST, args.http))?;
    let mut floor = Floor {
        poll: Poll::new()?,
        config: config(&args.certificates)?,
        to: args.upstream,
        ends: Vec::new(),
        free: Vec::new(),
        freed: Vec::new(),
        pool: Vec::new(),
        buffer: vec![0; READ_BYTES],
        message: Vec::new(),
    };
    floor.serve(&[https, http])
}

fn config(certificates: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let mut names = HashMap::new();
    for file in std::fs::read_dir(certificates)? {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let name = name.context("a name")?.to_owned();
        let text = std::fs::read(&path)?;
        let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(&text).context("a key")?;
        let key = provider.key_provider.load_private_key(key)?;
        let certified = CertifiedKey::new(chain.context("a chain")?, key);
        names.insert(name, Arc::new(certified));
    }
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Names(names)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

impl Floor {
    fn serve(&mut self, listeners: &[TcpListener]) -> anyhow::Result<()> {
        for (number, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            self.poll.add_listener(listener, number)?;
        }
        let mut ready = Ready::new();
        loop {
            self.poll.wait(&mut ready, None)?;
            for (number, _) in ready.all() {
                match number.checked_sub(LISTENERS) {
                    None => self.accept(&listeners[number], number == 0)?,
                    Some(at) => {
                        if self.advance(at).is_err() {
                            self.close(at);
                        }
                    }
                }
            }
            self.free.append(&mut self.freed);
        }
    }

    fn accept(&mut self, listener: &TcpListener, is_tls: bool) -> anyhow::Result<()> {
        while let Ok((socket, _)) = listener.accept() {
            let session = match is_tls {
                true => Some(Box::new(ServerConnection::new(self.config.clone())?)),
                false => None,
            };
            self.seat(End::Client(Client {
                pipe: Pipe::new(socket, session)?,
                begun: Vec::new(),
                upstream: None,
            }))?;
        }
        Ok(())
    }

    /// Finds a number for somebody, who is watched from now on.
    fn seat(&mut self, end: End) -> io::Result<usize> {
        let at = self.free.pop().unwrap_or(self.ends.len());
        if at == self.ends.len() {
            self.ends.push(None);
        }
        self.poll.add(&end.pipe().socket, LISTENERS + at)?;
        self.ends[at] = Some(end);
        Ok(at)
    }

    fn advance(&mut self, at: usize) -> io::Result<()> {
        let Some(end) = &mut self.ends[at] else {
            return Ok(());
        };
        end.pipe_mut().flush()?;
        loop {
            let read = match end.pipe_mut().read(&mut self.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => &self.buffer[..read],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            // What comes after a whole message is told of again.
            match end {
                End::Client(client) => {
                    join(&mut client.begun, read)?;
                    if rewrite(&client.begun, &mut self.message)? {
                        client.begun.clear();
                        return self.ask(at);
                    }
                }
                End::Upstream(upstream) => {
                    join(&mut upstream.begun, read)?;
                    if is_whole(&upstream.begun)? {
                        return self.answer(at);
                    }
                }
            }
        }
    }

    /// Sends the request that was made to a pooled connection, or a new one.
    fn ask(&mut self, from: usize) -> io::Result<()> {
        let at = match self.pool.pop() {
            Some(at) => at,
            None => self.seat(End::Upstream(Upstream {
                pipe: Pipe::new(TcpStream::connect(self.to)?, None)?,
                begun: Vec::new(),
                client: None,
            }))?,
        };
        if let Some(End::Client(client)) = &mut self.ends[from] {
            client.upstream = Some(at);
        }
        let Some(End::Upstream(upstream)) = &mut self.ends[at] else {
            return Err(ErrorKind::NotConnected.into());
        };
        upstream.client = Some(from);
        upstream.pipe.send(&self.message)
    }

    /// Hands an answer to who asked, unless it has gone, and pools who gave it.
    fn answer(&mut self, from: usize) -> io::Result<()> {
        let Some(End::Upstream(upstream)) = &mut self.ends[from] else {
            return Ok(());
        };
        let at = upstream.client.take();
        std::mem::swap(&mut self.message, &mut upstream.begun);
        upstream.begun.clear();
        self.pool.push(from);
        if let Some(at) = at
            && let Some(End::Client(client)) = &mut self.ends[at]
        {
            client.upstream = None;
            if client.pipe.send(&self.message).is_err() {
                self.close(at);
            }
        }
        Ok(())
    }

    /// Closes one end, and with it the other if they wait for each other.
    fn close(&mut self, at: usize) {
        let Some(end) = self.ends[at].take() else {
            return;
        };
        self.freed.push(at);
        let other = match end {
            End::Client(client) => client.upstream,
            End::Upstream(upstream) => upstream.client,
        };
        match other {
            Some(other) => self.close(other),
            None => self.pool.retain(|&pooled| pooled != at),
        }
    }
}

impl End {
    fn pipe(&self) -> &Pipe {
        match self {
            End::Client(client) => &client.pipe,
            End::Upstream(upstream) => &upstream.pipe,
        }
    }

    fn pipe_mut(&mut self) -> &mut Pipe {
        match self {
            End::Client(client) => &mut client.pipe,
            End::Upstream(upstream) => &mut upstream.pipe,
        }
    }
}

impl Pipe {
    fn new(socket: TcpStream, session: Option<Box<ServerConnection>>) -> io::Result<Pipe> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Pipe {
            socket,
            session,
            unsent: Vec::new(),
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(session) = &mut self.session else {
                return (&self.socket).read(buffer);
            };
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if session.read_tls(&mut &self.socket)? == 0 {
                return Ok(0);
            }
            let processed = session.process_new_packets();
            self.flush()?;
            processed.map_err(io::Error::other)?;
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.writer().write_all(bytes)?,
            None if self.unsent.is_empty() => {
                let written = match (&self.socket).write(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                    written => written?,
                };
                self.unsent.extend_from_slice(&bytes[written..]);
                return Ok(());
            }
            None => self.unsent.extend_from_slice(bytes),
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let session = self.session.as_deref_mut().map(|session| &mut **session);
        flush(&self.socket, session, &mut self.unsent)
    }
}

/// Adds what has come of a message to what came before.
fn join(begun: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    begun.extend_from_slice(bytes);
    match begun.len() > MESSAGE_BYTES_MAX {
        true => Err(ErrorKind::InvalidData.into()),
        false => Ok(()),
    }
}

/// Writes the request for the upstream; not yet if its end has not come.
fn rewrite(request: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    if parsed
        .parse(request)
        .map_err(io::Error::other)?
        .is_partial()
    {
        return Ok(false);
    }
    into.clear();
    into.extend_from_slice(parsed.method.unwrap_or_default().as_bytes());
    into.extend_from_slice(b" / HTTP/1.1\r\n");
    for header in parsed.headers.iter() {
        into.extend_from_slice(header.name.as_bytes());
        into.extend_from_slice(b": ");
        into.extend_from_slice(header.value);
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
    Ok(true)
}

/// Whether an answer has come to its end.
fn is_whole(answer: &[u8]) -> io::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let parsing = parsed.parse(answer).map_err(io::Error::other)?;
    let httparse::Status::Complete(head_bytes) = parsing else {
        return Ok(false);
    };
    let mut headers = parsed.headers.iter();
    let length = headers.find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    let length: usize = length.ok_or(ErrorKind::InvalidData)?;
    Ok(answer.len() >= head_bytes + length)
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(hello.server_name()?).cloned()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} names", self.0.len())
    }
}
