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
        let visited = entry.partings.as_ref().map(|partings| {
            let parts = partings.iter().flat_map(|parting| parting.on(&https));
            parts.map(|part| part.len()).sum::<usize>()
        });
        assert_eq!(visited, (count > 8).then_some(1));
    }
}

#[test]
fn stream_routes_behind_one_for_all_or_of_the_other_kind_are_not_visited() {
    let https = Name::from("https");
    let names: Vec<String> = (0..100).map(|it| format!("r{it:03}")).collect();
    let many = |hosts: &'static [&'static str]| {
        names.iter().map(move |name| {
            let value = stream_route(hosts, |it| it.terminate = true);
            (&**name, value)
        })
    };
    let block = |it: &mut StreamRoute| {
        it.destinations = ["198.51.100.0/24".parse().unwrap()].into();
        it.rank = 2;
    };
    let plain = ("plain", stream_route(&[], |it| it.rank = 3));
    let block = ("block", stream_route(&[], block));
    let of_listener = tables(many(&[]).chain([plain, block]).collect());
    assert_eq!(found(&of_listener, "https", None, true), "r000");
    assert_eq!(found(&of_listener, "https", None, false), "plain");
    let all = of_listener.of_listener(&https).unwrap();
    assert_eq!(all.stream_routes().len(), 102);
    assert_eq!(all.reachable.each_ref().map(|it| it.rows.len()), [2, 1]);
    assert_eq!(all.addressed.rows.len(), 1);

    let plain = ("plain", stream_route(&["a.example"], |it| it.rank = 3));
    let of_host = tables(many(&["a.example"]).chain([plain]).collect());
    for (is_terminated, name) in [(true, "r000"), (false, "plain")] {
        let taker = found(&of_host, "https", Some("a.example"), is_terminated);
        assert_eq!(taker, name);
    }
    let host = Host::parse("a.example").unwrap();
    let entry = of_host.stream_routes.get(&host).unwrap();
    let [plain, _] = &**entry.partings.as_ref().unwrap();
    let numbers: usize = plain.on(&https).map(|part| part.len()).sum();
    assert_eq!(numbers, 1);
}

#[test]
fn of_parts_on_a_listener_the_first_row_that_takes_is_found() {
    let near = |rank: u64, block: &str, lists: &[&str]| {
        let block: IpNet = block.parse().unwrap();
        let lists = lists.iter().map(|name| Name::from(*name)).collect();
        stream_route(&["a.example"], move |it| {
            it.sources = [block].into();
            it.listeners = lists;
            it.rank = rank;
        })
    };
    let mut values = vec![
        ("r0", near(0, "10.0.0.0/8", &["https"])),
        ("r1", near(1, "11.0.0.0/8", &["https", "x"])),
        ("r2", near(2, "12.0.0.0/8", &["https", "y"])),
        ("r3", near(3, "192.0.2.0/24", &["https", "x"])),
        ("r4", near(4, "192.0.2.0/24", &["https"])),
        ("r5", near(5, "0.0.0.0/0", &["https", "z"])),
    ];
    let more = ["s0", "s1", "s2", "s3"].map(|name| (name, near(9, "0.0.0.0/0", &["z"])));
    values.extend(more);
    let tables = tables(values);
    for (client, name) in [
        ([10, 0, 0, 1], "r0"),
        ([11, 0, 0, 1], "r1"),
        ([12, 0, 0, 1], "r2"),
        ([192, 0, 2, 9], "r3"),
        ([13, 0, 0, 1], "r5"),
    ] {
        let taker = from(&tables, "https", Some("a.example"), false, client.into());
        assert_eq!(taker, name);
    }
}

#[test]
fn stream_routes_for_single_addresses_are_found_by_these() {
    const COUNT: u16 = 1_000;
    let address = |number: u16| {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    };
    let names: Vec<String> = (0..COUNT).map(|it| format!("r{it:04}")).collect();
    let to = |ranges: &[&str], rank: u64| {
        let ranges = ranges.iter().map(|range| range.parse().unwrap());
        let ranges: Vec<IpNet> = ranges.collect();
        stream_route(&[], |it| {
            it.destinations = ranges.into();
            it.rank = rank;
        })
    };
    let singles = (0..COUNT).zip(&names).map(|(number, name)| {
        let range = IpNet::from(address(number)).to_string();
        (&**name, to(&[range.as_str()], 5))
    });
    let others = [
        ("first", to(&["10.0.0.7/32", "2001:db8::/32"], 1)),
        ("block", to(&["10.0.1.0/24"], 4)),
        ("again", to(&["10.0.0.8/32"], 6)),
        ("rest", to(&["10.0.0.0/8"], 7)),
        ("named", {
            let named = |it: &mut StreamRoute| it.behind = 6;
            stream_route(&["a.example"], named)
        }),
    ];
    let tables = tables(singles.chain(others).collect());
    let all = tables.of_listener(&Name::from("https")).unwrap();
    for rows in [&all.reachable[0], &all.addressed] {
        assert_eq!((rows.rows.len(), rows.others.len()), (1_004, 3));
        assert_eq!(rows.singles.len(), 1_001);
    }
    let found = |own: Option<IpAddr>, name: Option<&str>| {
        let arrival = Arrival {
            listener: &Name::from("https"),
            client: [192, 0, 2, 9].into(),
            own,
            is_terminated: false,
        };
        let entry = tables.stream_route(arrival, name);
        entry.map_or("-".into(), |entry| entry.sealed().name().to_string())
    };
    for (own, any, named) in [
        ("10.0.0.6", "r0006", "r0006"),
        ("10.0.0.7", "first", "first"),
        ("10.0.0.8", "r0008", "r0008"),
        ("10.0.1.1", "block", "block"),
        ("10.9.9.9", "rest", "named"),
        ("::ffff:10.0.0.9", "r0009", "r0009"),
        ("2001:db8::1", "first", "first"),
        ("192.0.2.1", "-", "named"),
    ] {
        let own = Some(own.parse().unwrap());
        assert_eq!(found(own, None), any, "{own:?}");
        assert_eq!(found(own, Some("a.example")), named, "{own:?}");
    }
    assert_eq!(found(None, None), "-");
}
