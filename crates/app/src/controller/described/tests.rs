use std::sync::Arc;
use std::sync::atomic::Ordering;

use myriad_api::gateway::ParentReference;
use myriad_api::gateway::status::{
    ClassStatus, Deployment, GatewayStatus, ObjectCondition, ParentStatus, RouteStatus, State,
    Status, WantedAddress,
};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_model::{Digest, Key, Position, Version};
use myriad_source::kubernetes::status::Address;
use myriad_source::kubernetes::status::described::{Describe, Description};
use myriad_source::kubernetes::status::ours::{OwnCondition, OwnForm, OwnStatus};
use myriad_translate::Difference;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Described, Peers};
use crate::controller::deployments::Installations;
use crate::controller::published::Published;
use crate::dedicated::DedicatedGateways;
use crate::live::{Live, Newcomer, Speaker};
use crate::stated::{Revisions, StatedStatuses};

fn described() -> (Described, watch::Sender<Published>) {
    let (addresses, shared) = watch::channel(Published::default());
    let described = Described {
        stated: StatedStatuses::new(Some(DedicatedGateways::default())),
        live: Live::new(&Metrics::new()),
        peers: Peers::default(),
        shared: Some(shared),
        installed: Some(Installations::default()),
        is_live: Arc::default(),
    };
    described.is_live.store(true, Ordering::Relaxed);
    (described, addresses)
}

fn ip(text: &str) -> Address {
    Address::Ip(text.parse().unwrap())
}

fn holds(kind: &'static str) -> ObjectCondition {
    ObjectCondition::holds(kind, kind)
}

fn gateway(is_dedicated: bool, addresses: &[&str]) -> Status {
    let deployment = Deployment {
        ports: Box::default(),
        labels: Box::default(),
        annotations: Box::default(),
        scaling: None,
    };
    let addresses = addresses.iter().map(|value| WantedAddress {
        kind: "IPAddress".into(),
        value: (*value).into(),
    });
    Status {
        object: ObjectKey::new(ObjectKind::Gateway, "edge", "g"),
        generation: 3,
        state: State::Gateway(GatewayStatus {
            conditions: ["Accepted", "Programmed"].map(holds).into(),
            listeners: Box::default(),
            attached_listener_sets: 2,
            addresses: addresses.collect(),
            deployment: is_dedicated.then(|| Box::new(deployment)),
        }),
    }
}

fn route(conditions: &[ObjectCondition]) -> Status {
    let parent = ParentReference {
        group: None,
        kind: None,
        namespace: Some("edge".into()),
        name: "g".into(),
        section_name: None,
        port: None,
    };
    Status {
        object: ObjectKey::new(ObjectKind::HttpRoute, "shop", "r"),
        generation: 7,
        state: State::Route(RouteStatus {
            parents: [ParentStatus {
                parent,
                conditions: conditions.into(),
            }]
            .into(),
        }),
    }
}

fn state(described: &Described, status: &Status) {
    described.stated.change(&Difference {
        added: vec![Arc::new(status.clone())],
        removed: Vec::new(),
    });
}

/// The form of an object's status, and its generation.
fn form(described: &Described, status: &Status) -> (i64, OwnForm) {
    match described.describe(&status.object) {
        Description::Shown(shown) => (shown.generation, shown.form),
        other => panic!("{other:?}"),
    }
}

fn words(conditions: &[OwnCondition]) -> Vec<(&str, &str, &str)> {
    let word = |it: &OwnCondition| (it.kind, it.status, it.reason);
    conditions.iter().map(word).collect()
}

/// The conditions of a Gateway, and its addresses; none where those stay that it shows.
fn of_gateway(described: &Described, status: &Status) -> (Vec<OwnCondition>, Option<Value>) {
    let (generation, form) = form(described, status);
    let OwnForm::Whole {
        conditions, fields, ..
    } = form
    else {
        panic!("a list");
    };
    assert_eq!(generation, status.generation);
    let addresses = fields.iter().find(|(name, _)| *name == "addresses");
    (conditions, addresses.map(|(_, shown)| shown.clone()))
}

/// Lets proxies of the operator serve the newest commit.
fn connect(live: &Live, proxies: u64) {
    let root = Digest::of(1, Version([7; 16]));
    let keys: [Key; 0] = [];
    let roots = vec![(Arc::from("gateway"), root)];
    live.committed(roots, clock::now(), keys.iter(), []);
    for stream in 0..proxies {
        let newcomer = Newcomer {
            subject: "somebody".into(),
            view: "gateway".into(),
            instance: String::new(),
            schema: 1,
            speaker: Speaker::Operator,
        };
        live.connected(stream, newcomer);
        live.acked(stream, root, Position::default());
    }
}

#[test]
fn a_shared_gateway_shows_the_published_addresses_once_they_are_known() {
    let (described, addresses) = described();
    let status = gateway(false, &[]);
    state(&described, &status);
    assert_eq!(described.describe(&status.object), Description::Later);
    addresses.send_replace(Published::Missing);
    let (conditions, shown) = of_gateway(&described, &status);
    let programmed = &conditions[1];
    assert_eq!(
        (programmed.status, programmed.reason, shown),
        ("False", "AddressNotAssigned", None),
        "the Service may have gone before this process came"
    );
    assert!(programmed.message.contains("--publish-service"));
    addresses.send_replace(Published::Found(Arc::default()));
    let (conditions, shown) = of_gateway(&described, &status);
    let expected = [
        ("Accepted", "True", "Accepted"),
        ("Programmed", "False", "AddressNotAssigned"),
        ("myriad.dev/Live", "False", "NoProxies"),
    ];
    assert_eq!(
        (words(&conditions), shown),
        (expected.to_vec(), Some(Value::Null))
    );
    addresses.send_replace(Published::Found([ip("192.0.2.1")].into()));
    connect(&described.live, 2);
    let (conditions, shown) = of_gateway(&described, &status);
    let expected = [
        ("Accepted", "True", "Accepted"),
        ("Programmed", "True", "Programmed"),
        ("myriad.dev/Live", "True", "Served"),
    ];
    assert_eq!(words(&conditions), expected);
    assert!(
        conditions[2]
            .message
            .starts_with("served by all 2 ready proxies since ")
    );
    let expected = json!([{"type": "IPAddress", "value": "192.0.2.1"}]);
    assert_eq!(shown, Some(expected));
    // One that nobody can give keeps it from being programmed.
    let asks = gateway(false, &["192.0.2.9"]);
    state(&described, &asks);
    let (conditions, shown) = of_gateway(&described, &asks);
    assert_eq!(
        (conditions[1].reason, shown),
        ("AddressNotUsable", Some(Value::Null))
    );
}

#[test]
fn a_gateway_with_proxies_of_its_own_says_why_it_has_none() {
    let (mut described, _addresses) = described();
    let status = gateway(true, &[]);
    state(&described, &status);
    assert_eq!(
        described.describe(&status.object),
        Description::Later,
        "nobody has looked"
    );
    described.installed = None;
    let (conditions, _) = of_gateway(&described, &status);
    assert_eq!(
        (conditions[1].status, conditions[1].reason),
        ("False", "NoResources")
    );
    let (without, _addresses) = self::described();
    let without = Described {
        stated: StatedStatuses::default(),
        ..without
    };
    state(&without, &status);
    let (conditions, _) = of_gateway(&without, &status);
    assert!(conditions[1].message.contains("no room"), "{conditions:?}");
    assert_eq!(conditions[2].reason, "NoProxies");
}

#[test]
fn a_route_is_live_at_a_parent_that_accepts_it_once_all_serve_it() {
    let (described, _addresses) = described();
    state(&described, &gateway(false, &[]));
    let accepted = route(&["Accepted", "ResolvedRefs"].map(holds));
    state(&described, &accepted);
    connect(&described.live, 1);
    let live_of = |status: &Status| {
        let (generation, form) = form(&described, status);
        let OwnForm::Listed(entries) = form else {
            panic!("no list");
        };
        assert_eq!((generation, entries.len()), (7, 1));
        let subject = json!({
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "namespace": "edge",
            "name": "g",
        });
        assert_eq!(entries[0].subject, subject);
        let last = entries[0].conditions.last().unwrap().clone();
        assert_eq!(last.kind, "myriad.dev/Live");
        (last.status, last.reason)
    };
    assert_eq!(live_of(&accepted), ("True", "Served"));
    let refused = ObjectCondition::fails("Accepted", "NotAllowedByListeners", "no");
    let refused = route(&[refused]);
    state(&described, &refused);
    assert_eq!(live_of(&refused), ("False", "NotAccepted"));
}

#[tokio::test]
async fn a_route_that_waits_for_proxies_says_so_when_the_last_is_gone() {
    let (described, _addresses) = described();
    state(&described, &gateway(false, &[]));
    let accepted = route(&["Accepted", "ResolvedRefs"].map(holds));
    state(&described, &accepted);
    connect(&described.live, 1);
    let groups = described.stated.groups(&accepted).into_iter().flatten();
    described.live.hold_object(&accepted.object, groups);
    let reason = || {
        let (_, form) = form(&described, &accepted);
        let OwnForm::Listed(entries) = form else {
            panic!("no list");
        };
        entries[0].conditions.last().map(|it| it.reason)
    };
    assert_eq!(reason(), Some("Pending"));
    described.live.gone(0);
    let told = described.live.next_served().await;
    assert!(told.contains(&accepted.object), "{told:?}");
    assert_eq!(reason(), Some("NoProxies"));
}

#[test]
fn a_comparison_leaves_alone_what_an_object_waits_for() {
    let (described, _addresses) = described();
    state(&described, &gateway(false, &[]));
    let status = route(&["Accepted", "ResolvedRefs"].map(holds));
    state(&described, &status);
    let key = &status.object;
    described.stated.note_read(key, &Revisions::default());
    let waits = || (described.live.awaits(key), described.peers.is_waited_for());
    let reason = |description: Description| match description {
        Description::Shown(OwnStatus {
            form: OwnForm::Listed(entries),
            ..
        }) => entries[0].conditions.last().map(|it| it.reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(described.peek(key)), Some("NoProxies"));
    assert_eq!(waits(), (false, false));
    assert_eq!(reason(described.describe(key)), Some("NoProxies"));
    assert_eq!(waits(), (true, true));
    connect(&described.live, 1);
    assert_eq!(reason(described.peek(key)), Some("Served"));
    assert!(waits().1 && described.stated.read_of(key).is_some());
    assert_eq!(reason(described.describe(key)), Some("Served"));
    assert_eq!(waits(), (false, false));
    assert_eq!(described.stated.read_of(key), None);
}

#[test]
fn before_the_first_list_is_complete_nothing_is_taken_back() {
    let (described, _addresses) = described();
    let key = route(&[]).object;
    assert_eq!(described.describe(&key), Description::Nothing);
    described.is_live.store(false, Ordering::Relaxed);
    for said in [described.describe(&key), described.peek(&key)] {
        assert_eq!(said, Description::Later);
    }
}

#[test]
fn what_is_not_stated_is_taken_back_and_a_class_shows_its_features() {
    let (described, _addresses) = described();
    let class = Status {
        object: ObjectKey::new(ObjectKind::GatewayClass, "", "myriad"),
        generation: 1,
        state: State::Class(ClassStatus {
            conditions: [holds("Accepted")].into(),
            supported_features: &["Gateway", "HTTPRoute"],
        }),
    };
    assert_eq!(described.describe(&class.object), Description::Nothing);
    state(&described, &class);
    let (_, form) = form(&described, &class);
    let OwnForm::Whole {
        conditions, fields, ..
    } = form
    else {
        panic!("a list");
    };
    assert_eq!(words(&conditions), [("Accepted", "True", "Accepted")]);
    let features = json!([{"name": "Gateway"}, {"name": "HTTPRoute"}]);
    assert_eq!(fields, [("supportedFeatures", features)]);
}
