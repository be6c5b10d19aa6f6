//! The world of the end-to-end stories.
//!
//! **Does** start the same app that the binary runs, on port 0 and a directory of its own, with
//! backends that say what reached them and real clients that ask.
//! **Knows** the app, certificates, and the command lines of the clients.
//! **Never** reaches past the doors that a user has: files in, sockets out.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may read a clock and start tasks"
)]

pub mod acme;
pub mod ask;
pub mod authority;
pub mod backend;
pub mod browser;
pub mod catalogue;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod dashboards;
pub mod document;
pub mod gate;
pub mod issuer;
pub mod istio;
pub mod objects;
pub mod openid;
pub mod prometheus;
pub mod shaker;
pub mod world;

pub use acme::CertificateAuthority;
pub use backend::Backend;
pub use client::{Answer, Curl};
pub use myriad_lab::name_server::{self, NameServer};
pub use objects::Site;
pub use shaker::Shaker;
pub use world::World;
