//! Settings that say which namespace has a host or may use a certificate, as written.

use std::path::PathBuf;

use clap::Args;

/// The settings that say which namespace has a host or may use a certificate.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects")]
pub struct RawSharing {
    /// Reach of a host's sharing: its owner's `namespace`, or the whole `cluster`.
    #[arg(
        long,
        env = "MYRIAD_HOST_SHARING",
        default_value = "namespace",
        value_name = "SCOPE"
    )]
    pub host_sharing: String,
    /// Let a host that several namespaces claim be of the one that its owner names, by a TXT record
    /// for this installation, whose name this is: a name of DNS that nobody else has
    /// [default: none, so that age decides].
    #[arg(long, env = "MYRIAD_HOST_PROOF", value_name = "NAME")]
    pub host_proof: Option<String>,
    /// Namespaces whose hosts below wildcards of others are served over HTTPS too, with the
    /// certificates of those; `*` for all [default: none].
    #[arg(
        long,
        env = "MYRIAD_WILDCARD_SHARING",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub wildcard_sharing: Vec<String>,
    /// Secrets of the gateway's namespace that Istio's Gateways and DestinationRules of other
    /// namespaces may use: `any`, or those `named`, whose annotation names their namespace
    /// [default: any; for a controller named].
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_CREDENTIALS",
        value_name = "any|named",
        help_heading = "Gateways"
    )]
    pub gateway_credentials: Option<String>,
    /// Services that VirtualServices of other namespaces lead to at gateways: `all` that keep
    /// nothing back, or those `named`, whose annotation `networking.istio.io/exportTo` names the
    /// namespace or `*`.
    #[arg(
        long,
        env = "MYRIAD_SERVICE_EXPORTS",
        default_value = "all",
        value_name = "all|named",
        help_heading = "Gateways"
    )]
    pub service_exports: String,
}

/// The setting of where a process that is alone keeps such proofs, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects")]
pub struct RawProofFile {
    /// The file where proofs of hosts are kept, for the owner of the process alone.
    #[arg(
        long,
        env = "MYRIAD_HOST_PROOF_FILE",
        default_value = "/var/lib/myriad/host-proofs",
        value_name = "FILE"
    )]
    pub host_proof_file: PathBuf,
}
