//! The stream routes of a host: what Gateways and VirtualServices say of connections whose bytes
//! are handed on.
//!
//! A handshake is passed on by the name in it, so the rules for TLS stand below the names that
//! they list. Plain connections tell no name: the first rule of the oldest VirtualService that is
//! bound to the port takes them all.

mod rule;

pub(crate) use rule::blank;

use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::host::Pattern;
use myriad_model::{Host, Name, Origin, OriginKind, Resource, StreamRoute, Value};

use super::credential;
use super::entrance::{self, Door, Entrance};
use super::narrower::Narrower;
use super::scene::{self, HostScene, Named, Site, Tenant};
use super::service_names::ServiceNames;
use crate::engine::{Output, Reader};

/// The holder of each listener, for handshakes that are for exactly one host.
pub(crate) struct Holders(Vec<Holder>);

struct Holder {
    listener: Name,
    /// The treatment of connections there; `None` for that of an Ingress.
    door: Option<Door>,
    /// The Gateway, or the Ingress.
    origin: Origin,
}

/// The rank of what closes: behind every rule.
const CLOSING_RANK: u64 = u64::MAX;

impl Holders {
    /// Whether handshakes go on as they come.
    pub(crate) fn is_passed(&self, listener: &Name) -> bool {
        self.admits(listener, &Door::Passing) && self.is_held(listener)
    }

    /// Has a server that names a broader pattern hold its listener for the host.
    pub(crate) fn hold(&mut self, gateway: &ObjectKey, way: &Entrance) {
        self.0.push(Holder {
            listener: way.listener.clone(),
            door: Some(way.door.clone()),
            origin: origin(OriginKind::Gateway, gateway),
        });
    }

    /// Whether a way in by this door is not in the way of somebody older.
    fn admits(&self, listener: &Name, door: &Door) -> bool {
        let mut holders = self.0.iter();
        let holder = holders.find(|holder| holder.listener == *listener);
        holder.is_none_or(|holder| holder.door.as_ref() == Some(door))
    }

    /// Whether anybody has a listener.
    fn is_held(&self, listener: &Name) -> bool {
        self.0.iter().any(|holder| holder.listener == *listener)
    }

    /// The holder in the way of a VirtualService, where none of its entrances is free.
    fn in_the_way(&self, tenant: &Tenant) -> Option<&Holder> {
        let mut ways = tenant.entrances.iter().map(|(_, way)| way);
        if ways.any(|way| self.admits(&way.listener, &way.door)) {
            return None;
        }
        let (_, first) = tenant.entrances.first()?;
        let mut holders = self.0.iter();
        holders.find(|holder| holder.listener == first.listener)
    }
}

/// The holder of each listener for a host: the oldest Gateway with a server that names it, unless
/// an Ingress ends TLS there. Younger ones that do otherwise are told so, and those that hand on
/// what an older wildcard of another namespace keeps.
pub(crate) fn holders(
    reader: &mut Reader<'_>,
    scene: &HostScene<'_>,
    output: &mut Output,
) -> Holders {
    let (host, sites) = (scene.host, &scene.sites);
    let mut holders = Vec::new();
    for (_, resource) in &output.resources {
        if let Value::Domain(domain) = &resource.value {
            holders.extend(domain.listeners.iter().map(|listener| Holder {
                listener: listener.clone(),
                door: None,
                origin: resource.origin.clone(),
            }));
        }
    }
    for site in sites.iter().filter(|site| site.is_own) {
        let key = &site.gateway.meta.key;
        for way in entrance::effective(reader, &site.gateway, host) {
            if !way.door.takes_tls() {
                continue;
            }
            let shade = scene.shade_over(&way, key.namespace());
            if let Some(shade) = shade.filter(|_| way.door == Door::Passing) {
                let field = entrance::field(reader, key, way.server, "hosts");
                output
                    .findings
                    .push(scene::lost_to(key, &field, host, shade));
                continue;
            }
            let known = holders.iter().find(|it| it.listener == way.listener);
            if let Some(known) = known {
                if is_in_the_way(known, &way.door) {
                    let field = entrance::field(reader, key, way.server, "hosts");
                    output.findings.push(too_late(key, field, host, known));
                }
                continue;
            }
            if let Some(keeper) = credential::keeper(reader, scene.above, site, &way) {
                let finding = credential::kept_from(reader, host, (site, &way), keeper);
                output.findings.push(finding);
                continue;
            }
            holders.push(Holder {
                listener: way.listener,
                door: Some(way.door),
                origin: origin(OriginKind::Gateway, key),
            });
        }
    }
    Holders(holders)
}

/// Whether somebody else does another thing with handshakes, where one of both hands bytes on.
fn is_in_the_way(known: &Holder, door: &Door) -> bool {
    let is_stream = |door: &Door| matches!(door, Door::TlsStream | Door::Passing);
    let is_any = is_stream(door) || known.door.as_ref().is_some_and(is_stream);
    let is_closed = *door == Door::Closed || known.door == Some(Door::Closed);
    known.door.as_ref() != Some(door) && is_any && !is_closed
}

/// Adds the stream routes of a host.
pub(crate) fn build(
    reader: &mut Reader<'_>,
    host: &Host,
    (sites, tenants): (&[Site], &[Tenant]),
    (holders, narrower): (&Holders, &mut Narrower),
    output: &mut Output,
) {
    let before = output.resources.len();
    for (number, tenant) in tenants.iter().enumerate() {
        if tenant.named == Named::Sni
            && let Some(holder) = holders.in_the_way(tenant)
        {
            output.findings.push(kept(tenant, host, holder));
        }
        rule::add(
            reader,
            (host, host.as_str()),
            (number, tenant),
            (holders, &mut *narrower),
            output,
        );
    }
    let is_led = output.resources.len() > before;
    for door in [Door::Passing, Door::TlsStream] {
        close(host, &door, holders, output);
    }
    let is_exact = matches!(host.pattern(), Pattern::Exact(_));
    let mut named = tenants.iter().filter(|it| it.is_exact(host));
    let is_by_name = named.any(|tenant| !tenant.service.spec.tls.is_empty());
    // What is below a wildcard may all lead somewhere, but what ends there is taken by no rule of
    // handshakes.
    if is_led || !(is_exact || is_by_name) {
        return;
    }
    for site in sites.iter().filter(|site| site.is_own) {
        for way in entrance::effective(reader, &site.gateway, host) {
            let is_stream = match way.door {
                Door::Passing => is_exact && holders.is_held(&way.listener),
                Door::TlsStream => holders.is_held(&way.listener),
                Door::Stream => is_exact,
                Door::Plain | Door::ToTls | Door::Tls | Door::Closed => false,
            };
            if is_stream && holders.admits(&way.listener, &way.door) {
                let key = &site.gateway.meta.key;
                let field = entrance::field(reader, key, way.server, "hosts");
                let is_ended = is_by_name && way.door == Door::TlsStream;
                output.findings.push(nowhere(key, field, (host, is_ended)));
            }
        }
    }
}

/// Adds the stream routes of a VirtualService at sidecars, where nobody else has a listener. The
/// label stands for the host in their names.
pub(crate) fn add_captured(
    reader: &mut Reader<'_>,
    (host, label): (&Host, &str),
    tenant: &Tenant,
    output: &mut Output,
) {
    let holders = Holders(Vec::new());
    let rest = (&holders, &mut Narrower::default());
    rule::add(reader, (host, label), (0, tenant), rest, output);
}

/// Closes what no rule takes on the listeners where a Gateway hands on what is for this host: a
/// broader domain must not answer in its place, nor must HTTP be spoken.
fn close(host: &Host, door: &Door, holders: &Holders, output: &mut Output) {
    let terminate = *door == Door::TlsStream;
    let is_taken = |listener: &Name| {
        let mut values = output.resources.iter().map(|(_, resource)| &resource.value);
        values.any(|value| match value {
            Value::StreamRoute(stream_route) => {
                stream_route.terminate == terminate
                    && stream_route.sources.is_empty()
                    && stream_route.destinations.is_empty()
                    && stream_route.hosts.contains(host)
                    && stream_route.listeners.contains(listener)
            }
            _ => false,
        })
    };
    let held = holders
        .0
        .iter()
        .filter(|holder| holder.door.as_ref() == Some(door) && !is_taken(&holder.listener));
    let held: Vec<&Holder> = held.collect();
    let Some(first) = held.first() else {
        return;
    };
    let mut listeners: Vec<Name> = held.iter().map(|it| it.listener.clone()).collect();
    listeners.sort_unstable();
    let stream_route = StreamRoute {
        listeners: listeners.into(),
        hosts: [host.clone()].into(),
        rank: CLOSING_RANK,
        terminate,
        ..rule::blank()
    };
    let end = if terminate { "closed+tls" } else { "closed" };
    let name = Name::new(format!("{}/{host}/{end}", first.origin.id));
    let resource = Resource {
        origin: first.origin.clone(),
        value: Value::StreamRoute(Box::new(stream_route)),
    };
    output.resources.push((name, resource));
}

/// The problems of a VirtualService's rules for streams, whatever they are bound to.
pub(crate) fn judge(service: &VirtualService, known: &ServiceNames) -> Vec<Finding> {
    let mut findings = Vec::new();
    let key = &service.meta.key;
    let mut say = |field: String, message: String, remedy: &str| {
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        findings.push(finding);
    };
    for (at, tls) in service.spec.tls.iter().enumerate() {
        for (number, matched) in tls.matches.iter().enumerate() {
            let field = |end: &str| format!("spec.tls[{at}].match[{number}].{end}");
            for (sni_at, sni) in matched.sni_hosts.iter().enumerate() {
                if !known.is_own_name(sni) {
                    say(
                        field(&format!("sniHosts[{sni_at}]")),
                        format!("{sni} is not within spec.hosts, so it has no effect"),
                        "add it, or a wildcard above it, to spec.hosts",
                    );
                }
            }
            if let Err((message, remedy)) = rule::ranges(&matched.destination_subnets) {
                say(field("destinationSubnets"), message.into(), remedy);
            }
        }
    }
    for (at, tcp) in service.spec.tcp.iter().enumerate() {
        for (number, matched) in tcp.matches.iter().enumerate() {
            if let Err((end, (message, remedy))) = rule::both_ranges(matched) {
                let field = format!("spec.tcp[{at}].match[{number}].{end}");
                say(field, message.into(), remedy);
            }
        }
    }
    findings
}

fn origin(kind: OriginKind, key: &ObjectKey) -> Origin {
    let id: Arc<str> = key.id().clone();
    Origin { kind, id }
}

fn too_late(key: &ObjectKey, field: String, host: &Host, known: &Holder) -> Finding {
    let does = match &known.door {
        Some(Door::Passing) => "passes on",
        Some(Door::TlsStream) => "ends, for streams,",
        _ => "ends",
    };
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is without effect on {host}, whose TLS {} {does} there",
            known.origin
        ),
        "use another host or port",
    )
}

fn kept(tenant: &Tenant, host: &Host, holder: &Holder) -> Finding {
    Finding::new(
        Severity::Error,
        &tenant.service.meta.key,
        tenant.field(host),
        format!(
            "is without effect on {host}, whose TLS {} ends there",
            holder.origin
        ),
        "use another host or port",
    )
}

/// The finding about a server whose connections no rule takes. `is_ended` says that there are rules
/// of handshakes for the host, which end at the server.
fn nowhere(key: &ObjectKey, field: String, (host, is_ended): (&Host, bool)) -> Finding {
    let remedy = match is_ended {
        true => {
            "bind a VirtualService to the Gateway, with tcp rules for the host: its TLS ends \
             there, and tls rules are for handshakes that go on as they come"
        }
        false => "bind a VirtualService to the Gateway, with tls or tcp rules for the host",
    };
    Finding::new(
        Severity::Warning,
        key,
        field,
        format!("leads nowhere for {host}, so its connections are closed"),
        remedy,
    )
}
