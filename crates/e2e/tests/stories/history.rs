//! The past: what was served at a moment, what changed since, and why a domain broke.

use myriad_e2e::authority::Authority;
use myriad_e2e::{Backend, Site, World};

use super::commands::ask;

/// The moment that a process says it is, as RFC 3339 has it.
async fn moment(world: &World) -> String {
    let page = world.admin("/why?host=a.test").await;
    let story: serde_json::Value = serde_json::from_str(&page.body).expect("a story");
    story["at"].as_str().expect("a moment").to_owned()
}

#[tokio::test]
async fn a_domain_that_broke_is_told_with_the_object_the_moment_and_what_was_before() {
    let (authority, backend) = (Authority::new(), Backend::start("a").await);
    let site = Site::new("a.test").tls(&authority.issue(&["a.test"]));
    let whole = site.clone().to(backend.address()).yaml();
    let world = World::serve_with(authority, &[("a.yaml", whole.clone())], &[]).await;
    assert_eq!(world.get("https://a.test/").await.status, 200);
    let (code, text) = ask(&world, &["why", "a.test"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("since before "), "{text}");

    let before = moment(&world).await;
    world.write("a.yaml", &site.yaml());
    world
        .eventually("https://a.test/", |answer| answer.status == 503)
        .await;
    let (code, text) = ask(&world, &["why", "a.test"]).await;
    assert_eq!(code, Some(1), "{text}");
    for part in [
        "NOT SERVED: 503: ",
        "before that: is sent to one of 1 endpoints",
        "EndpointSlice default/a-test",
        " was removed",
        "live on all proxies (1) after ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }

    let at = format!("--at={before}");
    let (code, text) = ask(&world, &["explain", "https://a.test/", &at]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("is sent to one of 1 endpoints"), "{text}");
    let (code, text) = ask(&world, &["explain", "https://a.test/", "--at=now"]).await;
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = ask(&world, &["explain", "https://a.test/", "--at=noon"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("-10m for ten minutes ago"), "{text}");

    let (code, text) = ask(&world, &["diff", &before, "--host=a.test"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("EndpointSlice default/a-test"), "{text}");
    assert!(text.contains("endpoints default/a-test"), "{text}");
    let (code, text) = ask(&world, &["diff", &before, "now", "--host=b.test"]).await;
    assert_eq!(code, Some(0), "{text}");

    world.write("a.yaml", &whole);
    world
        .eventually("https://a.test/", |answer| answer.status == 200)
        .await;
    let (code, text) = ask(&world, &["why", "https://a.test/"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("before that: 503: "), "{text}");
    world.stop().await;
}

#[tokio::test]
async fn a_former_certificate_is_explained_and_its_key_shows_up_nowhere() {
    let (authority, backend) = (Authority::new(), Backend::start("a").await);
    let [former, newer] = [(), ()].map(|()| authority.issue(&["a.test"]));
    let site = |pair| Site::new("a.test").to(backend.address()).tls(pair).yaml();
    let files = [("a.yaml", site(&former))];
    let newer_text = site(&newer);
    let world = World::serve_with(authority, &files, &[]).await;
    let before = moment(&world).await;
    let digest = world.admin("/config").await.body;
    world.write("a.yaml", &newer_text);
    let changed = myriad_e2e::world::eventually(async || {
        let now = world.admin("/config").await.body;
        (now != digest).then_some(())
    });
    assert!(changed.await.is_some(), "the certificate is renewed");

    let at = format!("--at={before}");
    let (code, text) = ask(&world, &["explain", "https://a.test/", &at]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Secret default/a-test for a.test"), "{text}");
    let (_, shown) = ask(&world, &["diff", &before]).await;
    assert!(shown.contains("leaf.fingerprint: "), "{shown}");
    let mut pages = shown;
    for page in ["/history", "/history/entry?number=1", "/why?host=a.test"] {
        let answer = world.admin(page).await;
        assert_eq!(answer.status, 200, "{page}: {}", answer.body);
        pages.push_str(&answer.body);
    }
    assert!(pages.contains("certificate"), "{pages}");
    for pair in [&former, &newer] {
        let line = pair.key.lines().nth(1).expect("a line of the key");
        assert!(!pages.contains(line), "{pages}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_process_without_a_history_says_so() {
    let authority = Authority::new();
    let files = [("a.yaml", Site::new("a.test").yaml())];
    let world = World::serve_with(authority, &files, &["--history-bytes=0"]).await;
    for arguments in [["why", "a.test"], ["diff", "-10m"]] {
        let (code, text) = ask(&world, &arguments).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--history-bytes"), "{text}");
    }
    world.stop().await;
}
