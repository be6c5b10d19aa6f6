//! Claims to ports, so that the winner is found without a walk over all Gateways.
//!
//! A number belongs to the realm of the oldest claim to it, at whatever address: two addresses may
//! be one socket, or cover one another. Only claims of that realm make listeners there.

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

/// A fact about a port that units read.
#[derive(Hash)]
pub(crate) enum PortFact<'a> {
    /// The protocol that is spoken there.
    Speech(&'a PortKey),
    /// The Gateway that has it.
    Owner(&'a PortKey),
    /// The realm that has the number, at whatever address.
    Number(u16),
}

impl Fact for PortFact<'_> {
    const FAMILY: u8 = 1;
}

/// The protocol on a port before anything else is known of a connection.
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
    /// The protocol of its first server there.
    pub speech: PortSpeech,
    /// Its realm, which shares numbers: its namespace, or nothing where everybody shares them.
    pub realm: Arc<str>,
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
    /// The speech of a protocol as written.
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

/// The claims of all Gateways.
#[derive(Default)]
pub struct Ports {
    numbers: BTreeMap<u16, NumberClaims>,
}

/// The claims to one number.
#[derive(Default)]
struct NumberClaims {
    /// At whatever address, the winner first.
    all: BTreeSet<(PortClaim, PortKey)>,
    /// By address and realm, the winner first.
    seats: BTreeMap<PortKey, BTreeMap<Arc<str>, BTreeSet<PortClaim>>>,
}

/// The differences at ports after a Gateway has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PortChanges {
    /// Ports that somebody else has.
    pub keys: Vec<PortChange>,
    /// Numbers that somebody else has.
    pub numbers: Vec<u16>,
}

/// The differences at a port after a Gateway has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port.
    pub key: PortKey,
    /// Whether what is spoken there differs, and not only who has it.
    pub is_speech: bool,
}

impl NumberClaims {
    fn owner(&self) -> Option<&PortClaim> {
        self.all.first().map(|(claim, _)| claim)
    }

    /// The realm that has the number.
    fn realm(&self) -> Option<&Arc<str>> {
        self.owner().map(|claim| &claim.realm)
    }

    fn winner(&self, key: &PortKey) -> Option<&PortClaim> {
        self.oldest(key, self.realm())
    }

    /// The oldest claim to a port of a realm.
    fn oldest(&self, key: &PortKey, realm: Option<&Arc<str>>) -> Option<&PortClaim> {
        self.seats.get(key)?.get(realm?)?.first()
    }

    fn add(&mut self, key: &PortKey, claim: &PortClaim) {
        self.all.insert((claim.clone(), key.clone()));
        let realms = self.seats.entry(key.clone()).or_default();
        let claims = realms.entry(claim.realm.clone()).or_default();
        claims.insert(claim.clone());
    }

    fn remove(&mut self, key: &PortKey, claim: &PortClaim) {
        self.all.remove(&(claim.clone(), key.clone()));
        let Some(realms) = self.seats.get_mut(key) else {
            return;
        };
        if let Some(claims) = realms.get_mut(&claim.realm) {
            claims.remove(claim);
            if claims.is_empty() {
                realms.remove(&claim.realm);
            }
        }
        if realms.is_empty() {
            self.seats.remove(key);
        }
    }

    /// Replaces the claims of one Gateway to some ports of the number. Where it goes to another
    /// realm, its other ports do too.
    fn replace(
        &mut self,
        keys: &BTreeSet<&PortKey>,
        (old, new): (&BTreeMap<PortKey, PortClaim>, &BTreeMap<PortKey, PortClaim>),
        changes: &mut PortChanges,
    ) {
        let owner = self.owner().cloned();
        let before: Vec<Option<PortClaim>> =
            keys.iter().map(|key| self.winner(key).cloned()).collect();
        for key in keys {
            if let Some(old) = old.get(*key) {
                self.remove(key, old);
            }
            if let Some(new) = new.get(*key) {
                self.add(key, new);
            }
        }
        let pairs = keys.iter().zip(&before);
        let of_keys = pairs.filter_map(|(key, it)| change(key, it.as_ref(), self.winner(key)));
        changes.keys.extend(of_keys);
        if owner.as_ref() == self.owner() {
            return;
        }
        changes.numbers.extend(keys.first().map(|key| key.number));
        let former = owner.as_ref().map(|claim| &claim.realm);
        if former != self.realm() {
            let others = self.seats.keys().filter(|key| !keys.contains(key));
            let of_others =
                others.filter_map(|key| change(key, self.oldest(key, former), self.winner(key)));
            changes.keys.extend(of_others);
        }
    }
}

impl Ports {
    /// The winner of a port: the oldest claim there of the realm that has the number.
    pub fn winner(&self, key: &PortKey) -> Option<&PortClaim> {
        self.numbers.get(&key.number)?.winner(key)
    }

    /// The winner of a number: the oldest claim to it at whatever address.
    pub fn owner(&self, number: u16) -> Option<&PortClaim> {
        self.numbers.get(&number)?.owner()
    }

    /// Replaces the claims of one Gateway, and returns what others have then.
    pub fn replace(
        &mut self,
        old: &BTreeMap<PortKey, PortClaim>,
        new: &BTreeMap<PortKey, PortClaim>,
    ) -> PortChanges {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        let mut differing: BTreeMap<u16, BTreeSet<&PortKey>> = BTreeMap::new();
        for key in new.keys().chain(gone) {
            if old.get(key) != new.get(key) {
                differing.entry(key.number).or_default().insert(key);
            }
        }
        let mut changes = PortChanges::default();
        for (number, keys) in differing {
            let claims = self.numbers.entry(number).or_default();
            claims.replace(&keys, (old, new), &mut changes);
            if claims.all.is_empty() {
                self.numbers.remove(&number);
            }
        }
        changes
    }
}

fn change(
    key: &PortKey,
    before: Option<&PortClaim>,
    after: Option<&PortClaim>,
) -> Option<PortChange> {
    let speech = |claim: Option<&PortClaim>| claim.map(|claim| claim.speech);
    (before != after).then(|| PortChange {
        key: key.clone(),
        is_speech: speech(before) != speech(after),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{PortChange, PortChanges, PortClaim, PortKey, PortSpeech, Ports};

    type Claims = BTreeMap<PortKey, PortClaim>;

    fn key(bind: Option<[u8; 4]>) -> PortKey {
        PortKey {
            number: 9_000,
            bind: bind.map(Into::into),
        }
    }

    /// The claims of a Gateway of a realm to the number, at addresses.
    fn claims(created: i64, realm: &str, speech: PortSpeech, binds: &[Option<[u8; 4]>]) -> Claims {
        let claim = PortClaim {
            created,
            gateway: format!("{realm}/{created}").into(),
            speech,
            realm: realm.into(),
        };
        let keys = binds.iter().map(|bind| key(*bind));
        keys.map(|key| (key, claim.clone())).collect()
    }

    fn speech(ports: &Ports, key: &PortKey) -> Option<PortSpeech> {
        ports.winner(key).map(|claim| claim.speech)
    }

    #[test]
    fn the_oldest_has_the_port_and_a_younger_of_other_speech_gets_it_after_that() {
        let change = |is_speech| PortChanges {
            keys: vec![PortChange {
                key: key(None),
                is_speech,
            }],
            numbers: vec![9_000],
        };
        let (mut ports, none) = (Ports::default(), Claims::new());
        let young = claims(9, "a", PortSpeech::Tls, &[None]);
        let old = claims(1, "b", PortSpeech::Http, &[None]);
        let other = claims(2, "c", PortSpeech::Http, &[None]);
        assert_eq!(ports.replace(&none, &young), change(true));
        assert_eq!(ports.replace(&none, &old), change(true));
        assert_eq!(ports.replace(&none, &other), PortChanges::default());
        assert_eq!(speech(&ports, &key(None)), Some(PortSpeech::Http));
        assert_eq!(ports.replace(&old, &none), change(false));
        assert_eq!(ports.replace(&other, &none), change(true));
        assert_eq!(speech(&ports, &key(None)), Some(PortSpeech::Tls));
        assert_eq!(ports.replace(&young, &none), change(true));
        assert_eq!(ports.winner(&key(None)), None);
        assert!(ports.numbers.is_empty());
    }

    #[test]
    fn a_number_is_of_one_realm_at_every_address() {
        let (mut ports, none) = (Ports::default(), Claims::new());
        let (all, one) = (key(None), key(Some([127, 0, 0, 1])));
        let old = claims(1, "a", PortSpeech::Http, &[None]);
        let young = claims(2, "b", PortSpeech::Tcp, &[Some([127, 0, 0, 1])]);
        ports.replace(&none, &old);
        assert_eq!(ports.replace(&none, &young), PortChanges::default());
        assert_eq!(speech(&ports, &all), Some(PortSpeech::Http));
        assert_eq!(speech(&ports, &one), None);
        // One more address of those who have the number.
        let further = claims(3, "a", PortSpeech::Tls, &[Some([127, 0, 0, 1])]);
        let changes = ports.replace(&none, &further);
        assert_eq!((changes.keys.len(), changes.numbers.len()), (1, 0));
        assert_eq!(speech(&ports, &one), Some(PortSpeech::Tls));
        // With the oldest the number goes to the next, and all addresses with it.
        let changes = ports.replace(&old, &none);
        assert_eq!((changes.keys.len(), changes.numbers.len()), (2, 1));
        assert_eq!(speech(&ports, &all), None);
        assert_eq!(speech(&ports, &one), Some(PortSpeech::Tcp));
        assert_eq!(ports.owner(9_000).map(|claim| claim.created), Some(2));
    }
}
