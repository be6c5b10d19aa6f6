//! The upstream of a backend that a route names.

use std::sync::Arc;

use myriad_api::gateway::BackendRef;
use myriad_api::{BackendPort, ObjectKey};
use myriad_model::Protocol;

use super::backend_tls;
use super::grants::{self, Reference};
use super::tenants::Mesh;
use crate::engine::Reader;
use crate::resolve::upstream::{self, PortFound};

pub(crate) use super::backend_problem::{BackendProblem, BackendUse};

/// A backend that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// The upstream.
    pub upstream: Arc<str>,
    /// The Service, by `namespace/name`.
    pub service: Arc<str>,
    /// The number of its port.
    pub port: u16,
}

/// On whose behalf a backend is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackendAsker<'a> {
    /// The Gateway that leads there; none where it is all the same, and at sidecars.
    pub gateway: Option<&'a ObjectKey>,
    /// The Service whose sidecars' rules lead there; none at gateways.
    pub mesh: Option<&'a Mesh>,
}

/// The upstream of a reference of a route.
///
/// # Errors
/// Why there is none.
pub(crate) fn resolve(
    reader: &mut Reader<'_>,
    referrer: &ObjectKey,
    target: &BackendRef,
    used: BackendUse,
    asking: BackendAsker<'_>,
) -> Result<Backend, BackendProblem> {
    if !target.group().is_empty() || target.kind() != "Service" {
        return Err(BackendProblem::InvalidKind);
    }
    let own = referrer.namespace();
    let namespace = target.namespace.as_deref().unwrap_or(own);
    let service: Arc<str> = format!("{namespace}/{}", target.name).into();
    // Whoever may write rules for a Service may lead to it.
    let is_parent = asking.mesh.is_some_and(|mesh| mesh.service == service);
    let reference = Reference {
        from: referrer.kind,
        from_namespace: own,
        group: "",
        kind: "Service",
        namespace,
        name: &target.name,
    };
    if !reference.is_nameable() {
        return Err(BackendProblem::BackendNotFound);
    }
    if !is_parent && !grants::permit(reader, &reference) {
        return Err(BackendProblem::RefNotPermitted);
    }
    // Ports that it lists all the same are those of an outside host.
    if reader.is_alias(&service) {
        return Err(BackendProblem::Alias);
    }
    let number = target.port.ok_or(BackendProblem::NoPort)?;
    let upstream: Arc<str> = match used {
        BackendUse::Datagram => {
            let found = reader.service_alone(&service);
            let found = found.ok_or(BackendProblem::BackendNotFound)?;
            let mut ports = found.ports.iter();
            let is_one =
                ports.any(|port| port.port == number && port.protocol.as_deref() == Some("UDP"));
            match is_one {
                true => upstream::datagrams_name(&service, number),
                false => return Err(BackendProblem::BackendNotFound),
            }
        }
        BackendUse::Http | BackendUse::Grpc | BackendUse::Stream | BackendUse::Passthrough => {
            find_port(reader, &service, number)?;
            let secured = match asking.gateway {
                Some(gateway) => backend_tls::speech(reader, (&service, number), used, gateway)?,
                None => None,
            };
            match secured {
                Some(name) => name,
                None => upstream::name(&service, number, spoken(reader, &service, number, used)),
            }
        }
    };
    Ok(Backend {
        upstream,
        service,
        port: number,
    })
}

/// Checks that a Service has a port of TCP.
fn find_port(reader: &mut Reader<'_>, service: &str, number: u16) -> Result<(), BackendProblem> {
    match reader.service_port(service, &BackendPort::Number(number)) {
        PortFound::Listed(_) => Ok(()),
        PortFound::Implied(_) => Err(BackendProblem::Alias),
        PortFound::NoService | PortFound::NoPort => Err(BackendProblem::BackendNotFound),
    }
}

/// The protocol that is told to an upstream: of gRPC it is HTTP/2 whatever its port is called,
/// and otherwise its port says.
fn spoken(reader: &mut Reader<'_>, service: &str, number: u16, used: BackendUse) -> Protocol {
    let opened = match used {
        BackendUse::Http | BackendUse::Grpc => reader.service_alone(service),
        BackendUse::Stream | BackendUse::Passthrough | BackendUse::Datagram => None,
    };
    let port = opened.as_ref().and_then(|opened| opened.port(number));
    let word = port.and_then(|port| port.app_protocol.as_deref());
    match (word, used) {
        (Some("kubernetes.io/wss" | "https"), BackendUse::Http) => Protocol::Https1,
        (Some("kubernetes.io/wss" | "https"), BackendUse::Grpc) => Protocol::H2,
        (_, BackendUse::Grpc) => Protocol::H2c,
        _ => Protocol::Http1,
    }
}
