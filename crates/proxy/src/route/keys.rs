//! Keys that signatures of tokens are verified with (RFC 7517, RFC 7518).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_model::TokenKeys;
use serde_json::Value;

use crate::pattern::Budget;

/// The fewest steps of a request's budget for trying a signature with one key: some 60 us.
pub const SIGNATURE_STEPS: usize = 8_192;

/// The steps for a curve of 384 bits, and one of 521.
const P384_STEPS: usize = 3 * SIGNATURE_STEPS;
const P521_STEPS: usize = 5 * SIGNATURE_STEPS;

/// The bytes of a modulus, 4,096 bits, up to which it takes the fewest steps. Beyond they grow by
/// the square of its length.
const RSA_BYTES: usize = 512;

/// The bytes of the longest modulus that anything is verified by.
const RSA_BYTES_MAX: usize = 1_024;

/// The most keys that are taken of one set.
const KEYS_MAX: usize = 64;

/// The keys of one issuer at one moment.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Box<[Key]>,
}

#[derive(Debug)]
struct Key {
    id: Option<Box<str>>,
    /// The only algorithm that it is for, where it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        modulus: Box<[u8]>,
        exponent: Box<[u8]>,
    },
    /// An uncompressed point, for the one algorithm that fits its curve.
    Point(Algorithm, Box<[u8]>),
}

/// How a token is signed. Algorithms with a shared secret, and none, are not among these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 7518, section 3.1")]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

/// The source of an issuer's keys.
#[derive(Clone, Debug)]
pub enum IssuerKeys {
    /// They came with the access policy.
    Own(Arc<KeySet>),
    /// They are fetched.
    Fetched(Arc<KeySlot>),
}

/// Keys that are fetched. It outlives changes of the access policies that name its URL.
#[derive(Debug)]
pub struct KeySlot {
    /// The URL.
    pub url: Box<str>,
    /// Whether the URL leads to a description of the issuer that tells where they are.
    pub is_discovered: bool,
    /// How long one fetch may take.
    pub timeout: Duration,
    /// Whether somebody fetches them.
    is_taken: AtomicBool,
    set: ArcSwapOption<KeySet>,
}

impl Algorithm {
    /// The algorithm of a name.
    pub fn of(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "ES512" => Algorithm::Es512,
            "EdDSA" => Algorithm::EdDsa,
            _ => return None,
        })
    }
}

impl KeySet {
    /// Reads a key set. What is in it and not understood is passed over.
    ///
    /// # Errors
    /// Why it is no key set.
    pub fn read(json: &[u8]) -> Result<KeySet, &'static str> {
        let document: Value = serde_json::from_slice(json).map_err(|_| "is not JSON")?;
        let keys = document.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("has no member keys")?;
        let keys: Box<[Key]> = keys.iter().filter_map(read_key).take(KEYS_MAX).collect();
        match keys.is_empty() {
            true => Err("has no key that can verify a signature"),
            false => Ok(KeySet { keys }),
        }
    }

    /// Whether there is a key of an id.
    pub fn has(&self, id: &str) -> bool {
        let mut ids = self.keys.iter().filter_map(|key| key.id.as_deref());
        ids.any(|known| known == id)
    }

    /// Whether any key, or the one of an id, made a signature. Every key that is tried takes steps,
    /// by its algorithm and its length; none is tried once they are spent.
    pub fn verifies(
        &self,
        (algorithm, id): (Algorithm, Option<&str>),
        message: &[u8],
        signature: &[u8],
        budget: &Budget,
    ) -> bool {
        // A key without an id may be the one that was meant.
        let is_meant = |key: &&Key| match (id, key.id.as_deref()) {
            (Some(id), Some(known)) => id == known,
            _ => true,
        };
        let meant = self.keys.iter().filter(is_meant);
        let mut tried = meant.filter(|key| key.is_for(algorithm));
        tried.any(|key| budget.take(key.steps()) && key.verifies(algorithm, message, signature))
    }
}

impl Key {
    fn is_for(&self, algorithm: Algorithm) -> bool {
        let is_material_for = match &self.material {
            Material::Rsa { .. } => rsa_parameters(algorithm).is_some(),
            Material::Point(only, _) => *only == algorithm,
        };
        is_material_for && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// The steps of trying a signature.
    fn steps(&self) -> usize {
        match &self.material {
            Material::Rsa { modulus, .. } => {
                let bytes = modulus.len().clamp(RSA_BYTES, RSA_BYTES_MAX);
                SIGNATURE_STEPS * bytes * bytes / (RSA_BYTES * RSA_BYTES)
            }
            Material::Point(Algorithm::Es384, _) => P384_STEPS,
            Material::Point(Algorithm::Es512, _) => P521_STEPS,
            Material::Point(..) => SIGNATURE_STEPS,
        }
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let Some(parameters) = rsa_parameters(algorithm) else {
                    return false;
                };
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, message, signature).is_ok()
            }
            Material::Point(only, point) if *only == algorithm => {
                let point = &point[..];
                match algorithm {
                    Algorithm::Es256 => {
                        UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                            .verify(message, signature)
                    }
                    Algorithm::Es384 => {
                        UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                            .verify(message, signature)
                    }
                    Algorithm::Es512 => {
                        UnparsedPublicKey::new(&signature::ECDSA_P521_SHA512_FIXED, point)
                            .verify(message, signature)
                    }
                    _ => UnparsedPublicKey::new(&signature::ED25519, point)
                        .verify(message, signature),
                }
                .is_ok()
            }
            Material::Point(..) => false,
        }
    }
}

impl IssuerKeys {
    /// The keys of an issuer; those that are fetched are taken over from `known`, where it has
    /// the same.
    pub fn of(keys: &TokenKeys, mut known: impl Iterator<Item = Arc<KeySlot>>) -> IssuerKeys {
        match keys {
            TokenKeys::Inline(json) => {
                IssuerKeys::Own(Arc::new(KeySet::read(json).unwrap_or_default()))
            }
            TokenKeys::Fetched {
                url,
                is_discovered,
                timeout,
            } => {
                let same = known.find(|slot| {
                    slot.url == *url
                        && slot.is_discovered == *is_discovered
                        && slot.timeout == *timeout
                });
                IssuerKeys::Fetched(same.unwrap_or_else(|| {
                    Arc::new(KeySlot {
                        url: url.clone(),
                        is_discovered: *is_discovered,
                        timeout: *timeout,
                        is_taken: AtomicBool::new(false),
                        set: ArcSwapOption::empty(),
                    })
                }))
            }
        }
    }

    /// The keys as they are now; none before they were fetched for the first time.
    pub fn now(&self) -> Option<Arc<KeySet>> {
        match self {
            IssuerKeys::Own(set) => Some(set.clone()),
            IssuerKeys::Fetched(slot) => slot.set.load_full(),
        }
    }
}

impl KeySlot {
    /// Whether the caller is the first to ask, who has to fetch the keys.
    pub fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Puts fetched keys in place of those before.
    pub fn set(&self, keys: KeySet) {
        self.set.store(Some(Arc::new(keys)));
    }
}

fn read_key(value: &Value) -> Option<Key> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let bytes = |name: &str| {
        URL_SAFE_NO_PAD
            .decode(text(name)?.trim_end_matches('='))
            .ok()
    };
    if text("use").is_some_and(|usage| usage != "sig") {
        return None;
    }
    let algorithm = match text("alg") {
        Some(name) => Some(Algorithm::of(name)?),
        None => None,
    };
    let point = |width: usize| {
        let mut point = vec![4];
        for part in [bytes("x")?, bytes("y")?] {
            // Leading zeros are part of a coordinate (RFC 7518, section 6.2.1.2).
            let missing = width.checked_sub(part.len())?;
            point.resize(point.len() + missing, 0);
            point.extend(part);
        }
        Some(point.into_boxed_slice())
    };
    let material = match (text("kty")?, text("crv")) {
        ("RSA", _) => Material::Rsa {
            modulus: without_zeros(bytes("n")?),
            exponent: without_zeros(bytes("e")?),
        },
        ("EC", Some("P-256")) => Material::Point(Algorithm::Es256, point(32)?),
        ("EC", Some("P-384")) => Material::Point(Algorithm::Es384, point(48)?),
        ("EC", Some("P-521")) => Material::Point(Algorithm::Es512, point(66)?),
        ("OKP", Some("Ed25519")) => Material::Point(Algorithm::EdDsa, bytes("x")?.into()),
        _ => return None,
    };
    Some(Key {
        id: text("kid").map(Into::into),
        algorithm,
        material,
    })
}

fn without_zeros(bytes: Vec<u8>) -> Box<[u8]> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.get(zeros..).unwrap_or_default().into()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 | Algorithm::EdDsa => return None,
    })
}
