//! Whether a request belongs on the connection that it came by (RFC 9110, section 7.4).

use myriad_model::Domain;

use crate::route::downstream_connection::{DownstreamConnection, Secured};
use crate::route::identity::MESH_CLIENTS;
use crate::route::tables::{Answerer, Tables};

/// Whether the host of a request is served on this connection. A request on a connection in
/// plain text always is. On TLS, the host must be one that a handshake for it would have been
/// answered for with equal settings, and the certificate that was served must be for it. A client
/// that has named a host of no domain may ask for such hosts alone, whatever the default
/// certificate is for.
///
/// Where listeners have sections, it is those that count: the host must be of the section that the
/// handshake was for, whatever names the certificate has. A host of none is served, by no route.
pub fn is_directed(tables: &Tables, visit: &DownstreamConnection, host: &str) -> bool {
    let secured = visit.secured.as_ref();
    // Between proxies of the mesh, the name says which of their clusters it is.
    let Some(secured) = secured.filter(|secured| !secured.is_mesh) else {
        return true;
    };
    let is_own = secured.sni.as_deref() == Some(host);
    if is_own && secured.checked.get() == tables.generation {
        return true;
    }
    let of_section = match is_own || !tables.has_sections() {
        true => None,
        false => is_of_section(tables, visit, secured, host),
    };
    let is_served = of_section.unwrap_or_else(|| is_served(tables, visit, secured, host, is_own));
    if is_own && is_served {
        secured.checked.set(tables.generation);
    }
    is_served
}

/// Whether a host is of the section that the handshake was for; none where neither is of any.
fn is_of_section(
    tables: &Tables,
    visit: &DownstreamConnection,
    secured: &Secured,
    host: &str,
) -> Option<bool> {
    let own = tables.domain(&visit.listener, secured.sni.as_deref().unwrap_or_default());
    let own = own.and_then(|domain| domain.section.as_ref());
    match (own, tables.domain(&visit.listener, host)) {
        (None, None) => None,
        (None, Some(domain)) => domain.section.is_some().then_some(false),
        // Nobody has it, so that the client is told so.
        (Some(_), None) => {
            let answerer = tables.answerer(&visit.listener, Some(host));
            matches!(answerer, Answerer::Nobody).then_some(true)
        }
        (Some(own), Some(domain)) => {
            Some(domain.section.as_ref() == Some(own) && is_alike(domain, secured))
        }
    }
}

/// Whether handshakes for a domain are done as this one was.
fn is_alike(domain: &Domain, secured: &Secured) -> bool {
    let client_auth = match domain.mesh {
        true => Some(&*MESH_CLIENTS),
        false => domain.client_auth.as_ref(),
    };
    domain.tls == secured.settings && client_auth == secured.client_auth.as_ref()
}

fn is_served(
    tables: &Tables,
    visit: &DownstreamConnection,
    secured: &Secured,
    host: &str,
    is_own: bool,
) -> bool {
    match tables.answerer(&visit.listener, Some(host)) {
        Answerer::Domain(domain, ..) => {
            if !secured.by_domain && secured.sni.is_some() {
                return false;
            }
            // A client that sent no name got the default certificate, as it would have for a
            // domain without one of its own.
            let is_default = secured.sni.is_none() && domain.certificate.is_none();
            let is_covered = (is_own && secured.by_domain) || secured.covers(host);
            is_alike(domain, secured) && (is_covered || is_default)
        }
        // The listener answers for every name that no domain has. A connection that a domain
        // answered for must not be used for them, unless its certificate says so.
        Answerer::Listener(_) => !secured.by_domain || (!is_own && secured.covers(host)),
        Answerer::Nobody => false,
    }
}

#[cfg(test)]
mod tests;
