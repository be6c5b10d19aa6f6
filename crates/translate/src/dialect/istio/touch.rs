//! Which facts a changed Gateway or VirtualService touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::istio::gateway::Server;
use myriad_api::istio::{Gateway, Labels, VirtualService};
use myriad_model::Host;

use super::binding;
use super::service_names::ServiceNames;
use crate::engine::{Claimed, Views};
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

/// The most pairs of a Gateway and a match of plain connections of which it is noted since when a
/// VirtualService has them.
pub(super) const STREAM_PAIRS_MAX: usize = 1 << 14;

/// Whether a VirtualService has more such pairs: it has them after everybody else then.
pub(super) fn has_many_streams(service: &VirtualService) -> bool {
    let matches = service
        .spec
        .tcp
        .iter()
        .map(|rule| rule.matches.len().max(1));
    let matches = matches.fold(0, usize::saturating_add);
    matches.saturating_mul(binding::gateways(service).len()) > STREAM_PAIRS_MAX
}

/// The ports of Gateways at which the rules of a VirtualService take plain connections.
pub(super) fn streams(service: &VirtualService) -> BTreeSet<Claimed> {
    let own = service.meta.key.namespace();
    let mut streams = BTreeSet::new();
    if service.spec.tcp.is_empty() || has_many_streams(service) {
        return streams;
    }
    let written = binding::gateways(service).iter();
    let gateways = written.filter_map(|text| names::gateway(text, own));
    let gateways: BTreeSet<Arc<str>> = gateways.collect();
    for (listed, port) in stream_matches(service) {
        let taken = gateways.iter().filter(|id| is_taken(listed, own, id));
        streams.extend(taken.filter_map(|id| Claimed::stream(id, port)));
    }
    streams
}

/// The Gateways that the matches of rules for plain connections list, and the port of each.
pub(super) fn stream_matches(service: &VirtualService) -> impl Iterator<Item = (&[Box<str>], u16)> {
    service.spec.tcp.iter().flat_map(|rule| {
        let matches = rule.matches.iter().map(|it| (&*it.gateways, it.port));
        let all: Option<(&[Box<str>], u16)> = rule.matches.is_empty().then_some((&[], 0));
        matches.chain(all)
    })
}

/// Whether a match of an object of a namespace is for a Gateway: it lists it, or none.
pub(super) fn is_taken(listed: &[Box<str>], own: &str, gateway: &str) -> bool {
    let is_for_all = listed.is_empty() || binding::is_beyond(listed);
    let mut listed = listed.iter();
    is_for_all || listed.any(|text| names::is_gateway(text, own, gateway))
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
            selector.is_some_and(|selector| standing.view.has_servers(selector))
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

#[cfg(test)]
mod tests {
    use myriad_api::istio::VirtualServiceSpec;
    use myriad_api::istio::virtual_service::{TcpMatch, TcpRoute};
    use myriad_api::{Meta, ObjectKey, ObjectKind};

    use super::*;

    fn service(gateways: &[&str], matches: &[(u16, &[&str])]) -> VirtualService {
        let texts = |texts: &[&str]| -> Box<[Box<str>]> {
            texts.iter().map(|text| Box::from(*text)).collect()
        };
        let matches = matches.iter().map(|(port, to)| TcpMatch {
            port: *port,
            gateways: texts(to),
            ..TcpMatch::default()
        });
        let rule = TcpRoute {
            matches: matches.collect(),
            ..TcpRoute::default()
        };
        VirtualService {
            meta: Meta::new(ObjectKey::new(ObjectKind::VirtualService, "n", "v")),
            spec: VirtualServiceSpec {
                gateways: texts(gateways),
                tcp: [rule].into(),
                ..VirtualServiceSpec::default()
            },
            notes: Box::default(),
            bytes: 0,
        }
    }

    fn texts(service: &VirtualService) -> Vec<String> {
        streams(service).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plain_connections_are_taken_by_gateway_and_port() {
        let all = service(&["g", "x/g", "mesh"], &[]);
        assert_eq!(texts(&all), ["n/g:0", "x/g:0"]);
        let some = service(&["g", "x/g"], &[(1, &[]), (2, &["x/g"]), (3, &["y/g"])]);
        assert_eq!(texts(&some), ["n/g:1", "x/g:1", "x/g:2"]);
        assert!(streams(&service(&["mesh"], &[(1, &[])])).is_empty());
    }

    #[test]
    fn no_more_pairs_are_noted_than_the_bound_says() {
        let gateways: Vec<String> = (0..64).map(|at| format!("g{at}")).collect();
        let gateways: Vec<&str> = gateways.iter().map(String::as_str).collect();
        let of = |matches: usize| service(&gateways, &vec![(1, &[][..]); matches]);
        let most = STREAM_PAIRS_MAX / gateways.len();
        assert!(!has_many_streams(&of(most)) && streams(&of(most)).len() == 64);
        assert!(has_many_streams(&of(most + 1)) && streams(&of(most + 1)).is_empty());
    }
}
