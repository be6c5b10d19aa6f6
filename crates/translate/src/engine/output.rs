//! The output of one run of a unit.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use myriad_api::Finding;
use myriad_api::gateway::status::Status;
use myriad_model::{Draft, Host, Name, Origin, Resource, divide};

use super::issuing::StatedIssuer;
use super::ports::{PortClaim, PortKey};
use super::rival::Rival;
use super::stakes::Stake;
use super::unit::Unit;
use super::wish::Wish;

/// The result of one run of a unit.
#[derive(Debug, Default)]
pub struct Output {
    /// The resources, by name.
    pub resources: Vec<(Name, Resource)>,
    /// The routes of hosts, which become resources together.
    pub routes: Drafts,
    /// The units that these resources refer to; they exist as long as somebody needs them.
    pub needs: Vec<Unit>,
    /// The hosts among them that an object has by others than the operator, where claims are noted.
    pub let_in: Vec<Host>,
    /// Findings for people.
    pub findings: Vec<Finding>,
    /// Wishes for the process.
    pub wishes: Vec<Wish>,
    /// Issuers for the process.
    pub issuers: Vec<StatedIssuer>,
    /// The namespaces that claim the host, where several do.
    pub rivals: Vec<Rival>,
    /// Statuses of objects. They are the same in every view.
    pub statuses: Vec<Status>,
    /// Claims to seats, which are for all views: where they differ between those, all of them are
    /// made.
    pub stakes: Vec<Stake>,
    /// The Gateways of Gateway API with proxies of their own where it has an effect, by
    /// `namespace/name`. They are the same in every view.
    pub entered: BTreeSet<Arc<str>>,
    /// Claims to ports on the proxies of the view, of units that make some.
    pub ports: BTreeMap<PortKey, PortClaim>,
    /// Findings that hold unless it is otherwise in another view: told where all views have
    /// it that the object concerns, or all where it concerns none.
    pub doubts: Vec<Finding>,
    /// Whether the object concerns the view.
    pub is_concerned: bool,
    /// The meaning of the host to those below it; none where there are none.
    pub meaning: Option<Meaning>,
    /// Whether the object of the unit owns none of the hosts that it claims.
    pub owns_none: bool,
    /// When the unit has to run again though no object changed, in seconds since the epoch.
    pub deadline: Option<i64>,
}

/// The meaning of a host to those below it, who run again when it is another than before.
#[derive(Clone)]
pub struct Meaning {
    /// The hash of all that matters to them; zero for nothing.
    pub hash: u64,
    /// The value, for whoever knows its type. It stays until the unit runs again.
    pub value: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meaning").field("hash", &self.hash).finish()
    }
}

/// Routes by what begins their names: the claimant and the host.
#[derive(Debug, Default)]
pub struct Drafts {
    by_prefix: BTreeMap<String, (Origin, Vec<Draft>)>,
    count: usize,
}

impl Output {
    /// Makes resources of the routes, before all others: those of a claimant on a host lie in
    /// blocks.
    pub fn divide_routes(&mut self) {
        let routes = std::mem::take(&mut self.routes).by_prefix.into_iter();
        let mut resources: Vec<(Name, Resource)> = routes
            .flat_map(|(prefix, (claimant, drafts))| divide(&prefix, &claimant, drafts))
            .collect();
        resources.append(&mut self.resources);
        self.resources = resources;
    }
}

impl Drafts {
    /// Adds a route behind those of a claimant. `prefix` begins their names, on one host, and
    /// ends in a slash.
    pub fn add(&mut self, prefix: String, claimant: Origin, draft: Draft) {
        let known = self.by_prefix.entry(prefix);
        let (_, drafts) = known.or_insert_with(|| (claimant, Vec::new()));
        drafts.push(draft);
        self.count += 1;
    }

    /// The number of routes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All routes, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Draft> {
        self.by_prefix.values().flat_map(|(_, drafts)| drafts)
    }
}
