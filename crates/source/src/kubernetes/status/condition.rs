//! Conditions in the status of objects of our own kinds.

use http::Method;
use myriad_api::ObjectKey;
use myriad_base::clock;
use serde_json::{Value, json};

use super::ATTEMPTS_MAX;
use crate::kubernetes::client::{CallError, Client};
use crate::kubernetes::lease::Claim;
use crate::kubernetes::moment::micro_time;
use crate::kubernetes::path;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// The most conditions of others that are kept.
const OTHERS_MAX: usize = 16;

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Ready`.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// One word for why.
    pub reason: &'static str,
    /// The same in a sentence, of which at most the first KiB is shown.
    pub message: String,
}

impl Client {
    /// Shows a condition in the status of an object, beside those of others, while `claim` holds.
    /// Returns whether anything was written, which it is not where the object shows it already.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn show_condition(
        &self,
        claim: &Claim,
        key: &ObjectKey,
        condition: &Condition,
    ) -> Result<bool, CallError> {
        let collection = self.collection(key.kind, Some(key.namespace()));
        let object = format!("{collection}/{}", path::escape(key.name()));
        for _ in 0..ATTEMPTS_MAX {
            if !claim.holds(clock::now()) {
                return Ok(false);
            }
            let read = self.call(Method::GET, &object, None).await?;
            let read: Value = serde_json::from_slice(&read)
                .map_err(|_| CallError::Lost("the answer is not what the API promises".into()))?;
            let moment = micro_time(clock::since_epoch());
            let Some(patch) = difference(&read, condition, &moment) else {
                return Ok(false);
            };
            // Reading took time: ask again, directly before the write.
            if !claim.holds(clock::now()) {
                return Ok(false);
            }
            let body = (
                "application/merge-patch+json",
                patch.to_string().into_bytes(),
            );
            let target = format!("{object}/status");
            match self.call(Method::PATCH, &target, Some(body)).await {
                Ok(_) => return Ok(true),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }
}

/// The patch that shows a condition; none where the object shows it.
fn difference(read: &Value, condition: &Condition, moment: &str) -> Option<Value> {
    let message = &condition.message;
    let message = &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
    let status = if condition.holds { "True" } else { "False" };
    let conditions = read["status"]["conditions"].as_array();
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    let shown = conditions.iter().find(|it| it["type"] == condition.name);
    let is_shown = |it: &Value| {
        it["status"] == status && it["reason"] == condition.reason && it["message"] == message
    };
    if shown.is_some_and(is_shown) {
        return None;
    }
    let since = shown.filter(|it| it["status"] == status);
    let since = since.and_then(|it| it["lastTransitionTime"].as_str());
    let others = conditions.iter().filter(|it| it["type"] != condition.name);
    let mut kept: Vec<Value> = others.take(OTHERS_MAX).cloned().collect();
    kept.push(json!({
        "type": condition.name,
        "status": status,
        "reason": condition.reason,
        "message": message,
        "lastTransitionTime": since.unwrap_or(moment),
    }));
    Some(json!({
        "metadata": {"resourceVersion": read["metadata"]["resourceVersion"]},
        "status": {"conditions": kept},
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Condition, MESSAGE_BYTES_MAX, difference};

    fn ready(holds: bool, message: &str) -> Condition {
        Condition {
            name: "Ready",
            holds,
            reason: "Because",
            message: message.to_owned(),
        }
    }

    /// An object as it is after a patch.
    fn patched(read: &Value, condition: &Condition, moment: &str) -> Value {
        let patch = difference(read, condition, moment);
        let mut object = read.clone();
        object["status"] = patch.expect("a difference")["status"].clone();
        object
    }

    #[test]
    fn a_condition_is_written_on_change_and_dates_from_when_it_last_turned() {
        let bare = json!({"metadata": {"resourceVersion": "7"}});
        let patch = difference(&bare, &ready(true, "a"), "then").expect("it is new");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let first = patched(&bare, &ready(true, "a"), "then");
        assert_eq!(difference(&first, &ready(true, "a"), "now"), None);
        let since =
            |object: &Value| object["status"]["conditions"][0]["lastTransitionTime"].clone();
        let other_words = patched(&first, &ready(true, "b"), "now");
        assert_eq!(since(&other_words), "then");
        assert_eq!(since(&patched(&first, &ready(false, "b"), "now")), "now");
    }

    #[test]
    fn conditions_of_others_stay_and_whatever_else_is_there_is_no_obstacle() {
        let other = json!({"type": "Seen", "status": "True"});
        let object = json!({"status": {"conditions": [other, {"type": "Ready"}]}});
        let shown = patched(&object, &ready(true, "a"), "now");
        let conditions = shown["status"]["conditions"].as_array().expect("a list");
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[0], other);
        for odd in [
            json!("x"),
            json!({"a": 1}),
            json!([1, "x", null]),
            Value::Null,
        ] {
            let object = json!({"status": {"conditions": odd}});
            let shown = patched(&object, &ready(false, "a"), "now");
            let conditions = shown["status"]["conditions"].as_array().expect("a list");
            assert_eq!(conditions.last().expect("ours")["status"], "False");
        }
    }

    #[test]
    fn a_message_is_cut_and_then_equal_to_what_is_shown() {
        let long = ready(false, &"é".repeat(MESSAGE_BYTES_MAX));
        let shown = patched(&json!({}), &long, "now");
        let message = shown["status"]["conditions"][0]["message"].as_str();
        assert_eq!(message.map(str::len), Some(MESSAGE_BYTES_MAX));
        assert_eq!(difference(&shown, &long, "later"), None);
    }
}
