//! Wishes for certificates: which an issuer shall provide, one for a host or two.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{Host, host::Pattern};

use crate::engine::{Reader, Wish};

/// The end of the name of a Secret with the second certificate for its hosts.
const SECOND_END: &str = "-rsa";

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
        is_second: false,
    })
}

/// The Secret of the certificate beside the one that is wished for, where its issuer provides two:
/// the one that the object names, or else the one of the same name with `-rsa` behind it, once the
/// first is there.
pub(crate) fn second_secret(
    reader: &mut Reader<'_>,
    first: &Wish,
    named: Option<&Arc<str>>,
) -> Option<Arc<str>> {
    let is_due = named.is_some() || reader.is_held(&first.secret);
    if !is_due || !reader.gives_pair(&first.issuer) {
        return None;
    }
    let beside = || format!("{}{SECOND_END}", first.secret).into();
    Some(named.cloned().unwrap_or_else(beside))
}

/// The wish for that certificate. It is made once the first is there: an authority has then seen
/// whose the host is, and a host of which that cannot be seen fails once and not twice. For who
/// needs the units of both Secrets.
pub(crate) fn wish_second(
    reader: &mut Reader<'_>,
    first: &Wish,
    secret: &Arc<str>,
) -> Option<Wish> {
    let is_due = reader.is_held(&first.secret);
    let is_wanted = is_due && is_secret(secret) && reader.is_issued(secret);
    is_wanted.then(|| Wish {
        secret: secret.clone(),
        is_second: true,
        ..first.clone()
    })
}

/// The finding about a Secret of that certificate whose name is too long.
pub(crate) fn too_long(first: &Wish, secret: &str) -> Option<Finding> {
    (!is_secret(secret)).then(|| {
        Finding::new(
            Severity::Warning,
            &first.object,
            "",
            format!(
                "has one certificate for {}, although issuer {} provides two: no Secret can have \
                 the name {secret}",
                first.host, first.issuer
            ),
            format!("give Secret {} a shorter name", first.secret),
        )
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
