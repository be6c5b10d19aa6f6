//! The order in which the Secret of one order is written: that in which it was asked for. Those of
//! different orders do not wait for each other.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::oneshot;

/// The turns that are taken.
#[derive(Clone, Default)]
pub(super) struct Turns(Rc<RefCell<HashMap<Arc<str>, Last>>>);

/// The turn behind which the next one comes.
struct Last {
    number: u64,
    is_over: oneshot::Receiver<()>,
}

/// One turn, until it is dropped.
pub(super) struct WriteTurn {
    turns: Turns,
    id: Arc<str>,
    number: u64,
    before: Option<oneshot::Receiver<()>>,
    _next: oneshot::Sender<()>,
}

impl Turns {
    /// Takes the turn behind all that were taken before.
    pub(super) fn take(&self, id: &Arc<str>) -> WriteTurn {
        let (next, is_over) = oneshot::channel();
        let mut lasts = self.0.borrow_mut();
        let before = lasts.remove(id);
        let number = before.as_ref().map_or(0, |last| last.number + 1);
        lasts.insert(id.clone(), Last { number, is_over });
        WriteTurn {
            turns: self.clone(),
            id: id.clone(),
            number,
            before: before.map(|last| last.is_over),
            _next: next,
        }
    }

    /// Whether somebody has a turn, or waits for one.
    pub(super) fn is_taken(&self, id: &str) -> bool {
        self.0.borrow().contains_key(id)
    }
}

impl WriteTurn {
    /// Whether somebody waits behind it.
    pub(super) fn is_followed(&self) -> bool {
        let lasts = self.turns.0.borrow();
        lasts
            .get(&self.id)
            .is_some_and(|last| last.number != self.number)
    }

    /// Waits until it comes.
    pub(super) async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // Nothing is ever sent: the end of the other is the message.
            let _ = before.await;
        }
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        let mut lasts = self.turns.0.borrow_mut();
        // Nobody has come behind it.
        if lasts
            .get(&self.id)
            .is_some_and(|last| last.number == self.number)
        {
            lasts.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Turns;

    #[tokio::test]
    async fn turns_come_in_the_order_in_which_they_were_taken_and_each_name_has_its_own() {
        let turns = Turns::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut first = turns.take(&a);
        assert!(!first.is_followed());
        let mut second = turns.take(&a);
        assert!(first.is_followed() && !second.is_followed());
        let mut third = turns.take(&a);
        let mut other = turns.take(&b);
        first.come().await;
        other.come().await;
        let early = tokio::time::timeout(std::time::Duration::from_millis(5), second.come());
        assert!(early.await.is_err());
        drop(first);
        // One that is given up lets those behind it wait for those before it no longer.
        drop(second);
        third.come().await;
        assert!(turns.is_taken("a") && turns.is_taken("b"));
        drop((third, other));
        assert!(!turns.is_taken("a") && !turns.is_taken("b"));
        assert!(turns.0.borrow().is_empty());
    }
}
