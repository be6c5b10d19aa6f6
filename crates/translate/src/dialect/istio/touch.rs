//! Which facts a changed Gateway or VirtualService touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::istio::gateway::Server;
use myriad_api::istio::{Gateway, Labels, VirtualService};
use myriad_model::Host;

use super::service_names::ServiceNames;
use crate::engine::Views;
use crate::resolve::ISSUER;
use crate::resolve::names::{self, ServerHost};

/// The Gateways and hosts under which a VirtualService is found.
pub(super) fn bound(service: &VirtualService) -> Vec<(Arc<str>, Host)> {
    ServiceNames::of(service).bound()
}

/// The hosts that a VirtualService names for gateways, and by which of them.
pub(super) fn service_claims(service: &VirtualService) -> BTreeMap<Host, Vec<Arc<str>>> {
    let mut claims: BTreeMap<Host, Vec<Arc<str>>> = BTreeMap::new();
    for (gateway, host) in bound(service) {
        // What stands for the mesh has no slash.
        if gateway.contains('/') {
            claims.entry(host).or_default().push(gateway);
        }
    }
    claims
}

/// The hosts that the servers of a Gateway name.
pub(super) fn gateway_claims(gateway: &Gateway) -> BTreeSet<Host> {
    let servers = gateway.spec.servers.iter();
    let texts = servers.flat_map(|server| server.hosts.iter());
    texts
        .filter_map(|text| names::host(ServerHost::read(text).host).ok())
        .collect()
}

/// The wildcards that a VirtualService names, those of its rules for TLS too.
pub(super) fn wildcards(service: &VirtualService) -> Vec<Host> {
    ServiceNames::of(service).wildcards().cloned().collect()
}

/// The hosts whose servers differ between two states of a Gateway, and whether it appeared, went
/// or changed its role.
pub(super) fn servers_changed<'a>(
    old: Option<&'a Gateway>,
    new: Option<&'a Gateway>,
    views: &Views,
) -> (Vec<Host>, bool) {
    let selector = |gateway: Option<&'a Gateway>| gateway.map(|gateway| &gateway.spec.selector);
    let (old_selector, new_selector) = (selector(old), selector(new));
    let (mut was_any, mut is_any, mut is_moved) = (false, false, false);
    for standing in views.gateways() {
        let selected = |selector: Option<&Labels>| {
            selector.is_some_and(|selector| standing.view.has_labels(selector))
        };
        let (was, is) = (selected(old_selector), selected(new_selector));
        was_any |= was;
        is_any |= is;
        is_moved |= was != is;
    }
    let age = |gateway: Option<&Gateway>| gateway.map(|gateway| gateway.meta.created);
    let issuer = |gateway: Option<&'a Gateway>| gateway.and_then(|it| it.meta.annotation(ISSUER));
    let is_other = is_moved || age(old) != age(new) || issuer(old) != issuer(new);
    let servers = |gateway: Option<&'a Gateway>, is_selected: bool| match gateway {
        Some(gateway) if is_selected => &*gateway.spec.servers,
        _ => &[],
    };
    let (mut before, mut after) = (servers(old, was_any), servers(new, is_any));
    if !is_other {
        (before, after) = without_equal_ends(before, after);
    }
    let (before, after) = (by_host(before), by_host(after));
    let all = before
        .keys()
        .chain(after.keys().filter(|host| !before.contains_key(*host)));
    let changed = all.filter(|host| is_other || before.get(*host) != after.get(*host));
    (changed.cloned().collect(), is_moved)
}

/// Whether servers that two states of a Gateway have in common may stand at other places.
pub(super) fn servers_moved(old: Option<&Gateway>, new: Option<&Gateway>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let (old, new) = (&old.spec.servers, &new.spec.servers);
    let (before, after) = without_equal_ends(old, new);
    let is_one = before.len() == 1 && after.len() == 1;
    let is_end = before.is_empty() && new.starts_with(old);
    let is_start = after.is_empty() && old.starts_with(new);
    !(is_one || is_end || is_start)
}

/// Two lists without what both begin and end with. What hosts have of it is the same on either
/// side, so it cannot differ.
fn without_equal_ends<'a>(
    before: &'a [Server],
    after: &'a [Server],
) -> (&'a [Server], &'a [Server]) {
    let pairs = before.iter().zip(after);
    let start = pairs.take_while(|(old, new)| old == new).count();
    let rest = |list: &'a [Server]| list.get(start..).unwrap_or_default();
    let (before, after) = (rest(before), rest(after));
    let pairs = before.iter().rev().zip(after.iter().rev());
    let end = pairs.take_while(|(old, new)| old == new).count();
    let start = |list: &'a [Server]| list.get(..list.len() - end).unwrap_or_default();
    (start(before), start(after))
}

/// The servers of each host, in their order, with the namespace that may bind.
fn by_host(listed: &[Server]) -> BTreeMap<Host, Vec<(&str, Way<'_>)>> {
    let mut servers: BTreeMap<Host, Vec<(&str, Way<'_>)>> = BTreeMap::new();
    for server in listed {
        for text in &server.hosts {
            let named = ServerHost::read(text);
            if let Ok(host) = names::host(named.host) {
                servers
                    .entry(host)
                    .or_default()
                    .push((named.namespace, Way(server)));
            }
        }
    }
    servers
}

/// A server without its hosts: what each of them shares.
struct Way<'a>(&'a Server);

impl PartialEq for Way<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.0, other.0);
        own.port == other.port && own.tls == other.tls && own.bind == other.bind
    }
}
