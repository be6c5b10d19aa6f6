//! Answers to challenges as requests and handshakes find them.

use std::sync::{Arc, OnceLock};

use myriad_model::{ChallengeAnswer, SealedArc};
use rustls::sign::CertifiedKey;

use super::leaf::Keyed;
use crate::random::hash::hash;

const CLASS: u8 = 16;

/// The answer to a challenge and, after its first handshake, the certificate that gives it.
pub struct ChallengeEntry {
    hash: u64,
    /// The question that it answers.
    pub question: Box<str>,
    /// The resource.
    pub sealed: SealedArc,
    shown: OnceLock<Option<Arc<CertifiedKey>>>,
}

/// The hash of a question.
pub fn hash_of(question: &str) -> u64 {
    hash(CLASS, question)
}

impl ChallengeEntry {
    /// An answer whose certificate nobody has made.
    pub fn new(sealed: SealedArc) -> Option<Self> {
        let question = sealed.challenge_answer()?.question();
        Some(ChallengeEntry {
            hash: hash_of(&question),
            question,
            sealed,
            shown: OnceLock::new(),
        })
    }

    /// The answer.
    pub fn answer(&self) -> Option<&ChallengeAnswer> {
        self.sealed.challenge_answer()
    }

    /// The certificate that gives the answer, which `make` makes once.
    pub fn shown(
        &self,
        make: impl FnOnce(&ChallengeAnswer) -> Option<CertifiedKey>,
    ) -> Option<Arc<CertifiedKey>> {
        let made = || self.answer().and_then(make).map(Arc::new);
        self.shown.get_or_init(made).clone()
    }
}

impl Keyed for ChallengeEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.sealed.name() == other.sealed.name()
    }
}
