//! Requests that failed, and what a watch does then.

use std::time::Duration;

use super::{CHECKS_MAX, Core, Failure, Phase};

/// The most objects that are asked for at once, where lists of fewer are never done in time.
const PAGE_OBJECTS_MAX: u32 = 4_000;

impl Core {
    /// A request failed. Returns how long to wait.
    pub(in crate::kubernetes) fn fail(&mut self, failure: Failure) -> Duration {
        let mut wait = self.backoff.fail();
        let was_streaming = self.phase == Phase::Streaming;
        match &failure {
            // The rest of a list is forgotten: the next one has to be done in less time.
            Failure::Gone if matches!(self.phase, Phase::Paging { token: Some(_), .. }) => {
                self.page_objects = (self.page_objects * 2).min(PAGE_OBJECTS_MAX);
            }
            Failure::Gone => {}
            Failure::Unsupported(_) | Failure::Idle if was_streaming => self.can_stream = false,
            Failure::TooLarge => self.page_objects = (self.page_objects / 8).max(1),
            Failure::Busy { after, .. } => wait = wait.max(*after),
            Failure::Unsupported(_)
            | Failure::Idle
            | Failure::Unauthorized(_)
            | Failure::Refused(_)
            | Failure::Missing(_)
            | Failure::Lost(_) => {}
        }
        // Whoever is not known is told nothing, so that only a refusal says that there is no right.
        self.is_listed |= matches!(failure, Failure::Refused(_)) && self.scope.is_optional;
        self.phase = self.after(&failure);
        self.findings.set_trouble(&failure, self.is_listed);
        wait
    }

    /// The phase after a failure.
    fn after(&mut self, failure: &Failure) -> Phase {
        let is_checking = self.phase == Phase::Checking;
        self.unchecked += u32::from(is_checking);
        let knows = is_checking || matches!(self.phase, Phase::Watching(_) | Phase::Probing);
        match failure {
            // A server that cannot look back cannot be asked.
            Failure::Unsupported(_) if is_checking => Phase::Watching(self.version),
            Failure::Idle
            | Failure::Lost(_)
            | Failure::Unauthorized(_)
            | Failure::Refused(_)
            | Failure::Busy { .. }
                if knows && self.unchecked < CHECKS_MAX =>
            {
                Phase::Probing
            }
            _ => Phase::Unlisted,
        }
    }
}
