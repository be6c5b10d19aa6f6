//! The requests that wait while another one opens a connection to their endpoint.
//!
//! One of them is woken at a time, the one that has come first, and wakes the next one once it has
//! gone on: with a stream, so that each new connection wakes as many as it has streams for, or by
//! opening a further one. All of them at once would look for streams that there are not.

use std::cell::Cell;

use tokio::sync::Notify;

/// Requests that wait in the order in which they have come, and whether somebody opens.
#[derive(Default)]
pub(super) struct Line {
    waiting: Cell<usize>,
    is_opening: Cell<bool>,
    next: Notify,
}

/// The turn of a request that was woken. The next one has it once it is dropped.
pub(super) struct OpeningTurn<'a>(Option<&'a Line>);

/// An opening that is under way. Once it has ended, however it did, the next one has its turn.
pub(super) struct OpeningGuard<'a>(&'a Line);

/// Counts a request that waits.
struct Waiting<'a>(&'a Line);

impl Line {
    /// Whether somebody opens a connection.
    pub(super) fn is_opening(&self) -> bool {
        self.is_opening.get()
    }

    /// Whether somebody opens a connection, or others come before a request that has no turn.
    pub(super) fn is_busy(&self) -> bool {
        self.is_opening.get() || self.waiting.get() > 0
    }

    /// Waits behind all others. A wake that it does not take goes to the next one.
    pub(super) async fn wait(&self) -> OpeningTurn<'_> {
        let waiting = Waiting::new(self);
        self.next.notified().await;
        drop(waiting);
        OpeningTurn(Some(self))
    }

    /// Begins an opening.
    pub(super) fn open(&self) -> OpeningGuard<'_> {
        self.is_opening.set(true);
        OpeningGuard(self)
    }

    fn wake(&self) {
        if self.waiting.get() > 0 {
            self.next.notify_one();
        }
    }
}

impl OpeningTurn<'_> {
    /// Ends it without a wake: whoever opens wakes the next one.
    pub(super) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for OpeningTurn<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.0 {
            line.wake();
        }
    }
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.wake();
    }
}

impl<'a> Waiting<'a> {
    fn new(line: &'a Line) -> Self {
        line.waiting.set(line.waiting.get() + 1);
        Waiting(line)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use myriad_base::task;
    use tokio::task::{LocalSet, yield_now};

    use super::Line;

    /// The requests that wait.
    const MANY: usize = 6_000;

    /// The requests that were woken, by their numbers, and the streams that there are for them.
    #[derive(Default)]
    struct Told {
        woken: RefCell<Vec<usize>>,
        streams: Cell<usize>,
    }

    /// Takes a stream where there is one, or else opens for ever.
    async fn ask(line: Rc<Line>, told: Rc<Told>, number: usize) {
        let turn = line.wait().await;
        told.woken.borrow_mut().push(number);
        let left = told.streams.get();
        if left > 0 {
            told.streams.set(left - 1);
            return;
        }
        turn.spend();
        let _opening = line.open();
        std::future::pending::<()>().await;
    }

    async fn settle() {
        for _ in 0..2 * MANY {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn as_many_are_woken_as_there_are_streams_for_and_one_that_opens() {
        let story = async {
            let (line, told) = (Rc::<Line>::default(), Rc::<Told>::default());
            let opening = line.open();
            let all: Vec<_> = (0..MANY)
                .map(|number| task::spawn_local("waits", ask(line.clone(), told.clone(), number)))
                .collect();
            settle().await;
            assert!(told.woken.borrow().is_empty());
            told.streams.set(20);
            drop(opening);
            settle().await;
            assert_eq!(*told.woken.borrow(), (0..21).collect::<Vec<_>>());
            assert!(line.is_opening());
            // An opening that nobody waits for any more wakes the next one as well.
            all[20].abort();
            settle().await;
            assert_eq!(told.woken.borrow().len(), 22);
        };
        LocalSet::new().run_until(story).await;
    }

    #[tokio::test]
    async fn whoever_has_gone_passes_its_turn_on() {
        let story = async {
            let (line, told) = (Rc::<Line>::default(), Rc::<Told>::default());
            let opening = line.open();
            let all: Vec<_> = (0..3)
                .map(|number| task::spawn_local("waits", ask(line.clone(), told.clone(), number)))
                .collect();
            settle().await;
            // It is woken, and goes before it has looked.
            drop(opening);
            all[0].abort();
            settle().await;
            assert_eq!(*told.woken.borrow(), [1]);
            assert!(line.is_busy());
        };
        LocalSet::new().run_until(story).await;
    }
}
