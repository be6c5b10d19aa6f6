//! Pods of a mesh: networks of their own, rules, sidecars, and the real controller behind them.
//!
//! A command takes [`Network`]s for what has no identity, and a [`Mesh`] with its Pods for what
//! has one. Both take root, `unshare`, `nsenter`, `setpriv`, `ip` and `nft`.

pub mod mesh;
mod network;

pub use mesh::{ADMIN_PORT, GATEWAY, Mesh, Pod, SYNC};
pub use network::{Network, network, redirect, words_of_proxy};
