//! Sealed resources: encoded once, hashed once, compared by version ever after.

use std::fmt;

use bytes::Bytes;

use crate::wire::{self, WireError};
use crate::{
    AccessPolicy, Certificate, ChallengeAnswer, Digest, Domain, Endpoints, Entry, Key, Kind,
    Listener, Name, Provider, Resource, RouteView, StreamRoute, Telemetry, Trust, Upstream, Value,
};

/// The keyed hash of a resource's encoded bytes. Equal versions mean equal content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub [u8; 16]);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which form of a resource a sealer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The checked value, for who obeys it in the same process.
    Value,
    /// The encoded bytes, for who only passes them on.
    Encoded,
}

/// A resource with its name and version, in one of its two forms.
#[derive(Clone, Debug)]
pub struct Sealed {
    key: Key,
    version: Version,
    /// Keyed hash of kind and name: the place in the digest tree.
    slot: u64,
    bytes_encoded: u32,
    body: Body,
}

/// A sealed resource as snapshots, deltas and tables share it. There are millions, and nobody
/// refers to one weakly.
pub type SealedArc = triomphe::Arc<Sealed>;

/// With the count in front of it, one fits the 112 bytes that the allocator has a class for.
const _: () = assert!(size_of::<Sealed>() <= 104);

#[derive(Clone, Debug)]
enum Body {
    Value(Resource),
    Encoded(Bytes),
}

impl Sealed {
    /// A former resource as somebody remembers it: with the encoded bytes that were kept of it,
    /// which are others than its version says where secrets were left out of them.
    pub fn remembered(key: Key, slot: u64, version: Version, bytes: Bytes) -> Sealed {
        Sealed {
            key,
            version,
            slot,
            bytes_encoded: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            body: Body::Encoded(bytes),
        }
    }

    /// Kind and name.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.key.name
    }

    /// The place in the digest tree.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The length of the encoded form.
    pub fn bytes_encoded(&self) -> usize {
        self.bytes_encoded as usize
    }

    /// The resource, where the value is what was kept.
    pub fn resource(&self) -> Option<&Resource> {
        match &self.body {
            Body::Value(resource) => Some(resource),
            Body::Encoded(_) => None,
        }
    }

    /// The encoded form, where that is what was kept.
    pub fn encoded(&self) -> Option<&Bytes> {
        match &self.body {
            Body::Value(_) => None,
            Body::Encoded(bytes) => Some(bytes),
        }
    }

    /// The value as a listener.
    pub fn listener(&self) -> Option<&Listener> {
        match &self.resource()?.value {
            Value::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// The value as a domain.
    pub fn domain(&self) -> Option<&Domain> {
        match &self.resource()?.value {
            Value::Domain(domain) => Some(domain),
            _ => None,
        }
    }

    /// The value as a certificate.
    pub fn certificate(&self) -> Option<&Certificate> {
        match &self.resource()?.value {
            Value::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// The routes that the value holds.
    pub fn routes(&self) -> impl Iterator<Item = RouteView<'_>> {
        let values = self.resource().into_iter();
        values.flat_map(|resource| resource.value.routes())
    }

    /// The value as an upstream.
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.resource()?.value {
            Value::Upstream(upstream) => Some(upstream),
            _ => None,
        }
    }

    /// The value, if it is a stream route and is there.
    pub fn stream_route(&self) -> Option<&StreamRoute> {
        match &self.resource()?.value {
            Value::StreamRoute(stream_route) => Some(stream_route),
            _ => None,
        }
    }

    /// The value, if it is endpoints and is there.
    pub fn endpoints(&self) -> Option<&Endpoints> {
        match &self.resource()?.value {
            Value::Endpoints(endpoints) => Some(endpoints),
            _ => None,
        }
    }

    /// The value as a trust.
    pub fn trust(&self) -> Option<&Trust> {
        match &self.resource()?.value {
            Value::Trust(trust) => Some(trust),
            _ => None,
        }
    }

    /// The value as an access policy.
    pub fn access_policy(&self) -> Option<&AccessPolicy> {
        match &self.resource()?.value {
            Value::AccessPolicy(access_policy) => Some(access_policy),
            _ => None,
        }
    }

    /// The value as a provider.
    pub fn provider(&self) -> Option<&Provider> {
        match &self.resource()?.value {
            Value::Provider(provider) => Some(provider),
            _ => None,
        }
    }

    /// The value as what is recorded.
    pub fn telemetry(&self) -> Option<&Telemetry> {
        match &self.resource()?.value {
            Value::Telemetry(telemetry) => Some(telemetry),
            _ => None,
        }
    }

    /// The value as the answer to a challenge.
    pub fn challenge_answer(&self) -> Option<&ChallengeAnswer> {
        match &self.resource()?.value {
            Value::ChallengeAnswer(answer) => Some(answer),
            _ => None,
        }
    }
}

/// The only maker of [`Sealed`]. All replicas of a cluster hold the same key, so that they
/// give equal resources equal versions.
pub struct Sealer {
    key: [u8; 32],
    form: Form,
    scratch: Vec<u8>,
    bytes_encoded: u64,
    schema_max: u32,
}

impl Sealer {
    /// A sealer with the cluster's key.
    pub fn new(key: [u8; 32], form: Form) -> Self {
        Sealer {
            key,
            form,
            scratch: Vec::new(),
            bytes_encoded: 0,
            schema_max: wire::SCHEMA,
        }
    }

    /// This sealer, but one that opens nothing that needs a newer schema than this.
    #[must_use]
    pub fn within(self, schema_max: u32) -> Self {
        Sealer { schema_max, ..self }
    }

    /// How many bytes this sealer has encoded so far.
    pub fn bytes_encoded(&self) -> u64 {
        self.bytes_encoded
    }

    /// The place of a key in the digest tree.
    pub fn slot(&self, key: &Key) -> u64 {
        slot(&self.key, key)
    }

    /// Which key this sealer has, for two ends that compare digests; never 0.
    pub fn key_id(&self) -> u64 {
        let hash = blake3::keyed_hash(&self.key, b"which key");
        (first_half(hash) as u64).max(1)
    }

    /// A stand-in for a resource whose content is not kept: its name and version only.
    pub fn stand_in(&self, key: Key, version: Version) -> Sealed {
        Sealed {
            slot: slot(&self.key, &key),
            key,
            version,
            bytes_encoded: 0,
            body: Body::Encoded(Bytes::new()),
        }
    }

    /// The resource at the place that this sealer's key gives it.
    pub fn adopt(&self, sealed: &Sealed) -> Sealed {
        Sealed {
            slot: slot(&self.key, &sealed.key),
            ..sealed.clone()
        }
    }

    /// Encodes, hashes and seals a resource.
    pub fn seal(&mut self, name: Name, resource: Resource) -> Sealed {
        let key = Key {
            kind: resource.value.kind(),
            name,
        };
        self.scratch.clear();
        wire::encode(&resource, &mut self.scratch);
        self.bytes_encoded += self.scratch.len() as u64;
        let version = version(&self.key, &self.scratch);
        let body = match self.form {
            Form::Value => Body::Value(resource),
            Form::Encoded => Body::Encoded(Bytes::copy_from_slice(&self.scratch)),
        };
        let bytes_encoded = u32::try_from(self.scratch.len()).unwrap_or(u32::MAX);
        Sealed {
            slot: slot(&self.key, &key),
            key,
            version,
            bytes_encoded,
            body,
        }
    }

    /// The version of a resource of these bytes.
    pub fn version(&self, bytes: &[u8]) -> Version {
        version(&self.key, bytes)
    }

    /// Opens bytes that another end sealed, keeping its version, which has to be theirs: whoever
    /// has another value under that version would be in step by its digest for ever.
    ///
    /// # Errors
    /// See [`WireError`]. A body of another kind than the key says is one, and so are bytes of
    /// another version.
    pub fn open(&self, key: Key, version: Version, bytes: &Bytes) -> Result<Sealed, WireError> {
        let sealed = self.open_trusted(key, version, bytes)?;
        match self.version(bytes) == version {
            true => Ok(sealed),
            false => Err(WireError::OtherVersion),
        }
    }

    /// Opens bytes that do not come from outside, whose version is believed.
    ///
    /// # Errors
    /// See [`WireError`]. A body of another kind than the key says is one.
    pub fn open_trusted(
        &self,
        key: Key,
        version: Version,
        bytes: &Bytes,
    ) -> Result<Sealed, WireError> {
        if let Kind::Newer(_) = key.kind {
            return Err(WireError::NewerKind);
        }
        let resource = wire::decode_within(bytes, self.schema_max)?;
        if resource.value.kind() != key.kind {
            return Err(WireError::OtherKind);
        }
        let bytes_encoded = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let body = Body::Value(resource);
        Ok(Sealed {
            slot: slot(&self.key, &key),
            key,
            version,
            bytes_encoded,
            body,
        })
    }
}

/// A sealed resource in the digest tree of a snapshot.
#[derive(Clone)]
pub(crate) struct Leaf(pub(crate) SealedArc);

impl Leaf {
    pub(crate) fn into_inner(self) -> SealedArc {
        self.0
    }

    /// The length of the encoded form.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.0.bytes_encoded)
    }
}

impl Entry for Leaf {
    fn hash(&self) -> u64 {
        self.0.slot
    }

    fn same_key(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }

    fn same_content(&self, other: &Self) -> bool {
        self.0.version == other.0.version
    }

    fn weight(&self) -> u128 {
        Digest::of(self.0.slot, self.0.version).0
    }
}

impl Digest {
    /// The digest over one resource, known by its place and version.
    pub fn of(slot: u64, version: Version) -> Digest {
        // The slot is a keyed hash of kind and name already, and the version one of the
        // content: mixing both keeps who knows neither key from steering the sum.
        let mut hasher = blake3::Hasher::new();
        hasher.update(&slot.to_le_bytes());
        hasher.update(&version.0);
        Digest(first_half(hasher.finalize()))
    }
}

fn version(key: &[u8; 32], bytes: &[u8]) -> Version {
    Version(first_half(blake3::keyed_hash(key, bytes)).to_be_bytes())
}

fn slot(cluster_key: &[u8; 32], key: &Key) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(cluster_key);
    hasher.update(&[key.kind.number()]);
    hasher.update(key.name.as_bytes());
    first_half(hasher.finalize()) as u64
}

fn first_half(hash: blake3::Hash) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_be_bytes(half)
}
