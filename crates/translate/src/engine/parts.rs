//! Parts of routes that are alike, held once: an object repeats them on each of its hosts.

use std::sync::Arc;

use myriad_model::{
    Action, Change, Policy, Redirect, Resource, Route, Sealed, Value, WeightedUpstream,
};

use crate::store::interner::Interner;

/// The parts that routes share, and how many routes have which.
pub(super) struct Parts {
    policies: Interner<Arc<Policy>>,
    bodies: Interner<Arc<[u8]>>,
    redirects: Interner<Arc<Redirect>>,
    upstreams: Interner<Arc<[WeightedUpstream]>>,
}

impl Parts {
    /// An empty set of parts.
    pub(super) fn new() -> Self {
        Parts {
            policies: Interner::new(),
            bodies: Interner::new(),
            redirects: Interner::new(),
            upstreams: Interner::new(),
        }
    }

    /// How many different ones there are.
    pub(super) fn len(&self) -> usize {
        let actions = self.bodies.len() + self.redirects.len() + self.upstreams.len();
        self.policies.len() + actions
    }

    /// Lets the routes of a resource have the parts that others have, as far as they are equal.
    pub(super) fn share(&mut self, value: &mut Value) {
        let (policies, actions) = match value {
            Value::Route(route) => {
                let Route { policy, action, .. } = &mut **route;
                (std::slice::from_mut(policy), std::slice::from_mut(action))
            }
            Value::Routes(block) => block.parts_mut(),
            _ => return,
        };
        for policy in policies {
            *policy = self.policies.share(policy.clone());
        }
        for action in actions {
            self.share_action(action);
        }
    }

    fn share_action(&mut self, action: &mut Action) {
        match action {
            Action::Respond(fixed) => fixed.body = self.bodies.share(fixed.body.clone()),
            Action::Redirect(redirect) => *redirect = self.redirects.share(redirect.clone()),
            Action::Forward(upstreams) => {
                if are_long(upstreams) {
                    *upstreams = self.upstreams.share(upstreams.clone());
                }
            }
        }
    }

    /// Counts which routes came and went. A block has each of its parts once.
    pub(super) fn count(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(new) = &change.new {
                self.retain(new);
            }
            if let Some(old) = &change.old {
                self.release(old);
            }
        }
    }

    fn retain(&mut self, sealed: &Sealed) {
        let Some(Resource { value, .. }) = sealed.resource() else {
            return;
        };
        for policy in value.policies() {
            self.policies.retain(policy);
        }
        for action in value.actions() {
            match action {
                Action::Respond(fixed) => self.bodies.retain(&fixed.body),
                Action::Redirect(redirect) => self.redirects.retain(redirect),
                Action::Forward(upstreams) if are_long(upstreams) => {
                    self.upstreams.retain(upstreams);
                }
                Action::Forward(_) => {}
            }
        }
    }

    /// Counts a resource that went.
    pub(super) fn release(&mut self, sealed: &Sealed) {
        let Some(Resource { value, .. }) = sealed.resource() else {
            return;
        };
        for policy in value.policies() {
            self.policies.release(policy);
        }
        for action in value.actions() {
            match action {
                Action::Respond(fixed) => self.bodies.release(&fixed.body),
                Action::Redirect(redirect) => self.redirects.release(redirect),
                Action::Forward(upstreams) if are_long(upstreams) => {
                    self.upstreams.release(upstreams);
                }
                Action::Forward(_) => {}
            }
        }
    }

    /// Forgets what no route has any more. Called at the end of each batch.
    pub(super) fn settle(&mut self) {
        self.policies.settle();
        self.bodies.settle();
        self.redirects.settle();
        self.upstreams.settle();
    }
}

/// Whether upstreams take more than their names, which are few bytes and differ by host.
fn are_long(upstreams: &[WeightedUpstream]) -> bool {
    upstreams.iter().any(|share| share.headers.is_some())
}
