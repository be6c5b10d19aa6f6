//! Each property, each form, and how access policies add up.

use myriad_model::{
    AccessAction, AccessCheck, AccessMatcher, AccessPolicy, AccessRule, AccessSubject, AccessTest,
    Authorize, Form, Name, Origin, Resource, SealedArc, Sealer, Value,
};

use super::{JudgedRequest, JudgedStream, admits_stream, asked, judge};
use crate::codec::head;
use crate::limits::Limits;
use crate::pattern::{Budget, STEPS_MAX};
use crate::route::access_policies::AccessPolicies;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count::{Count, Counts};

fn access_policies(policies: Vec<Authorize>) -> AccessPolicies {
    let mut sealer = Sealer::new([1; 32], Form::Value);
    let mut access_policies = AccessPolicies::default();
    for (number, policy) in policies.into_iter().enumerate() {
        let name = Name::from(&*number.to_string());
        let resource = Resource {
            origin: Origin::settings(),
            value: Value::AccessPolicy(Box::new(AccessPolicy {
                listeners: [].into(),
                check: AccessCheck::Authorize(policy),
            })),
        };
        let sealed = SealedArc::new(sealer.seal(name.clone(), resource));
        access_policies = access_policies.with(&name, Some(&sealed));
    }
    access_policies
}

fn policy(action: AccessAction, rules: Vec<AccessRule>) -> Authorize {
    Authorize {
        action,
        is_dry_run: false,
        rules: rules.into(),
    }
}

fn when(subject: AccessSubject, any: Vec<AccessMatcher>, none: Vec<AccessMatcher>) -> AccessRule {
    AccessRule {
        when: [AccessTest {
            subject,
            any: any.into(),
            none: none.into(),
        }]
        .into(),
        ..AccessRule::default()
    }
}

fn verdict(policies: Vec<Authorize>, target: &str, fields: &str) -> String {
    let counts = Counts::new();
    let method = match target {
        "*" => "OPTIONS",
        _ => "GET",
    };
    let text = format!("{method} {target} HTTP/1.1\r\nHost: Shop.example:8080\r\n{fields}\r\n");
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    let mut visit =
        DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 8080);
    visit.address = Some("203.0.113.1".parse().unwrap());
    let request = JudgedRequest {
        visit: &visit,
        head: &head,
        token: None,
        trusted_hops: 1,
        budget: &Budget::default(),
    };
    let access_policies = access_policies(policies);
    let asked = asked(&access_policies, &request);
    if !asked.is_empty() {
        return format!("Asked({asked:?})");
    }
    let word = match judge(&access_policies, &request, &counts).is_admitted {
        true => "Admitted",
        false => "Refused",
    };
    word.to_owned()
}

fn exact(text: &str) -> AccessMatcher {
    AccessMatcher::Exact(text.into())
}

fn block(text: &str) -> AccessMatcher {
    AccessMatcher::Block(text.parse().unwrap())
}

/// Whether a test of one form fits the request, by an ALLOW and by a DENY.
fn fit(subject: AccessSubject, form: AccessMatcher, target: &str, fields: &str) -> (bool, bool) {
    let rule = |form| when(subject.clone(), vec![form], Vec::new());
    let allow = policy(AccessAction::Allow, vec![rule(form.clone())]);
    let deny = policy(AccessAction::Deny, vec![rule(form)]);
    (
        verdict(vec![allow], target, fields) == "Admitted",
        verdict(vec![deny], target, fields) == "Refused",
    )
}

#[test]
fn an_address_that_holds_another_closes_as_both_and_opens_as_itself() {
    for holding in ["::198.51.100.9", "64:ff9b::198.51.100.9"] {
        let told = format!("X-Forwarded-For: {holding}\r\n");
        let inside = || block("198.51.100.0/24");
        let fit = |form| fit(AccessSubject::ClientAddress, form, "/", &told);
        assert_eq!(fit(inside()), (false, true), "{holding}");
        assert_eq!(
            fit(block(&format!("{holding}/128"))),
            (true, true),
            "{holding}"
        );
        // Who allows all but some does not mean to allow these under another name.
        let others = when(AccessSubject::ClientAddress, Vec::new(), vec![inside()]);
        let allow = policy(AccessAction::Allow, vec![others.clone()]);
        assert_eq!(verdict(vec![allow], "/", &told), "Refused", "{holding}");
        let deny = policy(AccessAction::Deny, vec![others]);
        assert_eq!(verdict(vec![deny], "/", &told), "Refused", "{holding}");
    }
}

#[test]
fn each_property_is_compared_with_what_it_is() {
    use AccessSubject as Subject;
    let template = |text: &str| AccessMatcher::Template(text.into());
    let told = "X-Forwarded-For: 198.51.100.9\r\nX-Tenant: blue\r\n";
    let cases = [
        (Subject::Method, exact("GET"), true),
        (Subject::Method, exact("POST"), false),
        (Subject::Method, AccessMatcher::Present, true),
        (Subject::Host, exact("shop.example"), true),
        (Subject::Host, exact("SHOP.example:8080"), true),
        (
            Subject::Host,
            AccessMatcher::Suffix(".Example".into()),
            true,
        ),
        (Subject::Host, AccessMatcher::Prefix("shop.".into()), true),
        (Subject::Host, exact("shop.example:8081"), false),
        (Subject::Path, exact("/v1/items/7"), true),
        (Subject::Path, AccessMatcher::Prefix("/v1/".into()), true),
        (Subject::Path, AccessMatcher::Suffix("/7".into()), true),
        (Subject::Path, template("/v1/{*}/7"), true),
        (Subject::Path, template("/v1/{**}"), true),
        (Subject::Path, template("/{**}/7"), true),
        (Subject::Path, template("/v1/{*}"), false),
        (Subject::Path, exact("/v1"), false),
        (Subject::PeerAddress, block("192.0.2.0/24"), true),
        (Subject::PeerAddress, block("198.51.100.0/24"), false),
        (Subject::ClientAddress, block("198.51.100.0/24"), true),
        (Subject::ClientAddress, block("192.0.2.0/24"), false),
        (Subject::LocalAddress, block("203.0.113.0/24"), true),
        (Subject::LocalAddress, block("192.0.2.0/24"), false),
        (Subject::LocalPort, exact("8080"), true),
        (Subject::LocalPort, exact("80"), false),
        (Subject::Header("x-tenant".into()), exact("blue"), true),
        (Subject::Header("x-tenant".into()), exact("green"), false),
        (
            Subject::Header("x-other".into()),
            AccessMatcher::Present,
            false,
        ),
        (Subject::Principal, AccessMatcher::Present, false),
        (Subject::Namespace, exact("a"), false),
        (Subject::ServiceAccount, exact("a/b"), false),
        (Subject::TrustDomain, AccessMatcher::Present, false),
        (Subject::RequestPrincipal, AccessMatcher::Present, false),
        (Subject::Audience, AccessMatcher::Present, false),
        (Subject::Presenter, AccessMatcher::Present, false),
        (
            Subject::Claim(["a".into()].into()),
            AccessMatcher::Present,
            false,
        ),
        (Subject::ServerName, AccessMatcher::Present, false),
    ];
    for (subject, form, fits) in cases {
        let found = fit(subject.clone(), form.clone(), "/v1/items/7?q=1", told);
        assert_eq!(found, (fits, fits), "{subject:?} {form:?}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_never_opened_and_always_closed() {
    use AccessSubject as Subject;
    let admin = || exact("/admin");
    for (target, allowed, denied) in [
        ("/admin", true, true),
        ("/%61dmin", true, true),
        ("//admin", false, true),
        ("/x%2Fy", false, false),
        ("/%2fadmin", false, true),
        ("/admins", false, false),
    ] {
        let found = fit(Subject::Path, admin(), target, "");
        assert_eq!(found, (allowed, denied), "{target}");
    }
    // Servlet containers leave parameters out before they undo escapes.
    let suffix = |text: &str| AccessMatcher::Suffix(text.into());
    for (form, target) in [
        (admin(), "/admin;%2fx"),
        (admin(), "/admin;%252f%252e%252e"),
        (
            AccessMatcher::Prefix("/admin/".into()),
            "/admin;x/%252e%252e/y",
        ),
        (suffix(".php"), "/x.php;%2fa"),
        (suffix(".png"), "/secret;%2f.png"),
    ] {
        let found = fit(Subject::Path, form, target, "");
        assert_eq!(found, (false, true), "{target}");
    }
    // The server as a whole is its root.
    for (form, fits) in [
        (AccessMatcher::Prefix("/".into()), true),
        (exact("/"), true),
        (AccessMatcher::Template("/{**}".into()), true),
        (admin(), false),
    ] {
        let found = fit(Subject::Path, form, "*", "");
        assert_eq!(found, (fits, fits));
    }
    let role = Subject::Header("x-role".into());
    let twice = "X-Role: user\r\nX-Role: admin\r\n";
    assert_eq!(fit(role.clone(), exact("admin"), "/", twice), (false, true));
    assert_eq!(fit(role, exact("user,admin"), "/", twice), (true, true));
}

/// A server that takes a field for a list finds each member in it, and one that takes it for a text
/// the whole. Where a field is there twice, servers take the first, the last or both.
#[test]
fn what_closes_looks_at_each_member_of_a_list_and_what_opens_at_the_whole() {
    let prefix = || AccessMatcher::Prefix("admin".into());
    let suffix = || AccessMatcher::Suffix("admin".into());
    for (told, form, allowed, denied) in [
        ("X-Role: admin\r\n", exact("admin"), true, true),
        ("X-Role: user, admin\r\n", exact("admin"), false, true),
        (
            "X-Role: user,\tadmin ,other\r\n",
            exact("admin"),
            false,
            true,
        ),
        ("X-Role: user, admins\r\n", exact("admin"), false, false),
        ("X-Role: user, admin\r\n", exact("user, admin"), true, true),
        (
            "X-Role: user\r\nX-Role: other, admin\r\n",
            exact("admin"),
            false,
            true,
        ),
        ("X_Role: user, admin\r\n", exact("admin"), false, true),
        ("X-Role: user, admin-eu\r\n", prefix(), false, true),
        ("X-Role: eu-admin, user\r\n", suffix(), false, true),
        // A text may have commas, as that of a browser has.
        ("X-Role: admin-eu, user\r\n", prefix(), true, true),
        (
            "X-Role: admin-eu\r\nX-Role: user\r\n",
            prefix(),
            false,
            true,
        ),
        (
            "X-Role: user\r\nX-Role: eu-admin\r\n",
            suffix(),
            false,
            true,
        ),
        (
            "X-Role: admin-eu\r\nX-Role: admin-us\r\n",
            prefix(),
            true,
            true,
        ),
    ] {
        let found = fit(AccessSubject::Header("x-role".into()), form, "/", told);
        assert_eq!(found, (allowed, denied), "{told:?}");
    }
}

#[test]
fn cookies_of_several_fields_are_compared_as_the_one_that_endpoints_get() {
    let several = "Cookie: a=1\r\nX-A: b\r\nCookie: s=2\r\n";
    let fit = |form| fit(AccessSubject::Header("Cookie".into()), form, "/", several);
    assert_eq!(fit(exact("a=1; s=2")), (true, true));
    assert_eq!(fit(AccessMatcher::Prefix("a=1; s".into())), (true, true));
    assert_eq!(fit(AccessMatcher::Suffix("s=2".into())), (true, true));
    // What closes looks at each field as well.
    assert_eq!(fit(exact("s=2")), (false, true));
    assert_eq!(fit(exact("a=1,s=2")), (false, false));
}

#[test]
fn a_member_of_a_list_that_must_not_fit_admits_nobody_and_has_providers_asked() {
    let role = || AccessSubject::Header("x-role".into());
    let not = |action, value: &str, told: &str| {
        let rule = when(role(), Vec::new(), vec![exact(value)]);
        verdict(vec![policy(action, vec![rule])], "/", told)
    };
    let (one, two) = ("X-Role: admin\r\n", "X-Role: user, admin\r\n");
    assert_eq!(not(AccessAction::Allow, "admin", two), "Refused");
    assert_eq!(not(AccessAction::Allow, "other", two), "Admitted");
    assert_eq!(not(AccessAction::Deny, "admin", one), "Admitted");
    assert_eq!(not(AccessAction::Deny, "admin", two), "Refused");
    let rule = when(role(), vec![exact("admin")], Vec::new());
    let asks = policy(AccessAction::Custom("opa".into()), vec![rule]);
    assert_eq!(verdict(vec![asks], "/", two), "Asked([\"opa\"])");
}

#[test]
fn what_must_not_fit_must_not_fit_in_any_reading() {
    let not = |action, target: &str| {
        let rule = when(AccessSubject::Path, Vec::new(), vec![exact("/admin")]);
        verdict(vec![policy(action, vec![rule])], target, "")
    };
    assert_eq!(not(AccessAction::Allow, "/shop"), "Admitted");
    assert_eq!(not(AccessAction::Allow, "/admin"), "Refused");
    assert_eq!(not(AccessAction::Allow, "//admin"), "Refused");
    assert_eq!(not(AccessAction::Deny, "/shop"), "Refused");
    assert_eq!(not(AccessAction::Deny, "/admin"), "Admitted");
    assert_eq!(not(AccessAction::Deny, "//admin"), "Refused");
}

#[test]
fn who_asks_goes_before_who_closes_before_who_opens() {
    let all = || vec![AccessRule::default()];
    let none = Vec::new;
    let asks = || AccessAction::Custom("opa".into());
    for (policies, wanted) in [
        (vec![], "Admitted"),
        (vec![policy(AccessAction::Allow, none())], "Refused"),
        (vec![policy(AccessAction::Deny, none())], "Admitted"),
        (vec![policy(AccessAction::Allow, all())], "Admitted"),
        (vec![policy(AccessAction::Deny, all())], "Refused"),
        (
            vec![
                policy(AccessAction::Allow, all()),
                policy(AccessAction::Deny, all()),
            ],
            "Refused",
        ),
        (
            vec![
                policy(AccessAction::Allow, none()),
                policy(AccessAction::Allow, all()),
            ],
            "Admitted",
        ),
        (vec![policy(AccessAction::Audit, all())], "Admitted"),
        (vec![policy(asks(), all())], "Asked([\"opa\"])"),
        (vec![policy(asks(), none())], "Admitted"),
        (
            vec![policy(AccessAction::Deny, all()), policy(asks(), all())],
            "Asked([\"opa\"])",
        ),
        (
            vec![
                policy(asks(), all()),
                policy(AccessAction::Custom("other".into()), all()),
                policy(asks(), all()),
                policy(AccessAction::Custom("third".into()), none()),
            ],
            "Asked([\"opa\", \"other\"])",
        ),
    ] {
        let text = format!("{policies:?}");
        assert_eq!(verdict(policies, "/", ""), wanted, "{text}");
    }
}

#[test]
fn all_parts_of_a_rule_have_to_fit_and_one_of_its_sources() {
    let test = |subject, form| AccessTest {
        subject,
        any: [form].into(),
        none: Box::default(),
    };
    let rule = |blocks: [&str; 2], method: &str| AccessRule {
        from: blocks
            .map(|text| [test(AccessSubject::PeerAddress, block(text))].into())
            .into(),
        to: [[test(AccessSubject::Method, exact(method))].into()].into(),
        when: Box::default(),
    };
    for (blocks, method, wanted) in [
        (["10.0.0.0/8", "192.0.2.0/24"], "GET", "Admitted"),
        (["10.0.0.0/8", "192.0.2.0/24"], "POST", "Refused"),
        (["10.0.0.0/8", "192.0.3.0/24"], "GET", "Refused"),
    ] {
        let allow = policy(AccessAction::Allow, vec![rule(blocks, method)]);
        assert_eq!(verdict(vec![allow], "/", ""), wanted);
    }
}

/// Werkzeug takes `delete` for DELETE, and what allows GET does not allow `get`.
#[test]
fn what_closes_a_method_closes_it_in_any_case() {
    let test = |action, text: &str| {
        let rule = when(AccessSubject::Method, vec![exact(text)], Vec::new());
        verdict(vec![policy(action, vec![rule])], "/", "")
    };
    assert_eq!(test(AccessAction::Deny, "get"), "Refused");
    assert_eq!(test(AccessAction::Allow, "get"), "Refused");
    assert_eq!(test(AccessAction::Allow, "GET"), "Admitted");
}

/// A field that is sent 120 times is joined once for each value that it is compared with, and what
/// that takes is of the budget of the request.
#[test]
fn what_cannot_be_looked_at_within_the_budget_closes() {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "x-a: b\r\n".repeat(119)
    );
    let head = head::parse(head.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let judged = |action, values: usize| {
        let values = (0..values).map(|number| exact(&number.to_string()));
        let rule = when(
            AccessSubject::Header("x-a".into()),
            values.collect(),
            vec![],
        );
        let access_policies = access_policies(vec![policy(action, vec![rule])]);
        let budget = Budget::default();
        let request = JudgedRequest {
            visit: &visit,
            head: &head,
            token: None,
            trusted_hops: 0,
            budget: &budget,
        };
        let judgement = judge(&access_policies, &request, &Counts::new());
        (judgement.is_admitted, budget.taken())
    };
    let steps = 10 * (1 + head.fields.len() as u32 / 4);
    assert_eq!(judged(AccessAction::Deny, 10), (true, steps));
    assert_eq!(judged(AccessAction::Deny, 5_000), (false, STEPS_MAX));
    assert_eq!(judged(AccessAction::Allow, 5_000), (false, STEPS_MAX));
}

/// A list of 30,001 members is looked at for each value that a policy denies.
#[test]
fn the_members_of_a_list_take_steps_of_the_budget() {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nx-a: b{}\r\n\r\n",
        ",b".repeat(30_000)
    );
    let head = head::parse(head.as_bytes(), &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let judged = |values: usize| {
        let values = (0..values).map(|number| exact(&number.to_string()));
        let subject = AccessSubject::Header("x-a".into());
        let rule = when(subject, values.collect(), Vec::new());
        let access_policies = access_policies(vec![policy(AccessAction::Deny, vec![rule])]);
        let budget = Budget::default();
        let request = JudgedRequest {
            visit: &visit,
            head: &head,
            token: None,
            trusted_hops: 0,
            budget: &budget,
        };
        let judgement = judge(&access_policies, &request, &Counts::new());
        (judgement.is_admitted, budget.taken())
    };
    let each = 1 + 60_001 / 256 + 30_000 / 4;
    assert_eq!(judged(10), (true, 10 * each));
    assert_eq!(judged(20), (false, STEPS_MAX));
}

#[test]
fn a_policy_on_trial_is_counted_and_nothing_else() {
    let counts = Counts::new();
    let mut deny = policy(AccessAction::Deny, vec![AccessRule::default()]);
    deny.is_dry_run = true;
    let access_policies = access_policies(vec![deny]);
    let head = head::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Limits::default()).unwrap();
    let visit = DownstreamConnection::new("http".into(), "192.0.2.7:4000".parse().unwrap(), 80);
    let request = JudgedRequest {
        visit: &visit,
        head: &head,
        token: None,
        trusted_hops: 0,
        budget: &Budget::default(),
    };
    let judgement = judge(&access_policies, &request, &counts);
    assert!(judgement.is_admitted);
    assert_eq!(counts.get(Count::DryRunRefused), 1);
}

#[test]
fn what_only_requests_have_closes_streams_and_never_opens_them() {
    let stream = |action, subject, form| {
        let rule = when(subject, vec![form], Vec::new());
        let access_policies = access_policies(vec![policy(action, vec![rule])]);
        let stream = JudgedStream {
            listener: &"tcp".into(),
            client: "192.0.2.7".parse().unwrap(),
            peer: "192.0.2.7".parse().unwrap(),
            address: None,
            port: 5432,
            server_name: Some("db.example"),
            principal: Some("cluster.local/ns/a/sa/b"),
        };
        admits_stream(&access_policies, &stream, &Counts::new())
    };
    use AccessSubject as Subject;
    assert!(!stream(AccessAction::Allow, Subject::Method, exact("GET")));
    assert!(!stream(AccessAction::Deny, Subject::Method, exact("GET")));
    assert!(stream(
        AccessAction::Allow,
        Subject::LocalPort,
        exact("5432")
    ));
    assert!(!stream(AccessAction::Deny, Subject::Namespace, exact("a")));
    assert!(stream(
        AccessAction::Allow,
        Subject::ServiceAccount,
        exact("a/b")
    ));
    assert!(stream(
        AccessAction::Allow,
        Subject::ServerName,
        exact("db.example")
    ));
    let custom = AccessAction::Custom("opa".into());
    assert!(!stream(custom, Subject::LocalPort, AccessMatcher::Present));
}
