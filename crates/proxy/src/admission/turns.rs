//! The order of handshakes: namespaces take turns, in each of them its domains and in each of those
//! the sources of clients, a few handshakes in each turn of the worker's loop, so that a flood of
//! them delays neither the handshakes of others nor requests.
//!
//! A handshake costs one signature, on the worker's own core, and a slot until its client has
//! answered, or has let it wait for long. Where its peer's certificates are verified as well, which
//! may cost far more, it has another turn for that, and no slot until then; so have those with
//! endpoints. While fewer come than a turn of the loop has room for, and there are slots, nobody
//! waits. How many a turn has room for follows from what they cost.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use myriad_base::clock;
use tokio::sync::{Notify, oneshot};

use super::share::{HeldShare, Owner, Shares};

/// The most handshakes in one turn of the loop.
const PER_TURN: usize = 8;

/// About how long the handshakes of one turn may take together.
const TURN_TIME: Duration = Duration::from_millis(2);

/// How many domains that wait are looked at for one that may have another slot.
const LOOKED_AT: usize = 64;

/// The handshakes of one worker that wait for their turn. They are at most as many as there may
/// be connections and requests.
#[derive(Default)]
pub struct HandshakeTurns {
    /// How many have gone on in this turn.
    given: Cell<usize>,
    /// The cost of a handshake, as a mean of which each new one is an eighth.
    cost: Cell<Duration>,
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
        if given >= self.per_turn() || !self.waiting.borrow().order.is_empty() {
            return None;
        }
        let slot = slots.take(owner, 0)?;
        if given == 0 {
            self.begun.notify_one();
        }
        self.given.set(given + 1);
        Some(self.turn(slot))
    }

    /// Takes note of the processor time that a handshake has cost.
    pub fn spend(&self, cost: Duration) {
        let before = self.cost.get();
        self.cost.set(before - before / 8 + cost / 8);
    }

    /// Takes note that the last handshake of which the cost was noted has cost so much more.
    fn spend_more(&self, cost: Duration) {
        self.cost.set(self.cost.get() + cost / 8);
    }

    /// How many handshakes a turn has room for.
    fn per_turn(&self) -> usize {
        let cost = self.cost.get().as_micros().max(1);
        let fit = TURN_TIME.as_micros() / cost;
        usize::try_from(fit).unwrap_or(PER_TURN).clamp(1, PER_TURN)
    }

    /// Waits until it is the turn of a client's source in a domain.
    pub async fn wait(&self, owner: Owner, source: u64) -> HandshakeTurn<'_> {
        // A slot that comes when nobody waits for it any more is free for the next.
        let _freed = Freed(self);
        let (sender, slot) = oneshot::channel();
        self.waiting.borrow_mut().push(owner, source, sender);
        self.begun.notify_one();
        match slot.await {
            Ok(slot) => self.turn(slot),
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
                let most = self.per_turn();
                let mut given = 0;
                while given < most && self.waiting.borrow_mut().next(slots) {
                    given += 1;
                }
                self.given.set(given);
                if given < most {
                    break;
                }
            }
            self.given.set(0);
        }
    }

    fn turn(&self, slot: HeldShare) -> HandshakeTurn<'_> {
        HandshakeTurn {
            _slot: slot,
            freed: Freed(self),
        }
    }
}

impl HandshakeTurn<'_> {
    /// Does the step of the handshake that it is for.
    pub fn step<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, cost) = timed(work);
        self.freed.0.spend(cost);
        done
    }

    /// Does what belongs to that step, right behind it.
    pub fn step_on<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, cost) = timed(work);
        self.freed.0.spend_more(cost);
        done
    }
}

/// Work, and the processor time that it has cost.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = clock::processor_time();
    let done = work();
    (done, clock::processor_time().saturating_sub(began))
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
    use std::cell::RefCell;
    use std::rc::Rc;

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
        let slots = Rc::new(Shares::new(slots, std::sync::Arc::default()));
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
        let slots = Rc::new(Shares::new(1, std::sync::Arc::default()));
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
        let slots = Rc::new(Shares::new(1_000, std::sync::Arc::default()));
        let begun = |cost: std::time::Duration| {
            let turns = HandshakeTurns::new();
            let mut all = Vec::new();
            while let Some(turn) = turns.begin(owner, &slots) {
                turns.spend(cost);
                all.push(turn);
            }
            // As in further turns, once it is known what they cost.
            (0..50).for_each(|_| turns.spend(cost));
            (all.len(), turns.per_turn())
        };
        assert_eq!(begun(TURN_TIME / 20), (PER_TURN, PER_TURN));
        assert_eq!(begun(TURN_TIME / 2).1, 2);
        let (first, further) = begun(TURN_TIME * 2);
        assert!(first <= PER_TURN / 2 && further == 1, "{first} {further}");
    }

    #[test]
    fn what_is_done_behind_a_step_counts_for_its_handshake() {
        let alone = HandshakeTurns::new();
        let parted = HandshakeTurns::new();
        for _ in 0..100 {
            alone.spend(TURN_TIME / 4);
            parted.spend(TURN_TIME / 8);
            parted.spend_more(TURN_TIME / 8);
        }
        // The mean of a step alone would have room for all.
        assert!(parted.per_turn() <= alone.per_turn());
        assert!(alone.per_turn() < PER_TURN);
    }

    #[test]
    fn steps_are_paid_for() {
        let turns = HandshakeTurns::new();
        let slots = Rc::new(Shares::new(1, std::sync::Arc::default()));
        let turn = turns.begin(Owner::default(), &slots).unwrap();
        let work = || (0..200_000_u64).fold(7, |sum, it| std::hint::black_box(sum ^ it));
        turn.step(work);
        let cost = turns.cost.get();
        assert!(!cost.is_zero());
        turn.step_on(work);
        assert!(turns.cost.get() > cost);
    }
}
