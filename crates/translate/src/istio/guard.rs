//! Policies that restrict access: until they are enforced, what they guard stays closed.

use std::sync::Arc;

use myriad_api::Object;
use myriad_api::istio::authorization_policy::Action as PolicyAction;
use myriad_model::{Action, Policy, Respond};

use crate::Settings;

/// What is answered where a policy guards the gateway.
const CLOSED_STATUS: u16 = 403;

/// Whether an object is a policy that restricts who reaches the gateway's workload. One that
/// cannot be read restricts too, and one that only reports does not.
pub fn is_guard(object: Option<&Object>, settings: &Settings) -> bool {
    let Some(Object::AuthorizationPolicy(policy)) = object else {
        return false;
    };
    if policy.meta.key.namespace() != &*settings.gateway_namespace
        || policy.meta.annotation("istio.io/dry-run") == Some("true")
    {
        return false;
    }
    let Ok(spec) = &policy.spec else {
        return true;
    };
    // A target is a Gateway or Service of another API.
    let has_target = spec.target_ref.is_some() || !spec.target_refs.is_empty();
    let is_selected = spec.selector.as_ref().is_none_or(|selector| {
        let mut labels = selector.match_labels.iter();
        labels.all(|(key, value)| {
            let known = settings.gateway_labels.get(&**key);
            known.is_some_and(|known| **known == **value)
        })
    });
    spec.action != PolicyAction::Audit && !has_target && is_selected
}

/// What is done with requests that nobody may decide about.
pub fn closed() -> (Action, Arc<Policy>) {
    let respond = Respond {
        status: CLOSED_STATUS,
        body: Box::default(),
    };
    (Action::Respond(Box::new(respond)), Arc::default())
}
