//! Streams within mutual TLS of the mesh that go where their client's own handshake says.
//!
//! The handshake of the mesh names what its sender was told to name. Where that leads to whatever
//! host is asked for, or nowhere, the name in the handshake within decides. It is looked for among
//! hosts that are behind mutual TLS of the mesh as well: nobody has shown more than that.

use std::sync::Arc;

use myriad_model::host::Pattern;

use super::downstream_connection::Secured;
use super::identity::MESH_CLIENTS;
use super::stream_route::{Arrival, StreamRouteEntry};
use super::tables::Tables;

/// Whether the handshake within is asked where a stream goes that this stream route takes.
pub fn is_asked(tables: &Tables, secured: &Secured, entry: &StreamRouteEntry) -> bool {
    let clients = secured.client_auth.as_ref();
    let is_of_mesh = clients.is_some_and(|auth| Arc::ptr_eq(auth, &MESH_CLIENTS));
    is_of_mesh && (!entry.leads_somewhere() || is_dynamic(tables, entry))
}

/// Whether it leads to whatever host is asked for: it takes more than the hosts that it writes out,
/// and the name decides about the endpoints of one of its upstreams.
fn is_dynamic(tables: &Tables, entry: &StreamRouteEntry) -> bool {
    let Some(stream_route) = entry.stream_route() else {
        return false;
    };
    let mut hosts = stream_route.hosts.iter();
    if hosts.all(|host| matches!(host.pattern(), Pattern::Exact(_))) {
        return false;
    }
    let shares = stream_route.upstreams.iter().zip(entry.upstream_hashes());
    let mut drawn = shares.filter(|(share, _)| share.weight > 0);
    drawn.any(|(share, hash)| {
        let upstream = tables.upstream(*hash, &share.upstream);
        upstream.is_some_and(|upstream| upstream.is_dynamic())
    })
}

/// The stream route of the name in a handshake within; none where that leads nowhere.
pub fn stream_route<'a>(
    tables: &'a Tables,
    arrival: Arrival<'_>,
    name: &str,
) -> Option<&'a Arc<StreamRouteEntry>> {
    let domain = tables.domain(arrival.listener, name)?;
    let ended = Arrival {
        is_terminated: true,
        ..arrival
    };
    let found = tables.stream_route(ended, Some(name));
    found.filter(|entry| domain.mesh && entry.leads_somewhere())
}
