//! Secrets whose owner lets objects of other namespaces use them.

use myriad_api::Object;

use super::claim::EVERYBODY;

/// The annotation of a Secret with the namespaces whose Gateways, DestinationRules and Ingresses
/// may use it.
pub(crate) const CREDENTIAL_NAMESPACES: &str = "myriad.dev/credential-namespaces";

/// The namespaces whose objects may use a Secret, as written.
pub(super) fn lent_to(object: Option<&Object>) -> Option<&str> {
    match object {
        Some(Object::Secret(secret)) => secret.meta.annotation(CREDENTIAL_NAMESPACES),
        _ => None,
    }
}

/// The annotation of an object with the name of the issuer that provides its certificates, and of a
/// Secret with that of the issuer that has provided it.
pub(crate) const ISSUER: &str = "myriad.dev/issuer";

/// The issuer that has provided a Secret; none where somebody else wrote it.
pub(crate) fn issuer_of(object: Option<&Object>) -> Option<&str> {
    match object {
        Some(Object::Secret(secret)) => secret.meta.annotation(ISSUER),
        _ => None,
    }
}

/// Whether namespaces as written have one among them.
pub(super) fn is_among(written: &str, namespace: &str) -> bool {
    let mut names = written.split(',').map(str::trim);
    names.any(|name| name == EVERYBODY || name == namespace)
}

#[cfg(test)]
mod tests {
    use super::is_among;

    #[test]
    fn namespaces_are_parted_by_commas() {
        assert!(is_among("shop", "shop") && is_among("blog, shop ,", "shop"));
        assert!(is_among("*", "shop") && is_among("blog,*", "shop"));
        for written in ["", ",", "sho", "shop2", "shop blog", "s*"] {
            assert!(!is_among(written, "shop"), "{written}");
        }
        assert!(!is_among("blog", "") && !is_among("*.shop", "shop"));
    }
}
