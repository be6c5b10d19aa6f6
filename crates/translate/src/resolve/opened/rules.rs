//! The settings of DestinationRules for single ports, where they are many: every port of a Service
//! is an upstream, and each looks for its own.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use myriad_api::istio::DestinationRule;
use myriad_api::istio::destination_rule::TrafficPolicy;

use super::{LINEAR_MAX, Shelf};
use crate::engine::{Kept, Moment, Reader};

/// The places of the first setting for each port, in the list of a policy.
type PortPlaces = HashMap<u16, usize>;

/// The large policies that were opened in a batch.
#[derive(Default)]
struct OpenRules {
    /// By rule, and by the place of the subset where it is that of one: the place of the first
    /// setting for each port.
    places: Shelf<(Arc<str>, Option<usize>), Arc<PortPlaces>>,
}

impl Kept for OpenRules {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            *self = OpenRules::default();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// The place of a port among those that the policy of a rule sets something for, or that of its
    /// subset at a place. The caller noted that it reads the rule.
    pub fn port_place(
        &mut self,
        rule: &DestinationRule,
        subset: Option<usize>,
        port: u16,
    ) -> Option<usize> {
        let ports = &policy(rule, subset)?.port_level_settings;
        if ports.len() <= LINEAR_MAX {
            return ports.iter().position(|known| known.port.number == port);
        }
        let asked = (rule.meta.key.id().clone(), subset);
        let known = self.open::<OpenRules>();
        if let Some(known) = known.and_then(|open| open.places.get(&asked)) {
            return known.get(&port).copied();
        }
        let mut all: HashMap<u16, usize> = HashMap::new();
        for (at, known) in ports.iter().enumerate() {
            all.entry(known.port.number).or_insert(at);
        }
        let found = all.get(&port).copied();
        self.count_entries(ports.len());
        if let Some(open) = self.open_mut::<OpenRules>() {
            open.places.keep(asked, Arc::new(all), ports.len());
        }
        found
    }
}

fn policy(rule: &DestinationRule, subset: Option<usize>) -> Option<&TrafficPolicy> {
    match subset {
        Some(at) => rule.spec.subsets.get(at)?.traffic_policy.as_deref(),
        None => rule.spec.traffic_policy.as_deref(),
    }
}
