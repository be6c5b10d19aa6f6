//! The bytes that are held for the streams of a connection: counted for each of them, for the
//! connection, which refuses further streams beyond a bound and lets bodies wait, and for the
//! worker; see [`crate::admission::holdings`].

use super::{Slot, Streams, wake};
use crate::admission::spaces::{NOBODY, Spots};
use crate::codec::buffer::{BUFFER_BYTES, Buffer};
use crate::net::deadline::Deadline;

/// The bytes of each stream beside what it says and hears: its task, its account and its plan.
pub(crate) const STREAM_BYTES: usize = 4 << 10;

/// So much of its body a stream may hold in any case, so that all of them get on.
const LEAST_BYTES: usize = 4 << 10;

impl Slot {
    /// How many bytes are held for it.
    fn memory(&self) -> usize {
        let received = self.received.as_ref().map_or(0, Buffer::capacity);
        self.fixed + self.held + self.trailer_bytes + received
    }
}

impl Streams {
    /// Whether so much is held for streams that no further one may come.
    pub(crate) fn holds_too_much(&self) -> bool {
        self.held > self.held_max
    }

    /// How many bytes of memory are kept for streams that there are not.
    pub(crate) fn kept(&self) -> usize {
        let used = self.slots.len() - self.free.len();
        let slots = (self.slots.capacity() - used) * size_of::<Slot>();
        let lists = [
            &self.free,
            &self.waiting,
            &self.heads_waiting,
            &self.growing,
        ];
        let places: usize = lists.map(Vec::capacity).into_iter().sum();
        let live = (self.live.capacity() - self.live.len()) * size_of::<(u32, usize)>();
        let cut = self.cut.capacity() * size_of::<u32>();
        slots + places * size_of::<usize>() + live + cut
    }

    /// How many bytes are held for the connection in all.
    pub(crate) fn held(&self) -> usize {
        self.holding.bytes()
    }

    /// Whether more may be held for a stream of a namespace, as far as others go.
    pub(crate) fn may_grow_for(&self, owner: Spots) -> bool {
        self.holding.may_grow_for(owner)
    }

    /// Whether the connection has to go because too much is held.
    pub(crate) fn is_evicted(&self) -> bool {
        self.holding.is_evicted()
    }

    /// The deadline that passes at once where the connection has to go.
    pub(crate) fn watch(&mut self, deadline: &Deadline) {
        self.holding.watch(deadline);
    }

    /// Takes note of how many bytes are held for the connection itself.
    pub(crate) fn hold_beside(&mut self, bytes: usize) {
        self.beside = bytes;
        self.tell();
    }

    /// Counts a slot's stream anew.
    pub(super) fn recount(&mut self, place: usize) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let now = [slot.memory(), slot.below];
        let before = std::mem::replace(&mut slot.counted, now);
        if now != before {
            let owner = slot.owner;
            self.change(owner, now, before);
        }
    }

    /// A slot's stream is of a namespace from now on.
    pub(super) fn belong(&mut self, place: usize, owner: Spots) {
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let before = std::mem::replace(&mut slot.owner, owner);
        if before == owner {
            return;
        }
        let [held, below] = slot.counted;
        self.holding.assign(before, held + below, 0);
        self.holding.assign(owner, 0, held + below);
        self.holding.serve(owner);
    }

    /// A slot's stream is over, and what was held for it is given back.
    pub(super) fn uncount(&mut self, place: usize, slot: &Slot) {
        if self.ahead == Some(place) {
            self.ahead = None;
            self.wake_growing();
        }
        if slot.is_growing {
            self.growing.retain(|growing| *growing != place);
        }
        self.change(slot.owner, [0, 0], slot.counted);
    }

    fn change(&mut self, owner: Spots, now: [usize; 2], before: [usize; 2]) {
        let ([held, below], [held_before, below_before]) = (now, before);
        self.holding
            .assign(owner, held_before + below_before, held + below);
        self.held = (self.held + held).saturating_sub(held_before);
        self.below = (self.below + below).saturating_sub(below_before);
        self.tell();
    }

    /// Tells the worker what is held, and streams that wait once that is little enough.
    pub(super) fn tell(&mut self) {
        let output = self.output.as_ref().map_or(0, Buffer::capacity);
        let all = self.held + self.below + self.beside + output;
        self.holding.set(all);
        if !self.holds_too_much() {
            self.ahead = None;
            self.wake_growing();
        }
    }

    /// How many bytes of its body a slot's stream may take, which holds so many of it already. With
    /// none it waits. Where too much is held, each takes a little, and one of them all.
    pub(super) fn may_take(&mut self, place: usize, held: usize) -> usize {
        let slot = self.slots.get(place);
        let owner = slot.map_or(NOBODY, |slot| slot.owner);
        let has_more = slot.is_some_and(|slot| slot.received.is_some());
        if !has_more || !self.holds_too_much() {
            return match self.may_grow_for(owner) {
                true => BUFFER_BYTES,
                false => LEAST_BYTES,
            };
        }
        if held < LEAST_BYTES {
            return LEAST_BYTES - held;
        }
        if *self.ahead.get_or_insert(place) == place {
            return BUFFER_BYTES;
        }
        if let Some(slot) = self.slots.get_mut(place)
            && !slot.is_growing
        {
            slot.is_growing = true;
            self.growing.push(place);
        }
        0
    }

    fn wake_growing(&mut self) {
        for place in std::mem::take(&mut self.growing) {
            if let Some(slot) = self.slots.get_mut(place) {
                slot.is_growing = false;
                wake(&slot.waker);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::super::{Handle, SharedStreams};
    use super::{LEAST_BYTES, STREAM_BYTES};
    use crate::admission::holdings::Holdings;
    use crate::codec::buffer::BUFFER_BYTES;
    use crate::limits::Limits;

    /// The streams of a connection beside which there is no other.
    pub(crate) fn streams(limits: &Limits) -> Rc<SharedStreams> {
        let holdings = Rc::new(Holdings::new(limits, &Arc::default()));
        SharedStreams::new(limits, holdings.connection())
    }

    fn open(shared: &Rc<SharedStreams>, number: u32) -> Handle {
        let slot = shared.with(|streams| {
            streams.note(number).unwrap();
            streams.open(number, false, None)
        });
        Handle::new(shared.clone(), slot)
    }

    fn held(shared: &SharedStreams) -> usize {
        shared.with(|streams| streams.held)
    }

    #[test]
    fn all_that_a_stream_holds_is_counted_once_and_given_back() {
        let shared = streams(&Limits::default());
        shared.with(|streams| {
            streams.output = None;
            streams.tell();
        });
        let mut first = open(&shared, 1);
        let second = open(&shared, 3);
        assert_eq!(held(&shared), 2 * STREAM_BYTES);
        first.hold_always(100);
        assert!(first.hold(1_000, 50_000));
        assert!(first.hold(2_000, 60_000));
        shared.with(|streams| streams.data(1, &[b'x'; 3_000]).unwrap());
        assert_eq!(held(&shared), 2 * STREAM_BYTES + 2_100 + 4_096);
        shared.with(|streams| streams.hold_beside(7));
        let all = shared.with(|streams| streams.held());
        assert_eq!(all, held(&shared) + 60_000 + 7);
        let mut context = Context::from_waker(Waker::noop());
        let taken = first.poll_data(&mut context, BUFFER_BYTES, |data| {
            assert_eq!(data.len(), 3_000);
        });
        assert!(taken.is_ready());
        assert_eq!(held(&shared), 2 * STREAM_BYTES + 2_100);
        // What is thrown away is given back as well.
        shared.with(|streams| streams.data(1, &[b'x'; 3_000]).unwrap());
        drop(first);
        assert_eq!(held(&shared), STREAM_BYTES);
        drop(second);
        let sums = shared.with(|streams| [streams.held, streams.below]);
        assert_eq!(sums, [0, 0]);
    }

    #[test]
    fn where_too_much_is_held_one_body_goes_on_and_of_others_a_little() {
        let limits = Limits {
            held_bytes_max: 3 * STREAM_BYTES,
            ..Limits::default()
        };
        let shared = streams(&limits);
        let mut context = Context::from_waker(Waker::noop());
        let mut all = [1, 3, 5].map(|number| open(&shared, number));
        let mut take = |handle: &mut Handle, held: usize| {
            let mut taken = 0;
            let polled = handle.poll_body(&mut context, held, |data| taken = data.len());
            polled.is_ready().then_some(taken)
        };
        shared.with(|streams| {
            for number in [1, 3, 5] {
                streams.data(number, &[b'x'; 16_000]).unwrap();
            }
            assert!(streams.holds_too_much());
        });
        let [first, second, third] = &mut all;
        assert_eq!(take(first, 0), Some(LEAST_BYTES));
        assert_eq!(take(first, LEAST_BYTES - 10), Some(10));
        assert_eq!(take(first, LEAST_BYTES), Some(16_000 - LEAST_BYTES - 10));
        assert_eq!(take(second, LEAST_BYTES), None);
        assert_eq!(take(third, LEAST_BYTES - 1), Some(1));
        shared.with(|streams| {
            assert_eq!((streams.ahead, streams.growing.len()), (Some(0), 1));
        });
        // The next one goes on once that is over.
        let [first, mut second, mut third] = all;
        drop(first);
        shared.with(|streams| assert_eq!((streams.ahead, streams.growing.len()), (None, 0)));
        assert_eq!(take(&mut third, LEAST_BYTES), Some(16_000 - 1));
        assert_eq!(take(&mut second, LEAST_BYTES), None);
        drop(third);
        assert_eq!(take(&mut second, LEAST_BYTES), Some(16_000));
    }

    #[test]
    fn a_stream_that_waits_goes_on_once_less_is_held() {
        let limits = Limits {
            held_bytes_max: 2 * STREAM_BYTES + BUFFER_BYTES,
            ..Limits::default()
        };
        let shared = streams(&limits);
        let mut context = Context::from_waker(Waker::noop());
        let [mut first, mut second] = [1, 3].map(|number| open(&shared, number));
        shared.with(|streams| streams.data(3, &[b'x'; 100]).unwrap());
        assert!(!first.hold(BUFFER_BYTES, 0));
        shared.with(|streams| streams.ahead = Some(0));
        let polled = second.poll_body(&mut context, LEAST_BYTES, |_| unreachable!());
        assert!(polled.is_pending());
        shared.with(|streams| assert_eq!(streams.growing, [1]));
        assert!(first.hold(0, 0));
        shared.with(|streams| assert!(streams.growing.is_empty()));
        let polled = second.poll_body(&mut context, LEAST_BYTES, |data| {
            assert_eq!(data.len(), 100);
        });
        assert!(polled.is_ready());
    }
}
