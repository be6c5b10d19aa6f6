//! `backendfailover`: one of four endpoints of 256 rules refuses connections for a while, again and
//! again, and a client asks all the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::asker::Asker;
use super::objects::{self, GATEWAY, Kind};
use super::origin::Origin;
use super::stage::Stage;
use crate::activate::Quantiles;
use crate::cluster::parts::Home;

const HOST: &str = "route.example.com";

/// Routes, and rules of each.
const ROUTES: u64 = 16;
const RULES: u64 = 16;

/// Endpoints that do not fail.
const HEALTHY: usize = 3;

/// Between two requests.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// How often it is looked whether the endpoint that came back is asked again.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The figures.
#[derive(Serialize)]
struct Figures {
    iterations: u32,
    /// How long each failure was, and the time before it.
    each_s: f64,
    requests: u64,
    /// Requests without a response, or with another status than 200.
    errors: u64,
    /// Errors of requests that were sent while the endpoint had failed.
    errors_while_down: u64,
    /// How long after it failed the last of them was sent.
    errors_until_ms: Quantiles,
    /// How long after it came back it was asked again, where it was.
    back_after_ms: Quantiles,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Requests that each endpoint has answered, the one that fails first.
    answered: Vec<u64>,
    wrong_answers: u64,
    statuses: BTreeMap<String, u64>,
}

/// A time in which the endpoint had failed.
struct Failing {
    from: Instant,
    to: Instant,
    /// When it was asked again.
    back: Option<Instant>,
}

/// Runs the scenario.
pub(super) fn run(stage: &Stage, iterations: u32, time: Duration) -> anyhow::Result<Value> {
    let origins = (0..=HEALTHY).map(|_| Origin::start(Home::address(), "backend"));
    let origins = origins.collect::<anyhow::Result<Vec<_>>>()?;
    let namespace = &stage.namespace;
    let service = objects::service("backend", &[("http", 80)]);
    let mut writes = vec![objects::post(Kind::Service, namespace, &service)];
    for (number, origin) in origins.iter().enumerate() {
        let name = format!("backend-{number}");
        let slice = objects::slice(&name, "backend", &[("http", origin.address)]);
        writes.push(objects::post(Kind::EndpointSlice, namespace, &slice));
    }
    let routes =
        (0..ROUTES).map(|number| objects::post(Kind::HttpRoute, namespace, &route(number)));
    writes.extend(routes);
    stage.write_all(writes)?;
    for number in 0..ROUTES {
        stage.wait_live(HOST, &format!("/{}", number * RULES))?;
    }
    let path = |number: u64| format!("/{}", number % (ROUTES * RULES));
    let asker = Asker::start(Home::http(), HOST, ASK_INTERVAL, path, |_| true)?;
    let mut failing = Vec::new();
    for _ in 0..iterations {
        std::thread::sleep(time);
        failing.push(fail_once(&origins[0], time)?);
    }
    std::thread::sleep(time);
    let asked = asker.stop()?;
    let down = asked.failures.iter().filter(|at| {
        let mut times = failing.iter();
        times.any(|it| it.from <= **at && **at <= it.to)
    });
    let lasts = failing.iter().map(|it| {
        let within = asked
            .failures
            .iter()
            .filter(|at| **at >= it.from && **at <= it.to);
        let last = within.max();
        last.map_or(Duration::ZERO, |last| last.duration_since(it.from))
    });
    let backs = failing.iter();
    let backs = backs.filter_map(|it| Some(it.back?.duration_since(it.to)));
    let figures = Figures {
        iterations,
        each_s: time.as_secs_f64(),
        requests: asked.requests,
        errors: asked.errors,
        errors_while_down: down.count() as u64,
        errors_until_ms: Quantiles::of(lasts),
        back_after_ms: Quantiles::of(backs),
        p50_ms: asked.seen.quantile_ms(0.5),
        p99_ms: asked.seen.quantile_ms(0.99),
        max_ms: asked.seen.quantile_ms(1.0),
        answered: origins.iter().map(Origin::answered).collect(),
        wrong_answers: asked.wrong_answers,
        statuses: asked.statuses,
    };
    Ok(serde_json::to_value(figures)?)
}

/// Lets the endpoint fail for so long, and waits as long until it is asked again.
fn fail_once(origin: &Origin, time: Duration) -> anyhow::Result<Failing> {
    let from = Instant::now();
    origin.set_up(false)?;
    std::thread::sleep(time);
    let before = origin.answered();
    let to = Instant::now();
    origin.set_up(true)?;
    let mut back = None;
    while to.elapsed() < time && back.is_none() {
        std::thread::sleep(LOOK_INTERVAL);
        back = (origin.answered() > before).then(Instant::now);
    }
    Ok(Failing { from, to, back })
}

/// A route with its rules, which say nothing of second tries.
fn route(number: u64) -> Value {
    let first = number * RULES;
    let paths = first..first + RULES;
    let rules = paths.map(|path| objects::rule(&format!("/{path}"), "backend", 80));
    let rules = Value::from(rules.collect::<Vec<_>>());
    let parent = json!({"name": GATEWAY});
    objects::route(&format!("route-{number}"), &parent, HOST, &rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_have_256_paths() {
        let mut paths: Vec<String> = Vec::new();
        for route in (0..ROUTES).map(route) {
            for rule in route["spec"]["rules"].as_array().unwrap() {
                let path = rule["matches"][0]["path"]["value"].as_str();
                paths.push(path.unwrap().to_owned());
            }
        }
        let wanted: Vec<String> = (0..256).map(|number| format!("/{number}")).collect();
        assert_eq!(paths, wanted);
    }
}
