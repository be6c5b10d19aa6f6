//! Issuers as objects make them, checked: for whoever obtains certificates.

use std::fmt;

use bytes::Bytes;
use myriad_api::ObjectKey;

/// An issuer that an object makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatedIssuer {
    /// The name that wishes have for it: `namespace/name`, or the name alone where it is for all
    /// namespaces.
    pub name: Box<str>,
    /// The object.
    pub object: ObjectKey,
    /// When the object was created, in seconds since the epoch.
    pub created: i64,
    /// Where certificates are obtained, or why nowhere.
    pub terms: Result<IssuerTerms, Box<str>>,
}

/// Where certificates are obtained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IssuerTerms {
    /// The authorities, in the order in which they are tried: at least one, none twice.
    pub authorities: Box<[AuthorityTerms]>,
    /// The proof that names are the orderer's.
    pub proof: ProofTerms,
    /// The roots by which authorities are verified, in DER; none for those of the process.
    pub roots: Box<[Bytes]>,
    /// How records of DNS are set.
    pub solver: Option<SolverTerms>,
    /// The kind of key of certificates.
    pub key: KeyTerms,
    /// The URL that is asked which names may have certificates on demand; none for none by it.
    pub ask: Option<Box<str>>,
}

/// An authority, and the account there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthorityTerms {
    /// The URL of its directory, without a fragment.
    pub url: Box<str>,
    /// The address of mail that it may write to.
    pub email: Option<Box<str>>,
    /// The profile of certificates; none for its default.
    pub profile: Option<Box<str>>,
    /// The name and the key of the account elsewhere that the one here belongs to.
    pub binding: Option<(Box<str>, IssuerSecret)>,
}

/// The kinds of proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProofTerms {
    /// `http-01`.
    Http,
    /// `tls-alpn-01`.
    TlsAlpn,
    /// `dns-01`.
    Dns,
    /// `dns-persist-01`.
    DnsPersist,
}

/// The kinds of keys of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyTerms {
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// RSA with 2,048 bits.
    Rsa2048,
    /// Two certificates for each host, of both.
    EcdsaAndRsa,
}

impl KeyTerms {
    /// The kind that an issuer names; of no word, the usual one.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "" | "ecdsa-p256" => Some(KeyTerms::EcdsaP256),
            "rsa-2048" => Some(KeyTerms::Rsa2048),
            "ecdsa-and-rsa" => Some(KeyTerms::EcdsaAndRsa),
            _ => None,
        }
    }
}

/// How records of DNS are set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SolverTerms {
    /// By updates of a zone.
    Update {
        /// The server: a host or an address, with a port where that is not 53.
        server: Box<str>,
        /// The zone; none for the one that a record turns out to be in.
        zone: Option<Box<str>>,
        /// The name of the key that signs them.
        key_name: Box<str>,
        /// The hash that the key is for.
        hash: HashTerms,
        /// The key.
        key: IssuerSecret,
    },
    /// By a webhook that speaks the protocol of cert-manager's solvers.
    Webhook {
        /// Its URL; none for the API server of the cluster.
        url: Option<Box<str>>,
        /// Its group at an API server; empty where the URL is its own.
        group: Box<str>,
        /// Its name.
        solver: Box<str>,
        /// The settings that it is given, as JSON; empty for none.
        config: Box<str>,
        /// The namespace of the objects that those name.
        namespace: Box<str>,
    },
}

/// The hashes that keys of DNS are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HashTerms {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// The bytes of a key. They have no way to be printed or serialised.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IssuerSecret(Box<[u8]>);

impl IssuerSecret {
    /// Takes over the bytes.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        IssuerSecret(bytes.into())
    }

    /// The bytes, for whoever signs with them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for IssuerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IssuerSecret(hidden)")
    }
}
