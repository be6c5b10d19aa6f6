//! A Service or a ServiceEntry at sidecars that may reach it: routes and stream routes on the
//! listeners of its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use myriad_api::istio::{ServiceEntry, VirtualService};
use myriad_api::{Finding, Object, ObjectKey, ObjectKind, Severity};
use myriad_model::{Host, Name, Origin, OriginKind, Resource, StreamRoute, Underscores, Value};

use super::CaptureKey;
use super::blocks::overlap;
use super::captured::{self, Voice};
use super::endpoints;
use super::owned::{self, Addresses, HostEffect};
use super::strangers::{self, Author};
use crate::dialect::gateway;
use crate::dialect::gateway::route::RouteObject;
use crate::dialect::istio::entrance::{Door, Entrance};
use crate::dialect::istio::narrower::Narrower;
use crate::dialect::istio::routes::{self, Ground};
use crate::dialect::istio::scene::{Named, Tenant};
use crate::dialect::istio::stream;
use crate::engine::{Output, Reader, Unit};
use crate::resolve::names::{self, broader};
use crate::resolve::opened::OpenedService;
use crate::resolve::{Claim, Spoken, upstream};

/// The rank of the route of a Service where no VirtualService says anything. ServiceEntries stand
/// behind it: those of the caller, of the root namespace, of others. Of each the older go first.
const ROUTE_RANK: u64 = 7 << 56;

/// The ranks of the routes of ServiceEntries of one author.
const AUTHOR_RANKS: u64 = 1 << 40;

/// The ranks of stream routes of one class. In each the older ones go first.
const CLASS_RANKS: u64 = 1 << 60;

/// The class that stream routes of ServiceEntries of strangers begin with.
const STRANGERS_CLASS: u64 = 8;

/// One port of one host.
struct Site<'a> {
    key: &'a ObjectKey,
    author: Author,
    created: i64,
    /// The host as it is written in full, in lower case.
    host: &'a str,
    /// The name of a Service, which VirtualServices of its namespace may call it by.
    short: Option<&'a str>,
    /// The hosts of requests that are meant for it, but for the short one.
    hosts: &'a [Host],
    /// The addresses where it is reached; empty for wherever endpoints are.
    addresses: &'a [IpAddr],
    /// The addresses as blocks, or those of endpoints.
    ranges: &'a [IpNet],
    /// Whether connections that are told by no name may be for it without any address.
    is_everywhere: bool,
    port: u16,
    /// The routes of Gateway API for it.
    ruling: Vec<RouteObject>,
    spoken: Spoken,
    upstream: Arc<str>,
}

/// Translates what an object is to the sidecar of a view.
pub(super) fn translate(reader: &mut Reader<'_>, key: &ObjectKey) -> Output {
    let mut output = Output::default();
    if !reader.view().is_sidecar() {
        return output;
    }
    match key.kind {
        ObjectKind::Service => {
            if let Some(service) = reader.service_itself(key.id()) {
                add_service(reader, &service, &mut output);
            }
        }
        _ => {
            if let Some(Object::ServiceEntry(entry)) = reader.itself(key) {
                add_entry(reader, &entry, &mut output);
            }
        }
    }
    output
}

fn add_service(reader: &mut Reader<'_>, service: &OpenedService, output: &mut Output) {
    let key = &service.meta.key;
    let (namespace, name) = (key.namespace(), key.name());
    if !reader.view().sees(service.exports(), namespace) {
        return;
    }
    let host = names::service_host(key.id(), &reader.settings().cluster_domain);
    let mut hosts = vec![
        format!("{name}.{namespace}"),
        format!("{name}.{namespace}.svc"),
        host.clone(),
    ];
    if service.is_headless {
        // Each endpoint has a name of its own below that of the Service.
        let below: Vec<String> = hosts.iter().map(|host| format!("**.{host}")).collect();
        hosts.extend(below);
    }
    hosts.extend(service.addresses.iter().map(IpAddr::to_string));
    let hosts = hosts.iter().filter_map(|it| Host::of_name(it).ok());
    let hosts: Vec<Host> = hosts.collect();
    let mut known = BTreeSet::new();
    for port in &service.ports {
        let is_tcp = port.protocol.as_deref().is_none_or(|it| it == "TCP");
        let is_first = is_tcp && known.insert(port.port);
        if !is_first || !imports(reader, namespace, &host, port.port) {
            continue;
        }
        let spoken = Spoken::of_port(port);
        // Asked only where it matters, since the answer parts views.
        let author = match service.is_headless || spoken == Spoken::Http {
            true => Author::of(reader, namespace),
            false => Author::Caller,
        };
        let spoken = match service.is_headless && author.is_stranger() {
            true => strangers::by_addresses(spoken, port.port),
            false => spoken,
        };
        // Where nobody else speaks HTTP, connections to a stranger's Pods are bytes to them.
        let may_be_bytes = spoken != Spoken::Http || author.is_stranger();
        let ranges = match service.is_headless && may_be_bytes {
            true => endpoints::of(reader, (key.id(), author), port),
            false => Vec::new(),
        };
        let spoken = match spoken == Spoken::Http && !ranges.is_empty() {
            true => Spoken::Unknown,
            false => spoken,
        };
        let site = Site {
            key,
            author,
            created: service.meta.created,
            host: &host,
            short: Some(name),
            hosts: &hosts,
            addresses: &service.addresses,
            ranges: &ranges,
            is_everywhere: false,
            port: port.port,
            ruling: match spoken {
                Spoken::Http | Spoken::Unknown => gateway::mesh::routes(reader, key.id(), port),
                Spoken::Tls | Spoken::Tcp => Vec::new(),
            },
            spoken,
            upstream: upstream::subset_name(key.id(), port.port, ""),
        };
        site.add(reader, output);
    }
}

fn add_entry(reader: &mut Reader<'_>, entry: &ServiceEntry, output: &mut Output) {
    let key = &entry.meta.key;
    let namespace = key.namespace();
    let spec = &entry.spec;
    if !reader.view().sees(&spec.export_to, namespace) {
        return;
    }
    let author = Author::of(reader, namespace);
    let addresses = Addresses::read(reader, (entry, author), output);
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    for (at, host) in spec.hosts.iter().enumerate() {
        written.entry(host.to_ascii_lowercase()).or_insert(at);
    }
    for (host, at) in written {
        let Ok(parsed) = names::host(&host) else {
            continue;
        };
        let service = match owned::judge_host(reader, (key, author), (at, &parsed), output) {
            HostEffect::Whole => None,
            HostEffect::Behind(service) => Some(service),
            HostEffect::None => continue,
        };
        // Whoever declares a name has it, whatever strangers say of it.
        if author.is_stranger() && reader.is_declared(&parsed) {
            continue;
        }
        let mut known = BTreeSet::new();
        for port in &spec.ports {
            if !known.insert(port.number) || !imports(reader, namespace, &host, port.number) {
                continue;
            }
            let is_taken = |id: &String| owned::is_taken(reader, id, port.number);
            if service.as_ref().is_some_and(is_taken) {
                continue;
            }
            let places = addresses.at(reader, author, port.number);
            let mut hosts = vec![parsed.clone()];
            hosts.extend(places.hosts.iter().cloned());
            let is_named = addresses.is_everywhere;
            let spoken = match owned::spoken(port) {
                Spoken::Tls if author.is_stranger() && !is_named => {
                    strangers::by_addresses(Spoken::Tls, port.number)
                }
                spoken => spoken,
            };
            let site = Site {
                key,
                author,
                created: reader.claim(&entry.meta, &parsed).since(),
                host: &host,
                short: None,
                hosts: &hosts,
                addresses: &places.addresses,
                ranges: &places.blocks,
                // Of a stranger, what is known by no name is nowhere then.
                is_everywhere: is_named && (!author.is_stranger() || spoken == Spoken::Tls),
                port: port.number,
                ruling: Vec::new(),
                spoken,
                upstream: upstream::entry_name(namespace, &host, port.number, ""),
            };
            site.add(reader, output);
        }
    }
}

/// Whether Sidecars let the view reach it.
fn imports(reader: &Reader<'_>, namespace: &str, host: &str, port: u16) -> bool {
    reader.view().imports(namespace, host, port)
}

/// The rank of a rule of a VirtualService within its class, by that among all stream routes: its
/// age and its place, without that of the VirtualService among those on the host, which is alone.
fn rule_rank(rank: u64) -> u64 {
    ((rank >> 30) << 22) | (rank & ((1 << 22) - 1))
}

impl Site<'_> {
    fn add(&self, reader: &mut Reader<'_>, output: &mut Output) {
        let is_nowhere = !self.is_everywhere && self.addresses.is_empty() && self.ranges.is_empty();
        if is_nowhere && self.spoken != Spoken::Http {
            return;
        }
        let keys = self.keys();
        let mut listeners: Vec<Name> = keys.iter().map(CaptureKey::name).collect();
        listeners.sort_unstable();
        listeners.dedup();
        let listeners: Arc<[Name]> = listeners.into();
        let Ok(host) = names::host(self.host) else {
            return;
        };
        let services = self.services(reader, &host);
        let (host_text, port) = (self.host, self.port);
        // Several ServiceEntries may name one host; what is made of each has a name of its own.
        let label = match self.key.kind {
            ObjectKind::Service => format!("{host_text}:{port}"),
            _ => format!("{}/{host_text}:{port}", self.key.id()),
        };
        if matches!(self.spoken, Spoken::Http | Spoken::Unknown) {
            self.add_routes(reader, (&host, &label), &listeners, &services, output);
        }
        if self.spoken != Spoken::Http {
            self.add_stream_routes(reader, (&host, &label), &listeners, &services, output);
        }
        output.needs.push(Unit::upstream(self.upstream.clone()));
        for key in keys {
            let is_own = key.address.is_some();
            let is_strangers = !is_own && self.author.is_stranger();
            let voice = Voice {
                spoken: match is_strangers {
                    true => self.shared(),
                    false => self.spoken,
                },
                is_strangers,
            };
            if is_own || self.may_share() {
                output.needs.push(Unit::spoken(&key, voice));
            }
        }
    }

    /// Whether it has a say on what the listener of its port speaks that all addresses share. Its
    /// routes are there in any case, for whoever else has HTTP or TLS spoken there.
    fn may_share(&self) -> bool {
        !self.author.is_stranger() || strangers::may_share(self.shared(), self.port)
    }

    /// The protocol that it speaks on a listener that all addresses share. There a stranger has
    /// nothing found out but HTTP to his Pods, which is bytes to them where it is not looked for.
    fn shared(&self) -> Spoken {
        let is_found_out = self.spoken == Spoken::Unknown && !self.ranges.is_empty();
        match is_found_out && self.author.is_stranger() {
            true => Spoken::Http,
            false => self.spoken,
        }
    }

    /// Whether its addresses have listeners of their own. Requests say by themselves which host
    /// they are for, so that HTTP needs none where it may share one.
    fn has_listeners(&self) -> bool {
        // Rules of Gateway API hold for connections to its addresses, whatever host they ask for.
        let is_alone = !self.may_share() || !self.ruling.is_empty();
        !self.addresses.is_empty() && (self.spoken != Spoken::Http || is_alone)
    }

    /// The keys of captures of connections to it.
    fn keys(&self) -> Vec<CaptureKey> {
        let port = self.port;
        let own = |address: &IpAddr| CaptureKey {
            address: Some(*address),
            port,
        };
        let mut keys: Vec<CaptureKey> = match self.has_listeners() {
            true => self.addresses.iter().map(own).collect(),
            false => Vec::new(),
        };
        if keys.is_empty() || !self.ranges.is_empty() {
            keys.push(CaptureKey {
                address: None,
                port,
            });
        }
        keys
    }

    /// The VirtualServices that have a say on the host, that which holds first: one for the host
    /// itself goes before one for a wildcard, then the older. Whoever owns the host has a say, the
    /// caller's namespace and the root namespace.
    fn services(&self, reader: &mut Reader<'_>, host: &Host) -> Vec<Arc<VirtualService>> {
        let mut found: Vec<(usize, Arc<VirtualService>)> = Vec::new();
        let mut patterns = vec![host.clone()];
        patterns.extend(broader(host));
        for (depth, pattern) in patterns.iter().enumerate() {
            let bound = reader.bound(names::MESH, pattern).into_iter();
            found.extend(bound.map(|service| (depth, service)));
        }
        if let Some(short) = self.short.and_then(|it| Host::parse(it).ok()) {
            let gateway = names::short_mesh(self.key.namespace());
            let bound = reader.bound(&gateway, &short).into_iter();
            found.extend(bound.map(|service| (0, service)));
        }
        found.retain(|(_, service)| {
            let own = service.meta.key.namespace();
            owned::may_say(reader, own, self.key.namespace())
                && reader.view().sees(&service.spec.export_to, own)
                && imports(reader, own, self.host, self.port)
        });
        found.sort_by_key(|(depth, it)| (*depth, it.meta.created, it.meta.key.clone()));
        let mut services: Vec<Arc<VirtualService>> = found.into_iter().map(|(_, it)| it).collect();
        services.dedup_by(|later, earlier| later.meta.key == earlier.meta.key);
        services
    }

    /// Says of VirtualServices for the host itself that an older one has it.
    fn judge(&self, host: &Host, ruled: &[&Arc<VirtualService>], output: &mut Output) {
        let Some((first, others)) = ruled.split_first() else {
            return;
        };
        let is_own = |text: &str| {
            let is_short = self
                .short
                .is_some_and(|short| text.eq_ignore_ascii_case(short));
            is_short || names::is_host(text, host)
        };
        // One that names a wildcard beside the host is found twice.
        for other in others.iter().filter(|it| it.meta.key != first.meta.key) {
            let mut hosts = other.spec.hosts.iter();
            if let Some(at) = hosts.position(|text| is_own(text)) {
                let first = first.meta.key.id();
                output.findings.push(Finding::new(
                    Severity::Warning,
                    &other.meta.key,
                    format!("spec.hosts[{at}]"),
                    format!("has the older VirtualService {first} in the mesh, whose rules hold"),
                    "write the rules of both into one VirtualService",
                ));
            }
        }
    }

    fn add_routes(
        &self,
        reader: &mut Reader<'_>,
        (host, label): (&Host, &str),
        listeners: &Arc<[Name]>,
        services: &[Arc<VirtualService>],
        output: &mut Output,
    ) {
        let mut hosts = self.hosts.to_vec();
        if self.has_listeners() {
            // Whatever is asked for at an address of its own is asked of it.
            hosts = vec![Host::any()];
        } else if let Some(short) = self.short
            && reader.view().is_of(self.key.namespace())
        {
            hosts.extend(Host::parse(short));
        }
        hosts.sort_unstable();
        hosts.dedup();
        let hosts: Arc<[Host]> = hosts.into();
        let ruled = services.iter().filter(|it| !it.spec.http.is_empty());
        let ruled: Vec<&Arc<VirtualService>> = ruled.collect();
        self.judge(host, &ruled, output);
        if let Some(service) = ruled.first() {
            let tenants = [self.tenant(reader, service, listeners, &[Door::Plain])];
            let ground = Ground { host, hosts, label };
            routes::build(reader, &ground, &tenants, &mut Narrower::default(), output);
            return;
        }
        if !self.ruling.is_empty() {
            let ruling = (self.key.id(), self.port, &*self.ruling);
            gateway::mesh::add(reader, ruling, (&hosts, &**listeners), output);
            return;
        }
        let upstreams = [captured::weighted(Name::new(self.upstream.clone()))];
        let usual = reader.settings().underscores(Underscores::Colliding);
        let rank = match self.is_service() {
            true => ROUTE_RANK,
            false => ROUTE_RANK + 1 + self.author_rank() * AUTHOR_RANKS + self.age(),
        };
        let route = captured::route(listeners.clone(), hosts, rank, upstreams, usual);
        self.push(label, Value::Route(Box::new(route)), output);
    }

    fn add_stream_routes(
        &self,
        reader: &mut Reader<'_>,
        (host, label): (&Host, &str),
        listeners: &Arc<[Name]>,
        services: &[Arc<VirtualService>],
        output: &mut Output,
    ) {
        let before = output.resources.len();
        let is_ruled =
            |it: &&Arc<VirtualService>| !it.spec.tls.is_empty() || !it.spec.tcp.is_empty();
        let ruling = services.iter().find(is_ruled);
        let ruler = ruling.map(|it| Author::of(reader, it.meta.key.namespace()));
        if let Some(service) = ruling {
            let doors = match self.spoken {
                Spoken::Tcp => &[Door::Stream][..],
                _ => &[Door::Passing, Door::Stream],
            };
            let tenant = self.tenant(reader, service, listeners, doors);
            stream::add_captured(reader, (host, label), &tenant, output);
        }
        let mut is_named = false;
        for (name, mut resource) in output.resources.split_off(before) {
            if let Value::StreamRoute(stream_route) = &mut resource.value {
                let has_names = !stream_route.hosts.is_empty();
                let class = self.stream_class(ruler);
                stream_route.rank = class * CLASS_RANKS + rule_rank(stream_route.rank);
                if !self.narrow(host, stream_route) {
                    continue;
                }
                self.stand_behind(stream_route);
                is_named |= has_names;
            }
            output.resources.push((name, resource));
        }
        // Who tells names apart leaves nothing to be told without.
        if is_named && self.spoken == Spoken::Tls {
            return;
        }
        // Rules of the caller and the operator go before all Services, those of others behind them.
        let class = match ruler {
            None if self.is_service() => 1,
            ruler => self.stream_class(ruler) + 1,
        };
        let rank = class * CLASS_RANKS + self.age();
        let upstreams = [captured::weighted(Name::new(self.upstream.clone()))];
        let mut stream_route = captured::stream_route(listeners.clone(), rank, upstreams);
        self.narrow(host, &mut stream_route);
        self.stand_behind(&mut stream_route);
        if self.spoken == Spoken::Tls && self.is_service() && self.addresses.is_empty() {
            // By its names too, lest those of others go before its addresses.
            let mut named = stream_route.clone();
            named.hosts = self.hosts.into();
            let label = format!("{label}/names");
            self.push(&label, Value::StreamRoute(Box::new(named)), output);
        }
        self.push(label, Value::StreamRoute(Box::new(stream_route)), output);
    }

    fn is_service(&self) -> bool {
        self.key.kind == ObjectKind::Service
    }

    /// The age for ranks: the greater, the younger.
    fn age(&self) -> u64 {
        self.created.clamp(0, (1 << 34) - 1).unsigned_abs()
    }

    /// The place of its author among those of ServiceEntries.
    fn author_rank(&self) -> u64 {
        match self.author {
            Author::Caller => 0,
            Author::Root => 1,
            Author::Stranger => 2,
        }
    }

    /// The class of stream routes of its rules; what they leave is in the next one. Services
    /// without rules stand between those with rules of the caller or the operator, and those with
    /// rules of others; ServiceEntries follow.
    fn stream_class(&self, ruler: Option<Author>) -> u64 {
        match (self.is_service(), ruler) {
            (true, Some(Author::Stranger)) => 2,
            (true, _) => 0,
            (false, _) => 4 + 2 * self.author_rank(),
        }
    }

    /// A name of a stranger takes no connection to an address that a Service, the caller or the
    /// operator has.
    fn stand_behind(&self, stream_route: &mut StreamRoute) {
        let is_strangers = self.author.is_stranger() && !self.is_service();
        if is_strangers && !stream_route.hosts.is_empty() {
            stream_route.behind = STRANGERS_CLASS * CLASS_RANKS;
        }
    }

    /// On a listener of all addresses, a stream route is for those of the site alone; one without
    /// addresses is known by the name in the handshake. Returns whether it is for any.
    fn narrow(&self, host: &Host, stream_route: &mut StreamRoute) -> bool {
        let StreamRoute {
            hosts,
            destinations,
            ..
        } = stream_route;
        if !self.ranges.is_empty() {
            let own = self.addresses.iter().copied().map(IpNet::from);
            let mut all: Vec<IpNet> = self.ranges.iter().copied().chain(own).collect();
            all.sort_unstable();
            all.dedup();
            *destinations = match (destinations.is_empty(), self.is_service()) {
                (true, _) => all.into(),
                (false, true) => endpoints::within(self.ranges, destinations),
                (false, false) => overlap(&all, destinations).into(),
            };
            if destinations.is_empty() {
                return false;
            }
        }
        if self.is_everywhere && self.spoken == Spoken::Tls && hosts.is_empty() {
            *hosts = [host.clone()].into();
        }
        true
    }

    fn tenant(
        &self,
        reader: &mut Reader<'_>,
        service: &Arc<VirtualService>,
        listeners: &[Name],
        doors: &[Door],
    ) -> Tenant {
        let mut entrances: Vec<(Arc<str>, Entrance)> = Vec::new();
        for listener in listeners {
            entrances.extend(doors.iter().map(|door| {
                let entrance = Entrance {
                    port: self.port,
                    listener: listener.clone(),
                    door: door.clone(),
                    server: 0,
                    is_naming: false,
                };
                (names::MESH.into(), entrance)
            }));
        }
        Tenant {
            service: service.clone(),
            names: reader.names_of(service),
            claim: Claim::new(&service.meta, None),
            entrances,
            named: Named::Captured,
        }
    }

    fn push(&self, label: &str, value: Value, output: &mut Output) {
        let kind = match self.key.kind {
            ObjectKind::Service => OriginKind::Service,
            _ => OriginKind::ServiceEntry,
        };
        let id = self.key.id().clone();
        let origin = Origin { kind, id };
        let name = Name::new(format!("mesh/{label}"));
        output.resources.push((name, Resource { origin, value }));
    }
}
