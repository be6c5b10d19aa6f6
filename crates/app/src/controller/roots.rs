//! Where the roots that controllers are known by are published: in the webhook's configuration, for
//! API servers, and in the namespaces of Pods that have a proxy, which mounts them.
//!
//! Namespaces are learnt from the Pods that are watched, and not from reviews, which anybody may
//! send who reaches the webhook.

use std::collections::BTreeSet;
use std::time::Duration;

use myriad_api::{Batch, Change, Object};
use myriad_source::kubernetes::Client;
use tokio::sync::watch;

use super::trust;

/// How often it is looked whether the roots are still there, and how soon again after that failed.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The label that injection, Istio's too, marks Pods with.
const MARK: (&str, &str) = ("security.istio.io/tlsMode", "istio");

/// The namespaces with Pods that have a proxy; as many as there are of them.
pub(super) struct Namespaces(watch::Sender<BTreeSet<Box<str>>>);

/// Keeps the roots where API servers and Pods find them.
pub(super) struct RootKeeper {
    /// The client that writes.
    pub client: Client,
    /// The MutatingWebhookConfiguration.
    pub configuration: String,
    /// The name of the ConfigMaps.
    pub config_map: String,
}

impl Namespaces {
    /// An empty set of namespaces, and the channel that tells of it.
    pub(super) fn new() -> (Self, watch::Receiver<BTreeSet<Box<str>>>) {
        let (namespaces, heard) = watch::channel(BTreeSet::new());
        (Namespaces(namespaces), heard)
    }

    /// Learns the namespaces of Pods that came or changed.
    pub(super) fn look(&self, batch: &Batch) {
        let pods = batch.changes.iter().filter_map(|change| match change {
            Change::Put(Object::Pod(pod)) => Some(pod),
            _ => None,
        });
        let (key, value) = MARK;
        let marked = pods.filter(|pod| pod.labels.get(key).is_some_and(|it| **it == *value));
        for pod in marked {
            let namespace = pod.meta.key.namespace();
            self.0.send_if_modified(|known| {
                !known.contains(namespace) && known.insert(namespace.into())
            });
        }
    }
}

impl RootKeeper {
    /// Publishes the roots, as PEM, for ever.
    pub(super) async fn keep(
        self,
        mut roots: watch::Receiver<String>,
        mut namespaces: watch::Receiver<BTreeSet<Box<str>>>,
    ) {
        loop {
            let bundle = roots.borrow_and_update().clone();
            let wanted = namespaces.borrow_and_update().clone();
            let pause = match self.put(&bundle, &wanted).await {
                Ok(()) => LOOK_INTERVAL,
                Err(problem) => {
                    tracing::warn!("{problem}; trying again");
                    RETRY_INTERVAL
                }
            };
            // Whichever comes first. Who tells of them goes on as long as this does; where one has
            // ended, time alone is left.
            let is_over = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                told = roots.changed() => told.is_err(),
                told = namespaces.changed() => told.is_err(),
            };
            if is_over {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn put(&self, bundle: &str, wanted: &BTreeSet<Box<str>>) -> Result<(), String> {
        let name = &self.configuration;
        let put = self.client.put_webhook_authority(name, bundle).await;
        put.map_err(|it| format!("MutatingWebhookConfiguration {name} gets no roots: {it}"))?;
        let name = &self.config_map;
        let put = trust::publish_everywhere(&self.client, name, bundle, wanted).await;
        put.map_err(|it| format!("a ConfigMap {name} gets no roots: {it}"))
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{Batch, Change, Object};

    use super::Namespaces;

    fn pod(namespace: &str, label: &str) -> Change {
        let pod = serde_json::json!({
            "metadata": {"namespace": namespace, "name": "a", "labels": {label: "istio"}},
        });
        Change::Put(Object::Pod(serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn namespaces_are_those_of_pods_that_have_a_proxy() {
        let (namespaces, mut heard) = Namespaces::new();
        let batch = |changes| Batch {
            changes,
            ..Batch::default()
        };
        namespaces.look(&batch(vec![pod("other", "app")]));
        assert!(!heard.has_changed().unwrap());
        let mark = "security.istio.io/tlsMode";
        namespaces.look(&batch(vec![pod("shop", mark), pod("blog", mark)]));
        assert!(heard.has_changed().unwrap());
        let known: Vec<_> = heard.borrow_and_update().iter().cloned().collect();
        assert_eq!(known, ["blog".into(), "shop".into()]);
        namespaces.look(&batch(vec![pod("shop", mark)]));
        assert!(!heard.has_changed().unwrap());
    }
}
