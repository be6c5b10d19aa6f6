//! `routechange`: a route that is led from one port of a Service to the other and back, with and
//! without a filter, while a client asks all the time.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::asker::{Asker, Reply};
use super::objects::{self, GATEWAY, Kind};
use super::origin::Origin;
use super::stage::Stage;
use crate::cluster::parts::Home;

const HOST: &str = "route.example.com";

/// The field that the filter adds to responses.
const FIELD: &str = "x-added";

/// The figures.
#[derive(Serialize)]
struct Figures {
    iterations: u32,
    requests: u64,
    requests_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Requests without a response, or with another status than 200.
    errors: u64,
    /// Responses of one endpoint with what belongs to the route to the other.
    wrong_answers: u64,
    /// Responses of each port, which show that changes had their effect.
    answered: [u64; 2],
}

/// Runs the scenario.
pub(super) fn run(stage: &Stage, iterations: u32, pause: Duration) -> anyhow::Result<Value> {
    let origins = [
        Origin::start(Home::address(), "plain")?,
        Origin::start(Home::address(), "filtered")?,
    ];
    let service = objects::service("backend", &[("http", 80), ("http-alt", 8_080)]);
    let [plain, filtered] = [origins[0].address, origins[1].address];
    let ports = [("http", filtered), ("http-alt", plain)];
    let slice = objects::slice("backend-1", "backend", &ports);
    let namespace = &stage.namespace;
    let parent = json!({"name": GATEWAY});
    let route = objects::route("route", &parent, HOST, &rules(false));
    stage.write_all(vec![
        objects::post(Kind::Service, namespace, &service),
        objects::post(Kind::EndpointSlice, namespace, &slice),
        objects::post(Kind::HttpRoute, namespace, &route),
    ])?;
    stage.wait_live(HOST, "/")?;
    let path = |number: u64| format!("/{number}");
    let asker = Asker::start(Home::http(), HOST, Duration::ZERO, path, is_whole)?;
    let begun = std::time::Instant::now();
    for iteration in 0..iterations {
        let change = json!({"spec": {"rules": rules(iteration % 2 == 0)}});
        stage.write(objects::patch(Kind::HttpRoute, namespace, "route", &change))?;
        std::thread::sleep(pause);
    }
    let time = begun.elapsed();
    let asked = asker.stop()?;
    let figures = Figures {
        iterations,
        requests: asked.requests,
        requests_per_second: (asked.requests as f64 / time.as_secs_f64()).round(),
        p50_ms: asked.seen.quantile_ms(0.5),
        p99_ms: asked.seen.quantile_ms(0.99),
        max_ms: asked.seen.quantile_ms(1.0),
        errors: asked.errors,
        wrong_answers: asked.wrong_answers,
        answered: [origins[0].answered(), origins[1].answered()],
    };
    Ok(serde_json::to_value(figures)?)
}

/// The rules of both states: with a filter to the first port, or without to the second.
fn rules(is_filtered: bool) -> Value {
    let mut rule = objects::rule("/", "backend", if is_filtered { 80 } else { 8_080 });
    if is_filtered {
        let added = json!({"add": [{"name": FIELD, "value": "added"}]});
        let filter = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": added});
        rule["filters"] = json!([filter]);
    }
    json!([rule])
}

/// Whether a response is of one state alone.
fn is_whole(reply: &Reply) -> bool {
    let has_field = reply.head.to_ascii_lowercase().contains(FIELD);
    match reply.body.as_slice() {
        b"plain" => !has_field,
        b"filtered" => has_field,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_of_one_state_alone() {
        let reply = |field: &str, body: &str| Reply {
            status: 200,
            head: format!("HTTP/1.1 200 OK\r\n{field}\r\n"),
            body: body.as_bytes().to_vec(),
        };
        assert!(
            is_whole(&reply("", "plain")) && is_whole(&reply("X-Added: added\r\n", "filtered"))
        );
        for (field, body) in [
            ("x-added: added\r\n", "plain"),
            ("", "filtered"),
            ("", "other"),
        ] {
            assert!(!is_whole(&reply(field, body)), "{field}{body}");
        }
    }

    #[test]
    fn both_states_name_their_port() {
        let port = |is_filtered| rules(is_filtered)[0]["backendRefs"][0]["port"].clone();
        assert_eq!((port(true), port(false)), (json!(80), json!(8_080)));
        assert!(
            rules(true)[0].get("filters").is_some() && rules(false)[0].get("filters").is_none()
        );
    }
}
