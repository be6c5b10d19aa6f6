//! Policies over the gateway as a whole: one access policy for each object, whatever the number of
//! hosts.
//!
//! A policy is for a gateway where it lies in the namespace of the gateway's workload or in the
//! root namespace, and its selector fits. What cannot be honoured closes: a
//! policy that cannot be read refuses every request, a test that cannot be made never admits and
//! always refuses, and keys that cannot be found verify no token.

mod rules;
mod tokens;

use std::fmt::Display;
use std::sync::Arc;

use myriad_api::istio::selector::{TargetRef, WorkloadSelector};
use myriad_api::istio::{Note, SpecProblem};
use myriad_api::{Finding, Object, ObjectKey, ObjectKind, Severity};
use myriad_model::{
    AccessAction, AccessCheck, AccessPolicy, AccessRule, Authorize, Name, Origin, OriginKind,
    Resource, Value,
};

use crate::engine::{Output, Reader};
use crate::resolve::notes;

/// The finding about a policy for other workloads.
const ELSEWHERE: &str = "selects other workloads, which are not served here";

/// The remedy.
const COMPARE: &str = "compare it with --gateway-labels if it is for the gateway";

/// The name of the access policy that an object makes.
pub(super) fn name(key: &ObjectKey) -> Name {
    let word = match key.kind {
        ObjectKind::RequestAuthentication => "authentication",
        _ => "authorization",
    };
    Name::new(format!("{word}/{}", key.id()))
}

/// Translates an AuthorizationPolicy or RequestAuthentication.
pub(super) fn translate(reader: &mut Reader<'_>, key: &ObjectKey) -> Output {
    let mut output = Output::default();
    let Some(object) = reader.itself(key) else {
        return output;
    };
    let scope = match &object {
        Object::AuthorizationPolicy(policy) => policy.spec.as_ref().ok().map(|spec| Scope {
            selector: spec.selector.as_ref(),
            has_target: has_target(spec.target_ref.as_deref(), &spec.target_refs),
        }),
        Object::RequestAuthentication(policy) => policy.spec.as_ref().ok().map(|spec| Scope {
            selector: spec.selector.as_ref(),
            has_target: has_target(spec.target_ref.as_deref(), &spec.target_refs),
        }),
        _ => return output,
    };
    if let Err(doubt) = judge_scope(reader, key, scope.as_ref()) {
        output.doubts.push(*doubt);
        return output;
    }
    output.is_concerned = true;
    let settings = reader.settings();
    let findings = &mut output.findings;
    let check = match &object {
        Object::AuthorizationPolicy(policy) => {
            let spec = readable(key, &policy.spec, &policy.notes, findings);
            spec.map(|spec| {
                let is_dry_run = policy.meta.annotation("istio.io/dry-run") == Some("true");
                let mut report = Report { key, findings };
                AccessCheck::Authorize(rules::authorize(spec, is_dry_run, settings, &mut report))
            })
        }
        Object::RequestAuthentication(policy) => {
            let spec = readable(key, &policy.spec, &policy.notes, findings);
            spec.map(|spec| {
                let mut report = Report { key, findings };
                AccessCheck::Authenticate(tokens::authenticate(spec, &mut report))
            })
        }
        _ => return output,
    };
    let access_policy = AccessPolicy {
        listeners: Arc::default(),
        check: check.unwrap_or_else(closed),
    };
    let kind = match key.kind {
        ObjectKind::RequestAuthentication => OriginKind::RequestAuthentication,
        _ => OriginKind::AuthorizationPolicy,
    };
    let resource = Resource {
        origin: Origin {
            kind,
            id: key.id().clone(),
        },
        value: Value::AccessPolicy(Box::new(access_policy)),
    };
    output.resources.push((name(key), resource));
    output
}

/// Which workloads a policy is for.
struct Scope<'a> {
    /// The selector; none for all of the namespace.
    selector: Option<&'a WorkloadSelector>,
    /// Whether it is for an object of another API instead.
    has_target: bool,
}

/// The findings about one object, and where they go.
struct Report<'a> {
    key: &'a ObjectKey,
    findings: &'a mut Vec<Finding>,
}

impl Report<'_> {
    fn error(&mut self, field: impl Into<String>, problem: impl Display, remedy: &str) {
        let message = problem.to_string();
        let finding = Finding::new(Severity::Error, self.key, field, message, remedy);
        self.findings.push(finding);
    }
}

/// The namespace that the documentation of Istio's Helm chart puts a gateway into.
const HELM_NAMESPACE: &str = "istio-ingress";

fn has_target(former: Option<&TargetRef>, targets: &[TargetRef]) -> bool {
    former.is_some() || !targets.is_empty()
}

/// Whether a policy is for the view, or why not. One whose scope cannot be read is. Policies of
/// the root namespace are for workloads of all namespaces.
fn judge_scope(
    reader: &Reader<'_>,
    key: &ObjectKey,
    scope: Option<&Scope<'_>>,
) -> Result<(), Box<Finding>> {
    let because = |severity, field: &str, message: &str, remedy| {
        let finding = Finding::new(severity, key, field, message, remedy);
        Err(Box::new(finding))
    };
    let (view, namespace) = (reader.view(), key.namespace());
    let is_root = namespace == reader.settings().root_namespace();
    if !is_root && !reader.is_served(namespace) {
        let selector = scope.and_then(|scope| scope.selector);
        let selects = selector.is_some_and(|selector| {
            !selector.match_labels.is_empty() && view.has_labels(&selector.match_labels)
        });
        if selects || namespace == HELM_NAMESPACE {
            let message = "looks meant for the gateway, but is of a namespace where no gateway is \
                           said to run, so it refuses nobody";
            let remedy = "name its namespace by --gateway-namespace if the gateway runs there, or \
                          write it in the namespace that --gateway-namespace names";
            return because(Severity::Warning, "", message, remedy);
        }
        let remedy = "write it in the namespace of --gateway-namespace if it is for the gateway";
        let message = "is for workloads of its own namespace, which are not served here";
        return because(Severity::Info, "", message, remedy);
    }
    let Some(scope) = scope else {
        return match is_root || view.is_of(namespace) {
            true => Ok(()),
            false => because(Severity::Info, "spec.selector", ELSEWHERE, COMPARE),
        };
    };
    if scope.has_target {
        let remedy = "name the gateway by spec.selector instead";
        let message = "is for an object of another API, so the policy has no effect here";
        return because(Severity::Error, "spec.targetRefs", message, remedy);
    }
    let is_selected = (is_root || view.is_of(namespace))
        && scope
            .selector
            .is_none_or(|selector| view.has_labels(&selector.match_labels));
    match is_selected {
        true => Ok(()),
        false => because(Severity::Info, "spec.selector", ELSEWHERE, COMPARE),
    }
}

/// The spec, where all of it is understood.
fn readable<'a, S>(
    key: &ObjectKey,
    spec: &'a Result<S, SpecProblem>,
    seen: &[Note],
    findings: &mut Vec<Finding>,
) -> Option<&'a S> {
    findings.extend(notes(key, seen));
    let (field, problem) = match spec {
        Err(problem) => (&*problem.field, &*problem.message),
        // A misspelt test is one that is not made.
        Ok(_) if seen.iter().any(|note| !note.field.starts_with("status")) => {
            ("spec", "has fields that are not understood")
        }
        Ok(spec) => return Some(spec),
    };
    let message = format!("{problem}, so every request is refused");
    let remedy = "mend it, or take it away to open the gateway";
    findings.push(Finding::new(Severity::Error, key, field, message, remedy));
    None
}

/// Refuses every request.
fn closed() -> AccessCheck {
    AccessCheck::Authorize(Authorize {
        action: AccessAction::Deny,
        is_dry_run: false,
        rules: [AccessRule::default()].into(),
    })
}
