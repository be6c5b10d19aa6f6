//! Changes of files, and what clients see of them.

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::{Backend, Site, World};

#[tokio::test]
async fn a_new_file_is_a_new_domain_and_its_end_is_the_domains_end() {
    let backend = Backend::start("a").await;
    let world = World::serve(&[]).await;
    assert_eq!(
        world.get("https://a.test/").await.status,
        0,
        "no such name yet"
    );

    let pair = world.authority.issue(&["a.test"]);
    world.write(
        "a.yaml",
        &Site::new("a.test").to(backend.address()).tls(&pair).yaml(),
    );
    let answer = world
        .eventually("https://a.test/x?y=1", |answer| answer.status == 200)
        .await;
    assert_eq!(answer.told()["uri"], "/x?y=1");

    world.delete("a.yaml");
    let answer = world
        .eventually("https://a.test/", |answer| answer.status == 0)
        .await;
    assert!(
        answer.error.contains("unrecognized name"),
        "an alert, not another's certificate: {answer:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_renewed_certificate_serves_at_once() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = |pair: &Pair| Site::new("a.test").to(backend.address()).tls(pair).yaml();
    // Trusted by nobody, so that curl says no until the renewal.
    let world = World::serve(&[("a.yaml", site(&authority.issue(&["a.test"])))]).await;
    assert_eq!(world.get("https://a.test/").await.status, 0);
    world.write("a.yaml", &site(&world.authority.issue(&["a.test"])));
    world
        .eventually("https://a.test/", |answer| answer.status == 200)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_file_that_breaks_keeps_its_last_good_objects_and_its_neighbours() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = |host: &str| {
        Site::new(host)
            .to(backend.address())
            .tls(&authority.issue(&[host]))
            .yaml()
    };
    let files = [("a.yaml", site("a.test")), ("b.yaml", site("b.test"))];
    let world = World::serve_with(authority, &files, &[]).await;

    world.write("a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: [what\n");
    let seen = myriad_e2e::world::eventually(async || {
        world
            .findings()
            .await
            .into_iter()
            .find(|finding| finding.contains("a.yaml"))
    });
    seen.await.expect("a finding that names the file");
    assert_eq!(world.get("https://a.test/").await.status, 200);
    assert_eq!(world.get("https://b.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_mounted_volume_swaps_as_a_whole() {
    let backend = Backend::start("a").await;
    let world = World::serve(&[]).await;
    let served = world.served();
    let fill = |generation: &str, hosts: &[&str]| {
        let directory = served.join(generation);
        std::fs::create_dir(&directory).expect("a directory");
        for host in hosts {
            let pair = world.authority.issue(&[host]);
            let yaml = Site::new(host).to(backend.address()).tls(&pair).yaml();
            std::fs::write(directory.join(format!("{host}.yaml")), yaml).expect("a file");
        }
        std::os::unix::fs::symlink(generation, served.join("..data_tmp")).expect("a link");
        std::fs::rename(served.join("..data_tmp"), served.join("..data")).expect("a swap");
    };
    fill("..one", &["a.test"]);
    let visible = served.join("a.test.yaml");
    std::os::unix::fs::symlink("..data/a.test.yaml", visible).expect("a link");
    world
        .eventually("https://a.test/", |answer| answer.status == 200)
        .await;

    std::os::unix::fs::symlink("..data/b.test.yaml", served.join("b.test.yaml")).expect("a link");
    fill("..two", &["b.test"]);
    // As the kubelet does with the links of keys that are gone.
    world.delete("a.test.yaml");
    world
        .eventually("https://b.test/", |answer| answer.status == 200)
        .await;
    world
        .eventually("https://a.test/", |answer| answer.status == 0)
        .await;
    world.stop().await;
}

#[tokio::test]
async fn endpoints_come_and_go_under_the_same_name() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let site = |backend: &Backend| Site::new("a.test").to(backend.address()).tls(&pair).yaml();
    let world = World::serve_with(authority, &[("a.yaml", site(&first))], &[]).await;
    assert_eq!(
        world.get("https://a.test/").await.told()["backend"],
        "first"
    );
    world.write("a.yaml", &site(&second));
    world
        .eventually("https://a.test/", |answer| {
            assert_eq!(answer.status, 200, "never an error in between");
            answer.told()["backend"] == "second"
        })
        .await;
    world.write("a.yaml", &Site::new("a.test").tls(&pair).yaml());
    world
        .eventually("https://a.test/", |answer| answer.status == 503)
        .await;
    world.stop().await;
}
