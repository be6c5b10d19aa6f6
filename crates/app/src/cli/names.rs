//! Settings of how a proxy asks for the addresses of names, and of where it is.

use clap::Args;

/// Settings of names and places, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Names and places")]
pub struct RawNames {
    /// Where this proxy is, as REGION/ZONE/SUBZONE, of which later parts may be missing: what
    /// `localityLbSetting` of Istio's DestinationRules compares endpoints with.
    #[arg(
        long,
        env = "MYRIAD_LOCALITY",
        default_value = "",
        hide_default_value = true,
        value_name = "LOCALITY"
    )]
    pub locality: String,
    /// Servers of DNS that are asked for the addresses of names, as ADDRESS or ADDRESS:PORT
    /// [default: those of /etc/resolv.conf]. The hosts file goes first.
    #[arg(
        long,
        env = "MYRIAD_RESOLVER",
        value_delimiter = ',',
        value_name = "ADDRESS,..."
    )]
    pub resolver: Vec<String>,
    /// The fewest seconds that an answer of DNS is used, at least 1.
    #[arg(
        long,
        env = "MYRIAD_DNS_TTL_MIN",
        default_value_t = 1,
        value_name = "SECONDS"
    )]
    pub dns_ttl_min: u64,
    /// The most seconds that an answer of DNS is used, at most 86400.
    #[arg(
        long,
        env = "MYRIAD_DNS_TTL_MAX",
        default_value_t = 300,
        value_name = "SECONDS"
    )]
    pub dns_ttl_max: u64,
    /// Blocks of addresses that hosts may have which clients choose (resolution DYNAMIC_DNS),
    /// although they are private, of this machine or of its link.
    #[arg(
        long,
        env = "MYRIAD_DYNAMIC_DNS_ALLOW",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub dynamic_dns_allow: Vec<String>,
    /// Blocks of addresses that such hosts may not have, although they are public or allowed.
    #[arg(
        long,
        env = "MYRIAD_DYNAMIC_DNS_DENY",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub dynamic_dns_deny: Vec<String>,
}
