//! The deeds of Gateways and VirtualServices for all names below a wildcard.

use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_model::{Host, Name, host::Pattern};

use super::entrance::{self, Door, Entrance};
use super::{below, binding, sni};
use crate::engine::Reader;
use crate::resolve::names::{self, ServerHost, broader, is_host};
use crate::resolve::{Claim, Claims, Deed, EVERYBODY};

/// A listener, and what is done there.
pub struct End {
    /// The listener.
    pub listener: Name,
    /// The namespaces that may answer there too.
    pub admitted: Vec<Box<str>>,
    /// The deed.
    pub deed: Deed,
}

/// The deeds of a Gateway for a wildcard that its servers name.
pub fn of_gateway(reader: &mut Reader<'_>, gateway: &Gateway, pattern: &Host) -> Vec<End> {
    let ways = entrance::effective(reader, gateway, pattern).into_iter();
    let end = |way: Entrance| {
        let deed = match way.door {
            Door::Tls | Door::TlsStream | Door::Closed => Deed::EndsTls,
            Door::Passing => Deed::PassesOn,
            Door::ToTls => Deed::Answers,
            // Requests find the VirtualServices, and plain connections have no names.
            Door::Plain | Door::Stream => return None,
        };
        Some(End {
            admitted: match deed {
                Deed::Answers => vec![EVERYBODY.into()],
                _ => admitted(gateway, &way, pattern),
            },
            listener: way.listener,
            deed,
        })
    };
    ways.filter_map(end).collect()
}

/// The VirtualServices for a wildcard that may have an effect on it: of its owner, and those that a
/// Gateway of the owner for the wildcard lets in.
pub fn services_of(
    reader: &mut Reader<'_>,
    claims: &Claims,
    (owner, sites): (Option<&Claim>, &[Arc<Gateway>]),
) -> Vec<Arc<VirtualService>> {
    let mut found = Vec::new();
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let own = service.meta.key.namespace();
        let is_let_in = |gateway: &Arc<Gateway>| {
            let mut named = binding::gateways(&service).iter();
            owner.is_some_and(|owner| owner.is_of(gateway.meta.key.namespace()))
                && named.any(|text| names::is_gateway(text, own, gateway.meta.key.id()))
        };
        let is_of_owner = owner.is_none_or(|owner| owner.is_of(own));
        if is_of_owner || sites.iter().any(is_let_in) {
            found.push(service);
        }
    }
    found
}

/// The deeds of VirtualServices for broader patterns, by the servers that name a wildcard: they
/// enter by each of those, and claim nothing of it.
pub fn of_broader(
    reader: &mut Reader<'_>,
    pattern: &Host,
    (owner, sites): (Option<&Claim>, &[Arc<Gateway>]),
) -> Vec<(Claim, End)> {
    let above = broader(pattern);
    let mut found = Vec::new();
    for gateway in sites {
        let key = &gateway.meta.key;
        for cover in &above {
            for service in reader.bound_shapes(key.id(), cover) {
                let own = service.meta.key.namespace();
                let is_let_in =
                    owner.is_none_or(|owner| owner.is_of(own) || owner.is_of(key.namespace()));
                let mut hosts = service.spec.hosts.iter();
                let is_named = hosts.any(|text| is_host(text, cover));
                let is_seen = reader.view().sees(&service.spec.export_to, own);
                if !is_let_in || !is_named || !is_seen {
                    continue;
                }
                let covered = reader.claim(&gateway.meta, pattern);
                let claim = reader.noted_claim(&service, cover).by(&covered);
                let ways = entrance::for_host(reader, gateway, pattern, Some(own));
                let ends = ways.into_iter().filter_map(|way| answers(&service, way));
                found.extend(ends.map(|end| (claim.clone(), end)));
            }
        }
    }
    found
}

/// The deed of a VirtualService for its hosts by a way in, once TLS has ended there.
fn answers(service: &VirtualService, way: Entrance) -> Option<End> {
    let deed = match way.door {
        Door::Plain | Door::ToTls | Door::Tls => Deed::Answers,
        Door::TlsStream if !service.spec.tcp.is_empty() => Deed::Streams,
        _ => return None,
    };
    Some(End {
        listener: way.listener,
        admitted: vec![EVERYBODY.into()],
        deed,
    })
}

/// The deeds of a VirtualService for a wildcard that it names.
pub fn of_service(reader: &mut Reader<'_>, service: &VirtualService, pattern: &Host) -> Vec<End> {
    let own = service.meta.key.namespace();
    let mut hosts = service.spec.hosts.iter();
    let is_named = hosts.any(|text| is_host(text, pattern));
    let is_passed = pattern.pattern() != Pattern::Any && sni::takes(service, pattern);
    let mut patterns = vec![pattern.clone()];
    patterns.extend(broader(pattern));
    let mut found = Vec::new();
    let mut gateways: Vec<Arc<str>> = binding::gateways(service)
        .iter()
        .filter_map(|text| names::gateway(text, own))
        .collect();
    gateways.sort_unstable();
    gateways.dedup();
    for id in gateways {
        for cover in &patterns {
            let Some(gateway) = reader.servers(&id, cover) else {
                continue;
            };
            let mut ways = entrance::for_host(reader, &gateway, cover, Some(own));
            entrance::keep_answering(reader, &gateway, pattern, &mut ways);
            for way in ways {
                let ends_tls = below::serves(service, &way)
                    && is_named
                    && cover != pattern
                    && below::is_unanswered(reader, &gateway, &way);
                let deed = match way.door {
                    Door::Passing if is_passed => Some(Deed::PassesOn),
                    _ if ends_tls => Some(Deed::EndsTls),
                    _ => None,
                };
                if let Some(deed) = deed {
                    found.push(End {
                        listener: way.listener.clone(),
                        admitted: match deed {
                            Deed::EndsTls => admitted(&gateway, &way, cover),
                            _ => Vec::new(),
                        },
                        deed,
                    });
                }
                if is_named {
                    found.extend(answers(service, way));
                }
            }
        }
    }
    found
}

/// The namespaces that a server lets in by a pattern.
fn admitted(gateway: &Gateway, way: &Entrance, pattern: &Host) -> Vec<Box<str>> {
    let own = gateway.meta.key.namespace();
    let Some(server) = gateway.spec.servers.get(way.server) else {
        return Vec::new();
    };
    let named = server.hosts.iter().map(|text| ServerHost::read(text));
    let named = named.filter(|named| is_host(named.host, pattern));
    let admitted = named.map(|named| match named.namespace {
        "." => own.into(),
        namespace => namespace.into(),
    });
    admitted.collect()
}
