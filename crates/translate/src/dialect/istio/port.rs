//! Ports of Gateways: which listener stands for each, and who may speak there.
//!
//! 80 and 443, and the numbers of the process' own two listeners, stand for those. Every other
//! port is a listener of its own, named by number and address, for all the servers that name it.
//! Servers on one port share it where they speak alike: plain HTTP, TLS, or plain TCP. Where they
//! do not, the oldest Gateway has it, as in Istio, and the others' servers are without effect. A
//! number is of the namespace of the oldest Gateway on it, at every address: others share its
//! listener where connections have names, and have none of their own. A Gateway that is edited to
//! name a port has it since then, and a server none of whose hosts its namespace may claim has
//! none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use myriad_api::ObjectKind;
use myriad_api::istio::Gateway;
use myriad_api::istio::gateway::Server;
use myriad_model::{Listener, ListenerProtocol, Name, Origin, OriginKind, Resource, Value};

use super::admission::may_claim_by;
use crate::engine::{Claimed, Output, PortClaim, PortKey, PortSpeech, Reader};
use crate::resolve::names::{self, ServerHost};
use crate::settings::{HostSharing, Settings};
use crate::view::View;

/// The listener that a server stands on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stand {
    /// One of the process' own two.
    Own(&'static str),
    /// One that is there for Gateways.
    Port(PortKey),
}

/// The reason why a server has no listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Homeless {
    /// Its protocol is none that is known.
    Protocol,
    /// It binds to what is no address.
    Bind,
    /// The port is the process' own and speaks otherwise.
    Own(PortSpeech),
    /// The port is not among those that Gateways may use.
    NotAdmitted,
    /// Another Gateway has the port, and speaks otherwise there, or is of others.
    Taken(PortClaim),
}

impl Stand {
    /// The name of the listener.
    pub(crate) fn name(&self) -> Name {
        match self {
            Stand::Own(name) => Name::from(*name),
            Stand::Port(key) => key.name(),
        }
    }
}

/// The ports whose address the Gateways of a namespace may say. Another address may be the same
/// socket, so that it would be a way to the port of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Binding {
    /// None: what they say has no effect.
    Nowhere,
    /// All but those of the process' own two listeners.
    Ports,
    /// All.
    Everywhere,
}

impl Binding {
    /// The ports for a namespace, of which it is known whether it is that of the workload.
    fn of(settings: &Settings, is_own: bool) -> Self {
        match settings.host_sharing {
            _ if is_own => Binding::Everywhere,
            HostSharing::Cluster => Binding::Ports,
            HostSharing::Namespace => Binding::Nowhere,
        }
    }

    /// The ports for the Gateways of a namespace.
    pub(crate) fn read(reader: &Reader<'_>, namespace: &str) -> Self {
        Binding::of(reader.settings(), reader.view().is_of(namespace))
    }

    fn admits(self, is_own_listener: bool) -> bool {
        match self {
            Binding::Nowhere => false,
            Binding::Ports => !is_own_listener,
            Binding::Everywhere => true,
        }
    }
}

/// The place that a server would have, if nobody else were there, and whether the address that it
/// says has no effect on that.
///
/// # Errors
/// Why it stands nowhere.
pub(super) fn place(
    server: &Server,
    settings: &Settings,
    binding: Binding,
) -> Result<(Stand, PortSpeech, bool), Homeless> {
    let speech = PortSpeech::read(&server.port.protocol).ok_or(Homeless::Protocol)?;
    let written = match &*server.bind {
        "" => None,
        text => Some(text.parse::<IpAddr>().map_err(|_| Homeless::Bind)?),
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
    // The address that everybody has is none of its own.
    let written = written.filter(|address| *address != settings.http.ip());
    let bind = written.filter(|_| binding.admits(own.is_some()));
    let is_left = bind != written;
    match (own, bind) {
        (Some((_, spoken, name)), None) if spoken == speech => {
            Ok((Stand::Own(name), speech, is_left))
        }
        (Some((_, spoken, _)), None) => Err(Homeless::Own(spoken)),
        // On an address of its own it takes nothing from the others.
        (Some((number, _, _)), bind) => Ok((Stand::Port(tcp(number, bind)), speech, is_left)),
        (None, bind) if settings.gateway_ports.admits(number) => {
            Ok((Stand::Port(tcp(number, bind)), speech, is_left))
        }
        (None, _) => Err(Homeless::NotAdmitted),
    }
}

fn tcp(number: u16, bind: Option<IpAddr>) -> PortKey {
    PortKey {
        number,
        bind,
        is_udp: false,
    }
}

/// Checks that a server of a Gateway of a namespace has the place that it would have.
///
/// # Errors
/// The reason why it has not, such as the claim of another Gateway.
pub(super) fn admit(
    reader: &mut Reader<'_>,
    (stand, speech): (&Stand, PortSpeech),
    namespace: &str,
) -> Result<(), Homeless> {
    let Stand::Port(key) = stand else {
        return Ok(());
    };
    // Its own claim is among those to the number: nobody has the port where others have that.
    let Some(spoken) = reader.speech(key) else {
        let owner = reader.number_owner(key);
        return owner.map_or(Ok(()), |owner| Err(Homeless::Taken(owner)));
    };
    if spoken == speech && speech != PortSpeech::Tcp {
        return Ok(());
    }
    // Plain connections have no names by which they could be told apart.
    match reader.port_owner(key) {
        Some(owner) if spoken != speech => Err(Homeless::Taken(owner)),
        Some(owner) if *owner.realm != *realm(reader.settings(), namespace) => {
            Err(Homeless::Taken(owner))
        }
        _ => Ok(()),
    }
}

/// The realm of the Gateways of a namespace: its name, or nothing where everybody shares numbers.
fn realm<'a>(settings: &Settings, namespace: &'a str) -> &'a str {
    match settings.host_sharing {
        HostSharing::Namespace => namespace,
        HostSharing::Cluster => "",
    }
}

/// The place of a server of a Gateway of a namespace among all, as [`place`] says.
///
/// # Errors
/// Why it stands nowhere.
pub(super) fn stand(
    reader: &mut Reader<'_>,
    gateway: &str,
    server: &Server,
) -> Result<(Stand, PortSpeech, bool), Homeless> {
    let binding = match server.bind.is_empty() {
        true => Binding::Nowhere,
        false => Binding::read(reader, gateway),
    };
    let placed = place(server, reader.settings(), binding)?;
    admit(reader, (&placed.0, placed.1), gateway)?;
    Ok(placed)
}

/// The ports that a Gateway claims in a view, each once: within it, the first server wins.
pub(super) fn claims(
    gateway: Option<&Gateway>,
    view: &View,
    settings: &Settings,
) -> BTreeMap<PortKey, PortClaim> {
    let mut claims = BTreeMap::new();
    if let Some(gateway) = gateway.filter(|gateway| view.has_servers(&gateway.spec.selector)) {
        let namespace = gateway.meta.key.namespace();
        let binding = Binding::of(settings, *view.namespace == *namespace);
        let realm: Arc<str> = realm(settings, namespace).into();
        let mut former = None;
        for server in &gateway.spec.servers {
            // A thousand servers in a row name one port; the first says all that counts.
            let alike = (&server.port, &server.bind);
            if former == Some(alike) {
                continue;
            }
            if let Ok((Stand::Port(key), speech, _)) = place(server, settings, binding)
                && !claims.contains_key(&key)
            {
                if is_refused(server, namespace, settings) {
                    continue;
                }
                let claim = PortClaim {
                    order: 0,
                    created: gateway.meta.created,
                    gateway: gateway.meta.key.clone(),
                    speech,
                    realm: realm.clone(),
                };
                claims.insert(key, claim);
            }
            former = Some(alike);
        }
    }
    claims
}

/// Whether a namespace may claim none of the hosts of a server, which claims no port then.
fn is_refused(server: &Server, namespace: &str, settings: &Settings) -> bool {
    let hosts = server.hosts.iter();
    let mut hosts = hosts.filter_map(|text| names::host(ServerHost::read(text).host).ok());
    !hosts.any(|host| may_claim_by(settings, namespace, &host))
}

/// The ports that the servers of a Gateway name, whoever may have them.
pub(super) fn named(gateway: &Gateway, settings: &Settings) -> BTreeSet<Claimed> {
    let binding = Binding::of(settings, false);
    let mut spoken: BTreeMap<PortKey, PortSpeech> = BTreeMap::new();
    let mut former = None;
    for server in &gateway.spec.servers {
        let alike = (&server.port, &server.bind);
        if former.replace(alike) == Some(alike) {
            continue;
        }
        if let Ok((Stand::Port(key), speech, _)) = place(server, settings, binding) {
            spoken.entry(key).or_insert(speech);
        }
    }
    let ports = spoken.into_iter();
    ports
        .map(|(key, speech)| Claimed::Port(key.number, speech))
        .collect()
}

/// Translates the listener of a port.
pub(super) fn translate(reader: &mut Reader<'_>, key: &PortKey) -> Output {
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
            PortSpeech::Udp => ListenerProtocol::Udp,
        },
        capture: None,
    };
    let origin = Origin {
        kind: match owner.gateway.kind {
            ObjectKind::Gateway => OriginKind::KubernetesGateway,
            ObjectKind::ListenerSet => OriginKind::ListenerSet,
            _ => OriginKind::Gateway,
        },
        id: owner.gateway.id().clone(),
    };
    let resource = Resource {
        origin,
        value: Value::Listener(Box::new(listener)),
    };
    output.resources.push((key.name(), resource));
    output
}
