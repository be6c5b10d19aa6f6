use std::time::Duration;

use myriad_model::Inquiry;

use super::{Facts, InquiryVerdict, filled, filled_url, knows_sender, of_use, question, verdict};
use crate::codec::client::ClientAddress;
use crate::codec::head;
use crate::limits::Limits;
use crate::pattern::Budget;
use crate::policy::check::Answered;

const REQUEST: &str = "POST /a%20b?c=d&e= HTTP/1.1\r\nHost: A.example:81\r\n\
                       Authorization: Basic YW5uOnNlY3JldA==\r\nCookie: x=1; s=2=3\r\n\
                       X-A: 1\r\nX-A: 2\r\nX-Real-IP: 192.0.2.9\r\nX-Original-URL: http://b/\r\n\
                       X_Original-Method: GET\r\nX-Forwarded-Host: b\r\nX-Forwarded-Uri: /b\r\n\
                       X-Forwarded-For: 192.0.2.9\r\nX-Sent-From: b\r\nConnection: close\r\n\
                       Content-Length: 3\r\n\r\n";

fn inquiry() -> Inquiry {
    Inquiry {
        upstream: "shop/auth:80".into(),
        method: "GET".into(),
        authority: "auth".into(),
        target: "/check?u=$escaped_request_uri".into(),
        redirect: "$request_uri".into(),
        fields: Box::default(),
        timeout: Duration::from_secs(5),
        passed: ["x-user".into()].into(),
        signin: Box::default(),
        always_sets_cookies: false,
        memory: None,
    }
}

fn with_facts<T>(text: &str, then: impl FnOnce(Facts<'_, '_>) -> T) -> T {
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    then(Facts {
        head: &head,
        client: ClientAddress::parse(b"198.51.100.1"),
        may_tell: false,
        budget: &Budget::default(),
    })
}

#[test]
fn variables_stand_for_parts_of_a_request() {
    for (text, wanted) in [
        (
            "$scheme://$host|$http_host",
            "http://a.example|A.example:81",
        ),
        ("$request_uri", "/a%20b?c=d&e="),
        ("$escaped_request_uri", "%2Fa%2520b%3Fc%3Dd%26e%3D"),
        ("$request_method $remote_addr", "POST 198.51.100.1"),
        ("<$remote_user>", "<ann>"),
        ("$http_x_a", "1, 2"),
        ("<$http_x_b>", "<>"),
        ("$cookie_s,$cookie_x,$cookie_y", "2=3,1,"),
        ("$arg_c,$arg_e,$arg_f", "d,,"),
    ] {
        let found = with_facts(REQUEST, |facts| filled(text, facts));
        let found = String::from_utf8(found.unwrap()).unwrap();
        assert_eq!(found, wanted, "{text}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(2_000));
    let times = |count: usize| with_facts(&long, |it| filled(&"$request_uri".repeat(count), it));
    assert!(times(8).is_some());
    assert!(times(9).is_none(), "it would be too long");
    let blank = with_facts(REQUEST, |facts| filled_url("/$http_x_a", facts));
    assert_eq!(blank, None, "a blank ends the target of a request");
}

#[test]
fn looking_for_what_variables_stand_for_takes_steps() {
    let fields = (0..80).map(|number| format!("X-Name-Of-A-Field-{number:03}: 1\r\n"));
    let fields: String = fields.collect();
    let (query, cookies) = ("a&".repeat(4_000), "a;".repeat(12_000));
    let text = format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n{fields}Cookie: {cookies}\r\n\r\n");
    for (variable, may_be, are_too_many) in [
        ("$cookie_b", 32, 64),
        ("$arg_b", 64, 256),
        ("$http_b", 256, 1_024),
    ] {
        let is_filled = |count: usize| {
            let filled = with_facts(&text, |facts| filled(&variable.repeat(count), facts));
            filled.is_some()
        };
        assert!(is_filled(may_be), "{variable}");
        assert!(!is_filled(are_too_many), "{variable}");
        let key = variable.repeat(are_too_many);
        assert!(!with_facts(&text, |facts| knows_sender(&key, facts)));
    }
    // Each for itself may be looked for, and all of them together may not.
    let asking = Inquiry {
        fields: (0..Inquiry::FIELDS_MAX)
            .map(|number| (format!("x-{number}").into(), "$cookie_b".into()))
            .collect(),
        ..inquiry()
    };
    let asked = with_facts(&text, |it| question(&asking, "auth", (it, false), None));
    assert!(asked.is_none());
}

#[test]
fn a_key_that_says_nothing_of_its_sender_is_none() {
    for (key, wanted) in [
        ("$cookie_s", true),
        ("$cookie_y", false),
        ("$host$cookie_y$http_x_a", false),
        ("$remote_user$http_authorization", true),
        ("$cookie_y$http_authorization", true),
        ("$http_x_a$http_x_b", true),
        ("$http_x_b$arg_f", false),
        ("$arg_c", true),
        ("$host$remote_addr", true),
        ("", true),
    ] {
        let found = with_facts(REQUEST, |facts| knows_sender(key, facts));
        assert_eq!(found, wanted, "{key}");
    }
    let blank = REQUEST.replace("s=2=3", "y =2");
    assert!(with_facts(&blank, |facts| knows_sender("$cookie_y", facts)));
    let found = with_facts(&blank, |facts| filled("$cookie_y", facts));
    assert_eq!(
        found.unwrap(),
        b"2",
        "blanks before the equals sign are no part of the name"
    );
}

fn asked(inquiry: &Inquiry) -> String {
    let asked = with_facts(REQUEST, |facts| {
        question(inquiry, "auth", (facts, false), None)
    });
    String::from_utf8(asked.unwrap().filled().to_vec()).unwrap()
}

#[test]
fn a_service_is_told_what_the_client_sent_and_how_it_came_by_the_proxy_alone() {
    assert_eq!(
        asked(&inquiry()),
        "GET /check?u=%2Fa%2520b%3Fc%3Dd%26e%3D HTTP/1.1\r\nhost: auth\r\n\
         Authorization: Basic YW5uOnNlY3JldA==\r\nCookie: x=1; s=2=3\r\nX-A: 1\r\nX-A: 2\r\n\
         x-original-url: http://A.example:81/a%20b?c=d&e=\r\nx-original-method: POST\r\n\
         x-auth-request-redirect: /a%20b?c=d&e=\r\nx-real-ip: 198.51.100.1\r\n\
         x-forwarded-for: 198.51.100.1\r\n\r\n"
    );
}

#[test]
fn fields_of_its_own_go_before_those_of_clients_and_of_the_proxy() {
    let text = asked(&Inquiry {
        method: "POST".into(),
        fields: [
            ("x-a".into(), "$host".into()),
            ("authorization".into(), "".into()),
            ("x-original-method".into(), "none".into()),
            ("x-real-ip".into(), "none".into()),
        ]
        .into(),
        ..inquiry()
    });
    assert!(text.starts_with("POST /check?"), "{text}");
    assert!(text.ends_with("\r\ncontent-length: 0\r\n\r\n"), "{text}");
    assert!(!text.contains("uthorization"), "{text}");
    let lines = |name: &str| text.lines().filter(|it| it.starts_with(name)).count();
    assert_eq!(
        (
            lines("X-A"),
            lines("x-a: a.example"),
            lines("x-original-method: none")
        ),
        (0, 1, 1)
    );
    assert_eq!((lines("x-original-method"), lines("x-real-ip")), (1, 1));
    assert_eq!(lines("x-real-ip: none"), 0);
    // A blank in what a client chooses would split the line of the request.
    let split = Inquiry {
        target: "/$http_x_a".into(),
        ..inquiry()
    };
    assert!(with_facts(REQUEST, |it| question(&split, "auth", (it, false), None)).is_none());
}

#[test]
fn clients_do_not_claim_what_only_the_answer_says() {
    let text = asked(&Inquiry {
        passed: ["authorization", "cookie", "x-a"].map(Into::into).into(),
        ..inquiry()
    });
    assert!(text.contains("\r\nAuthorization: Basic "), "{text}");
    assert!(text.contains("\r\nCookie: x=1; s=2=3\r\n"), "{text}");
    assert!(!text.contains("X-A"), "{text}");
    let claiming = "GET / HTTP/1.1\r\nHost: a\r\nX-User: root\r\nx_user: root\r\n\
                    x.USER: root\r\nX-Users: 2\r\n\r\n";
    let asked = with_facts(claiming, |it| {
        question(&inquiry(), "auth", (it, false), None)
    });
    let asked = String::from_utf8(asked.unwrap().filled().to_vec()).unwrap();
    assert!(!asked.contains("root"), "{asked}");
    assert!(asked.contains("X-Users: 2\r\n"), "{asked}");
}

#[test]
fn a_question_tells_of_the_gateway_as_the_request_does() {
    let sent = "GET / HTTP/1.1\r\nHost: a\r\nCDN-Loop: other\r\nX-A: 1\r\nCDN-Loop: b\r\n\r\n";
    let forging = Inquiry {
        fields: [
            ("cdn-loop".into(), "none".into()),
            ("expect".into(), "100-continue".into()),
            ("transfer-encoding".into(), "chunked".into()),
        ]
        .into(),
        ..inquiry()
    };
    for (is_hop, wanted) in [(true, "other, b, myriad"), (false, "other b")] {
        let asked = with_facts(sent, |it| question(&forging, "auth", (it, is_hop), None));
        let asked = String::from_utf8(asked.unwrap().filled().to_vec()).unwrap();
        let lower = asked.to_ascii_lowercase();
        let lines = lower.lines().filter_map(|it| it.strip_prefix("cdn-loop: "));
        assert_eq!(lines.collect::<Vec<&str>>().join(" "), wanted, "{asked}");
        assert!(!lower.contains("expect") && !lower.contains("transfer-encoding"));
    }
}

#[test]
fn no_answer_says_how_a_request_came() {
    let names = [
        "x-forwarded-for",
        "x-real-ip",
        "ssl-client-verify",
        "x-request-id",
    ];
    let honest = ["x-auth-request-user", "x-forwarded-user", "authorization"];
    let all = names.iter().chain(&honest);
    let answered = Answered {
        status: 200,
        fields: all
            .clone()
            .map(|it| ((*it).into(), (*b"1").into()))
            .collect(),
        ..Answered::default()
    };
    let trusting = Inquiry {
        passed: all.map(|it| (*it).into()).collect(),
        ..inquiry()
    };
    let InquiryVerdict::Pass(changes) = verdict(&trusting, &answered) else {
        panic!("200 lets pass");
    };
    let set: Vec<&str> = changes.set.iter().map(|(name, _)| &**name).collect();
    assert_eq!(set, honest);
}

#[test]
fn cookies_of_several_fields_are_told_in_one() {
    let sent = "GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1\r\nX-A: 1\r\n\
                cookie: s=2\r\nX-A: 2\r\n\r\n";
    let asked = with_facts(sent, |facts| {
        question(&inquiry(), "auth", (facts, false), None)
    });
    let text = String::from_utf8(asked.unwrap().filled().to_vec()).unwrap();
    let told = "\r\nCookie: a=1; s=2\r\nX-A: 1\r\nX-A: 2\r\n";
    assert!(text.contains(told), "{text}");
    assert!(!text.contains("\r\ncookie: "), "{text}");
    let found = with_facts(sent, |facts| filled("$http_cookie|$http_x_a", facts));
    assert_eq!(found.unwrap(), b"a=1; s=2|1, 2");
}

#[test]
fn answers_let_pass_refuse_or_are_none() {
    let answered = |status| Answered {
        status,
        fields: [
            ("x-user", "ann"),
            ("x-other", "1"),
            ("set-cookie", "a=b"),
            ("set-cookie", "c=d"),
            ("www-authenticate", "Bearer"),
        ]
        .map(|(name, value)| (name.into(), value.as_bytes().into()))
        .into(),
        body: b"text".to_vec(),
        ..Answered::default()
    };
    for status in [200, 202, 204, 299] {
        let InquiryVerdict::Pass(changes) = verdict(&inquiry(), &answered(status)) else {
            panic!("{status} lets pass");
        };
        assert_eq!(changes.set, [("x-user".into(), (*b"ann").into())]);
        assert_eq!(changes.downstream.len(), 2);
    }
    for status in [401, 403] {
        let found = verdict(&inquiry(), &answered(status));
        assert_eq!(found, InquiryVerdict::Refuse(status));
    }
    for status in [100, 301, 302, 304, 400, 402, 404, 429, 500, 503] {
        let found = verdict(&inquiry(), &answered(status));
        assert_eq!(found, InquiryVerdict::Unclear, "{status}");
    }
    let kept = of_use(&inquiry(), answered(200));
    assert_eq!((kept.fields.len(), kept.body.len()), (4, 0));
}
