//! Settings that say which namespace has a host or may use a certificate.

use std::collections::BTreeSet;

use myriad_translate::{GatewayCredentials, HostSharing};

use crate::cli::sharing::RawSharing;

/// The settings that say which namespace has a host or may use a certificate, checked.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Whether objects of all namespaces merge on a host.
    pub hosts: HostSharing,
    /// Namespaces that share the wildcards of others; `*` for all.
    pub wildcards: BTreeSet<String>,
    /// Secrets of the gateway's namespace that objects of others may use; `None` where nothing is
    /// said.
    pub credentials: Option<GatewayCredentials>,
}

/// Checks settings.
pub(super) fn read(raw: &RawSharing, problems: &mut Vec<String>) -> Sharing {
    let hosts = match &*raw.host_sharing {
        "namespace" => HostSharing::Namespace,
        "cluster" => HostSharing::Cluster,
        other => {
            problems.push(format!(
                "--host-sharing is {other:?}, not namespace or cluster"
            ));
            HostSharing::Namespace
        }
    };
    let credentials = raw.gateway_credentials.as_deref();
    let credentials = credentials.map(|text| match text {
        "any" => GatewayCredentials::Any,
        "named" => GatewayCredentials::Named,
        other => {
            problems.push(format!(
                "--gateway-credentials is {other:?}, not any or named"
            ));
            GatewayCredentials::Named
        }
    });
    let wildcards = raw.wildcard_sharing.iter().filter(|name| !name.is_empty());
    Sharing {
        hosts,
        wildcards: wildcards.cloned().collect(),
        credentials,
    }
}
