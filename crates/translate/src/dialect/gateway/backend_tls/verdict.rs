//! The worth of a policy, and what of it has an effect at the Services that it is for.

use std::sync::Arc;

use myriad_api::gateway::BackendTlsPolicy;
use myriad_api::gateway::status::ObjectCondition;
use myriad_api::{Finding, ObjectKey, Severity, finding};

use crate::dialect::gateway::certificate::{RefFault, RefFaultKind};
use crate::engine::Reader;
use crate::resolve::authorities;
use crate::resolve::backend_tls::{authority, server};
use crate::resolve::names::is_object_name;

/// The standing of a policy at a Service or a port of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetStanding {
    /// It is the one that holds there.
    Held,
    /// An older policy holds there, by its `namespace/name`.
    Lost(Arc<str>),
    /// There is no such Service, or it has no such port.
    Missing,
}

/// The worth of a policy, whoever leads to its Services.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Why nothing is sent to its Services.
    refused: Option<Refusal>,
    /// The authorities that cannot be used; none where nobody can tell which are named.
    faults: Option<Vec<RefFault>>,
    /// Whether it has settings that are not known.
    has_options: bool,
}

#[derive(Debug)]
struct Refusal {
    reason: &'static str,
    field: String,
    message: String,
}

impl TargetStanding {
    /// The problem of a target, as a sentence about it goes on, and the remedy.
    pub(super) fn problem(&self) -> Option<(String, &'static str)> {
        match self {
            TargetStanding::Held => None,
            TargetStanding::Lost(holder) => Some((
                format!("has the older policy {holder}, so this one has no effect there"),
                "remove one of them, or let them name other ports",
            )),
            TargetStanding::Missing => Some((
                "is not there, or has no port of this name".to_owned(),
                "create the Service, or name a port that it has",
            )),
        }
    }
}

impl Verdict {
    /// The verdict on a policy.
    pub(super) fn of(reader: &mut Reader<'_>, policy: &BackendTlsPolicy) -> Self {
        let namespace = policy.meta.key.namespace();
        let has_options = !policy.spec.options.is_empty();
        let written = match &policy.spec.validation {
            Ok(written) => written,
            Err(problem) => {
                return Verdict {
                    refused: Some(Refusal {
                        reason: "Invalid",
                        field: problem.field.to_string(),
                        message: problem.message.to_string(),
                    }),
                    faults: None,
                    has_options,
                };
            }
        };
        let references = &written.ca_certificate_refs;
        let mut faults = Vec::new();
        for (at, reference) in references.iter().enumerate() {
            let (word, name) = (&reference.kind, &reference.name);
            let (kind, message) = match authority(namespace, reference) {
                None if !is_object_name(name) => {
                    let message = "has a name that no object can have";
                    (RefFaultKind::Name, Some(message))
                }
                None => (RefFaultKind::Kind, Some("is no ConfigMap or Secret")),
                Some(trust) => {
                    let fault = authorities::fault(reader, &trust);
                    (RefFaultKind::Unusable, fault)
                }
            };
            faults.extend(message.map(|message| RefFault {
                at,
                kind,
                message: format!("{word} {name} {message}"),
            }));
        }
        let has_none = !references.is_empty() && faults.len() == references.len();
        let refused = match server(written) {
            Err(problem) => Some(Refusal {
                reason: "Invalid",
                field: format!("spec.validation.{}", problem.field),
                message: problem.message,
            }),
            Ok(_) => has_none.then(|| Refusal {
                reason: "NoValidCACertificate",
                field: "spec.validation.caCertificateRefs".to_owned(),
                message: "name no authority that can be used".to_owned(),
            }),
        };
        Verdict {
            refused,
            faults: Some(faults),
            has_options,
        }
    }

    /// The findings about the policy, but for those about its Services.
    pub(super) fn findings(&self, key: &ObjectKey) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(refusal) = &self.refused {
            findings.push(Finding::new(
                Severity::Error,
                key,
                refusal.field.as_str(),
                format!("{}, so nothing is sent to its Services", refusal.message),
                "mend it; the conditions of the policy's status say the same",
            ));
        }
        for fault in self.faults.iter().flatten() {
            findings.push(Finding::new(
                Severity::Error,
                key,
                format!("spec.validation.caCertificateRefs[{}]", fault.at),
                fault.message.as_str(),
                "name a ConfigMap of the namespace whose ca.crt holds certificates in PEM",
            ));
        }
        if self.has_options {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                "spec.options",
                "are none that are known, so they have no effect",
                "remove them",
            ));
        }
        findings
    }

    /// The conditions at a Gateway that leads to some of its Services.
    pub(super) fn conditions<'a>(
        &self,
        standings: impl Iterator<Item = &'a TargetStanding>,
    ) -> Vec<ObjectCondition> {
        let mut conditions = vec![self.accepted(standings)];
        let kind = ObjectCondition::RESOLVED_REFS;
        if let Some(faults) = &self.faults {
            conditions.push(match faults.first() {
                None => ObjectCondition::holds(kind, "ResolvedRefs"),
                Some(fault) => {
                    let reason = match fault.kind {
                        RefFaultKind::Kind => "InvalidKind",
                        RefFaultKind::NotPermitted
                        | RefFaultKind::Name
                        | RefFaultKind::Unusable => "InvalidCACertificateRef",
                    };
                    let message = format!("caCertificateRefs[{}]: {}", fault.at, fault.message);
                    ObjectCondition::fails(kind, reason, finding::cut(message))
                }
            });
        }
        conditions
    }

    fn accepted<'a>(&self, standings: impl Iterator<Item = &'a TargetStanding>) -> ObjectCondition {
        let kind = ObjectCondition::ACCEPTED;
        if let Some(refusal) = &self.refused {
            let message = format!("{} {}", refusal.field, refusal.message);
            return ObjectCondition::fails(kind, refusal.reason, finding::cut(message));
        }
        let (mut is_held, mut lost, mut is_missing) = (false, None, false);
        for standing in standings {
            match standing {
                TargetStanding::Held => is_held = true,
                TargetStanding::Lost(holder) => lost = lost.or(Some(holder)),
                TargetStanding::Missing => is_missing = true,
            }
        }
        let about = match lost {
            Some(holder) => format!("the older policy {holder} is for the same"),
            None if is_missing => "there is no such Service, or no such port".to_owned(),
            None => String::new(),
        };
        match (is_held, lost) {
            (true, _) => ObjectCondition {
                message: match about.is_empty() {
                    true => Box::default(),
                    false => format!("not of all of its targets: {about}").into(),
                },
                ..ObjectCondition::holds(kind, "Accepted")
            },
            (false, Some(_)) => ObjectCondition::fails(kind, "Conflicted", about),
            (false, None) => ObjectCondition::fails(kind, "TargetNotFound", about),
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::status::ObjectCondition;
    use myriad_api::{ObjectKey, ObjectKind};

    use super::{Refusal, TargetStanding, Verdict};
    use crate::dialect::gateway::certificate::{RefFault, RefFaultKind};

    fn good() -> Verdict {
        Verdict {
            refused: None,
            faults: Some(Vec::new()),
            has_options: false,
        }
    }

    fn fault(at: usize, kind: RefFaultKind) -> RefFault {
        let message = format!("ConfigMap {at} is not there");
        RefFault { at, kind, message }
    }

    fn lost() -> TargetStanding {
        TargetStanding::Lost("shop/first".into())
    }

    /// The reasons of the conditions, and whether they hold.
    fn reasons(verdict: &Verdict, standings: &[TargetStanding]) -> Vec<(&'static str, bool)> {
        let conditions = verdict.conditions(standings.iter());
        let conditions = conditions.iter().map(|it| (it.reason, it.is_true()));
        conditions.collect()
    }

    fn accepted(standings: &[TargetStanding]) -> ObjectCondition {
        good().accepted(standings.iter())
    }

    #[test]
    fn a_policy_is_accepted_where_it_holds_at_any_of_its_targets() {
        let (held, missing) = (TargetStanding::Held, TargetStanding::Missing);
        let alone = accepted(std::slice::from_ref(&held));
        assert_eq!((alone.reason, &*alone.message), ("Accepted", ""));
        let mixed = accepted(&[lost(), held, missing.clone()]);
        assert!(mixed.is_true() && mixed.message.contains("shop/first"));
        let (both, none) = (accepted(&[missing.clone(), lost()]), accepted(&[missing]));
        assert_eq!((both.reason, both.is_true()), ("Conflicted", false));
        assert_eq!((none.reason, none.is_true()), ("TargetNotFound", false));
    }

    #[test]
    fn an_authority_that_cannot_be_used_is_told_by_its_kind() {
        let held = [TargetStanding::Held];
        let accepted = ("Accepted", true);
        assert_eq!(reasons(&good(), &held), [accepted, ("ResolvedRefs", true)]);
        for (kind, reason) in [
            (RefFaultKind::Kind, "InvalidKind"),
            (RefFaultKind::Unusable, "InvalidCACertificateRef"),
            (RefFaultKind::Name, "InvalidCACertificateRef"),
        ] {
            let verdict = Verdict {
                faults: Some(vec![fault(1, kind), fault(2, RefFaultKind::Kind)]),
                ..good()
            };
            assert_eq!(reasons(&verdict, &held), [accepted, (reason, false)]);
            let key = ObjectKey::new(ObjectKind::BackendTlsPolicy, "shop", "web");
            let fields = verdict.findings(&key).into_iter().map(|it| it.field);
            let fields: Vec<String> = fields.collect();
            let field = "spec.validation.caCertificateRefs";
            assert_eq!(fields, [format!("{field}[1]"), format!("{field}[2]")]);
        }
    }

    #[test]
    fn a_policy_that_cannot_be_honoured_is_refused_whoever_is_older() {
        let refused = Verdict {
            refused: Some(Refusal {
                reason: "Invalid",
                field: "spec.validation".to_owned(),
                message: "it is missing".to_owned(),
            }),
            faults: None,
            has_options: true,
        };
        assert_eq!(reasons(&refused, &[lost()]), [("Invalid", false)]);
        let key = ObjectKey::new(ObjectKind::BackendTlsPolicy, "shop", "web");
        let findings = refused.findings(&key);
        let fields: Vec<&str> = findings.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["spec.validation", "spec.options"]);
        assert!(
            findings[0]
                .message
                .ends_with("so nothing is sent to its Services")
        );
    }
}
