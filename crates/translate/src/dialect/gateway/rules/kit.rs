//! The surroundings that rules are read in.

use myriad_api::gateway::BackendRef;
use myriad_model::{Name, Underscores};

use super::fault::{Gravity, RuleFault, RuleFaults};
use crate::dialect::gateway::backend::Backend;
use crate::dialect::gateway::backend_problem::{BackendProblem, BackendUse};
use crate::engine::Unit;
use crate::regex::Regexes;

/// Finds the backend that a reference names.
pub(super) type FindBackend<'a> =
    &'a mut dyn FnMut(&BackendRef, BackendUse) -> Result<Backend, BackendProblem>;

/// The surroundings that the rules of an object are read in.
pub(super) struct RuleKit<'a> {
    /// Finds backends.
    pub find: FindBackend<'a>,
    /// The namespace of the object.
    pub namespace: &'a str,
    /// The domain of the cluster, by which Services are called.
    pub cluster_domain: &'a str,
    /// The treatment of header fields with underscores in their names.
    pub underscores: Underscores,
    /// The regexes of the rules so far.
    pub regexes: Regexes,
}

impl RuleKit<'_> {
    /// The backend of a field, which is told where it is none; `effect` is what becomes of that.
    pub(super) fn find(
        &mut self,
        (field, reference): (&str, &BackendRef),
        used: BackendUse,
        effect: &str,
        faults: &mut RuleFaults,
    ) -> Option<Backend> {
        match (self.find)(reference, used) {
            Ok(backend) => Some(backend),
            Err(problem) => {
                let named = describe(reference, self.namespace);
                faults.push(RuleFault {
                    field: field.to_owned(),
                    message: format!("names {named}, which {}: {effect}", problem.message()),
                    remedy: problem.remedy(),
                    gravity: Gravity::Unresolved(problem),
                });
                None
            }
        }
    }
}

/// A backend as it is named in an object of a namespace.
fn describe(reference: &BackendRef, own: &str) -> String {
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let named = format!("{} {namespace}/{}", reference.kind(), reference.name);
    match reference.port {
        Some(port) => format!("port {port} of {named}"),
        None => named,
    }
}

/// The unit of an upstream, and its name.
pub(super) fn upstream_of(backend: &Backend) -> (Unit, Name) {
    let upstream = &backend.upstream;
    (
        Unit::upstream(upstream.clone()),
        Name::new(upstream.clone()),
    )
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::BackendRef;

    use super::describe;

    #[test]
    fn a_backend_is_named_in_full() {
        let reference = |namespace: Option<&str>, port: Option<u16>| BackendRef {
            namespace: namespace.map(Into::into),
            name: "web".into(),
            port,
            ..BackendRef::default()
        };
        let own = reference(None, Some(80));
        assert_eq!(describe(&own, "shop"), "port 80 of Service shop/web");
        let foreign = reference(Some("blog"), None);
        assert_eq!(describe(&foreign, "shop"), "Service blog/web");
        let other = BackendRef {
            kind: Some("Thing".into()),
            ..own
        };
        assert_eq!(describe(&other, "shop"), "port 80 of Thing shop/web");
    }
}
