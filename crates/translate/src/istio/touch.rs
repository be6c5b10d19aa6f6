//! Which facts a changed Gateway or VirtualService touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::gateway::Server;
use myriad_api::istio::{Gateway, VirtualService};
use myriad_model::Host;

use super::entrance::is_selected;
use super::names::{self, ServerHost};
use crate::Settings;

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
    let hosts = service
        .spec
        .hosts
        .iter()
        .filter_map(|text| names::host(text).ok());
    let mut pairs: Vec<(Arc<str>, Host)> = hosts
        .flat_map(|host| {
            gateways
                .iter()
                .map(move |gateway| (gateway.clone(), host.clone()))
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The hosts whose servers differ between two states of a Gateway, and whether it appeared, went
/// or changed its role.
pub fn servers_changed(
    old: Option<&Gateway>,
    new: Option<&Gateway>,
    settings: &Settings,
) -> (Vec<Host>, bool) {
    let selected = |gateway: Option<&Gateway>| {
        gateway.is_some_and(|gateway| is_selected(&gateway.spec, settings))
    };
    let (was, is) = (selected(old), selected(new));
    let age = |gateway: Option<&Gateway>| gateway.map(|gateway| gateway.meta.created);
    let (before, after) = (by_host(old, was), by_host(new, is));
    let all = before
        .keys()
        .chain(after.keys().filter(|host| !before.contains_key(*host)));
    let is_other = age(old) != age(new);
    let changed = all.filter(|host| is_other || before.get(*host) != after.get(*host));
    (changed.cloned().collect(), was != is)
}

/// The servers of each host, in their order, with the namespace that may bind.
fn by_host(gateway: Option<&Gateway>, is_selected: bool) -> BTreeMap<Host, Vec<(&str, Way<'_>)>> {
    let mut servers: BTreeMap<Host, Vec<(&str, Way<'_>)>> = BTreeMap::new();
    let listed = gateway.filter(|_| is_selected);
    for server in listed
        .iter()
        .flat_map(|gateway| gateway.spec.servers.iter())
    {
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
