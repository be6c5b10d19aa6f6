//! How records of DNS are set that answer challenges.

use std::fmt;
use std::path::PathBuf;

/// The way in which records are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsSolver {
    /// By updates of the zone (RFC 2136), signed with a key (RFC 8945).
    Update {
        /// The server that takes them: an address or a name, with a port where that is not 53.
        server: Box<str>,
        /// The zone; none for the one that the record turns out to be in.
        zone: Option<Box<str>>,
        /// The key.
        key: TsigKey,
    },
    /// By a webhook that speaks the protocol of cert-manager's solvers.
    Webhook(DnsWebhook),
}

/// A webhook that speaks the protocol of cert-manager's solvers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsWebhook {
    /// The URL that is asked, or that of an API server where there is a group; none for the API
    /// server of the cluster that the process runs in.
    pub url: Option<Box<str>>,
    /// The group of the solver among an API server's; empty where the URL is the solver's own.
    pub group: Box<str>,
    /// The name of the solver.
    pub solver: Box<str>,
    /// The settings that it is given, as JSON; empty for none.
    pub config: Box<str>,
    /// The namespace of the objects that its settings name.
    pub namespace: Box<str>,
    /// The file of the token that it is asked with, which is read each time; none for the one of
    /// the cluster where that is asked, and else for none.
    pub token_file: Option<PathBuf>,
}

/// A key that updates are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TsigKey {
    /// Its name, as the server has it.
    pub name: Box<str>,
    /// The hash that it is for.
    pub algorithm: TsigAlgorithm,
    /// The key.
    pub secret: TsigSecret,
}

/// The hashes that keys are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    Sha256,
    /// HMAC with SHA-512.
    Sha512,
}

/// The bytes of a key that signs updates. They have no way to be printed or serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct TsigSecret(Box<[u8]>);

impl TsigAlgorithm {
    /// The name that DNS has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            TsigAlgorithm::Sha256 => "hmac-sha256",
            TsigAlgorithm::Sha512 => "hmac-sha512",
        }
    }

    /// The one of this name, which may be in either case.
    pub fn from_word(word: &str) -> Option<Self> {
        let mut all = [TsigAlgorithm::Sha256, TsigAlgorithm::Sha512].into_iter();
        all.find(|it| it.as_str().eq_ignore_ascii_case(word))
    }
}

impl TsigSecret {
    /// Takes over the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        TsigSecret(bytes.into())
    }

    /// The bytes, for whoever signs.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TsigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TsigSecret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::{DnsSolver, TsigAlgorithm, TsigKey, TsigSecret};

    #[test]
    fn a_key_is_not_printed_and_its_algorithm_has_a_name() {
        let solver = DnsSolver::Update {
            server: "ns.example".into(),
            zone: None,
            key: TsigKey {
                name: "gateway".into(),
                algorithm: TsigAlgorithm::Sha512,
                secret: TsigSecret::new(vec![0xab; 8]),
            },
        };
        let shown = format!("{solver:?}");
        assert!(
            shown.contains("hidden") && !shown.contains("171"),
            "{shown}"
        );
        for algorithm in [TsigAlgorithm::Sha256, TsigAlgorithm::Sha512] {
            assert_eq!(
                TsigAlgorithm::from_word(algorithm.as_str()),
                Some(algorithm)
            );
        }
        assert_eq!(
            TsigAlgorithm::from_word("HMAC-SHA256"),
            Some(TsigAlgorithm::Sha256)
        );
        assert_eq!(TsigAlgorithm::from_word("hmac-md5"), None);
    }
}
