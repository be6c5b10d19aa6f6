//! Tenants that claim the same host, and whom the owner of its zone has named at a real server of
//! zones.

use myriad_e2e::authority::Authority;
use myriad_e2e::world::eventually;
use myriad_e2e::{Backend, Site, World};
use myriad_lab::bind::{BindServer, BindZone};

/// The host that two tenants claim.
const URL: &str = "http://a.test/";

/// A server of zones, where the owner of the host has named a namespace.
fn zones_at(port: u16, namespace: &str) -> BindServer {
    let record = format!(
        "_myriad-host.a IN TXT \"installation=edge.test;namespace={namespace}\"\n\
         _myriad-host.a IN TXT \"installation=other.test;namespace=blog\""
    );
    let zone = BindZone {
        name: "test",
        records: &record,
        takes_updates: false,
    };
    BindServer::start_at(port, &[zone]).expect("a server of zones")
}

/// The arguments by which hosts are proven there.
fn arguments(port: u16, state: &tempfile::TempDir) -> Vec<String> {
    vec![
        "--host-proof=edge.test".to_owned(),
        format!(
            "--host-proof-file={}",
            state.path().join("state/proofs").display()
        ),
        format!("--resolver=127.0.0.1:{port}"),
        format!("--acme-dns-proof={port}"),
    ]
}

async fn serve(files: &[(&str, String)], arguments: &[String]) -> World {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    World::serve_with(Authority::new(), files, &arguments).await
}

/// The objects of a tenant for the host, as old as the year says.
fn site(namespace: &str, backend: &Backend, year: u32) -> String {
    let text = Site::new("a.test").to(backend.address());
    let text = text.namespace(namespace).yaml();
    let line = format!("  namespace: {namespace}\n");
    let dated = format!("{line}  creationTimestamp: {year}-01-01T00:00:00Z\n");
    // The Ingress is the first of them.
    text.replacen(&line, &dated, 1)
}

/// Waits until a tenant answers.
async fn answers(world: &World, backend: &str) {
    let is_his =
        |answer: &myriad_e2e::Answer| answer.status == 200 && answer.told()["backend"] == backend;
    world.eventually(URL, is_his).await;
}

async fn proven(world: &World) {
    let proven = eventually(async || {
        let count = world.metric("myriad_hosts_proven").await;
        (count > 0.5).then_some(())
    });
    proven.await.expect("it is proven");
}

#[tokio::test]
async fn an_ingress_that_is_made_anew_keeps_its_host_by_the_record_of_its_owner() {
    for is_proven in [false, true] {
        let (owner, thief) = (Backend::start("owner").await, Backend::start("thief").await);
        let port = myriad_lab::port::free_port();
        let _zones = zones_at(port, "shop");
        let state = tempfile::tempdir().expect("a directory");
        let files = [
            ("shop.yaml", site("shop", &owner, 2024)),
            ("blog.yaml", site("blog", &thief, 2025)),
        ];
        let arguments = arguments(port, &state);
        let world = match is_proven {
            true => serve(&files, &arguments).await,
            false => serve(&files, &[]).await,
        };
        answers(&world, "owner").await;
        if is_proven {
            proven(&world).await;
        }
        world.delete("shop.yaml");
        match is_proven {
            true => drop(world.eventually(URL, |it| it.status == 404).await),
            false => answers(&world, "thief").await,
        }
        world.write("shop.yaml", &site("shop", &owner, 2026));
        match is_proven {
            true => {
                answers(&world, "owner").await;
                assert_eq!(thief.asked(), 0, "it never had the host");
            }
            // The takeover that the setting is for.
            false => {
                let told = eventually(async || {
                    let mut findings = world.findings().await.into_iter();
                    findings.find(|it| it.contains("shop/a-test"))
                });
                let told = told.await.expect("a finding");
                assert!(told.contains("belongs to namespace blog"), "{told}");
                answers(&world, "thief").await;
            }
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn a_younger_tenant_has_a_host_by_its_record_although_dns_and_the_process_end() {
    let (first, second) = (
        Backend::start("first").await,
        Backend::start("second").await,
    );
    let port = myriad_lab::port::free_port();
    let zones = zones_at(port, "blog");
    let state = tempfile::tempdir().expect("a directory");
    let files = [
        ("shop.yaml", site("shop", &first, 2024)),
        ("blog.yaml", site("blog", &second, 2025)),
    ];
    let arguments = arguments(port, &state);
    let world = serve(&files, &arguments).await;
    answers(&world, "second").await;
    let told = eventually(async || {
        let mut findings = world.findings().await.into_iter();
        findings.find(|it| it.contains("shop/a-test"))
    });
    let told = told.await.expect("a finding");
    let record = "installation=edge.test;namespace=shop";
    assert!(
        told.contains("_myriad-host.a.test") && told.contains(record),
        "{told}"
    );
    world.stop().await;

    drop(zones);
    let asked = first.asked();
    let world = serve(&files, &arguments).await;
    let answer = world.get(URL).await;
    assert_eq!(
        answer.told()["backend"],
        "second",
        "from the first answer on"
    );
    let failed = eventually(async || {
        let count = world.metric("myriad_host_proof_failures_total").await;
        (count > 0.5).then_some(())
    });
    failed.await.expect("nobody answers");
    let answer = world.get(URL).await;
    assert_eq!(answer.told()["backend"], "second", "DNS is down");
    assert_eq!(first.asked(), asked);
    world.stop().await;

    // Another one is named now.
    let _zones = zones_at(port, "shop");
    let world = serve(&files, &arguments).await;
    answers(&world, "first").await;
    world.stop().await;
}

#[tokio::test]
async fn a_flood_of_hosts_that_others_have_is_asked_of_at_a_pace() {
    const HOSTS: usize = 300;
    let (owner, flood) = (Backend::start("owner").await, Backend::start("flood").await);
    let port = myriad_lab::port::free_port();
    let _zones = zones_at(port, "shop");
    let state = tempfile::tempdir().expect("a directory");
    let many = |namespace: &str, backend: &Backend, year: u32| {
        let hosts = (0..HOSTS).map(|at| {
            let text = site(namespace, backend, year);
            text.replace("a.test", &format!("h{at}.test"))
                .replace("a-test", &format!("h{at}-test"))
        });
        hosts.collect::<Vec<_>>().join("---\n")
    };
    let files = [
        ("owner.yaml", many("owner", &owner, 2024)),
        ("flood.yaml", many("flood", &flood, 2025)),
    ];
    let world = serve(&files, &arguments(port, &state)).await;
    // Two tenants come behind it, and have their answer while most of the flood waits.
    world.write("blog.yaml", &site("blog", &flood, 2025));
    world.write("shop.yaml", &site("shop", &owner, 2026));
    answers(&world, "owner").await;
    let asked = world.metric("myriad_host_proof_questions_total").await;
    assert!(asked < HOSTS as f64, "{asked}");
    world.stop().await;
}
