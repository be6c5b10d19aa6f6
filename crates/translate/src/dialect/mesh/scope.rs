//! The scope of a sidecar: what it may reach, by the Sidecar for its workload, else that of its
//! namespace, else that of the root namespace. Without any it may reach all that is exported to it.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::Object;
use myriad_api::istio::Sidecar;
use myriad_api::istio::sidecar::{EgressListener, OutboundMode};

use super::facts::MeshFact;
use crate::engine::{Scope, Scoping};
use crate::settings::Settings;
use crate::store::Stored;
use crate::view::View;

/// The Sidecar that holds for a view.
pub(crate) struct SidecarScope(pub Arc<Sidecar>);

/// The scope of a view, by the Sidecars of its namespace and those of the root namespace. Of
/// several the oldest holds.
pub(crate) fn of(stored: Stored<'_>, settings: &Settings, view: &View) -> Scope {
    let mut own = sidecars(stored, &view.namespace);
    let mut root = sidecars(stored, settings.root_namespace());
    for list in [&mut own, &mut root] {
        list.sort_by_key(|it| (it.meta.created, it.meta.key.clone()));
    }
    let is_selected = |sidecar: &&Arc<Sidecar>| {
        let selector = sidecar.spec.workload_selector.as_ref();
        selector.is_some_and(|selector| view.has_labels(&selector.labels))
    };
    let is_for_all = |sidecar: &&Arc<Sidecar>| sidecar.spec.workload_selector.is_none();
    let found = own.iter().find(is_selected);
    let found = found.or_else(|| own.iter().find(is_for_all));
    let found = found.or_else(|| root.iter().find(is_for_all));
    Scope::new(found.map(|it| Box::new(SidecarScope(it.clone())) as Box<dyn Scoping>))
}

/// The Sidecars of a namespace.
fn sidecars(stored: Stored<'_>, namespace: &str) -> Vec<Arc<Sidecar>> {
    let fact = stored.hasher().fact(MeshFact::Sidecars(namespace));
    let found = stored.collection(fact).filter_map(|object| match object {
        Object::Sidecar(sidecar) => Some(sidecar),
        _ => None,
    });
    found
        .filter(|sidecar| sidecar.meta.key.namespace() == namespace)
        .collect()
}

impl Scoping for SidecarScope {
    fn imports(&self, own: &str, (namespace, host): (&str, &str), port: u16) -> bool {
        let egress = first_listeners(&self.0);
        if egress.is_empty() {
            return true;
        }
        // What is said of a port alone holds there in place of what is said of all.
        let is_said = egress.iter().any(|it| number(it) == Some(port));
        let of_port = egress.iter().filter(|it| match number(it) {
            Some(number) => number == port,
            None => !is_said,
        });
        let hosts = of_port.flat_map(|it| first_hosts(it).iter());
        hosts.take(HOSTS_MAX).any(|text| {
            let (of, pattern) = split(text);
            let is_of = match of {
                "*" => true,
                "." => namespace == own,
                "~" => false,
                only => namespace == only,
            };
            is_of && covers(pattern, host)
        })
    }

    fn namespaces<'a>(&'a self, own: &'a str) -> Option<BTreeSet<&'a str>> {
        let egress = first_listeners(&self.0);
        if egress.is_empty() {
            return None;
        }
        let mut namespaces = BTreeSet::new();
        for host in egress.iter().flat_map(|it| first_hosts(it).iter()) {
            match split(host).0 {
                "*" => return None,
                "." => drop(namespaces.insert(own)),
                "~" => {}
                only => drop(namespaces.insert(only)),
            }
        }
        Some(namespaces)
    }

    fn allows_any(&self) -> Option<bool> {
        let policy = self.0.spec.outbound_traffic_policy.as_ref()?;
        Some(policy.mode == OutboundMode::AllowAny)
    }

    fn is_like(&self, other: &dyn Scoping) -> bool {
        let other = other.as_any().downcast_ref::<SidecarScope>();
        other.is_some_and(|other| self.0.spec == other.0.spec)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The most entries of `egress` that have an effect.
pub(crate) const LISTENERS_MAX: usize = 64;

/// The most hosts that have an effect for a port: each port of each host asks for them.
pub(crate) const HOSTS_MAX: usize = 1_024;

fn first_listeners(sidecar: &Sidecar) -> &[EgressListener] {
    let egress = &sidecar.spec.egress;
    egress.get(..LISTENERS_MAX).unwrap_or(egress)
}

fn first_hosts(listener: &EgressListener) -> &[Box<str>] {
    let hosts = &listener.hosts;
    hosts.get(..HOSTS_MAX).unwrap_or(hosts)
}

fn number(listener: &EgressListener) -> Option<u16> {
    let port = listener.port.as_ref()?;
    Some(port.number).filter(|number| *number > 0)
}

/// The namespace and the pattern of an entry; one without namespace is of all.
fn split(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("*", text))
}

fn covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some("") => true,
        Some(suffix) => {
            let start = host.len().checked_sub(suffix.len());
            let end = start.and_then(|start| host.get(start..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_covers_what_lies_below_it() {
        assert!(covers("*", "a.b") && covers("*.b", "x.a.b") && covers("A.b", "a.b"));
        assert!(covers("*.b", "*.b") && covers("*.b", "*.a.b"));
        assert!(!covers("*.b", "b") && !covers("*.b", "ab") && !covers("a.b", "x.a.b"));
    }
}
