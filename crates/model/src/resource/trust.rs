//! The means to verify others: the authorities of a peer's certificate, or users and the hashes of
//! their passwords.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;

/// The most certificates and the most revocation lists of one trust.
pub const TRUST_PARTS_MAX: usize = 1_024;

/// The most authorities of one subject in a trust, of different keys; those behind verify nobody.
/// A verifier tries the key of each whose subject a certificate names as its issuer.
pub const TRUST_SUBJECT_MAX: usize = 4;

/// Certificates of authorities and their revocation lists, or else users. Whoever names a trust
/// that is not there, that cannot be read, or that is of the other sort, verifies nobody and so
/// admits nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Certificates of authorities in DER; at most [`TRUST_PARTS_MAX`], and none where there are
    /// users.
    pub roots: Box<[Bytes]>,
    /// Revocation lists (RFC 5280, section 5) in DER; at most [`TRUST_PARTS_MAX`]. With any,
    /// a certificate whose authority has none here is refused.
    pub crls: Box<[Bytes]>,
    /// The users whose passwords are verified; none where there are authorities.
    pub users: Users,
}

/// Users and the hashes of their passwords. It has no way to be printed or serialised but the wire
/// form.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(Box<[(Box<str>, Box<str>)]>);

/// Why proxies verify nobody by the hash of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHash {
    /// No proxy knows the kind.
    #[error("is of a kind that is not supported")]
    Unknown,
    /// It is not of the form that its kind has, so that no password has it.
    #[error("is not of the form that hashes of its kind have")]
    Malformed,
    /// Verifying by it would take too long.
    #[error("takes too long to verify: bcrypt's cost is at most 12, and rounds are at most 100000")]
    Costly,
}

impl Users {
    /// The most users of one trust.
    pub const MAX: usize = 10_000;

    /// The highest cost of a hash of bcrypt: 2^12 rounds, 200 ms.
    const COST_MAX: u32 = 12;

    /// The most rounds of a hash of SHA-crypt.
    const ROUNDS_MAX: u32 = 100_000;

    /// The longest password that is verified, in bytes: some hashes cost as much more as it is
    /// longer.
    pub const PASSWORD_BYTES_MAX: usize = 256;

    /// Names and hashes; of a name that comes twice the first counts.
    pub fn new(mut list: Vec<(Box<str>, Box<str>)>) -> Self {
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        list.dedup_by(|(later, _), (first, _)| later == first);
        Users(list.into())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hash of a user's password.
    pub fn hash_of(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name));
        self.0.get(at.ok()?).map(|(_, hash)| &**hash)
    }

    /// The hash of one user or another, by any number.
    pub fn hash_at(&self, number: u64) -> Option<&str> {
        let count = u64::try_from(self.0.len()).ok().filter(|it| *it > 0)?;
        let at = usize::try_from(number % count).ok()?;
        self.0.get(at).map(|(_, hash)| &**hash)
    }

    /// All names and hashes, for sending them.
    pub fn expose(&self) -> &[(Box<str>, Box<str>)] {
        &self.0
    }

    /// Looks whether proxies verify by a hash: what it costs is known from its text.
    ///
    /// # Errors
    /// Why they do not.
    pub fn check_hash(hash: &str) -> Result<(), BadHash> {
        let of_kind = |starts: &[&str]| starts.iter().find_map(|it| hash.strip_prefix(it));
        if let Some(rest) = of_kind(&["$2a$", "$2b$", "$2y$"]) {
            return check_bcrypt(rest);
        }
        if let Some(rest) = of_kind(&["$5$"]) {
            return check_rounds(rest, 43, FOUR_BITS);
        }
        if let Some(rest) = of_kind(&["$6$"]) {
            return check_rounds(rest, 86, TWO_BITS);
        }
        let is_good = if let Some(rest) = of_kind(&["$apr1$"]) {
            is_salted(rest, 8..=8, 22, TWO_BITS)
        } else if let Some(rest) = of_kind(&["$1$"]) {
            is_salted(rest, 1..=8, 22, TWO_BITS)
        } else if let Some(rest) = of_kind(&["{SHA}"]) {
            is_sha1(rest)
        } else if let Some(rest) = of_kind(&["{PLAIN}"]) {
            (1..=Users::PASSWORD_BYTES_MAX).contains(&rest.len())
        } else {
            return Err(BadHash::Unknown);
        };
        is_good.then_some(()).ok_or(BadHash::Malformed)
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({} hidden)", self.0.len())
    }
}

/// The cost in two digits, and salt and sum together.
fn check_bcrypt(rest: &str) -> Result<(), BadHash> {
    let (cost, salted) = rest.split_once('$').ok_or(BadHash::Malformed)?;
    let digits = Some(cost).filter(|it| it.len() == 2 && it.bytes().all(|b| b.is_ascii_digit()));
    let cost: Option<u32> = digits.and_then(|it| it.parse().ok());
    match cost.ok_or(BadHash::Malformed)? {
        0..4 => Err(BadHash::Malformed),
        cost if cost > Users::COST_MAX => Err(BadHash::Costly),
        _ if is_bcrypt(salted) => Ok(()),
        _ => Err(BadHash::Malformed),
    }
}

/// Whether a text is the 16 bytes of a salt and the 23 of a sum, each in letters whose last one has
/// bits to spare.
fn is_bcrypt(salted: &str) -> bool {
    const OF_SALT: &[u8] = b".Oeu";
    const OF_SUM: &[u8] = b".CGKOSWaeimquy26";
    let Some((salt, sum)) = salted.split_at_checked(22) else {
        return false;
    };
    sum.len() == 31
        && salted.bytes().all(is_crypt)
        && ends_in(salt, OF_SALT)
        && ends_in(sum, OF_SUM)
}

/// Whether a text is 20 bytes in base64.
fn is_sha1(text: &str) -> bool {
    const LAST: &[u8] = b"AEIMQUYcgkosw048";
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    text.strip_suffix('=').is_some_and(|letters| {
        letters.len() == 27 && letters.bytes().all(is_base64) && ends_in(letters, LAST)
    })
}

/// The last letters of sums that have two bits left for theirs.
const TWO_BITS: &[u8] = b"./01";

/// The last letters of sums that have four.
const FOUR_BITS: &[u8] = b"./0123456789ABCD";

/// Whether the last letter of a text is one of these: whatever bits are to spare in it are zero in
/// all hashes that are made.
fn ends_in(text: &str, letters: &[u8]) -> bool {
    let last = text.bytes().next_back();
    last.is_some_and(|last| letters.contains(&last))
}

/// The rounds, where there are any, then salt and sum.
fn check_rounds(rest: &str, sum: usize, last: &[u8]) -> Result<(), BadHash> {
    let mut salted = rest;
    if let Some(rounds) = rest.strip_prefix("rounds=") {
        let (rounds, behind) = rounds.split_once('$').ok_or(BadHash::Malformed)?;
        match rounds.parse::<u32>() {
            Ok(1_000..=Users::ROUNDS_MAX) => salted = behind,
            Ok(0..1_000) => return Err(BadHash::Malformed),
            Ok(_) => return Err(BadHash::Costly),
            Err(_) => return Err(BadHash::Malformed),
        }
    }
    let is_good = is_salted(salted, 1..=16, sum, last);
    is_good.then_some(()).ok_or(BadHash::Malformed)
}

/// Whether a text is a salt and a sum of these lengths, which ends in one of these letters.
fn is_salted(text: &str, salts: RangeInclusive<usize>, length: usize, last: &[u8]) -> bool {
    text.split_once('$').is_some_and(|(salt, sum)| {
        let is_crypt = salt.bytes().chain(sum.bytes()).all(is_crypt);
        salts.contains(&salt.len()) && sum.len() == length && is_crypt && ends_in(sum, last)
    })
}

/// Whether a byte is one of those that salts and sums are written with.
fn is_crypt(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/')
}

#[cfg(test)]
mod tests {
    use super::{BadHash, Users};

    #[test]
    fn what_a_hash_costs_is_bounded_before_anybody_verifies_by_it() {
        let bcrypt = "abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
        let sum = "0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
        for (hash, told) in [
            (format!("$2y$10${bcrypt}"), Ok(())),
            (format!("$2a$12${bcrypt}"), Ok(())),
            (format!("$2b$13${bcrypt}"), Err(BadHash::Costly)),
            (format!("$2b$31${bcrypt}"), Err(BadHash::Costly)),
            (format!("$2b$03${bcrypt}"), Err(BadHash::Malformed)),
            (format!("$2b$1${bcrypt}"), Err(BadHash::Malformed)),
            (format!("$2b$10${bcrypt}x"), Err(BadHash::Malformed)),
            (format!("$2x$10${bcrypt}"), Err(BadHash::Unknown)),
            (format!("$5$saltsalt${sum}"), Ok(())),
            (format!("$5$rounds=100000$salt${sum}"), Ok(())),
            (format!("$5$rounds=100001$salt${sum}"), Err(BadHash::Costly)),
            (format!("$5$rounds=999$salt${sum}"), Err(BadHash::Malformed)),
            (
                format!("$5$rounds=99999999999$salt${sum}"),
                Err(BadHash::Malformed),
            ),
            (format!("$6$saltsalt${sum}"), Err(BadHash::Malformed)),
            ("$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00".to_owned(), Ok(())),
            (
                "$apr1$short$eIMz/iKDkbtys/uU7LEK00".to_owned(),
                Err(BadHash::Malformed),
            ),
            ("$1$ab$dslkcXxVH.x8LwW1W/oAB/".to_owned(), Ok(())),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".to_owned(), Ok(())),
            ("{SHA}5en6".to_owned(), Err(BadHash::Malformed)),
            ("{PLAIN}secret".to_owned(), Ok(())),
            ("{PLAIN}".to_owned(), Err(BadHash::Malformed)),
            ("rl0uE7ktq/6zU".to_owned(), Err(BadHash::Unknown)),
            (String::new(), Err(BadHash::Unknown)),
        ] {
            assert_eq!(Users::check_hash(&hash), told, "{hash}");
        }
    }

    #[test]
    fn what_no_password_has_is_no_hash() {
        let sum = "0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5s";
        let long = "a".repeat(Users::PASSWORD_BYTES_MAX + 1);
        for hash in [
            // Letters with bits beyond those of salt and sum.
            "$2y$10$abcdefghijklmnopqrstuv2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW".to_owned(),
            "$2y$10$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrX".to_owned(),
            format!("$5$saltsalt${sum}E"),
            format!("$6$saltsalt${}{}2", sum, "a".repeat(43)),
            "$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK02".to_owned(),
            "$1$ab$dslkcXxVH.x8LwW1W/oABz".to_owned(),
            "{SHA}5en6G6MezRroT3XKqkdPOmY/BfR=".to_owned(),
            "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQA".to_owned(),
            "{SHA}5en6G6MezRroT3XKqkdPOmY/Bf==".to_owned(),
            // No password is as long.
            format!("{{PLAIN}}{long}"),
        ] {
            let told = Users::check_hash(&hash);
            assert_eq!(told, Err(BadHash::Malformed), "{hash}");
        }
    }

    #[test]
    fn of_a_name_that_comes_twice_the_first_hash_counts_and_none_is_printed() {
        let list = [("b", "1"), ("a", "2"), ("b", "3")];
        let users = Users::new(list.map(|(name, hash)| (name.into(), hash.into())).into());
        assert_eq!(users.len(), 2);
        assert_eq!(users.hash_of("b"), Some("1"));
        assert_eq!(users.hash_of("c"), None);
        assert_eq!(users.hash_at(u64::MAX), Some("1"));
        assert_eq!(Users::default().hash_at(7), None);
        assert_eq!(format!("{users:?}"), "Users(2 hidden)");
    }
}
