//! The routes and domains that Gateways and VirtualServices add up to on one host.

use std::sync::Arc;

use myriad_api::Finding;
use myriad_api::istio::{Gateway, VirtualService};
use myriad_model::{
    Action, Draft, Host, Label, Name, Origin, OriginKind, PathMatch, Policy, Redirect,
    RedirectParts, RedirectTarget, Route, Source, Test, ValueMatch, host::Pattern,
};

use super::entrance::{self, Door, Entrance};
use super::narrower::Narrower;
use super::routes::{self, Ground};
use super::scene::{HostScene, Site, Tenant, foreign};
use super::{below, binding, credential, domain, stream, tenants};
use crate::engine::{Output, Reader, Shared};
use crate::resolve::names::{self, broader};
use crate::resolve::{Above, Claim, Claims};

/// The status of a redirect to HTTPS.
const TO_TLS_STATUS: u16 = 301;

/// Whether a server of a Gateway covers a host and admits a namespace.
pub(crate) fn is_covered(
    reader: &mut Reader<'_>,
    gateway: &str,
    host: &Host,
    namespace: &str,
) -> bool {
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
pub(crate) fn passing(
    reader: &mut Reader<'_>,
    gateway: &str,
    host: &Host,
    namespace: &str,
) -> Vec<Name> {
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
pub(crate) fn add_host(
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
    let mut tenants = tenants::gather(reader, host, sites, output);
    tenants::leave_shades(&scene, &mut tenants, output);
    tenants::keep_owner(&scene, &mut tenants, output);
    tenants::keep_ports(reader, &scene, &mut tenants, output);
    below::add(reader, shared, (&scene, &tenants), &mut holders, output);
    add_redirect(reader, host, sites, &tenants, output);
    let mut narrower = Narrower::default();
    routes::build(reader, &Ground::of(host), &tenants, &mut narrower, output);
    let rest = (&holders, &mut narrower);
    stream::build(reader, host, (sites, &tenants), rest, output);
}

/// The claims of Gateways and VirtualServices to a host. A server for hosts that nobody names lets
/// others claim them, and claims none.
pub(crate) fn claims_to(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Vec<Claim> {
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
pub(crate) fn claim_of_service(
    reader: &mut Reader<'_>,
    host: &Host,
    service: &VirtualService,
) -> Claim {
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
pub(crate) fn own_sites(
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
pub(crate) fn tls_listeners(
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
pub(crate) fn named_by_owner(
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
pub(crate) fn gather_sites(
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
    redirect_to_tls(reader, host, gateway, ("to-https", listeners), output);
}

/// Adds the route of a host by which a Gateway sends requests to HTTPS, with the end of its name.
pub(crate) fn redirect_to_tls(
    reader: &Reader<'_>,
    host: &Host,
    gateway: &Arc<str>,
    (label, listeners): (&str, Vec<Name>),
    output: &mut Output,
) {
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
        action: Action::Redirect(Arc::new(Redirect {
            status: TO_TLS_STATUS,
            target: RedirectTarget::Parts(Box::new(parts)),
        })),
        policy: Arc::new(Policy::default()),
    };
    let origin = Origin {
        kind: OriginKind::Gateway,
        id: gateway.clone(),
    };
    let draft = Draft {
        origin: origin.clone(),
        label: Label::Whole(label.into()),
        rule: 0,
        matched: 0,
        route,
    };
    let prefix = format!("{gateway}/{host}/");
    output.routes.add(prefix, origin, draft);
}
