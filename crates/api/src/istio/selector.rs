//! How objects name the workloads, services and gateways that they are for.

use super::Labels;
use super::reading::message;

message! {
    /// The workloads with all of these labels.
    #[derive(Eq)]
    pub struct WorkloadSelector {
        match_labels: Labels = "matchLabels" | "match_labels",
    }
}

message! {
    /// A Service, Gateway or other object that a policy is for.
    #[derive(Eq)]
    pub struct TargetRef {
        /// Empty for the core group.
        group: Box<str> = "group",
        kind: Box<str> = "kind" required,
        name: Box<str> = "name" required,
        /// Only that of the policy itself has an effect in Istio.
        namespace: Box<str> = "namespace",
    }
}

message! {
    /// A port by its number.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub struct PortSelector {
        number: u16 = "number",
    }
}
