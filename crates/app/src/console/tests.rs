//! Pages as they are made of what a process knows.

use std::sync::Mutex;

use myriad_api::{Change, Object, ObjectKind};
use myriad_base::clock;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_base::metrics::Metrics;
use myriad_base::readiness::Readiness;
use myriad_model::{Form, Sealer, Writer};
use myriad_translate::Engine;
use serde_json::{Value, json};

use super::dashboards::{DASHBOARDS, lines};
use super::edges::Rates;
use super::html::PAGE_BYTES_MAX;
use super::panels::Wanted;
use super::recorder::{EVERY, Recorder, SAMPLES_MAX};
use super::{Asked, Console, ConsoleSources, PATH, policy};
use crate::board::Board;
use crate::live::Live;
use crate::status::report::Reporter;

/// Markup that would do something, as people may write it into objects.
const HOSTILE: &str = "\"'><script>alert(1)<img src=x onerror=alert(1)>&lt;";

/// The tags that pages are made of, and no others.
const TAGS: &str = "!DOCTYPE html head meta link title style body a header p span nav ul li main \
                    h1 h2 h3 footer form div label input select option button table caption thead \
                    tbody tr th td code dl dt dd svg desc path text rect";

fn object(kind: ObjectKind, value: Value) -> Change {
    Change::Put(Object::deserialize(kind, value).expect("an object"))
}

fn ingress(name: &str, host: &str, (path, annotation): (&str, &str)) -> Change {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "annotations": {"nginx.ingress.kubernetes.io/permanent-redirect-code": annotation},
        },
        "spec": {
            "tls": [{"hosts": [host], "secretName": "missing"}],
            "rules": [{
                "host": host,
                "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]},
            }],
        },
    });
    object(ObjectKind::Ingress, value)
}

fn service() -> [Change; 2] {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop",
            "name": "web-1",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080}],
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
    });
    [
        object(ObjectKind::Service, service),
        object(ObjectKind::EndpointSlice, slice),
    ]
}

/// A console of a process that has these objects.
fn console(changes: Vec<Change>) -> Console {
    let metrics = Metrics::new();
    let board = Board::new(&metrics);
    board.catalog().keep();
    let writer = Writer::new(Sealer::new([3; 32], Form::Encoded));
    let mut engine = Engine::new(myriad_translate::Settings::default(), writer);
    let outcome = engine.apply(changes, clock::unix_seconds());
    board.register(outcome.delta.changes());
    board.change_findings(outcome.findings);
    board.set_snapshot(engine.snapshot(), 1);
    let reporter = Reporter {
        role: "controller",
        started: clock::now(),
        readiness: Readiness::new(),
        live: Some(Live::new(&metrics)),
        board,
        stated: None,
        holds: Holds::new(HoldLimits::NONE),
        followed: None,
    };
    Console {
        sources: ConsoleSources {
            reporter,
            metrics,
            history: None,
            traces: None,
        },
        tables: None,
        instance: HOSTILE.to_owned(),
        rates: Mutex::new(Rates::default()),
        recorder: Recorder::default(),
    }
}

/// Every page, with hostile parameters too.
fn pages(console: &Console) -> Vec<(String, String)> {
    let mut hostile = form_urlencoded::Serializer::new(String::new());
    for name in [
        "name",
        "after",
        "host",
        "text",
        "namespace",
        "number",
        "id",
        "of",
    ] {
        hostile.append_pair(name, HOSTILE);
    }
    let hostile = hostile.finish();
    let paths = [
        "",
        "/domains",
        "/domain",
        "/findings",
        "/changes",
        "/change",
        "/traces",
        "/trace",
        "/plots",
        "/mesh",
        "/fleet",
        "/memory",
        "/none",
    ];
    let questions = paths.iter().flat_map(|path| {
        ["", &*hostile, "host=a.test", "name=test&end=end"].map(|query| (*path, query.to_owned()))
    });
    let questions = questions.map(|(path, query)| {
        let reply = console.answer(path, &query);
        assert!(matches!(reply.status, 200 | 404), "{path}: {reply:?}");
        (format!("{path}?{query}"), reply.body)
    });
    questions.collect()
}

/// The names of all tags, and whether each of them ends.
fn tags(html: &str) -> Vec<String> {
    let (_, rest) = html.split_once('<').expect("a tag");
    let tags = rest.split('<').map(|tag| {
        assert!(tag.contains('>'), "no end: {tag:.60}");
        let name = tag.trim_start_matches('/');
        let end = name.find([' ', '>', '/']).unwrap_or(name.len());
        name[..end].to_owned()
    });
    tags.collect()
}

#[test]
fn nothing_that_people_write_is_markup_on_any_page() {
    let mut changes = vec![
        ingress("web", "a.test", ("/a", HOSTILE)),
        ingress("other", "b.test", (&format!("/{HOSTILE}"), "301")),
    ];
    changes.extend(service());
    let console = console(changes);
    let mut has_hostile = false;
    for (page, html) in pages(&console) {
        let style = super::layout::STYLE;
        let html = html.replacen(style, "", 1);
        for tag in tags(&html) {
            assert!(TAGS.split(' ').any(|known| known == tag), "{page}: {tag}");
        }
        for part in ["<script", "onerror=alert(1)>", " style=", "javascript:"] {
            assert!(!html.contains(part), "{page}: {part} in {html}");
        }
        has_hostile |= html.contains("&lt;script&gt;");
        assert!(html.len() < PAGE_BYTES_MAX);
    }
    assert!(has_hostile, "there was nothing to escape");
}

#[test]
fn a_domain_has_its_objects_routes_endpoints_and_findings() {
    let mut changes = vec![ingress("web", "a.test", ("/shop", "no number"))];
    changes.extend(service());
    let console = console(changes);
    let html = console.answer("/domain", "host=A.test").body;
    for part in [
        "<h1>a.test</h1>",
        "Ingress shop/web",
        "<code>/shop</code>",
        "shop/web:",
        "10.0.0.1:8080",
        "10.0.0.2:8080",
        "missing",
        "<span class=\"warn\">0 of 0 proxies",
        "keeps no history",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert_eq!(console.answer("/domain", "host=b.test").status, 404);
    assert_eq!(console.answer("/domain", "").status, 404);
}

#[test]
fn domains_are_found_by_pages_however_many_there_are() {
    let changes = (0..2_000).map(|number| {
        let host = format!("n{number:04}.test");
        ingress(&host, &host, ("/", "301"))
    });
    let console = console(changes.collect());
    let html = console.answer("/domains", "").body;
    assert!(html.contains("2,000 hosts in all"), "{html}");
    assert_eq!(html.matches("href=\"/console/domain?host=").count(), 50);
    assert!(html.contains("after=n0049.test"), "{html}");
    let html = console.answer("/domains", "name=n01&after=n0149.test").body;
    assert!(html.contains(">n0150.test</a>") && html.contains(">n0199.test</a>"));
    assert!(!html.contains("Next page"));
    let html = console.answer("/domains", "name=1234.test&end=end").body;
    assert_eq!(html.matches("href=\"/console/domain?host=").count(), 1);
    let html = console.answer("/domains", "name=none").body;
    assert!(html.contains("None of them is behind that."));
    let html = console.answer("/findings", "text=n1999.test").body;
    assert!(html.contains("Ingress shop/n1999.test"), "{html}");
}

#[test]
fn a_page_is_small_whatever_there_is() {
    let rules = (0..300).map(|number| {
        json!({"path": format!("/{number}/{}", "a".repeat(900)), "pathType": "Prefix",
               "backend": {"service": {"name": format!("s{number}"), "port": {"number": 80}}}})
    });
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"rules": [{"host": "a.test", "http": {"paths": rules.collect::<Vec<_>>()}}]},
    });
    let console = console(vec![object(ObjectKind::Ingress, value)]);
    let html = console.answer("/domain", "host=a.test").body;
    assert!(html.contains("more are left out"), "{html:.2000}");
    assert!(html.len() <= PAGE_BYTES_MAX + (64 << 10));
}

/// The metrics of a process that has all of those that are plotted, with such a number in each.
fn everything(number: u64) -> String {
    let mut text = String::new();
    for line in lines() {
        let (one, other) = line.reading.selectors();
        for selector in [Some(one), other].into_iter().flatten() {
            text += selector.metric;
            text += "{le=\"1.0\"";
            for (name, wanted) in selector.labels {
                let value = match wanted {
                    Wanted::Is(value) => *value,
                    Wanted::StartsNot(_) => "",
                };
                text += &format!(",{name}=\"{value}\"");
            }
            text += &format!("}} {number}\n");
        }
    }
    text
}

#[test]
fn plots_are_small_whatever_there_is_and_say_what_is_not_there() {
    let console = console(Vec::new());
    let html = console.answer("/plots", "").body;
    assert!(html.contains("or not yet: Proxies connected, "), "{html}");
    assert_eq!(html.matches("<svg").count(), 0);
    let (mut now, mut number) = (clock::now(), 0);
    for sample in 0..SAMPLES_MAX as u64 {
        // No value is like the one before, so that no line is level.
        number += 1_000 + sample % 2 * (50_000 + sample);
        let text = everything(number);
        now += EVERY;
        console.recorder.take(&text, now, 1_700_000_000.0);
    }
    for dashboard in DASHBOARDS {
        let reply = console.answer("/plots", &format!("of={}", dashboard.name));
        let html = reply.body.replacen(super::layout::STYLE, "", 1);
        assert!(html.len() < PAGE_BYTES_MAX / 2, "{}", html.len());
        for panel in dashboard.panels {
            let heading = format!("<h2>{}</h2><svg", panel.title);
            assert!(html.contains(&heading), "{}", panel.title);
        }
        assert_eq!(html.matches("role=\"img\"").count(), dashboard.panels.len());
        assert_eq!(html.matches("<caption>").count(), dashboard.panels.len());
        let own = format!("?of={}\" aria-current=\"page\">", dashboard.name);
        assert!(html.contains(&own) && !html.contains("not yet: "), "{html}");
        for tag in tags(&html) {
            assert!(TAGS.split(' ').any(|known| known == tag), "{tag}");
        }
    }
    assert_eq!(console.answer("/plots", "of=none").status, 404);
}

#[test]
fn a_controller_says_where_the_rates_of_the_mesh_are() {
    let html = console(Vec::new()).answer("/mesh", "").body;
    let query = "<code>sum by (source_workload, destination_workload) \
                 (rate(istio_requests_total{reporter=&quot;destination&quot;}[1m]))</code>";
    assert!(html.contains(query), "{html}");
    assert!(html.contains("response_code=~&quot;5..&quot;}[1m]))</code>"));
}

#[test]
fn parameters_are_bounded() {
    let query = format!("a={}&b=1", "x".repeat(10_000));
    assert_eq!(Asked::read(&query).text("a").len(), 1_024);
    assert_eq!(Asked::read(&query).number("b"), Some(1));
    let query: String = (0..100).map(|number| format!("p{number}=1&")).collect();
    assert_eq!(Asked::read(&query).text("p15"), "1");
    assert_eq!(Asked::read(&query).text("p16"), "");
}

#[test]
fn browsers_may_do_nothing_but_show_the_style_of_the_page() {
    let policy = policy();
    let policy = policy.to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
    assert!(policy.ends_with("frame-ancestors 'none'"));
    let console = console(Vec::new());
    let html = console.answer("", "").body;
    assert_eq!(html.matches("<style>").count(), 1);
    assert!(html.contains(&format!("<a href=\"{PATH}\" aria-current=\"page\">")));
}
