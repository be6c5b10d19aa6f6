//! The ConfigMaps that objects name, which alone have an effect.

use myriad_api::gateway::{FrontendTls, FrontendValidation, Gateway, ObjectReference};
use myriad_api::{Change, Ingress, Object};

/// The `namespace/name` of each ConfigMap that an object names.
pub(super) fn named(change: &Change) -> Vec<String> {
    let Change::Put(object) = change else {
        return Vec::new();
    };
    let own = object.key().namespace();
    match object {
        Object::Ingress(ingress) => of_headers(ingress).into_iter().collect(),
        Object::GatewayClass(class) => {
            let parameters = class.spec.parameters.as_ref();
            let parameters = parameters.filter(|it| is_config_map(&it.group, &it.kind));
            let id = parameters.and_then(|it| Some(id(it.namespace.as_deref()?, &it.name)));
            id.into_iter().collect()
        }
        Object::Gateway(gateway) => of_gateway(gateway, own),
        Object::BackendTlsPolicy(policy) => {
            let validation = policy.spec.validation.as_ref().ok();
            let authorities = validation.map_or(&[][..], |it| &it.ca_certificate_refs);
            let maps = authorities
                .iter()
                .filter(|it| is_config_map(&it.group, &it.kind));
            maps.map(|it| id(own, &it.name)).collect()
        }
        _ => Vec::new(),
    }
}

/// The ConfigMap that an Ingress names for header fields.
fn of_headers(ingress: &Ingress) -> Option<String> {
    let mut annotations = ingress.meta.annotations.iter();
    let named = annotations.find(|(key, _)| key.ends_with("/custom-headers"));
    named.map(|(_, value)| value.trim().to_owned())
}

/// The ConfigMaps of the settings of a Gateway and of the authorities of its clients.
fn of_gateway(gateway: &Gateway, own: &str) -> Vec<String> {
    let spec = &gateway.spec;
    let infrastructure = spec.infrastructure.as_ref();
    let parameters = infrastructure.and_then(|it| it.parameters.as_ref());
    let parameters = parameters.filter(|it| is_config_map(&it.group, &it.kind));
    let parameters = parameters.map(|it| id(own, &it.name)).into_iter();
    let frontend = spec.tls.as_ref().and_then(|tls| tls.frontend.as_ref());
    let authorities = frontend.into_iter().flat_map(authorities);
    let maps = authorities.filter(|it| is_config_map(it.group(), it.kind()));
    let maps = maps.map(|it| id(it.namespace.as_deref().unwrap_or(own), &it.name));
    parameters.chain(maps).collect()
}

/// The authorities of clients, of all ports.
fn authorities(frontend: &FrontendTls) -> impl Iterator<Item = &ObjectReference> {
    let of_ports = frontend.per_port.iter();
    let of_ports = of_ports.filter_map(|port| port.validation.as_ref());
    let all = frontend.default.iter().chain(of_ports);
    all.flat_map(|it: &FrontendValidation| it.ca_certificate_refs.iter())
}

fn is_config_map(group: &str, kind: &str) -> bool {
    group.is_empty() && kind == "ConfigMap"
}

fn id(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use myriad_api::{Change, Object, ObjectKind};

    use super::named;

    fn named_by(kind: ObjectKind, spec: &str) -> Vec<String> {
        let text = format!(r#"{{"metadata": {{"namespace": "n", "name": "a"}}, "spec": {spec}}}"#);
        let object = Object::from_json(kind, &text).expect("an object");
        named(&Change::Put(object))
    }

    #[test]
    fn config_maps_are_named_for_settings_and_for_authorities() {
        let class = r#"{"controllerName": "a.test/b", "parametersRef":
            {"group": "", "kind": "ConfigMap", "namespace": "m", "name": "class"}}"#;
        assert_eq!(named_by(ObjectKind::GatewayClass, class), ["m/class"]);
        let gateway = r#"{"gatewayClassName": "c", "listeners": [],
            "infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "own"}},
            "tls": {"frontend": {
                "default": {"validation": {"caCertificateRefs": [
                    {"group": "", "kind": "ConfigMap", "name": "staff"},
                    {"group": "", "kind": "Secret", "name": "other"}]}},
                "perPort": [{"port": 8443, "tls": {"validation": {"caCertificateRefs": [{
                    "group": "", "kind": "ConfigMap", "namespace": "m", "name": "guests"
                }]}}}]}}}"#;
        let expected = ["n/own", "n/staff", "m/guests"];
        assert_eq!(named_by(ObjectKind::Gateway, gateway), expected);
        let policy = r#"{"targetRefs": [], "validation": {"hostname": "a.test",
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}]}}"#;
        assert_eq!(named_by(ObjectKind::BackendTlsPolicy, policy), ["n/roots"]);
        let broken = r#"{"targetRefs": [], "validation": {}}"#;
        assert!(named_by(ObjectKind::BackendTlsPolicy, broken).is_empty());
    }
}
