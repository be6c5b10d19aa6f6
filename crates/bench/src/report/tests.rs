use serde_json::{Value, json};

use super::plan::{ACTIVATION, EGRESS, FLEET, GATEWAY, LATENCY, PEERS, SERVICES, SOAK};
use super::point::{Gap, Peers, Point};
use super::*;
use crate::plot::tests::elements;

fn outcome(name: &str, rows: Vec<Value>) -> Outcome {
    let programs = Programs::of_test("1", &[]);
    let (mut outcome, _) = Point::own(name.to_owned(), vec![name.to_owned()]).prepare(&programs);
    outcome.rows = rows;
    outcome
}

fn results(id: &str, rows: Vec<Value>) -> Results {
    let all = plan::all(Mode::Usual, 2);
    let experiment = all.into_iter().find(|it| it.id == id).unwrap();
    Results {
        id: id.to_owned(),
        title: experiment.title.to_owned(),
        question: experiment.question.to_owned(),
        points: vec![outcome("a <point> & more", rows)],
        missing: experiment.missing.iter().map(|&it| it.to_owned()).collect(),
    }
}

fn activated(source: &str, domains: u64, p50: f64) -> Value {
    json!({
        "domains": domains, "source": source,
        "activation_ms": {"p50": p50, "p99": 2.0 * p50, "max": 3.0 * p50, "samples": 5},
        "units_translated": 4, "rss_mib": 20.0,
        "live": {"p99_idle_ms": 0.4, "p99_during_ms": 0.5, "errors": 0},
        "live_at_half": {"rps": 900.0, "activation_ms": {"p50": p50, "p99": p50}},
    })
}

fn all() -> Vec<Results> {
    let latency = |jitter: bool, connections: u64| {
        json!({
            "variant": "metrics", "connections": connections, "jitter": jitter, "rps": 1_000.0,
            "baseline_p50_ms": 0.1, "baseline_p90_ms": 0.2, "baseline_p99_ms": 0.3,
            "added_p50_ms": 0.4, "added_p90_ms": 0.5, "added_p99_ms": 0.6,
            "peer_added_p50_ms": 0.7, "peer_added_p90_ms": 0.8, "peer_added_p99_ms": null,
            "cpu_ms_per_1000": 100.0, "peer_cpu_ms_per_1000": 300.0, "rss_mib": 12.0,
            "errors": 0,
        })
    };
    let work = |peer: &str, cost: f64| {
        json!({
            "work": "W1", "connections": 64, "peer": peer,
            "cpu_us_per_request": 30.0, "peer_cpu_us_per_request": cost,
        })
    };
    vec![
        results(
            ACTIVATION,
            vec![
                activated("inbox", 100, 1.2),
                activated("inbox", 1_000, 1.3),
                activated("envoy-chains", 100, 30.0),
            ],
        ),
        results(
            GATEWAY,
            vec![json!({"mode": "nofilters", "cores": 1, "rps": 9_000.0, "peer_rps": 8_000.0})],
        ),
        results(
            PEERS,
            vec![work("envoy 1.40.0", 60.0), work("nginx 1.22.1", 25.0)],
        ),
        results(
            LATENCY,
            vec![latency(false, 16), latency(false, 2), latency(true, 2)],
        ),
        results(
            EGRESS,
            vec![json!({"case": 5, "way": "5m", "clients": 5, "tps": 900.0, "p90_ms": 2.0})],
        ),
        results(
            SOAK,
            vec![json!({
                "looks_mib": [[0.0, 20.0], [0.1, 20.5]], "changes": 6, "errors": 0,
                "slope_mib_per_hour": 1.5, "slope_error_mib_per_hour": 0.5,
            })],
        ),
    ]
}

fn report() -> Report {
    let programs = Programs::of_test("1", &["envoy"]);
    let mut report = Report::new(Mode::Usual, &programs).unwrap();
    all().into_iter().for_each(|it| report.add(it).unwrap());
    report
}

#[test]
fn each_experiment_has_plots_with_captions_and_a_table() {
    for results in all() {
        let plots = figures::plots(&results);
        assert!(!plots.is_empty(), "{}", results.id);
        for plot in plots {
            let svg = plot.svg();
            elements(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
            assert!(svg.matches("class=\"caption\"").count() == 2, "{svg}");
            assert!(!plot.y.label.is_empty() && !plot.x.label.is_empty());
            assert!(!plot.series.is_empty());
        }
        let table = figures::table(&results);
        assert_eq!(table.rows.len(), results.points[0].rows.len());
        assert!(table.rows.iter().all(|row| row.len() == table.heads.len()));
    }
}

#[test]
fn series_are_told_apart_by_who_was_measured() {
    let names = |id: &str, title: &str| {
        let all = all();
        let results = all.iter().find(|it| it.id == id).unwrap();
        let plots = figures::plots(results);
        let plot = plots
            .into_iter()
            .find(|plot| plot.title.starts_with(title))
            .unwrap();
        plot.series
    };
    let activation = names(ACTIVATION, "Activation of a new domain, idle, median");
    assert_eq!(activation.len(), 2);
    assert_eq!(activation[0].points, [(100.0, 1.2), (1_000.0, 1.3)]);
    let costs = names(PEERS, "Processor time");
    let costs: Vec<_> = costs
        .iter()
        .map(|it| (it.name.as_str(), it.points.len()))
        .collect();
    assert_eq!(
        costs,
        [("Myriad", 1), ("envoy 1.40.0", 1), ("nginx 1.22.1", 1)]
    );
    let latency = names(LATENCY, "Latency, p50, 1,000 requests per second evenly");
    let named: Vec<_> = latency.iter().map(|it| it.name.as_str()).collect();
    let expected = [
        "Myriad as both sidecars",
        "Envoy as both sidecars",
        "no proxy",
    ];
    assert_eq!(named, expected);
    assert!((latency[0].points[0].1 - 0.5).abs() < 1e-9);
    // A peer without a figure has no line, and is not at zero.
    assert_eq!(
        names(LATENCY, "Latency, p99, 1,000 requests per second evenly").len(),
        2
    );
}

#[test]
fn lengths_of_answers_are_drawn_by_protocol_and_stay_out_of_the_other_sweeps() {
    let row = |protocol: &str, bytes: u64, rps: f64| {
        json!({
            "variant": "metrics", "protocol": protocol, "bytes": bytes, "connections": 16,
            "jitter": false, "rps": rps, "baseline_p50_ms": 0.1, "baseline_p90_ms": 0.2,
            "baseline_p99_ms": 0.3, "added_p50_ms": 0.4, "added_p90_ms": 0.5,
            "added_p99_ms": 0.6, "cpu_ms_per_1000": 100.0,
        })
    };
    let rows = vec![
        row("http1", 1_024, 1_000.0),
        row("http1", 1_024, 200.0),
        row("http1", 131_072, 200.0),
        row("grpc", 128, 200.0),
    ];
    let plots = figures::plots(&results(LATENCY, rows));
    let points = |title: &str| {
        let plot = plots.iter().find(|plot| plot.title.contains(title));
        let series = plot.map(|plot| plot.series.iter().map(|it| it.points.len()));
        series.map(Iterator::collect::<Vec<_>>)
    };
    assert_eq!(
        points("p90, by the length of answers, HTTP/1.1"),
        Some(vec![2, 2])
    );
    assert_eq!(
        points("p90, by the length of answers, gRPC"),
        Some(vec![1, 1])
    );
    assert_eq!(points("p90, by the length of answers, HTTP/2"), None);
    assert_eq!(
        points("p90, 1,000 requests per second evenly"),
        Some(vec![1, 1])
    );
    assert_eq!(points("against the rate"), Some(vec![2, 2]));
    assert_eq!(points("by protocol"), Some(vec![1]));
    assert_eq!(points("by what is recorded"), Some(vec![1]));
    // The third plot is one that others show by its number.
    assert!(
        plots[2]
            .title
            .starts_with("Latency, p99, 1,000 requests per second evenly")
    );
}

#[test]
fn each_graph_of_services_has_a_plot_of_its_own() {
    let row = |service: &str, p50: f64| json!({"service": service, "p50_ms": p50, "rows": 3});
    let mut services = results(SERVICES, vec![row("front", 1.0), row("all", 2.0)]);
    let other = outcome("flights", vec![row("all", 5.0)]);
    services.points.push(other);
    let plots = figures::plots(&services);
    let [first, second] = &plots[..] else {
        panic!("{} plots", plots.len());
    };
    assert_eq!(first.groups, ["front", "all"]);
    assert_eq!(second.title, "Latency of each service, flights");
    assert_eq!(second.groups, ["all"]);
}

#[test]
fn fleets_are_drawn_by_controller_with_whole_sidecars_apart() {
    let share = |rss_mib: f64| json!({"sessions": 10, "rss_mib": rss_mib, "leads": false});
    let rows = vec![
        json!({"proxies": 30, "controllers": 1, "by_controller": [share(20.0)]}),
        json!({
            "sidecars": 500, "processes": 4, "controllers": 2,
            "by_controller": [share(30.0), share(25.0)], "whole_sidecars": {"rss_mib": 10.0},
        }),
    ];
    let results = results(FLEET, rows);
    let plots = figures::plots(&results);
    let titled = |title: &str| plots.iter().find(|plot| plot.title.starts_with(title));
    let memory = titled("Memory of each controller").unwrap();
    assert_eq!(memory.groups, ["30 gateways, 1", "496 + 4 sidecars, 2"]);
    let series: Vec<_> = (memory.series.iter())
        .map(|it| (it.name.as_str(), it.points.clone()))
        .collect();
    let expected = [
        ("leader", vec![(0.0, 20.0), (1.0, 30.0)]),
        ("second", vec![(1.0, 25.0)]),
    ];
    assert_eq!(series, expected);
    let whole = titled("Memory of a sidecar that is a process").unwrap();
    assert_eq!(whole.groups, ["496 + 4 sidecars, 2"]);
    let heads = figures::table(&results).heads;
    assert!(
        heads.iter().any(|head| head == "second: sessions"),
        "{heads:?}"
    );
    assert!(
        heads.iter().all(|head| head != "third: sessions"),
        "{heads:?}"
    );
}

#[test]
fn every_form_has_several_controllers_and_the_longer_ones_whole_sidecars() {
    for mode in [Mode::Quick, Mode::Usual, Mode::Published] {
        let all = plan::all(mode, 2);
        let fleet = all.iter().find(|it| it.id == FLEET).unwrap();
        let commands: Vec<_> = fleet.points.iter().map(|it| it.words.join(" ")).collect();
        let has = |text: &str| commands.iter().any(|it| it.contains(text));
        assert!(
            has("--controllers 1") && has("--controllers 2"),
            "{commands:?}"
        );
        let is_long = mode != Mode::Quick;
        assert_eq!(has("--controllers 3"), is_long);
        assert_eq!(has("--mesh") && has("--processes"), is_long);
        assert!(fleet.points.iter().all(|it| it.needs_cluster));
    }
}

#[test]
fn plots_that_are_shown_by_their_number_can_be_read_alone() {
    let mut all = all();
    let activation = vec![
        activated("inbox", 1_000, 1.2),
        activated("inbox", 1_000_000, 1.3),
        activated("envoy-on-demand", 1_000, 2.0),
        activated("envoy-chains", 1_000, 300.0),
    ];
    all.insert(0, results(ACTIVATION, activation));
    // `activation-1.svg`, `peers-1.svg` and `latency-3.svg` beside the page.
    let shown = [
        (
            ACTIVATION,
            0,
            "Activation of a new domain",
            "domains that exist already",
            ", ms",
            3,
        ),
        (
            PEERS,
            0,
            "Processor time of the proxy",
            "protocol of the client",
            ", µs",
            3,
        ),
        (
            LATENCY,
            2,
            "Latency, p99, 1,000 requests",
            "connections",
            ", ms",
            2,
        ),
    ];
    for (id, number, title, x, unit, series) in shown {
        let results = all.iter().find(|it| it.id == id).unwrap();
        let plot = &figures::plots(results)[number];
        let svg = plot.svg();
        assert!(plot.title.starts_with(title), "{}", plot.title);
        assert!(plot.title.len() <= 57, "it is wider than the plot");
        assert_eq!(plot.x.caption(), x);
        assert!(plot.y.caption().ends_with(unit), "{}", plot.y.caption());
        assert_eq!(plot.series.len(), series, "{id}");
        for name in plot.series.iter().map(|it| &it.name) {
            assert!(
                svg.contains(&format!(">{name}</text>")),
                "{name} in the legend"
            );
        }
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("class=\"paper\""));
        let is_log = plot.x.is_log && plot.y.is_log;
        assert_eq!(is_log, id == ACTIVATION);
    }
}

#[test]
fn a_page_is_whole_and_says_what_is_missing() {
    let page = page::html(&report());
    let body = page.strip_prefix("<!doctype html>\n").unwrap();
    let met = elements(body).unwrap_or_else(|error| panic!("{error}"));
    assert!(met.iter().filter(|name| *name == "svg").count() >= 10);
    for text in [
        "a &lt;point&gt; &amp; more",
        "prefers-color-scheme:dark",
        "width=device-width",
        "myriad-bench",
        "not measured yet",
        "Extrapolated in proportion, and not measured",
        "1.5 ± 0.5 MiB per hour",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // Nothing is fetched from elsewhere.
    assert!(!page.contains("src=") && !page.contains("<script"));
    assert_eq!(
        page.matches("http").count(),
        page.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn a_report_counts_what_is_finished_and_what_is_not() {
    let mut report = report();
    let (points, gaps) = (report.points, report.gaps);
    assert_eq!((report.finished, points), (6, 6));
    let mut broken = results(SOAK, Vec::new());
    broken.points[0].fail("it ended".to_owned());
    assert_eq!(figures::gaps(&broken), ["a <point> & more: it ended"]);
    report.add(broken).unwrap();
    assert_eq!((report.finished, report.points), (6, points + 1));
    assert_eq!(report.gaps, gaps + 1);
    let text = serde_json::to_string(&report).unwrap();
    let read: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(read.experiments.len(), report.experiments.len());
}

#[test]
fn an_absent_peer_is_a_gap_and_changes_what_runs() {
    let point = |peers| Point {
        peers,
        ..Point::own("point".to_owned(), vec!["scale".to_owned()])
    };
    let (some, none) = (
        Programs::of_test("1", &["envoy"]),
        Programs::of_test("1", &[]),
    );
    let (outcome, words) = point(Peers::BesideEnvoy).prepare(&some);
    assert_eq!((outcome.gaps.len(), words.unwrap().len()), (0, 1));
    let (outcome, words) = point(Peers::BesideEnvoy).prepare(&none);
    assert_eq!(words.unwrap(), ["scale", "--alone"]);
    let gap = Gap {
        of: "envoy".to_owned(),
        reason: "absent".to_owned(),
        is_absent: true,
    };
    assert_eq!(outcome.gaps, [gap]);
    assert_eq!(point(Peers::Envoy).prepare(&none).1, None);
    let (outcome, words) = point(Peers::Against).prepare(&some);
    assert_eq!(words.unwrap(), ["scale", "--against=envoy"]);
    assert_eq!(outcome.gaps.len(), 2);
    assert_eq!(outcome.command, "myriad-bench scale --against=envoy");
    assert!(point(Peers::None).prepare(&some).0.gaps.is_empty());
}

/// A runner whose program is a shell, in a folder.
fn shell<'a>(folder: &'a Folder, programs: &'a Programs) -> Runner<'a> {
    Runner::new(folder, programs, Mode::Quick).running("/bin/sh".into())
}

fn script(text: &str) -> Point {
    Point::own("script".to_owned(), vec!["-c".to_owned(), text.to_owned()])
}

#[test]
fn a_finished_point_is_not_measured_again_and_a_failed_one_is() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let programs = Programs::of_test("1", &[]);
    let count = place.path().join("count");
    let counting = format!("echo x >> {}; echo '{{\"a\":1}}'", count.display());
    let runs = || {
        std::fs::read_to_string(&count)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let first = shell(&folder, &programs)
        .point("one", &script(&counting))
        .unwrap();
    assert_eq!(first.rows, [json!({"a": 1})]);
    assert!(first.is_finished() && first.gaps.is_empty());
    // Another run of the command takes up what is missing alone.
    let again = shell(&folder, &programs)
        .point("one", &script(&counting))
        .unwrap();
    assert_eq!((again, runs()), (first.clone(), 1));
    // Other programs, and other parameters, are other points.
    let newer = Programs::of_test("2", &[]);
    let other = shell(&folder, &newer)
        .point("one", &script(&counting))
        .unwrap();
    assert_eq!(runs(), 2);
    assert_ne!(other.key, first.key);
    let failing = script(&format!("{counting}; echo 'Error: no core' >&2; exit 3"));
    for expected in [3, 4] {
        let failed = shell(&folder, &programs).point("one", &failing).unwrap();
        assert!(!failed.is_finished());
        assert!(failed.gaps[0].reason.contains("no core"), "{failed:?}");
        assert_eq!((failed.rows.len(), runs()), (1, expected));
    }
    // A file that was cut off is none.
    let path = place.path().join(format!("points/one-{}.json", first.key));
    std::fs::write(path, "{\"name\":").unwrap();
    shell(&folder, &programs)
        .point("one", &script(&counting))
        .unwrap();
    assert_eq!(runs(), 5);
}

#[test]
fn a_point_of_another_build_counts_where_it_is_asked_for_and_is_named() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let point = script("echo '{\"a\":1}'");
    let old = Programs::of_test("1", &[]).by("old");
    let first = shell(&folder, &old).point("one", &point).unwrap();
    let take = |programs: &Programs, other_builds: bool| {
        let mut runner = shell(&folder, programs);
        runner.other_builds = other_builds;
        runner.point("one", &point).unwrap()
    };
    // Another build of the program that is measured is another point all the same.
    let newer = Programs::of_test("2", &[]).by("new");
    assert_ne!(take(&newer, true).programs, first.programs);
    let new = Programs::of_test("1", &[]).by("new");
    assert_eq!(take(&new, true), first);
    let mut report = Report::new(Mode::Quick, &new).unwrap();
    for _ in 0..2 {
        report.note_build(&first);
    }
    let named = report.programs.get("myriad-bench of earlier points");
    assert_eq!(named.map(String::as_str), Some("old"));
    assert_ne!(take(&new, false).key, first.key);
}

#[test]
fn output_that_is_no_object_is_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let programs = Programs::of_test("1", &[]);
    for text in ["echo hello", "true", "echo 3"] {
        let outcome = shell(&folder, &programs)
            .point("one", &script(text))
            .unwrap();
        assert_eq!(
            (outcome.gaps.len(), outcome.is_finished()),
            (1, false),
            "{text}"
        );
    }
}

#[test]
fn a_folder_has_the_page_the_figures_and_the_plots() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(&place.path().join("out")).unwrap();
    folder.write(&report()).unwrap();
    for name in ["index.html", "report.json", "plots/activation-1.svg"] {
        let length = std::fs::metadata(place.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(length > 100, "{name}");
    }
    assert!(folder.page().ends_with("index.html"));
}

#[test]
fn experiments_are_chosen_by_their_names() {
    let count = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        choose(plan::all(Mode::Quick, 2), &names).map(|chosen| chosen.len())
    };
    assert_eq!(count(&[]).unwrap(), 9);
    assert_eq!(count(&["soak", "activation"]).unwrap(), 2);
    assert!(
        count(&["soak", "nothing"])
            .unwrap_err()
            .to_string()
            .contains("activation")
    );
}

#[test]
fn every_point_has_a_name_of_its_own_and_prints_json() {
    for mode in [Mode::Quick, Mode::Usual, Mode::Published] {
        let mut names = std::collections::BTreeSet::new();
        for experiment in plan::all(mode, 2) {
            assert!(!experiment.points.is_empty());
            for point in experiment.points {
                let name = format!("{} {}", experiment.id, point.name);
                assert!(names.insert(name.clone()), "{name} twice in {mode:?}");
                assert!(point.words.iter().any(|it| it == "--json"), "{name}");
            }
        }
    }
}

#[test]
fn a_table_on_a_terminal_has_columns_below_their_heads() {
    let text = terminal::text(&all()[0]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "Activation against the number of domains");
    let place = lines[2].find("p50, ms").unwrap() + "p50, ms".len();
    assert!(lines[3][..place].ends_with("1.2"), "{text}");
    assert!(text.contains("gap: not measured yet"), "{text}");
}
