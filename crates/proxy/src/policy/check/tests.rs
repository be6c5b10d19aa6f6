use std::time::Duration;

use myriad_model::{CheckBody, CheckProtocol, HttpCheck, NameMatch, Provider};
use prost::Message as _;

use super::{
    Answered, CheckChanges, CheckVerdict, OwnedHeader, RefusalResponse, edit, envoy, question,
    verdict, write,
};
use crate::codec::buffer::Buffer;
use crate::codec::head;
use crate::limits::Limits;
use crate::route::downstream_connection::DownstreamConnection;

const REQUEST: &str = "POST /a?b=c HTTP/1.1\r\nHost: h.example\r\nX-Let-In: yes\r\n\
    Authorization: t\r\nX-Other: no\r\nX-User: forged\r\nContent-Length: 4\r\n\r\n";

fn provider(protocol: CheckProtocol) -> Provider {
    Provider {
        upstream: "ns/check:80".into(),
        protocol,
        timeout: Duration::from_secs(1),
        fail_open: false,
        error_status: 403,
        reroutes: false,
        body: Some(CheckBody {
            bytes_max: 100,
            allows_part: false,
            is_raw: false,
        }),
        authority: "check.ns".into(),
        told: Box::default(),
    }
}

fn over_http() -> Provider {
    let exact = |name: &str| NameMatch::Exact(name.into());
    provider(CheckProtocol::Http(Box::new(HttpCheck {
        path_prefix: "/check".into(),
        request: [exact("x-let-in"), NameMatch::Start("x-forwarded-".into())].into(),
        additional: [("x-from".into(), "gateway".into())].into(),
        upstream_on_allow: [exact("x-user")].into(),
        downstream_on_allow: [exact("x-session")].into(),
        downstream_on_deny: [exact("x-reason")].into(),
    })))
}

fn asked(provider: &Provider) -> Vec<u8> {
    let head = head::parse(REQUEST.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), ([192, 0, 2, 7], 4711).into(), 80);
    let question = question(provider, &visit, (&head, false), 0);
    write(question, provider, b"body").filled().to_vec()
}

fn told(fields: &[(&str, &str)]) -> Vec<OwnedHeader> {
    let fields = fields.iter();
    fields
        .map(|(name, value)| ((*name).into(), value.as_bytes().into()))
        .collect()
}

fn answered(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Answered {
    Answered {
        status,
        fields: told(fields),
        body: body.to_vec(),
        grpc_status: None,
    }
}

#[test]
fn a_question_over_http_is_the_request_with_what_was_chosen_of_it() {
    assert_eq!(
        String::from_utf8(asked(&over_http())).unwrap(),
        "POST /check/a?b=c HTTP/1.1\r\nhost: h.example\r\nx-let-in: yes\r\nauthorization: t\r\n\
         x-forwarded-for: 192.0.2.7\r\nx-from: gateway\r\ncontent-length: 4\r\n\r\nbody"
    );
}

#[test]
fn a_question_tells_of_the_gateway_as_the_request_does() {
    let text = REQUEST.replace("X-Other: no", "CDN-Loop: other");
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), ([192, 0, 2, 7], 4711).into(), 80);
    let forging = HttpCheck {
        request: [NameMatch::Start("".into())].into(),
        additional: [
            ("cdn-loop".into(), "none".into()),
            ("content-length".into(), "0".into()),
        ]
        .into(),
        ..HttpCheck::default()
    };
    for protocol in [CheckProtocol::Http(Box::new(forging)), CheckProtocol::Grpc] {
        let provider = provider(protocol);
        let asked = question(&provider, &visit, (&head, true), 0);
        let asked = write(asked, &provider, b"body").filled().to_vec();
        let end = memchr::memmem::find(&asked, b"\r\n\r\n").unwrap();
        let asked = std::str::from_utf8(&asked[..end]).unwrap();
        let of = |name: &str| asked.lines().filter(|it| it.starts_with(name)).count();
        assert!(asked.contains("\r\ncdn-loop: other, myriad"), "{asked}");
        assert_eq!(of("cdn-loop"), 1, "{asked}");
        assert!(of("content-length") <= 1, "{asked}");
    }
}

#[test]
fn a_question_over_grpc_tells_all_of_the_head() {
    let bytes = asked(&provider(CheckProtocol::Grpc));
    let at = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4;
    let (prefix, message) = bytes[at..].split_at(5);
    assert_eq!(prefix[1..], (message.len() as u32).to_be_bytes());
    let request = envoy::CheckRequest::decode(message).unwrap();
    let attributes = request.attributes.unwrap();
    let source = attributes.source.unwrap().address.unwrap();
    assert_eq!(source.socket_address.unwrap().address, "192.0.2.7");
    let http = attributes.request.unwrap().http.unwrap();
    assert_eq!((&*http.method, &*http.path), ("POST", "/a?b=c"));
    assert_eq!((&*http.host, &*http.body), ("h.example", "body"));
    assert_eq!(http.headers["x-other"], "no");
    assert_eq!(http.headers[":path"], "/a?b=c");
}

#[test]
fn cookies_of_several_fields_are_told_in_one() {
    let several = "Cookie: a=1\r\nX-Other: no\r\ncookie: session=x\r\nX-Other: b";
    let text = REQUEST.replace("X-Other: no", several);
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), ([192, 0, 2, 7], 4711).into(), 80);
    let every = HttpCheck {
        request: [NameMatch::Start("".into())].into(),
        ..HttpCheck::default()
    };
    let asked = |protocol| {
        let question = question(&provider(protocol), &visit, (&head, false), 0);
        write(question, &over_http(), b"").filled().to_vec()
    };
    let http = asked(CheckProtocol::Http(Box::new(every)));
    let http = String::from_utf8(http).unwrap();
    assert_eq!(http.matches("cookie:").count(), 1, "{http}");
    assert!(http.contains("\r\ncookie: a=1; session=x\r\n"), "{http}");
    let grpc = asked(CheckProtocol::Grpc);
    let at = memchr::memmem::find(&grpc, b"\r\n\r\n").unwrap() + 4;
    let request = envoy::CheckRequest::decode(&grpc[at + 5..]).unwrap();
    let http = request.attributes.unwrap().request.unwrap().http.unwrap();
    assert_eq!(http.headers["cookie"], "a=1; session=x");
    assert_eq!(http.headers["x-other"], "no,b");
}

#[test]
fn only_200_lets_a_request_pass_over_http() {
    let provider = over_http();
    let fields = [("x-user", "eve"), ("x-session", "1"), ("x-other", "2")];
    let passes = verdict(&provider, answered(200, &fields, b"ignored"));
    let changes = CheckChanges {
        set: told(&[("x-user", "eve")]),
        downstream: told(&[("x-session", "1")]),
        ..CheckChanges::default()
    };
    assert_eq!(passes, CheckVerdict::Pass(changes));
    let fields = [("x-reason", "a"), ("location", "/login"), ("x-other", "b")];
    let refused = verdict(&provider, answered(302, &fields, b"go"));
    let refusal = RefusalResponse {
        status: 302,
        fields: told(&fields[..2]),
        body: (*b"go").into(),
    };
    assert_eq!(refused, CheckVerdict::Refuse(refusal));
    for status in [0, 500, 503] {
        assert_eq!(
            verdict(&provider, answered(status, &[], b"")),
            CheckVerdict::Unclear
        );
    }
    let looped = verdict(&provider, answered(508, &[], b""));
    assert_eq!(looped, CheckVerdict::Looped);
}

#[test]
fn claims_of_a_client_that_no_answer_sets_are_removed() {
    let exact = |name: &str| NameMatch::Exact(name.into());
    let names = ["x-user", "x-role", "authorization", "cookie", "host"];
    let of_way = ["x-real-ip", "x-forwarded-for", "x-request-id"];
    let names = names.iter().chain(&of_way).map(|name| exact(name));
    let check = HttpCheck {
        upstream_on_allow: names.chain([NameMatch::Start("x-team-".into())]).collect(),
        ..HttpCheck::default()
    };
    let provider = provider(CheckProtocol::Http(Box::new(check)));
    let passed = |fields: &[(&str, &str)], before: &[CheckChanges]| {
        let mut changes = match verdict(&provider, answered(200, fields, b"")) {
            CheckVerdict::Pass(changes) => changes,
            other => panic!("{other:?}"),
        };
        changes.remove_claims(&provider, before);
        changes
    };
    let removed = |changes: &CheckChanges| -> Vec<String> {
        changes.remove.iter().map(|it| it.to_string()).collect()
    };
    let silent = passed(&[("x-other", "a")], &[]);
    assert_eq!(removed(&silent), ["x-user", "x-role"]);
    let said = passed(&[("x-user", "eve")], &[]);
    assert_eq!(removed(&said), ["x-role"]);
    // What another provider has said before is no claim of the client.
    assert_eq!(removed(&passed(&[], &[said])), ["x-role"]);
    let mut request = Buffer::take();
    request.append_str(REQUEST);
    let text = String::from_utf8(edit(&request, &silent).filled().to_vec()).unwrap();
    assert!(!text.contains("forged"), "{text}");
    assert!(text.contains("Authorization: t\r\n"), "{text}");
}

/// The answer of a call that has ended well.
fn of(response: &envoy::CheckResponse) -> Answered {
    let message = response.encode_to_vec();
    let length = (message.len() as u32).to_be_bytes();
    let fields = [("content-type", "application/grpc")];
    let body = [&[0][..], &length, &message].concat();
    Answered {
        grpc_status: Some("0"),
        ..answered(200, &fields, &body)
    }
}

#[test]
fn an_answer_over_grpc_is_read_to_the_letter() {
    let provider = provider(CheckProtocol::Grpc);
    let option = |name: &str, value: &str| envoy::CheckHeaderOption {
        header: Some(envoy::HeaderValue {
            key: name.into(),
            value: value.into(),
            ..envoy::HeaderValue::default()
        }),
        append: None,
    };
    let status = |code| Some(envoy::RpcStatus { code });
    let allowed = envoy::CheckResponse {
        status: status(0),
        http_response: Some(envoy::HttpResponse::Ok(envoy::OkHttpResponse {
            headers: vec![option("X-User", "eve"), option("x-bad", "a\r\nb: c")],
            headers_to_remove: vec!["X-Other".into()],
            response_headers_to_add: vec![],
        })),
    };
    let changes = CheckChanges {
        remove: vec!["x-other".into()],
        set: told(&[("x-user", "eve")]),
        ..CheckChanges::default()
    };
    assert_eq!(
        verdict(&provider, of(&allowed)),
        CheckVerdict::Pass(changes)
    );
    let denied = envoy::CheckResponse {
        status: status(7),
        http_response: None,
    };
    let CheckVerdict::Refuse(refusal) = verdict(&provider, of(&denied)) else {
        panic!("it passes");
    };
    assert_eq!(refusal.status, 403);
    let mut cut = of(&allowed);
    cut.body.pop();
    assert_eq!(verdict(&provider, cut), CheckVerdict::Unclear);
    let mut failed = of(&allowed);
    failed.fields.extend(told(&[("grpc-status", "14")]));
    assert_eq!(verdict(&provider, failed), CheckVerdict::Unclear);
    // Without a status there is no yes.
    let silent = of(&envoy::CheckResponse::default());
    assert_eq!(verdict(&provider, silent), CheckVerdict::Unclear);
}

#[test]
fn a_call_that_has_not_ended_well_says_nothing() {
    let provider = provider(CheckProtocol::Grpc);
    let yes = envoy::CheckResponse {
        status: Some(envoy::RpcStatus { code: 0 }),
        http_response: None,
    };
    for status in [None, Some("13"), Some("unknown")] {
        let failed = Answered {
            grpc_status: status,
            ..of(&yes)
        };
        let found = verdict(&provider, failed);
        assert_eq!(found, CheckVerdict::Unclear, "{status:?}");
    }
    for (media_type, is_read) in [
        ("application/grpc+proto", true),
        ("application/grpc; a=b", true),
        ("application/grpc-web", false),
        ("text/html", false),
        ("", false),
    ] {
        let answered = Answered {
            fields: told(&[("content-type", media_type)]),
            ..of(&yes)
        };
        let is_unclear = verdict(&provider, answered) == CheckVerdict::Unclear;
        assert_eq!(is_unclear, !is_read, "{media_type}");
    }
}

#[test]
fn changes_replace_what_the_client_sent_and_leave_the_framing() {
    let mut request = Buffer::take();
    request.append_str(REQUEST);
    request.append(b"body: 1");
    let changes = CheckChanges {
        remove: vec!["x-other".into(), "host".into()],
        set: told(&[("x-user", "eve"), ("content-length", "9")]),
        add: told(&[("x-let-in", "2")]),
        downstream: Vec::new(),
    };
    let text = String::from_utf8(edit(&request, &changes).filled().to_vec()).unwrap();
    assert_eq!(
        text,
        "POST /a?b=c HTTP/1.1\r\nHost: h.example\r\nX-Let-In: yes\r\nAuthorization: t\r\n\
         Content-Length: 4\r\nx-user: eve\r\nx-let-in: 2\r\n\r\nbody: 1"
    );
}
