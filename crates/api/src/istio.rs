//! Istio's API, from its reference for 1.31.
//!
//! Every object is an [`IstioObject`]: what Istio calls its spec, and [`Note`]s of all that was
//! written and is not read. Objects that Istio's own validation refuses as malformed (a required
//! field missing, two of a choice set, a word that is none of an enum) fail to be read. The kinds
//! that restrict access fail softly instead, since a policy that is absent permits: their spec is
//! a `Result`.

pub mod authorization_policy;
pub mod destination_rule;
pub mod extension;
pub(crate) mod frame;
pub mod gateway;
pub mod header;
pub mod note;
mod object;
pub mod peer_authentication;
pub mod proxy_config;
pub(crate) mod reading;
pub mod request_authentication;
pub mod scalar;
pub mod selector;
pub mod service_entry;
mod shared;
pub mod sidecar;
pub mod string_match;
pub mod telemetry;
pub mod virtual_service;

pub use authorization_policy::AuthorizationPolicySpec;
pub use destination_rule::DestinationRuleSpec;
pub use extension::{EnvoyFilterSpec, WasmPluginSpec};
pub use gateway::GatewaySpec;
pub use note::{NOTES_MAX, Note, NoteKind, OBJECT_BYTES_MAX};
pub use object::{IstioObject, Spec};
pub use peer_authentication::PeerAuthenticationSpec;
pub use proxy_config::ProxyConfigSpec;
pub use reading::{Map, SpecProblem};
pub use request_authentication::RequestAuthenticationSpec;
pub use service_entry::{ServiceEntrySpec, WorkloadEntrySpec};
pub use sidecar::SidecarSpec;
pub use string_match::StringMatch;
pub use telemetry::TelemetrySpec;
pub use virtual_service::VirtualServiceSpec;

/// Which ports, protocols, hosts and certificates a gateway serves.
pub type Gateway = IstioObject<GatewaySpec>;
/// Routes of one or more hosts.
pub type VirtualService = IstioObject<VirtualServiceSpec>;
/// How the endpoints of a host are reached, and its subsets.
pub type DestinationRule = IstioObject<DestinationRuleSpec>;
/// A service that the cluster does not know.
pub type ServiceEntry = IstioObject<ServiceEntrySpec>;
/// A workload outside of the cluster.
pub type WorkloadEntry = IstioObject<WorkloadEntrySpec>;
/// The ports that a workload's sidecar accepts, and the hosts that it can reach.
pub type Sidecar = IstioObject<SidecarSpec>;
/// Which tokens are accepted; see the module on `Result`.
pub type RequestAuthentication = IstioObject<Result<RequestAuthenticationSpec, SpecProblem>>;
/// Whether peers must present certificates; see the module on `Result`.
pub type PeerAuthentication = IstioObject<Result<PeerAuthenticationSpec, SpecProblem>>;
/// Rules of who may do what; see the module on `Result`.
pub type AuthorizationPolicy = IstioObject<Result<AuthorizationPolicySpec, SpecProblem>>;
/// Access logs, metrics and traces.
pub type Telemetry = IstioObject<TelemetrySpec>;
/// Settings of the proxy's process.
pub type ProxyConfig = IstioObject<ProxyConfigSpec>;
/// Patches of Envoy's configuration, which mean nothing here.
pub type EnvoyFilter = IstioObject<EnvoyFilterSpec>;
/// WebAssembly filters for Envoy, which mean nothing here.
pub type WasmPlugin = IstioObject<WasmPluginSpec>;

/// A list of names, hosts or other texts.
pub type Names = Box<[Box<str>]>;
/// Labels, or other texts by name.
pub type Labels = Map<Box<str>>;

#[cfg(test)]
mod tests;
