//! A route that changes all the time, and Services whose endpoints roll, under load: each answer is
//! by one revision of the route, and there is one to every request.

mod client;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_e2e::Backend;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::client::{Revisions, ask_for_ever};
use super::scene::{Scene, at, is_live, route};

/// How long it goes on.
const DURATION: Duration = Duration::from_secs(10);

/// Clients, and how often each asks per second.
const CLIENTS: usize = 10;
const PER_CLIENT: u32 = 50;

/// Between two revisions of the route.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// How long an endpoint and its successor are both there, and how long one is served alone. For as
/// long as both together it still answers when it is not there any more, as a Pod that ends does.
const BESIDE: Duration = Duration::from_millis(300);
const ALONE: Duration = Duration::from_millis(700);

/// The first ports of the endpoints of the two Services.
const PORTS: [(&str, u16); 2] = [("a", 9_100), ("b", 9_200)];

/// The least that has to happen, on a machine that is busy with other stories: requests, revisions
/// that were served, and endpoints of each Service that were.
const ASKED_MIN: usize = 2_500;
const REVISIONS_MIN: usize = 30;
const ENDPOINTS_MIN: usize = 3;

#[tokio::test]
async fn a_route_that_changes_all_the_time_answers_by_one_revision_and_without_an_error() {
    let scene = Scene::set().await;
    let _parts = scene.serve().await;
    let tenant = scene.cluster.tenant();
    let listener = "name: fire, hostname: fire.test, port: 80, protocol: HTTP, \
                    allowedRoutes: {namespaces: {from: All}}";
    scene.api.apply(&scene.gateway(&[listener])).await;
    for (service, _) in PORTS {
        scene.api.apply(&service_of(&tenant, service)).await;
    }
    let rolling = PORTS.map(|(service, port)| Rolling::new(&scene, service, port));
    let [mut a, mut b] = rolling;
    for rolling in [&mut a, &mut b] {
        rolling.add().await;
    }
    let revisions = Arc::<Revisions>::default();
    revise(&scene, &revisions).await;
    let web = at("httproutes", &tenant, "fire");
    scene.until(&web, is_live).await;

    let address = SocketAddr::new(scene.cluster.https().ip(), 8080);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask_for_ever(address, PER_CLIENT, revisions.clone()));
    }
    tokio::select! {
        () = sleep(DURATION) => {}
        () = change(&scene, &revisions) => unreachable!("it goes on"),
        () = a.roll() => unreachable!("it goes on"),
        () = b.roll() => unreachable!("it goes on"),
        ended = clients.join_next() => panic!("a client has ended: {ended:?}"),
    }
    clients.shutdown().await;

    let tally = revisions.tally();
    assert_eq!(tally.faults, 0, "{tally:?}");
    assert!(tally.asked >= ASKED_MIN, "{tally:?}");
    assert!(tally.served.len() >= REVISIONS_MIN, "{tally:?}");
    for (service, _) in PORTS {
        let endpoints = tally.endpoints.iter();
        let count = endpoints
            .filter(|it| service_of_endpoint(it) == service)
            .count();
        assert!(count >= ENDPOINTS_MIN, "{service}: {tally:?}");
    }
    // Whatever was cut off in the end, the last revision is the one that is live.
    revise(&scene, &revisions).await;
    scene.until(&web, is_live).await;
}

/// Writes one revision after the other.
async fn change(scene: &Scene, revisions: &Revisions) {
    let mut pace = interval(CHANGE_INTERVAL);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        revise(scene, revisions).await;
    }
}

/// Writes the next revision of the route: its filters, those of its backends, and their weights.
async fn revise(scene: &Scene, revisions: &Revisions) {
    let revision = revisions.begin();
    let set = |filter: &str, name: &str, value: &str| {
        let field = match filter {
            "RequestHeaderModifier" => "requestHeaderModifier",
            _ => "responseHeaderModifier",
        };
        format!("{{type: {filter}, {field}: {{set: [{{name: {name}, value: '{value}'}}]}}}}")
    };
    let word = revision.to_string();
    let told = set("RequestHeaderModifier", "x-revision", &word);
    let shown = set("ResponseHeaderModifier", "x-answer", &word);
    let rewrite = format!(
        "{{type: URLRewrite, urlRewrite: \
         {{path: {{type: ReplaceFullPath, replaceFullPath: /at-{word}}}}}}}"
    );
    let mut rule =
        format!("  rules:\n  - filters: [{told}, {shown}, {rewrite}]\n    backendRefs:\n");
    for (service, weight) in weights(revision) {
        let share = set(
            "RequestHeaderModifier",
            "x-share",
            &format!("{service}-{word}"),
        );
        let _ = writeln!(
            rule,
            "    - {{name: {service}, port: 80, weight: {weight}, filters: [{share}]}}"
        );
    }
    let spec = format!("  hostnames: [fire.test]\n{rule}");
    let (home, tenant) = (scene.cluster.home(), scene.cluster.tenant());
    let parent = format!("name: edge, namespace: {home}");
    scene
        .api
        .apply(&route(&tenant, "fire", &parent, &spec))
        .await;
    revisions.end();
}

/// The backends of a revision, with their weights.
fn weights(revision: usize) -> Vec<(&'static str, u32)> {
    match revision % 4 {
        0 => vec![("a", 1), ("b", 1)],
        1 => vec![("a", 9), ("b", 1)],
        2 => vec![("b", 1)],
        _ => vec![("a", 1), ("b", 0)],
    }
}

/// The Service that an endpoint is of, by its name.
fn service_of_endpoint(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn service_of(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: {namespace}\n\
         spec:\n  clusterIP: None\n  ports: [{{port: 80}}]\n"
    )
}

/// The endpoints of a Service, of which the newest is there, and the one before for a moment.
struct Rolling<'s> {
    scene: &'s Scene,
    service: &'static str,
    port: u16,
    started: u16,
    running: VecDeque<Backend>,
}

impl Rolling<'_> {
    fn new<'s>(scene: &'s Scene, service: &'static str, port: u16) -> Rolling<'s> {
        Rolling {
            scene,
            service,
            port,
            started: 0,
            running: VecDeque::new(),
        }
    }

    /// Starts one more and publishes it.
    async fn add(&mut self) {
        let number = self.started;
        let ip = self.scene.cluster.endpoint().ip();
        let address = SocketAddr::new(ip, self.port + number);
        let name = format!("{}.{number}", self.service);
        self.running
            .push_back(Backend::start_at(&name, address).await);
        self.scene.api.apply(&self.slice(number)).await;
        self.started += 1;
    }

    /// Replaces the newest one again and again.
    async fn roll(&mut self) {
        loop {
            sleep(ALONE).await;
            self.add().await;
            sleep(BESIDE).await;
            let former = self.slice(self.started - 2);
            self.scene.api.delete(&former).await;
            // The one before that has not been there for long enough.
            while self.running.len() > 2 {
                self.running.pop_front();
            }
        }
    }

    fn slice(&self, number: u16) -> String {
        let (service, port) = (self.service, self.port + number);
        let namespace = self.scene.cluster.tenant();
        let ip = self.scene.cluster.endpoint().ip();
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata:\n  name: {service}-{number}\n  namespace: {namespace}\n  \
             labels: {{kubernetes.io/service-name: {service}}}\n\
             addressType: IPv4\nendpoints: [{{addresses: ['{ip}']}}]\nports: [{{port: {port}}}]\n"
        )
    }
}
