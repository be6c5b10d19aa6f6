//! The order of handshakes: namespaces take turns, in each of them its domains and in each of those
//! the sources of clients, a few handshakes in each turn of the worker's loop, so that a flood of
//! them delays neither the handshakes of others nor requests.
//!
//! A handshake costs one signature, on the worker's own core, and a slot until its client has
//! answered, or has let it wait for long. Where its peer's certificates are verified as well, which
//! may cost far more, it has another turn for that, and no slot until then; so have those with
//! endpoints. While fewer come than a turn of the loop has room for, and there are slots, nobody
//! waits. A turn of the loop has room for eight at most, and for those that its time suffices for:
//! that is taken as it is spent, so that no handshake is let go on for what others have cost.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use myriad_base::clock;
use tokio::sync::{Notify, oneshot};

use super::share::{HeldShare, Owner, Shares};

/// The most handshakes in one turn of the loop.
const PER_TURN: usize = 8;

/// How long the handshakes of one turn may take together, but for what the last one takes beyond.
const TURN_TIME: Duration = Duration::from_millis(2);

/// How many domains that wait are looked at for one that may have another slot.
const LOOKED_AT: usize = 64;

/// The handshakes of one worker that wait for their turn. They are at most as many as there may
/// be connections and requests.
#[derive(Default)]
pub struct HandshakeTurns {
    /// How many have gone on in this turn.
    given: Cell<usize>,
    /// The processor time that they have taken in it.
    spent: Cell<Duration>,
    /// How many were called when that was spent already. They go first in the next turn.
    late: Cell<usize>,
    renewed: Notify,
    waiting: RefCell<Waiting>,
    begun: Notify,
}

/// One handshake under way; its slot is given back when dropped.
pub struct HandshakeTurn<'a> {
    _slot: HeldShare,
    freed: Freed<'a>,
}

/// Says so when a slot may be free.
struct Freed<'a>(&'a HandshakeTurns);

/// Counts a handshake that was called and waits for the next turn of the loop.
struct Late<'a>(&'a Cell<usize>);

impl<'a> Late<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Late(count)
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

#[derive(Default)]
struct Waiting {
    /// The namespaces with handshakes that wait, in the order of their turns.
    order: VecDeque<u64>,
    namespaces: HashMap<u64, Namespace>,
}

/// The handshakes of one namespace that wait.
#[derive(Default)]
struct Namespace {
    /// Its domains, in the order of their turns.
    order: VecDeque<u64>,
    domains: HashMap<u64, Domain>,
}

/// The handshakes of one domain that wait.
#[derive(Default)]
struct Domain {
    /// The sources of its clients, in the order of their turns.
    order: VecDeque<u64>,
    sources: HashMap<u64, VecDeque<oneshot::Sender<HeldShare>>>,
}

impl HandshakeTurns {
    /// A line in which nobody waits.
    pub fn new() -> Self {
        HandshakeTurns::default()
    }

    /// The turn of a domain's handshake, where nobody waits and there is a slot.
    pub fn begin(&self, owner: Owner, slots: &Rc<Shares>) -> Option<HandshakeTurn<'_>> {
        let given = self.given.get();
        let is_full = given >= PER_TURN || self.late.get() > 0 || !self.has_time();
        if is_full || !self.waiting.borrow().order.is_empty() {
            return None;
        }
        let slot = slots.take(owner, 0)?;
        if given == 0 {
            self.begun.notify_one();
        }
        self.given.set(given + 1);
        Some(self.turn(slot))
    }

    /// Takes note of the processor time that a step of a handshake has cost.
    fn spend(&self, cost: Duration) {
        let before = self.spent.get();
        self.spent.set(before.saturating_add(cost));
        if before.is_zero() {
            // What is spent counts in this turn alone.
            self.begun.notify_one();
        }
    }

    /// Whether anything is left of the time of this turn.
    fn has_time(&self) -> bool {
        self.spent.get() < TURN_TIME
    }

    /// Waits for the next turn, for as long as the time of the present one is spent.
    async fn until_time(&self) {
        while !self.has_time() {
            let renewed = self.renewed.notified();
            let _late = Late::new(&self.late);
            self.begun.notify_one();
            renewed.await;
        }
    }

    /// Waits until it is the turn of a client's source in a domain.
    pub async fn wait(&self, owner: Owner, source: u64) -> HandshakeTurn<'_> {
        // A slot that comes when nobody waits for it any more is free for the next.
        let _freed = Freed(self);
        let (sender, slot) = oneshot::channel();
        self.waiting.borrow_mut().push(owner, source, sender);
        self.begun.notify_one();
        match slot.await {
            Ok(slot) => {
                let turn = self.turn(slot);
                self.until_time().await;
                turn
            }
            // Whoever drives the turns lives as long as the worker.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives turns, for as long as the worker runs.
    pub async fn run(&self, slots: &Rc<Shares>) {
        loop {
            self.begun.notified().await;
            loop {
                // All else that is ready goes first.
                tokio::task::yield_now().await;
                if !self.begin_turn(slots) {
                    break;
                }
            }
        }
    }

    /// Begins a turn, and calls those who go on in it: those who were late in the one before, and
    /// then others. Whether there are any.
    fn begin_turn(&self, slots: &Rc<Shares>) -> bool {
        self.spent.set(Duration::ZERO);
        let mut given = self.late.get();
        self.renewed.notify_waiters();
        while given < PER_TURN && self.waiting.borrow_mut().next(slots) {
            given += 1;
        }
        self.given.set(given);
        given > 0
    }

    fn turn(&self, slot: HeldShare) -> HandshakeTurn<'_> {
        HandshakeTurn {
            _slot: slot,
            freed: Freed(self),
        }
    }
}

impl HandshakeTurn<'_> {
    /// Does the step of the handshake that it is for, or what belongs to that.
    pub fn step<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = clock::processor_time();
        let done = work();
        let cost = clock::processor_time().saturating_sub(began);
        self.freed.0.spend(cost);
        done
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        if !self.0.waiting.borrow().order.is_empty() {
            self.0.begun.notify_one();
        }
    }
}

impl Waiting {
    fn push(&mut self, owner: Owner, source: u64, turn: oneshot::Sender<HeldShare>) {
        let namespace = self.namespaces.entry(owner.namespace).or_default();
        if namespace.order.is_empty() {
            self.order.push_back(owner.namespace);
        }
        let domain = namespace.domains.entry(owner.domain).or_default();
        if domain.order.is_empty() {
            namespace.order.push_back(owner.domain);
        }
        let queue = domain.sources.entry(source).or_default();
        if queue.is_empty() {
            domain.order.push_back(source);
        }
        queue.push_back(turn);
    }

    /// Gives the next turn; false if nobody waits who could have a slot.
    fn next(&mut self, slots: &Rc<Shares>) -> bool {
        let mut looked_at = 0;
        while looked_at < LOOKED_AT && !slots.is_used_up() {
            let Some(id) = self.order.pop_front() else {
                return false;
            };
            let Some(namespace) = self.namespaces.get_mut(&id) else {
                continue;
            };
            let given = namespace.next(id, slots);
            if namespace.order.is_empty() {
                self.namespaces.remove(&id);
            } else {
                self.order.push_back(id);
            }
            match given {
                Given::Turn => return true,
                Given::Share => looked_at += 1,
                Given::Nobody => {}
            }
        }
        false
    }
}

/// The result of a look for the next one.
enum Given {
    /// It was given its turn.
    Turn,
    /// Its domain has its share already.
    Share,
    /// It does not wait any more.
    Nobody,
}

impl Namespace {
    fn next(&mut self, namespace: u64, slots: &Rc<Shares>) -> Given {
        let Some(id) = self.order.pop_front() else {
            return Given::Nobody;
        };
        let Some(domain) = self.domains.get_mut(&id) else {
            return Given::Nobody;
        };
        let owner = Owner {
            namespace,
            domain: id,
        };
        let given = domain.next(owner, slots);
        if domain.order.is_empty() {
            self.domains.remove(&id);
        } else {
            self.order.push_back(id);
        }
        given
    }
}

impl Domain {
    fn next(&mut self, owner: Owner, slots: &Rc<Shares>) -> Given {
        let Some(source) = self.order.pop_front() else {
            return Given::Nobody;
        };
        let Some(queue) = self.sources.get_mut(&source) else {
            return Given::Nobody;
        };
        while queue.front().is_some_and(oneshot::Sender::is_closed) {
            queue.pop_front();
        }
        let given = match queue.is_empty() {
            true => Given::Nobody,
            false => match slots.take(owner, 0) {
                None => Given::Share,
                Some(slot) => {
                    let turn = queue.pop_front();
                    // Nothing has run since it was seen to wait.
                    let _ = turn.map(|turn| turn.send(slot));
                    Given::Turn
                }
            },
        };
        match (queue.is_empty(), &given) {
            (true, _) => {
                self.sources.remove(&source);
            }
            // The slot was not to be had by anybody of the domain, so it is still its turn.
            (false, Given::Share) => self.order.push_front(source),
            (false, _) => self.order.push_back(source),
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use myriad_base::task;
    use tokio::task::LocalSet;

    use super::{HandshakeTurns, PER_TURN, TURN_TIME};
    use crate::admission::share::{Owner, Shares};

    type Order = Vec<(u64, u64)>;

    /// A namespace, a domain in it, and the source of a client.
    type Handshake = ((u64, u64), u64);

    /// The order in which handshakes of these namespaces and domains get their turn, where each
    /// ends as soon as it has begun.
    async fn order(handshakes: Vec<(u64, u64)>, slots: usize) -> Order {
        let of_one = handshakes.into_iter().map(|it| (it, 0)).collect();
        let order = order_of(of_one, slots).await;
        order.into_iter().map(|(it, _)| it).collect()
    }

    /// The same with the sources of clients.
    async fn order_of(handshakes: Vec<Handshake>, slots: usize) -> Vec<Handshake> {
        let order: Rc<RefCell<Vec<Handshake>>> = Rc::default();
        let turns = Rc::new(HandshakeTurns::new());
        let slots = Rc::new(Shares::new(slots, Arc::default()));
        let told = order.clone();
        let running = async move {
            let (driven, of) = (turns.clone(), slots.clone());
            task::spawn_local("turns", async move { driven.run(&of).await });
            let mut all = Vec::new();
            for ((namespace, domain), source) in handshakes {
                let (turns, told, slots) = (turns.clone(), told.clone(), slots.clone());
                let owner = Owner { namespace, domain };
                all.push(task::spawn_local("handshake", async move {
                    let _turn = match turns.begin(owner, &slots) {
                        Some(turn) => turn,
                        None => turns.wait(owner, source).await,
                    };
                    told.borrow_mut().push(((namespace, domain), source));
                    tokio::task::yield_now().await;
                }));
            }
            for one in all {
                one.await.unwrap();
            }
            assert_eq!(slots.held(), 0);
        };
        LocalSet::new().run_until(running).await;
        order.take()
    }

    fn place(order: &Order, wanted: (u64, u64), number: usize) -> usize {
        let mut places = order.iter().enumerate().filter(|(_, it)| **it == wanted);
        places.nth(number).unwrap().0
    }

    #[tokio::test]
    async fn domains_take_turns_however_many_handshakes_one_of_them_has() {
        let many = std::iter::repeat_n((1, 1), 200);
        let all = many.chain([(1, 2), (1, 3), (1, 2)]).collect();
        let order = order(all, 1_000).await;
        assert_eq!(order.len(), 203);
        // The first turn was full before the others came; then it is theirs as often as its.
        assert!(place(&order, (1, 2), 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(&order, (1, 3), 0) <= PER_TURN + 3, "{order:?}");
        assert!(place(&order, (1, 2), 1) <= PER_TURN + 6, "{order:?}");
    }

    #[tokio::test]
    async fn namespaces_take_turns_however_many_domains_one_of_them_has() {
        let many = (0..200).map(|domain| (1, domain));
        let order = order(many.chain([(2, 9), (2, 9)]).collect(), 1_000).await;
        assert_eq!(order.len(), 202);
        assert!(place(&order, (2, 9), 0) <= PER_TURN + 2, "{order:?}");
        assert!(place(&order, (2, 9), 1) <= PER_TURN + 4, "{order:?}");
    }

    #[tokio::test]
    async fn with_few_slots_all_are_served_in_turn() {
        let many = std::iter::repeat_n((1, 1), 300);
        let order = order(many.chain([(2, 2)]).collect(), 5).await;
        assert_eq!(order.len(), 301);
        assert!(place(&order, (2, 2), 0) <= 10, "{order:?}");
    }

    #[tokio::test]
    async fn who_gave_up_takes_no_turn() {
        let owner = Owner::default();
        let slots = Rc::new(Shares::new(1, Arc::default()));
        let turns = HandshakeTurns::new();
        let first = turns.begin(owner, &slots);
        let mut late = Box::pin(turns.wait(owner, 0));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        drop((first, late));
        assert!(!turns.waiting.borrow_mut().next(&slots));
        assert_eq!(slots.held(), 0);
        assert!(turns.waiting.borrow().namespaces.is_empty());
    }

    #[tokio::test]
    async fn sources_of_a_domain_take_turns_however_many_handshakes_one_of_them_has() {
        let many = std::iter::repeat_n(((1, 1), 7), 200);
        let all = many.chain([((1, 1), 8), ((1, 1), 9), ((1, 1), 8)]);
        let order = order_of(all.collect(), 1_000).await;
        assert_eq!(order.len(), 203);
        let of = |source: u64| {
            let places = order.iter().enumerate();
            let own = places.filter(move |(_, (_, it))| *it == source);
            own.map(|(place, _)| place).collect::<Vec<_>>()
        };
        assert!(of(8)[0] <= PER_TURN + 3, "{order:?}");
        assert!(of(9)[0] <= PER_TURN + 3, "{order:?}");
        assert!(of(8)[1] <= PER_TURN + 6, "{order:?}");
    }

    #[test]
    fn a_turn_has_room_for_as_many_as_are_done_in_its_time() {
        let owner = Owner::default();
        let slots = Rc::new(Shares::new(1_000, Arc::default()));
        let begun = |cost: Duration| {
            let turns = HandshakeTurns::new();
            let mut all = Vec::new();
            while let Some(turn) = turns.begin(owner, &slots) {
                turns.spend(cost);
                all.push(turn);
            }
            all.len()
        };
        assert_eq!(begun(TURN_TIME / 20), PER_TURN);
        assert_eq!(begun(TURN_TIME / 2), 2);
        assert_eq!(begun(TURN_TIME * 2), 1);
    }

    /// The most handshakes that cost so much which go on before somebody else has a turn, where
    /// twice as many that cost nothing go between.
    async fn most_in_a_turn(cost: Duration) -> usize {
        let turns = Rc::<HandshakeTurns>::default();
        let slots = Rc::new(Shares::new(1_000, Arc::default()));
        let done = Rc::<Cell<usize>>::default();
        let told = done.clone();
        let running = async move {
            let (driven, of) = (turns.clone(), slots.clone());
            task::spawn_local("turns", async move { driven.run(&of).await });
            for number in 0..120_u64 {
                let (turns, slots, done) = (turns.clone(), slots.clone(), done.clone());
                let owner = Owner {
                    namespace: number % 3,
                    domain: 1,
                };
                task::spawn_local("handshake", async move {
                    let turn = match turns.begin(owner, &slots) {
                        Some(turn) => turn,
                        None => turns.wait(owner, number).await,
                    };
                    if number % 3 == 0 {
                        turn.freed.0.spend(cost);
                        done.set(done.get() + 1);
                    }
                });
            }
            let mut most = 0;
            while told.get() < 40 {
                let before = told.get();
                tokio::task::yield_now().await;
                most = most.max(told.get() - before);
            }
            most
        };
        LocalSet::new().run_until(running).await
    }

    /// A mean of all of them was brought down by those that cost next to nothing.
    #[tokio::test]
    async fn cheap_handshakes_make_no_room_for_dear_ones() {
        assert_eq!(most_in_a_turn(TURN_TIME).await, 1);
        assert!(most_in_a_turn(Duration::ZERO).await > 1);
    }

    #[tokio::test]
    async fn time_that_was_spent_counts_in_its_turn_alone() {
        let turns = Rc::<HandshakeTurns>::default();
        let slots = Rc::new(Shares::new(10, Arc::default()));
        let running = async {
            let (driven, of) = (turns.clone(), slots.clone());
            task::spawn_local("turns", async move { driven.run(&of).await });
            // As a step that comes long after its turn was given.
            turns.spend(TURN_TIME);
            assert!(turns.begin(Owner::default(), &slots).is_none());
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            assert!(turns.begin(Owner::default(), &slots).is_some());
        };
        LocalSet::new().run_until(running).await;
    }

    #[tokio::test]
    async fn who_gave_up_while_late_leaves_nothing() {
        let turns = HandshakeTurns::new();
        let slots = Rc::new(Shares::new(10, Arc::default()));
        let mut late = Box::pin(turns.wait(Owner::default(), 0));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        assert!(turns.begin_turn(&slots));
        turns.spend(TURN_TIME);
        assert!(late.as_mut().poll(&mut context).is_pending());
        assert_eq!((turns.late.get(), slots.held()), (1, 1));
        drop(late);
        assert_eq!((turns.late.get(), slots.held()), (0, 0));
    }

    #[test]
    fn steps_are_paid_for() {
        let turns = HandshakeTurns::new();
        let slots = Rc::new(Shares::new(1, Arc::default()));
        let turn = turns.begin(Owner::default(), &slots).unwrap();
        let work = || (0..200_000_u64).fold(7, |sum, it| std::hint::black_box(sum ^ it));
        turn.step(work);
        let spent = turns.spent.get();
        assert!(!spent.is_zero());
        turn.step(work);
        assert!(turns.spent.get() > spent);
    }
}
