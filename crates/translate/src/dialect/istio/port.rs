//! Ports of Gateways: which listener stands for each, and who may speak there.
//!
//! 80 and 443, and the numbers of the process' own two listeners, stand for those. Every other
//! port is a listener of its own, named by number and address, for all the servers that name it.
//! Servers on one port share it where they speak alike: plain HTTP, TLS, or plain TCP. Where they
//! do not, the oldest Gateway has it, as in Istio, and the others' servers are without effect.

use std::collections::BTreeMap;

use myriad_api::istio::Gateway;
use myriad_api::istio::gateway::Server;
use myriad_model::{Listener, ListenerProtocol, Name, Origin, OriginKind, Resource, Value};

use crate::engine::{Output, PortClaim, PortKey, PortSpeech, Reader};
use crate::settings::Settings;
use crate::view::View;

/// The listener that a server stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// One of the process' own two.
    Own(&'static str),
    /// One that is there for Gateways.
    Port(PortKey),
}

/// The reason why a server has no listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Homeless {
    /// Its protocol is none that is known.
    Protocol,
    /// It binds to what is no address.
    Bind,
    /// The port is the process' own and speaks otherwise.
    Own(PortSpeech),
    /// The port is not among those that Gateways may use.
    NotAdmitted,
    /// Another Gateway has the port, and speaks otherwise there.
    Taken(PortClaim),
}

impl Stand {
    /// The name of the listener.
    pub fn name(&self) -> Name {
        match self {
            Stand::Own(name) => Name::from(*name),
            Stand::Port(key) => key.name(),
        }
    }
}

/// The place that a server would have, if nobody else were there.
///
/// # Errors
/// Why it stands nowhere.
pub fn wanted(server: &Server, settings: &Settings) -> Result<(Stand, PortSpeech), Homeless> {
    let speech = PortSpeech::read(&server.port.protocol).ok_or(Homeless::Protocol)?;
    let bind = match &*server.bind {
        "" => None,
        text => Some(text.parse().map_err(|_| Homeless::Bind)?),
    };
    let number = server.port.number;
    let (http, https) = (settings.http.port(), settings.https.port());
    let own = match number {
        80 => Some((http, PortSpeech::Http, "http")),
        443 => Some((https, PortSpeech::Tls, "https")),
        _ if number == http => Some((http, PortSpeech::Http, "http")),
        _ if number == https || number == settings.https_port => {
            Some((https, PortSpeech::Tls, "https"))
        }
        _ => None,
    };
    match (own, bind) {
        (Some((_, spoken, name)), None) if spoken == speech => Ok((Stand::Own(name), speech)),
        (Some((_, spoken, _)), None) => Err(Homeless::Own(spoken)),
        // On an address of its own it takes nothing from the others.
        (Some((number, _, _)), bind) => Ok((Stand::Port(PortKey { number, bind }), speech)),
        (None, bind) if settings.gateway_ports.admits(number) => {
            Ok((Stand::Port(PortKey { number, bind }), speech))
        }
        (None, _) => Err(Homeless::NotAdmitted),
    }
}

/// The place of a server among all.
///
/// # Errors
/// Why it stands nowhere.
pub fn stand(reader: &mut Reader<'_>, server: &Server) -> Result<(Stand, PortSpeech), Homeless> {
    let (stand, speech) = wanted(server, reader.settings())?;
    if let Stand::Port(key) = &stand
        && reader.speech(key).is_some_and(|spoken| spoken != speech)
        && let Some(owner) = reader.port_owner(key)
    {
        return Err(Homeless::Taken(owner));
    }
    Ok((stand, speech))
}

/// The ports that a Gateway claims in a view, each once: within it, the first server wins.
pub fn claims(
    gateway: Option<&Gateway>,
    view: &View,
    settings: &Settings,
) -> BTreeMap<PortKey, PortClaim> {
    let mut claims = BTreeMap::new();
    if let Some(gateway) = gateway.filter(|gateway| view.has_labels(&gateway.spec.selector)) {
        let mut former = None;
        for server in &gateway.spec.servers {
            // A thousand servers in a row name one port; the first says all that counts.
            if former.replace((&server.port, &server.bind)) == Some((&server.port, &server.bind)) {
                continue;
            }
            if let Ok((Stand::Port(key), speech)) = wanted(server, settings) {
                claims.entry(key).or_insert_with(|| PortClaim {
                    created: gateway.meta.created,
                    gateway: gateway.meta.key.id().clone(),
                    speech,
                });
            }
        }
    }
    claims
}

/// Translates the listener of a port.
pub fn translate(reader: &mut Reader<'_>, key: &PortKey) -> Output {
    let mut output = Output::default();
    let Some(owner) = reader.port_owner(key) else {
        return output;
    };
    let listener = Listener {
        address: key.address(reader.settings()),
        tls: owner.speech == PortSpeech::Tls,
        default_certificate: None,
        protocol: match owner.speech {
            PortSpeech::Http | PortSpeech::Tls => ListenerProtocol::Http,
            PortSpeech::Tcp => ListenerProtocol::Tcp,
        },
        capture: None,
    };
    let origin = Origin {
        kind: OriginKind::Gateway,
        id: owner.gateway,
    };
    let resource = Resource {
        origin,
        value: Value::Listener(Box::new(listener)),
    };
    output.resources.push((key.name(), resource));
    output
}
