//! The finding about removals that are held: an error, and an Event of the proxies' Service.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::hold::{Holds, Loss};
use myriad_translate::FindingsChange;

/// The one finding about all that is held. What watches hold has findings of its own.
pub(super) struct HeldFindings {
    holds: Holds,
    /// The Service of the proxies, which has the Event.
    service: Option<ObjectKey>,
    told: Option<Arc<Finding>>,
}

impl HeldFindings {
    /// Nothing is held.
    pub(super) fn new(holds: Holds, service: Option<(String, String)>) -> Self {
        let service =
            service.map(|(namespace, name)| ObjectKey::new(ObjectKind::Service, &namespace, &name));
        HeldFindings {
            holds,
            service,
            told: None,
        }
    }

    /// Looks at what is held. The finding names the first loss and stays until nothing is held,
    /// so that one outage is told once. What a sidecar says that it holds is on pages alone: a
    /// tenant could raise the alarm by it, or hide a loss behind it.
    pub(super) fn look(&mut self) -> FindingsChange {
        let mut change = FindingsChange::default();
        let held = self.holds.held().into_iter().filter(|it| it.is_proven);
        let first = held.map(|held| held.loss).max();
        match (first, &self.told) {
            (Some(loss), None) => {
                let finding = Arc::new(self.finding(loss));
                self.told = Some(finding.clone());
                change.added.push(finding);
            }
            (None, Some(_)) => change.removed.extend(self.told.take()),
            (Some(_), Some(_)) | (None, None) => {}
        }
        change
    }

    fn finding(&self, loss: Loss) -> Finding {
        Finding {
            severity: Severity::Error,
            object: self.service.clone(),
            field: String::new(),
            message: format!(
                "the cluster is without {loss} that proxies serve, and nobody was seen to remove \
                 them: they stay in service"
            ),
            remedy: "see whether the cluster was restored, emptied or is the wrong one; if this \
                     is meant, run `myriad confirm` against every controller"
                .into(),
            place: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_base::hold::{HoldLimits, Holds, Loss};

    use super::HeldFindings;

    #[test]
    fn what_is_held_is_one_finding_of_the_service_until_nothing_is() {
        let holds = Holds::new(HoldLimits::default());
        let service = Some(("edge".to_owned(), "myriad".to_owned()));
        let mut findings = HeldFindings::new(holds.clone(), service);
        assert!(findings.look().is_empty());
        for (holder, lost) in [("a", 60), ("b", 70)] {
            let what = "domains";
            holds.set(holder, Some(Loss { what, lost, of: 80 }));
        }
        let told = findings.look().added;
        assert_eq!(told.len(), 1);
        let text = told[0].to_string();
        assert!(text.contains("Service edge/myriad"), "{text}");
        assert!(text.contains("70 of 80 domains"), "{text}");
        holds.set("b", None);
        assert!(findings.look().is_empty());
        holds.set("a", None);
        assert_eq!(findings.look().removed, told);
    }

    #[test]
    fn the_word_of_a_sidecar_is_no_finding_and_hides_none() {
        let holds = Holds::new(HoldLimits::default());
        let mut findings = HeldFindings::new(holds.clone(), None);
        let what = "resources";
        let loss = |lost| {
            let of = lost;
            Some(Loss { what, lost, of })
        };
        holds.set_unproven("a sidecar", loss(199_999));
        assert!(findings.look().is_empty());
        holds.set("a gateway", loss(60));
        let told = findings.look().added;
        assert!(told[0].message.contains("60 of 60 resources"), "{told:?}");
        holds.set("a gateway", None);
        assert_eq!(findings.look().removed, told);
    }
}
