//! Which sockets a proxy has: opened as listeners come, closed as they go, or taken over from the
//! process before.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use myriad_model::{CaptureDirection, Change, Name};
use tokio::sync::mpsc;

use super::listener_quota::ListenerQuota;
use super::listener_sockets::ListenerSockets;
use super::sockets::{Inherited, Role, Sockets, address_of};
use super::worker::Command;
use crate::limits::Reached;
use crate::net::socket;
use crate::telemetry::count::Counts;

/// The number under which the sockets of captured connections are kept; listeners count from 1.
const CAPTURES: u64 = 0;

/// The listening sockets of a proxy, and who accepts from them.
pub(super) struct Doors {
    workers: Vec<mpsc::Sender<Command>>,
    bound: HashMap<Name, Bound>,
    /// Listeners that were refused, and what they wait for.
    unbound: HashMap<Name, Wait>,
    quota: ListenerQuota,
    counts: Arc<Counts>,
    opened: u64,
    /// The sockets of the process before that nothing here has asked for yet.
    inherited: Inherited,
    /// Commands for workers when the proxy goes live; `None` once it has. They are as many as there
    /// are listeners.
    held: Option<Vec<(usize, Command)>>,
    sockets: Sockets,
    captures: Vec<(CaptureDirection, SocketAddr)>,
    /// The addresses in place of all addresses; empty for all.
    bind: Vec<IpAddr>,
}

/// The condition that a refused listener waits for.
enum Wait {
    /// That one of its addresses is free.
    Address(Role, SocketAddr),
    /// That there is a place for a listener of its namespace.
    Quota(Box<str>),
}

struct Bound {
    /// The sockets that the resource asks for.
    wanted: ListenerSockets,
    /// The addresses that the system gave.
    addresses: Vec<SocketAddr>,
    /// Tells the sockets of one opening from those of another.
    id: u64,
}

/// An order to the workers, for when the tables are in place.
pub(super) enum Order {
    /// Serve clients by these.
    Open {
        /// The listener.
        name: Name,
        /// Its sockets.
        sockets: Vec<OwnedFd>,
        /// The sockets that the resource asks for.
        wanted: ListenerSockets,
        /// The addresses that the system gave.
        addresses: Vec<SocketAddr>,
        /// Tells them from those of another opening.
        id: u64,
    },
    /// Serve nobody by them any more.
    Close {
        /// The listener.
        name: Name,
        /// The number of their opening.
        id: u64,
    },
}

impl Order {
    /// The addresses where it opens a listener, if it does.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        match self {
            Order::Open { addresses, .. } => addresses,
            Order::Close { .. } => &[],
        }
    }
}

impl Doors {
    /// No sockets yet. With what a process before listened on, workers accept nothing before the
    /// proxy goes live: whoever they accepted would meet tables that are not whole.
    pub(super) fn new(
        workers: Vec<mpsc::Sender<Command>>,
        (listeners_max, counts): (usize, Arc<Counts>),
        (sockets, bind): (Sockets, Vec<IpAddr>),
        inherited: Option<Inherited>,
    ) -> Self {
        Doors {
            workers,
            bound: HashMap::new(),
            unbound: HashMap::new(),
            quota: ListenerQuota::new(listeners_max),
            counts,
            opened: CAPTURES,
            held: inherited.is_some().then(Vec::new),
            inherited: inherited.unwrap_or(Inherited {
                sockets: Vec::new(),
                tickets: Vec::new(),
            }),
            sockets,
            captures: Vec::new(),
            bind,
        }
    }

    /// The sockets that the next process is given.
    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Lets workers accept, and closes what was taken over and nobody wants.
    pub(super) fn go_live(&mut self) {
        for (worker, command) in self.held.take().into_iter().flatten() {
            self.send(worker, command);
        }
        for (_, socket) in self.inherited.sockets.drain(..) {
            let address = address_of(&socket);
            tracing::info!(?address, "what the process before listened on is closed");
        }
    }

    /// The addresses where listeners are bound.
    pub(super) fn addresses(&self) -> Vec<(Name, SocketAddr)> {
        let bound = self.bound.iter();
        let mut addresses: Vec<(Name, SocketAddr)> = bound
            .flat_map(|(name, bound)| bound.addresses.iter().map(|it| (name.clone(), *it)))
            .collect();
        addresses.sort();
        addresses
    }

    /// The sockets of captured connections.
    pub(super) fn captures(&self) -> &[(CaptureDirection, SocketAddr)] {
        &self.captures
    }

    /// Every address that is listened on.
    pub(super) fn own(&self) -> impl Iterator<Item = SocketAddr> {
        let bound = self.bound.values().flat_map(|bound| &bound.addresses);
        bound
            .copied()
            .chain(self.captures.iter().map(|(_, address)| *address))
    }

    /// Whether a listener could be opened now that could not before. Says so once.
    pub(super) fn take_bindable(&mut self) -> bool {
        let before = self.unbound.len();
        self.unbound.retain(|_, wait| match wait {
            Wait::Address(role, address) => !socket::is_free(role.transport(), *address),
            Wait::Quota(namespace) => self.quota.refusal(namespace).is_some(),
        });
        self.unbound.len() < before
    }

    /// Opens the sockets for captured connections, one of each direction for each worker;
    /// returns where they are.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub(super) fn open_captures(
        &mut self,
        wanted: &[(CaptureDirection, SocketAddr)],
    ) -> io::Result<Vec<SocketAddr>> {
        let mut opened = Vec::new();
        for (direction, address) in wanted {
            let role = Role::Capture(*direction);
            let (address, sockets) = self.open(role, *address)?;
            self.sockets.keep(CAPTURES, role, &sockets)?;
            self.captures.push((*direction, address));
            opened.push((*direction, sockets));
        }
        let ports = self.captures.iter().map(|(_, address)| address.port());
        let ports: Arc<[u16]> = ports.collect();
        for (direction, sockets) in opened {
            for (number, socket) in sockets.into_iter().enumerate() {
                let ports = ports.clone();
                let socket = TcpListener::from(socket);
                let command = Command::Capture {
                    direction,
                    ports,
                    socket,
                };
                self.tell(number, command);
            }
        }
        Ok(self.own().collect())
    }

    /// Opens sockets where a listener needs new ones.
    ///
    /// # Errors
    /// One of its addresses cannot be had, or there is no place for it.
    pub(super) fn prepare(&mut self, change: &Change) -> io::Result<Vec<Order>> {
        let name = &change.key.name;
        let new = change.new.as_ref().and_then(|sealed| sealed.listener());
        // What is captured comes by the sockets of its direction.
        let own = new.filter(|listener| listener.capture.is_none());
        let wanted = own.map(|listener| ListenerSockets::of(listener, &self.bind));
        self.unbound.remove(name);
        let known = self.bound.get(name);
        let namespace = namespace(change);
        if known.map(|known| &known.wanted) == wanted.as_ref() {
            if known.is_some() {
                self.quota.take(name, namespace);
            }
            return Ok(Vec::new());
        }
        let known = known.map(|known| known.id);
        let mut orders = Vec::new();
        if let Some(wanted) = wanted {
            let full = self.quota.refusal(namespace);
            if let Some(full) = full.filter(|_| known.is_none()) {
                self.counts.add_reached(Reached::Listeners);
                let wait = Wait::Quota(namespace.into());
                self.unbound.insert(name.clone(), wait);
                return Err(io::Error::other(full.as_str()));
            }
            let (addresses, sockets) = self.open_all(name, &wanted)?;
            // Those of one commit are opened together, and count from here on.
            self.quota.take(name, namespace);
            self.opened += 1;
            orders.push(Order::Open {
                name: name.clone(),
                sockets,
                wanted,
                addresses,
                id: self.opened,
            });
        }
        if let Some(id) = known {
            let name = name.clone();
            orders.push(Order::Close { name, id });
        }
        Ok(orders)
    }

    /// Does what was prepared.
    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Open {
                name,
                sockets,
                wanted,
                addresses,
                id,
            } => {
                if let Err(error) = self.sockets.keep(id, wanted.role, &sockets) {
                    tracing::error!(listener = %name, %error, "it cannot be handed over");
                }
                for (number, socket) in sockets.into_iter().enumerate() {
                    self.tell(
                        number,
                        order_to_serve(wanted.role, name.clone(), id, socket),
                    );
                }
                let bound = Bound {
                    wanted,
                    addresses,
                    id,
                };
                self.bound.insert(name, bound);
            }
            Order::Close { name, id } => {
                self.sockets.forget(id);
                for number in 0..self.workers.len() {
                    self.tell(number, Command::Close { id });
                }
                if self.bound.get(&name).is_some_and(|bound| bound.id == id) {
                    self.bound.remove(&name);
                    self.quota.release(&name);
                }
            }
        }
    }

    /// Opens the sockets of a listener at all of its addresses, or at none.
    fn open_all(
        &mut self,
        name: &Name,
        wanted: &ListenerSockets,
    ) -> io::Result<(Vec<SocketAddr>, Vec<OwnedFd>)> {
        if wanted.addresses.is_empty() {
            return Err(io::Error::other("--bind has no address of its family"));
        }
        let (mut addresses, mut sockets) = (Vec::<SocketAddr>::new(), Vec::new());
        for mut address in wanted.addresses.iter().copied() {
            // A port that the system chose is the same at all addresses.
            if let Some(first) = addresses.first() {
                address.set_port(first.port());
            }
            match self.open(wanted.role, address) {
                Ok((bound, opened)) => {
                    addresses.push(bound);
                    sockets.extend(opened);
                }
                Err(error) => {
                    let wait = Wait::Address(wanted.role, address);
                    self.unbound.insert(name.clone(), wait);
                    return Err(error);
                }
            }
        }
        Ok((addresses, sockets))
    }

    /// Every socket that was taken over is served from, however many workers there are: what waits
    /// in one that is closed is lost.
    fn open(&mut self, role: Role, wanted: SocketAddr) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
        let (transport, count) = (role.transport(), self.workers.len());
        let inherited = self.inherited.take(role, wanted);
        if inherited.is_empty() {
            return socket::open(transport, wanted, count);
        }
        let sockets = socket::open_further(transport, wanted, inherited, count);
        Ok((wanted, sockets))
    }

    /// Tells a worker, or a later one where there are more sockets than workers.
    fn tell(&mut self, number: usize, command: Command) {
        let number = number % self.workers.len().max(1);
        match &mut self.held {
            Some(held) => held.push((number, command)),
            None => self.send(number, command),
        }
    }

    fn send(&self, number: usize, command: Command) {
        let worker = self.workers.get(number);
        let sent = worker.map(|worker| worker.try_send(command));
        if !matches!(sent, Some(Ok(()))) {
            tracing::error!(worker = number, "a worker does not take its socket");
        }
    }
}

/// The command to serve a listener's clients by a socket.
fn order_to_serve(role: Role, name: Name, id: u64, socket: OwnedFd) -> Command {
    match role {
        Role::Datagrams => Command::Receive {
            name,
            id,
            socket: UdpSocket::from(socket),
        },
        Role::Listener | Role::Capture(_) => Command::Listen {
            name,
            id,
            socket: TcpListener::from(socket),
        },
    }
}

/// The namespace of the object that a listener comes from; empty for the process' own.
fn namespace(change: &Change) -> &str {
    let resource = change.new.as_ref().and_then(|sealed| sealed.resource());
    let id = resource.map_or("", |resource| &*resource.origin.id);
    id.split_once('/').map_or("", |(namespace, _)| namespace)
}
