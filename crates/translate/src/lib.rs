//! Translation: objects in; resources, findings and counts of work out.
//!
//! **Does** turn changed objects into changed resources and findings, by running again only the
//! keyed functions (units) that read what changed.
//! **Knows** what every field and annotation of every dialect means, and every default,
//! precedence and conflict.
//! **Never** fails, reads a clock, waits, or touches a unit that did not read what changed.

mod dialect;
mod engine;
mod limit;
pub mod mesh_config;
mod regex;
mod resolve;
mod settings;
mod store;
mod view;
mod workload_names;

pub use dialect::acme::issuer::{directory_named, is_mail_address};
pub use dialect::istio::telemetry;
pub use engine::{
    AuthorityTerms, Claimed, ClaimsChange, Difference, Engine, FindingsChange, HashTerms,
    IssuerSecret, IssuerTerms, KeyTerms, LateClaims, MovedLabel, Outcome, PortSpeech, ProofTerms,
    Rival, SolverTerms, StatedIssuer, TooManyViews, Usage, VIEWS_MAX, Wish, Work,
};
pub use regex::bytes as regex_bytes;
pub use resolve::proof::{proof_record, proof_text};
pub use settings::{
    Allotment, BadEntry, Bounds, CatchAll, CertManager, GATEWAY_CONTROLLER, GatewayCredentials,
    GatewayPorts, Holding, HostList, HostSharing, Hsts, MeshProvider, MeshTelemetry, ProviderForm,
    ServiceExports, Settings, SpanService, TelemetryProvider, Tenants, Unlisted,
};
pub use view::{GATEWAY_NAME, MAIN, Role, VIEW_LABEL_BYTES_MAX, VIEW_LABELS_MAX, View};
pub use workload_names::workload_names;
