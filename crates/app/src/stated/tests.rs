use std::sync::Arc;

use myriad_api::gateway::ParentReference;
use myriad_api::gateway::status::{
    Deployment, GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectCondition, ParentStatus,
    RouteStatus, State, Status,
};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_translate::Difference;

use super::{StatedChange, StatedChanges, StatedStatuses};
use crate::dedicated::{DEDICATED_OF_NAMESPACE_MAX, DedicatedGateways, view_of};
use crate::live::ProxyGroup;

fn accepted() -> ObjectCondition {
    ObjectCondition::holds(ObjectCondition::ACCEPTED, "Accepted")
}

fn gateway(name: &str, is_dedicated: bool, attached: u32) -> Status {
    let deployment = Deployment {
        ports: Box::default(),
        labels: Box::default(),
        annotations: Box::default(),
        scaling: None,
    };
    let listener = ListenerStatus {
        name: "http".into(),
        supported_kinds: ["HTTPRoute"].into(),
        attached_routes: attached,
        conditions: [accepted()].into(),
    };
    Status {
        object: ObjectKey::new(ObjectKind::Gateway, "edge", name),
        generation: 1,
        state: State::Gateway(GatewayStatus {
            conditions: [accepted()].into(),
            listeners: [listener].into(),
            attached_listener_sets: 0,
            addresses: Box::default(),
            deployment: is_dedicated.then(|| Box::new(deployment)),
        }),
    }
}

fn set(gateway: &str) -> Status {
    Status {
        object: ObjectKey::new(ObjectKind::ListenerSet, "shop", "set"),
        generation: 1,
        state: State::ListenerSet(ListenerSetStatus {
            conditions: [accepted()].into(),
            listeners: Box::default(),
            gateway: gateway.into(),
        }),
    }
}

fn parent(
    (group, kind): (Option<&str>, Option<&str>),
    namespace: Option<&str>,
    name: &str,
) -> ParentReference {
    ParentReference {
        group: group.map(Into::into),
        kind: kind.map(Into::into),
        namespace: namespace.map(Into::into),
        name: name.into(),
        section_name: None,
        port: None,
    }
}

fn route(generation: i64, parents: Vec<(ParentReference, ObjectCondition)>) -> Status {
    let parents = parents.into_iter().map(|(parent, condition)| ParentStatus {
        parent,
        conditions: [condition].into(),
    });
    Status {
        object: ObjectKey::new(ObjectKind::HttpRoute, "shop", "r"),
        generation,
        state: State::Route(RouteStatus {
            parents: parents.collect(),
        }),
    }
}

/// Where Gateways have proxies of their own that want them.
fn stated() -> StatedStatuses {
    StatedStatuses::new(Some(DedicatedGateways::default()))
}

/// Tells of statuses that came, and of those that they replace or that went.
fn tell(stated: &StatedStatuses, added: &[&Status], removed: &[&Status]) -> Vec<StatedChange> {
    tell_all(stated, added, removed).objects
}

fn tell_all(stated: &StatedStatuses, added: &[&Status], removed: &[&Status]) -> StatedChanges {
    let shared = |all: &[&Status]| all.iter().map(|&it| Arc::new(it.clone())).collect();
    stated.change(&Difference {
        added: shared(added),
        removed: shared(removed),
    })
}

fn own(name: &str) -> ProxyGroup {
    ProxyGroup::Own(format!("gateway/edge/{name}").into())
}

#[test]
fn a_route_waits_for_the_proxies_of_each_parent_that_accepts_it() {
    let stated = stated();
    let mine = gateway("mine", true, 0);
    let to_edge = |name: &str| parent((None, None), Some("edge"), name);
    let to_set = parent((None, Some("ListenerSet")), None, "set");
    let to_service = parent((Some(""), Some("Service")), None, "cart");
    let refused = ObjectCondition::fails(ObjectCondition::ACCEPTED, "NotAllowedByListeners", "no");
    let parents = vec![
        (to_edge("ours"), accepted()),
        (to_edge("mine"), accepted()),
        (to_edge("mine"), refused),
        (to_set, accepted()),
        (to_service, accepted()),
        (to_edge("unknown"), accepted()),
        (parent((Some("example.com"), None), None, "x"), accepted()),
    ];
    let route = route(1, parents);
    // The route comes first, and its Gateways in the same batch.
    let changes = tell(
        &stated,
        &[&route, &set("edge/mine"), &gateway("ours", false, 0), &mine],
        &[],
    );
    let beside = ProxyGroup::Beside("shop".into());
    let groups = vec![
        Some(ProxyGroup::Shared),
        Some(own("mine")),
        None,
        Some(own("mine")),
        Some(beside.clone()),
        None,
        None,
    ];
    assert_eq!(stated.groups(&route), groups);
    let awaits = vec![ProxyGroup::Shared, own("mine"), beside];
    assert_eq!(changes[0].awaits, Some(awaits));
    assert_eq!(changes[1].awaits, Some(vec![own("mine")]));
    let dedicated: Vec<bool> = changes.iter().map(|it| it.is_dedicated).collect();
    assert_eq!(dedicated, [false, false, false, true]);
}

#[test]
fn words_and_counts_are_no_reason_to_wait_and_turned_conditions_are() {
    let stated = StatedStatuses::default();
    let awaits = |new: &Status, former: &[&Status]| {
        let changes = tell(&stated, &[new], former);
        assert_eq!(changes.len(), 1, "one change of one object: {changes:?}");
        changes[0].awaits.clone()
    };
    let shared = Some(vec![ProxyGroup::Shared]);
    let first = gateway("g", false, 0);
    assert_eq!(awaits(&first, &[]), shared);
    let second = gateway("g", false, 1);
    assert_eq!(awaits(&second, &[&first]), None);
    let turned = Status {
        generation: 2,
        ..gateway("g", false, 1)
    };
    assert_eq!(awaits(&turned, &[&second]), shared);
    let to_gateway = || parent((None, None), Some("edge"), "g");
    let refused = |message: &str| {
        let kind = ObjectCondition::ACCEPTED;
        let condition = ObjectCondition::fails(kind, "NotAllowedByListeners", message);
        route(1, vec![(to_gateway(), condition)])
    };
    let (one, other) = (refused("one"), refused("other"));
    assert_eq!(awaits(&one, &[]), Some(Vec::new()));
    assert_eq!(awaits(&other, &[&one]), None);
    let taken = route(1, vec![(to_gateway(), accepted())]);
    assert_eq!(awaits(&taken, &[&other]), shared);
}

#[test]
fn what_is_gone_is_told_once_and_its_view_goes_with_it() {
    let stated = stated();
    let mine = gateway("mine", true, 0);
    let changes = tell_all(&stated, &[&mine], &[]);
    assert_eq!(changes.objects[0].awaits, Some(vec![own("mine")]));
    assert_eq!(changes.views, [view_of("edge/mine")]);
    assert!(stated.has_view("edge/mine"));
    let shared = gateway("mine", false, 0);
    let changes = tell_all(&stated, &[&shared], &[&mine]);
    assert!(changes.objects.len() == 1 && changes.objects[0].is_dedicated);
    assert_eq!(changes.objects[0].awaits, Some(vec![ProxyGroup::Shared]));
    assert_eq!(
        (changes.views, changes.gone),
        (vec![], vec![view_of("edge/mine").name])
    );
    let changes = tell(&stated, &[], &[&shared]);
    assert_eq!((changes.len(), changes[0].is_gone), (1, true));
    assert_eq!(stated.get(&shared.object), None);
    assert_eq!(tell(&stated, &[], &[&shared]), []);
}

#[test]
fn a_gateway_without_proxies_of_its_own_is_served_by_nobody() {
    let without = StatedStatuses::default();
    let mine = gateway("mine", true, 0);
    let changes = tell_all(&without, &[&mine], &[]);
    assert_eq!(
        (changes.views, &changes.objects[0].awaits),
        (vec![], &Some(vec![]))
    );
    assert!(!without.has_view("edge/mine"));
    let stated = stated();
    let many: Vec<Status> = (0..=DEDICATED_OF_NAMESPACE_MAX)
        .map(|number| gateway(&format!("g{number}"), true, 0))
        .collect();
    let added: Vec<&Status> = many.iter().collect();
    let changes = tell_all(&stated, &added, &[]);
    assert_eq!(changes.views.len(), DEDICATED_OF_NAMESPACE_MAX);
    let last = &many[DEDICATED_OF_NAMESPACE_MAX];
    assert_eq!(stated.groups(last), [None]);
    let changes = tell_all(&stated, &[], &[&many[0]]);
    assert_eq!(changes.views, [view_of(last.object.id())]);
    assert!(stated.has_view(last.object.id()));
}

#[test]
fn whoever_asks_is_shown_what_is_wrong_with_each_object() {
    let stated = StatedStatuses::new(None);
    let mut refused = gateway("refused", false, 0);
    let mut unprogrammed = gateway("unprogrammed", false, 0);
    if let State::Gateway(it) = &mut refused.state {
        let kind = ObjectCondition::ACCEPTED;
        it.conditions = [ObjectCondition::fails(kind, "Invalid", "")].into();
    }
    if let State::Gateway(it) = &mut unprogrammed.state {
        let kind = ObjectCondition::PROGRAMMED;
        it.conditions = [accepted(), ObjectCondition::fails(kind, "Invalid", "")].into();
    }
    let all = [
        gateway("good", false, 0),
        refused,
        unprogrammed,
        set("edge/good"),
    ];
    stated.change(&Difference {
        added: all.into_iter().map(Arc::new).collect(),
        removed: Vec::new(),
    });
    let mut shown = Vec::new();
    stated.look_through(|object, is_accepted, is_programmed| {
        shown.push((object.name().to_owned(), is_accepted, is_programmed));
    });
    shown.sort();
    let expected = [
        ("good", true, true),
        ("refused", false, true),
        ("set", true, true),
        ("unprogrammed", true, false),
    ];
    let expected =
        expected.map(|(name, accepted, programmed)| (name.to_owned(), accepted, programmed));
    assert_eq!(shown, expected);
}
