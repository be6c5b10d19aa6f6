use super::*;

const GRAPH: &str = "\
defaults: {requestSize: 128B, responseSize: 1 KiB, numReplicas: 2, type: http}
services:
- name: front
  isEntrypoint: true
  errorRate: 10%
  numReplicas: 1
  script:
  - sleep: 10ms
  - - call: {service: cart, size: 2KB, probability: 50}
    - call: mail
    - sleep: 1.5s
  - call: mail
- name: cart
  responseSize: 0
  errorRate: 0.25
  script: [{call: mail}]
- name: mail
";

fn call(service: &str, request_bytes: usize, probability: f64) -> Command {
    Command::Call(Call {
        service: service.to_owned(),
        request_bytes,
        probability,
    })
}

#[test]
fn a_graph_is_read_with_its_units_and_defaults() {
    let topology = Topology::parse(GRAPH).unwrap();
    assert_eq!(topology.entrypoint, 0);
    let [front, cart, mail] = &topology.services[..] else {
        panic!("{topology:?}");
    };
    assert_eq!((front.replicas, cart.replicas), (1, 2));
    assert_eq!((front.work.error_share, cart.work.error_share), (0.1, 0.25));
    assert_eq!(
        (front.work.response_bytes, cart.work.response_bytes),
        (1_024, 0)
    );
    let concurrent = Command::Concurrent(vec![
        call("cart", 2_000, 0.5),
        call("mail", 128, 1.0),
        Command::Sleep(Duration::from_millis(1_500)),
    ]);
    let sleep = Command::Sleep(Duration::from_millis(10));
    assert_eq!(
        front.work.script,
        [sleep, concurrent, call("mail", 128, 1.0)]
    );
    assert_eq!(front.work.calls().len(), 3);
    assert_eq!(mail.work.script, []);
}

/// The replaced text, the text in its place, and the message.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "{call: mail}",
        "{call: post}",
        "service cart: script calls post, which is no service; add it",
    ),
    (
        "- name: mail",
        "- name: mail\n  script: [{call: front}]",
        "service front: script leads back to it: front -> cart -> mail -> front; take",
    ),
    (
        "- name: mail",
        "- name: mail\n  script: [{call: mail}]",
        "service mail: script leads back to it: mail -> mail; take",
    ),
    (
        "- name: mail",
        "- name: cart",
        "service cart: name is another's too; give",
    ),
    (
        "- name: mail",
        "- name: Mail",
        "service Mail: name is no name of a Service; take",
    ),
    (
        "responseSize: 0",
        "responseSize: 5MiB",
        "service cart: responseSize is \"5MiB\"; write 0 to",
    ),
    (
        "responseSize: 0",
        "responseSize: big",
        "service cart: responseSize is \"big\", no size; write",
    ),
    (
        "requestSize: 128B",
        "requestSize: -1",
        "defaults: requestSize is -1; write",
    ),
    (
        "errorRate: 10%",
        "errorRate: 110%",
        "service front: errorRate is \"110%\"; write 0%",
    ),
    (
        "sleep: 10ms",
        "sleep: 10",
        "service front: script[0].sleep is 10, no time; write",
    ),
    (
        "sleep: 10ms",
        "sleep: 61s",
        "service front: script[0].sleep is \"61s\"; write at most",
    ),
    (
        "sleep: 10ms",
        "wait: 10ms",
        "service front: script[0] is neither a sleep nor a call; write",
    ),
    (
        "probability: 50",
        "probability: 150",
        "service front: script[1][0].call.probability is 150; write",
    ),
    (
        "probability: 50",
        "hostname: a",
        "service front: script[1][0].call.hostname is not honoured; take",
    ),
    (
        "- call: mail\n    - sleep",
        "- [{call: mail}]\n    - sleep",
        "service front: script[1][1] is a list in a concurrent list; give",
    ),
    (
        "isEntrypoint: true",
        "isEntrypoint: false",
        "no service has isEntrypoint: true; mark",
    ),
    (
        "responseSize: 0",
        "isEntrypoint: true",
        "service cart: isEntrypoint is true, and so it is of front; mark",
    ),
    (
        "responseSize: 0",
        "type: grpc",
        "service cart: type is not http",
    ),
    (
        "responseSize: 0",
        "numRbacPolicies: 3",
        "service cart: numRbacPolicies is not honoured; take",
    ),
    (
        "responseSize: 0",
        "numReplicas: 0",
        "service cart: numReplicas is 0; write 1 to",
    ),
    (
        "responseSize: 0",
        "numReplicas: 199",
        "numReplicas: 202 of all services together, over 200; take",
    ),
    (
        "responseSize: 0",
        "labels: {a: b}",
        "service cart: labels is not honoured; take",
    ),
];

#[test]
fn what_is_wrong_is_told_with_service_field_and_remedy() {
    for (from, to, expected) in WRONG {
        let text = GRAPH.replacen(from, to, 1);
        assert_ne!(text, GRAPH, "{from}");
        let told = Topology::parse(&text).unwrap_err().to_string();
        assert!(told.starts_with(expected), "{to}: {told}");
    }
    for text in ["", "services: []", "[1]", "a: ["] {
        assert!(Topology::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_examples_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mesh");
    for (name, services) in [("chain-3.yaml", 3), ("tree-13.yaml", 13)] {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        let topology = Topology::parse(&text).unwrap();
        assert_eq!(topology.services.len(), services, "{name}");
    }
}
