//! Signatures of messages by a key that both ends have (RFC 8945).
//!
//! Messages are taken as the bytes that they are on the wire: they are signed like that, and an
//! answer is compared as it came.

use aws_lc_rs::hmac;
use hickory_resolver::proto::op::{Header, Query};
use hickory_resolver::proto::rr::rdata::TSIG;
use hickory_resolver::proto::rr::{RData, Record};
use hickory_resolver::proto::serialize::binary::{BinDecodable as _, BinDecoder};
use myriad_pki::acme::{TsigAlgorithm, TsigKey};

/// How far the clocks of both ends may be apart, in seconds.
const FUDGE: u16 = 300;

/// The type of the record with the signature, and its class, in which each record is one of a kind.
const KIND: u16 = 250;
const ANY: u16 = 255;

/// The bytes of a header, and where the number of additional records is in it.
const HEADER_BYTES: usize = 12;
const ADDITIONALS: usize = 10;

/// A signed message, and what its answer is signed over beside its own bytes.
pub(super) struct SignedMessage {
    /// The message.
    pub bytes: Vec<u8>,
    /// The signature.
    pub mac: Vec<u8>,
}

/// Why an answer is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    /// It has no signature.
    #[error("its answer is not signed")]
    Unsigned,
    /// It is that of another key or message.
    #[error("its answer is signed with another key")]
    Wrong,
    /// It is too old, or the clocks are apart.
    #[error("its answer is signed at another time; see that the clocks of both machines agree")]
    Time,
    /// The server says why it does not trust the question.
    #[error("it does not take the signature: {0}")]
    Refused(&'static str),
}

/// The parts of a signature that are signed as well.
struct Variables<'a> {
    seconds: u64,
    fudge: u16,
    error: u16,
    other: &'a [u8],
}

/// Signs a message at a time, in seconds since the epoch. An answer is signed over the signature of
/// its question too. None for a name of a key that is none, or for what is no message.
pub(super) fn sign(
    message: &[u8],
    before: &[u8],
    key: &TsigKey,
    seconds: u64,
) -> Option<SignedMessage> {
    let variables = Variables {
        seconds,
        fudge: FUDGE,
        error: 0,
        other: &[],
    };
    let name = wire(&key.name)?;
    let mac = hmac::sign(&hmac_key(key), &signed(message, before, key, &variables)?);
    let mac = mac.as_ref().to_vec();
    let mut data = wire(key.algorithm.as_str())?;
    data.extend(six(seconds));
    data.extend(FUDGE.to_be_bytes());
    data.extend(u16::try_from(mac.len()).ok()?.to_be_bytes());
    data.extend(&mac);
    data.extend(message.get(..2)?);
    // No error, and nothing else.
    data.extend([0; 4]);

    let mut bytes = message.to_vec();
    let count = additionals(message)?.checked_add(1)?;
    bytes
        .get_mut(ADDITIONALS..HEADER_BYTES)?
        .copy_from_slice(&count.to_be_bytes());
    bytes.extend(name);
    bytes.extend(KIND.to_be_bytes());
    bytes.extend(ANY.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
    bytes.extend(data);
    Some(SignedMessage { bytes, mac })
}

/// Verifies the answer to a signed message.
///
/// # Errors
/// See [`SignatureError`].
pub(super) fn verify(
    answer: &[u8],
    before: &[u8],
    key: &TsigKey,
    now: u64,
) -> Result<(), SignatureError> {
    let found = Found::in_message(answer).ok_or(SignatureError::Unsigned)?;
    let variables = found.variables();
    // Who does not know the key cannot sign with it.
    if found.record.mac.is_empty() {
        return Err(match variables.error {
            0 => SignatureError::Unsigned,
            error => SignatureError::Refused(reason(error)),
        });
    }
    let message = found.unsigned(answer).ok_or(SignatureError::Unsigned)?;
    let signed = signed(&message, before, key, &variables).ok_or(SignatureError::Wrong)?;
    // A shorter one than the hash would be easier to guess, and is none.
    let verified = hmac::verify(&hmac_key(key), &signed, &found.record.mac);
    verified.map_err(|_| SignatureError::Wrong)?;
    if variables.error != 0 {
        return Err(SignatureError::Refused(reason(variables.error)));
    }
    match variables.seconds.abs_diff(now) > u64::from(variables.fudge.min(FUDGE)) {
        true => Err(SignatureError::Time),
        false => Ok(()),
    }
}

/// A signature in a message.
struct Found {
    /// Where its record begins.
    at: usize,
    record: TSIG,
}

impl Found {
    /// The signature, which is the last record of a message.
    fn in_message(message: &[u8]) -> Option<Found> {
        let mut decoder = BinDecoder::new(message);
        let counts = Header::read(&mut decoder).ok()?.counts;
        for _ in 0..counts.queries {
            Query::read(&mut decoder).ok()?;
        }
        let before = u32::from(counts.answers) + u32::from(counts.authorities);
        let before = before + u32::from(counts.additionals.checked_sub(1)?);
        for _ in 0..before {
            Record::<RData>::read(&mut decoder).ok()?;
        }
        let at = decoder.index();
        match Record::<RData>::read(&mut decoder).ok()?.data {
            RData::TSIG(record) if decoder.is_empty() => Some(Found { at, record }),
            _ => None,
        }
    }

    fn variables(&self) -> Variables<'_> {
        Variables {
            seconds: self.record.time,
            fudge: self.record.fudge,
            error: self.record.error.map_or(0, u16::from),
            other: &self.record.other,
        }
    }

    /// The message as it was before it was signed.
    fn unsigned(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = message.get(..self.at)?.to_vec();
        let count = additionals(message)?.checked_sub(1)?;
        bytes
            .get_mut(..2)?
            .copy_from_slice(&self.record.oid.to_be_bytes());
        bytes
            .get_mut(ADDITIONALS..HEADER_BYTES)?
            .copy_from_slice(&count.to_be_bytes());
        Some(bytes)
    }
}

/// The bytes that are signed.
fn signed(
    message: &[u8],
    before: &[u8],
    key: &TsigKey,
    variables: &Variables<'_>,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if !before.is_empty() {
        bytes.extend(u16::try_from(before.len()).ok()?.to_be_bytes());
        bytes.extend(before);
    }
    bytes.extend(message);
    bytes.extend(wire(&key.name)?);
    bytes.extend(ANY.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(wire(key.algorithm.as_str())?);
    bytes.extend(six(variables.seconds));
    bytes.extend(variables.fudge.to_be_bytes());
    bytes.extend(variables.error.to_be_bytes());
    bytes.extend(u16::try_from(variables.other.len()).ok()?.to_be_bytes());
    bytes.extend(variables.other);
    Some(bytes)
}

fn hmac_key(key: &TsigKey) -> hmac::Key {
    let algorithm = match key.algorithm {
        TsigAlgorithm::Sha256 => hmac::HMAC_SHA256,
        TsigAlgorithm::Sha512 => hmac::HMAC_SHA512,
    };
    hmac::Key::new(algorithm, key.secret.expose())
}

/// A name as it is on the wire, in lower case.
fn wire(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len()).ok()?;
        if !(1..=63).contains(&length) {
            return None;
        }
        bytes.push(length);
        bytes.extend(label.to_ascii_lowercase().as_bytes());
    }
    bytes.push(0);
    (bytes.len() <= 255).then_some(bytes)
}

/// The time of a signature, which has 48 bits.
fn six(seconds: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = seconds.to_be_bytes();
    bytes
}

/// The number of additional records that a message says to have.
fn additionals(message: &[u8]) -> Option<u16> {
    let (count, _) = message.get(ADDITIONALS..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*count))
}

fn reason(error: u16) -> &'static str {
    match error {
        16 => "it is that of another key (BADSIG)",
        17 => "it does not know the key, or not with this algorithm (BADKEY)",
        18 => "the clocks of both machines are apart (BADTIME)",
        22 => "it is too short (BADTRUNC)",
        _ => "it does not say why",
    }
}

#[cfg(test)]
mod tests;
