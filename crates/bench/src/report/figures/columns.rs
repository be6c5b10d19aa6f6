//! The columns of tables: heads, and where the figure stands in an object.

use crate::report::plan::{
    ACTIVATION, EGRESS, FLEET, GATEWAY, LATENCY, PEERS, ROUTES, SERVICES, SOAK,
};

/// Heads and paths.
type Columns = &'static [(&'static str, &'static str)];

/// The columns of an experiment.
pub(super) fn of(id: &str) -> Columns {
    match id {
        ACTIVATION => ACTIVATION_COLUMNS,
        GATEWAY => GATEWAY_COLUMNS,
        PEERS => PEERS_COLUMNS,
        LATENCY => LATENCY_COLUMNS,
        EGRESS => EGRESS_COLUMNS,
        SERVICES => SERVICES_COLUMNS,
        ROUTES => ROUTES_COLUMNS,
        SOAK => SOAK_COLUMNS,
        FLEET => FLEET_COLUMNS,
        _ => &[],
    }
}

const ACTIVATION_COLUMNS: Columns = &[
    ("domains", "domains"),
    ("p50, ms", "activation_ms.p50"),
    ("p99, ms", "activation_ms.p99"),
    ("max, ms", "activation_ms.max"),
    ("samples", "activation_ms.samples"),
    ("half load, 1/s", "live_at_half.rps"),
    ("p50 there, ms", "live_at_half.activation_ms.p50"),
    ("p99 there, ms", "live_at_half.activation_ms.p99"),
    ("units", "units_translated"),
    ("resources", "resources_changed"),
    ("bytes sent", "bytes_per_proxy"),
    ("MiB", "rss_mib"),
    ("start, s", "start_s"),
    ("others idle p99, ms", "live.p99_idle_ms"),
    ("during", "live.p99_during_ms"),
    ("errors", "live.errors"),
];

const GATEWAY_COLUMNS: Columns = &[
    ("filters", "mode"),
    ("cores", "cores"),
    ("domains", "domains"),
    ("paths", "paths"),
    ("1/s", "rps"),
    ("Envoy", "peer_rps"),
    ("p50, ms", "p50_ms"),
    ("Envoy", "peer_p50_ms"),
    ("p90, ms", "p90_ms"),
    ("Envoy", "peer_p90_ms"),
    ("p99, ms", "p99_ms"),
    ("Envoy", "peer_p99_ms"),
    ("CPU ms/1000", "cpu_ms_per_1000"),
    ("Envoy", "peer_cpu_ms_per_1000"),
    ("MiB", "rss_mib"),
    ("Envoy", "peer_rss_mib"),
    ("errors", "errors"),
    ("Envoy", "peer_errors"),
];

const PEERS_COLUMNS: Columns = &[
    ("work", "work"),
    ("variant", "variant"),
    ("connections", "connections"),
    ("peer", "peer"),
    ("CPU, µs", "cpu_us_per_request"),
    ("peer", "peer_cpu_us_per_request"),
    ("ratio", "ratio.median"),
    ("1/s", "rps"),
    ("peer", "peer_rps"),
    ("+p50, µs", "added_p50_us"),
    ("peer", "peer_added_p50_us"),
    ("+p90, µs", "added_p90_us"),
    ("peer", "peer_added_p90_us"),
    ("errors", "errors"),
    ("peer", "peer_errors"),
];

const LATENCY_COLUMNS: Columns = &[
    ("records", "variant"),
    ("protocol", "protocol"),
    ("answer, B", "bytes"),
    ("connections", "connections"),
    ("1/s", "rps"),
    ("jitter", "jitter"),
    ("direct p50, ms", "baseline_p50_ms"),
    ("p90", "baseline_p90_ms"),
    ("p99", "baseline_p99_ms"),
    ("+p50, ms", "added_p50_ms"),
    ("Envoy", "peer_added_p50_ms"),
    ("+p90, ms", "added_p90_ms"),
    ("Envoy", "peer_added_p90_ms"),
    ("+p99, ms", "added_p99_ms"),
    ("Envoy", "peer_added_p99_ms"),
    ("CPU ms/1000", "cpu_ms_per_1000"),
    ("Envoy", "peer_cpu_ms_per_1000"),
    ("MiB", "rss_mib"),
    ("Envoy", "peer_rss_mib"),
    ("errors", "errors"),
];

const EGRESS_COLUMNS: Columns = &[
    ("case", "way"),
    ("clients", "clients"),
    ("1/s", "tps"),
    ("p50, ms", "p50_ms"),
    ("p90, ms", "p90_ms"),
    ("p99, ms", "p99_ms"),
    ("CPU ms/1000", "cpu_ms_per_1000"),
    ("sidecar", "sidecar_cpu_ms_per_1000"),
    ("gateway", "gateway_cpu_ms_per_1000"),
];

const SERVICES_COLUMNS: Columns = &[
    ("service", "service"),
    ("replicas", "replicas"),
    ("requests", "requests"),
    ("rows", "rows"),
    ("1/s", "rps"),
    ("p50, ms", "p50_ms"),
    ("p90, ms", "p90_ms"),
    ("p99, ms", "p99_ms"),
    ("CPU ms/1000", "cpu_ms_per_1000"),
    ("MiB", "rss_mib"),
    ("errors", "errors"),
];

const ROUTES_COLUMNS: Columns = &[
    ("scenario", "scenario"),
    ("times", "iterations"),
    ("requests", "requests"),
    ("errors", "errors"),
    ("percent", "errors_percent"),
    ("wrong answers", "wrong_answers"),
    ("errors until, ms", "errors_until_ms.max"),
    ("back after, ms", "back_after_ms.p50"),
    ("p50, ms", "p50_ms"),
    ("p99, ms", "p99_ms"),
    ("max, ms", "max_ms"),
];

const SOAK_COLUMNS: Columns = &[
    ("minutes", "minutes"),
    ("requests", "requests"),
    ("changes", "changes"),
    ("begin, MiB", "rss_begin_mib"),
    ("end, MiB", "rss_end_mib"),
    ("most, MiB", "rss_max_mib"),
    ("slope, MiB/h", "slope_mib_per_hour"),
    ("its error", "slope_error_mib_per_hour"),
    ("errors", "errors"),
];

const FLEET_COLUMNS: Columns = &[
    ("gateways", "proxies"),
    ("sidecars", "sidecars"),
    ("of them processes", "processes"),
    ("controllers", "controllers"),
    ("services", "services"),
    ("join, s", "join_s"),
    ("last p50, ms", "changes.last_proxy_ms.p50"),
    ("last p99, ms", "changes.last_proxy_ms.p99"),
    ("CPU ms/change", "changes.cpu_ms_per_change"),
    ("bytes/proxy", "changes.bytes_per_proxy"),
    ("in step p50, ms", "endpoint_changes.in_step_ms.p50"),
    ("in step p99, ms", "endpoint_changes.in_step_ms.p99"),
    ("vCPU of changes", "endpoint_changes.vcpu"),
    ("bytes/change", "endpoint_changes.bytes_per_change"),
    ("vCPU at rest", "rest.vcpu"),
    ("restart, s", "restart.settled_s"),
    ("MiB, largest", "rss_mib"),
    ("leader: sessions", "by_controller.0.sessions"),
    ("CPU ms/change", "by_controller.0.cpu_ms_per_change"),
    ("bytes/change", "by_controller.0.bytes_per_change"),
    ("MiB", "by_controller.0.rss_mib"),
    ("second: sessions", "by_controller.1.sessions"),
    ("CPU ms/change", "by_controller.1.cpu_ms_per_change"),
    ("bytes/change", "by_controller.1.bytes_per_change"),
    ("MiB", "by_controller.1.rss_mib"),
    ("third: sessions", "by_controller.2.sessions"),
    ("CPU ms/change", "by_controller.2.cpu_ms_per_change"),
    ("bytes/change", "by_controller.2.bytes_per_change"),
    ("MiB", "by_controller.2.rss_mib"),
    ("a process: MiB", "whole_sidecars.rss_mib"),
    ("CPU ms/change", "whole_sidecars.cpu_ms_per_change"),
];
