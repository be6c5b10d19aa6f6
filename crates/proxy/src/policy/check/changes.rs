//! Changes to a request that passes.

use myriad_model::{CheckProtocol, NameMatch, Provider};

use super::{OwnedHeader, may_change};
use crate::codec::field::{KnownField, tells_of_client};

/// Fields that a client is known by: a service that may answer with them has to see the client's
/// first, and may leave them as they are.
const PROOFS: [&str; 2] = ["authorization", "cookie"];

/// The changes to a request that passes, and to its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckChanges {
    /// Headers taken out of the request.
    pub remove: Vec<Box<str>>,
    /// Headers that take the place of the request's.
    pub set: Vec<OwnedHeader>,
    /// Headers that are added to the request's.
    pub add: Vec<OwnedHeader>,
    /// Headers that are added to the response.
    pub downstream: Vec<OwnedHeader>,
}

impl CheckChanges {
    /// The names of the fields of the request that change.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let put = self.set.iter().chain(&self.add).map(|(name, _)| &**name);
        self.remove.iter().map(|name| &**name).chain(put)
    }

    /// Takes those out that tell an endpoint whom a request comes from.
    pub fn take_of_client(&mut self) -> Self {
        let is_of_client = |(name, _): &mut OwnedHeader| tells_of_client(name);
        let removed = self.remove.extract_if(.., |name| tells_of_client(name));
        CheckChanges {
            remove: removed.collect(),
            set: self.set.extract_if(.., is_of_client).collect(),
            add: self.add.extract_if(.., is_of_client).collect(),
            downstream: Vec::new(),
        }
    }

    /// Whether anything of the request changes.
    pub fn are_of_request(&self) -> bool {
        !(self.set.is_empty() && self.add.is_empty() && self.remove.is_empty())
    }

    /// Takes claims of the client out of the request: fields that a provider over HTTP may set by
    /// their names, and that neither it has set nor one that was asked before. What the client is
    /// known by stays, and what the proxy itself tells of the way of the request.
    pub fn remove_claims(&mut self, provider: &Provider, before: &[CheckChanges]) {
        let CheckProtocol::Http(check) = &provider.protocol else {
            return;
        };
        for known in &check.upstream_on_allow {
            let NameMatch::Exact(name) = known else {
                continue;
            };
            let is_said = self.sets(name) || before.iter().any(|it| it.sets(name));
            if !is_said && is_claim(name) {
                self.remove.push(name.clone());
            }
        }
    }

    fn sets(&self, name: &str) -> bool {
        let mut put = self.set.iter().chain(&self.add);
        put.any(|(known, _)| **known == *name)
    }
}

/// Whether a client that sends a field claims what only a provider says.
fn is_claim(name: &str) -> bool {
    !PROOFS.contains(&name) && may_change(name) && !KnownField::read_of(name).tells_of_way()
}
