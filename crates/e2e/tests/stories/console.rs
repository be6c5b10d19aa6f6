//! The console as people see it: who is let in, what a browser shows of it, whether everybody can
//! use it, and that it shows nobody's markup and no key.

use std::time::{Duration, Instant};

use myriad_e2e::authority::{Authority, Pair};
use myriad_e2e::browser::{Browser, Look, is_picture};
use myriad_e2e::{Answer, Backend, Site, World};
use serde_json::Value;
use tempfile::NamedTempFile;

const TOKEN: &str = "t0ken-t0ken-t0ken-t0ken";

/// Markup in an annotation, which a finding repeats.
const HOSTILE: &str = "\"'><script>document.title='owned'</script><img src=http://192.0.2.1/x>";

/// The pages, and the names of their pictures.
const PAGES: [(&str, &str); 12] = [
    ("/console", "overview"),
    ("/console/domains", "domains"),
    ("/console/domains?name=.test&end=end", "search"),
    ("/console/domain?host=a.test", "domain"),
    ("/console/findings", "findings"),
    ("/console/changes", "changes"),
    ("/console/traces", "traces"),
    ("/console/plots", "plots"),
    ("/console/plots?of=traffic", "plots-traffic"),
    ("/console/mesh", "mesh"),
    ("/console/fleet", "fleet"),
    ("/console/memory", "memory"),
];

/// The parts that have to stay while a world with a console is there.
type Kept = (Backend, NamedTempFile);

/// A world with a console, so many further domains, and some that are wrong.
async fn world(further: usize) -> (Kept, World) {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let good = Site::new("a.test").to(backend.address()).tls(&pair);
    let wrong = Site::new("wrong.test")
        .annotation("nginx.ingress.kubernetes.io/limit-rps", HOSTILE)
        .tls(&pair);
    let mut files = vec![("a.yaml", good.yaml()), ("wrong.yaml", wrong.yaml())];
    let many: Vec<String> = (0..further)
        .map(|number| Site::new(&format!("n{number:05}.many.test")).yaml())
        .collect();
    files.push(("many.yaml", many.join("\n---\n")));
    let (token, world) = serve(authority, &files).await;
    ((backend, token), world)
}

/// A world with a console, and the file of its token.
async fn serve(authority: Authority, files: &[(&str, String)]) -> (NamedTempFile, World) {
    let token = NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), format!("{TOKEN}\n")).expect("a file");
    let argument = format!("--console-token-file={}", token.path().display());
    let world = World::serve_with(authority, files, &[&argument]).await;
    (token, world)
}

async fn ask(world: &World, path: &str, authorization: &str) -> Answer {
    let header = format!("Authorization: {authorization}");
    world.admin_curl(path).args(&["-H", &header]).ask().await
}

#[tokio::test]
async fn whoever_shows_the_token_is_let_in_and_nobody_else() {
    let (_kept, world) = world(0).await;
    let nobody = world.admin("/console").await;
    assert_eq!(nobody.status, 401);
    let challenge = nobody.header("www-authenticate").unwrap_or_default();
    assert!(challenge.starts_with("Basic realm="), "{nobody:?}");
    assert!(!nobody.body.contains("a.test"));
    for wrong in ["Bearer wrong-wrong-wrong-wrong", "Basic eDp5", "Bearer"] {
        for (path, _) in PAGES {
            assert_eq!(ask(&world, path, wrong).await.status, 401, "{wrong} {path}");
        }
    }
    let right = format!("Bearer {TOKEN}");
    for (path, _) in PAGES {
        let page = ask(&world, path, &right).await;
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let policy = page.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {page:?}");
        assert_eq!(page.header("cache-control"), Some("no-store"));
    }
    let posted = world.admin_curl("/console");
    let header = format!("Authorization: {right}");
    let posted = posted.args(&["-X", "POST", "-H", &header]).ask().await;
    assert_eq!(posted.status, 405);
    world.stop().await;
}

#[tokio::test]
async fn without_being_asked_for_there_is_no_console() {
    let (_backend, world) = World::serve_one("a.test").await;
    assert_eq!(world.admin("/console").await.status, 404);
    assert!(!world.admin("/").await.body.contains("console"));
    world.stop().await;
}

#[tokio::test]
async fn a_key_shows_up_on_no_page_of_the_console() {
    const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";
    let authority = Authority::new();
    let pair = authority.issue(&["a.test"]);
    let line = pair
        .key
        .lines()
        .nth(1)
        .expect("a line of the key")
        .to_owned();
    let garbage = Pair {
        key: CANARY.to_owned(),
        ..pair.clone()
    };
    let files = [
        ("a.yaml", Site::new("a.test").tls(&pair).yaml()),
        ("b.yaml", Site::new("b.test").tls(&garbage).yaml()),
    ];
    let (_token, world) = serve(authority, &files).await;
    let right = format!("Bearer {TOKEN}");
    let further = [
        ("/console/domain?host=b.test", "b"),
        ("/console/change?number=1", "c"),
    ];
    for (path, _) in PAGES.into_iter().chain(further) {
        let body = ask(&world, path, &right).await.body;
        for secret in [CANARY, &line, TOKEN] {
            assert!(!body.contains(secret), "{path}: {body}");
        }
    }
    world.stop().await;
}

/// Holds what a browser saw of a page against what is asked of every page.
fn check(page: &str, seen: &Value, origin: &str) {
    assert_eq!(seen["status"], 200, "{page}: {seen}");
    let none = Value::Array(Vec::new());
    assert_eq!(
        seen["violations"], none,
        "{page} is not for everybody: {seen}"
    );
    assert_eq!(seen["denied"], none, "{page}: {seen}");
    assert_eq!(seen["scripts"], 0, "{page}: {seen}");
    assert_eq!(
        seen["overflow"], 0,
        "{page} is wider than its window: {seen}"
    );
    assert_ne!(seen["title"], "owned", "{page}: {seen}");
    for request in seen["requests"].as_array().expect("requests") {
        let request = request.as_str().expect("a URL");
        let is_own = request.starts_with(origin) || request.starts_with("data:");
        assert!(is_own, "{page} asks {request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_everybody_in_light_and_dark_and_on_a_phone() {
    let (_kept, world) = world(300).await;
    assert_eq!(world.get("https://a.test/").await.status, 200);
    let origin = format!("http://{}/", world.admin_address());
    let mut browser = Browser::start();
    for (path, name) in PAGES {
        for (kind, width, is_dark) in [
            ("light", 1280, false),
            ("dark", 1280, true),
            ("phone", 390, true),
        ] {
            let name = format!("console-{name}-{kind}");
            let look = Look {
                url: format!("http://{}{path}", world.admin_address()),
                token: TOKEN,
                name: &name,
                width,
                is_dark,
                presses: 0,
            };
            let seen = browser.look(&look).await;
            check(&name, &seen, &origin);
            assert!(is_picture(&browser.picture(&name)), "{name}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_used_by_keys_alone() {
    let (_kept, world) = world(3).await;
    let mut browser = Browser::start();
    let look = Look {
        url: format!("http://{}/console/domains", world.admin_address()),
        token: TOKEN,
        name: "console-keys",
        width: 1280,
        is_dark: false,
        presses: 14,
    };
    let seen = browser.look(&look).await;
    let focused = seen["focused"].as_array().expect("what had the focus");
    assert_eq!(focused[0][1], "Skip to content", "{seen}");
    assert_eq!(focused[1][1], "Overview", "{seen}");
    let tags: Vec<&str> = focused.iter().filter_map(|it| it[0].as_str()).collect();
    for tag in ["A", "INPUT", "SELECT", "BUTTON"] {
        assert!(tags.contains(&tag), "{tag} is not reached: {seen}");
    }
    assert!(
        focused.iter().all(|it| it[2] == true),
        "one has no ring: {seen}"
    );
    world.stop().await;
}

/// Clients that ask for pages without end delay neither health nor what is served.
#[tokio::test(flavor = "multi_thread")]
async fn health_and_changes_wait_for_no_page() {
    let ((backend, _token), world) = world(3_000).await;
    let address = world.admin_address();
    let busy: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(async move {
                let header = format!("Authorization: Bearer {TOKEN}");
                for _ in 0..1_000 {
                    for path in ["domains?end=end", "findings", "memory", "mesh"] {
                        let url = format!("http://{address}/console/{path}");
                        let mut curl = tokio::process::Command::new("curl");
                        curl.args(["--silent", "--output", "/dev/null", "-H", &header, &url]);
                        curl.kill_on_drop(true);
                        let _ = curl.status().await;
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(world.admin("/healthz").await.status, 200);
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let pair = world.authority.issue(&["late.test"]);
    let late = Site::new("late.test").to(backend.address()).tls(&pair);
    world.write("late.yaml", &late.yaml());
    world
        .eventually("https://late.test/", |answer| answer.status == 200)
        .await;
    let right = format!("Bearer {TOKEN}");
    let page = ask(&world, "/console/domain?host=late.test", &right).await;
    assert!(page.body.contains("late.test"), "{page:?}");
    for task in busy {
        task.abort();
    }
    world.stop().await;
}
