//! The rules of nftables by which a workload's connections reach its proxy: one table, one
//! transaction, the same text for the same settings.
//!
//! The order of the rules is the meaning; the first that fits decides.

use std::fmt::Write as _;
use std::net::IpAddr;

/// The table. Nothing outside of it is touched.
pub(super) const TABLE: &str = "inet myriad";

/// The source addresses of the proxy's connections to its own workload, so that they are not led
/// back into the proxy. Istio's proxies use the same addresses.
pub(super) const PASSTHROUGH: [&str; 2] = ["127.0.0.6", "::6"];

/// Ports, CIDRs or interfaces of one setting at most.
pub(super) const ENTRIES_MAX: usize = 1_024;

/// The connections that are led to the proxy, and those that are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The port where the proxy accepts the workload's own connections.
    pub outbound_port: u16,
    /// The port where the proxy accepts connections to the workload.
    pub inbound_port: u16,
    /// The port where the proxy answers queries of DNS, and its servers; `None` leaves queries
    /// alone.
    pub dns: Option<Dns>,
    /// The user and group that the proxy runs as; what they send goes straight out.
    pub proxy_user: u32,
    /// See `proxy_user`.
    pub proxy_group: u32,
    /// Ports of the workload that are led to the proxy.
    pub inbound_ports: Ports,
    /// Ports of the workload that are not.
    pub inbound_ports_excluded: Vec<u16>,
    /// Destinations that are led to the proxy.
    pub outbound_cidrs: Cidrs,
    /// Destinations that are not.
    pub outbound_cidrs_excluded: Vec<Cidr>,
    /// Ports of destinations that are led to the proxy whatever their address.
    pub outbound_ports: Ports,
    /// Ports of destinations that are not.
    pub outbound_ports_excluded: Vec<u16>,
    /// Interfaces whose connections are left alone in both directions.
    pub interfaces_excluded: Vec<String>,
}

/// How queries of DNS reach the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dns {
    /// The proxy's port, for UDP and TCP.
    pub port: u16,
    /// The servers whose queries are taken; those to others are left alone.
    pub servers: Vec<IpAddr>,
}

/// All ports, or some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Every one.
    All,
    /// These; empty means none.
    These(Vec<u16>),
}

/// All addresses, or some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cidrs {
    /// Every one.
    All,
    /// These; empty means none.
    These(Vec<Cidr>),
}

/// Addresses that begin alike. The bits behind the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: IpAddr,
    prefix_bits: u8,
}

impl Cidr {
    /// Reads `ADDRESS/BITS`, or an address alone. Bits behind the prefix are cleared.
    pub(crate) fn read(text: &str) -> Option<Cidr> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            Some(bits) if bits.bytes().all(|it| it.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => bits_max,
        };
        if prefix_bits > bits_max {
            return None;
        }
        let behind = u32::from(bits_max - prefix_bits);
        let address = match address {
            IpAddr::V4(it) => {
                let kept = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((it.to_bits() & kept).into())
            }
            IpAddr::V6(it) => {
                let kept = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((it.to_bits() & kept).into())
            }
        };
        Some(Cidr {
            address,
            prefix_bits,
        })
    }

    /// `ip daddr 10.0.0.0/8`
    fn destination(self) -> String {
        let (address, bits) = (self.address, self.prefix_bits);
        format!("{} daddr {address}/{bits}", family(address))
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// The script that removes the table, whether it is there or not.
pub(super) fn removal() -> String {
    format!("add table {TABLE}\ndelete table {TABLE}\n")
}

impl Rules {
    /// The whole table, in the language of `nft`; it replaces the former one in one step.
    pub(crate) fn text(&self) -> String {
        let mut text = removal();
        let _ = writeln!(text, "table {TABLE} {{");
        let outbound = self.outbound();
        let inbound = self.inbound();
        for (name, hook, rules) in [
            ("outbound", "output", outbound),
            ("inbound", "prerouting", inbound),
        ] {
            let _ = writeln!(text, "  chain {name} {{");
            let _ = writeln!(
                text,
                "    type nat hook {hook} priority -100; policy accept;"
            );
            for rule in rules {
                let _ = writeln!(text, "    {rule}");
            }
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }

    fn outbound(&self) -> Vec<String> {
        let (user, group) = (self.proxy_user, self.proxy_group);
        let stranger = format!("meta skuid != {user} meta skgid != {group}");
        let mut rules = Vec::new();
        // The proxy hands a connection to its own workload.
        let [v4, v6] = PASSTHROUGH;
        rules.push(format!("ip saddr {v4} accept"));
        rules.push(format!("ip6 saddr {v6} accept"));
        // The proxy reaches its own workload by the address of a Service: as from outside.
        let inward = format!("redirect to :{}", self.inbound_port);
        for own in ["meta skuid", "meta skgid"] {
            let id = if own == "meta skuid" { user } else { group };
            for loopback in ["ip daddr != 127.0.0.0/8", "ip6 daddr != ::1"] {
                rules.push(format!(
                    "oifname \"lo\" {own} {id} {loopback} meta l4proto tcp {inward}"
                ));
            }
        }
        if let Some(dns) = &self.dns {
            for server in &dns.servers {
                let to = format!("{} daddr {server}", family(*server));
                for transport in ["udp", "tcp"] {
                    let port = dns.port;
                    rules.push(format!(
                        "{stranger} {to} {transport} dport 53 redirect to :{port}"
                    ));
                }
            }
        }
        // The workload speaks with itself, and the proxy with the world.
        rules.push(format!("oifname \"lo\" {stranger} accept"));
        rules.push(format!("meta skuid {user} accept"));
        rules.push(format!("meta skgid {group} accept"));
        rules.push("ip daddr 127.0.0.0/8 accept".to_owned());
        rules.push("ip6 daddr ::1 accept".to_owned());
        for name in &self.interfaces_excluded {
            rules.push(format!("oifname \"{name}\" accept"));
        }
        let outward = format!("redirect to :{}", self.outbound_port);
        rules.extend(of_ports(&self.outbound_ports_excluded, "accept"));
        match &self.outbound_ports {
            Ports::All => rules.push(format!("meta l4proto tcp {outward}")),
            Ports::These(ports) => rules.extend(of_ports(ports, &outward)),
        }
        for cidr in &self.outbound_cidrs_excluded {
            rules.push(format!("{} accept", cidr.destination()));
        }
        match &self.outbound_cidrs {
            Cidrs::All => rules.push(format!("meta l4proto tcp {outward}")),
            Cidrs::These(cidrs) => rules.extend(cidrs.iter().map(|cidr| {
                let to = cidr.destination();
                format!("{to} meta l4proto tcp {outward}")
            })),
        }
        rules
    }

    fn inbound(&self) -> Vec<String> {
        let inward = format!("redirect to :{}", self.inbound_port);
        let mut rules = Vec::new();
        for name in &self.interfaces_excluded {
            rules.push(format!("iifname \"{name}\" accept"));
        }
        // The kernel refuses these only after they would have been led to the proxy.
        for loopback in ["ip daddr 127.0.0.0/8", "ip6 daddr ::1"] {
            rules.push(format!("iifname != \"lo\" {loopback} drop"));
        }
        rules.extend(of_ports(&self.inbound_ports_excluded, "accept"));
        match &self.inbound_ports {
            Ports::All => rules.push(format!("meta l4proto tcp {inward}")),
            Ports::These(ports) => rules.extend(of_ports(ports, &inward)),
        }
        rules
    }
}

/// One rule for all of these ports; none for none.
fn of_ports(ports: &[u16], verdict: &str) -> Option<String> {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let set = ports.join(", ");
    (!ports.is_empty()).then(|| format!("tcp dport {{ {set} }} {verdict}"))
}

#[cfg(test)]
mod tests;
