//! Pages as those who ask for them meet them.

use myriad_base::readiness::Readiness;

use super::{Admin, Form, Hosts, Page, server};

fn admin(readiness: &Readiness) -> Admin {
    Admin::new(readiness.clone(), Hosts::default())
        .page(Page {
            path: "/metrics",
            render: Box::new(|accept| ("text/plain", format!("for {accept:?}"))),
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
