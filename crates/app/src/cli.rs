//! The command line. Every setting is defined once, with its name, default and help: here, or in
//! `sidecar` where a command of that crate reads it.

pub mod acme;
pub mod bounds;
pub mod check;
pub mod completions;
pub mod console;
pub mod deployments;
pub mod endpoints;
pub mod explain;
pub mod history;
pub mod hold;
pub mod inject;
pub mod life;
pub mod listeners;
pub mod meaning;
pub mod mesh;
pub mod names;
pub mod otlp;
pub mod probes;
pub mod process;
pub mod regexes;
pub mod requests;
pub mod sharing;
pub mod tickets;
pub mod trace;
pub mod trust;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use myriad_model::wire::SCHEMA;
use myriad_sidecar::inject::RawInject;
use myriad_sidecar::redirect::RawRedirect;

pub use self::acme::RawAcme;
use self::acme::{RawAcmeState, RawClusterAcme, RawOnDemand};
pub use self::check::{CheckForm, RawCheck};
use self::completions::RawCompletions;
use self::console::RawConsole;
use self::deployments::RawDeployments;
use self::endpoints::RawEndpoints;
pub use self::explain::RawExplain;
use self::history::{RawDiff, RawHistory, RawWhy};
use self::hold::RawContact;
pub use self::hold::{RawConfirm, RawHold};
use self::inject::RawInjection;
use self::life::RawLife;
use self::listeners::RawListeners;
pub use self::meaning::RawMeaning;
use self::mesh::RawMeshAuthority;
use self::names::RawNames;
use self::probes::RawProbes;
use self::process::RawProcess;
use self::requests::RawRequests;
use self::sharing::RawProofFile;
use self::tickets::RawTickets;
use self::trace::RawTrace;

/// A gateway for a myriad of TLS domains.
#[derive(Debug, Parser)]
#[command(name = "myriad", version, about, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[allow(clippy::large_enum_variant, reason = "a process has one")]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve Kubernetes objects of directories and files on this machine.
    Serve(Box<RawServe>),
    /// Watch a Kubernetes cluster, and tell proxies what to serve.
    Controller(Box<RawController>),
    /// Serve what a controller says.
    Proxy(Box<RawProxy>),
    /// Say what is wrong with objects in files, without serving them.
    Check(RawCheck),
    /// Say how a running process is, who follows it, or where an Ingress is live.
    Status(RawStatus),
    /// Let removals take effect that a running process holds.
    Confirm(RawConfirm),
    /// Say what a request would meet, and why not what was meant.
    Explain(RawExplain),
    /// Show the way of real requests while they are served: stages, endpoints, waits, and why.
    Trace(RawTrace),
    /// Say since when a domain is served or not, what changed then, and what to do.
    Why(RawWhy),
    /// Say how what is served at one moment differs from what is at another.
    Diff(RawDiff),
    /// Write a proxy beside each workload of objects in files.
    Inject(RawInject),
    /// Lead a workload's connections to its proxy, by rules in the kernel (nftables).
    Redirect(RawRedirect),
    /// List the limits of what clients can make grow, as a table in Markdown.
    Limits,
    /// List every metric with its kind, labels and meaning, as a page in Markdown.
    Metrics,
    /// Write what a shell needs to complete commands and flags.
    Completions(RawCompletions),
}

/// Settings of `serve` as written.
#[derive(Clone, Debug, Args)]
pub struct RawServe {
    /// Directories, of which every *.yaml, *.yml and *.json below is read and watched, and such
    /// files.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Addresses of listeners.
    #[command(flatten)]
    pub listeners: RawListeners,
    /// The process.
    #[command(flatten)]
    pub process: RawProcess,
    /// The history.
    #[command(flatten)]
    pub history: RawHistory,
    /// Certificates that are obtained.
    #[command(flatten)]
    pub acme: RawAcme,
    /// Certificates that are obtained on demand.
    #[command(flatten)]
    pub on_demand: RawOnDemand,
    /// Where what is kept of that lies.
    #[command(flatten)]
    pub acme_state: RawAcmeState,
    /// Where proofs of hosts are kept.
    #[command(flatten)]
    pub proof_file: RawProofFile,
    /// How connections are served.
    #[command(flatten)]
    pub traffic: RawTraffic,
    /// Addresses that endpoints may have.
    #[command(flatten)]
    pub endpoints: RawEndpoints,
    /// How objects are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}

/// Settings of `controller` as written.
#[derive(Clone, Debug, Args)]
pub struct RawController {
    /// Where proxies connect: ADDRESS:PORT, or a port on every IPv4 address.
    #[arg(
        long,
        env = "MYRIAD_SYNC",
        default_value = "15010",
        value_name = "ADDRESS"
    )]
    pub sync: String,
    /// Names by which proxies reach this controller: its certificate has them.
    #[arg(
        long,
        env = "MYRIAD_SYNC_HOSTS",
        value_delimiter = ',',
        default_value = "localhost",
        value_name = "NAME,..."
    )]
    pub sync_hosts: Vec<String>,
    /// Service accounts that proxies run as.
    #[arg(
        long,
        env = "MYRIAD_PROXY_ACCOUNTS",
        value_delimiter = ',',
        required = true,
        value_name = "NAMESPACE/NAME,..."
    )]
    pub proxy_accounts: Vec<String>,
    /// The namespace of this controller, where its Lease and its authority are.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "myriad",
        value_name = "NAME"
    )]
    pub namespace: String,
    /// The Service of the proxies, whose address goes into the status of Ingresses.
    #[arg(long, env = "MYRIAD_PUBLISH_SERVICE", value_name = "NAMESPACE/NAME")]
    pub publish_service: Option<String>,
    /// Watch ConfigMaps in the namespaces that are watched, for the annotation custom-headers.
    #[arg(long, env = "MYRIAD_WATCH_CONFIGMAPS")]
    pub watch_configmaps: bool,
    /// The Secrets that are watched: `all` in which certificates, authorities or users are, or
    /// those of type kubernetes.io/tls alone.
    #[arg(
        long,
        env = "MYRIAD_SECRETS",
        default_value = "all",
        value_name = "WHICH",
        value_enum
    )]
    pub secrets: WatchedSecrets,
    /// The namespaces that are watched [default: all].
    #[arg(
        long,
        env = "MYRIAD_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub namespaces: Vec<String>,
    /// Whether Istio's kinds are watched: `auto` does while the cluster has definitions of them.
    #[arg(
        long,
        env = "MYRIAD_ISTIO",
        default_value = "auto",
        value_name = "WHEN",
        value_enum
    )]
    pub istio: Watching,
    /// Whether the kinds of Gateway API are watched: `auto` does while the cluster has definitions
    /// of them.
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_API",
        default_value = "auto",
        value_name = "WHEN",
        value_enum
    )]
    pub gateway_api: Watching,
    /// The authority that signs identities of the mesh.
    #[command(flatten)]
    pub authority: RawMeshAuthority,
    /// Settings of session tickets.
    #[command(flatten)]
    pub tickets: RawTickets,
    /// When much that is missing is held.
    #[command(flatten)]
    pub hold: RawHold,
    /// When the API server counts as lost.
    #[command(flatten)]
    pub contact: RawContact,
    /// Certificates that are obtained.
    #[command(flatten)]
    pub acme: RawAcme,
    /// Certificates that are obtained on demand.
    #[command(flatten)]
    pub on_demand: RawOnDemand,
    /// Whether any are, and who is asked for names.
    #[command(flatten)]
    pub cluster_acme: RawClusterAcme,
    /// Addresses of listeners, on every proxy.
    #[command(flatten)]
    pub listeners: RawListeners,
    /// Addresses that endpoints may have.
    #[command(flatten)]
    pub endpoints: RawEndpoints,
    /// Which Pods get a proxy on their way into the cluster.
    #[command(flatten)]
    pub injection: RawInjection,
    /// Objects that are made and written for objects of tenants.
    #[command(flatten)]
    pub deployments: RawDeployments,
    /// The process.
    #[command(flatten)]
    pub process: RawProcess,
    /// The history.
    #[command(flatten)]
    pub history: RawHistory,
    /// The console.
    #[command(flatten)]
    pub console: RawConsole,
    /// How objects are read.
    #[command(flatten)]
    pub meaning: RawMeaning,
}

/// Settings of `proxy` as written.
#[derive(Clone, Debug, Args)]
pub struct RawProxy {
    /// The controllers, as HOST:PORT; every address of the name is tried.
    #[arg(long, env = "MYRIAD_CONTROLLER", value_name = "HOST:PORT")]
    pub controller: String,
    /// The token of this proxy's service account, of audience `myriad`.
    #[arg(
        long,
        env = "MYRIAD_TOKEN_FILE",
        default_value = "/var/run/secrets/myriad/token",
        value_name = "FILE"
    )]
    pub token_file: PathBuf,
    /// The roots that controllers are known by, as PEM.
    #[arg(
        long,
        env = "MYRIAD_CA_FILE",
        default_value = "/etc/myriad/ca/ca.crt",
        value_name = "FILE"
    )]
    pub ca_file: PathBuf,
    /// Where the last good snapshot is kept, to serve from when no controller answers.
    #[arg(
        long,
        env = "MYRIAD_STATE_DIR",
        default_value = "/var/lib/myriad",
        value_name = "DIR"
    )]
    pub state_dir: PathBuf,
    /// Understand no newer schema of resources than this, as an older build does: what a roll-back
    /// would refuse shows up in `myriad status`.
    #[arg(
        long,
        env = "MYRIAD_SCHEMA_MAX",
        default_value_t = SCHEMA,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SCHEMA)),
        value_name = "NUMBER"
    )]
    pub schema_max: u32,
    /// Open listeners of all addresses at this one instead, so that proxies beside each other have
    /// the same ports; may be given more than once.
    #[arg(
        long,
        env = "MYRIAD_BIND",
        value_delimiter = ',',
        value_name = "ADDRESS"
    )]
    pub bind: Vec<IpAddr>,
    /// Ask the controller for an identity of the mesh. A sidecar is not ready until there is one.
    #[arg(long, env = "MYRIAD_MESH")]
    pub mesh: bool,
    /// When much that is missing is held.
    #[command(flatten)]
    pub hold: RawHold,
    /// The checks that a sidecar answers.
    #[command(flatten)]
    pub probes: RawProbes,
    /// Addresses that endpoints may have.
    #[command(flatten)]
    pub endpoints: RawEndpoints,
    /// The process.
    #[command(flatten)]
    pub process: RawProcess,
    /// How connections are served.
    #[command(flatten)]
    pub traffic: RawTraffic,
}

/// Settings of how connections are served, as written.
#[derive(Clone, Debug, Args)]
pub struct RawTraffic {
    /// Threads that serve connections [default: one per core].
    #[arg(
        long,
        env = "MYRIAD_WORKERS",
        value_name = "N",
        help_heading = "Process"
    )]
    pub workers: Option<usize>,
    /// Seconds that connections are still accepted after SIGTERM, at most 3600.
    #[arg(
        long,
        env = "MYRIAD_DRAIN_DELAY",
        default_value_t = 0,
        value_name = "SECONDS",
        help_heading = "Process"
    )]
    pub drain_delay: u64,
    /// Seconds after which connections that remain in a drain are cut, at most 3600.
    #[arg(
        long,
        env = "MYRIAD_DRAIN_TIMEOUT",
        default_value_t = 30,
        value_name = "SECONDS",
        help_heading = "Process"
    )]
    pub drain_timeout: u64,
    /// How the process lives.
    #[command(flatten)]
    pub life: RawLife,
    /// Write one JSON line per request to standard output.
    #[arg(long, env = "MYRIAD_ACCESS_LOG", help_heading = "Logs and metrics")]
    pub access_log: bool,
    /// Settings of what is told of requests.
    #[command(flatten)]
    pub requests: RawRequests,
    /// Count Istio's standard metrics, with this as the source of requests.
    #[arg(
        long,
        env = "MYRIAD_WORKLOAD",
        value_name = "NAMESPACE/NAME",
        help_heading = "Logs and metrics"
    )]
    pub workload: Option<String>,
    /// Set a limit of what clients can make grow; may be given more than once. `myriad limits`
    /// lists them all.
    #[arg(
        long = "limit",
        env = "MYRIAD_LIMITS",
        value_delimiter = ',',
        value_name = "NAME=VALUE"
    )]
    pub limits: Vec<String>,
    /// Treatment of paths that servers understand differently: with DIALECT, the default, each
    /// route reads them as its dialect does and endpoints get them as they came; NONE compares them
    /// as they came and refuses dot segments and backslashes, BASE, MERGE_SLASHES and
    /// DECODE_AND_MERGE_SLASHES normalise as Istio does, and STRICT refuses all that these would
    /// change.
    #[arg(
        long,
        env = "MYRIAD_PATH_NORMALIZATION",
        value_name = "RULE",
        help_heading = "Requests"
    )]
    pub path_normalization: Option<String>,
    /// Proxies in front of this one that are believed about the client's address; 0 where nothing
    /// else is said.
    #[arg(
        long,
        env = "MYRIAD_TRUSTED_HOPS",
        value_name = "N",
        help_heading = "Load balancers in front"
    )]
    pub trusted_hops: Option<usize>,
    /// Ports whose connections have to begin with a header of the PROXY protocol, version 1 or 2,
    /// or `all`; needs --proxy-protocol-from.
    #[arg(
        long,
        env = "MYRIAD_PROXY_PROTOCOL",
        value_delimiter = ',',
        value_name = "PORT,...",
        help_heading = "Load balancers in front"
    )]
    pub proxy_protocol: Vec<String>,
    /// Blocks of addresses of the load balancers that such headers are taken from. Connections
    /// from others are closed.
    #[arg(
        long,
        env = "MYRIAD_PROXY_PROTOCOL_FROM",
        value_delimiter = ',',
        value_name = "CIDR,...",
        help_heading = "Load balancers in front"
    )]
    pub proxy_protocol_from: Vec<String>,
    /// Where a workload's network rules lead the connections that it opens (of a sidecar).
    #[arg(
        long,
        env = "MYRIAD_CAPTURE_OUTBOUND",
        value_name = "ADDRESS",
        help_heading = "Sidecar"
    )]
    pub capture_outbound: Option<String>,
    /// Where a workload's network rules lead the connections to it (of a sidecar).
    #[arg(
        long,
        env = "MYRIAD_CAPTURE_INBOUND",
        value_name = "ADDRESS",
        help_heading = "Sidecar"
    )]
    pub capture_inbound: Option<String>,
    /// Seconds that a captured connection may say nothing before its server is taken for the one
    /// who speaks first, 1 to 60. Ports whose protocol is declared do not wait.
    #[arg(
        long,
        env = "MYRIAD_DETECTION_TIMEOUT",
        default_value_t = 5,
        value_name = "SECONDS",
        help_heading = "Sidecar"
    )]
    pub detection_timeout: u64,
    /// Servers of names, and the locality of the proxy.
    #[command(flatten)]
    pub names: RawNames,
}

/// Settings of `status` as written.
#[derive(Clone, Debug, Args)]
pub struct RawStatus {
    /// The subject; the whole process if nothing is named.
    #[command(subcommand)]
    pub subject: Option<StatusSubject>,
    /// The process to ask.
    #[command(flatten)]
    pub question: RawQuestion,
}

/// The subject of a status.
#[derive(Clone, Debug, Subcommand)]
pub enum StatusSubject {
    /// One Ingress: its hosts and findings, and on how many proxies it is live.
    Ingress {
        /// The Ingress.
        #[arg(value_name = "NAMESPACE/NAME")]
        name: String,
    },
}

/// Settings of commands that ask a running process, as written.
#[derive(Clone, Debug, Args)]
pub struct RawQuestion {
    /// The admin address of the process: ADDRESS:PORT.
    #[arg(
        long,
        env = "MYRIAD_ADMIN",
        default_value = "127.0.0.1:9901",
        value_name = "ADDRESS",
        global = true
    )]
    pub admin: String,
    /// The form of the answer.
    #[arg(
        long,
        default_value = "text",
        value_name = "FORM",
        value_enum,
        global = true
    )]
    pub output: OutputForm,
}

/// Which Secrets are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchedSecrets {
    /// Secrets of types that may hold anything too.
    All,
    /// Secrets of type kubernetes.io/tls alone.
    Tls,
}

impl WatchedSecrets {
    /// Whether Secrets that may hold anything are among them.
    pub fn are_all(self) -> bool {
        self == WatchedSecrets::All
    }
}

/// When the kinds of an API are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Watching {
    /// While the cluster has definitions of them.
    Auto,
    /// Never.
    Off,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// A text for people.
    Text,
    /// JSON for programs.
    Json,
}

/// Writes an error and its causes to standard error.
pub fn complain(error: &anyhow::Error) {
    // Standard error may be closed; there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "myriad: {error:#}");
}
