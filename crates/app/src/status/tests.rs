use std::collections::BTreeMap;

use super::report::{ConditionCounts, FollowedReport, HostReport, IngressReport, ProcessReport};
use crate::live::{LiveReport, ObjectReport, ProxyReport};
use crate::obtained::ObtainedReport;

fn proxy(instance: &str) -> ProxyReport {
    ProxyReport {
        instance: instance.to_owned(),
        subject: "myriad/proxy/a".to_owned(),
        view: "gateway".to_owned(),
        schema: 1,
        connected_seconds: 7_300,
        is_in_step: true,
        commits_behind: Some(0),
        resources_behind: Some(0),
        position: BTreeMap::from([("Ingress".to_owned(), 12)]),
        refused: 0,
    }
}

#[test]
fn a_controller_says_who_is_behind_and_by_what() {
    let behind = ProxyReport {
        is_in_step: false,
        commits_behind: Some(3),
        resources_behind: Some(40),
        refused: 2,
        view: "egress".to_owned(),
        ..proxy("b")
    };
    let report = ProcessReport {
        role: "controller".to_owned(),
        version: "1.2.3".to_owned(),
        instance: "c-1".to_owned(),
        uptime_seconds: 90,
        waiting_for: vec!["the first list".to_owned()],
        certificates: Some(ObtainedReport {
            wanted: 9,
            held: 7,
            renewing: 3,
            ..ObtainedReport::default()
        }),
        gateway_api: BTreeMap::from([(
            "Gateway".to_owned(),
            ConditionCounts {
                total: 5,
                unaccepted: 2,
                unprogrammed: 1,
            },
        )]),
        live: Some(LiveReport {
            proxies_total: 3,
            in_step: 2,
            proxies: vec![behind, proxy("a")],
            ..LiveReport::default()
        }),
        ..ProcessReport::default()
    };
    let text = report.to_string();
    for line in [
        "myriad controller 1.2.3 (schema 0) on c-1, up 1 min",
        "not ready: waiting for the first list",
        "certificates of issuers: 7 of 9 there, 0 on order, 0 failing",
        "  since the start 0 obtained, 0 of them renewals; 3 left to renew",
        "Gateway: 5, 2 not accepted, 1 not programmed",
        "proxies: 3 connected, 2 in step",
        "  b: of gateway egress, schema 1, connected for 2 h, behind by 3 commits, 40 changes of \
         resources (at Ingress 12), refused 2 resources",
        "  a: schema 1, connected for 2 h, in step",
        "  and 1 more",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\nnot in\n{text}");
    }
}

#[test]
fn a_proxy_says_whom_it_follows() {
    let report = ProcessReport {
        role: "proxy".to_owned(),
        followed: Some(FollowedReport {
            controller: "c:15010".to_owned(),
            ..FollowedReport::default()
        }),
        ..ProcessReport::default()
    };
    let text = report.to_string();
    assert!(
        text.contains("no controller at c:15010 since the start"),
        "{text}"
    );
    assert!(text.contains("nothing on disk"), "{text}");
}

#[test]
fn an_ingress_says_where_it_is_live() {
    let mut report = IngressReport {
        ingress: "a/b".to_owned(),
        hosts: vec![HostReport {
            host: "h.test".to_owned(),
            routes: 2,
            certificate: Some("a/s".to_owned()),
            others: Vec::new(),
            has_certificate: false,
        }],
        findings: vec!["error: something".to_owned()],
        live: ObjectReport {
            proxies_total: 2,
            live: 1,
            missing: vec!["p2".to_owned()],
            changed_unix: None,
            live_since_unix: None,
            live_after_ms: None,
            refused: Vec::new(),
        },
    };
    let text = report.to_string();
    for part in [
        "host h.test: 2 routes, no HTTPS: Secret a/s is missing",
        "live on 1 of 2 proxies",
        "not yet on p2",
        "error: something",
    ] {
        assert!(text.contains(part), "{part}\nnot in\n{text}");
    }
    assert!(!report.is_live());
    report.live.live = 2;
    assert!(report.is_live());
    report.live.proxies_total = 0;
    report.live.live = 0;
    assert!(!report.is_live(), "without proxies nothing is live");
}
