//! Requests that a route leads back to the gateway, by the address of a balancer in front of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use myriad_base::task;
use myriad_model::{
    AccessAction, AccessCheck, AccessPolicy, AccessRule, Authorize, ErrorPages, HeaderEdit,
    HeaderEdits, Inquiry, Mirror, Provider, Share, Value,
};
use tokio::net::{TcpListener, TcpStream};

use super::checks::over_http;
use super::world::{Backend, PATIENCE, World, header, route, with_policy};
use crate::limits::Limits;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// A balancer in front of a world, and how many connections it has taken.
async fn balancer(world: &World) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (gateway, taken) = (world.address("http"), Arc::new(AtomicUsize::new(0)));
    let counted = taken.clone();
    task::spawn("balancer", async move {
        while let Ok((mut near, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            task::spawn("balanced", async move {
                if let Ok(mut far) = TcpStream::connect(gateway).await {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
    (address, taken)
}

#[tokio::test]
async fn a_request_that_is_led_in_a_circle_ends() {
    let mut world = World::start();
    let (address, taken) = balancer(&world).await;
    world.put_upstream("u", &[address]);
    // Whoever leads it in a circle says what becomes of its fields.
    let edits = HeaderEdits {
        request: HeaderEdit {
            remove: ["cdn-loop".into()].into(),
            ..HeaderEdit::default()
        },
        response: HeaderEdit::default(),
    };
    let circle = with_policy(route("a.example", "/", "u"), |policy| {
        policy.headers = Some(Box::new(edits));
    });
    world.put_route("r", circle);
    let response = world.ask(GET).await;
    assert!(
        response.starts_with("HTTP/1.1 508 Loop Detected\r\n"),
        "{response}"
    );
    let hops = Limits::default().loop_hops_max;
    assert_eq!(taken.load(Ordering::SeqCst), hops);
    world.counts("reason=\"loop_detected\"} 1\n").await;
}

#[tokio::test]
async fn a_question_that_is_led_in_a_circle_ends() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    let (address, taken) = balancer(&world).await;
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("auth", &[address]);
    let inquiry = Inquiry {
        upstream: "auth".into(),
        method: "GET".into(),
        authority: "a.example".into(),
        target: "/".into(),
        redirect: "$request_uri".into(),
        fields: [("cdn-loop".into(), "none".into())].into(),
        timeout: PATIENCE,
        passed: ["cdn-loop".into()].into(),
        signin: Box::default(),
        always_sets_cookies: false,
        memory: None,
    };
    let asked = with_policy(route("a.example", "/", "u"), |policy| {
        policy.inquiry = Some(Box::new(inquiry));
    });
    world.put_route("r", asked);
    let response = world.ask(GET).await;
    assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
    let hops = Limits::default().loop_hops_max;
    assert_eq!(taken.load(Ordering::SeqCst), hops);
    assert_eq!(backend.requests(), 0);
    world.counts("reason=\"loop_detected\"} 1\n").await;
}

#[tokio::test]
async fn a_question_to_a_provider_that_is_led_in_a_circle_ends() {
    // One that fails open would ask and go on at each pass.
    for fail_open in [false, true] {
        let mut world = World::start();
        let (address, taken) = balancer(&world).await;
        world.put_upstream("u", &[address]);
        world.put_upstream("check", &[address]);
        world.put_route("r", route("a.example", "/", "u"));
        let provider = Provider {
            fail_open,
            ..over_http()
        };
        world.put("p", Value::Provider(Box::new(provider)));
        let policy = AccessPolicy {
            listeners: Default::default(),
            check: AccessCheck::Authorize(Authorize {
                action: AccessAction::Custom("p".into()),
                is_dry_run: false,
                rules: [AccessRule::default()].into(),
            }),
        };
        world.put("g", Value::AccessPolicy(Box::new(policy)));
        let response = world.ask(GET).await;
        assert!(response.starts_with("HTTP/1.1 508 "), "{response}");
        let hops = Limits::default().loop_hops_max;
        assert_eq!(taken.load(Ordering::SeqCst), hops);
        let ended = hops + 1;
        let count = format!("reason=\"loop_detected\"}} {ended}\n");
        world.counts(&count).await;
    }
}

#[tokio::test]
async fn no_page_takes_the_place_of_the_end_of_a_circle() {
    let mut world = World::start();
    let (address, taken) = balancer(&world).await;
    world.put_upstream("u", &[address]);
    let circle = with_policy(route("a.example", "/", "u"), |policy| {
        policy.error_pages = Some(Box::new(ErrorPages {
            upstream: "u".into(),
            statuses: [508].into(),
            fields: Box::default(),
        }));
    });
    world.put_route("r", circle);
    let response = world.ask(GET).await;
    assert!(response.starts_with("HTTP/1.1 508 "), "{response}");
    let hops = Limits::default().loop_hops_max;
    assert_eq!(taken.load(Ordering::SeqCst), hops);
    // A page would be asked for over connections that are there, and each such question ends too.
    world.counts("reason=\"loop_detected\"} 1\n").await;
}

#[tokio::test]
async fn a_copy_that_comes_back_is_not_copied() {
    let backend = Backend::saying("hello").await;
    let mut world = World::start();
    let (address, _) = balancer(&world).await;
    world.put_upstream("u", &[backend.address]);
    world.put_upstream("copy", &[address]);
    let mirrored = with_policy(route("a.example", "/", "u"), |policy| {
        policy.mirrors = [Mirror {
            upstream: "copy".into(),
            share: Share::ALL,
            authority: "a.example".into(),
            omits_body: false,
            keeps_authority: false,
        }]
        .into();
    });
    world.put_route("r", mirrored);
    for asked in 1..=3 {
        assert!(world.ask(GET).await.ends_with("hello"));
        let both = async {
            while backend.requests() < 2 * asked {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, both).await.unwrap();
    }
    world
        .counts("myriad_mirrored_requests_total{event=\"sent\"} 3\n")
        .await;
    assert_eq!(backend.requests(), 6);
}

#[tokio::test]
async fn endpoints_are_told_of_the_gateway_unless_that_is_off() {
    let backend = Backend::echo().await;
    for (hops, told) in [(8, "other, myriad"), (0, "other")] {
        let mut world = World::limited(Limits {
            loop_hops_max: hops,
            ..Limits::default()
        });
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let asked = GET.replace("Connection", "CDN-Loop: other\r\nConnection");
        let response = world.ask(&asked).await;
        let (_, head) = response.split_once("\r\n\r\n").unwrap();
        assert_eq!(header(head, "cdn-loop"), Some(told), "{response}");
        assert_eq!(head.to_ascii_lowercase().matches("cdn-loop").count(), 1);
    }
}
