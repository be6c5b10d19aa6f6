//! Where a destination leads.

use myriad_api::istio::virtual_service::Destination;
use myriad_api::{BackendPort, ObjectKind};
use myriad_model::Protocol;

use super::names;
use crate::engine::Reader;
use crate::upstream::{self, PortFound};

/// Why requests to a destination get 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The field below the destination.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: &'static str,
}

/// The unit of the upstream of a destination that an object of a namespace names.
///
/// # Errors
/// Why there is none.
pub fn resolve(
    reader: &mut Reader<'_>,
    destination: &Destination,
    namespace: &str,
) -> Result<std::sync::Arc<str>, Lost> {
    let host = destination.host.to_ascii_lowercase();
    let domain = &reader.settings().cluster_domain;
    let Some(id) = names::service(&host, namespace, domain) else {
        return Err(Lost {
            field: "host",
            problem: format!("{host} is no Service of the cluster"),
            remedy: "name a Service, in full as name.namespace.svc.cluster.local",
        });
    };
    if !destination.subset.is_empty() {
        return Err(Lost {
            field: "subset",
            problem: format!("{} is not honoured yet", destination.subset),
            remedy: "leave the subset out, or name a Service of its own",
        });
    }
    let number = match destination.port {
        Some(port) if port.number > 0 => port.number,
        _ => only_port(reader, &id)?,
    };
    let port = BackendPort::Number(number);
    match reader.service_port(&id, &port) {
        PortFound::Listed(number) | PortFound::Implied(number) => {
            Ok(upstream::name(&id, number, Protocol::Http1))
        }
        PortFound::NoService => Err(no_service(&id)),
        PortFound::NoPort => Err(Lost {
            field: "port.number",
            problem: format!("{number} is no TCP port of Service {id}"),
            remedy: "name one of spec.ports of the Service",
        }),
    }
}

/// The port of a Service that has one.
fn only_port(reader: &mut Reader<'_>, id: &str) -> Result<u16, Lost> {
    let Some(service) = reader.service(id) else {
        return Err(no_service(id));
    };
    match &*service.ports {
        [only] => Ok(only.port),
        _ => Err(Lost {
            field: "port",
            problem: format!(
                "is missing, and Service {id} has {} ports",
                service.ports.len()
            ),
            remedy: "write port.number",
        }),
    }
}

fn no_service(id: &str) -> Lost {
    Lost {
        field: "host",
        problem: format!("there is no {} {id}", ObjectKind::Service.as_str()),
        remedy: "create the Service, or correct the name",
    }
}
