//! Policies that routes share.

use std::sync::Arc;

use myriad_model::{Change, Policy, Route, Sealed};

use crate::store::interner::Interner;

/// Counts who uses which policy.
pub fn count_policies(policies: &mut Interner<Arc<Policy>>, changes: &[Change]) {
    for change in changes {
        if let Some(policy) = policy_of(change.new.as_deref()) {
            policies.retain(policy);
        }
        if let Some(policy) = policy_of(change.old.as_deref()) {
            policies.release(policy);
        }
    }
}

fn policy_of(sealed: Option<&Sealed>) -> Option<&Arc<Policy>> {
    let route: &Route = sealed?.route()?;
    Some(&route.policy)
}
