//! Hosts that an Ingress has beside those that it names, as clients see them.

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

const NGINX: &str = "nginx.ingress.kubernetes.io";

#[tokio::test]
async fn an_alias_is_served_with_the_certificate_that_covers_it_and_goes_with_its_annotation() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let plain = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test", "b.test"]));
    let key = format!("{NGINX}/server-alias");
    let site = plain.clone().annotation(&key, "b.test");
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    for host in ["a.test", "b.test"] {
        let answer = world.get(&format!("https://{host}/x")).await;
        assert_eq!(answer.told()["backend"], "a", "{host}");
        assert_eq!(world.get(&format!("http://{host}/x")).await.status, 308);
    }
    world.write("a.yaml", &plain.yaml());
    world
        .eventually("http://b.test/x", |answer| answer.status == 404)
        .await;
    assert_eq!(world.get("https://b.test/x").await.status, 0);
    world.stop().await;
}

#[tokio::test]
async fn an_alias_takes_no_host_of_another_tenant() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let authority = Authority::new();
    let site = Site::new("b.test").to(owner.address()).namespace("one");
    let files = [("b.yaml", site.yaml())];
    let world = World::serve_with(authority, &files, &[]).await;
    let site = Site::new("a.test").to(thief.address()).namespace("two");
    let site = site.annotation(&format!("{NGINX}/server-alias"), "b.test");
    world.write("a.yaml", &site.yaml());
    world
        .eventually("http://a.test/", |answer| answer.status == 200)
        .await;
    assert_eq!(world.get("http://b.test/").await.told()["backend"], "owner");
    world.stop().await;
}

#[tokio::test]
async fn the_name_with_www_leads_to_the_host_on_the_same_port_and_scheme() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test")
        .to(backend.address())
        .tls(&authority.issue(&["a.test", "www.a.test"]))
        .annotation(&format!("{NGINX}/from-to-www-redirect"), "true");
    let world = World::serve_with(authority, &[("a.yaml", site.yaml())], &[]).await;
    for (scheme, port) in [
        ("http", world.http().port()),
        ("https", world.https().port()),
    ] {
        let answer = world.get(&format!("{scheme}://www.a.test/x?y=1")).await;
        assert_eq!(answer.status, 308, "{answer:?}");
        let location = format!("{scheme}://a.test:{port}/x?y=1");
        assert_eq!(answer.header("location"), Some(&*location));
    }
    assert_eq!(world.get("https://a.test/").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_redirect_takes_no_host_of_another_tenant() {
    let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
    let site = Site::new("a.test").to(owner.address()).namespace("one");
    let files = [("a.yaml", site.yaml())];
    let world = World::serve_with(Authority::new(), &files, &[]).await;
    let site = Site::new("www.a.test").to(thief.address()).namespace("two");
    let site = site.annotation(&format!("{NGINX}/from-to-www-redirect"), "true");
    world.write("www.yaml", &site.yaml());
    world
        .eventually("http://www.a.test/", |answer| answer.status == 200)
        .await;
    assert_eq!(world.get("http://a.test/").await.told()["backend"], "owner");
    world.stop().await;
}
