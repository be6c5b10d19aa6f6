//! Settings that Istio's MeshConfig gives: who is asked, and what is recorded.

use std::time::Duration;

use myriad_model::{AccessLog, Provider, Share, TraceProtocol};

/// A provider as the mesh settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshProvider {
    /// The name that policies use for it.
    pub name: Box<str>,
    /// `host` or `namespace/host`.
    pub service: Box<str>,
    /// The port.
    pub port: u16,
    /// The rest; its upstream is found by translation.
    pub provider: Provider,
}

/// The telemetry that Istio's mesh settings ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshTelemetry {
    /// Providers that Telemetry may name, beside those that are always there.
    pub providers: Vec<TelemetryProvider>,
    /// Providers of access logs where nobody names any.
    pub logging: Vec<Box<str>>,
    /// Providers of metrics where nobody names any.
    pub metrics: Vec<Box<str>>,
    /// Providers of tracing where nobody names any.
    pub tracing: Vec<Box<str>>,
    /// The access log that needs no provider.
    pub access_log: Option<AccessLog>,
    /// The share of requests that are traced where nobody says otherwise.
    pub sampled: Share,
}

impl Default for MeshTelemetry {
    fn default() -> Self {
        MeshTelemetry {
            providers: Vec::new(),
            logging: Vec::new(),
            metrics: vec!["prometheus".into()],
            tracing: Vec::new(),
            access_log: None,
            sampled: Share::from_ppm(10_000).unwrap_or(Share::ALL),
        }
    }
}

/// A provider that Telemetry may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryProvider {
    /// The name that Telemetry uses for it.
    pub name: Box<str>,
    /// Its kind, with its settings.
    pub form: ProviderForm,
}

/// A kind of provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderForm {
    /// An access log.
    Log(AccessLog),
    /// Metrics that are read by who wants them.
    Prometheus,
    /// A collector of spans.
    Spans(SpanService),
    /// One that is not honoured, by the name of its field.
    Other(Box<str>),
}

/// A collector of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanService {
    /// `host` or `namespace/host`.
    pub service: Box<str>,
    /// The port.
    pub port: u16,
    /// The protocol that is spoken there.
    pub protocol: TraceProtocol,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// Headers with which spans are sent.
    pub headers: Box<[(Box<str>, Box<str>)]>,
}
