use std::net::Ipv4Addr;

use super::*;
use crate::backend;

fn plan(address: SocketAddr) -> Plan {
    Plan {
        address,
        connections: 4,
        leaves: None,
        life: Life::Kept,
        requests: Arc::new(Requests::direct(vec!["a.test".to_owned()])),
        requests_max: None,
        streams: None,
        schedule: None,
    }
}

/// Waits until so many have been answered, or nothing more will be.
fn wait_answered(traffic: &Traffic, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while traffic.answered() < count && !traffic.thread.is_finished() {
        assert!(
            Instant::now() < deadline,
            "{} are answered",
            traffic.answered()
        );
        std::thread::yield_now();
    }
}

#[test]
fn all_that_was_sent_is_answered_at_the_end() {
    let ([right, _], _) = backend::start_known(Ipv4Addr::LOCALHOST.into()).unwrap();
    let traffic = Traffic::start(plan(right)).unwrap();
    traffic.wait_connected().unwrap();
    traffic.measure();
    wait_answered(&traffic, 1_000);
    let ended = traffic.end().unwrap();
    assert_eq!(ended.sent, ended.answered);
    assert!(!ended.seen.latency.is_empty() && ended.sent >= 1_000);
    assert_eq!(ended.failed(), 0, "{:?}", ended.seen.last_error);
}

#[test]
fn no_connection_asks_more_than_it_may() {
    let ([right, _], _) = backend::start_known(Ipv4Addr::LOCALHOST.into()).unwrap();
    let requests_max = Some(3);
    let traffic = Traffic::start(Plan {
        requests_max,
        ..plan(right)
    })
    .unwrap();
    wait_answered(&traffic, 12);
    let ended = traffic.end().unwrap();
    assert_eq!((ended.sent, ended.answered, ended.failed()), (12, 12, 0));
}

#[test]
fn answers_that_are_none_of_the_endpoint_are_failures() {
    let ([_, other], _) = backend::start_known(Ipv4Addr::LOCALHOST.into()).unwrap();
    let traffic = Traffic::start(plan(other)).unwrap();
    wait_answered(&traffic, 1);
    assert_eq!(traffic.answered(), 0, "its status is another one");
    let error = traffic.end().err().map(|error| format!("{error:#}"));
    assert!(error.is_some_and(|text| text.contains("203")));
}

#[test]
fn a_schedule_is_kept_however_fast_answers_come() {
    let ([right, _], _) = backend::start_known(Ipv4Addr::LOCALHOST.into()).unwrap();
    let schedule = Some(Schedule {
        rps: 400.0,
        connections: 4,
        requests: 100,
        has_jitter: true,
    });
    let begun = Instant::now();
    let traffic = Traffic::start(Plan {
        schedule,
        ..plan(right)
    })
    .unwrap();
    wait_answered(&traffic, 100);
    assert!(
        begun.elapsed() > Duration::from_millis(235),
        "{:?}",
        begun.elapsed()
    );
    let ended = traffic.end().unwrap();
    assert_eq!((ended.sent, ended.answered, ended.failed()), (100, 100, 0));
}
