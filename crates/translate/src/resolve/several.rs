//! Several certificates of one host: the order in which clients are shown them, and those that
//! nobody is shown.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{ALTERNATIVES_MAX, Host};

use super::algorithm::KeyAlgorithm;
use crate::engine::Reader;

/// The most certificates of one host.
pub(crate) const SEVERAL_MAX: usize = ALTERNATIVES_MAX + 1;

/// A Secret with the place of its certificate and the algorithm of its key.
type Placed = ((bool, u8), Option<KeyAlgorithm>, Arc<str>);

/// The certificates of a host.
#[derive(Debug, Default)]
pub(crate) struct Several {
    /// The Secrets; a client is shown the first whose certificate it can verify.
    pub secrets: Vec<Arc<str>>,
    /// The Secrets whose certificates nobody is shown.
    pub spare: Vec<Spare>,
}

/// A certificate whose key is of the same algorithm as that of one that goes before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    /// Its Secret.
    pub secret: Arc<str>,
    /// The Secret of the one that goes before it.
    like: Arc<str>,
    algorithm: KeyAlgorithm,
}

impl Several {
    /// The certificates in these Secrets, in the order in which they are written: those that cover
    /// the host go first, and then those of the cheaper algorithms. One that is not there, or that
    /// cannot be read, comes last. For who needs the units of the Secrets, and so runs again when
    /// names or algorithms change.
    pub(crate) fn of(reader: &mut Reader<'_>, host: &Host, secrets: Vec<Arc<str>>) -> Several {
        let mut several = Several::default();
        // Of the one that most hosts have, nothing has to be read.
        if secrets.len() < 2 {
            several.secrets = secrets;
            return several;
        }
        let mut placed: Vec<Placed> = Vec::new();
        for secret in secrets {
            let names = reader.secret_names(&secret);
            let algorithm = names.as_ref().and_then(|names| names.algorithm());
            let covers = names.is_some_and(|names| names.cover(host));
            let mut before = placed.iter();
            let like = before.find(|(_, other, _)| algorithm.is_some() && *other == algorithm);
            if let (Some((_, _, like)), Some(algorithm)) = (like, algorithm) {
                several.spare.push(Spare {
                    secret,
                    like: like.clone(),
                    algorithm,
                });
                continue;
            }
            let place = algorithm.map_or((true, u8::MAX), |it| (!covers, it.place()));
            placed.push((place, algorithm, secret));
        }
        // Those of one place stay in their order.
        placed.sort_by_key(|(place, ..)| *place);
        placed.truncate(SEVERAL_MAX);
        several.secrets = placed.into_iter().map(|(_, _, secret)| secret).collect();
        several
    }
}

impl Spare {
    /// The finding about it.
    pub(crate) fn finding(&self, object: &ObjectKey, field: String, host: &Host) -> Finding {
        let Spare {
            secret,
            like,
            algorithm,
        } = self;
        Finding::new(
            Severity::Warning,
            object,
            field,
            format!(
                "names Secret {secret}, which is without effect for {host}: its key is of \
                 {algorithm}, as that of Secret {like} before it"
            ),
            "leave one of them out, or issue it with a key of another algorithm: RSA beside ECDSA",
        )
    }
}
