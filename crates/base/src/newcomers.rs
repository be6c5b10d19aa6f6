//! Connections on which nobody has proved who they are, by the address that they come from.
//!
//! A bounded number of them is served at a time, and others wait for their turn: of the addresses
//! that wait, the one goes next that has fewest under way. An address that has none takes the place
//! of the oldest connection of the one that has most, so that a flood holds up nobody but those
//! whom it shares its address with.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// All of them.
pub struct Newcomers {
    state: Mutex<State>,
    /// The most that are served at a time.
    served_max: usize,
    /// The most that wait; beyond, the address that has most of them loses its newest.
    waiting_max: usize,
}

#[derive(Default)]
struct State {
    sources: BTreeMap<IpAddr, Source>,
    served: usize,
    waiting: usize,
    /// The number of the next.
    next: u64,
}

/// The connections of one address, each by a sender of whether its turn has come. Without it, the
/// connection has to go.
#[derive(Default)]
struct Source {
    served: BTreeMap<u64, watch::Sender<bool>>,
    /// The oldest first.
    waiting: VecDeque<(u64, watch::Sender<bool>)>,
}

/// One connection, for as long as nobody on it has proved who they are. It leaves when it is
/// dropped.
pub struct Newcomer {
    newcomers: Arc<Newcomers>,
    source: IpAddr,
    number: u64,
    turn: watch::Receiver<bool>,
}

impl Newcomers {
    /// A queue without connections, which serves `served_max` at a time and has `waiting_max`
    /// wait at most.
    pub fn new(served_max: usize, waiting_max: usize) -> Self {
        Newcomers {
            state: Mutex::default(),
            served_max,
            waiting_max,
        }
    }

    /// Adds a connection from an address.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Newcomer {
        let source = network_of(address);
        let (sender, turn) = watch::channel(false);
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let own = state.sources.entry(source).or_default();
        own.waiting.push_back((number, sender));
        let has_none = own.served.is_empty();
        state.waiting += 1;
        if has_none && state.served >= self.served_max {
            state.evict();
        }
        state.admit(self.served_max);
        if state.waiting > self.waiting_max {
            state.turn_away();
        }
        drop(state);
        Newcomer {
            newcomers: self.clone(),
            source,
            number,
            turn,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Serves those whose turn has come.
    fn admit(&mut self, served_max: usize) {
        while self.served < served_max {
            let waiting = self.sources.values_mut().filter_map(|source| {
                let first = source.waiting.front()?.0;
                Some(((source.served.len(), first), source))
            });
            let next = waiting.min_by_key(|(rank, _)| *rank);
            let Some((_, source)) = next else { return };
            let Some((number, sender)) = source.waiting.pop_front() else {
                return;
            };
            sender.send_replace(true);
            source.served.insert(number, sender);
            self.served += 1;
            self.waiting -= 1;
        }
    }

    /// Ends the oldest connection of the address that has most under way, if it has several.
    fn evict(&mut self) {
        let sources = self.sources.values_mut();
        let largest = sources.max_by_key(|source| source.served.len());
        if let Some(source) = largest.filter(|source| source.served.len() > 1) {
            source.served.pop_first();
            self.served -= 1;
        }
    }

    /// Ends the newest connection that waits of the address that has most of them.
    fn turn_away(&mut self) {
        let sources = self.sources.values_mut();
        let largest = sources.max_by_key(|source| source.waiting.len());
        if let Some(source) = largest
            && source.waiting.pop_back().is_some()
        {
            self.waiting -= 1;
        }
    }

    fn leave(&mut self, source: IpAddr, number: u64) {
        let Some(own) = self.sources.get_mut(&source) else {
            return;
        };
        if own.served.remove(&number).is_some() {
            self.served -= 1;
        } else if let Some(at) = own.waiting.iter().position(|(it, _)| *it == number) {
            own.waiting.remove(at);
            self.waiting -= 1;
        }
        if own.served.is_empty() && own.waiting.is_empty() {
            self.sources.remove(&source);
        }
    }
}

impl Newcomer {
    /// Waits until its turn comes; false if it has to go instead.
    pub async fn comes_in(&mut self) -> bool {
        self.turn.wait_for(|is_in| *is_in).await.is_ok()
    }

    /// Waits until it has to go, for somebody who has less.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut turn = self.turn.clone();
        async move { while turn.changed().await.is_ok() {} }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut state = self.newcomers.lock();
        state.leave(self.source, self.number);
        state.admit(self.newcomers.served_max);
    }
}

/// The address of a client, or its network of 64 bits where that is what one client is given.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::MAX << 64;
            IpAddr::V6((address.to_bits() & network).into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::{Newcomer, Newcomers};

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// Whether it is served, waits (`None`), or has to go.
    fn standing(newcomer: &Newcomer) -> Option<bool> {
        let state = newcomer.newcomers.lock();
        let Some(source) = state.sources.get(&newcomer.source) else {
            return Some(false);
        };
        let is_served = source.served.contains_key(&newcomer.number);
        let mut waiting = source.waiting.iter();
        match waiting.any(|(number, _)| *number == newcomer.number) {
            true => None,
            false => Some(is_served),
        }
    }

    #[test]
    fn who_has_none_takes_the_place_of_the_oldest_of_who_has_most() {
        let newcomers = Arc::new(Newcomers::new(3, 8));
        let flood = [(); 5].map(|()| newcomers.enter(address(1)));
        let all = |them: &[Newcomer]| them.iter().map(standing).collect::<Vec<_>>();
        let (is_in, waits, gone) = (Some(true), None, Some(false));
        assert_eq!(all(&flood), [is_in, is_in, is_in, waits, waits]);
        let one = newcomers.enter(address(2));
        assert_eq!(standing(&one), is_in);
        assert_eq!(all(&flood), [gone, is_in, is_in, waits, waits]);
        let other = newcomers.enter(address(3));
        assert_eq!(standing(&other), is_in);
        assert_eq!(all(&flood), [gone, gone, is_in, waits, waits]);
        // Each has one by now, so that nobody loses it, and who came first is next.
        let fourth = newcomers.enter(address(4));
        assert_eq!(standing(&fourth), waits);
        drop(one);
        assert_eq!(standing(&fourth), is_in);
        assert_eq!(all(&flood), [gone, gone, is_in, waits, waits]);
        drop((other, fourth));
        assert_eq!(all(&flood), [gone, gone, is_in, is_in, is_in]);
        drop(flood);
        let state = newcomers.lock();
        assert_eq!((state.served, state.waiting), (0, 0));
        assert!(state.sources.is_empty());
    }

    #[test]
    fn beyond_those_that_may_wait_the_address_that_has_most_loses_its_newest() {
        let newcomers = Arc::new(Newcomers::new(1, 3));
        let first = newcomers.enter(address(1));
        let flood = [(); 3].map(|()| newcomers.enter(address(1)));
        let other = newcomers.enter(address(2));
        let standings = flood.each_ref().map(standing);
        assert_eq!(standings, [None, None, Some(false)]);
        assert_eq!((standing(&first), standing(&other)), (Some(true), None));
        drop(first);
        assert_eq!(standing(&flood[0]), Some(true), "it came first");
        assert_eq!(standing(&other), None);
        drop(flood);
        assert_eq!(standing(&other), Some(true));
    }
}
