use myriad_proxy::telemetry::live_trace::{
    LiveTraces, RequestTrace, StageOutcome, StageTrace, TraceReport, TracedHeader, TryTrace,
    WaitTrace,
};

use super::{ShownReport, found, header, split, start};

#[test]
fn a_url_is_a_host_and_the_start_of_a_path() {
    for (url, host, path) in [
        ("https://A.test", "a.test", "/"),
        ("http://a.test:8080/b/c", "a.test", "/b/c"),
        ("https://*.a.test/", "*.a.test", "/"),
        ("http://[2001:db8::1]:80/", "[2001:db8::1]", "/"),
        ("http://a.test./", "a.test", "/"),
    ] {
        let expected = (host.to_owned(), path.to_owned());
        assert_eq!(split(url), Ok(expected), "{url}");
    }
    for url in [
        "a.test",
        "ftp://a.test",
        "https://",
        "https:///a",
        "https://a.test/?b",
        "https://me@a.test/",
        "https://a.*.test/",
        "https://*/",
    ] {
        assert!(split(url).is_err(), "{url}");
    }
}

#[test]
fn headers_are_written_either_way() {
    let read = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
    assert_eq!(header("x-user=a:b"), read("x-user", "a:b"));
    assert_eq!(header("x-user: a=b"), read("x-user", "a=b"));
    assert!(header("x-user").is_err());
}

#[test]
fn orders_are_refused_in_words_and_found_by_their_number() {
    let traces = LiveTraces::default();
    let ordered = start(&traces, "https://a.test/", &[], ("2", "30")).unwrap();
    assert_eq!((ordered.left, ordered.host.as_str()), (2, "a.test"));
    let id = ordered.id.to_string();
    assert_eq!(found(&traces, Some(&id)).unwrap().len(), 1);
    assert_eq!(found(&traces, None).unwrap().len(), 1);
    assert!(found(&traces, Some("4711")).is_err());
    for (url, count, seconds) in [
        ("a.test", "1", "30"),
        ("https://a.test", "x", "30"),
        ("https://a.test", "1", "-1"),
        ("https://a.test", "51", "30"),
        ("https://a.test", "1", "601"),
    ] {
        let refused = start(&traces, url, &[], (count, seconds));
        assert!(refused.is_err(), "{url} {count} {seconds}");
    }
}

fn stage(name: &str, outcome: StageOutcome, text: &str) -> StageTrace {
    StageTrace {
        name: name.to_owned(),
        outcome,
        text: text.to_owned(),
        micros: 2,
    }
}

/// A request that was tried twice.
fn request() -> RequestTrace {
    RequestTrace {
        request_id: "an-id".to_owned(),
        protocol: "HTTP/2".to_owned(),
        method: "GET".to_owned(),
        scheme: "https".to_owned(),
        host: "a.test".to_owned(),
        target: "/b?token=[redacted]".to_owned(),
        client: "192.0.2.1:4711".to_owned(),
        listener: "https".to_owned(),
        headers: vec![TracedHeader {
            name: "cookie".to_owned(),
            value: "[redacted]".to_owned(),
        }],
        stages: vec![
            stage("challenge", StageOutcome::Passed, ""),
            stage(
                "route",
                StageOutcome::Passed,
                "the route is of Ingress ns/a",
            ),
            stage(
                "action",
                StageOutcome::Forwarded,
                "is sent to one of 2 endpoints",
            ),
        ],
        route: "Ingress ns/a".to_owned(),
        tries: vec![
            TryTrace {
                upstream: "ns/web/http".to_owned(),
                endpoint: "192.0.2.7:80".to_owned(),
                failure: "connect_failed".to_owned(),
                ..TryTrace::default()
            },
            TryTrace {
                upstream: "ns/web/http".to_owned(),
                endpoint: "192.0.2.8:80".to_owned(),
                is_reused: Some(false),
                status: 200,
                ..TryTrace::default()
            },
        ],
        waits: vec![WaitTrace {
            what: "the endpoint's answer".to_owned(),
            from_micros: 1_500,
            micros: 12_034,
            is_over: true,
        }],
        status: 200,
        bytes_sent: 5,
        micros: 14_000,
        is_over: true,
        ..RequestTrace::default()
    }
}

#[test]
fn a_trace_reads_well() {
    let report = TraceReport {
        requests: vec![request()],
        ..TraceReport::default()
    };
    let expected = "\
GET https://a.test/b?token=[redacted]
200 after 14.000 ms
  client       192.0.2.1:4711, by HTTP/2 at https
  id           an-id
  header       cookie: [redacted]
  passed       route: the route is of Ingress ns/a
  forwarded    action: is sent to one of 2 endpoints
  not met      challenge
  route        Ingress ns/a
  endpoint     192.0.2.7:80 of ns/web/http: connect_failed
  endpoint     192.0.2.8:80 of ns/web/http, by a new connection: 200
  waited       12.034 ms for the endpoint's answer, from 1.500 ms on
  body         0 bytes received, 5 sent

";
    assert_eq!(ShownReport(&report).to_string(), expected);
}

#[test]
fn nothing_that_came_is_said_in_words() {
    let report = TraceReport {
        host: "a.test".to_owned(),
        path: "/b".to_owned(),
        headers: vec!["x-user".to_owned()],
        passed_over: 3,
        ..TraceReport::default()
    };
    assert_eq!(
        ShownReport(&report).to_string(),
        "no request to a.test/b with x-user came meanwhile to this proxy\n\
         3 more came too fast after others\n"
    );
}

#[test]
fn what_a_client_wrote_does_not_move_the_terminal() {
    let hostile = "x\u{9b}31m\u{202e}\u{1b}[2K\ny";
    let mut asked = request();
    asked.method = hostile.to_owned();
    asked.host = hostile.to_owned();
    asked.target = hostile.to_owned();
    asked.request_id = hostile.to_owned();
    asked.route = hostile.to_owned();
    asked.why = hostile.to_owned();
    asked.headers.push(TracedHeader {
        name: hostile.to_owned(),
        value: hostile.to_owned(),
    });
    asked
        .stages
        .push(stage("route", StageOutcome::Refused, hostile));
    let report = TraceReport {
        requests: vec![asked],
        ..TraceReport::default()
    };
    let shown = ShownReport(&report).to_string();
    let is_raw = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    assert!(!shown.contains(is_raw), "{shown:?}");
    assert!(shown.contains("header       x\\u{9b}31m\\u{202e}\\u{1b}[2K\\ny: x"));
    assert!(!shown.lines().any(|line| line.starts_with('y')), "{shown}");
}
