//! Settings of `redirect` as written.

use std::path::PathBuf;

use clap::Args;

/// Settings of `redirect` as written.
#[derive(Clone, Debug, Args)]
pub struct RawRedirect {
    /// Where the proxy takes the workload's own connections.
    #[arg(
        long,
        env = "MYRIAD_OUTBOUND_PORT",
        default_value = "15001",
        value_name = "PORT"
    )]
    pub outbound_port: u16,
    /// Where the proxy takes connections to the workload.
    #[arg(
        long,
        env = "MYRIAD_INBOUND_PORT",
        default_value = "15006",
        value_name = "PORT"
    )]
    pub inbound_port: u16,
    /// The user that the proxy runs as: what it sends goes straight out.
    #[arg(
        long,
        env = "MYRIAD_PROXY_USER",
        default_value = "1337",
        value_name = "UID"
    )]
    pub proxy_user: u32,
    /// The group that the proxy runs as.
    #[arg(
        long,
        env = "MYRIAD_PROXY_GROUP",
        default_value = "1337",
        value_name = "GID"
    )]
    pub proxy_group: u32,
    /// Ports of the workload that are led to the proxy; `*` for all.
    #[arg(
        long,
        env = "MYRIAD_INBOUND_PORTS",
        default_value = "*",
        value_delimiter = ',',
        value_name = "PORT,..."
    )]
    pub inbound_ports: Vec<String>,
    /// Ports of the workload that are not, beside those of the proxy's own pages.
    #[arg(
        long,
        env = "MYRIAD_INBOUND_PORTS_EXCLUDED",
        value_delimiter = ',',
        value_name = "PORT,..."
    )]
    pub inbound_ports_excluded: Vec<String>,
    /// Ports of the proxy's own pages, which kubelets and Prometheus ask.
    #[arg(
        long,
        env = "MYRIAD_PROXY_PORTS",
        default_value = "15020,15021,15090",
        value_delimiter = ',',
        value_name = "PORT,..."
    )]
    pub proxy_ports: Vec<String>,
    /// Destinations that are led to the proxy; `*` for all.
    #[arg(
        long,
        env = "MYRIAD_OUTBOUND_CIDRS",
        default_value = "*",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub outbound_cidrs: Vec<String>,
    /// Destinations that are not.
    #[arg(
        long,
        env = "MYRIAD_OUTBOUND_CIDRS_EXCLUDED",
        value_delimiter = ',',
        value_name = "CIDR,..."
    )]
    pub outbound_cidrs_excluded: Vec<String>,
    /// Ports that are led to the proxy whatever the destination; `*` for all.
    #[arg(
        long,
        env = "MYRIAD_OUTBOUND_PORTS",
        value_delimiter = ',',
        value_name = "PORT,..."
    )]
    pub outbound_ports: Vec<String>,
    /// Ports that are not, whatever the destination.
    #[arg(
        long,
        env = "MYRIAD_OUTBOUND_PORTS_EXCLUDED",
        value_delimiter = ',',
        value_name = "PORT,..."
    )]
    pub outbound_ports_excluded: Vec<String>,
    /// Interfaces whose connections are left alone.
    #[arg(
        long,
        env = "MYRIAD_INTERFACES_EXCLUDED",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub interfaces_excluded: Vec<String>,
    /// Where the proxy answers DNS: queries to the servers of --resolv-conf are led there.
    #[arg(long, env = "MYRIAD_DNS_PORT", value_name = "PORT")]
    pub dns_port: Option<u16>,
    /// The file that names the servers of DNS.
    #[arg(
        long,
        env = "MYRIAD_RESOLV_CONF",
        default_value = "/etc/resolv.conf",
        value_name = "FILE"
    )]
    pub resolv_conf: PathBuf,
    /// The program that installs the rules.
    #[arg(
        long,
        env = "MYRIAD_NFT",
        default_value = "nft",
        value_name = "PROGRAM"
    )]
    pub nft: PathBuf,
    /// Print the rules in the place of installing them.
    #[arg(long, conflicts_with = "remove")]
    pub print: bool,
    /// Take the rules away.
    #[arg(long)]
    pub remove: bool,
}
