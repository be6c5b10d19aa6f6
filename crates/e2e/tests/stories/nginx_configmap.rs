//! The restrictions in the ConfigMap of an ingress-nginx, as clients see them.

use std::path::Path;

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

use super::commands::myriad;

const NAMED: &str = "--nginx-configmap=ingress-nginx/controller";

fn map(data: &str) -> String {
    let metadata = "  namespace: ingress-nginx\n  name: controller\n";
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n{metadata}data:\n  {data}\n")
}

async fn serve(backend: &Backend, data: &str) -> World {
    let site = Site::new("a.test").to(backend.address());
    let own = Site::new("own.test").to(backend.address()).annotation(
        "nginx.ingress.kubernetes.io/whitelist-source-range",
        "127.0.0.0/8",
    );
    let files = [
        ("a.yaml", site.yaml()),
        ("map.yaml", map(data)),
        ("own.yaml", own.yaml()),
    ];
    World::serve_with(Authority::new(), &files, &[NAMED]).await
}

#[tokio::test]
async fn its_list_of_networks_holds_for_ingresses_without_one() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, "whitelist-source-range: 10.0.0.0/8").await;
    assert_eq!(world.get("http://a.test/").await.status, 403);
    assert_eq!(world.get("http://own.test/").await.status, 200);
    world.write("map.yaml", &map("whitelist-source-range: 127.0.0.0/8"));
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    world.delete("map.yaml");
    let closed = world
        .eventually("http://a.test/", |answer| answer.status == 503)
        .await;
    assert!(closed.body.contains("closed"), "{closed:?}");
    world.stop().await;
}

#[tokio::test]
async fn its_list_of_networks_that_are_denied_holds_for_ingresses_without_one() {
    let backend = Backend::start("a").await;
    let own = Site::new("own.test").to(backend.address()).annotation(
        "nginx.ingress.kubernetes.io/denylist-source-range",
        "10.0.0.0/8",
    );
    let site = Site::new("a.test").to(backend.address());
    let files = [
        ("a.yaml", site.yaml()),
        ("map.yaml", map("denylist-source-range: 127.0.0.0/8")),
        ("own.yaml", own.yaml()),
    ];
    let world = World::serve_with(Authority::new(), &files, &[NAMED]).await;
    assert_eq!(world.get("http://a.test/").await.status, 403);
    assert_eq!(world.get("http://own.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn it_asks_browsers_for_https_once_it_says_so() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test").to(backend.address());
    let site = site.tls(&authority.issue(&["a.test"]));
    let files = [
        ("a.yaml", site.yaml()),
        ("map.yaml", map("hsts-max-age: '600'")),
    ];
    let world = World::serve_with(authority, &files, &[NAMED]).await;
    let answer = world.get("https://a.test/").await;
    assert_eq!(answer.header("strict-transport-security"), None);
    world.write("map.yaml", &map("hsts: 'true'\n  hsts-max-age: '600'"));
    let is_told = |value: Option<&str>| value == Some("max-age=600");
    let told = world.eventually("https://a.test/", |answer| {
        is_told(answer.header("strict-transport-security"))
    });
    assert_eq!(told.await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_service_that_cannot_be_asked_about_requests_closes_all_paths() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, "global-auth-url: auth.test").await;
    for host in ["a.test", "own.test"] {
        let answer = world.get(&format!("http://{host}/")).await;
        assert_eq!(answer.status, 503, "{host}");
    }
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn check_reads_a_configmap_that_an_ingress_names_for_headers() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("site.yaml");
    let site = Site::new("a.test").annotation(
        "nginx.ingress.kubernetes.io/custom-headers",
        "ingress-nginx/controller",
    );
    let site = site.namespace("ingress-nginx").yaml();
    let text = format!("{site}---\n{}", map("X-A: a"));
    std::fs::write(&file, text).expect("a file");
    let (_, text) = check(&file, &[]).await;
    assert!(!text.contains("not read"), "{text}");
    assert!(!text.contains("custom-headers"), "{text}");
}

/// The exit code of a check of one file, and what it says.
async fn check(file: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = myriad();
    command.arg("check").arg(file).args(arguments);
    let output = command.output().await.expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[tokio::test]
async fn check_says_that_it_is_not_read_and_with_the_flag_what_of_it_is_not_honoured() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("map.yaml");
    std::fs::write(&file, map("global-auth-url: auth.test")).expect("a file");
    let (code, text) = check(&file, &[]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("map.yaml:7: warning: ConfigMap"), "{text}");
    assert!(text.contains(NAMED) && text.contains("not read: 1 ConfigMap"));
    let (code, text) = check(&file, &[NAMED]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("map.yaml:7: error: ConfigMap"), "{text}");
    assert!(!text.contains("not read"), "{text}");
    let (code, text) = check(&file, &["--nginx-configmap=ingress-nginx/other"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ConfigMap ingress-nginx/other: is not there"));
}
