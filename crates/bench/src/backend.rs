//! The endpoints of all domains: two addresses, told apart by their status. And a service that is
//! asked for each request, and lets everything pass.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::Context as _;
use memchr::memmem;

use crate::poll::{Poll, Ready};

/// The length of every body.
pub const BODY_BYTES: usize = 1_024;

/// The statuses that the first and the second endpoint answer with.
pub const STATUSES: [u16; 2] = [200, 203];

/// The byte that bodies consist of.
pub const FILLING: u8 = b'x';

/// The answer to what is not for `/`.
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// The answer of the service that is asked.
const LET_PASS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// The longest request head; the generator's are a tenth of it.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A listener, and the answers that it gives.
struct Service {
    listener: TcpListener,
    /// The starts of requests, as the load generator and the prober send them, each with its
    /// answer. A request for another path shows that a proxy did not rewrite it.
    answers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether a request came that bore the identity of its caller; none where nobody asks.
    seen: Option<Arc<AtomicBool>>,
}

/// One who asks.
struct Visitor {
    stream: TcpStream,
    service: usize,
    /// The part of a request that has come.
    begun: Vec<u8>,
    /// The part of answers that the socket did not take.
    unsent: Vec<u8>,
}

/// Starts both endpoints of this address on one thread, which ends with the process.
///
/// # Errors
/// No port or no thread is to be had.
pub fn start(address: IpAddr) -> anyhow::Result<[SocketAddr; 2]> {
    Ok(start_known(address)?.0)
}

/// The same, and the number of the thread.
///
/// # Errors
/// No port or no thread is to be had.
pub fn start_known(address: IpAddr) -> anyhow::Result<([SocketAddr; 2], i32)> {
    let listeners = [
        TcpListener::bind((address, 0))?,
        TcpListener::bind((address, 0))?,
    ];
    let addresses = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    let services = listeners.into_iter().zip(STATUSES);
    let services = services.map(|(listener, status)| Service::endpoint(listener, status));
    let thread = spawn("backend", services.collect())?;
    Ok((addresses, thread))
}

/// Answers on this listener with 200 and a body of the length that belongs to the path, on a thread
/// of its own, which ends with the process. Says whether a request came that bore the identity of
/// its caller.
///
/// # Errors
/// No thread is to be had.
pub fn serve(listener: TcpListener, bodies: &[(String, usize)]) -> anyhow::Result<Arc<AtomicBool>> {
    let is_identified = Arc::new(AtomicBool::new(false));
    let answers = bodies.iter().map(|(path, bytes)| {
        let start = format!("GET {path} ").into_bytes();
        (start, response(STATUSES[0], *bytes))
    });
    let service = Service {
        listener,
        answers: answers.collect(),
        seen: Some(is_identified.clone()),
    };
    spawn("server", vec![service])?;
    Ok(is_identified)
}

/// Starts a service that answers every request with 200 and nothing, on a thread of its own, which
/// ends with the process.
///
/// # Errors
/// No port or no thread is to be had.
pub fn start_authorizer(address: IpAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0))?;
    let bound = listener.local_addr()?;
    let service = Service {
        listener,
        answers: vec![(b"GET /".to_vec(), LET_PASS.to_vec())],
        seen: None,
    };
    spawn("authorizer", vec![service])?;
    Ok(bound)
}

/// Starts a thread that answers, and waits until it runs; its number.
fn spawn(name: &str, services: Vec<Service>) -> anyhow::Result<i32> {
    let number = Arc::new(AtomicI32::new(0));
    let of_thread = number.clone();
    let (begin, begun) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        of_thread.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
        // Who no longer listens has failed, and says so.
        let _ = begin.send(());
        answer_all(&services)
    })?;
    begun.recv().context("the thread ended")?;
    Ok(number.load(Ordering::Relaxed))
}

fn answer_all(services: &[Service]) -> io::Result<()> {
    let poll = Poll::new()?;
    for (number, service) in services.iter().enumerate() {
        service.listener.set_nonblocking(true)?;
        poll.add_listener(&service.listener, number)?;
    }
    let mut visitors: Vec<Option<Visitor>> = Vec::new();
    let (mut free, mut left) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; HEAD_BYTES_MAX];
    let mut ready = Ready::new();
    loop {
        poll.wait(&mut ready, None)?;
        for (number, is_ending) in ready.all() {
            let Some(seat) = number.checked_sub(services.len()) else {
                while let Ok((stream, _)) = services[number].listener.accept() {
                    let seat = free.pop().unwrap_or(visitors.len());
                    if seat == visitors.len() {
                        visitors.push(None);
                    }
                    let visitor = Visitor::new(stream, number)?;
                    poll.add(&visitor.stream, services.len() + seat)?;
                    visitors[seat] = Some(visitor);
                }
                continue;
            };
            let Some(visitor) = &mut visitors[seat] else {
                continue;
            };
            let service = &services[visitor.service];
            if visitor.answer(service, &mut buffer, is_ending).is_err() {
                visitors[seat] = None;
                left.push(seat);
            }
        }
        // Not sooner: what was told of one who left must not meet one who came.
        free.append(&mut left);
    }
}

impl Service {
    fn endpoint(listener: TcpListener, status: u16) -> Service {
        Service {
            listener,
            answers: vec![(b"GET / ".to_vec(), response(status, BODY_BYTES))],
            seen: None,
        }
    }

    /// The answer to a request without body.
    fn answer(&self, request: &[u8]) -> &[u8] {
        if let Some(seen) = &self.seen
            && !seen.load(Ordering::Relaxed)
            && has_identity(request)
        {
            seen.store(true, Ordering::Relaxed);
        }
        let mut answers = self.answers.iter();
        let answer = answers.find(|(start, _)| request.starts_with(start));
        answer.map_or(NOT_FOUND, |(_, response)| response.as_slice())
    }
}

impl Visitor {
    fn new(stream: TcpStream, service: usize) -> io::Result<Visitor> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Visitor {
            stream,
            service,
            begun: Vec::new(),
            unsent: Vec::new(),
        })
    }

    /// Answers what has come; an error once it is over.
    fn answer(&mut self, service: &Service, buffer: &mut [u8], is_ending: bool) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)?;
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let is_all = read < buffer.len();
            self.take(service, &buffer[..read])?;
            // What comes from now on is told of again.
            if is_all && !is_ending {
                return Ok(());
            }
        }
    }

    fn take(&mut self, service: &Service, bytes: &[u8]) -> io::Result<()> {
        let mut joined = std::mem::take(&mut self.begun);
        let mut rest = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while let Some(end) = find_end(rest) {
            let (request, after) = rest.split_at(end);
            self.send(service.answer(request))?;
            rest = after;
        }
        if rest.len() > HEAD_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        self.begun = rest.to_vec();
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() && self.unsent.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.extend_from_slice(rest);
        Ok(())
    }
}

/// An answer with this status, and a body of this length.
fn response(status: u16, body_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {body_bytes}\r\n\r\n");
    let mut response = head.into_bytes();
    response.resize(response.len() + body_bytes, FILLING);
    response
}

/// Whether proxies state the identity of the caller.
pub(crate) fn has_identity(head: &[u8]) -> bool {
    memmem::find(head, b"URI=spiffe://").is_some()
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}
