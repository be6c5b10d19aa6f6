//! Keys and certificates that Myriad itself makes.
//!
//! **Does** keep certificate authorities and sign short-lived certificates with them; obtain
//! certificates of public authorities by ACME.
//! **Knows** X.509, ACME and the calendar, which is an input.
//! **Never** reads a file or a clock, makes a connection itself, or prints a key.

pub mod acme;
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
