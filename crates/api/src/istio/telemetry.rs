//! `telemetry.istio.io` Telemetry.

use std::time::Duration;

use super::object::Spec;
use super::reading::{Map, message};
use super::scalar::words;
use super::selector::{TargetRef, WorkloadSelector};
use crate::ObjectKind;

message! {
    /// The spec of a Telemetry.
    pub struct TelemetrySpec {
        /// None means all workloads of the namespace.
        selector: Option<WorkloadSelector> = "selector",
        /// The former form of `targetRefs`.
        target_ref: Option<Box<TargetRef>> = "targetRef",
        target_refs: Box<[TargetRef]> = "targetRefs",
        tracing: Box<[Tracing]> = "tracing",
        metrics: Box<[Metrics]> = "metrics",
        access_logging: Box<[AccessLogging]> = "accessLogging" | "access_logging",
    }
    one_of [selector = "selector", target_ref = "targetRef", target_refs = "targetRefs"]
}

words! {
    /// The requests that are meant: those that a workload makes, serves, or both.
    pub enum WorkloadMode {
        ClientAndServer = 0 "CLIENT_AND_SERVER",
        Client = 1 "CLIENT",
        Server = 2 "SERVER",
    }
}

message! {
    /// Selects the requests that a workload makes, serves, or both.
    #[derive(Copy, Eq)]
    pub struct ModeSelector {
        mode: WorkloadMode = "mode",
    }
}

message! {
    /// A provider that the mesh's settings define.
    #[derive(Eq)]
    pub struct ProviderRef {
        name: Box<str> = "name" required,
    }
}

message! {
    /// How requests are traced.
    pub struct Tracing {
        selector: Option<ModeSelector> = "match",
        providers: Box<[ProviderRef]> = "providers",
        /// From 0.0 to 100.0.
        random_sampling_percentage: Option<f64> =
            "randomSamplingPercentage" | "random_sampling_percentage",
        disable_span_reporting: Option<bool> =
            "disableSpanReporting" | "disable_span_reporting",
        custom_tags: Map<CustomTag> = "customTags" | "custom_tags",
        use_request_id_for_trace_sampling: Option<bool> =
            "useRequestIdForTraceSampling" | "use_request_id_for_trace_sampling",
        enable_istio_tags: Option<bool> = "enableIstioTags" | "enable_istio_tags",
        disable_context_propagation: Option<bool> =
            "disableContextPropagation" | "disable_context_propagation",
    }
}

message! {
    /// Where the value of a tag comes from.
    #[derive(Eq)]
    pub struct CustomTag {
        literal: Option<TagText> = "literal",
        environment: Option<TagSource> = "environment",
        header: Option<TagSource> = "header",
        /// A command operator of Envoy's access log.
        formatter: Option<TagText> = "formatter",
    }
    one_of [
        literal = "literal",
        environment = "environment",
        header = "header",
        formatter = "formatter"
    ]
}

message! {
    /// A text that is, or makes, the value.
    #[derive(Eq)]
    pub struct TagText {
        value: Box<str> = "value" required,
    }
}

message! {
    /// A variable or header that has the value.
    #[derive(Eq)]
    pub struct TagSource {
        name: Box<str> = "name" required,
        default_value: Box<str> = "defaultValue" | "default_value",
    }
}

message! {
    /// How requests are counted.
    pub struct Metrics {
        providers: Box<[ProviderRef]> = "providers",
        overrides: Box<[MetricsOverride]> = "overrides",
        reporting_interval: Option<Duration> = "reportingInterval" | "reporting_interval",
    }
}

message! {
    /// A change of some metrics.
    pub struct MetricsOverride {
        selector: Option<MetricSelector> = "match",
        disabled: Option<bool> = "disabled",
        tag_overrides: Map<TagOverride> = "tagOverrides" | "tag_overrides",
    }
}

message! {
    /// The metrics that are meant, of clients or of servers.
    #[derive(Eq)]
    pub struct MetricSelector {
        metric: Option<IstioMetric> = "metric",
        custom_metric: Option<Box<str>> = "customMetric" | "custom_metric",
        mode: WorkloadMode = "mode",
    }
    one_of [metric = "metric", custom_metric = "customMetric"]
}

words! {
    /// A metric that Istio defines.
    pub enum IstioMetric {
        AllMetrics = 0 "ALL_METRICS",
        RequestCount = 1 "REQUEST_COUNT",
        RequestDuration = 2 "REQUEST_DURATION",
        RequestSize = 3 "REQUEST_SIZE",
        ResponseSize = 4 "RESPONSE_SIZE",
        TcpOpenedConnections = 5 "TCP_OPENED_CONNECTIONS",
        TcpClosedConnections = 6 "TCP_CLOSED_CONNECTIONS",
        TcpSentBytes = 7 "TCP_SENT_BYTES",
        TcpReceivedBytes = 8 "TCP_RECEIVED_BYTES",
        GrpcRequestMessages = 9 "GRPC_REQUEST_MESSAGES",
        GrpcResponseMessages = 10 "GRPC_RESPONSE_MESSAGES",
    }
}

message! {
    /// A change of one tag of a metric.
    #[derive(Eq)]
    pub struct TagOverride {
        operation: TagOperation = "operation",
        /// A CEL expression.
        value: Box<str> = "value",
    }
}

words! {
    /// The change to a tag.
    pub enum TagOperation {
        Upsert = 0 "UPSERT",
        Remove = 1 "REMOVE",
    }
}

message! {
    /// Which requests are logged, and where.
    #[derive(Eq)]
    pub struct AccessLogging {
        selector: Option<ModeSelector> = "match",
        providers: Box<[ProviderRef]> = "providers",
        disabled: Option<bool> = "disabled",
        filter: Option<LogFilter> = "filter",
    }
}

message! {
    /// A condition for a line in the log.
    #[derive(Eq)]
    pub struct LogFilter {
        /// A CEL expression.
        expression: Box<str> = "expression",
    }
}

impl Spec for TelemetrySpec {
    const KIND: ObjectKind = ObjectKind::Telemetry;
}
