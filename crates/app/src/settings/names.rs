//! Settings of names: who is asked for their addresses, and which of those are used.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use myriad_model::{Extent, Reach};
use myriad_proxy::{BorderSettings, NameSettings};

use crate::cli::RawTraffic;

/// The longest time in seconds that an answer of DNS is used: a day.
const DNS_TTL_MAX: u64 = 86_400;

/// The most servers of DNS.
const RESOLVERS_MAX: usize = 8;

/// The port of a DNS server where none is named.
const DNS_PORT: u16 = 53;

/// Checks settings.
pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> NameSettings {
    let (min, max) = (raw.names.dns_ttl_min, raw.names.dns_ttl_max);
    if min == 0 || min > max || max > DNS_TTL_MAX {
        problems.push(format!(
            "--dns-ttl-min is {min} and --dns-ttl-max {max}, not 1 or more, and in that order up \
             to {DNS_TTL_MAX}"
        ));
    }
    let servers = servers(&raw.names.resolver, problems);
    NameSettings {
        servers,
        ttl_min: Duration::from_secs(min),
        ttl_max: Duration::from_secs(max),
        border: BorderSettings {
            chosen: Reach {
                extent: Extent::Public,
                allowed: blocks(
                    "--dynamic-dns-allow",
                    &raw.names.dynamic_dns_allow,
                    problems,
                ),
                denied: blocks("--dynamic-dns-deny", &raw.names.dynamic_dns_deny, problems),
            },
            ..BorderSettings::default()
        },
    }
}

/// Servers of DNS.
pub(super) fn servers(written: &[String], problems: &mut Vec<String>) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        let bare = text.trim_matches(['[', ']']).parse::<IpAddr>();
        match bare
            .map(|ip| (ip, DNS_PORT).into())
            .or_else(|_| text.parse())
        {
            Ok(server) => servers.push(server),
            Err(_) => problems.push(format!(
                "--resolver has {text:?}, which is no ADDRESS or ADDRESS:PORT"
            )),
        }
    }
    if servers.len() > RESOLVERS_MAX {
        let count = servers.len();
        problems.push(format!(
            "--resolver has {count} servers, over {RESOLVERS_MAX}"
        ));
    }
    servers
}

/// Blocks of addresses, or single ones.
pub(super) fn blocks(name: &str, written: &[String], problems: &mut Vec<String>) -> Vec<IpNet> {
    let mut blocks = Vec::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        match text.parse::<IpNet>().ok().or_else(|| address().ok()) {
            Some(block) => blocks.push(block),
            None => problems.push(format!(
                "{name} has {text:?}, which is no block of addresses"
            )),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::{Cli, Command};

    fn read(arguments: &[&str]) -> (super::NameSettings, Vec<String>) {
        let line = ["myriad", "serve"].iter().chain(arguments).chain(&["dir"]);
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let mut problems = Vec::new();
        (super::read(&raw.traffic, &mut problems), problems)
    }

    #[test]
    fn servers_are_addresses_with_or_without_a_port() {
        let (names, problems) = read(&["--resolver=192.0.2.1,192.0.2.1:5353,2001:db8::1,[::1]:54"]);
        let servers: Vec<String> = names.servers.iter().map(ToString::to_string).collect();
        let wanted = [
            "192.0.2.1:53",
            "192.0.2.1:5353",
            "[2001:db8::1]:53",
            "[::1]:54",
        ];
        assert_eq!(
            (servers, problems.len()),
            (wanted.map(String::from).into(), 0)
        );
    }

    #[test]
    fn every_problem_is_told() {
        let (_, problems) = read(&[
            "--resolver=dns.example",
            "--dns-ttl-min=9",
            "--dns-ttl-max=8",
            "--dynamic-dns-allow=10.0.0.0/8,10.0.0.1,all",
            "--dynamic-dns-deny=10.0.0.0/99",
        ]);
        assert_eq!(problems.len(), 4, "{problems:?}");
    }
}
