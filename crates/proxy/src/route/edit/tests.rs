use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_model::{
    AccessCheck, AccessPolicy, Action, Authenticate, Balancer, Certificate, ChallengeAnswer,
    ChallengeForm, Change, CheckProtocol, Delta, Domain, Draft, Endpoint, Endpoints, Form,
    HashBalancer, HashSource, HashTable, Host, Key, KeyEncoding, Kind, Label, Listener,
    ListenerProtocol, LocalityRule, LocalityShares, Name, Origin, PathMatch, PrivateKey, Protocol,
    Provider, Redirect, RedirectTarget, Resource, Route, SealedArc, Sealer, StreamRoute, Telemetry,
    TlsSettings, Trust, Upstream, UpstreamOptions, Users, Value, Writer, divide,
};
use proptest::prelude::*;

use super::{Edit, EditError, EndpointTable, Splitting};
use crate::balance::locality::Locality;
use crate::random::rng::Rng;
use crate::route::tables::{Tables, upstream_hash};

/// A resource of few possible names and contents, so that changes meet.
#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    name: u8,
    /// None takes it out.
    content: Option<u8>,
}

const HOSTS: [&str; 5] = ["a.example", "b.example", "*.example", "**.example", "*"];

fn value(kind: Kind, content: u8) -> Value {
    let host = |shift: u8| Host::parse(HOSTS[usize::from(content + shift) % HOSTS.len()]).unwrap();
    let listeners: Arc<[Name]> = [Name::from("https")].into();
    match kind {
        Kind::Listener => Value::Listener(Box::new(Listener {
            address: ([127, 0, 0, 1], u16::from(content)).into(),
            tls: true,
            default_certificate: None,
            protocol: ListenerProtocol::Http,
            capture: None,
        })),
        Kind::Domain => Value::Domain(Box::new(Domain {
            listeners,
            host: host(0),
            certificate: Some("n0".into()),
            alternatives: Box::default(),
            tls: Arc::new(TlsSettings::default()),
            client_auth: None,
            mesh: false,
            section: None,
            by_name: false,
        })),
        Kind::Certificate => Value::Certificate(Box::new(Certificate {
            chain: [Bytes::from(vec![content])].into(),
            key: PrivateKey::new(KeyEncoding::Sec1, Bytes::new()),
        })),
        Kind::Trust => Value::Trust(Box::new(Trust {
            roots: [Bytes::from(vec![content])].into(),
            crls: Box::default(),
            users: Users::default(),
        })),
        Kind::Route => route_value(content, listeners, [host(0), host(1)]),
        Kind::StreamRoute => Value::StreamRoute(Box::new(StreamRoute {
            listeners,
            hosts: match content % 4 {
                0 => Box::default(),
                _ => [host(0)].into(),
            },
            sources: Box::default(),
            destinations: Box::default(),
            rank: u64::from(content % 3),
            behind: 0,
            terminate: false,
            upstreams: Box::default(),
            idle_timeout: Duration::ZERO,
            connect_timeout: Duration::from_secs(1),
        })),
        Kind::Upstream => Value::Upstream(Box::new(Upstream::plain(
            [Protocol::Http1, Protocol::Https1][usize::from(content % 2)],
        ))),
        Kind::Endpoints => Value::Endpoints(Box::new(Endpoints::new(
            (0..content % 4)
                .map(|last| Endpoint::even(([192, 0, 2, last], 80).into()))
                .collect(),
        ))),
        Kind::AccessPolicy => access_policy(content),
        Kind::Provider => provider(content),
        Kind::Telemetry => telemetry(content),
        Kind::ChallengeAnswer => challenge_answer(content),
        Kind::Newer(_) => unreachable!("no value is of a newer kind"),
    }
}

/// A route of two hosts, or a block of it and another one.
fn route_value(content: u8, listeners: Arc<[Name]>, mut hosts: [Host; 2]) -> Value {
    hosts.sort();
    let route = Route {
        listeners,
        hosts: hosts.into(),
        path: PathMatch::Prefix(format!("/{content}").into()),
        conditions: Box::default(),
        rank: u64::from(content % 3),
        action: Action::Forward(Arc::default()),
        policy: Arc::default(),
    };
    match content % 4 {
        3 => block(route),
        _ => Value::Route(Box::new(route)),
    }
}

/// A block of a route and another one on its hosts.
fn block(route: Route) -> Value {
    let other = Route {
        path: PathMatch::Prefix("/both".into()),
        ..route.clone()
    };
    let drafts = [other, route].map(|route| Draft {
        origin: Origin::settings(),
        label: Label::Path("prefix".into()),
        rule: 0,
        matched: 0,
        route,
    });
    let (_, resource) = divide("n/", &Origin::settings(), drafts.into()).remove(0);
    resource.value
}

fn challenge_answer(content: u8) -> Value {
    Value::ChallengeAnswer(Box::new(ChallengeAnswer {
        host: Host::parse("c.example").unwrap(),
        form: match content % 2 {
            0 => ChallengeForm::Http,
            _ => ChallengeForm::TlsAlpn,
        },
        token: format!("t{}", content / 4).into(),
        text: format!("t.{content}").into(),
    }))
}

fn telemetry(content: u8) -> Value {
    Value::Telemetry(Box::new(Telemetry {
        logs: content.is_multiple_of(2).then(Box::default),
        ..Telemetry::default()
    }))
}

fn provider(content: u8) -> Value {
    Value::Provider(Box::new(Provider {
        upstream: Name::from("u"),
        protocol: CheckProtocol::Grpc,
        timeout: Duration::from_secs(u64::from(content) + 1),
        fail_open: false,
        error_status: 403,
        reroutes: false,
        body: None,
        authority: "check".into(),
        told: Box::default(),
    }))
}

fn access_policy(content: u8) -> Value {
    Value::AccessPolicy(Box::new(AccessPolicy {
        listeners: [Name::from(&*content.to_string())].into(),
        check: AccessCheck::Authenticate(Authenticate {
            issuers: Box::default(),
        }),
    }))
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (
        0..Kind::ALL.len(),
        0_u8..5,
        prop::option::weighted(0.7, 0_u8..8),
    )
        .prop_map(|(kind, name, content)| Step {
            kind: Kind::ALL[kind],
            name,
            content,
        });
    prop::collection::vec(prop::collection::vec(step, 1..8), 1..20)
}

fn changes(writer: &mut Writer, resources: &BTreeMap<(Kind, u8), Option<u8>>) -> Vec<Change> {
    let mut delta = Delta::default();
    for ((kind, name), content) in resources {
        let name = Name::from(&*format!("n{name}"));
        match content {
            Some(content) => {
                let resource = Resource {
                    origin: Origin::settings(),
                    value: value(*kind, *content),
                };
                writer.replace(&[], vec![(name, resource)], &mut delta);
            }
            None => {
                writer.replace(&[Key::new(*kind, name)], Vec::new(), &mut delta);
            }
        }
    }
    delta.changes().to_vec()
}

fn apply(tables: &mut Tables, targets: &mut EndpointTable, changes: &[Change]) {
    let mut edit = Edit::new(tables, targets);
    for change in changes {
        edit.change(change.old.as_ref(), change.new.as_ref())
            .unwrap();
    }
    edit.finish();
}

fn writer() -> Writer {
    Writer::new(Sealer::new([3; 32], Form::Value))
}

proptest! {
    #[test]
    fn any_sequence_of_commits_ends_in_the_tables_of_its_last_resources(batches in steps()) {
        let mut writer_of_steps = writer();
        let mut tables = Tables::default();
        let mut targets = EndpointTable::new();
        let mut last = BTreeMap::new();
        for batch in &batches {
            let commit: BTreeMap<(Kind, u8), Option<u8>> = batch
                .iter()
                .map(|step| ((step.kind, step.name), step.content))
                .collect();
            let before = tables.clone();
            let lines_before = before.describe();
            let changes = changes(&mut writer_of_steps, &commit);
            apply(&mut tables, &mut targets, &changes);
            // Whoever holds the tables from before still sees what they were.
            prop_assert_eq!(before.describe(), lines_before);
            last.extend(commit);
        }
        let mut fresh = Tables::default();
        let mut fresh_targets = EndpointTable::new();
        let all = changes(&mut writer(), &last);
        apply(&mut fresh, &mut fresh_targets, &all);
        prop_assert_eq!(tables.describe(), fresh.describe());
        prop_assert_eq!(targets.len(), fresh_targets.len());
    }
}

#[test]
fn one_more_domain_copies_as_many_nodes_as_the_tables_are_deep() {
    let mut writer = writer();
    let mut tables = Tables::default();
    let mut targets = EndpointTable::new();
    let mut add = |tables: &mut Tables, number: usize| {
        let host = format!("d{number}.example");
        let domain = Value::Domain(Box::new(Domain {
            listeners: [Name::from("https")].into(),
            host: Host::parse(&host).unwrap(),
            certificate: Some("c".into()),
            tls: Arc::default(),
            alternatives: Box::default(),
            client_auth: None,
            mesh: false,
            section: None,
            by_name: false,
        }));
        let resource = Resource {
            origin: Origin::settings(),
            value: domain,
        };
        let mut delta = Delta::default();
        let changes = writer.replace(&[], vec![(Name::from(&*host), resource)], &mut delta);
        apply(tables, &mut targets, changes);
    };
    for number in 0..20_000 {
        add(&mut tables, number);
    }
    let mut most = 0;
    for number in 20_000..20_200 {
        let held = tables.clone();
        let before = tables.nodes_copied();
        add(&mut tables, number);
        most = most.max(tables.nodes_copied() - before);
        drop(held);
    }
    // 16^4 > 20,000, and a path may end one deeper.
    assert!(most <= 6, "{most} nodes were copied");
}

/// The last numbers of an upstream's addresses, and the ids of their targets.
fn members(tables: &Tables) -> Vec<(u8, u64)> {
    let name = Name::from("u");
    let entry = tables.upstream(upstream_hash(&name), &name).unwrap();
    let members = entry.pool.members();
    let members = members.map(|member| match member.target.address.ip() {
        IpAddr::V4(ip) => (ip.octets()[3], member.target.id),
        IpAddr::V6(_) => panic!("an address of version 4"),
    });
    members.collect()
}

#[test]
fn the_endpoints_of_an_upstream_are_those_of_all_its_parts() {
    let part = |numbers: std::ops::Range<u8>| {
        let endpoints = numbers.map(|last| Endpoint::even(([192, 0, 2, last], 80).into()));
        Value::Endpoints(Box::new(Endpoints {
            is_part: true,
            ..Endpoints::new(endpoints.collect())
        }))
    };
    let names = ["u", "u", "u#7"].map(Name::from);
    let kinds = [Kind::Upstream, Kind::Endpoints, Kind::Endpoints];
    let former = std::array::from_fn::<_, 3, _>(|at| Key::new(kinds[at], names[at].clone()));
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut writer = writer();
    let mut put = |tables: &mut Tables, values: Vec<Value>| {
        let outputs = names.iter().zip(values).map(|(name, value)| {
            let origin = Origin::settings();
            (name.clone(), Resource { origin, value })
        });
        let mut delta = Delta::default();
        let changes = writer.replace(&former, outputs.collect(), &mut delta);
        apply(tables, &mut targets, changes);
        targets.len()
    };
    let upstream = || Value::Upstream(Box::new(Upstream::plain(Protocol::Http1)));
    // An address that moves between parts is in both for a while.
    assert_eq!(
        put(&mut tables, vec![upstream(), part(0..3), part(2..5)]),
        5
    );
    let first = members(&tables);
    assert_eq!(
        first.iter().map(|it| it.0).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    assert_eq!(
        put(&mut tables, vec![upstream(), part(0..3), part(4..5)]),
        4
    );
    let second = members(&tables);
    assert!(
        second.iter().all(|member| first.contains(member)),
        "{second:?}"
    );
    assert_eq!(put(&mut tables, vec![upstream(), part(0..3)]), 3);
    assert_eq!(put(&mut tables, vec![upstream()]), 0);
}

/// The parts of 5,000 endpoints of one upstream, of which one may differ.
fn many(change: impl Fn(u32, &mut Endpoint)) -> Vec<(Name, Endpoints)> {
    let endpoint = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        let mut endpoint = Endpoint::even(([10, a, b, c], 80).into());
        change(number, &mut endpoint);
        endpoint
    };
    let mut endpoints: Vec<Endpoint> = (0..5_000).map(endpoint).collect();
    endpoints.sort_by_key(|endpoint| endpoint.address);
    Endpoints::new(endpoints.into()).divide("u")
}

fn unchanged() -> Vec<(Name, Endpoints)> {
    many(|_, _| {})
}

/// One endpoint has another weight.
fn heavier() -> Vec<(Name, Endpoints)> {
    many(|number, endpoint| {
        if number == 2_500 {
            endpoint.weight = 2;
        }
    })
}

/// One endpoint has another address, behind all others.
fn moved() -> Vec<(Name, Endpoints)> {
    many(|number, endpoint| {
        if number == 2_500 {
            endpoint.address = ([10, 200, 0, 0], 80).into();
        }
    })
}

/// How many endpoints are in parts that were not there before.
fn in_other_parts(before: &[(Name, Endpoints)], after: &[(Name, Endpoints)]) -> u64 {
    let other = after.iter().filter(|part| !before.contains(part));
    other.map(|(_, part)| part.endpoints.len() as u64).sum()
}

/// An upstream with many endpoints, in tables.
struct Large {
    tables: Tables,
    targets: EndpointTable,
    writer: Writer,
    former: Vec<Key>,
    options: UpstreamOptions,
}

impl Large {
    fn new(balancer: Balancer) -> Self {
        let options = UpstreamOptions {
            balancer,
            ..UpstreamOptions::default()
        };
        Large {
            tables: Tables::default(),
            targets: EndpointTable::new(),
            writer: writer(),
            former: Vec::new(),
            options,
        }
    }

    /// How many targets are looked up for these parts, and how many endpoints weighed.
    fn put(&mut self, parts: Vec<(Name, Endpoints)>) -> (u64, u64) {
        let upstream = Value::Upstream(Box::new(Upstream {
            options: Some(Box::new(self.options.clone())),
            ..Upstream::plain(Protocol::Http1)
        }));
        let parts = parts.into_iter();
        let parts = parts.map(|(name, part)| (name, Value::Endpoints(Box::new(part))));
        let outputs = std::iter::once((Name::from("u"), upstream)).chain(parts);
        let outputs = outputs.map(|(name, value)| {
            let origin = Origin::settings();
            (name, Resource { origin, value })
        });
        let outputs: Vec<(Name, Resource)> = outputs.collect();
        let keys = outputs.iter();
        let keys = keys.map(|(name, it)| Key::new(it.value.kind(), name.clone()));
        let former = std::mem::replace(&mut self.former, keys.collect());
        let mut delta = Delta::default();
        let changes = self.writer.replace(&former, outputs, &mut delta);
        let before = (self.targets.acquired(), self.targets.weighed());
        apply(&mut self.tables, &mut self.targets, changes);
        let after = (self.targets.acquired(), self.targets.weighed());
        (after.0 - before.0, after.1 - before.1)
    }
}

#[test]
fn one_endpoint_of_five_thousand_that_changes_costs_its_part() {
    const PART_MAX: u64 = Endpoints::PART_MAX as u64;
    for balancer in [
        Balancer::LeastRequest,
        Balancer::RoundRobin,
        Balancer::Random,
    ] {
        let mut large = Large::new(balancer);
        assert_eq!(large.put(unchanged()), (5_000, 5_000));
        let part = in_other_parts(&unchanged(), &heavier());
        assert!((1..=PART_MAX).contains(&part), "{part}");
        assert_eq!(large.put(heavier()), (part, part));
        assert_eq!(large.put(unchanged()), (part, part));
        // One that moves leaves its part, and now and then two that become one or one two.
        let parts = in_other_parts(&unchanged(), &moved());
        assert!((1..=4 * PART_MAX).contains(&parts), "{parts}");
        assert_eq!(large.put(moved()), (parts, parts));
        assert_eq!(large.targets.len(), 5_000);
        assert_eq!(large.put(moved()), (0, 0));
        // What concerns all of them is another matter.
        large.options.limits.retries_max += 1;
        assert_eq!(large.put(moved()), (5_000, 5_000));
        assert_eq!(large.put(Vec::new()), (0, 0));
        assert_eq!(large.targets.len(), 0);
    }
}

#[test]
fn a_table_of_hashes_is_made_of_all_endpoints_whichever_of_them_changes() {
    let table = HashTable::Maglev(65_537);
    let mut large = Large::new(Balancer::Hash(Box::new(HashBalancer {
        source: HashSource::SourceIp,
        parts: Box::default(),
        table,
    })));
    assert_eq!(large.put(unchanged()), (5_000, 10_000));
    let part = in_other_parts(&unchanged(), &heavier());
    assert_eq!(large.put(heavier()), (part, part + 5_000));
}

#[test]
fn the_endpoints_of_five_thousand_are_there_by_address_whatever_changed() {
    let mut large = Large::new(Balancer::default());
    large.put(moved());
    large.put(unchanged());
    let name = Name::from("u");
    let entry = large.tables.upstream(upstream_hash(&name), &name).unwrap();
    let members = entry.pool.members().map(|member| member.target.address);
    let listed = unchanged();
    let mut listed: Vec<_> = listed.iter().flat_map(|(_, it)| &it.endpoints).collect();
    listed.sort_by_key(|endpoint| endpoint.address);
    assert!(members.eq(listed.iter().map(|endpoint| endpoint.address)));
}

#[test]
fn shares_of_localities_hold_for_endpoints_in_many_parts() {
    let mut large = Large::new(Balancer::Random);
    large.targets = EndpointTable::seen_from(Locality::parse("eu/a"));
    let shares = LocalityShares {
        from: "eu/*".into(),
        to: [("eu/a".into(), 75), ("eu/b".into(), 25)].into(),
    };
    large.options.locality = Some(Box::new(LocalityRule::Shares([shares].into())));
    let endpoint = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        Endpoint {
            locality: [1, 2, 0, 0][number as usize % 4],
            ..Endpoint::even(([10, a, b, c], 80).into())
        }
    };
    let endpoints = Endpoints {
        localities: ["eu/a", "eu/b"].map(Box::from).into(),
        ..Endpoints::new((0..5_000).map(endpoint).collect())
    };
    assert_eq!(large.put(endpoints.divide("u")), (2_500, 2_500));
    let name = Name::from("u");
    let entry = large.tables.upstream(upstream_hash(&name), &name).unwrap();
    assert_eq!(entry.pool.len(), 2_500);
    let dice = Rng::new(7);
    let is_near = |_: &u32| match entry.pool.pick(&dice, None).unwrap().address.ip() {
        IpAddr::V4(ip) => ip.octets()[3] % 4 == 0,
        IpAddr::V6(_) => panic!("an address of version 4"),
    };
    let near = (0..10_000_u32).filter(is_near).count();
    assert!((7_300..7_700).contains(&near), "{near}");
    large.put(Vec::new());
    assert_eq!(large.targets.len(), 0);
}

#[test]
fn a_route_that_could_split_a_response_leaves_the_one_before_in_place() {
    let sealed = |uri: &str, is_block: bool| {
        let Value::Route(mut route) = value(Kind::Route, 0) else {
            panic!("not a route")
        };
        route.action = Action::Redirect(Arc::new(Redirect {
            status: 301,
            target: RedirectTarget::Path(uri.into()),
        }));
        let resource = Resource {
            origin: Origin::settings(),
            value: match is_block {
                true => block(*route),
                false => Value::Route(route),
            },
        };
        let mut delta = Delta::default();
        let changes = writer().replace(&[], vec![(Name::from("n0"), resource)], &mut delta);
        changes[0].new.clone().unwrap()
    };
    for is_block in [false, true] {
        let split = sealed("/x\r\nSet-Cookie: a=b", is_block);
        check_split(&sealed("/x", is_block), &split);
    }
}

fn check_split(fine: &SealedArc, split: &SealedArc) {
    let (mut tables, mut targets) = (Tables::default(), EndpointTable::new());
    let mut edit = Edit::new(&mut tables, &mut targets);
    edit.change(None, Some(fine)).unwrap();
    edit.finish();
    let before = tables.describe();
    let mut edit = Edit::new(&mut tables, &mut targets);
    let taken = edit.change(Some(fine), Some(split));
    assert_eq!(taken, Err(EditError::Text(Splitting("location"))));
    edit.finish();
    assert_eq!(tables.describe(), before);
}
