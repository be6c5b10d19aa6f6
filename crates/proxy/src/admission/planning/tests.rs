use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Waker};

use myriad_base::task;
use tokio::task::{LocalSet, yield_now};

use super::{
    ALL_REQUESTS, Asker, FEW_REQUESTS, NO_NAMESPACE, OF_REQUESTS, PlanTurns, PlanWait, STEPS_MAX,
    TURN_REQUESTS, TURN_STEPS, network_of, odd_path_steps, read_steps,
};
use crate::admission::spaces::spots;

/// The connections of a client that floods, each of which always has a request ready.
const MANY: usize = 200;

/// The requests of each of them.
const REQUESTS: usize = 3;

/// The requests that take all steps, and that a turn has room for.
const FIT: usize = (TURN_STEPS / STEPS_MAX) as usize;

fn source(address: &str) -> u64 {
    PlanTurns::source(address.parse().unwrap())
}

/// Asks for what takes so many steps, again and again by one connection, and says so.
async fn ask(
    turns: Rc<PlanTurns>,
    (source, namespace): (u64, u64),
    steps: u32,
    told: Rc<RefCell<Vec<u64>>>,
) {
    let mut is_costly = false;
    for _ in 0..REQUESTS {
        let asker = Asker { source, is_costly };
        let mut wait = PlanWait::default();
        poll_fn(|context| turns.poll_request(asker, &mut wait, context)).await;
        turns.note_request(source);
        if !turns.admits(namespace, asker) {
            let mut wait = PlanWait::default();
            poll_fn(|context| turns.poll_namespace(namespace, asker, &mut wait, context)).await;
        }
        turns.spend(source, steps);
        turns.spend_for(namespace, steps);
        told.borrow_mut().push(source);
        is_costly = steps > 0;
        // As the turn of a connection ends.
        yield_now().await;
    }
}

/// The sources of requests in the order in which they are planned, and 0 for each turn of
/// somebody who has something to do all the time, as by a socket.
async fn order_of(connections: Vec<((u64, u64), u32)>) -> Vec<u64> {
    let told: Rc<RefCell<Vec<u64>>> = Rc::default();
    let log = told.clone();
    let running = async move {
        let turns = Rc::<PlanTurns>::default();
        let beside = log.clone();
        task::spawn_local("other", async move {
            loop {
                beside.borrow_mut().push(0);
                yield_now().await;
            }
        });
        let all = connections.into_iter().map(|(whose, steps)| {
            let asking = ask(turns.clone(), whose, steps, log.clone());
            task::spawn_local("connection", asking)
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap().unwrap();
        }
    };
    LocalSet::new().run_until(running).await;
    told.take()
}

/// The most requests between two turns of the other.
fn most_between(order: &[u64]) -> usize {
    let parts = order.split(|it| *it == 0);
    parts.map(<[u64]>::len).max().unwrap_or(0)
}

/// A round was as long as there were connections: their turns ended one by one.
#[tokio::test]
async fn costly_requests_of_one_source_leave_others_their_turns() {
    let whose = (source("192.0.2.1"), 1);
    let order = order_of(vec![(whose, STEPS_MAX); MANY]).await;
    let count = order.iter().filter(|it| **it == whose.0).count();
    assert_eq!(count, MANY * REQUESTS);
    let most = most_between(&order);
    // The loop itself looks after others at any number of tasks.
    assert!(most <= 4 * FIT, "{most}");
}

/// As a tenant's, whose clients are many.
#[tokio::test]
async fn costly_requests_for_one_namespace_leave_others_their_turns() {
    let connection = |number: usize| {
        let address = format!("198.51.100.{number}");
        ((source(&address), 1), STEPS_MAX)
    };
    let order = order_of((0..MANY).map(connection).collect()).await;
    let most = most_between(&order);
    assert!(most <= 4 * FIT, "{most}");
}

#[tokio::test]
async fn a_request_of_another_source_for_another_namespace_waits_for_nobody() {
    let flood = (source("192.0.2.1"), 1);
    let other = (source("192.0.2.2"), 2);
    let mut all = vec![(flood, STEPS_MAX); MANY];
    all.push((other, 0));
    let order = order_of(all).await;
    let of_all = order.iter().filter(|it| **it != 0);
    let place = of_all.clone().position(|it| *it == other.0).unwrap();
    assert!(place <= 8 * FIT, "{place}");
    let own = of_all.filter(|it| **it == other.0);
    assert_eq!(own.count(), REQUESTS);
}

/// Behind one address there may be a whole office, and one of it floods.
#[tokio::test]
async fn cheap_requests_of_the_same_source_are_not_put_behind_costly_ones() {
    let source = source("192.0.2.1");
    let turns = PlanTurns::default();
    let of = |is_costly| Asker { source, is_costly };
    let is_read = |is_costly| {
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = PlanWait::default();
        let polled = turns.poll_request(of(is_costly), &mut wait, &mut context);
        polled.is_ready()
    };
    let story = async {
        assert!(turns.admits_any_request() && turns.admits_any_namespace());
        turns.spend(source, TURN_STEPS);
        turns.spend_for(1, TURN_STEPS);
        assert!(!turns.admits_any_request() && !turns.admits_any_namespace());
        assert!(!is_read(true) && is_read(false));
        assert!(!turns.admits(1, of(true)) && turns.admits(1, of(false)));
        turns.spend(source, TURN_STEPS);
        turns.spend_for(1, TURN_STEPS);
        assert!(!is_read(false));
        assert!(!turns.admits(1, of(false)) && turns.admits(2, of(true)));
    };
    LocalSet::new().run_until(story).await;
}

/// The work goes on at once where nobody else has any.
#[tokio::test]
async fn a_source_alone_has_all_turns() {
    let story = async {
        let turns = Rc::<PlanTurns>::default();
        let told: Rc<RefCell<Vec<u64>>> = Rc::default();
        let whose = (source("192.0.2.1"), 1);
        let all = (0..MANY).map(|_| {
            let asking = ask(turns.clone(), whose, STEPS_MAX, told.clone());
            task::spawn_local("connection", asking)
        });
        let all: Vec<_> = all.collect();
        let mut rounds = 0;
        while told.borrow().len() < MANY * REQUESTS {
            yield_now().await;
            rounds += 1;
        }
        for one in all {
            one.await.unwrap().unwrap();
        }
        // Two passes of the loop for each turn, and a few before the first.
        assert!(rounds <= 3 * MANY * REQUESTS / FIT, "{rounds}");
    };
    LocalSet::new().run_until(story).await;
}

/// The requests of one source that are read before anybody else has a turn.
const AT_ONCE: usize = 2 * TURN_REQUESTS as usize;

/// Asks for a request that is as cheap as any, once, and counts it where it is read.
fn is_read(turns: &PlanTurns, source: u64, is_costly: bool, wait: &mut PlanWait) -> bool {
    let asker = Asker { source, is_costly };
    let mut context = Context::from_waker(Waker::noop());
    let polled = turns.poll_request(asker, wait, &mut context);
    if polled.is_ready() {
        turns.note_request(source);
    }
    polled.is_ready()
}

/// Every connection had a request read in one round, however many there were.
#[tokio::test]
async fn cheap_requests_of_one_source_are_read_a_few_at_a_time() {
    let (flood, other) = (source("192.0.2.1"), source("192.0.2.2"));
    let story = async {
        let turns = PlanTurns::default();
        let mut waits: Vec<_> = (0..3 * AT_ONCE).map(|_| PlanWait::default()).collect();
        let ask = |waits: &mut Vec<PlanWait>| {
            let before = waits.len();
            waits.retain_mut(|wait| !is_read(&turns, flood, false, wait));
            assert!(is_read(&turns, other, false, &mut PlanWait::default()));
            before - waits.len()
        };
        assert_eq!(ask(&mut waits), AT_ONCE);
        // Others of it have no turn before those that wait.
        waits.extend((0..AT_ONCE).map(|_| PlanWait::default()));
        assert_eq!(ask(&mut waits), 0);
        let (mut passes, called) = (0, OF_REQUESTS.called_max);
        while !waits.is_empty() {
            yield_now().await;
            let read = ask(&mut waits);
            assert!(read <= 2 * called, "{read}");
            passes += 1;
            // Rounds follow at once: two passes of the loop for each, at most.
            assert!(passes <= 3 * (3 * AT_ONCE / called), "{passes}");
        }
    };
    LocalSet::new().run_until(story).await;
}

/// A balancer in front has all clients behind one address.
#[tokio::test]
async fn a_source_with_few_requests_at_a_time_never_waits() {
    let source = source("192.0.2.1");
    let story = async {
        let turns = PlanTurns::default();
        for _ in 0..64 {
            for _ in 0..TURN_REQUESTS / 2 {
                let mut wait = PlanWait::default();
                assert!(is_read(&turns, source, false, &mut wait));
            }
            // The answers to them come before the next ones.
            for _ in 0..2 {
                yield_now().await;
            }
        }
    };
    LocalSet::new().run_until(story).await;
}

/// By one account it would wait whenever the cheap ones have had half of what they may.
#[tokio::test]
async fn a_costly_request_waits_for_cheap_ones_of_its_source_as_any_other_does() {
    let source = source("192.0.2.1");
    let story = async {
        let turns = PlanTurns::default();
        for _ in 0..AT_ONCE - 1 {
            turns.note_request(source);
        }
        assert!(!turns.admits_any_request());
        assert!(is_read(&turns, source, true, &mut PlanWait::default()));
        assert!(!is_read(&turns, source, true, &mut PlanWait::default()));
        assert!(!is_read(&turns, source, false, &mut PlanWait::default()));
        let is_costly = true;
        let asker = Asker { source, is_costly };
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = PlanWait::default();
        // What else belongs to the turn of a connection goes on.
        let polled = turns.poll_source(asker, &mut wait, &mut context);
        assert!(polled.is_ready());
    };
    LocalSet::new().run_until(story).await;
}

#[test]
fn a_head_and_a_path_cost_what_reading_them_takes() {
    assert_eq!(read_steps(64 << 10), 16_384);
    assert_eq!(odd_path_steps(4 << 10), 12_288);
    assert_eq!(read_steps(usize::MAX), u32::MAX);
    assert_eq!(odd_path_steps(usize::MAX), u32::MAX);
}

#[test]
fn addresses_of_one_network_of_64_bits_are_one_source() {
    assert_eq!(source("2001:db8::1"), source("2001:db8::2"));
    assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
}

/// The requests that are read before all others wait for one of each source that has few.
const OF_ALL: usize = ALL_REQUESTS as usize;

/// Each was below what one may ask for, and a round of all of them was what others waited for.
#[tokio::test]
async fn cheap_requests_of_very_many_sources_are_read_a_few_at_a_time() {
    const SOURCES: usize = 250;
    const EACH: usize = 30;
    let (few, of_round) = (FEW_REQUESTS as usize, 32 * 8);
    let flood = |number: usize| source(&format!("192.0.2.{number}"));
    let place_of = |source| spots(network_of(source))[0];
    // One that has none of their places, however hashes are seeded.
    let others = (0..=255).map(|number| source(&format!("198.51.100.{number}")));
    let is_taken = |place| (0..SOURCES).any(|number| place_of(flood(number)) == place);
    let mut others = others.filter(|one| !is_taken(place_of(*one)));
    let other = others.next().unwrap();
    let story = async {
        let turns = PlanTurns::default();
        let one = |number| (flood(number), PlanWait::default());
        let all = (0..SOURCES).flat_map(|number| (0..EACH).map(move |_| number));
        let mut waits: Vec<_> = all.map(one).collect();
        let ask = |waits: &mut Vec<(u64, PlanWait)>| {
            let before = waits.len();
            waits.retain_mut(|(source, wait)| !is_read(&turns, *source, false, wait));
            // Whoever asks for little waits for nobody.
            assert!(is_read(&turns, other, false, &mut PlanWait::default()));
            before - waits.len()
        };
        let read = ask(&mut waits);
        assert!(read <= OF_ALL + SOURCES * few, "{read}");
        let mut passes = 0;
        while !waits.is_empty() {
            yield_now().await;
            let read = ask(&mut waits);
            assert!(read <= 2 * of_round, "{read}");
            passes += 1;
            // Rounds follow at once: two passes of the loop for each, at most.
            assert!(passes <= 4 * SOURCES * EACH / of_round, "{passes}");
        }
    };
    LocalSet::new().run_until(story).await;
}

/// Where each source has few, they were one long round for all others.
#[tokio::test]
async fn very_many_requests_for_one_namespace_leave_others_their_turns() {
    let source = source("192.0.2.1");
    let asker = Asker {
        source,
        is_costly: false,
    };
    let story = async {
        let turns = PlanTurns::default();
        assert!(!turns.counts_namespaces());
        (0..OF_ALL).for_each(|_| turns.note_request(source));
        assert!(turns.counts_namespaces());
        for _ in 0..AT_ONCE {
            assert!(turns.admits(NO_NAMESPACE, asker));
            turns.note_request_for(NO_NAMESPACE);
        }
        assert!(!turns.admits_any_namespace() && turns.admits(1, asker));
        assert!(!turns.admits(NO_NAMESPACE, asker));
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = PlanWait::default();
        let mut is_planned = || {
            let polled = turns.poll_namespace(NO_NAMESPACE, asker, &mut wait, &mut context);
            polled.is_ready()
        };
        assert!(!is_planned());
        for _ in 0..4 {
            yield_now().await;
        }
        assert!(is_planned());
    };
    LocalSet::new().run_until(story).await;
}

/// A source with a network of 48 bits had 65,536 turns.
#[tokio::test]
async fn cheap_requests_of_one_network_of_48_bits_are_counted_together() {
    let of = |address: &str| (source(address), PlanWait::default());
    let story = async {
        let turns = PlanTurns::default();
        for number in 0..AT_ONCE {
            let one = source(&format!("2001:db8:1:{number:x}::1"));
            assert!(is_read(&turns, one, false, &mut PlanWait::default()));
        }
        let is_read = |(source, mut wait)| is_read(&turns, source, false, &mut wait);
        assert!(!is_read(of("2001:db8:1:ffff::1")));
        assert!(is_read(of("2001:db8:2:1::1")) && is_read(of("192.0.2.1")));
        // By what they cost each has its own.
        turns.spend(source("2001:db8:1:1::1"), 2 * TURN_STEPS);
        let asker = Asker {
            source: source("2001:db8:1:2::1"),
            is_costly: true,
        };
        let (mut wait, mut context) = (PlanWait::default(), Context::from_waker(Waker::noop()));
        assert!(turns.poll_source(asker, &mut wait, &mut context).is_ready());
    };
    LocalSet::new().run_until(story).await;
}
