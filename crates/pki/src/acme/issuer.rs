//! Issuers: where certificates are ordered, and how it is proven whose the names are.

use std::fmt;

use super::DnsSolver;

/// An issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeIssuer {
    /// The directories of authorities, in the order in which they are tried.
    pub directories: Vec<Directory>,
    /// The proof that names are the orderer's.
    pub challenge: ChallengeKind,
    /// How records of DNS are set: for [`ChallengeKind::Dns`], and for wildcards beside proofs
    /// that do not go for those.
    pub dns: Option<DnsSolver>,
    /// The keys of its certificates.
    pub key: KeyKind,
    /// Whether a tenant has written it, so that servers that it names are at public addresses.
    pub is_tenants: bool,
}

impl AcmeIssuer {
    /// Whether it provides two certificates for each name.
    pub fn gives_pair(&self) -> bool {
        self.key == KeyKind::EcdsaAndRsa
    }

    /// The proof of one name: a wildcard can be proven by DNS alone.
    pub fn challenge_of(&self, name: &str) -> ChallengeKind {
        let by_dns = name.starts_with("*.") && self.dns.is_some() && !self.challenge.is_in_dns();
        match by_dns {
            true => ChallengeKind::Dns,
            false => self.challenge,
        }
    }
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

/// The kinds of keys that certificates have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on the curve P-256.
    #[default]
    EcdsaP256,
    /// RSA with 2,048 bits, for clients that know nothing else.
    Rsa2048,
    /// Two certificates for each name, of both.
    EcdsaAndRsa,
}

impl KeyKind {
    const ALL: [KeyKind; 3] = [KeyKind::EcdsaP256, KeyKind::Rsa2048, KeyKind::EcdsaAndRsa];

    /// The name that people have for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyKind::EcdsaP256 => "ecdsa-p256",
            KeyKind::Rsa2048 => "rsa-2048",
            KeyKind::EcdsaAndRsa => "ecdsa-and-rsa",
        }
    }

    /// The kind of one certificate: the second of two is of RSA.
    #[must_use]
    pub fn of_certificate(self, is_second: bool) -> Self {
        match self {
            KeyKind::EcdsaAndRsa if is_second => KeyKind::Rsa2048,
            KeyKind::EcdsaAndRsa => KeyKind::EcdsaP256,
            one => one,
        }
    }

    /// The kind of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut all = KeyKind::ALL.into_iter();
        all.find(|kind| kind.as_str() == word)
    }
}

/// The kinds of proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChallengeKind {
    /// An answer over plain HTTP (RFC 8555, section 8.3).
    #[default]
    Http,
    /// A certificate in a handshake for `acme-tls/1` (RFC 8737).
    TlsAlpn,
    /// A record of DNS that is set for it (RFC 8555, section 8.4).
    Dns,
    /// A record of DNS that is there for good and names the account
    /// (draft-ietf-acme-dns-persist).
    DnsPersist,
}

impl ChallengeKind {
    /// The name that ACME has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChallengeKind::Http => "http-01",
            ChallengeKind::TlsAlpn => "tls-alpn-01",
            ChallengeKind::Dns => "dns-01",
            ChallengeKind::DnsPersist => "dns-persist-01",
        }
    }

    /// Whether an authority looks for it in DNS, and not at a gateway.
    pub const fn is_in_dns(self) -> bool {
        matches!(self, ChallengeKind::Dns | ChallengeKind::DnsPersist)
    }

    /// The kind of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let all = [
            ChallengeKind::Http,
            ChallengeKind::TlsAlpn,
            ChallengeKind::Dns,
            ChallengeKind::DnsPersist,
        ];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::{AcmeIssuer, ChallengeKind, KeyKind};
    use crate::acme::{DnsSolver, DnsWebhook};

    #[test]
    fn a_wildcard_is_proven_by_dns_where_records_can_be_set() {
        let issuer = |challenge, is_set: bool| AcmeIssuer {
            directories: Vec::new(),
            challenge,
            dns: is_set.then(|| {
                DnsSolver::Webhook(DnsWebhook {
                    url: None,
                    group: "acme.example".into(),
                    solver: "s".into(),
                    config: "".into(),
                    namespace: "".into(),
                    token_file: None,
                })
            }),
            key: KeyKind::default(),
            is_tenants: false,
        };
        let http = issuer(ChallengeKind::Http, true);
        assert_eq!(http.challenge_of("*.a.example"), ChallengeKind::Dns);
        assert_eq!(http.challenge_of("a.example"), ChallengeKind::Http);
        let bare = issuer(ChallengeKind::Http, false);
        assert_eq!(bare.challenge_of("*.a.example"), ChallengeKind::Http);
        let persist = issuer(ChallengeKind::DnsPersist, true);
        assert_eq!(persist.challenge_of("*.a"), ChallengeKind::DnsPersist);
    }

    #[test]
    fn kinds_are_found_by_their_words() {
        for kind in [
            ChallengeKind::Http,
            ChallengeKind::TlsAlpn,
            ChallengeKind::Dns,
            ChallengeKind::DnsPersist,
        ] {
            assert_eq!(ChallengeKind::from_word(kind.as_str()), Some(kind));
        }
        for kind in KeyKind::ALL {
            assert_eq!(KeyKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(KeyKind::from_word("dsa"), None);
    }

    #[test]
    fn of_two_certificates_the_second_is_of_rsa() {
        let both = KeyKind::EcdsaAndRsa;
        assert_eq!(both.of_certificate(false), KeyKind::EcdsaP256);
        assert_eq!(both.of_certificate(true), KeyKind::Rsa2048);
        for one in [KeyKind::EcdsaP256, KeyKind::Rsa2048] {
            assert_eq!(one.of_certificate(true), one);
        }
    }
}
