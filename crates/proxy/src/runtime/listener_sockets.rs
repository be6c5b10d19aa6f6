//! The sockets that a listener asks for.

use std::net::{IpAddr, SocketAddr};

use myriad_model::{Listener, ListenerProtocol};

use super::sockets::Role;
use crate::net::socket::Transport;

/// The sockets that a listener asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListenerSockets {
    /// The kind of what comes by them.
    pub role: Role,
    /// Their addresses; empty where none of those that are bound to is of its family.
    pub addresses: Vec<SocketAddr>,
}

impl ListenerSockets {
    /// The sockets of a listener. One of all addresses has those that are bound to, where there are
    /// any.
    pub(super) fn of(listener: &Listener, bind: &[IpAddr]) -> Self {
        let role = match listener.protocol {
            ListenerProtocol::Udp => Role::Datagrams,
            ListenerProtocol::Http | ListenerProtocol::Tcp | ListenerProtocol::Detected => {
                Role::Listener
            }
        };
        let wanted = listener.address;
        let addresses = match wanted.ip().is_unspecified() && !bind.is_empty() {
            // `[::]` is for both families.
            true => bind
                .iter()
                .filter(|address| wanted.is_ipv6() || address.is_ipv4())
                .map(|address| SocketAddr::new(*address, wanted.port()))
                .collect(),
            false => vec![wanted],
        };
        ListenerSockets { role, addresses }
    }
}

impl Role {
    /// The kind of its sockets.
    pub(super) fn transport(self) -> Transport {
        match self {
            Role::Listener | Role::Capture(_) => Transport::Connections,
            Role::Datagrams => Transport::Datagrams,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use myriad_model::{Listener, ListenerProtocol};

    use super::{ListenerSockets, Role};

    fn place(address: &str, protocol: ListenerProtocol, bind: &[&str]) -> (Role, Vec<String>) {
        let listener = Listener {
            address: address.parse().unwrap(),
            tls: false,
            default_certificate: None,
            protocol,
            capture: None,
        };
        let bind: Vec<IpAddr> = bind.iter().map(|it| it.parse().unwrap()).collect();
        let place = ListenerSockets::of(&listener, &bind);
        let addresses = place.addresses.iter().map(ToString::to_string);
        (place.role, addresses.collect())
    }

    #[test]
    fn only_all_addresses_give_way_to_those_that_are_bound_to() {
        let bind = ["192.0.2.1", "2001:db8::1", "192.0.2.2"];
        let cases: [(&str, &[&str], &[&str]); 5] = [
            ("0.0.0.0:80", &[], &["0.0.0.0:80"]),
            ("0.0.0.0:80", &bind, &["192.0.2.1:80", "192.0.2.2:80"]),
            (
                "[::]:80",
                &bind,
                &["192.0.2.1:80", "[2001:db8::1]:80", "192.0.2.2:80"],
            ),
            ("10.0.0.1:80", &bind, &["10.0.0.1:80"]),
            ("0.0.0.0:80", &["2001:db8::1"], &[]),
        ];
        for (address, bind, expected) in cases {
            let (role, found) = place(address, ListenerProtocol::Http, bind);
            assert_eq!(role, Role::Listener);
            assert_eq!(found, expected, "{address}");
        }
        let (role, _) = place("0.0.0.0:53", ListenerProtocol::Udp, &bind);
        assert_eq!(role, Role::Datagrams);
    }
}
