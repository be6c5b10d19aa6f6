use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use myriad_model::{
    Delta, Domain, Form, Host, Name, Origin, Resource, Sealer, StreamRoute, TlsSettings, Value,
    Writer,
};

use super::Arrival;
use crate::route::edit::Edit;
use crate::route::tables::Tables;
use crate::upstream::endpoint::EndpointTable;

fn stream_route(hosts: &[&str], edit: impl FnOnce(&mut StreamRoute)) -> Value {
    let mut stream_route = StreamRoute {
        listeners: [Name::from("https")].into(),
        hosts: hosts
            .iter()
            .map(|host| Host::parse(host).unwrap())
            .collect(),
        sources: Box::default(),
        destinations: Box::default(),
        rank: 1,
        behind: 0,
        terminate: false,
        upstreams: Box::default(),
        idle_timeout: Duration::ZERO,
        connect_timeout: Duration::from_secs(1),
    };
    edit(&mut stream_route);
    Value::StreamRoute(Box::new(stream_route))
}

fn domain(host: &str) -> Value {
    Value::Domain(Box::new(Domain {
        listeners: [Name::from("https")].into(),
        host: Host::parse(host).unwrap(),
        certificate: None,
        tls: Arc::new(TlsSettings::default()),
        alternatives: Box::default(),
        client_auth: None,
        mesh: false,
        section: None,
        by_name: false,
    }))
}

fn tables(values: Vec<(&str, Value)>) -> Tables {
    let mut writer = Writer::new(Sealer::new([3; 32], Form::Value));
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut delta = Delta::default();
    for (name, value) in values {
        let resource = Resource {
            origin: Origin::settings(),
            value,
        };
        writer.replace(&[], vec![(Name::from(name), resource)], &mut delta);
    }
    let mut edit = Edit::new(&mut tables, &mut targets);
    for change in delta.changes() {
        edit.change(change.old.as_ref(), change.new.as_ref())
            .unwrap();
    }
    edit.finish();
    tables
}

fn found(tables: &Tables, listener: &str, name: Option<&str>, is_terminated: bool) -> String {
    from(tables, listener, name, is_terminated, [192, 0, 2, 9].into())
}

fn from(
    tables: &Tables,
    listener: &str,
    name: Option<&str>,
    is_terminated: bool,
    client: IpAddr,
) -> String {
    let arrival = Arrival {
        listener: &Name::from(listener),
        client,
        own: Some([192, 0, 2, 1].into()),
        is_terminated,
    };
    let entry = tables.stream_route(arrival, name);
    entry.map_or("-".into(), |entry| entry.sealed().name().to_string())
}

#[test]
fn the_more_specific_of_stream_route_and_domain_wins_and_of_equals_the_stream_route() {
    let tables = tables(vec![
        ("exact", stream_route(&["a.example"], |_| {})),
        ("wild", stream_route(&["**.example"], |_| {})),
        ("a.example", domain("a.example")),
        ("b.example", domain("b.example")),
        ("**.example", domain("**.example")),
    ]);
    let at = |name| found(&tables, "https", Some(name), false);
    assert_eq!(at("a.example"), "exact");
    assert_eq!(at("b.example"), "-");
    assert_eq!(at("c.example"), "wild");
    assert_eq!(at("c.test"), "-");
    assert_eq!(found(&tables, "other", Some("a.example"), false), "-");
    assert_eq!(found(&tables, "https", Some("a.example"), true), "-");
}

#[test]
fn one_for_all_connections_comes_last() {
    let tables = tables(vec![
        ("all", stream_route(&[], |_| {})),
        ("named", stream_route(&["a.example"], |_| {})),
        ("b.example", domain("b.example")),
    ]);
    assert_eq!(found(&tables, "https", None, false), "all");
    assert_eq!(found(&tables, "https", Some("a.example"), false), "named");
    assert_eq!(found(&tables, "https", Some("b.example"), false), "-");
    assert_eq!(found(&tables, "https", Some("c.example"), false), "all");
}

#[test]
fn rank_decides_then_addresses_and_a_mapped_address_is_its_own() {
    let near = |it: &mut StreamRoute| {
        it.sources = ["10.0.0.0/8".parse().unwrap()].into();
        it.rank = 0;
    };
    let elsewhere = |it: &mut StreamRoute| {
        it.destinations = ["198.51.100.0/24".parse().unwrap()].into();
        it.rank = 0;
    };
    let tables = tables(vec![
        ("far", stream_route(&["a.example"], |_| {})),
        ("near", stream_route(&["a.example"], near)),
        ("elsewhere", stream_route(&["a.example"], elsewhere)),
    ]);
    let at = |client: &str| {
        let client = client.parse().unwrap();
        from(&tables, "https", Some("a.example"), false, client)
    };
    assert_eq!(at("10.1.2.3"), "near");
    assert_eq!(at("::ffff:10.1.2.3"), "near");
    assert_eq!(at("192.0.2.9"), "far");
}

#[test]
fn a_name_that_stands_behind_leaves_connections_to_addresses_of_a_lower_rank() {
    let at = |rank: u64, block: &str| {
        let block: IpNet = block.parse().unwrap();
        stream_route(&[], move |it| {
            it.destinations = [block].into();
            it.rank = rank;
        })
    };
    let named = |behind: u64| {
        stream_route(&["a.example"], move |it| {
            it.rank = 9;
            it.behind = behind;
        })
    };
    // One without addresses is for whatever is left, however low its rank is.
    let all = || stream_route(&[], |it| it.rank = 0);
    // Connections are to 192.0.2.1.
    for (behind, rank, block, taken_by) in [
        (0, 4, "192.0.2.0/24", "named"),
        (5, 4, "192.0.2.0/24", "addressed"),
        (5, 5, "192.0.2.0/24", "named"),
        (5, 4, "192.0.2.2/32", "named"),
    ] {
        let tables = tables(vec![
            ("named", named(behind)),
            ("addressed", at(rank, block)),
            ("all", all()),
        ]);
        let taker = found(&tables, "https", Some("a.example"), false);
        assert_eq!(taker, taken_by, "{behind} {rank} {block}");
        assert_eq!(found(&tables, "other", Some("a.example"), false), "-");
    }
}

#[test]
fn many_addresses_are_sorted_once_and_none_stands_within_another() {
    let range = |text: String| text.parse::<IpNet>().unwrap();
    let many = (0..9_000).map(|it| format!("10.{}.{}.0/25", it / 256, it % 256));
    let broad = ["10.0.0.0/8".to_owned(), "2001:db8::/32".to_owned()];
    let destinations: Vec<IpNet> = many.chain(broad).map(range).collect();
    let value = stream_route(&["a.example"], |it| it.destinations = destinations.into());
    let tables = tables(vec![("many", value)]);
    let listener = Name::from("https");
    let arrival = |own: &str| Arrival {
        listener: &listener,
        client: [192, 0, 2, 9].into(),
        own: Some(own.parse().unwrap()),
        is_terminated: false,
    };
    for (own, is_found) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8::1", true),
        ("11.0.0.0", false),
    ] {
        let found = tables.stream_route(arrival(own), Some("a.example"));
        assert_eq!(found.is_some(), is_found, "{own}");
        let lists = found.map(|entry| entry.destinations.len());
        assert_eq!(lists.unwrap_or(2), 2);
    }
}

#[test]
fn stream_routes_on_other_listeners_are_not_visited() {
    let https = Name::from("https");
    let names: Vec<String> = (0..1_000).map(|it| format!("r{it}")).collect();
    for count in [3, 1_000] {
        let strangers = names.iter().take(count).enumerate();
        let strangers = strangers.map(|(number, name)| {
            let value = stream_route(&["a.example"], |it| {
                it.listeners = [Name::from(&*format!("x{}", number % 64))].into();
                it.rank = 0;
            });
            (&**name, value)
        });
        let own = ("own", stream_route(&["a.example"], |_| {}));
        let tables = tables(strangers.chain([own]).collect());
        assert_eq!(found(&tables, "https", Some("a.example"), false), "own");
        assert_eq!(found(&tables, "https", Some("a.example"), true), "-");
        assert_eq!(found(&tables, "x1", Some("a.example"), false), "r1");
        assert_eq!(found(&tables, "x99", Some("a.example"), false), "-");
        let host = Host::parse("a.example").unwrap();
        let entry = tables.stream_routes.get(&host).unwrap();
        let visited = entry.parting.as_ref().map(|parting| {
            let parts = parting.on(&https);
            parts.map(|part| part.len()).sum::<usize>()
        });
        assert_eq!(visited, (count > 8).then_some(1));
    }
}
