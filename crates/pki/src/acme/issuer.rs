//! Issuers: where certificates are ordered, and how it is proven whose the names are.

use std::fmt;

/// An issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssuer {
    /// The directories of authorities, in the order in which they are tried.
    pub directories: Vec<Directory>,
    /// The proof that names are the orderer's.
    pub challenge: ChallengeKind,
}

/// An authority, and the account there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The URL of its directory.
    pub url: Box<str>,
    /// The address of mail that it may write to.
    pub email: Option<Box<str>>,
    /// The profile of certificates, of those that it offers; none for its default.
    pub profile: Option<Box<str>>,
    /// The account elsewhere that the one here belongs to (RFC 8555, section 7.3.4).
    pub binding: Option<Binding>,
}

/// A key that binds an account to one elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The name of the key.
    pub id: Box<str>,
    /// The key.
    pub key: BindingKey,
}

/// The bytes of a key that binds accounts. They have no way to be printed or serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct BindingKey(Box<[u8]>);

impl BindingKey {
    /// Takes over the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        BindingKey(bytes.into())
    }

    /// The bytes, for whoever makes the account.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BindingKey(hidden)")
    }
}

/// The kinds of proof that a gateway can give by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChallengeKind {
    /// An answer over plain HTTP (RFC 8555, section 8.3).
    #[default]
    Http,
    /// A certificate in a handshake for `acme-tls/1` (RFC 8737).
    TlsAlpn,
}

impl ChallengeKind {
    /// The name that ACME has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChallengeKind::Http => "http-01",
            ChallengeKind::TlsAlpn => "tls-alpn-01",
        }
    }

    /// The kind of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut all = [ChallengeKind::Http, ChallengeKind::TlsAlpn].into_iter();
        all.find(|kind| kind.as_str() == word)
    }
}
