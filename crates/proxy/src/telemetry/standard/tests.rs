use std::sync::Arc;
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_model::{
    Attribute, Metric, MetricAction, MetricRule, Origin, OriginKind, TagValue, Telemetry,
    WorkloadNames,
};

use super::super::recording::Recording;
use super::super::workloads::{Met, WorkloadId};
use super::{
    BOOKS_MAX, Book, Labels, Library, PAGES_MAX, Reporter, SERIES_MAX, SeriesPage, Workload,
    register,
};

fn library() -> (Metrics, Arc<Library>) {
    let metrics = Metrics::new();
    let library = Arc::new(Library::new(2));
    let workload = Workload {
        name: "edge".into(),
        namespace: "istio-system".into(),
    };
    register(&metrics, &library, Some(workload));
    (metrics, library)
}

fn service() -> Origin {
    Origin {
        kind: OriginKind::Service,
        id: "shop/web".into(),
    }
}

fn open(library: &Library, name: &str) -> Arc<Book> {
    library.open(&name.into(), Some(&service()), Reporter::Source)
}

/// The counts of a worker for nobody that is known.
fn page(book: &Book, worker: usize) -> &SeriesPage {
    book.page(worker, WorkloadId::UNKNOWN).unwrap()
}

fn labels(status: u16) -> Labels {
    Labels {
        status,
        protocol: "http",
        ..Labels::default()
    }
}

fn count(page: &SeriesPage, status: u16) {
    page.count_request(labels(status), Duration::from_millis(7), 3, 600);
}

/// The values of a metric whose labels hold all parts, by a strict reading of each line.
fn values(text: &str, name: &str, parts: &[&str]) -> Vec<f64> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (known, labels) = match series.split_once('{') {
            Some((known, labels)) => (known, labels.strip_suffix('}').expect("an end")),
            None => (series, ""),
        };
        if known == name && parts.iter().all(|part| labels.contains(part)) {
            found.push(value);
        }
    }
    found
}

#[test]
fn workers_count_for_themselves_and_the_exposition_adds_up() {
    let (metrics, library) = library();
    let book = open(&library, "shop/web:80");
    for worker in 0..2 {
        count(page(&book, worker), 200);
    }
    count(page(library.nowhere(Reporter::Source), 0), 404);
    let text = metrics.encode();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let to = [
        "destination_service=\"web.shop.svc.cluster.local\"",
        "destination_service_namespace=\"shop\"",
        "source_workload=\"edge\"",
        "reporter=\"source\"",
        "response_code=\"200\"",
        "response_flags=\"-\"",
    ];
    assert_eq!(values(&text, "istio_requests_total", &to), [2.0], "{text}");
    let unknown = ["destination_service=\"unknown\"", "response_code=\"404\""];
    assert_eq!(values(&text, "istio_requests_total", &unknown), [1.0]);
    let name = "istio_request_duration_milliseconds";
    let bucket = |le: &str| values(&text, &format!("{name}_bucket"), &[to[0], le]);
    assert_eq!(bucket("le=\"5.0\""), [0.0], "{text}");
    assert_eq!(bucket("le=\"10.0\""), [2.0]);
    assert_eq!(bucket("le=\"+Inf\""), [2.0]);
    assert_eq!(values(&text, &format!("{name}_sum"), &to[..1]), [14.0]);
    assert_eq!(values(&text, "istio_request_bytes_sum", &to[..1]), [6.0]);
    assert_eq!(values(&text, "istio_response_bytes_count", &to[..1]), [2.0]);
    drop(book);
    let text = metrics.encode();
    assert_eq!(values(&text, "istio_requests_total", &to), [0.0; 0]);
}

#[test]
fn whatever_is_beyond_a_maximum_is_counted_together() {
    let (metrics, library) = library();
    let book = open(&library, "shop/web:80");
    for status in 0..200 {
        count(page(&book, 0), status);
    }
    let text = metrics.encode();
    let all = values(&text, "istio_requests_total", &[]);
    assert_eq!(all.len(), SERIES_MAX);
    assert_eq!(all.iter().sum::<f64>(), 200.0);
    let beyond = ["response_flags=\"overflow\""];
    let counted = values(&text, "istio_requests_total", &beyond);
    assert_eq!(counted, [200.0 - (SERIES_MAX - 1) as f64]);
    let told = |text: &str| {
        let name = "myriad_standard_metrics_overflows_total";
        values(text, name, &[]).iter().sum::<f64>()
    };
    assert_eq!(told(&text), counted[0]);
    let open = |number: usize| open(&library, &format!("s/{number}:1"));
    let books: Vec<_> = (0..BOOKS_MAX + 5).map(open).collect();
    count(page(&books[BOOKS_MAX], 1), 200);
    let text = metrics.encode();
    let beyond = ["destination_service=\"overflow\""];
    assert_eq!(values(&text, "istio_requests_total", &beyond), [1.0]);
    // A namespace alone has half of the books.
    assert_eq!(told(&text), counted[0] + (BOOKS_MAX / 2 + 6) as f64);
}

#[test]
fn pages_of_workloads_are_bound_and_given_back() {
    let (metrics, library) = library();
    let books: Vec<_> = (0..8)
        .map(|number| open(&library, &format!("s/{number}:1")))
        .collect();
    let ids = (2..1_024).map(WorkloadId::at);
    for (book, id) in books
        .iter()
        .flat_map(|book| ids.clone().map(move |id| (book, id)))
    {
        count(book.page(0, id).unwrap(), 200);
    }
    let beyond = ["destination_workload=\"overflow\""];
    let sum = |parts: &[&str]| {
        let text = metrics.encode();
        values(&text, "istio_requests_total", parts)
            .iter()
            .sum::<f64>()
    };
    assert_eq!(sum(&[]), 8.0 * 1_022.0);
    assert_eq!(sum(&beyond), 8.0 * 1_022.0 - (PAGES_MAX / 2) as f64);
    drop(books);
    let book = open(&library, "s/new:1");
    count(book.page(0, WorkloadId::at(2)).unwrap(), 200);
    assert_eq!((sum(&[]), sum(&beyond)), (1.0, 0.0));
}

#[test]
fn a_tenant_with_very_many_services_leaves_books_to_others() {
    let (metrics, library) = library();
    let of_evil = |number: usize| {
        let origin = Origin {
            kind: OriginKind::Service,
            id: format!("evil/s{number}").into(),
        };
        let name = format!("evil/s{number}:80");
        library.open(&(&*name).into(), Some(&origin), Reporter::Source)
    };
    let evil: Vec<_> = (0..BOOKS_MAX + 8).map(of_evil).collect();
    let book = open(&library, "shop/web:80");
    count(page(&book, 0), 200);
    count(page(&evil[BOOKS_MAX], 0), 200);
    let text = metrics.encode();
    for service in ["web.shop.svc.cluster.local", "overflow"] {
        let to = format!("destination_service=\"{service}\"");
        assert_eq!(values(&text, "istio_requests_total", &[&*to]), [1.0]);
    }
}

#[test]
fn a_tenant_with_very_many_workloads_leaves_pages_to_others() {
    let (metrics, library) = library();
    let books: Vec<_> = (0..20)
        .map(|number| open(&library, &format!("s/{number}:1")))
        .collect();
    let meet = |namespace: &str, number: usize| {
        library.bounds.workloads.number(Met {
            principal: format!("spiffe://a/ns/{namespace}/sa/c{number}").into(),
            names: WorkloadNames::default(),
        })
    };
    let ids: Vec<_> = (0..500).map(|number| meet("evil", number)).collect();
    assert!(books.len() * ids.len() > PAGES_MAX);
    for (book, id) in books
        .iter()
        .flat_map(|book| ids.iter().map(move |id| (book, id)))
    {
        count(book.page(0, *id).unwrap(), 200);
    }
    let own = meet("shop", 0);
    count(books[19].page(0, own).unwrap(), 200);
    let to = ["destination_workload_namespace=\"shop\""];
    let text = metrics.encode();
    assert_eq!(values(&text, "istio_requests_total", &to), [1.0]);
}

#[test]
fn tags_and_metrics_are_as_telemetry_says() {
    let (metrics, library) = library();
    let rule = |metric, action| MetricRule { metric, action };
    let telemetry = Telemetry {
        metrics: [
            rule(None, MetricAction::Disable),
            rule(Some(Metric::Requests), MetricAction::Enable),
            rule(None, MetricAction::Remove("source_principal".into())),
            rule(
                None,
                MetricAction::Set("tenant".into(), TagValue::Text("a".into())),
            ),
            rule(
                None,
                MetricAction::Set("how".into(), TagValue::Attribute(Attribute::Method)),
            ),
        ]
        .into(),
        ..Telemetry::default()
    };
    let recording = Arc::new(Recording::new(&telemetry).ok().unwrap());
    assert_eq!(recording.asked.map(|[method, ..]| method), Some(true));
    library.obey(Some(&recording));
    let page = page(library.nowhere(Reporter::Source), 0);
    let mut labels = labels(200);
    labels.tags[0] = "GET";
    page.count_request(labels, Duration::ZERO, 0, 0);
    let text = metrics.encode();
    let with = ["tenant=\"a\"", "how=\"GET\""];
    assert_eq!(values(&text, "istio_requests_total", &with), [1.0]);
    assert!(!text.contains("source_principal") && !text.contains("istio_request_bytes_sum"));
    let off = Telemetry {
        metrics: [rule(None, MetricAction::Disable)].into(),
        ..Telemetry::default()
    };
    assert_eq!(Recording::new(&off).ok().unwrap().asked, None);
}
