//! A stream as its server has it.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Gone, SharedStreams, Streams, keep, wake};
use crate::admission::spaces::{NOBODY, Spots};
use crate::codec::buffer::Buffer;
use crate::codec::frame::Reason;
use crate::codec::trailer::Trailers;

/// A stream, as its server has it. Dropping it ends the stream.
pub(crate) struct Handle {
    shared: Rc<SharedStreams>,
    slot: usize,
}

impl Handle {
    /// The stream of a slot.
    pub(crate) fn new(shared: Rc<SharedStreams>, slot: usize) -> Self {
        Handle { shared, slot }
    }

    /// Hands on what has arrived of the body, to one that holds so much of it already; none once
    /// it is complete. Where too much is held it waits, and is handed on in turn.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        held: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<Result<Option<usize>, Gone>> {
        let max = self.shared.0.borrow_mut().may_take(self.slot, held);
        if max == 0 {
            return self.poll_gone(context).map(|()| Err(Gone));
        }
        self.poll_data(context, max, take)
    }

    /// Hands on what has arrived of the body, at most so much; none once it is complete.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn poll_data(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<Result<Option<usize>, Gone>> {
        let mut streams = self.shared.0.borrow_mut();
        let Some(slot) = streams.slots.get_mut(self.slot) else {
            return Poll::Ready(Err(Gone));
        };
        if slot.is_reset {
            return Poll::Ready(Err(Gone));
        }
        let Some(received) = &mut slot.received else {
            if slot.is_received {
                return Poll::Ready(Ok(None));
            }
            keep(&mut slot.waker, context.waker());
            return Poll::Pending;
        };
        let part = received.filled();
        let part = part.get(..max).unwrap_or(part);
        let count = part.len();
        take(part);
        received.consume(count);
        let id = slot.id;
        if received.is_empty() {
            slot.received = None;
            streams.recount(self.slot);
        }
        let before = streams.unsent();
        streams.use_up(count);
        streams.use_up_of(id, count);
        if streams.unsent() > before {
            wake(&streams.connection);
        }
        Poll::Ready(Ok(Some(count)))
    }

    /// The trailers of the request.
    pub(crate) fn take_trailers(&mut self) -> Option<Trailers> {
        let mut streams = self.shared.0.borrow_mut();
        streams.slots.get_mut(self.slot)?.trailers.take()
    }

    /// Sends a head.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn head(
        &mut self,
        is_end: bool,
        pack: impl FnOnce(&mut Buffer),
    ) -> Result<(), Gone> {
        self.send(|streams, place, id| {
            streams.put_head(id, is_end, pack);
            if is_end {
                streams.close(place);
            }
        })
    }

    /// Sends as much of a body as may be sent now, and tells how much that was.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn data(&mut self, data: &[u8]) -> Result<usize, Gone> {
        self.send(|streams, place, _| {
            let taken = streams.put_data(place, data);
            if taken == data.len() {
                streams.leave_line(place);
            }
            streams.wake_next();
            taken
        })
    }

    /// Sends the end of the stream.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn end(&mut self) -> Result<(), Gone> {
        self.send(|streams, place, _| {
            streams.put_end(place);
            streams.close(place);
        })
    }

    /// Waits until more of a body may be sent; ready only where the client is gone.
    pub(crate) fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<Gone> {
        if self.poll_gone(context).is_ready() {
            return Poll::Ready(Gone);
        }
        self.shared.0.borrow_mut().wait(self.slot);
        Poll::Pending
    }

    /// Whether a head may be sent now. Whoever sends it nevertheless makes the connection hold
    /// more than it should.
    pub(crate) fn has_room(&self) -> bool {
        !self.shared.0.borrow().is_full()
    }

    /// Waits until a head may be sent.
    ///
    /// # Errors
    /// A client that went away.
    pub(crate) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.poll_gone(context).is_ready() {
            return Poll::Ready(Err(Gone));
        }
        let mut streams = self.shared.0.borrow_mut();
        if streams.is_full() {
            streams.wait_for_room(self.slot);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once the client, or its stream, is gone.
    pub(crate) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut streams = self.shared.0.borrow_mut();
        match streams.slots.get_mut(self.slot) {
            Some(slot) if !slot.is_reset => {
                keep(&mut slot.waker, context.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Whether the client, or its stream, is gone by now.
    pub(crate) fn is_gone(&self) -> bool {
        let streams = self.shared.0.borrow();
        let slot = streams.slots.get(self.slot);
        slot.is_none_or(|slot| slot.is_reset)
    }

    /// Whether the client would take so many bytes of a body now.
    pub(crate) fn may_send(&self, count: usize) -> bool {
        let streams = self.shared.0.borrow();
        let slot = streams.slots.get(self.slot);
        slot.is_some_and(|slot| slot.window.min(streams.window) >= count as i64)
    }

    /// Takes note of how many bytes are held for the stream elsewhere, and how many there may be
    /// below that; false where its connection holds too much.
    pub(crate) fn hold(&mut self, bytes: usize, below: usize) -> bool {
        let mut streams = self.shared.0.borrow_mut();
        if let Some(slot) = streams.slots.get_mut(self.slot) {
            slot.held = bytes;
            slot.below = below;
            streams.recount(self.slot);
        }
        let owner = streams
            .slots
            .get(self.slot)
            .map_or(NOBODY, |slot| slot.owner);
        !streams.holds_too_much() && streams.may_grow_for(owner)
    }

    /// The namespace that the stream is of.
    pub(crate) fn space(&self) -> Spots {
        let streams = self.shared.0.borrow();
        streams
            .slots
            .get(self.slot)
            .map_or(NOBODY, |slot| slot.owner)
    }

    /// Takes note of the namespace that the stream is of.
    pub(crate) fn belong(&mut self, space: Spots) {
        self.shared.0.borrow_mut().belong(self.slot, space);
    }

    /// Takes note of how many more bytes are held for it for as long as it lasts.
    pub(crate) fn hold_always(&mut self, bytes: usize) {
        let mut streams = self.shared.0.borrow_mut();
        if let Some(slot) = streams.slots.get_mut(self.slot) {
            slot.fixed += bytes;
            streams.recount(self.slot);
        }
    }

    /// Ends the stream at once.
    pub(crate) fn reset(&mut self, reason: Reason) {
        // Whoever is gone needs not be told.
        let _ = self.send(|streams, _, id| {
            if streams.is_live(id) {
                streams.fail(id, reason);
            }
        });
    }

    fn send<T>(&mut self, put: impl FnOnce(&mut Streams, usize, u32) -> T) -> Result<T, Gone> {
        let mut streams = self.shared.0.borrow_mut();
        let slot = streams.slots.get(self.slot).ok_or(Gone)?;
        if slot.is_reset {
            return Err(Gone);
        }
        let id = slot.id;
        let before = streams.unsent();
        let put = put(&mut streams, self.slot, id);
        // Whoever waits for room writes nothing, and must not have the connection make it look.
        if streams.unsent() > before {
            wake(&streams.connection);
        }
        Ok(put)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut streams = self.shared.0.borrow_mut();
        let Some(slot) = streams.slots.get_mut(self.slot) else {
            return;
        };
        let slot = std::mem::take(slot);
        streams.free.push(self.slot);
        streams.uncount(self.slot, &slot);
        if streams.is_gone {
            return;
        }
        if slot.is_waiting {
            // Whoever has the slot next waits for itself.
            streams.waiting.retain(|place| *place != self.slot);
        }
        if slot.is_head_waiting {
            streams.heads_waiting.retain(|place| *place != self.slot);
        }
        if let Some(received) = &slot.received {
            streams.use_up(received.len());
        }
        match (slot.is_sent, slot.is_received) {
            _ if slot.is_reset => {}
            (true, true) => {}
            // Who was answered need not send the rest.
            (true, false) => streams.fail(slot.id, Reason::NoError),
            (false, _) => streams.fail(slot.id, Reason::Cancel),
        }
        // It may have been woken to write what it will not.
        streams.wake_next();
        streams.shrink();
        wake(&streams.connection);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::super::account::tests::streams;
    use super::{Handle, SharedStreams};
    use crate::codec::frame::H2Settings;
    use crate::limits::Limits;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A stream, and how often it was woken.
    type Waiting = (Handle, Arc<Woken>);

    /// Streams that wait for the window of their connection, which is closed.
    fn waiting(count: u32) -> (Rc<SharedStreams>, Vec<Waiting>) {
        let shared = streams(&Limits::default());
        shared.with(|streams| {
            streams.output = None;
            streams.window = 0;
        });
        let one = |number| {
            let slot = shared.with(|streams| {
                streams.note(number * 2 + 1).unwrap();
                streams.open(number * 2 + 1, true, None)
            });
            let mut handle = Handle::new(shared.clone(), slot);
            let woken = Arc::<Woken>::default();
            let waker = Waker::from(woken.clone());
            let mut context = Context::from_waker(&waker);
            assert!(handle.poll_wait(&mut context).is_pending());
            (handle, woken)
        };
        let all = (0..count).map(one).collect();
        (shared, all)
    }

    fn wakes(all: &[Waiting]) -> Vec<usize> {
        let counts = all.iter().map(|(_, woken)| &woken.0);
        counts.map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// All of them were woken for each.
    #[test]
    fn a_window_of_one_byte_wakes_one_of_those_who_wait_for_it() {
        let (shared, mut all) = waiting(4);
        for number in 0..8 {
            shared.with(|streams| streams.widen(0, 1).unwrap());
            let (handle, woken) = &mut all[number % 4];
            assert_eq!(handle.data(b"xx"), Ok(1));
            let waker = Waker::from(woken.clone());
            let mut context = Context::from_waker(&waker);
            assert!(handle.poll_wait(&mut context).is_pending());
        }
        assert_eq!(wakes(&all), [2; 4]);
        shared.with(|streams| assert_eq!(streams.waiting.len(), 4));
    }

    /// As where it is looked after for another reason: nobody would wake the next one.
    #[test]
    fn one_that_has_written_all_while_it_waited_waits_no_more() {
        let (shared, mut all) = waiting(2);
        shared.with(|streams| streams.window = 100);
        assert_eq!(all[0].0.data(b"xx"), Ok(2));
        assert_eq!(wakes(&all), [0, 1]);
        shared.with(|streams| assert!(streams.waiting.is_empty()));
    }

    #[test]
    fn what_is_left_of_a_window_is_for_the_next_one() {
        let (shared, mut all) = waiting(4);
        shared.with(|streams| streams.widen(0, 100).unwrap());
        assert_eq!(wakes(&all), [1, 0, 0, 0]);
        assert_eq!(all[0].0.data(b"xx"), Ok(2));
        assert_eq!(wakes(&all), [1, 1, 0, 0]);
        // One that ends before it has written anything hands it on, and so does one that is reset.
        drop(all.remove(1));
        assert_eq!(wakes(&all), [1, 1, 0]);
        shared.with(|streams| streams.reset_by_client(7));
        assert_eq!(wakes(&all), [1, 1, 1]);
        assert_eq!(all[1].0.data(&[b'x'; 98]), Ok(98));
        assert_eq!(wakes(&all), [1, 1, 1]);
        shared.with(|streams| streams.widen(0, 1).unwrap());
        // It is of no use to who is reset, and nobody else waits.
        assert_eq!(wakes(&all), [1, 1, 2]);
        shared.with(|streams| assert!(streams.waiting.is_empty()));
    }

    /// Any window that settings told woke all streams.
    #[test]
    fn settings_wake_only_streams_whose_windows_they_open() {
        let (shared, all) = waiting(4);
        let set = |bytes| {
            let settings = H2Settings {
                window_bytes: Some(bytes),
                frame_bytes_max: None,
            };
            shared.with(|streams| streams.set(settings).unwrap())
        };
        for bytes in [65_535, 1 << 20, 1 << 20, 0, 0] {
            assert_eq!(set(bytes), 0, "{bytes}");
        }
        assert_eq!(wakes(&all), [0; 4]);
        // The window of the last one is open by then.
        shared.with(|streams| streams.widen(7, 1).unwrap());
        assert_eq!((set(1), set(1)), (3, 0));
        assert_eq!(wakes(&all), [1; 4]);
        // They wait for the window of their connection all the same.
        shared.with(|streams| assert_eq!(streams.waiting.len(), 4));
    }

    #[test]
    fn a_stream_that_ends_waits_for_nothing_any_more() {
        let shared = streams(&Limits::default());
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..3 {
            let slot = shared.with(|streams| {
                streams.note(number * 2 + 1).unwrap();
                streams.open(number * 2 + 1, true, None)
            });
            let mut handle = Handle::new(shared.clone(), slot);
            assert!(handle.poll_wait(&mut context).is_pending());
            assert!(handle.poll_wait(&mut context).is_pending());
            shared.with(|streams| assert_eq!(streams.waiting, [slot]));
            drop(handle);
            shared.with(|streams| assert!(streams.waiting.is_empty()));
        }
    }

    #[test]
    fn a_head_waits_while_too_much_is_to_be_sent() {
        let shared = streams(&Limits::default());
        let mut context = Context::from_waker(Waker::noop());
        let slot = shared.with(|streams| {
            streams.note(1).unwrap();
            streams.open(1, true, None)
        });
        let mut handle = Handle::new(shared.clone(), slot);
        assert!(handle.poll_room(&mut context).is_ready());
        shared.with(|streams| streams.output().append(&[0; 65 << 10]));
        assert!(!handle.has_room());
        for _ in 0..2 {
            assert!(handle.poll_room(&mut context).is_pending());
        }
        shared.with(|streams| {
            assert_eq!(streams.heads_waiting, [slot]);
            streams.wake_for_room();
            assert_eq!(streams.heads_waiting, [slot]);
            streams.output().consume(2 << 10);
            streams.wake_for_room();
            assert!(streams.heads_waiting.is_empty());
        });
        assert!(handle.has_room() && handle.poll_room(&mut context).is_ready());
        shared.with(|streams| streams.output().append(&[0; 2 << 10]));
        assert!(handle.poll_room(&mut context).is_pending());
        drop(handle);
        shared.with(|streams| assert!(streams.heads_waiting.is_empty()));
    }
}
