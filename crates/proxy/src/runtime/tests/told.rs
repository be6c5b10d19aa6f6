//! Marks that requests and responses are given on their way: ids, dates, servers, pages.

use myriad_model::ErrorPages;

use super::life::Log;
use super::world::{Backend, World, header, route, with_policy};
use crate::runtime::Settings;
use crate::telemetry::request_id::RequestIds;

fn get(host: &str, path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n")
}

/// The id of a request with these fields, as it reached an endpoint that echoes heads.
async fn id_at_endpoint(ids: RequestIds, fields: &str) -> Option<String> {
    let backend = Backend::echo().await;
    let mut world = World::start_with(Settings {
        workers: 1,
        request_ids: ids,
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let response = world.ask(&get("a.example", "/", fields)).await;
    let (_, echoed) = response.split_once("\r\n\r\n").unwrap();
    let echoed = echoed.to_ascii_lowercase();
    assert!(echoed.matches("x-request-id").count() <= 1, "{echoed}");
    let (_, id) = echoed.split_once("x-request-id: ")?;
    Some(id.lines().next().unwrap().trim().to_owned())
}

#[tokio::test]
async fn an_id_is_made_where_there_is_none_that_is_well_formed() {
    let sent = "X-Request-ID: mine-1\r\n";
    let kept = id_at_endpoint(RequestIds::Keep, sent).await;
    assert_eq!(kept.as_deref(), Some("mine-1"));
    for (ids, fields) in [
        (RequestIds::Keep, ""),
        (RequestIds::Keep, "X-Request-ID: <script>\r\n"),
        (RequestIds::Replace, sent),
    ] {
        let made = id_at_endpoint(ids, fields).await.unwrap();
        assert_eq!((made.len(), &made[14..15]), (36, "4"), "{made}");
    }
    assert_eq!(id_at_endpoint(RequestIds::Pass, "").await, None);
    let passed = id_at_endpoint(RequestIds::Pass, "X-Request-ID: <b>\r\n").await;
    assert_eq!(passed.as_deref(), Some("<b>"));
}

#[tokio::test]
async fn a_page_is_as_the_client_reads_it_and_reflects_nothing_else() {
    let world = World::start();
    for (accept, content_type, start) in [
        (
            "*/*",
            "text/plain; charset=utf-8",
            "not found\nrequest id: mine-1\n",
        ),
        ("text/html", "text/html; charset=utf-8", "<!doctype html>"),
        ("application/json", "application/json", "{\"status\":404,"),
    ] {
        let fields = format!("Accept: {accept}\r\nX-Request-ID: mine-1\r\n");
        let response = world.ask(&get("no.example", "/script", &fields)).await;
        assert_eq!(header(&response, "content-type"), Some(content_type));
        assert_eq!(header(&response, "vary"), Some("accept"));
        assert!(response.contains(&format!("\r\n\r\n{start}")), "{response}");
        assert!(
            response.contains("mine-1") && !response.contains("script"),
            "{response}"
        );
        let hostile = format!("Accept: {accept}\r\nX-Request-ID: <script>\r\n");
        let response = world.ask(&get("<script>", "/", &hostile)).await;
        assert!(!response.contains("script"), "{response}");
    }
}

#[tokio::test]
async fn a_date_is_put_in_and_the_server_is_the_endpoints_own() {
    for (fields, dates, server) in [
        ("", 1, None),
        (
            "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: Apache/2\r\n",
            1,
            Some("Apache/2"),
        ),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
        let backend = Backend::answering(move |_| answer.clone()).await;
        let mut world = World::start();
        world.put_upstream("u", &[backend.address]);
        world.put_route("r", route("a.example", "/", "u"));
        let response = world.ask(&get("a.example", "/", "")).await;
        let lower = response.to_ascii_lowercase();
        assert_eq!(lower.matches("\r\ndate: ").count(), dates, "{response}");
        assert_eq!(lower.contains("1970"), !fields.is_empty(), "{response}");
        assert_eq!(header(&response, "server"), server, "{response}");
    }
}

#[tokio::test]
async fn the_access_log_has_the_id_and_a_bounded_part_of_what_the_client_says_it_is() {
    let (log, backend) = (Log::default(), Backend::saying("ok").await);
    let mut world = World::start_with(Settings {
        workers: 1,
        access_log: Some(Box::new(log.clone())),
        ..Settings::default()
    });
    world.put_upstream("u", &[backend.address]);
    world.put_route("r", route("a.example", "/", "u"));
    let agent = "a".repeat(4_000);
    let fields = format!("X-Request-ID: mine-1\r\nUser-Agent: \"{agent}\r\n");
    world.ask(&get("a.example", "/", &fields)).await;
    let lines = log.lines(1).await;
    let line = &lines[0];
    assert!(line.contains("\"request_id\":\"mine-1\""), "{line}");
    let kept = format!("\"user_agent\":\"\\\"{}\"", "a".repeat(255));
    assert!(line.contains(&kept), "{line}");
}

#[tokio::test]
async fn an_error_has_the_page_of_another_upstream_unless_that_is_long() {
    for (length, has_page) in [(64 << 10, true), ((64 << 10) + 1, false)] {
        let erring = Backend::answering(|_| {
            "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nown".to_owned()
        });
        let erring = erring.await;
        let pages = Backend::answering(move |_| {
            let page = "p".repeat(length);
            format!("HTTP/1.1 404 Not Found\r\ncontent-length: {length}\r\n\r\n{page}")
        });
        let pages = pages.await;
        let mut world = World::start();
        world.put_upstream("u", &[erring.address]);
        world.put_upstream("pages", &[pages.address]);
        let paged = with_policy(route("a.example", "/", "u"), |policy| {
            policy.error_pages = Some(Box::new(ErrorPages {
                statuses: [404].into(),
                upstream: "pages".into(),
                fields: Box::default(),
            }));
        });
        world.put_route("r", paged);
        let answer = world.ask(&get("a.example", "/", "")).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{length}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.len(), if has_page { length } else { 0 });
    }
}
