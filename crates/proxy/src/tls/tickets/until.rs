//! The end of a session: it is resumed no longer than the certificates are valid by which its
//! client was believed, however often it is resumed.
//!
//! The library calls the verifier, and whatever opens a ticket and makes the next one, within the
//! steps of a handshake, and tells none of them of the others. The end that they agree on is kept
//! with the handshake, and is the thread's for the time of a step.

use std::cell::Cell;

use rustls::pki_types::{CertificateDer, UnixTime};

use crate::net::chain;

/// The end of a session that nobody may resume.
const NEVER: i64 = i64::MIN;

thread_local! {
    /// Without a step there is no session that may be resumed.
    static UNTIL: Cell<i64> = const { Cell::new(NEVER) };
}

/// Calls a step of a handshake whose session may be resumed until then, in seconds since the epoch,
/// and no longer than the step says.
pub fn around(until: &mut i64, step: &mut dyn FnMut()) {
    UNTIL.set(*until);
    step();
    *until = UNTIL.replace(NEVER);
}

/// The last second in which the session of this step may be resumed.
pub fn get() -> i64 {
    UNTIL.get()
}

/// Lets the session of this step be resumed until then at most.
pub fn limit(until: i64) {
    UNTIL.set(UNTIL.get().min(until));
}

/// The last second in which a chain is valid that is valid at a time: a certificate beside the
/// first that has ended has led nowhere. One that cannot be read is valid at no time.
pub fn end_of(leaf: &CertificateDer<'_>, issuers: &[CertificateDer<'_>], now: UnixTime) -> i64 {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let ends = issuers.iter().filter_map(chain::end_of);
    let ends = ends.filter(|it| *it >= now);
    ends.fold(chain::end_of(leaf).unwrap_or(NEVER), i64::min)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use rustls::pki_types::{CertificateDer, UnixTime};

    use super::{NEVER, around, end_of, get, limit};

    const NOW: u64 = 1_800_000_000;

    /// A certificate that ends so many seconds after the epoch.
    fn ending(seconds: u64) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_chain_ends_with_the_first_of_its_certificates_that_had_not_ended() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
        let leaf = ending(NOW + 100);
        let [sooner, later, ended] = [NOW + 50, NOW + 200, NOW - 1].map(ending);
        let end = |issuers: &[CertificateDer<'_>]| end_of(&leaf, issuers, now);
        assert_eq!(end(&[]), 1_800_000_100);
        assert_eq!(end(&[later.clone(), ended.clone()]), 1_800_000_100);
        assert_eq!(end(&[later, sooner, ended]), 1_800_000_050);
        let broken = CertificateDer::from(&b"\x30\x00"[..]);
        assert_eq!(end_of(&broken, &[leaf], now), NEVER);
    }

    #[test]
    fn steps_of_one_handshake_know_what_was_said_and_others_do_not() {
        let (mut one, mut other) = (i64::MAX, i64::MAX);
        around(&mut one, &mut || limit(7));
        assert_eq!(get(), NEVER);
        around(&mut other, &mut || assert_eq!(get(), i64::MAX));
        around(&mut one, &mut || {
            limit(9);
            assert_eq!(get(), 7);
        });
        assert_eq!((one, other), (7, i64::MAX));
    }
}
