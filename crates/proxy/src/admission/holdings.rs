//! The bytes that a worker holds for its clients, and who makes room where they are too many.
//!
//! Each connection says how much is held for it. There is one bound, for all workers together.
//! Beyond it only connections get more for which little is held, up to a quarter beyond, and what
//! waits for its own client goes; see [`super::waiting`]. Beyond that quarter a connection of
//! HTTP/2 or a tunnel that stands still goes: of those for which most is held, the one of which
//! that has been so for longest. Half a head of HTTP/1 goes before these, however little it is, and
//! for the next one where there is no room for that.
//!
//! A worker tells the others in steps, so that nearly every change costs a few stores.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::fifo::{Fifo, FifoSlots};
use super::pressure::{Pressure, PressureStep};
use super::spaces::{NOBODY, OwnSpaces, STEP_BYTES, Spots};
use super::waiting::TICKS_MIN;
use crate::codec::buffer::BUFFER_BYTES;
use crate::limits::Limits;
use crate::net::deadline::{self, Deadline, now_ticks};

/// A connection for which less is held than this holds little.
pub(crate) const LITTLE_BYTES: usize = 64 << 10;

/// A tunnel for which less is held than this is not worth its end. So much each reads at once
/// where too much is held.
pub(crate) const TUNNEL_BYTES: usize = 4 << 10;

/// The lines of connections and tunnels, by powers of two of what is held for them.
const LINES: usize = 20;

/// The first line of connections with half a head, behind those; they are as many.
const HEADS: usize = LINES;

/// How many of a line are looked at for one that may go.
const LOOK_MAX: usize = 32;

/// The place of a connection that serves more than one namespace.
const MANY: u16 = u16::MAX;

/// No place.
const NONE: u32 = u32::MAX;

/// The bytes that one worker holds for its clients.
pub struct Holdings {
    /// The bound of all workers.
    max: usize,
    /// The budget of the process, and the sum of what all of them hold.
    pressure: Arc<Pressure>,
    own: Cell<usize>,
    /// As much of it as the others know of.
    told: Cell<usize>,
    /// The bytes of connections that have to go, and have not gone yet.
    leaving: Cell<usize>,
    spaces: OwnSpaces,
    lines: RefCell<Lines>,
}

/// The connections and tunnels that may have to go.
struct Lines {
    places: FifoSlots<Holder>,
    /// The one that has held so much longest first.
    lines: [Fifo; HEADS + LINES],
}

#[derive(Clone, Copy)]
struct Holder {
    bytes: u32,
    deadline: u32,
    /// The tick at which anything moved last, of a tunnel.
    moved: u32,
    /// The place of the namespace that it is of.
    space: u16,
    kind: HolderKind,
    is_evicted: bool,
}

/// The kind of somebody who may have to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HolderKind {
    /// A connection for which much is held.
    Connection,
    /// A tunnel that stands still.
    Tunnel,
    /// A connection with half a head.
    Head,
}

/// The bytes that are held for one connection or tunnel; none of them once it is dropped.
pub struct HeldBytes {
    holdings: Rc<Holdings>,
    bytes: u32,
    place: u32,
    /// The places of the namespace that they are of.
    owner: Spots,
    /// Somebody else counts them, and they are known here for the sake of the place.
    is_counted: bool,
}

impl Holdings {
    /// Nothing is held.
    pub fn new(limits: &Limits, pressure: &Arc<Pressure>) -> Self {
        let half = pressure.max().map(|max| usize::try_from(max / 2));
        let half = half.map_or(usize::MAX, |half| half.unwrap_or(usize::MAX));
        Holdings {
            max: limits.all_held_bytes_max.min(half),
            pressure: pressure.clone(),
            own: Cell::new(0),
            told: Cell::new(0),
            leaving: Cell::new(0),
            spaces: OwnSpaces::default(),
            lines: RefCell::new(Lines {
                places: FifoSlots::default(),
                lines: [Fifo::default(); HEADS + LINES],
            }),
        }
    }

    /// A connection for which nothing is held.
    pub fn connection(self: &Rc<Self>) -> HeldBytes {
        HeldBytes {
            holdings: self.clone(),
            bytes: 0,
            place: NONE,
            owner: NOBODY,
            is_counted: false,
        }
    }

    /// A tunnel that is part of a connection, which counts what is held.
    pub fn counted(self: &Rc<Self>) -> HeldBytes {
        HeldBytes {
            holdings: self.clone(),
            bytes: 0,
            place: NONE,
            owner: NOBODY,
            is_counted: true,
        }
    }

    /// The bytes that this worker holds.
    pub fn own(&self) -> usize {
        self.own.get()
    }

    /// Whether too much is held.
    pub fn is_over(&self) -> bool {
        self.sum() > self.max
    }

    /// Whether more may be held for a connection of a namespace for which so much is held. Where
    /// more than one namespace holds much, those get more that have no more than their share.
    pub fn admits(&self, space: Spots, bytes: usize) -> bool {
        let sum = self.sum();
        if sum <= self.max {
            return true;
        }
        let (share, is_alone) = self.share(space);
        if is_alone {
            return bytes < LITTLE_BYTES && sum <= self.last();
        }
        let held = self.held(space);
        held <= share && (sum <= self.last() || (held <= share / 2 && sum <= self.beyond()))
    }

    /// The place of the namespace for which most is held, where that is more than its share.
    pub fn heaviest(&self) -> Option<u16> {
        let all = &self.pressure.spaces;
        let (space, held) = all.largest();
        // Sums are told in steps, so one may hold a step more than is known.
        (held + STEP_BYTES > self.max / all.active().max(1)).then_some(space)
    }

    /// How many bytes too many are held, where most is held for connections that are of no
    /// namespace: what those of HTTP/2 keep while they are idle.
    pub fn excess_of_nobody(&self) -> usize {
        let [nobody, _] = NOBODY;
        match self.is_over() && self.heaviest() == Some(nobody) {
            true => self.sum().saturating_sub(self.max),
            false => 0,
        }
    }

    /// How much is held for a namespace.
    fn held(&self, space: Spots) -> usize {
        self.spaces.held(&self.pressure.spaces, space)
    }

    /// The share of a namespace, and whether no other holds much.
    fn share(&self, space: Spots) -> (usize, bool) {
        let all = &self.pressure.spaces;
        let is_new = !self.spaces.is_active(all, space);
        let active = all.active() + usize::from(is_new);
        (self.max / active.max(1), active <= 1)
    }

    /// About how many bytes a tunnel may read at once: what is read may stay for as long as the
    /// other end likes.
    fn tunnel_room(&self, space: Spots) -> usize {
        let sum = self.sum();
        if sum <= self.max && self.pressure.step() < PressureStep::ShedLargest {
            return BUFFER_BYTES;
        }
        let (share, is_alone) = self.share(space);
        let most = match !is_alone && self.held(space) <= share {
            true => self.beyond(),
            false => self.last(),
        };
        if sum > most { 0 } else { TUNNEL_BYTES }
    }

    /// Lets connections and tunnels go that hold most, where far too much is held.
    pub fn relieve(&self) {
        while self.sum() > self.last() && self.evict(0, self.heaviest()) {}
    }

    /// Lets connections go that hold half a head, where too much is held for what is of no
    /// namespace.
    pub fn relieve_of_heads(&self) {
        while self.excess_of_nobody() > 0 && self.evict(HEADS, None) {}
    }

    /// The bytes that all workers hold, but for those that are about to be given back.
    fn sum(&self) -> usize {
        let all = self.pressure.held() + self.own.get();
        all.saturating_sub(self.told.get() + self.leaving.get())
    }

    /// The most that is held with what connections get that hold little.
    fn last(&self) -> usize {
        self.max.saturating_add(self.max / 4)
    }

    /// The most that is held with what namespaces get beside that which hold little.
    fn beyond(&self) -> usize {
        self.last().saturating_add(self.max / 8)
    }

    /// Lets one go of a line from a first one on, of the namespace at a place alone where there is
    /// one.
    fn evict(&self, first: usize, space: Option<u16>) -> bool {
        let mut all = self.lines.borrow_mut();
        let Lines { places, lines } = &mut *all;
        let largest = lines.iter_mut().skip(first).rev();
        let mut found = largest.filter_map(|line| Some((goer(places, *line, space)?, line)));
        let Some((index, line)) = found.next() else {
            return false;
        };
        places.unlink(line, index);
        if let Some(holder) = places.get_mut(index) {
            holder.is_evicted = true;
            let leaving = self.leaving.get() + holder.bytes as usize;
            self.leaving.set(leaving);
            deadline::expire(holder.deadline);
        }
        true
    }

    /// One connection holds so much in place of so much.
    fn change(&self, owner: Spots, before: u32, now: u32) {
        self.spaces
            .change(&self.pressure.spaces, owner, before, now);
        let own = self.own.get() + now as usize;
        let own = own.saturating_sub(before as usize);
        self.own.set(own);
        let told = self.told.get();
        if own.abs_diff(told) >= STEP_BYTES {
            self.told.set(own);
            self.pressure.hold(told, own);
        }
    }

    /// The connection of a place holds so much.
    fn note(&self, index: u32, bytes: u32) {
        let mut all = self.lines.borrow_mut();
        let Lines { places, lines } = &mut *all;
        let Some(holder) = places.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(&mut holder.bytes, bytes);
        if holder.is_evicted {
            let leaving = self.leaving.get() + bytes as usize;
            self.leaving.set(leaving.saturating_sub(before as usize));
            return;
        }
        let kind = holder.kind;
        let (from, to) = (line_of(before, kind), line_of(bytes, kind));
        if from == to {
            return;
        }
        if let Some(line) = from.and_then(|line| lines.get_mut(line)) {
            places.unlink(line, index);
        }
        if let Some(line) = to.and_then(|line| lines.get_mut(line)) {
            places.push(line, index);
        }
    }

    /// Something has moved in the tunnel of a place.
    fn get_on(&self, index: u32) {
        let mut all = self.lines.borrow_mut();
        let Lines { places, lines } = &mut *all;
        let Some(holder) = places.get_mut(index) else {
            return;
        };
        if std::mem::replace(&mut holder.moved, now_ticks()) == now_ticks() || holder.is_evicted {
            return;
        }
        let line = line_of(holder.bytes, holder.kind);
        if let Some(line) = line.and_then(|line| lines.get_mut(line)) {
            places.unlink(line, index);
            places.push(line, index);
        }
    }
}

impl Holder {
    /// Whether it may go: a tunnel once it stands still.
    fn may_go(&self, space: Option<u16>) -> bool {
        let is_asked = space.is_none_or(|space| self.space == space);
        let is_still = || now_ticks().saturating_sub(self.moved) >= TICKS_MIN;
        is_asked && (self.kind != HolderKind::Tunnel || is_still())
    }
}

impl Drop for Holdings {
    fn drop(&mut self) {
        self.pressure.hold(self.told.get(), 0);
        self.spaces.clear(&self.pressure.spaces);
    }
}

impl HeldBytes {
    /// It may have to go: then its deadline passes at once.
    pub fn watch(&mut self, deadline: &Deadline) {
        self.stand(deadline, HolderKind::Connection);
    }

    /// The same for a tunnel, which goes only while it stands still.
    pub fn watch_tunnel(&mut self, deadline: &Deadline) {
        self.stand(deadline, HolderKind::Tunnel);
    }

    /// The same for a connection with half a head, which goes for the next one as well.
    pub fn watch_head(&mut self, deadline: &Deadline) {
        self.stand(deadline, HolderKind::Head);
    }

    /// It does not have to go any more.
    pub fn unwatch(&mut self) {
        let place = std::mem::replace(&mut self.place, NONE);
        if place == NONE {
            return;
        }
        // Who holds nothing is in no line.
        self.holdings.note(place, 0);
        let mut all = self.holdings.lines.borrow_mut();
        all.places.give_back(place);
    }

    fn stand(&mut self, deadline: &Deadline, kind: HolderKind) {
        if self.place != NONE {
            return;
        }
        self.place = self.holdings.lines.borrow_mut().places.take(Holder {
            bytes: 0,
            deadline: deadline.number(),
            moved: now_ticks(),
            space: self.space(),
            kind,
            is_evicted: false,
        });
        self.holdings.note(self.place, self.bytes);
    }

    fn space(&self) -> u16 {
        let [space, _] = self.owner;
        space
    }

    /// Something has moved in the tunnel.
    pub fn get_on(&self) {
        self.holdings.get_on(self.place);
    }

    /// About how many bytes a tunnel may read at once.
    pub fn room(&self) -> usize {
        self.holdings.tunnel_room(self.owner)
    }

    /// The places of the namespace that they are of.
    pub fn owner(&self) -> Spots {
        self.owner
    }

    /// They are of a namespace from now on.
    pub fn belong(&mut self, owner: Spots) {
        let before = std::mem::replace(&mut self.owner, owner);
        if before == owner {
            return;
        }
        if !self.is_counted {
            let (spaces, all) = (&self.holdings.spaces, &self.holdings.pressure.spaces);
            spaces.change(all, before, self.bytes, 0);
            spaces.change(all, owner, 0, self.bytes);
        }
        let [space, _] = owner;
        let mut all = self.holdings.lines.borrow_mut();
        if let Some(holder) = all.places.get_mut(self.place) {
            holder.space = space;
        }
    }

    /// A part of them is of a namespace, so much in place of so much.
    pub fn assign(&self, owner: Spots, before: usize, now: usize) {
        if before == now || owner == self.owner {
            return;
        }
        let [before, now] = [before, now].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let (spaces, all) = (&self.holdings.spaces, &self.holdings.pressure.spaces);
        spaces.change(all, owner, before, now);
        spaces.change(all, self.owner, now, before);
    }

    /// The connection serves a namespace, perhaps beside others.
    pub fn serve(&self, [space, _]: Spots) {
        let mut all = self.holdings.lines.borrow_mut();
        if let Some(holder) = all.places.get_mut(self.place)
            && holder.space != space
        {
            let [nobody, _] = NOBODY;
            let is_first = holder.space == nobody;
            holder.space = if is_first { space } else { MANY };
        }
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// So many are held now.
    pub fn set(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes == before {
            return;
        }
        if !self.is_counted {
            self.holdings.change(self.owner, before, bytes);
        }
        if self.place != NONE {
            self.holdings.note(self.place, bytes);
        }
        if bytes > before {
            self.holdings.relieve();
        }
    }

    /// Whether there may be more.
    pub fn may_grow(&self) -> bool {
        self.may_grow_for(self.owner)
    }

    /// The same for a namespace that it serves.
    pub fn may_grow_for(&self, owner: Spots) -> bool {
        self.holdings.admits(owner, self.bytes())
    }

    /// Lets another go that holds half a head, so that there is room for this one; false where that
    /// is the one which has to.
    pub fn exchange(&self) -> bool {
        self.holdings.evict(HEADS, None) && !self.is_evicted()
    }

    /// Whether the connection has to go.
    pub fn is_evicted(&self) -> bool {
        let place = self.holdings.lines.borrow().places.get(self.place);
        self.place != NONE && place.is_some_and(|holder| holder.is_evicted)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
        self.unwatch();
    }
}

/// The first of a line that may go, of the namespace at a place alone where there is one.
fn goer(places: &FifoSlots<Holder>, line: Fifo, space: Option<u16>) -> Option<u32> {
    let all = std::iter::successors(line.first(), |index| places.behind(*index));
    let may_go = |index: &u32| {
        places
            .get(*index)
            .is_some_and(|holder| holder.may_go(space))
    };
    all.take(LOOK_MAX).find(may_go)
}

/// The line of those of a kind that hold so much; none of those that hold little.
fn line_of(bytes: u32, kind: HolderKind) -> Option<usize> {
    let (first, least) = match kind {
        HolderKind::Connection => (0, LITTLE_BYTES),
        HolderKind::Tunnel => (0, TUNNEL_BYTES),
        HolderKind::Head => (HEADS, TUNNEL_BYTES),
    };
    let bytes = bytes as usize;
    let power = (bytes / TUNNEL_BYTES).checked_ilog2()?;
    (bytes >= least).then_some(first + (power as usize).min(LINES - 1))
}

#[cfg(test)]
mod tests;
