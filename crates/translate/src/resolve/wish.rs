//! Wishes for certificates: which an issuer shall provide.

use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::{Host, host::Pattern};

use crate::engine::{Reader, Wish};

/// The longest name of a Secret.
const NAME_BYTES_MAX: usize = 253;

/// The wish for the certificate of a host in a Secret, of an issuer that is there. None where
/// somebody else has written the Secret, and where the host or the Secret has no name that may be
/// in a certificate or of an object. For who needs the unit of that Secret.
pub(crate) fn wish(
    reader: &mut Reader<'_>,
    host: &Host,
    secret: &Arc<str>,
    issuer: Box<str>,
    object: &ObjectKey,
) -> Option<Wish> {
    let is_name = matches!(host.pattern(), Pattern::Exact(_) | Pattern::OneLabel(_));
    let is_wanted = is_name && is_secret(secret) && reader.is_issued(secret);
    is_wanted.then(|| Wish {
        secret: secret.clone(),
        host: host.clone(),
        issuer,
        object: object.clone(),
    })
}

/// Whether a `namespace/name` is one that a Secret can have.
fn is_secret(id: &str) -> bool {
    let is_ours = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_name = |name: &str| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(is_ours)
            && !name.starts_with('.')
    };
    let parts = id.split_once('/');
    parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn a_secret_has_a_name_that_no_path_is_made_of() {
        for id in ["shop/web", "shop/a.example-1"] {
            assert!(is_secret(id), "{id}");
        }
        let long = format!("shop/{}", "a".repeat(254));
        for id in [
            "shop/", "/a", "shop", "shop/a/b", "shop/..", "shop/.a", "shop/A", &long,
        ] {
            assert!(!is_secret(id), "{id}");
        }
    }
}
