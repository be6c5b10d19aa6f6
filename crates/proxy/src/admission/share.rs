//! Fair shares: how much of something each namespace of a worker holds, and each domain in it, and
//! who gets no more of it.
//!
//! There is no entry per domain. Two rows of numbers are kept for namespaces and two for domains;
//! each has a place in both of its rows by its hash, and the lower of the two numbers is what it
//! holds at most. So taking and giving back cost a few additions, nothing is allocated, and whoever
//! comes with ever new names fills no table. While there is room nobody is refused anything. From
//! four fifths on a tenth is for domains that have little, whatever their namespace has, and all
//! that is left for namespaces that have little, in which domains share again. Of the last tenth a
//! namespace gets no more than it leaves, so that two of them never take all from a third.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;

use myriad_model::{Host, Name, Origin};

use super::answers::AnswerTurns;
use super::holdings::Holdings;
use super::planning::PlanTurns;
use super::pressure::{Pressure, PressureStep};
use super::resets::SourceResets;
use super::spaces::{NOBODY, PLACES, Spots, spots};
use super::waiting::{self, ClientWait, Standing};
use crate::limits::{Limits, Reached};
use crate::random::hash::{hash, hash_numbers};
use crate::telemetry::count::{Count, Counts};

/// Tells hashes of domains from those of other tables.
const SHARE_CLASS: u8 = 0x5a;

/// Tells hashes of listeners, whose streams are told apart by nothing else, from those of domains.
const LISTENER_CLASS: u8 = 0x5b;

/// Tells hashes of providers, which are asked about requests that no route takes, from both.
const PROVIDER_CLASS: u8 = 0x5c;

/// Tells hashes of sources of clients from all of these.
const SOURCE_CLASS: u8 = 0x5d;

/// Tells hashes of upstreams, whose endpoints are connected to, from the former.
const UPSTREAM_CLASS: u8 = 0x5e;

/// The number that a domain may always hold while anything is left.
const FLOOR: usize = 4;

/// The most requests that are begun before memory is looked at again, where it may be short.
const BEGUN_MAX: u32 = 256;

/// The part of its share that a namespace has of the last tenth, however little is left.
const LAST_PART: usize = 5;

/// The shares of the domains of a worker in one thing.
pub struct Shares {
    max: usize,
    /// The part of the capacity that nobody gets.
    reserve: usize,
    pressure: Arc<Pressure>,
    namespaces: Sketch,
    domains: Sketch,
    /// The part that each source of clients holds of what each domain does, where that is known.
    sources: Sketch,
    /// The domains that hold something, by the places of their namespaces.
    inhabited: [Box<[Cell<u32>]>; 2],
    /// The sum of what all domains hold.
    held: Cell<usize>,
}

/// Two rows of numbers.
struct Sketch {
    rows: [Box<[Cell<u32>]>; 2],
    /// Places of the first row that are taken: about as many hold something.
    active: Cell<usize>,
}

/// The owner of something: a domain, and the namespace of the object that it came from, by their
/// hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The namespace.
    pub namespace: u64,
    /// The domain within it.
    pub domain: u64,
}

/// One that a domain holds; given back when dropped.
pub struct HeldShare {
    shares: Rc<Shares>,
    namespace: Spots,
    domain: Spots,
    /// The places of its client's source in the domain.
    source: Spots,
}

/// All shares of a worker.
pub struct Fairness {
    /// TLS handshakes under way.
    pub handshakes: Rc<Shares>,
    /// Connections whose domain is known.
    pub connections: Rc<Shares>,
    /// Requests on their way to an endpoint, and those that somebody is asked about first.
    pub requests: Rc<Shares>,
    /// Tunnels: streams, and what changed its protocol. Nothing ends them for others.
    pub tunnels: Rc<Shares>,
    /// The turns of answers that are there at once.
    pub answers: Rc<AnswerTurns>,
    /// The turns of requests that are there at once.
    pub plans: PlanTurns,
    /// The streams that clients have reset.
    pub resets: SourceResets,
    /// The bytes that are held for clients.
    pub holdings: Rc<Holdings>,
    /// How little memory is left.
    pub pressure: Arc<Pressure>,
    /// Requests begun since somebody was asked how much memory there is.
    begun: Cell<u32>,
    /// Flows of datagrams, from the first one on: most proxies have none.
    flows: OnceCell<Rc<Shares>>,
    flows_max: usize,
}

impl Fairness {
    /// The shares of a worker, of which nobody holds anything.
    pub fn new(limits: &Limits, pressure: &Arc<Pressure>) -> Self {
        let of = |max| Rc::new(Shares::new(max, pressure.clone()));
        Fairness {
            handshakes: of(limits.handshakes_max),
            connections: of(limits.connections_max),
            requests: of(limits.requests_max),
            tunnels: Rc::new(Shares::leaving(
                limits.connections_max,
                reserve(limits.connections_max),
                pressure.clone(),
            )),
            answers: Rc::default(),
            plans: PlanTurns::default(),
            resets: SourceResets::new(limits.resets_max),
            holdings: Rc::new(Holdings::new(limits, pressure)),
            pressure: pressure.clone(),
            begun: Cell::new(0),
            flows: OnceCell::new(),
            flows_max: limits.flows_max,
        }
    }

    /// Flows of datagrams.
    pub fn flows(&self) -> &Rc<Shares> {
        let new = || Rc::new(Shares::new(self.flows_max, self.pressure.clone()));
        self.flows.get_or_init(new)
    }
}

/// The places of a namespace.
pub(crate) fn space_of(namespace: &str) -> Spots {
    spots(hash(SHARE_CLASS, namespace))
}

impl Owner {
    /// The domain of a host that an object says something of.
    pub fn of(origin: &Origin, host: &Host) -> Self {
        let namespace = hash(SHARE_CLASS, origin.namespace());
        Owner {
            namespace,
            // Another namespace's routes of the host are another domain's.
            domain: hash_numbers(SHARE_CLASS, host.as_str(), &[namespace]),
        }
    }

    /// The streams of a listener that an object says something of, whatever host they are for.
    pub fn of_listener(origin: &Origin, listener: &Name) -> Self {
        let namespace = hash(SHARE_CLASS, origin.namespace());
        Owner {
            namespace,
            domain: hash_numbers(LISTENER_CLASS, listener.as_str(), &[namespace]),
        }
    }

    /// The questions to a provider that an object says something of, whatever host they are about.
    pub fn of_provider(origin: &Origin, provider: &Name) -> Self {
        let namespace = hash(SHARE_CLASS, origin.namespace());
        Owner {
            namespace,
            domain: hash_numbers(PROVIDER_CLASS, provider.as_str(), &[namespace]),
        }
    }

    /// The connections to endpoints of an upstream of an object.
    pub fn of_upstream(origin: &Origin, upstream: &Name) -> Self {
        let namespace = hash(SHARE_CLASS, origin.namespace());
        Owner {
            namespace,
            domain: hash_numbers(UPSTREAM_CLASS, upstream.as_str(), &[namespace]),
        }
    }
}

impl Fairness {
    /// One connection of a domain, of all that the worker has; it is one of them already.
    pub fn take_connection(&self, owner: Owner, all: usize) -> Option<HeldShare> {
        let beside = all.saturating_sub(self.connections.held() + 1);
        self.connections.take(owner, beside)
    }

    /// Whether a domain would get one more of its connections so.
    pub fn admits_connection(&self, owner: Owner, all: usize) -> bool {
        let (namespace, domain) = (spots(owner.namespace), spots(owner.domain));
        let all = all.saturating_sub(1).max(self.connections.held());
        self.connections.admits(namespace, domain, all)
    }

    /// One request of a domain, where there is room for it, or another gives way to it: one that
    /// waits for its own client, or else one of the source that holds most of the domain's, where
    /// that is more than twice what this client's source holds.
    pub fn take_request(&self, owner: Owner, source: u64, counts: &Counts) -> Option<HeldShare> {
        let begun = self.begun.get() + 1;
        self.begun.set(begun % BEGUN_MAX);
        if begun == BEGUN_MAX {
            self.pressure.ask_again();
        }
        if !self.may_hold(spots(owner.namespace), 0, counts) {
            return None;
        }
        let requests = &self.requests;
        let (namespace, domain) = (spots(owner.namespace), spots(owner.domain));
        let source = hash_numbers(SOURCE_CLASS, "", &[owner.domain, source]);
        let source = spots(source);
        if !requests.admits(namespace, domain, requests.held()) {
            let waits = waiting::give_way(line(domain), requests.domains.held(domain));
            let waits = waits.or_else(|| {
                let sources = &requests.sources;
                let more_than = FLOOR.max(2 * sources.held(source));
                let [space, _] = namespace;
                waiting::give_way_of_source(space, domain, more_than, |it| sources.held(it))
            });
            counts.add(evicted(waits?));
        }
        Some(requests.hold(namespace, domain, source))
    }

    /// Whether more may be held for somebody of a namespace for whom so many bytes are held
    /// already; where it should not, something goes for it: of the namespace for which most is
    /// held beyond its share, and else what waits for its own client.
    pub fn may_hold(&self, space: Spots, bytes: usize, counts: &Counts) -> bool {
        if self.holdings.admits(space, bytes) {
            return true;
        }
        counts.add_reached(Reached::AllHeldBytes);
        let waits = match self.holdings.heaviest() {
            Some(space) => waiting::give_way_of(space),
            None => waiting::give_way_for_memory(),
        };
        if let Some(waits) = waits {
            counts.add(evicted(waits));
        }
        waits.is_some()
    }

    /// Ends a part of the requests that wait for their clients, where memory is so short that those
    /// who have much get nothing more, or too much is held; then of one namespace alone, whatever
    /// its requests wait for, while more than its share is held for it.
    pub fn relieve(&self, counts: &Counts) {
        let is_over = self.holdings.is_over();
        let one_of = match self.pressure.step() {
            PressureStep::None | PressureStep::EndIdle if !is_over => return,
            PressureStep::None | PressureStep::EndIdle | PressureStep::ShedLargest => 8,
            PressureStep::ShedAll => 4,
        };
        self.holdings.relieve();
        self.holdings.relieve_of_heads();
        let space = self.holdings.heaviest().filter(|_| is_over);
        waiting::give_way_in_part(one_of, space, |waits| counts.add(evicted(waits)));
    }

    /// Whether memory is so short that those who have much get nothing more.
    pub fn sheds(&self) -> bool {
        self.pressure.step() >= PressureStep::ShedLargest
    }

    /// Whether connections shall end with the request they are in.
    pub fn ends_idle(&self) -> bool {
        self.pressure.step() >= PressureStep::EndIdle
    }
}

impl Shares {
    /// Shares of at most so many, of which nobody holds anything.
    pub fn new(max: usize, pressure: Arc<Pressure>) -> Self {
        Shares::leaving(max, 0, pressure)
    }

    /// Shares with a reserve that nobody gets anything of.
    pub fn leaving(max: usize, reserve: usize, pressure: Arc<Pressure>) -> Self {
        Shares {
            max,
            reserve,
            pressure,
            namespaces: Sketch::new(),
            domains: Sketch::new(),
            sources: Sketch::new(),
            inhabited: [row(), row()],
            held: Cell::new(0),
        }
    }

    /// One more for a domain; none where others need what is left. `beside` are those that no
    /// domain holds yet.
    pub fn take(self: &Rc<Self>, owner: Owner, beside: usize) -> Option<HeldShare> {
        let (namespace, domain) = (spots(owner.namespace), spots(owner.domain));
        if !self.admits(namespace, domain, self.held.get() + beside) {
            return None;
        }
        Some(self.hold(namespace, domain, NOBODY))
    }

    /// Takes one more for a domain, in place of another that it is about to give back.
    pub fn exchange(self: &Rc<Self>, owner: Owner) -> HeldShare {
        self.hold(spots(owner.namespace), spots(owner.domain), NOBODY)
    }

    fn hold(self: &Rc<Self>, namespace: Spots, domain: Spots, source: Spots) -> HeldShare {
        self.namespaces.add(namespace);
        self.sources.add(source);
        if self.domains.add(domain) {
            change(&self.inhabited, namespace, |number| number + 1);
        }
        self.held.set(self.held.get() + 1);
        HeldShare {
            shares: self.clone(),
            namespace,
            domain,
            source,
        }
    }

    /// The sum of what all domains hold.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether all that there is is held.
    pub fn is_used_up(&self) -> bool {
        self.held.get() >= self.max
    }

    /// Whether so much is held that not everybody gets more.
    pub fn is_scarce(&self) -> bool {
        self.held.get() >= self.max - self.max / 5
    }

    /// Whether nine tenths of it are held.
    pub fn is_nearly_used_up(&self) -> bool {
        self.held.get() >= self.max - self.max / 10
    }

    fn admits(&self, namespace: Spots, domain: Spots, all: usize) -> bool {
        let step = self.pressure.step();
        if all >= self.max.saturating_sub(self.reserve) {
            return false;
        }
        let of_namespace = self.namespaces.held(namespace);
        let own = self.domains.held(domain);
        if step >= PressureStep::ShedAll {
            // Those who hold the memory have more than this.
            let namespaces = self.namespaces.beside(of_namespace);
            let little = FLOOR.max(self.held.get() / namespaces / 4);
            return own < FLOOR && (namespaces == 1 || of_namespace < little);
        }
        if step >= PressureStep::ShedLargest {
            // Twice the mean is what makes one of the largest.
            let held = 2 * self.held.get();
            let is_small = |own, sketch: &Sketch| own < FLOOR.max(held / sketch.beside(own));
            let is_alone = self.namespaces.beside(of_namespace) == 1;
            return is_small(own, &self.domains)
                && (is_alone || is_small(of_namespace, &self.namespaces));
        }
        if all < self.max - self.max / 5 {
            return true;
        }
        // One share more than there are who hold something, so that a new one finds room.
        let share = FLOOR.max(self.max / (self.namespaces.beside(of_namespace) + 1));
        let left = self.max - all;
        let is_last = left <= self.max / 10;
        if is_last && of_namespace >= left.max(share / LAST_PART).max(FLOOR) {
            return false;
        }
        let inhabited = lowest(&self.inhabited, namespace) + usize::from(own == 0);
        let has_little = own < FLOOR.max(share / (inhabited + 1));
        if of_namespace < share {
            return of_namespace < share - share / 5 || has_little;
        }
        !is_last && has_little
    }
}

impl Sketch {
    fn new() -> Self {
        Sketch {
            rows: [row(), row()],
            active: Cell::new(0),
        }
    }

    /// How many hold something, with one that holds so much.
    fn beside(&self, own: usize) -> usize {
        (self.active.get() + usize::from(own == 0)).max(1)
    }

    fn held(&self, spots: Spots) -> usize {
        lowest(&self.rows, spots)
    }

    /// Adds one; whether it is about the first.
    fn add(&self, spots: Spots) -> bool {
        change(&self.rows, spots, |number| number + 1);
        let is_first = self.first(spots) == 1;
        self.active.set(self.active.get() + usize::from(is_first));
        is_first
    }

    /// Takes one away; whether it was about the last.
    fn remove(&self, spots: Spots) -> bool {
        change(&self.rows, spots, |number| number.saturating_sub(1));
        let is_last = self.first(spots) == 0;
        let active = self.active.get();
        self.active.set(active.saturating_sub(usize::from(is_last)));
        is_last
    }

    fn first(&self, [spot, _]: Spots) -> u32 {
        let [row, _] = &self.rows;
        row.get(usize::from(spot)).map_or(0, Cell::get)
    }
}

impl HeldShare {
    /// The line where its domain's requests stand that wait for their clients.
    pub fn standing(&self) -> Standing {
        let [space, _] = self.namespace;
        Standing::new(line(self.domain), space).of(self.domain, self.source)
    }

    /// The places of its namespace among those for which something is held.
    pub fn space(&self) -> Spots {
        self.namespace
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        let shares = &self.shares;
        shares.namespaces.remove(self.namespace);
        shares.sources.remove(self.source);
        if shares.domains.remove(self.domain) {
            change(&shares.inhabited, self.namespace, |number| {
                number.saturating_sub(1)
            });
        }
        shares.held.set(shares.held.get().saturating_sub(1));
    }
}

/// The count of a request that gave way to others.
const fn evicted(waits: ClientWait) -> Count {
    match waits {
        ClientWait::Body => Count::EvictedBody,
        ClientWait::Read => Count::EvictedRead,
        ClientWait::Endpoint | ClientWait::More => Count::EvictedEndpoint,
    }
}

/// The connections that no tunnel takes, of as many as there may be: a tenth, and of few at least
/// four, but never more than a quarter.
fn reserve(connections_max: usize) -> usize {
    (connections_max / 10).max(4).min(connections_max / 4)
}

fn row() -> Box<[Cell<u32>]> {
    vec![Cell::new(0); PLACES].into_boxed_slice()
}

/// The line of a domain among those of requests that wait for their clients.
fn line([spot, _]: Spots) -> u16 {
    (usize::from(spot) % waiting::LINES) as u16
}

fn lowest(rows: &[Box<[Cell<u32>]>; 2], spots: Spots) -> usize {
    let held = rows.iter().zip(spots);
    let held = held.map(|(row, spot)| row.get(usize::from(spot)).map_or(0, Cell::get));
    held.min().unwrap_or(0) as usize
}

fn change(rows: &[Box<[Cell<u32>]>; 2], spots: Spots, by: impl Fn(u32) -> u32) {
    for (row, spot) in rows.iter().zip(spots) {
        if let Some(number) = row.get(usize::from(spot)) {
            number.set(by(number.get()));
        }
    }
}

#[cfg(test)]
mod tests;
