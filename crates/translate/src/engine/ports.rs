//! Who claims which port, so that the winner is found without a walk over all Gateways.

use std::collections::{BTreeMap, BTreeSet};

use crate::istio::{PortClaim, PortKey};

/// The claims of all Gateways, the winner first.
#[derive(Default)]
pub struct Ports {
    claims: BTreeMap<PortKey, BTreeSet<PortClaim>>,
}

/// What differs at a port after a Gateway has changed.
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

    use super::{PortChange, Ports};
    use crate::istio::{PortClaim, PortKey, Speech};

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
        let young = claim(9, "ns/young", Speech::Tls);
        let old = claim(1, "ns/old", Speech::Http);
        let other = claim(2, "ns/other", Speech::Http);
        assert_eq!(ports.replace(&none, &young), change(true));
        assert_eq!(ports.replace(&none, &old), change(true));
        assert_eq!(ports.replace(&none, &other), []);
        assert_eq!(ports.winner(&key).map(|it| it.speech), Some(Speech::Http));
        assert_eq!(ports.replace(&old, &none), change(false));
        assert_eq!(ports.replace(&other, &none), change(true));
        assert_eq!(ports.winner(&key).map(|it| it.speech), Some(Speech::Tls));
        assert_eq!(ports.replace(&young, &none), change(true));
        assert_eq!(ports.winner(&key), None);
    }
}
