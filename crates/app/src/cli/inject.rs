//! Settings of injection as written.

use std::path::PathBuf;

use clap::Args;

/// Settings of `inject` as written.
#[derive(Clone, Debug, Args)]
pub struct RawInject {
    /// A file of objects; `-` is standard input. May be given more than once.
    #[arg(short, long, required = true, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// What the proxies are like.
    #[command(flatten)]
    pub sidecar: RawSidecar,
}

/// Settings of the webhook as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Injection")]
pub struct RawInjection {
    /// Where API servers ask what becomes of Pods: ADDRESS:PORT, or a port on every IPv4 address.
    /// Without it no Pod gets a proxy on its way into the cluster.
    #[arg(long, env = "MYRIAD_WEBHOOK", value_name = "ADDRESS")]
    pub webhook: Option<String>,
    /// The MutatingWebhookConfiguration that leads API servers there.
    #[arg(
        long,
        env = "MYRIAD_WEBHOOK_CONFIGURATION",
        default_value = "myriad",
        value_name = "NAME"
    )]
    pub webhook_configuration: String,
    /// What the proxies are like.
    #[command(flatten)]
    pub sidecar: RawSidecar,
}

/// What injected proxies are like, as written.
#[derive(Clone, Debug, Args)]
pub struct RawSidecar {
    /// The image of injected proxies.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_IMAGE",
        default_value = concat!("myriad:", env!("CARGO_PKG_VERSION")),
        value_name = "IMAGE"
    )]
    pub sidecar_image: String,
    /// When that image is pulled: Always, IfNotPresent or Never.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_PULL_POLICY",
        default_value = "IfNotPresent",
        value_name = "POLICY"
    )]
    pub sidecar_pull_policy: String,
    /// Where injected proxies find the controllers.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_CONTROLLER",
        default_value = "myriad-controller.myriad-system.svc:15010",
        value_name = "HOST:PORT"
    )]
    pub sidecar_controller: String,
    /// The ConfigMap of every namespace with the roots that controllers are known by.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_CA_CONFIG_MAP",
        default_value = "myriad-ca",
        value_name = "NAME"
    )]
    pub sidecar_ca_config_map: String,
    /// The CPU that an injected proxy asks for.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_CPU",
        default_value = "10m",
        value_name = "QUANTITY"
    )]
    pub sidecar_cpu: String,
    /// The memory that an injected proxy asks for.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_MEMORY",
        default_value = "32Mi",
        value_name = "QUANTITY"
    )]
    pub sidecar_memory: String,
    /// The most memory that it may have; empty for no limit.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_MEMORY_LIMIT",
        default_value = "512Mi",
        value_name = "QUANTITY"
    )]
    pub sidecar_memory_limit: String,
    /// What injected proxies log.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub sidecar_log: String,
    /// Seconds that an injected proxy still accepts connections when its Pod ends.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_DRAIN_DELAY",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=3600),
        value_name = "SECONDS"
    )]
    pub sidecar_drain_delay: u64,
    /// Seconds after which it cuts what remains.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_DRAIN_TIMEOUT",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(0..=3600),
        value_name = "SECONDS"
    )]
    pub sidecar_drain_timeout: u64,
}
