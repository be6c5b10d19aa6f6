//! Settings of what one namespace may make proxies hold, as written.

use std::path::PathBuf;

use clap::Args;

/// Bounds as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub struct RawBounds {
    /// Bound what one namespace may hold, or one upstream or host; may be given more than once. The
    /// names are hosts, routes, endpoints, certificates, regex-kib, object-bytes, finding-bytes,
    /// issuers, ports, hash-slots, upstream-hash-slots, host-subsets, subset-endpoints,
    /// endpoint-copies, late-claims and views; 0 is no bound. The youngest objects of a namespace
    /// beyond a bound are without effect, with a finding. Beside these, control-share is the part
    /// of the time, in percent, that objects of one namespace may take to translate.
    #[arg(
        long = "bound",
        env = "MYRIAD_BOUNDS",
        value_delimiter = ',',
        value_name = "NAME=NUMBER"
    )]
    pub bounds: Vec<String>,
    /// A file with the hosts that namespaces may claim, and what each may hold where that differs
    /// from --bound. It is read again when it changes, and at SIGHUP.
    #[arg(long, env = "MYRIAD_TENANTS", value_name = "FILE")]
    pub tenants: Option<PathBuf>,
}
