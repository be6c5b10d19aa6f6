//! Lists in a status that several controllers write, each its own entries: conditions of
//! `status.parents` for instance (GEP-1364). They are replaced as a whole by a write, so each
//! write carries over what others have written, and rests on the version that was read.

use std::sync::Arc;

use http::Method;
use myriad_api::ObjectKey;
use myriad_base::clock;
use serde_json::{Value, json};

use super::super::client::{CallError, Client};
use super::super::lease::Claim;
use super::super::path;
use super::{ATTEMPTS_MAX, FIELD_MANAGER};

/// Which entries of which list are ours.
#[derive(Clone, Debug)]
pub struct Own {
    /// The field of `status` that holds the list.
    pub field: &'static str,
    /// The field of an entry that says whose it is.
    pub owner_field: &'static str,
    /// The owner that our entry names.
    pub owner: Arc<str>,
}

/// How a write of a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// It was written.
    Changed,
    /// It was right already.
    Unchanged,
    /// We do not lead any more.
    NotOurs,
}

impl Client {
    /// Makes our entries of a list be these, in this order, and leaves all others as they are.
    /// Where somebody else writes meanwhile, it is read again.
    ///
    /// # Errors
    /// See [`CallError`]; [`CallError::Conflict`] if others write all the time.
    pub async fn replace_own(
        &self,
        claim: &Claim,
        key: &ObjectKey,
        own: &Own,
        entries: &[Value],
    ) -> Result<Listed, CallError> {
        let namespace = Some(key.namespace()).filter(|it| !it.is_empty());
        let collection = self.collection(key.kind, namespace);
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            let read = self.call(Method::GET, &object, None).await?;
            let read: Value = serde_json::from_slice(&read).map_err(|_| {
                CallError::Lost("the answer is not what the API promises".to_owned())
            })?;
            let Some(list) = merge(&read["status"][own.field], own, entries) else {
                return Ok(Listed::Unchanged);
            };
            if !claim.holds(clock::now()) {
                return Ok(Listed::NotOurs);
            }
            let patch = json!({
                "metadata": {"resourceVersion": read["metadata"]["resourceVersion"]},
                "status": {own.field: list},
            });
            let target = format!("{object}/status?fieldManager={FIELD_MANAGER}");
            let body = patch.to_string().into_bytes();
            let body = Some(("application/merge-patch+json", body));
            match self.call(Method::PATCH, &target, body).await {
                Ok(_) => return Ok(Listed::Changed),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }
}

/// The list with our entries replaced; none if it is right as it stands. Ours come where the
/// first of ours was, so that a list does not turn round because two controllers write it.
fn merge(current: &Value, own: &Own, entries: &[Value]) -> Option<Vec<Value>> {
    let current = current.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_own = |entry: &&Value| entry[own.owner_field].as_str() == Some(&own.owner);
    let ours: Vec<&Value> = current.iter().filter(is_own).collect();
    let entries: Vec<Value> = entries.iter().map(|it| with_times(it, &ours)).collect();
    if ours.iter().copied().eq(&entries) {
        return None;
    }
    let first = current.iter().position(|entry| is_own(&entry));
    let first = first.unwrap_or(current.len());
    let (before, after) = current.split_at(first);
    let after = after.iter().filter(|entry| !is_own(entry)).cloned();
    Some(before.iter().cloned().chain(entries).chain(after).collect())
}

/// A condition that says what it said before keeps the time since which it does: otherwise each
/// look would be a write.
fn with_times(entry: &Value, ours: &[&Value]) -> Value {
    let mut entry = entry.clone();
    let is_same = |known: &&&Value| {
        let (Some(known), Some(entry)) = (known.as_object(), entry.as_object()) else {
            return false;
        };
        let parts = |it: &serde_json::Map<String, Value>| {
            let parts = it.iter().filter(|(key, _)| *key != "conditions");
            parts
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<Vec<_>>()
        };
        parts(known) == parts(entry)
    };
    let Some(known) = ours.iter().find(is_same) else {
        return entry;
    };
    let former = known["conditions"].as_array();
    let former = former.map(Vec::as_slice).unwrap_or_default();
    for condition in entry["conditions"].as_array_mut().into_iter().flatten() {
        let is_same = |it: &&Value| {
            ["type", "status"]
                .iter()
                .all(|key| it[key] == condition[key])
        };
        if let Some(since) = former
            .iter()
            .find(is_same)
            .map(|it| &it["lastTransitionTime"])
        {
            condition["lastTransitionTime"] = since.clone();
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Own, merge};

    fn own() -> Own {
        Own {
            field: "parents",
            owner_field: "controllerName",
            owner: "myriad.dev/controller".into(),
        }
    }

    fn entry(owner: &str, status: &str, time: &str) -> Value {
        let condition = json!({"type": "Accepted", "status": status, "lastTransitionTime": time});
        json!({"controllerName": owner, "parentRef": {"name": "g"}, "conditions": [condition]})
    }

    #[test]
    fn entries_of_others_stay_where_they_are_and_ours_are_replaced() {
        let (a, c) = (entry("a", "True", "1"), entry("c", "False", "2"));
        let ours = |status, time| entry("myriad.dev/controller", status, time);
        let list = json!([a, ours("False", "3"), c, ours("False", "4")]);
        let merged = merge(&list, &own(), &[ours("True", "5")]);
        assert_eq!(merged, Some(vec![a.clone(), ours("True", "5"), c.clone()]));
        let merged = merge(&list, &own(), &[]);
        assert_eq!(merged, Some(vec![a.clone(), c.clone()]));
        let merged = merge(&json!([a, c]), &own(), &[ours("True", "5")]);
        assert_eq!(merged, Some(vec![a, c, ours("True", "5")]));
        assert_eq!(merge(&Value::Null, &own(), &[]), None);
    }

    #[test]
    fn what_says_the_same_as_before_keeps_its_time_and_is_not_written() {
        let ours = |status, time| entry("myriad.dev/controller", status, time);
        let list = json!([entry("a", "True", "1"), ours("True", "3")]);
        assert_eq!(merge(&list, &own(), &[ours("True", "9")]), None);
        let merged = merge(&list, &own(), &[ours("False", "9")]);
        assert_eq!(merged.map(|it| it[1].clone()), Some(ours("False", "9")));
    }
}
