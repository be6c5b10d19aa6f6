//! The annotation `myriad.dev/live` of Ingresses: the generation that is served, and since when.
//! Off by default, since it takes the right to change Ingresses.
//!
//! Of an Ingress that is served its generation is read from the API server, and it is written only
//! if the object there is the very one that is served.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_api::meta::LIVE_ANNOTATION;
use myriad_api::{Ingress, Object, ObjectKey, ObjectKind};
use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::{CallError, Client};
use serde_json::Value;
use tokio::sync::Notify;

use crate::stated::INGRESSES_WAITING_MAX;

/// How long is waited between two Ingresses, and at least after one that could not be written.
const PAUSE: Duration = Duration::from_millis(50);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The Ingresses that are to be annotated. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct LiveAnnotations {
    state: Arc<Mutex<Waiting>>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct Waiting {
    /// By namespace and name, as they are served, and since when.
    ingresses: BTreeMap<ObjectKey, (Arc<Ingress>, String)>,
    /// The one that had its turn last.
    last: Option<ObjectKey>,
}

impl LiveAnnotations {
    /// An Ingress is served since a moment. Beyond a bound it is not annotated.
    pub(super) fn note(&self, ingress: Arc<Ingress>, since: String) {
        let key = ingress.meta.key.clone();
        let mut waiting = self.lock();
        let has_room = waiting.ingresses.len() < INGRESSES_WAITING_MAX;
        if has_room || waiting.ingresses.contains_key(&key) {
            waiting.ingresses.insert(key, (ingress, since));
            self.news.notify_one();
        }
    }

    /// Annotates for ever, while `leads` holds.
    pub(super) async fn keep(self, client: Client, leads: Claim) {
        loop {
            let Some((key, (ingress, since))) = self.pop() else {
                self.news.notified().await;
                continue;
            };
            let decide = |read: &[u8]| decide(read, &ingress, &since);
            let mut wait = PAUSE;
            match client
                .annotate(&leads, &key, (LIVE_ANNOTATION, decide))
                .await
            {
                // One that is gone shows nothing.
                Ok(_) | Err(CallError::NotFound) => {}
                Err(error @ (CallError::Forbidden(_) | CallError::Rejected(_))) => {
                    tracing::warn!(object = %key, %error, "the Ingress cannot be annotated");
                }
                Err(error) => {
                    wait = error.retry_after().max(RETRY_INTERVAL);
                    self.put_back(key, (ingress, since));
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes out the next one: of another namespace, if there is one.
    fn pop(&self) -> Option<(ObjectKey, (Arc<Ingress>, String))> {
        let mut waiting = self.lock();
        let beyond = match &waiting.last {
            // The character behind the slash.
            Some(last) => {
                let end = format!("{}0", last.namespace());
                Bound::Included(ObjectKey::from_id(ObjectKind::Ingress, end.into()))
            }
            None => Bound::Unbounded,
        };
        let later = waiting.ingresses.range((beyond, Bound::Unbounded)).next();
        let next = later.or(waiting.ingresses.first_key_value())?.0.clone();
        let found = waiting.ingresses.remove(&next)?;
        waiting.last = Some(next.clone());
        Some((next, found))
    }

    /// One that could not be written waits again, unless it has changed meanwhile.
    fn put_back(&self, key: ObjectKey, waiting: (Arc<Ingress>, String)) {
        self.lock().ingresses.entry(key).or_insert(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The annotation of an Ingress that is served since a moment, as it was read; none where another
/// one was read, which will be served in its turn, and where it says so already.
fn decide(read: &[u8], served: &Ingress, since: &str) -> Option<String> {
    let text = std::str::from_utf8(read).ok()?;
    let object = Object::from_json(ObjectKind::Ingress, text).ok()?;
    if !matches!(&object, Object::Ingress(found) if **found == *served) {
        return None;
    }
    let read: Value = serde_json::from_str(text).ok()?;
    let metadata = &read["metadata"];
    let start = format!("generation {} since ", metadata["generation"].as_i64()?);
    let shown = metadata["annotations"][LIVE_ANNOTATION].as_str();
    let is_shown = shown.is_some_and(|shown| shown.starts_with(&start));
    (!is_shown).then(|| format!("{start}{since}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{Ingress, Object, ObjectKind};
    use serde_json::{Value, json};

    use super::{LiveAnnotations, decide};

    fn written(name: &str, generation: i64, class: &str) -> Value {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"namespace": "shop", "name": name, "generation": generation},
            "spec": {"ingressClassName": class},
        })
    }

    fn read(value: &Value) -> Arc<Ingress> {
        match Object::from_json(ObjectKind::Ingress, &value.to_string()) {
            Ok(Object::Ingress(ingress)) => ingress,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_ingress_says_which_generation_is_served_if_that_is_the_one_there_is() {
        let mut there = written("a", 3, "myriad");
        let served = read(&there);
        let said = |there: &Value| decide(there.to_string().as_bytes(), &served, "then");
        assert_eq!(said(&there).as_deref(), Some("generation 3 since then"));
        // Its own word is no change of it, and is not said twice.
        there["metadata"]["annotations"]["myriad.dev/live"] = "generation 3 since before".into();
        assert_eq!(read(&there), served);
        assert_eq!(said(&there), None);
        there["metadata"]["annotations"]["myriad.dev/live"] = "generation 2 since before".into();
        assert!(said(&there).is_some());
        assert_eq!(
            said(&written("a", 4, "other")),
            None,
            "a newer one is there"
        );
        assert_eq!(decide(b"odd", &served, "then"), None);
    }

    #[test]
    fn namespaces_take_turns_and_the_newest_word_about_an_ingress_counts() {
        let annotations = LiveAnnotations::default();
        for (namespace, name, since) in [
            ("a", "one", "1"),
            ("a", "two", "2"),
            ("a-b", "x", "3"),
            ("b", "y", "4"),
            ("a", "one", "5"),
        ] {
            let mut value = written(name, 1, "myriad");
            value["metadata"]["namespace"] = namespace.into();
            annotations.note(read(&value), since.to_owned());
        }
        let order = std::iter::from_fn(|| annotations.pop());
        let order: Vec<String> = order
            .map(|(key, (_, since))| format!("{}={since}", key.id()))
            .collect();
        assert_eq!(order, ["a-b/x=3", "a/one=5", "b/y=4", "a/two=2"]);
    }
}
