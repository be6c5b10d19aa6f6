//! A Gateway with many servers or hosts as its hosts read it: with an index of what they name.
//!
//! A host asks for itself and for every broader pattern, several times over, and so does each
//! VirtualService on it. One walk over all servers for the whole batch stands in for theirs.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use myriad_api::istio::Gateway;
use myriad_model::Host;

use super::entrance::{Entering, Opening, ServerEntry};
use crate::resolve::names::{ServerHost, is_host};

/// The most servers and hosts that are looked through rather than indexed, which is faster.
const LINEAR_MAX: usize = 16;

/// A Gateway and where in it hosts are named.
pub(super) struct OpenedGateway {
    gateway: Arc<Gateway>,
    hasher: RandomState,
    /// Hashes of the hosts that servers name, with their entries, sorted.
    named: Box<[(u64, ServerEntry)]>,
    /// Whether a server says an address.
    has_binds: bool,
    /// The ways in by patterns that many servers name, once they were asked for.
    openings: HashMap<(Host, Entering), Arc<[Opening]>>,
}

impl OpenedGateway {
    /// Opens a Gateway, if it has so many servers or hosts that this is worth it.
    pub(super) fn new(gateway: &Arc<Gateway>) -> Option<Self> {
        let servers = &gateway.spec.servers;
        let names: usize = servers.iter().map(|server| server.hosts.len()).sum();
        if names.max(servers.len()) <= LINEAR_MAX {
            return None;
        }
        let hasher = RandomState::new();
        let mut named = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            for (place, text) in server.hosts.iter().enumerate() {
                let hash = hasher.hash_one(Written(ServerHost::read(text).host));
                named.push((hash, (at, place)));
            }
        }
        named.sort_unstable();
        Some(OpenedGateway {
            gateway: gateway.clone(),
            hasher,
            named: named.into(),
            has_binds: servers.iter().any(|server| !server.bind.is_empty()),
            openings: HashMap::new(),
        })
    }

    /// Whether this is what was opened.
    pub(super) fn is_of(&self, gateway: &Gateway) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.gateway), gateway)
    }

    /// How much is indexed.
    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// Whether a server says an address.
    pub(super) fn has_binds(&self) -> bool {
        self.has_binds
    }

    /// Whether so many entries name a host that their ways in are worth keeping.
    pub(super) fn has_many(&self, host: &Host) -> bool {
        self.candidates(host).len() > LINEAR_MAX
    }

    /// The ways in that are kept.
    pub(super) fn kept(&self, asked: &(Host, Entering)) -> Option<&Arc<[Opening]>> {
        self.openings.get(asked)
    }

    /// Keeps ways in.
    pub(super) fn keep(&mut self, asked: (Host, Entering), found: Arc<[Opening]>) {
        self.openings.insert(asked, found);
    }

    /// Whether any server names a host, or one of them.
    pub(super) fn names(&self, server: Option<usize>, host: &Host) -> bool {
        let mut candidates = self.candidates(host);
        if let Some(server) = server {
            let from = candidates.partition_point(|(_, (at, _))| *at < server);
            let to = candidates.partition_point(|(_, (at, _))| *at <= server);
            candidates = candidates.get(from..to).unwrap_or_default();
        }
        let mut entries = candidates.iter();
        entries.any(|(_, entry)| self.is_entry_of(*entry, host))
    }

    fn is_entry_of(&self, (at, place): ServerEntry, host: &Host) -> bool {
        let server = self.gateway.spec.servers.get(at);
        let text = server.and_then(|server| server.hosts.get(place));
        text.is_some_and(|text| is_host(ServerHost::read(text).host, host))
    }

    /// The entries that name a host, in their order.
    pub(super) fn entries(&self, host: &Host) -> Vec<ServerEntry> {
        let found = self.candidates(host).iter().map(|(_, entry)| *entry);
        found
            .filter(|entry| self.is_entry_of(*entry, host))
            .collect()
    }

    /// The entries whose hash is that of a host: nothing else is looked at for it.
    fn candidates(&self, host: &Host) -> &[(u64, ServerEntry)] {
        let wanted = self.hasher.hash_one(Written(host.as_str()));
        let from = self.named.partition_point(|(hash, _)| *hash < wanted);
        let to = self.named.partition_point(|(hash, _)| *hash <= wanted);
        self.named.get(from..to).unwrap_or_default()
    }
}

/// A host as written, or a pattern: equal hashes for what [`is_host`] takes for the same.
struct Written<'a>(&'a str);

impl Hash for Written<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let below = self.0.strip_prefix("*.");
        let below = below.or_else(|| self.0.strip_prefix("**."));
        below.is_some().hash(state);
        let rest = below.unwrap_or(self.0);
        match rest.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => rest.to_ascii_lowercase().hash(state),
            false => rest.hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::GatewaySpec;
    use myriad_api::istio::gateway::Server;
    use myriad_api::{Meta, ObjectKey, ObjectKind};

    use super::*;

    fn gateway(hosts: &[&[&str]]) -> Arc<Gateway> {
        let servers = hosts.iter().map(|hosts| Server {
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
            ..Server::default()
        });
        Arc::new(Gateway {
            meta: Meta::new(ObjectKey::new(ObjectKind::IstioGateway, "n", "g")),
            spec: GatewaySpec {
                servers: servers.collect(),
                ..GatewaySpec::default()
            },
            notes: Box::default(),
            bytes: 0,
        })
    }

    #[test]
    fn servers_are_found_by_what_they_name_however_it_is_written() {
        let mut hosts: Vec<&[&str]> = vec![&["x/A.example", "b.example"], &["*.Example"], &["*"]];
        assert!(OpenedGateway::new(&gateway(&hosts)).is_none());
        hosts.extend([&["z.example"][..]; LINEAR_MAX]);
        hosts.push(&["./a.example", "a.example"]);
        let gateway = gateway(&hosts);
        let opened = OpenedGateway::new(&gateway).expect("many servers");
        assert!(opened.is_of(&gateway) && !opened.is_of(&(*gateway).clone()));
        let entries = |text: &str| opened.entries(&Host::parse(text).expect("a host"));
        let last = hosts.len() - 1;
        assert_eq!(entries("a.example"), [(0, 0), (last, 0), (last, 1)]);
        assert_eq!(entries("b.example"), [(0, 1)]);
        assert_eq!(entries("**.example"), [(1, 0)]);
        assert_eq!(entries("*"), [(2, 0)]);
        assert!(entries("*.example").is_empty() && entries("c.example").is_empty());
        let names = |server, text: &str| {
            let host = Host::parse(text).expect("a host");
            opened.names(server, &host)
        };
        assert!(names(None, "a.example") && names(Some(0), "a.example"));
        assert!(!names(Some(1), "a.example") && !names(None, "c.example"));
    }

    #[test]
    fn a_host_of_a_server_with_many_looks_at_its_own_entries() {
        let hosts: Vec<String> = (0..1_000).map(|at| format!("h{at}.example")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let opened = OpenedGateway::new(&gateway(&[&hosts[..]])).expect("many hosts");
        assert_eq!(opened.count(), 1_000);
        assert!(!opened.has_binds());
        for (at, text) in hosts.iter().enumerate() {
            let host = Host::parse(text).expect("a host");
            assert_eq!(opened.entries(&host), [(0, at)]);
            assert_eq!(opened.candidates(&host).len(), 1);
        }
    }
}
