//! The dashboards of this repository over a real Prometheus that reads a real process, and its
//! alert rules.

use std::collections::BTreeSet;

use myriad_e2e::authority::Authority;
use myriad_e2e::dashboards::{all_answer, dashboards, panels, queries};
use myriad_e2e::prometheus::{Prometheus, Scraped};
use myriad_e2e::world::repository;
use myriad_e2e::{Backend, Site, World};
use serde_json::Value;
use tokio::process::Command;

/// The dashboards that a single process fills.
const OF_SERVE: [&str; 2] = ["activation", "traffic"];

/// The place of a panel: left, top, width and height.
fn place(panel: &Value) -> [u64; 4] {
    ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"))
}

fn overlap([x, y, w, h]: [u64; 4], other: [u64; 4]) -> bool {
    let [left, top, width, height] = other;
    x < left + width && left < x + w && y < top + height && top < y + h
}

#[test]
fn dashboards_can_be_imported_anywhere() {
    let all = dashboards();
    let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
    let expected = [
        "activation",
        "certificates",
        "control-plane",
        "fleet",
        "mesh",
        "traffic",
    ];
    assert_eq!(names, expected);
    let mut titles = BTreeSet::new();
    for (name, dashboard) in &all {
        assert_eq!(dashboard["uid"], format!("myriad-{name}"));
        assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "{name}");
        assert!(
            dashboard["id"].is_null(),
            "{name} has the id of another Grafana"
        );
        assert!(titles.insert(dashboard["title"].to_string()), "{name}");
        let variables = dashboard["templating"]["list"].as_array();
        let variables = variables.expect("variables").iter();
        let variables: Vec<&str> = variables.filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(variables, ["datasource", "job", "instance"], "{name}");
        let mut ids = BTreeSet::new();
        let mut places: Vec<[u64; 4]> = Vec::new();
        for panel in panels(dashboard) {
            let title = &panel["title"];
            assert!(ids.insert(panel["id"].as_u64()), "{name}, {title}: its id");
            assert_eq!(
                panel["datasource"]["uid"], "${datasource}",
                "{name}, {title}"
            );
            assert!(
                panel["description"]
                    .as_str()
                    .is_some_and(|it| !it.is_empty())
            );
            let own = place(panel);
            assert!(own[0] + own[2] <= 24, "{name}, {title}: too wide");
            let is_free = places.iter().all(|other| !overlap(own, *other));
            assert!(is_free, "{name}, {title}: over another");
            places.push(own);
            let targets = panel["targets"].as_array().expect("targets");
            assert!(!targets.is_empty(), "{name}, {title}");
            for target in targets {
                assert_eq!(
                    target["datasource"]["uid"], "${datasource}",
                    "{name}, {title}"
                );
            }
        }
    }
    for query in queries(&[]) {
        // Whoever has several installations looks at one of them.
        let asked = query.asked();
        let selected = query.query.matches("job=~\"$job\"").count();
        assert!(selected > 0 && !asked.is_empty(), "{query:?}");
    }
}

#[tokio::test]
async fn alert_rules_come_when_they_should() {
    for line in [
        ["check", "rules", "rules.yaml"],
        ["test", "rules", "rules.test.yaml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool
            .args(line)
            .current_dir(repository("deploy/prometheus"));
        let output = promtool.output().await;
        let output = output
            .expect("this needs `promtool`; `cargo xtask test --stage setup` installs prometheus");
        let told = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line:?}: {told}{complaint}");
    }
    // Each alert has a case.
    let read = |name: &str| {
        let path = repository("deploy/prometheus").join(name);
        std::fs::read_to_string(path).expect("the rules")
    };
    let (rules, tests) = (read("rules.yaml"), read("rules.test.yaml"));
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let case = format!("alertname: {alert}\n    exp_alerts:\n    - ");
        assert!(tests.contains(&case), "no test in which {alert} comes");
        let other = format!("alertname: {alert}, exp_alerts: []");
        assert!(
            tests.contains(&other),
            "no test in which {alert} does not come"
        );
    }
}

/// Requests that are served and that fail, and a change.
async fn stir(world: &World, backend: &Backend, count: &mut usize) {
    *count += 1;
    let site = Site::new("c.test").to(backend.address());
    world.write("c.yaml", &site.path(&format!("/{count}")).yaml());
    for url in ["https://a.test/", "http://b.test/", "http://nobody.test/"] {
        world.get(url).await;
    }
}

#[tokio::test]
async fn every_panel_about_a_process_has_data_with_classic_and_native_histograms() {
    let backend = Backend::start("a").await;
    let authority = Authority::new();
    let site = Site::new("a.test").to(backend.address());
    let site = site.tls(&authority.issue(&["a.test"]));
    // Nobody listens there.
    let broken = Site::new("b.test").to(([127, 0, 0, 1], 1).into());
    let files = [("a.yaml", site.yaml()), ("b.yaml", broken.yaml())];
    let world = World::serve_with(authority, &files, &[]).await;
    let targets = [world.admin_address().to_string()];
    let mut count = 0;
    for is_native in [false, true] {
        let scraped = Scraped {
            targets: &targets,
            path: "/metrics",
            is_native,
            entry: None,
        };
        let prometheus = Prometheus::reading(&scraped).await;
        let all = queries(&OF_SERVE);
        all_answer(&prometheus, all, async || {
            stir(&world, &backend, &mut count).await;
        })
        .await;
        // The one kind of histogram takes the place of the other.
        let native = "histogram_count(myriad_activation_seconds)";
        assert_eq!(prometheus.ask(native).await.is_empty(), !is_native);
        let classic = "myriad_activation_seconds_bucket";
        assert_eq!(prometheus.ask(classic).await.is_empty(), is_native);
    }
    world.stop().await;
}
