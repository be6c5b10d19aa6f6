//! Which facts a changed Gateway or VirtualService touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::gateway::Server;
use myriad_api::istio::{Gateway, Labels, VirtualService};
use myriad_model::{Host, host::Pattern};

use super::names::{self, ServerHost};
use super::{mesh, stream};
use crate::engine::Views;

/// The Gateways and hosts under which a VirtualService is found.
pub fn bound(service: &VirtualService) -> Vec<(Arc<str>, Host)> {
    let namespace = service.meta.key.namespace();
    let mut gateways: Vec<Arc<str>> = service
        .spec
        .gateways
        .iter()
        .filter_map(|text| names::gateway(text, namespace))
        .collect();
    gateways.sort_unstable();
    gateways.dedup();
    let written = &service.spec.gateways;
    let is_mesh = written.is_empty() || written.iter().any(|text| **text == *mesh::GATEWAY);
    let mut pairs: Vec<(Arc<str>, Host)> = Vec::new();
    for text in &service.spec.hosts {
        let Ok(host) = names::host(text) else {
            continue;
        };
        if is_mesh {
            let is_short = !text.contains(['.', '*']);
            let gateway = match is_short {
                true => mesh::short_gateway(namespace),
                false => mesh::GATEWAY.into(),
            };
            pairs.push((gateway, host.clone()));
        }
        let gateways = gateways.iter();
        pairs.extend(gateways.map(|gateway| (gateway.clone(), host.clone())));
    }
    for host in stream::claimed(service) {
        let gateways = gateways.iter();
        pairs.extend(gateways.map(|gateway| (gateway.clone(), host.clone())));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The wildcards that a VirtualService names, but for the one of all hosts: those of its rules for
/// TLS too.
pub fn wildcards(service: &VirtualService) -> Vec<Host> {
    let hosts = service.spec.hosts.iter();
    let wildcards = hosts.filter(|text| text.starts_with("*."));
    let named = stream::claimed(service).into_iter();
    wildcards
        .filter_map(|text| names::host(text).ok())
        .chain(named.filter(|host| matches!(host.pattern(), Pattern::AnyLabels(_))))
        .collect()
}

/// The hosts whose servers differ between two states of a Gateway, and whether it appeared, went
/// or changed its role.
pub fn servers_changed<'a>(
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
    let is_other = is_moved || age(old) != age(new);
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
