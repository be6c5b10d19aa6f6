//! Hosts that a proxy tells, between the two session cores.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Form, Snapshot};

use super::pair::{Pair, World};
use crate::demand::{DEMAND_BURST, DEMAND_INTERVAL, DEMANDS_OPEN_MAX, REFUSED_FOR_MAX};
use crate::wire::{self, from_proxy, from_server};
use crate::{ClientCounters, ClientSession, DemandedHost, SessionError};

fn pair(demands: bool) -> Pair {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    match demands {
        true => Pair::connect_demanding(&world),
        false => Pair::connect(&world, Snapshot::new()),
    }
}

fn host(number: usize) -> DemandedHost {
    DemandedHost {
        host: format!("h{number}.example").into(),
        is_used: false,
    }
}

/// The proxy tells a host, and the server takes it in.
fn tell(pair: &mut Pair, number: usize) {
    let told = pair.client.demand(&host(number));
    pair.to_server.push_back(told.expect("it may tell"));
    pair.serve_one();
}

/// The message of somebody who keeps to no rule.
fn demand(host: &str) -> wire::FromProxy {
    wire::from_proxy(from_proxy::Body::Demand(wire::Demand {
        host: host.to_owned(),
        used: false,
    }))
}

#[test]
fn a_proxy_tells_hosts_while_somebody_obtains_certificates_and_hears_what_becomes_of_them() {
    let mut pair = pair(true);
    pair.server.set_open(false);
    pair.settle();
    assert_eq!(pair.is_demanding, None, "nobody is told that nothing is");
    assert!(pair.client.demand(&host(0)).is_none());
    pair.server.set_open(true);
    pair.settle();
    assert_eq!(pair.is_demanding.take(), Some(true));
    pair.server.set_open(true);
    pair.settle();
    assert_eq!(pair.is_demanding, None, "the same is not told again");

    tell(&mut pair, 1);
    tell(&mut pair, 2);
    assert_eq!(pair.server.demanded(pair.now), Some(host(1)));
    assert_eq!(pair.server.demanded(pair.now), Some(host(2)));
    assert_eq!(pair.server.demanded(pair.now), None);
    let (first, second): (Arc<str>, Arc<str>) = (host(1).host, host(2).host);
    pair.server.answer(&second, Duration::from_secs(30));
    pair.server.answer(&first, Duration::ZERO);
    pair.server.answer(&first, Duration::ZERO);
    pair.settle();
    let told = [(second, Duration::from_secs(30)), (first, Duration::ZERO)];
    assert_eq!(pair.answered, told, "one answer for each");

    pair.server.set_open(false);
    pair.settle();
    assert_eq!(pair.is_demanding, Some(false));
    assert!(!pair.client.may_demand());
    assert_eq!(pair.server_counters.demands.get(), 2);
    assert!(pair.server.is_in_step());
}

#[test]
fn a_proxy_of_an_older_build_never_meets_a_message_of_this() {
    let mut pair = pair(false);
    pair.server.set_open(true);
    pair.settle();
    assert_eq!(pair.is_demanding, None);
    assert!(pair.client.demand(&host(0)).is_none());
    let refused = pair.server.receive(demand("a.example")).err();
    assert_eq!(refused, Some(SessionError::Unexpected("host in demand")));
}

#[test]
fn a_server_of_an_older_build_is_never_told_a_host() {
    // One that knows nothing of it says nothing of it, and so does that of a sidecar.
    let mut pair = pair(true);
    pair.settle();
    assert_eq!(pair.is_demanding, None);
    assert!(!pair.client.may_demand());
    assert!(pair.client.demand(&host(0)).is_none());
    let refused = pair.server.receive(demand("a.example")).err();
    assert_eq!(refused, Some(SessionError::Unexpected("host in demand")));
}

#[test]
fn a_server_ends_the_stream_of_who_tells_more_than_may_be_or_what_is_no_host() {
    let mut first = pair(true);
    first.server.set_open(true);
    first.settle();
    for number in 0..DEMANDS_OPEN_MAX {
        tell(&mut first, number);
    }
    assert!(first.client.demand(&host(0)).is_none(), "it knows the rule");
    let refused = first.server.receive(demand("a.example")).err();
    assert_eq!(refused, Some(SessionError::TooMany("hosts in demand")));
    // Those that wait are not answered before they were handed on.
    first.server.answer(&host(0).host, Duration::ZERO);
    first.settle();
    assert!(first.answered.is_empty());

    for wrong in [
        "",
        "localhost",
        "*.example",
        "A.example",
        "192.0.2.7",
        "a/b.example",
    ] {
        let mut pair = pair(true);
        pair.server.set_open(true);
        pair.settle();
        let refused = pair.server.receive(demand(wrong)).err();
        let expected = SessionError::Invalid("host in demand");
        assert_eq!(refused, Some(expected), "{wrong}");
        let wrong = DemandedHost {
            host: wrong.into(),
            is_used: false,
        };
        assert!(pair.client.demand(&wrong).is_none());
    }
}

#[test]
fn a_flood_of_hosts_is_taken_in_no_faster_than_a_bound() {
    let mut pair = pair(true);
    pair.server.set_open(true);
    pair.settle();
    let mut taken = 0;
    // Each is answered at once, so that the next may be told.
    let mut flood = |pair: &mut Pair, count: usize| {
        for number in 0..count {
            if pair.client.may_demand() {
                tell(pair, number);
            }
            while let Some(demanded) = pair.server.demanded(pair.now) {
                taken += 1;
                pair.server.answer(&demanded.host, Duration::ZERO);
            }
            pair.settle();
        }
        taken
    };
    let burst = DEMAND_BURST as usize;
    assert_eq!(flood(&mut pair, 10 * burst), burst);
    assert!(!pair.client.may_demand(), "the others wait");
    assert_eq!(pair.server_counters.demands_delayed.get(), 1);
    assert_eq!(pair.server.deadline(), Some(pair.now + DEMAND_INTERVAL));
    pair.now += DEMAND_INTERVAL * 5;
    assert_eq!(flood(&mut pair, 100), burst + 5);
    assert_eq!(pair.server_counters.demands.get() as usize, burst + 5);
}

#[test]
fn a_client_ends_the_stream_of_a_server_that_answers_what_it_was_not_asked() {
    let welcomed = |demands: bool| {
        let counters = ClientCounters::default();
        let mut client = ClientSession::new("proxy", None, Snapshot::new(), counters);
        if demands {
            client = client.demanding();
        }
        let welcome = from_server::Body::Welcome(wire::Welcome {
            protocol: wire::PROTOCOL,
            ..wire::Welcome::default()
        });
        client.receive(wire::from_server(welcome)).unwrap();
        client
    };
    let state = || {
        let state = wire::DemandState { open: true };
        wire::from_server(from_server::Body::DemandState(state))
    };
    let refused = welcomed(false).receive(state()).err();
    assert_eq!(refused, Some(SessionError::Unexpected("state of demand")));
    let answer = |host: &str, refused_for: u32| {
        wire::from_server(from_server::Body::DemandAnswer(wire::DemandAnswer {
            host: host.to_owned(),
            refused_for,
        }))
    };
    let mut client = welcomed(true);
    let refused = client.receive(answer("a.example", 0)).err();
    let expected = SessionError::Unexpected("answer to a demand");
    assert_eq!(refused, Some(expected));
    client.receive(state()).unwrap();
    client.demand(&host(0)).unwrap();
    let refused = client.receive(answer("no host", 0)).err();
    assert_eq!(refused, Some(SessionError::Invalid("host in demand")));
    client.demand(&host(0)).unwrap();
    let answered = client.receive(answer("h0.example", u32::MAX)).unwrap();
    let crate::Received::Answered(_, time) = answered else {
        panic!("not an answer")
    };
    assert_eq!(time, REFUSED_FOR_MAX, "a time is bounded");
}
