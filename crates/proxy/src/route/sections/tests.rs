use std::sync::Arc;
use std::time::Duration;

use myriad_model::{
    Action, Certificate, Change, Delta, Domain, Form, Host, KeyEncoding, Listener,
    ListenerProtocol, Name, Origin, PathMatch, Policy, PrivateKey, Resource, Route, Sealer,
    StreamRoute, Value, Writer,
};

use crate::codec::head;
use crate::limits::Limits;
use crate::pattern::Budget;
use crate::route::edit::Edit;
use crate::route::stream_route::Arrival;
use crate::route::tables::{Answerer, Tables};
use crate::upstream::endpoint::EndpointTable;

const PORT: &str = "port";

/// The host of a section; of none where it begins with a dash.
fn domain(host: &str, section: &str) -> Value {
    Value::Domain(Box::new(Domain {
        listeners: [Name::from(PORT)].into(),
        host: Host::parse(host).unwrap(),
        certificate: Some("certificate".into()),
        tls: Arc::default(),
        alternatives: Box::default(),
        client_auth: None,
        mesh: false,
        section: (!section.starts_with('-')).then(|| section.into()),
        by_name: false,
    }))
}

/// A row for the path of its own name.
fn row(host: &str, listener: &str, path: &str) -> Value {
    Value::Route(Box::new(Route {
        listeners: [Name::from(listener)].into(),
        hosts: [Host::parse(host).unwrap()].into(),
        path: PathMatch::Prefix(path.into()),
        conditions: Box::default(),
        rank: 1,
        action: Action::Forward(Arc::default()),
        policy: Arc::new(Policy::default()),
    }))
}

fn stream_row(host: &str, listener: &str) -> Value {
    Value::StreamRoute(Box::new(StreamRoute {
        listeners: [Name::from(listener)].into(),
        hosts: [Host::parse(host).unwrap()].into(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: 1,
        behind: 0,
        terminate: false,
        upstreams: Box::default(),
        idle_timeout: Duration::ZERO,
        connect_timeout: Duration::from_secs(1),
    }))
}

fn changes(values: Vec<(&str, Value)>) -> Vec<Change> {
    let mut writer = Writer::new(Sealer::new([3; 32], Form::Value));
    let mut delta = Delta::default();
    for (name, value) in values {
        let origin = Origin::settings();
        let resource = Resource { origin, value };
        writer.replace(&[], vec![(Name::from(name), resource)], &mut delta);
    }
    delta.changes().to_vec()
}

fn tables(values: Vec<(&str, Value)>) -> Tables {
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut edit = Edit::new(&mut tables, &mut targets);
    for change in changes(values) {
        edit.change(None, change.new.as_ref()).unwrap();
    }
    edit.finish();
    tables
}

/// The name of the row that a request takes, or why it takes none.
fn taken(tables: &Tables, host: &str, path: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
    match tables.route(&PORT.into(), &head, None, &Budget::default()) {
        Ok(entry) => entry.name(),
        Err(error) => format!("{:?}", error.0),
    }
}

fn streamed(tables: &Tables, name: &str) -> String {
    let arrival = Arrival {
        listener: &PORT.into(),
        client: [192, 0, 2, 9].into(),
        own: None,
        is_terminated: false,
    };
    let entry = tables.stream_route(arrival, Some(name));
    entry.map_or("-".into(), |entry| entry.sealed().name().to_string())
}

/// A row of each section that takes everything, but for `s3`, which takes one path.
fn all() -> Vec<(&'static str, Value)> {
    vec![
        ("d0", domain("*", "s0")),
        ("d1", domain("bar.com", "s1")),
        ("d2", domain("**.bar.com", "s2")),
        ("d3", domain("foo.bar.com", "s3")),
        ("d4", domain("empty.com", "s4")),
        ("r0", row("*", "s0", "/")),
        ("r1", row("bar.com", "s1", "/")),
        ("r2", row("**.bar.com", "s2", "/")),
        ("r3", row("foo.bar.com", "s3", "/3")),
    ]
}

#[test]
fn a_host_is_of_the_most_specific_section_and_of_no_other() {
    let tables = tables(all());
    for (host, path, expected) in [
        ("bar.com", "/", "r1"),
        ("foo.bar.com", "/3", "r3"),
        // Those of wider sections are for others.
        ("foo.bar.com", "/", "NoRoute"),
        ("empty.com", "/", "NoHost"),
        ("x.bar.com", "/3", "r2"),
        ("y.x.bar.com", "/", "r2"),
        ("foo.com", "/3", "r0"),
        ("BAR.COM", "/", "r1"),
    ] {
        assert_eq!(taken(&tables, host, path), expected, "{host}{path}");
    }
}

#[test]
fn a_host_of_no_section_has_no_routes() {
    let tables = tables(
        all()
            .into_iter()
            .filter(|(name, _)| *name != "d0")
            .collect(),
    );
    assert_eq!(taken(&tables, "foo.com", "/"), "NoHost");
    assert_eq!(taken(&tables, "bar.com", "/"), "r1");
}

#[test]
fn what_a_listener_has_of_its_own_goes_before_sections_that_are_no_more_specific() {
    let mut values = all();
    values.push(("u*", row("*", PORT, "/")));
    values.push(("u3", row("foo.bar.com", PORT, "/")));
    values.push(("ux", row("x.bar.com", PORT, "/")));
    values.push(("u4", row("**.com", PORT, "/")));
    let tables = tables(values);
    for (host, expected) in [
        ("foo.com", "u4"),
        ("foo.org", "u*"),
        ("foo.bar.com", "u3"),
        ("x.bar.com", "ux"),
        ("y.bar.com", "r2"),
        ("bar.com", "r1"),
        // A section has its hosts even where it has no row for them.
        ("empty.com", "NoHost"),
    ] {
        assert_eq!(taken(&tables, host, "/"), expected, "{host}");
        let patterns = tables.routes_for(&PORT.into(), host);
        assert_eq!(patterns.is_none(), expected == "NoHost", "{host}");
    }
}

#[test]
fn sections_of_other_listeners_are_no_concern() {
    let mut values = all();
    let mut foreign = domain("bar.com", "s9");
    if let Value::Domain(foreign) = &mut foreign {
        foreign.listeners = ["other".into()].into();
    }
    values.retain(|(name, _)| *name != "d1");
    values.push(("d9", foreign));
    values.push(("r9", row("bar.com", "s9", "/")));
    assert_eq!(taken(&tables(values), "bar.com", "/"), "r0");
}

#[test]
fn streams_are_of_sections_as_requests_are() {
    let tables = tables(vec![
        ("d1", domain("**.example", "s1")),
        ("d2", domain("b.example", "s2")),
        ("p1", stream_row("a.example", "s1")),
        ("p3", stream_row("b.example", "s1")),
        ("p4", stream_row("d.test", "s1")),
        ("u", stream_row("**.example", PORT)),
    ]);
    for (name, expected) in [
        ("a.example", "p1"),
        // TLS ends there for a section of its own.
        ("b.example", "-"),
        ("c.example", "u"),
        // Nobody has said that it is a host of the section.
        ("d.test", "-"),
    ] {
        assert_eq!(streamed(&tables, name), expected, "{name}");
    }
}

#[test]
fn of_equal_hosts_that_of_no_section_answers_and_one_for_every_host_whoever_names_none() {
    let listener = Listener {
        address: ([127, 0, 0, 1], 0).into(),
        tls: true,
        default_certificate: None,
        protocol: ListenerProtocol::Http,
        capture: None,
    };
    let certificate = Certificate {
        chain: [bytes::Bytes::from_static(b"x")].into(),
        key: PrivateKey::new(KeyEncoding::Sec1, bytes::Bytes::new()),
    };
    let mut values = vec![
        (PORT, Value::Listener(Box::new(listener))),
        ("certificate", Value::Certificate(Box::new(certificate))),
        ("a", domain("a.example", "s1")),
        ("b", domain("a.example", "-")),
    ];
    let answerer = |tables: &Tables, name: Option<&str>| match tables.answerer(&PORT.into(), name) {
        Answerer::Domain(domain, ..) => format!("{} {:?}", domain.host, domain.section),
        Answerer::Listener(_) => "listener".into(),
        Answerer::Nobody => "nobody".into(),
    };
    let before = tables(values.clone());
    assert_eq!(answerer(&before, Some("a.example")), "a.example None");
    assert_eq!(answerer(&before, None), "nobody");
    values.push(("c", domain("*", "s2")));
    let after = tables(values);
    let every = format!("* {:?}", Some(Name::from("s2")));
    assert_eq!(answerer(&after, None), every);
    assert_eq!(answerer(&after, Some("other.example")), every);
}

#[test]
fn sections_are_counted_as_domains_come_and_go() {
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let all = changes(vec![
        ("d1", domain("bar.com", "s1")),
        ("d2", domain("foo.com", "s2")),
        ("d3", domain("foo.com", "-")),
    ]);
    let mut counts = Vec::new();
    for is_coming in [true, false] {
        for change in &all {
            let (old, new) = match is_coming {
                true => (None, change.new.as_ref()),
                false => (change.new.as_ref(), None),
            };
            let mut edit = Edit::new(&mut tables, &mut targets);
            edit.change(old, new).unwrap();
            edit.finish();
            counts.push(tables.has_sections());
        }
    }
    assert_eq!(counts, [true, true, true, true, false, false]);
}

#[test]
fn handshakes_are_handed_on_at_the_listeners_whose_sections_do() {
    let with_stream_route = |section: &str, terminate: bool| {
        let mut value = stream_row("a.example", section);
        if let Value::StreamRoute(stream_route) = &mut value {
            stream_route.terminate = terminate;
        }
        value
    };
    let mut elsewhere = domain("b.example", "s1");
    if let Value::Domain(domain) = &mut elsewhere {
        domain.listeners = ["other".into()].into();
    }
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut at_both = |value: &Value, is_coming: bool| {
        let change = &changes(vec![("one", value.clone())])[0];
        let (old, new) = match is_coming {
            true => (None, change.new.as_ref()),
            false => (change.new.as_ref(), None),
        };
        let mut edit = Edit::new(&mut tables, &mut targets);
        edit.change(old, new).unwrap();
        edit.finish();
        [PORT, "other"].map(|listener| tables.hands_handshakes_on(&listener.into()))
    };
    let (first, second) = (domain("a.example", "s1"), domain("c.example", "s1"));
    let (passing, ended) = (
        with_stream_route("s1", false),
        with_stream_route("s1", true),
    );
    let own = with_stream_route(PORT, false);
    let steps = [
        // A section of no listener, as far as is known.
        (&passing, true, [false, false]),
        (&first, true, [true, false]),
        (&second, true, [true, false]),
        (&elsewhere, true, [true, true]),
        (&first, false, [true, true]),
        (&second, false, [false, true]),
        (&passing, true, [false, true]),
        (&passing, false, [false, true]),
        (&passing, false, [false, false]),
        (&ended, true, [false, false]),
        (&own, true, [true, false]),
        (&own, false, [false, false]),
        (&passing, true, [false, true]),
        (&elsewhere, false, [false, false]),
    ];
    for (number, (value, is_coming, expected)) in steps.into_iter().enumerate() {
        assert_eq!(at_both(value, is_coming), expected, "step {number}");
    }
}

#[test]
fn a_section_that_changes_hands_costs_the_same_however_many_domains_it_has() {
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut copied = Vec::new();
    for count in [1, 1_000] {
        for number in 0..count {
            let host = format!("d{number}.of{count}.example");
            let domain = changes(vec![(&*host, domain(&host, "s1"))]);
            let mut edit = Edit::new(&mut tables, &mut targets);
            edit.change(None, domain[0].new.as_ref()).unwrap();
            edit.finish();
        }
        let stream_route = changes(vec![("p", stream_row("a.example", "s1"))]);
        let held = tables.clone();
        let before = tables.nodes_copied();
        let mut edit = Edit::new(&mut tables, &mut targets);
        edit.change(None, stream_route[0].new.as_ref()).unwrap();
        edit.finish();
        copied.push(tables.nodes_copied() - before);
        drop(held);
        let mut edit = Edit::new(&mut tables, &mut targets);
        edit.change(stream_route[0].new.as_ref(), None).unwrap();
        edit.finish();
    }
    // The entries of a host, of the section and of its listener.
    assert!(copied.iter().all(|count| *count <= 8), "{copied:?}");
}
