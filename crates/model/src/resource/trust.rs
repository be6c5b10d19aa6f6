//! The authorities that a peer's certificate is verified against.

use bytes::Bytes;

/// The most certificates and the most revocation lists of one trust.
pub const TRUST_PARTS_MAX: usize = 1_024;

/// Certificates of authorities and their revocation lists. Whoever names a trust that is not
/// there, or that cannot be read, verifies nobody and so admits nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Certificates of authorities in DER; never empty, at most [`TRUST_PARTS_MAX`].
    pub roots: Box<[Bytes]>,
    /// Revocation lists (RFC 5280, section 5) in DER; at most [`TRUST_PARTS_MAX`]. With any,
    /// a certificate whose authority has none here is refused.
    pub crls: Box<[Bytes]>,
}
