//! Findings of a watch: objects that cannot be read, and trouble with the server.
//!
//! Objects are named in turns of their namespaces: whoever has many keeps nobody else's from being
//! told.

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
    /// By namespace, none of which is empty, and by `namespace/name`.
    objects: BTreeMap<Box<str>, BTreeMap<Arc<str>, Finding>>,
    /// How many those are.
    count: usize,
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
        let kind = scope.kind.full_name();
        let mut subject = format!("kubernetes/{kind}");
        for part in [&scope.namespace, &scope.name].into_iter().flatten() {
            subject.push('/');
            subject.push_str(part);
        }
        Findings {
            subject: subject.into(),
            objects: BTreeMap::new(),
            count: 0,
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
        let key = ObjectKey::from_id(kind, id.clone());
        let namespace = key.namespace();
        let own = self.objects.get(namespace);
        let is_named = own.is_some_and(|own| own.contains_key(id));
        if self.count >= FINDINGS_MAX && !is_named {
            self.more += 1;
            let count = own.map_or(0, BTreeMap::len);
            if !self.make_room(count) {
                return;
            }
        }
        let finding = Finding::new(
            Severity::Error,
            &key,
            "",
            format!("it cannot be read: {problem}"),
            "correct the field; until then its last readable content stays in effect",
        );
        let own = self.objects.entry(namespace.into()).or_default();
        let is_new = own.insert(id.clone(), finding).is_none();
        self.count += usize::from(is_new);
    }

    /// Names one object less of the namespace that has most, if that is more than another would
    /// have with one of its own beside so many; returns whether it did.
    fn make_room(&mut self, count: usize) -> bool {
        let most = self.objects.iter_mut().max_by_key(|(_, own)| own.len());
        let Some((_, own)) = most.filter(|(_, own)| own.len() > count + 1) else {
            return false;
        };
        let is_gone = own.pop_last().is_some();
        self.count -= usize::from(is_gone);
        is_gone
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
        let namespace = id.split_once('/').map_or("", |(namespace, _)| namespace);
        let Some(own) = self.objects.get_mut(namespace) else {
            return;
        };
        let was_named = own.remove(id).is_some();
        if own.is_empty() {
            self.objects.remove(namespace);
        }
        self.count -= usize::from(was_named);
        self.is_changed |= was_named;
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
        let objects = self.objects.values().flat_map(BTreeMap::values);
        let findings = general.chain(objects).cloned().chain(more);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::ObjectKind;

    use super::{FINDINGS_MAX, Findings, Scope};

    fn findings() -> Findings {
        Findings::new(&Scope {
            kind: ObjectKind::Ingress,
            namespace: None,
            name: None,
            except: None,
            selector: "",
            is_optional: false,
            api_version: ObjectKind::Ingress.api_version(),
        })
    }

    fn break_all(findings: &mut Findings, namespace: &str, count: usize) {
        for number in 0..count {
            let id = Arc::from(format!("{namespace}/o{number:04}"));
            findings.set(ObjectKind::Ingress, &id, "no".to_owned());
        }
    }

    /// How many objects of a namespace are named, and what is said of the rest.
    fn told(findings: &mut Findings, namespace: &str) -> (usize, Option<String>) {
        let report = findings.take().expect("a report");
        let of = |it: &&myriad_api::Finding| {
            let object = it.object.as_ref();
            object.is_some_and(|object| object.namespace() == namespace)
        };
        let named = report.findings.iter().filter(of).count();
        let mut rest = report.findings.iter().filter(|it| it.object.is_none());
        (named, rest.next().map(|it| it.message.clone()))
    }

    #[test]
    fn whoever_breaks_many_objects_hides_nobody_elses() {
        let mut findings = findings();
        break_all(&mut findings, "many", 3 * FINDINGS_MAX);
        let (named, rest) = told(&mut findings, "many");
        assert_eq!(named, FINDINGS_MAX);
        assert!(rest.expect("the rest").starts_with("200 more objects"));
        break_all(&mut findings, "few", 3);
        assert_eq!(told(&mut findings, "few").0, 3);
        findings.is_changed = true;
        let (named, rest) = told(&mut findings, "many");
        assert_eq!(named, FINDINGS_MAX - 3);
        assert!(rest.expect("the rest").starts_with("203 more objects"));
        // Whoever comes with as many has half, and no more.
        break_all(&mut findings, "other", FINDINGS_MAX);
        assert_eq!(told(&mut findings, "few").0, 3);
        assert_eq!(findings.count, FINDINGS_MAX);
        let [one, other] = ["many", "other"].map(|namespace| findings.objects[namespace].len());
        assert!(one.abs_diff(other) <= 1, "{one} and {other}");
    }

    #[test]
    fn what_is_readable_again_leaves_nothing() {
        let mut findings = findings();
        break_all(&mut findings, "one", 2);
        break_all(&mut findings, "one", 2);
        assert_eq!(findings.count, 2);
        for number in 0..3 {
            findings.forget(&Arc::from(format!("one/o{number:04}")));
        }
        assert!(findings.objects.is_empty() && findings.count == 0);
        assert!(
            findings
                .take()
                .is_some_and(|report| report.findings.is_empty())
        );
    }
}
