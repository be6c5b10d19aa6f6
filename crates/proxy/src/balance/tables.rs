//! The tables that hashes lead to endpoints by: each is built once for all upstreams of a namespace
//! that have the same endpoints and settings, within one budget of bytes for the process, of which
//! a namespace has a share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_model::HashTable;

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

/// A table by which hashes lead to members, and how many bytes it takes.
pub struct BalanceTable {
    /// How hashes lead to members.
    pub kind: TableKind,
    bytes: u64,
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
    shown: Shown,
}

#[derive(Default)]
struct Known {
    tables: BTreeMap<Arc<Parts>, Weak<BalanceTable>>,
    bytes: u64,
    /// The bytes of each namespace that has any.
    owners: HashMap<u64, u64>,
}

#[derive(Default)]
struct Shown {
    count: Gauge<i64, AtomicI64>,
    bytes: Gauge<i64, AtomicI64>,
    reduced: Counter,
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

    /// The table of these members, which are marks with weights: the one that somebody of the
    /// namespace has already, or a new one. Where there is no room for it, or the namespace has its
    /// share, a ring of few points, and where there is none for that either, no table. The owner is
    /// a number for the namespace.
    pub fn get(
        &self,
        owner: u64,
        members: Box<[(u64, u32)]>,
        wanted: HashTable,
    ) -> Arc<BalanceTable> {
        let bytes_max = self.0.bytes_max.load(Relaxed);
        let parts = match self.find_or_make(Parts::new(owner, members, wanted), bytes_max) {
            Ok(table) => return table,
            Err(parts) => parts,
        };
        self.0.shown.reduced.inc();
        let count = u32::try_from(parts.members.len()).unwrap_or(u32::MAX);
        let least = HashTable::Ring(count.saturating_mul(POINTS_LEAST).max(1));
        let parts = Parts::new(owner, parts.members, least);
        let bytes_max = bytes_max.saturating_add(bytes_max / REDUCED_PART);
        match self.find_or_make(parts, bytes_max) {
            Ok(table) => table,
            Err(parts) => self.make_none(parts.members.len()),
        }
    }

    /// The table that somebody has already, or a new one; the parts again where it would bring all
    /// together beyond a budget, or its namespace beyond its share. Its bytes are taken before it
    /// is built: many may want one at once.
    fn find_or_make(&self, parts: Parts, bytes_max: u64) -> Result<Arc<BalanceTable>, Parts> {
        let reserved = parts.bytes();
        {
            let mut known = self.lock();
            if let Some(table) = known.tables.get(&parts).and_then(Weak::upgrade) {
                return Ok(table);
            }
            if !known.has_room(parts.owner, reserved, bytes_max) {
                return Err(parts);
            }
            known.take(parts.owner, reserved);
        }
        Ok(self.make(parts, reserved))
    }

    /// A stand-in for a table of so many members. Nobody shares it.
    fn make_none(&self, members: usize) -> Arc<BalanceTable> {
        Arc::new(BalanceTable {
            kind: TableKind::Remainder(members),
            bytes: 0,
            parts: Arc::new(Parts::new(0, Box::default(), HashTable::Ring(0))),
            tables: self.clone(),
        })
    }

    /// Builds a table outside of the lock, so that nobody waits for it who wants another.
    fn make(&self, parts: Parts, reserved: u64) -> Arc<BalanceTable> {
        let parts = Arc::new(parts);
        let kind = parts.build();
        let bytes = kind.bytes() + parts.members_bytes();
        let table = Arc::new(BalanceTable {
            kind,
            bytes,
            parts: parts.clone(),
            tables: self.clone(),
        });
        let mut known = self.lock();
        known.give_back(parts.owner, reserved);
        // Somebody may have been faster. Its own goes unseen: it is not counted yet.
        if let Some(first) = known.tables.get(&parts).and_then(Weak::upgrade) {
            drop(known);
            return first;
        }
        // One that is just being dropped is of the same size, and counted still.
        let owner = parts.owner;
        if known.tables.insert(parts, Arc::downgrade(&table)).is_none() {
            known.take(owner, bytes);
        }
        self.show(&known);
        drop(known);
        table
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
        let own = known.tables.get(&self.parts).map(Weak::as_ptr);
        if own == Some(std::ptr::from_ref(self)) {
            known.tables.remove(&self.parts);
            known.give_back(self.parts.owner, self.bytes);
            self.tables.show(&known);
        }
    }
}

impl Known {
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
mod tests {
    use std::sync::Arc;

    use myriad_base::metrics::Metrics;
    use myriad_model::HashTable;

    use super::{BalanceTable, HashTables, MEMBER_BYTES, POINTS_LEAST, REDUCED_PART, TableKind};

    const OWNER: u64 = 7;

    fn members(count: u64) -> Box<[(u64, u32)]> {
        (1..=count).map(|mark| (mark << 32, 1)).collect()
    }

    fn bytes(tables: &HashTables) -> u64 {
        tables.lock().bytes
    }

    #[test]
    fn equal_endpoints_share_a_table_until_nobody_uses_it() {
        let tables = HashTables::new(u64::MAX);
        let subsets: Vec<_> = (0..100)
            .map(|_| tables.get(OWNER, members(3), HashTable::Ring(1 << 20)))
            .collect();
        assert!(subsets.iter().all(|it| Arc::ptr_eq(it, &subsets[0])));
        assert_eq!(bytes(&tables), subsets[0].bytes);
        let other = tables.get(OWNER, members(3), HashTable::Maglev(251));
        let maglev = 251 * 4 + 3 * MEMBER_BYTES;
        assert_eq!(bytes(&tables), subsets[0].bytes + maglev);
        drop(subsets);
        assert_eq!(bytes(&tables), maglev);
        drop(other);
        assert_eq!((bytes(&tables), tables.lock().tables.len()), (0, 0));
        assert!(tables.lock().owners.is_empty());
    }

    #[test]
    fn a_hundred_large_rings_of_different_endpoints_stay_within_the_budget() {
        let budget = 64 << 20;
        let tables = HashTables::new(budget);
        let metrics = Metrics::new();
        tables.begin(budget, &metrics);
        let rings: Vec<_> = (1..=100)
            .map(|count| tables.get(OWNER, members(count), HashTable::Ring(1 << 20)))
            .collect();
        let least = 100 * 101 / 2 * u64::from(POINTS_LEAST) * 12;
        assert!(bytes(&tables) <= budget / 4 + least, "{}", bytes(&tables));
        // One has what it asked for, and each of the others still leads everywhere.
        let text = metrics.encode();
        assert!(
            text.contains("myriad_hash_tables_reduced_total 99\n"),
            "{text}"
        );
        assert!(text.contains("myriad_hash_tables 100\n"), "{text}");
        for (ring, count) in rings.iter().zip(1..) {
            let TableKind::Ring(ring) = &ring.kind else {
                panic!("no ring")
            };
            let mut met: Vec<usize> = ring.walk(7).collect();
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len(), count);
        }
    }

    #[test]
    fn a_namespace_leaves_room_to_others() {
        let budget = 4 << 20;
        let tables = HashTables::new(budget);
        let ring = |owner, set: u64| {
            let marks = [(set, 1), (set + 1, 1)];
            tables.get(owner, marks.into(), HashTable::Ring(1_024))
        };
        let is_whole = |table: &BalanceTable| match &table.kind {
            TableKind::Ring(ring) => ring.len() >= 1_024,
            TableKind::Maglev(_) | TableKind::Remainder(_) => false,
        };
        let many: Vec<_> = (1..=12_000).map(|set| ring(OWNER, set * 2)).collect();
        let whole = many.iter().filter(|it| is_whole(it)).count();
        assert!((80..100).contains(&whole), "{whole}");
        assert!(bytes(&tables) <= (budget + budget / REDUCED_PART) / 4);
        // Another namespace has what it asks for, be it a table that the first has as well.
        for set in [2, 24_000, 99_999] {
            assert!(is_whole(&ring(OWNER + 1, set)), "{set}");
        }
        drop(many);
        assert_eq!((bytes(&tables), tables.lock().owners.len()), (0, 0));
    }

    #[test]
    fn rings_of_few_points_are_within_the_budget_too() {
        let (share, budget) = (1 << 20, 4 << 20);
        let tables = HashTables::new(budget);
        // 64 of 437 endpoints each, of which no two are the same.
        let all: Vec<_> = (0..64_u64)
            .map(|set| {
                let marks = (0..437_u64).map(|member| (set * 1_000 + member + 1, 1));
                tables.get(OWNER, marks.collect(), HashTable::Ring(65_537))
            })
            .collect();
        assert!(bytes(&tables) <= share + share / REDUCED_PART);
        let counts = all
            .iter()
            .fold([0, 0, 0], |[large, small, none], table| match &table.kind {
                TableKind::Ring(ring) if ring.len() >= 65_537 => [large + 1, small, none],
                TableKind::Ring(_) => [large, small + 1, none],
                TableKind::Remainder(437) => [large, small, none + 1],
                _ => panic!("no such table"),
            });
        // One takes 66,000 points, and few points are 8 for each.
        assert_eq!(counts[0], 1, "{counts:?}");
        assert!(counts[1] > 4 && counts[2] > 40, "{counts:?}");
        // What is free again goes to who asks next.
        drop(all);
        assert_eq!(bytes(&tables), 0);
        let again = tables.get(OWNER, members(437), HashTable::Ring(65_537));
        assert!(matches!(&again.kind, TableKind::Ring(_)));
    }
}
