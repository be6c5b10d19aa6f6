//! The names of workloads by their Pods, for whoever signs, and which Pod has a name now, for
//! whoever admits: the watches write them, so that no identity waits for translation.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use myriad_api::{Batch, Change, Object, ObjectKind, Pod};
use myriad_model::WorkloadNames;
use myriad_translate::workload_names;

/// The Pods that are known, by `namespace/name`. As many as the cluster has; Pods of one workload
/// share its names. Cheap to clone.
#[derive(Clone, Default)]
pub struct KnownPods(Arc<RwLock<Known>>);

#[derive(Default)]
struct Known {
    pods: HashMap<Box<str>, KnownPod>,
    /// The names that some Pod has, or had a while ago.
    names: HashMap<WorkloadNames, Arc<WorkloadNames>>,
    /// How many names there may be before those of nobody are looked for.
    names_max: usize,
}

struct KnownPod {
    names: Arc<WorkloadNames>,
    uid: Option<Box<str>>,
}

impl KnownPods {
    /// Learns of Pods that came, changed or went.
    pub(super) fn look(&self, batch: &Batch) {
        let is_of_pod = |change: &&Change| change.key().kind == ObjectKind::Pod;
        let mut changes = batch.changes.iter().filter(is_of_pod).peekable();
        if changes.peek().is_none() {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            let key = change.key();
            let name = format!("{}/{}", key.namespace(), key.name());
            match change {
                Change::Put(Object::Pod(pod)) => known.put(name.into(), pod),
                _ => drop(known.pods.remove(&*name)),
            }
        }
    }

    /// The names of the workload of a Pod, by its namespace and name; none where nobody knows it.
    pub(super) fn names(&self, namespace: &str, pod: &str) -> Option<Arc<WorkloadNames>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.pods.get(&*format!("{namespace}/{pod}"))?;
        Some(known.names.clone())
    }

    /// Whether the Pod of this namespace and name is another than the one with this `uid`, which
    /// is gone then. Of a Pod that nobody knows that is not said.
    pub(super) fn has_another(&self, namespace: &str, pod: &str, uid: &str) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.pods.get(&*format!("{namespace}/{pod}"));
        let known = known.and_then(|known| known.uid.as_deref());
        known.is_some_and(|known| known != uid)
    }
}

impl Known {
    fn put(&mut self, name: Box<str>, pod: &Pod) {
        let names = workload_names(pod);
        if self.names.len() >= self.names_max.max(64) {
            self.names.retain(|_, known| Arc::strong_count(known) > 1);
            self.names_max = 2 * self.names.len();
        }
        let names = match self.names.get(&names) {
            Some(known) => known.clone(),
            None => {
                let shared = Arc::new(names.clone());
                self.names.insert(names, shared.clone());
                shared
            }
        };
        let uid = pod.uid.clone();
        self.pods.insert(name, KnownPod { names, uid });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use myriad_api::{Batch, Change, Object, ObjectKey, ObjectKind};

    use super::KnownPods;

    /// A Pod of a workload, as a change of a watch.
    pub(in super::super) fn pod(namespace: &str, name: &str, app: &str) -> Change {
        let pod = serde_json::json!({
            "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
        });
        Change::Put(Object::Pod(serde_json::from_value(pod).unwrap()))
    }

    pub(in super::super) fn look(known: &KnownPods, changes: Vec<Change>) {
        known.look(&Batch {
            changes,
            ..Batch::default()
        });
    }

    #[test]
    fn names_come_and_go_with_their_pods() {
        let known = KnownPods::default();
        assert_eq!(known.names("shop", "cart-0"), None);
        look(
            &known,
            vec![pod("shop", "cart-0", "cart"), pod("shop", "web-0", "web")],
        );
        let names = known.names("shop", "cart-0").unwrap();
        assert_eq!((&*names.app, &*names.workload), ("cart", "cart-0"));
        look(&known, vec![pod("shop", "cart-0", "basket")]);
        assert_eq!(&*known.names("shop", "cart-0").unwrap().app, "basket");
        let key = ObjectKey::new(ObjectKind::Pod, "shop", "cart-0");
        look(&known, vec![Change::Remove(key)]);
        assert_eq!(known.names("shop", "cart-0"), None);
        assert!(known.names("shop", "web-0").is_some());
        assert_eq!(known.names("other", "web-0"), None);
    }

    /// The same with a `uid`.
    pub(in super::super) fn pod_with(namespace: &str, name: &str, uid: &str) -> Change {
        let pod = serde_json::json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
        });
        Change::Put(Object::Pod(serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn a_pod_that_has_the_name_of_one_that_is_gone_is_another() {
        let known = KnownPods::default();
        assert!(!known.has_another("shop", "cart-0", "u1"), "nobody knows");
        look(&known, vec![pod_with("shop", "cart-0", "u1")]);
        assert!(!known.has_another("shop", "cart-0", "u1"));
        assert!(known.has_another("shop", "cart-0", ""));
        look(&known, vec![pod_with("shop", "cart-0", "u2")]);
        assert!(known.has_another("shop", "cart-0", "u1"));
        assert!(!known.has_another("shop", "cart-0", "u2"));
        assert!(!known.has_another("blog", "cart-0", "u1"));
        look(&known, vec![pod("shop", "cart-0", "cart")]);
        assert!(!known.has_another("shop", "cart-0", "u1"), "it has none");
    }

    #[test]
    fn names_that_no_pod_has_any_more_are_forgotten() {
        let known = KnownPods::default();
        for round in 0..10_000 {
            look(&known, vec![pod("shop", "web-0", &format!("app-{round}"))]);
        }
        let all = known.0.read().unwrap();
        assert_eq!(all.pods.len(), 1);
        assert!(all.names.len() <= 64, "{}", all.names.len());
        assert!(
            all.names
                .values()
                .any(|names| Arc::strong_count(names) == 2)
        );
    }
}
