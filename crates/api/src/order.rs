//! An order of a certificate that is under way. Nobody writes one: the process itself makes them,
//! so that the answers to an authority's challenges take the way of all objects.

use crate::Meta;

/// An order, which bears the name of the Secret that its certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Key and age.
    pub meta: Meta,
    /// The answers to the challenges of an authority.
    pub answers: Box<[OrderAnswer]>,
}

/// An answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderAnswer {
    /// The host that it is about, in lower case.
    pub host: Box<str>,
    /// Whether it is given in a handshake (TLS-ALPN-01), and not over HTTP (HTTP-01).
    pub by_tls: bool,
    /// The token.
    pub token: Box<str>,
    /// The key authorization.
    pub text: Box<str>,
}
