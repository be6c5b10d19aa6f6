//! Names of which DNS knows nothing or that it leads in a circle, and state that people have
//! spoiled.

use myriad_e2e::{Backend, CertificateAuthority};
use myriad_lab::bind::{BindServer, BindZone};

use super::acme::{answers, serve, site, told};

fn zone<'a>(name: &'a str, records: &'a str) -> BindZone<'a> {
    BindZone {
        name,
        records,
        takes_updates: false,
    }
}

#[tokio::test]
async fn names_that_dns_does_not_know_or_leads_in_a_circle_are_not_ordered_until_it_does() {
    let tests = "* IN A 127.0.0.1\nround IN CNAME back\nback IN CNAME round";
    let zones = [zone("test", tests), zone("lost", "other IN A 127.0.0.1")];
    let server = BindServer::start(&zones).expect("a server of zones");
    let port = server.address.port();
    let mut ca = CertificateAuthority::down().with_names_at(server.address);
    ca.rise();
    let backend = Backend::start("a").await;
    let hosts = ["good.test", "round.test", "gone.lost"];
    let files = hosts.map(|host| (format!("{host}.yaml"), site(&backend, host).yaml()));
    let files = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.clone()));
    let files: Vec<(&str, String)> = files.collect();
    let world = serve(&ca, &files, &[]).await;
    for host in ["round.test", "gone.lost"] {
        let told = told(&world, host, "cannot be looked up in DNS").await;
        let remedy = format!("point {host} at the gateway");
        assert!(told.contains(&remedy), "{told}");
    }
    answers(&ca, "good.test").await.expect("it serves");
    assert_eq!(ca.issued(), 1);
    assert!(!ca.log().contains("gone.lost"), "nobody has asked for it");

    // Whoever has the zones mends them, and need not say so to anybody.
    drop(server);
    let zones = [
        zone("test", "* IN A 127.0.0.1\nround IN CNAME good"),
        zone("lost", "gone IN A 127.0.0.1"),
    ];
    let _server = BindServer::start_at(port, &zones).expect("a server of zones");
    for host in ["round.test", "gone.lost"] {
        answers(&ca, host).await.expect("it serves");
    }
    assert_eq!(ca.issued(), 3);
    world.stop().await;
}

#[tokio::test]
async fn an_account_whose_key_is_lost_is_made_anew_and_a_certificate_that_is_spoiled_too() {
    let ca = CertificateAuthority::start();
    let backend = Backend::start("a").await;
    let file = |host: &str| (format!("{host}.yaml"), site(&backend, host).yaml());
    let (a, b) = (file("a.test"), file("b.test"));
    let files = [(&*a.0, a.1.clone()), (&*b.0, b.1.clone())];
    let world = serve(&ca, &files, &[]).await;
    for host in ["a.test", "b.test"] {
        answers(&ca, host).await.expect("it serves");
    }
    assert_eq!(ca.issued(), 2);
    world.stop().await;

    let state = ca.state();
    std::fs::remove_dir_all(state.join("accounts")).expect("a folder");
    let certificate = state.join("certificates/default+a-test.json");
    std::fs::write(&certificate, "{\"kind\": \"Secret\"").expect("a file");
    let world = serve(&ca, &files, &[]).await;
    for host in ["a.test", "b.test"] {
        answers(&ca, host).await.expect("it serves");
    }
    // The one that was whole is served as it was.
    assert_eq!(ca.issued(), 3);
    let text = std::fs::read_to_string(&certificate).expect("a file");
    assert!(text.contains("tls.crt"), "it is written anew");
    let accounts = std::fs::read_dir(state.join("accounts")).expect("a folder");
    assert_eq!(accounts.count(), 2, "a key and an account");
    world.stop().await;
}
