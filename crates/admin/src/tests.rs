//! Pages as those who ask for them meet them.

use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_base::readiness::Readiness;
use myriad_base::task;

use super::site::{Reply, Site};
use super::{Admin, Form, Hosts, Page, server};

fn admin(readiness: &Readiness) -> Admin {
    Admin::new(readiness.clone(), Hosts::default())
        .page(Page {
            path: "/metrics",
            render: Box::new(|accept| ("text/plain", format!("for {accept:?}").into())),
        })
        .form(Form {
            path: "/explain",
            content_type: "application/json",
            changes: false,
            answer: Box::new(|query| match query {
                "" => Err("give a url".to_owned()),
                query => Ok(format!("{{\"asked\": \"{query}\"}}")),
            }),
        })
}

/// Status, `Content-Type` and body of what is answered.
async fn ask(admin: &Admin, method: &str, target: &str) -> (u16, String, String) {
    let question = http::Request::builder().method(method).uri(target);
    let question = question.header("host", "127.0.0.1:9901");
    let question = question.header("accept", "text/html");
    read(
        admin
            .answer(&question.body(bytes::Bytes::new()).unwrap())
            .await,
    )
    .await
}

async fn read(answer: server::Answer) -> (u16, String, String) {
    use http_body_util::BodyExt as _;
    let (head, body) = answer.into_parts();
    let content_type = head.headers.get("content-type");
    let content_type = content_type.map_or("", |it| it.to_str().unwrap());
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (head.status.as_u16(), content_type.to_owned(), body)
}

const TEXT: &str = "text/plain; charset=utf-8";

fn answered(status: u16, content_type: &str, body: &str) -> (u16, String, String) {
    (status, content_type.to_owned(), body.to_owned())
}

#[tokio::test]
async fn what_changes_something_is_posted_as_json() {
    let admin = Admin::new(Readiness::new(), Hosts::default()).form(Form {
        path: "/confirm",
        content_type: "application/json",
        changes: true,
        answer: Box::new(|_| Ok("[]".to_owned())),
    });
    let ask = async |method: &str, content_type: Option<&str>| {
        let question = http::Request::builder().method(method).uri("/confirm");
        let mut question = question.header("host", "127.0.0.1:9901");
        if let Some(content_type) = content_type {
            question = question.header("content-type", content_type);
        }
        let question = question.body(bytes::Bytes::new()).unwrap();
        read(admin.answer(&question).await).await.0
    };
    assert_eq!(ask("GET", Some("application/json")).await, 405);
    assert_eq!(ask("POST", None).await, 415);
    assert_eq!(ask("POST", Some("text/plain")).await, 415);
    assert_eq!(ask("POST", Some("application/json")).await, 200);
}

#[tokio::test]
async fn each_path_shows_its_page() {
    let readiness = Readiness::new();
    let first = readiness.require("the first load");
    let admin = admin(&readiness);
    let waiting = answered(503, TEXT, "waiting for the first load\n");
    assert_eq!(ask(&admin, "GET", "/readyz").await, waiting);
    first.meet();
    let ready = answered(200, TEXT, "ready\n");
    assert_eq!(ask(&admin, "GET", "/readyz").await, ready);
    let well = answered(200, TEXT, "ok\n");
    assert_eq!(ask(&admin, "HEAD", "/healthz").await, well);
    let index = answered(200, TEXT, "/healthz\n/readyz\n/metrics\n/explain\n");
    assert_eq!(ask(&admin, "GET", "/").await, index);
    let page = answered(200, "text/plain", "for \"text/html\"");
    assert_eq!(ask(&admin, "GET", "/metrics?a").await, page);
}

#[tokio::test]
async fn a_form_is_given_the_query_and_its_refusal_is_shown() {
    let admin = admin(&Readiness::new());
    let given = answered(200, "application/json", "{\"asked\": \"a=%20\"}");
    assert_eq!(ask(&admin, "GET", "/explain?a=%20").await, given);
    let refused = answered(400, TEXT, "give a url\n");
    assert_eq!(ask(&admin, "GET", "/explain").await, refused);
}

#[tokio::test]
async fn other_paths_methods_and_names_are_refused() {
    let admin = admin(&Readiness::new());
    let no_page = answered(404, "", "");
    assert_eq!(ask(&admin, "GET", "/metrics/").await, no_page);
    assert_eq!(ask(&admin, "POST", "/metrics").await, answered(405, "", ""));
    let question = http::Request::get("/metrics").header("host", "rebind.example");
    let question = question.body(bytes::Bytes::new()).unwrap();
    let (status, _, body) = read(admin.answer(&question).await).await;
    assert_eq!((status, &*body), (421, super::MISDIRECTED));
}

/// A page that waits for a token each time it is rendered, notes what it was asked for, and says
/// whether the token came; and who gives the tokens.
fn waiting(noted: &Arc<Mutex<Vec<String>>>) -> (Page, SyncSender<()>) {
    let (give, given) = sync_channel(8);
    let (given, noted) = (Mutex::new(given), noted.clone());
    let page = Page {
        path: "/config",
        render: Box::new(move |accept| {
            let token = given.lock().unwrap().recv_timeout(Duration::from_secs(10));
            noted.lock().unwrap().push(accept.to_owned());
            ("text/plain", token.is_ok().to_string().into())
        }),
    };
    (page, give)
}

#[tokio::test]
async fn health_waits_for_no_page() {
    let (page, give) = waiting(&Arc::default());
    let admin = Admin::new(Readiness::new(), Hosts::default()).page(page);
    let admin = Arc::new(admin);
    let asked = admin.clone();
    let page = task::spawn(
        "test page",
        async move { ask(&asked, "GET", "/config").await },
    );
    tokio::task::yield_now().await;
    let well = answered(200, TEXT, "ok\n");
    assert_eq!(ask(&admin, "GET", "/healthz").await, well);
    let ready = answered(200, TEXT, "ready\n");
    assert_eq!(ask(&admin, "GET", "/readyz").await, ready);
    // The page was still being rendered: it was given its token only now.
    give.send(()).unwrap();
    let page = page.await.unwrap().unwrap();
    assert_eq!(page, answered(200, "text/plain", "true"));
}

#[tokio::test]
async fn pages_are_rendered_one_at_a_time_in_turns_of_addresses() {
    let noted = Arc::default();
    let (page, give) = waiting(&noted);
    let admin = Admin::new(Readiness::new(), Hosts::default()).page(page);
    let admin = Arc::new(admin);
    let mut asked = Vec::new();
    for (number, accept) in [(1, "1a"), (1, "1b"), (1, "1c"), (2, "2a")] {
        let address = IpAddr::from([192, 0, 2, number]);
        let question = http::Request::get("/config").header("host", "localhost");
        let question = question.extension(server::Source(address));
        let question = question.header("accept", accept);
        let question = question.body(bytes::Bytes::new()).unwrap();
        let admin = admin.clone();
        asked.push(task::spawn("test page", async move {
            read(admin.answer(&question).await).await.0
        }));
        // It waits before the next one comes.
        tokio::task::yield_now().await;
    }
    for _ in &asked {
        give.send(()).unwrap();
    }
    for asked in asked {
        assert_eq!(asked.await.unwrap(), Some(200));
    }
    assert_eq!(*noted.lock().unwrap(), ["1a", "1b", "2a", "1c"]);
}

/// A site that lets in whoever says so.
fn site(render: super::site::SiteRender) -> Site {
    Site {
        path: "/console",
        guard: Box::new(|question| {
            let is_known = question.headers().contains_key("authorization");
            Box::pin(async move {
                match is_known {
                    true => Ok(()),
                    false => Err(server::text(401, "say who you are\n")),
                }
            })
        }),
        render,
        policy: http::HeaderValue::from_static("default-src 'none'"),
    }
}

#[tokio::test]
async fn a_site_is_shown_to_those_whom_its_guard_lets_in() {
    let shown = site(Box::new(|path, query| Reply {
        status: 200,
        content_type: "text/html; charset=utf-8",
        body: format!("{path}?{query}"),
    }));
    let admin = Admin::new(Readiness::new(), Hosts::default()).site(shown);
    let ask = async |method: &str, target: &str, is_known: bool| {
        let question = http::Request::builder().method(method).uri(target);
        let mut question = question.header("host", "127.0.0.1:9901");
        if is_known {
            question = question.header("authorization", "Bearer a");
        }
        let answer = admin
            .answer(&question.body(bytes::Bytes::new()).unwrap())
            .await;
        let policy = answer.headers().get("content-security-policy").cloned();
        let (status, _, body) = read(answer).await;
        (status, body, policy.is_some())
    };
    let (refused, shown) = ("say who you are\n".to_owned(), "/a?b=c".to_owned());
    assert_eq!(ask("GET", "/console/a", false).await, (401, refused, true));
    assert_eq!(ask("GET", "/console/a?b=c", true).await, (200, shown, true));
    assert_eq!(ask("GET", "/console", true).await.0, 200);
    assert_eq!(ask("POST", "/console", true).await.0, 405);
    assert_eq!(ask("GET", "/consoles", true).await.0, 404);
    let index = ask("GET", "/", false).await;
    assert_eq!(index.1, "/healthz\n/readyz\n/console\n");
}

#[tokio::test]
async fn health_waits_for_no_site_and_who_is_not_let_in_takes_no_turn() {
    let (give, given) = sync_channel::<()>(1);
    let given = Mutex::new(given);
    let slow = site(Box::new(move |_, _| {
        let token = given.lock().unwrap().recv_timeout(Duration::from_secs(10));
        Reply {
            status: 200,
            content_type: "text/html",
            body: token.is_ok().to_string(),
        }
    }));
    let admin = Admin::new(Readiness::new(), Hosts::default()).site(slow);
    let admin = Arc::new(admin);
    let asked = admin.clone();
    let page = task::spawn("test page", async move {
        let question = http::Request::get("/console").header("authorization", "Bearer a");
        let question = question.body(bytes::Bytes::new()).unwrap();
        read(asked.answer(&question).await).await
    });
    tokio::task::yield_now().await;
    let well = answered(200, TEXT, "ok\n");
    assert_eq!(ask(&admin, "GET", "/healthz").await, well);
    assert_eq!(ask(&admin, "GET", "/console").await.0, 401);
    // The page was still being made: it was given its token only now.
    give.send(()).unwrap();
    let page = page.await.unwrap().unwrap();
    assert_eq!(page, answered(200, "text/html", "true"));
}
