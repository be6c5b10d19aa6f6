//! The sockets that a proxy serves clients by, for the process that takes over from this one.
//!
//! Connections that wait to be accepted wait in the socket, as do datagrams. So the next process is
//! given copies of every socket there is: whichever of the two accepts, nobody is refused.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use myriad_model::CaptureDirection;
use socket2::SockRef;

use crate::tls::tickets::{TicketKeys, TicketSecret};

/// The kind of what comes by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The connections of the listener at its address.
    Listener,
    /// Connections that network rules led there.
    Capture(CaptureDirection),
    /// The datagrams of the listener at its address.
    Datagrams,
}

/// The sockets and keys that a proxy takes over from the process before.
pub struct Inherited {
    /// Sockets that clients come by. Those that nothing wants are closed when the proxy goes live.
    pub sockets: Vec<(Role, OwnedFd)>,
    /// The keys of tickets, the newest first.
    pub tickets: Vec<TicketSecret>,
}

/// The sockets and keys that the next process is given. Cheap to clone, and read on any thread.
#[derive(Clone)]
pub struct Sockets(Arc<Book>);

/// The sockets of one opening.
type Opening = Vec<(Role, OwnedFd)>;

struct Book {
    /// Copies, by the number of their opening; none where nothing is ever handed over.
    open: Option<Mutex<BTreeMap<u64, Opening>>>,
    tickets: Arc<TicketKeys>,
    is_succeeded: AtomicBool,
}

/// The address of a socket.
pub(super) fn address_of(socket: &OwnedFd) -> Option<SocketAddr> {
    SockRef::from(socket).local_addr().ok()?.as_socket()
}

impl Inherited {
    /// Takes out the sockets of this role and address.
    pub(super) fn take(&mut self, role: Role, address: SocketAddr) -> Vec<OwnedFd> {
        let is_wanted = |(own, socket): &mut (Role, OwnedFd)| {
            *own == role && address_of(socket) == Some(address)
        };
        let taken = self.sockets.extract_if(.., is_wanted);
        taken.map(|(_, socket)| socket).collect()
    }
}

impl Sockets {
    pub(super) fn new(hands_over: bool, tickets: Arc<TicketKeys>) -> Self {
        Sockets(Arc::new(Book {
            open: hands_over.then(Mutex::default),
            tickets,
            is_succeeded: AtomicBool::new(false),
        }))
    }

    /// Copies of all sockets.
    ///
    /// # Errors
    /// There is no room for further files.
    pub fn copies(&self) -> io::Result<Vec<(Role, OwnedFd)>> {
        let Some(open) = &self.0.open else {
            return Ok(Vec::new());
        };
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let all = open.values().flatten();
        all.map(|(role, socket)| Ok((*role, socket.try_clone()?)))
            .collect()
    }

    /// The keys of tickets where the process was given none, the newest first.
    pub fn tickets(&self) -> Vec<TicketSecret> {
        self.0.tickets.own()
    }

    pub(super) fn ticket_keys(&self) -> Arc<TicketKeys> {
        self.0.tickets.clone()
    }

    /// Says that another process accepts from the sockets now: a drain then accepts no more at
    /// once, and idle connections may wait for the request that ends them.
    pub fn succeed(&self) {
        self.0.is_succeeded.store(true, Ordering::Release);
    }

    pub(super) fn is_succeeded(&self) -> bool {
        self.0.is_succeeded.load(Ordering::Acquire)
    }

    /// Keeps copies of the sockets of one opening.
    pub(super) fn keep(&self, id: u64, role: Role, sockets: &[OwnedFd]) -> io::Result<()> {
        let Some(open) = &self.0.open else {
            return Ok(());
        };
        let copies = sockets.iter().map(|it| Ok((role, it.try_clone()?)));
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        open.entry(id).or_default().extend(copies);
        Ok(())
    }

    pub(super) fn forget(&self, id: u64) {
        if let Some(open) = &self.0.open {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            open.remove(&id);
        }
    }

    pub(super) fn forget_all(&self) {
        if let Some(open) = &self.0.open {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            open.clear();
        }
    }
}
