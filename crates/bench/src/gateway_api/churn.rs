//! `route-load` and `listenerset-load`: many routes in many namespaces, whose routes and endpoints
//! change all the time, and what that costs.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};

use super::asker::Asker;
use super::objects::{self, Kind};
use super::origin::Origin;
use super::stage::{Spent, Stage};
use crate::activate::Quantiles;
use crate::cluster::api::Write;
use crate::cluster::parts::Home;
use crate::domains::{Certificates, Generator};
use crate::probe::{Prober, Wanted};

/// HTTPRoutes of a ListenerSet.
const SET_ROUTES: u64 = 16;

/// The Secret of a namespace with its certificate.
const SECRET: &str = "ns-cert";

/// Between two requests of the client that asks meanwhile.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// The most applications that are looked at before changes begin.
const LOOKED_AT: usize = 50;

/// The scenario.
pub(super) struct Churned {
    pub namespaces: u64,
    /// Applications of each namespace.
    pub apps: u64,
    /// Whether each has a ListenerSet, and 16 HTTPRoutes instead of one.
    pub has_sets: bool,
    pub time: Duration,
    pub config_interval: Duration,
    pub workload_interval: Duration,
}

/// The figures.
#[derive(Serialize)]
struct Figures {
    namespaces: u64,
    applications: u64,
    routes: u64,
    listener_sets: u64,
    /// Seconds in which all objects were written.
    fill_s: f64,
    /// From there until those that are looked at were served.
    served_after_s: f64,
    fill: Spent,
    changes_s: f64,
    route_changes: u64,
    endpoint_changes: u64,
    /// Times of the writes, which the API server answers.
    write_ms: Quantiles,
    changes: Spent,
    requests: u64,
    errors: u64,
    wrong_answers: u64,
    p99_ms: f64,
}

/// An application: what its objects are called, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct App {
    namespace: String,
    name: String,
    host: String,
}

impl Churned {
    /// Runs the scenario.
    pub(super) fn run(&self, stage: &mut Stage) -> anyhow::Result<Value> {
        let origins = [
            Origin::start(Home::address(), "backend")?,
            Origin::start(Home::address(), "backend")?,
        ];
        let namespaces = stage.namespaces(self.namespaces)?;
        let apps: Vec<App> = (0..self.apps * self.namespaces)
            .map(|number| app(&namespaces, number))
            .collect::<anyhow::Result<_>>()?;
        let endpoints = origins.each_ref().map(|origin| origin.address);
        let generator = Generator::new(Certificates::Wildcard, endpoints)?;
        let watch = stage.watch()?;
        let begun = Instant::now();
        let secrets = namespaces
            .iter()
            .filter(|_| self.has_sets)
            .map(|namespace| {
                let secret = objects::secret(SECRET, generator.shared(), generator.issuer());
                objects::post(Kind::Secret, namespace, &secret)
            });
        stage.write_all(secrets.collect())?;
        let writes = apps
            .iter()
            .flat_map(|app| self.objects(stage, app, &origins[0]));
        stage.write_all(writes.collect())?;
        let fill = begun.elapsed();
        self.wait_live(stage, &generator, &apps)?;
        let served_after = begun.elapsed() - fill;
        let fill_spent = stage.spent(&watch)?;
        let changed = self.change(stage, &apps, &origins)?;
        self.wait_live(stage, &generator, apps.get(..1).unwrap_or_default())?;
        let routes = apps.len() as u64 * self.routes_of_each();
        let figures = Figures {
            namespaces: self.namespaces,
            applications: apps.len() as u64,
            routes,
            listener_sets: if self.has_sets { apps.len() as u64 } else { 0 },
            fill_s: fill.as_secs_f64(),
            served_after_s: served_after.as_secs_f64(),
            fill: fill_spent,
            changes_s: changed.time.as_secs_f64(),
            route_changes: changed.routes,
            endpoint_changes: changed.endpoints,
            write_ms: Quantiles::of(changed.writes.into_iter()),
            changes: changed.spent,
            requests: changed.requests,
            errors: changed.errors,
            wrong_answers: changed.wrong_answers,
            p99_ms: changed.p99_ms,
        };
        Ok(serde_json::to_value(figures)?)
    }

    fn routes_of_each(&self) -> u64 {
        if self.has_sets { SET_ROUTES } else { 1 }
    }

    /// The objects of an application in the order in which they are needed.
    fn objects(&self, stage: &Stage, app: &App, origin: &Origin) -> Vec<Write> {
        let App {
            namespace, name, ..
        } = app;
        let service = objects::service(name, &[("http", 80)]);
        let mut writes = vec![
            objects::post(Kind::Service, namespace, &service),
            objects::post(Kind::EndpointSlice, namespace, &slice(name, origin)),
        ];
        let gateway = objects::gateway_reference(&stage.namespace);
        let mut parent = gateway.clone();
        if self.has_sets {
            let set = objects::listener_set(name, &gateway, &app.host, SECRET);
            writes.push(objects::post(Kind::ListenerSet, namespace, &set));
            parent = json!({"kind": "ListenerSet", "name": name});
        }
        for number in 0..self.routes_of_each() {
            let rules = json!([objects::rule(&path(number, 0), name, 80)]);
            let route = objects::route(&route_name(name, number), &parent, &app.host, &rules);
            writes.push(objects::post(Kind::HttpRoute, namespace, &route));
        }
        writes
    }

    /// Waits until applications from all over are served.
    fn wait_live(&self, stage: &Stage, generator: &Generator, apps: &[App]) -> anyhow::Result<()> {
        let step = apps.len().div_ceil(LOOKED_AT).max(1);
        let looked_at = apps.iter().step_by(step).chain(apps.last());
        if !self.has_sets {
            for app in looked_at {
                stage.wait_live(&app.host, &path(0, 0))?;
            }
            return Ok(());
        }
        let prober = Prober::new(Home::https())?.asking("/0/0");
        let wanted = Wanted::Answer {
            leaf: generator.shared().leaf.clone(),
            status: 200,
        };
        for app in looked_at {
            prober.find(&app.host, &wanted)?;
        }
        Ok(())
    }

    /// Changes routes and endpoints of all applications in turn but the first, which a client asks.
    fn change(
        &self,
        stage: &Stage,
        apps: &[App],
        origins: &[Origin; 2],
    ) -> anyhow::Result<Changed> {
        let (asked, others) = apps.split_first().context("there is an application")?;
        let asker = match self.has_sets {
            // Its own listener speaks TLS, which is looked at before and after.
            true => None,
            false => {
                let path = |_| path(0, 0);
                let is_right = |reply: &super::asker::Reply| reply.body == b"backend";
                let http = Home::http();
                Some(Asker::start(
                    http,
                    &asked.host,
                    ASK_INTERVAL,
                    path,
                    is_right,
                )?)
            }
        };
        let watch = stage.watch()?;
        let mut turns = Turns::new(self, others);
        while let Some(write) = turns.next(origins) {
            let sent = Instant::now();
            stage.write(write)?;
            turns.writes.push(sent.elapsed());
        }
        let (time, spent) = (turns.begun.elapsed(), stage.spent(&watch)?);
        let found = asker.map(Asker::stop).transpose()?;
        let found = found.as_ref();
        Ok(Changed {
            time,
            spent,
            routes: turns.routes,
            endpoints: turns.endpoints,
            writes: turns.writes,
            requests: found.map_or(0, |found| found.requests),
            errors: found.map_or(0, |found| found.errors),
            wrong_answers: found.map_or(0, |found| found.wrong_answers),
            p99_ms: found.map_or(0.0, |found| found.seen.quantile_ms(0.99)),
        })
    }
}

/// The findings while changes were made.
struct Changed {
    time: Duration,
    spent: Spent,
    routes: u64,
    endpoints: u64,
    writes: Vec<Duration>,
    requests: u64,
    errors: u64,
    wrong_answers: u64,
    p99_ms: f64,
}

/// Changes of routes and of endpoints, each at its own interval.
struct Turns<'a> {
    churned: &'a Churned,
    apps: &'a [App],
    begun: Instant,
    routes: u64,
    endpoints: u64,
    writes: Vec<Duration>,
}

impl<'a> Turns<'a> {
    fn new(churned: &'a Churned, apps: &'a [App]) -> Turns<'a> {
        Turns {
            churned,
            apps,
            begun: Instant::now(),
            routes: 0,
            endpoints: 0,
            writes: Vec::new(),
        }
    }

    /// Waits until the next change is due; none once the time is over, or there is nothing to
    /// change.
    fn next(&mut self, origins: &[Origin; 2]) -> Option<Write> {
        let due = |count: u64, interval: Duration| interval.mul_f64((count + 1) as f64);
        let route_due = due(self.routes, self.churned.config_interval);
        let endpoint_due = due(self.endpoints, self.churned.workload_interval);
        let at = route_due.min(endpoint_due);
        if at > self.churned.time || self.apps.is_empty() {
            std::thread::sleep(self.churned.time.saturating_sub(self.begun.elapsed()));
            return None;
        }
        std::thread::sleep(at.saturating_sub(self.begun.elapsed()));
        let count = self.apps.len() as u64;
        let apps = self.apps;
        let app = |turn: u64| apps.get(usize::try_from(turn % count).ok()?);
        if route_due <= endpoint_due {
            let (turn, each) = (self.routes, self.churned.routes_of_each());
            let app = app(turn / each)?;
            self.routes += 1;
            return Some(change_of_route(app, turn % each, turn + 1));
        }
        let turn = self.endpoints;
        let app = app(turn)?;
        self.endpoints += 1;
        // All move to the second endpoint in the first round, and back in the next.
        let origin = origins.get(usize::from((turn / count).is_multiple_of(2)))?;
        let name = format!("{}-1", app.name);
        let change = slice(&app.name, origin);
        Some(objects::patch(
            Kind::EndpointSlice,
            &app.namespace,
            &name,
            &json!({"ports": change["ports"], "endpoints": change["endpoints"]}),
        ))
    }
}

/// Gives a route another path.
fn change_of_route(app: &App, number: u64, version: u64) -> Write {
    let rules = json!([objects::rule(&path(number, version), &app.name, 80)]);
    let change = json!({"spec": {"rules": rules}});
    let name = route_name(&app.name, number);
    objects::patch(Kind::HttpRoute, &app.namespace, &name, &change)
}

fn app(namespaces: &[String], number: u64) -> anyhow::Result<App> {
    let count = namespaces.len() as u64;
    let namespace = namespaces.get(usize::try_from(number % count.max(1))?);
    let name = format!("app-{}", number / count.max(1));
    Ok(App {
        namespace: namespace.context("there is a namespace")?.clone(),
        host: format!("{name}-{}.shared.test", number % count.max(1)),
        name,
    })
}

fn slice(app: &str, origin: &Origin) -> Value {
    objects::slice(&format!("{app}-1"), app, &[("http", origin.address)])
}

fn path(number: u64, version: u64) -> String {
    format!("/{number}/{version}")
}

fn route_name(app: &str, number: u64) -> String {
    format!("{app}-{number}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    fn churned(has_sets: bool) -> Churned {
        Churned {
            namespaces: 2,
            apps: 3,
            has_sets,
            time: Duration::from_millis(20),
            config_interval: Duration::from_millis(1),
            workload_interval: Duration::from_millis(2),
        }
    }

    fn apps() -> Vec<App> {
        let namespaces = ["a".to_owned(), "b".to_owned()];
        let apps = (0..6).map(|number| app(&namespaces, number).unwrap());
        apps.collect()
    }

    #[test]
    fn applications_have_hosts_of_their_own_in_all_namespaces() {
        let apps = apps();
        let hosts: BTreeSet<&str> = apps.iter().map(|app| app.host.as_str()).collect();
        assert_eq!(hosts.len(), 6);
        let first = apps.iter().filter(|app| app.namespace == "a");
        let names: Vec<&str> = first.map(|app| app.name.as_str()).collect();
        assert_eq!(names, ["app-0", "app-1", "app-2"]);
    }

    #[test]
    fn changes_come_at_their_intervals_and_leave_the_first_application_alone() {
        let apps = apps();
        let local = Ipv4Addr::LOCALHOST.into();
        let origins = ["one", "two"].map(|name| Origin::start(local, name).unwrap());
        for has_sets in [false, true] {
            let churned = churned(has_sets);
            let mut turns = Turns::new(&churned, &apps[1..]);
            let mut paths = Vec::new();
            while let Some(write) = turns.next(&origins) {
                paths.push(write.path);
            }
            assert_eq!((turns.routes, turns.endpoints), (20, 10));
            assert_eq!(paths.len(), 30);
            let asked = "/namespaces/a/httproutes/app-0-";
            assert!(paths.iter().all(|path| !path.contains(asked)), "{paths:?}");
            let routes = paths.iter().filter(|path| path.contains("/httproutes/"));
            let routes: BTreeSet<_> = routes.collect();
            assert_eq!(routes.len(), if has_sets { 20 } else { 5 });
        }
    }
}
