//! The DestinationRules that hold for a host, and their settings for single ports where these are
//! many: every port of a Service is an upstream, and so is every subset of it, and each looks for
//! its own.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use myriad_api::istio::DestinationRule;
use myriad_api::istio::destination_rule::TrafficPolicy;

use super::{LINEAR_MAX, Shelf};
use crate::engine::{Kept, Moment, Noted, Reader, Slot};
use crate::resolve::destination_rule::HostRules;

/// The places of the first setting for each port, in the list of a policy.
type PortPlaces = HashMap<u16, usize>;

/// A view, whether what it is asked is noted, and a host of a namespace.
type Asked = (Slot, bool, Box<str>, Box<str>);

/// The rules that hold for a host, and the questions to the view by which they were found.
type Held = Arc<(Arc<HostRules>, Noted)>;

/// The rules that were found in a batch, and the large policies that were opened.
#[derive(Default)]
struct OpenRules {
    hosts: Shelf<Asked, Held>,
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
    /// The rules that hold for a host of a namespace, which are found once in a batch for all who
    /// ask. The caller noted the host.
    pub(crate) fn host_rules(
        &mut self,
        (host, namespace): (&str, &str),
        find: impl FnOnce(&mut Self) -> HostRules,
    ) -> Arc<HostRules> {
        let view = self.view();
        let asked = (view.slot(), view.is_alone(), host.into(), namespace.into());
        let known = self.open::<OpenRules>();
        let known = known.and_then(|open| open.hosts.get(&asked));
        let held = known.unwrap_or_else(|| {
            let (rules, noted) = self.apart(find);
            let entries = rules.len() + noted.count();
            let held = Arc::new((Arc::new(rules), noted));
            if let Some(open) = self.open_mut::<OpenRules>() {
                open.hosts.keep(asked, held.clone(), entries);
            }
            held
        });
        self.note_all(&held.1);
        held.0.clone()
    }

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
