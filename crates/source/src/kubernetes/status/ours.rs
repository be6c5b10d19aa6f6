//! The part of a status that is ours, among those of others (GEP-1364).
//!
//! It is computed from what the object shows: entries and conditions of others stay where they
//! are, a condition whose status did not change keeps the time since which it holds, and where all
//! is right there is no difference, so that a look at an object is no write.

use std::sync::Arc;

use myriad_api::ObjectKind;
use serde_json::{Map, Value, json};

/// The most conditions of an object, of a listener or of an entry, as the definitions say.
const CONDITIONS_MAX: usize = 8;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The conditions that an object has before any controller has seen it.
const UNSEEN: [&str; 2] = ["Accepted", "Programmed"];

/// The fields of a status, beside its conditions, that one controller writes.
const FIELDS: [&str; 4] = [
    "addresses",
    "attachedListenerSets",
    "listeners",
    "supportedFeatures",
];

/// The writer whose part is meant.
#[derive(Clone, Debug)]
pub struct StatusOwner {
    /// The name of the controller, which its entries have.
    pub controller: Arc<str>,
    /// The field manager of this installation.
    pub manager: Box<str>,
    /// The types of conditions that it writes. Those of other types are somebody else's.
    pub conditions: &'static [&'static str],
}

/// The part of an object's status that is ours.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnStatus {
    /// `metadata.generation` of the object that this is about.
    pub generation: i64,
    /// The content, in the form of its kind.
    pub form: OwnForm,
}

/// The form of our part.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnForm {
    /// The status of an object that one controller has.
    Whole {
        /// Conditions of the object, those that may be left out last.
        conditions: Vec<OwnCondition>,
        /// Further fields of the status; null for those that are not there.
        fields: Vec<(&'static str, Value)>,
        /// `listeners`, where the kind has them.
        sections: Option<Vec<OwnSection>>,
    },
    /// Entries of a list that several controllers write.
    Listed(Vec<OwnEntry>),
}

/// A condition as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCondition {
    /// Its type.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word for why.
    pub reason: &'static str,
    /// The same in a sentence, of which at most the first KiB is shown.
    pub message: Box<str>,
    /// Whether one stays that the object shows with this status and for this generation, whatever
    /// it says.
    pub stays: bool,
}

/// A listener, with conditions of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnSection {
    /// Its fields but for the conditions; `name` tells it from others.
    pub fields: Map<String, Value>,
    /// Its conditions.
    pub conditions: Vec<OwnCondition>,
}

/// An entry of a list, with conditions of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnEntry {
    /// The object that it is about: `parentRef` or `ancestorRef`.
    pub subject: Value,
    /// Its conditions; none are no entry.
    pub conditions: Vec<OwnCondition>,
}

/// A list in the status of some kinds.
struct List {
    field: &'static str,
    subject: &'static str,
    entries_max: usize,
}

/// The terms of a merge.
struct Terms<'a> {
    owner: &'a StatusOwner,
    generation: i64,
    moment: &'a str,
}

/// The list that objects of a kind have in their status; none of kinds of which one controller has
/// the whole.
fn list_of(kind: ObjectKind) -> Option<List> {
    let (field, subject, entries_max) = match kind {
        ObjectKind::HttpRoute
        | ObjectKind::GrpcRoute
        | ObjectKind::TlsRoute
        | ObjectKind::TcpRoute
        | ObjectKind::UdpRoute => ("parents", "parentRef", 32),
        ObjectKind::BackendTlsPolicy => ("ancestors", "ancestorRef", 16),
        _ => return None,
    };
    Some(List {
        field,
        subject,
        entries_max,
    })
}

/// The merge patch (RFC 7396) of the status that makes our part be this, at this moment; none of
/// ours if there is none any more. `None` where it is right as it stands, and where the object is
/// of another generation than this is about: then a newer word will come.
pub(super) fn difference(
    kind: ObjectKind,
    read: &Value,
    wanted: Option<&OwnStatus>,
    (owner, moment): (&StatusOwner, &str),
) -> Option<Value> {
    let shown = read["metadata"]["generation"].as_i64();
    let list = list_of(kind);
    let Some(wanted) = wanted else {
        let generation = shown.unwrap_or(0);
        let terms = Terms {
            owner,
            generation,
            moment,
        };
        return match &list {
            Some(list) => merge_list(read, list, &[], &terms),
            None => retract(read, &terms),
        };
    };
    let generation = wanted.generation;
    if shown.is_some_and(|shown| shown != generation) {
        return None;
    }
    let terms = Terms {
        owner,
        generation,
        moment,
    };
    match (&wanted.form, &list) {
        (OwnForm::Listed(entries), Some(list)) => merge_list(read, list, entries, &terms),
        (
            OwnForm::Whole {
                conditions,
                fields,
                sections,
            },
            None,
        ) => {
            let sections = sections.as_deref();
            merge_whole(read, (conditions, fields, sections), &terms)
        }
        (OwnForm::Listed(_), None) | (OwnForm::Whole { .. }, Some(_)) => None,
    }
}

type Parts<'a> = (
    &'a [OwnCondition],
    &'a [(&'static str, Value)],
    Option<&'a [OwnSection]>,
);

fn merge_whole(
    read: &Value,
    (conditions, fields, sections): Parts<'_>,
    terms: &Terms<'_>,
) -> Option<Value> {
    let status = &read["status"];
    let mut patch = Map::new();
    let merged = merge_conditions(&status["conditions"], conditions, terms);
    if !is_list(&status["conditions"], &merged) {
        patch.insert("conditions".to_owned(), merged.into());
    }
    for (name, value) in fields {
        if status[*name] != *value {
            patch.insert((*name).to_owned(), value.clone());
        }
    }
    if let Some(sections) = sections {
        let merged = merge_sections(&status["listeners"], sections, terms);
        if !is_list(&status["listeners"], &merged) {
            patch.insert("listeners".to_owned(), merged.into());
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

fn merge_sections(current: &Value, sections: &[OwnSection], terms: &Terms<'_>) -> Vec<Value> {
    let shown = entries_of(current);
    let merge = |section: &OwnSection| {
        let name = section.fields.get("name");
        let known = shown.iter().find(|it| it.get("name") == name);
        let conditions = known.map_or(&Value::Null, |it| &it["conditions"]);
        let conditions = merge_conditions(conditions, &section.conditions, terms);
        let mut fields = section.fields.clone();
        fields.insert("conditions".to_owned(), conditions.into());
        Value::from(fields)
    };
    sections.iter().map(merge).collect()
}

/// The list with our entries replaced. Ours come where the first of ours was, so that a list does
/// not turn round because two controllers write it, and as many as there is room for.
fn merge_list(read: &Value, list: &List, entries: &[OwnEntry], terms: &Terms<'_>) -> Option<Value> {
    let current = entries_of(&read["status"][list.field]);
    let is_own =
        |entry: &&Value| entry["controllerName"].as_str() == Some(&*terms.owner.controller);
    let ours: Vec<&Value> = current.iter().filter(is_own).collect();
    let room = list.entries_max.saturating_sub(current.len() - ours.len());
    let merge = |entry: &OwnEntry| {
        let known = ours.iter().find(|it| it[list.subject] == entry.subject);
        let conditions = known.map_or(&Value::Null, |it| &it["conditions"]);
        let conditions = merge_conditions(conditions, &entry.conditions, terms);
        json!({
            list.subject: entry.subject,
            "controllerName": &*terms.owner.controller,
            "conditions": conditions,
        })
    };
    let entries = entries.iter().filter(|it| !it.conditions.is_empty());
    let entries: Vec<Value> = entries.take(room).map(merge).collect();
    if ours.iter().copied().eq(entries.iter()) {
        return None;
    }
    let first = current.iter().position(|entry| is_own(&entry));
    let (before, after) = current.split_at(first.unwrap_or(current.len()));
    let after = after.iter().filter(|entry| !is_own(entry)).cloned();
    let merged = before.iter().cloned().chain(entries).chain(after);
    Some(json!({ list.field: merged.collect::<Vec<_>>() }))
}

/// The conditions with ours replaced in their places. Where there are too many of others, ours
/// are left out from the last on: those of others may not be.
fn merge_conditions(current: &Value, own: &[OwnCondition], terms: &Terms<'_>) -> Vec<Value> {
    let mut rest: Vec<&OwnCondition> = own.iter().collect();
    let mut merged: Vec<Value> = Vec::with_capacity(own.len());
    for shown in entries_of(current).iter().filter(|it| it.is_object()) {
        let kind = shown["type"].as_str().unwrap_or_default();
        match rest.iter().position(|own| own.kind == kind) {
            Some(at) => merged.push(show(rest.remove(at), Some(shown), terms)),
            None if terms.owner.conditions.contains(&kind) => {}
            None => merged.push(shown.clone()),
        }
    }
    let room = CONDITIONS_MAX.saturating_sub(merged.len());
    let new = rest.into_iter().take(room);
    merged.extend(new.map(|own| show(own, None, terms)));
    merged
}

/// A condition of ours as it is shown, where it was shown like this before.
fn show(own: &OwnCondition, shown: Option<&Value>, terms: &Terms<'_>) -> Value {
    let shown = shown.filter(|it| it["status"] == own.status);
    if let Some(shown) = shown
        && own.stays
        && shown["observedGeneration"] == terms.generation
        && shown["lastTransitionTime"].is_string()
    {
        return shown.clone();
    }
    let since = shown.and_then(|it| it["lastTransitionTime"].as_str());
    let end = own.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    json!({
        "type": own.kind,
        "status": own.status,
        "reason": own.reason,
        "message": own.message.get(..end).unwrap_or_default(),
        "observedGeneration": terms.generation,
        "lastTransitionTime": since.unwrap_or(terms.moment),
    })
}

/// Takes back what is ours in the status of an object that another controller may have by now:
/// what the API server says that our field manager wrote last.
fn retract(read: &Value, terms: &Terms<'_>) -> Option<Value> {
    let status = &read["status"];
    let owned = Owned::of(read, &terms.owner.manager);
    let mut patch = Map::new();
    let shown = entries_of(&status["conditions"]);
    let retracted: Vec<Value> = shown
        .iter()
        .filter_map(|it| owned.leave(it, terms))
        .collect();
    if !is_list(&status["conditions"], &retracted) {
        patch.insert("conditions".to_owned(), retracted.into());
    }
    for field in FIELDS {
        if owned.fields.contains(&field) && !status[field].is_null() {
            patch.insert(field.to_owned(), Value::Null);
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

/// The parts of a status that a field manager has written, as `metadata.managedFields` says.
#[derive(Default)]
struct Owned {
    conditions: Vec<String>,
    fields: Vec<&'static str>,
}

impl Owned {
    fn of(read: &Value, manager: &str) -> Owned {
        let mut owned = Owned::default();
        let entries = entries_of(&read["metadata"]["managedFields"]).iter();
        let of_status = |it: &&Value| it["manager"] == manager && it["subresource"] == "status";
        for entry in entries.filter(of_status) {
            let status = &entry["fieldsV1"]["f:status"];
            let conditions = status["f:conditions"].as_object();
            owned
                .conditions
                .extend(conditions.into_iter().flatten().filter_map(|(key, _)| {
                    let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
                    Some(key["type"].as_str()?.to_owned())
                }));
            let is_there = |field: &&str| status.get(format!("f:{field}")).is_some();
            owned.fields.extend(FIELDS.into_iter().filter(is_there));
        }
        owned
    }

    /// The condition that is left of one that is shown.
    fn leave(&self, shown: &Value, terms: &Terms<'_>) -> Option<Value> {
        let kind = shown["type"].as_str().unwrap_or_default();
        // Nobody else has conditions with a domain of ours.
        let is_ours = terms.owner.conditions.contains(&kind)
            && (kind.contains('/') || self.conditions.iter().any(|it| it == kind));
        if !is_ours {
            return Some(shown.clone());
        }
        let is_unseen = shown["status"] == "Unknown" && shown["reason"] == "Pending";
        match UNSEEN.contains(&kind) {
            true if is_unseen => Some(shown.clone()),
            true => Some(json!({
                "type": kind,
                "status": "Unknown",
                "reason": "Pending",
                "message": "Waiting for controller",
                "lastTransitionTime": terms.moment,
            })),
            false => None,
        }
    }
}

/// The entries of a list, of which there are none where it is something else.
fn entries_of(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a list has these entries; one that is not there has none.
fn is_list(shown: &Value, entries: &[Value]) -> bool {
    match shown {
        Value::Null => entries.is_empty(),
        Value::Array(shown) => shown == entries,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
