//! Views: what equal proxies see. Selectors, `sourceLabels`, `exportTo` and scopes are resolved
//! here, once for each view, so that a proxy never evaluates a label.

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::istio::Labels;

/// The name of the view that is always there.
pub const MAIN: &str = "gateway";

/// The label of a workload with the name of the Gateway of Gateway API that it is for.
pub const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The most labels of a Pod that has a view, and the most bytes of their keys and values: a view
/// has a copy of them, of which others are made. Pods of people have some tens of short ones.
pub const VIEW_LABELS_MAX: usize = 256;

/// See [`VIEW_LABELS_MAX`].
pub const VIEW_LABEL_BYTES_MAX: usize = 16 << 10;

/// The properties that equal proxies share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The name of the view.
    pub name: Arc<str>,
    /// The role of its proxies.
    pub role: Role,
    /// The labels of their workload, by which selectors and `sourceLabels` find it.
    pub labels: BTreeMap<String, String>,
    /// The namespace of their workload, where credentials are looked for.
    pub namespace: Box<str>,
}

/// The role of a view's proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A gateway that answers for Ingresses, and for the Gateways that select it.
    Ingress,
    /// A gateway that answers for the Gateways that select it alone.
    Gateway,
    /// A gateway that answers for one Gateway of Gateway API alone, of its namespace and by the
    /// name in its label [`GATEWAY_NAME`].
    Dedicated,
    /// Beside a workload, whose connections it carries both ways.
    Sidecar,
}

impl View {
    /// Whether its workload has a label.
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        let known = self.labels.get(key);
        known.is_some_and(|known| *known == value)
    }

    /// Whether its workload has all these labels.
    pub fn has_labels(&self, wanted: &Labels) -> bool {
        let mut wanted = wanted.iter();
        wanted.all(|(key, value)| self.has_label(key, value))
    }

    /// Whether an Istio Gateway with this selector is for its workload.
    pub fn has_servers(&self, selector: &Labels) -> bool {
        self.role != Role::Dedicated && self.has_labels(selector)
    }

    /// The Gateway of Gateway API that its proxies are for alone, by `namespace/name`.
    pub fn gateway(&self) -> Option<Box<str>> {
        let name = self.labels.get(GATEWAY_NAME);
        let name = name.filter(|_| self.role == Role::Dedicated)?;
        Some(format!("{}/{name}", self.namespace).into())
    }

    /// The view of the proxies of one Gateway of Gateway API.
    pub fn dedicated(namespace: &str, name: &str) -> Self {
        View {
            name: format!("gateway/{namespace}/{name}").into(),
            role: Role::Dedicated,
            labels: [(GATEWAY_NAME.to_owned(), name.to_owned())].into(),
            namespace: namespace.into(),
        }
    }

    /// Whether proxies of the other one see the same.
    pub fn is_like(&self, other: &View) -> bool {
        (self.role, &self.labels, &self.namespace) == (other.role, &other.labels, &other.namespace)
    }
}

/// A workload beside whom there is a sidecar: what equal ones are known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    namespace: Box<str>,
    labels: BTreeMap<String, String>,
}

impl Workload {
    /// That of a view.
    pub fn of(view: &View) -> Self {
        Workload {
            namespace: view.namespace.clone(),
            labels: view.labels.clone(),
        }
    }

    /// Whether a view is of its sidecars.
    pub fn is_of(&self, view: &View) -> bool {
        self.namespace == view.namespace && self.labels == view.labels
    }
}
