//! The hosts of a VirtualService and the names of its rules for TLS, indexed.
//!
//! Each of its hosts asks for itself and for the patterns above it, so that one walk over all that
//! is written stands in for one of each host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_model::{Host, host::Pattern};

use super::binding;
use crate::resolve::names::{self, broader};
use crate::settings::first_names;

/// The names that a VirtualService has, and the Gateways that it has them for.
pub struct ServiceNames {
    /// The `namespace/name` of the Gateways that it is bound to, sorted.
    gateways: Vec<Arc<str>>,
    is_mesh: bool,
    /// The Gateway that stands for sidecars where a host is named in short.
    short_mesh: Arc<str>,
    hosts: BTreeSet<Host>,
    /// The most ways in to each host.
    ways: usize,
    /// Names of rules for TLS that are within the hosts, with their places in order.
    names: BTreeMap<Host, Vec<NamePlace>>,
}

/// The place of a name: of its rule in `spec.tls`, of the match in it, and its own.
type NamePlace = (usize, usize, usize);

impl ServiceNames {
    /// Reads a VirtualService.
    pub fn of(service: &VirtualService) -> Self {
        let namespace = service.meta.key.namespace();
        let written = binding::gateways(service).iter();
        let gateways = written.filter_map(|text| names::gateway(text, namespace));
        let mut gateways: Vec<Arc<str>> = gateways.collect();
        gateways.sort_unstable();
        gateways.dedup();
        let written = first_names(&service.spec.gateways);
        let hosts = service.spec.hosts.iter();
        let mut found = ServiceNames {
            gateways,
            is_mesh: written.is_empty() || written.iter().any(|text| **text == *names::MESH),
            short_mesh: names::short_mesh(namespace),
            hosts: hosts.filter_map(|text| names::host(text).ok()).collect(),
            ways: binding::ways_max(service),
            names: BTreeMap::new(),
        };
        for (rule, tls) in service.spec.tls.iter().enumerate() {
            for (number, matched) in tls.matches.iter().enumerate() {
                for (at, sni) in matched.sni_hosts.iter().enumerate() {
                    found.add_name(sni, (rule, number, at));
                }
            }
        }
        found
    }

    fn add_name(&mut self, written: &str, place: NamePlace) {
        let Ok(name) = names::host(written) else {
            return;
        };
        if let Some(known) = self.names.get_mut(&name) {
            known.push(place);
        } else if self.covers(&name) {
            self.names.insert(name, vec![place]);
        }
    }

    fn covers(&self, name: &Host) -> bool {
        self.hosts.contains(name) || broader(name).iter().any(|it| self.hosts.contains(it))
    }

    /// How much is indexed.
    pub fn count(&self) -> usize {
        let names: usize = self.names.values().map(Vec::len).sum();
        self.gateways.len() + self.hosts.len() + names
    }

    /// The most ways in to each host.
    pub fn ways_max(&self) -> usize {
        self.ways
    }

    /// The Gateways that it is bound to, sorted.
    pub fn gateways(&self) -> &[Arc<str>] {
        &self.gateways
    }

    /// Whether a host is one of the names of rules for TLS that are within its hosts, or covered by
    /// one.
    pub fn is_within_names(&self, host: &Host) -> bool {
        let is_known = |name: &Host| self.names.contains_key(name);
        !self.names.is_empty() && (is_known(host) || broader(host).iter().any(is_known))
    }

    /// Whether a host is one of its hosts.
    pub fn has_host(&self, host: &Host) -> bool {
        self.hosts.contains(host)
    }

    /// Whether a rule for TLS names exactly this host, which is within its hosts.
    pub fn takes(&self, host: &Host) -> bool {
        self.names.contains_key(host)
    }

    /// Whether a name that a rule for TLS lists is within its hosts.
    pub fn is_own_name(&self, written: &str) -> bool {
        names::host(written).is_ok_and(|name| self.takes(&name))
    }

    /// The places of the matches of rules for TLS that name one of these hosts, each once and in
    /// order.
    pub fn places(&self, hosts: &[Host]) -> Vec<(usize, usize)> {
        let named = hosts.iter().filter_map(|host| self.names.get(host));
        let places = named.flatten().map(|(rule, matched, _)| (*rule, *matched));
        let mut places: Vec<(usize, usize)> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether a match of a rule for TLS names exactly this host, which is within its hosts.
    pub fn is_matched(&self, host: &Host, rule: usize, matched: usize) -> bool {
        let Some(places) = self.names.get(host) else {
            return false;
        };
        let at = places.partition_point(|place| *place < (rule, matched, 0));
        let place = places.get(at);
        place.is_some_and(|place| (place.0, place.1) == (rule, matched))
    }

    /// Where a rule for TLS first names a host that is within its hosts.
    pub fn field_of(&self, host: &Host) -> Option<String> {
        let (rule, matched, at) = self.names.get(host)?.first()?;
        Some(format!("spec.tls[{rule}].match[{matched}].sniHosts[{at}]"))
    }

    /// The names of rules for TLS that are claimed beside its hosts, and are within them.
    pub fn claimed(&self) -> impl Iterator<Item = &Host> {
        let names = self.names.keys();
        names.filter(|name| !self.hosts.contains(*name))
    }

    /// The wildcards among its hosts and the names of its rules for TLS.
    pub fn wildcards(&self) -> impl Iterator<Item = &Host> {
        let hosts = self.hosts.iter();
        let hosts = hosts.filter(|host| !matches!(host.pattern(), Pattern::Exact(_)));
        let names = self.claimed();
        hosts.chain(names.filter(|host| matches!(host.pattern(), Pattern::AnyLabels(_))))
    }

    /// Whether the VirtualService is found under a Gateway and a host.
    pub fn is_bound(&self, gateway: &str, host: &Host) -> bool {
        let is_of_gateway = || {
            let known = self
                .gateways
                .binary_search_by(|known| (**known).cmp(gateway));
            known.is_ok()
        };
        let is_of_mesh = || self.is_mesh && *self.mesh_of(host) == *gateway;
        match self.hosts.contains(host) {
            true => is_of_mesh() || is_of_gateway(),
            false => self.takes(host) && is_of_gateway(),
        }
    }

    /// The Gateways and hosts under which the VirtualService is found, sorted.
    pub fn bound(&self) -> Vec<(Arc<str>, Host)> {
        let mut pairs: Vec<(Arc<str>, Host)> = Vec::new();
        if self.is_mesh {
            let hosts = self.hosts.iter();
            pairs.extend(hosts.map(|host| (self.mesh_of(host), host.clone())));
        }
        for host in self.hosts.iter().chain(self.claimed()) {
            let gateways = self.gateways.iter();
            pairs.extend(gateways.map(|gateway| (gateway.clone(), host.clone())));
        }
        pairs.sort_unstable();
        pairs
    }

    /// The Gateway that stands for sidecars for one of the hosts.
    fn mesh_of(&self, host: &Host) -> Arc<str> {
        match host.as_str().contains(['.', '*']) {
            true => names::MESH.into(),
            false => self.short_mesh.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::VirtualServiceSpec;
    use myriad_api::istio::virtual_service::{TlsMatch, TlsRoute};
    use myriad_api::{Meta, ObjectKey, ObjectKind};

    use super::*;

    fn read(hosts: &[&str], matches: &[&[&str]]) -> ServiceNames {
        let texts = |texts: &[&str]| -> Box<[Box<str>]> {
            texts.iter().map(|text| Box::from(*text)).collect()
        };
        let matches = matches.iter().map(|sni| TlsMatch {
            sni_hosts: texts(sni),
            ..TlsMatch::default()
        });
        let rule = TlsRoute {
            matches: matches.collect(),
            ..TlsRoute::default()
        };
        let key = ObjectKey::new(ObjectKind::VirtualService, "n", "v");
        ServiceNames::of(&VirtualService {
            meta: Meta::new(key),
            spec: VirtualServiceSpec {
                hosts: texts(hosts),
                gateways: texts(&["g", "x/g", "mesh"]),
                tls: [rule].into(),
                ..VirtualServiceSpec::default()
            },
            notes: Box::default(),
            bytes: 0,
        })
    }

    fn host(text: &str) -> Host {
        names::host(text).expect("a host")
    }

    #[test]
    fn names_within_the_hosts_are_found_where_they_stand() {
        let known = read(
            &["*.A.example", "web"],
            &[&["b.example"], &["q.a.example", "Q.a.example"], &["web"]],
        );
        let field = known.field_of(&host("q.a.example"));
        assert_eq!(field.as_deref(), Some("spec.tls[0].match[1].sniHosts[0]"));
        assert!(!known.is_own_name("b.example") && known.is_own_name("Q.A.example"));
        assert!(known.is_matched(&host("q.a.example"), 0, 1));
        for other in [0, 2] {
            assert!(!known.is_matched(&host("q.a.example"), 0, other));
        }
        let claimed: Vec<&str> = known.claimed().map(Host::as_str).collect();
        assert_eq!(claimed, ["q.a.example"]);
        let wildcards: Vec<&str> = known.wildcards().map(Host::as_str).collect();
        assert_eq!(wildcards, ["**.a.example"]);
    }

    #[test]
    fn a_host_is_bound_to_what_the_pairs_say() {
        let known = read(&["*.a.example", "web"], &[&["q.a.example", "b.example"]]);
        let pairs = known.bound();
        assert_eq!(pairs.len(), 2 + 3 * 2);
        let gateways = ["n/g", "x/g", "mesh", "mesh:n", "n/other"];
        let hosts = ["*.a.example", "web", "q.a.example", "b.example", "*"];
        let mut count = 0;
        for gateway in gateways {
            for host in hosts.map(host) {
                let is_there = pairs.contains(&(gateway.into(), host.clone()));
                assert_eq!(known.is_bound(gateway, &host), is_there, "{gateway} {host}");
                count += usize::from(is_there);
            }
        }
        assert_eq!(count, pairs.len());
    }

    #[test]
    fn every_name_is_indexed_once() {
        let texts: Vec<String> = (0..400).map(|at| format!("h{at}.example")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let known = read(&texts, &[&texts]);
        assert_eq!(known.count(), 800 + known.gateways().len());
        assert_eq!(known.claimed().count(), 0);
    }
}
