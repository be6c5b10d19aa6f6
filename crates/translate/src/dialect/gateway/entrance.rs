//! Gateways and ListenerSets: what they claim, and the hosts and ports where that has an effect.

use myriad_api::ObjectKind;
use myriad_api::gateway::Gateway;
use myriad_model::Host;

use super::entity::Entity;
use super::facts::{GatewayFact, is_default};
use super::ports::{self, Socket};
use super::realm::realm;
use super::standing::{self, GatewayStanding, Mode};
use super::{backend_tls, clients};
use crate::engine::{Output, PortSpeech, Reader, Stake, StakeClaim, Unit};

/// Translates the claims of a Gateway or a ListenerSet, or of a BackendTLSPolicy.
pub(crate) fn translate_listeners(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    if key.kind == ObjectKind::BackendTlsPolicy {
        output.stakes = backend_tls::claims(reader, &key);
        return output;
    }
    let Ok(standing) = standing::of(reader, &key) else {
        return output;
    };
    output.entered.extend(standing.entered());
    output.stakes = ports::stakes(reader, &standing);
    if let Entity::Gateway(gateway) = &standing.entity {
        output.stakes.extend(clients::stakes(reader, gateway));
        output.stakes.extend(default_stake(reader, gateway));
    }
    if standing.is_served(reader) {
        output.ports = ports::claims(reader, &standing);
    }
    output
}

/// The claim of a Gateway to be one of those of its namespace that take routes without a parent.
fn default_stake(reader: &Reader<'_>, gateway: &Gateway) -> Option<Stake> {
    let meta = &gateway.meta;
    let fact = GatewayFact::Defaults(meta.key.namespace());
    is_default(gateway).then(|| Stake {
        seat: reader.hash(fact),
        claim: StakeClaim {
            order: 0,
            created: meta.created,
            id: meta.key.id().clone(),
            value: 0,
        },
    })
}

/// Translates a Gateway or a ListenerSet: the hosts and ports of its listeners.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(key) = unit.object_key() else {
        return output;
    };
    let Ok(standing) = standing::of(reader, &key) else {
        return output;
    };
    output.entered.extend(standing.entered());
    if standing.mode == Mode::Dedicated {
        output.stakes = ports::use_of(reader, &standing);
    }
    if !standing.is_served(reader) {
        return output;
    }
    output.is_concerned = true;
    for at in 0..standing.entity.listeners().len() {
        let Ok(place) = ports::find(reader, &standing, at) else {
            continue;
        };
        let is_stream = matches!(place.speech, PortSpeech::Tcp | PortSpeech::Udp);
        if let Socket::Port(port) = &place.socket {
            output.needs.push(Unit::listener(port.clone()));
            let stream = is_stream.then(|| Unit::stream_port(port.clone()));
            output.needs.extend(stream);
        }
        if is_stream {
            continue;
        }
        let stake = named_stake(reader, &standing, &place.host);
        output.stakes.extend(stake);
        output.needs.push(Unit::host_of(place.host));
    }
    output
}

/// The claim of an object to a host that it names, where that belongs to a namespace. By it the
/// engine learns who comes to a host without an edit, and nobody reads it.
fn named_stake(reader: &mut Reader<'_>, standing: &GatewayStanding, host: &Host) -> Option<Stake> {
    let settings = reader.settings();
    if realm(settings, standing, host).is_empty() || !settings.late_claims {
        return None;
    }
    let meta = standing.entity.meta();
    Some(Stake {
        seat: reader.hash(GatewayFact::NamedSeat(host.as_str())),
        claim: StakeClaim {
            order: 0,
            created: reader.noted_api_claim(meta, host).since(),
            id: meta.key.id().clone(),
            value: meta.key.kind as u32,
        },
    })
}
