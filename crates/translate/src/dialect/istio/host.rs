//! The routes and domains that Gateways and VirtualServices add up to on one host.

use std::sync::Arc;

use myriad_api::istio::Gateway;
use myriad_api::{Finding, ObjectKind};
use myriad_model::{
    Action, Draft, Host, Label, Name, Origin, OriginKind, PathMatch, Policy, Redirect,
    RedirectParts, RedirectTarget, Route, Source, Test, ValueMatch, host::Pattern,
};

use super::entrance::{self, Door, Entrance};
use super::narrower::Narrower;
use super::routes::{self, Ground};
use super::scene::{HostScene, Site, Tenant, foreign};
use super::service_claim::claim_of_service;
use super::{below, binding, credential, domain, stream, tenants};
use crate::engine::{Output, Reader, Shared, namespace_of};
use crate::resolve::losers::Loss;
use crate::resolve::names::{self, broader};
use crate::resolve::proof;
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
    let owner = holder(host, scene.owner.as_ref());
    let mut tenants = tenants::gather(reader, (host, owner), sites, output);
    if let Some(owner) = owner {
        let strangers = tenants::strangers(reader, &scene, owner, &tenants);
        let has_it = Some(&owner.key);
        proof::tell(reader.settings(), host, has_it, strangers, output);
    }
    tenants::leave_shades(&scene, &mut tenants, output);
    tenants::keep_owner(reader, &scene, &mut tenants, output);
    tenants::keep_ports(reader, &scene, &mut tenants, output);
    below::add(reader, shared, (&scene, &tenants), &mut holders, output);
    add_redirect(reader, host, sites, &tenants, output);
    let mut narrower = Narrower::default();
    routes::build(reader, &Ground::of(host), &tenants, &mut narrower, output);
    let rest = (&holders, &mut narrower);
    stream::build(reader, host, (sites, &tenants), rest, output);
}

/// The oldest claim of Gateways and VirtualServices to a host. A server for hosts that nobody names
/// lets others claim them, and claims none. Anybody may claim it, so no more of them are read than
/// have to be.
pub(crate) fn oldest_claim(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Option<Claim> {
    let is_disputed = reader.settings().late_claims && claims.are_of_several();
    let is_any = host.pattern() == Pattern::Any;
    let mut oldest = match is_any {
        true => None,
        false => oldest_gateway(reader, host, claims),
    };
    for id in &claims.services {
        reader.read_object(ObjectKind::VirtualService, id);
    }
    for claim in by_age(reader, host, ObjectKind::VirtualService, &claims.services) {
        // By the Gateways where it enters a claim is younger, and never older.
        if oldest.as_ref().is_some_and(|known| known.is_before(&claim)) {
            break;
        }
        let Some(service) = reader.virtual_service_itself(claim.key.id()) else {
            continue;
        };
        if is_any && !below::answers_unnamed(reader, &service) {
            continue;
        }
        let claim = match is_disputed {
            true => claim_of_service(reader, host, &service),
            false => claim,
        };
        if oldest.as_ref().is_none_or(|known| claim.is_before(known)) {
            oldest = Some(claim);
        }
    }
    oldest
}

/// The oldest claim of a Gateway that names a host.
fn oldest_gateway(reader: &mut Reader<'_>, host: &Host, claims: &Claims) -> Option<Claim> {
    for id in &claims.gateways {
        reader.note_servers(id, host);
    }
    let claims = by_age(reader, host, ObjectKind::IstioGateway, &claims.gateways);
    let mut claims = claims.into_iter();
    claims.find(|claim| reader.servers(claim.key.id(), host).is_some())
}

/// The claims of objects since they name a host, the oldest first. None is opened.
fn by_age(reader: &Reader<'_>, host: &Host, kind: ObjectKind, ids: &[Arc<str>]) -> Vec<Claim> {
    let claims = ids.iter().filter_map(|id| reader.claim_of(kind, id, host));
    let mut claims: Vec<Claim> = claims.collect();
    claims.sort_unstable_by(|a, b| a.age().cmp(&b.age()));
    claims
}

/// The finding about an object that claims a host in vain, for the unit that tells it.
pub(crate) fn lost(reader: &mut Reader<'_>, loss: &Loss) -> Option<Finding> {
    let (key, host, owner) = (&loss.loser, &loss.host, loss.owner.as_ref()?);
    let field = match key.kind {
        ObjectKind::IstioGateway => "spec.servers".to_owned(),
        _ => {
            let service = reader.virtual_service(key.id())?;
            let names = reader.names_of(&service);
            let of_name = names.field_of(host).filter(|_| !names.has_host(host));
            of_name.unwrap_or_else(|| "spec.hosts".to_owned())
        }
    };
    Some(foreign(key, &field, host, owner, reader.settings()))
}

/// The Gateways that name a host and take effect on it, the oldest first.
pub(crate) fn own_sites(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
    owner: Option<&Claim>,
) -> Vec<Arc<Gateway>> {
    let named = named_by_owner(reader, claims, owner);
    let mut sites: Vec<Arc<Gateway>> = Vec::new();
    for id in &claims.gateways {
        if takes_effect(reader, host, id, owner, &named) {
            sites.extend(reader.servers(id, host));
        }
    }
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
        if owner.is_of(namespace_of(id)) {
            named.extend(named_by(reader, id));
        }
    }
    named
}

/// The Gateways that a VirtualService names.
fn named_by(reader: &mut Reader<'_>, id: &str) -> Vec<Arc<str>> {
    let Some(service) = reader.virtual_service_itself(id) else {
        return Vec::new();
    };
    let gateways = binding::gateways(&service).iter();
    let named = gateways.filter_map(|text| names::gateway(text, namespace_of(id)));
    named.collect()
}

/// Whether a Gateway that names a host has a say there: that of its owner, that of the gateway's
/// own namespace, and one that the owner lets in.
fn takes_effect(
    reader: &Reader<'_>,
    host: &Host,
    id: &Arc<str>,
    owner: Option<&Claim>,
    named: &[Arc<str>],
) -> bool {
    let namespace = namespace_of(id);
    holder(host, owner).is_none_or(|owner| {
        owner.is_of(namespace) || reader.view().is_of(namespace) || named.contains(id)
    })
}

/// The owner of a host, where others may do nothing with its name.
fn holder<'a>(host: &Host, owner: Option<&'a Claim>) -> Option<&'a Claim> {
    owner.filter(|_| host.pattern() != Pattern::Any)
}

/// The Gateways that matter to a host, the oldest first. The claims of those that name it and are
/// of others than its owner are added to those of strangers. What only strangers enter by is not
/// asked, since they may not.
pub(crate) fn gather_sites(
    reader: &mut Reader<'_>,
    host: &Host,
    claims: &Claims,
    owner: Option<&Claim>,
    strangers: &mut Vec<Claim>,
) -> Vec<Site> {
    let named = named_by_owner(reader, claims, owner);
    let mut ids: Vec<Arc<str>> = Vec::new();
    for id in &claims.gateways {
        match takes_effect(reader, host, id, owner, &named) {
            true => ids.push(id.clone()),
            false => strangers.extend(reader.claim_of(ObjectKind::IstioGateway, id, host)),
        }
    }
    if holder(host, owner).is_some() {
        ids.extend(named);
    } else {
        for id in &claims.services {
            ids.extend(named_by(reader, id));
        }
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
