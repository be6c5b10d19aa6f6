//! The kept form of a former resource: its bytes, without secrets.

use std::borrow::Cow;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use bytes::Bytes;
use myriad_model::{
    AccessCheck, KeyEncoding, Kind, PrivateKey, Resource, Sealed, TokenKeys, Users, Value, wire,
};

use crate::process;

/// The hash of a password in the place of one that was left out: proxies can read it.
const HIDDEN_HASH: &str = "{PLAIN}hidden";

/// The text in the place of one that was left out.
const HIDDEN: &str = "hidden";

/// The values that stand in the places of secrets. They belong to the process and to nothing else.
pub struct StandIns {
    /// A private key of nobody, so that a former certificate can be read like any other.
    key: Bytes,
    /// The key of fingerprints: without it nobody can try what a fingerprint might be of.
    fingerprint_key: [u8; 32],
}

impl StandIns {
    /// New ones.
    pub(super) fn new() -> StandIns {
        let pair =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        // Without them a former certificate counts as one that cannot be read, and fingerprints
        // are of use to nobody but in this process all the same.
        let key = pair.map(|pair| Bytes::copy_from_slice(pair.as_ref()));
        StandIns {
            key: key.unwrap_or_default(),
            fingerprint_key: process::random_key().unwrap_or_default(),
        }
    }

    /// The word by which a secret is told from another.
    pub fn fingerprint(&self, secret: &[u8]) -> String {
        let hash = blake3::keyed_hash(&self.fingerprint_key, secret).to_hex();
        hash.get(..16).unwrap_or_default().to_owned()
    }

    /// The resource with stand-ins for its secrets; as it is where it has none.
    pub fn without_secrets<'r>(&self, resource: &'r Resource) -> Cow<'r, Resource> {
        match self.value_without_secrets(&resource.value) {
            Some(value) => Cow::Owned(Resource {
                origin: resource.origin.clone(),
                value,
            }),
            None => Cow::Borrowed(resource),
        }
    }

    /// The same of a value; none where it has no secret.
    fn value_without_secrets(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Certificate(certificate) => {
                let mut certificate = certificate.clone();
                certificate.key = PrivateKey::new(KeyEncoding::Pkcs8, self.key.clone());
                Some(Value::Certificate(certificate))
            }
            Value::Trust(trust) if !trust.users.is_empty() => {
                let mut trust = trust.clone();
                let users = trust.users.expose().iter().map(|(name, hash)| {
                    let print = self.fingerprint(format!("{name}\n{hash}").as_bytes());
                    (print.into(), HIDDEN_HASH.into())
                });
                trust.users = Users::new(users.collect());
                Some(Value::Trust(trust))
            }
            Value::ChallengeAnswer(answer) => {
                let mut answer = answer.clone();
                answer.text = HIDDEN.into();
                Some(Value::ChallengeAnswer(answer))
            }
            Value::AccessPolicy(policy) => {
                let AccessCheck::Authenticate(authenticate) = &policy.check else {
                    return None;
                };
                let mut authenticate = authenticate.clone();
                let mut has_keys = false;
                for issuer in authenticate.issuers.iter_mut() {
                    // A set of public keys may have secret ones among them, by mistake or since
                    // signatures are made and verified by the same.
                    if let TokenKeys::Inline(keys) = &mut issuer.keys {
                        let print = self.fingerprint(keys);
                        *keys = format!("{{\"keys\":[],\"fingerprint\":\"{print}\"}}").into();
                        has_keys = true;
                    }
                }
                let mut policy = policy.clone();
                policy.check = AccessCheck::Authenticate(authenticate);
                has_keys.then_some(Value::AccessPolicy(policy))
            }
            Value::Listener(_)
            | Value::Domain(_)
            | Value::Route(_)
            | Value::Routes(_)
            | Value::Upstream(_)
            | Value::Endpoints(_)
            | Value::Trust(_)
            | Value::StreamRoute(_)
            | Value::Provider(_)
            | Value::Telemetry(_) => None,
        }
    }

    /// The bytes that are kept of a resource; none where it cannot be read. They are shared where
    /// they are there already.
    pub(super) fn keep(&self, sealed: &Sealed, scratch: &mut Vec<u8>) -> Option<Bytes> {
        if let Some(bytes) = sealed
            .encoded()
            .filter(|_| !may_hold_secrets(sealed.key().kind))
        {
            return Some(bytes.clone());
        }
        let resource = read(sealed)?;
        let shown = self.without_secrets(&resource);
        if let (Some(bytes), Cow::Borrowed(_)) = (sealed.encoded(), &shown) {
            return Some(bytes.clone());
        }
        scratch.clear();
        wire::encode(&shown, scratch);
        Some(Bytes::copy_from_slice(scratch))
    }
}

/// The value of a resource, in whatever form it is there; none where it cannot be read.
pub fn read(sealed: &Sealed) -> Option<Cow<'_, Resource>> {
    match sealed.resource() {
        Some(resource) => Some(Cow::Borrowed(resource)),
        None => wire::decode(sealed.encoded()?).ok().map(Cow::Owned),
    }
}

/// Whether a resource of a kind may hold what nobody may see.
fn may_hold_secrets(kind: Kind) -> bool {
    match kind {
        Kind::Certificate | Kind::Trust | Kind::ChallengeAnswer | Kind::AccessPolicy => true,
        Kind::Listener
        | Kind::Domain
        | Kind::Route
        | Kind::Upstream
        | Kind::Endpoints
        | Kind::StreamRoute
        | Kind::Provider
        | Kind::Telemetry => false,
        Kind::Newer(_) => true,
    }
}
