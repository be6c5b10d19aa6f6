//! The findings that tell people whose changes wait, and whose sidecars get no view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock::Instant;
use myriad_translate::{FindingsChange, TooManyViews, VIEW_LABEL_BYTES_MAX, VIEW_LABELS_MAX};

use super::beside::NoView;
use super::debts::Debt;

/// The most namespaces of which people are told at a time; all are counted.
pub(super) const NOTICES_MAX: usize = 100;

/// How much longer than the wait a finding stays. A namespace that goes on as before is told of
/// once, and not with each of its batches.
const STAYS_FOR: Duration = Duration::from_secs(60);

/// The findings about namespaces that wait, or have sidecars that get no view.
#[derive(Default)]
pub(super) struct Notices {
    told: BTreeMap<(Subject, Box<str>), Notice>,
}

/// The reason of a finding about a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// Its changes wait.
    Debt,
    /// Its sidecars have too many views.
    Views,
    /// A Pod of it has too many labels.
    Labels,
}

struct Notice {
    finding: Arc<Finding>,
    until: Instant,
}

impl Notices {
    /// Tells of a debt; `object` is one of those that led to it. Returns the findings that are
    /// new.
    pub(super) fn tell(
        &mut self,
        debt: &Debt,
        object: Option<ObjectKey>,
        now: Instant,
    ) -> FindingsChange {
        let message = format!(
            "changes of namespace {} wait for {}: translating its objects took {}",
            debt.namespace,
            seconds(debt.wait),
            seconds(debt.cost)
        );
        let finding = Finding {
            severity: Severity::Warning,
            object,
            field: String::new(),
            message,
            remedy: "those of others go first; let fewer or smaller objects change, or raise \
                     --bound control-share"
                .into(),
            place: None,
        };
        let subject = (Subject::Debt, debt.namespace.clone());
        self.note(subject, finding, (now, debt.wait + STAYS_FOR))
    }

    /// Tells of a Pod, by `namespace/name`, for which there is no view. Returns the findings that
    /// are new.
    pub(super) fn tell_refused(
        &mut self,
        pod: &str,
        problem: NoView,
        now: Instant,
    ) -> FindingsChange {
        let key = ObjectKey::from_id(ObjectKind::Pod, pod.into());
        let namespace = key.namespace();
        let (subject, (message, remedy)) = match problem {
            NoView::Many(problem) => (Subject::Views, too_many(namespace, problem)),
            NoView::Labels => (Subject::Labels, too_many_labels()),
        };
        let finding = Finding::new(Severity::Error, &key, "metadata.labels", message, remedy);
        let subject = (subject, namespace.into());
        self.note(subject, finding, (now, STAYS_FOR))
    }

    /// Notes a finding, which stays for a time from now on.
    fn note(
        &mut self,
        subject: (Subject, Box<str>),
        finding: Finding,
        (now, time): (Instant, Duration),
    ) -> FindingsChange {
        let mut change = self.expire(now);
        let until = now + time;
        if let Some(known) = self.told.get_mut(&subject) {
            known.until = known.until.max(until);
            return change;
        }
        if self.told.len() >= NOTICES_MAX {
            return change;
        }
        let finding = Arc::new(finding);
        change.added.push(finding.clone());
        self.told.insert(subject, Notice { finding, until });
        change
    }

    /// Takes back what was told of those that have not waited for a while.
    pub(super) fn expire(&mut self, now: Instant) -> FindingsChange {
        let mut change = FindingsChange::default();
        self.told.retain(|_, notice| {
            let is_over = notice.until <= now;
            if is_over {
                change.removed.push(notice.finding.clone());
            }
            !is_over
        });
        change.removed.sort();
        change
    }
}

/// The message and the remedy of a Pod that would have one view too many.
fn too_many(namespace: &str, problem: TooManyViews) -> (String, String) {
    let (many, raise) = match problem {
        TooManyViews::OfNamespace(bound) => (
            format!("the sidecars of namespace {namespace} have {bound} views already"),
            format!(", or raise --bound views={bound}"),
        ),
        TooManyViews::OfAll => (problem.to_string(), String::new()),
    };
    let message = format!(
        "are those of no other Pod as far as selectors name them, and {many}: its proxy is \
         refused, and serves what it has"
    );
    let remedy =
        format!("let selectors name fewer labels in which Pods of a namespace differ{raise}");
    (message, remedy)
}

/// The message and the remedy of a Pod with more labels than a view has.
fn too_many_labels() -> (String, String) {
    let kilobytes = VIEW_LABEL_BYTES_MAX >> 10;
    let message = format!(
        "are more than {VIEW_LABELS_MAX}, or than {kilobytes} KiB, which is the most that a view \
         of sidecars has: its proxy is refused, and serves what it has"
    );
    let remedy = "give the Pod fewer or shorter labels, and annotations for what no selector \
                  looks at";
    (message, remedy.to_owned())
}

/// A time as people read it.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_base::clock;
    use myriad_translate::TooManyViews;

    use super::{Debt, NOTICES_MAX, NoView, Notices, STAYS_FOR};

    fn debt(namespace: &str) -> Debt {
        Debt {
            namespace: namespace.into(),
            cost: Duration::from_millis(3_100),
            wait: Duration::from_millis(12_400),
        }
    }

    #[test]
    fn a_namespace_that_waits_again_and_again_is_told_of_once() {
        let (mut notices, now) = (Notices::default(), clock::now());
        let object = ObjectKey::new(ObjectKind::Ingress, "a", "i");
        let told = notices.tell(&debt("a"), Some(object), now).added;
        let [finding] = &told[..] else {
            panic!("{told:?}");
        };
        let text = finding.to_string();
        let said = "Ingress a/i: changes of namespace a wait for 12 s: \
                    translating its objects took 3.1 s; ";
        assert!(text.contains(said), "{text}");
        let later = now + Duration::from_secs(15);
        assert!(notices.tell(&debt("a"), None, later).is_empty());
        let end = later + debt("a").wait + STAYS_FOR;
        let before = end - Duration::from_secs(1);
        assert!(notices.expire(before).is_empty());
        assert_eq!(notices.expire(end).removed, told);
        assert_eq!(notices.tell(&debt("a"), None, end).added.len(), 1);
    }

    #[test]
    fn pods_of_a_namespace_that_get_no_view_are_told_of_once_by_the_first() {
        let (mut notices, now) = (Notices::default(), clock::now());
        notices.tell(&debt("a"), None, now);
        let problem = NoView::Many(TooManyViews::OfNamespace(9));
        let told = notices.tell_refused("a/p", problem, now).added;
        let [finding] = &told[..] else {
            panic!("{told:?}");
        };
        let text = finding.to_string();
        for part in [
            "Pod a/p: metadata.labels: ",
            "have 9 views already",
            "views=9",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let later = now + STAYS_FOR / 2;
        assert!(notices.tell_refused("a/q", problem, later).is_empty());
        let removed = notices.expire(later + STAYS_FOR).removed;
        assert!(removed.iter().any(|it| it.message == finding.message));
        let problem = NoView::Many(TooManyViews::OfAll);
        let told = notices.tell_refused("a/q", problem, later + STAYS_FOR);
        assert_eq!(told.added.len(), 1);
        let told = notices.tell_refused("a/r", NoView::Labels, later + STAYS_FOR);
        assert!(told.added[0].to_string().contains("more than 256"));
    }

    #[test]
    fn of_very_many_some_are_told_of() {
        let (mut notices, now) = (Notices::default(), clock::now());
        let all = 0..2 * NOTICES_MAX;
        let told = all.map(|it| notices.tell(&debt(&it.to_string()), None, now).added.len());
        assert_eq!(told.sum::<usize>(), NOTICES_MAX);
    }
}
