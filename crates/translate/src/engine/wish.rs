//! Wishes: what translation wants of the process that it runs in, beside what proxies obey.

use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::Host;

/// A host whose certificate an issuer shall provide, in a Secret that is not there or that the
/// issuer has provided before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wish {
    /// The Secret, as `namespace/name`.
    pub secret: Arc<str>,
    /// The host.
    pub host: Host,
    /// The name of the issuer.
    pub issuer: Box<str>,
    /// The object that says so.
    pub object: ObjectKey,
    /// Whether it is the second certificate for the host: of RSA, beside one of ECDSA.
    pub is_second: bool,
}
