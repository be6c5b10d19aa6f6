//! A time for several waits together, which does not run in between.

use std::time::Duration;

use myriad_base::clock;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The time that is left for further waits, and what was spent of it.
pub(crate) struct Allowance {
    left: Duration,
    spent: Duration,
}

impl Allowance {
    /// A time of which nothing has passed.
    pub(crate) fn new(time: Duration) -> Self {
        Allowance {
            left: time,
            spent: Duration::ZERO,
        }
    }

    /// Waits for no longer than what is left.
    ///
    /// # Errors
    /// That nothing is left.
    pub(crate) async fn wait<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, Elapsed> {
        let began = clock::now();
        let waited = timeout(self.left, waiting).await;
        let took = clock::now() - began;
        self.left = self.left.saturating_sub(took);
        self.spent = self.spent.saturating_add(took);
        waited
    }

    /// How long all waits have taken together.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::Allowance;

    #[tokio::test]
    async fn waits_share_a_time_that_does_not_run_in_between() {
        let (wait, all) = (Duration::from_millis(20), Duration::from_secs(600));
        let mut allowance = Allowance::new(all);
        for number in 1..=2 {
            assert!(allowance.wait(sleep(wait)).await.is_ok());
            assert!(allowance.left <= all - wait * number);
            assert!(allowance.spent() >= wait * number);
            let (left, spent) = (allowance.left, allowance.spent());
            sleep(wait).await;
            assert_eq!((allowance.left, allowance.spent()), (left, spent));
        }
    }

    #[tokio::test]
    async fn with_nothing_left_only_what_is_there_already_is_waited_for() {
        let mut allowance = Allowance::new(Duration::from_millis(20));
        for _ in 0..2 {
            assert!(allowance.wait(pending::<()>()).await.is_err());
            assert!(allowance.left.is_zero());
            assert!(allowance.wait(async {}).await.is_ok());
        }
    }

    #[tokio::test]
    async fn the_longest_time_is_no_error() {
        let mut allowance = Allowance::new(Duration::MAX);
        assert!(allowance.wait(async {}).await.is_ok());
    }
}
