//! What a sidecar may reach: the Sidecar that is for its workload, else that of its namespace,
//! else that of the root namespace. Without any it may reach all that is exported to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::istio::Sidecar;
use myriad_api::istio::sidecar::{EgressListener, OutboundMode};

use crate::view::View;

/// The Sidecar that holds for a view.
#[derive(Default)]
pub struct Scope(Option<Arc<Sidecar>>);

impl Scope {
    /// That of a view, of the Sidecars of its namespace and those of the root namespace. Of
    /// several the oldest holds.
    pub fn of(view: &View, mut own: Vec<Arc<Sidecar>>, mut root: Vec<Arc<Sidecar>>) -> Scope {
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
        Scope(found.cloned())
    }

    /// Whether a port of a host of a namespace may be reached from the namespace `own`.
    pub fn imports(&self, own: &str, (namespace, host): (&str, &str), port: u16) -> bool {
        let Some(sidecar) = &self.0 else {
            return true;
        };
        let egress = &sidecar.spec.egress;
        if egress.is_empty() {
            return true;
        }
        // What is said of a port alone holds there in place of what is said of all.
        let is_said = egress.iter().any(|it| number(it) == Some(port));
        let of_port = egress.iter().filter(|it| match number(it) {
            Some(number) => number == port,
            None => !is_said,
        });
        let mut hosts = of_port.flat_map(|it| it.hosts.iter());
        hosts.any(|text| {
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

    /// The namespaces of which anything may be reached from the namespace `own`; none for all.
    pub fn namespaces<'a>(&'a self, own: &'a str) -> Option<BTreeSet<&'a str>> {
        let egress = &self.0.as_ref()?.spec.egress;
        if egress.is_empty() {
            return None;
        }
        let mut namespaces = BTreeSet::new();
        for host in egress.iter().flat_map(|it| it.hosts.iter()) {
            match split(host).0 {
                "*" => return None,
                "." => drop(namespaces.insert(own)),
                "~" => {}
                only => drop(namespaces.insert(only)),
            }
        }
        Some(namespaces)
    }

    /// Whether another one says the same.
    pub fn is_like(&self, other: &Scope) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => own.spec == other.spec,
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether connections to whom nobody names are let through; none where nothing is said.
    pub fn allows_any(&self) -> Option<bool> {
        let policy = self.0.as_ref()?.spec.outbound_traffic_policy.as_ref()?;
        Some(policy.mode == OutboundMode::AllowAny)
    }

    /// The object.
    pub fn sidecar(&self) -> Option<&Sidecar> {
        self.0.as_deref()
    }
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
