//! Claims to ports, so that the winner is found without a walk over all Gateways.
//!
//! A number belongs to the realm of the oldest claim to it, at whatever address: two addresses may
//! be one socket, or cover one another. Only claims of that realm make listeners there. A claim is
//! as old as its object, or as the edit by which the object came to the port.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::Name;

use crate::settings::Settings;
use crate::store::{Fact, FactHasher};

/// A port that is no listener of the process' own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// The number that is listened on.
    pub number: u16,
    /// The address, where a server says one; otherwise that of the plain listener.
    pub bind: Option<IpAddr>,
    /// Whether it is one of UDP, whose numbers are their own.
    pub is_udp: bool,
}

/// A fact about a port that units read.
#[derive(Hash)]
pub(crate) enum PortFact<'a> {
    /// The protocol that is spoken there.
    Speech(&'a PortKey),
    /// The Gateway that has it.
    Owner(&'a PortKey),
    /// The realm that has the number of TCP, or of UDP, at whatever address.
    Number(u16, bool),
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
    /// Any datagrams.
    Udp,
}

/// A Gateway's wish to have a port. The smallest wins: that of the lowest order, and then the
/// oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortClaim {
    /// 1 of a ListenerSet, which yields to all Gateways, and 0 of others.
    pub order: u8,
    /// Since when the object claims the port: its creation, or a later version of it.
    pub created: i64,
    /// The object: a Gateway of either API, or a ListenerSet.
    pub gateway: ObjectKey,
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
        if self.is_udp {
            f.write_str("-udp")?;
        }
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

    /// Reads the word by which one is written down.
    pub fn of_word(word: &str) -> Option<Self> {
        let known = [
            PortSpeech::Http,
            PortSpeech::Tls,
            PortSpeech::Tcp,
            PortSpeech::Udp,
        ];
        known.into_iter().find(|speech| speech.word() == word)
    }

    /// The word by which it is written down.
    pub fn word(self) -> &'static str {
        match self {
            PortSpeech::Http => "http",
            PortSpeech::Tls => "tls",
            PortSpeech::Tcp => "tcp",
            PortSpeech::Udp => "udp",
        }
    }

    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            PortSpeech::Http => "plain HTTP",
            PortSpeech::Tls => "TLS",
            PortSpeech::Tcp => "plain TCP",
            PortSpeech::Udp => "UDP",
        }
    }
}

/// The claims of all Gateways.
#[derive(Default)]
pub struct Ports {
    /// By number, of TCP and then of UDP.
    numbers: BTreeMap<(u16, bool), NumberClaims>,
    /// The claims of each object that makes any.
    by_object: HashMap<ObjectKey, BTreeMap<PortKey, PortClaim>>,
}

/// The claims to one number.
#[derive(Default)]
struct NumberClaims {
    /// At whatever address, the oldest first: to whom the number belongs has no order.
    all: BTreeSet<(i64, PortClaim, PortKey)>,
    /// By address and realm, the winner first.
    seats: BTreeMap<PortKey, BTreeMap<Arc<str>, BTreeSet<PortClaim>>>,
}

/// The differences at ports after a Gateway has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PortChanges {
    /// Ports that somebody else has.
    pub keys: Vec<PortChange>,
    /// Numbers of TCP, or of UDP, that somebody else has.
    pub numbers: Vec<(u16, bool)>,
}

/// The differences at a port after a Gateway has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port.
    pub key: PortKey,
    /// Whether what is spoken there differs, and not only who has it.
    pub is_speech: bool,
}

impl PortChanges {
    /// The facts that differ.
    pub(super) fn facts(&self, hasher: &FactHasher) -> Vec<u64> {
        let numbers = self.numbers.iter();
        let mut facts: Vec<u64> = numbers
            .map(|(number, is_udp)| hasher.fact(PortFact::Number(*number, *is_udp)))
            .collect();
        for change in &self.keys {
            facts.push(hasher.fact(PortFact::Owner(&change.key)));
            if change.is_speech {
                facts.push(hasher.fact(PortFact::Speech(&change.key)));
            }
        }
        facts
    }
}

impl PortKey {
    /// The number, and whether it is of UDP: what realms share.
    fn seat(&self) -> (u16, bool) {
        (self.number, self.is_udp)
    }
}

impl NumberClaims {
    fn owner(&self) -> Option<&PortClaim> {
        self.all.first().map(|(_, claim, _)| claim)
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
        self.all.insert((claim.created, claim.clone(), key.clone()));
        let realms = self.seats.entry(key.clone()).or_default();
        let claims = realms.entry(claim.realm.clone()).or_default();
        claims.insert(claim.clone());
    }

    fn remove(&mut self, key: &PortKey, claim: &PortClaim) {
        self.all
            .remove(&(claim.created, claim.clone(), key.clone()));
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
        changes.numbers.extend(keys.first().map(|key| key.seat()));
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
        self.numbers.get(&key.seat())?.winner(key)
    }

    /// The winner of a number of TCP, or of UDP: the oldest claim to it at whatever address.
    pub fn owner(&self, number: u16, is_udp: bool) -> Option<&PortClaim> {
        self.numbers.get(&(number, is_udp))?.owner()
    }

    /// The claims to a number of TCP, or of UDP, at whatever address, the oldest first.
    pub fn claims(&self, number: u16, is_udp: bool) -> impl Iterator<Item = &PortClaim> {
        let claims = self.numbers.get(&(number, is_udp)).into_iter();
        claims.flat_map(|claims| claims.all.iter().map(|(_, claim, _)| claim))
    }

    /// The claims of an object.
    pub fn of(&self, key: &ObjectKey) -> Option<&BTreeMap<PortKey, PortClaim>> {
        self.by_object.get(key)
    }

    /// The objects that claim ports, in no order that has a meaning.
    pub fn claimers(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_object.keys()
    }

    /// Replaces the claims of an object, and returns what others have then.
    pub fn state(&mut self, key: &ObjectKey, new: BTreeMap<PortKey, PortClaim>) -> PortChanges {
        let old = self.by_object.remove(key).unwrap_or_default();
        let changes = self.replace(&old, &new);
        if !new.is_empty() {
            self.by_object.insert(key.clone(), new);
        }
        changes
    }

    fn replace(
        &mut self,
        old: &BTreeMap<PortKey, PortClaim>,
        new: &BTreeMap<PortKey, PortClaim>,
    ) -> PortChanges {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        let mut differing: BTreeMap<(u16, bool), BTreeSet<&PortKey>> = BTreeMap::new();
        for key in new.keys().chain(gone) {
            if old.get(key) != new.get(key) {
                differing.entry(key.seat()).or_default().insert(key);
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

    use myriad_api::{ObjectKey, ObjectKind};

    use super::{PortChange, PortChanges, PortClaim, PortKey, PortSpeech, Ports};

    type Claims = BTreeMap<PortKey, PortClaim>;

    fn key(bind: Option<[u8; 4]>) -> PortKey {
        PortKey {
            number: 9_000,
            bind: bind.map(Into::into),
            is_udp: false,
        }
    }

    /// The claims of a Gateway of a realm to the number, at addresses.
    fn claims(created: i64, realm: &str, speech: PortSpeech, binds: &[Option<[u8; 4]>]) -> Claims {
        let claim = PortClaim {
            order: 0,
            created,
            gateway: ObjectKey::new(ObjectKind::IstioGateway, realm, &created.to_string()),
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
            numbers: vec![(9_000, false)],
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
    fn who_yields_within_a_realm_has_a_number_before_younger_ones_of_others() {
        let mut ports = Ports::default();
        let of_set = |created| {
            let mut claims = claims(created, "a", PortSpeech::Http, &[None]);
            claims.values_mut().for_each(|claim| claim.order = 1);
            claims
        };
        let stated = |ports: &mut Ports, claims: Claims| {
            let first = claims.values().next().map(|claim| claim.gateway.clone());
            ports.state(&first.expect("a claim"), claims);
        };
        stated(&mut ports, of_set(2));
        stated(&mut ports, claims(3, "b", PortSpeech::Tcp, &[None]));
        assert_eq!(speech(&ports, &key(None)), Some(PortSpeech::Http));
        stated(&mut ports, claims(4, "a", PortSpeech::Tls, &[None]));
        assert_eq!(speech(&ports, &key(None)), Some(PortSpeech::Tls));
        let first = ports.of(&ports.owner(9_000, false).expect("an owner").gateway);
        assert_eq!(first.map(BTreeMap::len), Some(1));
        assert_eq!(ports.claimers().count(), 3);
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
        assert_eq!(ports.owner(9_000, false).map(|it| it.created), Some(2));
        assert_eq!(ports.owner(9_000, true), None);
    }
}
