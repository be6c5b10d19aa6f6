//! Paths that servers read differently: what restricts one holds for every spelling of it, and
//! endpoints get what the client sent.

use myriad_e2e::authority::Authority;
use myriad_e2e::istio::{Scene, policy};
use myriad_e2e::{Backend, Site, World};

/// An Ingress for `/`, and another for `/admin` with an annotation.
async fn serve(backend: &Backend, key: &str, value: &str, arguments: &[&str]) -> World {
    let open = Site::new("a.test").to(backend.address()).yaml();
    let admin = Site::new("a.test").to(backend.address()).path("/admin");
    let admin = admin.annotation(&format!("nginx.ingress.kubernetes.io/{key}"), value);
    let admin = admin.yaml().replace("a-test", "a-admin");
    World::serve_with(
        Authority::new(),
        &[("a.yaml", open), ("b.yaml", admin)],
        arguments,
    )
    .await
}

async fn status(world: &World, path: &str) -> u16 {
    let curl = world.curl(&format!("http://a.test{path}"));
    curl.args(&["--path-as-is"]).ask().await.status
}

/// Spellings of paths below `/admin`.
const SPELLINGS: [&str; 10] = [
    "/admin",
    "/%61dmin",
    "//admin",
    "/x/..//admin",
    "/admin%2fx",
    "/%2fadmin",
    "/admin;x",
    "/x/..;/admin",
    "/admin%5c",
    "/%2561dmin",
];

#[tokio::test]
async fn a_path_with_source_ranges_is_closed_in_every_spelling() {
    for arguments in [&[][..], &["--path-normalization=NONE"]] {
        let backend = Backend::start("a").await;
        let (key, value) = ("whitelist-source-range", "192.0.2.0/24");
        let world = serve(&backend, key, value, arguments).await;
        for path in SPELLINGS {
            let status = status(&world, path).await;
            assert!([400, 403].contains(&status), "{path}: {status}");
        }
        assert_eq!(backend.asked(), 0);
        assert_eq!(status(&world, "/administration").await, 200);
        assert_eq!(status(&world, "/%7euser//x;y").await, 200);
        world.stop().await;
    }
}

#[tokio::test]
async fn a_path_whose_access_policy_is_not_honoured_is_closed_in_every_spelling() {
    let backend = Backend::start("a").await;
    let world = serve(&backend, "valid-referers", "a.test", &[]).await;
    for path in SPELLINGS {
        let status = status(&world, path).await;
        assert!([400, 503].contains(&status), "{path}: {status}");
    }
    assert_eq!(backend.asked(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_path_that_a_policy_denies_is_denied_in_every_spelling() {
    let spec = "action: DENY, rules: [{to: [{operation: {paths: [/admin, /admin/*]}}]}]";
    let backend = Backend::start("a").await;
    let world = Scene::new()
        .to(&[backend.address()])
        .with(&policy("AuthorizationPolicy", "closed", spec))
        .serve()
        .await;
    for path in SPELLINGS {
        let status = status(&world, path).await;
        assert!([400, 403].contains(&status), "{path}: {status}");
    }
    assert_eq!(backend.asked(), 0);
    assert_eq!(status(&world, "/administration%2f").await, 200);
    world.stop().await;
}

/// Targets whose bytes have a meaning for the endpoint: a URL signed for S3, a project of GitLab, a
/// virtual host of RabbitMQ, and keys of an object store.
const OWN_BYTES: [&str; 5] = [
    "/bucket/a%20b%2Bc/~x%7E?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20260101%2Fs3\
     &X-Amz-SignedHeaders=host&X-Amz-Signature=0f0f",
    "/api/v4/projects/group%2Fproject/repository/files/a%2Fb.rs?ref=main",
    "/api/queues/%2F/orders",
    "/bucket/logs//2026///x",
    "/map;v=1/%E2%82%AC%FF/100%25",
];

#[tokio::test]
async fn endpoints_get_the_bytes_of_the_client() {
    let backend = Backend::start("a").await;
    let site = Site::new("a.test").to(backend.address()).yaml();
    let ingress = World::serve(&[("a.yaml", site)]).await;
    let istio = Scene::new().to(&[backend.address()]).serve().await;
    for world in [&ingress, &istio] {
        for target in OWN_BYTES {
            let curl = world.curl(&format!("http://a.test{target}"));
            let answer = curl.args(&["--path-as-is"]).ask().await;
            assert_eq!(answer.told()["uri"], target);
        }
        // Nothing but dot segments is changed.
        let curl = world.curl("http://a.test/a/%2e%2e/b%2F//%7e");
        let answer = curl.args(&["--path-as-is"]).ask().await;
        assert_eq!(answer.told()["uri"], "/b%2F//%7e");
    }
    ingress.stop().await;
    istio.stop().await;
}
