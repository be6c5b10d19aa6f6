//! The control plane: gRPC streams on which Envoy asks, and is told of what it has asked for.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::protobuf::{Message, Value, fields};
use super::resources::{Kind, host_name};
use super::store::{Change, Store};
use crate::domains::Domain;

/// The longest request that is read.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Responses of a stream that may wait.
const QUEUE_RESPONSES_MAX: usize = 4_096;

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A control plane, on a thread that ends with the process.
pub(super) struct Plane {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    store: Store,
    streams: Vec<Stream>,
    /// Why Envoy refused a response, if it did.
    refused: Option<String>,
    /// Bytes of all responses.
    sent: u64,
}

/// A stream, and the names that were asked for on it.
struct Stream {
    queue: mpsc::Sender<Bytes>,
    names: HashSet<(Kind, String)>,
}

/// A request: names that are asked for from now on, and those that are no more.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    kind: Option<Kind>,
    names: Vec<String>,
    left: Vec<String>,
    /// Whether it is the answer to a response.
    is_answer: bool,
    /// Why that was refused.
    refused: Option<String>,
}

impl Plane {
    /// Starts one.
    ///
    /// # Errors
    /// The errors of the system.
    pub(super) fn start(store: Store) -> anyhow::Result<Plane> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared {
            store,
            streams: Vec::new(),
            refused: None,
            sent: 0,
        }));
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("control plane".to_owned());
        thread.spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build()?;
            runtime.block_on(accept(listener, of_thread))
        })?;
        Ok(Plane { address, shared })
    }

    /// The address that it serves.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a change ready: a domain that comes or changes, or none where it goes.
    ///
    /// # Errors
    /// Envoy refused what came before.
    pub(super) fn prepare(&self, number: u64, domain: Option<Domain>) -> anyhow::Result<Change> {
        self.check()?;
        Ok(lock(&self.shared).store.prepare(number, domain))
    }

    /// Sends a change to whoever asked.
    ///
    /// # Errors
    /// A stream takes no more.
    pub(super) fn publish(&self, change: Change) -> anyhow::Result<()> {
        lock(&self.shared).publish(change)
    }

    /// An error once Envoy has refused something.
    ///
    /// # Errors
    /// It has.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match &lock(&self.shared).refused {
            Some(reason) => bail!("Envoy refused a response: {reason}"),
            None => Ok(()),
        }
    }

    /// Bytes that were sent.
    pub(super) fn sent(&self) -> u64 {
        lock(&self.shared).sent
    }
}

impl Shared {
    fn publish(&mut self, change: Change) -> anyhow::Result<()> {
        let (number, domain) = match change {
            Change::Listener(listener) => return self.send_all(Kind::Listener, "", &listener),
            Change::Domain { number, domain } => (number, domain),
        };
        let is_there = domain.is_some();
        let host = self.store.take(number, domain.map(|domain| *domain));
        let secret = self.store.answer(Kind::Secret, std::slice::from_ref(&host));
        self.send_all(Kind::Secret, &host, &secret)?;
        let name = host_name(&host);
        let message = match is_there {
            true => self.store.answer(Kind::Host, std::slice::from_ref(&name)),
            false => self.store.without_host(name.clone()),
        };
        self.send_all(Kind::Host, &name, &message)
    }

    /// Sends to all streams on which this name was asked for.
    fn send_all(&mut self, kind: Kind, name: &str, message: &Message) -> anyhow::Result<()> {
        // Those whose other end has gone are forgotten.
        self.streams.iter_mut().for_each(Stream::tidy);
        let asked = (kind, name.to_owned());
        let framed = framed(message)?;
        let mut sent = 0;
        for stream in self.streams.iter().filter(|it| it.names.contains(&asked)) {
            sent += stream.send(framed.clone())?;
        }
        self.sent += sent;
        Ok(())
    }

    /// Takes a request of a stream, and sends what it asks for.
    fn take(&mut self, stream: usize, request: Request) -> anyhow::Result<()> {
        let Some(kind) = request.kind else {
            return Ok(());
        };
        if request.refused.is_some() {
            self.refused = request.refused;
        }
        let Some(found) = self.streams.get_mut(stream) else {
            return Ok(());
        };
        for name in request.left {
            found.names.remove(&(kind, name));
        }
        let names = request.names.iter().cloned();
        found.names.extend(names.map(|name| (kind, name)));
        // Listeners are asked for without names: that is all of them.
        let is_all = kind == Kind::Listener && !request.is_answer;
        if is_all {
            found.names.insert((kind, String::new()));
        }
        if request.names.is_empty() && !is_all {
            return Ok(());
        }
        let message = framed(&self.store.answer(kind, &request.names))?;
        if let Some(stream) = self.streams.get(stream) {
            self.sent += stream.send(message)?;
        }
        Ok(())
    }
}

impl Stream {
    fn tidy(&mut self) {
        if self.queue.is_closed() {
            self.names.clear();
        }
    }

    /// Sends a message; its bytes.
    fn send(&self, message: Bytes) -> anyhow::Result<u64> {
        let count = message.len() as u64;
        let queued = self.queue.try_send(message);
        queued.context("Envoy does not read what it is sent")?;
        Ok(count)
    }
}

impl Request {
    fn parse(bytes: &[u8]) -> anyhow::Result<Request> {
        let mut request = Request::default();
        for (number, value) in fields(bytes)? {
            let Value::Bytes(value) = value else {
                continue;
            };
            let text = || String::from_utf8_lossy(value).into_owned();
            match number {
                2 => request.kind = Kind::of(&text()),
                3 => request.names.push(text()),
                4 => request.left.push(text()),
                6 => request.is_answer = !value.is_empty(),
                7 => request.refused = Some(text()),
                _ => (),
            }
        }
        Ok(request)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn framed(message: &Message) -> anyhow::Result<Bytes> {
    let bytes = message.as_bytes();
    let length = u32::try_from(bytes.len()).context("a message below 4 GiB")?;
    let mut all = Vec::with_capacity(PREFIX_BYTES + bytes.len());
    all.push(0);
    all.extend_from_slice(&length.to_be_bytes());
    all.extend_from_slice(bytes);
    Ok(all.into())
}

/// Takes a message off the begin of what has come, once it is there whole.
fn unframed(begun: &mut Vec<u8>) -> anyhow::Result<Option<Vec<u8>>> {
    let Some((&[is_compressed, a, b, c, d], _)) = begun.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    ensure!(is_compressed == 0, "a compressed message");
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
    ensure!(length <= REQUEST_BYTES_MAX, "a request of {length} bytes");
    let end = PREFIX_BYTES + length;
    if begun.len() < end {
        return Ok(None);
    }
    let rest = begun.split_off(end);
    let message = std::mem::replace(begun, rest).split_off(PREFIX_BYTES);
    Ok(Some(message))
}

async fn accept(listener: TcpListener, shared: Arc<Mutex<Shared>>) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        tokio::spawn(serve(tcp, shared.clone()));
    }
}

/// Serves the streams of a connection.
async fn serve(tcp: TcpStream, shared: Arc<Mutex<Shared>>) -> anyhow::Result<()> {
    let mut connection = h2::server::handshake(tcp).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        let head = http::Response::builder().header("content-type", "application/grpc");
        let output = respond.send_response(head.body(())?, false)?;
        let (queue, responses) = mpsc::channel(QUEUE_RESPONSES_MAX);
        let number = {
            let mut shared = lock(&shared);
            shared.streams.push(Stream {
                queue,
                names: HashSet::new(),
            });
            shared.streams.len() - 1
        };
        tokio::spawn(write(output, responses));
        tokio::spawn(read(request.into_body(), number, shared.clone()));
    }
    Ok(())
}

async fn write(
    mut output: h2::SendStream<Bytes>,
    mut responses: mpsc::Receiver<Bytes>,
) -> anyhow::Result<()> {
    while let Some(response) = responses.recv().await {
        output.send_data(response, false)?;
    }
    Ok(())
}

async fn read(
    mut input: h2::RecvStream,
    number: usize,
    shared: Arc<Mutex<Shared>>,
) -> anyhow::Result<()> {
    let mut begun = Vec::new();
    while let Some(chunk) = input.data().await {
        let chunk = chunk?;
        input.flow_control().release_capacity(chunk.len())?;
        begun.extend_from_slice(&chunk);
        while let Some(message) = unframed(&mut begun)? {
            lock(&shared).take(number, Request::parse(&message)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_whole_or_not_at_all() {
        let message = Message::new().text(3, "name");
        let all = framed(&message).unwrap();
        let mut begun = Vec::new();
        for &byte in all.iter().take(all.len() - 1) {
            begun.push(byte);
            assert_eq!(unframed(&mut begun).unwrap(), None);
        }
        begun.extend_from_slice(&all[all.len() - 1..]);
        begun.extend_from_slice(b"\x00\x00");
        assert_eq!(
            unframed(&mut begun).unwrap(),
            Some(message.as_bytes().to_vec())
        );
        assert_eq!(begun, b"\x00\x00");
        assert!(unframed(&mut b"\x01\x00\x00\x00\x00".to_vec()).is_err());
        assert!(unframed(&mut b"\x00\xff\x00\x00\x00".to_vec()).is_err());
    }

    #[test]
    fn a_request_names_what_is_asked_for_and_what_is_not() {
        let kind = format!("type.googleapis.com/{}", Kind::Secret.name());
        let message = Message::new()
            .message(1, &Message::new())
            .text(2, &kind)
            .text(3, "a")
            .text(3, "b")
            .text(4, "c")
            .text(6, "7");
        let expected = Request {
            kind: Some(Kind::Secret),
            names: vec!["a".to_owned(), "b".to_owned()],
            left: vec!["c".to_owned()],
            is_answer: true,
            refused: None,
        };
        assert_eq!(Request::parse(message.as_bytes()).unwrap(), expected);
        let refusal = Message::new().text(2, &kind).text(7, "why");
        let refusal = Request::parse(refusal.as_bytes()).unwrap();
        assert_eq!(refusal.refused.as_deref(), Some("why"));
    }
}
