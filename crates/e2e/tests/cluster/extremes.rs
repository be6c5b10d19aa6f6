//! Objects that cannot be served, that are very large, or that are gone before they are looked at:
//! whatever becomes of them, their neighbours notice nothing.

use std::fmt::Write as _;
use std::time::Duration;

use myriad_e2e::Site;
use myriad_e2e::authority::Pair;
use myriad_e2e::cluster::{Api, Cluster, Poll, Process};
use myriad_e2e::world::{eventually, eventually_within};

use crate::{is_refused, site};

/// Longer than the largest object takes beside all other stories on two cores.
const LARGE_DEADLINE: Duration = Duration::from_secs(60);

/// Says how long it took, which no test holds anybody to.
#[allow(clippy::print_stdout, reason = "people want to see it")]
fn tell(what: &str, start: std::time::Instant) {
    println!("{what}: live after {:?}", start.elapsed());
}

/// A cluster in which one site is asked for all the time.
struct Neighbourhood {
    cluster: Cluster,
    api: Api,
    neighbour: Poll,
    _processes: [Process; 3],
}

impl Neighbourhood {
    async fn start() -> Neighbourhood {
        let cluster = Cluster::join().await;
        let endpoint = cluster.backend("here");
        let controller = cluster.controller(0).await;
        let proxy = cluster.proxy(0, "proxy", "myriad").await;
        let api = cluster.api().await;
        api.apply(&site(&cluster, "neighbour.test").yaml()).await;
        cluster
            .eventually("neighbour.test", |answer| answer.status == 200)
            .await;
        Neighbourhood {
            neighbour: cluster.watch("https://neighbour.test:8443/"),
            cluster,
            api,
            _processes: [endpoint, controller, proxy],
        }
    }

    /// Waits until an Event of this object says these words.
    async fn told(&self, name: &str, words: &str) {
        let mut notes = Vec::new();
        let told = eventually(async || {
            notes = self.api.notes(&self.cluster.tenant()).await;
            let mut about = notes.iter().filter(|note| note.starts_with(name));
            about.any(|note| note.contains(words)).then_some(())
        });
        assert!(told.await.is_some(), "{name}, {words}: {notes:?}");
    }
}

#[tokio::test]
async fn an_ingress_that_cannot_be_translated_is_told_and_harms_nobody() {
    let mut it = Neighbourhood::start().await;
    let broken = site(&it.cluster, "broken.test")
        .annotation("nginx.ingress.kubernetes.io/use-regex", "true")
        .path("/(");
    it.api.apply(&broken.yaml()).await;
    it.told("broken-test", "is not a regex").await;
    // Where restrictions cannot be kept, nothing is served.
    let guarded = site(&it.cluster, "guarded.test")
        .annotation("nginx.ingress.kubernetes.io/valid-referers", "auth.test");
    it.api.apply(&guarded.yaml()).await;
    it.told("guarded-test", "valid-referers").await;
    let answer = it.cluster.get("guarded.test").await;
    assert_ne!(answer.status, 200, "{answer:?}");
    it.neighbour.all_well(10).await;
}

#[tokio::test]
async fn a_secret_of_a_mebibyte_harms_nobody() {
    let mut it = Neighbourhood::start().await;
    let Pair { certificate, key } = it.cluster.authority.issue(&["heavy.test"]);
    // The API takes a MiB for all values of a Secret.
    let times = ((1 << 20) - key.len() - 1_024) / certificate.len();
    let heavy = Pair {
        certificate: certificate.repeat(times),
        key: key.clone(),
    };
    let objects = |pair: &Pair| {
        Site::new("heavy.test")
            .namespace(&it.cluster.tenant())
            .class(&it.cluster.class())
            .to(it.cluster.endpoint())
            .tls(pair)
            .yaml()
    };
    it.api.apply(&objects(&heavy)).await;
    it.told("heavy-test", "certificates").await;
    it.cluster.eventually("heavy.test", is_refused).await;
    it.neighbour.all_well(10).await;
    // The owner puts it right.
    it.api.apply(&objects(&Pair { certificate, key })).await;
    it.cluster
        .eventually("heavy.test", |answer| answer.status == 200)
        .await;
    it.neighbour.all_well(10).await;
}

#[tokio::test]
async fn an_ingress_of_ten_thousand_rules_is_served_whole() {
    let mut it = Neighbourhood::start().await;
    let pair = it.cluster.authority.issue(&["*.rules.test"]);
    let shared = Site::new("rules.test")
        .namespace(&it.cluster.tenant())
        .to(it.cluster.endpoint())
        .tls(&pair);
    let mut rules = ingress(&it.cluster, "rules-test");
    rules += "    nginx.ingress.kubernetes.io/ssl-redirect: 'false'\n";
    let _ = write!(
        rules,
        "spec:\n  ingressClassName: {}\n  tls: [{{hosts: ['*.rules.test'], \
         secretName: rules-test}}]\n  rules:\n",
        it.cluster.class()
    );
    for number in 0..10_000 {
        let _ = writeln!(
            rules,
            "  - {{host: h{number:04}.rules.test, http: {{paths: [{}]}}}}",
            path("/", "rules-test")
        );
    }
    it.api.apply(&shared.documents()[1..].join("---\n")).await;
    let start = std::time::Instant::now();
    it.api.create(&rules).await;
    let live = eventually_within(LARGE_DEADLINE, async || {
        let answer = it.cluster.get("h9999.rules.test").await;
        (answer.status == 200).then_some(())
    });
    live.await.expect("the last host is served");
    tell("10,000 hosts of one Ingress", start);
    let url = "http://h[0000-9999].rules.test:8080/";
    all_served(it.cluster.poll(url, &[]), 10_000).await;
    it.cluster
        .eventually("h0000.rules.test", |answer| answer.status == 200)
        .await;
    it.neighbour.all_well(10).await;
}

#[tokio::test]
async fn a_host_of_ten_thousand_paths_is_served_whole() {
    let mut it = Neighbourhood::start().await;
    let shared = site(&it.cluster, "paths.test");
    let mut paths = ingress(&it.cluster, "paths-test");
    let _ = write!(
        paths,
        "    a: b\nspec:\n  ingressClassName: {}\n  tls: [{{hosts: [paths.test], \
         secretName: paths-test}}]\n  rules:\n  - host: paths.test\n    http:\n      paths:\n",
        it.cluster.class()
    );
    for number in 0..10_000 {
        let path = path(&format!("/p{number:04}"), "paths-test");
        let _ = writeln!(paths, "      - {path}");
    }
    it.api.apply(&shared.documents()[1..].join("---\n")).await;
    let start = std::time::Instant::now();
    it.api.create(&paths).await;
    let live = eventually(async || {
        let answer = it.cluster.ask("https://paths.test:8443/p9999").await;
        (answer.status == 200).then_some(())
    });
    live.await.expect("the last path is served");
    tell("10,000 paths of one host", start);
    let url = "https://paths.test:8443/p[0000-9999]";
    all_served(it.cluster.poll(url, &[]), 10_000).await;
    it.neighbour.all_well(10).await;
}

#[tokio::test]
async fn objects_that_are_gone_before_they_are_looked_at_leave_nothing() {
    let mut it = Neighbourhood::start().await;
    for number in 0..10 {
        let gone = site(&it.cluster, &format!("gone-{number}.test")).yaml();
        let back = site(&it.cluster, &format!("back-{number}.test")).yaml();
        it.api.create(&gone).await;
        it.api.delete(&gone).await;
        it.api.create(&back).await;
        it.api.delete(&back).await;
        it.api.create(&back).await;
    }
    // All that happened before this one has been looked at when it is served.
    it.api.apply(&site(&it.cluster, "last.test").yaml()).await;
    it.cluster
        .eventually("last.test", |answer| answer.status == 200)
        .await;
    for number in 0..10 {
        it.cluster
            .eventually(&format!("back-{number}.test"), |it| it.status == 200)
            .await;
        let answer = it.cluster.get(&format!("gone-{number}.test")).await;
        assert!(is_refused(&answer), "{answer:?}");
    }
    it.neighbour.all_well(10).await;
}

/// The head of an Ingress, up to its annotations.
fn ingress(cluster: &Cluster, name: &str) -> String {
    let namespace = cluster.tenant();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
         namespace: {namespace}\n  annotations:\n"
    )
}

fn path(path: &str, service: &str) -> String {
    format!(
        "{{path: {path}, pathType: Prefix, \
         backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}"
    )
}

async fn all_served(mut poll: Poll, count: usize) {
    let mut served = 0;
    while let Some(outcome) = poll.next().await {
        assert!(outcome.is_well(), "after {served}: {outcome:?}");
        served += 1;
    }
    assert_eq!(served, count);
}
