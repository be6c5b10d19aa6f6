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
  script: [{call: mail}, {query: {database: store, sql: SELECT 1, rows: 1}}]
- name: mail
databases:
- name: store
  setup: [CREATE TABLE a (b int), INSERT INTO a VALUES (1)]
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
    let query = Query {
        database: "store".to_owned(),
        sql: "SELECT 1".to_owned(),
        rows: 1,
    };
    let script = [call("mail", 128, 1.0), Command::Query(query)];
    assert_eq!((&cart.work.script[..], cart.work.rows()), (&script[..], 1));
    let setup = ["CREATE TABLE a (b int)", "INSERT INTO a VALUES (1)"].map(str::to_owned);
    let store = Database {
        name: "store".to_owned(),
        setup: setup.into(),
    };
    assert_eq!(topology.databases, [store]);
    assert_eq!((topology.asking("store"), topology.asking("mail")), (2, 0));
}

#[test]
fn a_graph_without_chance_says_how_often_each_service_is_asked() {
    let topology = Topology::parse(GRAPH).unwrap();
    assert_eq!(topology.demand(), None, "errors by chance");
    let text = GRAPH.replace("errorRate: 10%", "errorRate: 0");
    let text = text.replace("errorRate: 0.25", "errorRate: 0");
    let topology = Topology::parse(&text).unwrap();
    assert_eq!(topology.demand(), None, "a call by chance");
    let text = text.replace("probability: 50", "probability: 100");
    let topology = Topology::parse(&text).unwrap();
    assert_eq!(topology.demand(), Some(vec![1, 1, 3]));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mesh");
    let text = std::fs::read_to_string(format!("{folder}/flights.yaml")).unwrap();
    let topology = Topology::parse(&text).unwrap();
    assert_eq!(topology.demand(), Some(vec![1, 1, 4, 2, 1, 1]));
    let rows: Vec<_> = topology.services.iter().map(|it| it.work.rows()).collect();
    assert_eq!(rows, [0, 0, 1, 10, 4, 0]);
}

/// The text of the databases, the text in its place, and the message.
const WRONG_DATABASES: &[(&str, &str, &str)] = &[
    (
        "- name: store",
        "- name: base",
        "service cart: script asks store, which is no database; add it",
    ),
    (
        "- name: store",
        "- name: mail",
        "database mail: name is another's too; give",
    ),
    (
        "- name: store",
        "- name: load",
        "database load: name is that of whoever asks here; take",
    ),
    (
        "- name: store",
        "- title: store",
        "databases[0]: name is missing; write",
    ),
    (
        "setup: [CREATE TABLE a (b int), INSERT INTO a VALUES (1)]",
        "setup: [1]",
        "database store: setup[0] is no text; write",
    ),
    (
        "setup: [CREATE TABLE a (b int), INSERT INTO a VALUES (1)]",
        "setup: all",
        "database store: setup is \"all\"; write a list",
    ),
    (
        "  setup: [CREATE",
        "  version: 15\n  setup: [CREATE",
        "database store: version is not honoured; take",
    ),
    (
        "sql: SELECT 1, rows: 1",
        "sql: SELECT 1",
        "service cart: script[1].query.rows is missing; write",
    ),
    (
        "sql: SELECT 1, rows: 1",
        "sql: SELECT 1, rows: 10001",
        "service cart: script[1].query.rows is 10001; write 0 to",
    ),
    (
        "sql: SELECT 1, rows: 1",
        "rows: 1",
        "service cart: script[1].query.sql is no text; write",
    ),
    (
        "database: store, sql",
        "sql",
        "service cart: script[1].query.database is missing; name",
    ),
    (
        "rows: 1}",
        "rows: 1, columns: 1}",
        "service cart: script[1].query.columns is not honoured; take",
    ),
];

#[test]
fn databases_and_statements_have_bounds() {
    let many = |count: usize| {
        let names = (0..count).map(|at| format!("- name: store-{at}\n"));
        let list = names.collect::<String>();
        format!("services: [{{name: a, isEntrypoint: true}}]\ndatabases:\n{list}")
    };
    assert!(Topology::parse(&many(4)).is_ok());
    let error = Topology::parse(&many(5)).unwrap_err().to_string();
    assert_eq!(error, "databases: 5, over 4; take fewer");
    let setup = "INSERT INTO a VALUES (1)";
    let of = |statements: usize, bytes: usize| {
        let long = format!("{setup}{}", ", x".repeat(statements - 1));
        let text = GRAPH.replacen(setup, &long, 1);
        let text = text.replacen("SELECT 1", &"x".repeat(bytes), 1);
        Topology::parse(&text).map_err(|error| error.to_string())
    };
    assert!(of(63, 16 << 10).is_ok());
    let error = of(64, 1).unwrap_err();
    assert!(
        error.starts_with("database store: setup has 65 statements, over 64"),
        "{error}"
    );
    let error = of(1, (16 << 10) + 1).unwrap_err();
    assert!(
        error.starts_with("service cart: script[1].query.sql is longer than 16384 bytes"),
        "{error}"
    );
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
        "service front: script[0] is neither sleep, call nor query; write",
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
    for (from, to, expected) in WRONG.iter().chain(WRONG_DATABASES) {
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
    for (name, services, databases) in [
        ("chain-3.yaml", 3, 0),
        ("tree-13.yaml", 13, 0),
        ("flights.yaml", 6, 1),
    ] {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        let topology = Topology::parse(&text).unwrap();
        assert_eq!(topology.services.len(), services, "{name}");
        assert_eq!(topology.databases.len(), databases, "{name}");
    }
}
