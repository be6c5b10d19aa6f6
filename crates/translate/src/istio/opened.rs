//! A Gateway with many servers as its hosts read it: with an index of the hosts that they name.
//!
//! A host asks for itself and for every broader pattern, several times over, and so does each
//! VirtualService on it. One walk over all servers for the whole batch stands in for theirs.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use myriad_api::istio::Gateway;
use myriad_model::Host;

use super::names::{ServerHost, is_host};

/// So many servers are looked through faster than an index of them is made.
const LINEAR_MAX: usize = 16;

/// A Gateway and where in it hosts are named.
pub struct OpenedGateway {
    gateway: Arc<Gateway>,
    hasher: RandomState,
    /// Hashes of the hosts that servers name, with the places of these servers, sorted.
    named: Box<[(u64, usize)]>,
}

impl OpenedGateway {
    /// Opens a Gateway, if it has so many servers that this is worth it.
    pub fn new(gateway: &Arc<Gateway>) -> Option<Self> {
        let servers = &gateway.spec.servers;
        if servers.len() <= LINEAR_MAX {
            return None;
        }
        let hasher = RandomState::new();
        let servers = servers.iter().enumerate();
        let mut named: Vec<(u64, usize)> = servers
            .flat_map(|(at, server)| {
                let hosts = server.hosts.iter();
                let hasher = &hasher;
                hosts.map(move |text| (hasher.hash_one(Written(ServerHost::read(text).host)), at))
            })
            .collect();
        named.sort_unstable();
        named.dedup();
        Some(OpenedGateway {
            gateway: gateway.clone(),
            hasher,
            named: named.into(),
        })
    }

    /// Whether this is what was opened.
    pub fn is_of(&self, gateway: &Gateway) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.gateway), gateway)
    }

    /// The places of the servers that name a host, in their order.
    pub fn places(&self, host: &Host) -> Vec<usize> {
        let wanted = self.hasher.hash_one(Written(host.as_str()));
        let from = self.named.partition_point(|(hash, _)| *hash < wanted);
        let found = self.named.get(from..).unwrap_or_default().iter();
        found
            .take_while(|(hash, _)| *hash == wanted)
            .map(|(_, at)| *at)
            .filter(|at| {
                let server = self.gateway.spec.servers.get(*at);
                server.is_some_and(|server| {
                    let mut hosts = server.hosts.iter();
                    hosts.any(|text| is_host(ServerHost::read(text).host, host))
                })
            })
            .collect()
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
        let places = |text: &str| opened.places(&Host::parse(text).expect("a host"));
        assert_eq!(places("a.example"), [0, hosts.len() - 1]);
        assert_eq!(places("b.example"), [0]);
        assert_eq!(places("**.example"), [1]);
        assert_eq!(places("*"), [2]);
        assert!(places("*.example").is_empty() && places("c.example").is_empty());
    }
}
