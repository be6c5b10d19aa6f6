//! The identity of a workload: a name in SPIFFE's form, of the trust domain, namespace and account
//! that Kubernetes has attested.

use std::fmt;

/// The longest identity, as an URI, that SPIFFE allows.
pub const IDENTITY_BYTES_MAX: usize = 2_048;

/// The identity of a workload: `spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT`, as
/// Istio writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    uri: String,
    /// Where the namespace and the account begin.
    namespace_start: usize,
    account_start: usize,
}

/// Why something is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A trust domain is lower-case letters, digits, dots, dashes and underscores.
    #[error("the trust domain has to be 1 to 255 characters of a-z, 0-9, '.', '-' and '_'")]
    TrustDomain,
    /// A namespace is a label of DNS.
    #[error("the namespace is no DNS label")]
    Namespace,
    /// An account is a name of DNS.
    #[error("the service account is no DNS name")]
    ServiceAccount,
    /// Another form of URI.
    #[error("an identity has the form spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/SERVICE_ACCOUNT")]
    Form,
}

const SCHEME: &str = "spiffe://";

impl Identity {
    /// An identity of its three parts.
    ///
    /// # Errors
    /// A part that Kubernetes or SPIFFE does not allow.
    pub fn new(
        trust_domain: &str,
        namespace: &str,
        service_account: &str,
    ) -> Result<Identity, IdentityError> {
        if !is_trust_domain(trust_domain) {
            return Err(IdentityError::TrustDomain);
        }
        if !is_label(namespace) {
            return Err(IdentityError::Namespace);
        }
        let is_name = service_account.len() <= 253 && service_account.split('.').all(is_label);
        if !is_name {
            return Err(IdentityError::ServiceAccount);
        }
        let namespace_start = SCHEME.len() + trust_domain.len() + "/ns/".len();
        let account_start = namespace_start + namespace.len() + "/sa/".len();
        Ok(Identity {
            uri: format!("{SCHEME}{trust_domain}/ns/{namespace}/sa/{service_account}"),
            namespace_start,
            account_start,
        })
    }

    /// Reads the URI of a certificate. Only the exact form is one: no port, query, escape, empty
    /// or further segment, so that two texts are never one identity.
    ///
    /// # Errors
    /// Another form, or a part that is not allowed.
    pub fn parse(uri: &str) -> Result<Identity, IdentityError> {
        if uri.len() > IDENTITY_BYTES_MAX {
            return Err(IdentityError::Form);
        }
        let path = uri.strip_prefix(SCHEME).ok_or(IdentityError::Form)?;
        let mut segments = path.split('/');
        let mut next = || segments.next().ok_or(IdentityError::Form);
        let (trust_domain, ns, namespace, sa, account) =
            (next()?, next()?, next()?, next()?, next()?);
        if ns != "ns" || sa != "sa" || segments.next().is_some() {
            return Err(IdentityError::Form);
        }
        Identity::new(trust_domain, namespace, account)
    }

    /// The whole URI.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The domain whose authorities vouch for it.
    pub fn trust_domain(&self) -> &str {
        self.slice(SCHEME.len(), self.namespace_start - "/ns/".len())
    }

    /// The namespace of the workload.
    pub fn namespace(&self) -> &str {
        self.slice(self.namespace_start, self.account_start - "/sa/".len())
    }

    /// The account that the workload runs as.
    pub fn service_account(&self) -> &str {
        self.slice(self.account_start, self.uri.len())
    }

    fn slice(&self, from: usize, to: usize) -> &str {
        self.uri.get(from..to).unwrap_or_default()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

fn is_trust_domain(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    (1..=255).contains(&text.len()) && text.bytes().all(fits)
}

fn is_label(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::{Identity, IdentityError};

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let identity = Identity::new("cluster.local", "shop", "cart.v2").unwrap();
        assert_eq!(identity.uri(), "spiffe://cluster.local/ns/shop/sa/cart.v2");
        let read = Identity::parse(identity.uri()).unwrap();
        assert_eq!(read, identity);
        let parts = (
            read.trust_domain(),
            read.namespace(),
            read.service_account(),
        );
        assert_eq!(parts, ("cluster.local", "shop", "cart.v2"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_identity() {
        let forms = [
            "https://mesh/ns/a/sa/b",
            "spiffe://mesh/ns/a/sa/b/c",
            "spiffe://mesh/ns/a/sa/b/",
            "spiffe://mesh/ns/a",
            "spiffe://mesh/sa/a/ns/b",
            "SPIFFE://mesh/ns/a/sa/b",
        ];
        for uri in forms {
            assert_eq!(Identity::parse(uri), Err(IdentityError::Form), "{uri}");
        }
        let parts = [
            ("spiffe:///ns/a/sa/b", IdentityError::TrustDomain),
            ("spiffe://mesh:1/ns/a/sa/b", IdentityError::TrustDomain),
            ("spiffe://Mesh/ns/a/sa/b", IdentityError::TrustDomain),
            ("spiffe://mesh/ns//sa/b", IdentityError::Namespace),
            ("spiffe://mesh/ns/a%2F/sa/b", IdentityError::Namespace),
            ("spiffe://mesh/ns/a/sa/b?c", IdentityError::ServiceAccount),
            ("spiffe://mesh/ns/a/sa/-b", IdentityError::ServiceAccount),
        ];
        for (uri, error) in parts {
            assert_eq!(Identity::parse(uri), Err(error), "{uri}");
        }
        let long = format!("spiffe://mesh/ns/a/sa/{}", "b".repeat(2_048));
        assert_eq!(Identity::parse(&long), Err(IdentityError::Form));
    }
}
