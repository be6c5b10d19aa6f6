//! `probe`: how soon each new route is served, while those before it stay.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;
use serde_json::{Value, json};

use super::asker::Client;
use super::objects::{self, GATEWAY, Kind};
use super::origin::Origin;
use super::stage::Stage;
use crate::activate::Quantiles;
use crate::cluster::api::Write;
use crate::cluster::parts::Home;

/// How long a route may take.
const LIVE_TIMEOUT: Duration = Duration::from_secs(50);

/// Between two requests for it.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// The status before a route is there.
const NOT_YET: u16 = 404;

/// The figures.
#[derive(Serialize)]
struct Figures {
    routes: u64,
    /// The time from the write of a route to its first 200.
    live_ms: Quantiles,
    /// From the answer of the API server.
    live_after_answer_ms: Quantiles,
    requests: u64,
    /// Responses that were neither 404 nor 200, and requests without one.
    errors: u64,
}

/// Runs the scenario.
pub(super) fn run(stage: &Stage, routes: u64) -> anyhow::Result<Value> {
    let (origin, writes) = backend(stage, Home::address())?;
    stage.write_all(writes)?;
    let mut client = Client::new(Home::http());
    let (mut live, mut after_answer) = (Vec::new(), Vec::new());
    let (mut requests, mut errors) = (0, 0);
    for number in 0..routes {
        let (host, path) = (format!("{number}-route.example.com"), format!("/{number}"));
        let route = route(number, &host, &path);
        let written = Instant::now();
        stage.write(objects::post(Kind::HttpRoute, &stage.namespace, &route))?;
        let answered = Instant::now();
        loop {
            let reply = client.ask(&host, &path);
            requests += 1;
            match reply.as_ref().map(|reply| reply.status) {
                Ok(200) => break,
                Ok(NOT_YET) => (),
                _ => errors += 1,
            }
            let is_late = answered.elapsed() > LIVE_TIMEOUT;
            ensure!(!is_late, "route {number} is not served: {reply:?}");
            std::thread::sleep(PROBE_INTERVAL);
        }
        live.push(written.elapsed());
        after_answer.push(answered.elapsed());
    }
    let answered = origin.answered();
    ensure!(
        answered >= routes,
        "{answered} of {routes} were answered by the endpoint"
    );
    let figures = Figures {
        routes,
        live_ms: Quantiles::of(live.into_iter()),
        live_after_answer_ms: Quantiles::of(after_answer.into_iter()),
        requests,
        errors,
    };
    Ok(serde_json::to_value(figures)?)
}

/// The endpoint of all routes, and the objects that lead to it.
fn backend(stage: &Stage, address: IpAddr) -> anyhow::Result<(Origin, Vec<Write>)> {
    let origin = Origin::start(address, "backend")?;
    let service = objects::service("backend", &[("http", 80)]);
    let slice = objects::slice("backend-1", "backend", &[("http", origin.address)]);
    let writes = vec![
        objects::post(Kind::Service, &stage.namespace, &service),
        objects::post(Kind::EndpointSlice, &stage.namespace, &slice),
    ];
    Ok((origin, writes))
}

/// A route with a rule to the endpoint and one to a Service that there is not, both with filters of
/// fields.
fn route(number: u64, host: &str, path: &str) -> Value {
    let added = |name: &str| json!({"add": [{"name": name, "value": "added"}]});
    let filters = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": added("x-request-added")},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": added("x-response-added")},
    ]);
    let mut rules = [
        objects::rule(path, "backend", 80),
        objects::rule("/", "absent-backend", 80),
    ];
    for rule in &mut rules {
        rule["filters"] = filters.clone();
    }
    let parent = json!({"name": GATEWAY});
    objects::route(&format!("{number}-route"), &parent, host, &json!(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_leads_to_an_endpoint_and_to_none() {
        let route = route(3, "3-route.example.com", "/3");
        assert_eq!(route["metadata"]["name"], "3-route");
        let rules = route["spec"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(rules[0]["backendRefs"][0]["name"], "backend");
        assert_eq!(rules[1]["backendRefs"][0]["name"], "absent-backend");
        assert_eq!(rules[1]["filters"].as_array().unwrap().len(), 2);
    }
}
