//! What Gateways and VirtualServices add up to on one host.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Action, Host, Name, Origin, OriginKind, PathMatch, Policy, Redirect, RedirectParts,
    RedirectTarget, Resource, Route, Value,
};

use super::domain;
use super::entrance::{self, Door, Entrance};
use super::names::{self, broader};
use super::routes::Ground;
use super::{routes, stream};
use crate::HostSharing;
use crate::engine::{Reader, Shared};
use crate::host::Claims;
use crate::output::Output;

/// A Gateway as one host sees it.
pub struct Site {
    /// The object.
    pub gateway: Arc<Gateway>,
    /// Whether a server names exactly this host.
    pub is_own: bool,
}

/// A VirtualService on the host, and the ways in to it.
pub struct Tenant {
    /// The object.
    pub service: Arc<VirtualService>,
    /// By Gateway.
    pub entrances: Vec<(Arc<str>, Entrance)>,
}

/// The status of a redirect to HTTPS.
const TO_TLS_STATUS: u16 = 301;

/// Whether a server of a Gateway covers a host and admits a namespace.
pub fn is_covered(reader: &mut Reader<'_>, gateway: &str, host: &Host, namespace: &str) -> bool {
    let mut patterns = vec![host.clone()];
    patterns.extend(broader(host));
    patterns.iter().any(|pattern| {
        let Some(gateway) = reader.servers(gateway, pattern) else {
            return false;
        };
        let admitted = Some(namespace);
        !entrance::for_host(reader, &gateway, pattern, admitted).is_empty()
    })
}

/// Adds the domain and the routes of a host.
pub fn add_host(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    claims: &Claims,
    output: &mut Output,
) {
    let mut sites = gather_sites(reader, host, claims);
    keep_sites(reader, host, &mut sites, output);
    let holders = stream::holders(reader, host, &sites, output);
    domain::add(reader, shared, host, (&sites, &holders), output);
    let mut tenants = gather_tenants(reader, host, &sites);
    keep_owner(reader, host, &mut tenants, output);
    add_redirect(reader, host, &sites, &tenants, output);
    routes::build(reader, &Ground::of(host), &tenants, output);
    stream::build(reader, host, (&sites, &tenants), &holders, output);
}

/// The Gateways that matter to a host, the oldest first.
fn gather_sites(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Vec<Site> {
    let mut ids = claims.gateways.clone();
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let own = service.meta.key.namespace();
        let named = service.spec.gateways.iter();
        ids.extend(named.filter_map(|text| names::gateway(text, own)));
    }
    ids.sort_unstable();
    ids.dedup();
    let above = broader(host);
    let mut sites: Vec<Site> = Vec::new();
    for id in ids {
        let own = reader.servers(&id, host);
        let is_own = own.is_some();
        let broader = above
            .iter()
            .filter_map(|pattern| reader.servers(&id, pattern));
        // Every pattern is asked for, so that what is read depends on nothing that is not.
        let found = own.into_iter().chain(broader.collect::<Vec<_>>()).next();
        sites.extend(found.map(|gateway| Site { gateway, is_own }));
    }
    sites.sort_by(|a, b| {
        let age = |site: &Site| {
            (
                site.gateway.meta.created,
                site.gateway.meta.key.id().clone(),
            )
        };
        age(a).cmp(&age(b))
    });
    sites
}

/// The VirtualServices on a host, the oldest first.
fn gather_tenants(reader: &mut Reader<'_>, host: &Host, sites: &[Site]) -> Vec<Tenant> {
    let mut found: BTreeMap<(i64, Arc<str>), Tenant> = BTreeMap::new();
    let above = broader(host);
    for site in sites {
        let id = site.gateway.meta.key.id().clone();
        // One that names the host itself enters by every server that covers it; one that names
        // a broader pattern only by those that name the host.
        let mut bound = vec![(host, reader.bound(&id, host))];
        if site.is_own {
            for pattern in &above {
                bound.push((pattern, reader.bound(&id, pattern)));
            }
        }
        for (pattern, services) in bound {
            for service in services {
                let key = &service.meta.key;
                if !reader.view().sees(&service.spec.export_to, key.namespace()) {
                    continue;
                }
                let mut covering = vec![host];
                if pattern == host {
                    covering.extend(&above);
                }
                let mut entrances = Vec::new();
                for cover in covering {
                    let admitted = Some(key.namespace());
                    let ways = entrance::for_host(reader, &site.gateway, cover, admitted);
                    entrances.extend(ways.into_iter().map(|way| (id.clone(), way)));
                }
                if entrances.is_empty() {
                    continue;
                }
                let place = (service.meta.created, key.id().clone());
                let tenant = found.entry(place).or_insert_with(|| Tenant {
                    service: service.clone(),
                    entrances: Vec::new(),
                });
                tenant.entrances.extend(entrances);
            }
        }
    }
    found.into_values().collect()
}

/// The Ingress that a host belongs to, unless all may share it.
fn owner(reader: &Reader<'_>, output: &Output) -> Option<Origin> {
    if reader.settings().host_sharing == HostSharing::Cluster {
        return None;
    }
    let mut origins = output.resources.iter().map(|(_, resource)| {
        let is_ingress = resource.origin.kind == OriginKind::Ingress;
        (is_ingress && matches!(resource.value, Value::Route(_))).then_some(&resource.origin)
    });
    origins.find_map(|origin| origin).cloned()
}

/// Gateways of other tenants say nothing about the TLS of a host that an Ingress owns.
fn keep_sites(reader: &Reader<'_>, host: &Host, sites: &mut Vec<Site>, output: &mut Output) {
    let Some(owner) = owner(reader, output) else {
        return;
    };
    let view = reader.view();
    let findings = &mut output.findings;
    sites.retain(|site| {
        let key = &site.gateway.meta.key;
        let is_admitted = key.namespace() == owner.namespace() || view.is_of(key.namespace());
        if !is_admitted {
            findings.push(foreign(key, "spec.servers", host, &owner));
        }
        is_admitted
    });
}

fn foreign(key: &ObjectKey, field: &str, host: &Host, owner: &Origin) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        field,
        format!("is without effect on {host}, which belongs to {owner}"),
        "use another host, or serve with --host-sharing=cluster",
    )
}

/// A host that an Ingress owns is shared with its own namespace alone, unless all may share.
fn keep_owner(reader: &Reader<'_>, host: &Host, tenants: &mut Vec<Tenant>, output: &mut Output) {
    let Some(owner) = owner(reader, output) else {
        return;
    };
    let findings = &mut output.findings;
    tenants.retain(|tenant| {
        let key = &tenant.service.meta.key;
        let is_admitted = key.namespace() == owner.namespace();
        if !is_admitted {
            findings.push(foreign(key, "spec.hosts", host, &owner));
        }
        is_admitted
    });
}

/// Requests by a server that redirects never reach a VirtualService.
fn add_redirect(
    reader: &mut Reader<'_>,
    host: &Host,
    sites: &[Site],
    tenants: &[Tenant],
    output: &mut Output,
) {
    let mut ways: Vec<(Arc<str>, Entrance)> = Vec::new();
    for site in sites {
        let id = site.gateway.meta.key.id();
        let own = entrance::for_host(reader, &site.gateway, host, None);
        ways.extend(own.into_iter().map(|way| (id.clone(), way)));
    }
    let of_tenants = tenants.iter().flat_map(|tenant| &tenant.entrances);
    ways.extend(of_tenants.cloned());
    ways.retain(|(_, way)| way.door == Door::ToTls);
    let mut listeners: Vec<Name> = ways.iter().map(|(_, way)| way.listener.clone()).collect();
    listeners.sort_unstable();
    listeners.dedup();
    let Some((gateway, _)) = ways.first() else {
        return;
    };
    let port = Some(reader.settings().https_port).filter(|port| *port != 443);
    let parts = RedirectParts {
        scheme: "https".into(),
        port,
        ..RedirectParts::default()
    };
    let route = Route {
        listeners: listeners.into(),
        hosts: [host.clone()].into(),
        path: PathMatch::Prefix("/".into()),
        conditions: Box::default(),
        rank: routes::REDIRECT_RANK,
        action: Action::Redirect(Box::new(Redirect {
            status: TO_TLS_STATUS,
            target: RedirectTarget::Parts(Box::new(parts)),
        })),
        policy: Arc::new(Policy::default()),
    };
    let origin = Origin {
        kind: OriginKind::Gateway,
        id: gateway.clone(),
    };
    let resource = Resource {
        origin,
        value: Value::Route(Box::new(route)),
    };
    let name = format!("{gateway}/{host}/to-https");
    output.resources.push((Name::new(name), resource));
}
