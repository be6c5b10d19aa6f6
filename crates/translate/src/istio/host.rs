//! What Gateways and VirtualServices add up to on one host.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Action, Domain, Host, Name, Origin, OriginKind, PathMatch, Policy, Redirect, RedirectParts,
    RedirectTarget, Resource, Route, Value,
};

use super::entrance::{self, Door, Entrance};
use super::names::{self, broader};
use super::routes;
use crate::HostSharing;
use crate::engine::{Reader, Shared};
use crate::host::Claims;
use crate::output::{Output, Unit};

/// A Gateway as one host sees it.
struct Site {
    gateway: Arc<Gateway>,
    /// Whether a server names exactly this host.
    is_own: bool,
}

/// A VirtualService on the host, and the ways in to it.
pub struct Tenant {
    /// The object.
    pub service: Arc<VirtualService>,
    /// By Gateway.
    pub entrances: Vec<(Arc<str>, Entrance)>,
}

/// The end of the name of a certificate that is never there: handshakes get an alert. No Secret
/// has such a name, since it has two slashes.
const CLOSED: &str = "closed";

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
        let (spec, own) = (&gateway.spec, gateway.meta.key.namespace());
        let admitted = Some(namespace);
        let mut found = entrance::for_host(spec, own, pattern, admitted, reader.settings());
        found.next().is_some()
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
    add_domain(reader, shared, host, &sites, output);
    let mut tenants = gather_tenants(reader, host, &sites);
    keep_owner(reader, host, &mut tenants, output);
    add_redirect(reader, host, &sites, &tenants, output);
    routes::build(reader, host, &tenants, output);
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

fn own_entrances<'a>(
    site: &'a Site,
    host: &'a Host,
    reader: &Reader<'a>,
) -> impl Iterator<Item = Entrance> + 'a {
    let own = site.gateway.meta.key.namespace();
    entrance::for_host(&site.gateway.spec, own, host, None, reader.settings())
}

/// The domain of the oldest Gateway that ends TLS for exactly this host, unless an Ingress has it.
fn add_domain(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    sites: &[Site],
    output: &mut Output,
) {
    let has_domain = |output: &Output| {
        let mut values = output.resources.iter().map(|(_, resource)| &resource.value);
        values.any(|value| matches!(value, Value::Domain(_)))
    };
    if has_domain(output) {
        return;
    }
    for site in sites.iter().filter(|site| site.is_own) {
        let door = own_entrances(site, host, reader)
            .map(|entrance| entrance.door)
            .find(|door| matches!(door, Door::Tls(_) | Door::Closed));
        let key = &site.gateway.meta.key;
        let certificate = match door {
            Some(Door::Tls(credential)) => {
                let secret = secret_of(reader, &credential, key.namespace());
                if reader.secret_names(&secret).is_none() {
                    let finding = no_secret(site, host, &credential, &secret);
                    output.findings.push(finding);
                }
                output.needs.push(Unit::Certificate(secret.clone()));
                Name::new(secret)
            }
            // A broader domain must not answer in its place, without what was asked for here.
            Some(Door::Closed) => Name::new(format!("{}/{CLOSED}", key.id())),
            Some(Door::Plain | Door::ToTls) | None => continue,
        };
        let domain = Domain {
            listeners: shared.tls_listeners.clone(),
            host: host.clone(),
            certificate: Some(certificate),
            alternatives: Box::default(),
            tls: shared.tls.clone(),
            client_auth: None,
        };
        let origin = Origin {
            kind: OriginKind::Gateway,
            id: key.id().clone(),
        };
        let resource = Resource {
            origin,
            value: Value::Domain(Box::new(domain)),
        };
        output
            .resources
            .push((Name::new(host.text().clone()), resource));
        return;
    }
}

/// The Secret of a credential: in the namespace of the gateway's workload, as Istio has it, or
/// else in that of the Gateway itself.
fn secret_of(reader: &mut Reader<'_>, credential: &str, namespace: &str) -> Arc<str> {
    let of_workload = format!("{}/{credential}", reader.settings().gateway_namespace);
    let is_there = reader.has_secret(&of_workload);
    if is_there || namespace == &*reader.settings().gateway_namespace {
        return of_workload.into();
    }
    let own = format!("{namespace}/{credential}");
    match reader.has_secret(&own) {
        true => own.into(),
        false => of_workload.into(),
    }
}

fn no_secret(site: &Site, host: &Host, credential: &str, secret: &str) -> Finding {
    let servers = site.gateway.spec.servers.iter();
    let at = servers.enumerate().find_map(|(at, server)| {
        let tls = server.tls.as_ref()?;
        (*tls.credential_name == *credential).then_some(at)
    });
    Finding::new(
        Severity::Error,
        &site.gateway.meta.key,
        format!("spec.servers[{}].tls.credentialName", at.unwrap_or(0)),
        format!("names Secret {secret}, which is not there, so {host} answers no handshake"),
        "create the Secret, of type kubernetes.io/tls",
    )
}

/// The VirtualServices on a host, the oldest first.
fn gather_tenants(reader: &mut Reader<'_>, host: &Host, sites: &[Site]) -> Vec<Tenant> {
    let mut found: BTreeMap<(i64, Arc<str>), Tenant> = BTreeMap::new();
    let above = broader(host);
    for site in sites {
        let id = site.gateway.meta.key.id().clone();
        let own = site.gateway.meta.key.namespace();
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
                let settings = reader.settings();
                let key = &service.meta.key;
                let exports = &service.spec.export_to;
                if !names::is_exported(exports, key.namespace(), &settings.gateway_namespace) {
                    continue;
                }
                let mut covering = vec![host];
                if pattern == host {
                    covering.extend(&above);
                }
                let mut entrances = Vec::new();
                for cover in covering {
                    let admitted = Some(key.namespace());
                    let spec = &site.gateway.spec;
                    let ways = entrance::for_host(spec, own, cover, admitted, settings);
                    entrances.extend(ways.map(|way| (id.clone(), way)));
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
    let of_workload = &*reader.settings().gateway_namespace;
    let findings = &mut output.findings;
    sites.retain(|site| {
        let key = &site.gateway.meta.key;
        let is_admitted = key.namespace() == owner.namespace() || key.namespace() == of_workload;
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
    reader: &Reader<'_>,
    host: &Host,
    sites: &[Site],
    tenants: &[Tenant],
    output: &mut Output,
) {
    let of_sites = sites.iter().flat_map(|site| {
        let ways = own_entrances(site, host, reader);
        ways.map(|way| (site.gateway.meta.key.id().clone(), way))
    });
    let of_tenants = tenants
        .iter()
        .flat_map(|tenant| tenant.entrances.iter().cloned());
    let mut all = of_sites.chain(of_tenants);
    let Some((gateway, way)) = all.find(|(_, way)| way.door == Door::ToTls) else {
        return;
    };
    let port = Some(reader.settings().https_port).filter(|port| *port != 443);
    let parts = RedirectParts {
        scheme: "https".into(),
        port,
        ..RedirectParts::default()
    };
    let route = Route {
        listeners: [way.listener].into(),
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
