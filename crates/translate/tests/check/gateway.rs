//! Gateway API: its objects in the small universe, properties of many views of them, what one
//! change costs, and what the faults of one tenant are to others.

use myriad_api::gateway::status::{ObjectCondition, State, Status};
use myriad_api::{Object, ObjectKey, ObjectKind};
use myriad_translate::Engine;
use proptest::prelude::*;
use proptest::sample::select;

use crate::world;

mod bounds;
mod entities;
mod faults;
mod guests;
mod histories;
mod owners;
mod places;
mod references;
mod routes;
mod rows;
mod scale;
mod waiting;
mod woken;
mod work;

/// A class, a Gateway, a ListenerSet, a route of any kind, or what these name.
pub(crate) fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        1 => entities::class(),
        4 => entities::gateway(),
        3 => entities::listener_set(),
        5 => routes::http(),
        2 => routes::grpc(),
        3 => routes::stream(),
        1 => entities::policy(),
        2 => entities::grant(),
        1 => entities::namespace_labels(),
        1 => entities::config_map(),
    ]
    .prop_map(|text| world::object(&text))
}

fn namespace() -> impl Strategy<Value = &'static str> {
    select(&["one", "one", "two"][..])
}

/// Few years, so that ages are often equal.
fn year() -> impl Strategy<Value = u32> {
    select(&[2020, 2021][..])
}

fn head(kind: &str, namespace: &str, name: &str, year: u32) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{namespace: \
         {namespace}, name: {name}, creationTimestamp: {year}-01-01T00:00:00Z, generation: 1}}\n\
         spec:\n"
    )
}

/// An object of a year in full.
fn object_of(kind: &str, (namespace, name): (&str, &str), year: u32, spec: &str) -> String {
    format!("{}{spec}", head(kind, namespace, name, year))
}

/// A listener of HTTP at port 80 in a list.
fn plain(name: &str, host: &str) -> String {
    format!(
        "  - {{name: {name}, port: 80, protocol: HTTP, hostname: {host}, allowedRoutes: \
         {{namespaces: {{from: All}}}}}}\n"
    )
}

fn apply(engine: &mut Engine, text: &str) {
    engine.apply(world::changes(text), world::NOW);
    // Units of other namespaces may run later where there are many.
    while engine.has_postponed() {
        engine.apply(Vec::new(), world::NOW);
    }
}

/// The status of an object.
fn status(engine: &Engine, kind: ObjectKind, namespace: &str, name: &str) -> Status {
    let key = ObjectKey::new(kind, namespace, name);
    let mut statuses = engine.statuses();
    let status = statuses.find(|it| it.object == key).cloned();
    status.unwrap_or_else(|| panic!("{key} has no status"))
}

/// A condition that holds wherever it stands.
const HOLDS: [(String, &str); 0] = [];

/// The reasons of a condition that does not hold, of listeners by name or of parents by number.
fn refusals(status: &Status, kind: &str) -> Vec<(String, &'static str)> {
    let named: Vec<(String, &[ObjectCondition])> = match &status.state {
        State::Gateway(gateway) => {
            let listeners = gateway.listeners.iter();
            listeners
                .map(|it| (it.name.to_string(), &*it.conditions))
                .collect()
        }
        State::ListenerSet(set) => {
            let listeners = set.listeners.iter();
            listeners
                .map(|it| (it.name.to_string(), &*it.conditions))
                .collect()
        }
        State::Route(route) => {
            let parents = route.parents.iter().enumerate();
            parents
                .map(|(at, it)| (at.to_string(), &*it.conditions))
                .collect()
        }
        State::Class(_) | State::Policy(_) => Vec::new(),
    };
    let refused = named.into_iter().filter_map(|(name, conditions)| {
        let mut conditions = conditions.iter();
        let refused = conditions.find(|it| it.kind == kind && !it.is_true())?;
        Some((name, refused.reason))
    });
    refused.collect()
}

/// How many findings say something.
fn told(engine: &Engine, text: &str) -> usize {
    let findings = engine.findings().map(ToString::to_string);
    findings.filter(|it| it.contains(text)).count()
}
