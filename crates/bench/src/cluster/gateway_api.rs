//! Gateway API in a cluster: the definitions of its kinds, and objects as tenants write them.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::domains::{
    DomainObjects, EDITED_PATH, GATEWAY, Layout, SHARED_SECRET, Site, WILDCARD_HOST,
};

/// The path of the API.
pub(crate) const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// The variable of the file with the definitions.
pub(super) const DEFINITIONS: &str = "MYRIAD_GATEWAY_API_DEFINITIONS";

/// The definitions that are needed.
const NEEDED: [&str; 4] = ["gatewayclasses", "gateways", "listenersets", "httproutes"];

/// Installs the definitions in the cluster in whose network this process is.
///
/// # Errors
/// Nothing says where they are, or the API server refuses.
pub(crate) fn install() -> anyhow::Result<()> {
    let file = std::env::var(DEFINITIONS).with_context(|| {
        format!(
            "{DEFINITIONS} is not set; `cargo xtask peer gateway-api-definitions` prints the path \
             of the file"
        )
    })?;
    let file = format!("--filename={file}");
    kubectl(&["apply", "--server-side", "--force-conflicts", &file])?;
    let names = NEEDED.map(|kind| format!("crd/{kind}.gateway.networking.k8s.io"));
    let mut arguments = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    arguments.extend(names.iter().map(String::as_str));
    kubectl(&arguments)
}

fn kubectl(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().context("kubectl cannot be run")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {arguments:?}: {errors}");
    Ok(())
}

/// The path of all classes.
pub(crate) fn classes() -> String {
    format!("{API}/gatewayclasses")
}

/// A class of this controller.
pub(crate) fn class(name: &str, controller: &str) -> Value {
    object("GatewayClass", name, json!({"controllerName": controller}))
}

/// The Gateway of all domains; none where they have Ingresses.
pub(super) fn gateway(objects: DomainObjects, class: &str) -> Option<Value> {
    let spec = match objects {
        DomainObjects::Ingresses => return None,
        DomainObjects::ListenerSets => json!({
            "gatewayClassName": class,
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "listeners": [{
                "name": "platform",
                "hostname": "platform.test",
                "port": 80,
                "protocol": "HTTP",
            }],
        }),
        DomainObjects::HttpRoutes => json!({
            "gatewayClassName": class,
            "listeners": [listener("https", WILDCARD_HOST, SHARED_SECRET)],
        }),
    };
    Some(object("Gateway", GATEWAY, spec))
}

/// A ListenerSet with a listener for each of these domains.
pub(super) fn listener_set(set: u64, sites: &[Site]) -> Value {
    let spec = json!({"parentRef": {"name": GATEWAY}, "listeners": listeners(sites)});
    object("ListenerSet", &Layout::set_name(set), spec)
}

/// A change of a ListenerSet, to be merged, so that it has a listener for each of these domains.
pub(super) fn set_change(sites: &[Site]) -> Value {
    json!({"spec": {"listeners": listeners(sites)}})
}

/// The HTTPRoute of a domain.
pub(super) fn http_route(objects: DomainObjects, site: &Site) -> Value {
    let spec = match objects {
        DomainObjects::ListenerSets => json!({
            "parentRefs": [{
                "kind": "ListenerSet",
                "name": Layout::set_name(Layout::set_of(site.number)),
                "sectionName": site.name,
            }],
            "rules": rules(site, false),
        }),
        DomainObjects::Ingresses | DomainObjects::HttpRoutes => json!({
            "parentRefs": [{"name": GATEWAY, "sectionName": "https"}],
            "hostnames": [site.host],
            "rules": rules(site, false),
        }),
    };
    object("HTTPRoute", &site.name, spec)
}

/// A change of the HTTPRoute of a domain, to be merged, so that it has a path more or has not.
pub(super) fn route_edit(site: &Site, is_edited: bool) -> Value {
    json!({"spec": {"rules": rules(site, is_edited)}})
}

fn rules(site: &Site, is_edited: bool) -> Value {
    let edited = is_edited.then_some(EDITED_PATH);
    let paths = ["/"].into_iter().chain(edited);
    let matches = paths.map(|path| json!({"path": {"type": "PathPrefix", "value": path}}));
    let backend = json!({"name": site.name, "port": 80});
    json!([{"matches": matches.collect::<Vec<_>>(), "backendRefs": [backend]}])
}

fn listeners(sites: &[Site]) -> Vec<Value> {
    let listeners = sites.iter();
    let listeners = listeners.map(|site| listener(&site.name, &site.host, &site.secret));
    listeners.collect()
}

fn listener(name: &str, host: &str, secret: &str) -> Value {
    json!({
        "name": name,
        "hostname": host,
        "port": 443,
        "protocol": "HTTPS",
        "tls": {"certificateRefs": [{"name": secret}]},
    })
}

/// An object; kinds that come of definitions are named in the objects themselves.
pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}
