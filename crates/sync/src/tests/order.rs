//! The resources that a proxy serves between the commits of a long difference, at every boundary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_model::{
    Action, Certificate, Change, Domain, Form, Host, Key, KeyEncoding, Kind, Listener,
    ListenerProtocol, Name, PathMatch, Policy, PrivateKey, Route, Sealed, Snapshot, TlsSettings,
    Value, WeightedUpstream,
};

use super::pair::{Pair, Random, World};

/// Enough for several commits each way.
const HOSTS: usize = 2_000;
const PATHS: usize = 3;

/// Which hosts there are, and to which of its upstreams each leads.
type Hosts = BTreeMap<usize, usize>;

fn host(number: usize) -> String {
    format!("h{number}.example")
}

pub(super) fn certificate() -> Value {
    Value::Certificate(Box::new(Certificate {
        chain: [vec![1, 2, 3].into()].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, vec![4; 8].into()),
    }))
}

pub(crate) fn domain(number: usize, listeners: &Arc<[Name]>) -> Value {
    Value::Domain(Box::new(Domain {
        listeners: listeners.clone(),
        host: Host::parse(&host(number)).unwrap(),
        certificate: Some(Name::from(&*format!("ns/c{number}"))),
        alternatives: Box::default(),
        tls: Arc::new(TlsSettings::default()),
        client_auth: None,
        mesh: false,
        section: None,
        by_name: false,
    }))
}

pub(super) fn route(number: usize, path: usize, upstream: &str, listeners: &Arc<[Name]>) -> Value {
    let target = WeightedUpstream {
        upstream: Name::from(upstream),
        weight: 1,
        headers: None,
        filters: None,
    };
    Value::Route(Box::new(Route {
        listeners: listeners.clone(),
        hosts: [Host::parse(&host(number)).unwrap()].into(),
        path: PathMatch::Prefix(format!("/{path}").into()),
        conditions: Box::default(),
        rank: path as u64,
        action: Action::Forward([target].into()),
        policy: Arc::new(Policy::default()),
    }))
}

/// The names of a host's routes; of two Ingresses, so that only the host has them in common.
fn route_name(number: usize, path: usize) -> String {
    format!("ns/i{number}-{}/{}/:/{path}", path % 2, host(number))
}

fn keys(number: usize, upstream: usize) -> Vec<Key> {
    let upstream = format!("ns/u{number}-{upstream}:80");
    let mut keys = vec![
        Key::new(Kind::Endpoints, &*upstream),
        Key::new(Kind::Upstream, &*upstream),
        Key::new(Kind::Certificate, &*format!("ns/c{number}")),
        Key::new(Kind::Domain, &*host(number)),
    ];
    let routes = (0..PATHS).map(|path| Key::new(Kind::Route, &*route_name(number, path)));
    keys.extend(routes);
    keys
}

/// Makes the world have these hosts and no others, and a listener if there are any.
fn write(world: &mut World, old: &Hosts, new: &Hosts) {
    let listeners: Arc<[Name]> = [Name::from("https")].into();
    let kept: BTreeSet<Key> = new.iter().flat_map(|(&it, &to)| keys(it, to)).collect();
    for key in old.iter().flat_map(|(&it, &to)| keys(it, to)) {
        if !kept.contains(&key) {
            world.remove_key(&key);
        }
    }
    for (&number, &to) in new {
        let upstream = format!("ns/u{number}-{to}:80");
        world.put(&upstream, 1);
        world.put_upstream(&upstream);
        world.put_value(&format!("ns/c{number}"), certificate());
        world.put_value(&host(number), domain(number, &listeners));
        for path in 0..PATHS {
            let value = route(number, path, &upstream, &listeners);
            world.put_value(&route_name(number, path), value);
        }
    }
    if new.is_empty() {
        world.remove_key(&Key::new(Kind::Listener, "https"));
    } else {
        let address = ([127, 0, 0, 1], 443).into();
        let listener = Listener {
            address,
            tls: true,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        };
        world.put_value("https", Value::Listener(Box::new(listener)));
    }
}

/// No name leads anywhere but where the old or the new world says, if it leads anywhere.
fn check(held: &Snapshot, is_first: bool) {
    let (mut names, mut routes) = (BTreeSet::new(), BTreeMap::new());
    for sealed in held.iter() {
        names.insert(sealed.key().clone());
        if let Some(route) = sealed.routes().next() {
            *routes
                .entry(route.hosts[0].as_str().to_owned())
                .or_insert(0) += 1;
        }
    }
    for sealed in held.iter() {
        check_references(sealed, &names, &routes);
    }
    for (host, count) in routes {
        assert_eq!(count, PATHS, "{host} has some of its routes");
    }
    let domains = held.count(Kind::Domain);
    assert!(held.count(Kind::Route) >= domains * PATHS);
    if is_first && held.count(Kind::Listener) > 0 {
        assert_eq!(
            domains, HOSTS,
            "bound before all is there, or after something went"
        );
    }
}

fn check_references(sealed: &Sealed, names: &BTreeSet<Key>, routes: &BTreeMap<String, usize>) {
    if let Some(domain) = sealed.domain() {
        let certificate = domain.certificate.clone().unwrap();
        let certificate = Key::new(Kind::Certificate, certificate);
        assert!(names.contains(&certificate), "{certificate}");
        let host = domain.host.as_str();
        assert!(routes.contains_key(host), "{host} answers 404");
    }
    if let Some(Action::Forward(targets)) = sealed.routes().next().map(|route| route.action) {
        for kind in [Kind::Upstream, Kind::Endpoints] {
            let target = Key::new(kind, targets[0].upstream.clone());
            assert!(names.contains(&target), "{target} answers 503");
        }
    }
}

fn travel(world: &mut World, pair: &mut Pair, old: &Hosts, new: &Hosts) {
    write(world, old, new);
    pair.server.update(world.snapshot().clone());
    let is_whole = old.is_empty() || new.is_empty();
    let commits = pair.client_counters.commits.get();
    let mut seen = commits;
    while pair.step() {
        if pair.client_counters.commits.get() > seen {
            seen = pair.client_counters.commits.get();
            check(pair.client.held(), is_whole);
        }
    }
    assert!(seen - commits > 1, "it was to be a long difference");
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
}

#[test]
fn at_no_boundary_of_commits_does_a_name_lead_to_less_than_it_should() {
    for seed in 0..3 {
        eprintln!("MYRIAD_SEED={seed}");
        let mut random = Random::new(seed);
        let mut world = World::new(Form::Encoded);
        let mut pair = Pair::connect(&world, Snapshot::new());
        let mut old = Hosts::new();
        let all: Hosts = (0..HOSTS).map(|number| (number, 0)).collect();
        let mut worlds = vec![all.clone()];
        for _ in 0..2 {
            let some = (0..HOSTS).filter(|_| random.below(3) > 0);
            let some: Vec<usize> = some.collect();
            worlds.push(some.into_iter().map(|it| (it, random.below(2))).collect());
        }
        worlds.extend([all, Hosts::new()]);
        for new in worlds {
            travel(&mut world, &mut pair, &old, &new);
            old = new;
        }
        assert!(pair.client.held().is_empty());
    }
}

#[test]
fn a_host_of_more_routes_than_a_commit_holds_is_cut_and_arrives() {
    let mut world = World::new(Form::Encoded);
    let listeners: Arc<[Name]> = [Name::from("https")].into();
    for path in 0..10_000 {
        world.put_value(&route_name(1, path), route(1, path, "ns/u:80", &listeners));
    }
    for path in 0..PATHS {
        world.put_value(&route_name(2, path), route(2, path, "ns/u:80", &listeners));
    }
    let mut pair = Pair::connect(&world, Snapshot::new());
    pair.settle();
    assert_eq!(pair.client.held().digest(), world.snapshot().digest());
    let is_second = |(key, _): &(Key, bool)| key.group() == host(2);
    let at: Vec<usize> = (0..pair.applied.len())
        .filter(|at| is_second(&pair.applied[*at]))
        .collect();
    assert_eq!(at.len(), PATHS);
    assert_eq!(at[PATHS - 1] - at[0], PATHS - 1, "{at:?}");
}

#[test]
fn an_order_that_forgets_a_kind_would_be_noticed() {
    let mut world = World::new(Form::Encoded);
    write(&mut world, &Hosts::new(), &[(1, 0)].into());
    let full = world.snapshot();
    for key in keys(1, 0) {
        let sealed = full.iter().find(|it| *it.key() == key).unwrap().clone();
        let mut lacking = open(full);
        lacking.apply(&Change {
            key: key.clone(),
            old: Some(sealed),
            new: None,
        });
        let is_noticed = std::panic::catch_unwind(|| check(&lacking, false)).is_err();
        assert_eq!(is_noticed, key.kind != Kind::Domain, "without {key}");
    }
}

/// The snapshot as a proxy holds it.
fn open(snapshot: &Snapshot) -> Snapshot {
    let mut pair = Pair::connect(&World::new(Form::Encoded), Snapshot::new());
    pair.server.update(snapshot.clone());
    pair.settle();
    pair.client.held().clone()
}
