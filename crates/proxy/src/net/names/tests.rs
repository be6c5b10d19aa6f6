use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use myriad_base::metrics::Metrics;

use super::{NameError, NameSettings, Names, kept_for, owner};
use crate::net::name_server::{NameServer, Saying};

/// Names that a server of the test is asked for.
fn names(server: &NameServer) -> Names {
    let settings = NameSettings {
        servers: vec![server.address()],
        ttl_min: Duration::from_secs(2),
        ttl_max: Duration::from_secs(60),
        ..NameSettings::default()
    };
    Names::new(settings, &Metrics::new())
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn answers_are_kept_for_as_long_as_they_say_within_bounds() {
    let server = NameServer::start();
    let names = names(&server);
    for (ttl, kept) in [(0, 2), (30, 30), (900, 60)] {
        server.say("a.test", Saying::Addresses(ips(&["192.0.2.1"]), ttl));
        let found = names.look_up(0, None, "a.test").await.unwrap();
        assert_eq!(found.addresses, ips(&["192.0.2.1"]));
        assert_eq!(found.ttl, Duration::from_secs(kept));
    }
    // Nothing is kept here.
    assert_eq!(server.asked("a.test"), 3);
}

#[tokio::test]
async fn what_does_not_exist_is_told_apart_from_what_nobody_answers() {
    let server = NameServer::start();
    let names = names(&server);
    server.say("gone.test", Saying::Nothing);
    server.say("empty.test", Saying::Addresses(Vec::new(), 5));
    server.say("broken.test", Saying::Failure);
    server.say("silent.test", Saying::Silence);
    let (gone, empty, broken, silent) = tokio::join!(
        names.look_up(0, None, "gone.test"),
        names.look_up(0, None, "empty.test"),
        names.look_up(0, None, "broken.test"),
        names.look_up(0, None, "silent.test"),
    );
    assert_eq!(gone, Err(NameError::Nothing));
    assert_eq!(empty, Err(NameError::Nothing));
    assert_eq!(broken, Err(NameError::Failed));
    assert_eq!(silent, Err(NameError::Failed));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_over_tcp() {
    let server = NameServer::start();
    let many: Vec<IpAddr> = (0..100).map(|host| [192, 0, 2, host].into()).collect();
    server.say("long.test", Saying::Long(many, 30));
    let found = names(&server).look_up(0, None, "long.test").await.unwrap();
    assert_eq!(found.addresses.len(), super::ADDRESSES_MAX);
}

#[tokio::test]
async fn of_a_long_answer_no_more_is_unpacked_than_is_used() {
    let server = NameServer::start();
    let settings = NameSettings {
        servers: vec![server.address()],
        ..NameSettings::default()
    };
    let metrics = Metrics::new();
    let names = Names::new(settings, &metrics);
    let host = format!("{}test", "a.".repeat(100));
    let ip = |number: u32| IpAddr::from((0xc633_0000 + number).to_be_bytes());
    server.say(&host, Saying::Long((0..4_000).map(ip).collect(), 30));
    let found = names.look_up(0, None, &host).await.unwrap();
    let used: Vec<IpAddr> = (0..).map(ip).take(super::ADDRESSES_MAX).collect();
    assert_eq!(found.addresses, used);
    let counted = metrics.encode();
    assert!(
        counted.contains("myriad_dns_messages_cut_total 1\n"),
        "{counted}"
    );
}

#[test]
fn a_place_is_kept_for_as_long_as_leaves_others_most_of_the_time() {
    let millis = Duration::from_millis;
    assert_eq!(kept_for(Duration::ZERO), Duration::ZERO);
    // A quarter of the thread, with all places of a lane taken.
    let places = u32::try_from(super::LANE.quick + super::LANE.slow).unwrap();
    assert_eq!(kept_for(millis(1)), millis(4) * places);
    assert_eq!(kept_for(millis(60_000)), super::KEPT_MAX);
}

#[tokio::test]
async fn ipv6_is_used_where_there_is_nothing_else_and_addresses_need_no_server() {
    let server = NameServer::start();
    let names = names(&server);
    let both = ips(&["2001:db8::1", "192.0.2.1"]);
    server.say("both.test", Saying::Addresses(both, 30));
    server.say("six.test", Saying::Addresses(ips(&["2001:db8::1"]), 30));
    let both = names.look_up(0, None, "both.test").await.unwrap();
    assert_eq!(both.addresses, ips(&["192.0.2.1"]));
    let six = names.look_up(0, None, "six.test").await.unwrap();
    assert_eq!(six.addresses, ips(&["2001:db8::1"]));
    let literal = names.look_up(0, None, "192.0.2.7").await.unwrap();
    assert_eq!(literal.addresses, ips(&["192.0.2.7"]));
    // The hosts file goes first.
    let local = names.look_up(0, None, "localhost").await.unwrap();
    assert!(local.addresses[0].is_loopback());
    assert_eq!(server.asked("localhost"), 0);
}

#[tokio::test]
async fn names_that_nobody_answers_hold_up_those_of_no_other_namespace() {
    let server = NameServer::start();
    let names = names(&server);
    server.say("a.test", Saying::Addresses(ips(&["192.0.2.1"]), 30));
    let silent: Vec<String> = (0..2_000).map(|it| format!("{it}.silent.test")).collect();
    for name in &silent {
        server.say(name, Saying::Silence);
    }
    let evil = owner("evil");
    let flood = join_all(silent.iter().map(|name| names.look_up(evil, None, name)));
    let honest = async {
        let mut others = (0..).map(|it| owner(&format!("ns{it}")));
        let lane = |owner: u64| (owner >> 32) as usize % super::LANES;
        // Hashes are others in each process, and lanes are few.
        let neighbour = others.find(|it| lane(*it) != lane(evil)).unwrap();
        names.look_up(neighbour, None, "a.test").await
    };
    // The flood comes first.
    let found = tokio::select! {
        biased;
        _ = flood => panic!("they were given up first"),
        found = honest => found.unwrap(),
    };
    assert_eq!(found.addresses, ips(&["192.0.2.1"]));
    let asked = silent.iter().filter(|name| server.asked(name) > 0).count();
    assert!(asked <= super::namespace_max(super::ASKED_MAX), "{asked}");
    assert_eq!(
        names.inner.asking.load(Ordering::Relaxed),
        0,
        "all are gone"
    );
}

#[tokio::test]
async fn a_client_that_asks_for_names_without_an_answer_holds_up_no_other_of_its_namespace() {
    let server = NameServer::start();
    let names = names(&server);
    server.say("a.test", Saying::Addresses(ips(&["192.0.2.1"]), 30));
    let silent: Vec<String> = (0..2_000).map(|it| format!("{it}.silent.test")).collect();
    for name in &silent {
        server.say(name, Saying::Silence);
    }
    let (namespace, evil) = (owner("ns"), Some(1));
    // Another client, and one whose name was answered before.
    for asker in [Some(2), None] {
        let flood = silent
            .iter()
            .map(|name| names.look_up(namespace, evil, name));
        let flood = join_all(flood);
        let found = tokio::select! {
            biased;
            _ = flood => panic!("they were given up first"),
            found = names.look_up(namespace, asker, "a.test") => found.unwrap(),
        };
        assert_eq!(found.addresses, ips(&["192.0.2.1"]));
    }
    assert_eq!(server.asked("a.test"), 2);
    assert_eq!(names.inner.asking.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_question_without_an_answer_leaves_its_place_to_the_next() {
    let server = NameServer::start();
    let names = names(&server);
    server.say("a.test", Saying::Addresses(ips(&["192.0.2.1"]), 30));
    // More than are ever asked at a time.
    let silent: Vec<String> = (0..80).map(|it| format!("{it}.silent.test")).collect();
    for name in &silent {
        server.say(name, Saying::Silence);
    }
    let flood = join_all(silent.iter().map(|name| names.look_up(0, Some(1), name)));
    let found = tokio::select! {
        biased;
        _ = flood => panic!("they were given up first"),
        found = names.look_up(0, Some(1), "a.test") => found.unwrap(),
    };
    assert_eq!(found.addresses, ips(&["192.0.2.1"]));
}
