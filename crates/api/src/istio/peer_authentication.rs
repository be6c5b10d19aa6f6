//! `security.istio.io` PeerAuthentication.

use super::object::Spec;
use super::reading::{Map, message};
use super::scalar::words;
use super::selector::WorkloadSelector;
use crate::ObjectKind;

message! {
    /// The spec of a PeerAuthentication.
    pub struct PeerAuthenticationSpec {
        /// None means all workloads of the namespace.
        selector: Option<WorkloadSelector> = "selector",
        mtls: Option<MutualTls> = "mtls",
        /// Settings for single ports of the workload, by port number.
        port_level_mtls: Map<MutualTls> = "portLevelMtls" | "port_level_mtls",
    }
}

message! {
    /// Whether peers must present a certificate.
    #[derive(Copy, Eq)]
    pub struct MutualTls {
        mode: MutualTlsMode = "mode",
    }
}

words! {
    /// Whether plain connections are taken.
    pub enum MutualTlsMode {
        /// The mode of the next wider policy.
        Unset = 0 "UNSET",
        Disable = 1 "DISABLE",
        Permissive = 2 "PERMISSIVE",
        Strict = 3 "STRICT",
    }
}

impl Spec for PeerAuthenticationSpec {
    const KIND: ObjectKind = ObjectKind::PeerAuthentication;
}
