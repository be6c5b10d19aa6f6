//! The routes and domains that Gateways and VirtualServices add up to on one host.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Action, Host, Name, Origin, OriginKind, PathMatch, Policy, Redirect, RedirectParts,
    RedirectTarget, Resource, Route, Source, Test, Value, ValueMatch, host::Pattern,
};

use super::entrance::{self, Door, Entrance};
use super::routes::{self, Ground};
use super::scene::{HostScene, Named, Site, Tenant, lost_to};
use super::{below, binding, credential, domain, stream};
use crate::engine::{Output, Reader, Shared};
use crate::resolve::names::{self, ServerHost, broader};
use crate::resolve::{Above, Claim, Claims, Shade};

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

/// The listeners where a Gateway hands on handshakes for a host as they come, of servers that
/// admit a namespace.
pub fn passing(reader: &mut Reader<'_>, gateway: &str, host: &Host, namespace: &str) -> Vec<Name> {
    let mut patterns = vec![host.clone()];
    patterns.extend(broader(host));
    let mut found = Vec::new();
    for pattern in &patterns {
        let Some(gateway) = reader.servers(gateway, pattern) else {
            continue;
        };
        let ways = entrance::for_host(reader, &gateway, pattern, Some(namespace)).into_iter();
        let passing = ways.filter(|way| way.door == Door::Passing);
        found.extend(passing.map(|way| way.listener));
    }
    found
}

/// Adds the domain and the routes of a host.
pub fn add_host(
    reader: &mut Reader<'_>,
    shared: &Shared,
    scene: HostScene<'_>,
    output: &mut Output,
) {
    let (host, sites) = (scene.host, &scene.sites);
    domain::yield_to_older(reader, &scene, output);
    below::judge_unnamed(reader, host, sites, output);
    let mut holders = stream::holders(reader, &scene, output);
    domain::add(reader, shared, (&scene, &holders), output);
    let mut tenants = gather_tenants(reader, host, sites);
    leave_shades(&scene, &mut tenants, output);
    keep_owner(&scene, &mut tenants, output);
    below::add(reader, shared, (&scene, &tenants), &mut holders, output);
    add_redirect(reader, host, sites, &tenants, output);
    routes::build(reader, &Ground::of(host), &tenants, output);
    stream::build(reader, host, (sites, &tenants), &holders, output);
}

/// The claims of Gateways and VirtualServices to a host. A server for hosts that nobody names lets
/// others claim them, and claims none.
pub fn claims_to(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Vec<Claim> {
    let is_disputed = reader.settings().late_claims && claims.are_of_several();
    let mut found = Vec::new();
    if host.pattern() != Pattern::Any {
        let gateways = claims.gateways.iter();
        let gateways = gateways.filter_map(|id| reader.servers(id, host));
        let gateways: Vec<Arc<Gateway>> = gateways.collect();
        found.extend(gateways.iter().map(|it| reader.claim(&it.meta, host)));
    }
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        if host.pattern() != Pattern::Any || below::answers_unnamed(reader, &service) {
            found.push(match is_disputed {
                true => claim_of_service(reader, host, &service),
                false => reader.claim(&service.meta, host),
            });
        }
    }
    found
}

/// The claim of a VirtualService, which has a host no longer than the Gateways by which it enters
/// cover it: a tenant could keep an old one and make its Gateway later. Gateways beside their
/// workload are the operator's, who may make them anew.
pub fn claim_of_service(reader: &mut Reader<'_>, host: &Host, service: &VirtualService) -> Claim {
    let claim = reader.claim(&service.meta, host);
    if !reader.settings().late_claims {
        return claim;
    }
    let own = service.meta.key.namespace();
    let mut patterns = vec![host.clone()];
    patterns.extend(broader(host));
    let mut oldest: Option<Claim> = None;
    for text in binding::gateways(service) {
        let Some(id) = names::gateway(text, own) else {
            continue;
        };
        for pattern in &patterns {
            let Some(gateway) = reader.servers(&id, pattern) else {
                continue;
            };
            if entrance::for_host(reader, &gateway, pattern, Some(own)).is_empty() {
                continue;
            }
            if reader.view().is_of(gateway.meta.key.namespace()) {
                return claim;
            }
            let covered = reader.claim(&gateway.meta, pattern);
            oldest = match oldest {
                Some(known) if known.is_before(&covered) => Some(known),
                _ => Some(covered),
            };
        }
    }
    match oldest {
        Some(covered) => claim.by(&covered),
        None => claim,
    }
}

/// The Gateways that name a host and take effect on it, the oldest first.
pub fn own_sites(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
    owner: Option<&Claim>,
) -> Vec<Arc<Gateway>> {
    let named = named_by_owner(reader, claims, owner);
    let gateways = claims.gateways.iter();
    let mut sites: Vec<Arc<Gateway>> = gateways.filter_map(|id| reader.servers(id, host)).collect();
    sites.retain(|gateway| takes_effect(reader, host, gateway, owner, &named));
    sites.sort_by_key(|gateway| (gateway.meta.created, gateway.meta.key.id().clone()));
    sites
}

/// The listeners where Gateways end TLS for exactly this host, by what no wildcard above it keeps
/// them from.
pub fn tls_listeners(
    reader: &mut Reader<'_>,
    host: &Host,
    sites: &[Site],
    above: &Above,
) -> Vec<Name> {
    let mut found = Vec::new();
    for site in sites.iter().filter(|site| site.is_own) {
        for way in entrance::effective(reader, &site.gateway, host) {
            if way.door.ends_tls() && credential::keeper(reader, above, site, &way).is_none() {
                found.push(way.listener);
            }
        }
    }
    found
}

/// The Gateways that VirtualServices of the owner of a host name, and that it lets in so.
pub fn named_by_owner(
    reader: &mut Reader<'_>,
    claims: &Claims,
    owner: Option<&Claim>,
) -> Vec<Arc<str>> {
    let Some(owner) = owner else {
        return Vec::new();
    };
    let mut named = Vec::new();
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let own = service.meta.key.namespace();
        if owner.is_of(own) {
            let gateways = binding::gateways(&service).iter();
            named.extend(gateways.filter_map(|text| names::gateway(text, own)));
        }
    }
    named
}

/// Whether a Gateway that names a host has a say there: that of its owner, that of the gateway's
/// own namespace, and one that the owner lets in.
fn takes_effect(
    reader: &Reader<'_>,
    host: &Host,
    gateway: &Gateway,
    owner: Option<&Claim>,
    named: &[Arc<str>],
) -> bool {
    let key = &gateway.meta.key;
    let is_owned = owner.filter(|_| host.pattern() != Pattern::Any);
    is_owned.is_none_or(|owner| {
        owner.is_of(key.namespace())
            || reader.view().is_of(key.namespace())
            || named.contains(key.id())
    })
}

/// The Gateways that matter to a host, the oldest first. Those that name it and are of others than
/// its owner get a finding.
pub fn gather_sites(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
    owner: Option<&Claim>,
    findings: &mut Vec<Finding>,
) -> Vec<Site> {
    let mut ids = claims.gateways.clone();
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let own = service.meta.key.namespace();
        let named = binding::gateways(&service).iter();
        ids.extend(named.filter_map(|text| names::gateway(text, own)));
    }
    ids.sort_unstable();
    ids.dedup();
    let named = named_by_owner(reader, claims, owner);
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
    sites.retain(|site| {
        let gateway = &site.gateway;
        let is_kept = !site.is_own || takes_effect(reader, host, gateway, owner, &named);
        if let Some(owner) = owner.filter(|_| !is_kept) {
            findings.push(foreign(&gateway.meta.key, "spec.servers", host, &owner.key));
        }
        is_kept
    });
    sites.sort_by_key(|site| {
        let meta = &site.gateway.meta;
        (meta.created, meta.key.id().clone())
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
                let names = reader.names_of(&service);
                let named = match names.has_host(pattern) {
                    true => Named::Hosts,
                    // Its hosts, which its names for TLS are within, are among those above too.
                    false if pattern != host => continue,
                    false => Named::Sni,
                };
                let mut covering = vec![host];
                if pattern == host {
                    covering.extend(&above);
                }
                let mut entrances = Vec::new();
                for cover in covering {
                    let admitted = Some(key.namespace());
                    let gateway = &site.gateway;
                    let mut ways = entrance::for_host(reader, gateway, cover, admitted);
                    entrance::keep_answering(reader, gateway, host, &mut ways);
                    entrances.extend(ways.into_iter().map(|way| (id.clone(), way)));
                }
                if named == Named::Sni {
                    entrances.retain(|(_, way): &(_, Entrance)| way.door == Door::Passing);
                }
                if entrances.is_empty() {
                    continue;
                }
                let place = (service.meta.created, key.id().clone());
                let tenant = found.entry(place).or_insert_with(|| Tenant {
                    service: service.clone(),
                    names,
                    entrances: Vec::new(),
                    named,
                });
                if named == Named::Hosts {
                    tenant.named = named;
                }
                tenant.entrances.extend(entrances);
            }
        }
    }
    found.into_values().collect()
}

/// Takes out the ways in where a wildcard of another namespace ends TLS.
fn leave_shades(scene: &HostScene<'_>, tenants: &mut [Tenant], output: &mut Output) {
    for tenant in tenants {
        let service = tenant.service.clone();
        let own = service.meta.key.namespace();
        let over = |way: &Entrance| scene.shade_over(way, own);
        let first = tenant.entrances.iter().find_map(|(_, way)| over(way));
        if let Some(shade) = first {
            output.findings.push(shaded(tenant, scene.host, shade));
        }
        tenant.entrances.retain(|(_, way)| over(way).is_none());
    }
}

/// Leaves the VirtualServices of the namespace that the host belongs to. A Gateway to which it
/// belongs lets others in: those that its servers name, and otherwise the namespace of the oldest.
fn keep_owner(scene: &HostScene<'_>, tenants: &mut Vec<Tenant>, output: &mut Output) {
    let (host, Some(owner)) = (scene.host, &scene.owner) else {
        return;
    };
    let findings = &mut output.findings;
    let sites = scene.sites.iter().filter(|site| site.is_own);
    let own: HashMap<&str, &Gateway> = sites
        .map(|site| &*site.gateway)
        .filter(|gateway| owner.is_of(gateway.meta.key.namespace()))
        .map(|gateway| (&**gateway.meta.key.id(), gateway))
        .collect();
    tenants.retain_mut(|tenant| {
        let key = &tenant.service.meta.key;
        if owner.is_of(key.namespace()) || tenant.entrances.is_empty() {
            return !tenant.entrances.is_empty();
        }
        tenant.entrances.retain(|(id, _)| own.contains_key(&**id));
        let is_kept = !tenant.entrances.is_empty();
        if !is_kept {
            findings.push(foreign(key, &tenant.field(host), host, &owner.key));
        }
        is_kept
    });
    let mut exact = tenants.iter().filter(|tenant| tenant.is_exact(host));
    let Some(first) = exact.next().or(tenants.first()) else {
        return;
    };
    let first = first.service.meta.key.clone();
    // A server may name many, and many may enter by it.
    let mut named: HashMap<(&str, usize), HashSet<&str>> = HashMap::new();
    tenants.retain(|tenant| {
        let key = &tenant.service.meta.key;
        let namespace = key.namespace();
        let is_named = |(id, way): &(Arc<str>, Entrance)| {
            let Some((id, gateway)) = own.get_key_value(&**id) else {
                return false;
            };
            let named = named.entry((*id, way.server));
            let named = named.or_insert_with(|| namespaces_of(gateway, way.server));
            named.contains(namespace)
        };
        let is_kept = namespace == first.namespace()
            || owner.is_of(namespace)
            || tenant.entrances.iter().any(is_named);
        if !is_kept {
            findings.push(foreign(key, &tenant.field(host), host, &first));
        }
        is_kept
    });
}

/// The namespaces that a server names with its hosts.
fn namespaces_of(gateway: &Gateway, server: usize) -> HashSet<&str> {
    let server = gateway.spec.servers.get(server);
    let hosts = server.into_iter().flat_map(|server| server.hosts.iter());
    hosts.map(|text| ServerHost::read(text).namespace).collect()
}

fn foreign(key: &ObjectKey, field: &str, host: &Host, owner: &ObjectKey) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is without effect on {host}, which belongs to namespace {} by {owner}",
            owner.namespace()
        ),
        "use another host, or serve with --host-sharing=cluster",
    )
}

fn shaded(tenant: &Tenant, host: &Host, shade: &Shade) -> Finding {
    let (key, owner) = (&tenant.service.meta.key, &shade.claim.key);
    if tenant.named == Named::Sni || tenant.service.spec.http.is_empty() {
        return lost_to(key, &tenant.field(host), host, shade);
    }
    Finding::new(
        Severity::Warning,
        key,
        "spec.hosts",
        format!(
            "is served over plain HTTP only: HTTPS of {host} belongs to namespace {} by {} of \
             {owner}",
            owner.namespace(),
            shade.written()
        ),
        "give the host a server with a certificate of its own, or let the owner of the wildcard \
         share it: by namespaces in the hosts of its Gateway, or by the annotation \
         myriad.dev/wildcard-sharing of its Ingress",
    )
}

/// Requests by a server that redirects reach no VirtualService, unless their client speaks HTTPS
/// with a balancer in front that is trusted.
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
        let own = entrance::effective(reader, &site.gateway, host);
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
    let name = Name::new(format!("{gateway}/{host}/to-https"));
    let redirect = redirect_to_tls(reader, host, gateway, listeners);
    output.resources.push((name, redirect));
}

/// The route of a host by which a Gateway sends requests to HTTPS.
pub fn redirect_to_tls(
    reader: &Reader<'_>,
    host: &Host,
    gateway: &Arc<str>,
    listeners: Vec<Name>,
) -> Resource {
    let port = Some(reader.settings().https_port).filter(|port| *port != 443);
    let plain = ValueMatch {
        source: Source::Scheme,
        name: Box::default(),
        test: Test::Exact("http".into()),
        invert: false,
    };
    let parts = RedirectParts {
        scheme: "https".into(),
        port,
        ..RedirectParts::default()
    };
    let route = Route {
        listeners: listeners.into(),
        hosts: [host.clone()].into(),
        path: PathMatch::Prefix("/".into()),
        conditions: [plain].into(),
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
    Resource {
        origin,
        value: Value::Route(Box::new(route)),
    }
}
