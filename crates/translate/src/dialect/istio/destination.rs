//! The upstreams that destinations lead to.

use std::sync::Arc;

use myriad_api::istio::virtual_service::Destination;
use myriad_api::{BackendPort, ObjectKind};

use crate::engine::Reader;
use crate::resolve::destination_rule::{self, SubsetFound};
use crate::resolve::upstream::{self, PortFound};
use crate::resolve::{EXPORT_TO, names, service_entry};
use crate::settings::{NAMES_MAX, ServiceExports};

/// Why requests to a destination get 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// The field below the destination.
    pub field: &'static str,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: &'static str,
}

/// The destination that was resolved last. The rules of a host mostly lead to one place, and a
/// hundred of them would look it up a hundred times.
pub struct Resolved {
    destination: Destination,
    namespace: Box<str>,
    found: Result<Arc<str>, Lost>,
}

/// The unit of the upstream of a destination that an object of a namespace names.
///
/// # Errors
/// Why there is none.
pub(super) fn resolve(
    reader: &mut Reader<'_>,
    destination: &Destination,
    namespace: &str,
) -> Result<Arc<str>, Lost> {
    if let Some(last) = reader.resolved()
        && last.destination == *destination
        && *last.namespace == *namespace
    {
        return last.found.clone();
    }
    let found = look_up(reader, destination, namespace);
    reader.set_resolved(Resolved {
        destination: destination.clone(),
        namespace: namespace.into(),
        found: found.clone(),
    });
    found
}

fn look_up(
    reader: &mut Reader<'_>,
    destination: &Destination,
    namespace: &str,
) -> Result<Arc<str>, Lost> {
    let host = destination.host.to_ascii_lowercase();
    let domain = &reader.settings().cluster_domain;
    let service = names::service(&host, namespace, domain);
    let wanted = wanted_port(destination);
    let found = match &service {
        Some(id) => of_service(reader, id, namespace, wanted)?,
        None => None,
    };
    let (full, owner, number) = match (found, service) {
        (Some(number), Some(id)) => {
            let full = names::service_host(&id, domain);
            let owner = id.split_once('/').map_or("", |(owner, _)| owner).into();
            (full, Owner::Service(id, owner), number)
        }
        (_, service) => {
            let full = service
                .as_ref()
                .map_or(host, |id| names::service_host(id, domain));
            let (owner, number) = of_entries(reader, &full, namespace, wanted, service.as_deref())?;
            (full, Owner::Entry(owner), number)
        }
    };
    let subset = &*destination.subset;
    let (Owner::Service(_, namespace) | Owner::Entry(namespace)) = &owner;
    if !subset.is_empty() {
        let found = destination_rule::find_subset(reader, &full, namespace, subset);
        check_subset(found, subset, &full)?;
    }
    Ok(match owner {
        Owner::Service(id, _) => upstream::subset_name(&id, number, subset),
        Owner::Entry(namespace) => upstream::entry_name(&namespace, &full, number, subset),
    })
}

/// The port that a destination names.
fn wanted_port(destination: &Destination) -> Option<u16> {
    let port = destination.port.map(|port| port.number);
    port.filter(|number| *number > 0)
}

/// Checks that a root sees what a delegate of another namespace leads to: a destination that an
/// object of `namespace` names, of which [`resolve`] found the upstream.
///
/// # Errors
/// That it does not, as if that were not there.
pub(super) fn check_root(
    reader: &mut Reader<'_>,
    destination: &Destination,
    (found, namespace): (&str, &str),
    root: &str,
) -> Result<(), Lost> {
    let host = destination.host.to_ascii_lowercase();
    let domain = &reader.settings().cluster_domain;
    let (service, wanted) = (
        names::service(&host, namespace, domain),
        wanted_port(destination),
    );
    if let Some(id) = &service {
        let service = match wanted {
            Some(number) => reader.exported_port(id, &BackendPort::Number(number)).1,
            None => reader.service_alone(id),
        };
        if let Some(service) = service {
            return seen(reader, id, service.exports(), root);
        }
    }
    let full = service.map_or(host, |id| names::service_host(&id, domain));
    let owner = upstream::namespace(found).map(|(owner, _)| owner);
    let known = service_entry::find(reader, &full, (root, owner));
    let is_seen = known.is_some_and(|(_, ports)| {
        let is_listed = |number: u16| ports.binary_search(&number).is_ok();
        wanted.is_none_or(is_listed)
    });
    match is_seen {
        true => Ok(()),
        false => Err(Lost {
            field: "host",
            problem: format!("{full} is of no ServiceEntry that is exported to namespace {root}"),
            remedy: "let the owner of the ServiceEntry add this namespace to its spec.exportTo",
        }),
    }
}

fn check_subset(found: SubsetFound, subset: &str, host: &str) -> Result<(), Lost> {
    let (problem, remedy) = match found {
        SubsetFound::Defined => return Ok(()),
        SubsetFound::Unknown => (
            format!("{subset} is defined by no DestinationRule for {host}"),
            "add the subset to a DestinationRule of that host, or correct the name",
        ),
        SubsetFound::Beyond(max) => (
            format!("{subset} is none of the first {max} subsets of {host}"),
            "remove subsets of that host, correct the name, or raise --bound host-subsets",
        ),
    };
    Err(Lost {
        field: "subset",
        problem,
        remedy,
    })
}

/// The owner of a host.
enum Owner {
    /// A Service, by its id, and its namespace.
    Service(String, Arc<str>),
    /// ServiceEntries of a namespace.
    Entry(Arc<str>),
}

/// The port of a Service; `None` where there is no such Service.
fn of_service(
    reader: &mut Reader<'_>,
    id: &str,
    namespace: &str,
    wanted: Option<u16>,
) -> Result<Option<u16>, Lost> {
    let number = match wanted {
        Some(number) => number,
        None => match reader.service_alone(id) {
            None => return Ok(None),
            Some(service) => match &*service.ports {
                [only] => only.port,
                ports => {
                    seen(reader, id, service.exports(), namespace)?;
                    return Err(no_port_named("Service", id, ports.len()));
                }
            },
        },
    };
    let (found, service) = reader.exported_port(id, &BackendPort::Number(number));
    if let Some(service) = &service {
        seen(reader, id, service.exports(), namespace)?;
    }
    match found {
        PortFound::Listed(number) | PortFound::Implied(number) => Ok(Some(number)),
        PortFound::NoService => Ok(None),
        PortFound::NoPort => Err(Lost {
            field: "port.number",
            problem: format!("{number} is no TCP port of Service {id}"),
            remedy: "name one of spec.ports of the Service",
        }),
    }
}

/// Whether an object of a namespace sees a Service: one of its own, or one that is exported to it.
/// At sidecars one is seen as well that is exported to the caller.
///
/// # Errors
/// That it does not, as if the Service were not there.
fn seen(reader: &Reader<'_>, id: &str, exports: &[Box<str>], namespace: &str) -> Result<(), Lost> {
    let own = id.split_once('/').map_or("", |(own, _)| own);
    let settings = reader.settings();
    let says_enough = !exports.is_empty()
        || settings.service_exports == ServiceExports::All
        || namespace == settings.root_namespace();
    let is_exported = says_enough && names::is_exported(exports, own, namespace);
    let is_seen = own == namespace || is_exported;
    let view = reader.view();
    if is_seen || (view.is_sidecar() && view.sees(exports, own)) {
        return Ok(());
    }
    let rest = match exports.len() < NAMES_MAX {
        true => String::new(),
        false => format!(", of which {NAMES_MAX} entries have an effect"),
    };
    Err(Lost {
        field: "host",
        problem: format!(
            "Service {id} is not exported to namespace {namespace} by {EXPORT_TO}{rest}"
        ),
        remedy: "name a Service of this namespace, or let the owner of the Service add this \
                 namespace to its annotation networking.istio.io/exportTo",
    })
}

/// The namespace and port of a host that no Service has.
fn of_entries(
    reader: &mut Reader<'_>,
    host: &str,
    namespace: &str,
    wanted: Option<u16>,
    service: Option<&str>,
) -> Result<(Arc<str>, u16), Lost> {
    // A name in the domain of the cluster is of its namespace, whether its Service is there or not.
    let of = service.and_then(|id| Some(id.split_once('/')?.0));
    let Some((owner, ports)) = service_entry::find(reader, host, (namespace, of)) else {
        return Err(match service {
            Some(id) => Lost {
                field: "host",
                problem: format!("there is no {} {id}", ObjectKind::Service.as_str()),
                remedy: "create the Service, or correct the name",
            },
            None => Lost {
                field: "host",
                problem: format!("{host} is no Service of the cluster and no ServiceEntry has it"),
                remedy: "name a Service, in full as name.namespace.svc.cluster.local, or write a \
                         ServiceEntry",
            },
        });
    };
    match (wanted, &*ports) {
        (None, [only]) => Ok((owner, *only)),
        (None, _) => Err(no_port_named("ServiceEntry of", host, ports.len())),
        (Some(number), _) if ports.binary_search(&number).is_ok() => Ok((owner, number)),
        (Some(number), _) => Err(Lost {
            field: "port.number",
            problem: format!("{number} is no port of the ServiceEntry of {host}"),
            remedy: "name one of spec.ports of the ServiceEntry",
        }),
    }
}

fn no_port_named(what: &str, name: &str, count: usize) -> Lost {
    Lost {
        field: "port",
        problem: format!("is missing, and {what} {name} has {count} ports"),
        remedy: "write port.number",
    }
}
