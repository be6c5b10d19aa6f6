//! `networking.istio.io` ProxyConfig.

use super::object::Spec;
use super::reading::message;
use super::selector::WorkloadSelector;
use crate::ObjectKind;

message! {
    /// The spec of a ProxyConfig. Image and environment belong to Istio's own proxy.
    #[derive(Eq)]
    pub struct ProxyConfigSpec {
        /// None means all workloads of the namespace.
        selector: Option<WorkloadSelector> = "selector",
        /// Worker threads; 0 means one per core.
        concurrency: Option<u32> = "concurrency",
    }
    refused ["environmentVariables", "environment_variables", "image"]
}

impl Spec for ProxyConfigSpec {
    const KIND: ObjectKind = ObjectKind::ProxyConfig;
}
