//! A route where requests, connections or datagrams come to it.

use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::{Host, Name};

pub(crate) use super::route::RouteObject;

/// A part of a socket: a listener of a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// Its name, which rows have among their listeners.
    pub name: Name,
    /// The port as it is written.
    pub port: u16,
    /// Whether TLS ends there, where it is spoken.
    pub terminates: bool,
}

/// The Service that a route of the mesh is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    /// The Service, by `namespace/name`.
    pub service: Arc<str>,
}

/// A route at the parts of sockets where it has the same hosts. They are of one Gateway.
#[derive(Clone, Debug)]
pub(crate) struct RouteTenant {
    /// The route.
    pub route: RouteObject,
    /// Its hosts there; none of connections and datagrams without names.
    pub hosts: Arc<[Host]>,
    /// The parts, sorted by name; never empty.
    pub sections: Vec<Section>,
    /// The text that tells it apart from the same route elsewhere, in names.
    pub label: String,
    /// The Gateway; none in the mesh.
    pub gateway: Option<ObjectKey>,
    /// The Service in the mesh; none at gateways.
    pub mesh: Option<Mesh>,
}

impl RouteTenant {
    /// The names of its parts, as rows have them.
    pub(crate) fn listeners(&self) -> Arc<[Name]> {
        self.sections
            .iter()
            .map(|section| section.name.clone())
            .collect()
    }

    /// The start of the names of its rows. Names break ties of precedence, and a comma sorts before
    /// all that another name may go on with, as its end does.
    pub(crate) fn prefix(&self) -> String {
        let (word, id) = (self.route.word(), self.route.key().id());
        format!("{word}/{id},{}/", self.label)
    }
}
