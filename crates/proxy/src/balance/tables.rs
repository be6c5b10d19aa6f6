//! The tables that hashes lead to endpoints by: each is built once for all upstreams of a namespace
//! that have the same endpoints and settings, within one budget of bytes for the process, of which
//! a namespace has a share.
//!
//! Once a process serves, long work is not done by whoever follows the controller: a large table is
//! built beside, and until it is there the one before leads to those endpoints that are still
//! there. Whoever has other long work to do for a namespace has it done there as well.

mod building;
mod former;

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_model::HashTable;
use tokio::sync::oneshot;

use self::building::{BesideWork, Building};
use self::former::FormerTable;
use super::maglev::Maglev;
use super::ring::Ring;
use crate::limits::namespace_max;

/// The points that an endpoint has, on average, on a ring beyond the budget: as much memory as the
/// endpoint itself takes.
const POINTS_LEAST: u32 = 8;

/// The bytes of a point on a ring.
const POINT_BYTES: u64 = (size_of::<u64>() + size_of::<u32>()) as u64;

/// The part of the budget that rings of few points may take beyond it.
const REDUCED_PART: u64 = 4;

/// The bytes of a member among what makes tables equal.
const MEMBER_BYTES: u64 = size_of::<(u64, u32)>() as u64;

/// The bytes of a place in a table of Maglev.
const PLACE_BYTES: u64 = size_of::<u32>() as u64;

/// A table by which hashes lead to members.
pub struct BalanceTable {
    /// How hashes lead to members, once that is built.
    kind: OnceLock<TableKind>,
    /// The table before, until then.
    former: ArcSwapOption<FormerTable>,
    parts: Arc<Parts>,
    tables: HashTables,
}

/// How hashes lead to members.
pub enum TableKind {
    /// A ring of points.
    Ring(Ring),
    /// A table of places.
    Maglev(Maglev),
    /// No table, where there is no memory for any: a hash leads to the member at its remainder.
    /// Equal hashes lead to equal members for as long as members stay the same.
    Remainder(usize),
}

/// How a table is made.
#[derive(Clone, Copy)]
pub enum Making<'a> {
    /// At once.
    AtOnce,
    /// Beside, where that takes long and the process serves. Until then this one is used, where
    /// there was any.
    Beside(Option<&'a Arc<BalanceTable>>),
}

/// The parts by which tables are equal: whose they are, size, and the marks and weights of members
/// in their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Parts {
    owner: u64,
    is_maglev: bool,
    size: u32,
    members: Box<[(u64, u32)]>,
}

/// All tables that are in use. Cheap to clone.
#[derive(Clone, Default)]
pub struct HashTables(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<Known>,
    bytes_max: AtomicU64,
    building: Building,
    shown: Shown,
}

#[derive(Default)]
struct Known {
    tables: BTreeMap<Arc<Parts>, KnownTable>,
    bytes: u64,
    /// The bytes of each namespace that has any.
    owners: HashMap<u64, u64>,
}

/// A table that somebody uses, and the bytes that are counted for it: until it is built, the most
/// that it may take.
struct KnownTable {
    table: Weak<BalanceTable>,
    bytes: u64,
}

#[derive(Default)]
struct Shown {
    count: Gauge<i64, AtomicI64>,
    bytes: Gauge<i64, AtomicI64>,
    reduced: Counter,
}

impl BalanceTable {
    /// How hashes lead to members; `None` as long as it is yet to be built.
    pub fn kind(&self) -> Option<&TableKind> {
        self.kind.get()
    }

    /// The first member for a hash that may be taken, by the table before, as long as this one is
    /// yet to be built. Whoever is there no more is passed over.
    pub fn find_before(&self, hash: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        let former = self.former.load();
        former.as_deref()?.find(hash, may)
    }

    /// The table that serves now: itself once it is built, and else the one before.
    fn serving(self: &Arc<Self>) -> Option<Arc<BalanceTable>> {
        let before = || self.former.load().as_deref().map(FormerTable::table);
        match self.kind.get() {
            Some(_) => Some(self.clone()),
            // It may have been built since.
            None => before().or_else(|| self.kind.get().map(|_| self.clone())),
        }
    }
}

impl HashTables {
    /// An empty store of tables, with a budget in bytes.
    pub fn new(bytes_max: u64) -> Self {
        let tables = HashTables::default();
        tables.0.bytes_max.store(bytes_max, Relaxed);
        tables
    }

    /// The tables that all upstreams of the process share.
    pub fn of_process() -> &'static HashTables {
        static TABLES: LazyLock<HashTables> = LazyLock::new(|| HashTables::new(u64::MAX));
        &TABLES
    }

    /// Sets the budget in bytes, and shows them as metrics. Tables that are there stay.
    pub fn begin(&self, bytes_max: u64, metrics: &Metrics) {
        self.0.bytes_max.store(bytes_max, Relaxed);
        let shown = &self.0.shown;
        let help = "Hash rings and Maglev tables in use, each counted once however many share it";
        metrics.register("hash_tables", help, shown.count.clone());
        let help = "The memory of hash rings and Maglev tables";
        metrics.register("hash_table_bytes", help, shown.bytes.clone());
        let help = "Hash rings and Maglev tables made small since all, or those of their \
                    namespace, were at their limit";
        metrics.register("hash_tables_reduced", help, shown.reduced.clone());
    }

    /// From now on large tables are built beside, on a thread of their own. Nothing is served
    /// before that, so that nobody waits for tables which are built at once.
    pub fn build_beside(&self) {
        if !self.0.building.begin() {
            return;
        }
        let tables = self.clone();
        let work = move || {
            while let Some(work) = tables.0.building.wait() {
                tables.perform(work);
            }
        };
        let thread = std::thread::Builder::new().name("hash tables".to_owned());
        if let Err(error) = thread.spawn(work) {
            tracing::error!(%error, "there is no thread for hash tables: they are built at once");
            self.0.building.end();
        }
    }

    /// Has long work of a namespace done where large tables are built, in the turns of namespaces,
    /// or at once where nothing is served yet. None where it has panicked.
    pub async fn work_beside<T: Send + 'static>(
        &self,
        owner: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !self.0.building.is_begun() {
            return Some(work());
        }
        let (sender, receiver) = oneshot::channel();
        let work = move || {
            // Nothing is done for who does not wait any more.
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        };
        self.0.building.push_other(owner, Box::new(work));
        receiver.await.ok()
    }

    /// A commit begins, which may have some tables built at once.
    pub fn renew(&self) {
        self.0.building.renew();
    }

    /// The table of these members, which are marks with weights: the one that somebody of the
    /// namespace has already, or a new one. Where there is no room for it, or the namespace has its
    /// share, a ring of few points, and where there is none for that either, no table. The owner is
    /// a number for the namespace.
    pub fn get(
        &self,
        owner: u64,
        members: Box<[(u64, u32)]>,
        wanted: HashTable,
        making: Making<'_>,
    ) -> Arc<BalanceTable> {
        let bytes_max = self.0.bytes_max.load(Relaxed);
        let parts = Parts::new(owner, members, wanted);
        let parts = match self.find_or_make(parts, bytes_max, making) {
            Ok(table) => return table,
            Err(parts) => parts,
        };
        self.0.shown.reduced.inc();
        let count = u32::try_from(parts.members.len()).unwrap_or(u32::MAX);
        let least = HashTable::Ring(count.saturating_mul(POINTS_LEAST).max(1));
        let parts = Parts::new(owner, parts.members, least);
        let bytes_max = bytes_max.saturating_add(bytes_max / REDUCED_PART);
        match self.find_or_make(parts, bytes_max, making) {
            Ok(table) => table,
            Err(parts) => self.make_none(parts.members.len()),
        }
    }

    /// The table that somebody has already, or a new one; the parts again where it would bring all
    /// together beyond a budget, or its namespace beyond its share. Its bytes are taken before it
    /// is built: many may want one at once.
    fn find_or_make(
        &self,
        parts: Parts,
        bytes_max: u64,
        making: Making<'_>,
    ) -> Result<Arc<BalanceTable>, Parts> {
        let reserved = parts.bytes();
        {
            let mut known = self.lock();
            if let Some(table) = known.find(&parts) {
                return Ok(table);
            }
            if !known.has_room(parts.owner, reserved, bytes_max) {
                return Err(parts);
            }
            known.take(parts.owner, reserved);
        }
        Ok(self.make(parts, reserved, making))
    }

    /// A stand-in for a table of so many members. Nobody shares it.
    fn make_none(&self, members: usize) -> Arc<BalanceTable> {
        Arc::new(BalanceTable {
            kind: OnceLock::from(TableKind::Remainder(members)),
            former: ArcSwapOption::empty(),
            parts: Arc::new(Parts::new(0, Box::default(), HashTable::Ring(0))),
            tables: self.clone(),
        })
    }

    /// Makes a table, and builds it outside of the lock, so that nobody waits for it who wants
    /// another; or leaves that to the thread beside.
    fn make(&self, parts: Parts, reserved: u64, making: Making<'_>) -> Arc<BalanceTable> {
        let parts = Arc::new(parts);
        let before = match making {
            Making::Beside(before) if self.0.building.puts_off(parts.slots()) => Some(before),
            Making::AtOnce | Making::Beside(_) => None,
        };
        let (kind, former, bytes) = match before {
            None => {
                let kind = parts.build();
                let bytes = kind.bytes() + parts.members_bytes();
                (OnceLock::from(kind), None, bytes)
            }
            Some(before) => {
                let serving = before.and_then(BalanceTable::serving);
                let former = serving.map(|table| FormerTable::new(table, &parts.members));
                (OnceLock::new(), former.map(Arc::new), reserved)
            }
        };
        let table = Arc::new(BalanceTable {
            kind,
            former: ArcSwapOption::new(former),
            parts: parts.clone(),
            tables: self.clone(),
        });
        let mut known = self.lock();
        known.give_back(parts.owner, reserved);
        // Somebody may have been faster. Its own goes unseen: it is not counted yet.
        if let Some(first) = known.find(&parts) {
            drop(known);
            return first;
        }
        let owner = parts.owner;
        known.insert(parts, &table, bytes);
        self.show(&known);
        drop(known);
        if before.is_some() {
            self.0.building.push(owner, Arc::downgrade(&table));
        }
        table
    }

    /// Does work that has its turn.
    fn perform(&self, work: BesideWork) {
        match work {
            BesideWork::Table(table) => self.build(&table),
            // Whoever waits learns of a panic by being told nothing.
            BesideWork::Other(work) => drop(catch_unwind(AssertUnwindSafe(work))),
        }
    }

    /// Builds a table that was put off.
    fn build(&self, table: &Arc<BalanceTable>) {
        let kind = table.parts.build();
        let bytes = kind.bytes() + table.parts.members_bytes();
        if table.kind.set(kind).is_err() {
            return;
        }
        // It may be the last to hold the one before, which needs the lock to go.
        table.former.store(None);
        let mut known = self.lock();
        known.resize(table, bytes);
        self.show(&known);
    }

    fn show(&self, known: &Known) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let shown = &self.0.shown;
        shown.count.set(number(known.tables.len() as u64));
        shown.bytes.set(number(known.bytes));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BalanceTable {
    fn drop(&mut self) {
        let mut known = self.tables.lock();
        // Another may have come in its place, or it never had one.
        if known.remove(self) {
            self.tables.show(&known);
        }
    }
}

impl Known {
    /// The table of these parts that somebody uses.
    fn find(&self, parts: &Parts) -> Option<Arc<BalanceTable>> {
        self.tables.get(parts)?.table.upgrade()
    }

    /// Counts a table, in place of one that is just being dropped.
    fn insert(&mut self, parts: Arc<Parts>, table: &Arc<BalanceTable>, bytes: u64) {
        let owner = parts.owner;
        let table = Arc::downgrade(table);
        let former = self.tables.insert(parts, KnownTable { table, bytes });
        if let Some(former) = former {
            self.give_back(owner, former.bytes);
        }
        self.take(owner, bytes);
    }

    /// Counts a table with other bytes than before.
    fn resize(&mut self, table: &Arc<BalanceTable>, bytes: u64) {
        if self.is_counted(table) {
            self.insert(table.parts.clone(), table, bytes);
        }
    }

    /// Counts a table no more; whether it was.
    fn remove(&mut self, table: &BalanceTable) -> bool {
        if !self.is_counted(table) {
            return false;
        }
        let former = self.tables.remove(&table.parts);
        let bytes = former.map_or(0, |former| former.bytes);
        self.give_back(table.parts.owner, bytes);
        true
    }

    fn is_counted(&self, table: &BalanceTable) -> bool {
        let known = self.tables.get(&table.parts);
        known.is_some_and(|known| known.table.as_ptr() == std::ptr::from_ref(table))
    }

    /// Whether so many bytes more of a namespace are within a budget, and within its share of it.
    fn has_room(&self, owner: u64, bytes: u64, bytes_max: u64) -> bool {
        let share = namespace_max(usize::try_from(bytes_max).unwrap_or(usize::MAX)) as u64;
        let own = self.owners.get(&owner).copied().unwrap_or_default();
        self.bytes.saturating_add(bytes) <= bytes_max && own.saturating_add(bytes) <= share
    }

    fn take(&mut self, owner: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let own = self.owners.entry(owner).or_default();
        *own = own.saturating_add(bytes);
    }

    fn give_back(&mut self, owner: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(own) = self.owners.get_mut(&owner) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.owners.remove(&owner);
            }
        }
    }
}

impl Parts {
    fn new(owner: u64, members: Box<[(u64, u32)]>, wanted: HashTable) -> Self {
        let (is_maglev, size) = match wanted {
            HashTable::Ring(size) => (false, size),
            HashTable::Maglev(size) => (true, size),
        };
        Parts {
            owner,
            is_maglev,
            size,
            members,
        }
    }

    /// The most bytes that the table takes.
    fn bytes(&self) -> u64 {
        let slots = match self.is_maglev {
            true => u64::from(self.size) * PLACE_BYTES,
            false => u64::from(self.points_max()) * POINT_BYTES,
        };
        slots.saturating_add(self.members_bytes())
    }

    /// The bytes of the members, by which the table is found.
    fn members_bytes(&self) -> u64 {
        self.members.len() as u64 * MEMBER_BYTES
    }

    /// The slots that are filled to build the table.
    fn slots(&self) -> u64 {
        match self.is_maglev {
            true => u64::from(self.size),
            false => u64::from(self.points_max()),
        }
    }

    /// The most points of a ring: what is asked for, and one more for each member, since each has
    /// whole points.
    fn points_max(&self) -> u32 {
        let count = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.size.saturating_add(count)
    }

    fn build(&self) -> TableKind {
        let members = &self.members;
        match self.is_maglev {
            true => TableKind::Maglev(Maglev::new(members, self.size)),
            false => TableKind::Ring(Ring::new(members, self.size, self.points_max())),
        }
    }
}

impl TableKind {
    fn bytes(&self) -> u64 {
        match self {
            TableKind::Ring(ring) => ring.len() as u64 * POINT_BYTES,
            TableKind::Maglev(maglev) => maglev.len() as u64 * PLACE_BYTES,
            TableKind::Remainder(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;
