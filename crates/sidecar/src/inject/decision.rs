//! Whether a Pod gets a proxy: what its labels and those of its namespace say, as Istio reads
//! them, and in words of our own.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Labels or annotations.
pub type Labels = BTreeMap<String, String>;

/// Namespaces of the system, whose Pods are never touched.
const SYSTEM: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// The label of a namespace, in Istio's words and in ours, and what it says if it is `yes`, `no`.
const NAMESPACE_LABELS: [(&str, &str, &str); 2] = [
    ("istio-injection", "enabled", "disabled"),
    ("myriad.dev/injection", "enabled", "disabled"),
];

/// The label of a Pod. As an annotation it is read where there is no label.
const POD_LABELS: [&str; 2] = ["sidecar.istio.io/inject", "myriad.dev/inject"];

/// The container by which a Pod is known that has its proxy already.
pub(super) const CONTAINER: &str = "myriad-proxy";

/// The decision about a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It gets one.
    Inject,
    /// It is left as it is.
    Leave(Reason),
}

/// Why a Pod is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its namespace is one of the system's.
    System,
    /// It uses the node's network, where rules would take everybody's connections.
    HostNetwork,
    /// It has one.
    Present,
    /// Its namespace forbids it.
    NamespaceForbids,
    /// It forbids it itself.
    PodForbids,
    /// Nobody asked.
    NotAsked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::System => "its namespace belongs to the system",
            Reason::HostNetwork => "it uses the network of its node",
            Reason::Present => "it has a proxy already",
            Reason::NamespaceForbids => "a label of its namespace forbids it",
            Reason::PodForbids => "its label sidecar.istio.io/inject forbids it",
            Reason::NotAsked => "neither it nor its namespace asks for a proxy",
        })
    }
}

/// Decides about a Pod (or the template of one) in a namespace with these labels. A namespace
/// that forbids it has the last word, then the Pod.
pub fn decide(pod: &Value, namespace: &str, namespace_labels: &Labels) -> Decision {
    if SYSTEM.contains(&namespace) {
        return Decision::Leave(Reason::System);
    }
    if pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        return Decision::Leave(Reason::HostNetwork);
    }
    if has_container(pod, "/spec/initContainers") || has_container(pod, "/spec/containers") {
        return Decision::Leave(Reason::Present);
    }
    let says = |word: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        NAMESPACE_LABELS.iter().any(|label| {
            let value = namespace_labels.get(label.0);
            value.is_some_and(|value| value == word(label))
        })
    };
    if says(|(_, _, no)| no) {
        return Decision::Leave(Reason::NamespaceForbids);
    }
    match pod_says(pod) {
        Some(true) => Decision::Inject,
        Some(false) => Decision::Leave(Reason::PodForbids),
        None if says(|(_, yes, _)| yes) => Decision::Inject,
        None => Decision::Leave(Reason::NotAsked),
    }
}

fn has_container(pod: &Value, pointer: &str) -> bool {
    let containers = pod.pointer(pointer).and_then(Value::as_array);
    let named = |it: &Value| it.get("name").and_then(Value::as_str) == Some(CONTAINER);
    containers.is_some_and(|all| all.iter().any(named))
}

/// The Pod's own wish. Kubernetes' users write the words of YAML for yes and no.
fn pod_says(pod: &Value) -> Option<bool> {
    let metadata = pod.get("metadata")?;
    let places = ["labels", "annotations"].iter();
    let mut texts = places.flat_map(|place| {
        let texts = metadata.get(*place);
        let text = move |name| texts?.get(name)?.as_str();
        POD_LABELS.iter().filter_map(move |name| text(*name))
    });
    match texts.next()?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "y" | "on" | "enabled" => Some(true),
        "false" | "no" | "n" | "off" | "disabled" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Decision, Labels, Reason, decide};

    fn labels(of: &[(&str, &str)]) -> Labels {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        of.iter().map(owned).collect()
    }

    fn pod(label: Option<&str>) -> Value {
        match label {
            Some(text) => json!({"metadata": {"labels": {"sidecar.istio.io/inject": text}}}),
            None => json!({"spec": {"containers": [{"name": "app"}]}}),
        }
    }

    #[test]
    fn a_namespace_that_forbids_has_the_last_word_then_the_pod() {
        use Decision::{Inject, Leave};
        let enabled = labels(&[("istio-injection", "enabled")]);
        let own = labels(&[("myriad.dev/injection", "enabled")]);
        let disabled = labels(&[("istio-injection", "disabled")]);
        let table = [
            (&enabled, None, Inject),
            (&own, None, Inject),
            (&enabled, Some("false"), Leave(Reason::PodForbids)),
            (&enabled, Some("maybe"), Inject),
            (&Labels::new(), Some("true"), Inject),
            (&Labels::new(), Some("maybe"), Leave(Reason::NotAsked)),
            (&Labels::new(), None, Leave(Reason::NotAsked)),
            (&disabled, Some("true"), Leave(Reason::NamespaceForbids)),
        ];
        for (namespace, label, expected) in table {
            let decision = decide(&pod(label), "shop", namespace);
            assert_eq!(decision, expected, "{namespace:?} {label:?}");
        }
    }

    #[test]
    fn a_label_goes_before_an_annotation() {
        let pod = json!({"metadata": {
            "labels": {"myriad.dev/inject": "false"},
            "annotations": {"sidecar.istio.io/inject": "true"},
        }});
        let left = Decision::Leave(Reason::PodForbids);
        assert_eq!(decide(&pod, "shop", &Labels::new()), left);
    }

    #[test]
    fn the_system_the_node_and_what_has_a_proxy_are_left_alone() {
        let asked = labels(&[("istio-injection", "enabled")]);
        let decide = |pod: &Value, namespace| decide(pod, namespace, &asked);
        let system = decide(&pod(None), "kube-system");
        assert_eq!(system, Decision::Leave(Reason::System));
        let node = decide(&json!({"spec": {"hostNetwork": true}}), "shop");
        assert_eq!(node, Decision::Leave(Reason::HostNetwork));
        let spec = json!({"initContainers": [{"name": "myriad-proxy"}]});
        let present = decide(&json!({"spec": spec}), "shop");
        assert_eq!(present, Decision::Leave(Reason::Present));
    }
}
