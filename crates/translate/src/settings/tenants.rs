//! The namespaces of tenants: the hosts that each may claim, and what each may hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_model::{Host, host::Pattern};

use super::bounds::{Bounds, Holding};

/// The tenants of an installation. Copies share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenants(Arc<Listed>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    by_namespace: BTreeMap<Box<str>, Allotment>,
    unlisted: Unlisted,
    reserved: Reserved,
}

/// A namespace with hosts or bounds of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allotment {
    /// The hosts that it may claim; none where it has no list.
    pub hosts: Option<HostList>,
    /// The bounds of what it may hold that differ from those of all; zero is no bound.
    pub quota: BTreeMap<Holding, u64>,
}

/// The hosts that namespaces without a list may claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlisted {
    /// Hosts that no list has.
    #[default]
    Free,
    /// No host.
    Nothing,
}

/// A list of hosts and suffixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    exact: BTreeSet<Box<str>>,
    /// Suffixes that start with a dot.
    below: BTreeSet<Box<str>>,
    is_all: bool,
}

/// The hosts that are kept from namespaces without a list.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reserved {
    all: HostList,
    /// Suffixes above the listed names: a wildcard of any number of labels there covers some.
    around: BTreeSet<Box<str>>,
    /// Suffixes right above the names that are listed exactly: a wildcard of one label does.
    above: BTreeSet<Box<str>>,
}

/// Why a text is no entry of a list of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no host such as shop.example, no suffix such as *.team.example, and not *")]
pub struct BadEntry;

impl Tenants {
    /// The tenants among some namespaces.
    pub fn new(by_namespace: BTreeMap<Box<str>, Allotment>, unlisted: Unlisted) -> Self {
        let mut reserved = Reserved::default();
        for list in by_namespace.values().filter_map(|it| it.hosts.as_ref()) {
            reserved.add(list);
        }
        Tenants(Arc::new(Listed {
            by_namespace,
            unlisted,
            reserved,
        }))
    }

    /// Whether a namespace has a list of hosts.
    pub fn is_listed(&self, namespace: &str) -> bool {
        self.list_of(namespace).is_some()
    }

    /// Whether a namespace may claim a host.
    pub fn admits(&self, namespace: &str, host: &Host) -> bool {
        match (self.list_of(namespace), self.0.unlisted) {
            (Some(list), _) => list.covers(host),
            (None, Unlisted::Free) => !self.0.reserved.meets(host),
            (None, Unlisted::Nothing) => false,
        }
    }

    /// Whether a namespace may claim other hosts than by these tenants, or whether it cannot be
    /// told without asking for each.
    pub(crate) fn lists_differ(&self, other: &Tenants, namespace: &str) -> bool {
        let (own, others) = (self.list_of(namespace), other.list_of(namespace));
        match (own, others) {
            (None, None) => {
                self.0.unlisted != other.0.unlisted || self.0.reserved != other.0.reserved
            }
            (own, others) => own != others,
        }
    }

    /// Whether a namespace may hold other amounts than by these tenants.
    pub(crate) fn quotas_differ(&self, other: &Tenants, namespace: &str) -> bool {
        let of = |tenants: &Tenants| {
            let tenant = tenants.0.by_namespace.get(namespace);
            tenant
                .map(|tenant| tenant.quota.clone())
                .unwrap_or_default()
        };
        of(self) != of(other)
    }

    /// Whether a namespace has a bound of its own for a holding.
    pub(crate) fn has_quota(&self, namespace: &str, holding: Holding) -> bool {
        let tenant = self.0.by_namespace.get(namespace);
        tenant.is_some_and(|tenant| tenant.quota.contains_key(&holding))
    }

    /// The bounds of a namespace, where these are the bounds of all.
    pub(super) fn bounds_of(&self, namespace: &str, all: Bounds) -> Bounds {
        let tenant = self.0.by_namespace.get(namespace);
        let quota = tenant.into_iter().flat_map(|tenant| &tenant.quota);
        quota.fold(all, |bounds, (holding, bound)| {
            bounds.with(*holding, *bound)
        })
    }

    fn list_of(&self, namespace: &str) -> Option<&HostList> {
        self.0.by_namespace.get(namespace)?.hosts.as_ref()
    }
}

impl HostList {
    /// Adds an entry: a name, `*.` before a suffix for all names below it, or `*` for every host.
    ///
    /// # Errors
    /// It is none of these.
    pub fn add(&mut self, text: &str) -> Result<(), BadEntry> {
        let host = Host::of_name(&text.to_ascii_lowercase()).map_err(|_| BadEntry)?;
        match host.pattern() {
            Pattern::Any => self.is_all = true,
            Pattern::Exact(name) => drop(self.exact.insert(name.into())),
            Pattern::OneLabel(suffix) => drop(self.below.insert(suffix.into())),
            Pattern::AnyLabels(_) => return Err(BadEntry),
        }
        Ok(())
    }

    /// Whether all names of a host pattern are listed.
    fn covers(&self, host: &Host) -> bool {
        self.is_all || self.has(host)
    }

    /// The same by an entry that says more than every host.
    fn has(&self, host: &Host) -> bool {
        match host.pattern() {
            Pattern::Any => false,
            Pattern::Exact(name) => {
                self.exact.contains(name) || suffixes(name).any(|it| self.below.contains(it))
            }
            Pattern::OneLabel(suffix) | Pattern::AnyLabels(suffix) => {
                suffixes(suffix).any(|it| self.below.contains(it))
            }
        }
    }
}

impl Reserved {
    fn add(&mut self, list: &HostList) {
        for name in &list.exact {
            self.all.exact.insert(name.clone());
            self.around.extend(suffixes(name).map(Box::from));
            self.above.extend(suffixes(name).next().map(Box::from));
        }
        for suffix in &list.below {
            self.all.below.insert(suffix.clone());
            self.around.extend(suffixes(suffix).map(Box::from));
        }
    }

    /// Whether a list has some of the names of a host pattern. What is for every host takes no
    /// name from those who claim it.
    fn meets(&self, host: &Host) -> bool {
        let is_met = match host.pattern() {
            Pattern::Any | Pattern::Exact(_) => false,
            Pattern::OneLabel(suffix) => self.above.contains(suffix),
            Pattern::AnyLabels(suffix) => self.around.contains(suffix),
        };
        is_met || self.all.has(host)
    }
}

/// The suffixes of a name that start with a dot, the longest first.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let dots = name.match_indices('.');
    dots.filter_map(|(at, _)| name.get(at..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> HostList {
        let mut list = HostList::default();
        for entry in entries {
            list.add(entry).unwrap();
        }
        list
    }

    fn tenants(unlisted: Unlisted, listed: &[(&str, &[&str])]) -> Tenants {
        let by_namespace = listed.iter().map(|(namespace, entries)| {
            let tenant = Allotment {
                hosts: Some(list(entries)),
                ..Allotment::default()
            };
            (Box::from(*namespace), tenant)
        });
        Tenants::new(by_namespace.collect(), unlisted)
    }

    fn admits(tenants: &Tenants, namespace: &str, host: &str) -> bool {
        tenants.admits(namespace, &Host::of_name(host).unwrap())
    }

    #[test]
    fn a_list_admits_an_address_in_whatever_form_it_is_written() {
        let tenants = tenants(Unlisted::Free, &[("a", &["2001:DB8:0::7"])]);
        assert!(admits(&tenants, "a", "2001:db8::7"));
        assert!(!admits(&tenants, "a", "2001:db8::8"));
        assert!(HostList::default().add("fe80::1%eth0").is_err());
    }

    #[test]
    fn a_list_admits_names_and_wildcards_below_its_suffixes() {
        let tenants = tenants(
            Unlisted::Free,
            &[("a", &["*.A.example", "shop.example"]), ("none", &[])],
        );
        let within = [
            "x.a.example",
            "x.y.a.example",
            "*.a.example",
            "**.a.example",
            "*.x.a.example",
            "shop.example",
        ];
        for host in within {
            assert!(admits(&tenants, "a", host), "{host}");
            assert!(!admits(&tenants, "none", host), "{host}");
            assert!(!admits(&tenants, "other", host), "{host}");
        }
        let outside = [
            "a.example",
            "xa.example",
            "x.shop.example",
            "*.shop.example",
            "*.example",
            "*",
        ];
        for host in outside {
            assert!(!admits(&tenants, "a", host), "{host}");
        }
    }

    #[test]
    fn others_may_claim_what_meets_no_list() {
        let listed: &[(&str, &[&str])] = &[
            ("a", &["*.a.example"]),
            ("b", &["shop.b.test"]),
            ("operator", &["*"]),
        ];
        let free = tenants(Unlisted::Free, listed);
        for host in ["a.example", "*.example", "x.b.test", "**.c.test", "*"] {
            assert!(admits(&free, "other", host), "{host}");
        }
        let met = [
            "x.a.example",
            "**.x.a.example",
            "**.example",
            "*.b.test",
            "**.b.test",
            "**.test",
            "shop.b.test",
        ];
        for host in met {
            assert!(!admits(&free, "other", host), "{host}");
            assert!(admits(&free, "operator", host), "{host}");
        }
        let closed = tenants(Unlisted::Nothing, listed);
        assert!(!admits(&closed, "other", "x.c.test") && !admits(&closed, "other", "*"));
        assert!(admits(&closed, "operator", "*") && admits(&closed, "a", "x.a.example"));
        assert!(admits(&Tenants::default(), "other", "*"));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let mut list = HostList::default();
        for text in [
            "",
            "a b",
            "**.a.example",
            "a.*.example",
            ".a.example",
            "bücher.example",
        ] {
            assert_eq!(list.add(text), Err(BadEntry), "{text}");
        }
        assert_eq!(list, HostList::default());
    }

    #[test]
    fn a_quota_takes_the_place_of_the_bound_of_all() {
        let tenant = Allotment {
            hosts: None,
            quota: [(Holding::Routes, 3), (Holding::Hosts, 0)].into(),
        };
        let tenants = Tenants::new([("a".into(), tenant)].into(), Unlisted::Free);
        let all = Bounds {
            hosts: 5,
            ..Bounds::default()
        };
        let of = |namespace| {
            let bounds = tenants.bounds_of(namespace, all);
            (bounds.get(Holding::Routes), bounds.get(Holding::Hosts))
        };
        assert_eq!((of("a"), of("b")), ((Some(3), None), (None, Some(5))));
        assert!(!tenants.is_listed("a"));
    }
}
