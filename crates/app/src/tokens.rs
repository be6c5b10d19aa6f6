//! Identities of proxies: projected service account tokens, checked offline against the cluster's
//! published keys, so that reconnects work while the API server is down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use myriad_base::clock;
use myriad_proxy::policy::token::{Unverified, is_timely};
use myriad_proxy::route::keys::{Algorithm, KeySet};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use crate::dedicated::DedicatedGateways;
use crate::gateways::Account;

/// The audience that a proxy's token has to be for: a token for the API server is refused, and
/// one for us is of no use there.
const AUDIENCE: &str = "myriad";

/// The algorithms that clusters sign tokens with.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::Rs256,
    Algorithm::Es256,
    Algorithm::Es384,
    Algorithm::EdDsa,
];

/// Checks tokens.
pub struct Tokens {
    accounts: BTreeMap<Account, Arc<str>>,
    /// The Gateways with proxies of their own, which are of their namespaces.
    dedicated: DedicatedGateways,
    /// Whether a proxy in a Pod may be beside the Pod's workload.
    admits_sidecars: bool,
    keys: Mutex<Arc<KeySet>>,
    /// Somebody came with a key that is not known.
    pub stale: Notify,
}

/// A proxy that has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The namespace of its service account.
    pub namespace: String,
    /// The name of its service account.
    pub account: String,
    /// The name of its Pod; empty where the token is not bound to one.
    pub pod: String,
    /// The `uid` of its Pod, which tells it from others that had the name; empty where the token
    /// does not say.
    pub pod_uid: String,
    /// The view that its service account sees; none for what its Pod does.
    pub view: Option<Arc<str>>,
    /// Whether the operator has named its service account. What others say counts for their
    /// namespace alone.
    pub is_operators: bool,
}

/// Why a token was refused. The proxy is told no more than that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No token, too long, or not one.
    #[error("there is no token that can be read")]
    Unreadable,
    /// The cluster has not published the key, as far as is known.
    #[error("the token is signed with a key that the cluster has not published")]
    UnknownKey,
    /// Forged, expired, not valid yet, or for another audience.
    #[error("the token is not valid here: {0}")]
    Invalid(String),
    /// Genuine, and of somebody who is no proxy.
    #[error("{0} is not a service account of proxies")]
    Account(String),
}

/// The claim `kubernetes.io`.
#[derive(Deserialize)]
struct Bound {
    namespace: String,
    serviceaccount: Named,
    #[serde(default)]
    pod: Option<BoundPod>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
struct BoundPod {
    name: String,
    #[serde(default)]
    uid: String,
}

impl Identity {
    /// The Pod as its streams are counted: one that has the name of another has streams of its own.
    pub fn seat(&self) -> Arc<str> {
        match (self.pod.as_str(), self.pod_uid.as_str()) {
            (pod, "") => pod.into(),
            // No name has a slash.
            (pod, uid) => format!("{pod}/{uid}").into(),
        }
    }
}

impl Tokens {
    /// Admits these service accounts, each to one view, and others to that of their Pod where
    /// there may be sidecars. No key is known yet.
    pub fn new(accounts: BTreeMap<Account, Arc<str>>, admits_sidecars: bool) -> Self {
        Tokens {
            accounts,
            dedicated: DedicatedGateways::default(),
            admits_sidecars,
            keys: Mutex::default(),
            stale: Notify::new(),
        }
    }

    /// Admits the service accounts of these Gateways too, each to the view of its Gateway.
    #[must_use]
    pub fn with_dedicated(self, dedicated: DedicatedGateways) -> Self {
        Tokens { dedicated, ..self }
    }

    /// Replaces the keys by a published JWK set (RFC 7517).
    ///
    /// # Errors
    /// Why the set cannot be used; the former keys stay.
    pub fn set_keys(&self, published: &[u8]) -> Result<(), &'static str> {
        let keys = Arc::new(KeySet::read(published)?);
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Says who has this token.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn check(&self, token: &str) -> Result<Identity, Refused> {
        self.check_at(token, clock::unix_seconds())
    }

    fn check_at(&self, token: &str, now: i64) -> Result<Identity, Refused> {
        let invalid = |reason: &str| Refused::Invalid(reason.to_owned());
        let token = Unverified::parse(token).ok_or(Refused::Unreadable)?;
        if !ALGORITHMS.contains(&token.algorithm()) {
            return Err(invalid("no cluster signs by its algorithm"));
        }
        let keys = self.keys_with(token.key_id())?;
        let claims = token.verify(&keys);
        let claims = claims.ok_or_else(|| invalid("its signature is not by the key it names"))?;
        let members = claims.members();
        if !members.get("aud").is_some_and(is_for_us) {
            return Err(invalid("it is for another audience"));
        }
        if !members.contains_key("exp") {
            return Err(invalid("it never expires"));
        }
        if !is_timely(&claims, now) {
            return Err(invalid("it has expired, or is not valid yet"));
        }
        let bound = members.get("kubernetes.io").unwrap_or(&Value::Null);
        let claims = Bound::deserialize(bound);
        let claims = claims.map_err(|error| Refused::Invalid(error.to_string()))?;
        let account = (claims.namespace, claims.serviceaccount.name);
        let BoundPod { name: pod, uid } = claims.pod.unwrap_or_default();
        let view = self.accounts.get(&account).cloned();
        let is_operators = view.is_some();
        let view = view.or_else(|| self.dedicated.view_of_account(&account.0, &account.1));
        if view.is_none() && (pod.is_empty() || !self.admits_sidecars) {
            return Err(Refused::Account(format!("{}/{}", account.0, account.1)));
        }
        Ok(Identity {
            namespace: account.0,
            account: account.1,
            pod,
            pod_uid: uid,
            view,
            is_operators,
        })
    }

    /// The keys, where the one of an id is among them.
    fn keys_with(&self, id: Option<&str>) -> Result<Arc<KeySet>, Refused> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if id.is_some_and(|id| keys.has(id)) {
            return Ok(keys.clone());
        }
        self.stale.notify_one();
        Err(Refused::UnknownKey)
    }
}

/// Whether an audience is ours, or a list of audiences has ours.
fn is_for_us(audience: &Value) -> bool {
    match audience {
        Value::Array(several) => several.iter().any(|one| one == AUDIENCE),
        one => one == AUDIENCE,
    }
}

#[cfg(test)]
mod tests;
