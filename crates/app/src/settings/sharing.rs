//! Settings that say which namespace has a host.

use std::collections::BTreeSet;

use myriad_translate::HostSharing;

use crate::cli::sharing::RawSharing;

/// The settings that say which namespace has a host, checked.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Whether objects of all namespaces merge on a host.
    pub hosts: HostSharing,
    /// Namespaces that share the wildcards of others; `*` for all.
    pub wildcards: BTreeSet<String>,
}

/// Checks settings.
pub fn read(raw: &RawSharing, problems: &mut Vec<String>) -> Sharing {
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
    let wildcards = raw.wildcard_sharing.iter().filter(|name| !name.is_empty());
    Sharing {
        hosts,
        wildcards: wildcards.cloned().collect(),
    }
}
