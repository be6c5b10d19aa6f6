use myriad_api::ObjectKind;
use serde_json::{Value, json};

use super::{
    CONDITIONS_MAX, MESSAGE_BYTES_MAX, OwnCondition, OwnEntry, OwnForm, OwnSection, OwnStatus,
    StatusOwner, difference,
};

const CONDITIONS: &[&str] = &["Accepted", "Programmed", "ResolvedRefs", "myriad.dev/Live"];

fn owner() -> StatusOwner {
    StatusOwner {
        controller: "myriad.dev/gateway-controller".into(),
        manager: "myriad-edge".into(),
        conditions: CONDITIONS,
    }
}

fn condition(kind: &'static str, status: &'static str) -> OwnCondition {
    OwnCondition {
        kind,
        status,
        reason: "Because",
        message: "a test says so".into(),
        stays: false,
    }
}

fn shown(kind: &str, status: &str, generation: i64, time: &str) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": "Because",
        "message": "a test says so",
        "observedGeneration": generation,
        "lastTransitionTime": time,
    })
}

/// An entry that a route has of a controller, about the Gateway `g`.
fn entry(controller: &str, conditions: &[Value]) -> Value {
    json!({
        "controllerName": controller,
        "parentRef": {"name": "g"},
        "conditions": conditions,
    })
}

fn ours(conditions: &[Value]) -> Value {
    entry("myriad.dev/gateway-controller", conditions)
}

fn route(generation: i64, conditions: Vec<OwnCondition>) -> OwnStatus {
    let entry = OwnEntry {
        subject: json!({"name": "g"}),
        conditions,
    };
    OwnStatus {
        generation,
        form: OwnForm::Listed(vec![entry]),
    }
}

/// The parents of a route that shows these, once it shows what is wanted; none where it does.
fn parents(shown: Value, generation: i64, wanted: Option<&OwnStatus>) -> Option<Value> {
    let read = json!({
        "metadata": {"generation": generation},
        "status": {"parents": shown},
    });
    let patch = difference(ObjectKind::HttpRoute, &read, wanted, (&owner(), "now"))?;
    Some(patch["parents"].clone())
}

fn gateway(conditions: Vec<OwnCondition>, sections: Option<Vec<OwnSection>>) -> OwnStatus {
    OwnStatus {
        generation: 3,
        form: OwnForm::Whole {
            conditions,
            fields: vec![("addresses", json!([{"value": "192.0.2.1"}]))],
            sections,
        },
    }
}

fn of_gateway(status: &Value, wanted: Option<&OwnStatus>) -> Option<Value> {
    let read = json!({"metadata": {"generation": 3}, "status": status});
    difference(ObjectKind::Gateway, &read, wanted, (&owner(), "now"))
}

#[test]
fn entries_of_others_stay_where_they_are_and_ours_are_replaced() {
    let (a, c) = (
        entry("a", &[]),
        entry("c", &[shown("Accepted", "True", 1, "1")]),
    );
    let before = ours(&[shown("Accepted", "False", 1, "3")]);
    let after = ours(&[shown("Accepted", "True", 2, "now")]);
    let wanted = route(2, vec![condition("Accepted", "True")]);
    let list = json!([a, before, c, before]);
    assert_eq!(
        parents(list.clone(), 2, Some(&wanted)),
        Some(json!([a, after, c]))
    );
    assert_eq!(parents(list, 2, None), Some(json!([a, c])));
    assert_eq!(
        parents(json!([a, c]), 2, Some(&wanted)),
        Some(json!([a, c, after]))
    );
    assert_eq!(
        parents(json!([a, c]), 2, None),
        None,
        "nothing of it is ours"
    );
    assert_eq!(parents(Value::Null, 2, None), None);
}

#[test]
fn what_says_the_same_keeps_its_time_and_is_not_written() {
    let since = |generation, status| ours(&[shown("Accepted", status, generation, "then")]);
    let wanted = route(2, vec![condition("Accepted", "True")]);
    assert_eq!(parents(json!([since(2, "True")]), 2, Some(&wanted)), None);
    // A new generation is written, and holds since then; another status since now.
    let written = parents(json!([since(1, "True")]), 2, Some(&wanted));
    assert_eq!(written, Some(json!([since(2, "True")])));
    let written = parents(json!([since(2, "False")]), 2, Some(&wanted));
    assert_eq!(
        written,
        Some(json!([ours(&[shown("Accepted", "True", 2, "now")])]))
    );
}

#[test]
fn a_word_about_another_generation_is_not_written() {
    let wanted = route(2, vec![condition("Accepted", "True")]);
    assert_eq!(
        parents(json!([]), 3, Some(&wanted)),
        None,
        "a newer one will come"
    );
    assert_eq!(
        parents(json!([]), 1, Some(&wanted)),
        None,
        "it was made anew"
    );
    assert!(parents(json!([]), 2, Some(&wanted)).is_some());
}

#[test]
fn a_list_that_others_have_filled_takes_as_many_of_ours_as_there_is_room_for() {
    let others: Vec<Value> = (0..31).map(|it| entry(&format!("c{it}"), &[])).collect();
    let mut wanted = route(2, vec![condition("Accepted", "True")]);
    if let OwnForm::Listed(entries) = &mut wanted.form {
        let second = OwnEntry {
            subject: json!({"name": "h"}),
            conditions: vec![condition("Accepted", "True")],
        };
        let empty = OwnEntry {
            subject: json!({"name": "none"}),
            conditions: Vec::new(),
        };
        entries.insert(0, empty);
        entries.push(second);
    }
    let merged = parents(others.clone().into(), 2, Some(&wanted)).expect("a difference");
    let merged = merged.as_array().expect("a list").clone();
    assert_eq!(merged.len(), 32);
    assert_eq!(merged[31]["parentRef"]["name"], "g");
    assert_eq!(merged[..31], others);
    let full: Vec<Value> = (0..32).map(|it| entry(&format!("c{it}"), &[])).collect();
    assert_eq!(parents(full.into(), 2, Some(&wanted)), None);
}

#[test]
fn a_condition_that_stays_is_not_replaced_while_it_is_of_this_generation() {
    let live = |status| OwnCondition {
        stays: true,
        ..condition("myriad.dev/Live", status)
    };
    let mut other = shown("myriad.dev/Live", "True", 2, "then");
    other["message"] = "by another leader".into();
    let list = json!([ours(&[other])]);
    assert_eq!(
        parents(list.clone(), 2, Some(&route(2, vec![live("True")]))),
        None
    );
    let newer = parents(list.clone(), 3, Some(&route(3, vec![live("True")])));
    let newer = newer.expect("a difference");
    assert_eq!(newer[0]["conditions"][0]["message"], "a test says so");
    assert_eq!(newer[0]["conditions"][0]["lastTransitionTime"], "then");
    let lost = parents(list, 2, Some(&route(2, vec![live("False")])));
    assert_eq!(
        lost.expect("a difference")[0]["conditions"][0]["status"],
        "False"
    );
}

#[test]
fn conditions_of_others_stay_and_ours_that_are_not_stated_any_more_go() {
    let foreign = json!({"type": "example.com/Seen", "status": "True"});
    let status = json!({
        "conditions": [
            shown("ResolvedRefs", "False", 3, "then"),
            foreign,
            shown("Accepted", "Unknown", 0, "1970"),
        ],
        "addresses": [{"value": "192.0.2.1"}],
    });
    let accepted = vec![
        condition("Accepted", "True"),
        condition("Programmed", "True"),
    ];
    let patch = of_gateway(&status, Some(&gateway(accepted, None))).expect("a difference");
    let expected = json!({"conditions": [
        foreign,
        shown("Accepted", "True", 3, "now"),
        shown("Programmed", "True", 3, "now"),
    ]});
    assert_eq!(patch, expected, "and the addresses are right");
    let seven: Vec<Value> = (0..7)
        .map(|it| json!({"type": format!("x/{it}")}))
        .collect();
    let accepted = vec![
        condition("Accepted", "True"),
        condition("Programmed", "True"),
    ];
    let patch = of_gateway(
        &json!({"conditions": seven}),
        Some(&gateway(accepted, None)),
    );
    let patch = patch.expect("a difference");
    let conditions = patch["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), CONDITIONS_MAX);
    assert_eq!(
        conditions[7]["type"], "Accepted",
        "the last of ours is left out"
    );
}

#[test]
fn listeners_keep_the_times_of_their_conditions_and_go_with_their_names() {
    let section = |name: &str, attached: u32| {
        let fields = json!({"name": name, "attachedRoutes": attached, "supportedKinds": []});
        OwnSection {
            fields: fields.as_object().expect("an object").clone(),
            conditions: vec![condition("Accepted", "True")],
        }
    };
    let listener = |name: &str, attached: u32, since: &str| {
        json!({
            "name": name,
            "attachedRoutes": attached,
            "supportedKinds": [],
            "conditions": [shown("Accepted", "True", 3, since)],
        })
    };
    let addresses = json!([{"value": "192.0.2.1"}]);
    let status = json!({
        "addresses": addresses,
        "listeners": [listener("gone", 9, "then"), listener("a", 1, "then")],
    });
    let wanted = gateway(Vec::new(), Some(vec![section("a", 2), section("b", 0)]));
    let patch = of_gateway(&status, Some(&wanted)).expect("a difference");
    let expected = json!([listener("a", 2, "then"), listener("b", 0, "now")]);
    assert_eq!(patch, json!({"listeners": expected}));
    let right = json!({"addresses": addresses, "listeners": expected});
    assert_eq!(of_gateway(&right, Some(&wanted)), None);
}

#[test]
fn what_is_given_up_is_taken_from_nobody_else() {
    let conditions = json!([
        shown("Accepted", "True", 3, "then"),
        shown("Programmed", "True", 3, "then"),
        shown("ResolvedRefs", "True", 3, "then"),
        shown("myriad.dev/Live", "True", 3, "then"),
        {"type": "Ready", "status": "True"},
    ]);
    let managed = |manager: &str, fields: Value| {
        let fields = json!({ "f:status": fields });
        json!({"manager": manager, "subresource": "status", "fieldsV1": fields})
    };
    let programmed = json!({
        "f:addresses": {},
        "f:conditions": {
            "k:{\"type\":\"Programmed\"}": {},
            "k:{\"type\":\"ResolvedRefs\"}": {},
            "k:broken": {},
        },
    });
    let accepted = json!({"f:conditions": {"k:{\"type\":\"Accepted\"}": {}}, "f:listeners": {}});
    let read = json!({
        "metadata": {
            "generation": 3,
            "managedFields": [managed("myriad-edge", programmed), managed("other", accepted)],
        },
        "status": {"conditions": conditions, "addresses": [], "listeners": []},
    });
    let patch = difference(ObjectKind::Gateway, &read, None, (&owner(), "now"));
    let unseen = json!({
        "type": "Programmed",
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "now",
    });
    let expected = json!({
        "addresses": null,
        "conditions": [conditions[0], unseen, conditions[4]],
    });
    assert_eq!(patch, Some(expected));
    let bare = json!({"metadata": {}, "status": {"conditions": [unseen]}});
    let patch = difference(ObjectKind::Gateway, &bare, None, (&owner(), "now"));
    assert_eq!(patch, None);
}

#[test]
fn whatever_tenants_write_into_a_status_is_no_obstacle() {
    let long: String = "é".repeat(MESSAGE_BYTES_MAX);
    let accepted = OwnCondition {
        message: long.into(),
        ..condition("Accepted", "True")
    };
    let odd = [
        json!("x"),
        json!({"a": 1}),
        json!([1, "x", null, [], {}]),
        json!([{"controllerName": "myriad.dev/gateway-controller", "conditions": "none"}]),
        json!([ours(&[
            json!("x"),
            json!({"type": 7}),
            json!({"type": "Accepted"})
        ])]),
    ];
    for odd in odd {
        let wanted = route(2, vec![accepted.clone()]);
        let merged = parents(odd.clone(), 2, Some(&wanted)).expect("a difference");
        let merged = merged.as_array().expect("a list");
        let own = merged.iter().find(|it| it["parentRef"]["name"] == "g");
        let conditions = own.expect("ours")["conditions"].as_array().expect("a list");
        let own = conditions.iter().find(|it| it["status"] == "True");
        let message = own.expect("ours")["message"].as_str();
        assert_eq!(message.map(str::len), Some(MESSAGE_BYTES_MAX));
        let again = parents(json!(merged), 2, Some(&wanted));
        assert_eq!(again, None, "{odd}");
        let status = json!({"conditions": odd, "listeners": odd, "addresses": odd});
        let wanted = gateway(vec![accepted.clone()], Some(Vec::new()));
        let patch = of_gateway(&status, Some(&wanted)).expect("a difference");
        assert!(
            patch["conditions"]
                .as_array()
                .is_some_and(|it| !it.is_empty())
        );
        assert!(of_gateway(&status, None).is_none_or(|it| it.is_object()));
    }
}
