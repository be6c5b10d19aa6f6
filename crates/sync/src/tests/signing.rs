//! Requests to sign, between the two session cores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock;
use myriad_model::{Form, Snapshot};

use super::pair::{Pair, World};
use crate::server::{SIGN_BURST, SIGN_INTERVAL};
use crate::signing::{
    Anchors, CHAIN_MAX, NotSigned, ROOTS_MAX, SIGN_REQUEST_BYTES_MAX, TRUST_DOMAINS_MAX,
};
use crate::wire::{self, from_proxy, from_server};
use crate::{ClientCounters, ClientSession, SessionError};

fn anchors(root: &'static str) -> Arc<Anchors> {
    Arc::new(Anchors {
        roots: vec![root.into()],
        trust_domains: vec!["cluster.local".to_owned()],
    })
}

fn pair(wants: bool) -> Pair {
    let mut world = World::new(Form::Encoded);
    world.put("a", 1);
    match wants {
        true => Pair::connect_wanting(&world, Snapshot::new(), None),
        false => Pair::connect(&world, Snapshot::new()),
    }
}

/// Asks, and lets the other end sign whatever arrives there.
fn ask(pair: &mut Pair, request: &'static str) -> Result<Vec<Bytes>, NotSigned> {
    let asked = pair.client.ask(request.into(), "token".to_owned());
    pair.to_server.push_back(asked.expect("it may ask"));
    pair.serve_one();
    if let Some(asked) = pair.server.asked(pair.now) {
        assert_eq!(asked.token, "token");
        pair.server.signed(Ok(vec![asked.request, "issuer".into()]));
    }
    pair.settle();
    pair.signed.pop().expect("an answer").map(|it| it.chain)
}

#[test]
fn a_proxy_that_wants_an_identity_is_told_who_signs_and_what_it_asks_for_is_signed() {
    let mut pair = pair(true);
    pair.settle();
    assert!(!pair.client.may_ask() && pair.anchors.is_none());
    assert!(pair.client.ask("early".into(), String::new()).is_none());
    pair.server.anchor(anchors("first"));
    pair.settle();
    assert_eq!(pair.anchors.as_ref(), Some(&*anchors("first")));
    let chain = ask(&mut pair, "request").unwrap();
    assert_eq!(chain, ["request", "issuer"]);
    pair.server.anchor(anchors("second"));
    pair.settle();
    assert_eq!(pair.anchors.take().as_ref(), Some(&*anchors("second")));
    pair.server.anchor(anchors("second"));
    pair.settle();
    assert_eq!(pair.anchors, None, "the same is not told again");
    assert_eq!(pair.server_counters.signed.get(), 1);
    assert_eq!(pair.client_counters.signed.get(), 1);
}

#[test]
fn a_proxy_that_wants_none_hears_nothing_of_it() {
    let mut pair = pair(false);
    pair.server.anchor(anchors("first"));
    pair.settle();
    assert!(pair.anchors.is_none() && !pair.client.may_ask());
    let asked = wire::from_proxy(from_proxy::Body::SignRequest(wire::SignRequest::default()));
    let error = pair.server.receive(asked).err();
    assert_eq!(error, Some(SessionError::Unexpected("request to sign")));
}

#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
    let mut pair = pair(true);
    pair.server.anchor(anchors("first"));
    pair.settle();
    for _ in 0..SIGN_BURST {
        assert!(ask(&mut pair, "request").is_ok());
    }
    let refused = ask(&mut pair, "request").unwrap_err();
    assert_eq!(refused.retry_after, SIGN_INTERVAL);
    pair.now += SIGN_INTERVAL;
    assert!(ask(&mut pair, "request").is_ok());
    assert!(ask(&mut pair, "request").is_err());
    pair.now += Duration::from_secs(3_600);
    for _ in 0..SIGN_BURST {
        assert!(ask(&mut pair, "request").is_ok());
    }
    assert!(ask(&mut pair, "request").is_err());
    assert_eq!(pair.server_counters.not_signed.get(), 3);
    assert_eq!(pair.client_counters.not_signed.get(), 3);
}

#[test]
fn a_server_ends_the_stream_of_who_asks_twice_at_a_time_or_too_much() {
    let asked = |bytes: usize| {
        let asked = wire::SignRequest {
            request: vec![0; bytes].into(),
            ..wire::SignRequest::default()
        };
        wire::from_proxy(from_proxy::Body::SignRequest(asked))
    };
    let mut pair = pair(true);
    pair.server.anchor(anchors("first"));
    pair.settle();
    let large = pair.server.receive(asked(SIGN_REQUEST_BYTES_MAX + 1));
    let expected = SessionError::TooMany("bytes of a request to sign");
    assert_eq!(large.err(), Some(expected));
    assert!(pair.server.receive(asked(SIGN_REQUEST_BYTES_MAX)).is_ok());
    let twice = pair.server.receive(asked(1)).err();
    assert_eq!(twice, Some(SessionError::Unexpected("request to sign")));
}

#[test]
fn a_proxy_ends_the_stream_of_who_sends_what_it_did_not_ask_for_or_more_than_there_is() {
    let bad = |wants: bool, body: from_server::Body| {
        let counters = ClientCounters::default();
        let mut client = ClientSession::new("p", None, Snapshot::new(), counters);
        if wants {
            client = client.wanting_identity();
        }
        let mut receive = |body| client.receive(wire::from_server(body)).err();
        let welcome = from_server::Body::Welcome(wire::Welcome {
            protocol: wire::PROTOCOL,
            schema: 1,
            key: Bytes::copy_from_slice(&[1; 32]),
            lost: false,
        });
        assert_eq!(receive(welcome), None);
        receive(body)
    };
    let told = |roots: usize, domains: usize| {
        from_server::Body::Anchors(wire::Anchors {
            roots: vec!["root".into(); roots],
            trust_domains: vec!["domain".to_owned(); domains],
        })
    };
    assert_eq!(bad(true, told(ROOTS_MAX, TRUST_DOMAINS_MAX)), None);
    let unasked = Some(SessionError::Unexpected("root"));
    assert_eq!(bad(false, told(1, 1)), unasked);
    let signed = from_server::Body::Signed(wire::Signed::default());
    let unasked = Some(SessionError::Unexpected("signature"));
    assert_eq!(bad(true, signed), unasked);
    for (roots, domains) in [(0, 1), (ROOTS_MAX + 1, 1), (1, TRUST_DOMAINS_MAX + 1)] {
        assert!(bad(true, told(roots, domains)).is_some());
    }
    let message = wire::Signed {
        chain: vec!["certificate".into(); CHAIN_MAX + 1],
        anchors: Some(anchors("root").message()),
        ..wire::Signed::default()
    };
    assert!(crate::signing::read(message.clone()).is_err());
    let chain = message.chain[1..].to_vec();
    let fits = wire::Signed { chain, ..message };
    assert!(crate::signing::read(fits.clone()).unwrap().is_ok());
    let rootless = wire::Signed {
        anchors: None,
        ..fits
    };
    assert!(crate::signing::read(rootless).is_err());
}

#[test]
fn an_answer_does_not_wait_for_an_acknowledgement() {
    let mut world = World::new(Form::Encoded);
    let mut pair = Pair::connect_wanting(&world, Snapshot::new(), None);
    pair.server.anchor(anchors("first"));
    pair.settle();
    world.put("a", 1);
    pair.server.update(world.snapshot().clone());
    pair.speak();
    // The commit is on its way, and its acknowledgement is due.
    let asked = pair.client.ask("request".into(), "token".to_owned());
    pair.to_server.push_back(asked.unwrap());
    pair.serve_one();
    assert!(pair.server.asked(clock::now()).is_some());
    pair.server.signed(Err(NotSigned {
        reason: "no\nauthority".to_owned(),
        retry_after: Duration::from_millis(1),
    }));
    assert!(pair.speak());
    pair.settle();
    let refused = pair.signed.pop().unwrap().unwrap_err();
    assert_eq!(refused.reason, "noauthority");
    assert_eq!(refused.retry_after, Duration::from_secs(1));
    assert!(pair.server.is_in_step());
}
