//! Findings of a watch: objects that cannot be read, and trouble with the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::finding::cut;
use myriad_api::{Finding, ObjectKey, ObjectKind, Report, Severity};
use myriad_base::hold::Loss;

use super::{Failure, Scope};

/// The most objects that are named; one more finding sums up the rest.
const FINDINGS_MAX: usize = 100;

/// A single failure is no news: servers are restarted, connections end.
const LOST_BEFORE_FINDING: u32 = 3;

/// The findings of one watch.
pub(super) struct Findings {
    subject: Arc<str>,
    objects: BTreeMap<Arc<str>, Finding>,
    /// Objects beyond [`FINDINGS_MAX`] that were seen to be broken since the last list.
    more: usize,
    unnamed: Option<Finding>,
    trouble: Option<Finding>,
    held: Option<Finding>,
    lost: u32,
    is_changed: bool,
}

impl Findings {
    /// An empty list of findings.
    pub(super) fn new(scope: &Scope) -> Self {
        let kind = scope.kind.as_str();
        let mut subject = format!("kubernetes/{kind}");
        for part in [&scope.namespace, &scope.name].into_iter().flatten() {
            subject.push('/');
            subject.push_str(part);
        }
        Findings {
            subject: subject.into(),
            objects: BTreeMap::new(),
            more: 0,
            unnamed: None,
            trouble: None,
            held: None,
            lost: 0,
            is_changed: false,
        }
    }

    /// The object cannot be decoded.
    pub(super) fn set(&mut self, kind: ObjectKind, id: &Arc<str>, problem: String) {
        self.is_changed = true;
        if self.objects.len() >= FINDINGS_MAX && !self.objects.contains_key(id) {
            self.more += 1;
            return;
        }
        let finding = Finding::new(
            Severity::Error,
            &ObjectKey::from_id(kind, id.clone()),
            "",
            format!("it cannot be read: {problem}"),
            "correct the field; until then its last readable content stays in effect",
        );
        self.objects.insert(id.clone(), finding);
    }

    /// An object without a readable name cannot be read.
    pub(super) fn set_unnamed(&mut self, problem: String) {
        self.is_changed = true;
        self.unnamed = Some(general(
            Severity::Error,
            format!("the server sent an object that cannot be read: {problem}"),
            "compare the version of the API server with those that are supported",
        ));
    }

    /// A list begins and will show again what is wrong without a name.
    pub(super) fn forget_unnamed(&mut self) {
        self.is_changed |= self.unnamed.take().is_some() || self.more > 0;
        self.more = 0;
    }

    /// The object is gone or readable.
    pub(super) fn forget(&mut self, id: &Arc<str>) {
        self.is_changed |= self.objects.remove(id).is_some();
    }

    /// A request failed.
    pub(super) fn set_trouble(&mut self, failure: &Failure, is_listed: bool) {
        let text = match failure {
            Failure::Gone | Failure::Idle | Failure::TooLarge => return,
            Failure::Unsupported(_) if self.lost == 0 => {
                self.lost = 1;
                return;
            }
            Failure::Lost(_) | Failure::Busy { .. } | Failure::Missing(_)
                if self.lost < LOST_BEFORE_FINDING =>
            {
                self.lost += 1;
                return;
            }
            Failure::Unsupported(text)
            | Failure::Unauthorized(text)
            | Failure::Refused(text)
            | Failure::Missing(text)
            | Failure::Lost(text)
            | Failure::Busy { text, .. } => text,
        };
        let effect = if is_listed {
            "what is known stays in effect"
        } else {
            "nothing is served before it can be"
        };
        let finding = general(
            Severity::Error,
            format!("{} cannot be watched: {text}", self.subject),
            format!("give the right to get, list and watch, and reach the API server; {effect}"),
        );
        self.is_changed |= self.trouble.as_ref() != Some(&finding);
        self.trouble = Some(finding);
    }

    /// The server answers again.
    pub(super) fn clear_trouble(&mut self) {
        self.lost = 0;
        self.is_changed |= self.trouble.take().is_some();
    }

    /// Removals that are held back, and for how long where that is known, or none.
    pub(super) fn set_held(&mut self, held: Option<(Loss, Option<Duration>)>) {
        let finding = held.map(|(loss, time)| {
            let kind = &self.subject;
            let message = match loss.lost == loss.of {
                true => format!(
                    "{kind} is suddenly empty; {} objects stay in effect",
                    loss.lost
                ),
                false => format!("{kind} is without {loss}, which stay in effect"),
            };
            let confirm = "run `myriad confirm` against every controller";
            let remedy = match time.map(|time| time.as_secs()) {
                Some(seconds) => format!(
                    "if this is meant, wait: they go {seconds} s after the list; or {confirm}"
                ),
                None => format!("if this is meant, {confirm}"),
            };
            general(Severity::Error, message, remedy)
        });
        self.is_changed |= self.held != finding;
        self.held = finding;
    }

    /// All findings, if they changed since the last call.
    pub(super) fn take(&mut self) -> Option<Report> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let more = (self.more > 0).then(|| {
            general(
                Severity::Error,
                format!("{} more objects cannot be read", self.more),
                "correct the ones that are named first",
            )
        });
        let general = [&self.trouble, &self.held, &self.unnamed]
            .into_iter()
            .flatten();
        let findings = general.chain(self.objects.values()).cloned().chain(more);
        Some(Report {
            subject: self.subject.clone(),
            findings: findings.collect(),
        })
    }
}

fn general(severity: Severity, message: String, remedy: impl Into<String>) -> Finding {
    Finding {
        severity,
        object: None,
        field: String::new(),
        message: cut(message),
        remedy: cut(remedy),
        place: None,
    }
}
