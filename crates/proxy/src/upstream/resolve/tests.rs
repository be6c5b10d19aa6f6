use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_model::{Dns, DnsMode, DnsName, Extent, Reach, UpstreamOptions};

use super::{Known, Resolution};
use crate::balance::TransportSettings;
use crate::net::border::BorderSettings;
use crate::net::name_server::{NameServer, Saying};
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
    assert!(renewed.until > myriad_base::clock::now() + Duration::from_secs(100));
}

#[tokio::test]
async fn old_addresses_serve_while_no_server_answers_and_go_where_dns_says_so() {
    let server = NameServer::start();
    let names = names(&server);
    let resolution = resolution(vec![name("a.test", 81, 1, 0)], None);
    let shared = &resolution.shared;
    let age = |shared: &super::Shared| {
        let now = myriad_base::clock::now();
        let known = shared.answer.load_full().unwrap();
        let told = known.told.iter().cloned().map(|mut told| {
            told.until = now;
            told
        });
        let members = shared.members(&known.told, None).into_iter();
        let answer = super::DnsAnswer {
            pool: super::Pool::with(members, &shared.options),
            told: told.collect(),
            until: now,
        };
        shared.answer.store(Some(Arc::new(answer)));
    };
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
