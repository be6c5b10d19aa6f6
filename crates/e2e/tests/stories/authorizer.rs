//! A service that says who may pass to hosts of Ingresses, as docs/ingress.md has it.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use myriad_e2e::authority::Authority;
use myriad_e2e::istio::service;
use myriad_e2e::world::repository;
use myriad_e2e::{Backend, Site, World};
use tokio::net::TcpListener;

async fn decide(uri: Uri, headers: HeaderMap) -> Response {
    match headers.get("cookie").map(|cookie| cookie.as_bytes()) {
        Some(b"session=1") => [("x-user", "eve")].into_response(),
        _ => {
            let login = [("location", "https://login.example/")];
            (StatusCode::FOUND, login, uri.to_string()).into_response()
        }
    }
}

/// The blocks of YAML below a heading of a document.
fn blocks(path: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository(path)).expect("the document");
    let section = text.split("\n## ").find(|part| part.starts_with(heading));
    let section = section.expect("the heading");
    let parts = section.split("```yaml\n").skip(1);
    parts
        .map(|part| part.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn a_service_guards_the_hosts_of_ingresses_as_the_document_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().fallback(decide);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let backend = Backend::start("a").await;
    let [mesh, policy] = <[String; 2]>::try_from(blocks("docs/ingress.md", "Asking a service"))
        .expect("a provider and a policy");

    let settings = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(settings.path(), mesh).expect("a file");
    let site = |host| Site::new(host).to(backend.address()).yaml();
    let files = [
        ("shop.yaml", site("shop.example")),
        ("open.yaml", site("open.example")),
        ("sso.yaml", service("sso", &[address])),
        ("policy.yaml", policy),
    ];
    let argument = format!("--mesh-config={}", settings.path().display());
    let world = World::serve_with(Authority::new(), &files, &[&argument]).await;

    let refused = world.get("http://shop.example/cart").await;
    assert_eq!((refused.status, &*refused.body), (302, "/check/cart"));
    assert_eq!(refused.header("location"), Some("https://login.example/"));
    let curl = world.curl("http://shop.example/cart");
    let args = [
        "--header",
        "Cookie: session=1",
        "--header",
        "X-User: mallory",
    ];
    let admitted = curl.args(&args).ask().await;
    assert_eq!(admitted.told()["headers"]["x-user"], "eve");
    for open in ["http://shop.example/public/logo", "http://open.example/"] {
        assert_eq!(world.get(open).await.status, 200, "{open}");
    }
    assert_eq!(backend.asked(), 3);
    world.stop().await;
}
