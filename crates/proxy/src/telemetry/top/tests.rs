use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_model::{Host, Origin, OriginKind};

use super::{TopCount, TopDomains, TopReader, TopRequest, TopSeries, register};

/// Two workers and their metrics.
fn two_workers(series: usize) -> (Metrics, [Arc<TopDomains>; 2]) {
    let metrics = Metrics::new();
    let workers = [(); 2].map(|()| Arc::default());
    let reader = TopReader::new(workers.iter().cloned());
    register(&metrics, &reader, TopSeries::new(series));
    (metrics, workers)
}

fn request(worker: &TopDomains, number: usize, status: u16) {
    let host = Host::parse(&format!("d{number}.example")).expect("a host");
    let origin = Origin {
        kind: OriginKind::Ingress,
        id: format!("shop/d{number}").into(),
    };
    worker.note_request(&TopRequest {
        origin: &origin,
        host: &host,
        status,
        bytes: 10,
        now: clock::now(),
    });
}

/// The values of a metric by their one label.
fn values(text: &str, metric: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(metric)?.strip_prefix('{')?;
        let (label, value) = rest.split_once("\"} ")?;
        let (_, label) = label.split_once("=\"")?;
        Some((label.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

#[test]
fn series_are_as_many_with_a_hundred_thousand_domains_as_with_twenty() {
    let count = |domains: usize| {
        let (metrics, workers) = two_workers(10);
        for round in 0..2 {
            for number in 0..domains {
                request(
                    &workers[number % 2],
                    number,
                    200 + 300 * (number % 2) as u16,
                );
                let host = Host::parse(&format!("d{number}.example")).expect("a host");
                workers[round].note_handshake(&host);
            }
            // Somebody looks in between, too.
            metrics.encode();
        }
        let text = metrics.encode();
        for metric in ["domain_requests", "domain_bytes", "route_errors"] {
            let values = values(&text, &format!("myriad_{metric}_total"));
            assert_eq!(values.len(), 11, "{metric}: {values:?}");
        }
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    assert_eq!(count(20), count(100_000));
}

#[test]
fn those_that_have_most_are_found_among_many_and_nothing_is_lost_or_goes_back() {
    let (metrics, workers) = two_workers(3);
    let busy = [7, 11, 13];
    let traffic = || {
        for number in 0..20_000 {
            request(&workers[number % 2], number, 200);
            request(&workers[number % 2], busy[number % 3], 503);
        }
    };
    let read = || values(&metrics.encode(), "myriad_domain_requests_total");
    traffic();
    let first = read();
    assert_eq!(first.values().sum::<u64>(), 40_000);
    traffic();
    let second = read();
    let names: Vec<&str> = second.keys().map(|name| &**name).collect();
    assert_eq!(names, ["d11.example", "d13.example", "d7.example", "other"]);
    assert_eq!(second.values().sum::<u64>(), 80_000);
    for (name, value) in &first {
        assert!(second[name] >= *value, "{name}");
    }
    let own = second["d7.example"];
    assert!((6_600..=6_800).contains(&own), "{own} of the second time");
    let top = TopReader::new(workers.iter().cloned()).top(TopCount::RouteErrors, 3);
    let errors: Vec<(&str, u64)> = top.iter().map(|it| (&*it.name, it.count)).collect();
    let sum: u64 = errors.iter().map(|(_, count)| count).sum();
    assert_eq!(sum, 40_000, "{errors:?}");
    assert!(errors.iter().any(|(name, _)| *name == "Ingress/shop/d13"));
}

#[test]
fn no_series_but_the_others_where_none_is_wanted() {
    let (metrics, workers) = two_workers(0);
    request(&workers[0], 1, 500);
    request(&workers[1], 2, 200);
    let values = values(&metrics.encode(), "myriad_domain_errors_total");
    assert_eq!(values, BTreeMap::from([("other".to_owned(), 1)]));
}

#[test]
fn no_series_is_there_twice_whatever_a_host_or_an_object_is_called() {
    let (metrics, workers) = two_workers(10);
    let name = "n".repeat(400);
    for (number, host) in ["other", "a.example"].iter().enumerate() {
        let origin = Origin {
            kind: OriginKind::Ingress,
            id: format!("shop/{name}{number}").into(),
        };
        workers[0].note_request(&TopRequest {
            origin: &origin,
            host: &Host::parse(host).expect("a host"),
            status: 200,
            bytes: 0,
            now: clock::now(),
        });
    }
    let text = metrics.encode();
    for metric in ["domain_requests", "route_requests"] {
        let start = format!("myriad_{metric}_total{{");
        let lines = text.lines().filter(|line| line.starts_with(&start));
        assert_eq!(lines.count(), 2, "{metric}: {text}");
    }
}

#[test]
fn who_is_read_is_not_waited_for() {
    let (metrics, workers) = two_workers(1);
    let held = workers[0].0.lock().expect("not poisoned");
    request(&workers[0], 1, 200);
    drop(held);
    let values = values(&metrics.encode(), "myriad_domain_requests_total");
    assert_eq!(values["other"], 0);
}
