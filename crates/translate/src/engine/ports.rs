//! Claims to ports, so that the winner is found without a walk over all Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_model::Name;

use crate::settings::Settings;
use crate::store::Fact;

/// A port that is no listener of the process' own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// The number that is listened on.
    pub number: u16,
    /// The address, where a server says one; otherwise that of the plain listener.
    pub bind: Option<IpAddr>,
}

/// What is read of a port.
#[derive(Hash)]
pub enum PortFact<'a> {
    /// What is spoken there.
    Speech(&'a PortKey),
    /// Who has it.
    Owner(&'a PortKey),
}

impl Fact for PortFact<'_> {
    const FAMILY: u8 = 1;
}

/// What is spoken on a port before anything else is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortSpeech {
    /// HTTP in plain text.
    Http,
    /// TLS, whatever is within.
    Tls,
    /// Any bytes.
    Tcp,
}

/// A Gateway's wish to have a port. The smallest wins: the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortClaim {
    /// When the Gateway was created.
    pub created: i64,
    /// The object, by `namespace/name`.
    pub gateway: Arc<str>,
    /// What its first server there speaks.
    pub speech: PortSpeech,
}

impl PortKey {
    /// The name of the listener.
    pub fn name(&self) -> Name {
        Name::new(self.to_string())
    }

    /// The address of the listener.
    pub fn address(&self, settings: &Settings) -> SocketAddr {
        SocketAddr::new(self.bind.unwrap_or(settings.http.ip()), self.number)
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port-{}", self.number)?;
        match self.bind {
            Some(address) => write!(f, "-{address}"),
            None => Ok(()),
        }
    }
}

impl PortSpeech {
    /// What a protocol as written speaks.
    pub fn read(protocol: &str) -> Option<Self> {
        let known = [
            (PortSpeech::Tls, &["HTTPS", "TLS"][..]),
            (PortSpeech::Http, &["HTTP", "HTTP2", "GRPC", "GRPC-WEB"]),
            (PortSpeech::Tcp, &["TCP", "MONGO", "MYSQL", "REDIS"]),
        ];
        let is_one = |words: &[&str]| words.iter().any(|word| protocol.eq_ignore_ascii_case(word));
        let found = known.into_iter().find(|(_, words)| is_one(words));
        found.map(|(speech, _)| speech)
    }

    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            PortSpeech::Http => "plain HTTP",
            PortSpeech::Tls => "TLS",
            PortSpeech::Tcp => "plain TCP",
        }
    }
}

/// The claims of all Gateways, the winner first.
#[derive(Default)]
pub struct Ports {
    claims: BTreeMap<PortKey, BTreeSet<PortClaim>>,
}

/// The differences at a port after a Gateway has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port.
    pub key: PortKey,
    /// Whether what is spoken there differs, and not only who has it.
    pub is_speech: bool,
}

impl Ports {
    /// The winner of a port.
    pub fn winner(&self, key: &PortKey) -> Option<&PortClaim> {
        self.claims.get(key)?.first()
    }

    /// Replaces the claims of one Gateway, and returns the ports whose winner is another.
    pub fn replace(
        &mut self,
        old: &BTreeMap<PortKey, PortClaim>,
        new: &BTreeMap<PortKey, PortClaim>,
    ) -> Vec<PortChange> {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        let mut changes = Vec::new();
        for key in new.keys().chain(gone) {
            let (old, new) = (old.get(key), new.get(key));
            if old == new {
                continue;
            }
            let before = self.winner(key).cloned();
            let claims = self.claims.entry(key.clone()).or_default();
            if let Some(old) = old {
                claims.remove(old);
            }
            claims.extend(new.cloned());
            if claims.is_empty() {
                self.claims.remove(key);
            }
            let after = self.winner(key);
            if before.as_ref() != after {
                let speech = |claim: Option<&PortClaim>| claim.map(|claim| claim.speech);
                changes.push(PortChange {
                    key: key.clone(),
                    is_speech: speech(before.as_ref()) != speech(after),
                });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{PortChange, PortClaim, PortKey, PortSpeech, Ports};

    #[test]
    fn the_oldest_has_the_port_and_a_younger_of_other_speech_gets_it_after_that() {
        let key = PortKey {
            number: 9_000,
            bind: None,
        };
        let claim = |created, gateway: &str, speech| {
            let claim = PortClaim {
                created,
                gateway: gateway.into(),
                speech,
            };
            BTreeMap::from([(key.clone(), claim)])
        };
        let change = |is_speech| {
            let key = key.clone();
            vec![PortChange { key, is_speech }]
        };
        let (mut ports, none) = (Ports::default(), BTreeMap::new());
        let young = claim(9, "ns/young", PortSpeech::Tls);
        let old = claim(1, "ns/old", PortSpeech::Http);
        let other = claim(2, "ns/other", PortSpeech::Http);
        assert_eq!(ports.replace(&none, &young), change(true));
        assert_eq!(ports.replace(&none, &old), change(true));
        assert_eq!(ports.replace(&none, &other), []);
        assert_eq!(
            ports.winner(&key).map(|it| it.speech),
            Some(PortSpeech::Http)
        );
        assert_eq!(ports.replace(&old, &none), change(false));
        assert_eq!(ports.replace(&other, &none), change(true));
        assert_eq!(
            ports.winner(&key).map(|it| it.speech),
            Some(PortSpeech::Tls)
        );
        assert_eq!(ports.replace(&young, &none), change(true));
        assert_eq!(ports.winner(&key), None);
    }
}
