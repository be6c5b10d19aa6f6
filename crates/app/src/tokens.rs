//! Who a proxy is: projected service account tokens, checked offline against the cluster's
//! published keys, so that reconnects work while the API server is down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::gateways::Account;

/// The audience that a proxy's token has to be for: a token for the API server is refused, and
/// one for us is of no use there.
const AUDIENCE: &str = "myriad";

/// The longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// What clusters sign tokens with.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Checks tokens.
pub struct Tokens {
    accounts: BTreeMap<Account, Arc<str>>,
    /// Whether whoever is in a Pod may be beside its workload.
    admits_sidecars: bool,
    keys: Mutex<JwkSet>,
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
    /// The view that its service account sees; none for what its Pod does.
    pub view: Option<Arc<str>>,
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

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: Bound,
}

#[derive(Deserialize)]
struct Bound {
    namespace: String,
    serviceaccount: Named,
    #[serde(default)]
    pod: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Tokens {
    /// Admits these service accounts, each to one view, and others to that of their Pod where
    /// there may be sidecars. No key is known yet.
    pub fn new(accounts: BTreeMap<Account, Arc<str>>, admits_sidecars: bool) -> Self {
        Tokens {
            accounts,
            admits_sidecars,
            keys: Mutex::new(JwkSet { keys: Vec::new() }),
            stale: Notify::new(),
        }
    }

    /// Replaces the keys by a published JWK set (RFC 7517).
    ///
    /// # Errors
    /// The set cannot be read; the former keys stay.
    pub fn set_keys(&self, published: &[u8]) -> Result<(), serde_json::Error> {
        let keys = serde_json::from_slice(published)?;
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Says who has this token.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn check(&self, token: &str) -> Result<Identity, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Unreadable);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| Refused::Unreadable)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Refused::Invalid(format!("{:?}", header.alg)));
        }
        let key = self.key(header.kid.as_deref())?;
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "aud"]);
        validation.validate_nbf = true;
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &validation)
            .map_err(|error| Refused::Invalid(error.to_string()))?
            .claims
            .kubernetes;
        let account = (claims.namespace, claims.serviceaccount.name);
        let pod = claims.pod.map(|pod| pod.name).unwrap_or_default();
        let view = self.accounts.get(&account).cloned();
        if view.is_none() && (pod.is_empty() || !self.admits_sidecars) {
            return Err(Refused::Account(format!("{}/{}", account.0, account.1)));
        }
        Ok(Identity {
            namespace: account.0,
            account: account.1,
            pod,
            view,
        })
    }

    fn key(&self, id: Option<&str>) -> Result<DecodingKey, Refused> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let found = id.and_then(|id| keys.find(id));
        let Some(found) = found else {
            self.stale.notify_one();
            return Err(Refused::UnknownKey);
        };
        DecodingKey::from_jwk(found).map_err(|error| Refused::Invalid(error.to_string()))
    }
}
