//! Whether a password is the one that a hash was made of.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5crypt::md5crypt;
use myriad_model::Users;
use sha_crypt::{PasswordVerifier, ShaCrypt};
use unix_crypt::apr1;

/// The longest password that bcrypt tells from longer ones.
const BCRYPT_BYTES_MAX: usize = 72;

/// Whether a password is right by a hash. It takes long, and no longer than hashes may that are
/// verified by.
pub(super) fn is_right(hash: &str, password: &[u8]) -> bool {
    if Users::check_hash(hash).is_err() {
        return false;
    }
    if hash.starts_with("$2") {
        return is_whole(password) && bcrypt::verify(password, hash).unwrap_or(false);
    }
    if hash.starts_with("$5$") || hash.starts_with("$6$") {
        let sha = ShaCrypt::default();
        return PasswordVerifier::<str>::verify_password(&sha, password, hash).is_ok();
    }
    if let Some(plain) = hash.strip_prefix("{PLAIN}") {
        // Of the same length whatever they are.
        let [own, given] = [plain.as_bytes(), password].map(|it| digest(&SHA256, it));
        return is_same(own.as_ref(), given.as_ref());
    }
    let made = if let Some(rest) = hash.strip_prefix("$apr1$") {
        by_apr1(rest, password)
    } else if let Some(rest) = hash.strip_prefix("$1$") {
        let salt = rest.split('$').next().unwrap_or_default();
        Some(md5crypt(password, salt.as_bytes()))
    } else {
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
        Some(format!("{{SHA}}{}", STANDARD.encode(sum)).into_bytes())
    };
    made.is_some_and(|made| is_same(&made, hash.as_bytes()))
}

/// Whether bcrypt sees all of a password: it knows no more than its first 72 bytes, and what stands
/// behind a NUL may be the password over again.
fn is_whole(password: &[u8]) -> bool {
    password.len() <= BCRYPT_BYTES_MAX && !password.contains(&0)
}

/// The hash of a password with the salt of another.
fn by_apr1(rest: &str, password: &[u8]) -> Option<Vec<u8>> {
    let salt: [u8; 8] = rest.split('$').next()?.as_bytes().try_into().ok()?;
    Some(apr1::to_hash_string(apr1::encode(password, salt), salt))
}

fn is_same(a: &[u8], b: &[u8]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_right;

    /// Made by OpenSSL and by the C library.
    const SECRETS: [&str; 11] = [
        "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
        "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
        "$1$ab$dslkcXxVH.x8LwW1W/oAB/",
        "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
        "$5$rounds=100000$abcdefghijklmnop$WLV9QJJS1pk6hr6.ZDHO2Lynhb4BG3NPu39ZbEgwMVD",
        "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZ\
         N.Pq.H91p5hVO1",
        "$6$rounds=1000$abcd$r2.ruxXy.fi1haF8SbfCP8.URrOuvrx1HJt7o063BaRmwl3JfohPs90TlqDYxm/T8\
         /6dje3xOqEfIlZqXARPG1",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
        "{PLAIN}secret",
    ];

    #[test]
    fn hashes_of_every_kind_are_verified_as_others_make_them() {
        for hash in SECRETS {
            assert!(is_right(hash, b"secret"), "{hash}");
            for other in ["", "Secret", "secret ", "secre", "secret\0"] {
                assert!(!is_right(hash, other.as_bytes()), "{hash}: {other:?}");
            }
        }
        let long = b"a much longer password than sixteen bytes";
        assert!(is_right("$apr1$abcdefgh$Eqv4oIyMsS.tjfvQCJYY1/", long));
        assert!(is_right(
            "$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00",
            b"password"
        ));
    }

    #[test]
    fn bcrypt_takes_no_password_for_another_that_begins_like_it() {
        let hash = |password: &[u8]| bcrypt::hash(password, 4).unwrap();
        let letters = [b'a'; 73];
        let (most, beyond) = (&letters[..72], &letters[..]);
        assert!(is_right(&hash(most), most));
        assert!(!is_right(&hash(most), beyond));
        assert!(!is_right(&hash(beyond), beyond));
        assert!(!is_right(SECRETS[0], b"secret\0secret"));
        assert!(!is_right(&hash(b"secret\0"), b"secret\0"));
    }

    #[test]
    fn what_is_no_hash_admits_nobody() {
        for hash in [
            "",
            "secret",
            "$2y$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
            "$5$rounds=999999999$salt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA",
            "$apr1$x$h9FWgUz3n9YxylKLlR5SQ/",
            "{PLAIN}",
        ] {
            assert!(!is_right(hash, b"secret"), "{hash}");
            assert!(!is_right(hash, b""), "{hash}");
        }
    }
}
