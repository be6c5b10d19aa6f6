//! Which addresses a name may lead to that a client chose.
//!
//! Whoever names a host may also own its zone, and let it point at the machines around this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// What people say of addresses, beside what holds anyway.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Blocks that are admitted although they are not public.
    pub allowed: Vec<IpNet>,
    /// Blocks that are refused although they are public, or allowed.
    pub refused: Vec<IpNet>,
}

impl Reach {
    /// Whether an address may be connected to: a public one, unless it is refused, or one that
    /// is allowed. An IPv4 address within one of IPv6 counts as itself.
    pub fn admits(&self, ip: IpAddr) -> bool {
        let inner = inner(ip);
        let lies_in = |blocks: &[IpNet]| {
            let mut blocks = blocks.iter();
            blocks.any(|block| block.contains(&ip) || block.contains(&inner))
        };
        !lies_in(&self.refused) && (lies_in(&self.allowed) || is_public(inner))
    }
}

/// The address that is meant in the end (RFC 4291, section 2.5.5; RFC 6052, section 2.1; RFC
/// 3056, section 2).
fn inner(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(ip) = ip else {
        return ip;
    };
    let inner = match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high > 0 => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return ip.into(),
    };
    Ipv4Addr::from_bits(u32::from(inner.0) << 16 | u32::from(inner.1)).into()
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
    let is_local = ip.is_private() || ip.is_loopback() || ip.is_link_local();
    !(is_shared || is_special || is_local || ip.is_multicast())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let is_site_local = ip.segments()[0] & 0xffc0 == 0xfec0;
    let is_special = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
    !(is_special || is_site_local || ip.is_unique_local() || ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::Reach;

    fn admits(reach: &Reach, ip: &str) -> bool {
        reach.admits(ip.parse().unwrap())
    }

    #[test]
    fn what_lies_around_the_proxy_is_refused_however_it_is_written() {
        let reach = Reach::default();
        for ip in [
            "10.1.2.3",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "::7f00:1",
        ] {
            assert!(!admits(&reach, ip), "{ip}");
        }
        for ip in ["93.184.216.34", "2606:4700::1", "64:ff9b::5db8:d822"] {
            assert!(admits(&reach, ip), "{ip}");
        }
    }

    #[test]
    fn people_allow_and_refuse_and_a_refusal_goes_first() {
        let reach = Reach {
            allowed: vec!["10.0.0.0/8".parse().unwrap()],
            refused: vec![
                "10.9.0.0/16".parse().unwrap(),
                "93.0.0.0/8".parse().unwrap(),
            ],
        };
        assert!(admits(&reach, "10.1.0.1") && admits(&reach, "::ffff:10.1.0.1"));
        assert!(!admits(&reach, "10.9.0.1") && !admits(&reach, "93.184.216.34"));
        assert!(!admits(&reach, "192.168.0.1"));
    }
}
