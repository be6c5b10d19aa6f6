//! Settings as people write them.

use clap::Parser as _;

use super::{RawRedirect, check};

/// The command line of `redirect` alone.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    raw: RawRedirect,
}

fn read(arguments: &[&str]) -> anyhow::Result<super::Rules> {
    let all = ["redirect"].iter().chain(arguments);
    check(&Line::parse_from(all).raw)
}

#[test]
fn defaults_are_those_of_istio() {
    let rules = read(&[]).unwrap();
    assert_eq!((rules.outbound_port, rules.inbound_port), (15001, 15006));
    assert_eq!((rules.proxy_user, rules.proxy_group), (1337, 1337));
    assert_eq!(rules.inbound_ports_excluded, [15020, 15021, 15090]);
    assert_eq!(rules.dns, None);
}

#[test]
fn every_problem_is_named() {
    let wrong = [
        "--inbound-ports=80,http",
        "--outbound-cidrs=10.0.0.0/99",
        "--interfaces-excluded=eth0;drop",
        "--inbound-port=15001",
        "--proxy-user=0",
    ];
    let error = read(&wrong).unwrap_err().to_string();
    let expected = [
        "--inbound-ports: \"http\" is not a port from 1 to 65535",
        "--outbound-cidrs: \"10.0.0.0/99\" is not ADDRESS/BITS, such as 10.0.0.0/8",
        "--interfaces-excluded: \"eth0;drop\" is not the name of an interface",
        "--inbound-port and --outbound-port are the same",
        "--proxy-user is root's: a proxy of its own user can be told apart",
    ];
    assert_eq!(error, expected.join("; "));
}

#[test]
fn queries_are_led_away_from_the_servers_of_resolv_conf() {
    let file = std::env::temp_dir().join(format!("resolv-{}.conf", std::process::id()));
    let path = file.to_str().unwrap();
    let arguments = ["--dns-port=15053", "--resolv-conf", path];
    std::fs::write(
        &file,
        "search a\nnameserver 10.96.0.10\nnameserver fe80::1%eth0\n",
    )
    .unwrap();
    let dns = read(&arguments).unwrap().dns.unwrap();
    std::fs::write(&file, "search a\n").unwrap();
    let error = read(&arguments).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    let servers = dns.servers.iter().map(ToString::to_string);
    assert_eq!(servers.collect::<Vec<_>>(), ["10.96.0.10", "fe80::1"]);
    assert!(
        error.ends_with("names no server, and --dns-port needs one"),
        "{error}"
    );
}
