//! The objects that people write, and what goes back to people.
//!
//! **Does** hold the Kubernetes kinds that Myriad understands as trimmed serde types, and the
//! [`Finding`]s that answer them.
//! **Knows** the field names, types and hard limits of those kinds, and nothing of their meaning.
//! **Never** reads a file, a clock or a socket, and never sees a resource of the proxy.

pub mod change;
pub mod config_map;
pub mod endpoint_slice;
pub mod finding;
pub mod gateway;
pub mod host_proof;
pub mod ingress;
pub mod issuer;
pub mod istio;
pub mod kind;
pub mod meta;
pub mod namespace;
pub mod object;
pub mod on_demand;
pub mod order;
pub mod pod;
pub mod secret;
pub mod service;

pub use change::{Batch, Change, Report};
pub use config_map::ConfigMap;
pub use endpoint_slice::{Conditions, Endpoint, EndpointPort, EndpointSlice};
pub use finding::{Finding, Place, Severity, one_line};
pub use host_proof::HostProof;
pub use ingress::{
    BackendPort, Ingress, IngressBackend, IngressClass, IngressPath, IngressRule, IngressTls,
    PathType,
};
pub use issuer::{Issuer, IssuerSpec};
pub use kind::ObjectKind;
pub use meta::Meta;
pub use namespace::Namespace;
pub use object::{Object, ObjectKey, ReadOne};
pub use on_demand::OnDemand;
pub use order::{Order, OrderAnswer};
pub use pod::{Owner, Pod};
pub use secret::{IssuerKeys, KeyDer, Secret, SecretProblem, TlsPair, TrustDer};
pub use service::{Service, ServicePort, TargetPort};
