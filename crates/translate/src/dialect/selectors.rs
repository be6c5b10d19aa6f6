//! The labels of workloads that objects name, of whatever dialect, and for whose workloads.
//!
//! Only what parts sidecars is named here: Gateways and ProxyConfigs are read at gateways alone.

use myriad_api::Object;
use myriad_api::istio::{Labels, VirtualService};

use crate::settings::{Settings, first_names};

/// The labels that are named whatever objects there are: what a workload goes by in traces.
pub(crate) const ALWAYS: [&str; 3] = ["app", "app.kubernetes.io/name", "istio"];

/// The labels that Kubernetes gives the Pods of one workload, each or each revision another.
/// A selector that names another one parts workloads as their owner has written them; one that
/// names one of these would part all Pods of everybody.
const OF_EACH_POD: [&str; 11] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Whether the Pods of one workload differ in a label by themselves.
pub(crate) fn is_of_each_pod(key: &str) -> bool {
    OF_EACH_POD.binary_search(&key).is_ok()
}

/// Adds the keys of the labels by which an object finds the sidecars that it is for, as often as
/// it names them, each with the namespace of the workloads that are asked for it; none for those
/// of all namespaces.
pub(crate) fn named(object: &Object, settings: &Settings, add: &mut dyn FnMut(Option<&str>, &str)) {
    let namespace = object.key().namespace();
    let is_root = namespace == settings.root_namespace();
    let (own, wide) = (Some(namespace), (!is_root).then_some(namespace));
    let (whose, selector) = match object {
        Object::VirtualService(service) => return sources(service, is_root, add),
        Object::Service(service) => (own, Some(&service.selector)),
        Object::Sidecar(sidecar) => {
            let selector = sidecar.spec.workload_selector.as_ref();
            (own, selector.map(|selector| &selector.labels))
        }
        Object::DestinationRule(rule) => {
            let selector = rule.spec.workload_selector.as_ref();
            (own, selector.map(|selector| &selector.match_labels))
        }
        Object::PeerAuthentication(peers) => {
            let spec = peers.spec.as_ref().ok();
            let selector = spec.and_then(|spec| spec.selector.as_ref());
            (own, selector.map(|selector| &selector.match_labels))
        }
        Object::Telemetry(telemetry) => {
            let selector = telemetry.spec.selector.as_ref();
            (wide, selector.map(|selector| &selector.match_labels))
        }
        Object::AuthorizationPolicy(policy) => {
            let spec = policy.spec.as_ref().ok();
            let selector = spec.and_then(|spec| spec.selector.as_ref());
            (wide, selector.map(|selector| &selector.match_labels))
        }
        Object::RequestAuthentication(policy) => {
            let spec = policy.spec.as_ref().ok();
            let selector = spec.and_then(|spec| spec.selector.as_ref());
            (wide, selector.map(|selector| &selector.match_labels))
        }
        Object::Ingress(_)
        | Object::IngressClass(_)
        | Object::EndpointSlice(_)
        | Object::Secret(_)
        | Object::IstioGateway(_)
        | Object::ServiceEntry(_)
        | Object::WorkloadEntry(_)
        | Object::ProxyConfig(_)
        | Object::EnvoyFilter(_)
        | Object::WasmPlugin(_)
        | Object::Pod(_)
        | Object::ConfigMap(_)
        | Object::Order(_)
        | Object::OnDemand(_)
        | Object::HostProof(_)
        | Object::Issuer(_)
        | Object::GatewayClass(_)
        | Object::Gateway(_)
        | Object::ListenerSet(_)
        | Object::HttpRoute(_)
        | Object::GrpcRoute(_)
        | Object::TlsRoute(_)
        | Object::TcpRoute(_)
        | Object::UdpRoute(_)
        | Object::BackendTlsPolicy(_)
        | Object::ReferenceGrant(_)
        | Object::Namespace(_) => return,
    };
    for (key, _) in selector.into_iter().flat_map(|labels| labels.iter()) {
        add(whose, key);
    }
}

/// Adds the labels of those whose requests and connections the rules of a VirtualService are for:
/// of callers of all namespaces that it is exported to. A delegate is for those of its root.
fn sources(service: &VirtualService, is_root: bool, add: &mut dyn FnMut(Option<&str>, &str)) {
    let namespace = service.meta.key.namespace();
    let is_own = !service.spec.hosts.is_empty() && is_kept(service);
    let mut add_all = |labels: &Labels| {
        for (key, _) in labels.iter() {
            let is_own = is_own || is_of_each_pod(key);
            add((is_own && !is_root).then_some(namespace), key);
        }
    };
    let spec = &service.spec;
    let http = spec.http.iter().flat_map(|route| &route.matches);
    let http = http.filter_map(|it| it.source_labels.as_deref());
    http.for_each(&mut add_all);
    let tls = spec.tls.iter().flat_map(|route| &route.matches);
    tls.for_each(|it| add_all(&it.source_labels));
    let tcp = spec.tcp.iter().flat_map(|route| &route.matches);
    tcp.for_each(|it| add_all(&it.source_labels));
}

/// Whether a VirtualService is exported to its own namespace at most.
fn is_kept(service: &VirtualService) -> bool {
    let namespace = service.meta.key.namespace();
    let exported = first_names(&service.spec.export_to);
    let mut others = exported.iter().filter(|to| !matches!(&***to, "." | "~"));
    !exported.is_empty() && others.all(|to| **to == *namespace)
}

#[cfg(test)]
mod tests {
    use super::OF_EACH_POD;

    #[test]
    fn labels_of_each_pod_are_found_by_halves() {
        assert!(OF_EACH_POD.is_sorted());
    }
}
