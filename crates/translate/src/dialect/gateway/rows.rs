//! The rules of a route as proxies have them, and the destinations of ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::Host;

use super::attach::{Attached, ParentAnswer, attach};
use super::entity::terminates;
use super::facts::GatewayFact;
use super::host::may_be_unnamed;
use super::parent::judge;
use super::ports::{self, Socket};
use super::realm::is_owned_apart;
use super::route::RouteObject;
use super::standing::{self, GatewayStanding, Mode};
use super::tenants::{RouteTenant, Section};
use super::{rules, streams};
use crate::engine::{Output, PortKey, PortSpeech, Reader, Unit, UnitKey};

/// Translates the rules of a route: once for all parts of sockets of one Gateway where it has the
/// same hosts.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let route = unit.object_key().and_then(|key| reader.route_itself(&key));
    let Some(route) = route.filter(|route| !is_of_ports(route)) else {
        return output;
    };
    let mut groups: BTreeMap<(ObjectKey, Vec<Host>), Vec<Section>> = BTreeMap::new();
    for attachment in attach(reader, &route) {
        let ParentAnswer::Taken(taken) = attachment.answer else {
            continue;
        };
        for attached in taken {
            output.entered.extend(attached.standing.entered());
            let Some(section) = section(reader, &attached) else {
                continue;
            };
            let (standing, mut hosts) = (attached.standing, attached.hosts);
            hosts.retain(|host| may_answer(reader, &route, &standing, host));
            if hosts.is_empty() {
                continue;
            }
            let gateway = standing.gateway.meta.key.clone();
            let sections = groups.entry((gateway, hosts)).or_default();
            if !sections.contains(&section) {
                sections.push(section);
            }
        }
    }
    if groups.is_empty() || judge(reader, &route, None).refused.is_some() {
        return output;
    }
    for ((gateway, hosts), mut sections) in groups {
        sections.sort_by(|a, b| a.name.cmp(&b.name));
        let Some(first) = sections.first() else {
            continue;
        };
        let tenant = RouteTenant {
            route: route.clone(),
            hosts: hosts.into(),
            label: first.name.as_str().to_owned(),
            sections,
            gateway: Some(gateway),
            mesh: None,
        };
        match route.is_of_requests() {
            true => rules::build(reader, &tenant, &mut output),
            false => streams::build(reader, &tenant, &mut output),
        }
    }
    output
}

/// Whether a route is for all that comes to a port.
fn is_of_ports(route: &RouteObject) -> bool {
    matches!(route, RouteObject::Tcp(_) | RouteObject::Udp(_))
}

/// The part of a socket by which a route is entered on the proxies of the view, where its listener
/// has an effect.
fn section(reader: &mut Reader<'_>, attached: &Attached) -> Option<Section> {
    let standing = &attached.standing;
    let listener = attached.listener()?;
    if !standing.is_served(reader) {
        return None;
    }
    ports::find(reader, standing, attached.at).ok()?;
    Some(Section {
        name: standing.entity.section(listener),
        port: listener.port,
        terminates: terminates(listener),
    })
}

/// Whether a route may answer for a host at a listener of an object. Rows for one of another
/// namespace would never be asked, and be in the way of those that are. Whoever writes a route for
/// the listener of another namespace answers for hosts that nobody names as by a listener of its
/// own.
fn may_answer(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    standing: &GatewayStanding,
    host: &Host,
) -> bool {
    let is_unnamed_guest = *host == Host::any()
        && standing.mode == Mode::Shared
        && standing.is_of_another(route.key().namespace());
    if is_unnamed_guest && !may_be_unnamed(reader, route.key().namespace()) {
        return false;
    }
    standing.may_claim(reader, host) && !is_owned_apart(reader, standing, host, false)
}

/// Whether a listener of an object takes a route. What a route claimed there may be from before.
fn is_taken(reader: &mut Reader<'_>, route: &RouteObject, (of, at): (&ObjectKey, usize)) -> bool {
    let taken = attach(reader, route).into_iter();
    let taken = taken.filter_map(|attachment| match attachment.answer {
        ParentAnswer::Taken(taken) => Some(taken),
        _ => None,
    });
    let mut taken = taken.flatten();
    taken.any(|it| it.at == at && it.standing.entity.key() == of)
}

/// Translates the destination of all that comes to a port.
pub(crate) fn translate_port(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    if let UnitKey::Port(port) = unit.key() {
        add_port(reader, port, &mut output);
    }
    output
}

fn add_port(reader: &mut Reader<'_>, port: &PortKey, output: &mut Output) -> Option<()> {
    let owner = reader.port_owner(port)?.gateway;
    if !matches!(owner.kind, ObjectKind::Gateway | ObjectKind::ListenerSet) {
        return None;
    }
    reader.read(GatewayFact::Listeners(owner.kind, owner.id()));
    let standing = standing::of(reader, &owner).ok()?;
    if !standing.is_served(reader) {
        return None;
    }
    for at in 0..standing.entity.listeners().len() {
        let Ok(place) = ports::find(reader, &standing, at) else {
            continue;
        };
        if place.socket != Socket::Port(port.clone()) {
            continue;
        }
        let kind = match place.speech {
            PortSpeech::Tcp => ObjectKind::TcpRoute,
            PortSpeech::Udp => ObjectKind::UdpRoute,
            PortSpeech::Http | PortSpeech::Tls => continue,
        };
        let listener = standing.entity.listeners().get(at)?;
        let fact = GatewayFact::StreamSeat(owner.kind, owner.id(), &listener.name);
        let seat = reader.hash(fact);
        let holder = reader.seat(seat)?;
        reader.read_object(kind, &holder.id);
        let route = reader.route_itself(&ObjectKey::from_id(kind, holder.id))?;
        if !is_taken(reader, &route, (&owner, at))
            || streams::judge(reader, &route).refused.is_some()
        {
            return None;
        }
        let socket = place.socket.name();
        let section = Section {
            name: socket.clone(),
            port: listener.port,
            terminates: false,
        };
        let tenant = RouteTenant {
            route,
            hosts: Arc::default(),
            sections: vec![section],
            label: socket.as_str().to_owned(),
            gateway: Some(standing.gateway.meta.key.clone()),
            mesh: None,
        };
        streams::build_port(reader, &socket, &tenant, output);
        return Some(());
    }
    None
}
