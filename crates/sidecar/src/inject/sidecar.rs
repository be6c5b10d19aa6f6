//! The settings of injected proxies, as written and as checked.

use std::net::IpAddr;

use anyhow::ensure;
use clap::Args;

use super::annotation::is_quantity;

/// The settings of injected proxies, as written.
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
    /// Address at which injected proxies find the controllers.
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
    /// Log level of injected proxies.
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
    /// The `--probes-metrics-from` of injected proxies.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_METRICS_FROM",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub sidecar_metrics_from: Vec<String>,
    /// When injected proxies hold removals.
    #[command(flatten)]
    pub hold: RawSidecarHold,
}

/// Settings of when injected proxies hold removals, as written. Where one is not given, the
/// proxy's own default is in effect.
#[derive(Clone, Debug, Args)]
pub struct RawSidecarHold {
    /// The `--hold-percent` of injected proxies.
    #[arg(
        long,
        env = "MYRIAD_SIDECAR_HOLD_PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=100),
        value_name = "PERCENT"
    )]
    pub sidecar_hold_percent: Option<u32>,
    /// The `--hold-domains` of injected proxies.
    #[arg(long, env = "MYRIAD_SIDECAR_HOLD_DOMAINS", value_name = "COUNT")]
    pub sidecar_hold_domains: Option<u32>,
    /// The `--hold-for` of injected proxies.
    #[arg(long, env = "MYRIAD_SIDECAR_HOLD_FOR", value_name = "SECONDS")]
    pub sidecar_hold_for: Option<u32>,
}

/// The settings of every injected proxy, unless a Pod says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The image of Myriad.
    pub image: String,
    /// When the image is pulled: Always, IfNotPresent or Never.
    pub pull_policy: String,
    /// The controllers, as HOST:PORT.
    pub controller: String,
    /// The ConfigMap with the roots that controllers are known by; it is in every namespace.
    pub ca_config_map: String,
    /// Requested CPU and memory: quantities of Kubernetes.
    pub cpu: String,
    /// See `cpu`.
    pub memory: String,
    /// The most memory that it may have; empty for no limit.
    pub memory_limit: String,
    /// The log level.
    pub log: String,
    /// Seconds that it still accepts connections after it was told to end, and those after which
    /// it cuts what is left.
    pub drain_delay: u64,
    /// See `drain_delay`.
    pub drain_timeout: u64,
    /// The settings of when it holds removals, as it takes them: `--hold-percent=100`.
    pub hold: Vec<String>,
    /// The blocks of addresses that metrics are told to; empty for all.
    pub metrics_from: Vec<String>,
    /// The treatment of paths that servers understand differently, as MeshConfig says.
    pub path_normalization: Option<Box<str>>,
}

impl RawSidecarHold {
    fn arguments(&self) -> Vec<String> {
        let all = [
            ("percent", self.sidecar_hold_percent),
            ("domains", self.sidecar_hold_domains),
            ("for", self.sidecar_hold_for),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        given
            .map(|(name, value)| format!("--hold-{name}={value}"))
            .collect()
    }
}

/// Whether a text is an address, or a block of them.
fn is_block(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, "0"));
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let is_number = !bits.is_empty() && bits.bytes().all(|it| it.is_ascii_digit());
    is_number && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

impl Sidecar {
    /// From settings as written.
    ///
    /// # Errors
    /// A setting that does not hold; all are named.
    pub fn check(raw: &RawSidecar) -> anyhow::Result<Sidecar> {
        let mut problems = Vec::new();
        let required = [
            ("sidecar-image", &raw.sidecar_image),
            ("sidecar-controller", &raw.sidecar_controller),
        ];
        for (name, value) in required {
            if value.is_empty() || value.chars().any(char::is_whitespace) {
                problems.push(format!("--{name} is empty or has a space in it"));
            }
        }
        let port = raw.sidecar_controller.rsplit_once(':');
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            problems.push("--sidecar-controller is not HOST:PORT".to_owned());
        }
        let policies = ["Always", "IfNotPresent", "Never"];
        if !policies.contains(&&*raw.sidecar_pull_policy) {
            let policies = policies.join(", ");
            problems.push(format!("--sidecar-pull-policy is none of {policies}"));
        }
        let quantities = [
            ("sidecar-cpu", &raw.sidecar_cpu, false),
            ("sidecar-memory", &raw.sidecar_memory, false),
            ("sidecar-memory-limit", &raw.sidecar_memory_limit, true),
        ];
        for (name, value, may_be_empty) in quantities {
            if !(may_be_empty && value.is_empty() || is_quantity(value)) {
                problems.push(format!(
                    "--{name}: {value:?} is no quantity, such as 100m or 64Mi"
                ));
            }
        }
        let metrics_from = raw.sidecar_metrics_from.iter().filter(|it| !it.is_empty());
        let metrics_from: Vec<String> = metrics_from.cloned().collect();
        for text in metrics_from.iter().filter(|text| !is_block(text)) {
            problems.push(format!(
                "--sidecar-metrics-from has {text:?}, which is no block of addresses"
            ));
        }
        ensure!(problems.is_empty(), "{}", problems.join("; "));
        Ok(Sidecar {
            image: raw.sidecar_image.clone(),
            pull_policy: raw.sidecar_pull_policy.clone(),
            controller: raw.sidecar_controller.clone(),
            ca_config_map: raw.sidecar_ca_config_map.clone(),
            cpu: raw.sidecar_cpu.clone(),
            memory: raw.sidecar_memory.clone(),
            memory_limit: raw.sidecar_memory_limit.clone(),
            log: raw.sidecar_log.clone(),
            drain_delay: raw.sidecar_drain_delay,
            drain_timeout: raw.sidecar_drain_timeout,
            hold: raw.hold.arguments(),
            metrics_from,
            path_normalization: None,
        })
    }
}
