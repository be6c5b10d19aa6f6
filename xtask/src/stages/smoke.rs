//! Short runs of the benchmarks: that they work, and that their reports have the figures which
//! the budgets are stated in. What the figures are is for the real runs to judge.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Place;

/// A benchmark's arguments, and the figures of its report; a dot leads into an object.
struct Bench {
    arguments: &'static str,
    figures: &'static [&'static str],
}

/// A hundred domains over the inbox, twenty samples.
const INBOX: Bench = Bench {
    arguments: "activate --domains 100 --source inbox --samples 20 --json",
    figures: &[
        "domains",
        "activation_ms.p50",
        "activation_ms.p99",
        "activation_ms.max",
        "activation_ms.samples",
        "units_translated",
        "objects_visited",
        "resources_changed",
        "table_nodes_copied",
        "bytes_allocated",
        "bytes_encoded",
        "rss_mib",
        "start_s",
        "live.p99_idle_ms",
        "live.p99_during_ms",
        "live.errors",
    ],
};

/// Figures of new domains, without and with changes of others beside them.
const DOMAIN_FIGURES: &[&str] = &[
    "domains",
    "activation_ms.p50",
    "activation_ms.p99",
    "change_ms.p50",
    "remove_ms.p50",
    "units_translated",
    "objects_visited",
    "resources_changed",
    "table_nodes_copied",
    "bytes_encoded",
    "live.errors",
    "live_under_churn.activation_ms.p50",
    "live_under_churn.activation_ms.p99",
    "live_under_churn.changes",
    "live_under_churn.changes_per_second",
    "live_under_churn.errors",
];

/// ListenerSets of 16 domains each, from files.
const LISTENER_SETS: Bench = Bench {
    arguments: "activate --objects listenersets --source dir --domains 64 --samples 3 \
                --samples-at-half 0 --rate 20 --idle-seconds 1 --under-churn --json",
    figures: DOMAIN_FIGURES,
};

/// HTTPRoutes on one listener, over the inbox.
const HTTP_ROUTES: Bench = Bench {
    arguments: "activate --objects httproutes --source inbox --domains 64 --samples 3 \
                --samples-at-half 0 --rate 20 --idle-seconds 1 --under-churn --json",
    figures: DOMAIN_FIGURES,
};

/// ListenerSets through the API of a cluster.
const LISTENER_SETS_KUBERNETES: Bench = Bench {
    arguments: "activate --objects listenersets --source kubernetes --domains 40 --samples 3 \
                --samples-at-half 0 --idle-seconds 1 --under-churn --json",
    figures: DOMAIN_FIGURES,
};

/// HTTPRoutes through it.
const HTTP_ROUTES_KUBERNETES: Bench = Bench {
    arguments: "activate --objects httproutes --source kubernetes --domains 40 --samples 3 \
                --samples-at-half 0 --idle-seconds 1 --under-churn --json",
    figures: DOMAIN_FIGURES,
};

/// Istio's setup with few domains and routes, over HTTPS for a second.
const ISTIO: Bench = Bench {
    arguments: "scale --requests istio --short --json",
    figures: &[
        "cores",
        "rps",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "cpu_ms_per_1000",
        "rss_idle_mib",
        "rss_mib",
        "bytes_per_s",
        "errors",
    ],
};

/// HTTPS and HTTP beside the floor, and HTTP/2 alone, over few connections, each for half a second.
const THROUGHPUT: Bench = Bench {
    arguments: "throughput --work W1,W2,W3 --short --json",
    figures: &[
        "connections",
        "cpu_us_per_request",
        "peer_cpu_us_per_request",
        "ratio.median",
        "ratio.rounds",
        "rps",
        "peer_rps",
        "rss_mib",
        "load_us_per_request",
        "requests",
        "errors",
        "peer_errors",
    ],
};

/// The other works, of which latency and memory have figures of their own.
const THROUGHPUT_MORE: Bench = Bench {
    arguments: "throughput --work W4,W5,W6 --short --json",
    figures: &[
        "connections",
        "ratio.median",
        "ratio.rounds",
        "errors",
        "peer_errors",
    ],
};

/// HTTPS beside connections that say nothing.
const THROUGHPUT_SILENT: Bench = Bench {
    arguments: "throughput --work W7 --short --json",
    figures: &[
        "silent",
        "idle_p99_us",
        "flooded_p99_us",
        "ratio.median",
        "ratio.rounds",
        "rss_mib",
        "errors",
        "peer_errors",
    ],
};

/// Hosts with many regexes.
const REGEX: Bench = Bench {
    arguments: "regex --patterns 1,256",
    figures: &[
        "honest_us",
        "hostile_ms",
        "scratch_bytes.1",
        "scratch_bytes.256",
    ],
};

/// The same as the first through the API of a cluster, with endpoints that change and a burst.
const KUBERNETES: Bench = Bench {
    arguments: "activate --source kubernetes --domains 50 --samples 5 --samples-at-half 0 \
                --idle-seconds 1 --churn --churn-seconds 1 --burst 50 --json",
    figures: &[
        "domains",
        "activation_ms.p50",
        "activation_ms.p99",
        "stages_ms.answered.p50",
        "stages_ms.watched.p50",
        "stages_ms.told.p50",
        "stages_ms.live.p50",
        "units_translated",
        "resources_changed",
        "bytes_per_proxy",
        "controller_start_s",
        "controller_rss_mib",
        "controller_rss_peak_mib",
        "proxy_rss_mib",
        "live.errors",
    ],
};

/// Proxies without listeners that follow one controller, and its restart.
const FLEET: Bench = Bench {
    arguments: "fleet --proxies 50 --services 20 --changes 10 --downtime-seconds 1 --reconnect \
                --json",
    figures: &[
        "proxies",
        "rss_mib",
        "changes.cpu_ms_per_change",
        "changes.bytes_per_proxy",
        "changes.told",
        "changes.streams_woken",
        "restart.settled_s",
        "restart.bytes_per_proxy_max",
        "reconnect.settled_s",
        "reconnect.steps_made",
        "reconnect.steps_shared",
    ],
};

/// Sidecars of a mesh, each of which follows what its own workload sees, two of them as whole
/// processes, with two controllers.
const FLEET_MESH: Bench = Bench {
    arguments: "fleet --mesh --services 20 --sidecars 40 --namespaces 4 --seconds 2 \
                --controllers 2 --processes 2 --json",
    figures: &[
        "controllers",
        "whole_sidecars.rss_mib",
        "whole_sidecars.commits",
        "endpoint_changes.told",
        "join_s",
        "rest.vcpu",
        "rest.rss_mib",
        "endpoint_changes.vcpu",
        "endpoint_changes.in_step_ms.p50",
        "endpoint_changes.bytes_per_change",
        "endpoint_changes.sidecars_told",
        "endpoint_changes.resources_per_change",
        "service_changes.bytes_per_change",
        "added_sidecar.cpu_ms",
        "added_sidecar.units",
        "rss_mib",
    ],
};

/// A pair of sidecars in networks of their own, without and with spans, each for a second of each
/// protocol.
const LATENCY: Bench = Bench {
    arguments: "latency --short --json",
    figures: &[
        "bytes",
        "connections",
        "baseline_p50_ms",
        "added_p50_ms",
        "added_p90_ms",
        "cpu_ms_per_1000",
        "rss_mib",
        "rss_rest_mib",
        "errors",
    ],
};

/// Three services in a row, each with a sidecar.
const MESH: Bench = Bench {
    arguments: "mesh --topology examples/mesh/chain-3.yaml --rps 50 --seconds 1 --connections 4 \
                --json",
    figures: &[
        "replicas",
        "rps",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "errors",
        "cpu_ms_per_1000",
        "rss_mib",
    ],
};

/// A shop of six services, three of which ask a database; each has a sidecar. Requests and rows
/// that are not exactly those of the graph end it with an error.
const MESH_DATABASE: Bench = Bench {
    arguments: "mesh --topology examples/mesh/flights.yaml --rps 50 --seconds 1 --connections 4 \
                --json",
    figures: &[
        "replicas", "requests", "rows", "rps", "p50_ms", "p90_ms", "p99_ms", "errors", "rss_mib",
    ],
};

/// All ways out of the mesh, to a database behind TLS.
const EGRESS: Bench = Bench {
    arguments: "egress --clients 5 --seconds 0.5 --json",
    figures: &[
        "case",
        "clients",
        "tps",
        "avg_ms",
        "p50_ms",
        "p90_ms",
        "p95_ms",
        "p99_ms",
        "cpu_ms_per_1000",
    ],
};

/// Domains whose certificates controllers obtain, some of which fail for ever, while leaders are
/// killed. One that is lost, or has two certificates, counts as an error.
const ISSUE: Bench = Bench {
    arguments: "issue --source kubernetes --domains 40 --failing 10% --rate 10 --kill-leader 2 \
                --free-lease --ordinary 5 --json",
    figures: &[
        "live_ms.p50",
        "live_ms.p99",
        "live",
        "issued",
        "orders",
        "failed_attempts",
        "failed_attempts_max",
        "leaders_killed",
        "ordinary.ratio_p50",
        "errors",
    ],
};

/// The scenarios of gateway-api-bench.
const GATEWAY_API: [Bench; 7] = [
    Bench {
        arguments: "gateway-api attached-routes --routes 20 --json",
        figures: &["routes", "add_all_ms", "remove_all_ms", "writes"],
    },
    Bench {
        arguments: "gateway-api probe --routes 5 --json",
        figures: &[
            "live_ms.p50",
            "live_ms.max",
            "live_after_answer_ms.p50",
            "requests",
            "errors",
        ],
    },
    Bench {
        arguments: "gateway-api routechange --iterations 6 --seconds 0.1 --json",
        figures: &[
            "iterations",
            "requests",
            "errors",
            "wrong_answers",
            "p99_ms",
        ],
    },
    Bench {
        arguments: "gateway-api route-load --namespaces 2 --routes 10 --seconds 2 \
                    --config-interval 0.1 --workload-interval 0.2 --json",
        figures: CHURN_FIGURES,
    },
    Bench {
        arguments: "gateway-api listenerset-load --namespaces 2 --routes 3 --seconds 2 \
                    --config-interval 0.1 --workload-interval 0.2 --json",
        figures: CHURN_FIGURES,
    },
    Bench {
        arguments: "gateway-api traffic --connections 8 --qps 200 --seconds 1 --json",
        figures: &["requests", "errors", "proxy.vcpu"],
    },
    Bench {
        arguments: "gateway-api backendfailover --iterations 1 --seconds 1 --json",
        figures: &[
            "requests",
            "errors",
            "errors_while_down",
            "errors_until_ms.max",
            "back_after_ms.samples",
        ],
    },
];

/// Figures of routes that change.
const CHURN_FIGURES: &[&str] = &[
    "routes",
    "fill_s",
    "served_after_s",
    "fill.controller.vcpu",
    "route_changes",
    "endpoint_changes",
    "write_ms.p50",
    "changes.controller.vcpu",
    "changes.proxy.rss_mib",
    "controller.rss_peak_mib",
    "errors",
    "wrong_answers",
];

/// Measures one machine.
pub(super) fn run(place: &Place) -> Result<()> {
    super::build(place)?;
    let throughput = [THROUGHPUT, THROUGHPUT_MORE, THROUGHPUT_SILENT];
    let machine = [INBOX, LISTENER_SETS, HTTP_ROUTES, ISTIO, REGEX];
    for bench in machine.into_iter().chain(throughput) {
        measure(place, &bench, |_| ())?;
    }
    Ok(())
}

/// Measures a cluster, which the benchmarks find by what `enter` puts into their environment.
pub(super) fn run_in_cluster(place: &Place, enter: impl Fn(&mut Command)) -> Result<()> {
    let benches = [
        KUBERNETES,
        LISTENER_SETS_KUBERNETES,
        HTTP_ROUTES_KUBERNETES,
        FLEET,
        FLEET_MESH,
        LATENCY,
        MESH,
        MESH_DATABASE,
        EGRESS,
        ISSUE,
    ];
    for bench in benches {
        measure(place, &bench, &enter)?;
    }
    Ok(())
}

/// Runs the scenarios of gateway-api-bench in a cluster, and the short report.
pub(super) fn run_report(place: &Place, enter: impl Fn(&mut Command)) -> Result<()> {
    for bench in GATEWAY_API {
        measure(place, &bench, &enter)?;
    }
    super::report::run(place, &enter)
}

/// Runs a benchmark and checks its report.
fn measure(place: &Place, bench: &Bench, enter: impl Fn(&mut Command)) -> Result<()> {
    println!("$ myriad-bench {}", bench.arguments);
    let mut command = Command::new(place.programs.join("myriad-bench"));
    enter(&mut command);
    command.args(bench.arguments.split_whitespace());
    command.current_dir(&place.root);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = place.with_tools(command).output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    println!("{}", text.trim_end());
    check(&text, bench.figures)
}

/// One object per line; each has all figures, and no request failed.
fn check(text: &str, figures: &[&str]) -> Result<()> {
    let mut objects = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let report: Value = serde_json::from_str(line).context("a line is not a JSON object")?;
        let is_missing = |key: &&&str| !figure(&report, key).is_some_and(Value::is_number);
        let missing: Vec<&str> = figures.iter().filter(is_missing).copied().collect();
        ensure!(
            missing.is_empty(),
            "figures missing: {}",
            missing.join(", ")
        );
        for key in [
            "live.errors",
            "live_under_churn.errors",
            "errors",
            "wrong_answers",
            "peer_errors",
        ] {
            let errors = figure(&report, key).and_then(Value::as_u64);
            // An endpoint that fails on purpose is an error to some.
            if report.get("errors_while_down").is_some() {
                continue;
            }
            ensure!(errors.unwrap_or(0) == 0, "requests failed: {errors:?}");
        }
        let is_answered = figure(&report, "rps").is_none_or(|rps| rps.as_f64() > Some(0.0));
        ensure!(is_answered, "no request was answered");
        objects += 1;
    }
    if objects == 0 {
        bail!("the report is empty");
    }
    Ok(())
}

fn figure<'a>(report: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.')
        .try_fold(report, |value, part| value.get(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"domains":100,
        "activation_ms":{"p50":1.5,"p99":2.0,"max":3.0,"samples":20},
        "units_translated":3,"objects_visited":4,"resources_changed":4,"table_nodes_copied":9,
        "bytes_allocated":9000,"bytes_encoded":2000,"rss_mib":40.5,"start_s":0.1,
        "live":{"p99_idle_ms":0.4,"p99_during_ms":0.5,"errors":0}}"#;

    fn one_line(text: &str) -> String {
        text.replace('\n', " ")
    }

    #[test]
    fn a_report_needs_every_figure_and_no_failed_request() {
        assert!(check(&one_line(GOOD), INBOX.figures).is_ok());
        let rate = |rps: &str| check(&format!(r#"{{"rps":{rps},"errors":0}}"#), &["rps"]);
        assert!(rate("1.5").is_ok() && rate("0.0").is_err());
        assert!(check(r#"{"rps":9,"errors":1}"#, &["rps"]).is_err());
        assert!(check(r#"{"errors_while_down":1,"errors":1}"#, &["errors"]).is_ok());
        let partial = one_line(GOOD).replace("\"p99\"", "\"p90\"");
        let error = check(&partial, INBOX.figures)
            .expect_err("a figure is missing")
            .to_string();
        assert!(error.contains("activation_ms.p99"), "{error}");
        let failed = one_line(GOOD).replace("\"errors\":0", "\"errors\":1");
        assert!(check(&failed, INBOX.figures).is_err());
        assert!(check("", INBOX.figures).is_err());
        assert!(check("no json", INBOX.figures).is_err());
    }
}
