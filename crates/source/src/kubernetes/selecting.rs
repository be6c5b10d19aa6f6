//! Whether Pods are wanted whole: while a ServiceEntry selects some, and for a time after that.
//!
//! Another form is a list of all Pods, and anybody who may write a ServiceEntry decides on it. So
//! the smaller form has to wait, while the larger one comes at once: however often somebody
//! changes his mind, there are at most two lists in
//! [`whole_pods_for`](super::ClusterSettings::whole_pods_for).

use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use tokio::sync::watch;

/// The ServiceEntries that select Pods. Cheap to clone; clones count together.
#[derive(Clone, Default)]
pub(super) struct Selecting(Arc<watch::Sender<Selectors>>);

/// How many select Pods.
#[derive(Clone, Copy, Debug, Default)]
struct Selectors {
    /// ServiceEntries, and one more where Pods are wanted whole all the same.
    count: usize,
    /// When the last of them went.
    ended: Option<Instant>,
}

/// The form in which Pods are wanted, as one watch of them goes by it.
pub(super) struct PodForm {
    selectors: watch::Receiver<Selectors>,
    whole_for: Duration,
    /// Whether they were wanted whole when that was asked last.
    was_whole: bool,
}

impl Selecting {
    /// Counts the selectors of one watch anew: so many, instead of those before.
    pub(super) fn replace(&self, before: usize, after: usize) {
        let now = clock::now();
        self.0.send_modify(|it| it.replace(before, after, now));
    }

    /// Whether anything selects Pods now.
    pub(super) fn is_any(&self) -> bool {
        self.0.borrow().count > 0
    }

    /// The form for a watch, which stays whole for a time after the last selector went.
    pub(super) fn follow(&self, whole_for: Duration) -> PodForm {
        PodForm {
            selectors: self.0.subscribe(),
            whole_for,
            was_whole: false,
        }
    }
}

impl Selectors {
    fn replace(&mut self, before: usize, after: usize, now: Instant) {
        let count = (self.count + after).saturating_sub(before);
        if self.count > 0 && count == 0 {
            self.ended = Some(now);
        }
        self.count = count;
    }

    /// When Pods are not wanted whole any more; none while something selects them, or before
    /// anything has.
    fn whole_until(&self, whole_for: Duration) -> Option<Instant> {
        let ended = self.ended.filter(|_| self.count == 0)?;
        ended.checked_add(whole_for)
    }

    fn is_whole(&self, whole_for: Duration, now: Instant) -> bool {
        let until = self.whole_until(whole_for);
        self.count > 0 || until.is_some_and(|until| now < until)
    }
}

impl PodForm {
    /// Whether Pods are wanted as a whole, and not by their metadata alone.
    pub(super) fn is_whole(&mut self) -> bool {
        let selectors = *self.selectors.borrow_and_update();
        self.was_whole = selectors.is_whole(self.whole_for, clock::now());
        self.was_whole
    }

    /// Waits until another form may be wanted. For ever, once nobody can select Pods any more.
    pub(super) async fn changed(&mut self) {
        let until = self.selectors.borrow().whole_until(self.whole_for);
        let changed = self.selectors.changed();
        let changed = match until.filter(|_| self.was_whole) {
            Some(until) => tokio::time::timeout_at(until, changed).await,
            None => Ok(changed.await),
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => std::future::pending().await,
            // Asked again, it is another one.
            Err(_) => self.was_whole = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use myriad_base::clock;

    use super::{Selecting, Selectors};

    const WHOLE_FOR: Duration = Duration::from_secs(600);

    #[test]
    fn the_form_changes_twice_in_its_time_however_often_somebody_changes_his_mind() {
        let start = clock::now();
        let (mut selectors, mut was_whole) = (Selectors::default(), false);
        let mut changes = 0;
        // An hour, in which a selector comes or goes each second.
        for number in 0..3_600 {
            let now = start + Duration::from_secs(number);
            let (before, after) = match number % 2 {
                0 => (0, 1),
                _ => (1, 0),
            };
            selectors.replace(before, after, now);
            let is_whole = selectors.is_whole(WHOLE_FOR, now);
            changes += usize::from(is_whole != was_whole);
            was_whole = is_whole;
        }
        assert_eq!(changes, 1);
        // Somebody who waits until the form has changed gets as many lists as there are waits.
        let second = Duration::from_secs(1);
        let mut now = start + 3_599 * second;
        for _ in 0..6 {
            assert!(selectors.is_whole(WHOLE_FOR, now));
            now += WHOLE_FOR - second;
            changes += usize::from(!selectors.is_whole(WHOLE_FOR, now));
            now += second;
            changes += usize::from(!selectors.is_whole(WHOLE_FOR, now));
            selectors.replace(0, 1, now);
            changes += usize::from(selectors.is_whole(WHOLE_FOR, now));
            selectors.replace(1, 0, now);
        }
        assert_eq!(changes, 1 + 6 * 2);
    }

    #[tokio::test]
    async fn a_form_that_has_to_wait_is_told_of_when_its_time_is_over() {
        let selecting = Selecting::default();
        let mut form = selecting.follow(Duration::from_millis(20));
        assert!(!form.is_whole());
        selecting.replace(0, 1);
        form.changed().await;
        assert!(form.is_whole() && selecting.is_any());
        selecting.replace(1, 0);
        form.changed().await;
        assert!(!selecting.is_any());
        while form.is_whole() {
            form.changed().await;
        }
        // Nothing is left to wait for but another selector.
        assert!(form.changed().now_or_never().is_none());
        selecting.replace(0, 1);
        form.changed().await;
        assert!(form.is_whole());
    }
}
