//! The end of steps: an outcome comes back of each, whatever an authority, a server or a name does
//! meanwhile, so that no place is held for ever.

use std::time::Duration;

use myriad_base::task;
use myriad_pki::acme::{NAMES_MAX, StepTrouble, Task, TaskStep};

/// How long a step may take once it has its place.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// How much longer for each name, where each is asked, or the authority about each, one after the
/// other.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest that a step may take, whatever its order says: that of one with all names.
const STEP_TIMEOUT_MAX: Duration = Duration::from_secs(60 + NAMES_MAX as u64);

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
    let names = task.order.as_ref().map_or(0, |order| order.names.len());
    patience(&task.step, names)
}

/// How long a step of an order of so many names may take.
fn patience(step: &TaskStep, names: usize) -> Duration {
    let names = match step {
        TaskStep::Prove
        | TaskStep::Place
        | TaskStep::Answer
        | TaskStep::Accept
        | TaskStep::Clean => names,
        TaskStep::Look | TaskStep::Finalise | TaskStep::Fetch | TaskStep::Window(..) => 0,
    };
    let more = u32::try_from(names).unwrap_or(u32::MAX);
    let whole = STEP_TIMEOUT.saturating_add(NAME_TIMEOUT.saturating_mul(more));
    whole.min(STEP_TIMEOUT_MAX)
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

    use super::{GivenUp, STEP_TIMEOUT_MAX, in_time, patience};

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
    fn a_step_has_the_longer_the_more_names_it_goes_through_but_never_for_ever() {
        let seconds = |step: &TaskStep, names| patience(step, names).as_secs();
        for step in [
            TaskStep::Prove,
            TaskStep::Place,
            TaskStep::Answer,
            TaskStep::Accept,
            TaskStep::Clean,
        ] {
            let counts = [0, 1, 100].map(|names| seconds(&step, names));
            assert_eq!(counts, [60, 61, 160], "{step:?}");
            assert_eq!(patience(&step, 100), STEP_TIMEOUT_MAX);
            assert_eq!(patience(&step, usize::MAX), STEP_TIMEOUT_MAX);
        }
        let window = TaskStep::Window("u".into(), "a".into());
        for step in [TaskStep::Look, TaskStep::Finalise, TaskStep::Fetch, window] {
            assert_eq!(seconds(&step, 100), 60, "{step:?}");
        }
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
