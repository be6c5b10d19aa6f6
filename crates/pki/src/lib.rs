//! Keys and certificates that Myriad itself makes.
//!
//! **Does** keep a certificate authority and sign short-lived certificates with it.
//! **Knows** X.509 and the calendar, which is an input.
//! **Never** reads a file, a clock or the network, and never prints a key.

mod authority;
mod roots;

pub use authority::{Authority, AuthorityError, Leaf};
pub use roots::{OVERLAP, Roots, RootsError, Step, Texts};
