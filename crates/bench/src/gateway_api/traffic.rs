//! `traffic`: requests per second and latency through one route, over ever more connections, and
//! latency at a constant rate.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};

use super::objects::{self, GATEWAY, Kind};
use super::stage::Stage;
use crate::backend;
use crate::cluster::parts::Home;
use crate::load::{Destination, Extra, Pace, Plan, Schedule, Stripes, Trust, generate};

const HOST: &str = "traffic.example.com";

/// How long a response may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The figures of one run.
#[derive(Serialize)]
struct Run {
    connections: usize,
    /// Requests per second that were asked for; 0 for as many as there can be.
    requested_rps: f64,
    requests: u64,
    rps: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    errors: u64,
}

/// Runs the scenario.
pub(super) fn run(
    stage: &Stage,
    connections: &[usize],
    rps: f64,
    time: Duration,
) -> anyhow::Result<Value> {
    let [address, _] = backend::start(Home::address())?;
    let namespace = &stage.namespace;
    let service = objects::service("backend", &[("http", 80)]);
    let slice = objects::slice("backend-1", "backend", &[("http", address)]);
    let rules = json!([objects::rule("/", "backend", 80)]);
    let route = objects::route("traffic", &json!({"name": GATEWAY}), HOST, &rules);
    stage.write_all(vec![
        objects::post(Kind::Service, namespace, &service),
        objects::post(Kind::EndpointSlice, namespace, &slice),
        objects::post(Kind::HttpRoute, namespace, &route),
    ])?;
    stage.wait_live(HOST, "/")?;
    let mut runs = Vec::new();
    for &connections in connections {
        let pace = Pace::Closed {
            time: Some(time),
            requests: None,
        };
        runs.push(measure(connections, 0.0, pace)?);
    }
    if rps > 0.0 {
        let connections = *connections.first().context("there is a connection")?;
        let schedule = Schedule {
            rps,
            connections,
            requests: 0,
            has_jitter: false,
        };
        let pace = Pace::Open(schedule.lasting(time), Stripes::whole());
        runs.push(measure(connections, rps, pace)?);
    }
    let requests: u64 = runs.iter().map(|run| run.requests).sum();
    let errors: u64 = runs.iter().map(|run| run.errors).sum();
    Ok(json!({"runs": runs, "requests": requests, "errors": errors}))
}

fn measure(connections: usize, requested_rps: f64, pace: Pace) -> anyhow::Result<Run> {
    let url = format!("http://{}/", Home::http());
    let destination = Destination::new(&url, None, Trust::Unsaid)?;
    let extra = Extra {
        headers: &[format!("Host: {HOST}")],
        payload: None,
    };
    let plan = Plan {
        request: destination.request(extra)?,
        destination,
        connections,
        pace,
        timeout: TIMEOUT,
    };
    let outcome = generate(plan, || Ok(()))?;
    let quantile = |percent| outcome.latency.percentile(percent) / 1e6;
    Ok(Run {
        connections,
        requested_rps,
        requests: outcome.latency.count(),
        rps: outcome.rate().round(),
        p50_ms: quantile(50.0),
        p90_ms: quantile(90.0),
        p99_ms: quantile(99.0),
        max_ms: quantile(100.0),
        errors: outcome.failed.count(),
    })
}
