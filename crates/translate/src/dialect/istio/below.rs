//! Hosts below the servers of Gateways whose own domain does not answer for them: a server for
//! hosts that nobody names has none where its namespace may not answer for those, and a wildcard
//! of others that may not answer for the host may stand between.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use myriad_api::istio::{Gateway, VirtualService};
use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Host, Name, host::Pattern};

use super::admission::may_be_unnamed;
use super::entrance::{self, Door, Entrance};
use super::scene::{HostScene, Site, Tenant};
use super::stream::Holders;
use super::{binding, credential, domain};
use crate::engine::{Output, Reader, Shared};
use crate::resolve::losers::unclaimable;
use crate::resolve::{Shade, names};
use crate::settings::CatchAll;

/// Tells Gateways whose servers may not answer for hosts that nobody names.
pub(super) fn judge_unnamed(
    reader: &mut Reader<'_>,
    host: &Host,
    sites: &[Site],
    output: &mut Output,
) {
    if host.pattern() != Pattern::Any {
        return;
    }
    for site in sites {
        let all = entrance::for_host(reader, &site.gateway, host, None);
        let mut kept = all.clone();
        entrance::keep_answering(reader, &site.gateway, host, &mut kept);
        if let Some(lost) = all.iter().find(|way| !kept.contains(way)) {
            let key = &site.gateway.meta.key;
            let field = entrance::field(reader, key, lost.server, "hosts");
            let settings = reader.settings();
            output
                .findings
                .push(match settings.may_claim(key.namespace(), host) {
                    true => no_catch_all(key, field, &settings.catch_all_namespaces),
                    false => unclaimable(key, field, host, settings),
                });
        }
    }
}

/// Whether a VirtualService for hosts that nobody names has a way in that may answer for them.
/// Plain connections have no names, and are of their port.
pub(super) fn answers_unnamed(reader: &mut Reader<'_>, service: &VirtualService) -> bool {
    let (host, own) = (Host::any(), service.meta.key.namespace());
    let named = binding::gateways(service).iter();
    let mut named = named.filter_map(|text| names::gateway(text, own));
    named.any(|id| {
        let Some(gateway) = reader.servers(&id, &host) else {
            return false;
        };
        let mut ways = entrance::for_host(reader, &gateway, &host, Some(own));
        entrance::keep_let(reader, &gateway, (&host, own), &mut ways);
        ways.iter().any(|way| way.door != Door::Stream)
    })
}

/// The finding about a VirtualService for hosts that nobody names, which a field says, where its
/// namespace may not answer for them and servers of others that it enters by may.
pub(super) fn judge_service(
    reader: &mut Reader<'_>,
    service: &VirtualService,
    (gateways, field): (&[Arc<str>], String),
) -> Option<Finding> {
    let (host, key) = (Host::any(), &service.meta.key);
    let own = key.namespace();
    if may_be_unnamed(reader, own) {
        return None;
    }
    let mut gateways = gateways.iter();
    let is_kept_off = gateways.any(|id| {
        let Some(gateway) = reader.servers(id, &host) else {
            return false;
        };
        let mut ways = entrance::for_host(reader, &gateway, &host, Some(own));
        entrance::keep_answering(reader, &gateway, &host, &mut ways);
        ways.iter().any(|way| has_rules(service, way))
    });
    let settings = reader.settings();
    is_kept_off.then(|| match settings.may_claim(own, &host) {
        true => no_catch_all(key, field, &settings.catch_all_namespaces),
        false => unclaimable(key, field, &host, settings),
    })
}

/// Whether a VirtualService has rules for connections that tell a name, where they come by a way
/// in.
fn has_rules(service: &VirtualService, way: &Entrance) -> bool {
    let spec = &service.spec;
    match way.door {
        Door::Plain | Door::ToTls | Door::Tls | Door::Closed => !spec.http.is_empty(),
        Door::TlsStream => !spec.tcp.is_empty(),
        Door::Passing => !spec.tls.is_empty(),
        Door::Stream => false,
    }
}

/// Adds the domains of a host that its VirtualServices enter by servers above it, where no domain
/// of those answers: as the first of them says.
pub(super) fn add(
    reader: &mut Reader<'_>,
    shared: &Shared,
    (scene, tenants): (&HostScene<'_>, &[Tenant]),
    holders: &mut Holders,
    output: &mut Output,
) {
    if scene.host.pattern() == Pattern::Any {
        return;
    }
    let sites = scene.sites.iter();
    let sites: HashMap<&str, &Site> = sites
        .map(|site| (&**site.gateway.meta.key.id(), site))
        .collect();
    let handed_on = handed_on(scene.host, tenants);
    let mut decided: Vec<Name> = Vec::new();
    let entrances = tenants.iter().flat_map(|tenant| {
        let entrances = tenant.entrances.iter();
        entrances.map(move |(id, way)| (tenant, id, way))
    });
    for (tenant, id, way) in entrances {
        let listener = &way.listener;
        let is_for = serves(&tenant.service, way) && !decided.contains(listener);
        if !is_for || handed_on.contains(listener) {
            continue;
        }
        let site = sites.get(&**id).copied();
        let Some(site) = site.filter(|site| is_bare(reader, scene, site, way)) else {
            continue;
        };
        decided.push(listener.clone());
        let is_held = holders.is_passed(listener) || domain::is_there(output, listener);
        if !is_held {
            holders.hold(&site.gateway.meta.key, way);
            domain::add_as(reader, shared, scene.host, (site, way), output);
        }
    }
}

/// Whether a VirtualService has rules for what comes by a way in, once TLS has ended there.
pub(super) fn serves(service: &VirtualService, way: &Entrance) -> bool {
    match way.door {
        Door::Tls | Door::Closed => !service.spec.http.is_empty(),
        Door::TlsStream => !service.spec.tcp.is_empty(),
        Door::Plain | Door::ToTls | Door::Passing | Door::Stream => false,
    }
}

/// The listeners where the handshakes for a host go on as they come, by rules for TLS.
fn handed_on<'a>(host: &Host, tenants: &'a [Tenant]) -> HashSet<&'a Name> {
    let tenants = tenants.iter();
    let tenants = tenants.filter(|tenant| tenant.names.is_within_names(host));
    let entrances = tenants.flat_map(|tenant| &tenant.entrances);
    let passing = entrances.filter(|(_, way)| way.door == Door::Passing);
    passing.map(|(_, way)| &way.listener).collect()
}

/// Whether no domain above a host may answer for it where it is entered, and what is shown there
/// may.
fn is_bare(reader: &mut Reader<'_>, scene: &HostScene<'_>, site: &Site, way: &Entrance) -> bool {
    if credential::keeper(reader, scene.above, site, way).is_some() {
        return false;
    }
    let is_at = |shade: &Shade| shade.listener == way.listener;
    if scene.above.strangers.iter().any(is_at) {
        return true;
    }
    !scene.above.shades.iter().any(is_at) && is_unanswered(reader, &site.gateway, way)
}

/// Whether a server is for hosts that nobody names, for which it may not answer.
pub(super) fn is_unanswered(reader: &Reader<'_>, gateway: &Gateway, way: &Entrance) -> bool {
    let any = Host::any();
    if !reader.is_named(gateway, Some(way.server), &any) {
        return false;
    }
    let mut ways = vec![way.clone()];
    entrance::keep_answering(reader, gateway, &any, &mut ways);
    ways.is_empty()
}

/// Adds the domain of a host as the Gateway says that ends TLS for a wildcard above it. Whether it
/// did.
pub(crate) fn inherit(
    reader: &mut Reader<'_>,
    shared: &Shared,
    host: &Host,
    shade: &Shade,
    output: &mut Output,
) -> bool {
    let key = &shade.claim.key;
    let is_gateway = key.kind == ObjectKind::IstioGateway;
    let found = is_gateway.then(|| reader.servers(key.id(), &shade.pattern));
    let Some(gateway) = found.flatten() else {
        return false;
    };
    let ways = entrance::effective(reader, &gateway, &shade.pattern);
    let way = ways
        .into_iter()
        .find(|way| way.listener == shade.listener && matches!(way.door, Door::Tls | Door::Closed));
    let Some(way) = way else {
        return false;
    };
    let site = Site {
        gateway,
        is_own: false,
    };
    domain::add_as(reader, shared, host, (&site, &way), output);
    true
}

fn no_catch_all(key: &ObjectKey, field: String, catch_all: &CatchAll) -> Finding {
    let what = match catch_all {
        CatchAll::All => "does not replace the default certificate",
        CatchAll::Only(_) => "has no effect",
    };
    Finding::new(
        Severity::Warning,
        key,
        field,
        format!(
            "{what} for hosts that nobody names, for which --catch-all-namespaces does not list \
             namespace {}",
            key.namespace()
        ),
        "name hosts, or list the namespace; VirtualServices are served by the hosts that they name",
    )
}
