//! The places of routes: hosts at listeners, each counted with the wildcards above it there.
//!
//! At each place a route claims seats, by which it meets routes of another kind. How many listeners
//! its parents have is not written in the route, so it counts for some, and has no more places than
//! it counts for where the memory of its namespace is bounded.

use myriad_api::ObjectKey;
use myriad_api::gateway::http_route::PARENTS_MAX;
use myriad_api::gateway::listener::LISTENERS_MAX;

use super::route::{RouteObject, entity_of};
use crate::settings::{Holding, Settings};

/// The most default Gateways that a route has, the oldest of them.
pub(super) const DEFAULT_GATEWAYS_MAX: usize = 4;

/// The most places of a route. Parents beyond do not take it.
const PLACES_MAX: usize = 4_096;

/// The listeners of a parent that a route counts for with each of its hosts. Most Gateways have two
/// for a host, of plain text and of TLS. One that is named by `sectionName` is one.
const LISTENERS_COUNTED: usize = 8;

/// The bytes that a place counts for: about what its claims to seats take, and what is read there.
const PLACE_BYTES: u64 = 160;

/// The bytes that the places of a route count for.
pub(super) fn bytes(route: &RouteObject) -> u64 {
    counted(route) as u64 * PLACE_BYTES
}

/// The most places that a route may have.
pub(super) fn most(settings: &Settings, route: &RouteObject) -> usize {
    let bounds = settings.bounds_of(route.key().namespace());
    match bounds.get(Holding::ObjectBytes) {
        Some(_) => counted(route),
        None => PLACES_MAX,
    }
}

/// The message of a parent with which a route has more places than it may.
pub(super) fn refusal(key: &ObjectKey, most: usize) -> String {
    let why = match most < PLACES_MAX {
        true => format!(
            "; it counts for {LISTENERS_COUNTED} listeners of a parent, and for each whose \
             sectionName it gives"
        ),
        false => String::new(),
    };
    format!(
        "with {key} the route has more than {most} hosts at listeners, counted with the wildcards \
         above them there{why}"
    )
}

/// The places that a route counts for.
fn counted(route: &RouteObject) -> usize {
    let own = route.key().namespace();
    let parents = route.parents().iter();
    let parents = parents.filter(|parent| entity_of(parent, own).is_some());
    let (parts, wholes): (Vec<_>, Vec<_>) = parents.partition(|it| it.section_name.is_some());
    let defaults = match route.uses_defaults() {
        true => DEFAULT_GATEWAYS_MAX.min(PARENTS_MAX.saturating_sub(route.parents().len())),
        false => 0,
    };
    let wholes = wholes.len() + defaults;
    let hosts = route.hostnames().iter();
    // Behind its labels a wildcard is above it for each of them, the last of which is for all.
    let places = hosts.map(|host| match route.rival() {
        Some(_) => 1 + host.split('.').count(),
        None => 1,
    });
    let places: usize = places.sum();
    let counted = match places {
        // It has the host of each listener.
        0 => parts.len() + wholes * LISTENERS_MAX,
        _ => (parts.len() + wholes * LISTENERS_COUNTED).saturating_mul(places),
    };
    counted.min(PLACES_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::de::DeserializeOwned;

    use super::super::route::RouteObject;
    use super::{PLACES_MAX, counted};

    fn object<T: DeserializeOwned>(spec: &str) -> T {
        let text = format!("metadata: {{name: route, namespace: shop}}\nspec: {spec}\n");
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    }

    fn http(spec: &str) -> usize {
        counted(&RouteObject::Http(Arc::new(object(spec))))
    }

    #[test]
    fn a_route_counts_for_its_hosts_with_wildcards_at_some_listeners_of_each_parent() {
        let places = |parents: &str, hosts: &str| {
            http(&format!(
                "{{parentRefs: [{parents}], hostnames: [{hosts}]}}"
            ))
        };
        for (parents, listeners) in [
            ("", 0),
            ("{name: a}", 8),
            ("{name: a, port: 80}", 8),
            ("{name: a, sectionName: x}", 1),
            ("{name: a, sectionName: x}, {name: a, sectionName: y}", 2),
            ("{name: a}, {kind: ListenerSet, name: b, sectionName: x}", 9),
            // It has no listeners.
            ("{group: '', kind: Service, name: a}", 0),
        ] {
            assert_eq!(places(parents, "a.b.example"), 4 * listeners, "{parents}");
            let several = places(parents, "a.example, '*.b.example', c.d.e.example");
            assert_eq!(several, (3 + 4 + 5) * listeners, "{parents}");
        }
        assert_eq!(places("{name: a}, {name: b, sectionName: x}", ""), 64 + 1);
        let deep = ["a"; 120].join(".");
        assert_eq!(places("{name: a}", &deep), 8 * 121);
        let many: Vec<String> = (0..16).map(|at| format!("h{at}.{deep}")).collect();
        let many = many.join(", ");
        assert_eq!(places("{name: a}", &many), PLACES_MAX);
    }

    #[test]
    fn default_gateways_count_as_whole_ones() {
        let spec = "{useDefaultGateways: All, parentRefs: [{name: a, sectionName: x}], hostnames: \
                    [a.example]}";
        assert_eq!(http(spec), 3 * (1 + 4 * 8));
    }

    #[test]
    fn a_route_for_streams_meets_no_other_kind() {
        let rules = "rules: [{backendRefs: [{name: web, port: 80}]}]";
        let spec = format!(
            "{{parentRefs: [{{name: a, sectionName: x}}], hostnames: [a.b.c.example, d.example], \
             {rules}}}"
        );
        let route = RouteObject::Tls(Arc::new(object(&spec)));
        assert_eq!(counted(&route), 2);
        let spec = format!("{{parentRefs: [{{name: a}}], {rules}}}");
        let route = RouteObject::Tcp(Arc::new(object(&spec)));
        assert_eq!(counted(&route), 64);
    }
}
