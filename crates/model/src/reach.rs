//! Which addresses endpoints may have.
//!
//! The author of endpoints, or the owner of the zone they are resolved in, could let them point at
//! the proxy's own machine, where doors are open that no client should find.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

/// The addresses where clouds tell a machine who it is and give it credentials. Some are public by
/// their number (Azure's), or of an operator's network (Alibaba's).
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// IPv6 addresses of the same kind: of Amazon's cloud, and of Google's.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The addresses that may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The addresses that may be connected to unless one of the lists says otherwise.
    pub extent: Extent,
    /// Blocks that are admitted beyond the extent.
    pub allowed: Vec<IpNet>,
    /// Blocks that are refused, even where the extent or `allowed` admits them.
    pub denied: Vec<IpNet>,
}

/// The addresses that a proxy may connect to by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Every address.
    #[default]
    Everywhere,
    /// Addresses of other machines: not its own, its link's, or its cloud's metadata service.
    Elsewhere,
    /// Public addresses alone.
    Public,
}

/// Why an address may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// It is of the machine itself.
    Loopback,
    /// It stands for the machine itself where it is connected to.
    Unspecified,
    /// It is of the link.
    LinkLocal,
    /// It is where a cloud gives credentials to its machines.
    Metadata,
    /// It is of no single machine.
    Multicast,
    /// It is not public.
    Private,
    /// It is in a block that the operator of the proxy refuses.
    Denied,
    /// The proxy itself listens there.
    Own,
}

impl Reach {
    /// Whether an address may be connected to.
    pub fn admits(&self, ip: IpAddr) -> bool {
        self.refusal(ip).is_none()
    }

    /// Why an address may not be connected to; none where it may. One that holds others, as
    /// translators and tunnels have it, is admitted only where all of them are; a block that
    /// allows it as it is written allows it whole.
    pub fn refusal(&self, ip: IpAddr) -> Option<Unreachable> {
        if let Some(denial) = self.denial(ip) {
            return Some(denial);
        }
        if is_in(&self.allowed, ip) {
            return None;
        }
        let meant = Meant::of(ip);
        let mut refused = meant.iter().filter(|ip| !is_in(&self.allowed, *ip));
        refused.find_map(|ip| self.extent.refusal(ip))
    }

    /// Whether an address is denied by name, whatever the extent is. One that is unspecified
    /// leads to loopback, and is denied with it.
    pub fn denial(&self, ip: IpAddr) -> Option<Unreachable> {
        let is_listed = |ip| is_in(&self.denied, ip);
        let meant = Meant::of(ip);
        let mut meant = meant.iter();
        let is_denied = meant.any(|ip| is_listed(ip) || loopback_of(ip).is_some_and(is_listed));
        is_denied.then_some(Unreachable::Denied)
    }
}

impl Extent {
    fn refusal(self, ip: IpAddr) -> Option<Unreachable> {
        match self {
            Extent::Everywhere => None,
            Extent::Elsewhere => local(ip),
            Extent::Public => {
                let is_private = || (!is_public(ip)).then_some(Unreachable::Private);
                local(ip).or_else(is_private)
            }
        }
    }
}

/// Whether who connects to an endpoint on a machine meets a socket of this address there.
pub fn is_met(socket: SocketAddr, endpoint: SocketAddr) -> bool {
    let (bound, ip) = (socket.ip().to_canonical(), endpoint.ip().to_canonical());
    let is_any = bound.is_unspecified() || ip.is_unspecified();
    socket.port() == endpoint.port() && (is_any || bound == ip)
}

/// The address of a client, and those of IPv4 that it holds in a form for one machine: compatible,
/// or as translators write it. What tunnels hold is left out, since others are behind those.
pub fn readings_of(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    let is_tunnel = |ip: Ipv6Addr| matches!(ip.segments(), [0x2002, ..] | [0x2001, 0, ..]);
    let within = match ip {
        IpAddr::V6(v6) if !is_tunnel(v6) => Meant::of(ip).within,
        _ => [None; 4],
    };
    let within = within.into_iter().flatten().map(IpAddr::V4);
    std::iter::once(ip).chain(within)
}

/// Whether a host is loopback by its name, wherever it is asked for (RFC 6761, section 6.3).
pub fn is_loopback_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreachable::Loopback => "of the gateway's own machine (loopback)",
            Unreachable::Unspecified => "of the gateway's own machine (unspecified)",
            Unreachable::LinkLocal => "of the gateway's own link (link-local)",
            Unreachable::Metadata => "where a cloud gives credentials to its machines (metadata)",
            Unreachable::Multicast => "of no single machine (multicast or broadcast)",
            Unreachable::Private => "not public",
            Unreachable::Denied => "refused by a setting of the gateway",
            Unreachable::Own => "where the gateway listens itself",
        })
    }
}

/// An address, and those of IPv4 that it leads to in the end.
struct Meant {
    itself: IpAddr,
    within: [Option<Ipv4Addr>; 4],
}

impl Meant {
    fn of(itself: IpAddr) -> Self {
        let IpAddr::V6(ip) = itself else {
            let within = [None; 4];
            return Meant { itself, within };
        };
        let octets = ip.octets();
        let at = |places: [usize; 4]| {
            let [a, b, c, d] = places.map(|place| octets.get(place).copied().unwrap_or_default());
            Ipv4Addr::new(a, b, c, d)
        };
        let last = at([12, 13, 14, 15]);
        let within = match ip.segments() {
            // Mapped (RFC 4291, section 2.5.5), and behind the well-known prefix of translators
            // (RFC 6052).
            [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                [Some(last), None, None, None]
            }
            // Compatible; ::, ::1 and their like are addresses of their own.
            [0, 0, 0, 0, 0, 0, high, _] if high > 0 => [Some(last), None, None, None],
            // Behind a prefix of a translator's own network (RFC 8215), which may be as long as
            // RFC 6052 (section 2.2) has it. Places of another length may hold nothing.
            [0x64, 0xff9b, 1, ..] => {
                let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12]].map(at);
                let [first, second, third] = places.map(|ip| Some(ip).filter(is_something));
                [first, second, third, Some(last).filter(is_something)]
            }
            // 6to4 (RFC 3056).
            [0x2002, ..] => [Some(at([2, 3, 4, 5])), None, None, None],
            // Teredo (RFC 4380): the server, and the client with every bit turned.
            [0x2001, 0, ..] => {
                let client = Ipv4Addr::from_bits(!last.to_bits());
                [Some(at([4, 5, 6, 7])), Some(client), None, None]
            }
            _ => [None; 4],
        };
        Meant { itself, within }
    }

    /// The address itself, and those within it.
    fn iter(&self) -> impl Iterator<Item = IpAddr> {
        let within = self.within.iter().flatten().map(|ip| IpAddr::V4(*ip));
        std::iter::once(self.itself).chain(within)
    }
}

/// The blocks of all addresses that [`Extent::Elsewhere`] leaves out.
pub fn local_blocks() -> impl Iterator<Item = IpNet> {
    let wide: [(IpAddr, u8); 9] = [
        (Ipv4Addr::UNSPECIFIED.into(), 32),
        (Ipv4Addr::LOCALHOST.into(), 8),
        (Ipv4Addr::new(169, 254, 0, 0).into(), 16),
        (Ipv4Addr::new(224, 0, 0, 0).into(), 4),
        (Ipv4Addr::BROADCAST.into(), 32),
        (Ipv6Addr::UNSPECIFIED.into(), 128),
        (Ipv6Addr::LOCALHOST.into(), 128),
        (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10),
        (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
    ];
    let block = |(ip, length): (IpAddr, u8)| Some(IpNet::new(ip, length).ok()?.trunc());
    let wide = wide.into_iter().filter_map(block);
    let single = METADATA_V4.into_iter().map(IpAddr::V4);
    let single = single.chain(METADATA_V6.into_iter().map(IpAddr::V6));
    wide.chain(single.map(IpNet::from))
}

fn is_in(blocks: &[IpNet], ip: IpAddr) -> bool {
    let mut blocks = blocks.iter();
    blocks.any(|block| block.contains(&ip))
}

/// Where a connection to an unspecified address ends; none of other addresses.
fn loopback_of(ip: IpAddr) -> Option<IpAddr> {
    let loopback: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    ip.is_unspecified().then_some(loopback)
}

/// Whether what stands in such a place may be an address: zeros around one of another length are
/// none, and no machine has one of 0.0.0.0/8.
fn is_something(ip: &Ipv4Addr) -> bool {
    ip.octets()[0] != 0
}

fn local(ip: IpAddr) -> Option<Unreachable> {
    let is_metadata = match ip {
        IpAddr::V4(ip) => METADATA_V4.contains(&ip),
        IpAddr::V6(ip) => METADATA_V6.contains(&ip),
    };
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let known = [
        (ip.is_loopback(), Unreachable::Loopback),
        (ip.is_unspecified(), Unreachable::Unspecified),
        (is_metadata, Unreachable::Metadata),
        (is_link_local, Unreachable::LinkLocal),
        (ip.is_multicast() || is_broadcast, Unreachable::Multicast),
    ];
    let mut known = known.into_iter();
    known.find_map(|(is, why)| is.then_some(why))
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
    let is_special = matches!(
        ip.octets(),
        [0, ..] | [192, 0, 0, _] | [198, 18..=19, ..] | [240..=255, ..]
    );
    !(is_shared || is_special || ip.is_private())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let is_site_local = ip.segments()[0] & 0xffc0 == 0xfec0;
    !(is_site_local || ip.is_unique_local())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Extent, Reach, is_loopback_name, is_met, local_blocks, readings_of};

    #[test]
    fn the_address_of_a_client_may_hold_another() {
        let readings = |text: &str| -> Vec<String> {
            let readings = readings_of(text.parse().unwrap());
            readings.skip(1).map(|ip| ip.to_string()).collect()
        };
        for held in [
            "::10.1.2.3",
            "64:ff9b::a01:203",
            "64:ff9b:1::a01:203",
            "::ffff:10.1.2.3",
        ] {
            assert_eq!(readings(held), ["10.1.2.3"], "{held}");
        }
        for alone in [
            "10.1.2.3",
            "2001:db8::a01:203",
            "::1",
            "2002:a01:203::1",
            "2001::a01:203",
        ] {
            assert!(readings(alone).is_empty(), "{alone}");
        }
    }

    #[test]
    fn the_blocks_of_a_machine_itself_have_what_is_not_elsewhere() {
        for text in LOCAL
            .iter()
            .filter(|text| !text.contains("::ffff:"))
            .take(16)
        {
            let ip: IpAddr = text.parse().unwrap();
            assert!(local_blocks().any(|block| block.contains(&ip)), "{text}");
        }
        for block in local_blocks() {
            assert!(!to(Extent::Elsewhere).admits(block.addr()), "{block}");
        }
    }

    fn admits(reach: &Reach, ip: &str) -> bool {
        reach.admits(ip.parse().unwrap())
    }

    fn to(extent: Extent) -> Reach {
        Reach {
            extent,
            ..Reach::default()
        }
    }

    /// Addresses that lead to the machine itself, its link or its cloud, in every spelling.
    const LOCAL: [&str; 32] = [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "169.254.169.254",
        "169.254.1.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "::ffff:169.254.169.254",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:7f00:0:100::",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:7f:0:1::",
        "64:ff9b:1:0:7f:0:100:0",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::1",
        "2001:0:5db8:d822::5601:5601",
    ];

    #[test]
    fn what_is_the_machine_itself_or_around_it_is_refused_however_it_is_written() {
        let (elsewhere, public) = (to(Extent::Elsewhere), to(Extent::Public));
        for ip in LOCAL {
            assert!(!admits(&elsewhere, ip), "{ip}");
            assert!(!admits(&public, ip), "{ip}");
            assert!(admits(&Reach::default(), ip), "{ip}");
        }
    }

    #[test]
    fn private_addresses_are_other_machines_but_not_public() {
        let (elsewhere, public) = (to(Extent::Elsewhere), to(Extent::Public));
        for ip in [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "fec0::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:a00:0:100::",
            "2002:a00:1::1",
        ] {
            assert!(admits(&elsewhere, ip), "{ip}");
            assert!(!admits(&public, ip), "{ip}");
        }
        for ip in [
            "93.184.216.34",
            "2606:4700::1",
            "64:ff9b::5db8:d822",
            "64:ff9b:1::5db8:d822",
            "2002:5db8:d822::1",
        ] {
            assert!(admits(&elsewhere, ip) && admits(&public, ip), "{ip}");
        }
    }

    #[test]
    fn people_allow_and_deny_and_a_denial_goes_first() {
        let reach = Reach {
            extent: Extent::Public,
            allowed: vec!["10.0.0.0/8".parse().unwrap()],
            denied: ["10.9.0.0/16", "93.0.0.0/8"]
                .map(|block| block.parse().unwrap())
                .into(),
        };
        assert!(admits(&reach, "10.1.0.1") && admits(&reach, "::ffff:10.1.0.1"));
        assert!(!admits(&reach, "10.9.0.1") && !admits(&reach, "93.184.216.34"));
        assert!(!admits(&reach, "::ffff:10.9.0.1") && !admits(&reach, "192.168.0.1"));
    }

    #[test]
    fn whoever_denies_loopback_denies_unspecified_addresses_of_its_family() {
        let denied = |blocks: &[&str], ip: &str| {
            let reach = Reach {
                denied: blocks.iter().map(|block| block.parse().unwrap()).collect(),
                ..Reach::default()
            };
            !admits(&reach, ip)
        };
        let both = ["127.0.0.0/8", "::1/128"];
        for ip in ["0.0.0.0", "::", "::ffff:0.0.0.0", "64:ff9b::", "127.0.0.1"] {
            assert!(denied(&both, ip), "{ip}");
        }
        for ip in ["0.0.0.1", "10.0.0.1", "::2"] {
            assert!(!denied(&both, ip), "{ip}");
        }
        assert!(denied(&both[..1], "0.0.0.0") && !denied(&both[..1], "::"));
        assert!(!denied(&both[1..], "0.0.0.0") && denied(&both[1..], "::"));
        assert!(!denied(&["127.0.0.2/32"], "0.0.0.0"));
    }

    #[test]
    fn localhost_and_what_is_below_is_loopback_by_name() {
        for host in ["localhost", "LOCALHOST.", "a.localhost"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["localhost.example.com", "example.com", "alocalhost"] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }

    #[test]
    fn a_socket_is_met_by_address_and_port() {
        let is_met = |socket: &str, endpoint: &str| {
            is_met(socket.parse().unwrap(), endpoint.parse().unwrap())
        };
        assert!(is_met("0.0.0.0:80", "10.0.0.1:80") && is_met("127.0.0.1:80", "0.0.0.0:80"));
        assert!(is_met("127.0.0.1:80", "[::ffff:127.0.0.1]:80"));
        assert!(!is_met("127.0.0.1:80", "10.0.0.1:80") && !is_met("0.0.0.0:80", "10.0.0.1:81"));
    }
}
