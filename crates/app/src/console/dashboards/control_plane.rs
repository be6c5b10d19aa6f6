//! Panels about certificates, the mesh, and what controllers hear and send.

use crate::console::panels::Wanted::{Is, StartsNot};
use crate::console::panels::{
    Dashboard, Panel, Reading, Selector, Unit, Wanted, all, level, line, rate, rate_of, some,
};

const EXPIRING: &str = "myriad_certificates_expiring";
const HANDSHAKES: &str = "myriad_handshakes_total";
const KEYS: &str = "myriad_certificate_keys_total";
const PEERS: &str = "myriad_peers_refused_total";
const MESH_PEERS: &str = "myriad_mesh_peers_refused_total";
const BETWEEN: &str = "istio_requests_total";
const DURATIONS: &str = "istio_request_duration_milliseconds_bucket";

/// The label of what the receiving end has counted, so that nothing counts twice.
const RECEIVED: &[(&str, Wanted)] = &[("reporter", Is("destination"))];

/// Certificates, and how handshakes end.
pub(super) const CERTIFICATES: Dashboard = Dashboard {
    name: "certificates",
    title: "Certificates",
    panels: &[
        Panel {
            title: "Ending within days",
            unit: Unit::Plain("certificates"),
            lines: &[
                line("have ended", expiring(&[("within_days", Is("0"))])),
                line("1 day", expiring(&[("within_days", Is("1"))])),
                line("7 days", expiring(&[("within_days", Is("7"))])),
                line("14 days", expiring(&[("within_days", Is("14"))])),
                line("30 days", expiring(&[("within_days", Is("30"))])),
                line("90 days", expiring(&[("within_days", Is("90"))])),
            ],
        },
        Panel {
            title: "Handshakes",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("full", HANDSHAKES, &[("outcome", Is("full"))]),
                rate_of("resumed", HANDSHAKES, &[("outcome", Is("resumed"))]),
                rate_of(
                    "unknown name",
                    HANDSHAKES,
                    &[("outcome", Is("unknown_name"))],
                ),
                rate_of("timeout", HANDSHAKES, &[("outcome", Is("timeout"))]),
                rate_of("failed", HANDSHAKES, &[("outcome", Is("failed"))]),
            ],
        },
        Panel {
            title: "Handshakes that waited",
            unit: Unit::PerSecond,
            lines: &[rate("waited", "myriad_handshakes_queued_total")],
        },
        Panel {
            title: "Keys",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("parsed", KEYS, &[("event", Is("parsed"))]),
                rate_of("evicted", KEYS, &[("event", Is("evicted"))]),
            ],
        },
        Panel {
            title: "Peers refused",
            unit: Unit::PerSecond,
            lines: &[
                rate_of("client", PEERS, &[("side", Is("client"))]),
                rate_of("endpoint", PEERS, &[("side", Is("endpoint"))]),
                rate("mesh, all reasons", MESH_PEERS),
            ],
        },
        Panel {
            title: "Age of ticket keys",
            unit: Unit::Seconds,
            lines: &[line(
                "of the key in use",
                Reading::Since(all("myriad_ticket_key_timestamp_seconds")),
            )],
        },
        Panel {
            title: "On demand",
            unit: Unit::Plain("waiting, or names per second"),
            lines: &[
                level("waiting", "myriad_on_demand_waiting"),
                rate("names per second", "myriad_on_demand_names_total"),
            ],
        },
        Panel {
            title: "Obtained",
            unit: Unit::Plain("certificates"),
            lines: &[
                level("wanted", "myriad_acme_wanted"),
                level("there", "myriad_acme_held"),
                level("on order", "myriad_acme_orders"),
                level("failing", "myriad_acme_orders_failing"),
                level("to be renewed", "myriad_acme_renewing"),
            ],
        },
        Panel {
            title: "Orders",
            unit: Unit::PerSecond,
            lines: &[
                rate("obtained", "myriad_acme_issued_total"),
                rate("renewed", "myriad_acme_renewed_total"),
                rate("failed", "myriad_acme_failures_total"),
            ],
        },
    ],
};

/// The requests that workloads receive, and their identities.
pub(super) const MESH: Dashboard = Dashboard {
    name: "mesh",
    title: "Mesh",
    panels: &[
        Panel {
            title: "Requests between workloads",
            unit: Unit::PerSecond,
            lines: &[rate_of("received", BETWEEN, RECEIVED)],
        },
        Panel {
            title: "Success",
            unit: Unit::Share,
            lines: &[line(
                "not 5xx",
                Reading::Ratio(
                    some(
                        BETWEEN,
                        &[
                            ("reporter", Is("destination")),
                            ("response_code", StartsNot("5")),
                        ],
                    ),
                    received(BETWEEN),
                ),
            )],
        },
        Panel {
            title: "Mutual TLS",
            unit: Unit::Share,
            lines: &[line(
                "of requests",
                Reading::Ratio(
                    some(
                        BETWEEN,
                        &[
                            ("reporter", Is("destination")),
                            ("connection_security_policy", Is("mutual_tls")),
                        ],
                    ),
                    received(BETWEEN),
                ),
            )],
        },
        Panel {
            title: "Time of requests",
            unit: Unit::Plain("milliseconds"),
            lines: &[line("p99", Reading::Quantile(received(DURATIONS), 0.99))],
        },
        Panel {
            title: "Bytes of requests and responses",
            unit: Unit::BytesPerSecond,
            lines: &[
                rate_of("requests", "istio_request_bytes_sum", RECEIVED),
                rate_of("responses", "istio_response_bytes_sum", RECEIVED),
            ],
        },
        Panel {
            title: "Streams",
            unit: Unit::PerSecond,
            lines: &[rate_of(
                "opened",
                "istio_tcp_connections_opened_total",
                RECEIVED,
            )],
        },
        Panel {
            title: "Bytes of streams",
            unit: Unit::BytesPerSecond,
            lines: &[
                rate_of("sent", "istio_tcp_sent_bytes_total", RECEIVED),
                rate_of("received", "istio_tcp_received_bytes_total", RECEIVED),
            ],
        },
        Panel {
            title: "Identities",
            unit: Unit::PerSecond,
            lines: &[
                rate("signed", "myriad_sync_signed_total"),
                rate("refused", "myriad_sync_not_signed_total"),
            ],
        },
        Panel {
            title: "Certificates of proxies",
            unit: Unit::Seconds,
            lines: &[line(
                "until its end",
                Reading::Until(all("myriad_mesh_certificate_until_seconds")),
            )],
        },
        Panel {
            title: "The authority",
            unit: Unit::Seconds,
            lines: &[line(
                "until its end",
                Reading::Until(all("myriad_mesh_authority_until_seconds")),
            )],
        },
        Panel {
            title: "Peers refused",
            unit: Unit::PerSecond,
            lines: &[
                rate_of(
                    "no certificate",
                    MESH_PEERS,
                    &[("reason", Is("no_certificate"))],
                ),
                rate_of("ended", MESH_PEERS, &[("reason", Is("ended"))]),
                rate_of("not begun", MESH_PEERS, &[("reason", Is("not_begun"))]),
                rate_of("authority", MESH_PEERS, &[("reason", Is("authority"))]),
                rate_of("identity", MESH_PEERS, &[("reason", Is("identity"))]),
                rate_of("version", MESH_PEERS, &[("reason", Is("version"))]),
                rate_of("other", MESH_PEERS, &[("reason", Is("other"))]),
            ],
        },
        Panel {
            title: "Beyond the bound of series",
            unit: Unit::PerSecond,
            lines: &[rate(
                "counted together",
                "myriad_standard_metrics_overflows_total",
            )],
        },
    ],
};

/// The work of a controller: events, translation, commits to proxies, and writes.
pub(super) const CONTROL_PLANE: Dashboard = Dashboard {
    name: "control-plane",
    title: "Control plane",
    panels: &[
        Panel {
            title: "Events",
            unit: Unit::PerSecond,
            lines: &[rate("all kinds", "myriad_kubernetes_events_total")],
        },
        Panel {
            title: "Behind the API server",
            unit: Unit::Seconds,
            lines: &[line(
                "the kind that is furthest",
                Reading::Since(all("myriad_kubernetes_heard_timestamp_seconds")),
            )],
        },
        Panel {
            title: "Lists and watches",
            unit: Unit::PerSecond,
            lines: &[
                rate("lists", "myriad_kubernetes_lists_total"),
                rate("watches", "myriad_kubernetes_watches_total"),
            ],
        },
        Panel {
            title: "The API server",
            unit: Unit::Plain("1 while it is lost"),
            lines: &[level("lost", "myriad_kubernetes_lost")],
        },
        Panel {
            title: "Translation",
            unit: Unit::PerSecond,
            lines: &[
                rate("units", "myriad_translate_units_total"),
                rate("resources", "myriad_translate_resources_changed_total"),
            ],
        },
        Panel {
            title: "Batches and commits",
            unit: Unit::PerSecond,
            lines: &[
                rate("batches", "myriad_control_batches_total"),
                rate("commits", "myriad_control_commits_total"),
            ],
        },
        Panel {
            title: "Proxies",
            unit: Unit::Plain("proxies"),
            lines: &[
                level("connected", "myriad_sync_proxies"),
                level("behind", "myriad_proxies_behind"),
            ],
        },
        Panel {
            title: "Sent to proxies",
            unit: Unit::BytesPerSecond,
            lines: &[rate("sent", "myriad_sync_sent_bytes_total")],
        },
        Panel {
            title: "Resources sent",
            unit: Unit::PerSecond,
            lines: &[
                rate("resources", "myriad_sync_resources_total"),
                rate("commits", "myriad_sync_commits_total"),
            ],
        },
        Panel {
            title: "Differences",
            unit: Unit::PerSecond,
            lines: &[
                rate("made", "myriad_sync_steps_made_total"),
                rate("shared", "myriad_sync_steps_shared_total"),
            ],
        },
        Panel {
            title: "Refused",
            unit: Unit::PerSecond,
            lines: &[
                rate("resources", "myriad_sync_refusals_total"),
                rate("connections", "myriad_sync_refused_total"),
                rate("digests", "myriad_sync_mismatches_total"),
            ],
        },
        Panel {
            title: "Removals that wait",
            unit: Unit::Plain("holders, or what one holds"),
            lines: &[
                level("holders", "myriad_removals_holders"),
                level("held by one", "myriad_removals_held"),
            ],
        },
        Panel {
            title: "Statuses",
            unit: Unit::PerSecond,
            lines: &[
                rate("written", "myriad_status_written_total"),
                rate("unchanged", "myriad_status_unchanged_total"),
                rate("conflicts", "myriad_status_conflicts_total"),
            ],
        },
        Panel {
            title: "Processor",
            unit: Unit::Plain("processors"),
            lines: &[rate("in use", "process_cpu_seconds_total")],
        },
    ],
};

const fn expiring(labels: &'static [(&'static str, Wanted)]) -> Reading {
    Reading::Level(some(EXPIRING, labels))
}

const fn received(metric: &'static str) -> Selector {
    some(metric, RECEIVED)
}
