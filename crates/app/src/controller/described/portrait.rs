//! Statuses as objects shall show them, made of what translation states and what is known here.

use std::collections::BTreeSet;
use std::time::Duration;

use myriad_api::gateway::status::{ListenerStatus, ObjectCondition};
use myriad_api::gateway::{GROUP, ParentReference};
use myriad_source::kubernetes::second_time;
use myriad_source::kubernetes::status::ours::{OwnCondition, OwnSection};
use serde_json::{Map, Value, json};

use crate::controller::obstacle::Obstacle;
use crate::live::Served;

/// The condition that an object is served as it is.
pub(super) const LIVE: &str = "myriad.dev/Live";

/// The condition that some labels or annotations of a Gateway are not put on what is made for it.
const METADATA_REFUSED: &str = "myriad.dev/MetadataRefused";

/// The types of conditions that we write. Those of other types are somebody else's.
pub(super) const CONDITIONS: &[&str] = &[
    ObjectCondition::ACCEPTED,
    ObjectCondition::PROGRAMMED,
    ObjectCondition::RESOLVED_REFS,
    ObjectCondition::CONFLICTED,
    ObjectCondition::PARTIALLY_INVALID,
    "InsecureFrontendValidationMode",
    "OverlappingTLSConfig",
    LIVE,
    METADATA_REFUSED,
];

/// Whether an object is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LiveWord {
    /// It is not accepted, or its Gateway is not, so that nobody is to serve it.
    Refused,
    /// It is accepted; so many proxies serve it, or not all of them.
    Stated(Served),
    /// A proxy has refused some of it.
    Rejected(String),
}

/// Conditions as translation states them.
pub(super) fn conditions(stated: &[ObjectCondition]) -> Vec<OwnCondition> {
    let own = |it: &ObjectCondition| OwnCondition {
        kind: it.kind,
        status: it.status.as_str(),
        reason: it.reason,
        message: it.message.clone(),
        stays: false,
    };
    stated.iter().map(own).collect()
}

/// The same, where an obstacle keeps a Gateway from being programmed.
pub(super) fn hindered(
    stated: &[ObjectCondition],
    obstacle: Option<&Obstacle>,
) -> Vec<OwnCondition> {
    let mut conditions = conditions(stated);
    if let Some(obstacle) = obstacle {
        let programmed = conditions
            .iter_mut()
            .filter(|it| it.kind == ObjectCondition::PROGRAMMED && it.status == "True");
        for condition in programmed {
            condition.status = "False";
            condition.reason = obstacle.reason;
            condition.message = obstacle.message.as_str().into();
        }
    }
    conditions
}

/// The condition that these labels and annotations of a Gateway are not put on what is made for it;
/// none where all are.
pub(super) fn refused(keys: &BTreeSet<Box<str>>) -> Option<OwnCondition> {
    if keys.is_empty() {
        return None;
    }
    let list: Vec<&str> = keys.iter().map(|key| &**key).collect();
    let message = format!(
        "{}: not put on what is made for the Gateway, since metadata.allow of \
         gatewayApi.deployments has no start of any of them",
        list.join(", ")
    );
    Some(OwnCondition {
        kind: METADATA_REFUSED,
        status: "True",
        reason: "NotAllowed",
        message: message.into(),
        stays: false,
    })
}

/// The condition that an object is live, as of now. Once it says so it stays, however many proxies
/// come and go, until there is a newer generation.
pub(super) fn live(word: &LiveWord, now: Duration) -> OwnCondition {
    let proxies = |count: usize| match count {
        1 => "1 ready proxy".to_owned(),
        count => format!("all {count} ready proxies"),
    };
    let (status, reason, message) = match word {
        LiveWord::Stated(Served::Everywhere { proxies: count }) => {
            let (proxies, since) = (proxies(*count), second_time(now));
            (
                "True",
                "Served",
                format!("served by {proxies} since {since}"),
            )
        }
        LiveWord::Stated(Served::Partly { .. }) => {
            let message = "some ready proxy does not serve this generation yet";
            ("False", "Pending", message.to_owned())
        }
        LiveWord::Stated(Served::Nowhere) => {
            let message = "no proxy is ready that would serve it";
            ("False", "NoProxies", message.to_owned())
        }
        LiveWord::Refused => {
            let message = "it is not accepted, so that no proxy is told of it";
            ("False", "NotAccepted", message.to_owned())
        }
        LiveWord::Rejected(refusal) => ("False", "Refused", refusal.clone()),
    };
    OwnCondition {
        kind: LIVE,
        status,
        reason,
        message: message.into(),
        stays: status == "True",
    }
}

/// Listeners as a status shows them.
pub(super) fn sections(listeners: &[ListenerStatus]) -> Vec<OwnSection> {
    let section = |it: &ListenerStatus| {
        let kinds = it.supported_kinds.iter();
        let kinds: Vec<Value> = kinds
            .map(|kind| json!({"group": GROUP, "kind": kind}))
            .collect();
        OwnSection {
            fields: Map::from_iter([
                ("name".to_owned(), Value::from(&*it.name)),
                ("supportedKinds".to_owned(), kinds.into()),
                ("attachedRoutes".to_owned(), it.attached_routes.into()),
            ]),
            conditions: conditions(&it.conditions),
        }
    };
    listeners.iter().map(section).collect()
}

/// A reference as it is written, with the group and the kind that the API server fills in.
pub(super) fn reference(parent: &ParentReference) -> Value {
    let mut reference = json!({
        "group": parent.group(),
        "kind": parent.kind(),
        "name": &*parent.name,
    });
    let texts = [
        ("namespace", &parent.namespace),
        ("sectionName", &parent.section_name),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            reference[field] = Value::from(&**text);
        }
    }
    if let Some(port) = parent.port {
        reference["port"] = port.into();
    }
    reference
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_api::gateway::ParentReference;
    use myriad_api::gateway::status::{ListenerStatus, ObjectCondition};
    use serde_json::json;

    use super::{
        BTreeSet, CONDITIONS, LIVE, LiveWord, Obstacle, hindered, live, reference, refused,
        sections,
    };
    use crate::live::Served;

    #[test]
    fn a_reference_shows_what_is_written_and_the_defaults_of_the_api() {
        let mut parent = ParentReference {
            group: None,
            kind: None,
            namespace: None,
            name: "g".into(),
            section_name: None,
            port: None,
        };
        let bare = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"});
        assert_eq!(reference(&parent), bare);
        parent.group = Some("".into());
        parent.kind = Some("Service".into());
        parent.namespace = Some("shop".into());
        parent.section_name = Some("s".into());
        parent.port = Some(80);
        let whole = json!({
            "group": "",
            "kind": "Service",
            "namespace": "shop",
            "name": "g",
            "sectionName": "s",
            "port": 80,
        });
        assert_eq!(reference(&parent), whole);
    }

    #[test]
    fn an_obstacle_turns_what_is_programmed_and_nothing_else() {
        let accepted = ObjectCondition::holds(ObjectCondition::ACCEPTED, "Accepted");
        let programmed = ObjectCondition::holds(ObjectCondition::PROGRAMMED, "Programmed");
        let obstacle = Obstacle::new("AddressNotAssigned", "none");
        let turned = hindered(&[accepted.clone(), programmed], Some(&obstacle));
        let words: Vec<_> = turned.iter().map(|it| (it.status, it.reason)).collect();
        assert_eq!(
            words,
            [("True", "Accepted"), ("False", "AddressNotAssigned")]
        );
        let invalid = ObjectCondition::fails(ObjectCondition::PROGRAMMED, "Invalid", "x");
        let kept = hindered(&[accepted, invalid], Some(&obstacle));
        assert_eq!((kept[1].status, kept[1].reason), ("False", "Invalid"));
    }

    #[test]
    fn labels_and_annotations_that_are_left_out_are_named() {
        let keys = ["b.example/x", "a.example/y"].map(Box::<str>::from);
        let told = refused(&keys.into()).unwrap();
        assert_eq!((told.status, told.reason), ("True", "NotAllowed"));
        assert!(
            told.message
                .starts_with("a.example/y, b.example/x: not put")
        );
        assert!(CONDITIONS.contains(&told.kind));
        assert_eq!(refused(&BTreeSet::new()), None);
    }

    #[test]
    fn live_says_how_many_serve_it_and_since_when_or_why_not() {
        let now = Duration::from_secs(1_795_240_800);
        let word = |served| live(&LiveWord::Stated(served), now);
        let served = word(Served::Everywhere { proxies: 3 });
        assert_eq!(
            (served.kind, served.status, served.stays),
            (LIVE, "True", true)
        );
        let message = "served by all 3 ready proxies since 2026-11-21T06:00:00Z";
        assert_eq!(&*served.message, message);
        assert!(
            word(Served::Everywhere { proxies: 1 })
                .message
                .starts_with("served by 1 ready")
        );
        let reasons = [
            word(Served::Nowhere),
            word(Served::Partly { proxies: 3 }),
            live(&LiveWord::Refused, now),
            live(&LiveWord::Rejected("too new".to_owned()), now),
        ];
        let reasons = reasons.map(|it| (it.status, it.reason, it.stays));
        let expected = ["NoProxies", "Pending", "NotAccepted", "Refused"];
        assert_eq!(reasons, expected.map(|reason| ("False", reason, false)));
        assert!(CONDITIONS.contains(&LIVE));
    }

    #[test]
    fn a_listener_shows_its_kinds_with_their_group() {
        let listener = ListenerStatus {
            name: "http".into(),
            supported_kinds: ["HTTPRoute", "GRPCRoute"].into(),
            attached_routes: 7,
            conditions: Box::default(),
        };
        let sections = sections(&[listener]);
        let group = "gateway.networking.k8s.io";
        let expected = json!({
            "name": "http",
            "supportedKinds": [
                {"group": group, "kind": "HTTPRoute"},
                {"group": group, "kind": "GRPCRoute"},
            ],
            "attachedRoutes": 7,
        });
        assert_eq!(json!(sections[0].fields), expected);
    }
}
