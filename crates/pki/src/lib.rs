//! Keys and certificates that Myriad itself makes.
//!
//! **Does** keep certificate authorities and sign short-lived certificates with them.
//! **Knows** X.509 and the calendar, which is an input.
//! **Never** reads a file, a clock or the network, and never prints a key.

mod authority;
mod identity;
mod mesh;
mod roots;
mod succession;

pub use authority::{Authority, AuthorityError, Leaf};
pub use identity::{IDENTITY_BYTES_MAX, Identity, IdentityError};
pub use mesh::{
    Credential, CredentialError, INTERMEDIATES_MAX, LIFETIME_MAX, LIFETIME_MIN, MeshAuthority,
    MeshAuthorityError, REQUEST_BYTES_MAX, Request, SignError, Signed,
};
pub use roots::{OVERLAP, Roots, RootsError, Step, Texts};
pub use succession::{KeptRoot, ROOTS_MAX, Succession};
