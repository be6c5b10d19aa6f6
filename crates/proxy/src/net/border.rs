//! Where endpoints may be, asked of every address that DNS tells and of every connection to an
//! endpoint.
//!
//! Translation has left out what it can know. What a name leads to is known here alone, and so is
//! where this process listens: a connection back into it would be a loop, or the admin page in the
//! hands of whoever asks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::clock::{self, Instant};
use myriad_base::metrics::{Counter, Metrics};
use myriad_model::{Extent, Reach, Unreachable, reach};

/// The least time between two words of the log about addresses that are refused.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// Addresses that no machine has (RFC 5737 and RFC 3849).
const NOBODY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NOBODY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The addresses that endpoints may have, as settings say.
#[derive(Clone, Debug)]
pub struct BorderSettings {
    /// Addresses of endpoints that objects name, or that DNS gives for names in objects.
    pub endpoints: Reach,
    /// Addresses of hosts that clients choose.
    pub chosen: Reach,
    /// Addresses that this process listens on beside its listeners: its admin page.
    pub own: Vec<SocketAddr>,
}

impl Default for BorderSettings {
    /// Everywhere, and for hosts that clients choose to public addresses.
    fn default() -> Self {
        BorderSettings {
            endpoints: Reach::default(),
            chosen: Reach {
                extent: Extent::Public,
                ..Reach::default()
            },
            own: Vec::new(),
        }
    }
}

/// The addresses that endpoints may have, the same for all workers.
pub struct Border {
    settings: BorderSettings,
    /// The addresses that the process listens on. As many as there are listeners, and its own.
    own: ArcSwap<Vec<SocketAddr>>,
    resolved: Counter,
    connected: Counter,
    /// When the log was last told of an address that is refused.
    told: Mutex<Option<Instant>>,
}

impl Border {
    /// Registers what is counted.
    pub fn new(settings: BorderSettings, metrics: &Metrics) -> Self {
        let (resolved, connected) = (Counter::default(), Counter::default());
        let help = "Addresses that DNS told and that may not be connected to";
        metrics.register("dns_addresses_refused", help, resolved.clone());
        let help = "Connections to endpoints that were refused for their addresses";
        metrics.register("endpoint_connections_refused", help, connected.clone());
        Border {
            own: ArcSwap::from_pointee(settings.own.clone()),
            settings,
            resolved,
            connected,
            told: Mutex::new(None),
        }
    }

    /// Says where listeners are now.
    pub fn set_listeners(&self, listeners: impl IntoIterator<Item = SocketAddr>) {
        let own = self.settings.own.iter().copied();
        let all: Vec<SocketAddr> = own.chain(listeners).collect();
        if **self.own.load() != all {
            self.own.store(all.into());
        }
    }

    /// Whether an address that DNS told of a host may be connected to; counted where not. The host
    /// may be one that a client chose.
    pub fn admits_resolved(&self, host: &str, ip: IpAddr, is_chosen: bool) -> bool {
        let chosen = || self.settings.chosen.refusal(ip).filter(|_| is_chosen);
        let endpoint = || match chosen() {
            None if is_chosen => self.settings.endpoints.denial(ip),
            None => self.settings.endpoints.refusal(ip),
            refusal => refusal,
        };
        let Some(why) = endpoint() else {
            return true;
        };
        self.resolved.inc();
        let flag = match is_chosen && why != Unreachable::Denied {
            true => "--dynamic-dns-allow",
            false => "--endpoint-allow",
        };
        self.tell(host, &ip, &why, flag);
        false
    }

    /// Whether an endpoint may be connected to; counted where not. Those of DNS have been looked
    /// at, as far as their addresses go.
    pub fn admits(&self, endpoint: SocketAddr) -> bool {
        let Some(why) = self.settings.endpoints.refusal(endpoint.ip()) else {
            return true;
        };
        self.connected.inc();
        self.tell("", &endpoint, &why, "--endpoint-allow");
        false
    }

    /// Whether a connection to an endpoint, from an address where one is said, would end at this
    /// very process; counted where so. To be asked before there is one: its other half is one more
    /// client of ours, which may lead to the next.
    pub fn leads_back(&self, endpoint: SocketAddr, source: Option<IpAddr>) -> bool {
        self.meets(endpoint, |ip, is_bound| match source {
            Some(source) => source.to_canonical() == ip,
            None => is_bound || is_of_machine(endpoint),
        })
    }

    /// Whether a connection to an endpoint ends at this very process; counted where so. Of a
    /// connection within one machine both ends have one address, or are loopback.
    pub fn is_own(&self, endpoint: SocketAddr, local: impl FnOnce() -> Option<SocketAddr>) -> bool {
        self.meets(endpoint, |ip, _| {
            local().is_some_and(|local| local.ip().to_canonical() == ip)
        })
    }

    /// Whether an endpoint is a socket of this process. Only where one of them would be met is it
    /// asked whether the address is of this machine, and told whether a socket is bound to it.
    fn meets(&self, endpoint: SocketAddr, is_here: impl FnOnce(IpAddr, bool) -> bool) -> bool {
        let own = self.own.load();
        if !own.iter().any(|own| reach::is_met(*own, endpoint)) {
            return false;
        }
        let (ip, port) = (endpoint.ip().to_canonical(), endpoint.port());
        let is_bound = own
            .iter()
            .any(|own| own.port() == port && own.ip().to_canonical() == ip);
        let is_own = ip.is_loopback() || ip.is_unspecified() || is_here(ip, is_bound);
        if is_own {
            self.connected.inc();
            self.tell("", &endpoint, &Unreachable::Own, "no setting");
        }
        is_own
    }

    /// Clients ask as often as they like, so the log is told now and then.
    fn tell(&self, host: &str, at: &dyn fmt::Display, why: &dyn fmt::Display, flag: &str) {
        let told = self.told.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if told.is_none_or(|told| now.duration_since(told) >= REFUSAL_PAUSE) {
            *told = Some(now);
            tracing::warn!(
                host,
                address = %at,
                "an endpoint is not connected to: its address is {why}; {flag} admits it"
            );
        }
    }
}

/// Whether an address is one of this machine. Nothing is sent to find it out.
fn is_of_machine(endpoint: SocketAddr) -> bool {
    let mut at = endpoint;
    at.set_ip(endpoint.ip().to_canonical());
    at.set_port(0);
    // An address of another machine cannot be bound to.
    if UdpSocket::bind(at).is_err() {
        return false;
    }
    let (any, nobody): (IpAddr, IpAddr) = match at {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), NOBODY_V4.into()),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), NOBODY_V6.into()),
    };
    // Unless the system lets any be bound to (`ip_nonlocal_bind`), as machines that share an
    // address have it. What would be connected to from the address itself is here in any case.
    at.set_port(endpoint.port());
    let towards = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(at)?;
        socket.local_addr()
    });
    towards.is_ok_and(|local| local.ip() == at.ip()) || UdpSocket::bind((nobody, 0)).is_err()
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use myriad_base::metrics::Metrics;
    use myriad_model::{Extent, Reach};

    use super::{Border, BorderSettings, is_of_machine};

    fn border(own: &[&str]) -> Border {
        let settings = BorderSettings {
            endpoints: Reach {
                extent: Extent::Elsewhere,
                denied: vec!["10.9.0.0/16".parse().unwrap()],
                ..Reach::default()
            },
            own: own.iter().map(|it| it.parse().unwrap()).collect(),
            ..BorderSettings::default()
        };
        Border::new(settings, &Metrics::new())
    }

    fn is_own(border: &Border, endpoint: &str, local: &str) -> bool {
        let local: SocketAddr = local.parse().unwrap();
        border.is_own(endpoint.parse().unwrap(), || Some(local))
    }

    #[test]
    fn an_address_of_dns_is_refused_by_what_holds_for_whoever_named_it() {
        let border = border(&[]);
        let admits = |ip: &str, is_chosen| {
            let ip = ip.parse().unwrap();
            border.admits_resolved("a.example", ip, is_chosen)
        };
        assert!(admits("10.1.0.1", false) && !admits("10.1.0.1", true));
        assert!(!admits("127.0.0.1", false) && !admits("127.0.0.1", true));
        assert!(!admits("10.9.0.1", false) && !admits("10.9.0.1", true));
        assert_eq!(border.resolved.get(), 5);
    }

    #[test]
    fn own_sockets_are_known_by_address_and_port() {
        let border = border(&["127.0.0.1:9901", "0.0.0.0:8080"]);
        border.set_listeners(["[::]:8443".parse().unwrap()]);
        assert!(is_own(&border, "127.0.0.1:9901", "127.0.0.1:40000"));
        assert!(is_own(&border, "10.0.0.5:8080", "10.0.0.5:40000"));
        assert!(is_own(&border, "[::ffff:10.0.0.5]:8080", "10.0.0.5:40000"));
        assert!(is_own(&border, "0.0.0.0:9901", "127.0.0.1:40000"));
        assert!(is_own(&border, "[::1]:8443", "[::1]:40000"));
        assert_eq!(border.connected.get(), 5);
        for (endpoint, local) in [
            ("10.0.0.5:9000", "10.0.0.5:40000"),
            ("10.0.0.6:8080", "10.0.0.5:40000"),
            ("10.0.0.5:9901", "10.0.0.5:40000"),
        ] {
            assert!(!is_own(&border, endpoint, local), "{endpoint}");
        }
        assert_eq!(border.connected.get(), 5);
    }

    #[test]
    fn an_address_of_this_machine_is_told_from_others_without_a_connection() {
        let is_here = |endpoint: &str| is_of_machine(endpoint.parse().unwrap());
        assert!(is_here("127.0.0.1:80") && is_here("[::ffff:127.0.0.1]:80"));
        assert!(!is_here("192.0.2.7:80") && !is_here("[2001:db8::7]:80"));
        assert!(!is_here("8.8.8.8:80"));
        // None where there is no way out of this machine.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.7:9").is_ok() {
            assert!(is_of_machine(socket.local_addr().unwrap()));
        }
    }

    #[test]
    fn own_sockets_are_known_before_there_is_a_connection() {
        let border = border(&["127.0.0.1:9901", "0.0.0.0:8080", "10.0.0.5:81"]);
        let leads_back = |endpoint: &str| border.leads_back(endpoint.parse().unwrap(), None);
        for own in [
            "127.0.0.1:9901",
            "0.0.0.0:9901",
            "127.0.0.7:8080",
            "[::ffff:127.0.0.1]:8080",
            "[::]:8080",
            "10.0.0.5:81",
        ] {
            assert!(leads_back(own), "{own}");
        }
        assert_eq!(border.connected.get(), 6);
        for other in ["192.0.2.7:8080", "127.0.0.1:8081", "10.0.0.6:81"] {
            assert!(!leads_back(other), "{other}");
        }
        // From an address of its own the same machine is another, unless it is loopback.
        let source = Some("127.0.0.6".parse().unwrap());
        assert!(!border.leads_back("10.0.0.5:81".parse().unwrap(), source));
        assert!(border.leads_back("127.0.0.1:8080".parse().unwrap(), source));
    }

    #[test]
    fn listeners_that_go_are_endpoints_again() {
        let border = border(&["127.0.0.1:9901"]);
        border.set_listeners(["0.0.0.0:81".parse().unwrap()]);
        assert!(is_own(&border, "127.0.0.1:81", "127.0.0.1:1"));
        border.set_listeners([]);
        assert!(!is_own(&border, "127.0.0.1:81", "127.0.0.1:1"));
        assert!(is_own(&border, "127.0.0.1:9901", "127.0.0.1:1"));
    }
}
