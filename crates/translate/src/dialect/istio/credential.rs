//! The Secrets that servers of Gateways name.

use std::sync::Arc;

use crate::engine::Reader;
use crate::settings::GatewayCredentials;

/// The Secret of a credential.
pub struct Credential {
    /// Its `namespace/name`.
    pub secret: Arc<str>,
    /// Whether it is there and the Gateway may not use it.
    pub is_refused: bool,
}

/// Finds the Secret of a credential that a Gateway of a namespace names: in the namespace of the
/// gateway's workload, as Istio has it, or else in that of the Gateway itself. One that the Gateway
/// may not use counts as absent.
pub fn find(reader: &mut Reader<'_>, credential: &str, namespace: &str) -> Credential {
    let of_view = reader.view().namespace();
    let of_workload = format!("{of_view}/{credential}");
    let is_there = reader.has_secret(&of_workload);
    let is_beside = namespace == of_view;
    let is_refused = is_there && !is_beside && !is_lent(reader, &of_workload, namespace);
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

/// Whether Gateways of a namespace may use a Secret beside the gateway's workload.
fn is_lent(reader: &mut Reader<'_>, secret: &str, namespace: &str) -> bool {
    match reader.settings().gateway_credentials {
        GatewayCredentials::Any => true,
        GatewayCredentials::Named => reader.is_lent(secret, namespace),
    }
}
