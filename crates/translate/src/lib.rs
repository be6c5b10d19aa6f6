//! Translation: objects in; resources, findings and counts of work out.
//!
//! **Does** turn changed objects into changed resources and findings, by running again only the
//! keyed functions (units) that read what changed.
//! **Knows** what every field and annotation of every dialect means, and every default,
//! precedence and conflict.
//! **Never** fails, reads a clock, waits, or touches a unit that did not read what changed.

mod bounds;
mod certificate;
mod engine;
mod host;
mod ingress;
mod istio;
mod limit;
mod output;
mod ownership;
mod regex;
mod settings;
mod trust;
mod upstream;
mod view;
mod workload_names;

pub use bounds::{Bounds, Holding};
pub use engine::{Engine, FindingsChange, Outcome, TooManyViews, Usage, VIEWS_MAX, Work};
pub use istio::provider::MeshProvider;
pub use istio::telemetry::{self, MeshTelemetry, ProviderForm, SpanService, TelemetryProvider};
pub use regex::bytes as regex_bytes;
pub use settings::{CatchAll, GatewayPorts, HostSharing, Settings};
pub use view::{MAIN, Role, View};
pub use workload_names::workload_names;
