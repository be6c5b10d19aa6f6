//! `attached-routes`: how soon the status of the Gateway counts all routes, and none once they are
//! deleted, and how many writes that takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;
use serde_json::{Value, json};

use super::millis;
use super::objects::{self, GATEWAY, Kind};
use super::stage::Stage;
use crate::cluster::api::Events;

/// How long the status may take.
const COUNT_TIMEOUT: Duration = Duration::from_secs(300);

/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The most statuses that are remembered; the last ones are.
const SAMPLES_MAX: usize = 1_000_000;

/// The figures.
#[derive(Serialize)]
struct Figures {
    routes: u64,
    /// The time from the first write of a route to the status that counts all.
    add_all_ms: f64,
    /// From the last one; 0 where the status was there before its answer.
    add_after_last_ms: f64,
    /// The time from the first deletion to the status that counts none.
    remove_all_ms: f64,
    remove_after_last_ms: f64,
    /// Statuses of the Gateway that were seen meanwhile.
    writes: u64,
    /// Statuses whose count differed from the one before.
    counts_seen: u64,
}

/// The counts that statuses had, each with its time.
type Samples = Arc<Mutex<Vec<(Instant, u64)>>>;

/// Runs the scenario.
pub(super) fn run(stage: &Stage, routes: u64) -> anyhow::Result<Value> {
    let namespace = &stage.namespace;
    let samples = Samples::default();
    let gateways = Kind::Gateway.list(namespace);
    let events = stage.runtime.block_on(stage.api().watch(&gateways))?;
    let task = stage.runtime.spawn(follow(events, samples.clone()));
    let parent = json!({"name": GATEWAY});
    let names: Vec<String> = (0..routes)
        .map(|number| format!("route-{number}"))
        .collect();
    let added = names.iter().map(|name| {
        let rules = json!([objects::rule("/", "backend", 80)]);
        let route = objects::route(name, &parent, &format!("{name}.example.com"), &rules);
        objects::post(Kind::HttpRoute, namespace, &route)
    });
    let added = added.collect();
    let (first, last) = timed(|| stage.write_all(added))?;
    let there = wait_for(&samples, routes)?;
    let (add_all, add_after) = (there - first, there.saturating_duration_since(last));
    let removed = names.iter();
    let removed = removed.map(|name| objects::delete(Kind::HttpRoute, namespace, name));
    let removed = removed.collect();
    let (first, last) = timed(|| stage.write_all(removed))?;
    let gone = wait_for(&samples, 0)?;
    task.abort();
    let seen = lock(&samples);
    let changes = seen.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    let figures = Figures {
        routes,
        add_all_ms: millis(add_all),
        add_after_last_ms: millis(add_after),
        remove_all_ms: millis(gone.saturating_duration_since(first)),
        remove_after_last_ms: millis(gone.saturating_duration_since(last)),
        writes: seen.len() as u64,
        counts_seen: changes.count() as u64,
    };
    Ok(serde_json::to_value(figures)?)
}

/// When something began, and when it was done.
fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<(Instant, Instant)> {
    let first = Instant::now();
    work()?;
    Ok((first, Instant::now()))
}

async fn follow(mut events: Events, samples: Samples) {
    while let Ok(Some(gateways)) = events.next_objects().await {
        let at = Instant::now();
        let mut samples = lock(&samples);
        let counts = gateways.iter().filter_map(attached);
        samples.extend(counts.map(|count| (at, count)));
        let surplus = samples.len().saturating_sub(SAMPLES_MAX);
        samples.drain(..surplus);
    }
}

/// The routes that the status of a Gateway counts at its first listener.
fn attached(gateway: &Value) -> Option<u64> {
    if gateway.pointer("/metadata/name")? != GATEWAY {
        return None;
    }
    gateway
        .pointer("/status/listeners/0/attachedRoutes")?
        .as_u64()
}

/// When the last status that was seen first had this count.
fn wait_for(samples: &Samples, wanted: u64) -> anyhow::Result<Instant> {
    let start = Instant::now();
    loop {
        let last = lock(samples).last().copied();
        if let Some((at, count)) = last
            && count == wanted
        {
            return Ok(at);
        }
        ensure!(
            start.elapsed() < COUNT_TIMEOUT,
            "the status counts {:?} of {wanted} routes",
            last.map(|last| last.1)
        );
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn lock(samples: &Samples) -> MutexGuard<'_, Vec<(Instant, u64)>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_counted_by_the_status_of_the_gateway_alone() {
        let status = json!({"listeners": [{"name": "http", "attachedRoutes": 7}]});
        let gateway = |name: &str| json!({"metadata": {"name": name}, "status": status});
        assert_eq!(attached(&gateway(GATEWAY)), Some(7));
        assert_eq!(attached(&gateway("other")), None);
        assert_eq!(attached(&json!({"metadata": {"name": GATEWAY}})), None);
    }
}
