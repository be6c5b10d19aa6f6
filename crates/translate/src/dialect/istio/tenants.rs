//! The VirtualServices on a host, and those of them that stay: whose the host is, or a port.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Host, Name, host::Pattern};

use super::admission::may_claim;
use super::binding;
use super::entrance::{self, Door, Entrance};
use super::scene::{HostScene, Named, Site, Tenant, foreign, lost_to};
use super::service_claim::{Time, claim_of_service, time_at};
use super::service_names::ServiceNames;
use crate::engine::{Output, Reader, namespace_of};
use crate::resolve::losers::{self, LOSERS_MAX};
use crate::resolve::names::{self, broader};
use crate::resolve::{Claim, Shade, proof};
use crate::settings::HostSharing;

/// The VirtualServices on a host, the oldest first. Where it has an owner, those of others that
/// name it are left out unless they enter by a Gateway of the owner that names it.
pub(super) fn gather(
    reader: &mut Reader<'_>,
    (host, owner): (&Host, Option<&Claim>),
    sites: &[Site],
    output: &mut Output,
) -> Vec<Tenant> {
    let mut found: BTreeMap<Arc<str>, Tenant> = BTreeMap::new();
    let above = broader(host);
    let mut claims: HashMap<(Arc<str>, &Host), Claim> = HashMap::new();
    let mut kept = 0;
    for site in sites {
        let id = site.gateway.meta.key.id().clone();
        // One that names the host itself enters by every server that covers it; one that names
        // a broader pattern only by those that name the host.
        let mut bound = vec![(host, reader.bound_of(&id, host, let_in(site, owner)))];
        if site.is_own {
            for pattern in &above {
                bound.push((pattern, reader.bound(&id, pattern)));
            }
        }
        for (pattern, services) in bound {
            let mut covering = vec![host];
            if pattern == host {
                covering.extend(&above);
            }
            for service in services {
                let key = &service.meta.key;
                let own = key.namespace();
                let names = reader.names_of(&service);
                let is_named = names.has_host(pattern);
                if !may_enter(reader, &service, host) {
                    if pattern != host && is_named && kept < LOSERS_MAX {
                        let finding = kept_off(reader, site, (&service, pattern), host);
                        kept += usize::from(finding.is_some());
                        output.findings.extend(finding);
                    }
                    continue;
                }
                let named = match is_named {
                    true => Named::Hosts,
                    // Its hosts, which its names for TLS are within, are among those above too.
                    false if pattern != host => continue,
                    false => Named::Sni,
                };
                let known = found.get(key.id());
                let known = known.map_or(0, |tenant| tenant.entrances.len());
                // One more than it may have says that there are.
                let left = (names.ways_max() + 1).saturating_sub(known);
                let ways = (host, &*covering, own, named);
                let entrances = enter(reader, &site.gateway, ways, left);
                if entrances.is_empty() {
                    continue;
                }
                // By whatever Gateway it is found, its claim is the same.
                let claim = claims.entry((key.id().clone(), pattern));
                let claim = claim.or_insert_with(|| claim_of_service(reader, pattern, &service));
                let claim = claim.clone();
                let tenant = join(&mut found, (&service, names), (claim, named));
                let entrances = entrances.into_iter().map(|way| (id.clone(), way));
                tenant.entrances.extend(entrances);
            }
        }
    }
    let mut tenants: Vec<Tenant> = found.into_values().collect();
    // Of the same age they stay in the order of their names.
    tenants.sort_by_key(|tenant| tenant.claim.time());
    let tenants = tenants.into_iter().map(|tenant| bounded(tenant, output));
    tenants.collect()
}

/// The tenant of a VirtualService among those that were found, by the oldest of its claims.
fn join<'a>(
    found: &'a mut BTreeMap<Arc<str>, Tenant>,
    (service, names): (&Arc<VirtualService>, Arc<ServiceNames>),
    (claim, named): (Claim, Named),
) -> &'a mut Tenant {
    let tenant = found.entry(service.meta.key.id().clone());
    let tenant = tenant.or_insert_with(|| Tenant {
        service: service.clone(),
        names,
        claim: claim.clone(),
        entrances: Vec::new(),
        named,
    });
    if claim.is_before(&tenant.claim) {
        tenant.claim = claim;
    }
    if named == Named::Hosts {
        tenant.named = named;
    }
    tenant
}

/// A tenant with as many ways in as it may have.
fn bounded(mut tenant: Tenant, output: &mut Output) -> Tenant {
    let max = tenant.names.ways_max();
    if tenant.entrances.len() > max {
        tenant.entrances.truncate(max);
        let finding = binding::beyond_ways(&tenant.service, max);
        output.findings.push(finding);
    }
    tenant
}

/// Whether a VirtualService is seen, and may have a host.
fn may_enter(reader: &Reader<'_>, service: &VirtualService, host: &Host) -> bool {
    let key = &service.meta.key;
    let is_seen = reader.view().sees(&service.spec.export_to, key.namespace());
    is_seen && may_claim(reader, key, host)
}

/// The finding about a VirtualService for a broader pattern that would enter by a Gateway for a
/// host, which its namespace may not claim.
fn kept_off(
    reader: &mut Reader<'_>,
    site: &Site,
    (service, pattern): (&VirtualService, &Host),
    host: &Host,
) -> Option<Finding> {
    let key = &service.meta.key;
    let is_seen = reader.view().sees(&service.spec.export_to, key.namespace());
    if !is_seen || !may_claim(reader, key, pattern) {
        return None;
    }
    let ways = entrance::for_host(reader, &site.gateway, host, Some(key.namespace()));
    if ways.is_empty() {
        return None;
    }
    let mut hosts = service.spec.hosts.iter();
    let at = hosts.position(|text| names::host(text).is_ok_and(|known| known == *pattern))?;
    let field = format!("spec.hosts[{at}]");
    Some(losers::kept_off(key, field, host, reader.settings()))
}

/// The only namespace whose VirtualServices may enter by a Gateway, where there is one.
fn let_in<'a>(site: &Site, owner: Option<&'a Claim>) -> Option<&'a str> {
    let namespace = owner?.key.namespace();
    let is_of_owner = site.gateway.meta.key.namespace() == namespace;
    (!site.is_own || !is_of_owner).then_some(namespace)
}

/// The claims of VirtualServices of others than the owner of a host that were not gathered.
pub(super) fn strangers(
    reader: &Reader<'_>,
    scene: &HostScene<'_>,
    owner: &Claim,
    tenants: &[Tenant],
) -> Vec<Claim> {
    let tenants = tenants.iter();
    let known: HashSet<&str> = tenants
        .map(|tenant| &**tenant.service.meta.key.id())
        .collect();
    let ids = scene.claims.services.iter();
    let lost = ids.filter(|id| !owner.is_of(namespace_of(id)) && !known.contains(&***id));
    let claims = lost.filter_map(|id| reader.claim_of(ObjectKind::VirtualService, id, scene.host));
    claims.collect()
}

/// The ways in to a host by the servers of a Gateway that cover it, each server once, for what a
/// VirtualService is there; some of them if there are more than are asked for.
fn enter(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    (host, covering, namespace, named): (&Host, &[&Host], &str, Named),
    max: usize,
) -> Vec<Entrance> {
    let mut found: Vec<Entrance> = Vec::new();
    let mut known: HashSet<(usize, Name)> = HashSet::new();
    for cover in covering {
        if found.len() >= max || !reader.is_named(gateway, None, cover) {
            continue;
        }
        let mut ways = entrance::for_host(reader, gateway, cover, Some(namespace));
        entrance::keep_let(reader, gateway, (host, namespace), &mut ways);
        ways.retain(|way| named != Named::Sni || way.door == Door::Passing);
        ways.retain(|way| known.insert((way.server, way.listener.clone())));
        found.extend(ways);
    }
    found.truncate(max);
    found
}

/// Takes out the ways in where a wildcard of another namespace ends TLS.
pub(super) fn leave_shades(scene: &HostScene<'_>, tenants: &mut [Tenant], output: &mut Output) {
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
/// Plain connections of a port belong to its Gateway alone.
pub(super) fn keep_owner(
    reader: &Reader<'_>,
    scene: &HostScene<'_>,
    tenants: &mut Vec<Tenant>,
    output: &mut Output,
) {
    let (host, Some(owner)) = (scene.host, &scene.owner) else {
        return;
    };
    let (settings, mut lost, mut untold) = (reader.settings(), 0, None);
    let sites = scene.sites.iter().filter(|site| site.is_own);
    let keys = sites.map(|site| &site.gateway.meta.key);
    let keys = keys.filter(|key| owner.is_of(key.namespace()));
    let own: HashSet<&str> = keys.map(|key| &**key.id()).collect();
    let mut lose = |tenant: &mut Tenant, owner: &ObjectKey| {
        tenant.entrances.retain(|(_, way)| is_of_port(host, way));
        let key = &tenant.service.meta.key;
        lost += 1;
        if tenant.is_exact(host) {
            let loser = [reader.claim(&tenant.service.meta, host)];
            proof::note(settings, host, (owner, &loser[..]), output);
        }
        if lost <= LOSERS_MAX {
            let finding = foreign(key, &tenant.field(host), host, owner, settings);
            output.findings.push(finding);
        } else if untold.is_none() {
            untold = Some((key.clone(), owner.clone()));
        }
    };
    for tenant in tenants.iter_mut().filter(|tenant| is_by_name(host, tenant)) {
        if !owner.is_of(tenant.service.meta.key.namespace()) {
            let ways = &tenant.entrances;
            let is_in =
                |(id, way): &(Arc<str>, Entrance)| !is_of_port(host, way) && own.contains(&**id);
            match ways.iter().any(is_in) {
                true => tenant
                    .entrances
                    .retain(|(id, way)| is_of_port(host, way) || own.contains(&**id)),
                false => lose(tenant, &owner.key),
            }
        }
    }
    let mut by_name = tenants.iter().filter(|tenant| is_by_name(host, tenant));
    let exact = by_name.clone().find(|tenant| tenant.is_exact(host));
    let first = exact.or_else(|| by_name.next());
    if let Some(first) = first.map(|tenant| tenant.service.meta.key.clone()) {
        for tenant in tenants.iter_mut().filter(|tenant| is_by_name(host, tenant)) {
            let namespace = tenant.service.meta.key.namespace();
            let is_named = |(id, way): &(Arc<str>, Entrance)| {
                way.is_naming && !is_of_port(host, way) && own.contains(&**id)
            };
            let is_kept = namespace == first.namespace()
                || owner.is_of(namespace)
                || tenant.entrances.iter().any(is_named);
            if !is_kept {
                lose(tenant, &first);
            }
        }
    }
    if let Some((key, owner)) = untold {
        let count = lost - LOSERS_MAX;
        let finding = losers::untold(&key, host, Some(&owner), count);
        output.findings.push(finding);
    }
    tenants.retain(|tenant| !tenant.entrances.is_empty());
}

/// Leaves, of the VirtualServices by which the plain connections of a port are led, those of the
/// namespace of the oldest: of the Gateway's own if there is one, and of whoever it lets in. Beside
/// it those stay that the server names.
pub(super) fn keep_ports(
    reader: &Reader<'_>,
    scene: &HostScene<'_>,
    tenants: &mut Vec<Tenant>,
    output: &mut Output,
) {
    let is_shared = reader.settings().host_sharing == HostSharing::Cluster;
    if is_shared || scene.host.pattern() != Pattern::Any {
        return;
    }
    // By listener: that of the Gateway's own namespace, or else the oldest.
    let mut holders: HashMap<Name, (PortTurn, ObjectKey)> = HashMap::new();
    for (number, tenant) in tenants.iter().enumerate() {
        let key = &tenant.service.meta.key;
        let whose = (&*tenant.service, tenant.claim.time());
        for (id, way) in &tenant.entrances {
            if !is_of_port(scene.host, way) {
                continue;
            }
            let is_foreign = namespace_of(id) != key.namespace();
            if let Some(time) = time_at(reader, whose, (id, way.port)) {
                let turn = (is_foreign, time, number);
                let holder = holders.entry(way.listener.clone());
                let holder = holder.or_insert_with(|| (turn, key.clone()));
                if turn < holder.0 {
                    *holder = (turn, key.clone());
                }
            }
        }
    }
    for tenant in tenants.iter_mut() {
        let service = tenant.service.clone();
        let (key, whose) = (&service.meta.key, (&*service, tenant.claim.time()));
        let mut lost: Option<ObjectKey> = None;
        tenant.entrances.retain(|(id, way)| {
            let holder = holders.get(&way.listener);
            let has_rules = || time_at(reader, whose, (id, way.port)).is_some();
            let of_port = holder.filter(|_| is_of_port(scene.host, way) && has_rules());
            let Some((_, holder)) = of_port else {
                return true;
            };
            let is_kept = holder.namespace() == key.namespace()
                || namespace_of(id) == key.namespace()
                || way.is_naming;
            if !is_kept {
                lost.get_or_insert_with(|| holder.clone());
            }
            is_kept
        });
        if let Some(holder) = lost {
            output.findings.push(Finding::new(
                Severity::Error,
                key,
                "spec.gateways",
                format!(
                    "is without effect on plain TCP of a port, which belongs to namespace {} by \
                     {holder}",
                    holder.namespace()
                ),
                "use a port of a Gateway of this namespace, or let the server of the Gateway name \
                 this namespace with its hosts",
            ));
        }
    }
    tenants.retain(|tenant| !tenant.entrances.is_empty());
}

/// The place of a VirtualService among those that lead the plain connections of a port: whether its
/// Gateway is of another namespace, its age there, and its place among all.
type PortTurn = (bool, Time, usize);

/// Whether connections that come by a way in tell no name, nor does the host stand for any.
fn is_of_port(host: &Host, way: &Entrance) -> bool {
    host.pattern() == Pattern::Any && way.door == Door::Stream
}

/// Whether a VirtualService is on a host for connections that tell its name.
fn is_by_name(host: &Host, tenant: &Tenant) -> bool {
    let mut ways = tenant.entrances.iter();
    ways.any(|(_, way)| !is_of_port(host, way))
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
