//! The Secrets that servers of Gateways name.

use std::sync::Arc;

use myriad_api::istio::Gateway;
use myriad_api::{Finding, Severity};
use myriad_model::Host;

use super::entrance::{self, Entrance};
use super::scene::Site;
use super::tls;
use crate::engine::Reader;
use crate::resolve::{Above, CREDENTIAL_NAMESPACES, Shade};
use crate::settings::GatewayCredentials;

/// The Secret of a credential.
pub(super) struct Credential {
    /// Its `namespace/name`.
    pub secret: Arc<str>,
    /// Whether it is there and the Gateway may not use it.
    pub is_refused: bool,
}

/// Finds the Secret of a credential that a Gateway of a namespace names: in the namespace of the
/// gateway's workload, as Istio has it, or else in that of the Gateway itself. One that the Gateway
/// may not use counts as absent.
pub(super) fn find(reader: &mut Reader<'_>, credential: &str, namespace: &str) -> Credential {
    let of_view = reader.view().namespace();
    let of_workload = format!("{of_view}/{credential}");
    let is_there = reader.has_secret(&of_workload);
    let is_beside = namespace == of_view;
    let is_refused = is_there && !is_beside && !reader.may_use(&of_workload, namespace);
    let usable = |secret: String| Credential {
        secret: secret.into(),
        is_refused: false,
    };
    if is_beside || is_there && !is_refused {
        return usable(of_workload);
    }
    let own = format!("{namespace}/{credential}");
    match reader.has_secret(&own) {
        true => usable(own),
        false => Credential {
            secret: of_workload.into(),
            is_refused,
        },
    }
}

/// Whether a server ends TLS by a certificate that is neither its Gateway's own nor lent to it: of
/// a Secret beside the gateway's workload that it uses only because every Gateway may.
pub(super) fn is_borrowed(reader: &mut Reader<'_>, gateway: &Gateway, way: &Entrance) -> bool {
    let (settings, own) = (reader.settings(), gateway.meta.key.namespace());
    let is_open = settings.gateway_credentials == GatewayCredentials::Any;
    if !is_open || !way.door.ends_tls() || reader.view().is_of(own) {
        return false;
    }
    let server = gateway.spec.servers.get(way.server);
    let terms = server.and_then(|server| tls::read(server, settings, &mut Vec::new()));
    let credentials = terms.map(|terms| terms.credentials).unwrap_or_default();
    let of_view = reader.view().namespace();
    credentials.iter().any(|credential| {
        let secret = format!("{of_view}/{credential}");
        reader.has_secret(&secret) && !reader.is_lent(&secret, own)
    })
}

/// The older wildcard of another namespace that keeps handshakes for a host from what a server for
/// exactly that host shows: nobody lent its certificate, so it counts as none.
pub(super) fn keeper<'a>(
    reader: &mut Reader<'_>,
    above: &'a Above,
    site: &Site,
    way: &Entrance,
) -> Option<&'a Shade> {
    let namespace = site.gateway.meta.key.namespace();
    let keeper = above.keeper(&way.listener, namespace)?;
    is_borrowed(reader, &site.gateway, way).then_some(keeper)
}

/// The finding about a server whose certificate counts as none for a host.
pub(super) fn kept_from(
    reader: &mut Reader<'_>,
    host: &Host,
    (site, way): (&Site, &Entrance),
    keeper: &Shade,
) -> Finding {
    let (key, owner) = (&site.gateway.meta.key, &keeper.claim.key);
    Finding::new(
        Severity::Warning,
        key,
        entrance::field(reader, key, way.server, "tls"),
        format!(
            "names a Secret of the gateway's namespace that is not lent to namespace {}, so it is \
             no certificate of {host}'s own: its HTTPS stays with {} of the older {owner}",
            key.namespace(),
            keeper.written()
        ),
        format!(
            "let the owner of the Secret add the namespace to its annotation \
             {CREDENTIAL_NAMESPACES}, or create a Secret beside the Gateway under a name that the \
             gateway's namespace does not have"
        ),
    )
}
