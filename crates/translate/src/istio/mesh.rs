//! Istio's dialect at sidecars: what a workload may reach, and what is accepted for it.
//!
//! A Service or ServiceEntry is one unit for all sidecars. Of a view it asks little: whether it is
//! imported, and whether the view is of its namespace. So two thousand sidecars of fifty
//! namespaces share what it gives. What is accepted for a workload is one unit for that workload.

use std::sync::Arc;

mod captured;
mod hosts;
mod peers;
mod reachable;
mod scope;
mod sidecar;
mod spoken;
mod workload;

pub use captured::{CaptureKey, claim, translate as translate_captured, translate_elsewhere};
pub use hosts::judge as judge_hosts;
pub use reachable::{EXPORT_TO, exported_to, exports, translate as translate_reachable};
pub use scope::Scope;
pub use sidecar::{judge as judge_sidecar, judge_peers};
pub use spoken::Spoken;
pub use workload::{Workload, translate as translate_workload};

/// What stands for sidecars among the Gateways that a VirtualService is bound to.
pub const GATEWAY: &str = "mesh";

/// The same for hosts that VirtualServices of a namespace name in short. No Gateway is called
/// so, nor any namespace.
pub fn short_gateway(namespace: &str) -> Arc<str> {
    format!("{GATEWAY}:{namespace}").into()
}
