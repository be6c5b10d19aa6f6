//! The text of the rules. That the kernel obeys them is a story of its own.

use super::{Cidr, Cidrs, Dns, Ports, Rules};

fn everything() -> Rules {
    Rules {
        outbound_port: 15001,
        inbound_port: 15006,
        dns: None,
        proxy_user: 1337,
        proxy_group: 1338,
        inbound_ports: Ports::All,
        inbound_ports_excluded: vec![15021],
        outbound_cidrs: Cidrs::All,
        outbound_cidrs_excluded: Vec::new(),
        outbound_ports: Ports::These(Vec::new()),
        outbound_ports_excluded: Vec::new(),
        interfaces_excluded: Vec::new(),
    }
}

fn cidrs(texts: &[&str]) -> Vec<Cidr> {
    texts.iter().map(|it| Cidr::read(it).unwrap()).collect()
}

#[test]
fn by_default_everything_is_led_to_the_proxy_but_what_it_sends_itself() {
    let expected = r#"add table inet myriad
delete table inet myriad
table inet myriad {
  chain outbound {
    type nat hook output priority -100; policy accept;
    ip saddr 127.0.0.6 accept
    ip6 saddr ::6 accept
    oifname "lo" meta skuid 1337 ip daddr != 127.0.0.0/8 meta l4proto tcp redirect to :15006
    oifname "lo" meta skuid 1337 ip6 daddr != ::1 meta l4proto tcp redirect to :15006
    oifname "lo" meta skgid 1338 ip daddr != 127.0.0.0/8 meta l4proto tcp redirect to :15006
    oifname "lo" meta skgid 1338 ip6 daddr != ::1 meta l4proto tcp redirect to :15006
    oifname "lo" meta skuid != 1337 meta skgid != 1338 accept
    meta skuid 1337 accept
    meta skgid 1338 accept
    ip daddr 127.0.0.0/8 accept
    ip6 daddr ::1 accept
    meta l4proto tcp redirect to :15001
  }
  chain inbound {
    type nat hook prerouting priority -100; policy accept;
    iifname != "lo" ip daddr 127.0.0.0/8 drop
    iifname != "lo" ip6 daddr ::1 drop
    tcp dport { 15021 } accept
    meta l4proto tcp redirect to :15006
  }
}
"#;
    assert_eq!(everything().text(), expected);
}

#[test]
fn what_is_excluded_stands_before_what_is_included() {
    let rules = Rules {
        dns: Some(Dns {
            port: 15053,
            servers: vec!["10.96.0.10".parse().unwrap(), "fd00::a".parse().unwrap()],
        }),
        inbound_ports: Ports::These(vec![80, 8080]),
        outbound_cidrs: Cidrs::These(cidrs(&["10.9.8.7/8", "2001:db8::1/32"])),
        outbound_cidrs_excluded: cidrs(&["10.1.0.0/16"]),
        outbound_ports: Ports::These(vec![3306]),
        outbound_ports_excluded: vec![22, 25],
        interfaces_excluded: vec!["tap0".to_owned()],
        ..everything()
    };
    let text = rules.text();
    let ordered = [
        "meta skuid != 1337 meta skgid != 1338 ip daddr 10.96.0.10 udp dport 53 redirect to :15053",
        "meta skuid != 1337 meta skgid != 1338 ip6 daddr fd00::a tcp dport 53 redirect to :15053",
        "meta skgid 1338 accept",
        "oifname \"tap0\" accept",
        "tcp dport { 22, 25 } accept",
        "tcp dport { 3306 } redirect to :15001",
        "ip daddr 10.1.0.0/16 accept",
        "ip daddr 10.0.0.0/8 meta l4proto tcp redirect to :15001",
        "ip6 daddr 2001:db8::/32 meta l4proto tcp redirect to :15001",
        "iifname \"tap0\" accept",
        "iifname != \"lo\" ip daddr 127.0.0.0/8 drop",
        "iifname != \"lo\" ip6 daddr ::1 drop",
        "tcp dport { 15021 } accept",
        "tcp dport { 80, 8080 } redirect to :15006",
    ];
    let mut rest = text.as_str();
    for rule in ordered {
        let line = format!("    {rule}\n");
        let (_, behind) = rest.split_once(&line).unwrap_or_else(|| panic!("{rule}"));
        rest = behind;
    }
    assert!(!text.contains("    meta l4proto tcp redirect"), "{text}");
}

#[test]
fn addresses_are_read_strictly_and_lose_the_bits_behind_their_prefix() {
    let reads = [
        ("10.9.8.7/8", "ip daddr 10.0.0.0/8"),
        ("10.9.8.7", "ip daddr 10.9.8.7/32"),
        ("0.0.0.0/0", "ip daddr 0.0.0.0/0"),
        ("2001:db8::ffff/33", "ip6 daddr 2001:db8::/33"),
        ("::/0", "ip6 daddr ::/0"),
    ];
    for (text, expected) in reads {
        assert_eq!(Cidr::read(text).unwrap().destination(), expected);
    }
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "::/129",
        "a/8",
    ] {
        assert_eq!(Cidr::read(text), None, "{text}");
    }
}
