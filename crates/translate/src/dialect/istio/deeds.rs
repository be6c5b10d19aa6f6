//! The deeds of Gateways and VirtualServices for all names below a wildcard.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_model::{Host, Name, OriginKind, Value};

use super::admission::may_claim;
use super::entrance::{self, Admitted, Door, Entrance};
use super::{below, credential};
use crate::engine::{Output, Reader, namespace_of};
use crate::resolve::names::broader;
use crate::resolve::{Claim, Claims, Deed, EVERYBODY, Namespaces};

/// A listener, and what is done there.
pub(crate) struct End {
    /// The listener.
    pub listener: Name,
    /// The namespaces that may answer there too.
    pub admitted: Namespaces,
    /// The deed.
    pub deed: Deed,
    /// Whether the certificate that is shown is neither the Gateway's own nor lent to it.
    pub is_borrowed: bool,
}

/// The VirtualServices whose rules hand on handshakes, by `namespace/name`, each with a listener
/// where they do.
pub(crate) type Passers = HashSet<(Arc<str>, Name)>;

/// The ways in to what is below a wildcard, found once for all VirtualServices of a namespace: by
/// Gateway, pattern of its servers, and namespace.
#[derive(Default)]
pub(crate) struct Ways(HashMap<Way, Option<Arc<Entered>>>);

/// A Gateway, a pattern of its servers, and the namespace that they are asked for.
type Way = (Arc<str>, Host, Arc<str>);

/// A Gateway, and its servers that can be entered.
struct Entered {
    gateway: Arc<Gateway>,
    ways: Vec<Entrance>,
    /// The namespaces that the servers let in, where TLS may end for what is below.
    admitted: Admitted,
}

impl Ways {
    /// The ways in by the servers of a Gateway that name a pattern and admit a namespace.
    fn of(
        &mut self,
        reader: &mut Reader<'_>,
        (id, cover, own): (&Arc<str>, &Host, &Arc<str>),
        pattern: &Host,
    ) -> Option<Arc<Entered>> {
        let place = (id.clone(), cover.clone(), own.clone());
        if let Some(known) = self.0.get(&place) {
            return known.clone();
        }
        let entered = reader.servers(id, cover).map(|gateway| {
            let mut ways = entrance::for_host(reader, &gateway, cover, Some(&**own));
            entrance::keep_let(reader, &gateway, (pattern, &**own), &mut ways);
            let admitted = match cover != pattern && ways.iter().any(|way| way.door.ends_tls()) {
                true => entrance::admitted(reader, &gateway, cover),
                false => Admitted::new(),
            };
            Arc::new(Entered {
                gateway,
                ways,
                admitted,
            })
        });
        self.0.insert(place, entered.clone());
        entered
    }
}

/// The deeds of a Gateway for a wildcard that its servers name.
pub(crate) fn of_gateway(reader: &mut Reader<'_>, gateway: &Gateway, pattern: &Host) -> Vec<End> {
    let ways = entrance::effective(reader, gateway, pattern).into_iter();
    let known = entrance::admitted(reader, gateway, pattern);
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
                Deed::Answers => everybody(),
                _ => admitted(&known, &way),
            },
            is_borrowed: credential::is_borrowed(reader, gateway, &way),
            listener: way.listener,
            deed,
        })
    };
    ways.filter_map(end).collect()
}

/// The VirtualServices for a wildcard that may have an effect on it: of its owner, and those that a
/// Gateway of the owner for the wildcard lets in.
pub(crate) fn services_of(
    reader: &mut Reader<'_>,
    claims: &Claims,
    (owner, sites): (Option<&Claim>, &[Arc<Gateway>]),
) -> Vec<Arc<VirtualService>> {
    let sites = sites.iter().map(|gateway| &gateway.meta.key);
    let of_owner = sites.filter(|key| owner.is_some_and(|owner| owner.is_of(key.namespace())));
    let of_owner: HashSet<&str> = of_owner.map(|key| &**key.id()).collect();
    let mut found = Vec::new();
    for id in &claims.services {
        let is_owned = owner.is_none_or(|owner| owner.is_of(namespace_of(id)));
        if !is_owned && of_owner.is_empty() {
            continue;
        }
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let is_kept = is_owned || {
            let names = reader.names_of(&service);
            let mut named = names.gateways().iter();
            named.any(|id| of_owner.contains(&**id))
        };
        if is_kept {
            found.push(service);
        }
    }
    found
}

/// The deeds of VirtualServices for broader patterns, by the servers that name a wildcard: they
/// enter by each of those, and claim nothing of it.
pub(crate) fn of_broader(
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
                let is_named = reader.names_of(&service).has_host(cover);
                let is_seen = reader.view().sees(&service.spec.export_to, own);
                let is_kept = is_named && may_claim(reader, &service.meta.key, pattern);
                if !is_let_in || !is_kept || !is_seen {
                    continue;
                }
                let covered = reader.claim(&gateway.meta, pattern);
                let claim = reader.noted_claim(&service, cover).by(&covered);
                let is_passed = reader.names_of(&service).is_within_names(pattern);
                let ways = entrance::for_host(reader, gateway, pattern, Some(own));
                let ends = ways.into_iter().filter_map(|way| match way.door {
                    Door::Passing => is_passed.then(|| passes_on(way.listener)),
                    _ => answers(&service, way),
                });
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
        admitted: everybody(),
        deed,
        is_borrowed: false,
    })
}

/// The deed of rules for TLS where handshakes go on as they come.
fn passes_on(listener: Name) -> End {
    End {
        listener,
        admitted: Namespaces::default(),
        deed: Deed::PassesOn,
        is_borrowed: false,
    }
}

/// The VirtualServices whose rules hand on handshakes for the names below a wildcard, by what its
/// unit has made.
pub(crate) fn passers(output: &Output, pattern: &Host) -> Passers {
    let mut found = Passers::new();
    for (_, resource) in &output.resources {
        let Value::StreamRoute(stream_route) = &resource.value else {
            continue;
        };
        let origin = &resource.origin;
        let is_rule = origin.kind == OriginKind::VirtualService && !stream_route.terminate;
        if is_rule && stream_route.hosts.contains(pattern) {
            let listeners = stream_route.listeners.iter();
            found.extend(listeners.map(|listener| (origin.id.clone(), listener.clone())));
        }
    }
    found
}

/// The deeds of a VirtualService for a wildcard that it names.
pub(crate) fn of_service(
    reader: &mut Reader<'_>,
    ways: &mut Ways,
    service: &Arc<VirtualService>,
    pattern: &Host,
) -> Vec<End> {
    let names = reader.names_of(service);
    let own: Arc<str> = service.meta.key.namespace().into();
    let is_named = names.has_host(pattern);
    let is_passed = names.is_within_names(pattern);
    let mut patterns = vec![pattern.clone()];
    patterns.extend(broader(pattern));
    let mut found = Vec::new();
    for id in names.gateways() {
        for cover in &patterns {
            let Some(entered) = ways.of(reader, (id, cover, &own), pattern) else {
                continue;
            };
            let gateway = &entered.gateway;
            for way in &entered.ways {
                let ends_tls = below::serves(service, way)
                    && is_named
                    && cover != pattern
                    && below::is_unanswered(reader, gateway, way);
                if way.door == Door::Passing && is_passed {
                    found.push(passes_on(way.listener.clone()));
                } else if ends_tls {
                    found.push(End {
                        listener: way.listener.clone(),
                        admitted: admitted(&entered.admitted, way),
                        deed: Deed::EndsTls,
                        is_borrowed: credential::is_borrowed(reader, gateway, way),
                    });
                }
                if is_named {
                    found.extend(answers(service, way.clone()));
                }
            }
        }
    }
    found
}

/// The namespaces that are let in where a way in is.
fn admitted(known: &Admitted, way: &Entrance) -> Namespaces {
    let place = (way.port, way.listener.clone(), way.door.clone());
    known.get(&place).cloned().unwrap_or_default()
}

fn everybody() -> Namespaces {
    [Box::<str>::from(EVERYBODY)].into_iter().collect()
}
