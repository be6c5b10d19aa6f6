//! The sockets of listeners, and what keeps a listener from its own.
//!
//! All proxies share two sockets, `http` and `https`, and Gateways that are served by all of them
//! share those. Any other port has a socket of its own, as every port of a Gateway with proxies of
//! its own has. One socket is there for all listeners of a port.

use std::collections::BTreeMap;

use myriad_api::gateway::Listener;
use myriad_model::{Host, Name};

use super::entity::{Entity, host_of, terminates};
use super::facts::GatewayFact;
use super::realm::{is_owned_apart, realm};
use super::route::speech_of;
use super::standing::{GatewayStanding, Mode};
use crate::engine::{
    CROWD_MIN, Claimed, PortClaim, PortKey, PortSpeech, Reader, Stake, StakeClaim, namespace_of,
};
use crate::resolve::names::broader;
use crate::settings::Settings;

/// The most ports that the proxies of one Gateway have, the Gateway's own first, and then those
/// that its ListenerSets have had for longest.
pub(crate) const PORTS_OF_GATEWAY_MAX: usize = 128;

/// The most of them that the ListenerSets of one namespace have, unless it is the Gateway's own: so
/// there are some left for others.
pub(crate) const PORTS_OF_NAMESPACE_MAX: usize = 96;

/// The bit of a number of UDP, beside the number.
const UDP: u32 = 1 << 16;

const _: () = assert!(PORTS_OF_GATEWAY_MAX >= CROWD_MIN && PORTS_OF_NAMESPACE_MAX >= CROWD_MIN);

/// The socket that a listener is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// One that all proxies have.
    Own(&'static str),
    /// One that is there for Gateways.
    Port(PortKey),
}

/// Why a listener is no part of any socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its protocol is not known.
    Protocol,
    /// Its host is none, for this reason.
    Hostname(String),
    /// It is for TLS, and says nothing of it, or the other way round.
    Tls,
    /// At its port something else is spoken, by another listener of its Gateway.
    ProtocolConflict,
    /// Another listener of its Gateway has its host at its port, or its port.
    HostnameConflict,
    /// Its port cannot be had, for this reason.
    Port(String),
    /// Its namespace may not claim its host.
    Unclaimable(Host),
    /// Its host belongs to another namespace.
    Foreign(Host),
}

/// A listener that is a part of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The socket.
    pub socket: Socket,
    /// The words on the wire.
    pub speech: PortSpeech,
    /// The host.
    pub host: Host,
}

impl Socket {
    /// The name of the listener that proxies have for it.
    pub(crate) fn name(&self) -> Name {
        match self {
            Socket::Own(name) => Name::from(*name),
            Socket::Port(key) => key.name(),
        }
    }
}

/// The place that a listener would have if it were alone.
///
/// # Errors
/// Why it has none.
fn alone(listener: &Listener, mode: Mode, settings: &Settings) -> Result<Placement, Fault> {
    let speech = speech_of(&listener.protocol).ok_or(Fault::Protocol)?;
    let host = host_of(listener).map_err(|error| Fault::Hostname(error.to_string()))?;
    let is_passed_on = speech == PortSpeech::Tls && !terminates(listener);
    let is_of_tls = listener.tls.is_some() == (speech == PortSpeech::Tls);
    if !is_of_tls || is_passed_on && *listener.protocol != *"TLS" {
        return Err(Fault::Tls);
    }
    let number = listener.port;
    let own = Socket::Port(PortKey {
        number,
        bind: None,
        is_udp: speech == PortSpeech::Udp,
    });
    if mode == Mode::Dedicated {
        if settings.gateway_ports.except.contains(&number) {
            let why = "the proxies listen there for themselves".to_owned();
            return Err(Fault::Port(why));
        }
        return Ok(Placement {
            socket: own,
            speech,
            host,
        });
    }
    let (http, https) = (settings.http.port(), settings.https.port());
    let is_http = number == 80 || number == http;
    let is_https = number == 443 || number == https || number == settings.https_port;
    let socket = match speech {
        PortSpeech::Http if is_http => Socket::Own("http"),
        PortSpeech::Tls if is_https => Socket::Own("https"),
        PortSpeech::Http | PortSpeech::Tls | PortSpeech::Tcp if is_http || is_https => {
            let spoken = if is_http {
                PortSpeech::Http
            } else {
                PortSpeech::Tls
            };
            let why = format!("{} is spoken there", spoken.as_str());
            return Err(Fault::Port(why));
        }
        _ if settings.gateway_ports.admits(number) => own,
        _ => {
            let why = "Gateways may not use it here: see --gateway-ports".to_owned();
            return Err(Fault::Port(why));
        }
    };
    Ok(Placement {
        socket,
        speech,
        host,
    })
}

/// The text by which a listener is known among all claims to a seat. A comma sorts before all that
/// another name may go on with.
fn known_as(entity: &Entity, listener: &Listener) -> String {
    let key = entity.key();
    format!("{} {},{}", key.kind.as_str(), key.id(), listener.name)
}

/// The claim of a listener to its port: as old as its object, or as the edit by which that came to
/// the port.
fn port_claim(
    reader: &Reader<'_>,
    entity: &Entity,
    listener: &Listener,
    speech: PortSpeech,
) -> StakeClaim {
    let meta = entity.meta();
    let late = match reader.is_late(&meta.key) {
        true => reader.claimed_since(meta, &Claimed::Port(listener.port, speech)),
        false => None,
    };
    StakeClaim {
        order: entity.order(),
        created: meta.created.max(late.unwrap_or(meta.created)),
        id: known_as(entity, listener).into(),
        value: speech as u32,
    }
}

/// The same to its host at the port, to which the object may have come later.
fn host_claim(
    reader: &mut Reader<'_>,
    entity: &Entity,
    of_port: &StakeClaim,
    host: &Host,
) -> StakeClaim {
    let since = reader.noted_api_claim(entity.meta(), host).since();
    StakeClaim {
        created: of_port.created.max(since),
        ..of_port.clone()
    }
}

/// The place of a listener among those of its object, of which none has its place that cannot be
/// told apart from another one.
///
/// # Errors
/// Why it has none.
fn among_own(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    at: usize,
) -> Result<Placement, Fault> {
    let entity = &standing.entity;
    let listener = entity.listeners().get(at).ok_or(Fault::Protocol)?;
    let place = alone(listener, standing.mode, reader.settings())?;
    if !standing.may_claim(reader, &place.host) {
        return Err(Fault::Unclaimable(place.host));
    }
    let (port, beside) = (listener.port, standing.beside());
    if beside.is_split(port, place.speech) {
        // The object claims no port of which it says two things, and may have it as one that went
        // before has it.
        let seat = port_seat(reader, &entity.gateway_id(), port, place.speech);
        let own = port_claim(reader, entity, listener, place.speech);
        let before = reader.seat(seat).filter(|holder| *holder < own);
        if before.is_none_or(|holder| holder.value != own.value) {
            return Err(Fault::ProtocolConflict);
        }
    }
    if beside.is_doubled(port, place.speech, &place.host) {
        // No seat tells whoever reads this listener alone that the other one is gone.
        let key = entity.key();
        reader.read(GatewayFact::Listeners(key.kind, key.id()));
        return Err(Fault::HostnameConflict);
    }
    Ok(place)
}

/// The claims of an object with listeners to seats, of those of its listeners that are valid.
pub(crate) fn stakes(reader: &mut Reader<'_>, standing: &GatewayStanding) -> Vec<Stake> {
    let entity = &standing.entity;
    let gateway = entity.gateway_id();
    let mut stakes = Vec::new();
    for (at, listener) in entity.listeners().iter().enumerate() {
        let Ok(place) = among_own(reader, standing, at) else {
            continue;
        };
        let of_port = port_claim(reader, entity, listener, place.speech);
        let claim = host_claim(reader, entity, &of_port, &place.host);
        let (port, speech) = (listener.port, place.speech as u8);
        let host = place.host.as_str();
        if !standing.beside().is_split(port, place.speech) {
            let seat = port_seat(reader, &gateway, port, place.speech);
            let claim = of_port;
            stakes.push(Stake { seat, claim });
        }
        let seat = reader.hash(GatewayFact::HostSeat(&gateway, (port, speech), host));
        stakes.push(Stake {
            seat,
            claim: claim.clone(),
        });
        let realm = realm(reader.settings(), standing, &place.host);
        if entity.is_set() && !realm.is_empty() {
            let fact = GatewayFact::SetSeat(&gateway, (port, speech), host, realm);
            let seat = reader.hash(fact);
            let claim = claim.clone();
            stakes.push(Stake { seat, claim });
        }
        if place.speech == PortSpeech::Tls {
            stakes.extend(below(reader, (&gateway, port), &place.host, &claim));
        }
        if standing.mode == Mode::Shared {
            // Which of several Gateways has a host at a socket that they share, of those that
            // the owner of the host has there.
            let of_gateway = StakeClaim {
                order: 0,
                id: gateway.clone(),
                ..claim
            };
            let socket = place.socket.name();
            let seat = reader.hash(GatewayFact::SharedSeat(socket.as_str(), host, realm));
            stakes.push(Stake {
                seat,
                claim: of_gateway,
            });
        }
    }
    stakes
}

/// The place of a listener, as its status has it: hosts have said by then whose they are.
///
/// # Errors
/// Why it has none.
pub(crate) fn find_owned(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    at: usize,
) -> Result<Placement, Fault> {
    let place = find(reader, standing, at)?;
    match is_owned_apart(reader, standing, &place.host, false) {
        true => Err(Fault::Foreign(place.host)),
        false => Ok(place),
    }
}

/// The claims of a listener with TLS by which those with broader hosts at its port know of it.
fn below(
    reader: &Reader<'_>,
    (gateway, port): (&str, u16),
    host: &Host,
    claim: &StakeClaim,
) -> Vec<Stake> {
    let patterns = broader(host).into_iter();
    let stakes = patterns.map(|pattern| Stake {
        seat: reader.hash(GatewayFact::BelowSeat(gateway, port, pattern.as_str())),
        claim: claim.clone(),
    });
    stakes.collect()
}

/// The seat of who says what is spoken at a port of a Gateway.
fn port_seat(reader: &Reader<'_>, gateway: &str, port: u16, speech: PortSpeech) -> u64 {
    let is_udp = speech == PortSpeech::Udp;
    reader.hash(GatewayFact::PortSeat(gateway, port, is_udp))
}

/// The claim of a port to be one of those of a Gateway, by that of the listener which has it.
fn use_claim(holder: StakeClaim, port: u16, speech: PortSpeech) -> StakeClaim {
    let of_udp = if speech == PortSpeech::Udp { UDP } else { 0 };
    StakeClaim {
        value: u32::from(port) | of_udp,
        ..holder
    }
}

/// The ports of a Gateway with proxies of its own that listeners of an object have, each claimed
/// once, so that they can be counted.
pub(crate) fn use_of(reader: &mut Reader<'_>, standing: &GatewayStanding) -> Vec<Stake> {
    let entity = &standing.entity;
    let gateway = entity.gateway_id();
    let mut stakes = Vec::new();
    for (at, listener) in entity.listeners().iter().enumerate() {
        let Ok(place) = among_own(reader, standing, at) else {
            continue;
        };
        let own = port_claim(reader, entity, listener, place.speech);
        let seat = port_seat(reader, &gateway, listener.port, place.speech);
        if reader.seat(seat).as_ref() != Some(&own) {
            continue;
        }
        let claim = use_claim(own, listener.port, place.speech);
        let own_share = share_of(reader, &gateway, &claim);
        stakes.extend(own_share.map(|seat| Stake {
            seat,
            claim: claim.clone(),
        }));
        if is_within_share(reader, &gateway, &claim) {
            let seat = reader.hash(GatewayFact::Ports(&gateway));
            stakes.push(Stake { seat, claim });
        }
    }
    stakes
}

/// The seat of the ports of a Gateway that the namespace of a claim to one has; none where that is
/// the Gateway's own.
fn share_of(reader: &Reader<'_>, gateway: &str, claim: &StakeClaim) -> Option<u64> {
    // As [`known_as`] writes it.
    let (_, id) = claim.id.split_once(' ')?;
    let namespace = namespace_of(id);
    let is_other = namespace != namespace_of(gateway);
    is_other.then(|| reader.hash(GatewayFact::PortsOf(gateway, namespace)))
}

/// Whether a claim to a port of a Gateway is among those that its namespace may have there.
fn is_within_share(reader: &mut Reader<'_>, gateway: &str, claim: &StakeClaim) -> bool {
    let seat = share_of(reader, gateway, claim);
    seat.is_none_or(|seat| reader.is_within(seat, claim, PORTS_OF_NAMESPACE_MAX))
}

/// The ports that the proxies of a Gateway have, and whether each is of UDP.
pub(crate) fn used(reader: &mut Reader<'_>, gateway: &str) -> Vec<(u16, bool)> {
    let seat = reader.hash(GatewayFact::Ports(gateway));
    let claims = reader.first_claims(seat, PORTS_OF_GATEWAY_MAX).into_iter();
    let ports = claims.filter_map(|claim| {
        let number = u16::try_from(claim.value & !UDP).ok()?;
        Some((number, claim.value & UDP > 0))
    });
    ports.collect()
}

/// The ports that an object with listeners claims on the proxies of the view.
pub(crate) fn claims(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
) -> BTreeMap<PortKey, PortClaim> {
    let entity = &standing.entity;
    let mut claims = BTreeMap::new();
    for at in 0..entity.listeners().len() {
        let Ok(place) = among_own(reader, standing, at) else {
            continue;
        };
        let Socket::Port(key) = place.socket else {
            continue;
        };
        claims.entry(key).or_insert_with(|| PortClaim {
            order: entity.order(),
            created: entity.meta().created,
            gateway: entity.key().clone(),
            speech: place.speech,
            // All that is for one Gateway shares its ports.
            realm: standing.gateway.meta.key.namespace().into(),
        });
    }
    claims
}

/// The place of a listener of an object, by all that is known of others.
///
/// # Errors
/// Why it has none.
pub(crate) fn find(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    at: usize,
) -> Result<Placement, Fault> {
    let entity = &standing.entity;
    let listener = entity.listeners().get(at).ok_or(Fault::Protocol)?;
    let place = among_own(reader, standing, at);
    if let Err(Fault::Port(_)) = &place
        && is_contradicted(reader, standing, listener)
    {
        return Err(Fault::ProtocolConflict);
    }
    let place = place?;
    let gateway = entity.gateway_id();
    let seat = port_seat(reader, &gateway, listener.port, place.speech);
    let of_port = reader.seat(seat);
    let spoken = of_port.as_ref().map(|claim| claim.value);
    if spoken.is_some_and(|spoken| spoken != place.speech as u32) {
        return Err(Fault::ProtocolConflict);
    }
    if is_taken(reader, standing, listener, &place) {
        return Err(Fault::HostnameConflict);
    }
    match (standing.mode, of_port) {
        (Mode::Shared, _) => share(reader, standing, &place)?,
        (Mode::Dedicated, Some(of_port)) => {
            let seat = reader.hash(GatewayFact::Ports(&gateway));
            let claim = use_claim(of_port, listener.port, place.speech);
            if !is_within_share(reader, &gateway, &claim) {
                let why = format!("its namespace has {PORTS_OF_NAMESPACE_MAX} others there");
                return Err(Fault::Port(why));
            }
            if !reader.is_within(seat, &claim, PORTS_OF_GATEWAY_MAX) {
                let why = format!("its Gateway has {PORTS_OF_GATEWAY_MAX} others");
                return Err(Fault::Port(why));
            }
        }
        (Mode::Dedicated, None) => {}
    }
    Ok(place)
}

/// Whether another listener of its Gateway has the host of a listener at its port: one of the
/// Gateway itself, or of an older ListenerSet.
fn is_taken(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    listener: &Listener,
    place: &Placement,
) -> bool {
    let entity = &standing.entity;
    let (gateway, own) = (entity.gateway_id(), known_as(entity, listener));
    let (port, host) = ((listener.port, place.speech as u8), place.host.as_str());
    let seat = reader.hash(GatewayFact::HostSeat(&gateway, port, host));
    let mut other = reader.seat(seat).filter(|holder| *holder.id != *own);
    let realm = realm(reader.settings(), standing, &place.host);
    if other.as_ref().is_some_and(|it| it.order > 0) && !realm.is_empty() {
        let seat = reader.hash(GatewayFact::SetSeat(&gateway, port, host, realm));
        other = reader.seat(seat).filter(|holder| *holder.id != *own);
    }
    other.is_some()
}

/// Whether a listener of a Gateway has a host at a port, by what is spoken there, so that none of
/// an object for broader hosts answers for it: one of the Gateway itself or of the object's
/// namespace, or, of others, one that has had it since before a time, where there is one.
pub(crate) fn governs(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    (port, host): ((u16, u8), &Host),
    since: Option<i64>,
) -> bool {
    let gateway = standing.entity.gateway_id();
    let seat = reader.hash(GatewayFact::HostSeat(&gateway, port, host.as_str()));
    let Some(holder) = reader.seat(seat) else {
        return false;
    };
    let realm = realm(reader.settings(), standing, host);
    let is_older = since.is_some_and(|since| holder.created < since);
    if holder.order == 0 || realm.is_empty() || is_older {
        return true;
    }
    let fact = GatewayFact::SetSeat(&gateway, port, host.as_str(), realm);
    let seat = reader.hash(fact);
    reader.seat(seat).is_some()
}

/// Whether another listener of its Gateway that goes before it, or of its own object, speaks
/// something else at the port of a listener which nobody could have as it wants it.
fn is_contradicted(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    listener: &Listener,
) -> bool {
    let Some(speech) = speech_of(&listener.protocol) else {
        return false;
    };
    let (entity, port) = (&standing.entity, listener.port);
    let own = port_claim(reader, entity, listener, speech);
    let seat = port_seat(reader, &entity.gateway_id(), port, speech);
    let before = reader.seat(seat).filter(|holder| *holder < own);
    standing.beside().is_split(port, speech)
        || before.is_some_and(|holder| holder.value != own.value)
}

/// Checks that a listener has its place beside those of other Gateways at the same proxies.
fn share(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    place: &Placement,
) -> Result<(), Fault> {
    if let Socket::Port(key) = &place.socket {
        let spoken = reader.speech(key);
        let owner = reader.port_owner(key).or_else(|| reader.number_owner(key));
        let realm = standing.gateway.meta.key.namespace();
        let is_named = matches!(place.speech, PortSpeech::Http | PortSpeech::Tls);
        if let Some(owner) = owner {
            let is_ours = is_named || *owner.realm == *realm;
            if spoken != Some(place.speech) || !is_ours {
                let by = owner.gateway;
                let why = format!("{} is spoken there for {by}", owner.speech.as_str());
                return Err(Fault::Port(why));
            }
        }
    }
    if place.host == Host::any() {
        return Ok(());
    }
    let (socket, host) = (place.socket.name(), place.host.as_str());
    let realm = realm(reader.settings(), standing, &place.host);
    let seat = reader.hash(GatewayFact::SharedSeat(socket.as_str(), host, realm));
    let holder = reader.seat(seat);
    let gateway = standing.entity.gateway_id();
    match holder.is_some_and(|holder| holder.id != gateway) {
        true => Err(Fault::HostnameConflict),
        false => Ok(()),
    }
}

/// Whether a Gateway is the one that has a host at a socket that Gateways share, in every view.
pub(crate) fn has_shared(
    reader: &mut Reader<'_>,
    standing: &GatewayStanding,
    socket: &Name,
    host: &Host,
) -> bool {
    let realm = realm(reader.settings(), standing, host);
    let fact = GatewayFact::SharedSeat(socket.as_str(), host.as_str(), realm);
    let seat = reader.hash(fact);
    let holder = reader.seat(seat);
    let is_first = holder.is_some_and(|holder| holder.id == standing.entity.gateway_id());
    is_first && !is_owned_apart(reader, standing, host, true)
}
