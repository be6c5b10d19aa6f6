//! Certificates of names that are proven by DNS, at a real server of zones.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::authority::Authority;
use myriad_e2e::world::{eventually, eventually_within};
use myriad_e2e::{Answer, Backend, CertificateAuthority, Curl, Site, World};
use myriad_lab::bind::{BindServer, BindZone, KEY_NAME, KEY_SECRET};
use tokio::process::Child;

use super::commands::myriad;

/// How long a certificate may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A zone that the key may change, and that of a tenant, whose challenges are led there.
const ZONES: [BindZone<'static>; 2] = [
    BindZone {
        name: "test",
        records: "* IN A 127.0.0.1",
        takes_updates: true,
    },
    BindZone {
        name: "tenant",
        records: "www IN A 127.0.0.1\n_acme-challenge.www IN CNAME www-tenant.test.",
        takes_updates: false,
    },
];

/// An authority, and a server of zones that it asks.
struct Parts {
    ca: CertificateAuthority,
    zones: BindServer,
    folder: tempfile::TempDir,
}

impl Parts {
    fn start() -> Parts {
        let zones = BindServer::start(&ZONES).expect("a server of zones");
        let mut ca = CertificateAuthority::down().with_names_at(zones.address);
        ca.rise();
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("key"), KEY_SECRET).expect("a file");
        Parts { ca, zones, folder }
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let mut arguments = self.ca.arguments(&self.ca.state());
        let key = self.folder.path().join("key");
        arguments.extend([
            format!("--acme-dns-server={}", self.zones.address),
            format!("--acme-dns-proof={}", self.zones.address.port()),
            format!("--acme-dns-key-name={KEY_NAME}"),
            format!("--acme-dns-key-file={}", key.display()),
        ]);
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        arguments
    }

    async fn serve(&self, files: &[(&str, String)], more: &[&str]) -> World {
        let arguments = self.arguments(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        World::serve_with(Authority::new(), files, &arguments).await
    }

    /// Asks a host over HTTPS, trusting what the authority issues, until it answers.
    async fn answers(&self, host: &str) -> Option<Answer> {
        let root = self.ca.root().await;
        let url = format!("https://{host}:{}/", self.ca.https);
        let resolve = [format!("{host}:{}:127.0.0.1", self.ca.https)];
        eventually_within(PATIENCE, async || {
            let answer = Curl::new(&url, &resolve, &root).ask().await;
            (answer.status == 200).then_some(answer)
        })
        .await
    }

    /// Waits until nothing is left of any order.
    async fn is_clean(&self, names: &[&str]) {
        let orders = self.ca.state().join("orders");
        let clean = eventually(async || {
            let texts = names.iter().map(|name| self.zones.texts(name));
            let is_gone = texts.map(|it| it.expect("an answer")).all(|it| it == 0);
            let is_over = std::fs::read_dir(&orders).is_ok_and(|it| it.count() == 0);
            (is_gone && is_over).then_some(())
        });
        clean.await.expect("nothing is left");
    }
}

fn site(backend: &Backend, host: &str) -> Site {
    Site::new(host).to(backend.address()).issued_by("default")
}

#[tokio::test]
async fn a_wildcard_is_proven_by_dns_and_other_names_at_the_gateway() {
    let parts = Parts::start();
    let backend = Backend::start("a").await;
    let files = [
        ("wild.yaml", site(&backend, "*.shop.test").yaml()),
        ("a.yaml", site(&backend, "a.test").yaml()),
    ];
    let world = parts.serve(&files, &[]).await;
    parts.answers("any.shop.test").await.expect("it serves");
    parts.answers("a.test").await.expect("it serves");
    assert_eq!(parts.ca.issued(), 2);
    assert_eq!(world.findings().await, Vec::<String>::new());
    let log = parts.zones.log();
    assert!(log.contains("updating zone 'test/IN'"), "{log}");
    parts.is_clean(&["_acme-challenge.shop.test"]).await;
    world.stop().await;
}

#[tokio::test]
async fn a_host_below_a_wildcard_that_is_there_is_served_with_its_certificate() {
    let parts = Parts::start();
    let backend = Backend::start("a").await;
    let files = [("wild.yaml", site(&backend, "*.shop.test").yaml())];
    let world = parts.serve(&files, &[]).await;
    parts.answers("any.shop.test").await.expect("it serves");
    world.write("b.yaml", &site(&backend, "b.shop.test").yaml());
    let told = eventually(async || {
        let mut findings = world.findings().await.into_iter();
        findings.find(|it| it.contains("/b-shop-test"))
    });
    let told = told.await.expect("a finding");
    assert!(told.contains("is not ordered"), "{told}");
    parts.answers("b.shop.test").await.expect("it serves");
    assert_eq!(parts.ca.issued(), 1);
    // Without the wildcard it has one of its own.
    world.delete("wild.yaml");
    let own = parts.ca.state();
    let own = own.join("certificates/default+b-shop-test.json");
    let issued = eventually_within(PATIENCE, async || own.is_file().then_some(()));
    issued.await.expect("it has one");
    parts.answers("b.shop.test").await.expect("it serves");
    world.stop().await;
}

#[tokio::test]
async fn a_tenant_leads_its_challenges_to_a_zone_that_can_be_changed() {
    let parts = Parts::start();
    let backend = Backend::start("a").await;
    let files = [("www.yaml", site(&backend, "www.tenant").yaml())];
    let more = ["--acme-challenge=dns-01", "--acme-key=rsa-2048"];
    let world = parts.serve(&files, &more).await;
    parts.answers("www.tenant").await.expect("it serves");
    parts.is_clean(&["www-tenant.test"]).await;
    let file = parts
        .ca
        .state()
        .join("certificates/default+www-tenant.json");
    let secret = std::fs::read_to_string(file).expect("a certificate");
    let secret: serde_json::Value = serde_json::from_str(&secret).expect("a Secret");
    let key = secret["data"]["tls.key"].as_str().expect("a key");
    assert!(key.len() > 2_000, "no key of RSA has {} digits", key.len());

    // One that leads nowhere that can be changed is told of.
    world.write("b.yaml", &site(&backend, "other.tenant").yaml());
    let told = eventually(async || {
        let mut findings = world.findings().await.into_iter();
        findings.find(|it| it.contains("/other-tenant"))
    });
    let told = told.await.expect("a finding");
    assert!(
        told.contains("REFUSED") && told.contains("tenant"),
        "{told}"
    );
    assert_eq!(parts.ca.issued(), 1);
    world.stop().await;
}

/// A process that can be killed.
fn spawn(parts: &Parts, served: &Path) -> Child {
    let mut command = myriad();
    let arguments = parts.arguments(&["--acme-challenge=dns-01"]);
    command.arg("serve").args(arguments);
    command.args(["--admin=127.0.0.1:0", "--workers=1"]);
    command.arg(served);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("the binary runs")
}

/// How far the order of a name is, as it is kept, and how many of its records are set. When it was
/// placed is another moment after each start: if its process died of that, it would never go on.
fn kept(parts: &Parts, name: &str) -> (String, usize) {
    let file = parts.ca.state().join(format!("orders/default+{name}.json"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let order: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let stage = order["stage"].as_str().unwrap_or_default().to_owned();
    let records = order["records"].as_array().cloned().unwrap_or_default();
    let set = records.iter().filter(|record| record["value"].is_string());
    (stage, set.count())
}

#[tokio::test]
async fn a_process_that_is_killed_at_any_stage_leaves_no_record() {
    const NAMES: [&str; 3] = ["k0.test", "k1.test", "k2.test"];
    let parts = Parts::start();
    let backend = Backend::start("a").await;
    let served = tempfile::tempdir().expect("a directory");
    for host in NAMES {
        let path = served.path().join(format!("{host}.yaml"));
        std::fs::write(path, site(&backend, host).yaml()).expect("a file");
    }
    let orders = || NAMES.map(|host| kept(&parts, &host.replace('.', "-")));
    let certificates = parts.ca.state().join("certificates");
    let is_kept = |host: &&&str| {
        let name = host.replace('.', "-");
        certificates.join(format!("default+{name}.json")).is_file()
    };
    let count = || NAMES.iter().filter(is_kept).count();
    let mut kills = 0;
    while count() < NAMES.len() {
        let before = (orders(), count());
        let mut child = spawn(&parts, served.path());
        let changed = eventually(async || ((orders(), count()) != before).then_some(()));
        changed.await.expect("it goes on");
        child.kill().await.expect("it is killed");
        kills += 1;
    }
    assert!(kills >= NAMES.len(), "{kills}");
    let child = spawn(&parts, served.path());
    for host in NAMES {
        parts.answers(host).await.expect("it serves");
    }
    let places = NAMES.map(|host| format!("_acme-challenge.{host}"));
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    parts.is_clean(&places).await;
    assert_eq!(parts.ca.issued(), NAMES.len(), "none was ordered twice");
    drop(child);
}

#[tokio::test]
async fn a_record_that_is_there_for_good_is_enough() {
    let parts = Parts::start();
    let backend = Backend::start("a").await;
    let files = [("wild.yaml", site(&backend, "*.www.tenant").yaml())];
    let world = parts
        .serve(&files, &["--acme-challenge=dns-persist-01"])
        .await;
    let told = eventually(async || {
        let mut findings = world.findings().await.into_iter();
        findings.find(|it| it.contains("_validation-persist.www.tenant"))
    });
    let told = told.await.expect("a finding that says what to set");
    let account = told.split("accounturi=").nth(1).expect("an account");
    let account = account.split(';').next().expect("its URL");

    // Whoever has the zone sets it.
    let (name, text) = ("_validation-persist.www", "pebble.letsencrypt.org");
    let text = format!("{text}; accounturi={account}; policy=wildcard");
    let records = format!("{name} IN TXT \"{text}\"");
    let port = parts.zones.address.port();
    let Parts { ca, zones, folder } = parts;
    drop(zones);
    let tenant = BindZone {
        name: "tenant",
        records: &records,
        takes_updates: false,
    };
    let zones = BindServer::start_at(port, &[tenant]).expect("a server of zones");
    let parts = Parts { ca, zones, folder };
    parts.answers("any.www.tenant").await.expect("it serves");
    world.stop().await;
}
