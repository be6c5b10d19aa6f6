use std::time::Duration;

use myriad_base::clock;

use super::traced::{HEADERS_MAX, RECORD_BYTES_MAX, STAGES_MAX, TRIES_MAX, WAITS_MAX};
use super::{
    LiveRecord, LiveTraces, ORDERS_MAX, OrderRefused, PER_SECOND_MAX, REQUESTS_MAX, RequestTrace,
    StageOutcome, TIME_MAX, TraceEnd, TraceOrder, TraceSubject, TracedRequest,
};
use crate::codec::head::{self, Head};
use crate::failure::FailureKind;
use crate::limits::Limits;

const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

fn order(host: &str, count: u32) -> TraceOrder {
    TraceOrder {
        host: host.to_owned(),
        path: "/".to_owned(),
        headers: Vec::new(),
        count,
        time: Duration::from_secs(60),
    }
}

fn request(host: &str, path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

fn parsed(text: &str) -> Head<'_> {
    head::parse(text.as_bytes(), &Limits::default()).unwrap()
}

fn subject() -> TraceSubject<'static> {
    TraceSubject {
        request_id: "an-id",
        scheme: "https",
        client: ([192, 0, 2, 1], 4711).into(),
        listener: "https",
    }
}

fn begin(traces: &LiveTraces, text: &str) -> Option<TracedRequest> {
    traces.begin(&parsed(text), &subject())
}

fn bytes_of(record: &RequestTrace) -> usize {
    serde_json::to_vec(record).unwrap().len()
}

#[test]
fn an_order_takes_as_many_requests_as_it_wants_and_nobody_is_asked_behind_that() {
    let traces = LiveTraces::default();
    assert!(!traces.is_asked());
    let id = traces.start(order("a.test", 2)).unwrap().id;
    assert!(traces.is_asked());
    assert!(begin(&traces, &request("b.test", "/", "")).is_none());
    for left in [1, 0] {
        assert!(begin(&traces, &request("a.test", "/x", "")).is_some());
        assert_eq!(traces.report(id).unwrap().left, left);
    }
    assert!(!traces.is_asked());
    assert!(begin(&traces, &request("a.test", "/", "")).is_none());
    let report = traces.report(id).unwrap();
    assert!(report.is_over);
    let targets: Vec<&str> = report.requests.iter().map(|it| &*it.target).collect();
    assert_eq!(targets, ["/x", "/x"]);
    let ids: Vec<u64> = traces.reports().iter().map(|it| it.id).collect();
    assert_eq!(ids, [id]);
}

#[test]
fn an_order_ends_with_its_time_and_its_records_later() {
    let traces = LiveTraces::default();
    let now = clock::now();
    let id = traces.start_at(order("a.test", 1), now).unwrap().id;
    assert_eq!(traces.report_at(id, now).unwrap().seconds_left, 60);
    let now = now + Duration::from_secs(61);
    let text = request("a.test", "/", "");
    assert!(traces.begin_at(&parsed(&text), &subject(), now).is_none());
    assert!(!traces.is_asked());
    assert!(traces.report_at(id, now).unwrap().is_over);
    let now = now + super::KEPT_FOR;
    // Whoever looks lets go of it, though nobody has ordered anything since.
    assert!(traces.report_at(id, now).is_none());
    assert!(traces.reports().is_empty());
    let next = traces.start_at(order("a.test", 1), now).unwrap().id;
    assert!(next > id && traces.report_at(next, now).is_some());
}

#[test]
fn an_order_that_is_stopped_takes_nothing_more() {
    let traces = LiveTraces::default();
    let id = traces.start(order("a.test", 1)).unwrap().id;
    assert!(traces.stop(id).unwrap().is_over);
    assert!(traces.stop(id).unwrap().is_over);
    assert!(!traces.is_asked());
    assert!(traces.stop(id + 1).is_none());
}

#[test]
fn requests_are_wanted_by_host_path_and_headers() {
    let with = |host: &str, path: &str, headers: &[(&str, &str)]| TraceOrder {
        path: path.to_owned(),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..order(host, 1)
    };
    for (asked, text, is_wanted) in [
        (
            with("a.test", "/", &[]),
            request("A.test:443", "/", ""),
            true,
        ),
        (
            with("a.test", "/b", &[]),
            request("a.test", "/a", ""),
            false,
        ),
        (
            with("a.test", "/b", &[]),
            request("a.test", "/b/c", ""),
            true,
        ),
        (with("*.test", "/", &[]), request("a.test", "/", ""), true),
        (with("*.test", "/", &[]), request("test", "/", ""), false),
        (
            with("a.test", "/", &[("x-user", "1")]),
            request("a.test", "/", "X-User: 1\r\n"),
            true,
        ),
        (
            with("a.test", "/", &[("x-user", "1")]),
            request("a.test", "/", "X-User: 12\r\n"),
            false,
        ),
        (
            with("a.test", "/", &[("x-user", "1"), ("x-b", "2")]),
            request("a.test", "/", "X-User: 1\r\n"),
            false,
        ),
    ] {
        let traces = LiveTraces::default();
        traces.start(asked).unwrap();
        assert_eq!(begin(&traces, &text).is_some(), is_wanted, "{text}");
    }
}

#[test]
fn there_are_so_many_orders_and_none_that_is_too_large() {
    let traces = LiveTraces::default();
    for asked in [
        order("a.test", 0),
        order("a.test", REQUESTS_MAX + 1),
        order(&"a".repeat(super::TEXT_BYTES_MAX + 1), 1),
        TraceOrder {
            time: TIME_MAX + Duration::from_secs(1),
            ..order("a.test", 1)
        },
        TraceOrder {
            headers: vec![("a".to_owned(), "b".to_owned()); super::HEADERS_MAX + 1],
            ..order("a.test", 1)
        },
    ] {
        let refused = traces.start(asked).err();
        assert_eq!(refused, Some(OrderRefused::TooLarge));
    }
    let mut ids = Vec::new();
    for _ in 0..ORDERS_MAX {
        ids.push(traces.start(order("a.test", 1)).unwrap().id);
    }
    let refused = traces.start(order("a.test", 1)).err();
    assert_eq!(refused, Some(OrderRefused::Full));
    // One that is over makes room.
    traces.stop(ids[3]);
    traces.start(order("a.test", 1)).unwrap();
    assert!(traces.report(ids[3]).is_none() && traces.report(ids[0]).is_some());
    assert_eq!(traces.reports().len(), ORDERS_MAX);
}

#[test]
fn only_so_many_requests_are_taken_in_a_second() {
    let traces = LiveTraces::default();
    let id = traces.start(order("a.test", REQUESTS_MAX)).unwrap().id;
    let text = request("a.test", "/", "");
    // The test may pass from one second into the next once.
    let taken = (0..REQUESTS_MAX).filter(|_| begin(&traces, &text).is_some());
    let taken = taken.count() as u64;
    assert!(
        (PER_SECOND_MAX..=2 * PER_SECOND_MAX).contains(&taken),
        "{taken}"
    );
    let report = traces.report(id).unwrap();
    assert_eq!(report.passed_over, u64::from(REQUESTS_MAX) - taken);
    assert!(!report.is_over);
}

#[tokio::test]
async fn a_record_grows_until_the_request_is_over() {
    let traces = LiveTraces::default();
    let id = traces.start(order("a.test", 1)).unwrap().id;
    let live = LiveRecord::new(begin(&traces, &request("a.test", "/", "")).unwrap());
    let record = live.traced();
    record.stage(
        "route",
        StageOutcome::Passed,
        "the route is of X",
        Duration::ZERO,
    );
    record.begin_try("ns/web", ([192, 0, 2, 7], 80).into());
    record.wait("a connection to the endpoint");
    tokio::time::sleep(Duration::from_millis(3)).await;
    record.fail_try(FailureKind::ConnectFailed);
    record.begin_try("ns/web", ([192, 0, 2, 8], 80).into());
    record.connected(true);
    record.wait("the endpoint's answer");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let seen = traces.report(id).unwrap().requests.remove(0);
    assert!(!seen.is_over);
    assert!(seen.micros >= 8_000, "{seen:?}");
    let over: Vec<bool> = seen.waits.iter().map(|it| it.is_over).collect();
    assert_eq!(over, [true, false]);
    assert!(seen.waits[0].micros >= 3_000 && seen.waits[1].micros >= 5_000);
    assert_eq!(seen.tries[0].failure, "connect_failed");
    record.answered(200);
    record.finish(&TraceEnd {
        status: 200,
        failure: None,
        bytes_received: 1,
        bytes_sent: 2,
    });
    drop(live);
    let seen = traces.report(id).unwrap().requests.remove(0);
    assert!(seen.is_over && seen.why.is_empty());
    assert_eq!(
        (seen.status, seen.bytes_received, seen.bytes_sent),
        (200, 1, 2)
    );
    assert_eq!(
        (seen.tries[1].status, seen.tries[1].is_reused),
        (200, Some(true))
    );
}

#[test]
fn a_request_that_nobody_serves_any_more_is_over() {
    let traces = LiveTraces::default();
    let id = traces.start(order("a.test", 1)).unwrap().id;
    drop(LiveRecord::new(
        begin(&traces, &request("a.test", "/", "")).unwrap(),
    ));
    let seen = traces.report(id).unwrap().requests.remove(0);
    assert!(
        seen.is_over && seen.status == 0 && !seen.why.is_empty(),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_record_is_bounded_whatever_the_request_does() {
    let traces = LiveTraces::default();
    traces.start(order("a.test", 1)).unwrap();
    let fields: String = (0..HEADERS_MAX + 20)
        .map(|number| format!("X-Field-{number}: {}\r\n", "y ".repeat(150)))
        .collect();
    let path = format!("/{}", "p".repeat(4_000));
    let record = begin(&traces, &request("a.test", &path, &fields)).unwrap();
    let long = "a word ".repeat(1_000);
    for _ in 0..STAGES_MAX + 5 {
        record.stage("route", StageOutcome::Passed, &long, Duration::ZERO);
        record.begin_try(&long, ([192, 0, 2, 7], 80).into());
        record.set_route(&long);
    }
    for _ in 0..WAITS_MAX + 5 {
        record.wait("the endpoint's answer");
        tokio::time::sleep(Duration::from_micros(50)).await;
    }
    let seen = record.record();
    assert!(seen.is_cut);
    assert!(seen.headers.len() <= HEADERS_MAX && seen.stages.len() <= STAGES_MAX);
    assert!(seen.tries.len() <= TRIES_MAX && seen.waits.len() <= WAITS_MAX);
    let most = RECORD_BYTES_MAX + 128 * (HEADERS_MAX + STAGES_MAX + TRIES_MAX + WAITS_MAX);
    assert!(bytes_of(&seen) <= most, "{} of {most}", bytes_of(&seen));
}

#[test]
fn no_secret_of_a_request_is_in_its_record() {
    let traces = LiveTraces::default();
    let id = traces.start(order("a.test", 1)).unwrap().id;
    let fields = format!(
        "Authorization: Bearer {CANARY}\r\nProxy-Authorization: Basic {CANARY}\r\n\
         Cookie: sid={CANARY}; theme={CANARY}\r\nX-Api-Key: {CANARY}\r\n\
         X-Auth-Request-User: {CANARY}\r\nX-Odd: {CANARY}0\r\n\
         Referer: https://a.test/?x={CANARY}\r\n"
    );
    let path = format!("/a?token={CANARY}&page=2&sig={CANARY}&q={CANARY}");
    let record = begin(&traces, &request("a.test", &path, &fields)).unwrap();
    let text = format!("is redirected to https://b.test/a?x={CANARY}, for {CANARY}");
    record.stage(
        "HTTPS redirect",
        StageOutcome::Answered,
        &text,
        Duration::ZERO,
    );
    record.set_route(&format!("Ingress {CANARY}"));
    record.finish(&TraceEnd {
        status: 308,
        failure: Some(FailureKind::BadToken),
        bytes_received: 0,
        bytes_sent: 0,
    });
    record.set_route(&format!("Ingress {CANARY}"));
    let shown = serde_json::to_string(&traces.report(id).unwrap()).unwrap();
    assert!(!shown.contains("c4n4ry"), "{shown}");
    for plain in ["page=2", "https://b.test/a?[redacted]", "X-Api-Key"] {
        assert!(shown.contains(plain), "no {plain} in {shown}");
    }
}

#[test]
fn an_order_tells_the_names_of_its_headers_alone() {
    let traces = LiveTraces::default();
    let asked = TraceOrder {
        headers: vec![("authorization".to_owned(), CANARY.to_owned())],
        ..order("a.test", 1)
    };
    let report = traces.start(asked).unwrap();
    let shown = serde_json::to_string(&report).unwrap();
    assert!(
        !shown.contains(CANARY) && shown.contains("authorization"),
        "{shown}"
    );
}
