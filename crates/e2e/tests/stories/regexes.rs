//! Regexes of a host: what they cost at most who does not have them, and that they serve who does.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use myriad_e2e::istio::{Scene, TO};
use myriad_e2e::world::eventually_within;
use myriad_e2e::{Answer, Backend, Curl, Site};
use tokio::process::Child;

use super::overload::with_budget;
use super::restart::PATIENCE;

/// The most bytes that a request may make the process take.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// The most bytes that an object of 35 KB may make the process take, with all that its translation
/// needs.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// The host of the regexes, and one that has none.
const HOST: &str = "regex.test";
const NEIGHBOUR: &str = "neighbour.test";

/// The bytes of a path that is long and fits nothing.
const LONG: usize = 3_000;

/// An Ingress with these paths, for the Service of the neighbour.
fn ingress(patterns: impl Iterator<Item = String>) -> String {
    let mut text = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  namespace: default\n  name: \
         regexes\n  annotations: {{myriad.dev/use-regex: \"true\"}}\nspec:\n  rules:\n  - host: \
         {HOST}\n    http:\n      paths:\n"
    );
    for pattern in patterns {
        writeln!(
            text,
            "      - {{path: '{pattern}', pathType: ImplementationSpecific, backend: {{service: \
             {{name: neighbour-test, port: {{number: 80}}}}}}}}"
        )
        .expect("text");
    }
    text
}

/// Regexes that no hint and no small table helps with.
fn hostile(number: u32) -> String {
    let turns = number / 2 + 1;
    match number % 2 {
        0 => format!("/(\\w+\\s?)*x{{{turns}}}"),
        _ => format!("/(a{{1,200}}){{1,3}}[bc]{{{turns}}}"),
    }
}

/// A process that serves a directory, and says nothing that anybody reads.
struct Process {
    http: SocketAddr,
    child: Child,
}

impl Process {
    async fn start(directory: &Path) -> Process {
        let (http, _, (child, mut lines)) = with_budget(directory, "0").await;
        // What nobody reads would stop it some time.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Process { http, child }
    }

    async fn ask(&self, host: &str, path: &str) -> Answer {
        let port = self.http.port();
        let resolve = format!("{host}:{port}:{}", self.http.ip());
        let url = format!("http://{host}:{port}{path}");
        let curl = Curl::new(&url, &[resolve], &"/none".into());
        curl.args(&["--insecure"]).ask().await
    }

    /// Waits until a path is answered so.
    async fn answers(&self, host: &str, path: &str, status: u16) {
        // A build for tests compiles 256 of them slowly.
        let answered = eventually_within(PATIENCE, async || {
            let answer = self.ask(host, path).await;
            (answer.status == status).then_some(())
        });
        let answered = answered.await;
        assert!(answered.is_some(), "{host}{path} never gets {status}");
    }

    /// The most memory in bytes that it ever had.
    fn peak(&self) -> u64 {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: u64 = kib.and_then(|kib| kib.trim().parse().ok()).expect("KiB");
        kib << 10
    }
}

/// A directory with the neighbour alone, and its endpoint.
async fn neighbourhood() -> (tempfile::TempDir, Backend) {
    let directory = tempfile::tempdir().expect("a directory");
    let backend = Backend::start("neighbour").await;
    let site = Site::new(NEIGHBOUR).to(backend.address());
    let file = directory.path().join("neighbour.yaml");
    std::fs::write(file, site.yaml()).expect("a file");
    (directory, backend)
}

/// It took 4 GB and seconds, and anybody could ask.
#[tokio::test]
async fn an_expensive_path_on_a_host_of_256_regexes_costs_its_client_alone() {
    let (directory, _backend) = neighbourhood().await;
    let process = Process::start(directory.path()).await;
    process.answers(NEIGHBOUR, "/", 200).await;
    let before = process.peak();
    let text = ingress((0..256).map(hostile));
    assert!((30_000..40_000).contains(&text.len()), "{}", text.len());
    std::fs::write(directory.path().join("regexes.yaml"), text).expect("a file");
    // It fits one of them.
    process.answers(HOST, "/ax", 200).await;
    let served = process.peak();
    let object = served.saturating_sub(before);
    assert!(object < OBJECT_BYTES_MAX, "the object takes {object} bytes");
    let path = format!("/{}", "a".repeat(LONG));
    let attack = async {
        for _ in 0..10 {
            let answer = process.ask(HOST, &path).await;
            assert_eq!(answer.status, 503, "{answer:?}");
        }
    };
    let meanwhile = async {
        for _ in 0..10 {
            let answer = process.ask(NEIGHBOUR, "/").await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    };
    tokio::join!(attack, meanwhile);
    let request = process.peak().saturating_sub(served);
    assert!(request < REQUEST_BYTES_MAX, "requests take {request} bytes");
}

#[tokio::test]
async fn who_writes_a_hundred_honest_regexes_is_served_by_each() {
    let (directory, backend) = neighbourhood().await;
    let text = ingress((0..100).map(|at| format!("/u{at}/(\\w+)/(\\w+)/edit")));
    std::fs::write(directory.path().join("regexes.yaml"), text).expect("a file");
    let process = Process::start(directory.path()).await;
    process.answers(HOST, "/u0/a/b/edit", 200).await;
    let asked = backend.asked();
    for at in 0..100 {
        let path = format!("/u{at}/some_customer/a_page/edit");
        let answer = process.ask(HOST, &path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert_eq!(backend.asked(), asked + 100);
    let answer = process.ask(HOST, "/u100/some_customer/a_page/edit").await;
    assert_eq!(answer.status, 404, "{answer:?}");
}

/// The process ended.
#[tokio::test]
async fn a_virtual_service_of_400_regexes_has_256_and_says_which_it_has_not() {
    let backend = Backend::start("a").await;
    let matches = (0..400).map(|at| format!("{{uri: {{regex: '/u{at}/(\\w+)/(\\w+)/edit'}}}}"));
    let matches: Vec<String> = matches.collect();
    let many = format!("match: [{}], {TO}", matches.join(", "));
    let world = Scene::new()
        .to(&[backend.address()])
        .rules(&[&many])
        .serve()
        .await;
    for (at, status) in [(0, 200), (255, 200), (256, 404), (399, 404)] {
        let url = format!("http://a.test/u{at}/some_customer/a_page/edit");
        let answer = world.get(&url).await;
        assert_eq!(answer.status, status, "{url}: {answer:?}");
    }
    let findings = world.findings().await;
    let says = |field: &str| {
        let mut told = findings.iter();
        told.any(|it| it.contains(field) && it.contains("beyond the 256 that a host may have"))
    };
    assert!(says("spec.http[0].match[256]"), "{findings:?}");
    assert!(!says("spec.http[0].match[255]"), "{findings:?}");
    world.stop().await;
}

#[tokio::test]
async fn what_a_rule_beyond_the_bound_restricted_is_not_opened_by_the_next() {
    let backend = Backend::start("a").await;
    let first = format!("match: [{{uri: {{regex: '/first/.*'}}}}], {TO}");
    let denied = "match: [{uri: {regex: '/admin/(\\w+)'}}], directResponse: {status: 403}";
    let other = format!("match: [{{uri: {{regex: '/other/.*'}}}}], {TO}");
    let world = Scene::new()
        .to(&[backend.address()])
        .rules(&[&first, denied, &other, TO])
        .argument("--regexes-per-host=1")
        .serve()
        .await;
    for (path, status) in [
        ("first/a", 200),
        ("admin/a", 503),
        ("admin/a/b", 503),
        ("other/a", 200),
        ("a", 200),
    ] {
        let answer = world.get(&format!("http://a.test/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    world.stop().await;
}
