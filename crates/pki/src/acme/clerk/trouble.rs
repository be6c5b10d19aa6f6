//! Errors of an authority, and what they mean to a step.

use instant_acme::{Error, Problem};

use super::words::{cut, words_of};
use crate::acme::{MINUTE, Millis, StepTrouble};

/// How often a step is tried again whose nonce is refused, which says nothing of the step.
const NONCE_TRIES: usize = 8;

/// The first words of the error that an order was taken without what it replaces, which the
/// authority has placed.
const UNHEEDED: &str = "replaces field mismatch";

/// An answer that says that the authority is busy or broken; a client makes it of a response, so
/// that the time is not lost which the authority asks for.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Busy {
    /// The status of the response.
    pub status: u16,
    /// Whether the authority has failed by something that it does not say, the request maybe.
    pub is_internal: bool,
    /// The words of the authority.
    pub words: String,
    /// How long it wants to be left alone.
    pub again: Millis,
}

/// Why a step fails, before it is known what that means to its order.
pub(super) enum StepError {
    Acme(Error),
    Refused(String),
    Unreplaced(String),
    Unheeded(String),
    Lost(String),
    Local(String),
}

impl StepError {
    /// An error of an order that says which certificate it replaces. Some authorities do not find
    /// one of their own again, and say so as they say that they have failed, or as of an order that
    /// is not there.
    pub(super) fn of_replacing(error: Error) -> StepError {
        match &error {
            Error::Other(other) => match other.downcast_ref::<Busy>() {
                Some(busy) if busy.is_internal => {
                    return StepError::Unreplaced(cut(busy.words.clone()));
                }
                None if other.to_string().starts_with(UNHEEDED) => {
                    return StepError::Unheeded(cut(other.to_string()));
                }
                _ => {}
            },
            Error::Api(problem)
                if problem.status == Some(404) && kind_of(problem) != "accountDoesNotExist" =>
            {
                return StepError::Unreplaced(words_of(problem));
            }
            _ => {}
        }
        error.into()
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        StepError::Acme(error)
    }
}

/// Carries a step out, again where only its nonce is refused.
pub(super) async fn retried<T, F>(mut step: impl FnMut() -> F) -> Result<T, StepTrouble>
where
    F: Future<Output = Result<T, StepError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        match step().await {
            Ok(outcome) => return Ok(outcome),
            Err(StepError::Acme(error)) if is_nonce(&error) && tries < NONCE_TRIES => {}
            Err(StepError::Acme(error)) => return Err(trouble(error)),
            Err(StepError::Refused(words)) => return Err(StepTrouble::Refused(words)),
            Err(StepError::Unreplaced(words)) => return Err(StepTrouble::Unreplaced(words)),
            Err(StepError::Unheeded(words)) => return Err(StepTrouble::Unheeded(words)),
            Err(StepError::Lost(words)) => return Err(StepTrouble::Lost(words)),
            Err(StepError::Local(words)) => return Err(StepTrouble::Local(words)),
        }
    }
}

fn kind_of(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix("urn:ietf:params:acme:error:")
        .unwrap_or_default()
}

fn is_nonce(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if kind_of(problem) == "badNonce")
}

/// The trouble of this machine that an error is.
pub(super) fn local(error: &Error) -> StepTrouble {
    StepTrouble::Local(error.to_string())
}

/// The trouble that an error means.
pub(super) fn trouble(error: Error) -> StepTrouble {
    match error {
        Error::Api(problem) => {
            let words = words_of(&problem);
            match (kind_of(&problem), problem.status.unwrap_or_default()) {
                ("rateLimited", _) | (_, 429) => StepTrouble::Limited(words, MINUTE),
                ("badNonce" | "serverInternal", _) | (_, 500..) => {
                    StepTrouble::Unreachable(words, 0)
                }
                ("accountDoesNotExist", _) => StepTrouble::NoAccount(words),
                (_, 404) => StepTrouble::Lost(words),
                _ => StepTrouble::Refused(words),
            }
        }
        Error::Unsupported(what) => StepTrouble::Refused(format!("it does not support {what}")),
        Error::Crypto | Error::KeyRejected => local(&error),
        Error::Other(other) => match other.downcast_ref::<Busy>() {
            Some(busy) if busy.status == 429 => {
                StepTrouble::Limited(cut(busy.words.clone()), busy.again)
            }
            Some(busy) => StepTrouble::Unreachable(cut(busy.words.clone()), busy.again),
            None => StepTrouble::Unreachable(cut(other.to_string()), 0),
        },
        other => StepTrouble::Unreachable(cut(other.to_string()), 0),
    }
}
