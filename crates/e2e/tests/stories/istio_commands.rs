//! The output of commands about Istio's objects.

use myriad_e2e::istio::{TO, destination_rule, gateway, object, rules, service, virtual_service};

use super::commands::myriad;

const SERVER: &str = "port: {number: 80, name: http, protocol: HTTP}, hosts: [a.test]";

/// The output of a command about these files, and its exit code.
async fn run(arguments: &[&str], text: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.yaml"), text).expect("a file");
    let mut command = myriad();
    let output = command.args(arguments).arg(directory.path()).output().await;
    let output = output.expect("the binary runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), printed)
}

#[tokio::test]
async fn check_says_of_each_object_what_is_honoured() {
    let named = format!("fault: {{delay: {{exponentialDelay: 1s, fixedDelay: 1s}}}}, {TO}");
    let text = gateway("edge", &[SERVER])
        + &rules(&[&named, TO])
        + &service("api", &[])
        + &destination_rule(
            "api",
            "trafficPolicy: {tunnel: {protocol: POST, targetHost: a, targetPort: 1}}",
        )
        + &object(
            "networking.istio.io/v1",
            "Sidecar",
            "s",
            "egress: [{hosts: ['*/*']}]",
        );
    let (code, printed) = run(&["check", "--honoured"], &text).await;
    assert_eq!(code, Some(1), "{printed}");
    let lines: Vec<&str> = printed.lines().collect();
    for line in [
        "Gateway default/edge: honoured",
        "VirtualService default/a: honoured but for spec.http[0].fault.delay.exponentialDelay; \
         2 routes",
        "DestinationRule default/api: honoured but for spec.trafficPolicy.tunnel.protocol",
        "4 objects of Istio: 1 honoured, 2 in part, 1 not",
    ] {
        assert!(lines.contains(&line), "{line:?} is not in\n{printed}");
    }
    assert!(
        printed.contains("\nSidecar default/s: not honoured"),
        "{printed}"
    );
    let (_, printed) = run(&["check"], &text).await;
    assert!(
        !printed.contains("default/edge: honoured"),
        "only where it is asked for"
    );
}

#[tokio::test]
async fn a_thousand_objects_are_a_thousand_lines() {
    let mut text = gateway("edge", &[SERVER]) + &service("api", &[]);
    for number in 0..1_000 {
        let own = format!("match: [{{uri: {{exact: /{number}}}}}], {TO}");
        let rule = rules(&[&own]);
        text += &rule.replace("name: a,", &format!("name: a{number},"));
    }
    let (code, printed) = run(&["check", "--honoured"], &text).await;
    assert_eq!(code, Some(0), "{printed}");
    let honoured = printed
        .lines()
        .filter(|it| it.ends_with(": honoured; 1 route"));
    assert_eq!(honoured.count(), 1_000, "{printed}");
    assert!(printed.contains("1001 objects of Istio: 1001 honoured, 0 in part, 0 not"));
}

#[tokio::test]
async fn explain_names_the_virtual_service_the_rule_and_the_delegate() {
    let root = "match: [{uri: {prefix: /shop}}], delegate: {name: part}";
    let cart = format!("match: [{{uri: {{exact: /shop/cart}}}}], {TO}");
    let text = gateway("edge", &[SERVER])
        + &rules(&[root, TO])
        + &virtual_service("part", "exportTo: ['*']", "http", &[&cart, TO])
        + &service("api", &["127.0.0.1:9".parse().expect("an address")]);
    let delegated = "spec.http[0] of VirtualService default/a, delegated to VirtualService \
                     default/part: spec.http";
    for (url, wanted) in [
        (
            "http://a.test/shop/cart",
            format!("{delegated}[0], its match 0"),
        ),
        (
            "http://a.test/shop/x",
            format!("{delegated}[1], its match 0"),
        ),
        (
            "http://a.test/other",
            "spec.http[1], its match 0".to_owned(),
        ),
    ] {
        let (code, printed) = run(&["explain", url], &text).await;
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains(&wanted), "{wanted:?} is not in\n{printed}");
    }
    let (_, printed) = run(&["explain", "http://a.test/other"], &text).await;
    assert!(
        printed.contains("on a.test of VirtualService default/a"),
        "{printed}"
    );
}
