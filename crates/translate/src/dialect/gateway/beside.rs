//! The listeners of one object beside each other: which of them cannot be told apart.

use std::collections::{BTreeMap, BTreeSet};

use myriad_api::gateway::Listener;
use myriad_model::Host;

use super::entity::host_of;
use super::route::speech_of;
use crate::engine::PortSpeech;

/// The ports and hosts of the listeners of one object, read once for all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// All that is spoken at a port of TCP, or of UDP.
    speeches: BTreeMap<(u16, bool), BTreeSet<PortSpeech>>,
    /// How many listeners have a host at a port, by what is spoken there.
    hosts: BTreeMap<(u16, PortSpeech, Host), usize>,
}

impl Beside {
    /// Reads the listeners of an object.
    pub(crate) fn of(listeners: &[Listener]) -> Self {
        let mut beside = Beside::default();
        for listener in listeners {
            let Some(speech) = speech_of(&listener.protocol) else {
                continue;
            };
            let at = (listener.port, speech == PortSpeech::Udp);
            beside.speeches.entry(at).or_default().insert(speech);
            if let Ok(host) = host_of(listener) {
                let place = (listener.port, speech, host);
                *beside.hosts.entry(place).or_default() += 1;
            }
        }
        beside
    }

    /// Whether something else is spoken at a port by another listener of the object.
    pub(crate) fn is_split(&self, port: u16, speech: PortSpeech) -> bool {
        let spoken = self.speeches.get(&(port, speech == PortSpeech::Udp));
        spoken.is_some_and(|spoken| spoken.iter().any(|other| *other != speech))
    }

    /// Whether more than one listener of the object has a host at a port, or the port where there
    /// are no hosts.
    pub(crate) fn is_doubled(&self, port: u16, speech: PortSpeech, host: &Host) -> bool {
        let count = self.hosts.get(&(port, speech, host.clone()));
        count.is_some_and(|count| *count > 1)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::Listener;

    use super::{Beside, host_of, speech_of};

    /// Listeners by port, protocol and host.
    fn listeners(written: &[(u16, &str, &str)]) -> Vec<Listener> {
        let one = |(port, protocol, host): &(u16, &str, &str)| Listener {
            port: *port,
            protocol: (*protocol).into(),
            hostname: (!host.is_empty()).then(|| (*host).into()),
            ..Listener::default()
        };
        written.iter().map(one).collect()
    }

    #[test]
    fn listeners_of_one_object_are_told_apart_by_port_protocol_and_host() {
        let all = listeners(&[
            (80, "HTTP", "a.test"),
            (80, "HTTP", "b.test"),
            (81, "HTTP", "a.test"),
            (81, "TCP", ""),
            (81, "UDP", ""),
            (82, "HTTPS", "a.test"),
            (82, "TLS", "A.test"),
            (82, "TLS", "b.test"),
            (82, "other", "b.test"),
            (82, "TLS", "a..b"),
        ]);
        let beside = Beside::of(&all);
        let found = all[..8].iter().map(|listener| {
            let speech = speech_of(&listener.protocol).expect("a protocol");
            let (port, host) = (listener.port, host_of(listener).expect("a host"));
            let is_doubled = beside.is_doubled(port, speech, &host);
            (beside.is_split(port, speech), is_doubled)
        });
        let found: Vec<(bool, bool)> = found.collect();
        let (apart, split, doubled) = ((false, false), (true, false), (false, true));
        let expected = [apart, apart, split, split, apart, doubled, doubled, apart];
        assert_eq!(found, expected);
    }
}
