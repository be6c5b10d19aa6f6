//! Reviews as API servers send them.

use clap::Parser as _;
use myriad_sidecar::inject::{RawSidecar, Sidecar};
use serde_json::{Value, json};

use crate::cli::{Cli, Command};

use super::{
    Counter, Labels, OF_NAMESPACE, Request, Turns, Verdict, Webhook, judge, owner, response,
};

#[derive(clap::Parser)]
struct Raw {
    #[command(flatten)]
    sidecar: RawSidecar,
}

fn review(object: Value) -> Request {
    let request = json!({"uid": "u1", "namespace": "shop", "object": object});
    serde_json::from_value(request).unwrap()
}

fn verdict(object: Value, labels: &[(&str, &str)]) -> Value {
    verdict_with(&[], object, labels)
}

fn verdict_with(settings: &[&str], object: Value, labels: &[(&str, &str)]) -> Value {
    let raw = Raw::parse_from([&["test"], settings].concat());
    let sidecar = Sidecar::check(&raw.sidecar).unwrap();
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let labels: Labels = labels.iter().map(owned).collect();
    let review = review(object);
    let verdict = judge(&review, &labels, &sidecar);
    let mut answer = response(&review.uid, verdict);
    answer["response"].take()
}

fn pod() -> Value {
    json!({
        "metadata": {
            "generateName": "cart-5d4f-",
            "labels": {"app": "cart", "pod-template-hash": "5d4f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "cart-5d4f"}],
        },
        "spec": {"containers": [{"name": "app", "image": "cart:1"}]},
    })
}

/// The Pod after the patch.
fn patched(mut pod: Value, answer: &Value) -> Value {
    use base64::Engine as _;
    let patch = answer["patch"].as_str().unwrap();
    let patch = super::STANDARD.decode(patch).unwrap();
    let operations: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    for operation in operations {
        assert_eq!(operation["op"], "add");
        let path = operation["path"].as_str().unwrap();
        let (parent, member) = path.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(member.to_owned(), operation["value"].clone());
    }
    pod
}

#[test]
fn a_pod_whose_namespace_asks_gets_its_proxy_by_a_patch() {
    let answer = verdict(pod(), &[("istio-injection", "enabled")]);
    assert_eq!(
        (&answer["allowed"], &answer["uid"]),
        (&json!(true), &json!("u1"))
    );
    let after = patched(pod(), &answer);
    let names = after["spec"]["initContainers"].as_array().unwrap();
    let names: Vec<_> = names.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["myriad-init", "myriad-proxy"]);
    assert_eq!(after["spec"]["containers"], pod()["spec"]["containers"]);
    let labels = &after["metadata"]["labels"];
    assert_eq!(labels["security.istio.io/tlsMode"], "istio");
    assert_eq!(labels["app"], "cart");
}

#[test]
fn a_proxy_is_told_when_to_hold_and_understands_all_that_it_is_told() {
    let settings = [
        "--sidecar-hold-percent=100",
        "--sidecar-hold-domains=7",
        "--sidecar-hold-for=90",
    ];
    for (settings, expected) in [
        (&settings[..], (100, 7, Some(90))),
        (&settings[2..], (20, 50, Some(90))),
        (&[], (20, 50, None)),
    ] {
        let answer = verdict_with(settings, pod(), &[("istio-injection", "enabled")]);
        let after = patched(pod(), &answer);
        let words = after["spec"]["initContainers"][1]["args"].as_array();
        let words = words.unwrap().iter().map(|word| word.as_str().unwrap());
        let cli = Cli::try_parse_from(["myriad"].into_iter().chain(words)).unwrap();
        let Command::Proxy(proxy) = cli.command else {
            panic!("it is told to be a proxy");
        };
        let hold = &proxy.hold;
        let told = (hold.hold_percent, hold.hold_domains, hold.hold_for);
        assert_eq!(told, expected);
    }
}

#[test]
fn a_pod_that_nobody_asks_for_is_let_by_as_it_is() {
    let answer = verdict(pod(), &[]);
    assert_eq!(answer, json!({"allowed": true, "uid": "u1"}));
    let mut asking = pod();
    asking["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("true");
    assert!(verdict(asking, &[])["patch"].is_string());
}

#[test]
fn a_pod_that_asks_for_what_cannot_be_is_refused_by_name() {
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/proxyCPU": "much"});
    let answer = verdict(pod, &[("istio-injection", "enabled")]);
    assert_eq!(answer["allowed"], false);
    let expected =
        "myriad: sidecar.istio.io/proxyCPU: \"much\" is no quantity, such as 100m or 64Mi";
    assert_eq!(answer["status"]["message"], expected);
}

#[test]
fn warnings_are_cut_where_api_servers_would() {
    let warnings = vec!["ä".repeat(300); 99];
    let patch = json!([]);
    let answer = response("u", Verdict::Inject { patch, warnings });
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 16);
    assert_eq!(warnings[0].as_str().unwrap().len(), 256);
}

#[test]
fn a_pod_is_called_by_what_it_belongs_to() {
    assert_eq!(owner(&pod()), "cart");
    assert_eq!(owner(&json!({"metadata": {"name": "alone"}})), "alone");
    let of_job = json!({"metadata": {"ownerReferences": [{"name": "nightly-1"}], "name": "x"}});
    assert_eq!(owner(&of_job), "nightly-1");
}

#[test]
fn a_forged_review_gets_an_answer_and_has_no_other_effect() {
    let raw = Raw::parse_from(["test"]);
    let webhook = Webhook {
        sidecar: Sidecar::check(&raw.sidecar).unwrap(),
        turns: Turns::default(),
        injected: Counter::default(),
        refused: Counter::default(),
    };
    let request = json!({"uid": "u", "namespace": "another", "object": pod()});
    let review = json!({"request": request}).to_string();
    let question = http::Request::post(OF_NAMESPACE).body(review.into());
    // It answers at once, out of the question alone: it holds nothing that could write.
    let answer = webhook.answer(&question.unwrap());
    assert_eq!(answer.status(), 200);
    let Webhook {
        sidecar: _,
        turns: _,
        injected,
        refused,
    } = webhook;
    assert_eq!((injected.get(), refused.get()), (1, 0));
}

#[test]
fn a_forged_review_of_64_000_containers_is_refused_by_name() {
    let containers: Vec<Value> = (0..64_000)
        .map(|it| json!({"name": format!("a{it}"), "livenessProbe": {"httpGet": {"port": 1}}}))
        .collect();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": containers}});
    let answer = verdict(pod, &[("istio-injection", "enabled")]);
    assert_eq!(answer["allowed"], false);
    let message = answer["status"]["message"].as_str().unwrap();
    let expected = "myriad: spec.containers has 64000 entries, and a Pod with a proxy at most 256";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("sidecar.istio.io/inject"), "{message}");
}

#[tokio::test]
async fn a_review_waits_for_the_one_under_way_and_not_for_all_of_another_address() {
    use std::net::IpAddr;
    use std::sync::Arc;

    use myriad_admin::server::Source;
    use myriad_base::task;

    let raw = Raw::parse_from(["test"]);
    let webhook = Arc::new(Webhook {
        sidecar: Sidecar::check(&raw.sidecar).unwrap(),
        turns: Turns::default(),
        injected: Counter::default(),
        refused: Counter::default(),
    });
    let address = |number: u8| IpAddr::from([192, 0, 2, number]);
    let under_way = webhook.turns.take(address(1)).await;
    let (told, mut answered) = tokio::sync::mpsc::channel(8);
    for number in [1, 1, 1, 2] {
        let request = json!({"uid": "u", "namespace": "shop", "object": pod()});
        let review = json!({"request": request}).to_string();
        let question = http::Request::post(OF_NAMESPACE).extension(Source(address(number)));
        let question = question.body(review.into()).unwrap();
        let (webhook, told) = (webhook.clone(), told.clone());
        drop(task::spawn("test review", async move {
            let answer = webhook.answer_in_turn(question).await;
            told.send((number, answer.status())).await
        }));
        // It waits before the next one comes.
        tokio::task::yield_now().await;
    }
    drop(under_way);
    let mut order = Vec::new();
    for _ in 0..4 {
        let (number, status) = answered.recv().await.unwrap();
        assert_eq!(status, 200);
        order.push(number);
    }
    assert_ne!(order[3], 2, "it is before the rest of the other");
}
