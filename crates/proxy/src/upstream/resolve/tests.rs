use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_model::{
    Balancer, Dns, DnsMode, DnsName, Extent, HashBalancer, HashSource, HashTable, Reach,
    UpstreamOptions,
};

use super::{AT_ONCE_MAX, Known, Resolution, Shared, UNUSED_MS, UPSTREAM_ADDRESSES_MAX};
use crate::balance::{TransportSettings, now_ms};
use crate::limits::namespace_max;
use crate::net::border::BorderSettings;
use crate::net::name_server::{NameServer, Saying};
use crate::net::names::known::KNOWN_MAX;
use crate::net::names::{NameSettings, Names};

fn name(host: &str, port: u16, weight: u32, priority: u8) -> DnsName {
    DnsName {
        host: host.into(),
        port,
        weight,
        priority,
    }
}

fn names(server: &NameServer) -> Names {
    let settings = NameSettings {
        servers: vec![server.address()],
        ..NameSettings::default()
    };
    Names::new(settings, &Metrics::new())
}

fn resolution(names: Vec<DnsName>, before: Option<&Resolution>) -> Resolution {
    let dns = Dns {
        mode: DnsMode::Strict,
        names: names.into(),
    };
    let (manner, options) = (TransportSettings::shared(None), UpstreamOptions::default());
    Resolution::new(0, dns, manner, options, before)
}

fn says(server: &NameServer, name: &str, last: u8, ttl: u32) {
    let address = IpAddr::from([192, 0, 2, last]);
    server.say(name, Saying::Addresses(vec![address], ttl));
}

/// Says that a name has so many addresses, from one on, in ascending or descending order.
fn says_many(server: &NameServer, name: &str, first: u32, count: u32, is_ascending: bool) {
    let ip = |number: u32| IpAddr::from((0xc600_0000 + first + number).to_be_bytes());
    let mut addresses: Vec<IpAddr> = (0..count).map(ip).collect();
    if !is_ascending {
        addresses.reverse();
    }
    server.say(name, Saying::Addresses(addresses, 200));
}

/// Makes what is known too old.
fn age(shared: &Shared) {
    let known = shared.answer.load_full().unwrap();
    known.until_ms.store(now_ms(), Relaxed);
    for told in &known.told {
        told.until_ms.store(now_ms(), Relaxed);
    }
}

/// The last number of each endpoint's address.
fn last(answer: &super::DnsAnswer) -> Vec<u8> {
    let members = answer.pool.members();
    let ips = members.map(|member| member.target.address.ip());
    let last = |ip: IpAddr| ip.to_string().rsplit('.').next().map(str::parse);
    ips.map(|ip| last(ip).unwrap().unwrap()).collect()
}

#[tokio::test]
async fn each_name_has_its_share_and_its_priority() {
    let server = NameServer::start();
    let wanted = vec![
        name("127.0.0.1", 81, 3, 0),
        name("127.0.0.2", 81, 1, 0),
        name("127.0.0.3", 81, 1, 1),
        name("no.such.test", 81, 1, 1),
    ];
    let answer = resolution(wanted, None).answer(&names(&server)).await;
    let told: Vec<(u32, u8)> = answer
        .unwrap()
        .pool
        .members()
        .map(|member| (member.weight, member.priority))
        .collect();
    assert_eq!(told, [(192, 0), (64, 0), (64, 1)]);
}

#[tokio::test]
async fn names_that_share_an_address_are_one_endpoint() {
    let server = NameServer::start();
    says(&server, "a.test", 1, 200);
    says(&server, "b.test", 1, 200);
    let wanted = vec![
        name("a.test", 81, 1, 1),
        name("b.test", 81, 1, 0),
        name("b.test", 82, 1, 0),
    ];
    let answer = resolution(wanted, None).answer(&names(&server)).await;
    let answer = answer.unwrap();
    let members = answer.pool.members();
    let told: Vec<(u32, u8)> = members.map(|it| (it.weight, it.priority)).collect();
    assert_eq!(told, [(128, 0), (64, 0)]);
    let has = |ip: [u8; 4]| answer.has_ip(ip.into());
    assert!(has([192, 0, 2, 1]) && !has([192, 0, 2, 2]) && !has([0, 0, 0, 0]));
}

#[tokio::test]
async fn what_is_known_of_the_same_names_stays() {
    let names = names(&NameServer::start());
    let before = resolution(vec![name("127.0.0.1", 81, 1, 0)], None);
    let answer = before.answer(&names).await.unwrap();
    let same = resolution(vec![name("127.0.0.1", 81, 1, 0)], Some(&before));
    assert!(Arc::ptr_eq(&same.answer(&names).await.unwrap(), &answer));
    let other = resolution(vec![name("127.0.0.1", 82, 1, 0)], Some(&before));
    assert!(!Arc::ptr_eq(&other.answer(&names).await.unwrap(), &answer));
}

#[tokio::test]
async fn names_without_addresses_are_a_failure() {
    let nothing = resolution(vec![name("no.such.test", 81, 1, 0)], None);
    assert!(nothing.answer(&names(&NameServer::start())).await.is_err());
}

#[tokio::test]
async fn each_name_is_asked_for_again_when_its_own_records_are_too_old() {
    let server = NameServer::start();
    let names = names(&server);
    says(&server, "long.test", 1, 200);
    says(&server, "short.test", 2, 1);
    let wanted = vec![name("long.test", 81, 1, 0), name("short.test", 81, 1, 0)];
    let resolution = resolution(wanted, None);
    assert_eq!(last(&resolution.answer(&names).await.unwrap()), [1, 2]);
    says(&server, "short.test", 3, 200);
    // Requests are served with what is there until the new answer has come.
    let renewed = async {
        loop {
            let answer = resolution.answer(&names).await.unwrap();
            if last(&answer) == [1, 3] {
                return answer;
            }
            assert_eq!(last(&answer), [1, 2]);
            tokio::task::yield_now().await;
        }
    };
    let tasks = tokio::task::LocalSet::new();
    let renewed = tasks.run_until(tokio::time::timeout(Duration::from_secs(20), renewed));
    let renewed = renewed.await.unwrap();
    assert_eq!(
        (server.asked("long.test"), server.asked("short.test")),
        (1, 2)
    );
    // The endpoint that stays keeps its count of requests.
    assert!(renewed.until_ms() > now_ms() + 100_000);
}

#[tokio::test]
async fn old_addresses_serve_while_no_server_answers_and_go_where_dns_says_so() {
    let server = NameServer::start();
    let names = names(&server);
    let resolution = resolution(vec![name("a.test", 81, 1, 0)], None);
    let shared = &resolution.shared;
    says(&server, "a.test", 1, 200);
    resolution.answer(&names).await.unwrap();
    age(shared);
    server.say("a.test", Saying::Failure);
    assert!(matches!(shared.known(), Known::Old(_)));
    assert_eq!(last(&*shared.ask(&names, None).await), [1]);
    assert!(matches!(shared.known(), Known::Young(_)));
    age(shared);
    server.say("a.test", Saying::Nothing);
    assert!(shared.ask(&names, None).await.pool.is_empty());
    assert!(resolution.answer(&names).await.is_err());
}

#[tokio::test]
async fn an_address_that_no_endpoint_may_have_is_none_however_often_dns_changes() {
    let server = NameServer::start();
    let border = BorderSettings {
        endpoints: Reach {
            extent: Extent::Elsewhere,
            ..Reach::default()
        },
        ..BorderSettings::default()
    };
    let settings = NameSettings {
        servers: vec![server.address()],
        border,
        ..NameSettings::default()
    };
    let metrics = Metrics::new();
    let names = Names::new(settings, &metrics);
    let say = |ips: &[&str]| {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        server.say("a.test", Saying::Addresses(ips, 0));
    };
    // All addresses of an answer are looked at, of either family.
    say(&["127.0.0.1", "192.0.2.7", "169.254.169.254", "::1"]);
    let fresh = || resolution(vec![name("a.test", 80, 1, 0)], None);
    let answer = fresh().answer(&names).await.unwrap();
    assert_eq!(last(&answer), [7]);
    // Rebinding: the second answer is held to the same rule as the first.
    for ip in ["127.0.0.1", "64:ff9b:1::7f00:1", "::ffff:169.254.169.254"] {
        say(&[ip]);
        assert!(fresh().answer(&names).await.is_err(), "{ip}");
    }
    let counted = metrics.encode();
    assert!(
        counted.contains("myriad_dns_addresses_refused_total"),
        "{counted}"
    );
}

#[tokio::test]
async fn names_share_the_addresses_of_an_upstream() {
    let server = NameServer::start();
    let all: Vec<String> = (0..Dns::NAMES_MAX)
        .map(|it| format!("n{it}.test"))
        .collect();
    for (name, number) in all.iter().zip(0..) {
        says_many(&server, name, number << 8, 8, number % 2 == 0);
    }
    let of = |count: usize| -> Vec<DnsName> {
        let hosts = all[..count].iter();
        hosts.map(|host| name(host, 81, 1, 0)).collect()
    };
    let names = names(&server);
    let count = async |count: usize| {
        let answer = resolution(of(count), None).answer(&names).await.unwrap();
        let mut addresses: Vec<_> = answer.pool.members().map(|it| it.target.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), answer.pool.len());
        // The same ones of each name, in whichever order they come.
        let last = addresses.iter().map(|it| match it.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => u8::MAX,
        });
        (answer.pool.len(), last.max().unwrap())
    };
    assert_eq!(count(Dns::NAMES_MAX).await, (UPSTREAM_ADDRESSES_MAX, 3));
    assert_eq!(count(200).await, (200 * 5, 4));
    // Where there are few, they are as many as before.
    assert_eq!(count(16).await, (16 * 8, 7));
}

#[tokio::test]
async fn endpoints_stay_as_they_are_as_long_as_no_address_changes() {
    let server = NameServer::start();
    let names = names(&server);
    let all = vec![name("a.test", 81, 1, 0), name("b.test", 81, 1, 0)];
    let resolution = resolution(all, None);
    says_many(&server, "a.test", 0, 20, true);
    says_many(&server, "b.test", 256, 20, true);
    let first = resolution.answer(&names).await.unwrap();
    age(&resolution.shared);
    says_many(&server, "b.test", 256, 20, false);
    let second = resolution.shared.ask(&names, None).await;
    assert!(Arc::ptr_eq(&first, &second));
    assert!(matches!(resolution.shared.known(), Known::Young(_)));
    assert_eq!((server.asked("a.test"), server.asked("b.test")), (2, 2));
    // One name alone is too old, and has another address.
    first.told[1].until_ms.store(now_ms(), Relaxed);
    says_many(&server, "b.test", 257, 20, true);
    let third = resolution.shared.ask(&names, None).await;
    assert_eq!((server.asked("a.test"), server.asked("b.test")), (2, 3));
    let ids = |answer: &super::DnsAnswer| -> Vec<u64> {
        answer.pool.members().map(|it| it.target.id).collect()
    };
    let (before, now) = (ids(&first), ids(&third));
    assert_eq!(now.len(), 40);
    let stayed = now.iter().filter(|id| before.contains(id)).count();
    assert_eq!(stayed, 39);
    // Only what is kept counts.
    drop((first, second));
    assert_eq!(names.known().counts(), (40, 1));
}

#[tokio::test]
async fn names_have_one_address_each_where_their_namespace_has_its_share() {
    let server = NameServer::start();
    let settings = NameSettings {
        servers: vec![server.address()],
        ..NameSettings::default()
    };
    let metrics = Metrics::new();
    let names = Names::new(settings, &metrics);
    says_many(&server, "a.test", 0, 4, true);
    says_many(&server, "b.test", 256, 4, true);
    let others = names.known().hold(0, namespace_max(KNOWN_MAX) - 3);
    let all = vec![name("a.test", 81, 1, 0), name("b.test", 81, 1, 0)];
    let resolution = resolution(all, None);
    let few = resolution.answer(&names).await.unwrap();
    assert_eq!(few.pool.len(), 2);
    // It is no other answer as long as that is so.
    age(&resolution.shared);
    let again = resolution.shared.ask(&names, None).await;
    assert!(Arc::ptr_eq(&few, &again));
    let counted = metrics.encode();
    assert!(
        counted.contains("myriad_dns_upstreams_reduced_total 1\n"),
        "{counted}"
    );
    drop(others);
    age(&resolution.shared);
    assert_eq!(resolution.shared.ask(&names, None).await.pool.len(), 8);
}

#[tokio::test]
async fn what_nobody_has_asked_for_in_a_while_is_dropped() {
    let server = NameServer::start();
    let names = names(&server);
    says(&server, "a.test", 1, 30);
    let resolution = resolution(vec![name("a.test", 81, 1, 0)], None);
    let shared = &resolution.shared;
    let until_ms = resolution.answer(&names).await.unwrap().until_ms();
    assert_eq!(names.known().counts(), (1, 1));
    shared.drop_unused(until_ms + UNUSED_MS - 1);
    assert!(resolution.is_answered());
    shared.drop_unused(until_ms + UNUSED_MS);
    assert!(!resolution.is_answered());
    assert_eq!(names.known().counts(), (0, 1));
    // It is asked for by the next request.
    resolution.answer(&names).await.unwrap();
    assert_eq!(server.asked("a.test"), 2);
    assert_eq!(names.known().counts(), (1, 1));
    drop(resolution);
    assert_eq!(names.known().counts(), (0, 0));
}

#[tokio::test]
async fn an_address_of_each_name_outlives_its_endpoints_where_no_server_answers() {
    let server = NameServer::start();
    let names = names(&server);
    says_many(&server, "a.test", 0, 20, true);
    says(&server, "b.test", 1, 200);
    let all = vec![name("a.test", 81, 1, 0), name("b.test", 81, 1, 0)];
    let resolution = resolution(all, None);
    let shared = &resolution.shared;
    assert_eq!(resolution.answer(&names).await.unwrap().pool.len(), 21);
    // However often it is looked at.
    for _ in 0..2 {
        shared.drop_unused(u64::MAX);
        assert!(!resolution.is_answered());
        assert!(matches!(shared.known(), Known::Nothing));
        assert_eq!(names.known().counts(), (0, 1));
    }
    server.say("a.test", Saying::Failure);
    let answer = resolution.answer(&names).await.unwrap();
    assert_eq!(last(&answer), [0, 1]);
    assert_eq!(names.known().counts(), (2, 1));
    // All of them are used again once one does.
    age(shared);
    says_many(&server, "a.test", 0, 20, true);
    assert_eq!(shared.ask(&names, None).await.pool.len(), 21);
    // The same address as is left makes endpoints anew.
    says_many(&server, "a.test", 0, 1, true);
    age(shared);
    shared.ask(&names, None).await;
    shared.drop_unused(u64::MAX);
    assert_eq!(resolution.answer(&names).await.unwrap().pool.len(), 2);
}

#[test]
fn many_endpoints_and_tables_are_not_made_by_whoever_serves() {
    let drawn = resolution(vec![name("a.test", 81, 1, 0)], None);
    let is_long = |resolution: &Resolution, count| resolution.shared.is_long_work(count);
    assert!(!is_long(&drawn, AT_ONCE_MAX) && is_long(&drawn, AT_ONCE_MAX + 1));
    let hash = HashBalancer {
        source: HashSource::SourceIp,
        parts: Box::default(),
        table: HashTable::Maglev(251),
    };
    let options = UpstreamOptions {
        balancer: Balancer::Hash(Box::new(hash)),
        ..UpstreamOptions::default()
    };
    let dns = Dns::strict("a.test", 81);
    let hashed = Resolution::new(0, dns, TransportSettings::shared(None), options, None);
    assert!(!is_long(&hashed, 1) && is_long(&hashed, 2));
}
