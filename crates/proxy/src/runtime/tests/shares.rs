//! Rules for the requests of one share of a route.

use std::sync::Arc;

use myriad_model::{
    Action, Affinity, Cors, Mirror, PathRewrite, Redirect, RedirectTarget, Rewrite, Route, Share,
    ShareAnswer, ShareFilters, WeightedUpstream,
};
use tokio::sync::mpsc;

use super::world::{Backend, PATIENCE, World, header, route, with_policy};
use crate::balance::{Endpoint, TransportSettings};

fn get(fields: &str) -> String {
    format!("GET /p?q HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

fn preflight(origin: &str) -> String {
    format!(
        "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nOrigin: {origin}\r\n\
         Access-Control-Request-Method: PUT\r\n\r\n"
    )
}

/// Shares of these weights, each of its upstream and with its rules.
fn shared(shares: Vec<(&str, u32, ShareFilters)>) -> Route {
    let shares = shares.into_iter().map(|(upstream, weight, filters)| {
        let filters = Some(Box::new(filters));
        let (upstream, headers) = (upstream.into(), None);
        WeightedUpstream {
            upstream,
            weight,
            headers,
            filters,
        }
    });
    Route {
        action: Action::Forward(shares.collect()),
        ..route("a.example", "/", "u")
    }
}

fn answered(answer: ShareAnswer) -> ShareFilters {
    ShareFilters {
        answer: Some(answer),
        ..ShareFilters::default()
    }
}

fn cors(origin: &str) -> Option<Box<Cors>> {
    Some(Box::new(Cors {
        origins: [origin.into()].into(),
        methods: "PUT".into(),
        age_max_s: 5,
        ..Cors::default()
    }))
}

#[tokio::test]
async fn a_share_is_refused_by_its_weight() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let refused = || answered(ShareAnswer::Refuse(500));
    let cases: [([u32; 2], &[u16]); 3] =
        [([1, 0], &[200]), ([0, 1], &[500]), ([1, 1], &[200, 500])];
    for (weights, outcomes) in cases {
        let [sent, not] = weights;
        let shares = vec![
            ("u", sent, ShareFilters::default()),
            // Nothing is there of this name, and nobody asks.
            ("invalid", not, refused()),
        ];
        world.put_route("r", shared(shares));
        let mut seen = [false, false];
        for _ in 0..60 {
            let response = world.ask(&get("")).await;
            let status: u16 = response[9..12].parse().unwrap();
            assert!(outcomes.contains(&status), "{weights:?}: {response}");
            seen[usize::from(status == 500)] = true;
        }
        assert_eq!(seen, [sent > 0, not > 0]);
    }
}

#[tokio::test]
async fn a_mark_leads_to_no_share_that_has_an_answer() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let mut all = shared(vec![("u", 1, answered(ShareAnswer::Refuse(503)))]);
    all = with_policy(all, |policy| {
        policy.affinity = Some(Box::new(Affinity {
            cookie: "stick".into(),
            path: "/".into(),
            ..Affinity::default()
        }));
    });
    world.put_route("r", all);
    let mark = Endpoint::new(backend.address, TransportSettings::shared(None)).mark();
    let response = world
        .ask(&get(&format!("Cookie: stick={mark:016x}\r\n")))
        .await;
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert_eq!(backend.requests(), 0);
}

#[tokio::test]
async fn a_share_is_led_elsewhere() {
    let mut world = World::start();
    let target = Redirect {
        status: 307,
        target: RedirectTarget::Url("https://b.example/x".into()),
    };
    let answer = ShareAnswer::Redirect(Arc::new(target));
    world.put_route("r", shared(vec![("invalid", 1, answered(answer))]));
    let response = world.ask(&get("")).await;
    assert!(response.starts_with("HTTP/1.1 307 "), "{response}");
    assert_eq!(header(&response, "location"), Some("https://b.example/x"));
}

#[tokio::test]
async fn the_target_of_a_share_is_its_own() {
    let backend = Backend::echo().await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let rewrite = |path: &str, authority: &str| {
        Some(Box::new(Rewrite {
            path: Some(PathRewrite::Template(path.into())),
            authority: authority.into(),
        }))
    };
    for (filters, path, host) in [
        (ShareFilters::default(), "/of-policy?q", "policy.example"),
        (
            ShareFilters {
                rewrite: rewrite("/of-share", "share.example"),
                ..ShareFilters::default()
            },
            "/of-share?q",
            "share.example",
        ),
    ] {
        let both = with_policy(shared(vec![("u", 1, filters)]), |policy| {
            policy.rewrite = rewrite("/of-policy", "policy.example");
        });
        world.put_route("r", both);
        let response = world.ask(&get("")).await;
        let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
        let line = format!("GET {path} HTTP/1.1\r\n");
        assert!(echoed.starts_with(&line), "{echoed}");
        assert_eq!(header(echoed, "host"), Some(host), "{echoed}");
    }
}

#[tokio::test]
async fn copies_of_a_share_are_sent_beside_those_of_its_route() {
    let backend = Backend::saying("hello").await;
    let (sender, mut copies) = mpsc::channel(8);
    let copied = Backend::answering(move |request| {
        sender.try_send(request.to_owned()).unwrap();
        String::new()
    })
    .await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("copy", &[copied.address]);
    let mirror = |authority: &str, keeps_authority| Mirror {
        upstream: "copy".into(),
        share: Share::ALL,
        authority: authority.into(),
        omits_body: false,
        keeps_authority,
    };
    let filters = ShareFilters {
        mirrors: [mirror("", true), mirror("named.example", false)].into(),
        ..ShareFilters::default()
    };
    let mirrored = with_policy(shared(vec![("u", 1, filters)]), |policy| {
        policy.mirrors = [mirror("", false)].into();
    });
    world.put_route("r", mirrored);
    let response = world.ask(&get("")).await;
    assert!(response.ends_with("hello"), "{response}");
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let copy = tokio::time::timeout(PATIENCE, copies.recv());
        let copy = copy.await.unwrap().unwrap();
        hosts.push(header(&copy, "host").unwrap().to_owned());
    }
    hosts.sort();
    assert_eq!(hosts, ["a.example", "a.example-shadow", "named.example"]);
}

#[tokio::test]
async fn what_a_share_says_of_origins_is_in_place_of_what_its_route_says() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    world.put_upstream("u", &[backend.address]);
    let filters = ShareFilters {
        cors: cors("https://share.example"),
        ..ShareFilters::default()
    };
    world.put_route("r", shared(vec![("u", 1, filters.clone())]));
    let (own, other) = ("https://share.example", "https://policy.example");
    let allowed = "access-control-allow-origin";
    let response = world.ask(&preflight(own)).await;
    assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
    assert_eq!(header(&response, allowed), Some(own));
    assert_eq!(
        header(&response, "access-control-allow-methods"),
        Some("PUT")
    );
    let response = world.ask(&preflight(other)).await;
    assert!(response.starts_with("HTTP/1.1 204 "), "{response}");
    assert_eq!(header(&response, allowed), None);
    assert_eq!(backend.requests(), 0);
    let response = world.ask(&get(&format!("Origin: {own}\r\n"))).await;
    assert!(response.ends_with("hello"), "{response}");
    assert_eq!(header(&response, allowed), Some(own));
    let both = with_policy(shared(vec![("u", 1, filters)]), |policy| {
        policy.cors = cors("*");
    });
    world.put_route("r", both);
    let response = world.ask(&get(&format!("Origin: {own}\r\n"))).await;
    let told = response.to_ascii_lowercase().matches(allowed).count();
    assert_eq!(told, 1, "{response}");
    assert_eq!(header(&response, allowed), Some(own));
}
