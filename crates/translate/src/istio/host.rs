//! What Gateways and VirtualServices add up to on one host.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{
    Action, Host, Name, Origin, OriginKind, PathMatch, Policy, Redirect, RedirectParts,
    RedirectTarget, Resource, Route, Source, Test, Value, ValueMatch, host::Pattern,
};

use super::entrance::{self, Door, Entrance};
use super::names::{self, ServerHost, broader, is_host};
use super::routes::Ground;
use super::{below, domain, routes, stream};
use crate::engine::{Reader, Shared};
use crate::host::Claims;
use crate::output::Output;
use crate::ownership::{Above, Claim, Shade};

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
    /// By what it is there.
    pub named: Named,
}

/// By what a VirtualService is on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Its hosts, one of which is this one or a broader one.
    Hosts,
    /// The names of its rules for TLS alone: nothing but handshakes that go on as they come.
    Sni,
    /// Its hosts, at sidecars, where names within the host are no hosts of their own.
    Captured,
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

/// The VirtualServices of the owner of a wildcard whose rules for TLS hand on all names below it,
/// and the listeners where they do.
pub fn passed_on(
    reader: &mut Reader<'_>,
    pattern: &Host,
    claims: &Claims,
    owner: Option<&Claim>,
) -> Vec<(Arc<VirtualService>, Vec<Name>)> {
    let mut found = Vec::new();
    if pattern.pattern() == Pattern::Any {
        return found;
    }
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        let own = service.meta.key.namespace();
        if owner.is_some_and(|owner| !owner.is_of(own)) || !stream::takes(&service, pattern) {
            continue;
        }
        let gateways = service.spec.gateways.iter();
        let gateways: Vec<Arc<str>> = gateways
            .filter_map(|text| names::gateway(text, own))
            .collect();
        let mut listeners = Vec::new();
        for gateway in gateways {
            listeners.extend(passing(reader, &gateway, pattern, own));
        }
        listeners.sort_unstable();
        listeners.dedup();
        found.push((service, listeners));
    }
    found
}

/// A host, and whose it is.
pub struct HostScene<'a> {
    /// The host.
    pub host: &'a Host,
    /// The Gateways that matter to it, the oldest first.
    pub sites: Vec<Site>,
    /// The oldest object that claims it; none where hosts are shared.
    pub owner: Option<Claim>,
    /// What wildcards above it do with its handshakes.
    pub above: &'a Above,
}

impl HostScene<'_> {
    /// The wildcard of another namespace that keeps objects of a namespace from a way in. What
    /// shows a certificate of its own, as handshakes that are handed on do, yields to older
    /// wildcards alone.
    pub fn shade_over(&self, way: &Entrance, namespace: &str) -> Option<&Shade> {
        let mut shades = self.above.shades.iter();
        shades.find(|shade| {
            shade.listener == way.listener
                && !shade.admits(namespace)
                && (way.door != Door::Passing || shade.is_before(self.owner.as_ref()))
        })
    }
}

/// Adds the domain and the routes of a host.
pub fn add_host(
    reader: &mut Reader<'_>,
    shared: &Shared,
    scene: HostScene<'_>,
    output: &mut Output,
) {
    let (host, sites) = (scene.host, &scene.sites);
    domain::yield_to_older(reader, host, sites, output);
    below::judge_unnamed(reader, host, sites, output);
    let mut holders = stream::holders(reader, &scene, output);
    domain::add(reader, shared, host, (sites, &holders), output);
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
    let mut found = Vec::new();
    if host.pattern() != Pattern::Any {
        let gateways = claims.gateways.iter();
        let gateways = gateways.filter_map(|id| reader.servers(id, host));
        found.extend(gateways.map(|gateway| Claim::of(&gateway.meta)));
    }
    for id in &claims.services {
        let Some(service) = reader.virtual_service_itself(id) else {
            continue;
        };
        if host.pattern() != Pattern::Any || below::answers_unnamed(reader, &service) {
            found.push(Claim::of(&service.meta));
        }
    }
    found
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

/// What a server of a Gateway does with handshakes for a pattern.
pub struct End {
    /// The listener.
    pub listener: Name,
    /// The namespaces that may answer there.
    pub admitted: Vec<Box<str>>,
    /// Whether they go on as they come.
    pub is_passing: bool,
}

/// Where handshakes for a host come to a Gateway.
pub fn tls_ends(reader: &mut Reader<'_>, gateway: &Gateway, host: &Host) -> Vec<End> {
    let own = gateway.meta.key.namespace();
    let ways = entrance::effective(reader, gateway, host).into_iter();
    let ends = ways.filter(|way| way.door.takes_tls());
    let end = |way: Entrance| {
        let server = gateway.spec.servers.get(way.server)?;
        let named = server.hosts.iter().map(|text| ServerHost::read(text));
        let admitted = named.filter(|named| is_host(named.host, host));
        let admitted = admitted.map(|named| match named.namespace {
            "." => own.into(),
            namespace => namespace.into(),
        });
        Some(End {
            admitted: admitted.collect(),
            is_passing: way.door == Door::Passing,
            listener: way.listener,
        })
    };
    ends.filter_map(end).collect()
}

/// The listeners where Gateways end TLS for exactly this host.
pub fn tls_listeners(reader: &mut Reader<'_>, host: &Host, sites: &[Site]) -> Vec<Name> {
    let mut found = Vec::new();
    for site in sites.iter().filter(|site| site.is_own) {
        let ways = entrance::effective(reader, &site.gateway, host).into_iter();
        let ends = ways.filter(|way| way.door.ends_tls());
        found.extend(ends.map(|way| way.listener));
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
            let gateways = service.spec.gateways.iter();
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
        let named = service.spec.gateways.iter();
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
                let mut hosts = service.spec.hosts.iter();
                let named = match hosts.any(|text| is_host(text, pattern)) {
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
    let own: Vec<&Arc<Gateway>> = sites
        .map(|site| &site.gateway)
        .filter(|gateway| owner.is_of(gateway.meta.key.namespace()))
        .collect();
    let find = |id: &Arc<str>| own.iter().find(|known| known.meta.key.id() == id);
    tenants.retain_mut(|tenant| {
        let key = &tenant.service.meta.key;
        if owner.is_of(key.namespace()) || tenant.entrances.is_empty() {
            return !tenant.entrances.is_empty();
        }
        tenant.entrances.retain(|(id, _)| find(id).is_some());
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
    tenants.retain(|tenant| {
        let key = &tenant.service.meta.key;
        let namespace = key.namespace();
        let is_named = |(id, way): &(Arc<str>, Entrance)| {
            let server = find(id).and_then(|gateway| gateway.spec.servers.get(way.server));
            server.is_some_and(|server| {
                let mut hosts = server.hosts.iter();
                hosts.any(|text| ServerHost::read(text).namespace == namespace)
            })
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
            shade.pattern
        ),
        "give the host a server with a certificate of its own, or let the owner of the wildcard \
         share it: by namespaces in the hosts of its Gateway, or by the annotation \
         myriad.dev/wildcard-sharing of its Ingress",
    )
}

/// The finding about handshakes for a host, which a wildcard of another namespace keeps.
pub fn lost_to(key: &ObjectKey, field: &str, host: &Host, shade: &Shade) -> Finding {
    let owner = &shade.claim.key;
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is without effect on {host}, whose TLS belongs to namespace {} by {} of {owner}",
            owner.namespace(),
            shade.pattern
        ),
        "use another host, or let the owner of the wildcard share it: by namespaces in the hosts \
         of its Gateway, or by the annotation myriad.dev/wildcard-sharing of its Ingress",
    )
}

impl Tenant {
    /// Whether it names exactly this host.
    fn is_exact(&self, host: &Host) -> bool {
        let mut hosts = self.service.spec.hosts.iter();
        hosts.any(|text| is_host(text, host)) || stream::takes(&self.service, host)
    }

    /// The field by which it is on a host.
    pub fn field(&self, host: &Host) -> String {
        let of_name = match self.named {
            Named::Sni => stream::field_of(&self.service, host),
            Named::Hosts | Named::Captured => None,
        };
        of_name.unwrap_or_else(|| "spec.hosts".to_owned())
    }
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
    let resource = Resource {
        origin,
        value: Value::Route(Box::new(route)),
    };
    let name = format!("{gateway}/{host}/to-https");
    output.resources.push((Name::new(name), resource));
}
