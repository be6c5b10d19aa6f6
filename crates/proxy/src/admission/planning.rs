//! The order in which requests are read and planned: those of one source of clients take turns with
//! all else that the worker has to do, and so do those for hosts that one namespace serves.
//!
//! The turn of a connection ends with a request that has cost much. But a client may have thousands
//! of connections, each of which always has such a request ready, and a round of all of them is
//! what anybody else would wait for several times. So what a request has cost is charged to the
//! source of its client and to the namespace, and beyond some three milliseconds in a round of the
//! worker's loop further ones wait until others have had their turn. Bodies that come in very small
//! chunks or frames are charged to the source alone, and what follows of them waits as costly
//! requests do.
//!
//! A request that costs no more than any does is charged no steps, but very many of them are a long
//! round as well. So all requests of a source are counted, whatever they cost, and beyond some five
//! milliseconds of them in a round further ones wait. That is another account than the one of
//! steps, so that costly requests of a source wait for no cheap ones of it. Whoever has fewer
//! requests ready at a time, over however many connections, waits for nobody.
//!
//! Nobody knows before a request is read what it will cost. By a connection whose last one was
//! costly the next one waits as soon as its source, or its namespace, has had its turn, or all
//! together have had a few; by any other only where it has had two. So clients that share an
//! address with such a one, and the honest ones of a namespace, wait for nobody.

use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::rounds::{RoundRule, RoundWait, Rounds, Spender};
use super::silent::source_of;
use crate::pattern::STEPS_MAX;
use crate::random::hash::hash_numbers;

/// Tells hashes of sources from those of other tables.
const PLAN_CLASS: u8 = 0x5f;

/// The cost of a source or a namespace in a round, in steps of matching, beyond which its further
/// requests wait. It is some three milliseconds.
const TURN_STEPS: u32 = 2 * STEPS_MAX;

/// The cost of all sources together beyond which costly connections wait.
const ALL_STEPS: u32 = 4 * TURN_STEPS;

/// The requests of a source in a round, of any cost, that are some three milliseconds; beyond twice
/// as many its further ones wait.
const TURN_REQUESTS: u32 = 128;

/// The steps below which a request is charged none: any takes as long.
pub(crate) const CHARGED_STEPS: u32 = 1 << 10;

/// The steps from which on a request is costly: some 30 us.
pub(crate) const COSTLY_STEPS: u32 = 4 << 10;

/// The steps of a stream that its client has reset: some of them had begun an exchange.
pub(crate) const RESET_STEPS: u32 = 4 << 10;

/// So many bytes of a head, unpacked, take as long as a step: they are unpacked, checked and looked
/// at more than once.
const BYTES_PER_STEP: usize = 4;

/// The steps of each byte of a path that servers may read in more than one way.
const STEPS_PER_ODD_BYTE: usize = 3;

/// The rounds of sources.
const OF_SOURCES: RoundRule = RoundRule {
    task: "requests of sources",
    turn: TURN_STEPS,
    all: ALL_STEPS,
    called_max: 16,
    lines_max: 8,
};

/// The rounds of sources in which each request counts for one. A connection that is called has a
/// whole turn, which is more than one request by HTTP/2.
const OF_REQUESTS: RoundRule = RoundRule {
    task: "requests of any cost",
    turn: TURN_REQUESTS,
    all: u32::MAX,
    called_max: 32,
    lines_max: 8,
};

/// The rounds of namespaces.
const OF_NAMESPACES: RoundRule = RoundRule {
    task: "requests of namespaces",
    turn: TURN_STEPS,
    all: u32::MAX,
    called_max: 16,
    lines_max: 8,
};

/// The requests of one worker that wait for their turn to be read, or planned. Those that wait to
/// be read are at most as many as there are connections.
pub struct PlanTurns {
    sources: Rc<Rounds>,
    requests: Rc<Rounds>,
    namespaces: Rc<Rounds>,
}

/// The place in line of a request, where it waits.
#[derive(Default)]
pub struct PlanWait {
    place: RoundWait,
    /// Whether its source has had its turn by what requests have cost, so that it waits for that by
    /// their number.
    is_counted: bool,
}

/// The connection of a client, as its requests take turns.
#[derive(Clone, Copy)]
pub struct Asker {
    /// The hash of its source; see [`PlanTurns::source`].
    pub source: u64,
    /// Whether its last request was costly.
    pub is_costly: bool,
}

impl Default for PlanTurns {
    fn default() -> Self {
        PlanTurns {
            sources: Rounds::new(OF_SOURCES),
            requests: Rounds::new(OF_REQUESTS),
            namespaces: Rounds::new(OF_NAMESPACES),
        }
    }
}

impl PlanTurns {
    /// The source of a client, by its hash: its address, or its network of 64 bits.
    pub fn source(client: IpAddr) -> u64 {
        hash_numbers(PLAN_CLASS, "", &[source_of(client)])
    }

    /// Whether a request of any source may be read at once.
    pub fn admits_any_request(&self) -> bool {
        self.sources.is_calm() && self.requests.is_calm()
    }

    /// Ready once a request of a client may be read.
    pub fn poll_request(
        &self,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if !wait.is_counted {
            ready!(self.poll_source(asker, wait, context));
            wait.is_counted = true;
        }
        let spender = Spender {
            id: asker.source,
            part: 0,
            // What it costs makes no difference here.
            is_costly: false,
        };
        ready!(self.requests.poll_turn(spender, &mut wait.place, context));
        wait.is_counted = false;
        Poll::Ready(())
    }

    /// Ready once more may be done for a client, as far as that depends on what its source has
    /// cost: more of a body, or one more request in the turn of its connection.
    pub fn poll_source(
        &self,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let Asker { source, is_costly } = asker;
        let spender = Spender {
            id: source,
            part: u64::from(is_costly),
            is_costly,
        };
        self.sources.poll_turn(spender, &mut wait.place, context)
    }

    /// Whether a request may be planned for any namespace at once.
    pub fn admits_any_namespace(&self) -> bool {
        self.namespaces.is_calm()
    }

    /// Whether a request of a client may be planned for a namespace at once.
    pub fn admits(&self, namespace: u64, asker: Asker) -> bool {
        let spender = of_namespace(namespace, asker);
        self.namespaces.admits(spender, false)
    }

    /// Ready once a request of a client may be planned for a namespace. Its sources take turns.
    pub fn poll_namespace(
        &self,
        namespace: u64,
        asker: Asker,
        wait: &mut PlanWait,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let spender = of_namespace(namespace, asker);
        self.namespaces.poll_turn(spender, &mut wait.place, context)
    }

    /// Counts a request of a source.
    pub fn note_request(&self, source: u64) {
        self.requests.spend(source, 1);
    }

    /// Charges steps to the source of a client.
    pub fn spend(&self, source: u64, steps: u32) {
        self.sources.spend(source, steps);
    }

    /// Charges steps to a namespace.
    pub fn spend_for(&self, namespace: u64, steps: u32) {
        self.namespaces.spend(namespace, steps);
    }
}

fn of_namespace(namespace: u64, Asker { source, is_costly }: Asker) -> Spender {
    Spender {
        id: namespace,
        part: source,
        is_costly,
    }
}

/// The steps of reading a head of so many bytes, once it is unpacked, or so much framing of a body.
pub(crate) fn read_steps(bytes: usize) -> u32 {
    u32::try_from(bytes / BYTES_PER_STEP).unwrap_or(u32::MAX)
}

/// The steps of a path of so many bytes that servers may read in more than one way.
pub(crate) fn odd_path_steps(bytes: usize) -> u32 {
    u32::try_from(bytes.saturating_mul(STEPS_PER_ODD_BYTE)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use myriad_base::task;
    use tokio::task::{LocalSet, yield_now};

    use super::{
        Asker, OF_REQUESTS, PlanTurns, PlanWait, STEPS_MAX, TURN_REQUESTS, TURN_STEPS,
        odd_path_steps, read_steps,
    };

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

    /// As many were read in one round as there were connections.
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
}
