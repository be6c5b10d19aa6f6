//! The end of steps: an outcome comes back of each, whatever an authority, a server or a name does
//! meanwhile, so that no place is held for ever.

use std::time::Duration;

use myriad_base::task;
use myriad_pki::acme::{StepTrouble, Task, TaskStep};

/// How long a step may take once it has its place.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// How much longer for each name, where the authority is asked about each, one after the other.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);

/// The words for an answer that this process cannot bear.
const BROKEN: &str = "what it answers makes a fault of this process, which is in its log";

/// Why there is no outcome of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// It took too long.
    Late(Duration),
    /// It panicked.
    Broken,
}

/// Carries something out, for so long at most.
///
/// # Errors
/// It takes longer, or panics.
pub(super) async fn in_time<F: Future>(
    name: &'static str,
    patience: Duration,
    work: F,
) -> Result<F::Output, GivenUp> {
    let work = tokio::time::timeout(patience, work);
    match task::guarded(name, work).await {
        Some(Ok(output)) => Ok(output),
        Some(Err(_)) => Err(GivenUp::Late(patience)),
        None => Err(GivenUp::Broken),
    }
}

/// How long a step may take.
pub(super) fn patience_of(task: &Task) -> Duration {
    let names = match (&task.step, &task.order) {
        (TaskStep::Place | TaskStep::Accept, Some(order)) => order.names.len(),
        _ => 0,
    };
    let more = u32::try_from(names).unwrap_or(u32::MAX);
    STEP_TIMEOUT.saturating_add(NAME_TIMEOUT.saturating_mul(more))
}

impl GivenUp {
    /// The trouble that it is to a step.
    pub(super) fn trouble(self, step: &TaskStep) -> StepTrouble {
        let is_of_names = matches!(step, TaskStep::Prove | TaskStep::Answer | TaskStep::Clean);
        match self {
            GivenUp::Broken if is_of_names => StepTrouble::Local(BROKEN.to_owned()),
            GivenUp::Late(patience) if is_of_names => StepTrouble::Unproven(
                format!("waits, since its names and their servers did not answer in {patience:?}"),
                "see that all names lead to the gateway and that it answers for each at once, and \
                 that what sets records of DNS does, or use fewer names"
                    .to_owned(),
            ),
            given_up => given_up.of_authority(),
        }
    }

    /// The trouble that it is to whatever asks an authority alone.
    pub(super) fn of_authority(self) -> StepTrouble {
        let words = match self {
            GivenUp::Late(patience) => format!("it was not through in {patience:?}"),
            GivenUp::Broken => BROKEN.to_owned(),
        };
        StepTrouble::Unreachable(words, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_pki::acme::{StepTrouble, TaskStep};

    use super::{GivenUp, in_time};

    async fn faulty() {
        panic!("on purpose");
    }

    #[tokio::test]
    async fn what_takes_too_long_or_panics_has_an_end_and_the_rest_its_own() {
        let short = Duration::from_millis(5);
        let late = in_time("never", short, std::future::pending::<()>()).await;
        assert_eq!(late, Err(GivenUp::Late(short)));
        let minute = Duration::from_secs(60);
        let broken = in_time("faulty", minute, faulty()).await;
        assert_eq!(broken, Err(GivenUp::Broken));
        assert_eq!(in_time("well", minute, async { 7 }).await, Ok(7));
    }

    #[test]
    fn names_are_unproven_and_an_authority_is_out_of_reach() {
        for given_up in [GivenUp::Late(Duration::from_secs(60)), GivenUp::Broken] {
            for step in [TaskStep::Prove, TaskStep::Answer, TaskStep::Clean] {
                let trouble = given_up.trouble(&step);
                let is_own = matches!(trouble, StepTrouble::Unproven(..) | StepTrouble::Local(_));
                assert!(is_own, "{step:?}: {trouble:?}");
            }
            for step in [TaskStep::Place, TaskStep::Look, TaskStep::Fetch] {
                let trouble = given_up.trouble(&step);
                assert!(
                    matches!(trouble, StepTrouble::Unreachable(_, 0)),
                    "{step:?}: {trouble:?}"
                );
            }
        }
    }
}
