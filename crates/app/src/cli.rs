//! The command line. Every setting is defined once, here, with its name, default and help.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A gateway for a myriad of TLS domains.
#[derive(Debug, Parser)]
#[command(name = "myriad", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory of Kubernetes objects on this machine.
    Serve(RawServe),
    /// Say what is wrong with objects in files, without serving them.
    Check(RawCheck),
}

/// Settings of `serve` as written.
#[derive(Clone, Debug, Args)]
pub struct RawServe {
    /// The directory; every *.yaml, *.yml and *.json below it is read, and watched.
    pub dir: PathBuf,
    /// Where HTTP is served: ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(
        long,
        env = "MYRIAD_HTTP",
        default_value = "8080",
        value_name = "ADDRESS"
    )]
    pub http: String,
    /// Where HTTPS is served: ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(
        long,
        env = "MYRIAD_HTTPS",
        default_value = "8443",
        value_name = "ADDRESS"
    )]
    pub https: String,
    /// Where health, metrics and the configuration dump are served.
    #[arg(
        long,
        env = "MYRIAD_ADMIN",
        default_value = "127.0.0.1:9901",
        value_name = "ADDRESS"
    )]
    pub admin: String,
    /// Threads that serve connections [default: one per core].
    #[arg(long, env = "MYRIAD_WORKERS", value_name = "N")]
    pub workers: Option<usize>,
    /// The port in redirects to HTTPS [default: the HTTPS port].
    #[arg(long, env = "MYRIAD_REDIRECT_PORT", value_name = "PORT")]
    pub redirect_port: Option<u16>,
    /// Seconds that connections are still accepted after SIGTERM, at most 3600.
    #[arg(
        long,
        env = "MYRIAD_DRAIN_DELAY",
        default_value_t = 0,
        value_name = "SECONDS"
    )]
    pub drain_delay: u64,
    /// Seconds after which connections that remain in a drain are cut, at most 3600.
    #[arg(
        long,
        env = "MYRIAD_DRAIN_TIMEOUT",
        default_value_t = 30,
        value_name = "SECONDS"
    )]
    pub drain_timeout: u64,
    /// Write one JSON line per request to standard output.
    #[arg(long, env = "MYRIAD_ACCESS_LOG")]
    pub access_log: bool,
    /// Proxies in front of this one that are believed about the client's address.
    #[arg(
        long,
        env = "MYRIAD_TRUSTED_HOPS",
        default_value_t = 0,
        value_name = "N"
    )]
    pub trusted_hops: usize,
    /// What is logged to standard error: a level, or a list of target=level.
    #[arg(
        long,
        env = "MYRIAD_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
    /// How objects are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}

/// Settings of `check` as written.
#[derive(Clone, Debug, Args)]
pub struct RawCheck {
    /// Files and directories.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// How objects are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}

/// Settings that decide what objects mean, as written.
#[derive(Clone, Debug, Args)]
pub struct RawMeaning {
    /// The ingress class that is served; objects without a class are served too.
    #[arg(
        long,
        env = "MYRIAD_INGRESS_CLASS",
        default_value = "myriad",
        value_name = "NAME"
    )]
    pub ingress_class: String,
    /// The certificate for names that no other covers.
    #[arg(
        long,
        env = "MYRIAD_DEFAULT_CERTIFICATE",
        value_name = "NAMESPACE/SECRET"
    )]
    pub default_certificate: Option<String>,
    /// Annotations that restrict access and shall be ignored all the same, by full name.
    #[arg(
        long,
        env = "MYRIAD_IGNORE_ANNOTATIONS",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub ignore_annotations: Vec<String>,
    /// Who may add to a host: its owner's `namespace`, or the whole `cluster`.
    #[arg(
        long,
        env = "MYRIAD_HOST_SHARING",
        default_value = "namespace",
        value_name = "SCOPE"
    )]
    pub host_sharing: String,
    /// Namespaces whose objects without host take effect; `*` for all.
    #[arg(
        long,
        env = "MYRIAD_CATCH_ALL_NAMESPACES",
        value_delimiter = ',',
        default_value = "*",
        value_name = "NAME,..."
    )]
    pub catch_all_namespaces: Vec<String>,
}

/// Writes an error and its causes to standard error.
pub fn complain(error: &anyhow::Error) {
    // Standard error may be closed; there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "myriad: {error:#}");
}
