//! The labels of workloads that objects name, of whatever dialect.

use myriad_api::Object;
use myriad_api::istio::{Labels, VirtualServiceSpec};

/// The labels that are named whatever objects there are: what a workload goes by in traces.
pub(crate) const ALWAYS: [&str; 3] = ["app", "app.kubernetes.io/name", "istio"];

/// Adds the keys of the labels by which an object finds the workloads that it is for, as often as
/// it names them.
pub(crate) fn named(object: &Object, add: &mut dyn FnMut(&str)) {
    let mut add_all = |labels: &Labels| labels.iter().for_each(|(key, _)| add(key));
    let selector = match object {
        Object::Service(service) => return add_all(&service.selector),
        Object::IstioGateway(gateway) => return add_all(&gateway.spec.selector),
        Object::VirtualService(service) => return sources(&service.spec, &mut add_all),
        Object::Sidecar(sidecar) => {
            let selector = sidecar.spec.workload_selector.as_ref();
            return selector.into_iter().for_each(|it| add_all(&it.labels));
        }
        Object::DestinationRule(rule) => rule.spec.workload_selector.as_ref(),
        Object::ProxyConfig(config) => config.spec.selector.as_ref(),
        Object::Telemetry(telemetry) => telemetry.spec.selector.as_ref(),
        Object::AuthorizationPolicy(policy) => {
            let spec = policy.spec.as_ref().ok();
            spec.and_then(|spec| spec.selector.as_ref())
        }
        Object::RequestAuthentication(policy) => {
            let spec = policy.spec.as_ref().ok();
            spec.and_then(|spec| spec.selector.as_ref())
        }
        Object::PeerAuthentication(peers) => {
            let spec = peers.spec.as_ref().ok();
            spec.and_then(|spec| spec.selector.as_ref())
        }
        Object::Ingress(_)
        | Object::IngressClass(_)
        | Object::EndpointSlice(_)
        | Object::Secret(_)
        | Object::ServiceEntry(_)
        | Object::WorkloadEntry(_)
        | Object::EnvoyFilter(_)
        | Object::WasmPlugin(_)
        | Object::Pod(_)
        | Object::ConfigMap(_)
        | Object::Order(_) => None,
    };
    if let Some(selector) = selector {
        add_all(&selector.match_labels);
    }
}

/// The labels of those whose requests and connections the rules of a VirtualService are for.
fn sources(spec: &VirtualServiceSpec, add_all: &mut dyn FnMut(&Labels)) {
    let http = spec.http.iter().flat_map(|route| &route.matches);
    http.filter_map(|it| it.source_labels.as_deref())
        .for_each(&mut *add_all);
    let tls = spec.tls.iter().flat_map(|route| &route.matches);
    tls.for_each(|it| add_all(&it.source_labels));
    let tcp = spec.tcp.iter().flat_map(|route| &route.matches);
    tcp.for_each(|it| add_all(&it.source_labels));
}
