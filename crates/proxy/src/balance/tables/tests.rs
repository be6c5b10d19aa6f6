//! Budgets of tables, whose they are, and how equal ones are shared.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use myriad_base::metrics::Metrics;
use myriad_model::HashTable;

use super::building::AT_ONCE_SLOTS_MAX;
use super::{
    BalanceTable, HashTables, MEMBER_BYTES, Making, POINTS_LEAST, REDUCED_PART, TableKind,
};

const OWNER: u64 = 7;

/// Large enough that few are built at once.
const LARGE: HashTable = HashTable::Maglev(65_537);

fn members(count: u64) -> Box<[(u64, u32)]> {
    (1..=count).map(|mark| (mark << 32, 1)).collect()
}

fn bytes(tables: &HashTables) -> u64 {
    tables.lock().bytes
}

fn kind(table: &BalanceTable) -> &TableKind {
    table.kind().expect("a table that is built")
}

/// Builds the next table that was put off, or does other work; whether there was any.
fn build_next(tables: &HashTables) -> bool {
    let next = tables.0.building.next();
    next.map(|work| tables.perform(work)).is_some()
}

/// Tables of a process that serves, which are built beside by whoever calls for it. No commit
/// has begun that may have any built at once.
fn serving() -> HashTables {
    let tables = HashTables::new(u64::MAX);
    assert!(tables.0.building.begin());
    tables
}

#[test]
fn equal_endpoints_share_a_table_until_nobody_uses_it() {
    let tables = HashTables::new(u64::MAX);
    let subsets: Vec<_> = (0..100)
        .map(|_| tables.get(OWNER, members(3), HashTable::Ring(1 << 20), Making::AtOnce))
        .collect();
    assert!(subsets.iter().all(|it| Arc::ptr_eq(it, &subsets[0])));
    let ring = bytes(&tables);
    assert!(ring >= 12 << 20, "{ring}");
    let other = tables.get(OWNER, members(3), HashTable::Maglev(251), Making::AtOnce);
    let maglev = 251 * 4 + 3 * MEMBER_BYTES;
    assert_eq!(bytes(&tables), ring + maglev);
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
        .map(|count| {
            tables.get(
                OWNER,
                members(count),
                HashTable::Ring(1 << 20),
                Making::AtOnce,
            )
        })
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
        let TableKind::Ring(ring) = kind(ring) else {
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
        tables.get(owner, marks.into(), HashTable::Ring(1_024), Making::AtOnce)
    };
    let is_whole = |table: &BalanceTable| match kind(table) {
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
            tables.get(
                OWNER,
                marks.collect(),
                HashTable::Ring(65_537),
                Making::AtOnce,
            )
        })
        .collect();
    assert!(bytes(&tables) <= share + share / REDUCED_PART);
    let counts = all
        .iter()
        .fold([0, 0, 0], |[large, small, none], table| match kind(table) {
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
    let again = tables.get(OWNER, members(437), HashTable::Ring(65_537), Making::AtOnce);
    assert!(matches!(kind(&again), TableKind::Ring(_)));
}

#[test]
fn a_commit_builds_a_few_tables_at_once_and_leaves_the_rest_to_turns_of_namespaces() {
    let tables = serving();
    tables.renew();
    let made = |owner, count| tables.get(owner, members(count), LARGE, Making::Beside(None));
    let evil: Vec<_> = (100..162).map(|count| made(OWNER, count)).collect();
    let built = || evil.iter().filter(|it| it.kind().is_some()).count();
    assert_eq!(built() as u64, AT_ONCE_SLOTS_MAX / 65_537);
    // Another commit gains nothing while any of them waits.
    tables.renew();
    let good = made(OWNER + 1, 3);
    assert!(good.kind().is_none());
    // Equal ones are one, be they built or not.
    assert!(Arc::ptr_eq(&made(OWNER, 161), &evil[61]));
    let at_once = built();
    assert!(build_next(&tables) && build_next(&tables));
    assert_eq!((built(), good.kind().is_some()), (at_once + 1, true));
    // Nobody builds what nobody wants any more.
    let left = evil.last().cloned();
    drop(evil);
    assert!(build_next(&tables) && !build_next(&tables));
    assert!(left.is_some_and(|it| it.kind().is_some()));
    tables.renew();
    assert!(made(OWNER, 7).kind().is_some());
}

fn fail() -> u64 {
    panic!("on purpose")
}

#[tokio::test]
async fn other_work_is_done_beside_in_the_turns_of_namespaces() {
    let early = HashTables::new(u64::MAX);
    assert_eq!(
        early.work_beside(OWNER, || 7).await,
        Some(7),
        "nothing is served yet"
    );
    let tables = serving();
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let begin = |owner: u64| {
        let (tables, order) = (tables.clone(), order.clone());
        let mut work = Box::pin(async move {
            let note = move || order.lock().unwrap().push(owner);
            tables.work_beside(owner, note).await
        });
        // It waits for its turn from now on.
        assert!(work.as_mut().now_or_never().is_none());
        work
    };
    let mut evil: Vec<_> = (0..50).map(|_| begin(OWNER)).collect();
    let good = begin(OWNER + 1);
    let gone = evil.split_off(40);
    drop(gone);
    let panicking = tables.work_beside(OWNER + 2, fail);
    let mut panicking = Box::pin(async move { panicking.await.is_some() });
    assert!(panicking.as_mut().now_or_never().is_none());
    assert!(build_next(&tables) && build_next(&tables));
    assert_eq!(*order.lock().unwrap(), [OWNER, OWNER + 1]);
    assert_eq!(good.await, Some(()));
    while build_next(&tables) {}
    // Nothing was done for those who had gone.
    assert_eq!(order.lock().unwrap().len(), 41);
    assert!(
        !panicking.await,
        "and the others had their turns all the same"
    );
    for work in evil {
        assert_eq!(work.await, Some(()));
    }
}

#[test]
fn until_a_table_is_built_the_one_before_leads_to_those_that_are_still_there() {
    let tables = serving();
    let before = tables.get(OWNER, members(5), LARGE, Making::AtOnce);
    let TableKind::Maglev(places) = kind(&before) else {
        panic!("no Maglev table")
    };
    let owned: Vec<usize> = (0..500)
        .filter_map(|hash| places.walk(hash).next())
        .collect();
    // Without the third, and in another order.
    let mut rest = members(5).into_vec();
    rest.remove(2);
    rest.reverse();
    let wanted = rest.clone().into();
    let next = tables.get(OWNER, wanted, LARGE, Making::Beside(Some(&before)));
    assert!(next.kind().is_none());
    for (hash, owner) in owned.iter().enumerate() {
        let found = next.find_before(hash as u64, |_| true).expect("a member");
        let (mark, _) = rest[found];
        assert!(*owner == 2 || mark == (*owner as u64 + 1) << 32, "{hash}");
    }
    // One after it, before it is built, is led by the same.
    let other = Box::from(&rest[1..]);
    let last = tables.get(OWNER, other, LARGE, Making::Beside(Some(&next)));
    assert!(last.find_before(0, |_| true).is_some());
    let held = bytes(&tables);
    drop((before, next));
    assert!(bytes(&tables) < held);
    assert!(build_next(&tables) && last.kind().is_some());
    assert_eq!(last.find_before(0, |_| true), None);
    // The one before is gone, and what is counted is what is there.
    assert_eq!(bytes(&tables), 65_537 * 4 + 3 * MEMBER_BYTES);
    drop(last);
    assert_eq!((bytes(&tables), tables.lock().owners.len()), (0, 0));
}
