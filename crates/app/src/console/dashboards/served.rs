//! Panels about how a process is, how soon changes are served, and what is served.

use crate::console::panels::Wanted::Is;
use crate::console::panels::{
    Dashboard, Panel, Reading, Unit, Wanted, all, level, line, quantile, rate, rate_of, some,
};

const REQUESTS: &str = "myriad_requests_total";
const DURATIONS: &str = "myriad_request_duration_seconds_bucket";
const ACTIVATION_BUCKETS: &str = "myriad_activation_seconds_bucket";
const LIVE_BUCKETS: &str = "myriad_live_seconds_bucket";
const COMMITS: &str = "myriad_control_commits_total";
const HELD: &str = "myriad_held_bytes";
const ENDPOINTS: &str = "myriad_upstream_connections_total";
const OVERFLOWS: &str = "myriad_upstream_overflows_total";
const RATES: &str = "myriad_rate_limits_total";
const SHARES: &str = "myriad_fair_share_refused_total";
const STREAMS: &str = "myriad_streams_total";
const STREAM_BYTES: &str = "myriad_stream_bytes_total";

/// How the process is.
pub(super) const FLEET: Dashboard = Dashboard {
    name: "fleet",
    title: "Process",
    panels: &[
        Panel {
            title: "Proxies connected",
            unit: Unit::Plain("proxies"),
            lines: &[level("connected", "myriad_sync_proxies")],
        },
        Panel {
            title: "Proxies behind",
            unit: Unit::Plain("proxies"),
            lines: &[level("behind", "myriad_proxies_behind")],
        },
        Panel {
            title: "Open connections",
            unit: Unit::Plain("connections"),
            lines: &[level("open", "myriad_connections")],
        },
        Panel {
            title: "Requests",
            unit: Unit::PerSecond,
            lines: &[rate("all", REQUESTS)],
        },
        Panel {
            title: "Processor",
            unit: Unit::Plain("processors"),
            lines: &[rate("in use", "process_cpu_seconds_total")],
        },
        Panel {
            title: "Resident memory",
            unit: Unit::Bytes,
            lines: &[level("resident", "process_resident_memory_bytes")],
        },
        Panel {
            title: "Memory of the budget",
            unit: Unit::Bytes,
            lines: &[
                level("used", "myriad_memory_used_bytes"),
                level("held for clients", "myriad_held_client_bytes"),
            ],
        },
        Panel {
            title: "File descriptors",
            unit: Unit::Share,
            lines: &[line(
                "open",
                Reading::Part(all("process_open_fds"), all("process_max_fds")),
            )],
        },
        Panel {
            title: "Limits reached",
            unit: Unit::PerSecond,
            lines: &[rate("all limits", "myriad_limits_reached_total")],
        },
        Panel {
            title: "Shed",
            unit: Unit::PerSecond,
            lines: &[
                rate("connections shed", "myriad_connections_shed_total"),
                rate("connections evicted", "myriad_connections_evicted_total"),
                rate("requests evicted", "myriad_requests_evicted_total"),
                rate("accepting failed", "myriad_accept_failures_total"),
            ],
        },
        Panel {
            title: "Uptime",
            unit: Unit::Seconds,
            lines: &[line(
                "since the start",
                Reading::Since(all("process_start_time_seconds")),
            )],
        },
    ],
};

/// How soon changes are served, and what they cost.
pub(super) const ACTIVATION: Dashboard = Dashboard {
    name: "activation",
    title: "Activation",
    panels: &[
        Panel {
            title: "Activation",
            unit: Unit::Seconds,
            lines: &[
                quantile("p50", ACTIVATION_BUCKETS, 0.5),
                quantile("p90", ACTIVATION_BUCKETS, 0.9),
                quantile("p99", ACTIVATION_BUCKETS, 0.99),
            ],
        },
        Panel {
            title: "Live on every gateway",
            unit: Unit::Seconds,
            lines: &[
                quantile("p50", LIVE_BUCKETS, 0.5),
                quantile("p90", LIVE_BUCKETS, 0.9),
                quantile("p99", LIVE_BUCKETS, 0.99),
            ],
        },
        Panel {
            title: "Changes",
            unit: Unit::PerSecond,
            lines: &[
                rate("activated", "myriad_activation_seconds_count"),
                rate("live", "myriad_live_seconds_count"),
            ],
        },
        Panel {
            title: "Commits",
            unit: Unit::PerSecond,
            lines: &[
                rate("made", COMMITS),
                rate("in effect", "myriad_table_swaps_total"),
            ],
        },
        Panel {
            title: "Work for a change",
            unit: Unit::Plain("for each commit"),
            lines: &[
                line(
                    "units",
                    Reading::Ratio(all("myriad_translate_units_total"), all(COMMITS)),
                ),
                line(
                    "objects visited",
                    Reading::Ratio(all("myriad_translate_objects_visited_total"), all(COMMITS)),
                ),
                line(
                    "resources changed",
                    Reading::Ratio(
                        all("myriad_translate_resources_changed_total"),
                        all(COMMITS),
                    ),
                ),
            ],
        },
        Panel {
            title: "Nodes copied",
            unit: Unit::PerSecond,
            lines: &[rate("copied", "myriad_proxy_table_nodes_copied_total")],
        },
        Panel {
            title: "Findings",
            unit: Unit::Plain("findings"),
            lines: &[level("that stand", "myriad_translate_findings")],
        },
        Panel {
            title: "Namespaces that wait",
            unit: Unit::Plain("namespaces"),
            lines: &[level("that wait", "myriad_control_namespaces_deferred")],
        },
        Panel {
            title: "Held",
            unit: Unit::Bytes,
            lines: &[
                line("routes", held(&[("part", Is("routes"))])),
                line("endpoints", held(&[("part", Is("endpoints"))])),
                line("certificates", held(&[("part", Is("certificates"))])),
                line("regexes", held(&[("part", Is("regexes"))])),
                line("hash tables", held(&[("part", Is("hash_tables"))])),
                line("answers", held(&[("part", Is("answers"))])),
                line("other", held(&[("part", Is("other"))])),
            ],
        },
    ],
};

/// Requests and connections.
pub(super) const TRAFFIC: Dashboard = Dashboard {
    name: "traffic",
    title: "Traffic",
    panels: &[
        Panel {
            title: "Requests",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("1xx", REQUESTS, &[("status", Is("1xx"))]),
                rate_of("2xx", REQUESTS, &[("status", Is("2xx"))]),
                rate_of("3xx", REQUESTS, &[("status", Is("3xx"))]),
                rate_of("4xx", REQUESTS, &[("status", Is("4xx"))]),
                rate_of("5xx", REQUESTS, &[("status", Is("5xx"))]),
            ],
        },
        Panel {
            title: "Errors",
            unit: Unit::Share,
            lines: &[line(
                "5xx",
                Reading::Ratio(some(REQUESTS, &[("status", Is("5xx"))]), all(REQUESTS)),
            )],
        },
        Panel {
            title: "Time of requests",
            unit: Unit::Seconds,
            lines: &[
                quantile("p50", DURATIONS, 0.5),
                quantile("p90", DURATIONS, 0.9),
                quantile("p99", DURATIONS, 0.99),
            ],
        },
        Panel {
            title: "Failures",
            unit: Unit::PerSecond,
            lines: &[rate("all reasons", "myriad_request_failures_total")],
        },
        Panel {
            title: "Connections of clients",
            unit: Unit::Plain("open, or per second"),
            lines: &[
                level("open", "myriad_connections"),
                rate("accepted per second", "myriad_connections_accepted_total"),
                rate("closed per second", "myriad_connections_closed_total"),
            ],
        },
        Panel {
            title: "Connections to endpoints",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("opened", ENDPOINTS, &[("event", Is("opened"))]),
                rate_of("reused", ENDPOINTS, &[("event", Is("reused"))]),
                rate_of("failed", ENDPOINTS, &[("event", Is("failed"))]),
                rate_of("retried", ENDPOINTS, &[("event", Is("retried"))]),
                rate_of("evicted", ENDPOINTS, &[("event", Is("evicted"))]),
                rate_of("idle", ENDPOINTS, &[("event", Is("idle"))]),
                rate_of("crowded", ENDPOINTS, &[("event", Is("crowded"))]),
            ],
        },
        Panel {
            title: "Endpoints that are left out",
            unit: Unit::PerSecond,
            lines: &[
                rate("ejections", "myriad_upstream_ejections_total"),
                rate_of("beyond requests", OVERFLOWS, &[("limit", Is("requests"))]),
                rate_of("beyond pending", OVERFLOWS, &[("limit", Is("pending"))]),
                rate_of("beyond streams", OVERFLOWS, &[("limit", Is("streams"))]),
                rate("repetitions refused", "myriad_retries_refused_total"),
            ],
        },
        Panel {
            title: "Rates and shares",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("rate limited", RATES, &[("event", Is("limited"))]),
                rate_of("rate evicted", RATES, &[("event", Is("evicted"))]),
                rate_of("share of handshakes", SHARES, &[("of", Is("handshakes"))]),
                rate_of("share of connections", SHARES, &[("of", Is("connections"))]),
                rate_of("share of requests", SHARES, &[("of", Is("requests"))]),
                rate_of("share of tunnels", SHARES, &[("of", Is("tunnels"))]),
            ],
        },
        Panel {
            title: "Streams",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("opened", STREAMS, &[("event", Is("opened"))]),
                rate_of("ended", STREAMS, &[("event", Is("ended"))]),
                rate_of("broken", STREAMS, &[("event", Is("broken"))]),
                rate_of("idle", STREAMS, &[("event", Is("idle"))]),
                rate_of("removed", STREAMS, &[("event", Is("removed"))]),
                rate_of("failed", STREAMS, &[("event", Is("failed"))]),
            ],
        },
        Panel {
            title: "Bytes of streams",
            unit: Unit::BytesPerSecond,
            lines: &[
                rate_of("received", STREAM_BYTES, &[("direction", Is("received"))]),
                rate_of("sent", STREAM_BYTES, &[("direction", Is("sent"))]),
            ],
        },
    ],
};

const fn held(labels: &'static [(&'static str, Wanted)]) -> Reading {
    Reading::Level(some(HELD, labels))
}
