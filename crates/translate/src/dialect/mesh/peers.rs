//! PeerAuthentications of a workload: whether a client has to show an identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::peer_authentication::MutualTlsMode;
use myriad_api::istio::{PeerAuthentication, PeerAuthenticationSpec};
use myriad_model::MutualTls;

use crate::engine::Reader;

/// The modes of mutual TLS of one workload.
pub(super) struct Peers {
    mode: MutualTls,
    ports: BTreeMap<u16, MutualTls>,
}

impl Peers {
    /// The oldest that is for the workload goes before the oldest of its namespace, and that
    /// before the oldest of the root namespace; UNSET leaves it to the next. Ports are named
    /// by one for the workload alone.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Peers {
        let root = reader.settings().root_namespace();
        let own = sorted(reader.peers(namespace));
        let wide = match namespace == root {
            true => Vec::new(),
            false => sorted(reader.peers(root)),
        };
        let mut known = own.iter().chain(&wide);
        // Nobody knows what it would say of whom.
        if known.any(|it| readable(it).is_none()) {
            return Peers {
                mode: MutualTls::Strict,
                ports: BTreeMap::new(),
            };
        }
        let has = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
        let (own, wide) = (specs(&own), specs(&wide));
        let of_workload = own.iter().find(|spec| {
            let selector = spec.selector.as_ref();
            selector.is_some_and(|selector| {
                let mut wanted = selector.match_labels.iter();
                !selector.match_labels.is_empty() && wanted.all(|(key, value)| has(key, value))
            })
        });
        let chain = [
            of_workload,
            own.iter().find(|spec| is_for_all(spec)),
            wide.iter().find(|spec| is_for_all(spec)),
        ];
        let mut modes = chain.into_iter().flatten();
        let mode = modes.find_map(|spec| read(spec.mtls?.mode));
        let mode = mode.unwrap_or(MutualTls::Permissive);
        let listed = of_workload.map(|spec| spec.port_level_mtls.iter());
        let ports = listed.into_iter().flatten().filter_map(|(port, mutual)| {
            Some((port.parse().ok()?, read(mutual.mode).unwrap_or(mode)))
        });
        Peers {
            mode,
            ports: ports.collect(),
        }
    }

    /// The mode of a port of the workload.
    pub(super) fn at(&self, port: u16) -> MutualTls {
        self.ports.get(&port).copied().unwrap_or(self.mode)
    }

    /// The mode of ports that nothing else is said of.
    pub(super) fn elsewhere(&self) -> MutualTls {
        self.mode
    }

    /// The ports of which something else is said.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.keys().copied()
    }
}

/// The spec, where all of it is understood.
pub(super) fn readable(peers: &PeerAuthentication) -> Option<&PeerAuthenticationSpec> {
    let mut notes = peers.notes.iter();
    let is_known = notes.all(|note| note.field.starts_with("status"));
    peers.spec.as_ref().ok().filter(|_| is_known)
}

/// Whether it is for every workload of its namespace.
pub(super) fn is_for_all(spec: &PeerAuthenticationSpec) -> bool {
    let selector = spec.selector.as_ref();
    selector.is_none_or(|selector| selector.match_labels.is_empty())
}

fn specs(found: &[Arc<PeerAuthentication>]) -> Vec<&PeerAuthenticationSpec> {
    found.iter().filter_map(|it| readable(it)).collect()
}

fn read(mode: MutualTlsMode) -> Option<MutualTls> {
    match mode {
        MutualTlsMode::Unset => None,
        MutualTlsMode::Disable => Some(MutualTls::None),
        MutualTlsMode::Permissive => Some(MutualTls::Permissive),
        MutualTlsMode::Strict => Some(MutualTls::Strict),
    }
}

fn sorted(mut found: Vec<Arc<PeerAuthentication>>) -> Vec<Arc<PeerAuthentication>> {
    found.sort_by_key(|it| (it.meta.created, it.meta.key.clone()));
    found
}
