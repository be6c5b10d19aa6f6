//! The example of Gateway API, as somebody meets it who serves it as files: two tenants with hosts
//! and certificates of their own at one Gateway.

use myriad_e2e::world::{eventually, repository};
use myriad_e2e::{Backend, World, authority::Authority};

/// The port of the endpoint in the example.
const ENDPOINT: &str = "9000";

fn example(name: &str) -> String {
    std::fs::read_to_string(repository("examples/gateway-api").join(name)).expect("the example")
}

/// The example, with a backend at its endpoint.
async fn serve() -> (Backend, World) {
    let backend = Backend::start("web").await;
    let port = backend.address().port().to_string();
    let files = [
        ("platform.yaml", example("platform.yaml")),
        ("shop.yaml", example("shop.yaml")),
        ("blog.yaml", example("blog.yaml")),
        ("certificates.yaml", example("certificates.yaml")),
        (
            "endpoints.yaml",
            example("endpoints.yaml").replace(ENDPOINT, &port),
        ),
    ];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    (backend, world)
}

#[tokio::test]
async fn two_tenants_have_hosts_and_certificates_at_one_gateway() {
    let (_backend, world) = serve().await;
    let findings = world.findings().await;
    assert!(findings.is_empty(), "{findings:?}");

    let ask = async |url: &str| world.curl(url).args(&["-k"]).ask().await;
    let answer = ask("https://shop.localhost/x?y=1").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.told()["uri"], "/x?y=1");
    assert_eq!(answer.told()["headers"]["x-from"], "gateway");
    let answer = ask("http://shop.localhost/x").await;
    assert_eq!(answer.status, 301, "{answer:?}");
    assert_eq!(answer.header("location"), Some("https://shop.localhost/x"));
    let answer = ask("https://blog.localhost/").await;
    assert_eq!(answer.status, 308, "{answer:?}");
    // Nobody has a route there, and no listener has the other host.
    assert_eq!(ask("http://platform.localhost/").await.status, 404);
    assert_eq!(ask("http://blog.localhost/").await.status, 404);
    assert_eq!(ask("https://other.localhost/").await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn an_edit_of_a_route_changes_the_answer_and_no_other() {
    let (_backend, world) = serve().await;
    let shop = example("shop.yaml");
    world.write(
        "shop.yaml",
        &shop.replace("value: gateway", "value: edited"),
    );
    let edited = eventually(async || {
        let answer = world.curl("https://shop.localhost/").args(&["-k"]);
        let answer = answer.ask().await;
        (answer.told()["headers"]["x-from"] == "edited").then_some(answer)
    });
    edited.await.expect("the edited answer");
    let answer = world.curl("https://blog.localhost/").args(&["-k"]);
    assert_eq!(answer.ask().await.status, 308);
    world.stop().await;
}

#[tokio::test]
async fn a_secret_that_goes_closes_its_listener_and_no_other() {
    let (_backend, world) = serve().await;
    let certificates = example("certificates.yaml");
    let (shop, _) = certificates.split_once("---\n").expect("two Secrets");
    world.write("certificates.yaml", shop);
    let closed = eventually(async || {
        let answer = world.curl("https://blog.localhost/").args(&["-k"]);
        (answer.ask().await.status == 0).then_some(())
    });
    closed.await.expect("no handshake");
    let told = world.findings().await;
    let is_told = |it: &String| it.contains("ListenerSet blog/blog");
    assert!(told.iter().any(is_told), "{told:?}");
    let answer = world.curl("https://shop.localhost/").args(&["-k"]);
    assert_eq!(answer.ask().await.status, 200);
    world.write("certificates.yaml", &certificates);
    let served = eventually(async || {
        let answer = world.curl("https://blog.localhost/").args(&["-k"]);
        (answer.ask().await.status == 308).then_some(())
    });
    served.await.expect("it serves again");
    world.stop().await;
}
