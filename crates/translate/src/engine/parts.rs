//! Parts of routes that are alike, held once: an object repeats them on each of its hosts.

use std::sync::Arc;

use myriad_model::{Action, Change, Policy, Redirect, Route, Sealed, WeightedUpstream};

use crate::store::interner::Interner;

/// The parts that routes share, and how many routes have which.
pub struct Parts {
    policies: Interner<Arc<Policy>>,
    bodies: Interner<Arc<[u8]>>,
    redirects: Interner<Arc<Redirect>>,
    upstreams: Interner<Arc<[WeightedUpstream]>>,
}

impl Parts {
    /// No parts yet.
    pub fn new() -> Self {
        Parts {
            policies: Interner::new(),
            bodies: Interner::new(),
            redirects: Interner::new(),
            upstreams: Interner::new(),
        }
    }

    /// How many different ones there are.
    pub fn len(&self) -> usize {
        let actions = self.bodies.len() + self.redirects.len() + self.upstreams.len();
        self.policies.len() + actions
    }

    /// Lets a route have the parts that others have, as far as they are equal.
    pub fn share(&mut self, route: &mut Route) {
        route.policy = self.policies.share(route.policy.clone());
        match &mut route.action {
            Action::Respond(fixed) => fixed.body = self.bodies.share(fixed.body.clone()),
            Action::Redirect(redirect) => *redirect = self.redirects.share(redirect.clone()),
            Action::Forward(upstreams) => {
                if are_long(upstreams) {
                    *upstreams = self.upstreams.share(upstreams.clone());
                }
            }
        }
    }

    /// Counts which routes came and went.
    pub fn count(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(route) = change.new.as_deref().and_then(Sealed::route) {
                self.retain(route);
            }
            if let Some(route) = change.old.as_deref().and_then(Sealed::route) {
                self.release(route);
            }
        }
    }

    fn retain(&mut self, route: &Route) {
        self.policies.retain(&route.policy);
        match &route.action {
            Action::Respond(fixed) => self.bodies.retain(&fixed.body),
            Action::Redirect(redirect) => self.redirects.retain(redirect),
            Action::Forward(upstreams) if are_long(upstreams) => self.upstreams.retain(upstreams),
            Action::Forward(_) => {}
        }
    }

    /// Counts a route that went.
    pub fn release(&mut self, route: &Route) {
        self.policies.release(&route.policy);
        match &route.action {
            Action::Respond(fixed) => self.bodies.release(&fixed.body),
            Action::Redirect(redirect) => self.redirects.release(redirect),
            Action::Forward(upstreams) if are_long(upstreams) => self.upstreams.release(upstreams),
            Action::Forward(_) => {}
        }
    }

    /// Forgets what no route has any more. Called at the end of each batch.
    pub fn settle(&mut self) {
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
